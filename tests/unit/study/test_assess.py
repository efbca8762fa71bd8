"""The assessment: known numbers on a table small enough to work out by hand, and every rule's branches."""

from __future__ import annotations

import numpy as np
import pytest
from tests import tables

from vestige.contracts import Assessment, Interval, ModelAssessment, Undefined
from vestige.decision.predictions import Predictions, predictions_from_arrays
from vestige.errors import InputError
from vestige.metrics import METRICS
from vestige.statistics.bootstrap import bootstrap_rows
from vestige.statistics.multiplicity import holm
from vestige.statistics.terms import mean_of
from vestige.study.assess import AssessSettings, assess, is_feasible
from vestige.study.measure import ModelRows, ViewRows, measure_view

A, B = (1.0, 0.0), (0.0, 1.0)
SURE, WRONG = (0.1, 0.9), (0.9, 0.1)
VIEW = ["F"] * 4 + ["G"] * 2 + ["R"] * 3
GOLD = ["a"] * 6 + ["b"] * 3


def by_hand(
    label: str, deleted: list[tuple[float, float]], retained: list[tuple[float, float]]
) -> Predictions:
    """Four F rows, two G rows and three R rows over the options a (forgotten) and b."""
    return predictions_from_arrays(
        np.array(deleted + retained),
        row_ids=[f"r{place}" for place in range(9)],
        view=VIEW,
        unit=GOLD,
        gold=GOLD,
        options=["a", "b"],
        label=label,
    )


FULL = by_hand("full", [A] * 6, [SURE] * 3)
ORACLE = by_hand("oracle", [B] * 6, [SURE] * 3)
HALF = by_hand("half", [B, B, A, A, B, A], [SURE, SURE, WRONG])


def run(
    *,
    fulls: tuple[Predictions, ...] = (FULL,),
    unlearned: tuple[Predictions, ...] = (HALF,),
    oracles: tuple[Predictions, ...] = (ORACLE,),
    forgotten: tuple[str, ...] = ("a",),
    draws: int = 200,
    family: tuple[str, ...] = (),
    methods: dict[str, tuple[str, bool]] | None = None,
    stage: str = "own predictions",
    unit_kind: str = "class",
    exceptions: tuple[str, ...] = (),
) -> Assessment:
    return assess(
        name="by hand",
        fulls=fulls,
        unlearned={table.label: table for table in unlearned},
        oracles=oracles,
        forgotten=forgotten,
        settings=AssessSettings(draws=draws, unit_kind=unit_kind, exceptions=exceptions),
        condition="training seed 17",
        stage=stage,
        methods=methods,
        family=family,
    )


def value(model: ModelAssessment, key: str) -> float:
    found = model.metrics[key].value
    assert isinstance(found, float), f"{key}: {found}"
    return found


def test_every_number_of_a_table_worked_out_by_hand() -> None:
    # Clipping at 1e-12 moves a distance of 1 by about 4e-11; everything else is exact to rounding.
    model = run().model_named("half")
    expected = {
        "oracle_distance.F": 0.5,
        "oracle_distance.G": 0.5,
        "gain.F": 0.5,
        "progress.F": 0.5,
        "progress.G": 0.5,
        "accuracy.R": 2 / 3,
        "delta_accuracy.R": -1 / 3,
        # Confidence 0.9 on all three rows, accuracy 2/3 (full: 1).
        "ece.R": 0.9 - 2 / 3,
        "delta_ece.R": 0.9 - 2 / 3 - 0.1,
        "forgotten_mass.F": 0.5,
        "suppression.F": 0.5,
        "suppression.G": 0.5,
        "suppression.FG": 0.5,
        "gold_probability.F": 0.5,
        "gold_probability.R": (0.9 + 0.9 + 0.1) / 3,
        "forgotten_accuracy.F": 0.5,
        "confidence.F": 1.0,
        "confidence.R": 0.9,
        "margin.R": 0.8,
        "completeness.F": 0.5,
        "completeness.R": 2 / 3,
        "churn.F": 0.5,
        "churn.R": 1 / 3,
        "total_variation.F": 0.5,
        "activation_distance.F": np.sqrt(2) / 2,
        # Half of the rows make the whole move, half none: <dU, dO> = 2 on two of four rows, |dO|^2 = 2.
        "aligned_coefficient.F": 0.5,
        "relative_residual.F": 0.0,
        "identity_error.F": 0.0,
        "zero_displacement_rows.F": 0.0,
    }
    found = {key: value(model, key) for key in expected}
    assert found == pytest.approx(expected, abs=1e-10)
    full = run().model_named("full")
    assert value(full, "displacement.F") == pytest.approx(1.0, abs=1e-10)
    assert value(full, "forgotten_mass.F") == 1.0
    assert value(run().model_named("oracle"), "churn.R") == 0.0


