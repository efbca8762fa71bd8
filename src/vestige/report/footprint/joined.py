"""Records of questions and of relearning beside a footprint, joined by checkpoint. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vestige.attacks.relearn_records import RECORD as RELEARN
from vestige.attacks.relearn_records import CheckpointRelearning, RelearnRecord
from vestige.behaviour.records import RECORD as BEHAVIOUR
from vestige.behaviour.records import BehaviourRecord, CheckpointBehaviour, TripartiteLoss
from vestige.behaviour.stated import stated_loss
from vestige.contracts import Record, Undefined
from vestige.files import read_record
from vestige.footprint.judgements import SensitivityTable
from vestige.footprint.records import CheckpointFootprint, FootprintRecord
from vestige.language_study.correlations import CorrelationRow
from vestige.language_study.records import LanguageStudyRecord
from vestige.metrics.footprint import FootprintClass
from vestige.models.lm_record import LanguageModelRecord
from vestige.report.footprint.reader import footprint_files, read_footprint
from vestige.study.folder_kinds import refused

__all__ = ["Beside", "beside", "correlation_rows", "joined_row", "joined_rows", "study_of"]

SENSITIVITY, STUDY, WHOLE = "sensitivity.json", "language-study.json", "behaviour-whole"
_MAKES = {
    BEHAVIOUR: "vestige behaviour ... --out DIR",
    RELEARN: "vestige attack relearn ... --out DIR",
    SENSITIVITY: "vestige footprint sensitivity ... --out DIR",
    STUDY: "vestige study run",
}
Made = TypeVar("Made", bound=Record)


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What was asked of a footprint's checkpoints and what came back to them; None: no record. whole: the
    questions asked once more without a cap; sensitivity: of the footprint."""

    behaviour: BehaviourRecord | None = None
    relearning: RelearnRecord | None = None
    whole: BehaviourRecord | None = None
    sensitivity: SensitivityTable | None = None

    def asked(self, checkpoint: CheckpointFootprint) -> CheckpointBehaviour | None:
        """The questions of this very checkpoint."""
        if self.behaviour is None:
            return None
        return next(
            (item for item in self.behaviour.checkpoints if _same(item.label, item.model, checkpoint)), None
        )

    def lost(self, checkpoint: CheckpointFootprint) -> TripartiteLoss | None:
        """What this very checkpoint lost: undefined on roles whose questions the base guesses."""
        item = self.asked(checkpoint)
        return None if item is None or self.behaviour is None else stated_loss(self.behaviour, item)

    def attacked(self, checkpoint: CheckpointFootprint) -> CheckpointRelearning | None:
        """The attack on this very checkpoint."""
        if self.relearning is None:
            return None
        return next(
            (item for item in self.relearning.checkpoints if _same(item.label, item.model, checkpoint)), None
        )


def _same(label: str, model: LanguageModelRecord, checkpoint: CheckpointFootprint) -> bool:
    """One label, and the same weights where both were read in one dtype."""
    if label != checkpoint.label:
        return False
    return model.dtype != checkpoint.model.dtype or model.sha256 == checkpoint.model.sha256


def beside(folder: Path) -> Beside:
    """The records with a footprint: in its folder, in `behaviour/` and `relearn/` in it or next to it."""
    root = folder.parent if folder.is_file() else folder
    return Beside(
        behaviour=_found(root, BEHAVIOUR, BehaviourRecord),
        relearning=_found(root, RELEARN, RelearnRecord),
        whole=_found(root, BEHAVIOUR, BehaviourRecord, WHOLE),
        sensitivity=_found(root, SENSITIVITY, SensitivityTable),
    )


def study_of(path: Path) -> LanguageStudyRecord | None:
    """The record of the study that a footprint's folder is part of, None where it is of none."""
    root = path.parent if path.is_file() else path
    found = root.parent / STUDY
    if not found.is_file():
        return None
    return read_record(found, LanguageStudyRecord, f"make it again: {_MAKES[STUDY]}")


def _found(root: Path, name: str, kind: type[Made], part: str = "") -> Made | None:
    """The record of this name: in the folder itself, or in `part` (default: its own name) in it or beside
    it."""
    if part:
        path = root.parent / part / name
        return read_record(path, kind, f"make it again: {_MAKES[name]}") if path.is_file() else None
    part = name.removesuffix(".json")
    for path in (root / name, root / part / name, root.parent / part / name):
        if path.is_file():
            return read_record(path, kind, f"make it again: {_MAKES[name]}")
    return None


def joined_rows(folders: Sequence[Path]) -> list[CorrelationRow]:
    """Every checkpoint of the footprints in these folders with what lies beside them. Raises InputError."""
    files = footprint_files(folders)
    if not files:
        needed = "a footprint with what was relearned or asked of its checkpoints"
        remedy = "run vestige footprint --out DIR"
        raise refused(folders[0], "no footprint.json", needed, remedy, verb="vestige attack correlate")
    return [row for path in files for row in correlation_rows(read_footprint(path), beside(path))]


def correlation_rows(record: FootprintRecord, found: Beside) -> list[CorrelationRow]:
    """The footprint's unlearned checkpoints as rows for correlations; a retrained model is none."""
    return [
        joined_row(checkpoint, found) for checkpoint in record.checkpoints if checkpoint.role == "unlearned"
    ]


def joined_row(checkpoint: CheckpointFootprint, found: Beside) -> CorrelationRow:
    """A checkpoint's shifts with what it lost and what came back; None where not measured or undefined."""
    lost, attacked = found.lost(checkpoint), found.attacked(checkpoint)
    asked = found.asked(checkpoint)
    roles = {role.role: role for role in checkpoint.roles}

    def shift(role: str, kind: str) -> float | None:
        own = roles.get(role)  # type: ignore[call-overload]
        return None if own is None else _value(getattr(own, kind).value)

    published = checkpoint.published
    name = published.name if isinstance(published, FootprintClass) else ""
    change = attacked.change("forget") if attacked is not None else None
    return CorrelationRow(
        checkpoint=checkpoint.label,
        method=checkpoint.method,
        class_name="" if isinstance(name, Undefined) else str(name),
        cofi_f=shift("forget", "fisher"),
        cofi_a=shift("adjacent", "fisher"),
        cofi_g=shift("generic", "fisher"),
        chess_f=shift("forget", "hessian"),
        recovery=None if change is None else change.change,
        forget_before=_known(asked, attacked),
        delta_f=None if lost is None else _value(lost.delta_f.value),
        b_gap=None if lost is None else _value(lost.b_gap.value),
    )


def _known(asked: CheckpointBehaviour | None, attacked: CheckpointRelearning | None) -> float | None:
    """Accuracy on forget questions after unlearning: as the attack began, or where nothing was attacked as
    asked."""
    change = attacked.change("forget") if attacked is not None else None
    if change is not None and _by_accuracy(attacked):
        return change.before
    roles = asked.roles if asked is not None else ()
    return next((role.accuracy for role in roles if role.role == "forget"), None)


def _by_accuracy(attacked: CheckpointRelearning | None) -> bool:
    return attacked is not None and any(
        score.kind == "accuracy" for score in attacked.scores if score.role == "forget"
    )


def _value(value: float | Undefined) -> float | None:
    return None if isinstance(value, Undefined) else value
