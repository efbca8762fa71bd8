"""Adapters on a causal language model: LoRA and its kin merged in float32, prompt encoders kept in front."""

from __future__ import annotations

import copy
import importlib.util
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vestige.errors import InputError, MissingDependency
from vestige.files import write_text
from vestige.models.hub import answering_hub, is_path
from vestige.models.lm_record import Adapter
from vestige.models.loading import library, put_adapter
from vestige.models.weight_files import ADAPTER_CONFIG

__all__ = [
    "Applied",
    "NamedBase",
    "PromptedLM",
    "apply_adapter",
    "is_adapter",
    "merged",
    "named_base",
    "order_config",
    "save_prompted",
    "without_adapters",
    "write_base",
]

BASE = "base"
"""Folder in a prompt's own folder with the weights that it was trained before."""
NOTED_BASE = "base.json"
"""File in an adapter's folder with the sha256 of the weights that it was trained on."""
PROMPT = "prompt_encoder"
"""Name of the prompt among the modules of a `PromptedLM`."""


@dataclass(frozen=True)
class Applied:
    """A model with an adapter applied. model: plain weights or a `PromptedLM`. rank: LoRA's largest."""

    model: nn.Module
    adapter: Adapter
    rank: int | None
    virtual_tokens: int
    notes: tuple[str, ...]


class PromptedLM(nn.Module):
    """A prompt encoder before a language model: logits of the real positions alone, (n, L, V).

    Its modules are those of the language model, under their own names, and the prompt. virtual_tokens:
    positions that stand before the text.
    """

    prompted: Any

    def __init__(self, prompted: Any) -> None:
        super().__init__()
        # Hidden from torch, which would list the model's weights again, under other names.
        object.__setattr__(self, "prompted", prompted)
        for name, child in prompted.get_base_model().named_children():
            self.add_module(name, child)
        self.add_module(PROMPT, prompted.prompt_encoder)
        self.config = prompted.config
        self.virtual_tokens = int(prompted.active_peft_config.num_virtual_tokens)
        self._kind = str(getattr(prompted.active_peft_config.peft_type, "value", ""))
        self._bare = False

    def train(self, mode: bool = True) -> PromptedLM:
        """As torch's, of the prompt's own object as well."""
        super().train(mode)
        self.prompted.train(mode)
        return self

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        use_cache: bool = False,
        position_ids: Tensor | None = None,
        **extra: Any,
    ) -> Any:
        """Virtual positions go in before `input_ids` and their logits are cut off.

        position_ids: of the real positions, counted without the virtual ones.
        """
        inputs = {"attention_mask": attention_mask, "use_cache": use_cache}
        if self._bare:
            return self.prompted.base_model(input_ids=input_ids, position_ids=position_ids, **inputs)
        if position_ids is None or self._kind not in ("P_TUNING", "PROMPT_TUNING"):
            with warnings.catch_warnings():  # peft calls an argument by its older name
                warnings.filterwarnings("ignore", message="`past_key_values` is deprecated")
                out = self.prompted(input_ids=input_ids, **inputs)
        else:  # peft drops positions, so that padding on the left would move the text away from its prompt
            out = self._placed(input_ids, attention_mask, use_cache, position_ids)
        out.logits = out.logits[:, -input_ids.shape[1] :]
        return out

    def _placed(self, ids: Tensor, mask: Tensor | None, use_cache: bool, positions: Tensor) -> Any:
        """The prompt at positions 0, 1, ..., the text's own positions after it."""
        prompts = self.prompted.get_prompt(batch_size=len(ids))
        virtual = prompts.shape[1]
        before = torch.arange(virtual, device=ids.device).expand(len(ids), -1)
        embeds = self.get_input_embeddings()(ids)
        mask = torch.ones_like(ids) if mask is None else mask
        return self.prompted.base_model(
            inputs_embeds=torch.cat((prompts.to(embeds.dtype), embeds), 1),
            attention_mask=torch.cat((mask.new_ones(len(ids), virtual), mask), 1),
            position_ids=torch.cat((before, positions + virtual), 1),
            use_cache=use_cache,
        )

    @contextmanager
    def unprompted(self) -> Iterator[None]:
        """Inside, the model computes as if there were no prompt."""
        self._bare = True
        try:
            yield
        finally:
            self._bare = False

    def get_input_embeddings(self) -> nn.Module:
        """The table of real tokens' embeddings."""
        found: nn.Module = self.prompted.base_model.get_input_embeddings()
        return found


