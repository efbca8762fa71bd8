"""The acquisition gate and the intervention gate."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from vestige.contracts import Undefined
from vestige.data import assemble
from vestige.deletion.gates import acquisition_gate, gate_exceptions, intervention_gate
from vestige.deletion.requests import class_request
from vestige.errors import InputError

OPTIONS = ["a", "b", "c", "oos"]


def rows_of(option: int, right: int, wrong: int, gold: float) -> tuple[list[str], np.ndarray]:
    """Rows of an option: `gold` on it where right, the rest (or all) on the next option."""
    p = np.full((right + wrong, 4), 0.0)
    p[:right, option] = gold
    p[:right, (option + 1) % 4] = 1 - gold
    p[right:, (option + 1) % 4] = 1.0
    return [OPTIONS[option]] * (right + wrong), p


def stacked(*parts: tuple[list[str], np.ndarray]) -> tuple[list[str], np.ndarray]:
    return [gold for part in parts for gold in part[0]], np.concatenate([part[1] for part in parts])


def test_thresholds_are_inclusive_and_reasons_are_stated() -> None:
    # a: accuracy exactly 0.70, mean gold 0.7 * 0.75; b: accuracy 0.6; c: mean gold 0.8 * 0.6
    gold, p = stacked(rows_of(0, 7, 3, 0.75), rows_of(1, 6, 4, 0.9), rows_of(2, 8, 2, 0.6))
    gate = acquisition_gate(gold, p, OPTIONS, seed=17, out_of_scope="oos")
    assert gate.eligible == ("a",)
    assert gate.of("a").accuracy == pytest.approx(0.7, abs=1e-15)
    assert gate.of("a").mean_gold_probability == pytest.approx(0.525, abs=1e-15)
    assert gate.of("b").reason == "accuracy 0.600 < 0.70"
    assert gate.of("c").reason == "mean gold probability 0.480 < 0.50"
    assert gate.of("oos").reason.startswith("out of scope")
    assert [one.rows for one in gate.classes] == [10, 10, 10, 0]


def test_exactly_half_the_gold_probability_passes() -> None:
    p = np.tile([0.5, 0.25, 0.25, 0.0], (10, 1))
    assert acquisition_gate(["a"] * 10, p, OPTIONS, seed=1).of("a").passed


def test_a_tie_is_wrong_whatever_the_option_is_called() -> None:
    p = np.tile([0.5, 0.5, 0.0, 0.0], (10, 1))
    for option in ("a", "b"):
        found = acquisition_gate([option] * 10, p, OPTIONS, seed=1).of(option)
        assert (found.accuracy, found.passed) == (0.0, False)


def test_an_option_without_development_rows_fails_and_out_of_scope_never_passes() -> None:
    gold, p = stacked(rows_of(0, 5, 0, 0.9), rows_of(3, 5, 0, 0.9))
    gate = acquisition_gate(gold, p, OPTIONS, seed=1, out_of_scope="oos")
    assert gate.eligible == ("a",)
    assert gate.of("b").reason == "no development rows"
    assert gate.of("b").accuracy is None
    assert acquisition_gate(gold, p, OPTIONS, seed=1).eligible == ("a", "oos")
    with pytest.raises(KeyError):
        gate.of("z")


def test_gold_outside_the_schema_and_wrong_shapes() -> None:
    gold, p = rows_of(0, 2, 0, 0.9)
    with pytest.raises(InputError, match="gold outside the schema: 'x'"):
        acquisition_gate(["x", "a"], p, OPTIONS, seed=1)
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        acquisition_gate(gold, p, OPTIONS[:3], seed=1)


def test_later_failures_become_exceptions_of_the_request() -> None:
    frame = pd.DataFrame(
        [
            (f"{split}{label}{i}", f"{split} {label} {i}", label, split)
            for split in ("train", "development", "evaluation")
            for label in OPTIONS
            for i in range(3)
        ],
        columns=["row_id", "text", "gold", "split"],
    ).astype(str)
    request = class_request(assemble("d", frame), ["a", "b"], bundle="01", purpose="pilot", seed=17)
    gold, p = stacked(rows_of(0, 9, 1, 0.9), rows_of(1, 5, 5, 0.9), rows_of(2, 1, 9, 0.9))
    later = acquisition_gate(gold, p, OPTIONS, seed=42)
    (failed,) = gate_exceptions(request, later)  # c fails as well and is not in the request
    assert (failed.seed, failed.unit, failed.accuracy) == (42, "b", 0.5)
    assert failed.reason == "accuracy 0.500 < 0.70, mean gold probability 0.450 < 0.50"
    assert [one.unit for one in gate_exceptions(request, later, ["c"])] == ["c"]


@pytest.mark.parametrize(
    ("d0_f", "d0_g", "noise_f", "noise_g", "outcome"),
    [
        (0.30, 0.25, 0.03, 0.04, "passed"),
        (0.30, 0.08, 0.03, 0.04, "displacement within noise"),  # exactly twice: not enough
        (0.06, 0.25, 0.03, 0.04, "displacement within noise"),
        (0.30, 0.25, 0.0, 0.0, "passed"),
        (0.0, 0.0, 0.0, 0.0, "displacement within noise"),
        (0.30, 0.25, None, 0.04, "gate not run"),
        (0.30, 0.25, Undefined(undefined="one seed"), Undefined(undefined="one seed"), "gate not run"),
    ],
)
def test_intervention_gate(
    d0_f: float,
    d0_g: float,
    noise_f: float | Undefined | None,
    noise_g: float | Undefined | None,
    outcome: str,
) -> None:
    assert intervention_gate(d0_f, d0_g, noise_f, noise_g) == outcome


@pytest.mark.parametrize("bad", [float("nan"), -0.1, float("inf")])
def test_intervention_gate_refuses_what_is_no_distance(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        intervention_gate(bad, 0.3, 0.1, 0.1)
    with pytest.raises(ValueError, match="finite"):
        intervention_gate(0.3, 0.3, 0.1, bad)
