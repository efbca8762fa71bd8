"""Margins of a verdict and conditions that fail a check, as they stand on a command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vestige.errors import InputError, shown, suggestion

if TYPE_CHECKING:
    from vestige.contracts import Margins, Undefined, Verdict

__all__ = ["VERDICT_CONDITIONS", "conditions_of", "margins_of", "verdict_fails"]

VERDICT_CONDITIONS = {
    "damaged": "the verdict is damaged",
    "not-closer": "the verdict is neither equivalent nor closer",
    "not-equivalent": "the verdict is anything but equivalent",
}
"""Condition of `--fail-on` -> when it holds; without a verdict all but `damaged` hold."""


def verdict_fails(verdict: Verdict | Undefined | None, condition: str) -> bool:
    """Whether a condition of `VERDICT_CONDITIONS` holds for a model."""
    if condition == "damaged":
        return verdict == "damaged"
    return verdict not in (("equivalent", "closer") if condition == "not-closer" else ("equivalent",))


def conditions_of(given: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """The conditions of `--fail-on`. known: those there are. Raises InputError."""
    for value in given:
        if value not in known:
            remedy = suggestion(value, known) or "choose one of them"
            raise InputError("--fail-on", shown(value), f"one of {', '.join(known)}", remedy)
    return list(given)


def margins_of(given: Sequence[str]) -> Margins:
    """The margins that `--margin NAME=VALUE` set, others as they are. Raises InputError."""
    from vestige.contracts import Margins
    from vestige.study.plan import checked

    values: dict[str, float | str] = {}
    for item in given:
        name, sign, value = (part.strip() for part in item.partition("="))
        if not sign or not name:
            raise InputError("--margin", shown(item), "NAME=VALUE", "for example --margin memory=0.05")
        if name in values:
            raise InputError("--margin", f"{shown(name)} twice", "each margin once", "remove one of them")
        try:
            values[name] = float(value)
        except ValueError:
            values[name] = value
    return checked(Margins, values, "--margin")
