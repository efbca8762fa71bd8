"""Probes in a study: finished models asked in other ways, what the verdict says of it, and the audit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import INTENTS
from vestige.errors import InputError
from vestige.study.audit import CHECKS, audit_study, run_check
from vestige.study.audit_folder import Folder
from vestige.study.plan import Plan
from vestige.study.runner import Execution, StudyResult, run_study
from vestige.study.store import refresh_manifest

Make = Callable[..., Plan]
CELL = "assessments/01-s17.json"
ASKED = {
    "probes": ["temperature", "renaming", "paraphrase"],
    "synonyms": {name: f"a request about {name}" for name in INTENTS},
    "oracle_seeds": [42, 99],
}


@pytest.fixture(scope="module")
def probed(make_plan: Make, execution: Execution, tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    return run_study(make_plan(**ASKED), tmp_path_factory.mktemp("probes") / "run", execution=execution)


def test_every_model_is_asked_in_every_way(probed: StudyResult) -> None:
    for model in probed.assessments[CELL].models:
        if model.role != "unlearned":
            continue
        assert model.evidence is not None
        names = [probe.name for probe in model.evidence.probes]
        assert names == ["renaming", "paraphrase", "temperature 0.5", "temperature 2", "temperature 5"]
        assert all(set(probe.memory) == {"F", "G"} for probe in model.evidence.probes)
        assert model.evidence.conditions[-1].name == "probes"


def test_the_audit_recomputes_probes(probed: StudyResult) -> None:
    report = audit_study(probed.root)
    assert report.passed, [check for check in report.checks if check.status == "failed"]
    path = probed.root / CELL
    before = path.read_text()
    stored: dict[str, Any] = json.loads(before)
    stored["models"][1]["evidence"]["probes"][1]["memory"]["F"]["value"] = 0.123
    path.write_text(json.dumps(stored))
    refresh_manifest(probed.root)
    check = next(item for item in CHECKS if item[0] == "verdicts")
    assert run_check(Folder(probed.root), *check).status == "failed"
    path.write_text(before)
    refresh_manifest(probed.root)


def test_options_without_another_text_are_refused_before_training(
    make_plan: Make, execution: Execution, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="probes: paraphrase: found no other text for option"):
        run_study(make_plan(probes=["paraphrase"]), tmp_path / "run", execution=execution)
    assert not list((tmp_path / "run").glob("nodes/*"))
