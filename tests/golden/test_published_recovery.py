"""The recovery contrasts against the published table: areas, adjusted and headroom contrasts, the identity.

Numbers there have three decimals; each sum of printed numbers may be off by half of the last place a term.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from vestige.metrics import recovery_contrasts
from vestige.metrics.recovery import horizon_weights

pytestmark = pytest.mark.shared
T = (0, 1, 5, 10, 25)
HALF = 0.0005


@pytest.fixture(scope="module")
def table(paper: Path) -> list[dict[str, str]]:
    with (paper / "dub_recovery.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def curve(start: float, area: float) -> list[float]:
    """A curve with this start and this area: one level from the first update on."""
    first = horizon_weights(T)[0]
    level = (area - first * start) / (1 - first)
    return [start, *[level] * 4]


def test_every_printed_contrast_follows_from_printed_starts_and_areas(table: list[dict[str, str]]) -> None:
    assert len(table) >= 12
    for row in table:
        value = {name: float(row[name]) for name in row if name not in ("model", "id") and _number(row[name])}
        u, o = curve(value["p0_u"], value["a_abs_u"]), curve(value["p0_o"], value["a_abs_o"])
        found = recovery_contrasts(T, u, o)
        assert found.area_unlearned == pytest.approx(value["a_abs_u"], abs=1e-12)
        assert found.g_abs == pytest.approx(value["g_abs"], abs=3 * HALF + 1e-9), row["id"]
        assert found.adjusted_unlearned == pytest.approx(value["a_adj_u"], abs=3 * HALF + 1e-9), row["id"]
        assert found.adjusted_oracle == pytest.approx(value["a_adj_o"], abs=3 * HALF + 1e-9), row["id"]
        assert found.g_adj == pytest.approx(value["g_adj"], abs=5 * HALF + 1e-9), row["id"]
        # A start that is off by e moves (A - p)/(1 - p) by at most e (1 + H)/(1 - p) < 4 e.
        assert found.g_headroom == pytest.approx(value["g_h"], abs=9 * HALF), row["id"]
        assert found.identity_residual <= 1e-15
        printed = value["p0_u"] - value["p0_o"] + value["g_adj"]
        assert value["g_abs"] == pytest.approx(printed, abs=4 * HALF + 1e-9), row["id"]


def test_printed_thresholds_are_evaluated_updates_or_censored(table: list[dict[str, str]]) -> None:
    for row in table:
        for name in ("t50_u", "t50_o", "t80_u", "t80_o"):
            censored = row[f"{name}_censored"] == "True"
            assert censored == (row[name] == "")
            assert censored or int(row[name]) in T


def test_the_printed_weights() -> None:
    np.testing.assert_allclose(horizon_weights(T), [0.02, 0.10, 0.18, 0.40, 0.30], atol=1e-12)


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
