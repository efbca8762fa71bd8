"""The one place where models, tokenizers and adapters are read: all of a model comes from its files, or none.

Every tensor that a model computes with is accounted for by name and shape against the files it was read from;
libraries would draw what is missing at random and drop what is left over. Code that came with a model is
never run, nobody is asked whether it may be, and whatever a library raises becomes one line.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vestige.errors import InputError, VestigeError, first_five
from vestige.models.hub import is_path, missing_path
from vestige.models.weight_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, adapter_file, header, whole_model

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vestige.models.weight_files import StoredTensor

__all__ = [
    "Task",
    "adapter_config",
    "fill",
    "hub_commit",
    "library",
    "put_adapter",
    "quiet_loading",
    "read_config",
    "read_model",
    "read_tokenizer",
]

Task = Literal["base", "sequence", "causal-lm"]
"""What is loaded: hidden states alone, a sequence classifier, or a language model with its output layer."""

MODEL = "a model that transformers loads from safetensors or GGUF"
CHECK = "check the name, or download it first and name its folder"

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
_VOCABULARIES = (
    *(TOKENIZER, "tokenizer.model", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model"),
    *("tekken.json", "tiktoken.model", "vocab.model"),
)
"""Files of which a tokenizer has at least one. Without any, its special tokens alone become a vocabulary."""

_WRAPPERS = ("module.", "_orig_mod.", "base_model.model.")
"""What wrappers put before the names of a model's weights."""

_STATED_INITS = (True, False, None, "gaussian", "orthogonal", "eva", "pissa", "olora")
"""Ways to begin LoRA that leave the base as it is, or change it alike at every load."""


