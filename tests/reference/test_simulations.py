"""Error rates of the published rule, by simulation with few repetitions.

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


def test_a_shift_beyond_any_margin_passes_ks_at_40_rows(simulations: ModuleType) -> None:
    found = simulations.shift(40, 8.0, REPEAT)
    assert found["excess"] > 0.02
    assert found["ks"]["share"] == pytest.approx(0.87, abs=3 * sqrt(0.87 * 0.13 / REPEAT))
