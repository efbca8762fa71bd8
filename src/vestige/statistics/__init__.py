"""Resampling, tests and decision rules on additive row terms. Never imports torch."""

from __future__ import annotations

from vestige.statistics.bootstrap import (
    DRAWS,
    LEVEL,
    ROW_SEEDS,
    UNIT_SEED_OFFSET,
    BootstrapResult,
    bootstrap_rows,
    bootstrap_two_views,
    bootstrap_units,
    bootstrap_units_two_views,
    estimate,
    minimum_detectable,
    row_counts,
)
from vestige.statistics.decision_rules import decide, feasible, replicates
from vestige.statistics.multiplicity import holm, intersection_union, one_sided_p
from vestige.statistics.terms import difference, mean_of, ratio_of, value_of

__all__ = [
    "DRAWS",
    "LEVEL",
    "ROW_SEEDS",
    "UNIT_SEED_OFFSET",
    "BootstrapResult",
    "bootstrap_rows",
    "bootstrap_two_views",
    "bootstrap_units",
    "bootstrap_units_two_views",
    "decide",
    "difference",
    "estimate",
    "feasible",
    "holm",
    "intersection_union",
    "mean_of",
    "minimum_detectable",
    "one_sided_p",
    "ratio_of",
    "replicates",
    "row_counts",
    "value_of",
]
