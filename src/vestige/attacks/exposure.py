"""Which rows an adaptation sees and which it is evaluated on: nested budgets, label-swap pairs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from vestige.attacks.records import SwapPair
from vestige.deletion.bundles import hash_order
from vestige.errors import InputError, did_you_mean
from vestige.seeds import digest

__all__ = ["SWAP_SALT", "chosen_labels", "exposed_rows", "refuse_overlap", "swap_pairs"]

SWAP_SALT = "label-swap"


def exposed_rows(
    rows_of: Mapping[str, Collection[str]], k: int, adapt_seed: int, *, salt: str = "exposure"
) -> dict[str, tuple[str, ...]]:
    """Class -> the k of its rows that the adaptation sees: the first in hash order of salt and seed.

    Budgets are nested: a smaller k takes the first rows of a larger one. Raises InputError for a class with
    fewer than k rows.
    """
    found = {}
    for name, rows in rows_of.items():
        if len(rows) < k:
            raise InputError(
                f"class '{name}'",
                f"{len(rows)} rows to expose",
                f"{k}, the budget per class",
                f"give budgets of at most {len(rows)}",
            )
        ordered = sorted(rows, key=lambda row: digest(salt, adapt_seed, row))
        found[name] = tuple(ordered[:k])
    return found


def swap_pairs(forgotten: Sequence[str], retained: Collection[str]) -> tuple[SwapPair, ...]:
    """One pair of retained classes (X, Y) per forgotten class, all distinct, in hash order of `label-swap`.

    Consecutive classes of the order form a pair. Raises InputError when too few classes are retained.
    """
    ordered = hash_order(set(retained) - set(forgotten), SWAP_SALT)
    needed = 2 * len(forgotten)
    if len(ordered) < needed:
        raise InputError(
            "label-swap control",
            f"{len(ordered)} retained classes with enough rows",
            f"{needed}: a pair for each of {len(forgotten)} forgotten classes",
            "set controls: false, delete fewer classes or expose fewer rows",
        )
    return tuple(SwapPair(source=ordered[2 * i], target=ordered[2 * i + 1]) for i in range(len(forgotten)))


def refuse_overlap(exposed: Collection[str], evaluated: Collection[str], population: str) -> None:
    """Raise InputError when a row that the adaptation sees is evaluated as well."""
    both = sorted(set(exposed) & set(evaluated))
    if both:
        raise InputError(
            f"rows of population '{population}'",
            f"{len(both)} that the adaptation sees, '{both[0]}' first",
            "evaluation rows that no adaptation has seen",
            "take them out of one of the two sets",
        )


def chosen_labels(asked: Sequence[str] | None, known: Sequence[str], subject: str) -> tuple[str, ...]:
    """The labels asked for, all known ones for None. Raises InputError for an unknown one."""
    for label in asked or ():
        if label not in known:
            raise InputError(
                subject, f"'{label}'", "the label of an evaluated method", did_you_mean(label, known)
            )
    return tuple(known) if asked is None else tuple(dict.fromkeys(asked))