def test_probability_went_where_it_did() -> None:
    (found,) = run().model_named("half").destinations
    # Three of six rows moved wholly from a to b.
    assert (found.forgotten, found.rows, found.moved, found.elsewhere) == ("a", 6, 0.5, 0.0)
    assert found.to == (("b", 0.5),)


def test_what_is_compared_is_counted() -> None:
    assessment = run()
    assert [(v.view, v.rows, v.units) for v in assessment.views] == [("F", 4, 1), ("G", 2, 1), ("R", 3, 1)]
    assert assessment.options == 2
    assert [(source.label, source.role) for source in assessment.sources] == [
        ("full", "full"),
        ("half", "unlearned"),
        ("oracle", "oracle"),
    ]
    assert [model.label for model in assessment.models] == ["full", "half", "oracle"]
    assert [len(model.reliability) for model in assessment.models] == [15, 15, 15]
    assert assessment.seeds == {"F": 1, "G": 2, "R": 3, "unit F": 101, "unit G": 102}


def test_intervals_say_what_they_are() -> None:
    gain = run().model_named("half").metrics["gain.G"]
    assert isinstance(gain.row, Interval)
    assert (gain.row.seed, gain.row.draws, gain.row.level) == (2, 200, 0.95)
    assert gain.row.condition == "training seed 17"
    assert gain.row.kind == "row bootstrap, percentile"
    assert (gain.rows, gain.units) == (2, 1)
    # One unit alone has no interval.
    assert isinstance(gain.unit, Undefined)


def test_a_large_loss_of_accuracy_is_infeasible() -> None:
    model = run().model_named("half")
    assert model.decision == "infeasible"
    assert is_feasible(model) is False


def test_the_full_model_gains_nothing_and_the_oracle_everything() -> None:
    copies = (FULL.named("same as full"), ORACLE.named("same as oracle"))
    assessment = run(unlearned=copies)
    same, there = assessment.model_named("same as full"), assessment.model_named("same as oracle")
    assert [value(same, key) for key in ("gain.F", "progress.F", "suppression.FG", "churn.R")] == [0, 0, 0, 0]
    assert same.decision == "no benefit"
    assert value(there, "oracle_distance.F") == 0.0
    assert [value(there, key) for key in ("progress.F", "progress.G", "suppression.FG")] == [1, 1, 1]
    assert there.decision == "accepted"
    assert any("'full' (full) and 'same as full' (unlearned) have the same" in c for c in assessment.caveats)


def test_a_gain_whose_interval_reaches_zero_is_unconfirmed() -> None:
    # One of four F rows moved: some resamples draw none of it.
    model = run(unlearned=(by_hand("one", [B, A, A, A, B, B], [SURE] * 3),)).model_named("one")
    assert model.decision == "positive, unconfirmed"
    assert value(model, "gain.F") == pytest.approx(0.25)


def test_a_single_row_never_confirms() -> None:
    def take(table: Predictions) -> Predictions:
        return table.take(np.array([0, 4, 6, 7, 8]))

    copy = take(ORACLE).named("u")
    assessment = run(fulls=(take(FULL),), oracles=(take(ORACLE),), unlearned=(copy,))
    model = assessment.model_named("u")
    assert model.decision == "positive, unconfirmed"
    assert isinstance(model.metrics["gain.F"].row, Undefined)
    assert any("F has 1 row" in caveat for caveat in assessment.caveats)


def several(kind: str, count: int) -> tuple[Predictions, ...]:
    return tuple(tables.table(kind, seed) for seed in range(1, count + 1))


def run_several(fulls: int = 2, oracles: int = 3, **more: object) -> Assessment:
    return run(
        fulls=several("full", fulls),
        oracles=several("oracle", oracles),
        unlearned=(tables.table("unlearned", 1, "npo"), tables.table("full", 9, "nothing")),
        forgotten=tables.FORGOTTEN,
        **more,  # type: ignore[arg-type]
    )


def test_noise_floors_come_from_all_models_and_distances_from_the_first() -> None:
    from vestige.metrics import js2

    assessment = run_several()
    fulls, oracles = several("full", 2), several("oracle", 3)
    for view in ("F", "G", "R"):
        one, two = (table.of_view(view).p for table in fulls)  # type: ignore[arg-type]
        assert assessment.noise[f"noise_full.{view}"].value == pytest.approx(js2(one, two).mean(), abs=1e-15)
    first = oracles[0].of_view("F").p
    distance = js2(tables.table("unlearned", 1).of_view("F").p, first).mean()
    assert value(assessment.model_named("npo"), "oracle_distance.F") == pytest.approx(distance, abs=1e-15)
    assert assessment.noise_pairs == {"noise_full": 1, "noise_oracle": 3}
    assert isinstance(assessment.noise["noise_oracle.G"].row, Interval)
    assert assessment.intervention_gate == "passed"
    assert len(assessment.sources) == 7
    assert any("alike; the published rule compares" in c and "'oracle 1'" in c for c in assessment.caveats)