@dataclass(frozen=True)
class NamedBase:
    """Where an adapter's base is, and the sha256 of its float32 weights ("" where it was not noted). own: it
    lies in the adapter's folder."""

    location: str
    sha256: str
    own: bool


def named_base(name: str) -> NamedBase | None:
    """What an adapter says of its base; a relative name is looked for inside its folder first."""
    from transformers.utils import cached_file

    folder = Path(name)
    try:
        record = (
            folder / ADAPTER_CONFIG
            if folder.is_dir()
            else Path(cached_file(name, ADAPTER_CONFIG, local_files_only=True))
        )
        location = json.loads(record.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError):
        return None
    if not isinstance(location, str) or location in ("", "None"):
        return None
    try:
        noted = json.loads((folder / NOTED_BASE).read_text(encoding="utf-8"))
        sha256 = str(noted.get("sha256", ""))
    except (OSError, ValueError, AttributeError):
        sha256 = ""
    own = location == BASE or (not Path(location).is_absolute() and (folder / location).is_dir())
    return NamedBase(str(folder / location) if own else location, sha256, own)


def write_base(folder: Path, *, label: str, sha256: str) -> None:
    """Note the weights that the adapter in `folder` belongs to, for `named_base`."""
    write_text(folder / NOTED_BASE, json.dumps({"label": label, "sha256": sha256}))


def order_config(folder: Path) -> None:
    """Sort what the adapter's configuration in `folder` says: peft keeps names of layers in sets, whose order
    differs by process, so that equal models would have files of different hashes."""
    path = folder / ADAPTER_CONFIG
    found = json.loads(path.read_text(encoding="utf-8"))
    for value in found.values():
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            value.sort()
    write_text(path, json.dumps(found, indent=2, sort_keys=True))


def save_prompted(model: PromptedLM, tokenizer: Any, folder: Path) -> None:
    """Write the prompt into `folder` and the model it stands before into `folder/base`, whole.

    The prompt's own record names that base relative to itself, so that the folder can be moved.
    """
    base = model.prompted.get_base_model()
    base.save_pretrained(str(folder / BASE))
    tokenizer.save_pretrained(str(folder / BASE))
    model.prompted.save_pretrained(str(folder))
    path = folder / ADAPTER_CONFIG
    config = json.loads(path.read_text(encoding="utf-8"))
    write_text(path, json.dumps(config | {"base_model_name_or_path": BASE}, indent=2, sort_keys=True))


def is_adapter(name: str) -> bool:
    """Whether `name` is a folder with an adapter, or a hub id whose repository holds one."""
    path = Path(name)
    if path.is_dir():
        return (path / ADAPTER_CONFIG).is_file()
    if "/" not in name or is_path(name) or path.suffix == ".gguf":
        return False
    from transformers.utils import cached_file

    try:
        with answering_hub():
            return cached_file(name, ADAPTER_CONFIG, _raise_exceptions_for_missing_entries=False) is not None
    except (OSError, ValueError):
        return False


def apply_adapter(base: nn.Module, name: str, *, base_name: str) -> Applied:
    """Put the adapter on `base`, a fresh float32 model that is given up for it.

    LoRA and other weight adapters are merged. Raises InputError for an adapter whose modules or shapes are
    not the base's, see `put_adapter`.
    """
    if importlib.util.find_spec("peft") is None:
        raise MissingDependency("peft", "train", f"adapter '{name}'")
    named = named_base(name)
    own = f"; its own record names '{named.location}'" if named is not None else ""
    wrapped = put_adapter(
        base,
        name,
        subject=f"adapter '{name}'",
        remedy=f"name the base it was trained on with --base: this one is '{base_name}'{own}",
    )
    notes: tuple[str, ...] = ()
    if named is not None and not named.own and Path(named.location).name != Path(base_name).name:
        notes = (
            f"the adapter was trained on '{named.location}' by its own record; it was put on '{base_name}'",
        )
    return merged(wrapped, subject=f"adapter '{name}'", notes=notes)


