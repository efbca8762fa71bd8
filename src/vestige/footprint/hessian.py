"""Diagonal of the Hessian of a causal LM's loss, from Rademacher probes that every model sees alike.

`H_i = E_x[d^2 L / d theta_i^2] = E_x E_z[z_i (H z)_i]`, z uniform on {-1, +1} over the measured weights T
(Hutchinson 1990, Bekas et al. 2007; published as CHess in Ataee and Triantafillou 2026). Off-diagonal entries
within T leave noise that falls with the square root of probes and groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from vestige.data.corpora import TokenSequence
from vestige.errors import InputError
from vestige.footprint.passes import Reduction, batches, logits_of, measured, padded, sequence_losses
from vestige.footprint.shifts import relative_shift
from vestige.footprint.world import World
from vestige.models.positions import refuse_unreadable
from vestige.seeds import digest

__all__ = ["HessianMethod", "hessian_diagonal", "noise_floor", "probe"]

HessianMethod = Literal["hvp", "finite_difference"]


def probe(shape: Sequence[int], *key: object) -> NDArray[np.int8]:
    """Signs in {-1, +1} of this shape, int8, that depend on the key alone.

    One bit of NumPy's Philox (counter-based) a sign, little end first; its key is a hash of the parts.
    """
    size = int(np.prod(shape, dtype=np.int64))
    bits = np.random.Philox(key=int(digest("probe", *key)[:32], 16)).random_raw(-(-size // 64))
    drawn = np.unpackbits(np.asarray(bits, dtype="<u8").view(np.uint8), count=size, bitorder="little")
    return (2 * drawn.astype(np.int8) - 1).reshape(tuple(shape))


def hessian_diagonal(
    model: nn.Module,
    targets: Mapping[str, nn.Parameter],
    sequences: Sequence[TokenSequence],
    *,
    probes: int = 4,
    method: HessianMethod = "hvp",
    group_size: int = 8,
    eps: float = 1e-3,
    seed: int,
    corpus: str,
    subset: int,
    reduction: Reduction = "mean",
    batch_tokens: int = 1 << 30,
    step_dtype: torch.dtype | None = None,
    world: World | None = None,
) -> dict[str, Tensor]:
    """Signed mean over sequences and probes of `z * (H z)`: name -> tensor of the weight's shape.

    float32 (float64 for float64 weights). sequences: at least one, in corpus order, cut to length by the
    caller. A group of `group_size` has one set of probes, keyed (seed, corpus, subset, group, k, name), and
    is worked off in batches of at most `batch_tokens`; a rank of `world` takes whole groups. The last group
    counts by its sequences. `hvp`: exact products. `finite_difference`: central differences of gradients with
    step `eps`, divided by the step that the weights' dtype realised; the model is lifted to float32
    meanwhile, unless `step_dtype` says otherwise. Weights are restored bit by bit. Raises InputError for a
    step that no weight realises, and ValueError without sequences or probes.
    """
    if not sequences or probes < 1:
        raise ValueError(f"needed sequences and probes, found {len(sequences)} and {probes}")
    if not targets:
        raise ValueError("no weights to measure")
    refuse_unreadable(model, (unit.ids for unit in sequences), subject="a sequence")
    world = world or World()
    groups = [sequences[start : start + group_size] for start in range(0, len(sequences), group_size)]
    sums = {name: torch.zeros_like(weight, dtype=_wide(weight.dtype)) for name, weight in targets.items()}
    dtype = None if method == "hvp" else step_dtype or torch.float32
    with measured(model), _lifted(model, dtype), sdpa_kernel(SDPBackend.MATH):
        for weight in targets.values():
            weight.requires_grad_(True)
        for position, group in world.share(list(enumerate(groups))):
            key = (seed, corpus, subset, position)
            for part in batches(group, batch_tokens=batch_tokens):
                chosen = [group[i] for i in part]
                if method == "hvp":
                    _add_products(model, targets, chosen, probes, key, reduction, sums)
                else:
                    _add_differences(model, targets, chosen, probes, key, reduction, eps, sums)
    world.total(sums)
    return {name: total / (len(sequences) * probes) for name, total in sums.items()}


def noise_floor(
    model: nn.Module,
    targets: Mapping[str, nn.Parameter],
    sequences: Sequence[TokenSequence],
    *,
    seeds: tuple[int, int],
    floor: float = 1e-5,
    **settings: Any,
) -> float:
    """Percent by which two probe seeds of one model differ, on the log scale: what shifts must exceed.

    settings: those of `hessian_diagonal` but the seed.
    """
    first, second = (hessian_diagonal(model, targets, sequences, seed=seed, **settings) for seed in seeds)
    return relative_shift(first, second, scale="log", floor=floor)


def _add_products(
    model: nn.Module,
    targets: Mapping[str, nn.Parameter],
    sequences: Sequence[TokenSequence],
    probes: int,
    key: tuple[object, ...],
    reduction: Reduction,
    sums: dict[str, Tensor],
) -> None:
    """Add z * (H z) of the sequences' summed loss, for each probe."""
    weights = list(targets.values())
    loss = _loss(model, sequences, reduction, weights[0])
    gradients = torch.autograd.grad(loss, weights, create_graph=True)
    for k in range(probes):
        signs = [_signs(weight, *key, k, name) for name, weight in targets.items()]
        products = torch.autograd.grad(
            gradients, weights, grad_outputs=signs, retain_graph=k + 1 < probes, materialize_grads=True
        )
        for name, sign, product in zip(targets, signs, products, strict=True):
            sums[name] += (sign * product).to(sums[name].dtype)


