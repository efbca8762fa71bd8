"""What a node does: train, unlearn or score. A new kind of work is a class with `do`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from vestige.contracts import Floats
from vestige.decision.predictions import Predictions, predictions_from_arrays, write_predictions
from vestige.study.plan import checked
from vestige.study.protocol import OnEpoch, Progress
from vestige.study.store import NodeFolder
from vestige.study.work import MODEL, PREDICTIONS

if TYPE_CHECKING:
    from vestige.decision.schema import Schema
    from vestige.study.cells import Setting

__all__ = ["Job", "PredictWork", "TrainWork", "UnlearnWork", "Work", "table_predictions", "unlearn_in"]


@dataclass(frozen=True)
class Job:
    """What a piece of work is done with. root: the run folder; folder: the node's working folder, where an
    interrupted sitting may have left a checkpoint; progress: (rows, rows in all)."""

    setting: Setting
    root: Path
    folder: Path
    progress: Progress


class Work(Protocol):
    """Plain data that says what to do; it travels to other processes."""

    def do(self, job: Job) -> tuple[dict[str, Any], int]:
        """Do it in `job.folder`. Returns what the node's record keeps, and the rows worked on."""
        ...


@dataclass(frozen=True)
class TrainWork:
    """Train a fresh model on every training row but the deleted ones."""

    seed: int
    deleted: tuple[str, ...] = ()

    def do(self, job: Job) -> tuple[dict[str, Any], int]:
        setting = job.setting
        rows = setting.rows(setting.retained(self.deleted))
        result = setting.backend.train(
            rows=rows,
            schema=setting.schema,
            model=setting.model,
            settings=setting.task,
            seed=self.seed,
            folder=job.folder,
            progress=job.progress,
        )
        return {**result, "train_rows": len(rows), "deleted_rows": len(self.deleted)}, len(rows)


@dataclass(frozen=True)
class UnlearnWork:
    """Unlearn `deleted` from the full model in node `start`."""

    seed: int
    start: str
    method: str
    settings: dict[str, Any]
    deleted: tuple[str, ...]

    def do(self, job: Job) -> tuple[dict[str, Any], int]:
        return unlearn_in(self, job, None), len(self.deleted)


@dataclass(frozen=True)
class PredictWork:
    """Score the rows of a table with the model of a node, in a new forward pass over the offered options.

    model: (kind, key). options: ids on offer; None: the whole schema. asked: another schema than the study's,
    of the same options.
    """

    model: tuple[str, str]
    table: pd.DataFrame = field(repr=False, compare=False)
    options: tuple[str, ...] | None = None
    asked: Schema | None = None

    def do(self, job: Job) -> tuple[dict[str, Any], int]:
        setting = job.setting
        place = NodeFolder(job.root, *self.model)
        place.verified()
        table = self.table.sort_values("row_id", kind="stable")
        row_ids = [str(row) for row in table["row_id"]]
        schema = self.asked or setting.schema
        schema = schema if self.options is None else schema.subset(self.options)
        probs = setting.backend.predict(
            model=place.path / MODEL,
            texts=[setting.texts[row] for row in row_ids],
            schema=schema,
            progress=job.progress,
        )
        predictions = table_predictions(setting, row_ids, table["view"], table["unit"], probs, schema)
        write_predictions(predictions, job.folder / PREDICTIONS)
        return {"sha256": predictions.sha256, "rows": len(row_ids)}, len(row_ids)


class _Unlearning(Protocol):
    """Work that unlearns from a full model."""

    @property
    def seed(self) -> int: ...
    @property
    def start(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def settings(self) -> dict[str, Any]: ...
    @property
    def deleted(self) -> tuple[str, ...]: ...


def unlearn_in(work: _Unlearning, job: Job, on_epoch: OnEpoch | None) -> dict[str, Any]:
    """Unlearn in the job's folder; on_epoch: measure after each epoch, and keep no model."""
    setting = job.setting
    start = NodeFolder(job.root, "full", work.start)
    start.verified()
    objective = setting.backend.objective(work.method)
    return setting.backend.unlearn(
        start=start.path / MODEL,
        method=work.method,
        settings=checked(objective.settings, work.settings, f"settings of {work.method}"),
        forget=setting.rows(sorted(work.deleted)),
        retain=setting.rows(setting.retained(work.deleted)),
        schema=setting.schema,
        seed=work.seed,
        folder=job.folder,
        progress=job.progress,
        on_epoch=on_epoch,
        keep=on_epoch is None,
    )


def table_predictions(
    setting: Setting, row_ids: list[str], view: Any, unit: Any, probs: Floats, schema: Schema
) -> Predictions:
    """Probabilities (N, C) under `schema` as a table with views, units and gold."""
    return predictions_from_arrays(
        probs,
        row_ids=row_ids,
        view=[str(item) for item in view],
        unit=[str(item) for item in unit],
        gold=[setting.gold[row] for row in row_ids],
        options=list(schema.ids),
        label="scored rows",
    )
