"""The audit of summaries: a sound folder passes, each wrong number fails its check."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_study_audit import edit, fails, reseal

from vestige.statistics import Cell, CrossedMean
from vestige.statistics.hierarchical import crossed_cells
from vestige.study import audit_methods, audit_seeds, audit_summaries
from vestige.study.audit import CHECKS, run_check
from vestige.study.audit_compare import agree, compared
from vestige.study.audit_folder import Finding, Folder
from vestige.study.plan import Plan
from vestige.study.runner import Execution, run_study

REPLICATION, POOLED, SEEDS = (f"summaries/{name}.json" for name in ("replication", "pooled", "seeds"))


def view(value: Any, place: int = 0) -> Any:
    return value["methods"][0]["views"][place]


def difference(value: Any, across: str) -> Any:
    return next(item for item in value["differences"] if item["across"] == across)


def check(root: Path, name: str) -> Any:
    return run_check(Folder(root), *next(item for item in CHECKS if item[0] == name))


def made_earlier(root: Path) -> None:
    """Let the history say that a version made the folder whose records said less."""
    edit(root, "history.json", lambda value: [item.pop("records") for item in value])


def test_sound_summaries_pass(confirmed_once: Path) -> None:
    found = check(confirmed_once, "replication")
    assert (found.status, found.findings) == ("passed", ())
    assert int(found.detail.rsplit("(", 1)[1].split()[0]) > 200
    found = check(confirmed_once, "seed-metrics")
    assert (found.status, found.findings) == ("passed", ())


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (REPLICATION, lambda v: view(v).update(estimate=view(v)["estimate"] + 1e-9)),
        (REPLICATION, lambda v: view(v)["interval"].update(low=view(v)["interval"]["low"] + 1e-9)),
        (REPLICATION, lambda v: view(v, 1)["interval"].update(high=1.0)),
        (REPLICATION, lambda v: view(v)["interval"].update(seed=9)),
        (REPLICATION, lambda v: view(v)["interval"].update(condition="nothing")),
        (REPLICATION, lambda v: view(v)["crossed"].update(low=view(v)["crossed"]["low"] + 1e-8)),
        (REPLICATION, lambda v: view(v)["crossed"].update(kind="row bootstrap")),
        (REPLICATION, lambda v: view(v).update(crossed={"undefined": "x"})),
        (REPLICATION, lambda v: v["methods"][0].update(crossed={"undefined": "x"})),
        (REPLICATION, lambda v: view(v)["left_out"].update({"seed 17": 0.0})),
        (REPLICATION, lambda v: view(v)["left_out"].pop("bundle 01")),
        (REPLICATION, lambda v: view(v)["cells"].pop()),
        (REPLICATION, lambda v: view(v)["cells"][0].update(progress=0.123)),
        (REPLICATION, lambda v: view(v)["cells"][0].update(units=3)),
        (REPLICATION, lambda v: v["methods"][0].update(infeasible=["seed 1, bundle 01"])),
        (REPLICATION, lambda v: v["methods"][0].update(decision={"undefined": "x"})),
        (REPLICATION, lambda v: v["methods"].pop()),
        (REPLICATION, lambda v: v.update(draws=99)),
        (REPLICATION, lambda v: v["differences"].pop()),
        (REPLICATION, lambda v: difference(v, "seed")["progress"].update(value=0.5)),
        (REPLICATION, lambda v: difference(v, "seed")["gain"]["row"].update(low=-1.0)),
        (REPLICATION, lambda v: difference(v, "seed")["progress"]["unit"].update(high=1.0)),
        (REPLICATION, lambda v: difference(v, "bundle")["gain"].update(value=0.5)),
        (
            REPLICATION,
            lambda v: difference(v, "bundle")["gain"].update(row=difference(v, "seed")["gain"]["row"]),
        ),
        (POOLED, lambda v: view(v).update(estimate=0.5)),
        (POOLED, lambda v: view(v)["by_bundle"].update({"01": 0.5})),
        (POOLED, lambda v: view(v).update(units=9)),
        (POOLED, lambda v: view(v)["unit"].update(low=view(v)["unit"]["low"] - 1e-9)),
        (POOLED, lambda v: view(v)["bundle"].update(high=view(v)["bundle"]["high"] + 1e-9)),
        (POOLED, lambda v: view(v)["bundle"].update(kind="row bootstrap")),
    ],
)
def test_a_wrong_number_of_the_replication_fails(
    confirmed: Path, name: str, change: Callable[[Any], None]
) -> None:
    edit(confirmed, name, change)
    assert fails(confirmed, "replication")
    assert not fails(confirmed, "seed-metrics")


@pytest.mark.parametrize("rule", ["decision", "crossed"])
@pytest.mark.parametrize("decision", ["replicates", "does not replicate", "infeasible cell(s)"])
def test_only_the_right_decision_passes(confirmed: Path, decision: str, rule: str) -> None:
    changed: list[bool] = []

    def change(value: Any) -> None:
        changed.append(value["methods"][0][rule] != decision)
        value["methods"][0][rule] = decision

    edit(confirmed, REPLICATION, change)
    assert fails(confirmed, "replication") == changed[0]


def test_the_audit_bounds_crossed_cells_alike_where_some_are_missing() -> None:
    """Its dense matrices against the product's sums: bundles missing at a seed, units of one seed alone."""
    random = np.random.default_rng(3)
    for kept in (lambda seed, bundle: seed + bundle != 4, lambda seed, bundle: seed == bundle):
        cells = {
            (seed, f"{bundle:02d}"): list(random.normal(size=2 + bundle))
            for seed in range(3)
            for bundle in range(3)
            if kept(seed, bundle)
        }
        again = audit_summaries._crossed(cells)
        made = crossed_cells([Cell(str(s), b, np.array(units)) for (s, b), units in cells.items()])
        assert isinstance(made, CrossedMean)
        interval = made.interval("")
        assert again == pytest.approx((interval.low, interval.high), abs=1e-10)