def _add_differences(
    model: nn.Module,
    targets: Mapping[str, nn.Parameter],
    sequences: Sequence[TokenSequence],
    probes: int,
    key: tuple[object, ...],
    reduction: Reduction,
    eps: float,
    sums: dict[str, Tensor],
) -> None:
    """Add z * (g(theta + eps z) - g(theta - eps z)) / realised step, for each probe."""
    weights = list(targets.values())
    for k in range(probes):
        before = [weight.data for weight in weights]
        try:
            gradients, placed = [], []
            for sign in (1.0, -1.0):
                for (name, weight), original in zip(targets.items(), before, strict=True):
                    weight.data = original + sign * eps * _signs(original, *key, k, name)
                loss = _loss(model, sequences, reduction, weights[0])
                gradients.append(torch.autograd.grad(loss, weights, materialize_grads=True))
                placed.append([weight.data for weight in weights])
        finally:
            for weight, original in zip(weights, before, strict=True):
                weight.data = original
        realised = False
        for name, up, down, high, low in zip(targets, *gradients, *placed, strict=True):
            wide = sums[name].dtype
            step = high.to(wide) - low.to(wide)  # signed: z times the step's size
            moved = step != 0
            realised = realised or bool(moved.any())
            change = (up.to(wide) - down.to(wide)) / torch.where(moved, step, torch.inf)
            sums[name] += change
        if not realised:
            raise InputError(
                f"finite-difference step {eps:g}",
                f"no weight in {before[0].dtype} moves by it",
                "a step that the weights' type realises",
                "difference in float32 or take the exact products (hvp)",
            )


def _loss(model: nn.Module, sequences: Sequence[TokenSequence], reduction: Reduction, like: Tensor) -> Tensor:
    ids, mask = padded(sequences, device=like.device)
    return sequence_losses(logits_of(model, ids, mask), ids, mask, reduction).sum()


def _signs(like: Tensor, *key: object) -> Tensor:
    return torch.from_numpy(probe(like.shape, *key)).to(like.device, like.dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


@contextmanager
def _lifted(model: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """The model's floating weights and buffers in this dtype inside; the very same tensors afterwards.

    None, or float64 weights where less is asked: left as they are.
    """
    held = [*model.parameters(), *model.buffers()]
    kept = [(tensor, tensor.data) for tensor in held if tensor.is_floating_point()]
    try:
        for tensor, original in kept:
            if dtype is not None and original.dtype not in (dtype, torch.float64):
                tensor.data = original.to(dtype)
        yield
    finally:
        for tensor, original in kept:
            tensor.data = original
