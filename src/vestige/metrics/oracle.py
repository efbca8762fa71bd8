"""Distance to the retrained model: oracle distance, displacement, gain and progress."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from vestige.contracts import Floats, Metric, RowTerms, Undefined
from vestige.metrics import METRICS
from vestige.metrics.arrays import bad_rows, paired, probability_rows
from vestige.statistics.terms import ReasonedTerms, divide, mean_of

__all__ = [
    "CLIP",
    "SMALLEST_DISPLACEMENT",
    "js2",
    "oracle_distance",
    "progress_terms",
    "progress_unstable",
    "renormalise",
]

CLIP = 1e-12
LARGEST_SUM_DEVIATION = 1e-3
SMALLEST_DISPLACEMENT = 1e-9
"""Below this displacement progress has no meaning."""
SMALL_DISPLACEMENT = 0.05
"""Below this displacement progress is unstable when no noise floor is known."""

PAPER = "Wu and Lim 2026"


def renormalise(p: ArrayLike) -> tuple[Floats, float]:
    """Rows divided by their sums. p (N, C), finite and at least 0 -> ((N, C) float64, largest |row sum - 1|).

    Raises InputError for another shape, NaN, infinite or negative entries, or a row of zeros.
    """
    rows = probability_rows(p)
    sums = rows.sum(axis=1, keepdims=True)
    if (sums <= 0).any():
        raise bad_rows("probabilities", "rows that sum to 0", (sums <= 0)[:, 0], "a positive sum a row")
    deviation = float(np.abs(sums - 1).max()) if len(rows) else 0.0
    return rows / sums, deviation


def js2(p: ArrayLike, q: ArrayLike) -> Floats:
    """Jensen-Shannon divergence in base 2 of each pair of rows. (N, C), (N, C) -> (N,) in [0, 1].

    Rows are clipped to 1e-12 and renormalised; KL2(p||m)/2 + KL2(q||m)/2 with m = (p + q)/2, clamped to
    [0, 1]. Symmetric, exactly 0 for equal rows. Raises InputError when shapes differ, entries are NaN,
    infinite or negative, or a row sum is off 1 by more than 1e-3. Lin 1991.
    """
    first, second = (_distribution(rows) for rows in paired(p, q, "oracle distance"))
    middle = (first + second) / 2
    divergence = (_kl2(first, middle) + _kl2(second, middle)) / 2
    return np.asarray(np.clip(divergence, 0.0, 1.0), dtype=np.float64)


def oracle_distance(p: ArrayLike, q: ArrayLike) -> Floats:
    """Per-row distance of a model to the oracle, base-2 JS. (N, C), (N, C) -> (N,) in [0, 1]; see `js2`.

    The oracle distance of a view is the mean over its rows. Wu and Lim 2026.
    """
    return js2(p, q)


def progress_terms(distance_full: ArrayLike, distance: ArrayLike) -> RowTerms:
    """Progress (D0 - OD) / D0 from per-row distances to the oracle, (N,) each: a ratio of aggregates.

    Undefined for D0 < 1e-9. 0 for the full model itself, 1 for the oracle, negative when further away.
    """
    full, other = np.asarray(distance_full, float), np.asarray(distance, float)
    terms = np.stack([full - other, full, np.ones_like(full)], axis=1)

    def finish(sums: Floats) -> Floats:
        displacement = divide(sums[..., 1], sums[..., 2])
        enough = displacement >= SMALLEST_DISPLACEMENT
        return np.asarray(np.where(enough, divide(sums[..., 0], sums[..., 1]), np.nan))

    return ReasonedTerms(terms, finish, "displacement below 1e-9")


def progress_unstable(displacement: float, noise_full: float | Undefined | None) -> bool:
    """Whether progress stands on a displacement within noise.

    D0 <= 2 x noise_full, or D0 < 0.05 when the noise floor is unknown (None or Undefined).
    """
    if noise_full is None or isinstance(noise_full, Undefined):
        return displacement < SMALL_DISPLACEMENT
    return displacement <= 2 * noise_full


def _oracle_distance(*, p: Floats, oracle: Floats) -> RowTerms:
    return mean_of(js2(p, oracle))


def _displacement(*, full: Floats, oracle: Floats) -> RowTerms:
    return mean_of(js2(full, oracle))


def _gain(*, p: Floats, full: Floats, oracle: Floats) -> RowTerms:
    return mean_of(js2(full, oracle) - js2(p, oracle))


def _progress(*, p: Floats, full: Floats, oracle: Floats) -> RowTerms:
    return progress_terms(js2(full, oracle), js2(p, oracle))


def _kl2(p: Floats, m: Floats) -> Floats:
    ratio = np.log2(p / m)
    ratio *= p
    return np.asarray(ratio.sum(axis=1), dtype=np.float64)


def _distribution(rows: Floats) -> Floats:
    off = np.abs(rows.sum(axis=1) - 1) > LARGEST_SUM_DEVIATION
    if off.any():
        raise bad_rows("probabilities", "row sums off 1 by more than 1e-3", off, "rows that sum to 1")
    clipped = np.maximum(rows, CLIP)
    clipped /= clipped.sum(axis=1, keepdims=True)
    return clipped


METRICS.register(
    Metric(
        name="oracle_distance",
        title="Oracle distance",
        definition="mean base-2 Jensen-Shannon divergence to the oracle",
        source=PAPER,
        direction="lower",
        views=("F", "G", "R"),
        needs=("p", "oracle"),
        compute=_oracle_distance,
    )
)
METRICS.register(
    Metric(
        name="displacement",
        title="Displacement",
        definition="oracle distance of the full model: how far retraining moves it",
        source=PAPER,
        direction="",
        views=("F", "G", "R"),
        needs=("full", "oracle"),
        compute=_displacement,
    )
)
METRICS.register(
    Metric(
        name="gain",
        title="Gain",
        definition="displacement minus oracle distance",
        source=PAPER,
        direction="higher",
        views=("F", "G"),
        needs=("p", "full", "oracle"),
        compute=_gain,
    )
)
METRICS.register(
    Metric(
        name="progress",
        title="Progress",
        definition="gain over displacement, a ratio of means; undefined for a displacement below 1e-9",
        source=PAPER,
        direction="higher",
        views=("F", "G"),
        needs=("p", "full", "oracle"),
        compute=_progress,
    )
)
