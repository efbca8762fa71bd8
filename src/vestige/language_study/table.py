"""The one table of a language study, a row a checkpoint, from its records. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from vestige.attacks.relearn_records import RelearnRecord
from vestige.behaviour.records import BehaviourRecord
from vestige.behaviour.stated import stated_loss
from vestige.contracts import Undefined
from vestige.footprint.judgements import CalibratedClass
from vestige.footprint.records import FootprintRecord
from vestige.footprint.verdict_records import VerdictRecord
from vestige.language_study.plan import MethodPlan
from vestige.language_study.records import NOT_MEASURED, CheckpointRow, InjectedScores
from vestige.metrics.footprint import FootprintClass

__all__ = ["study_rows"]


def study_rows(
    root: Path,
    folders: Mapping[str, str],
    methods: Sequence[MethodPlan],
    shifts: FootprintRecord | None,
    behaved: BehaviourRecord | None,
    attacked: RelearnRecord | None,
    injected: Mapping[str, InjectedScores],
) -> Iterator[CheckpointRow]:
    """Base, unlearned checkpoints in the plan's order, oracle."""
    names = {item.name: item.method for item in methods}
    for label, folder in folders.items():
        role: Literal["base", "unlearned", "oracle"] = (
            "base" if label == "base" else "oracle" if label == "oracle" else "unlearned"
        )
        yield CheckpointRow(
            label=label,
            method=names.get(label, ""),
            role=role,
            **_training(Path(folder)),
            **_judged(shifts, label),
            **_shift(shifts, label),
            **_lost(behaved, label),
            **_returned(attacked, label),
            injected=injected.get(label),
        )


def _training(folder: Path) -> dict[str, Any]:
    for name in ("unlearn.json", "finetune.json"):
        path = folder / name
        if path.is_file():
            training = json.loads(path.read_text(encoding="utf-8"))["training"]
            return {"steps": training["steps"], "seconds": round(training["seconds"], 3)}
    return {}


def _judged(record: FootprintRecord | None, label: str) -> dict[str, Any]:
    verdict = None if record is None else record.verdict
    if not isinstance(verdict, VerdictRecord):
        return {} if verdict is None else {"verdict": str(verdict)}
    own = verdict.level(verdict.bases[0] if label == "base" else label)
    level = own.level("forget") if own is not None else None
    found: dict[str, Any] = {"level": NOT_MEASURED if level is None else level}
    model = verdict.model(label)
    if model is None:
        return {**found, "verdict": "is the base" if label == "base" else "is retrained"} if own else {}
    views = [view for view in model.evidence.views if view.view == "F"]
    memory = views[0].memory.value if views else Undefined(undefined="no retrained model")
    # `closer` never stands alone: it says how far.
    none = isinstance(model.verdict, Undefined)
    said = str(model.verdict) if none else model.evidence.headline(model.verdict)  # type: ignore[arg-type]
    return {**found, "verdict": said, "memory": memory}


def _shift(record: FootprintRecord | None, label: str) -> dict[str, Any]:
    found = None if record is None else next((c for c in record.checkpoints if c.label == label), None)
    if found is None:
        return {"class_name": "is the base"} if record is not None and label == "base" else {}
    roles = {role.role: role.fisher.value for role in found.roles}
    published, calibrated = found.published, found.calibrated
    return {
        "class_name": str(published.name if isinstance(published, FootprintClass) else published),
        "calibrated": str(calibrated.name if isinstance(calibrated, CalibratedClass) else calibrated),
        "cofi_f": roles.get("forget", NOT_MEASURED),
        "cofi_a": roles.get("adjacent", NOT_MEASURED),
        "cofi_g": roles.get("generic", NOT_MEASURED),
        "adjacency_gap": published if isinstance(published, Undefined) else published.adjacency_gap,
    }


def _lost(record: BehaviourRecord | None, label: str) -> dict[str, Any]:
    found = None if record is None else next((c for c in record.checkpoints if c.label == label), None)
    if record is None or found is None:
        return {}
    loss = stated_loss(record, found)
    return {"delta_f": loss.delta_f.value, "b_gap": loss.b_gap.value}


def _returned(record: RelearnRecord | None, label: str) -> dict[str, Any]:
    found = None if record is None else next((c for c in record.checkpoints if c.label == label), None)
    if record is None or found is None:
        return {}
    change = found.change("forget")
    if change is None:
        return {"reading": str(found.failed or found.reading)}
    return {
        "relearn_before": change.before,
        "relearn_after": change.after,
        "recovery": change.change,
        "beyond": found.beyond_oracle,
        "reading": record.said(found),
    }
