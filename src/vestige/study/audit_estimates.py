"""Numbers with bootstrap intervals as a record has to have them, from the audit's own draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vestige.study.audit_compare import TOLERANCE, UNDEFINED, Near
from vestige.study.audit_numbers import Resampled

__all__ = ["estimate", "interval"]


def interval(
    again: Resampled,
    kind: str,
    *,
    seed: int,
    draws: int,
    condition: str,
    apart: tuple[int, int] | None = None,
) -> Any:
    """A percentile interval. kind: "row" or "unit". apart: seeds of two views that were drawn apart."""
    defined = again.draws[~np.isnan(again.draws)]
    if math.isnan(again.value) or again.n < 2 or not len(defined):
        return UNDEFINED
    told = f"{kind} bootstrap"
    if apart is not None:
        told += f", views drawn apart with seeds {apart[0]} and {apart[1]}"
    share = 1 - len(defined) / len(again.draws)
    left_out = f", {share:.1%} of the draws undefined and left out" if share else ""
    return {
        "low": Near(again.quantile(0.025), TOLERANCE * again.scale),
        "high": Near(again.quantile(0.975), TOLERANCE * again.scale),
        "kind": f"{told}, percentile{left_out}",
        "level": 0.95,
        "draws": draws,
        "seed": seed,
        "condition": condition,
    }


def estimate(
    row: Resampled,
    unit: Resampled | None,
    *,
    seeds: tuple[int, int],
    draws: int,
    condition: str,
    apart: tuple[int, int] | None = None,
    unstable: bool = False,
    note: str = "",
) -> dict[str, Any]:
    """A value with its intervals over rows and over units. seeds: of the draws of each."""
    common: dict[str, Any] = {"draws": draws, "condition": condition}
    return {
        "value": Near(row.value, TOLERANCE * row.scale),
        "row": interval(row, "row", seed=seeds[0], apart=apart, **common),
        "unit": None if unit is None else interval(unit, "unit", seed=seeds[1], **common),
        "rows": row.n,
        "units": None if unit is None else unit.n,
        "unstable": unstable,
        "note": note,
    }
