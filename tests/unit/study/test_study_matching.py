"""Temperature control, matched suppression and transfer of frozen settings, on the small backend."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vestige.cli import run
from vestige.cli.study_lines import print_tuning
from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.study.audit import audit_study
from vestige.study.freeze import freeze_study, match_study
from vestige.study.frozen import read_frozen
from vestige.study.runner import run_study
from vestige.study.temperature import BOUNDS, nll_temperature, search, tempered
from vestige.study.tune import Tuning, tune_study
from vestige.study.tuning_rules import EpochResult, Point, chosen_settings, match

Make = Callable[..., Any]
GRID = {
    "simnpo": {"beta": [2.5], "retain_weight": [1.0], "learning_rate": [5e-5, 1e-4]},
    "temperature": {"temperature": [0.5, 1.0, 1.5, 2.0, 4.0]},
}
METHODS = ["simnpo", "temperature"]


@pytest.fixture(scope="module")
def tuned_once(make_plan: Make, tmp_path_factory: pytest.TempPathFactory, execution: Any) -> Path:
    root = tmp_path_factory.mktemp("tuned") / "run"
    tune_study(make_plan(methods=METHODS, tuning={"epochs": 4, "grid": GRID}), root, execution=execution)
    return root


@pytest.fixture
def tuned(tuned_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tuned_once, tmp_path / "tuned"))


def problems(folder: Path) -> list[str]:
    """What the audit finds wrong."""
    failed = [check for check in audit_study(folder).checks if check.status == "failed"]
    return [f"{check.name}: {what}" for check in failed for what in check.findings]


def tuning_of(folder: Path) -> Tuning:
    return Tuning.model_validate(json.loads((folder / "tuning.json").read_text()))


def candidate(number: int, objective: float, **fields: Any) -> EpochResult:
    base: dict[str, Any] = {
        "epoch": number,
        "od_f": objective / 2,
        "od_g": objective / 2,
        "objective": objective,
        "accuracy": 0.9,
        "ece": 0.05,
        "delta_accuracy": 0.0,
        "delta_ece": 0.0,
        "feasible": True,
    }
    return EpochResult(**{**base, **fields})


def test_tempering_divides_logits() -> None:
    logits = np.array([[2.0, 0.0, -1.0], [300.0, 0.0, -300.0]])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    soft = np.exp(logits / 2) / np.exp(logits / 2).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(tempered(p, 2.0), soft, rtol=1e-9)
    np.testing.assert_allclose(tempered(p, 1.0), p, rtol=1e-12)


def test_the_search_narrows_around_the_best_feasible_value() -> None:
    def measure(number: int, value: float) -> EpochResult:
        feasible = value <= 3.0
        return candidate(number, abs(value - 3.3) / 100, feasible=feasible, settings={"temperature": value})

    found = search((0.5, 1.0, 2.0, 4.0, 8.0), measure)
    assert [item.epoch for item in found] == list(range(1, len(found) + 1))
    best = min((item for item in found if item.feasible), key=lambda item: item.objective)
    assert 2.95 < best.settings["temperature"] <= 3.0
    assert len(found) == 5 + 4 * 9
    assert len(search((2.0,), measure)) == 1
    hopeless = search((4.0, 8.0), measure)
    assert [item.settings["temperature"] for item in hopeless] == [4.0, 8.0]


def test_the_likelihood_s_temperature() -> None:
    # One of four rows is wrong: the best confidence of (p, 1 - p) is 3/4, so odds of 9 become odds of 3.
    p = np.array([[0.9, 0.1]] * 4)
    found, at_bound = nll_temperature(p, np.array([0, 0, 0, 1]))
    assert found == pytest.approx(2.0, abs=1e-4)
    assert not at_bound
    sure, at_bound = nll_temperature(p, np.array([0, 0, 0, 0]))  # always right: the colder the better
    assert sure == pytest.approx(BOUNDS[0], rel=1e-2)
    assert at_bound


def test_temperature_is_tuned_beside_its_likelihood_fit(tuned: Path) -> None:
    tuning = tuning_of(tuned)
    item = tuning.method("temperature")
    (point,) = item.points
    assert item.chosen is not None
    assert item.fitted is not None
    feasible = [epoch for epoch in point.epochs if epoch.feasible]
    assert item.chosen.objective == min(epoch.objective for epoch in feasible)
    assert item.settings == {"temperature": item.chosen.settings["temperature"]}
    assert item.candidates == item.budget == len(point.epochs) > 5
    assert BOUNDS[0] <= item.fitted.settings["temperature"] <= BOUNDS[1]
    same = next(epoch for epoch in point.epochs if epoch.settings["temperature"] == 1.0)
    assert same.delta_accuracy == same.delta_ece == 0.0
    assert same.s == pytest.approx(0.0, abs=1e-9)
    assert {epoch.update_norm for epoch in point.epochs} == {0.0}
    assert tuning.equal_budgets
    assert all(problem.startswith("coverage") for problem in problems(tuned))  # nothing else was run
    path = tuned / "tuning.json"
    text = path.read_text()
    path.write_text(text.replace(f'"temperature": {item.settings["temperature"]!r}', '"temperature": 3.5'))
    assert any("tuning: Temperature" in problem for problem in problems(tuned))


def test_a_temperature_at_the_end_of_its_search_is_flagged(
    make_plan: Make, tmp_path: Path, execution: Any
) -> None:
    grid = {"temperature": {"temperature": [1.0, 1.0005, 1.001]}}
    plan = make_plan(methods=["temperature"], tuning={"grid": grid})
    item = tune_study(plan, tmp_path / "run", execution=execution).method("temperature")
    assert item.settings is not None
    assert item.settings["temperature"] in (1.0, 1.001)
    assert item.edges == ("temperature",)
    two = make_plan(methods=["temperature"], tuning={"grid": {"temperature": {"temperature": [1.0, 1.001]}}})
    item = tune_study(two, tmp_path / "two", execution=execution).method("temperature")
    assert (item.edges, item.unbracketed) == ((), ("temperature",))


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_temperature_that_is_none(make_plan: Make, tmp_path: Path, execution: Any, value: float) -> None:
    said = r"methods\[0\] \(temperature\): settings: temperature|a number that is not finite"

    def attempt() -> None:
        plan = make_plan(methods=[{"method": "temperature", "settings": {"temperature": value}}])
        run_study(plan, tmp_path / "run", execution=execution)

    with pytest.raises(InputError, match=said):
        attempt()


def test_a_frozen_temperature_runs_as_a_control_and_trains_nothing(
    make_plan: Make, tuned: Path, execution: Any
) -> None:
    frozen = freeze_study(tuned)
    methods = [{"method": name, "frozen": True} for name in METHODS]
    plan = make_plan(methods=methods, stage="confirmation", tuning={"epochs": 4, "grid": GRID})
    found = run_study(plan, tuned, execution=execution).assessments["assessments/01-s17.json"]
    model = found.model_named("Temperature")
    assert model.control
    assert frozen.family == found.family == ("SimNPO",)
    assert model.metrics["delta_accuracy.R"].value == 0.0
    assert found.provenance["frozen"]["Temperature"]["study"] == "small"
    assert problems(tuned) == []


def test_every_epoch_has_its_suppression_and_update(tuned: Path) -> None:
    for point in tuning_of(tuned).method("simnpo").points:
        values = [(epoch.s, epoch.update_norm) for epoch in point.epochs]
        assert all(isinstance(s, float) and isinstance(norm, float) and norm > 0 for s, norm in values)
        assert values[-1][0] > values[0][0] > 0  # type: ignore[operator]


def test_the_nearest_feasible_candidate_ties_to_the_smaller_update() -> None:
    one = Point(
        node="a",
        settings={"beta": 1},
        epochs=(
            candidate(1, 0.1, s=0.5, update_norm=2.0),
            candidate(2, 0.1, s=0.61, update_norm=1.0, feasible=False),
            candidate(3, 0.9, s=Undefined(undefined="class deletion only")),
        ),
        stopped="",
        seconds=1.0,
    )
    two = one.model_copy(update={"node": "b", "epochs": (candidate(5, 0.5, s=0.7, update_norm=1.5),)})
    found = match([one, two], 0.6)
    assert found is not None
    assert (found[0].node, found[1].epoch) == ("b", 5)
    assert found[2] == pytest.approx(0.1)
    assert chosen_settings(found[0], found[1]) == {"beta": 1, "epochs": 5}
    assert match([one], 0.55)[1].epoch == 1  # type: ignore[index]
    assert match([one.model_copy(update={"epochs": one.epochs[1:]})], 0.6) is None


def test_matched_settings_are_used_in_exploratory_studies_alone(
    make_plan: Make, tuned: Path, tmp_path: Path, execution: Any
) -> None:
    record, name = match_study(tuned, 0.4)
    assert name == "matched-0.4.json"
    assert read_frozen(tuned / name) == record
    item = record.methods[0]
    tuning = tuning_of(tuned)
    gaps = [
        abs(epoch.s - 0.4)
        for point in tuning.method("simnpo").points
        for epoch in point.epochs
        if epoch.feasible and isinstance(epoch.s, float)
    ]
    assert item.gap == min(gaps)
    assert item.unmatched == (min(gaps) > 0.1)
    assert match_study(tuned, 0.4)[0] == record
    methods = [{"method": "simnpo", "frozen": str(tuned / name)}]
    with pytest.raises(
        InputError, match=r"matched to a suppression of 0\.4 in a study that is not exploratory"
    ):
        run_study(make_plan(methods=methods), tmp_path / "pilot", execution=execution)
    result = run_study(make_plan(methods=methods, stage="exploratory"), tmp_path / "run", execution=execution)
    found = result.assessments["assessments/01-s17.json"]
    source = found.provenance["frozen"]["SimNPO"]
    assert (source["target_s"], source["development_s"], source["gap"]) == (0.4, item.s, item.gap)
    assert source["held_out_s"] == found.model_named("SimNPO").metrics["suppression.FG"].value
    assert problems(result.root) == []
    again = run_study(make_plan(methods=methods, stage="exploratory"), tmp_path / "run", execution=execution)
    assert again.assessments["assessments/01-s17.json"] == found


def test_listed_settings_are_matched_apart(make_plan: Make, tmp_path: Path, execution: Any) -> None:
    methods = [
        {"method": "simnpo", "label": "slow", "settings": {"learning_rate": 5e-5}},
        {"method": "simnpo", "label": "fast", "settings": {"learning_rate": "1e-4"}},
        {"method": "simnpo", "label": "none", "settings": {"learning_rate": 3e-4}},
        {"method": "uniformization"},
    ]
    grid = {"simnpo": GRID["simnpo"], "uniformization": {"learning_rate": [2e-4], "retain_weight": [0.5]}}
    folder = tmp_path / "run"
    tune_study(make_plan(methods=methods, tuning={"epochs": 2, "grid": grid}), folder, execution=execution)
    record, name = match_study(folder, 40.0)
    slow, fast, none, uniform = record.methods
    assert (slow.label, fast.label, none.label) == ("slow", "fast", "none")
    assert slow.settings is not None
    assert fast.settings is not None
    assert (slow.settings["learning_rate"], fast.settings["learning_rate"]) == (5e-5, 1e-4)
    assert slow.unmatched
    assert slow.note.startswith("unmatched: 39.")
    assert (none.settings, none.note) == (None, "no candidate with the listed settings")
    assert uniform.control
    used = [{"method": "simnpo", "label": label, "frozen": str(folder / name)} for label in ("fast", "slow")]
    found = run_study(make_plan(methods=used, stage="exploratory"), tmp_path / "used", execution=execution)
    (assessment,) = found.assessments.values()
    assert assessment.provenance["frozen"]["slow"]["unmatched"]
    bad = [{**used[0], "label": "fest"}]
    with pytest.raises(InputError, match="did you mean 'fast'"):
        run_study(make_plan(methods=bad, stage="exploratory"), tmp_path / "bad", execution=execution)


def test_matching_at_the_command_line(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["study", "freeze", str(tuned), "--match-suppression", "0.4"]) == 0
    shown = capsys.readouterr().out
    item = read_frozen(tuned / "matched-0.4.json").methods[0]
    assert f"s {item.s:.3f}, {item.gap:.3f} from 0.4" in shown
    assert "matched-0.4.json; family: SimNPO" in shown
    assert run(["study", "freeze", str(tuned), "--match-suppression", "some"]) == 2
    assert "found 'some'; needed a number, or default" in capsys.readouterr().err
    assert run(["study", "freeze", str(tuned), "--match-suppression", "default"]) == 2
    assert "no target of its own" in capsys.readouterr().err
    assert not (tuned / "frozen.json").exists()
    print_tuning(tuning_of(tuned))
    assert "Temperature by likelihood instead: temperature " in capsys.readouterr().out


def test_the_audit_checks_matched_records(tuned: Path) -> None:
    match_study(tuned, 0.4)
    path = tuned / "matched-0.4.json"
    assert not [problem for problem in problems(tuned) if problem.startswith("tuning")]
    record = json.loads(path.read_text())
    for change in ({"gap": 0.05}, {"unmatched": True, "gap": 0.0}, {"settings": None}):
        first = {**record["methods"][0], **change}
        path.write_text(json.dumps({**record, "methods": [first, *record["methods"][1:]]}))
        assert any("tuning: matched-0.4.json, SimNPO" in problem for problem in problems(tuned)), change


@pytest.mark.parametrize(
    ("target", "message"),
    [(None, "no target of its own"), (0.0, "a number above 0"), (float("nan"), "a number above 0")],
)
def test_targets_that_are_none(tuned: Path, target: float | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        match_study(tuned, target)


def test_a_custom_deletion_has_no_suppression_to_match(
    make_plan: Make, tmp_path: Path, execution: Any
) -> None:
    deletion = {"granularity": "custom", "where": ["customer_id=3", "customer_id=4"]}
    plan = make_plan(deletion=deletion, methods=["simnpo"], tuning={"epochs": 1, "grid": GRID})
    tune_study(plan, tmp_path / "run", execution=execution)
    with pytest.raises(InputError, match="class deletion only"):
        match_study(tmp_path / "run", 0.6)


@pytest.mark.parametrize("stage", ["transfer", "screening"])
def test_frozen_settings_transfer_to_another_data_set(
    make_plan: Make, intents: Path, tuned: Path, tmp_path: Path, execution: Any, stage: str
) -> None:
    frozen = freeze_study(tuned)
    other = tmp_path / "other"
    other.mkdir()
    for path in intents.iterdir():
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
        with (other / path.name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(
                [rows[0], *([f"well {row[0]}", f"x-{row[1]}", row[2]] for row in rows[1:])]
            )
    methods = [{"method": name, "frozen": str(tuned / "frozen.json")} for name in METHODS]
    dataset = {"name": "files", "path": str(other)}
    plan = make_plan(name="moved", stage=stage, methods=methods, dataset=dataset)
    result = run_study(plan, tmp_path / "run", execution=execution)
    found = result.assessments["assessments/01-s17.json"]
    assert found.stage == stage
    for item in frozen.methods:
        source = found.provenance["frozen"][item.label]
        assert (source["study"], source["time"], source["data"]) == ("small", frozen.time, frozen.data)
        assert source["data"] != found.provenance["data"]["sha256"]
    assert problems(result.root) == []
    with pytest.raises(InputError, match="another data than the settings were frozen on"):
        run_study(plan.model_copy(update={"stage": "confirmation"}), tmp_path / "no", execution=execution)