@contextmanager
def quiet_loading() -> Iterator[None]:
    """No progress bars, load reports or notices about its own future from transformers; restored after."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")
            warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False")  # then set to True
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def library(subject: str, needed: str, remedy: str) -> Iterator[None]:
    """Whatever a library raises inside becomes InputError: a damaged file can make it fail in any way."""
    try:
        yield
    except VestigeError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        kind = type(error).__name__
        told = isinstance(error, OSError | ValueError | RuntimeError | ImportError) and lines
        found = lines[0] if told else f"{kind}: {lines[0]}" if lines else kind
        if found.endswith(":") and len(lines) > 1:
            found = f"{found} {lines[1]}"
        raise InputError(subject, found[:200], needed, remedy) from None


def read_config(source: str, *, subject: str, revision: str | None = None) -> Any:
    """The configuration of a folder or hub id. Raises InputError."""
    import transformers

    with library(subject, MODEL, CHECK), quiet_loading():
        _refuse_other_json(Path(source) / "config.json")
        config = transformers.AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
        config.get_text_config()  # a part of another type than its own would fail later, in another place
        return config


def hub_commit(name: str, revision: str | None = None) -> str | None:
    """The commit that a revision of a hub id stands for now, None where it is not known."""
    from transformers.utils import cached_file, extract_commit_hash

    with library(f"backbone '{name}'", MODEL, CHECK):
        found: str | None = extract_commit_hash(cached_file(name, "config.json", revision=revision), None)
        return found


def read_tokenizer(
    source: str, *, subject: str, revision: str | None = None, gguf_file: str | None = None
) -> Any:
    """The tokenizer of a folder or hub id, or of a GGUF file in a folder. Raises InputError: files that are
    not there or damaged."""
    import transformers

    folder = Path(source)
    options = {} if gguf_file is None else {"gguf_file": gguf_file}
    if folder.is_dir() and gguf_file is None:
        present = [name for name in _VOCABULARIES if (folder / name).is_file()]
        missing = [] if present else [TOKENIZER]
        missing += [] if (folder / TOKENIZER_CONFIG).is_file() else [TOKENIZER_CONFIG]
        if missing:
            raise InputError(
                subject,
                f"a tokenizer without {' and '.join(missing)}",
                "all files of the tokenizer that the model was trained with",
                "save it there with its save_pretrained",
            )
    with library(f"{subject}, its tokenizer", "a tokenizer that transformers loads", CHECK), quiet_loading():
        _refuse_other_json(folder / TOKENIZER_CONFIG)
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            source, revision=revision, trust_remote_code=False, **options
        )
        tokenizer("a")
        return tokenizer


def _refuse_other_json(path: Path) -> None:
    """Raise InputError for a file, where there is one, that holds no JSON object."""
    if not path.is_file():
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(
            str(path), "no JSON object", "the file as it was saved", "copy the folder again, or save it again"
        )


def read_model(
    task: Task,
    source: str,
    *,
    subject: str,
    revision: str | None = None,
    gguf_file: str | None = None,
    quantised: bool = False,
    **options: Any,
) -> nn.Module:
    """A whole model in evaluation mode, every weight of it out of its files.

    source: a folder or a hub id. gguf_file: of a folder, to be read in place of safetensors. quantised: the
    files may hold other tensors than the model. options: for transformers. Raises InputError: weights that
    are missing, left over or of other shapes, two sets of them, damaged files.
    """
    config = None
    if gguf_file is None:
        config = read_config(source, subject=subject, revision=revision)
        _refuse_odd_config(config, subject)
        options |= {"use_safetensors": True, "config": config}
        if Path(source).is_dir():
            stored = whole_model(Path(source), subject)
            if not quantised:
                _refuse_larger(task, config, stored, subject)
    else:
        options |= {"gguf_file": gguf_file}
    with library(subject, MODEL, CHECK), quiet_loading(), _no_conversion():
        loader = _loader(task, config)
        model, found = loader.from_pretrained(
            source,
            revision=revision,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the account below says which they are
            **options,
        )
        left_over = set() if quantised else _left_over(model, config, set(found["unexpected_keys"]))
    _account(
        subject,
        type(model).__name__,
        missing={
            name
            for name in found["missing_keys"]
            # Poolers stand behind the hidden states, which are all that is read of a base model.
            if not (task == "base" and name.startswith("pooler."))
        },
        left_over=left_over,
        shapes={str(name): (tuple(was), tuple(now)) for name, was, now in found["mismatched_keys"]},
        remedy="save it again, whole, or correct its config.json",
    )
    whole: nn.Module = model
    return whole


def _loader(task: Task, config: Any) -> Any:
    """The auto class of a task. A language model inside an image-and-text one has that class."""
    import transformers

    if task == "base":
        return transformers.AutoModel
    if task == "sequence":
        return transformers.AutoModelForSequenceClassification
    if config is None or type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        return transformers.AutoModelForCausalLM
    return transformers.AutoModelForImageTextToText


@contextmanager
def _no_conversion() -> Iterator[None]:
    """Inside, weights are not taken from a proposed conversion of a hub repository, which is not the revision
    that was asked for."""
    name = "DISABLE_SAFETENSORS_CONVERSION"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _refuse_odd_config(config: Any, subject: str) -> None:
    """Put a configuration's switches for running a model back to their defaults: they say nothing of its
    weights, and a kernel from the hub is a program. Raises InputError for one that names other weights than
    those beside it."""
    with library(subject, MODEL, CHECK):
        config._attn_implementation = config._experts_implementation = None
        config.return_dict = True
        config.output_hidden_states = config.output_attentions = False
        config.fusion_config = None
    if named := getattr(config, "transformers_weights", None):
        raise InputError(
            subject,
            f"a config.json that names its weights ('transformers_weights': {named!r})",
            "weights in model.safetensors or its shards",
            "rename the file and take the entry away",
        )


def _refuse_larger(task: Task, config: Any, stored: Mapping[str, StoredTensor], subject: str) -> None:
    """Raise InputError for a configuration of a model that the files are far too small for, before memory is
    taken for it."""
    import torch

    numbers = sum(tensor.size for tensor in stored.values())
    layers = getattr(config.get_text_config(), "num_hidden_layers", None)
    needed = f"a configuration of the model that is stored ({len(stored)} tensors, {numbers:,} numbers)"
    if isinstance(layers, int) and layers > len(stored):
        raise InputError(subject, f"a config.json with {layers} layers", needed, "correct its config.json")
    with library(subject, MODEL, CHECK), quiet_loading(), torch.device("meta"):
        model = _loader(task, config).from_config(config, trust_remote_code=False)
    size = sum(value.numel() for value in model.parameters())
    if size > 2 * numbers + 1_000_000:
        raise InputError(
            subject, f"a config.json of a model with {size:,} weights", needed, "correct its config.json"
        )


def _left_over(model: nn.Module, config: Any, names: set[str]) -> set[str]:
    """Names in the files without a place in the model, but for the parts of the architecture that the
    configuration names which are not read here: output layers, towers for images."""
    import torch
    import transformers

    named = getattr(config, "architectures", None)
    declared = getattr(transformers, str(named[0]), None) if isinstance(named, list) and named else None
    if not names or declared is None or declared is type(model):
        return names
    with torch.device("meta"):
        whole = declared(config)
    return names - set(whole.state_dict())


def _account(
    subject: str,
    model: str,
    *,
    missing: Iterable[str],
    left_over: Iterable[str],
    shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]],
    remedy: str,
) -> None:
    """Raise InputError unless files and model hold the same tensors. model: whose weights they are. shapes:
    those that differ, in the files and in the model."""
    missing, left_over = sorted(missing), sorted(left_over)
    parts = []
    if missing:
        parts.append(f"no weights for {first_five(missing)}")
    if left_over:
        parts.append(f"weights without a place in the model: {first_five(left_over)}")
    if shapes:
        name = min(shapes)
        more = f" and {len(shapes) - 1} more" if len(shapes) > 1 else ""
        parts.append(f"'{name}' of shape {shapes[name][0]} instead of {shapes[name][1]}{more}")
    if not parts:
        return
    wrapper = next((mark for mark in _WRAPPERS if left_over and left_over[0].startswith(mark)), None)
    if wrapper is not None and missing:
        remedy = f"save the model without its wrapper, whose '{wrapper}' stands before the names"
    elif missing and any(".base_layer." in name for name in left_over):
        remedy = "merge the adapter before the model is saved, or save the adapter alone"
    raise InputError(subject, "; ".join(parts), f"all weights of {model}, and no others", remedy)


def adapter_config(folder: Path, subject: str) -> dict[str, Any]:
    """An adapter's own record. Raises InputError."""
    path = folder / ADAPTER_CONFIG
    with library(subject, "an adapter saved by peft", "save or copy it again"):
        _refuse_other_json(path)
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found


