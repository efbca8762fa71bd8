"""Adapters on a causal language model: LoRA and its kin merged in float32, prompt encoders kept in front."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vestige.errors import InputError, MissingDependency, first_five
from vestige.files import write_text
from vestige.models.hub import answering_hub, is_path
from vestige.models.lm_record import Adapter

__all__ = [
    "Applied",
    "PromptedLM",
    "apply_adapter",
    "is_adapter",
    "merged",
    "save_prompted",
    "without_adapters",
]

CONFIG = "adapter_config.json"
BASE = "base"
"""Folder in a prompt's own folder with the weights that it was trained before."""


@dataclass(frozen=True)
class Applied:
    """A model with an adapter applied. model: plain weights or a `PromptedLM`. rank: LoRA's largest."""

    model: nn.Module
    adapter: Adapter
    rank: int | None
    virtual_tokens: int
    notes: tuple[str, ...]


class PromptedLM(nn.Module):
    """A prompt encoder before a language model: logits of the real positions alone, (n, L, V)."""

    def __init__(self, prompted: Any) -> None:
        super().__init__()
        self.prompted = prompted
        self.config = prompted.config
        self._bare = False

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
        kind = str(getattr(self.prompted.active_peft_config.peft_type, "value", ""))
        if position_ids is None or kind not in ("P_TUNING", "PROMPT_TUNING"):
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


def save_prompted(model: PromptedLM, tokenizer: Any, folder: Path) -> None:
    """Write the prompt into `folder` and the model it stands before into `folder/base`, whole.

    The prompt's own record names that base relative to itself, so that the folder can be moved.
    """
    base = model.prompted.get_base_model()
    base.save_pretrained(str(folder / BASE))
    tokenizer.save_pretrained(str(folder / BASE))
    model.prompted.save_pretrained(str(folder))
    path = folder / CONFIG
    config = json.loads(path.read_text(encoding="utf-8"))
    write_text(path, json.dumps(config | {"base_model_name_or_path": BASE}, indent=2, sort_keys=True))


def is_adapter(name: str) -> bool:
    """Whether `name` is a folder with an adapter, or a hub id whose repository holds one."""
    path = Path(name)
    if path.is_dir():
        return (path / CONFIG).is_file()
    if "/" not in name or is_path(name) or path.suffix == ".gguf":
        return False
    from transformers.utils import cached_file

    try:
        with answering_hub():
            return cached_file(name, CONFIG, _raise_exceptions_for_missing_entries=False) is not None
    except (OSError, ValueError):
        return False


def apply_adapter(base: nn.Module, name: str, *, base_name: str) -> Applied:
    """Put the adapter on `base`, a fresh float32 model that is given up for it.

    LoRA and other weight adapters are merged. Raises InputError for an adapter whose modules or shapes are
    not the base's.
    """
    try:
        from peft import PeftModel
    except ImportError:
        raise MissingDependency("peft", "train", f"adapter '{name}'") from None
    _check_shapes(base, name, base_name)
    try:
        with warnings.catch_warnings(), answering_hub() if not Path(name).is_dir() else nullcontext():
            warnings.simplefilter("ignore")
            wrapped = PeftModel.from_pretrained(base, name)
    except (ValueError, RuntimeError, KeyError, OSError, TypeError) as error:
        reason = (str(error).strip().splitlines() or ["could not be read"])[0]
        raise InputError(
            f"adapter '{name}'",
            reason[:200],
            f"an adapter that fits the base '{base_name}'",
            "name the base it was trained on with --base",
        ) from None
    config = wrapped.active_peft_config
    named = getattr(config, "base_model_name_or_path", None)
    notes: tuple[str, ...] = ()
    if named and Path(str(named)).name != Path(base_name).name:
        notes = (f"the adapter was trained on '{named}' by its own record; it was put on '{base_name}'",)
    return merged(wrapped, notes=notes)


def merged(wrapped: Any, *, notes: tuple[str, ...] = ()) -> Applied:
    """A peft model as plain weights (it is given up for them), or as a `PromptedLM`."""
    config = wrapped.active_peft_config
    if getattr(config, "is_prompt_learning", False):
        wrapped.eval()
        return Applied(PromptedLM(wrapped), "prompt encoder", None, int(config.num_virtual_tokens), notes)
    if not hasattr(wrapped.base_model, "merge_and_unload"):
        kind = str(getattr(config, "peft_type", type(config).__name__))
        raise InputError(
            f"adapter of type {kind}",
            "no way to merge it into weights",
            "LoRA, another adapter that merges, or a prompt encoder",
            "merge it yourself and give the full checkpoint",
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain: nn.Module = wrapped.merge_and_unload()
    ranks = [config.r] if isinstance(getattr(config, "r", None), int) else []
    ranks += list((getattr(config, "rank_pattern", None) or {}).values())
    return Applied(plain, "lora", max(ranks, default=None), 0, notes)


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


def _check_shapes(base: nn.Module, name: str, base_name: str) -> None:
    """Raise InputError when a LoRA matrix of a local adapter has no layer of its shape in the base."""
    file = Path(name) / "adapter_model.safetensors"
    if not file.is_file():
        return
    config = json.loads((Path(name) / CONFIG).read_text(encoding="utf-8"))
    if config.get("peft_type") != "LORA":
        return
    from safetensors import safe_open

    modules = dict(base.named_modules())
    with safe_open(str(file), framework="pt") as stored:
        wrong = []
        for key in stored.keys():  # noqa: SIM118 - a safetensors handle is no mapping
            head, found, _ = key.removeprefix("base_model.model.").partition(".lora_")
            part = key[len(key) - len(key.partition(".lora_")[2]) :][:1]
            if not found or part not in ("A", "B"):
                continue
            weight = getattr(modules.get(head), "weight", None)
            shape = stored.get_slice(key).get_shape()
            side = shape[1] if part == "A" else shape[0]
            if weight is None or side not in weight.shape:
                wrong.append(head)
    if wrong:
        raise InputError(
            f"adapter '{name}'",
            f"matrices for {first_five(dict.fromkeys(wrong))}, which the base does not have in these shapes",
            f"an adapter that fits the base '{base_name}'",
            f"its own record names '{config.get('base_model_name_or_path')}': give that with --base",
        )


def shares_weights(first: nn.Module, second: nn.Module) -> bool:
    """Whether two models hold a weight in the same memory."""
    own = {value.data_ptr() for value in first.parameters() if value.numel()}
    return any(value.data_ptr() in own for value in second.parameters() if value.numel())


def float32_copy(model: nn.Module) -> nn.Module:
    """A copy of the model in float32 (float64 stays)."""
    own = copy.deepcopy(model)
    wide = any(value.dtype == torch.float64 for value in own.parameters())
    return own if wide else own.float()