def merged(wrapped: Any, *, subject: str = "adapter", notes: tuple[str, ...] = ()) -> Applied:
    """A peft model as plain weights (it is given up for them), or as a `PromptedLM`.

    Raises InputError for an adapter that does not merge, or whose merged weights compute something else.
    """
    config = wrapped.active_peft_config
    wrapped.eval()
    if getattr(config, "is_prompt_learning", False):
        return Applied(PromptedLM(wrapped), "prompt encoder", None, int(config.num_virtual_tokens), notes)
    kind = getattr(config, "peft_type", type(config).__name__)
    needed = "LoRA, another adapter that merges, or a prompt encoder"
    remedy = "merge it yourself and give the full checkpoint"
    if not hasattr(wrapped.base_model, "merge_and_unload"):
        raise InputError(
            f"{subject} of type {getattr(kind, 'value', kind)}",
            "no way to merge it into weights",
            needed,
            remedy,
        )
    with library(subject, needed, remedy), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _untie_adapted(wrapped)
        before = _probe(wrapped)
        plain: nn.Module = wrapped.merge_and_unload()
        after = _probe(plain)
    coarsest = max(torch.finfo(value.dtype).eps for value in plain.parameters())
    if not _alike(before, after, tolerance=max(1e-3, 16 * coarsest)):
        raise InputError(
            subject,
            f"merged weights that compute something else (logits differ by {_largest(before - after):.2g})",
            needed,
            remedy,
        )
    ranks = [config.r] if isinstance(getattr(config, "r", None), int) else []
    ranks += list((getattr(config, "rank_pattern", None) or {}).values())
    return Applied(plain, "lora", max(ranks, default=None), 0, notes)


def _untie_adapted(wrapped: Any) -> None:
    """Give every adapted layer a weight of its own: merged into a tied weight, an adapter of the output layer
    would change the embeddings as well."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    owners: dict[int, set[int]] = {}
    for module in wrapped.modules():
        for value in module.parameters(recurse=False):
            owners.setdefault(id(value), set()).add(id(module))
    for module in wrapped.modules():
        if not isinstance(module, BaseTunerLayer):
            continue
        layer = module.get_base_layer()
        for name, value in list(layer.named_parameters(recurse=False)):
            if len(owners[id(value)]) > 1:
                setattr(layer, name, nn.Parameter(value.detach().clone(), requires_grad=False))
                wrapped.get_base_model().config.get_text_config().tie_word_embeddings = False
                wrapped.config.tie_word_embeddings = False


def _probe(model: Any) -> Tensor:
    """Logits (1, L, V) for a few tokens from all over the vocabulary."""
    rows = model.get_input_embeddings().weight.shape[0]
    ids = torch.linspace(0, rows - 1, 8).long()[None].to(next(model.parameters()).device)
    with torch.inference_mode():
        found: Tensor = model(input_ids=ids, use_cache=False).logits
    return found.float()


def _alike(first: Tensor, second: Tensor, tolerance: float) -> bool:
    """Equal up to the rounding of merged weights; what is not finite is refused elsewhere, by its name."""
    if not bool(torch.isfinite(first).all() and torch.isfinite(second).all()):
        return True
    return _largest(first - second) <= tolerance * (1 + _largest(first))


def _largest(values: Tensor) -> float:
    return float(values.abs().max())


def without_adapters(model: nn.Module) -> tuple[nn.Module, bool]:
    """A copy of a model whose dense layers peft has replaced in place, with its own layers back; whether any
    were. A model without any is returned as it is."""
    try:
        from peft.tuners.tuners_utils import BaseTunerLayer
    except ImportError:
        return model, False
    if not any(isinstance(module, BaseTunerLayer) for module in model.modules()):
        return model, False
    own = copy.deepcopy(model)
    for name, module in list(own.named_modules()):
        if isinstance(module, BaseTunerLayer):
            parent, _, last = name.rpartition(".")
            layer = module.get_base_layer()
            if getattr(module, "merged", False):
                module.unmerge()
            setattr(own.get_submodule(parent), last, layer)
    return own, True


def shares_weights(first: nn.Module, second: nn.Module) -> bool:
    """Whether two models hold a weight in the same memory."""
    own = {value.data_ptr() for value in first.parameters() if value.numel()}
    return any(value.data_ptr() in own for value in second.parameters() if value.numel())


def float32_copy(model: nn.Module) -> nn.Module:
    """A copy of the model in float32 (float64 stays)."""
    own = copy.deepcopy(model)
    wide = any(value.dtype == torch.float64 for value in own.parameters())
    return own if wide else own.float()
