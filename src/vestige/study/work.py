"""Doing one node: train, unlearn, score or tune, in a working folder that survives a kill."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vestige.contracts import Floats
from vestige.decision.predictions import (
    Predictions,
    predictions_from_arrays,
    read_predictions,
    write_predictions,
)
from vestige.errors import Diverged
from vestige.files import write_text
from vestige.study.cells import (
    Node,
    PredictWork,
    Setting,
    TrainWork,
    TuneWork,
    UnlearnWork,
    retained,
    rows_of,
)
from vestige.study.plan import checked
from vestige.study.protocol import Progress, Score
from vestige.study.store import NodeFolder, NodeRecord, now
from vestige.study.tuning_rules import EpochResult, measure_epoch, should_stop

__all__ = ["EPOCHS", "MODEL", "PREDICTIONS", "execute", "load_node_predictions"]

MODEL = "model"
"""Folder of the saved model inside a node."""
PREDICTIONS = "predictions.parquet"
EPOCHS = "epochs.json"

_NOTE_EVERY = 1.0


def execute(node: Node, setting: Setting, root: Path, progress: Progress | None = None) -> NodeRecord:
    """Do the node's work, or find it done. progress: (rows, rows in all) of this node.

    Every file that is read from other nodes is hashed first. Raises what the backend raises, the working
    folder kept for the next try; Diverged removes it.
    """
    place = NodeFolder(root, node.kind, node.key)
    with place.alone():
        return place.record() or _make(node, setting, root, place, progress)


def _make(
    node: Node, setting: Setting, root: Path, place: NodeFolder, progress: Progress | None
) -> NodeRecord:
    folder = place.begin()
    clock = _Clock(place, node.label, progress)
    try:
        result, rows = _do(node, setting, root, folder, clock.progress)
    except Diverged:
        place.discard()
        raise
    except BaseException:
        clock.note(force=True)
        raise
    return place.finish(
        label=node.label,
        identity=node.identity,
        needs=node.needs,
        started=clock.started,
        seconds=clock.seconds,
        rows=rows,
        environment=setting.backend.environment(),
        result=result,
    )


def load_node_predictions(root: Path, key: str, label: str) -> Predictions:
    """The probabilities in a finished node, its files hashed first."""
    place = NodeFolder(root, "predictions", key)
    place.verified()
    return read_predictions(place.path / PREDICTIONS, label)


def _do(
    node: Node, setting: Setting, root: Path, folder: Path, progress: Progress
) -> tuple[dict[str, Any], int]:
    work = node.work
    if isinstance(work, TrainWork):
        rows = rows_of(setting, retained(setting, work.deleted))
        result = setting.backend.train(
            rows=rows,
            schema=setting.schema,
            model=setting.model,
            settings=setting.task,
            seed=work.seed,
            folder=folder,
            progress=progress,
        )
        return {**result, "train_rows": len(rows), "deleted_rows": len(work.deleted)}, len(rows)
    if isinstance(work, UnlearnWork):
        return _unlearn(work, setting, root, folder, progress, None), len(work.deleted)
    if isinstance(work, TuneWork):
        return _tune(work, setting, root, folder, progress), len(work.deleted)
    return _predict(work, setting, root, folder, progress)


def _unlearn(
    work: UnlearnWork | TuneWork,
    setting: Setting,
    root: Path,
    folder: Path,
    progress: Progress,
    on_epoch: Callable[[int, Score], bool] | None,
) -> dict[str, Any]:
    start = NodeFolder(root, "full", work.start)
    start.verified()
    objective = setting.backend.objective(work.method)
    return setting.backend.unlearn(
        start=start.path / MODEL,
        method=work.method,
        settings=checked(objective.settings, work.settings, f"settings of {work.method}"),
        forget=rows_of(setting, sorted(work.deleted)),
        retain=rows_of(setting, retained(setting, work.deleted)),
        schema=setting.schema,
        seed=work.seed,
        folder=folder,
        progress=progress,
        on_epoch=on_epoch,
        keep=on_epoch is None,
    )


def _predict(
    work: PredictWork, setting: Setting, root: Path, folder: Path, progress: Progress
) -> tuple[dict[str, Any], int]:
    place = NodeFolder(root, *work.model)
    place.verified()
    table = work.table.sort_values("row_id", kind="stable")
    row_ids = [str(row) for row in table["row_id"]]
    probs = setting.backend.predict(
        model=place.path / MODEL,
        texts=[setting.texts[row] for row in row_ids],
        schema=setting.schema,
        progress=progress,
    )
    predictions = _predictions(setting, row_ids, table["view"], table["unit"], probs)
    write_predictions(predictions, folder / PREDICTIONS)
    return {"sha256": predictions.sha256, "rows": len(row_ids)}, len(row_ids)


def _predictions(setting: Setting, row_ids: list[str], view: Any, unit: Any, probs: Floats) -> Predictions:
    return predictions_from_arrays(
        probs,
        row_ids=row_ids,
        view=[str(item) for item in view],
        unit=[str(item) for item in unit],
        gold=[setting.gold[row] for row in row_ids],
        options=list(setting.schema.ids),
        label="development",
    )


def _tune(work: TuneWork, setting: Setting, root: Path, folder: Path, progress: Progress) -> dict[str, Any]:
    full = load_node_predictions(root, work.full, "full")
    oracle = load_node_predictions(root, work.oracle, "oracle")
    row_ids = [str(row) for row in full.row_ids]
    texts = [setting.texts[row] for row in row_ids]
    path = folder / EPOCHS
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    results: dict[int, EpochResult] = {item["epoch"]: EpochResult.model_validate(item) for item in kept}

    def on_epoch(epoch: int, score: Score) -> bool:
        now_predictions = _predictions(setting, row_ids, full.view, full.unit, score(texts))
        results[epoch] = measure_epoch(epoch, now_predictions, full, oracle)
        history = [results[index] for index in sorted(results) if index <= epoch]
        _write_epochs(path, history)
        return not (work.prune and should_stop(history))

    stopped = ""
    result: dict[str, Any] = {}
    try:
        result = _unlearn(work, setting, root, folder, progress, on_epoch)
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


class _Clock:
    """Time and progress of a node, noted in a file so that another process can read how far it is."""

    def __init__(self, place: NodeFolder, label: str, progress: Progress | None) -> None:
        self._place = place
        self._label = label
        self._tell = progress
        self._began = time.monotonic()
        self._noted = -float("inf")
        self._done, self._total = 0, 0
        before = self._earlier()
        self.started = str(before.get("started") or now())
        self._spent = float(before.get("seconds") or 0.0)
        self.note(force=True)

    @property
    def seconds(self) -> float:
        """Seconds of work in this and earlier sittings, as far as noted."""
        return self._spent + time.monotonic() - self._began

    def progress(self, done: int, total: int) -> None:
        self._done, self._total = done, total
        if self._tell is not None:
            self._tell(done, total)
        self.note()

    def note(self, *, force: bool = False) -> None:
        if not force and time.monotonic() - self._noted < _NOTE_EVERY:
            return
        self._noted = time.monotonic()
        value = {
            "label": self._label,
            "started": self.started,
            "updated": now(),
            "seconds": self.seconds,
            "done": self._done,
            "total": self._total,
        }
        write_text(self._place.progress_file, json.dumps(value) + "\n")

    def _earlier(self) -> dict[str, Any]:
        try:
            value = json.loads(self._place.progress_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}
