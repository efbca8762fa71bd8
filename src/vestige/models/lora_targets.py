"""Which dense layers of a backbone get LoRA adapters: the projections of its blocks, by name."""

from __future__ import annotations

import re

from torch import nn

from vestige.errors import InputError, first_five
from vestige.models.blocks import blocks_of
from vestige.models.projections import projection_layout

__all__ = ["adapted_layers", "adapted_names"]

LEFT_OUT = frozenset(
    {"router", "gate", "shared_expert_gate", "lm_head", "embed_out", "pooler", "classifier", "score"}
)
"""Parts of a module's name that are no projection of a block: routers of mixtures, output layers, poolers."""

_SCANNED = frozenset({"falcon_h1", "mamba", "mamba2", "falcon_mamba", "nemotron_h", "bamba", "zamba2"})
"""Model types whose scan kernels read the weight of the mixer's `out_proj` past any adapter on it; a module
called `mamba` does so in any other type."""


def adapted_layers(model: nn.Module, last: int | None = None) -> list[str]:
    """Full names of the dense layers that are adapted, in the model's order.

    All of the blocks' attention, feed-forward and linear mixer projections, however the architecture names or
    fuses them. last: only those of the last so many blocks (None: of all). Raises InputError when nothing is
    left, with the names of the dense layers that there are, and when there are fewer blocks than `last`.
    """
    dense = [
        name
        for name, module in model.named_modules()
        if projection_layout(module) is not None and not LEFT_OUT.intersection(name.split("."))
    ]
    inside = _names_inside(model, last)
    found = [name for name in dense if (inside is None or name in inside) and not _scanned(model, name)]
    if not found:
        raise InputError(
            f"{type(model).__name__}, layers for LoRA",
            f"dense layers {first_five(_short(name) for name in dense)}" if dense else "no dense layers",
            "attention, feed-forward or mixer projections inside its blocks",
            "use another backbone",
        )
    return found


def adapted_names(model: nn.Module) -> list[str]:
    """The adapted layers' names within a block, numbers left out, sorted: what an architecture calls them."""
    return sorted({_short(name) for name in adapted_layers(model)})


def _names_inside(model: nn.Module, last: int | None) -> set[str] | None:
    """Names of the modules inside the (last) blocks; None where a model has no list of blocks."""
    try:
        blocks = blocks_of(model)
    except InputError:
        if last is None:
            return None
        raise
    if last is not None and last > len(blocks):
        raise InputError(
            "model.lora_layers", str(last), f"at most the backbone's {len(blocks)} blocks", "lower it"
        )
    chosen = blocks if last is None else blocks[len(blocks) - last :]
    members = {id(module) for block in chosen for module in block.modules()}
    return {name for name, module in model.named_modules() if id(module) in members}


def _scanned(model: nn.Module, name: str) -> bool:
    kind = getattr(getattr(model, "config", None), "model_type", None)
    return name.endswith(".mamba.out_proj") or (kind in _SCANNED and name.endswith(".out_proj"))


def _short(name: str) -> str:
    """`layers.3.self_attn.q_proj` -> `self_attn.q_proj`."""
    return re.split(r"(?:^|\.)\d+\.", name, maxsplit=1)[-1]
