"""What a study of a language model leaves behind: its stages, and one table over checkpoints. No torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from vestige.contracts import Record, Undefined
from vestige.csv_text import csv_text
from vestige.footprint.judgements import InjectionGates

__all__ = ["CheckpointRow", "InjectedScores", "LanguageStudyRecord", "StageRecord"]

Number = float | Undefined
NOT_MEASURED = Undefined(undefined="not measured")


class StageRecord(Record):
    """A stage. key: of everything that changes its numbers; taken: it was done before and taken over."""

    name: str
    key: str
    folder: str
    seconds: float
    taken: bool
    failed: str = ""


class InjectedScores(Record):
    """A checkpoint against the exact oracle of injected facts.

    accuracy_f, accuracy_a: four-option questions on the facts to forget and to keep. cloze_f: facts that it
    writes by itself. distance_f, distance_a, distance_g: mean base-2 Jensen-Shannon divergence of next-token
    distributions from the oracle's, in [0, 1], over all predicted tokens of the texts. weights: norm of the
    difference from the oracle's weights over that of the injected model's; 0 is the oracle itself.
    """

    accuracy_f: float
    accuracy_a: float
    cloze_f: float
    distance_f: float
    distance_a: float
    distance_g: float
    weights: Number


class CheckpointRow(Record):
    """One checkpoint in every measure. Shifts and losses in percent, scores before and after relearning as
    shares; undefined says why there is none. verdict: in a word; memory: what is left of the base on forget
    text; level: probability of a forget token. beyond: recovery minus the oracle's."""

    label: str
    method: str
    role: Literal["base", "unlearned", "oracle"]
    steps: int = 0
    seconds: float = 0.0
    verdict: str = "not judged"
    memory: Number = NOT_MEASURED
    level: Number = NOT_MEASURED
    class_name: str = "not measured"
    calibrated: str = "not computed"
    cofi_f: Number = NOT_MEASURED
    cofi_a: Number = NOT_MEASURED
    cofi_g: Number = NOT_MEASURED
    adjacency_gap: Number = NOT_MEASURED
    delta_f: Number = NOT_MEASURED
    b_gap: Number = NOT_MEASURED
    relearn_before: Number = NOT_MEASURED
    relearn_after: Number = NOT_MEASURED
    recovery: Number = NOT_MEASURED
    beyond: Number = NOT_MEASURED
    reading: str = "not run"
    injected: InjectedScores | None = None


class LanguageStudyRecord(Record):
    """A study's result: `language-study.json`. gates: of an injection; no number counts unless it took."""

    format: Literal["vestige-language-study-1"] = "vestige-language-study-1"
    name: str
    about: str
    licence: str
    hazard: str
    plan: dict[str, Any]
    stages: tuple[StageRecord, ...]
    rows: tuple[CheckpointRow, ...]
    gates: InjectionGates | None = None
    caveats: tuple[str, ...] = ()
    provenance: Annotated[dict[str, Any], Field(default_factory=dict)]

    @property
    def failures(self) -> list[StageRecord]:
        """Stages that could not be done."""
        return [stage for stage in self.stages if stage.failed]

    def header(self) -> list[str]:
        """Names of the table's columns."""
        own = [name for name in CheckpointRow.model_fields if name != "injected"]
        return [*own, *(InjectedScores.model_fields if self._injected else ())]

    def cells(self, row: CheckpointRow) -> list[Any]:
        """The row's values in the order of the header."""
        values = [getattr(row, name) for name in CheckpointRow.model_fields if name != "injected"]
        if self._injected:
            found = row.injected
            values += [
                NOT_MEASURED if found is None else getattr(found, name)
                for name in InjectedScores.model_fields
            ]
        return values

    def to_csv(self) -> str:
        """The table as CSV text; undefined values as `undefined: reason`."""
        return csv_text(self.header(), ([str(value) for value in self.cells(row)] for row in self.rows))

    @property
    def _injected(self) -> bool:
        return any(row.injected is not None for row in self.rows)
