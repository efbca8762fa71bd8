"""What a study file says about its deletion, and what types cannot say about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from vestige.contracts import Record
from vestige.errors import InputError, first_five, shown

__all__ = ["CUSTOM_BUNDLE", "DEVELOPMENT_BUNDLE", "DeletionPlan", "check_deletion", "each_once"]

DEVELOPMENT_BUNDLE = "00"
CUSTOM_BUNDLE = "custom"


class DeletionPlan(Record):
    """What is deleted. class: bundles of `units_per_bundle` eligible options in hash order of `salt`.

    custom: one request, called `custom`, from `where` (`column=value`) or `row_ids`; g_rows: its unseen
    evaluation rows, where they are known (default: those whose nearest training row is deleted). reserved:
    bundles whose hash alone is stored; nothing is ever trained or evaluated for them.
    """

    granularity: Literal["class", "custom"] = "class"
    salt: str = "vestige"
    units_per_bundle: int = Field(4, ge=1)
    bundles: tuple[str, ...] = ("01",)
    reserved: tuple[str, ...] = ()
    where: str | tuple[str, ...] | None = None
    row_ids: tuple[str, ...] | None = None
    g_rows: tuple[str, ...] | None = None

    @field_validator("bundles", "reserved", mode="before")
    @classmethod
    def _two_digits(cls, value: object) -> object:
        if isinstance(value, list | tuple):
            return tuple(
                f"{item:02d}" if isinstance(item, int) and not isinstance(item, bool) else item
                for item in value
            )
        return value


def check_deletion(deletion: DeletionPlan, subject: str) -> None:
    """Raise a one-line InputError for values that contradict each other. subject: the place in the file."""
    given = [key for key in ("where", "row_ids") if getattr(deletion, key) is not None]
    if deletion.granularity == "class" and deletion.g_rows is not None:
        raise InputError(f"{subject}: g_rows", "rows", "none in a class deletion", "remove the key")
    if deletion.granularity == "custom":
        if len(given) != 1:
            raise InputError(
                subject,
                " and ".join(given) or "neither where nor row_ids",
                "exactly one of them",
                "name the rows once",
            )
        if deletion.row_ids is not None:
            if not deletion.row_ids:
                raise InputError(f"{subject}: row_ids", "an empty list", "at least one row id", "add row ids")
            each_once(deletion.row_ids, f"{subject}: row_ids")
        return
    if given:
        raise InputError(
            f"{subject}: {given[0]}", "a value", "granularity: custom", "set it, or remove the key"
        )
    if not deletion.bundles:
        raise InputError(
            f"{subject}: bundles", "an empty list", "at least one bundle", "add, for example, '01'"
        )
    for key in ("bundles", "reserved"):
        each_once(getattr(deletion, key), f"{subject}: {key}")
        for label in getattr(deletion, key):
            if not re.fullmatch(r"[0-9]{2,3}", label):
                raise InputError(f"{subject}: {key}", shown(label), "labels such as '01'", "correct it")
            if label == DEVELOPMENT_BUNDLE:
                raise InputError(
                    f"{subject}: {key}",
                    "bundle 00",
                    "bundles from 01 on",
                    "00 is the development bundle: `vestige study tune` uses it",
                )
    both = sorted(set(deletion.bundles) & set(deletion.reserved))
    if both:
        raise InputError(
            subject, f"bundle {both[0]} in bundles and in reserved", "one of them", "remove it from one"
        )


def each_once(items: Sequence[object], subject: str) -> None:
    """Raise InputError when an item is repeated."""
    repeated = [item for index, item in enumerate(items) if item in items[:index]]
    if repeated:
        raise InputError(subject, f"{first_five(repeated)} twice", "each once", "remove the repetition")
