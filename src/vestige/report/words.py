"""Numbers and names as a reader sees them. Pure functions from values to text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from vestige.contracts import Estimate, Interval, Undefined
from vestige.phrases import (
    LABEL_LIMIT,
    characters,
    count,
    counted,
    cut,
    listed,
    number_word,
    plain,
    short,
)

__all__ = [
    "LABEL_LIMIT",
    "Style",
    "characters",
    "conditions",
    "count",
    "counted",
    "cut",
    "interval_text",
    "listed",
    "number_word",
    "plain",
    "probability",
    "short",
    "styled",
    "unit_noun",
    "unit_words",
    "view_words",
]

Style = Literal["percent", "points", "share", "number", "signed", "small", "ratio", "count"]
"""How a value is printed.

percent: 0.59 -> `59 %`. points: -0.001 -> `-0.1` percentage points, signed. share: 0.901 -> `90.1 %`.
number: 0.2512 -> `0.251`. signed: `+0.001`. small: scientific below 0.001. ratio: two decimals.
count: `1,234`.
"""

_UNITS = {
    "class": ("intent", "intents"),
    "association": ("sub-intent", "sub-intents"),
    "cluster": ("sub-intent", "sub-intents"),
    "row": ("row", "rows"),
    "unit": ("unit", "units"),
}


def _fixed(value: float, digits: int, *, sign: bool = False) -> str:
    text = f"{value:+,.{digits}f}" if sign else f"{value:,.{digits}f}"
    return text.lstrip("+-") if not any(char in "123456789" for char in text) else text


def probability(value: float) -> str:
    """A p-value: four decimals below 0.01, else three; never `0`."""
    if value < 0.0001:
        return "below 0.0001"
    return f"{value:.4f}" if value < 0.01 else f"{value:.3f}"


def styled(value: float, style: Style) -> str:
    """`value` printed in `style`. A value that rounds to zero loses its sign. Raises ValueError on NaN."""
    if math.isnan(value):
        raise ValueError("NaN has no text; use Undefined with a reason")
    match style:
        case "percent":
            return f"{_fixed(value * 100, 0)} %"
        case "share":
            return f"{_fixed(value * 100, 1)} %"
        case "points":
            return _fixed(value * 100, 1, sign=True)
        case "signed":
            return _fixed(value, 3, sign=True)
        case "ratio":
            return _fixed(value, 2)
        case "count":
            return count(round(value))
        case "small":
            return f"{value:.1e}" if value != 0 and abs(value) < 0.001 else _fixed(value, 3)
        case _:
            return _fixed(value, 3)


def interval_text(interval: Interval | Undefined | None, style: Style) -> str:
    """The bounds in brackets without the unit, `[55, 63]`; `undefined: reason`; empty where there is none."""
    if interval is None:
        return ""
    if isinstance(interval, Undefined):
        return str(interval)
    low, high = (styled(bound, style).removesuffix(" %") for bound in (interval.low, interval.high))
    return f"[{low}, {high}]"


def estimate_text(estimate: Estimate | None, style: Style) -> str:
    """Value and row interval in one string: `59 % [55, 63]`."""
    if estimate is None:
        return "not measured"
    if isinstance(estimate.value, Undefined):
        return str(estimate.value)
    bounds = "" if isinstance(estimate.row, Undefined) else interval_text(estimate.row, style)
    return f"{styled(estimate.value, style)} {bounds}".strip()


def conditions(interval: Interval | Undefined | None, *, seeds: Sequence[int] = ()) -> str:
    """What an interval is: `row bootstrap, 5,000 draws, conditional on training seed 17`.

    seeds: bootstrap seeds; with them everything is stated, the level and the percentile method too. Without
    them the level is stated when it is not 95 %.
    """
    if interval is None:
        return "no interval"
    if isinstance(interval, Undefined):
        return f"interval {interval}"
    kind = plain(interval.kind)
    parts = [kind if seeds else kind.replace(", percentile", "")]
    if seeds or interval.level != 0.95:
        parts.append(f"{interval.level * 100:g} % level")
    if interval.draws:
        parts.append(f"{count(interval.draws)} draws")
    if seeds:
        parts.append(f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}")
    if interval.condition:
        parts.append(f"conditional on {short(interval.condition, 200)}")
    return ", ".join(parts)


def unit_noun(kind: str) -> str:
    """The plural of a unit kind: `intents`, `sub-intents`, `values`."""
    return _UNITS[kind][1] if kind in _UNITS else "values"


def unit_words(kind: str, value: int) -> str:
    """What is deleted, counted: `4 deleted intents`, `12 deleted values of customer_id`."""
    if kind in _UNITS:
        singular, plural = _UNITS[kind]
        return counted(value, f"deleted {singular}", f"deleted {plural}")
    name = short(kind)
    return counted(value, f"deleted value of {name}", f"deleted values of {name}")


def view_words(view: str, kind: str = "class") -> str:
    """What a view's rows are, in words."""
    if view == "F":
        return "deleted training rows"
    if view == "G":
        return {
            "class": "unseen rows of the deleted intents",
            "association": "unseen rows of the deleted sub-intents",
            "cluster": "unseen rows of the deleted sub-intents",
        }.get(kind, "unseen rows like the deleted ones")
    if view == "R":
        return "all other evaluation rows"
    return "deleted and unseen rows together"
