"""The diagonal empirical Fisher of a causal language model's projections, exact for every sequence.

The gradient of a sequence's loss with respect to a dense layer's weight is `sum_t d_t x_t'`, x_t the layer's
input and d_t the loss's gradient at its output. A tap on each measured layer sees both during one backward
pass, forms that product for one sequence at a time, a block of rows at a time, and adds its square: no
gradient of any sequence is kept, and the weights themselves ask for none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vestige.data.corpora import TokenSequence
from vestige.errors import InputError
from vestige.footprint.passes import (
    Reduction,
    batch_loss,
    batches,
    logits_of,
    measured,
    padded,
    sequence_losses,
    weights_of,
)
from vestige.footprint.world import World
from vestige.models.positions import refuse_unreadable
from vestige.models.projections import layer_modules, projection_layout

__all__ = [
    "Estimator",
    "Fisher",
    "chunked",
    "fisher_diagonal",
    "free_bytes",
    "layer_chunks",
    "per_batch_limit",
]

Estimator = Literal["per-sequence", "batch-mean"]

_BLOCK = 1 << 17
"""Elements of a gradient formed at a time on a CPU: with its sum it stays in a core's cache."""
_SHARE_OF_FREE = 0.6


@dataclass(frozen=True)
class Fisher:
    """values: name -> mean squared gradient, shape of the weight, float32 (float64 for a float64 model), CPU.

    traces (n,) float64: a sequence's squared gradient summed over all measured weights; for the batch-mean
    estimator a batch's, under each of its sequences. losses (n,) float64: as reduced. rows (n, k) float32: a
    sequence's squared gradient at the coordinates asked for, targets in order; (n, 0) when none were.
    """

    values: dict[str, Tensor]
    traces: Tensor
    losses: Tensor
    rows: Tensor
    chunks: int = 1


def fisher_diagonal(
    model: nn.Module,
    targets: Mapping[str, Tensor],
    sequences: Sequence[TokenSequence],
    *,
    reduction: Reduction = "mean",
    estimator: Estimator = "per-sequence",
    batch_size: int | None = None,
    batch_tokens: int = 1024,
    batch_mean_size: int = 4,
    world: World | None = None,
    coordinates: Mapping[str, Tensor] | None = None,
    checkpointing: bool = False,
    max_bytes: int | None = None,
    side: Literal["right", "left"] = "right",
    progress: Callable[[int], None] = lambda tokens: None,
) -> Fisher:
    """`F_i = mean over sequences of (d L / d theta_i)^2` of the measured weights. Ataee, Triantafillou 2026.

    targets: names of the model's measured weights (`target_parameters`). reduction: L of a sequence, the mean
    or the sum over its scored tokens. estimator: per-sequence squares each sequence's gradient and does not
    depend on how sequences are batched; batch-mean squares the gradient of the token mean over
    `batch_mean_size` sequences in the order given. batch_size, batch_tokens: of one pass; they change memory
    and time alone. coordinates: name -> flat indices, per-sequence estimator only. checkpointing: blocks are
    computed twice instead of kept. max_bytes: room for the sums; with less, more chunks of layers and passes.
    progress(tokens): after every batch. Raises InputError when nothing is measured, a sequence is longer than
    the model reads, a loss is not finite, or every gradient is zero.
    """
    world = world or World()
    if not sequences or not targets:
        raise InputError(
            "Fisher diagonal",
            f"{len(sequences)} sequences, {len(targets)} weights",
            "at least one of each",
            "check the corpus and the measured projections",
        )
    refuse_unreadable(model, (unit.ids for unit in sequences), subject="a sequence")
    groups = _groups(sequences, estimator, batch_size, batch_tokens, batch_mean_size, world)
    device = next(iter(targets.values())).device
    parts = world.from_lead(layer_chunks(targets, max_bytes))
    values: dict[str, Tensor] = {}
    traces = torch.zeros(len(sequences), dtype=torch.float64)
    losses = torch.zeros(len(sequences), dtype=torch.float64)
    rows: list[Tensor] = []
    for names in parts:
        pass_ = _Pass(
            model,
            {name: targets[name] for name in names},
            coordinates or {},
            rows=len(sequences),
            together=estimator == "batch-mean",
            side=side,
        )
        with measured(model), pass_.tapped(), _checkpointed(model, checkpointing):
            for group in groups:
                batch = [sequences[i] for i in group]
                ids, mask = padded(batch, device=device, side=side)
                pass_.begin(group, [len(unit.ids) for unit in batch])
                logits = logits_of(model, ids, mask)
                if estimator == "batch-mean":
                    own = batch_loss(logits, ids, mask)
                    losses[group] = own.detach().double().cpu()
                    loss = own
                else:
                    each = sequence_losses(logits, ids, mask, reduction)
                    losses[group] = each.detach().double().cpu()
                    loss = each.sum()
                _finite(losses[group], batch)
                loss.backward()  # type: ignore[no-untyped-call]
                progress(int(mask.sum()))
        sums = world.total(pass_.sums)
        squares = (
            len(sequences) if estimator == "per-sequence" else math.ceil(len(sequences) / batch_mean_size)
        )
        values |= {name: (value / squares).cpu() for name, value in sums.items()}
        traces += pass_.traces.cpu()
        rows.append(pass_.rows)
    sampled = torch.cat(rows, 1)
    if world.size > 1:
        each_own = {"traces": traces, "losses": losses, "rows": sampled.double()}
        all_rows = world.total({name: value.to(device) for name, value in each_own.items()})
        traces, losses = all_rows["traces"].cpu(), all_rows["losses"].cpu()
        sampled = all_rows["rows"].float().cpu()
    if not any(bool(value.any()) for value in values.values()):
        raise InputError(
            "Fisher diagonal",
            "a gradient of zero at every measured weight",
            "a loss that depends on the weights",
            "the model cuts the graph on the way (its own gradient checkpointing does): load it afresh",
        )
    return Fisher(values=values, traces=traces, losses=losses, rows=sampled, chunks=len(parts))


