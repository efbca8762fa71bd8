"""Error rates of the decision rule and of the equivalence test, by simulation with few repetitions.

Tolerances are three standard errors of a share at the repetitions here. docs/simulations.md has more of them.
"""

from __future__ import annotations

import importlib.util
from math import sqrt
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPEAT = 300
DRAWS = 1000


@pytest.fixture(scope="module")
def simulations() -> ModuleType:
    spec = importlib.util.spec_from_file_location("simulations", ROOT / "benchmarks" / "simulations.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def allowed(share: float, repeat: int = REPEAT) -> float:
    """A share plus three of its standard errors."""
    return share + 3 * sqrt(share * (1 - share) / repeat)


@pytest.mark.parametrize("rows", [40, 160, 400])
@pytest.mark.parametrize("case", ["independent", "shared"])
def test_gains_exchangeable_around_0_are_accepted_at_most_2_5_percent_of_the_time(
    simulations: ModuleType, rows: int, case: str
) -> None:
    found = simulations.acceptance(rows, case, REPEAT, DRAWS)
    assert found["share"] <= allowed(0.025)


def test_a_real_gain_is_accepted(simulations: ModuleType) -> None:
    """The simulation can fail: rows that gain on both views are accepted, nearly always at n = 400."""
    random = simulations.generator("tests", "real gain")
    gains = simulations.gains(random, 60, 400) + 0.06  # 0.06 is 3.9 standard errors
    accepted = sum(
        simulations.decide(*f, *g, 0.0, 0.0) == "accepted"
        for f, g in zip(
            simulations.bounds(gains, "F", DRAWS), simulations.bounds(gains, "G", DRAWS), strict=True
        )
    )
    assert accepted / 60 > 0.9


@pytest.mark.parametrize("rows", [40, 400])
def test_equivalence_at_the_margin_is_rarely_called(simulations: ModuleType, rows: int) -> None:
    """A skewed excess at n = 40 makes the bound a little short: 0.08 is allowed there, 0.05 at 400."""
    found = simulations.equivalence(rows, 0.02, 0.05, REPEAT, DRAWS)
    assert found["share"] <= allowed(0.08 if rows == 40 else 0.05)


def test_equivalence_without_excess_is_found_with_enough_rows(simulations: ModuleType) -> None:
    few, many = (simulations.equivalence(rows, 0.0, 0.05, 100, DRAWS)["share"] for rows in (40, 400))
    assert many > 0.95
    assert few < many


def test_a_shift_that_ks_passes_at_40_rows_is_not_called_equivalent_when_it_exceeds_the_margin(
    simulations: ModuleType,
) -> None:
    found = simulations.shift(40, 8.0, REPEAT, DRAWS)
    assert found["excess"] > 0.02
    assert found["ks"]["share"] == pytest.approx(0.87, abs=3 * sqrt(0.87 * 0.13 / REPEAT))
    assert found["equivalence"]["share"] <= allowed(0.08)
