"""Records of `summaries/`: what several seeds and bundles say together. No texts, row ids or unit names."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vestige.contracts import Estimate, Evidence, Interval, Record, SeedEstimate, Undefined, Verdict, View
from vestige.statistics.decision_rules import Replication

__all__ = [
    "CellGain",
    "MethodPooled",
    "MethodReplication",
    "MethodSeeds",
    "MethodVerdict",
    "PairedDifference",
    "PooledSummary",
    "PooledView",
    "ReplicatedView",
    "ReplicationSummary",
    "SeedSummary",
    "Summary",
    "VerdictSummary",
]


class CellGain(Record):
    """One seed x bundle. gain: mean over units of the unit's mean gain; positive: share of units with a mean
    gain above 0; progress: the row ratio of means."""

    seed: int
    bundle: str
    gain: float
    positive: float | None = None
    progress: float | Undefined
    units: int
    rows: int


class ReplicatedView(Record):
    """The gain of one view over seeds x bundles. left_out: `seed 17`, `bundle 01` -> the estimate without.

    interval: the published nested bootstrap. crossed: over training seeds and units, which recur at every
    seed; None in records made before there was one.
    """

    view: View
    estimate: float
    interval: Interval | Undefined
    crossed: Interval | Undefined | None = None
    left_out: dict[str, float]
    cells: tuple[CellGain, ...]


class MethodReplication(Record):
    """One method over seeds x bundles. infeasible, missing: cells, as `seed 17, bundle 01`.

    decision: the published rule, on the nested bootstrap. crossed: the same rule on the crossed
    intervals; None in records made before there were any.
    """

    label: str
    method: str
    control: bool
    seeds: tuple[int, ...]
    bundles: tuple[str, ...]
    decision: Replication | Undefined
    crossed: Replication | Undefined | None = None
    views: tuple[ReplicatedView, ...]
    infeasible: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class PairedDifference(Record):
    """Second minus first of one method. across "seed": the same rows, two training seeds, intervals over rows
    and units drawn for both alike. across "bundle": other rows at one seed, no paired interval."""

    label: str
    view: View
    across: Literal["seed", "bundle"]
    within: str
    first: str
    second: str
    gain: Estimate
    progress: Estimate


class Summary(Record):
    """Base of the files. inputs: hash of the probabilities, draws and feasibility that it was made from."""

    inputs: str
    draws: int
    condition: str


class ReplicationSummary(Summary):
    """`summaries/replication.json`."""

    format: Literal["vestige-replication-1"] = "vestige-replication-1"
    methods: tuple[MethodReplication, ...]
    differences: tuple[PairedDifference, ...] = ()


class PooledView(Record):
    """Units pooled over bundles on one view. unit: all units drawn together; bundle: bundles, then units."""

    view: View
    estimate: float
    unit: Interval | Undefined
    bundle: Interval | Undefined
    by_bundle: dict[str, float]
    units: int
    bundles: int


class MethodPooled(Record):
    """One method, its units pooled over bundles. seeds: bundle -> training seeds that were averaged."""

    label: str
    method: str
    control: bool
    seeds: dict[str, tuple[int, ...]]
    views: tuple[PooledView, ...]


class PooledSummary(Summary):
    """`summaries/pooled.json`."""

    format: Literal["vestige-pooled-1"] = "vestige-pooled-1"
    methods: tuple[MethodPooled, ...]


class MethodSeeds(Record):
    """Metrics over the seeds of one method and bundle, by name."""

    label: str
    method: str
    control: bool
    bundle: str
    metrics: dict[str, SeedEstimate] = Field(default_factory=dict)


class MethodVerdict(Record):
    """The verdict on a method from all its training seeds of one bundle. seeds: those, two at least."""

    label: str
    method: str
    control: bool
    bundle: str
    seeds: tuple[int, ...]
    verdict: Verdict
    evidence: Evidence
    verdict_p: float | Undefined
    sentence: str


class VerdictSummary(Summary):
    """`summaries/verdicts.json`: no methods where each bundle was evaluated at one training seed."""

    format: Literal["vestige-method-verdicts-1"] = "vestige-method-verdicts-1"
    methods: tuple[MethodVerdict, ...]


class SeedSummary(Summary):
    """`summaries/seeds.json`."""

    format: Literal["vestige-seeds-1"] = "vestige-seeds-1"
    methods: tuple[MethodSeeds, ...]
