"""What attacks on a decision model leave behind: frozen records without texts and without row ids."""

from __future__ import annotations

from typing import Any, Literal

from vestige.attacks.reading import LevelReading
from vestige.contracts import Estimate, Record, Undefined

__all__ = [
    "POPULATIONS",
    "SEEN",
    "SETTINGS_CAVEAT",
    "SWAP",
    "UNSEEN",
    "DirectContrast",
    "ExposureCounts",
    "FreshHeadResult",
    "PooledRecovery",
    "Population",
    "RecoveryCurve",
    "RecoveryRecord",
    "RecoverySetting",
    "SwapPair",
    "Threshold",
]

Population = Literal["unseen", "seen", "label swap"]
UNSEEN: Population = "unseen"
"""Evaluation rows of the forgotten classes."""
SEEN: Population = "seen"
"""Deleted training rows that the adaptation of a setting does not see: other rows at other settings."""
SWAP: Population = "label swap"
"""Evaluation rows of X, after rows of X were trained as Y; the probability is that of Y."""
POPULATIONS: tuple[Population, ...] = (UNSEEN, SEEN, SWAP)

SETTINGS_CAVEAT = (
    "The settings (budgets x adaptation seeds) start from the same trained checkpoints: "
    "they are not replications, and pooled intervals are conditional on these checkpoints."
)


class SwapPair(Record):
    """Two retained classes: rows of `source` are trained as `target`."""

    source: str
    target: str

    @property
    def unit(self) -> str:
        """Name of the pair as a unit."""
        return f"{self.source} as {self.target}"


class Threshold(Record):
    """First evaluated update with a mean gold probability of at least `threshold`.

    censored: not reached; `update` is then the horizon, a lower bound (right-censored).
    """

    threshold: float
    update: int
    censored: bool


class RecoveryCurve(Record):
    """One checkpoint under one setting: mean gold probability and accuracy at each evaluation.

    area: trapezoid over the horizon. adjusted: area - start. headroom: adjusted / (1 - start).
    """

    gold_probability: tuple[float, ...]
    accuracy: tuple[float, ...]
    start: float
    area: float
    adjusted: float
    headroom: float | Undefined
    reached: tuple[Threshold, ...]


class RecoverySetting(Record):
    """One population under one budget and adaptation seed.

    exposed: rows that the adaptation saw. rows: that were scored; the contrasts' own `rows` are those drawn
    from, for seen rows all deleted ones, of which a setting uses its own. curves: checkpoint -> curve, "full"
    and "oracle" among them.
    contrasts: `g_abs`, `g_adj`, `g_headroom` (a ratio of means) and `g_row_headroom` (the mean of row ratios:
    another estimand), unlearned minus oracle; and levels of gold probability: `level`, after the last update,
    unlearned minus oracle; `start_level`, the unlearned model's before the first minus the oracle's after the
    last; `rise`, the unlearned model's after minus before. Records made before levels were read lack those.
    """

    population: Population
    k: int
    adapt_seed: int
    exposed: int
    rows: int
    units: int
    curves: dict[str, RecoveryCurve]
    contrasts: dict[str, Estimate]
    identity_residual: float


class PooledRecovery(Record):
    """The mean of each contrast over all settings of a population, averaged inside every draw."""

    population: Population
    settings: int
    contrasts: dict[str, Estimate]
    caveat: str = SETTINGS_CAVEAT


class DirectContrast(Record):
    """Difference of adjusted advantages R between two populations. k, adapt_seed: None where pooled over.

    specificity: R_unseen - R_swap. exposure: R_seen - R_unseen.
    """

    name: Literal["specificity", "exposure"]
    k: int | None = None
    adapt_seed: int | None = None
    difference: Estimate | Undefined
    caveat: str = ""


class ExposureCounts(Record):
    """What was verified before anything was adapted: counts of rows, and of rows in two sets (all 0).

    deleted: rows of the request. exposed: rows seen by any adaptation, over all budgets and seeds. seen:
    deleted rows that some setting scores; exposed_in_seen: of all settings, each on its own rows. nested:
    every smaller budget lies inside every larger one of its seed. pairs: of the label-swap control, by unit.
    """

    deleted: int
    exposed: int
    unseen: int
    seen: int | None = None
    swap_exposed: int | None = None
    swap_evaluated: int | None = None
    exposed_in_unseen: int
    exposed_in_seen: int | None = None
    swap_exposed_in_evaluated: int | None = None
    nested: bool
    units: tuple[str, ...]
    pairs: tuple[SwapPair, ...] = ()
    note: str = ""


class FreshHeadResult(Record):
    """One new head on one frozen backbone. checkpoint: "full" (the ceiling), "oracle" or "unlearned".

    metrics: `forgotten_accuracy.F`, `.G`, `gold_probability.F`, `.G`, `accuracy.R`. initial_sha256: of the
    head's weights before training, equal for all checkpoints of one initialisation.
    """

    checkpoint: str
    initialisation: int
    initial_sha256: str
    trained_rows: int
    metrics: dict[str, Estimate]


class RecoveryRecord(Record):
    """Recovery of one unlearned model: `recovery/<bundle>-s<seed>-<label>.json`.

    plan: budgets, adaptation seeds, evaluations, rates as used. seeds: population -> seed of its row draws,
    "units" -> of the unit draws, which all populations share by unit index. reading: of the pooled levels on
    unseen rows; None in records made before there was one. nodes: checkpoint -> key of its
    model. parts: key of each adaptation and fresh-head node. curves_sha256: of the Parquet table beside.
    """

    format: Literal["vestige-recovery-1"] = "vestige-recovery-1"
    name: str
    study: str
    stage: str
    bundle: str
    seed: int
    label: str
    method: str
    control: bool = False
    condition: str
    request: dict[str, Any]
    model: dict[str, Any]
    dataset: str
    rendering: str
    map_seed: int | None = None
    plan: dict[str, Any]
    updates: tuple[int, ...]
    weights: tuple[float, ...]
    draws: int
    seeds: dict[str, int]
    exposure: ExposureCounts
    settings: tuple[RecoverySetting, ...] = ()
    pooled: tuple[PooledRecovery, ...] = ()
    controls: tuple[DirectContrast, ...] = ()
    reading: LevelReading | Undefined | None = None
    fresh_heads: tuple[FreshHeadResult, ...] = ()
    nodes: dict[str, str]
    parts: tuple[str, ...]
    inputs: str
    curves: str = ""
    curves_sha256: str = ""
    caveats: tuple[str, ...] = ()

    def setting(self, population: str, k: int, adapt_seed: int) -> RecoverySetting:
        """The setting of this population, budget and seed. Raises KeyError."""
        for item in self.settings:
            if (item.population, item.k, item.adapt_seed) == (population, k, adapt_seed):
                return item
        raise KeyError((population, k, adapt_seed))
