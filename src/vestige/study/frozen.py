"""Frozen settings: the record, and what a study may do with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from vestige.contracts import Record
from vestige.errors import InputError, first_five
from vestige.study.store import file_sha256, read_json

if TYPE_CHECKING:
    from vestige.study.plan import MethodEntry
    from vestige.study.store import Store

__all__ = ["FROZEN", "Frozen", "FrozenMethod", "check_family", "check_frozen", "read_frozen", "taken"]

FROZEN = "frozen.json"


class FrozenMethod(Record):
    """A method's settings, `epochs` the chosen one. settings: None where no candidate was feasible."""

    method: str
    label: str
    control: bool
    settings: dict[str, Any] | None
    objective: float | None
    edges: tuple[str, ...]
    budget: int
    note: str = ""


class Frozen(Record):
    """What was decided, when, from what. bundles: label -> hash of its units, evaluated and reserved ones."""

    format: str = "vestige-frozen-1"
    time: str
    study: str
    stage: str
    data: str
    model: dict[str, Any]
    training: dict[str, Any]
    seed: int
    development: dict[str, Any]
    bundles: dict[str, str]
    family: tuple[str, ...]
    equal_budgets: bool
    tuning_sha256: str
    methods: tuple[FrozenMethod, ...]


def read_frozen(path: Path) -> Frozen:
    """The record in a file. Raises InputError."""
    try:
        return Frozen.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(
            str(path),
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
            "what `vestige study freeze` wrote",
            "freeze again",
        ) from None


def taken(store: Store, entry: MethodEntry) -> Frozen | None:
    """The record that a method takes its settings from, copied in from elsewhere. None: none yet."""
    if entry.frozen is True:
        return read_frozen(store.path(FROZEN)) if store.has(FROZEN) else None
    path = Path(str(entry.frozen))
    found = read_frozen(path)
    if path.resolve() != store.path(FROZEN).resolve():
        store.write(f"frozen-{file_sha256(path)[:16]}.json", path.read_bytes())
    return found


def check_frozen(
    frozen: Frozen, *, data: str, model: dict[str, Any], training: dict[str, Any], place: str
) -> None:
    """Refuse a confirmation on other data or another model than its settings were frozen on."""
    for what, found, needed in (
        ("data", data, frozen.data),
        ("model", model, frozen.model),
        ("training", training, frozen.training),
    ):
        if found != needed:
            raise InputError(
                place,
                f"another {what} than the settings were frozen on",
                "the same in a confirmation",
                "tune and freeze on it, or set stage: transfer",
            )


def check_family(family: Sequence[str], records: Sequence[Frozen], place: str) -> None:
    """Refuse a confirmation that corrects over other methods than were frozen together."""
    frozen = {label for record in records for label in record.family}
    differ = sorted(frozen ^ set(family))
    if differ:
        raise InputError(
            f"{place}: family",
            f"{first_five(sorted(family)) or 'none'}",
            f"the frozen family: {first_five(sorted(frozen)) or 'none'}",
            "a confirmation corrects over every method that was frozen: list them all under their labels",
        )
