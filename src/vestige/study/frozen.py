"""Frozen settings: the record, and what a study may do with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from vestige.contracts import Margins, Record, Undefined
from vestige.errors import InputError, did_you_mean, first_five
from vestige.readers import read_json
from vestige.study.store import file_sha256

if TYPE_CHECKING:
    from vestige.study.plan import MethodEntry
    from vestige.study.store import Store

__all__ = [
    "FROZEN",
    "Frozen",
    "FrozenMethod",
    "check_family",
    "check_frozen",
    "chosen_methods",
    "origin_of",
    "read_frozen",
    "recorded",
    "taken",
]

FROZEN = "frozen.json"


class FrozenMethod(Record):
    """A method's settings, `epochs` the chosen one. settings: None where no candidate was feasible: such a
    method is not evaluated. candidates: how many were measured. unbracketed: settings with too few tested
    values for a choice to be at an edge.

    s: suppression of the chosen candidate on development rows. gap: its distance to the target of a record of
    matched suppression; unmatched: that is more than 0.1; among: settings that its candidates had to have.
    """

    method: str
    label: str
    control: bool
    settings: dict[str, Any] | None
    objective: float | None
    edges: tuple[str, ...]
    unbracketed: tuple[str, ...] = ()
    budget: int
    candidates: int = 0
    note: str = ""
    s: float | Undefined | None = None
    gap: float | None = None
    unmatched: bool = False
    among: dict[str, Any] = Field(default_factory=dict)


class Frozen(Record):
    """What was decided, when, from what. bundles: label -> hash of its units, evaluated and reserved ones.

    match: the suppression that candidates were matched to; None where the development objective chose.
    margins: what the confirmation's verdicts count as small; None in records made before verdicts existed.
    """

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
    margins: Margins | None = None
    match: float | None = None


def read_frozen(path: Path) -> Frozen:
    """The record in a file. Raises InputError."""
    try:
        needed = "the frozen.json that `vestige study freeze` wrote"
        return Frozen.model_validate(read_json(path, needed, "name that file"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(
            str(path),
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
            "what `vestige study freeze` wrote",
            "freeze again",
        ) from None


def recorded(store: Store, entry: MethodEntry) -> Frozen | None:
    """The record that a method takes its settings from. None: none yet."""
    if entry.frozen is True:
        return read_frozen(store.path(FROZEN)) if store.has(FROZEN) else None
    return read_frozen(Path(str(entry.frozen))) if entry.frozen else None


def taken(store: Store, entry: MethodEntry) -> Frozen | None:
    """As `recorded`; a record from elsewhere is copied in."""
    found = recorded(store, entry)
    path = store.path(FROZEN) if entry.frozen is True else Path(str(entry.frozen))
    if found is not None and path.resolve() != store.path(FROZEN).resolve():
        store.write(f"frozen-{file_sha256(path)[:16]}.json", path.read_bytes())
    return found


def chosen_methods(
    frozen: Frozen, method: str, label: str | None, place: str, *, exploratory: bool
) -> tuple[FrozenMethod, ...]:
    """What a record says of a method: one listing, or all where it lists several and no label picks one.

    Raises InputError when it is not there, or was matched on suppression and the study is not exploratory.
    """
    if frozen.match is not None and not exploratory:
        raise InputError(
            place,
            f"settings matched to a suppression of {frozen.match:g} in a study that is not exploratory",
            "stage: exploratory",
            "set it, or take settings that the development objective chose",
        )
    listed = [item for item in frozen.methods if item.method == method]
    if not listed:
        known = ", ".join(sorted({item.method for item in frozen.methods}))
        raise InputError(place, "a method that was not tuned", f"one of {known}", "tune it")
    if len(listed) > 1 and label is not None:
        labels = {item.label: item for item in listed}
        if label not in labels:
            raise InputError(place, f"label '{label}'", "a label in the record", did_you_mean(label, labels))
        listed = [labels[label]]
    return tuple(listed)


def origin_of(frozen: Frozen, item: FrozenMethod) -> dict[str, Any]:
    """Where settings come from and when they were frozen, for a result's provenance. No paths."""
    found: dict[str, Any] = {
        "study": frozen.study,
        "stage": frozen.stage,
        "time": frozen.time,
        "data": frozen.data,
        "model": frozen.model,
        "seed": frozen.seed,
        "development": frozen.development,
        "tuning_sha256": frozen.tuning_sha256,
        "edges": list(item.edges),
        "family": list(frozen.family),
    }
    if isinstance(item.s, float):
        found["development_s"] = item.s
    if frozen.match is not None:
        found |= {"target_s": frozen.match, "gap": item.gap, "unmatched": item.unmatched}
    return found


def check_frozen(
    frozen: Frozen,
    *,
    data: str,
    model: dict[str, Any],
    training: dict[str, Any],
    margins: Margins,
    place: str,
) -> None:
    """Refuse a confirmation on other data or another model than its settings were frozen on, or with other
    margins."""
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
    if frozen.margins is not None and frozen.margins != margins:
        differ = [
            key for key in Margins.model_fields if getattr(frozen.margins, key) != getattr(margins, key)
        ]
        raise InputError(
            f"{place}: margins",
            f"another margin of {first_five(differ)} than was frozen",
            f"{differ[0]}: {getattr(frozen.margins, differ[0])}",
            "margins are set before results: take the frozen ones, or set stage: exploratory",
        )


def check_family(family: Sequence[str], frozen: Sequence[str], place: str) -> None:
    """Refuse a confirmation that corrects over other methods than were frozen together."""
    differ = sorted(set(frozen) ^ set(family))
    if differ:
        raise InputError(
            f"{place}: family",
            f"{first_five(sorted(family)) or 'none'}",
            f"the frozen family: {first_five(sorted(frozen)) or 'none'}",
            "a confirmation corrects over every method of the family: list them all under their labels",
        )
