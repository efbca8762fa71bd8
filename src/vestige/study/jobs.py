"""What a node does: train, unlearn, score or tune. A new kind of work is a class with `do`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pandas as pd

from vestige.contracts import Floats
from vestige.decision.predictions import Predictions, predictions_from_arrays, write_predictions
from vestige.errors import Diverged
from vestige.files import write_text
from vestige.study.plan import checked
from vestige.study.protocol import Progress, Score
from vestige.study.store import NodeFolder
from vestige.study.tuning_rules import EpochResult, measure_epoch, should_stop
from vestige.study.work import EPOCHS, MODEL, PREDICTIONS, load_node_predictions

if TYPE_CHECKING:
    from vestige.decision.schema import Schema
    from vestige.study.cells import Setting

__all__ = ["Job", "PredictWork", "TrainWork", "TuneWork", "UnlearnWork", "Work", "table_predictions"]


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
        return _unlearn(self, job, None), len(self.deleted)


@dataclass(frozen=True)
class PredictWork:
    """Score the rows of a table with the model of a node, in a new forward pass over the offered options.

    model: (kind, key). options: ids on offer; None: the whole schema.
    """

    model: tuple[str, str]
    table: pd.DataFrame = field(repr=False, compare=False)
    options: tuple[str, ...] | None = None

    def do(self, job: Job) -> tuple[dict[str, Any], int]:
        setting = job.setting
        place = NodeFolder(job.root, *self.model)
        place.verified()
        table = self.table.sort_values("row_id", kind="stable")
        row_ids = [str(row) for row in table["row_id"]]
        schema = setting.schema if self.options is None else setting.schema.subset(self.options)
        probs = setting.backend.predict(
            model=place.path / MODEL,
            texts=[setting.texts[row] for row in row_ids],
            schema=schema,
            progress=job.progress,
        )
        predictions = table_predictions(setting, row_ids, table["view"], table["unit"], probs, schema)
        write_predictions(predictions, job.folder / PREDICTIONS)
        return {"sha256": predictions.sha256, "rows": len(row_ids)}, len(row_ids)


@dataclass(frozen=True)
class TuneWork:
    """Unlearn and score after every epoch. full, oracle: keys of their prediction tables on the same rows."""

    seed: int
    start: str
    method: str
    settings: dict[str, Any]
    deleted: tuple[str, ...]
    full: str
    oracle: str
    prune: bool

    def do(self, job: Job) -> tuple[dict[str, Any], int]:
        return _tune(self, job), len(self.deleted)


def _unlearn(
    work: UnlearnWork | TuneWork, job: Job, on_epoch: Callable[[int, Score], bool] | None
) -> dict[str, Any]:
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


def _tune(work: TuneWork, job: Job) -> dict[str, Any]:
    setting, folder = job.setting, job.folder
    full = load_node_predictions(job.root, work.full, "full")
    oracle = load_node_predictions(job.root, work.oracle, "oracle")
    row_ids = [str(row) for row in full.row_ids]
    texts = [setting.texts[row] for row in row_ids]
    path = folder / EPOCHS
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    results: dict[int, EpochResult] = {item["epoch"]: EpochResult.model_validate(item) for item in kept}

    def on_epoch(epoch: int, score: Score) -> bool:
        now_predictions = table_predictions(
            setting, row_ids, full.view, full.unit, score(texts), setting.schema
        )
        results[epoch] = measure_epoch(epoch, now_predictions, full, oracle)
        history = [results[index] for index in sorted(results) if index <= epoch]
        _write_epochs(path, history)
        return not (work.prune and should_stop(history))

    stopped = ""
    result: dict[str, Any] = {}
    try:
        result = _unlearn(work, job, on_epoch)
    except Diverged as error:
        stopped = f"diverged: {error}"
    shutil.rmtree(folder / MODEL, ignore_errors=True)
    history = [results[index] for index in sorted(results)]
    if not stopped:
        stopped = should_stop(history) if work.prune else ""
    _write_epochs(path, history)
    return {**result, "epochs_run": len(history), "stopped": stopped or "all epochs"}


def _write_epochs(path: Path, history: list[EpochResult]) -> None:
    write_text(path, json.dumps([item.model_dump(mode="json") for item in history], indent=1) + "\n")