def test_every_model_under_test_has_a_verdict_and_no_other_has() -> None:
    found = run_several()
    for model in found.models:
        assert (model.verdict is None) == (model.role != "unlearned")
        assert bool(model.sentence) == (model.role == "unlearned")
        # The rule before it compared with the first oracle alone; its fields are read and no longer made.
        assert (model.equivalent, model.equivalence) == (None, None)
        assert not [key for key in model.metrics if key.startswith("excess_distance")]


def test_displacement_within_noise_is_never_accepted() -> None:
    assessment = run(
        fulls=(tables.table("full", 1), tables.table("oracle", 2, "full 2")),
        oracles=several("oracle", 1),
        unlearned=(tables.table("oracle", 1, "u"),),
        forgotten=tables.FORGOTTEN,
    )
    assert assessment.intervention_gate == "displacement within noise"
    model = assessment.model_named("u")
    assert model.decision == "displacement within noise"
    assert model.metrics["progress.F"].unstable
    assert any(
        "The published rule accepts no model on this request." in caveat for caveat in assessment.caveats
    )
    assert any("Progress on F is unstable" in caveat for caveat in assessment.caveats)


def test_one_full_model_leaves_the_gate_unrun_and_the_decision_made() -> None:
    assessment = run_several(fulls=1)
    assert assessment.intervention_gate == "gate not run"
    assert isinstance(assessment.noise["noise_full.F"].value, Undefined)
    assert assessment.model_named("npo").decision == "accepted"
    assert any("published rule was not run" in caveat for caveat in assessment.caveats)


def test_without_an_oracle_only_what_needs_none_is_measured() -> None:
    assessment = run(oracles=())
    model = assessment.model_named("half")
    assert not assessment.has_oracle
    assert isinstance(model.decision, Undefined)
    assert model.verdict == "undetermined"
    assert "no retrained model was given" in model.sentence
    assert not [key for key in model.metrics if key.split(".")[0] in ("gain", "progress", "oracle_distance")]
    assert value(model, "forgotten_mass.F") == 0.5
    assert value(model, "delta_accuracy.R") == pytest.approx(-1 / 3)
    assert len(model.destinations) == 1
    assert model.p_value == {}
    assert assessment.intervention_gate == "gate not run"
    assert all(isinstance(value, Undefined) for value in assessment.minimum_detectable_gain.values())
    assert "fidelity to retraining cannot be assessed" in assessment.caveats[0]
    assert is_feasible(model) is False


def test_without_forgotten_options_mass_is_not_measured() -> None:
    model = run(forgotten=(), unit_kind="customer_id").model_named("half")
    assert not [key for key in model.metrics if key.startswith(("forgotten_mass", "suppression"))]
    assert value(model, "gain.F") == pytest.approx(0.5)
    assert model.destinations == ()


def test_holm_corrects_over_the_named_family_only() -> None:
    plain = run_several()
    assert "holm" not in plain.model_named("npo").p_value
    assert any("not corrected for the 2 models" in caveat for caveat in plain.caveats)
    corrected = run_several(family=("npo", "nothing"))
    both = {label: corrected.model_named(label).p_value["both"] for label in ("npo", "nothing")}
    expected = holm(both)  # type: ignore[type-var]
    assert {label: corrected.model_named(label).p_value["holm"] for label in both} == expected
    assert expected["npo"] == pytest.approx(2 / 201)
    alone = run_several(family=("npo",))
    assert alone.model_named("npo").p_value["holm"] == alone.model_named("npo").p_value["both"]
    assert "holm" not in alone.model_named("nothing").p_value


def test_the_p_value_of_both_views_is_the_larger() -> None:
    p_value = run_several().model_named("npo").p_value
    assert p_value["both"] == max(p_value["F"], p_value["G"])  # type: ignore[type-var]


def test_methods_are_compared_on_the_same_rows_and_draws() -> None:
    assessment = run_several()
    assert [(c.first, c.second, c.view) for c in assessment.comparisons] == [
        ("npo", "nothing", "F"),
        ("npo", "nothing", "G"),
    ]
    first, second = (assessment.model_named(label) for label in ("npo", "nothing"))
    difference = assessment.comparisons[0].difference
    expected = value(first, "oracle_distance.F") - value(second, "oracle_distance.F")
    assert difference.value == pytest.approx(expected, abs=1e-15)
    assert isinstance(difference.row, Interval)
    assert difference.row.high < 0


