"""What the columns of a prediction table must be: texts, options, fields and probabilities. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats
from vestige.decision.prediction_files import refuse_top_k
from vestige.errors import InputError, first_five, shown, suggestion
from vestige.readers import text_of_cell

__all__ = [
    "SUM_TOLERANCE",
    "VIEWS",
    "Objects",
    "check_fields",
    "check_options",
    "check_probabilities",
    "objects",
    "refuse_repeated",
    "texts",
]

SUM_TOLERANCE = 1e-3
"""Largest accepted distance of a row's sum from 1."""
VIEWS = ("F", "G", "R")

Objects = NDArray[np.object_]


def objects(values: list[str]) -> Objects:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def texts(values: Sequence[Any], field: str, subject: str, row_ids: list[str] | None = None) -> list[str]:
    """What a file or frame holds as text, by the rules of `vestige.readers`; "" where nothing is."""
    texts: list[str] = []
    for position, value in enumerate(values):
        text = text_of_cell(value)
        if text is None:
            where = f"row {shown(row_ids[position])}" if row_ids else f"number {position + 1}"
            raise InputError(
                subject, f"{field} {shown(repr(value))} in {where}", "text", f"write every {field} as text"
            )
        texts.append(text)
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise InputError(
            subject,
            f"half a surrogate pair in a value of {field}",
            "valid Unicode text",
            "check the export's encoding",
        ) from None
    return texts


def refuse_repeated(names: list[str], field: str, subject: str) -> None:
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    repeated = list(dict.fromkeys(name for name in names if name in seen or seen.add(name)))  # type: ignore[func-returns-value]
    raise InputError(
        subject,
        f"{field} given more than once: {first_five(repeated)}",
        f"each {field} once",
        "remove duplicates",
    )


def check_options(options: list[str], subject: str) -> None:
    if "" in options:
        raise InputError(
            subject, "an option without a name", "a name for every option", "name the column p:<option>"
        )
    refuse_repeated(options, "option", subject)
    if len(options) < 2:
        refuse_top_k(subject, f"one option in all ({first_five(options)})" if options else "no option")


def check_fields(
    row_ids: list[str], view: list[str], unit: list[str], gold: list[str], options: set[str], subject: str
) -> None:
    for field, values in (("view", view), ("gold", gold)):
        empty = [row for row, name in zip(row_ids, values, strict=True) if not name]
        if empty:
            raise InputError(
                subject,
                f"no {field} on {len(empty)} row(s): {first_five(empty)}",
                f"a {field} in every row",
                "fill it in, or leave these rows out of every model's file",
            )
    wrong = [row for row, name in zip(row_ids, view, strict=True) if name not in VIEWS]
    if wrong:
        found = first_five(dict.fromkeys(name for name in view if name not in VIEWS))
        raise InputError(
            subject,
            f"view {found} on {len(wrong)} row(s): {first_five(wrong)}",
            "view F, G or R",
            "F: deleted training rows; G: unseen rows of the deleted units; R: the other evaluation rows",
        )
    outside = [row for row, name in zip(row_ids, gold, strict=True) if name not in options]
    if outside:
        found = first_five(dict.fromkeys(name for name in gold if name not in options))
        raise InputError(
            subject,
            f"gold {found} outside the options on {len(outside)} row(s): {first_five(outside)}",
            "gold among the options",
            suggestion(next(name for name in gold if name not in options), options)
            or "give every option of the schema a probability, the gold option included",
        )
    unnamed = [row for row, v, u in zip(row_ids, view, unit, strict=True) if not u and v != "R"]
    if unnamed:
        raise InputError(
            subject,
            f"no unit on {len(unnamed)} row(s) of F or G: {first_five(unnamed)}",
            "the deleted unit of each row (class, cluster, customer)",
            "for class deletion write the gold option as unit",
        )


def check_probabilities(p: Floats, row_ids: Objects, options: tuple[str, ...], subject: str) -> float:
    """The largest distance of a row's sum from 1. Raises InputError."""
    absent = np.isnan(p)
    if absent.any():
        _refuse_absent(absent, row_ids, options, subject)
    for bad, what in ((~np.isfinite(p), "infinite"), (p < 0, "negative")):
        if bad.any():
            rows = np.flatnonzero(bad.any(axis=1))
            option = options[int(np.flatnonzero(bad[rows[0]])[0])]
            raise InputError(
                subject,
                f"{what} probabilities on {len(rows)} row(s): {first_five(row_ids[rows])} "
                f"(first: option {shown(option)})",
                "probabilities in [0, 1]",
                "export probabilities, not logits or log-probabilities",
            )
    with np.errstate(over="ignore"):
        deviation = np.abs(p.sum(axis=1) - 1.0)
    wrong = np.flatnonzero(deviation > SUM_TOLERANCE + 1e-12)
    if len(wrong):
        counts = (p[wrong] > 0).sum(axis=1)
        if len(wrong) == len(p) and counts.max() == counts.min() < len(options):
            refuse_top_k(
                subject, f"{counts[0]} of {len(options)} options above 0 and sums that are not 1 in every row"
            )
        with np.errstate(over="ignore"):
            sums = ", ".join(f"{shown(row_ids[row])} ({p[row].sum():.6g})" for row in wrong[:5])
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise InputError(
            subject,
            f"probabilities that do not sum to 1 on {len(wrong)} row(s): {sums}{more}",
            f"sums within {SUM_TOLERANCE:g} of 1",
            "these are percentages: divide by 100"
            if (deviation[wrong] > 98).all() and (deviation[wrong] < 100).all()
            else "export the full distribution over all options",
        )
    return float(deviation.max())


def _refuse_absent(
    absent: NDArray[np.bool_], row_ids: Objects, options: tuple[str, ...], subject: str
) -> None:
    rows = np.flatnonzero(absent.any(axis=1))
    given = (~absent).sum(axis=1)
    if len(rows) == len(row_ids) and given.max() == given.min():
        refuse_top_k(subject, f"{given[0]} of {len(options)} options in every row")
    names = [options[column] for column in np.flatnonzero(absent.any(axis=0))]
    raise InputError(
        subject,
        f"missing or NaN probabilities on {len(rows)} row(s): {first_five(row_ids[rows])}; options: "
        f"{first_five(names)}",
        "a probability for every row and option",
        "export the full distribution over all options",
    )
