"""What must come out when the unlearned model is the oracle, the full model, or a mixture of both."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import tables

from vestige.contracts import Assessment, ModelAssessment
from vestige.decision.predictions import Predictions
from vestige.study.assess import AssessSettings, assess

FULL, ORACLE = tables.table("full"), tables.table("oracle")


def mixture(share: float) -> Predictions:
    """(1 - share) full + share oracle."""
    return replace(FULL, p=(1 - share) * FULL.p + share * ORACLE.p, label="mixture")


def assessed(unlearned: Predictions) -> tuple[Assessment, ModelAssessment]:
    made = assess(
        name="known answers",
        fulls=[FULL],
        unlearned={"U": unlearned.named("U")},
        oracles=[ORACLE],
        forgotten=tables.FORGOTTEN,
        settings=AssessSettings(draws=200),
        condition="made tables",
    )
    return made, made.model_named("U")


def value(model: ModelAssessment, key: str) -> float:
    found = model.metrics[key].value
    assert isinstance(found, float)
    return found


@pytest.mark.parametrize("view", ["F", "G"])
def test_the_oracle_has_come_all_the_way(view: str) -> None:
    _, model = assessed(ORACLE)
    assert value(model, f"oracle_distance.{view}") == 0.0
    assert value(model, f"progress.{view}") == 1.0
    assert value(model, f"suppression.{view}") == pytest.approx(1.0, abs=1e-12)
    assert value(model, f"aligned_coefficient.{view}") == pytest.approx(1.0, abs=1e-12)
    assert value(model, f"relative_residual.{view}") == pytest.approx(0.0, abs=1e-12)
    for name in ("total_variation", "activation_distance", "squared_error"):
        assert value(model, f"{name}.{view}") == 0.0
    assert value(model, f"completeness.{view}") == 1.0
    # Its interval is a point: every resample has progress 1.
    row = model.metrics[f"progress.{view}"].row
    assert (row.low, row.high) == (1.0, 1.0)
    assert value(model, "suppression.FG") == pytest.approx(1.0, abs=1e-12)


def test_the_oracle_is_accepted() -> None:
    _, model = assessed(ORACLE)
    assert model.decision == "accepted"
    # With one oracle seed it is not shown to be equivalent: nothing says what two retrainings differ by.
    assert model.verdict not in (None, "equivalent")


@pytest.mark.parametrize("view", ["F", "G"])
def test_the_full_model_has_not_moved(view: str) -> None:
    _, model = assessed(FULL)
    for name in ("gain", "progress", "suppression", "aligned_coefficient", "relative_residual", "churn"):
        assert value(model, f"{name}.{view}") == pytest.approx(0.0, abs=1e-15)
    assert model.decision == "no benefit"
    assert model.p_value[view] == 1.0  # every centred resample is as large


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("view", ["F", "G"])
def test_a_mixture_lies_on_the_oracles_direction(share: float, view: str) -> None:
    _, model = assessed(mixture(share))
    assert value(model, f"aligned_coefficient.{view}") == pytest.approx(share, abs=1e-12)
    assert value(model, f"relative_residual.{view}") == pytest.approx(0.0, abs=1e-7)  # root of rounding
    assert value(model, f"suppression.{view}") == pytest.approx(share, abs=1e-12)
    # Moving along the direction is the whole move, so that it alone gives the oracle distance.
    assert value(model, f"magnitude_only_distance.{view}") == pytest.approx(
        value(model, f"oracle_distance.{view}"), abs=1e-9
    )
    assert value(model, f"residual_only_distance.{view}") == pytest.approx(0.0, abs=1e-9)
    # The divergence is convex: a mixture has come at least its share of the way.
    assert share <= value(model, f"progress.{view}") <= 1.0


def test_progress_of_mixtures_grows_with_their_share() -> None:
    found = [value(assessed(mixture(share))[1], "progress.F") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (pytest.approx(0.0, abs=1e-15), 1.0)
