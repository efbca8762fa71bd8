"""Whole studies of association and example deletion on the small backend."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from bag_of_words import SPEC
from test_study_audit import fails, reseal
from themes import COUNTS, failed, request_of, view_rows

from vestige.contracts import Assessment
from vestige.deletion.bundles import hash_order, hash_units
from vestige.deletion.clusters import Clustering, parent_of
from vestige.errors import InputError
from vestige.study.audit import audit_study
from vestige.study.bundle_names import differing_bundles
from vestige.study.plan import Plan
from vestige.study.runner import Execution, run_study
from vestige.study.sweep import load_study, run_all
from vestige.study.tune import tune_study


def test_an_association_study_deletes_themes_and_keeps_the_rest_of_their_intents(
    association_once: Path,
) -> None:
    root = association_once
    clusters = Clustering.model_validate_json((root / "clusters.json").read_text())
    assert len(clusters.clusters) == 18
    bundles = json.loads((root / "bundles.json").read_text())
    request = request_of(root, "01")
    assert list(request.units) == bundles["bundles"]["01"]
    assert bundles["eligible"] == 6  # one cluster of each intent
    assert len(bundles["reserved"]["02"]) == 64
    assert not list(root.glob("*/02*"))
    assert len({parent_of(unit) for units in bundles["bundles"].values() for unit in units}) == 4
    assert request.granularity == "association"
    assert request.forgotten == ()
    assert set(request.parents) == {parent_of(unit) for unit in request.units}
    assert len(request.row_ids) == 40
    rows = view_rows(root, "01-evaluation")
    unseen = {row: unit for row, view, unit in rows if view == "G"}
    assert set(unseen.values()) == set(request.units)
    assert len(unseen) == 2 * COUNTS["evaluation"]
    stay = [unit for _, view, unit in rows if view == "R" and unit in request.parents]
    assert len(stay) == 2 * 2 * COUNTS["evaluation"]
    assert {unit for _, view, unit in view_rows(root, "00-development") if view == "G"} == set(
        request_of(root, "00").units
    )


def test_an_association_study_s_numbers_have_units_and_no_forgotten_mass(association_once: Path) -> None:
    made = Assessment.model_validate_json((association_once / "assessments/01-s17.json").read_text())
    assert made.unit_kind == "association"
    assert made.forgotten == ()
    assert made.intervention_gate == "passed"
    full, unlearned, oracle = made.models
    assert full.metrics["displacement.F"].value > 0.3
    assert oracle.metrics["gold_probability.G"].value < full.metrics["gold_probability.G"].value
    assert not {"forgotten_mass.F", "suppression.FG"} & set(unlearned.metrics)
    assert made.provenance["request"]["granularity"] == "association"
    gates = json.loads((association_once / "gates.json").read_text())
    gate = gates["acquisition"]["17"]
    assert (gate["least_accuracy"], gate["least_gold_probability"]) == (0.65, None)
    assert set(gates["acquisition"]) == {"17", "42"}


def test_an_example_study_draws_rows_in_hash_order(
    example_once: Path, make_themed: Callable[..., Plan]
) -> None:
    from vestige.data.intents import load_intents

    root = example_once
    data = load_intents(make_themed().dataset)
    train = data.rows("train")["row_id"]
    size = int(0.1 * len(train) + 0.5)
    request = request_of(root, "01")
    order = hash_order(train, "vestige")
    assert set(request.units) == set(order[size : 2 * size]) == set(request.row_ids)
    bundles = json.loads((root / "bundles.json").read_text())
    assert bundles["reserved"] == {"03": hash_units(order[3 * size : 4 * size])}
    assert bundles["left"] == len(train) - 4 * size
    assert not (root / "gates.json").exists()
    assert request.parents == ()
    made = Assessment.model_validate_json((root / "assessments/01-s17.json").read_text())
    assert made.unit_kind == "row"
    assert any("no acquisition gate" in caveat for caveat in made.caveats)


def test_example_deletion_within_the_noise_is_never_accepted(
    tmp_path: Path, make_themed: Callable[..., Plan], execution: Execution
) -> None:
    plan = make_themed(
        deletion={"granularity": "example", "share": 0.02},
        noise_seeds=[42, 99],
        training={"epochs": 2},
        methods=[
            "uniformization",
            {"method": "grad_ascent", "settings": {"epochs": 1, "learning_rate": 1e-6}},
        ],
    )
    made = run_study(plan, tmp_path / "run", execution=execution).assessments["assessments/01-s17.json"]
    assert made.intervention_gate == "displacement within noise"
    decisions = {model.label: model.decision for model in made.models if model.role == "unlearned"}
    assert set(decisions.values()) <= {"displacement within noise", "no benefit", "infeasible"}
    # Uniformization breaks the model: noise in the displacement does not hide that.
    assert decisions["Uniformization"] == "infeasible"
    assert audit_study(tmp_path / "run").passed


def test_the_last_bundle_is_short_and_says_so(
    tmp_path: Path, make_themed: Callable[..., Plan], execution: Execution
) -> None:
    plan = make_themed(deletion={"granularity": "association", "units_per_bundle": 4}, noise_seeds=[])
    made = run_study(plan, tmp_path / "run", execution=execution).assessments["assessments/01-s17.json"]
    note = "Bundle 01 has 2 sub-intents instead of 4: no more were eligible."
    assert note in made.caveats
    assert audit_study(tmp_path / "run").passed


def test_a_run_goes_on_with_its_vectors_and_clusters(
    association: Path, make_themed: Callable[..., Plan], execution: Execution
) -> None:
    before = {path: path.read_bytes() for path in association.rglob("*.parquet")}
    kept = (association / "clusters.json").read_bytes()
    plan = make_themed(seeds=[17, 42], noise_seeds=[], methods=[{"method": "grad_ascent", "frozen": True}])
    run_study(plan, association, execution=execution)
    assert {path: path.read_bytes() for path in association.rglob("*.parquet")} == before
    assert (association / "clusters.json").read_bytes() == kept


@pytest.mark.parametrize(
    ("deletion", "part"),
    [
        (
            {"granularity": "association"},
            "found 6 intents large enough to delete a cluster of in data set 'data'; needed 11",
        ),
        (
            {"granularity": "association", "units_per_bundle": 2, "bundles": ["04"]},
            "needed 9: 5 bundles (00 included) of 2, the last of at least 1",
        ),
        (
            {"granularity": "example", "share": 0.4, "bundles": ["02"]},
            "found 360 training rows that may be deleted in data set 'data'; needed 432",
        ),
    ],
)
def test_too_few_units_are_refused_before_anything_is_trained(
    tmp_path: Path,
    make_themed: Callable[..., Plan],
    execution: Execution,
    deletion: dict[str, Any],
    part: str,
) -> None:
    with pytest.raises(InputError) as error:
        run_study(make_themed(deletion=deletion), tmp_path / "run", execution=execution)
    assert part in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_intents_too_small_to_cluster_are_one_line(
    tmp_path: Path, make_themed: Callable[..., Plan], execution: Execution, intents: Path
) -> None:
    with pytest.raises(InputError, match=r"found 10 intents large enough.*needed 11"):
        run_study(
            make_themed(
                dataset={"name": "files", "path": str(intents)}, deletion={"granularity": "association"}
            ),
            tmp_path / "run",
            execution=execution,
        )
    # Twenty rows an intent in three clusters: none keeps fifteen of them and eight development rows.
    with pytest.raises(InputError, match="0 eligible units; needed 3 for 2 bundles of 2"):
        run_study(
            make_themed(
                dataset={"name": "files", "path": str(intents)},
                deletion={"granularity": "association", "units_per_bundle": 2},
            ),
            tmp_path / "run",
            execution=execution,
        )


def test_a_result_of_a_reserved_bundle_stops_the_study(
    association: Path, make_themed: Callable[..., Plan], execution: Execution
) -> None:
    shutil.copy(association / "requests/01.json", association / "requests/02.json")
    with pytest.raises(InputError, match="a result of the reserved bundle 02"):
        run_study(make_themed(), association, execution=execution)
    reseal(association)
    assert fails(association, "reserved")


def test_one_label_for_other_rows_is_said_across_folders_and_beside_results(
    association_once: Path, tmp_path: Path, make_themed: Callable[..., Plan], execution: Execution
) -> None:
    """Settings frozen in one study, used where another salt (as another model would) draws other clusters."""
    plan = make_themed(
        stage="screening",
        deletion={"granularity": "association", "units_per_bundle": 2, "salt": "other"},
        noise_seeds=[],
        methods=[{"method": "grad_ascent", "frozen": str(association_once / "frozen.json")}],
    )
    made = run_study(plan, tmp_path / "run", execution=execution).assessments["assessments/01-s17.json"]
    (said,) = [caveat for caveat in made.caveats if caveat.startswith("Bundle 01 holds other units here")]
    assert "frozen in" in said
    assert request_of(tmp_path / "run", "01").units_sha256[:8] in said
    (sentence,) = [
        item
        for item in differing_bundles({"a": association_once, "b": tmp_path / "run"})
        if item.startswith("Bundle 01 of data, association deletion")
    ]
    assert "40 rows" in sentence
    assert " in a; " in sentence
    assert differing_bundles({"a": association_once, "again": association_once}) == ()
    own = Assessment.model_validate_json((association_once / "assessments/01-s17.json").read_text())
    assert not any("holds other units" in caveat for caveat in own.caveats)


def test_arms_that_delete_other_rows_under_one_label_are_noted_and_share_vectors(
    tmp_path: Path, themes: Path
) -> None:
    raw = {
        "name": "arms",
        "dataset": {"name": "files", "path": str(themes)},
        "deletion": {"granularity": "association", "units_per_bundle": 2},
        "methods": ["grad_ascent"],
        "draws": 100,
        "arms": {"one": {}, "two": {"deletion": {"salt": "other"}}},
    }
    path = tmp_path / "arms.yaml"
    path.write_text(yaml.safe_dump(raw))
    made = run_all(load_study(path), tmp_path / "out", execution=Execution(jobs=2, backend=SPEC))
    assert len(made.notes) == 1
    assert made.notes[0].startswith("Bundle 01 of data, association deletion, stands for different rows")
    stored = [
        item.stat().st_ino for item in (tmp_path / "out").glob("arms/*/nodes/embeddings-*/vectors.parquet")
    ]
    assert len(stored) == 2
    assert len(set(stored)) == 1


@pytest.mark.parametrize(
    ("deletion", "gate", "unseen_units"),
    [
        ({"granularity": "association", "units_per_bundle": 2}, "passed", 2),
        ({"granularity": "example"}, "displacement within noise", None),
    ],
)
def test_the_embedded_helpdesk_data_in_both_granularities(
    tmp_path: Path,
    make_themed: Callable[..., Plan],
    execution: Execution,
    deletion: dict[str, Any],
    gate: str,
    unseen_units: int | None,
) -> None:
    """Sub-intents leave a mark that retraining shows; a random twentieth of the rows is within the noise."""
    plan = make_themed(dataset={"name": "helpdesk"}, deletion=deletion)
    made = run_study(plan, tmp_path / "run", execution=execution).assessments["assessments/01-s17.json"]
    assert made.intervention_gate == gate
    views = {view.view: view for view in made.views}
    assert sum(view.rows for view in made.views if view.view != "F") == 486
    if unseen_units is not None:
        assert views["F"].units == views["G"].units == unseen_units
    else:
        assert views["F"].rows == views["F"].units == 44  # 5 % of 882
    assert failed(tmp_path / "run") == {}


def test_tuning_an_example_deletion_reads_bundle_00_and_development_rows(
    tmp_path: Path, make_themed: Callable[..., Plan], execution: Execution
) -> None:
    plan = make_themed(deletion={"granularity": "example", "share": 0.1}, noise_seeds=[])
    tuning = tune_study(plan, tmp_path / "run", execution=execution)
    assert (tuning.bundle, tuning.held_out) == ("00", False)
    request = request_of(tmp_path / "run", "00")
    rows = view_rows(tmp_path / "run", "00-development")
    assert {row for row, view, _ in rows if view == "F"} == set(request.row_ids)
    assert {unit for _, view, unit in rows if view == "G"} <= set(request.units)
    assert all("development" in row for row, view, _ in rows if view != "F")
    assert failed(tmp_path / "run") == {}
