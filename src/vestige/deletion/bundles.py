"""Bundles: disjoint sets of units in hash order, the first for development, reserved ones kept as hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

from vestige.contracts import Record
from vestige.errors import InputError, did_you_mean, shown
from vestige.seeds import digest

__all__ = ["DEVELOPMENT_BUNDLE", "BundlePlan", "hash_order", "hash_units", "plan_bundles", "reserved_units"]

DEVELOPMENT_BUNDLE = "00"
"""The bundle with a request and an oracle of its own that tuning reads, and nothing else does."""


class BundlePlan(Record):
    """Disjoint bundles in hash order. bundles: label -> units. reserved: label -> hash of its units, no more.

    eligible_sha256: hash of all eligible units. left: eligible units in no bundle.
    """

    salt: str
    size: int
    eligible: int
    eligible_sha256: str
    bundles: dict[str, tuple[str, ...]]
    reserved: dict[str, str]
    left: int

    def units(self, label: str) -> tuple[str, ...]:
        """The units of a bundle. Raises InputError for a reserved or unknown one."""
        if label in self.reserved:
            raise InputError(
                f"bundle {label}",
                "a reserved bundle",
                "one that is not reserved",
                "choose another, or plan anew",
            )
        if label not in self.bundles:
            raise InputError(
                f"bundle {label}",
                f"only bundles {', '.join(self.bundles)}",
                "a planned bundle",
                did_you_mean(label, self.bundles),
            )
        return self.bundles[label]

    def refuse_reserved(self, units_sha256: Iterable[str]) -> None:
        """Raise InputError when one of these hashes of units is a reserved bundle's."""
        labels = {sha: label for label, sha in self.reserved.items()}
        for sha in units_sha256:
            if sha in labels:
                raise InputError(
                    f"bundle {labels[sha]}",
                    "a result of a reserved bundle",
                    "none",
                    "remove it: the study no longer holds its reserve",
                )


def hash_order(units: Iterable[str], salt: str) -> tuple[str, ...]:
    """Distinct units sorted by sha256 of `"{salt}:{unit}"`. Decision-unlearning specification, section 3."""
    return tuple(sorted(set(units), key=lambda unit: hashlib.sha256(f"{salt}:{unit}".encode()).hexdigest()))


def hash_units(units: Iterable[str]) -> str:
    """The hash of a set of units, whatever their order."""
    return digest("units", *sorted(units))


def reserved_units(
    eligible: Iterable[str], salt: str, size: int, reserved: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Label -> the units that a reserved bundle of these eligible units holds."""
    ordered = hash_order(eligible, salt)
    return {label: ordered[int(label) * size : (int(label) + 1) * size] for label in reserved}


def plan_bundles(
    eligible: Iterable[str],
    salt: str,
    size: int,
    count: int,
    reserved: Collection[str] = (),
    *,
    short: bool = False,
    held: Mapping[str, Collection[str]] | None = None,
) -> BundlePlan:
    """`count` disjoint bundles of `size` units in hash order, labelled 00 (development), 01, 02, ...

    reserved: labels among them whose units are not kept, only their hash. short: the last may have fewer
    units, not none. held: the units of the reserved bundles where they were drawn elsewhere (label -> units):
    they are left out, and the other bundles take the units that remain in order. Raises InputError when too
    few units are eligible or a reserved label is 00 or beyond the last bundle.
    """
    if size < 1 or count < 1:
        raise ValueError("size and count must be at least 1")
    labels = [f"{place:02d}" for place in range(count)]
    for label in reserved:
        if label not in labels or label == DEVELOPMENT_BUNDLE:
            raise InputError(
                f"reserved bundle {shown(label)}",
                "the development bundle" if label == DEVELOPMENT_BUNDLE else "no such bundle",
                f"one of {', '.join(sorted(set(labels) - {DEVELOPMENT_BUNDLE})) or 'none'}",
                "correct the label or plan more bundles",
            )
    kept_away = {unit for units in (held or {}).values() for unit in units}
    ordered = hash_order(set(eligible) - kept_away, salt)
    drawn = [label for label in labels if held is None or label not in held]
    needed = size * (len(drawn) - 1) + 1 if short else size * len(drawn)
    if len(ordered) < needed:
        raise InputError(
            "bundles",
            f"{len(ordered)} eligible units",
            f"{needed} for {len(drawn)} bundles of {size}" + (", the last of at least 1" if short else ""),
            "plan fewer or smaller bundles, or train the full model longer",
        )
    bundles = {label: ordered[place * size : (place + 1) * size] for place, label in enumerate(drawn)}
    secret = {label: hash_units(units) for label, units in bundles.items() if label in reserved}
    secret |= {label: hash_units(units) for label, units in (held or {}).items()}
    return BundlePlan(
        salt=salt,
        size=size,
        eligible=len(ordered),
        eligible_sha256=hash_units(ordered),
        bundles={label: units for label, units in bundles.items() if label not in reserved},
        reserved=secret,
        left=max(0, len(ordered) - size * len(drawn)),
    )