def test_methods_and_controls_are_named() -> None:
    methods = {"npo": ("npo", False), "nothing": ("uniformization", True)}
    assessment = run_several(methods=methods, stage="confirmation", exceptions=("Exception X.",))
    assert (assessment.model_named("npo").method, assessment.model_named("npo").control) == ("npo", False)
    assert assessment.model_named("nothing").control
    assert assessment.stage == "confirmation"
    assert "Exception X." in assessment.caveats


def test_the_minimum_detectable_gain_is_the_largest_over_models() -> None:
    assessment = run_several()
    for view in ("F", "G"):
        each = [
            value(assessment.model_named(m), f"minimum_detectable_gain.{view}") for m in ("npo", "nothing")
        ]
        assert assessment.minimum_detectable_gain[view] == max(each)


def test_shared_distances_give_what_the_registry_gives() -> None:
    """The terms built from distances computed once equal those that each metric computes for itself."""
    models = {kind: tables.table(kind, 1).of_view("F") for kind in ("full", "oracle", "unlearned")}
    p = {kind: table.p for kind, table in models.items()}
    rows = ViewRows(
        view="F",
        fulls=[p["full"]],
        oracles=[p["oracle"]],
        gold=models["full"].gold_index,
        forgotten=models["full"].mask(tables.FORGOTTEN),
        units=np.array(["0"] * len(models["full"])),
        models=[ModelRows("full", [p["full"]]), ModelRows("unlearned", [p["unlearned"]])],
    )
    found = measure_view(rows, draws=50)
    arrays = {
        "p": p["unlearned"],
        "full": p["full"],
        "oracle": p["oracle"],
        "gold": rows.gold,
        "forgotten": rows.forgotten,
    }
    checked = 0
    for metric in METRICS:
        if "F" not in metric.views or "p" not in metric.needs:
            continue
        terms = metric.compute(**{name: arrays[name] for name in metric.needs})
        expected = bootstrap_rows({"x": terms}, draws=50, seed=1)["x"]
        result = found.row[1, metric.name]
        assert result.estimate == expected.estimate
        np.testing.assert_allclose(result.draws_values, expected.draws_values, rtol=1e-12)
        checked += 1
    assert checked >= 15
    displacement = METRICS.get("displacement").compute(full=p["full"], oracle=p["oracle"])
    assert (
        found.row[0, "displacement"].estimate
        == bootstrap_rows({"x": displacement}, draws=5, seed=1)["x"].estimate
    )
    assert mean_of(rows.displacement).terms.tobytes() == displacement.terms.tobytes()  # type: ignore[arg-type]


def drop(table: Predictions, view: str) -> Predictions:
    return table.take(table.view != view)


@pytest.mark.parametrize("view", ["F", "G", "R"])
def test_an_empty_view_is_refused(view: str) -> None:
    with pytest.raises(InputError, match=f"an empty view {view}"):
        run(
            fulls=(drop(FULL, view),),
            unlearned=(drop(HALF, view),),
            oracles=(drop(ORACLE, view),),
            forgotten=(),
        )


@pytest.mark.parametrize(
    ("forgotten", "part"),
    [
        (("z",), "no option 'z'"),
        (("b",), "no F rows of forgotten option 'b'"),
        (("a", "b"), "every option forgotten"),
    ],
)
def test_forgotten_options_are_checked(forgotten: tuple[str, ...], part: str) -> None:
    with pytest.raises(InputError) as caught:
        run(forgotten=forgotten)
    assert part in str(caught.value)


def test_deleted_rows_of_another_option_are_refused() -> None:
    with pytest.raises(InputError, match="F rows of option 'top/up', not named as forgotten"):
        run(
            fulls=several("full", 1),
            unlearned=(tables.table("unlearned"),),
            oracles=several("oracle", 1),
            forgotten=tables.FORGOTTEN[:1],
        )


def test_models_need_labels_of_their_own_and_a_known_family() -> None:
    with pytest.raises(InputError, match="label 'full' on two models"):
        run(unlearned=(HALF.named("full"),))
    with pytest.raises(InputError, match="family: found 'nobody'"):
        run(family=("nobody",))
    with pytest.raises(InputError, match="no full model"):
        run(fulls=())
    with pytest.raises(InputError, match=r"half: found 1 row\(s\) missing"):
        run(unlearned=(HALF.take(np.arange(9) > 0),))


def test_the_record_survives_json_and_holds_no_row_ids() -> None:
    assessment = run_several()
    text = assessment.to_json()
    assert Assessment.model_validate_json(text) == assessment
    assert "row 1" not in text
