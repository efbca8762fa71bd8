"""Which candidate is chosen, and when a grid point stops."""

from __future__ import annotations

import numpy as np
import pytest

from vestige.decision.predictions import predictions_from_arrays
from vestige.errors import InputError
from vestige.study.tuning_rules import (
    EpochResult,
    Point,
    choose,
    edges,
    grid_points,
    measure_epoch,
    should_stop,
    unbracketed,
)


def epoch(number: int, objective: float, feasible: bool = True) -> EpochResult:
    return EpochResult(
        epoch=number,
        od_f=objective / 2,
        od_g=objective / 2,
        objective=objective,
        accuracy=0.9,
        ece=0.05,
        delta_accuracy=0.0 if feasible else -0.1,
        delta_ece=0.0,
        feasible=feasible,
    )


def point(node: str, *epochs: EpochResult) -> Point:
    return Point(node=node, settings={"node": node}, epochs=epochs, stopped="", seconds=1.0)


@pytest.mark.parametrize(
    ("history", "stops"),
    [
        ([], False),
        ([epoch(1, 0.5, False)], False),
        ([epoch(1, 0.5), epoch(2, 0.4, False)], False),
        ([epoch(1, 0.5, False), epoch(2, 0.4, False)], True),
        ([epoch(1, 0.5, False), epoch(2, 0.4), epoch(3, 0.3, False)], False),
        ([epoch(1, 0.5), epoch(2, 0.6), epoch(3, 0.6)], False),
        ([epoch(1, 0.5), epoch(2, 0.6), epoch(3, 0.6), epoch(4, 0.55)], True),
        ([epoch(1, 0.5), epoch(2, 0.6), epoch(3, 0.6), epoch(4, 0.4)], False),
        ([epoch(1, 0.5), epoch(2, 0.5), epoch(3, 0.5), epoch(4, 0.5)], True),
    ],
)
def test_when_a_point_stops(history: list[EpochResult], stops: bool) -> None:
    assert bool(should_stop(history)) is stops


def test_the_best_feasible_candidate_is_chosen_ties_to_fewer_epochs() -> None:
    one = point("a", epoch(1, 0.5), epoch(2, 0.1, False), epoch(3, 0.3))
    two = point("b", epoch(1, 0.4), epoch(2, 0.3))
    found = choose([one, two])
    assert found is not None
    assert (found[0].node, found[1].epoch) == ("b", 2)
    assert choose([point("c", epoch(1, 0.1, False))]) is None
    assert choose([]) is None


def test_edges_name_extreme_values_of_several() -> None:
    grid = {"rate": (1e-4, 2e-4, 3e-4), "weight": (0.5, 1.0), "one": (1.0,), "kind": ("a", "b", "c")}
    assert edges(grid, {"rate": 2e-4, "weight": 0.5, "one": 1.0, "kind": "a"}) == ()
    assert edges(grid, {"rate": 3e-4, "weight": 0.5, "one": 1.0, "kind": "a"}) == ("rate",)
    # Between two values nothing can lie: no choice of them is at an edge, and none is bracketed.
    assert unbracketed(grid) == ("one", "weight")


def test_grid_points_are_every_combination() -> None:
    assert grid_points({"b": [1, 2], "a": ["x"]}) == [{"a": "x", "b": 1}, {"a": "x", "b": 2}]
    assert grid_points({}) == [{}]


def test_an_epoch_is_measured_on_its_own_views() -> None:
    def table(p: list[list[float]], label: str, view: str = "FGR") -> object:
        return predictions_from_arrays(
            np.array(p),
            row_ids=["1", "2", "3"],
            view=list(view),
            unit=["a", "a", "b"],
            gold=["a", "a", "b"],
            options=["a", "b"],
            label=label,
        )

    oracle = table([[0.0, 1.0], [0.5, 0.5], [0.1, 0.9]], "oracle")
    full = table([[1.0, 0.0], [1.0, 0.0], [0.1, 0.9]], "full")
    found = measure_epoch(2, full, full, oracle)  # type: ignore[arg-type]
    assert found.od_f == pytest.approx(1.0, abs=1e-9)  # disjoint up to the clip at 1e-12
    assert found.od_g == pytest.approx(0.3112781, abs=1e-6)  # JS of (1, 0) and (1/2, 1/2)
    assert found.objective == found.od_f + found.od_g
    assert (found.accuracy, found.delta_accuracy, found.delta_ece, found.feasible) == (1.0, 0.0, 0.0, True)
    bad = [table([[0.0, 1.0]] * 3, name, "FFR") for name in "abc"]
    with pytest.raises(InputError, match="development view G"):
        measure_epoch(1, *bad)  # type: ignore[arg-type]
