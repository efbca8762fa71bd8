"""Which weights of a causal language model are its attention and feed-forward projections, by module name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import nn

from vestige.errors import InputError, first_five

__all__ = [
    "ATTENTION",
    "FEED_FORWARD",
    "Place",
    "Subspace",
    "layer_modules",
    "lora_targets",
    "place",
    "projection_layout",
    "target_modules",
    "target_parameters",
]

Subspace = Literal["both", "attention", "ffn"]

ATTENTION = ("q", "k", "v", "qkv", "o")
FEED_FORWARD = ("gate", "up", "gate_up", "down")

_NAMES = {
    "q_proj": "q",
    "k_proj": "k",
    "v_proj": "v",
    "o_proj": "o",
    "wq": "q",
    "wk": "k",
    "wv": "v",
    "wo": "o",
    "out_proj": "o",
    "qkv_proj": "qkv",
    "Wqkv": "qkv",
    "query_key_value": "qkv",
    "c_attn": "qkv",
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
    "gate_up_proj": "gate_up",
    "w1": "gate",
    "w3": "up",
    "w2": "down",
    "dense_h_to_4h": "up",
    "dense_4h_to_h": "down",
    "c_fc": "up",
    "fc_in": "up",
    "fc_out": "down",
    "fc1": "up",
    "fc2": "down",
}
"""Last part of a module's name -> projection, over the architectures of transformers."""

_AMBIGUOUS = {
    "c_proj": {"attn": "o", "mlp": "down"},
    "dense": {"attention": "o", "self_attention": "o", "self_attn": "o", "attn": "o"},
}
"""Last part -> the part before it -> projection."""


@dataclass(frozen=True)
class Place:
    """Where a weight lies: the block's number and the projection. expert: of a mixture, else None."""

    layer: int
    projection: str
    expert: int | None = None


def place(name: str) -> Place | None:
    """The place of a module or weight of this name, None when it is no projection of a block."""
    parts = name.removesuffix(".weight").split(".")
    numbers = [int(part) for part in parts if part.isdigit()]
    if not numbers:
        return None
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    projection = _NAMES.get(last) or _AMBIGUOUS.get(last, {}).get(before)
    if projection is None:
        return None
    return Place(numbers[0], projection, numbers[1] if len(numbers) > 1 else None)


def _projections(model: nn.Module) -> Iterator[tuple[str, Place, nn.Module]]:
    for name, module in model.named_modules():
        found = place(name)
        if found is not None and projection_layout(module) is not None:
            yield name, found, module


def projection_layout(module: nn.Module) -> Literal["out, in", "in, out"] | None:
    """The order of the axes of a dense layer's weight, None for another kind of module."""
    if isinstance(module, nn.Linear):
        return "out, in"
    return "in, out" if type(module).__name__ == "Conv1D" else None


def target_modules(model: nn.Module, subspace: Subspace = "both") -> dict[str, nn.Module]:
    """The modules that own the measured weights, keyed by the weights' names, in the model's order.

    attention: q, k, v (or fused) and o; ffn: gate, up (or fused) and down. Raises InputError when a part that
    was asked for matches nothing, with the names of the model's dense layers.
    """
    asked = {"both": (ATTENTION, FEED_FORWARD), "attention": (ATTENTION,), "ffn": (FEED_FORWARD,)}[subspace]
    found = list(_projections(model))
    for part in asked:
        if not any(where.projection in part for _, where, _ in found):
            raise _nothing_matched(model, part)
    kinds = {kind for part in asked for kind in part}
    return {f"{name}.weight": module for name, where, module in found if where.projection in kinds}


def target_parameters(model: nn.Module, subspace: Subspace = "both") -> dict[str, nn.Parameter]:
    """The measured weights by name, in the model's order. Raises InputError as `target_modules`, and for a
    weight that two modules share: its gradient is a sum over both, which no module sees alone."""
    modules = target_modules(model, subspace)
    targets: dict[str, nn.Parameter] = {}
    for name, module in modules.items():
        weight = module.weight
        assert isinstance(weight, nn.Parameter)
        targets[name] = weight
    owners: dict[int, list[str]] = {}
    for name, value in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(value), []).append(name)
    for name, weight in targets.items():
        shared = owners[id(weight)]
        if len(shared) > 1:
            raise InputError(
                f"weight '{name}'",
                f"the same weight under {first_five(shared)}",
                "a weight of its own for every measured projection",
                "measure a model whose projections are not tied, or leave that part out with --subspace",
            )
    return targets


def lora_targets(model: nn.Module, subspace: Subspace = "both") -> list[str]:
    """The last parts of the measured modules' names, sorted: what peft calls target modules."""
    return sorted({name.removesuffix(".weight").split(".")[-1] for name in target_modules(model, subspace)})


def layer_modules(model: nn.Module) -> list[nn.Module]:
    """The blocks that hold the projections, in order of layer."""
    found: dict[int, nn.Module] = {}
    for name, where, _ in _projections(model):
        parts = name.split(".")
        end = next(i for i, part in enumerate(parts) if part.isdigit()) + 1
        found.setdefault(where.layer, model.get_submodule(".".join(parts[:end])))
    return [found[layer] for layer in sorted(found)]


def _nothing_matched(model: nn.Module, part: tuple[str, ...]) -> InputError:
    dense = sorted(
        {
            ".".join(piece for piece in name.split(".") if not piece.isdigit())
            for name, module in model.named_modules()
            if projection_layout(module) is not None
        }
    )
    return InputError(
        f"{type(model).__name__}, {'attention' if part is ATTENTION else 'feed-forward'} projections",
        f"dense layers {first_five(dense)}" if dense else "no dense layers",
        f"names such as {', '.join(name for name, kind in _NAMES.items() if kind in part)}",
        "measure the other part with --subspace, or another architecture",
    )
