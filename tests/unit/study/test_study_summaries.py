"""Summaries over seeds and bundles of whole small studies."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vestige.contracts import Undefined
from vestige.decision.predictions import Predictions, read_predictions
from vestige.metrics.oracle import js2
from vestige.study.assess import AssessSettings, assess
from vestige.study.plan import Plan
from vestige.study.runner import Execution, run_study
from vestige.study.summaries import CONTROL, POOLED, REPLICATION, SEEDS, VERDICTS
from vestige.study.summary_records import (
    MethodReplication,
    PooledSummary,
    ReplicationSummary,
    SeedSummary,
    VerdictSummary,
)

VIEWS = ("F", "G")


def replication_of(root: Path) -> ReplicationSummary:
    return ReplicationSummary.model_validate_json((root / REPLICATION).read_text())


def sources(root: Path, cell: str) -> dict[str, Predictions]:
    """Label -> probabilities that an assessment was made from."""
    stored = json.loads((root / f"assessments/{cell}.json").read_text())
    return {item["label"]: read_predictions(root / item["path"], item["label"]) for item in stored["sources"]}


def unit_gains(root: Path, cell: str, label: str, view: str) -> list[float]:
    """Mean gain of each unit, by loops."""
    tables = sources(root, cell)
    full, oracle, unlearned = tables["full"], tables["oracle"], tables[label]
    gain = js2(full.p, oracle.p) - js2(unlearned.p, oracle.p)
    rows = full.view == view
    return [float(gain[rows & (full.unit == unit)].mean()) for unit in sorted(set(full.unit[rows]))]


def test_replication_is_the_nested_mean_of_the_cells(confirmed_once: Path) -> None:
    summary = replication_of(confirmed_once)
    assert [method.label for method in summary.methods] == ["SimNPO", "GradAscent", "Uniformization"]
    assert [method.control for method in summary.methods] == [False, False, True]
    for method in summary.methods:
        assert (method.seeds, method.bundles) == ((17, 42), ("01", "02"))
        for view in method.views:
            by_seed = [
                np.mean(
                    [
                        np.mean(unit_gains(confirmed_once, f"{bundle}-s{seed}", method.label, view.view))
                        for bundle in ("01", "02")
                    ]
                )
                for seed in (17, 42)
            ]
            assert view.estimate == pytest.approx(np.mean(by_seed), abs=1e-12)
            # Without seed 17 only seed 42 is left, and the other way round.
            assert view.left_out["seed 17"] == pytest.approx(by_seed[1], abs=1e-12)
            assert set(view.left_out) == {"seed 17", "seed 42", "bundle 01", "bundle 02"}
            assert view.interval.low <= view.estimate <= view.interval.high
            assert view.interval.condition == "training seeds 17, 42; bundles 01, 02"


def test_the_verdict_on_a_method_is_that_on_its_seeds_together(confirmed_once: Path) -> None:
    summary = VerdictSummary.model_validate_json((confirmed_once / VERDICTS).read_text())
    assert [(item.label, item.bundle, item.seeds) for item in summary.methods] == [
        (label, bundle, (17, 42))
        for bundle in ("01", "02")
        for label in ("SimNPO", "GradAscent", "Uniformization")
    ]
    cells = [sources(confirmed_once, f"01-s{seed}") for seed in (17, 42)]
    record = json.loads((confirmed_once / "assessments/01-s17.json").read_text())
    again = assess(
        name="again",
        fulls=[table for label, table in cells[0].items() if label.startswith("full")],
        oracles=[table for label, table in cells[0].items() if label.startswith("oracle")],
        unlearned={
            label: [cell[label] for cell in cells] for label in ("SimNPO", "GradAscent", "Uniformization")
        },
        forgotten=record["forgotten"],
        settings=AssessSettings(draws=record["draws"]),
        condition="both seeds",
        family=record["family"],
    )
    for item in summary.methods[:3]:
        model = again.model_named(item.label)
        assert (item.verdict, item.evidence, item.verdict_p) == (
            model.verdict,
            model.evidence,
            model.verdict_p,
        )
        assert item.sentence == model.sentence
        assert item.evidence.seeds["unlearned"] == 2
        assert "One training run" not in item.sentence


def decided(method: MethodReplication, interval: str) -> str:
    """The rule in words, from what the record holds."""
    bounds = [getattr(view, interval).low for view in method.views]
    left_out = [value for view in method.views for value in view.left_out.values()]
    if min(bounds + left_out) <= 0:
        return "does not replicate"
    return "infeasible cell(s)" if method.infeasible else "replicates"


def test_replication_decisions_follow_the_rule_and_name_infeasible_cells(confirmed_once: Path) -> None:
    for method in replication_of(confirmed_once).methods:
        if method.control:
            assert str(method.decision) == str(method.crossed) == f"undefined: {CONTROL.undefined}"
        else:
            assert method.decision == decided(method, "interval")
            assert method.crossed == decided(method, "crossed")
        wrong = set()
        for seed in (17, 42):
            for bundle in ("01", "02"):
                stored = json.loads((confirmed_once / f"assessments/{bundle}-s{seed}.json").read_text())
                model = next(item for item in stored["models"] if item["label"] == method.label)
                change = [model["metrics"][f"{name}.R"]["value"] for name in ("delta_accuracy", "delta_ece")]
                if change[0] < -0.02 - 1e-12 or change[1] > 0.02 + 1e-12:
                    wrong.add(f"seed {seed}, bundle {bundle}")
        assert set(method.infeasible) == wrong
        assert method.missing == ()


def test_differences_between_seeds_are_paired_and_between_bundles_not(confirmed_once: Path) -> None:
    summary = replication_of(confirmed_once)
    assert len(summary.differences) == 3 * 2 * (2 + 2)
    progress = {
        (method.label, view.view, cell.seed, cell.bundle): cell.progress
        for method in summary.methods
        for view in method.views
        for cell in view.cells
    }
    for item in summary.differences:
        number = item.within.split()[1]
        if item.across == "seed":
            assert (item.first, item.second) == ("seed 17", "seed 42")
            keys = [(item.label, item.view, seed, number) for seed in (17, 42)]
            assert item.progress.row.low <= item.progress.row.high
            assert item.progress.row.condition == f"training seeds 17 and 42, bundle {number}"
            assert item.progress.unit.kind.startswith("unit bootstrap")
        else:
            keys = [(item.label, item.view, int(number), bundle) for bundle in ("01", "02")]
            assert item.progress.row is None
            assert "other rows" in item.progress.note
        assert item.progress.value == pytest.approx(progress[keys[1]] - progress[keys[0]], abs=1e-12)


def test_paired_difference_between_seeds_has_the_intervals_of_paired_draws(confirmed_once: Path) -> None:
    item = next(
        item
        for item in replication_of(confirmed_once).differences
        if (item.label, item.view, item.across, item.within) == ("SimNPO", "F", "seed", "bundle 01")
    )
    gains = []
    for seed in (17, 42):
        tables = sources(confirmed_once, f"01-s{seed}")
        gain = js2(tables["full"].p, tables["oracle"].p) - js2(tables["SimNPO"].p, tables["oracle"].p)
        gains.append(gain[tables["full"].view == "F"])
    drawn = np.random.default_rng(1).integers(0, len(gains[0]), (100, len(gains[0])))
    low, high = np.quantile((gains[1] - gains[0])[drawn].mean(axis=1), [0.025, 0.975])
    assert (item.gain.row.low, item.gain.row.high) == (pytest.approx(low), pytest.approx(high))


def test_pooled_units_average_seeds_first(confirmed_once: Path) -> None:
    summary = PooledSummary.model_validate_json((confirmed_once / POOLED).read_text())
    for method in summary.methods:
        assert method.seeds == {"01": (17, 42), "02": (17, 42)}
        for view in method.views:
            means = []
            for bundle in ("01", "02"):
                cells = [
                    unit_gains(confirmed_once, f"{bundle}-s{seed}", method.label, view.view)
                    for seed in (17, 42)
                ]
                means.append(np.mean(np.mean(cells, axis=0)))
            assert view.estimate == pytest.approx(np.mean(means), abs=1e-12)
            assert (view.units, view.bundles) == (4, 2)
            assert view.unit.draws == view.bundle.draws == 100


def test_seed_metrics_of_two_seeds(confirmed_once: Path) -> None:
    summary = SeedSummary.model_validate_json((confirmed_once / SEEDS).read_text())
    assert {(method.label, method.bundle) for method in summary.methods} == {
        (label, bundle) for label in ("SimNPO", "GradAscent", "Uniformization") for bundle in ("01", "02")
    }
    for method in summary.methods:
        assert set(method.metrics) == {"klom", "u_lira", "membership_auc", "tow", "zrf"}
        assert "at least 8" in method.metrics["klom"].value.undefined
        assert method.metrics["zrf"].value == Undefined(undefined="no random model of the same seed")
        found = []
        for seed in (17, 42):
            tables = sources(confirmed_once, f"{method.bundle}-s{seed}")
            value = 1.0
            for view in ("F", "G", "R"):
                right = [
                    (table.p.argmax(axis=1) == table.gold_index)[table.view == view].mean()
                    for table in (tables[method.label], tables["oracle"])
                ]
                value *= 1 - abs(right[0] - right[1])
            found.append(value)
        assert method.metrics["tow"].by_seed == pytest.approx({"17": found[0], "42": found[1]}, abs=1e-12)
        # Three oracles (one of them of another seed) and both full models stand beside.
        assert method.metrics["membership_auc"].seeds == {"unlearned": 2, "oracle": 3, "full": 2}


def test_nothing_in_the_summaries_names_units_or_rows(confirmed_once: Path) -> None:
    request = json.loads((confirmed_once / "requests/01.json").read_text())
    for name in (REPLICATION, POOLED, SEEDS):
        text = (confirmed_once / name).read_text()
        assert not any(word in text for word in (*request["units"], *request["unit_of"]))


def test_one_seed_and_bundle_has_no_replication(small_once: Any) -> None:
    method = replication_of(small_once.root).methods[0]
    assert method.decision == Undefined(undefined="replication needs at least two training seeds, there is 1")
    assert method.crossed == Undefined(undefined="one training run: how another would come out is not known")
    pooled = PooledSummary.model_validate_json((small_once.root / POOLED).read_text())
    assert "at least two bundles" in pooled.methods[0].views[0].bundle.undefined


@pytest.fixture(scope="module")
def eight(
    tmp_path_factory: pytest.TempPathFactory, make_plan: Callable[..., Plan], execution: Execution
) -> Path:
    """Eight seeds, untrained models asked for."""
    plan = make_plan(
        seeds=list(range(17, 25)),
        noise_seeds=[],
        oracle_seeds=[],
        seed_metrics=True,
        methods=[{"method": "simnpo", "settings": {"epochs": 4, "learning_rate": 2e-4}}],
    )
    root = tmp_path_factory.mktemp("studies") / "eight"
    run_study(plan, root, execution=execution)
    return root


def test_eight_seeds_and_untrained_models_define_every_metric(eight: Path) -> None:
    summary = SeedSummary.model_validate_json((eight / SEEDS).read_text())
    (method,) = summary.methods
    for name, found in method.metrics.items():
        assert isinstance(found.value, float), name
    assert method.metrics["klom"].seeds == {"unlearned": 8, "oracle": 8}
    untrained = sorted((eight / "nodes").glob("random-*/record.json"))
    assert len(untrained) == 8
    record = json.loads(untrained[0].read_text())
    assert record["result"] == {"train_rows": 0}
    zrf = method.metrics["zrf"]
    assert set(zrf.beside) == {"oracle", "full"}
    assert zrf.beside["full"] < zrf.beside["oracle"]  # the full model is surer of the deleted rows


def test_untrained_models_are_made_only_when_asked_for(confirmed_once: Path) -> None:
    assert not list((confirmed_once / "nodes").glob("random-*"))


def test_summaries_are_kept_until_something_changes(
    eight: Path, make_plan: Callable[..., Plan], execution: Execution
) -> None:
    before = {name: (eight / name).stat().st_mtime_ns for name in (REPLICATION, POOLED, SEEDS)}
    plan = make_plan(
        seeds=list(range(17, 25)),
        noise_seeds=[],
        oracle_seeds=[],
        seed_metrics=True,
        methods=[{"method": "simnpo", "settings": {"epochs": 4, "learning_rate": 2e-4}}],
    )
    run_study(plan, eight, execution=execution)
    assert {name: (eight / name).stat().st_mtime_ns for name in before} == before
    run_study(plan.model_copy(update={"seeds": plan.seeds[:2]}), eight, execution=execution)
    found = replication_of(eight)
    assert found.methods[0].seeds == (17, 18)
    assert len(list(combinations(range(2), 2))) == len(
        [item for item in found.differences if item.view == "F" and item.across == "seed"]
    )


def test_without_methods_there_are_no_summaries(
    tmp_path: Path, make_plan: Callable[..., Plan], execution: Execution
) -> None:
    run_study(make_plan(methods=[]), tmp_path / "run", execution=execution)
    assert not (tmp_path / "run/summaries").exists() or not list((tmp_path / "run/summaries").iterdir())
