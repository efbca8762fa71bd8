"""Candidate sets in a study: new forward passes, stored memberships, feasibility on all options."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bag_of_words import SPEC, BagOfWords

from conftest import INTENTS
from vestige.decision.predictions import read_predictions
from vestige.errors import InputError
from vestige.study.assess import is_feasible
from vestige.study.audit import CHECKS, audit_study, run_check
from vestige.study.audit_folder import Folder
from vestige.study.cells import prepare
from vestige.study.deletions import refuse_impossible
from vestige.study.outline import outline
from vestige.study.plan import Plan
from vestige.study.runner import Execution, StudyResult, run_study
from vestige.study.status import study_status
from vestige.study.store import canonical, pretty, refresh_manifest

Make = Callable[..., Plan]
SETS = ("S0", "S1", "S2")


@pytest.fixture(scope="module")
def rescored(make_plan: Make, execution: Execution, tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    root = tmp_path_factory.mktemp("candidates") / "run"
    return run_study(make_plan(candidates=list(SETS)), root, execution=execution)


def test_each_set_has_an_assessment_with_its_own_denominator(rescored: StudyResult) -> None:
    found = {item.candidates: item for item in rescored.assessments.values()}
    assert sorted(found) == list(SETS)
    assert [found[name].options for name in SETS] == [10, 6, 6]
    start = {name: found[name].model_named("full").metrics["displacement.F"].value for name in SETS}
    assert len(set(start.values())) == 3
    rows = {name: {view.view: view.rows for view in found[name].views} for name in SETS}
    assert all(rows[name]["F"] == rows["S0"]["F"] for name in SETS)
    assert all(rows[name]["G"] == rows["S0"]["G"] for name in SETS)
    assert rows["S1"]["R"] < rows["S0"]["R"]


def test_memberships_hold_the_forgotten_and_are_stored(rescored: StudyResult) -> None:
    kept = json.loads((rescored.root / "candidates/01.json").read_text())
    s1, s2 = set(kept["sets"]["S1"]), set(kept["sets"]["S2"])
    lost = set(kept["forgotten"])
    assert len(lost) == 2
    assert s1 & s2 == lost
    assert len(s1) == len(s2) == 6


def test_scores_are_new_forward_passes_and_not_slices(rescored: StudyResult) -> None:
    found = {item.candidates: item for item in rescored.assessments.values()}
    tables = {
        name: read_predictions(rescored.root / found[name].sources[0].path, name) for name in ("S0", "S1")
    }
    rows = {row: place for place, row in enumerate(tables["S0"].row_ids)}
    columns = [tables["S0"].options.index(name) for name in tables["S1"].options]
    sliced = tables["S0"].p[[rows[row] for row in tables["S1"].row_ids]][:, columns]
    sliced /= sliced.sum(axis=1, keepdims=True)
    assert np.abs(sliced - tables["S1"].p).max() > 1e-3


def test_feasibility_is_that_of_all_options(rescored: StudyResult) -> None:
    found = {item.candidates: item for item in rescored.assessments.values()}
    for model in found["S1"].models:
        if model.role != "unlearned":
            continue
        whole = found["S0"].model_named(model.label)
        for name in ("delta_accuracy", "delta_ece"):
            assert model.utility[name] == whole.metrics[f"{name}.R"].value
        assert is_feasible(model) == is_feasible(whole)


def test_one_model_serves_every_set(rescored: StudyResult, make_plan: Make, execution: Execution) -> None:
    kinds = [path.name.split("-")[0] for path in (rescored.root / "nodes").iterdir()]
    assert kinds.count("full") == kinds.count("oracle") == 2
    done = outline(make_plan(candidates=list(SETS)), rescored.root, execution=execution)
    labels = [item.label for item in done if item.kind == "assessment"]
    assert labels == [f"bundle 01, seed 17, {name}" for name in SETS]
    assert all(item.state == "done" for item in study_status(rescored.root).work)


def test_the_audit_recomputes_every_set(rescored: StudyResult) -> None:
    report = audit_study(rescored.root)
    assert report.passed, [item for item in report.checks if item.status == "failed"]


@pytest.mark.parametrize(
    ("name", "change", "check"),
    [
        ("candidates/01.json", lambda v: v["sets"]["S1"].pop(), "probabilities"),
        (
            "assessments/01-s17-S1.json",
            lambda v: v["models"][1]["utility"].update(delta_ece=0.5),
            "decisions",
        ),
    ],
)
def test_a_changed_membership_or_feasibility_fails(
    rescored: StudyResult, tmp_path: Path, name: str, change: Callable[[Any], Any], check: str
) -> None:
    import shutil

    root = Path(shutil.copytree(rescored.root, tmp_path / "run"))
    value = json.loads((root / name).read_text())
    change(value)
    text = pretty(value) if name.startswith("candidates") else canonical(value)
    (root / name).write_text(text)
    refresh_manifest(root, name)
    assert audit_study(root).check(check).status == "failed"


def test_own_sets_are_scored_and_must_offer_what_is_forgotten(
    rescored: StudyResult, make_plan: Make, tmp_path: Path
) -> None:
    lost = list(rescored.assessments["assessments/01-s17.json"].forgotten)
    execution = Execution(backend=SPEC, reuse=(rescored.root,))
    others = [name for name in INTENTS if name not in lost][:2]
    plan = make_plan(own_sets={"mine": [*lost, *others]})
    result = run_study(plan, tmp_path / "run", execution=execution)
    found = result.assessments["assessments/01-s17-mine.json"]
    assert (found.candidates, found.options) == ("mine", 4)
    assert audit_study(tmp_path / "run").passed
    plan = make_plan(own_sets={"mine": [lost[0], *others]})
    with pytest.raises(InputError, match=f"no forgotten option '{lost[1]}'"):
        run_study(plan, tmp_path / "other", execution=execution)
    with pytest.raises(InputError, match=r"option 'refnd'.*did you mean 'refund'"):
        run_study(make_plan(own_sets={"mine": ["refnd", others[0]]}), tmp_path / "third", execution=execution)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"candidates": ["S1"]}, "no S0"),
        ({"candidates": ["S0", "S0"]}, "twice"),
        ({"candidates": ["S0", "S3"]}, "S3"),
        ({"own_sets": {"S1": ["refund"]}}, "other than S0"),
        (
            {"candidates": ["S0", "S1"], "deletion": {"granularity": "custom", "where": "customer_id=3"}},
            "which forgets no option",
        ),
    ],
)
def test_sets_that_cannot_be_are_refused_before_training(
    make_plan: Make, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        make_plan(**changes)


def _exchange(value: dict[str, Any], name: str) -> None:
    """One retained member of a set is exchanged for an option outside it, the order kept."""
    members = value["sets"][name]
    place = next(i for i, item in enumerate(members) if item not in value["forgotten"])
    members[place] = min(set(INTENTS) - set(members))
    value["sets"][name] = [item for item in value["sets"]["S0"] if item in set(members)]


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.update(forgotten=value["forgotten"][:1]),
        lambda value: value.update(seed=1),
        lambda value: value["sets"]["S0"].pop(),
        lambda value: value["sets"]["S1"].reverse(),
        lambda value: value["sets"]["S1"].remove(value["forgotten"][0]),
        lambda value: _exchange(value, "S2"),
    ],
)
def test_changed_memberships_fail_the_audit(
    rescored: StudyResult, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    root = Path(shutil.copytree(rescored.root, tmp_path / "run"))
    check = next(item for item in CHECKS if item[0] == "candidates")
    assert run_check(Folder(root), *check).status == "passed"
    value = json.loads((root / "candidates/01.json").read_text())
    change(value)
    (root / "candidates/01.json").write_text(pretty(value))
    assert run_check(Folder(root), *check).status == "failed"


def test_options_that_are_not_in_alphabetical_order_pass_the_audit(
    make_plan: Make, execution: Execution, tmp_path: Path
) -> None:
    plan = make_plan(
        dataset="helpdesk",
        deletion={"units_per_bundle": 1, "bundles": ["01"]},
        noise_seeds=[],
        oracle_seeds=[],
        methods=["grad_ascent"],
        candidates=["S0", "S1"],
        draws=100,
    )
    root = run_study(plan, tmp_path / "run", execution=execution).root
    offered = json.loads((root / "candidates/01.json").read_text())["sets"]["S1"]
    assert offered != sorted(offered)
    assert audit_study(root).passed


def test_sets_that_cannot_be_filled_are_refused_before_any_training(
    make_plan: Make, execution: Execution, tmp_path: Path
) -> None:
    deletion = {"units_per_bundle": 3, "bundles": ["01"]}
    for name, least in (("S1", None), ("S2", "at least 12")):
        plan = make_plan(candidates=["S0", name], deletion=deletion)
        if least is None:
            refuse_impossible(prepare(plan, BagOfWords()))
            continue
        with pytest.raises(InputError, match=f"7 options beside the 3 of a bundle.*{least}"):
            run_study(plan, tmp_path / "run", execution=execution)
    assert not (tmp_path / "run/nodes").exists()