def per_batch_limit(model: nn.Module) -> int | None:
    """1 for a mixture of experts, whose dense layers do not see whose token is whose; else no limit."""
    config: Any = getattr(model, "config", None)
    experts = any(
        getattr(config, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts")
    )
    return 1 if experts else None


def free_bytes(device: torch.device) -> int:
    """Memory that is free now on the device the sums are kept on."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    import os

    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def chunked(targets: Mapping[str, Tensor], max_bytes: int) -> list[list[str]]:
    """The names in as few runs as keep each run's sums within `max_bytes`, at least one name each."""
    runs: list[list[str]] = []
    used = 0
    for name, weight in targets.items():
        size = weight.numel() * (8 if weight.dtype == torch.float64 else 4)
        if not runs or used + size > max_bytes:
            runs.append([])
            used = 0
        runs[-1].append(name)
        used += size
    return runs


def layer_chunks(targets: Mapping[str, Tensor], max_bytes: int | None = None) -> list[list[str]]:
    """`chunked` by `max_bytes`, else by the memory that is free now on the weights' device."""
    device = next(iter(targets.values())).device
    return chunked(targets, max_bytes if max_bytes is not None else int(_SHARE_OF_FREE * free_bytes(device)))


def _groups(
    sequences: Sequence[TokenSequence],
    estimator: Estimator,
    batch_size: int | None,
    batch_tokens: int,
    batch_mean_size: int,
    world: World,
) -> list[list[int]]:
    """This process's batches of positions."""
    everything = range(len(sequences))
    if estimator == "batch-mean":
        size = batch_mean_size
        return world.share(
            [list(everything[start : start + size]) for start in range(0, len(sequences), size)]
        )
    own = world.share(everything)
    found = batches([sequences[i] for i in own], batch_tokens=batch_tokens, batch_size=batch_size)
    return [[own[i] for i in group] for group in found]


def _finite(losses: Tensor, batch: Sequence[TokenSequence]) -> None:
    bad = (~torch.isfinite(losses)).nonzero().flatten().tolist()
    if bad:
        raise InputError(
            f"document {batch[bad[0]].document_id}",
            f"a loss of {float(losses[bad[0]])}",
            "a finite loss",
            "check the model, or measure in float32",
        )


class _Tap(torch.autograd.Function):
    """Passes a layer's output on; on the way back gives its input and the gradient at its output to `sink`.

    The input goes through autograd's saved tensors, so that checkpointing drops and recomputes it too.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor, sink: Callable[[Tensor, Tensor], None]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.sink = sink
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        (x,) = ctx.saved_tensors
        ctx.sink(x, grads[0])
        return None, grads[0], None


@dataclass
class _Pass:
    """Sums of squared gradients of some layers, and the batch whose backward pass is running."""

    model: nn.Module
    targets: Mapping[str, Tensor]
    coordinates: Mapping[str, Tensor]
    rows: Any
    together: bool
    side: Literal["right", "left"]
    sums: dict[str, Tensor] = field(default_factory=dict)
    _group: list[int] = field(default_factory=list)
    _lengths: list[int] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name, weight in self.targets.items():
            wide = torch.float64 if weight.dtype == torch.float64 else torch.float32
            self.sums[name] = torch.zeros(weight.shape, dtype=wide, device=weight.device)
        device = next(iter(self.targets.values())).device
        self.traces = torch.zeros(self.rows, dtype=torch.float64, device=device)
        self._first: dict[str, int] = {}
        width = 0
        for name in self.targets:
            if name in self.coordinates:
                self._first[name] = width
                width += len(self.coordinates[name])
        self.rows = torch.zeros(self.rows, width)

    def begin(self, group: list[int], lengths: list[int]) -> None:
        """The batch of the next forward and backward pass."""
        self._group, self._lengths = group, lengths
        self._seen = set()

    @contextmanager
    def tapped(self) -> Iterator[None]:
        """The taps are on inside."""
        with ExitStack() as stack:
            measured_weights = weights_of(self.model)
            for name in self.targets:
                module = measured_weights.get_submodule(name.removesuffix(".weight"))
                hook = module.register_forward_hook(self._tap(name, module))
                stack.callback(hook.remove)
            yield

    def _tap(self, name: str, module: nn.Module) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        swapped = projection_layout(module) == "in, out"

        def sink(x: Tensor, grad: Tensor) -> None:
            self._add(name, x, grad, swapped)

        def hook(_module: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
            tapped: Tensor = _Tap.apply(inputs[0].detach(), out, sink)  # type: ignore[no-untyped-call]
            return tapped

        return hook

    @torch.no_grad()
    def _add(self, name: str, x: Tensor, grad: Tensor, swapped: bool) -> None:
        if name in self._seen:
            raise InputError(
                f"weight '{name}'",
                "a layer that runs twice in one pass",
                "one use of every measured weight",
                "measure another part with --subspace",
            )
        self._seen.add(name)
        left, right = (x, grad) if swapped else (grad, x)
        pairs = list(self._segments(name, left, right))
        self.traces[self._group] += _add_squares(self.sums[name], pairs)
        if name in self._first and not self.together:
            for row, (one, two) in zip(self._group, pairs, strict=True):
                self._sample(name, row, one, two)

    def _segments(self, name: str, left: Tensor, right: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Each sequence's (tokens, features) pair without padding; one pair for a whole batch-mean batch."""
        count = len(self._group)
        width = max(self._lengths)
        wide = left.dtype if left.is_cuda else self.sums[name].dtype
        left, right = (value.reshape(-1, value.shape[-1]).to(wide) for value in (left, right))
        if self.together or count == 1:
            yield left, right
            return
        virtual = left.shape[0] // count - width if weights_of(self.model) is not self.model else 0
        if left.shape[0] != count * (virtual + width) or virtual < 0:
            raise InputError(
                f"weight '{name}'",
                f"{left.shape[0]} positions where the batch has {count * width}",
                "a layer that sees every token of every sequence",
                "measure it with one sequence a pass (batch size 1)",
            )
        for i, length in enumerate(self._lengths):
            # A prompt's virtual positions stand before each sequence and its padding: the loss reaches the
            # weights through them too.
            start = i * (virtual + width)
            first = start + virtual + (width - length if self.side == "left" else 0)
            rows = [*range(start, start + virtual), *range(first, first + length)]
            part = slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] + 1 == len(rows) else rows
            yield left[part], right[part]

    def _sample(self, name: str, row: int, left: Tensor, right: Tensor) -> None:
        flat = self.coordinates[name].to(left.device)
        columns = self.sums[name].shape[1]
        gradient = (left[:, flat // columns].double() * right[:, flat % columns].double()).sum(0)
        first = self._first[name]
        self.rows[row, first : first + len(flat)] = gradient.square().float().cpu()


def _add_squares(total: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Adds the square of each pair's product left' right to `total` (rows, columns); returns their sums.

    pairs: left (tokens, rows), right (tokens, columns). Sums: float64 (pairs,). A block of rows at a time, so
    that on a CPU the block's sum and gradient stay in cache over all pairs. bfloat16 factors on a GPU are
    multiplied with float32 sums.
    """
    sums = torch.zeros(len(pairs), dtype=torch.float64, device=total.device)
    block = total.shape[0] if total.is_cuda else max(1, _BLOCK // total.shape[1])
    buffer = total.new_empty(min(block, total.shape[0]), total.shape[1])
    for first in range(0, total.shape[0], block):
        part = total[first : first + block]
        gradient = buffer[: part.shape[0]]
        flat = gradient.view(-1)
        for i, (left, right) in enumerate(pairs):
            rows = left[:, first : first + block].T
            if left.dtype == total.dtype:
                torch.mm(rows, right, out=gradient)
            else:
                gradient.copy_(torch.mm(rows, right, out_dtype=total.dtype))
            part.addcmul_(gradient, gradient)
            sums[i] += torch.dot(flat, flat)
    return sums


@contextmanager
def _checkpointed(model: nn.Module, wanted: bool) -> Iterator[None]:
    """Blocks keep nothing for the backward pass but their input, and run again in it."""
    if not wanted:
        yield
        return
    from torch.utils.checkpoint import checkpoint

    def again(forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)

        return run

    with ExitStack() as stack:
        for block in layer_modules(model):
            own = block.__dict__.get("forward")
            block.forward = again(block.forward)
            stack.callback(_restore, block, own)
        yield


def _restore(block: nn.Module, own: Any) -> None:
    if own is None:
        del block.__dict__["forward"]
    else:
        block.forward = own
