"""Tuning on the development bundle and freezing what it chose."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bag_of_words import BagOfWords

from vestige.errors import InputError, Interrupted
from vestige.study.audit import audit_study
from vestige.study.freeze import freeze_study, match_study
from vestige.study.outline import outline
from vestige.study.runner import Execution, run_study
from vestige.study.store import refresh_manifest
from vestige.study.tune import tune_study

Make = Callable[..., Any]
GRID = {"simnpo": {"beta": [2.5], "retain_weight": [1.0], "learning_rate": ["1e-4", 2e-4]}}


def test_every_epoch_of_every_point_is_a_candidate(
    make_plan: Make, tmp_path: Path, execution: Execution
) -> None:
    plan = make_plan(methods=["simnpo"], tuning={"epochs": 3, "prune": False, "grid": GRID})
    found = tune_study(plan, tmp_path / "run", execution=execution)
    method = found.method("simnpo")
    assert [len(point.epochs) for point in method.points] == [3, 3]
    assert (method.candidates, method.budget) == (6, 6)
    assert method.grid["learning_rate"] == (1e-4, 2e-4)
    best = min(
        (epoch.objective, point.settings["learning_rate"], epoch.epoch)
        for point in method.points
        for epoch in point.epochs
        if epoch.feasible
    )
    assert method.chosen is not None
    assert method.settings is not None
    chosen = (method.chosen.objective, method.settings["learning_rate"], method.settings["epochs"])
    assert chosen == best
    assert found.used_oracle
    assert found.equal_budgets
    assert set(method.edges) == {"epochs"}
    assert set(method.unbracketed) == {"beta", "learning_rate", "retain_weight"}


def test_tuning_reads_bundle_00_and_development_rows_alone(
    make_plan: Make, tmp_path: Path, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: set[str] = set()
    original = BagOfWords.predict

    def predict(self: Any, *, model: Path, texts: Any, schema: Any, progress: Any) -> Any:
        read.update(texts)
        return original(self, model=model, texts=texts, schema=schema, progress=progress)

    monkeypatch.setattr(BagOfWords, "predict", predict)
    plan = make_plan(methods=["simnpo"], tuning={"epochs": 1, "grid": GRID})
    found = tune_study(plan, tmp_path / "run", execution=execution)
    # The split is in each text: t..., d..., e...; evaluation texts were never scored.
    assert not any(text.split()[-1].startswith("e") for text in read)
    assert any(text.split()[-1].startswith("t") for text in read)
    assert sorted(path.name for path in (tmp_path / "run/requests").iterdir()) == ["00.json"]
    assert found.rows == {"F": 40, "G": 18, "R": 72}
    request = json.loads((tmp_path / "run/requests/00.json").read_text())
    assert request["purpose"] == "development"
    assert found.request["rows"] == request["rows_sha256"]


def test_development_rows_are_capped_by_hash(make_plan: Make, tmp_path: Path, execution: Execution) -> None:
    plan = make_plan(methods=["simnpo"], tuning={"epochs": 1, "grid": GRID, "development_rows": 50})
    found = tune_study(plan, tmp_path / "run", execution=execution)
    assert found.rows == {"F": 40, "G": 18, "R": 50}


def test_a_pruned_point_says_why(make_plan: Make, tmp_path: Path, execution: Execution) -> None:
    grid = {"uniformization": {"learning_rate": [2e-4], "retain_weight": [0.5]}}
    plan = make_plan(methods=["uniformization"], tuning={"epochs": 8, "prune": True, "grid": grid})
    tuning = tune_study(plan, tmp_path / "run", execution=execution)
    assert not tuning.equal_budgets
    with pytest.raises(InputError, match="points that were stopped early"):
        match_study(tmp_path / "run", 0.6)
    method = tuning.method("uniformization")
    (point,) = method.points
    assert point.stopped in ("infeasible for 2 epochs", "no better objective for 3 epochs")
    assert len(point.epochs) < 8
    assert method.candidates == len(point.epochs)
    assert method.budget == 8


def test_diverged_points_are_no_candidates(make_plan: Make, tmp_path: Path, execution: Execution) -> None:
    grid = {"simnpo": {"beta": [2.5], "retain_weight": [1.0], "learning_rate": [1e6]}}
    plan = make_plan(methods=["simnpo"], tuning={"epochs": 2, "grid": grid})
    run = tmp_path / "run"
    method = tune_study(plan, run, execution=execution).method("simnpo")
    assert method.points[0].stopped.startswith("diverged: the loss is nan")
    assert (method.settings, method.note) == (None, "no feasible candidate")
    frozen = freeze_study(run)
    assert (frozen.methods[0].settings, frozen.family) == (None, ())


def test_interrupted_tuning_keeps_finished_points(
    make_plan: Make, tmp_path: Path, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(methods=["simnpo"], tuning={"epochs": 3, "grid": GRID})
    whole = tune_study(plan, tmp_path / "whole", execution=execution)
    calls = [0]
    original = BagOfWords.unlearn

    def stopping(self: Any, *, on_epoch: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        count = calls[0]

        def ended(epoch: int, score: Any, moved: float) -> bool:
            keep: bool = on_epoch(epoch, score, moved)
            if count == 2 and epoch == 2:
                raise KeyboardInterrupt
            return keep

        return original(self, on_epoch=ended, **kwargs)

    monkeypatch.setattr(BagOfWords, "unlearn", stopping)
    with pytest.raises(Interrupted):
        tune_study(plan, tmp_path / "run", execution=execution)
    again = tune_study(plan, tmp_path / "run", execution=execution)
    assert calls[0] == 3
    key = [(p.settings, p.epochs, p.stopped) for p in again.method("simnpo").points]
    assert key == [(p.settings, p.epochs, p.stopped) for p in whole.method("simnpo").points]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"simnpo": {"bta": [1]}}, "did you mean 'beta'"),
        ({"simnpo": {"beta": []}}, "an empty list"),
        ({"simnpo": {"epochs": [1, 2]}}, "every epoch up to tuning.epochs is a candidate already"),
        ({"simnpo": {"beta": [-1]}}, "beta"),
        ({"simnpoo": {"beta": [1]}}, "did you mean 'simnpo'"),
    ],
)
def test_bad_grids(make_plan: Make, tmp_path: Path, execution: Execution, grid: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tune_study(make_plan(tuning={"grid": grid}), tmp_path / "run", execution=execution)


def test_freezing_writes_what_was_chosen_and_only_before_evaluation(
    make_plan: Make, tmp_path: Path, execution: Execution
) -> None:
    run = tmp_path / "run"
    methods = [{"method": "simnpo", "frozen": True}, {"method": "uniformization", "frozen": True}]
    grid = {**GRID, "uniformization": {"learning_rate": [3e-5], "retain_weight": [1.0]}}
    plan = make_plan(stage="confirmation", methods=methods, tuning={"epochs": 2, "grid": grid})
    with pytest.raises(InputError, match=r"no plan\.json|no such folder"):
        freeze_study(run)
    tuning = tune_study(plan, run, execution=execution)
    frozen = freeze_study(run)
    assert {item.method: item.settings for item in frozen.methods} == {
        item.method: item.settings for item in tuning.methods
    }
    assert frozen.family == ("SimNPO",)
    assert set(frozen.bundles) == {"00", "01", "02", "03"}
    assert freeze_study(run) == frozen
    with pytest.raises(InputError, match="frozen settings do not change"):
        tune_study(plan, run, execution=execution)
    result = run_study(plan, run, execution=execution)
    found = result.assessments["assessments/01-s17.json"]
    assert found.family == ("SimNPO",)
    assert found.model_named("SimNPO").p_value["holm"] == found.model_named("SimNPO").p_value["both"]
    assert "holm" not in found.model_named("Uniformization").p_value
    with pytest.raises(InputError, match="none before settings are frozen"):
        freeze_study(run)


def test_a_confirmation_takes_only_settings_frozen_on_its_own_data_and_model(
    make_plan: Make, confirmed: Path, tmp_path: Path, execution: Execution
) -> None:
    method = {"method": "simnpo", "frozen": str(confirmed / "frozen.json")}
    alone = make_plan(stage="confirmation", methods=[method])
    with pytest.raises(InputError, match="the frozen family: 'GradAscent', 'SimNPO'"):
        run_study(alone, tmp_path / "alone", execution=execution)
    other = make_plan(stage="confirmation", methods=[method], training={"epochs": 119})
    with pytest.raises(InputError, match="another training than the settings were frozen on"):
        run_study(other, tmp_path / "other", execution=execution)
    looser = make_plan(stage="confirmation", methods=[method], margins={"memory": 0.2})
    with pytest.raises(InputError, match="another margin of 'memory' than was frozen; needed memory: 0"):
        run_study(looser, tmp_path / "looser", execution=execution)
    moved = make_plan(stage="transfer", methods=[method], training={"epochs": 119})
    result = run_study(moved, tmp_path / "moved", execution=execution)
    assert result.assessments["assessments/01-s17.json"].stage == "transfer"
    copies = [path.name for path in result.root.glob("frozen-*.json")]
    assert len(copies) == 1
    assert (result.root / copies[0]).read_bytes() == (confirmed / "frozen.json").read_bytes()


def test_custom_requests_tune_on_a_part_that_f_leaves_out(
    make_plan: Make, tmp_path: Path, execution: Execution
) -> None:
    run = tmp_path / "run"
    deletion = {"granularity": "custom", "where": ["customer_id=3", "customer_id=4", "customer_id=5"]}
    methods = [{"method": "simnpo", "frozen": True}]
    plan = make_plan(deletion=deletion, methods=methods, tuning={"epochs": 2, "grid": GRID})
    tuning = tune_study(plan, run, execution=execution)
    assert tuning.held_out
    assert tuning.bundle == "custom"
    freeze_study(run)
    found = run_study(plan, run, execution=execution).assessments["assessments/custom-s17.json"]
    deleted = found.provenance["request"]["deleted_rows"]
    f = next(item.rows for item in found.views if item.view == "F")
    assert f + tuning.rows["F"] == deleted
    assert tuning.rows["F"] == round(0.3 * deleted)
    assert any("tuned on this request itself" in item for item in found.caveats)


def test_a_method_without_a_feasible_candidate_is_left_out_and_the_others_go_on(
    make_plan: Make, tmp_path: Path, execution: Execution
) -> None:
    """A control takes its candidate of smallest objective; one for development alone is in no family."""
    run = tmp_path / "run"
    grid = {
        **GRID,
        "npo": {"beta": [2.5], "retain_weight": [0.5], "learning_rate": [0.05]},
        "rmu": {"scale": [2.0], "retain_weight": [1.0], "learning_rate": [3e-5]},
        "uniformization": {"learning_rate": [0.05], "retain_weight": [0.5]},
    }
    tuned = make_plan(
        methods=["simnpo", "npo", "rmu", "uniformization"],
        family=["SimNPO", "NPO"],
        tuning={"epochs": 2, "grid": grid},
    )
    tuning = tune_study(tuned, run, execution=execution)
    infeasible, control = tuning.method("npo"), tuning.method("uniformization")
    assert (infeasible.settings, infeasible.feasible_candidates, infeasible.candidates) == (None, 0, 2)
    assert control.feasible_candidates == 0
    assert control.chosen == min(control.points[0].epochs, key=lambda epoch: epoch.objective)
    assert "the one of the smallest objective stands" in control.note
    frozen = freeze_study(run)
    assert frozen.family == ("SimNPO",)
    assert {item.method for item in frozen.methods} == {"simnpo", "npo", "rmu", "uniformization"}
    confirmed = ("simnpo", "npo", "uniformization")
    plan = make_plan(
        stage="confirmation", methods=[{"method": name, "frozen": True} for name in confirmed], draws=100
    )
    (outlined, *_) = [item for item in outline(plan, run, execution=execution) if item.kind == "unlearned"]
    assert outlined.label == "SimNPO on bundle 01, seed 17"
    found = run_study(plan, run, execution=execution).assessments["assessments/01-s17.json"]
    assert [model.label for model in found.models if model.role == "unlearned"] == [
        "SimNPO",
        "Uniformization",
    ]
    assert found.family == ("SimNPO",)
    assert "NPO was tuned and is not evaluated: no feasible candidate, of 2 measured." in found.caveats
    report = audit_study(run)
    assert report.passed
    assert any("left out: NPO" in finding for finding in report.check("coverage").findings)
    left_out = run / "left_out.json"
    left_out.write_text(left_out.read_text().replace('"npo"', '"simnpo"'))
    refresh_manifest(run, "left_out.json")
    assert audit_study(run).check("coverage").status == "failed"


def test_a_dry_run_refuses_what_a_run_refuses(
    make_plan: Make, confirmed: Path, tmp_path: Path, execution: Execution
) -> None:
    record = str(confirmed / "frozen.json")
    alone = make_plan(stage="confirmation", methods=[{"method": "simnpo", "frozen": record}])
    with pytest.raises(InputError, match="the frozen family: 'GradAscent', 'SimNPO'"):
        outline(alone, tmp_path / "run", execution=execution)
    strange = make_plan(methods=[{"method": "simnpo", "frozen": "/etc/hostname"}])
    with pytest.raises(InputError, match="/etc/hostname"):
        outline(strange, tmp_path / "run", execution=execution)
    none = make_plan(stage="confirmation", methods=[{"method": "simnpo", "frozen": True}])
    (refused,) = [i for i in outline(none, tmp_path / "run", execution=execution) if i.kind == "refused"]
    assert refused.label == "simnpo: its settings are not frozen; its defaults are counted"
    assert not (tmp_path / "run").exists()