def test_a_summary_of_an_earlier_version_is_not_called_wrong(confirmed: Path) -> None:
    def change(value: Any) -> None:
        for method in value["methods"]:
            del method["crossed"]
            for one in method["views"]:
                del one["crossed"]

    edit(confirmed, REPLICATION, change)
    assert fails(confirmed, "replication")
    made_earlier(confirmed)
    found = check(confirmed, "replication")
    assert found.status == "noted"
    assert any("earlier version" in line for line in found.findings)


@pytest.fixture(scope="module")
def nine(
    tmp_path_factory: pytest.TempPathFactory, make_plan: Callable[..., Plan], execution: Execution
) -> Path:
    """Nine seeds of one method, with untrained models."""
    plan = make_plan(
        seeds=list(range(17, 26)),
        noise_seeds=[],
        oracle_seeds=[],
        seed_metrics=True,
        methods=[{"method": "simnpo", "settings": {"epochs": 4, "learning_rate": 2e-4}}],
    )
    root = tmp_path_factory.mktemp("studies") / "nine"
    run_study(plan, root, execution=execution)
    return root


def metric(value: Any, name: str) -> Any:
    return value["methods"][0]["metrics"][name]


def test_metrics_over_nine_seeds_pass(nine: Path) -> None:
    found = check(nine, "seed-metrics")
    assert (found.status, found.findings) == ("passed", ())
    assert int(found.detail.rsplit("(", 1)[1].split()[0]) >= 15  # five values, two bands, the parts by seed


@pytest.mark.parametrize("name", ["klom", "u_lira", "membership_auc", "tow", "zrf"])
def test_a_wrong_metric_over_nine_seeds_fails(nine: Path, name: str) -> None:
    folder = Folder(nine)
    stored = metric(folder.json(SEEDS), name)
    models = audit_seeds._models(folder, "SimNPO", "01")
    expected = audit_seeds._METRICS[name](models, stored)
    changes: list[dict[str, Any]] = [{"value": stored["value"] + 1e-4}, {"value": {"undefined": "no rows"}}]
    changes += {
        "klom": [
            {"beside": {**stored["beside"], "on R": 0.0}},
            {"chance": {**(stored["chance"] or {}), "low": 0.0}},
        ],
        "u_lira": [
            {"power": (stored["power"] or 0.0) + 0.02},
            {"chance": {**(stored["chance"] or {}), "high": 0.2}},
        ],
        "membership_auc": [
            {"chance": {**(stored["chance"] or {}), "high": 0.99}},
            {"rows": {"F": 1, "G": 2}},
            {"by_seed": {**stored["by_seed"], "17": 0.123}},
        ],
        "tow": [{"by_seed": {**stored["by_seed"], "17": 0.123}}],
        "zrf": [{"by_seed": {}}],
    }[name]
    for change in changes:
        assert not compared(expected, {**stored, **change}, Finding(), name), change