def put_adapter(base: nn.Module, name: str, *, subject: str, remedy: str, trainable: bool = False) -> Any:
    """The peft model of `base`, which is given up for it, with the adapter of a folder or hub id.

    remedy: for an adapter that does not fit. Raises InputError: tensors that are missing, left over, of other
    shapes or not what was stored, an adapter that cannot be loaded alike twice.
    """
    needed = "an adapter saved by peft that fits its base"
    if not Path(name).is_dir() and is_path(name):
        raise missing_path(name, subject)
    with library(subject, needed, remedy):
        folder = Path(name) if Path(name).is_dir() else _downloaded(name)
    file = adapter_file(folder, subject)
    stored = header(file)
    record = adapter_config(folder, subject)
    _refuse_odd_adapter(record, stored, subject)
    import peft
    from safetensors.torch import load_file

    from vestige.models.trainable import seeded

    with (
        library(subject, needed, remedy),
        quiet_loading(),
        warnings.catch_warnings(),
        seeded(0),  # what an adapter draws anew at each load is drawn alike
    ):
        warnings.simplefilter("ignore")
        config = peft.PeftConfig.from_pretrained(str(folder))
        config.inference_mode = not trainable
        wrapped: Any = peft.get_peft_model(base, config)
        config.base_model_name_or_path = record.get("base_model_name_or_path")
        own = _adapter_state(wrapped, stored)
        _account(
            subject,
            f"a {record.get('peft_type')} adapter on this base",
            missing=own.keys() - stored.keys(),
            left_over=stored.keys() - own.keys(),
            shapes={
                key: (stored[key].shape, tuple(own[key].shape))
                for key in own.keys() & stored.keys()
                if stored[key].shape != tuple(own[key].shape)
            },
            remedy=remedy,
        )
        wrapped.load_adapter(str(folder), "default", is_trainable=trainable, torch_device="cpu")
        own, read = _adapter_state(wrapped, stored), load_file(str(file))
        if odd := sorted(key for key, value in own.items() if not _same(value, read[key])):
            raise InputError(
                subject,
                f"{first_five(odd)} with other values than peft loads",
                needed,
                "save it again with the installed version of peft",
            )
    return wrapped


