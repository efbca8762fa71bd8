"""The work of tuning: unlearn and score after every epoch, or search a temperature of the full model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vestige.contracts import Floats
from vestige.decision.predictions import Predictions
from vestige.errors import Diverged, InputError
from vestige.files import write_text
from vestige.study.jobs import Job, table_predictions, unlearn_in
from vestige.study.protocol import Score
from vestige.study.store import NodeFolder
from vestige.study.temperature import nll_temperature, search, tempered
from vestige.study.tuning_rules import EpochResult, measure_epoch, should_stop
from vestige.study.work import EPOCHS, MODEL, load_node_predictions

__all__ = ["TemperatureWork", "TuneWork"]


@dataclass(frozen=True)
class TuneWork:
    """Unlearn and score after every epoch. full, oracle: keys of their prediction tables on the same rows.

    forgotten: options of a class deletion, for the suppression of each candidate; else none.
    """

    seed: int
    start: str
    method: str
    settings: dict[str, Any]
    deleted: tuple[str, ...]
    full: str
    oracle: str
    prune: bool
    forgotten: tuple[str, ...] = ()

    def do(self, job: Job) -> tuple[dict[str, Any], int]:
        """Train and measure. Writes epochs.json; a point that diverges keeps the epochs before."""
        rows = _Rows(job, self.full, self.oracle, self.forgotten)
        path = job.folder / EPOCHS
        results = _read(path)

        def on_epoch(epoch: int, score: Score, update: float) -> bool:
            results[epoch] = rows.measure(epoch, score(rows.texts), update)
            history = [results[index] for index in sorted(results) if index <= epoch]
            _write(path, history)
            return not (self.prune and should_stop(history))

        stopped = ""
        result: dict[str, Any] = {}
        try:
            result = unlearn_in(self, job, on_epoch)
        except Diverged as error:
            stopped = f"diverged: {error}"
        shutil.rmtree(job.folder / MODEL, ignore_errors=True)
        history = [results[index] for index in sorted(results)]
        if not stopped:
            stopped = should_stop(history) if self.prune else ""
        _write(path, history)
        return {**result, "epochs_run": len(history), "stopped": stopped or "all epochs"}, len(self.deleted)


@dataclass(frozen=True)
class TemperatureWork:
    """Score the development rows with the full model once and search its temperature.

    Its probabilities are read as the model gives them, not as they are stored: a stored zero has no logit.
    """

    start: str
    full: str
    oracle: str
    values: tuple[float, ...]
    forgotten: tuple[str, ...] = ()

    def do(self, job: Job) -> tuple[dict[str, Any], int]:
        """Writes epochs.json, one entry a temperature; the result holds the NLL-fitted one."""
        rows = _Rows(job, self.full, self.oracle, self.forgotten)
        place = NodeFolder(job.root, "full", self.start)
        place.verified()
        setting = job.setting
        p = setting.backend.predict(
            model=place.path / MODEL, texts=rows.texts, schema=setting.schema, progress=job.progress
        )
        if not np.isfinite(p).all():
            raise InputError(
                "temperature search",
                "a probability of the full model that is not finite",
                "finite probabilities on the development rows",
                "train the full model again with a lower learning rate",
            )

        def measure(number: int, temperature: float) -> EpochResult:
            return rows.measure(number, tempered(p, temperature), 0.0, {"temperature": temperature})

        found = search(self.values, measure)
        _write(job.folder / EPOCHS, found)
        fitted, at_bound = nll_temperature(p[rows.held_out], rows.gold_columns[rows.held_out])
        return {
            "epochs_run": len(found),
            "stopped": "the search ended",
            "fitted": measure(0, fitted).model_dump(mode="json"),
            "fitted_at_bound": at_bound,
        }, len(rows.texts)


class _Rows:
    """The development rows with the tables of the full model and the oracle on them."""

    def __init__(self, job: Job, full: str, oracle: str, forgotten: Sequence[str]) -> None:
        self._setting = job.setting
        self._full = load_node_predictions(job.root, full, "full")
        self._oracle = load_node_predictions(job.root, oracle, "oracle")
        self._forgotten = tuple(forgotten)
        self.row_ids = [str(row) for row in self._full.row_ids]
        self.texts = [self._setting.texts[row] for row in self.row_ids]

    @property
    def held_out(self) -> Any:
        """(N,) bool: rows that the full model was not trained on, those of G and R."""
        return self._full.view != "F"

    @property
    def gold_columns(self) -> Any:
        """(N,) integer columns of the schema."""
        place = {option: column for column, option in enumerate(self._setting.schema.ids)}
        return np.array([place[self._setting.gold[row]] for row in self.row_ids], dtype=np.intp)

    def measure(
        self, epoch: int, probs: Floats, update: float, settings: dict[str, Any] | None = None
    ) -> EpochResult:
        """Measure one candidate from its probabilities (N, C) on these rows."""
        return measure_epoch(
            epoch,
            self._table(probs),
            self._full,
            self._oracle,
            forgotten=self._forgotten,
            update_norm=update,
            settings=settings or {},
        )

    def _table(self, probs: Floats) -> Predictions:
        return table_predictions(
            self._setting, self.row_ids, self._full.view, self._full.unit, probs, self._setting.schema
        )


def _read(path: Path) -> dict[int, EpochResult]:
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return {item["epoch"]: EpochResult.model_validate(item) for item in kept}


def _write(path: Path, history: Sequence[EpochResult]) -> None:
    write_text(path, json.dumps([item.model_dump(mode="json") for item in history], indent=1) + "\n")