@pytest.mark.parametrize(
    ("name", "earlier"),
    [("klom", {"power": None}), ("u_lira", {"power": None}), ("membership_auc", {"chance": {"draws": 0}})],
)
def test_a_metric_of_an_earlier_version_is_not_called_wrong(
    nine: Path, tmp_path: Path, name: str, earlier: dict[str, Any]
) -> None:
    root = Path(shutil.copytree(nine, tmp_path / "nine"))
    edit(root, SEEDS, lambda value: metric(value, name).update(earlier))
    assert fails(root, "seed-metrics")
    made_earlier(root)
    found = check(root, "seed-metrics")
    assert found.status in ("noted", "not checked")
    assert "earlier version" in found.findings[0]


def test_a_missing_or_unknown_metric_is_found(confirmed: Path) -> None:
    edit(confirmed, SEEDS, lambda v: v["methods"][0]["metrics"].update(glow=metric(v, "tow")))
    assert check(confirmed, "seed-metrics").status == "not checked"
    edit(confirmed, SEEDS, lambda v: v["methods"][0]["metrics"].pop("tow"))
    assert fails(confirmed, "seed-metrics")
    edit(confirmed, SEEDS, lambda v: v["methods"].pop())
    assert fails(confirmed, "seed-metrics")


def test_a_value_from_too_few_seeds_fails(confirmed: Path) -> None:
    edit(confirmed, SEEDS, lambda v: metric(v, "klom").update(value=0.5))
    assert fails(confirmed, "seed-metrics")


@pytest.mark.parametrize(
    "change",
    [
        lambda item: item.update(verdict="equivalent"),
        lambda item: item.update(verdict_p=0.5),
        lambda item: item.update(seeds=[17, 43]),
        lambda item: item["evidence"]["views"][0]["memory"].update(value=0.0),
        lambda item: item["evidence"]["views"][1]["gain"]["other_trainings"].update(low=0.0),
        lambda item: item["evidence"]["retained"].update(harm="unharmed", harmed_by=["accuracy"]),
        lambda item: item.update(bundle="03"),
    ],
)
def test_a_wrong_verdict_on_a_method_is_found(confirmed: Path, change: Any) -> None:
    path = confirmed / "summaries/verdicts.json"
    stored: Any = json.loads(path.read_text())
    assert audit_methods.method_verdicts(Folder(confirmed)).failed == []
    change(stored["methods"][0])
    path.write_text(json.dumps(stored))
    assert audit_methods.method_verdicts(Folder(confirmed)).failed


def test_missing_summaries_are_said(confirmed: Path) -> None:
    shutil.rmtree(confirmed / "summaries")
    reseal(confirmed)
    summarised = ("replication", "seed-metrics", "method-verdicts")
    assert all(fails(confirmed, name) for name in summarised)
    edit(confirmed, "history.json", lambda value: value[-1].pop("ended"))
    for name in summarised:
        found = check(confirmed, name)
        assert found.status == "not checked"
        assert "the last run was interrupted" in found.findings[0]


def test_a_check_that_found_nothing_says_so(confirmed: Path) -> None:
    """A study that is not tuned has no tuning to check."""
    from vestige.study.audit_folder import Finding as Found

    found = run_check(Folder(confirmed), "none", "nothing here", lambda folder: Found(what="conditions"))
    assert (found.status, found.detail) == ("nothing to check", "nothing here (0 conditions)")
    one = Found(what="conditions")
    one.need(True, "")
    assert run_check(Folder(confirmed), "one", "", lambda folder: one).status == "passed"


def test_two_long_texts_are_shown_from_where_they_part() -> None:
    same = "It is not settled whether this model is closer to retraining than the full model is. "
    ((_, line),) = agree(f"{same}Distance 0.7.", f"{same}Distance 0.4.", Finding())
    assert line == "is '...odel is. Distance 0.7.', recorded '...odel is. Distance 0.4.'"
