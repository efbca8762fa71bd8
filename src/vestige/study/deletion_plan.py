"""What a study file says about its deletion, and what types cannot say about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field

from vestige.contracts import Record
from vestige.deletion.requests import Granularity
from vestige.errors import InputError, first_five, shown

__all__ = [
    "CUSTOM_BUNDLE",
    "DEVELOPMENT_BUNDLE",
    "BundleLabels",
    "DeletionPlan",
    "check_deletion",
    "each_once",
]

DEVELOPMENT_BUNDLE = "00"
CUSTOM_BUNDLE = "custom"
UNITS = {"class": 4, "association": 10}
"""Units of a bundle unless the study file says otherwise; these are the gated granularities."""
SHARE = 0.05
"""Of the training rows, in a bundle of an example deletion."""


def _two_digits(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(
            f"{item:02d}" if isinstance(item, int) and not isinstance(item, bool) else item for item in value
        )
    return value


BundleLabels = Annotated[tuple[str, ...], BeforeValidator(_two_digits)]
"""Labels of bundles; whole numbers are written with two digits, as 1 for 01."""


class DeletionPlan(Record):
    """What is deleted. Bundles are drawn in hash order of `salt`: 00 for tuning, 01 the next, and so on.

    class: `units_per_bundle` (default 4) eligible options. association: as many sub-intents (default 10, the
    last bundle fewer when they run out), one of each parent. example: `share` (default 0.05) of the training
    rows. custom: one request, called `custom`, from `where` (`column=value`) or `row_ids`; g_rows: its unseen
    evaluation rows, where they are known (default: those whose nearest training row is deleted). reserved:
    bundles whose hash alone is stored; nothing is ever trained or evaluated for them. drawn_by: another arm,
    or a run folder (relative to the study file), whose acquisition gate draws the bundles, so that models
    that differ (another rendering) delete the same units; what this model's own gate says of them is recorded
    as exceptions. reserved_by: likewise another run folder; the units that it reserves are reserved here too,
    whatever is eligible for this model. In a study with arms the first arm's reserve binds the others.
    """

    granularity: Granularity = "class"
    salt: str = "vestige"
    units_per_bundle: int | None = Field(None, ge=1)
    share: float | None = Field(None, gt=0, le=0.5)
    bundles: BundleLabels = ("01",)
    reserved: BundleLabels = ()
    where: str | tuple[str, ...] | None = None
    row_ids: tuple[str, ...] | None = None
    g_rows: tuple[str, ...] | None = None
    drawn_by: str | None = None
    reserved_by: str | None = None

    @property
    def bundled(self) -> bool:
        """Whether units are drawn into bundles: all but custom deletion."""
        return self.granularity != "custom"

    @property
    def gated(self) -> bool:
        """Whether units must have been learned by the full model: classes and associations."""
        return self.granularity in UNITS

    def size(self, deletable_rows: int) -> int:
        """Units of a bundle; deletable_rows: training rows but the out-of-scope ones (example deletion)."""
        if self.granularity == "example":
            return max(1, int((SHARE if self.share is None else self.share) * deletable_rows + 0.5))
        return self.units_per_bundle or UNITS.get(self.granularity, 1)


def check_deletion(deletion: DeletionPlan, subject: str) -> None:
    """Raise a one-line InputError for values that contradict each other. subject: the place in the file."""
    given = [key for key in ("where", "row_ids") if getattr(deletion, key) is not None]
    if deletion.bundled and deletion.g_rows is not None:
        raise InputError(
            f"{subject}: g_rows", "rows", f"none in {deletion.granularity} deletion", "remove the key"
        )
    for key, drawn in (("units_per_bundle", deletion.gated), ("share", deletion.granularity == "example")):
        if getattr(deletion, key) is not None and not drawn:
            raise InputError(
                f"{subject}: {key}",
                str(getattr(deletion, key)),
                f"none in {deletion.granularity} deletion",
                "set share" if deletion.granularity == "example" else "remove the key",
            )
    if deletion.reserved_by is not None and (deletion.drawn_by is not None or not deletion.reserved):
        raise InputError(
            f"{subject}: reserved_by",
            deletion.reserved_by,
            "reserved bundles, and no drawn_by, beside it",
            "remove the key",
        )
    if deletion.drawn_by is not None and not deletion.gated:
        raise InputError(
            f"{subject}: drawn_by",
            deletion.drawn_by,
            f"none in {deletion.granularity} deletion, which has no acquisition gate",
            "remove the key",
        )
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
            if not re.fullmatch(r"[0-9]{2}|[1-9][0-9]{2}", label):
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
