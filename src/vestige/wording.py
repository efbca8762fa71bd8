"""What settings say where they cannot be used, in words instead of types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from vestige.errors import InputError
from vestige.limits import LARGEST

__all__ = ["needed", "refuse_misread"]

_KINDS = {
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of keys",
    "mapping_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number below 2^63",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}


def needed(error: Mapping[str, Any]) -> str:
    """What one of pydantic's errors asks for: `a list`, `a number of at least 1`, `one of 'a', 'b'`."""
    kind, context = str(error["type"]), error.get("ctx") or {}
    if kind in _KINDS:
        return _KINDS[kind]
    if kind in _BOUNDS:
        word, key = _BOUNDS[kind]
        return f"a number {'of ' if word.startswith('at') else ''}{word} {context[key]}"
    if kind in ("literal_error", "enum"):
        return f"one of {context['expected']}"
    if kind == "value_error":
        return str(context.get("error", error["msg"]))
    message = str(error["msg"])
    return message[:1].lower() + message[1:]


def refuse_misread(raw: object, found: BaseModel, subject: str) -> None:
    """Raise InputError where pydantic read true or false as a number, or let a number beyond 2^63 through.

    raw: what was given. found: what was made of it. subject: what it is of; the place in it is put behind.
    """

    def at(place: str) -> str:
        return f"{subject}: {place}" if place else subject

    if wrong := _misread(raw, found):
        raise InputError(at(wrong[0]), str(wrong[1]).lower(), "a number", "correct the value")
    if huge := _beyond(found.model_dump()):
        raise InputError(at(huge), "a number of 2^63 or more", "a smaller one", "correct the value")


def _beyond(value: object, where: str = "") -> str | None:
    """The place of the first whole number beyond the largest; None: there is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return where if abs(value) >= LARGEST else None
    items: Iterable[tuple[object, object]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, item in items:
        place = f"{where}[{key}]" if isinstance(key, int) else f"{where}.{key}" if where else str(key)
        if (found := _beyond(item, place)) is not None:
            return found
    return None


def _misread(raw: object, value: object, where: str = "") -> tuple[str, object] | None:
    """(place, what was there) of the first true or false that was read as a number; None: there is none."""
    if isinstance(raw, bool):
        return None if isinstance(value, bool) or not isinstance(value, int | float) else (where, raw)
    pairs: list[tuple[str, object, object]] = []
    if isinstance(raw, Mapping) and isinstance(value, BaseModel | Mapping):
        for key, item in raw.items():
            read = value.get(key) if isinstance(value, Mapping) else getattr(value, str(key), None)
            pairs.append((f"{where}.{key}" if where else str(key), item, read))
    elif isinstance(raw, list | tuple) and isinstance(value, Sequence) and len(raw) == len(value):
        pairs += [(f"{where}[{place}]", *both) for place, both in enumerate(zip(raw, value, strict=True))]
    return next((found for place, one, other in pairs if (found := _misread(one, other, place))), None)
