"""Whole studies on a small real backend: sharing, skipping, resuming, gates, failures, workers."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from bag_of_words import SPEC, BagOfWords

from vestige.contracts import Assessment
from vestige.decision.predictions import read_predictions
from vestige.errors import InputError, Interrupted
from vestige.metrics import js2
from vestige.study.audit import audit_study
from vestige.study.outline import outline
from vestige.study.pool import Silent, Team
from vestige.study.runner import Execution, StudyResult, run_study
from vestige.study.status import study_status
from vestige.study.store import Store, read_manifest
from vestige.study.tune import tune_study

Make = Callable[..., Any]
DEFAULT_METHODS = [
    {"method": "simnpo", "settings": {"epochs": 4, "learning_rate": 2e-4}},
    {"method": "grad_ascent", "settings": {"epochs": 4}},
    "uniformization",
]
DIVERGING = {"method": "npo", "settings": {"learning_rate": 1e6}}
ALL_LABELS = ["full", "SimNPO", "GradAscent", "Uniformization", "oracle"]


def count_calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count the backend's work from now on."""
    calls = {"train": 0, "unlearn": 0, "predict": 0}
    for name in calls:
        original = getattr(BagOfWords, name)

        def counted(self: Any, *, _name: str = name, _original: Any = original, **kwargs: Any) -> Any:
            calls[_name] += 1
            return _original(self, **kwargs)

        monkeypatch.setattr(BagOfWords, name, counted)
    return calls


def test_a_study_measures_what_retraining_does(small_once: StudyResult) -> None:
    result = small_once
    (name, found), *others = result.assessments.items()
    assert (name, others) == ("assessments/01-s17.json", [])
    assert found.condition == "training seed 17"
    assert found.intervention_gate == "passed"
    assert found.noise_pairs == {"noise_full": 1, "noise_oracle": 1}
    assert [model.label for model in found.models] == [
        "full",
        "SimNPO",
        "GradAscent",
        "Uniformization",
        "oracle",
    ]
    simnpo = found.model_named("SimNPO")
    full = found.model_named("full")
    assert full.metrics["accuracy.R"].value > 0.9
    assert full.metrics["displacement.F"].value > 0.5
    assert simnpo.decision == "accepted"
    assert 0.05 < simnpo.metrics["progress.F"].value < 0.9
    assert found.model_named("Uniformization").control
    assert found.family == ()
    # Unlearned probabilities on disk give the recorded distance.
    tables = {source.label: read_predictions(result.root / source.path) for source in found.sources}
    rows = tables["SimNPO"].view == "F"
    distance = js2(tables["SimNPO"].p[rows], tables["oracle"].p[rows]).mean()
    assert distance == pytest.approx(simnpo.metrics["oracle_distance.F"].value, abs=1e-12)
    assert set(found.forgotten) == set(json.loads((result.root / "requests/01.json").read_text())["units"])
    assert found.provenance["request"]["deleted_rows"] == rows.sum()


