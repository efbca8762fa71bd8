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
from vestige.statistics.crossed import CrossedMean, Part, combined_quantile, crossed_mean
from vestige.statistics.decision_rules import decide, feasible, replicates
from vestige.statistics.hierarchical import (
    Cell,
    HierarchicalResult,
    ReplicationResult,
    hierarchical_bootstrap,
    leave_one_out,
    nested_mean,
    replication,
    unit_means,
)
from vestige.statistics.multiplicity import holm, intersection_union, one_sided_p
from vestige.statistics.noise import noise_interval
from vestige.statistics.pooled import PooledResult, pooled_units, seed_averaged
from vestige.statistics.ranks import auc, permuted_auc, stratified_auc
from vestige.statistics.terms import difference, mean_of, ratio_of, value_of

__all__ = [
    "DRAWS",
    "LEVEL",
    "ROW_SEEDS",
    "UNIT_SEED_OFFSET",
    "BootstrapResult",
    "Cell",
    "CrossedMean",
    "HierarchicalResult",
    "Part",
    "PooledResult",
    "ReplicationResult",
    "auc",
    "bootstrap_rows",
    "bootstrap_two_views",
    "bootstrap_units",
    "bootstrap_units_two_views",
    "combined_quantile",
    "crossed_mean",
    "decide",
    "difference",
    "estimate",
    "feasible",
    "hierarchical_bootstrap",
    "holm",
    "intersection_union",
    "leave_one_out",
    "mean_of",
    "minimum_detectable",
    "nested_mean",
    "noise_interval",
    "one_sided_p",
    "permuted_auc",
    "pooled_units",
    "ratio_of",
    "replicates",
    "replication",
    "row_counts",
    "seed_averaged",
    "stratified_auc",
    "unit_means",
    "value_of",
]