def _downloaded(name: str) -> Path:
    """The folder in the hub's cache with the files of an adapter."""
    from transformers.utils import cached_file

    config = Path(cached_file(name, ADAPTER_CONFIG))
    cached_file(name, ADAPTER_WEIGHTS, revision=config.parent.name)
    return config.parent


def _adapter_state(wrapped: Any, stored: Mapping[str, StoredTensor]) -> dict[str, Tensor]:
    """The adapter's tensors in the model, by the names that peft saves them under."""
    from peft import get_peft_model_state_dict

    # An adapter on embeddings is saved with the embeddings themselves.
    with_embeddings = any(".base_layer." in name for name in stored)
    found: dict[str, Tensor] = get_peft_model_state_dict(wrapped, save_embedding_layers=with_embeddings)
    return found


def _same(loaded: Tensor, stored: Tensor) -> bool:
    import torch

    return torch.equal(loaded.detach().cpu(), stored.to(loaded.dtype))


def _refuse_odd_adapter(record: Mapping[str, Any], stored: Mapping[str, StoredTensor], subject: str) -> None:
    """Raise InputError for an adapter whose record asks for another program, for another base at each load,
    or for far more numbers than are stored."""
    if record.get("megatron_config"):
        raise InputError(
            subject,
            "an adapter that names a program to load ('megatron_core')",
            "an adapter that needs peft alone",
            "merge it where it was trained",
        )
    begin = record.get("init_lora_weights")
    if not (begin in _STATED_INITS or isinstance(begin, dict | list)):
        raise InputError(
            subject,
            f"an adapter that changes its base anew at each load (init_lora_weights {begin!r})",
            "a plain LoRA adapter",
            "convert it with peft's save_pretrained(path_initial_model_for_weight_conversion=...)",
        )
    numbers = sum(tensor.size for tensor in stored.values())
    for field in ("r", "init_r", "num_virtual_tokens", "num_vectors"):
        value = record.get(field)
        if isinstance(value, int) and 0 < numbers < value:
            raise InputError(
                subject,
                f"{field} {value} in its record and {numbers} numbers in its file",
                "a record of these weights",
                "save it again",
            )


def fill(module: nn.Module, file: Path, *, subject: str, remedy: str) -> None:
    """Copy a safetensors file into a module. Raises InputError unless both hold the same tensors."""
    stored = header(file, remedy=remedy)
    own = module.state_dict()
    _account(
        subject,
        type(module).__name__,
        missing=own.keys() - stored.keys(),
        left_over=stored.keys() - own.keys(),
        shapes={
            name: (stored[name].shape, tuple(own[name].shape))
            for name in own.keys() & stored.keys()
            if stored[name].shape != tuple(own[name].shape)
        },
        remedy=remedy,
    )
    from safetensors.torch import load_file

    with library(subject, "the weights as they were saved", remedy):
        module.load_state_dict(load_file(str(file)))
