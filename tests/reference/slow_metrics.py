"""Every metric as the specification words it: one row at a time, plain Python floats, no vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Row = Sequence[float]
CLIP = 1e-12


def clipped(row: Row) -> list[float]:
    values = [max(float(value), CLIP) for value in row]
    total = math.fsum(values)
    return [value / total for value in values]


def js2(p: Row, q: Row) -> float:
    first, second = clipped(p), clipped(q)
    total = 0.0
    for a, b in zip(first, second, strict=True):
        m = (a + b) / 2
        total += a * math.log2(a / m) / 2 + b * math.log2(b / m) / 2
    return min(1.0, max(0.0, total))


def best(row: Row) -> list[int]:
    return [column for column, value in enumerate(row) if value == max(row)]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def distance(p: Sequence[Row], q: Sequence[Row]) -> float:
    return mean([js2(a, b) for a, b in zip(p, q, strict=True)])


def accuracy(p: Sequence[Row], gold: Sequence[int]) -> float:
    return mean([float(best(row) == [target]) for row, target in zip(p, gold, strict=True)])


def ece(p: Sequence[Row], gold: Sequence[int], bins: int = 15) -> float:
    total = 0.0
    for j in range(bins):
        inside = []
        for row, target in zip(p, gold, strict=True):
            confidence = max(row)
            first_and_zero = j == 0 and confidence == 0
            if first_and_zero or j / bins < confidence <= (j + 1) / bins:
                inside.append((confidence, float(best(row) == [target])))
        if inside:
            gap = mean([hit for _, hit in inside]) - mean([confidence for confidence, _ in inside])
            total += len(inside) / len(p) * abs(gap)
    return total


def mass(row: Row, forgotten: Sequence[bool]) -> float:
    return math.fsum(value for value, gone in zip(row, forgotten, strict=True) if gone)


def suppression(
    p: Sequence[Row], full: Sequence[Row], oracle: Sequence[Row], forgotten: Sequence[bool]
) -> float:
    removed = math.fsum(mass(f, forgotten) - mass(u, forgotten) for f, u in zip(full, p, strict=True))
    ideal = math.fsum(mass(f, forgotten) - mass(o, forgotten) for f, o in zip(full, oracle, strict=True))
    return removed / ideal


def margin(row: Row) -> float:
    ordered = sorted(row, reverse=True)
    return ordered[0] - ordered[1]


def simplex(v: Row) -> list[float]:
    """Projection by bisection on the shift t with sum max(v - t, 0) = 1."""
    low, high = min(v) - 1.0, max(v)
    for _ in range(200):
        middle = (low + high) / 2
        if math.fsum(max(value - middle, 0.0) for value in v) > 1:
            low = middle
        else:
            high = middle
    return [max(value - (low + high) / 2, 0.0) for value in v]


def moves(u: Row, f: Row, o: Row) -> tuple[float, float, float, list[float], list[float]]:
    """<dU, dO>, |dO|^2, a, r, dO of one row; a = 0 where dO is zero."""
    du = [a - b for a, b in zip(u, f, strict=True)]
    do = [a - b for a, b in zip(o, f, strict=True)]
    inner = math.fsum(a * b for a, b in zip(du, do, strict=True))
    length = math.fsum(b * b for b in do)
    a = inner / length if length > 0 else 0.0
    return inner, length, a, [x - a * y for x, y in zip(du, do, strict=True)], do


def aligned_coefficient(p: Sequence[Row], full: Sequence[Row], oracle: Sequence[Row]) -> float:
    rows = [moves(u, f, o) for u, f, o in zip(p, full, oracle, strict=True)]
    return math.fsum(row[0] for row in rows) / math.fsum(row[1] for row in rows)


def relative_residual(p: Sequence[Row], full: Sequence[Row], oracle: Sequence[Row]) -> float:
    rows = [moves(u, f, o) for u, f, o in zip(p, full, oracle, strict=True)]
    side = math.fsum(x * x for row in rows for x in row[3])
    return math.sqrt(side / math.fsum(row[1] for row in rows))


def magnitude_only(p: Sequence[Row], full: Sequence[Row], oracle: Sequence[Row]) -> float:
    values = []
    for u, f, o in zip(p, full, oracle, strict=True):
        _, _, a, _, do = moves(u, f, o)
        values.append(js2(simplex([x + a * y for x, y in zip(f, do, strict=True)]), o))
    return mean(values)


def residual_only(p: Sequence[Row], full: Sequence[Row], oracle: Sequence[Row]) -> float:
    values = []
    for u, f, o in zip(p, full, oracle, strict=True):
        r = moves(u, f, o)[3]
        values.append(js2(simplex([x + y for x, y in zip(o, r, strict=True)]), o))
    return mean(values)


def squared(p: Row, q: Row) -> float:
    return math.fsum((a - b) ** 2 for a, b in zip(p, q, strict=True))


DEFINITIONS: dict[str, Callable[..., float]] = {
    "oracle_distance": lambda p, oracle: distance(p, oracle),
    "displacement": lambda full, oracle: distance(full, oracle),
    "gain": lambda p, full, oracle: distance(full, oracle) - distance(p, oracle),
    "progress": lambda p, full, oracle: (
        (distance(full, oracle) - distance(p, oracle)) / distance(full, oracle)
    ),
    "accuracy": accuracy,
    "forgotten_accuracy": accuracy,
    "delta_accuracy": lambda p, full, gold: accuracy(p, gold) - accuracy(full, gold),
    "ece": ece,
    "delta_ece": lambda p, full, gold: ece(p, gold) - ece(full, gold),
    "gold_probability": lambda p, gold: mean([row[target] for row, target in zip(p, gold, strict=True)]),
    "confidence": lambda p: mean([max(row) for row in p]),
    "margin": lambda p: mean([margin(row) for row in p]),
    "forgotten_mass": lambda p, forgotten: mean([mass(row, forgotten) for row in p]),
    "suppression": suppression,
    "completeness": lambda p, oracle: mean(
        [float(best(a) == best(b)) for a, b in zip(p, oracle, strict=True)]
    ),
    "churn": lambda p, full: mean([float(best(a) != best(b)) for a, b in zip(p, full, strict=True)]),
    "total_variation": lambda p, oracle: mean(
        [math.fsum(abs(a - b) for a, b in zip(x, y, strict=True)) / 2 for x, y in zip(p, oracle, strict=True)]
    ),
    "activation_distance": lambda p, oracle: mean(
        [math.sqrt(squared(x, y)) for x, y in zip(p, oracle, strict=True)]
    ),
    "aligned_coefficient": aligned_coefficient,
    "relative_residual": relative_residual,
    "squared_error": lambda p, full, oracle: mean([squared(x, y) for x, y in zip(p, oracle, strict=True)]),
    "magnitude_only_distance": magnitude_only,
    "residual_only_distance": residual_only,
}
