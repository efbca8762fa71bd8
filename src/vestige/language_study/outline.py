"""What a language study would do, without fetching or training. No torch."""

from __future__ import annotations

from pathlib import Path

from vestige.language_study.plan import LanguagePlan, method_plans
from vestige.language_study.records import LanguageStudyRecord

__all__ = ["outline", "seed_name", "stage_names"]


def seed_name(name: str, number: int) -> str:
    """What the training of this number, from 0 on, is called: `oracle`, `oracle (2)`, ..."""
    return name if number == 0 else f"{name} ({number + 1})"


def stage_names(plan: LanguagePlan) -> list[str]:
    """The stages in their order, by the names that the record gives them."""
    found = ["injection"] if plan.injection is not None else []
    for name, part in (("fine-tuning", plan.finetune), ("oracle", plan.oracle)):
        found += [seed_name(name, number) for number in range(part.seeds if part is not None else 0)]
    found += [f"unlearning: {method.name}" for method in method_plans(plan)]
    found += [
        name
        for name, part in (
            ("footprint", plan.footprint),
            ("behaviour", plan.behaviour),
            ("relearn", plan.relearn),
            ("sensitivity", plan.sensitivity),
        )
        if part is not None
    ]
    if plan.behaviour is not None:
        place = found.index("behaviour") + 1
        found[place:place] = [f"behaviour-{name}" for name in plan.behaviour.also]
    return found + (["distance to the oracle"] if plan.injection is not None else [])


def outline(plan: LanguagePlan, folder: Path) -> list[dict[str, str]]:
    """[{name, state}]: `done` where a run of this very plan in the folder finished the stage."""
    done: set[str] = set()
    path = folder / "language-study.json"
    if path.is_file():
        try:
            record = LanguageStudyRecord.model_validate_json(path.read_text(encoding="utf-8"))
        except ValueError:
            record = None
        if record is not None and record.plan == plan.model_dump(mode="json"):
            done = {stage.name for stage in record.stages if not stage.failed}
    return [{"name": name, "state": "done" if name in done else "to do"} for name in stage_names(plan)]