def test_full_and_oracle_are_shared_between_cells(
    make_plan: Make, tmp_path: Path, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_calls(monkeypatch)
    plan = make_plan(
        seeds=[17, 42],
        noise_seeds=[],
        oracle_seeds=[],
        deletion={"units_per_bundle": 2, "bundles": ["01", "02"]},
    )
    result = run_study(plan, tmp_path / "run", execution=execution)
    assert set(result.assessments) == {f"assessments/{b}-s{s}.json" for b in ("01", "02") for s in (17, 42)}
    # 2 fulls and 2 oracles a bundle; 3 methods x 2 bundles x 2 seeds; scores: 2 gates, 7 models a bundle...
    assert calls["train"] == 2 + 2 * 2
    assert calls["unlearn"] == 3 * 2 * 2
    assert calls["predict"] == 2 + 2 * (2 + 2) + 12
    second = result.assessments["assessments/02-s42.json"]
    assert second.condition == "training seed 42"
    assert [source.label for source in second.sources if source.role == "full"] == ["full", "full (seed 17)"]
    requests = [json.loads((result.root / f"requests/{b}.json").read_text()) for b in ("01", "02")]
    assert not set(requests[0]["unit_of"]) & set(requests[1]["unit_of"])


def test_a_second_run_does_nothing_and_changes_no_byte(
    make_plan: Make, small: Path, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_manifest(small)
    calls = count_calls(monkeypatch)
    run_study(make_plan(), small, execution=execution)
    assert calls == {"train": 0, "unlearn": 0, "predict": 0}
    after = read_manifest(small)
    assert {name for name in before if before[name] != after[name]} == {"history.json"}


def test_only_what_a_change_touches_is_made_again(
    make_plan: Make, small: Path, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_calls(monkeypatch)
    slower = {"method": "simnpo", "settings": {"epochs": 4, "learning_rate": 1e-4}}
    methods = [slower, *DEFAULT_METHODS[1:]]
    result = run_study(make_plan(methods=methods), small, execution=execution)
    assert calls == {"train": 0, "unlearn": 1, "predict": 1}
    simnpo = result.assessments["assessments/01-s17.json"].model_named("SimNPO")
    assert simnpo.metrics["progress.F"].value < 0.2
    run_study(make_plan(methods=methods, draws=300), small, execution=execution)
    assert calls == {"train": 0, "unlearn": 1, "predict": 1}
    stored = Assessment.model_validate_json((small / "assessments/01-s17.json").read_text())
    assert stored.draws == 300
    looser = run_study(make_plan(methods=methods, margins={"memory": 0.3}), small, execution=execution)
    assert calls == {"train": 0, "unlearn": 1, "predict": 1}
    tested = [model.evidence for model in looser.assessments["assessments/01-s17.json"].models]
    assert {found.margins.memory for found in tested if found} == {0.3}


def test_another_model_in_the_same_folder_is_refused_when_eligibility_moves(
    make_plan: Make, small: Path, execution: Execution
) -> None:
    with pytest.raises(InputError, match="another plan of bundles"):
        run_study(
            make_plan(deletion={"units_per_bundle": 2, "salt": "other"}),
            small,
            execution=execution,
        )


@pytest.mark.parametrize("step", ["train", "unlearn", "predict"])
def test_an_interrupted_run_goes_on_where_it_stopped(
    make_plan: Make,
    tmp_path: Path,
    small_once: StudyResult,
    execution: Execution,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    with monkeypatch.context() as patch:
        original, seen = getattr(BagOfWords, step), [0]

        def once(self: Any, **kwargs: Any) -> Any:
            seen[0] += 1
            if seen[0] == 2:
                (kwargs.get("folder", tmp_path) / "half-written").write_text("x")
                raise KeyboardInterrupt
            return original(self, **kwargs)

        patch.setattr(BagOfWords, step, once)
        with pytest.raises(Interrupted, match="finished part") as error:
            run_study(make_plan(), tmp_path / "run", execution=execution)
        assert error.value.exit_code == 130
    kept = {item.label for item in study_status(tmp_path / "run").work if item.state == "done"}
    assert kept
    shown = [item for item in study_status(tmp_path / "run").work if item.state == "interrupted"]
    assert len(shown) == 1
    calls = count_calls(monkeypatch)
    again = run_study(make_plan(), tmp_path / "run", execution=execution)
    assert sum(calls.values()) < 4 + 3 + 8
    same = ("sources", "models")
    for name, found in again.assessments.items():
        for key in same:
            assert getattr(found, key) == getattr(small_once.assessments[name], key)


def test_workers_give_the_same_numbers(make_plan: Make, tmp_path: Path, small_once: StudyResult) -> None:
    report = Silent()
    methods = [*DEFAULT_METHODS, DIVERGING]
    result = run_study(
        make_plan(methods=methods), tmp_path / "run", execution=Execution(jobs=2, backend=SPEC), report=report
    )
    found = result.assessments["assessments/01-s17.json"]
    alone = small_once.assessments["assessments/01-s17.json"]
    assert found.models == alone.models
    assert found.sources == alone.sources
    assert [failure.label for failure in result.failures] == ["NPO on bundle 01, seed 17"]
    assert report.done > 0.5 * report.total


def test_a_worker_that_dies_is_named(make_plan: Make, tmp_path: Path) -> None:
    from vestige.study.pool import WorkerError

    with pytest.raises(WorkerError, match=r"seed \d+: found its process ended by SIGKILL \(signal 9\)"):
        run_study(
            make_plan(), tmp_path / "run", execution=Execution(jobs=2, backend="bag_of_words:DyingBackend")
        )
    assert study_status(tmp_path / "run").running is False


@pytest.mark.parametrize("moment", ["while it is idle", "before it reads its work"])
def test_a_worker_that_dies_without_work_is_named(
    moment: str, make_plan: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipe then breaks on our side, which must not look like a reader of our output that went away."""
    from vestige.cli.console import guarded

    start = Team._start

    def started(team: Team) -> Any:
        worker = start(team)
        if moment == "while it is idle":
            os.kill(worker.process.pid or 0, signal.SIGTERM)
            worker.process.join()
        else:
            os.kill(worker.process.pid or 0, signal.SIGSTOP)
            Timer(0.5, os.kill, (worker.process.pid, signal.SIGKILL)).start()
        return worker

    monkeypatch.setattr(Team, "_start", started)
    said: list[str] = []
    monkeypatch.setattr("vestige.cli.console.error_line", said.append)
    execution = Execution(jobs=2, backend=SPEC)
    assert guarded(lambda: run_study(make_plan(), tmp_path / "run", execution=execution)) == 2
    name = "SIGTERM (signal 15)" if moment == "while it is idle" else "SIGKILL (signal 9)"
    (line,) = said
    assert (
        f"full model, seed 17: found its process ended by {name}; needed it to finish; run the same" in line
    )


class RemovingBackend(BagOfWords):
    """Somebody removes the working folder while a model is trained in it, before or after it is saved."""

    when = ""

    def train(self, *, folder: Path, **kwargs: Any) -> dict[str, Any]:
        if self.when == "before":
            shutil.rmtree(folder)
        made = super().train(folder=folder, **kwargs)
        shutil.rmtree(folder)
        return made


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_working_folder_that_is_removed_is_named(
    when: str, make_plan: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RemovingBackend, "when", when)
    monkeypatch.setattr("vestige.study.runner.load_backend", lambda spec: RemovingBackend())
    with pytest.raises(InputError, match=r"\.part-full-\w+: found removed while work in it was going on"):
        run_study(make_plan(), tmp_path / "run", execution=Execution())
    assert not [path for path in (tmp_path / "run/nodes").iterdir() if not path.name.startswith(".")]
    monkeypatch.undo()
    assert run_study(make_plan(), tmp_path / "run", execution=Execution(backend=SPEC)).assessments


@pytest.mark.parametrize(
    ("seed", "message", "code"),
    [
        (17, "needed a better day", 2),
        (42, "weights: found a full disk; needed room to write", 2),
    ],
)
def test_errors_of_workers_keep_message_and_code(
    make_plan: Make, tmp_path: Path, seed: int, message: str, code: int
) -> None:
    from vestige.study.pool import WorkerError

    plan = make_plan(seeds=[seed], noise_seeds=[], oracle_seeds=[])
    with pytest.raises(WorkerError, match=message) as error:
        run_study(plan, tmp_path / "run", execution=Execution(jobs=2, backend="bag_of_words:RefusingBackend"))
    assert error.value.exit_code == code


def test_a_diverged_method_is_left_out_and_named(make_plan: Make, small: Path, execution: Execution) -> None:
    plan = make_plan(methods=[*DEFAULT_METHODS, DIVERGING])
    result = run_study(plan, small, execution=execution)
    assert [failure.label for failure in result.failures] == ["NPO on bundle 01, seed 17"]
    assert "the loss is nan at step 1" in result.failures[0].reason
    found = result.assessments["assessments/01-s17.json"]
    assert [model.label for model in found.models] == ALL_LABELS
    status = study_status(small)
    assert [item.label for item in status.work if item.state == "failed"] == ["NPO on bundle 01, seed 17"]
    run_study(make_plan(), small, execution=execution)
    assert study_status(small).count("failed") == 0


def test_one_configuration_under_two_names_is_refused(
    make_plan: Make, tmp_path: Path, execution: Execution
) -> None:
    same = [{"method": "simnpo", "label": "a"}, {"method": "simnpo", "label": "b"}]
    with pytest.raises(InputError, match="'a' and 'b' with the same settings"):
        run_study(make_plan(methods=same), tmp_path / "run", execution=execution)
    named = ["simnpo", {"method": "simnpo", "settings": {"epochs": 3}}]
    with pytest.raises(InputError, match="label 'SimNPO' twice"):
        run_study(make_plan(methods=named), tmp_path / "other", execution=execution)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ["simnop"]}, "did you mean 'simnpo'"),
        ({"methods": [{"method": "simnpo", "settings": {"bta": 1}}]}, "did you mean 'beta'"),
        ({"methods": [{"method": "simnpo", "settings": {"epochs": 0}}]}, "settings: epochs"),
        ({"model": {"scael": 1.0}}, "did you mean 'scale'"),
        ({"training": {"epocs": 1}}, "did you mean 'epochs'"),
        ({"family": ["Uniformization"]}, "the control 'Uniformization'"),
        ({"family": ["SimNPOO"]}, "did you mean 'SimNPO'"),
        ({"methods": [{"method": "simnpo", "frozen": True}]}, "no frozen settings"),
        ({"deletion": {"units_per_bundle": 4, "bundles": ["05"]}}, "found 10 classes in data set"),
        ({"training": {"epochs": 1}}, "eligible units"),
        ({"deletion": {"granularity": "custom", "where": "customer=1"}}, "did you mean 'customer_id'"),
    ],
)
def test_plans_that_cannot_run(
    make_plan: Make, tmp_path: Path, execution: Execution, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        run_study(make_plan(**changes), tmp_path / "run", execution=execution)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "deletion",
    [
        {"granularity": "custom", "where": "customer=1"},
        {"granularity": "custom", "where": "customer_id=none"},
        {"units_per_bundle": 4, "bundles": ["05"]},
    ],
)
def test_a_deletion_that_cannot_be_is_refused_before_any_training(
    make_plan: Make, tmp_path: Path, execution: Execution, deletion: dict[str, Any]
) -> None:
    plan = make_plan(deletion=deletion)
    for verb in (run_study, tune_study, outline):
        with pytest.raises(InputError):
            verb(plan, tmp_path / "run", execution=execution)
    assert not list(tmp_path.glob("run/nodes/*"))


def test_failures_of_later_seeds_are_exceptions_not_reselections(
    make_plan: Make,
    tmp_path: Path,
    small_once: StudyResult,
    execution: Execution,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    units = small_once.assessments["assessments/01-s17.json"].forgotten
    original = BagOfWords.predict

    def worse(self: Any, *, model: Path, texts: Any, schema: Any, progress: Any) -> Any:
        p = original(self, model=model, texts=texts, schema=schema, progress=progress)
        record = json.loads((model.parent / "record.json").read_text())
        if record["kind"] == "full" and record["identity"]["seed"] == 42:
            column = schema.ids.index(units[0])
            p[:, column] *= 0.001
            p /= p.sum(axis=1, keepdims=True)
        return p

    monkeypatch.setattr(BagOfWords, "predict", worse)
    plan = make_plan(seeds=[17, 42], noise_seeds=[])
    result = run_study(plan, tmp_path / "run", execution=execution)
    assert {found.forgotten for found in result.assessments.values()} == {units}
    exceptions = json.loads((tmp_path / "run/gates.json").read_text())["exceptions"]["01"]
    assert [(item["seed"], item["unit"]) for item in exceptions] == [(42, units[0])]
    caveats = result.assessments["assessments/01-s42.json"].caveats
    assert any(
        "failed the acquisition gate at training seed 42" in item and units[0] in item for item in caveats
    )
    assert not any("acquisition" in item for item in result.assessments["assessments/01-s17.json"].caveats)


def test_reserved_bundles_leave_only_a_hash_and_stop_a_study(
    make_plan: Make, small: Path, execution: Execution
) -> None:
    run = small
    bundles = json.loads((run / "bundles.json").read_text())
    assert set(bundles["reserved"]) == {"03"}
    assert set(bundles["bundles"]) == {"00", "01", "02"}
    assert sorted(path.stem for path in (run / "requests").iterdir()) == ["01"]
    shutil.copy(run / "requests/01.json", run / "requests/03.json")
    with pytest.raises(InputError, match="a result of the reserved bundle 03"):
        run_study(make_plan(), run, execution=execution)


def test_reserving_a_bundle_that_has_results_stops_too(
    make_plan: Make, small: Path, execution: Execution
) -> None:
    with pytest.raises(InputError, match="another plan of bundles"):
        run_study(
            make_plan(deletion={"units_per_bundle": 2, "bundles": ["02"], "reserved": ["01", "03"]}),
            small,
            execution=execution,
        )


def test_custom_deletion_of_a_customer(make_plan: Make, tmp_path: Path, execution: Execution) -> None:
    plan = make_plan(deletion={"granularity": "custom", "where": ["customer_id=3", "customer_id=4"]})
    result = run_study(plan, tmp_path / "run", execution=execution)
    found = result.assessments["assessments/custom-s17.json"]
    assert (found.forgotten, found.unit_kind) == ((), "customer_id")
    assert not (tmp_path / "run/bundles.json").exists()
    assert "suppression.F" not in found.model_named("SimNPO").metrics
    # No customer id and no row id in what a report is made from.
    assert "customer_id=" not in found.to_json()
    assert found.provenance["request"]["deleted_units"] == 2


def test_an_outline_names_everything_and_writes_nothing(
    make_plan: Make, tmp_path: Path, small: Path, execution: Execution
) -> None:
    found = outline(make_plan(), tmp_path / "new", execution=execution)
    assert [item.kind for item in found] == [*["full"] * 2, *["oracle"] * 2, *["unlearned"] * 3, "assessment"]
    assert {item.state for item in found} == {"to do", "after the gate"}
    assert not (tmp_path / "new").exists()
    done = outline(make_plan(), small, execution=execution)
    assert [item.state for item in done if item.kind in ("full", "assessment")] == ["done"] * 3


def test_an_outline_of_an_ungated_deletion_waits_for_no_gate(
    make_plan: Make, tmp_path: Path, execution: Execution
) -> None:
    plan = make_plan(deletion={"granularity": "custom", "where": ["customer_id=3", "customer_id=4"]})
    found = outline(plan, tmp_path / "new", execution=execution)
    assert {item.kind for item in found} == {"full", "oracle", "unlearned", "assessment"}
    assert {item.state for item in found} == {"to do"}


def test_status_names_what_is_missing(small: Path) -> None:
    assert study_status(small).count("missing") == 0
    plan = json.loads((small / "plan.json").read_text())
    plan["methods"].append({"method": "npo"})
    plan["seeds"] = [17, 5]
    (small / "plan.json").write_text(json.dumps(plan))
    missing = [item.label for item in study_status(small).work if item.state == "missing"]
    assert "NPO on bundle 01, seed 17" in missing
    assert "full model, seed 5" in missing
    assert "bundle 01, seed 5" in missing


def test_without_methods_full_models_are_compared_with_oracles(
    make_plan: Make, small: Path, execution: Execution
) -> None:
    result = run_study(make_plan(methods=[], stage="reference"), small, execution=execution)
    found = result.assessments["assessments/01-s17.json"]
    assert [model.label for model in found.models] == ["full", "oracle"]
    assert found.stage == "reference"
    assert audit_study(small).passed


def test_results_that_the_manifest_does_not_hold_are_made_again(
    make_plan: Make, small: Path, execution: Execution
) -> None:
    """A kill between a file and its entry leaves it out of the manifest; a hand may have changed another."""
    assessment, summary = "assessments/01-s17.json", "summaries/replication.json"
    before = {name: (small / name).read_bytes() for name in (assessment, summary)}
    with Store.writing(small) as store:
        kept = store.path(assessment)
        data = kept.read_bytes()
        store.drop(assessment)
        kept.write_bytes(data)
    (small / summary).write_bytes(before[summary].replace(b'"draws": 200', b'"draws": 201'))
    assert not audit_study(small).passed
    run_study(make_plan(), small, execution=execution)
    assert {name: (small / name).read_bytes() for name in before} == before
    assert audit_study(small).check("files").status == "passed"
