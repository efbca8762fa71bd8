"""Alignment: a small network learns to tell a text encoder's embedding of a text from a model's states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vestige.models.trainable import seeded
from vestige.seeds import digest, stable_seed
from vestige.training.batches import StepPlan
from vestige.training.losses import negative_cosine, pooled
from vestige.training.steps import Hooks, Job, Part, constant, run_job

if TYPE_CHECKING:
    from vestige.data.language_rows import LanguageRow
    from vestige.training.session import Session

__all__ = ["EmbeddingPredictor", "align", "alignment_plan"]


class EmbeddingPredictor(nn.Module):
    """Linear, GELU, Linear; (n, states) -> (n, embedding), inner width half of their sum."""

    def __init__(self, states: int, embedding: int) -> None:
        super().__init__()
        inner = (states + embedding) // 2
        self.layers = nn.Sequential(nn.Linear(states, inner), nn.GELU(), nn.Linear(inner, embedding))

    def forward(self, states: Tensor) -> Tensor:
        out: Tensor = self.layers(states)
        return out


def alignment_plan(session: Session, steps: int, batch_size: int) -> list[tuple[LanguageRow, ...]]:
    """The rows of each step: forget and retain rows by turns, the topics in turn, file order, cycled."""
    topics = list(session.topics.values())
    plan = []
    for step in range(steps):
        turn, part = divmod(step, 2)
        cycle, which = divmod(turn, len(topics))
        rows = (topics[which].retain if part else topics[which].forget).rows
        first = cycle * batch_size
        plan.append(tuple(rows[(first + i) % len(rows)] for i in range(min(batch_size, len(rows)))))
    return plan


def align(session: Session, encoder: Any, *, steps: int, learning_rate: float) -> EmbeddingPredictor:
    """A predictor trained on the session's model as it stands, which is not trained; frozen after.

    The target of a row is `encoder.embed` of its text; the input the mean of the hooked block's states over
    the row's real tokens. AdamW, constant rate. The log goes into `session.phases`. Raises Diverged.
    """
    plan = alignment_plan(session, steps, session.settings.batch_size)
    rows = list(dict.fromkeys(row for batch in plan for row in batch))
    place = {row: i for i, row in enumerate(rows)}
    texts = [session.tokenizer.decode(list(row.ids), skip_special_tokens=True) for row in rows]
    states = _states(session, rows)
    targets = torch.from_numpy(encoder.embed(texts)).to(states)
    with seeded(stable_seed(session.seed, "embedding predictor")):
        predictor = EmbeddingPredictor(states.shape[1], targets.shape[1]).to(states)
    steps_of = [StepPlan(1, tuple(place[row] for row in batch), (), False) for batch in plan]

    def parts(step: StepPlan, _: int) -> Iterator[Part]:
        chosen = list(step.forget)
        loss = negative_cosine(predictor(states[chosen]), targets[chosen])
        yield Part(loss, loss)

    job = Job(
        kind="language",
        plan=steps_of,
        parts=parts,
        learning_rate=learning_rate,
        rate=lambda step: constant(step, steps, 0),
        weight_decay=0.01,
        max_grad_norm=None,
        identity=digest("alignment", session.seed, learning_rate, *texts),
        row_ids=lambda step: [rows[i].id for i in step.forget],
        tokens=lambda step: sum(len(rows[i].ids) for i in step.forget),
        forget_rows=len(rows),
        retain_rows=0,
    )
    record, log = run_job(
        predictor, dict(predictor.named_parameters()), job, seed=session.seed, folder=None, hooks=Hooks()
    )
    predictor.eval().requires_grad_(False)
    first, last = log[0]["loss"], log[-1]["loss"]
    session.phases.append(
        {"phase": "alignment", "steps": record.steps, "first_loss": first, "last_loss": last}
    )
    return predictor


def _states(session: Session, rows: list[LanguageRow]) -> Tensor:
    """Mean-pooled states of the rows, (n, d), without gradient; batches of like length."""
    from vestige.training.sequences import still

    scorer = session.scorer()
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i].ids), i))
    found: list[Tensor | None] = [None] * len(rows)
    size = max(8, session.settings.batch_size)
    with still(session.model):
        for start in range(0, len(order), size):
            part = order[start : start + size]
            batch = scorer.batch([rows[i] for i in part], frozenset({"hidden"}))
            assert batch.hidden is not None
            assert batch.hidden_mask is not None
            for i, vector in zip(part, pooled(batch.hidden, batch.hidden_mask), strict=True):
                found[i] = vector
    return torch.stack([vector for vector in found if vector is not None])
