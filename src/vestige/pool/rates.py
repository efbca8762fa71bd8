"""Rates with intervals that count trained models, not repetitions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable
from statistics import NormalDist

from vestige.contracts import Record

__all__ = ["Rate", "clustered"]

LEVEL = 0.95


class Rate(Record):
    """How often something was said. hits of count; clusters: trained models behind them; low, high: 95 %
    Wilson interval of the effective number of repetitions. value, low, high on [0, 1]."""

    hits: int
    count: int
    clusters: int
    value: float
    low: float
    high: float


def clustered(said: Iterable[tuple[Hashable, bool]]) -> Rate | None:
    """Wilson's interval with the number of repetitions divided by the design effect.

    said: the trained model that a repetition belongs to, and whether it was said. The design effect compares
    the variance between models with that of independent repetitions (Kish 1965; Korn and Graubard 1998); it
    counts from 1 on. Where all repetitions agree it cannot be seen, and the number of models is taken. None
    without repetitions.
    """
    groups: dict[Hashable, list[bool]] = defaultdict(list)
    for cluster, hit in said:
        groups[cluster].append(hit)
    count, hits = sum(map(len, groups.values())), sum(map(sum, groups.values()))
    if not count:
        return None
    p, models = hits / count, len(groups)
    if 0 < hits < count and models > 1:
        between = sum((sum(group) - p * len(group)) ** 2 for group in groups.values())
        variance = models / (models - 1) * between / count**2
        effective = min(float(count), p * (1 - p) / variance) if variance > 0 else float(count)
        effective = max(effective, 1.0)
    else:
        effective = float(models)
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    centre = (p + z * z / (2 * effective)) / (1 + z * z / effective)
    half = z * math.sqrt(p * (1 - p) / effective + z * z / (4 * effective**2)) / (1 + z * z / effective)
    return Rate(
        hits=hits,
        count=count,
        clusters=models,
        value=p,
        low=max(0.0, centre - half),
        high=min(1.0, centre + half),
    )
