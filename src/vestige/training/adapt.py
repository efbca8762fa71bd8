"""Fine-tuning a checkpoint on exposed rows, scored on the way; and a new head on a frozen backbone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vestige.contracts import Floats, LossBatch
from vestige.models.head import DecisionHead
from vestige.models.trainable import TrainableModule, evaluation, seeded
from vestige.seeds import digest, generator, stable_seed
from vestige.training.adaptation import AdaptSettings, adaptation_batches
from vestige.training.batches import StepPlan
from vestige.training.loop import (
    NO_ROWS,
    Hooks,
    Trainable,
    TrainingRecord,
    TrainRows,
    _Job,
    _prepared,
    _run,
    train_task,
    weights_sha256,
)
from vestige.training.losses import nll

if TYPE_CHECKING:
    from vestige.decision.schema import Schema
    from vestige.models.decision import SchemaModel
    from vestige.training.loop import TaskSettings

__all__ = ["FreshHead", "FrozenReader", "HeadAlone", "adapt", "new_head", "train_fresh_head"]


def adapt(
    model: Trainable,
    rows: TrainRows,
    schema: Schema,
    settings: AdaptSettings,
    *,
    seed: int,
    on_update: Callable[[int], None],
    hooks: Hooks | None = None,
) -> tuple[TrainingRecord, list[dict[str, Any]]]:
    """Fine-tune `model` in place for `settings.updates` updates; returns the record and one log entry each.

    on_update(t): called at each of `settings.evaluations`, 0 before the first update. The order of rows
    depends on the seed and the number of rows alone, so that it is the same for every checkpoint. Nothing is
    kept on the way: an interrupted call starts again. Raises Diverged, Interrupted, InputError.
    """
    prepared = _prepared(model, rows, schema, reference=False)
    given = hooks or Hooks()
    batches = adaptation_batches(
        len(rows), settings.batch, settings.updates, generator(seed, "adaptation", len(rows))
    )
    job = _Job(
        kind="adaptation",
        plan=[
            StepPlan(update, (), batch, update in settings.evaluations)
            for update, batch in enumerate(batches, start=1)
        ],
        epochs=settings.updates,
        forget=_prepared(model, NO_ROWS, schema, reference=False),
        retain=prepared,
        loss=_task_loss,
        learning_rate=settings.learning_rate,
        rate=lambda step: 1.0,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        identity=digest("adapt", settings.to_json(), seed, schema.sha256, *rows.row_ids, *rows.gold),
    )

    def scored(update: int) -> bool:
        on_update(update)
        return False

    on_update(0)
    return _run(
        model,
        schema,
        job,
        seed=seed,
        folder=None,
        hooks=Hooks(progress=given.progress, on_epoch=scored),
    )


def _task_loss(_: LossBatch | None, rows: LossBatch | None) -> tuple[Tensor | None, Tensor | None, float]:
    assert rows is not None
    return None, nll(rows.target_log_probs), 1.0


class FrozenReader:
    """What a decision model that stands still makes of texts: vectors, without gradient and dropout.

    Where the options' vectors do not depend on the utterance, every utterance is read once and its vector
    kept: they hold for every head. It is no module, so that the model's weights are not the head's.
    """

    def __init__(self, model: SchemaModel, schema: Schema) -> None:
        self.model = model
        self.schema_sha256 = schema.sha256
        with evaluation(model):
            self._options: Any = model.reader.options(model.tokenise(schema.texts()))
        self._kept: dict[tuple[int, ...], Tensor] = {}
        self._shared: Tensor | None = None

    def vectors(self, ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Utterance vectors (n, d), and option vectors (C, d) or, where they differ by row, (n, C, d)."""
        keys = [tuple(row) for row in ids]
        missing = list(dict.fromkeys(key for key in keys if key not in self._kept))
        if missing:
            utterances, options = self._read(missing)
            if options.dim() == 3:
                return self._read(keys)
            self._shared = options
            self._kept.update(zip(missing, utterances, strict=True))
        assert self._shared is not None
        return torch.stack([self._kept[key] for key in keys]), self._shared

    def _read(self, keys: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        with evaluation(self.model):
            reading = self.model.reader.read(keys, self._options)
        # Autograd may not save what inference mode made; a copy made outside of it may be saved. The caller
        # may be scoring, in inference mode itself, while what is kept here serves later training as well.
        with torch.inference_mode(False), torch.no_grad():
            return reading.utterances.clone(), reading.options.clone()


class HeadAlone(TrainableModule):
    """A decision model of which only the head is trained: backbone and adapters stay as they are."""

    def __init__(self, reader: FrozenReader, head: DecisionHead) -> None:
        super().__init__()
        self.head = head
        self._reader = reader

    def tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        """As the model does."""
        return self._reader.model.tokenise(texts)

    def logits(self, utterance_ids: Sequence[Sequence[int]], schema: Schema) -> Tensor:
        """(n,) id lists -> (n, C) logits, gradient in the head alone."""
        if schema.sha256 != self._reader.schema_sha256:
            raise ValueError("a frozen backbone reads the schema that it was made for")
        out: Tensor = self.head(*self._reader.vectors(utterance_ids))
        return out

    def predict(self, texts: Sequence[str], schema: Schema, *, batch_rows: int = 256) -> Floats:
        """(N,) texts -> (N, C) float64 probabilities, columns in the schema's order."""
        ids = self.tokenise(texts)
        with evaluation(self):
            parts = [
                torch.softmax(self.logits(ids[start : start + batch_rows], schema).double(), dim=-1).cpu()
                for start in range(0, len(ids), batch_rows)
            ]
        values: Floats = torch.cat(parts).numpy()
        return values


@dataclass(frozen=True)
class FreshHead:
    """A trained new head. probs (N, C) on the texts asked for; initial_sha256: of its weights before."""

    initialisation: int
    initial_sha256: str
    probs: Floats
    record: TrainingRecord


def new_head(model: SchemaModel, initialisation: int) -> DecisionHead:
    """An untrained head of the model's shape: the same bytes for a number, whatever the model has learnt.

    Every matrix is drawn at random, so that two numbers score differently from the start and no head begins
    with the backbone's own similarity, as a head of a full model does.
    """
    with seeded(stable_seed("fresh head", initialisation)):
        head = DecisionHead(model.record.hidden_size, model.settings.head_width)
        head.draw()
    return head


def train_fresh_head(
    reader: FrozenReader,
    rows: TrainRows,
    schema: Schema,
    settings: TaskSettings,
    *,
    initialisation: int,
    texts: Sequence[str],
    hooks: Hooks | None = None,
) -> FreshHead:
    """Train a new head on a frozen backbone by the task recipe, and score `texts` with it.

    The order of rows depends on the number of the initialisation and on the rows, not on the checkpoint.
    """
    device = next(reader.model.parameters()).device
    model = HeadAlone(reader, new_head(reader.model, initialisation).to(device))
    before = weights_sha256(model.trainable_state())
    record, _ = train_task(model, rows, schema, settings, seed=initialisation, hooks=hooks)
    return FreshHead(initialisation, before, model.predict(texts, schema), record)
