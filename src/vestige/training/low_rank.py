"""FILA: adapters that start at the low-rank part of a weight that matters to some rows and not to others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vestige.errors import InputError
from vestige.models.projections import projection_layout
from vestige.training.hidden import with_weights
from vestige.training.losses import wide

if TYPE_CHECKING:
    from vestige.data.language_rows import LanguageRows
    from vestige.language import SequenceBatch
    from vestige.training.session import Session

__all__ = ["relative_importance", "squared_gradients", "start_from_importance", "weighted_split"]

FLOOR = 1e-5


def squared_gradients(
    batches: Iterable[Callable[[], SequenceBatch]], weights: Sequence[Tensor]
) -> list[Tensor]:
    """Squared gradient of each batch's mean loss a token, weighted by the batch's tokens, like the weights.

    batches: made one at a time, with gradient. Raises InputError for a loss that is not finite.
    """
    sums = [torch.zeros_like(wide(weight.detach())) for weight in weights]
    tokens = 0
    for number, make in enumerate(batches, 1):
        scored = make().token_log_probs
        if not bool(torch.isfinite(scored).all()):
            raise InputError(
                f"importances, batch {number}", "a loss that is not finite", "finite losses", "check the rows"
            )
        for total, gradient in zip(sums, torch.autograd.grad(-scored.mean(), weights), strict=True):
            total.addcmul_(wide(gradient), wide(gradient), value=len(scored))
        tokens += len(scored)
    return [total / tokens for total in sums]


def relative_importance(forget: Tensor, retain: Tensor) -> Tensor:
    """v_i = sqrt(sum_j F_forget / (1e-5 + F_retain)) of each output, (out, in) twice to (out,)."""
    return (forget / (FLOOR + retain)).sum(1).sqrt()


def weighted_split(weight: Tensor, importance: Tensor, rank: int, scaling: float) -> tuple[Tensor, Tensor]:
    """A (rank, in) and B (out, rank) with scaling B A the weighted rank-r part of `weight` (out, in).

    U S V' is the rank-r singular value decomposition of diag(v) W, S divided by `scaling`;
    B = diag(1 / (v + 1e-5)) U sqrt(S), A = sqrt(S) V'. importance: v (out,). Cha et al. 2025, FILA.
    """
    left, values, right = torch.linalg.svd(importance[:, None] * wide(weight), full_matrices=False)
    root = (values[:rank] / scaling).sqrt()
    return root[:, None] * right[:rank], (left[:, :rank] * root) / (importance[:, None] + FLOOR)


def start_from_importance(session: Session) -> None:
    """Put the adapters of the session's model at the split of their weights, which lose it.

    The model's function stays as it was. The reference becomes the model as it then stands. Raises
    InputError without adapters, for a rank above a weight's, and where no weight matters to the forget rows.
    """
    layers = _adapted(session)
    settings: Any = session.settings
    weights = [layer.weight for layer in layers]
    with _measuring(session.model, weights):
        of_forget, of_retain = (
            squared_gradients(_batches(session, part), weights) for part in ("forget", "retain")
        )
    for layer, forget, retain in zip(layers, of_forget, of_retain, strict=True):
        layer.start(relative_importance(layer.turned(forget), layer.turned(retain)))
    session.notes.append(
        f"adapters of {len(layers)} weights start at the rank-{settings.lora.rank} part that matters to the "
        "forget rows; the base's weights lose it"
    )
    own = {name: value for name, value in session.model.named_parameters() if value.requires_grad}
    begun = {name: value.detach().clone() for name, value in own.items()}

    @contextmanager
    def reference() -> Iterator[None]:
        with with_weights(dict(own), begun):
            yield

    session.reference = reference


class _Layer:
    """A dense layer with a LoRA adapter: its own weight and the two matrices."""

    def __init__(self, name: str, module: Any, adapter: str) -> None:
        base = module.get_base_layer()
        self.name = name
        self.weight: nn.Parameter = base.weight
        self.swapped = projection_layout(base) == "in, out"
        self.into, self.out = module.lora_A[adapter].weight, module.lora_B[adapter].weight
        self.scaling = float(module.scaling[adapter])

    def turned(self, value: Tensor) -> Tensor:
        """(out, in), whichever way the layer keeps its weight."""
        return value.T if self.swapped else value

    @torch.no_grad()
    def start(self, importance: Tensor) -> None:
        if not bool(importance.any()):
            raise InputError(
                f"weight '{self.name}'",
                "no gradient on the forget rows",
                "weights that the forget rows' loss depends on",
                "start without FILA: method 'loku'",
            )
        rank = len(self.into)
        first, second = weighted_split(self.turned(self.weight), importance, rank, self.scaling)
        self.into.copy_(first)
        self.out.copy_(second)
        self.weight.sub_(self.turned(self.scaling * (self.out @ self.into)))


def _adapted(session: Session) -> list[_Layer]:
    if session.settings.lora is None:
        raise InputError(
            "setting lora",
            "no adapters",
            "adapters for FILA to start",
            "give lora a rank, or use the method 'loku'",
        )
    layers = [
        _Layer(name, module, next(iter(module.lora_A)))
        for name, module in session.model.named_modules()
        if len(getattr(module, "lora_A", ()))
    ]
    smallest = min(layers, key=lambda layer: min(layer.weight.shape))
    if session.settings.lora.rank > min(smallest.weight.shape):
        raise InputError(
            "setting lora.rank",
            str(session.settings.lora.rank),
            f"at most {min(smallest.weight.shape)}, the rank of weight '{smallest.name}'",
            "lower it",
        )
    return layers


@contextmanager
def _measuring(model: nn.Module, weights: Sequence[nn.Parameter]) -> Iterator[None]:
    """Evaluation mode; these weights, and the adapters, ask for gradients."""
    training = model.training
    model.eval()
    for weight in weights:
        weight.requires_grad_(True)
    try:
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(False)
        model.train(training)


def _batches(session: Session, part: str) -> Iterator[Callable[[], SequenceBatch]]:
    """At most `importance_batches` of a set's batches in file order, the topics in turn."""
    settings: Any = session.settings
    size = settings.importance_batch
    scorer = session.scorer()

    def of_topic(name: str, rows: LanguageRows) -> Iterator[Callable[[], SequenceBatch]]:
        for position, first in enumerate(range(0, len(rows), size)):
            chosen = rows.rows[first : first + size]
            yield lambda chosen=chosen, position=position: scorer.batch(  # type: ignore[misc]
                chosen, frozenset({"scores"}), topic=name, position=position
            )

    turns = [of_topic(name, getattr(topic, part)) for name, topic in session.topics.items()]
    in_turn = (make for round_ in itertools.zip_longest(*turns) for make in round_ if make is not None)
    return itertools.islice(in_turn, settings.importance_batches)
