"""Area under the ROC curve by ranks, within strata too, and what chance gives."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.contracts import Floats, Undefined

__all__ = ["auc", "permuted_auc", "stratified_auc"]

_BLOCK = 2_000_000
"""Random numbers of one chunk."""
_DECIMALS = 13
"""So that an area and an equal one of a permutation compare as equal."""


def auc(positives: ArrayLike, negatives: ArrayLike) -> float:
    """P(positive > negative) + P(equal) / 2, in [0, 1]. (m,), (n,), neither empty. Mann and Whitney 1947."""
    high, low = np.asarray(positives, dtype=np.float64), np.sort(np.asarray(negatives, dtype=np.float64))
    if not len(high) or not len(low):
        raise ValueError("an AUC needs at least one positive and one negative")
    below = np.searchsorted(low, high, side="left").sum()
    upto = np.searchsorted(low, high, side="right").sum()
    return float((int(below) + int(upto)) / 2 / (len(high) * len(low)))


def stratified_auc(scores: ArrayLike, positive: ArrayLike, strata: ArrayLike) -> Floats | Undefined:
    """AUC of pairs of one stratum, pooled over strata, of S models.

    scores (S, N): of the same rows -> (S,). positive (N,): bool; strata (N,): a name a row. A stratum
    with m positives and n negatives weighs m n / (m + n + 1) (van Elteren 1960); one without either is
    left out. Each in [0, 1]; ties count half. Undefined where no stratum has both.
    """
    found = _pooled(scores, positive, strata)
    if found is None:
        return Undefined(undefined="no stratum has positives and negatives")
    weighted, labels, _, offset = found
    return np.asarray(np.round(weighted @ labels.astype(np.float64) - offset, _DECIMALS))


def permuted_auc(
    scores: ArrayLike, positive: ArrayLike, strata: ArrayLike, *, draws: int, seed: int
) -> Floats:
    """`stratified_auc` when positives and negatives change places inside each stratum -> (draws, S).

    Every draw permutes rows, alike for all models. A draw gives each row a uniform number; the m smallest
    of a stratum are its positives. Raises ValueError where no stratum has both.
    """
    found = _pooled(scores, positive, strata)
    if found is None:
        raise ValueError("no stratum has positives and negatives")
    weighted, labels, groups, offset = found
    random = np.random.default_rng(seed)
    drawn = np.empty((draws, len(weighted)))
    chunk = max(1, _BLOCK // len(labels))
    for start in range(0, draws, chunk):
        keys = random.random((min(chunk, draws - start), len(labels)))
        chosen = np.zeros(keys.shape)
        for group in groups:
            count = int(labels[group].sum())
            smallest = np.argpartition(keys[:, group], count - 1, axis=1)[:, :count]
            np.put_along_axis(chosen, group[smallest], 1.0, axis=1)
        drawn[start : start + len(keys)] = chosen @ weighted.T - offset
    return np.round(drawn, _DECIMALS)


def _pooled(
    scores: ArrayLike, positive: ArrayLike, strata: ArrayLike
) -> tuple[Floats, NDArray[np.bool_], list[NDArray[np.intp]], float] | None:
    """What the pooled AUC is linear in: weighted ranks (S, N), labels, rows of each stratum, and what to take
    off. None where no stratum has both."""
    from scipy.stats import rankdata  # slow to import, and nothing else here needs it

    table = np.atleast_2d(np.asarray(scores, dtype=np.float64))
    labels = np.asarray(positive, dtype=np.bool_)
    _, place = np.unique(np.asarray(strata), return_inverse=True)
    if not table.shape[1] == len(labels) == len(place):
        raise ValueError("scores, labels and strata must be of the same rows")
    weighted, groups, shares, offset = np.zeros_like(table), [], [], 0.0
    for one in range(int(place.max()) + 1 if len(place) else 0):
        group = np.flatnonzero(place == one)
        m = int(labels[group].sum())
        n = len(group) - m
        if m and n:
            groups.append(group)
            shares.append(1 / (m + n + 1))  # the stratum's weight over its m n pairs
            weighted[:, group] = shares[-1] * rankdata(table[:, group], axis=1)
            offset += shares[-1] * m * (m + 1) / 2
    if not groups:
        return None
    total = sum(
        share * labels[group].sum() * (~labels[group]).sum()
        for share, group in zip(shares, groups, strict=True)
    )
    return weighted / total, labels, groups, float(offset / total)
