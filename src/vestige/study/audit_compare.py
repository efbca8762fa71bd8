"""What a record has to say beside what it says, leaf by leaf and both ways round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from vestige.study.audit_folder import Finding

__all__ = [
    "TOLERANCE",
    "UNDEFINED",
    "Later",
    "Near",
    "Otherwise",
    "Place",
    "Said",
    "Words",
    "agree",
    "anything",
    "compared",
    "count",
    "number",
    "shown",
    "text",
    "texts",
    "time",
]

TOLERANCE = 1e-12
"""Largest difference of a recomputed value or bound: sums are added in another order here. It is scaled up
for a ratio by its denominator's mean, and for a square root by the root."""
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Near:
    """A number that the record has within `tolerance`; NaN: the record says that it is undefined."""

    value: float
    tolerance: float = TOLERANCE


@dataclass(frozen=True)
class Said:
    """Something that follows from nothing else in the folder, of which only the form is checked.

    form: what it has to be, in words; holds: whether a value is that. A limit of the audit names it.
    """

    form: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Later:
    """A key that folders of an earlier version may lack: it is noted there, and a failure elsewhere."""

    value: Any


@dataclass(frozen=True)
class Words:
    """Text that this version makes of the same numbers; of a folder that another version made, a difference
    is noted and not failed."""

    value: Any


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(float(value))


def _is_time(value: Any) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False


def _is_words(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    )


def _is_undefined(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"undefined"} and isinstance(value["undefined"], str)


UNDEFINED = Said("undefined, with a reason", _is_undefined)
number = Said("a number", _is_number)
count = Said(
    "a count of 0 or more",
    lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
)
text = Said("a text", lambda value: isinstance(value, str))
texts = Said("texts", lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value))
time = Said("a time with its zone", _is_time)
anything = Said("anything", lambda value: True)


def compared(expected: Any, stored: Any, found: Finding, what: str) -> bool:
    """Compare a whole record and enter every difference into `found` under the name `what`; whether it is as
    expected. Keys that only an earlier version lacks are noted together."""
    before = len(found.failed)
    other = Otherwise()
    for place, line in agree(expected, stored, found, other=other):
        found.failed.append(f"{what}: {line if not place else f'{shown(place)} {line}'}")
    found.noted += other.lines(what)
    return len(found.failed) == before


@dataclass
class Otherwise:
    """What another version of vestige did otherwise. lacking: places that its records do not have; reworded:
    places whose text reads otherwise."""

    lacking: list[str] = field(default_factory=list)
    reworded: list[str] = field(default_factory=list)

    def lines(self, what: str) -> list[str]:
        """A line for each, for the record `what`."""
        found = []
        for places, told in (
            (self.lacking, "lacks {}: made by an earlier version"),
            (self.reworded, "words {} otherwise than this version"),
        ):
            if places:
                more = f" and {len(places) - 1} more" if len(places) > 1 else ""
                found.append(f"{what} {told.format(places[0] + more)}")
        return found


def agree(
    expected: Any, stored: Any, found: Finding, place: Place = (), other: Otherwise | None = None
) -> Iterator[tuple[Place, str]]:
    """(place, what is wrong) of every leaf that is not as expected; leaves are counted in `found`."""
    if isinstance(expected, Later):
        expected = expected.value
    if isinstance(expected, Words):
        lines = list(agree(expected.value, stored, found, place))
        if lines and found.reworded and other is not None and _is_words(stored):
            other.reworded.append(shown(place))
        else:
            yield from lines
    elif isinstance(expected, Mapping):
        if not isinstance(stored, dict):
            yield place, f"is recorded as {_short(stored)}"
            return
        for key, value in expected.items():
            if key in stored and not _left_open(value, stored[key], found, other):
                yield from agree(value, stored[key], found, (*place, key), other)
            elif isinstance(value, Later) and other is not None and found.earlier:
                other.lacking.append(shown((*place, key)))
            else:
                found.count += 1
                yield (*place, key), "is missing"
        for key in stored:
            if key not in expected:
                found.count += 1
                yield (*place, key), "is nothing that a run writes"
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        if not isinstance(stored, list):
            yield place, f"is recorded as {_short(stored)}"
            return
        found.count += 1
        if len(stored) != len(expected):
            yield place, f"has {len(stored)} items, not {len(expected)}"
        for index, (value, item) in enumerate(zip(expected, stored, strict=False)):
            yield from agree(value, item, found, (*place, index), other)
    else:
        found.count += 1
        line = _leaf(expected, stored)
        if line:
            yield place, line


def _left_open(value: Any, stored: Any, found: Finding, other: Otherwise | None) -> bool:
    """Whether an earlier version left a key empty that it did not know."""
    earlier = found.earlier and other is not None and isinstance(value, Later)
    return earlier and stored is None and value.value is not None


def _leaf(expected: Any, stored: Any) -> str:
    """What is wrong with a leaf, "" where nothing is."""
    if isinstance(expected, Said):
        return "" if expected.holds(stored) else f"is {_short(stored)}, not {expected.form}"
    if isinstance(expected, float):
        expected = Near(expected, TOLERANCE * max(1.0, abs(expected)))
    if isinstance(expected, Near):
        if math.isnan(expected.value):
            return "" if _is_undefined(stored) else f"is undefined, recorded {_short(stored)}"
        near = _is_number(stored) and abs(expected.value - stored) <= expected.tolerance
        return "" if near else f"is {expected.value!r}, recorded {_short(stored)}"
    same = type(expected) is type(stored) and expected == stored
    if same:
        return ""
    if isinstance(expected, str) and isinstance(stored, str):
        expected, stored = _from_the_difference(expected, stored)
    return f"is {_short(expected)}, recorded {_short(stored)}"


def _from_the_difference(one: str, other: str) -> tuple[str, str]:
    """Two long texts from shortly before where they part, so that what differs is seen."""
    pairs = enumerate(zip(one, other, strict=False))
    same = next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))
    start = same - 20
    if max(len(one), len(other)) <= 70 or start <= 0:
        return one, other
    return f"...{one[start:]}", f"...{other[start:]}"


def shown(place: Place) -> str:
    """`models.2.metrics.gain.F` for people."""
    return ".".join(map(str, place))


def _short(value: Any) -> str:
    try:
        told = repr(value)
    except ValueError:  # a number of more digits than Python prints
        told = "a number of very many digits"
    return told if len(told) <= 80 else f"{told[:77]}..."
