"""Several-seed metrics as the definitions word them: loops over models, rows, bins; plain Python floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from slow_metrics import accuracy, clipped, js2, mean

Table = Sequence[Sequence[float]]
Group = dict[int, dict[str, Table]]


def log_odds(row: Sequence[float], gold: int) -> float:
    p = clipped(row)
    return math.log(p[gold]) - math.log(math.fsum(value for place, value in enumerate(p) if place != gold))


def bins_of(values: Sequence[float], low: float, high: float, count: int) -> list[int]:
    """How many values fall in each bin [edge_j, edge_j+1), the last one closed."""
    found = [0] * count
    for value in values:
        place = 0
        while place < count - 1 and value >= low + (high - low) * (place + 1) / count:
            place += 1
        found[place] += 1
    return found


def klom(unlearned: Group, oracle: Group, gold: dict[str, Sequence[int]], view: str = "F") -> float:
    rows = []
    for row, target in enumerate(gold[view]):
        u = [log_odds(model[view][row], target) for model in unlearned.values()]
        o = [log_odds(model[view][row], target) for model in oracle.values()]
        low, high = min(u + o), max(u + o)
        p = [(n / len(u) + 1e-5) / (1 + 20e-5) for n in bins_of(u, low, high, 20)]
        q = [(n / len(o) + 1e-5) / (1 + 20e-5) for n in bins_of(o, low, high, 20)]
        rows.append(math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
    return mean(rows)


def auc(positives: Sequence[float], negatives: Sequence[float]) -> float:
    won = 0.0
    for high in positives:
        for low in negatives:
            won += 1.0 if high > low else 0.5 if high == low else 0.0
    return won / (len(positives) * len(negatives))


def spread(margins: Sequence[Sequence[float]]) -> float:
    """Pooled standard deviation within rows of (models x rows)."""
    rows = list(zip(*margins, strict=True))
    variances = [math.fsum((v - mean(row)) ** 2 for v in row) / (len(row) - 1) for row in rows]
    return max(math.sqrt(mean(variances)), 1e-6)


def u_lira(unlearned: Group, oracle: Group, gold: dict[str, Sequence[int]]) -> float:
    sides = [
        [
            [log_odds(row, target) for row, target in zip(group[seed]["F"], gold["F"], strict=True)]
            for seed in sorted(group)
        ]
        for group in (unlearned, oracle)
    ]
    scores: list[list[float]] = [[], []]
    for side in (0, 1):
        for place, judged in enumerate(sides[side]):
            left_out = {side: place, 1 - side: place % len(sides[1 - side])}
            fits = []
            for other in (0, 1):
                kept = [m for index, m in enumerate(sides[other]) if index != left_out[other]]
                fits.append(([mean(values) for values in zip(*kept, strict=True)], spread(kept)))
            for row, value in enumerate(judged):
                logs = [-(((value - m[row]) / sd) ** 2) / 2 - math.log(sd) for m, sd in fits]
                scores[side].append(logs[0] - logs[1])
    return auc(*scores)


def membership(unlearned: Group, gold: dict[str, Sequence[int]]) -> float:
    found = []
    for model in unlearned.values():
        areas, weights = [], []
        for one in sorted(set(gold["F"]) & set(gold["G"])):
            f, g = (
                [row[one] for row, target in zip(model[view], gold[view], strict=True) if target == one]
                for view in ("F", "G")
            )
            areas.append(auc(f, g))
            weights.append(len(f) * len(g) / (len(f) + len(g) + 1))
        value = math.fsum(a * w for a, w in zip(areas, weights, strict=True)) / math.fsum(weights)
        found.append(max(value, 1 - value))
    return mean(found)


def tow(unlearned: Group, oracle: Group, gold: dict[str, Sequence[int]]) -> float:
    found = []
    for seed in sorted(set(unlearned) & set(oracle)):
        value = 1.0
        for view in ("F", "G", "R"):
            gap = accuracy(unlearned[seed][view], gold[view]) - accuracy(oracle[seed][view], gold[view])
            value *= 1 - abs(gap)
        found.append(value)
    return mean(found)


def zrf(unlearned: Group, random: Group) -> float:
    return mean(
        [
            1 - mean([js2(p, q) for p, q in zip(unlearned[seed]["F"], random[seed]["F"], strict=True)])
            for seed in unlearned
            if seed in random
        ]
    )


SEED_DEFINITIONS: dict[str, Callable[[dict[str, Any]], float]] = {
    "klom": lambda m: klom(m["unlearned"], m["oracle"], m["gold"]),
    "u_lira": lambda m: u_lira(m["unlearned"], m["oracle"], m["gold"]),
    "membership_auc": lambda m: membership(m["unlearned"], m["gold"]),
    "tow": lambda m: tow(m["unlearned"], m["oracle"], m["gold"]),
    "zrf": lambda m: zrf(m["unlearned"], m["random"]),
}
