"""Tables of stored studies of language models."""

from __future__ import annotations

import csv
from collections.abc import Mapping

from generated.base import RECORDS, table


def rows_of(study: str, name: str) -> list[dict[str, str]]:
    """The rows of a stored CSV file."""
    lines = (RECORDS / study / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(lines))


def number(text: str, digits: int = 2) -> str:
    """A number cut to its digits; a dash where it is undefined."""
    try:
        return f"{float(text):.{digits}f}"
    except ValueError:
        return "-"


def three(row: Mapping[str, str], name: str, digits: int = 2) -> str:
    """A measure on forget, adjacent and generic text."""
    return " / ".join(number(row[f"{name}_{role}"], digits) for role in "fag")


def known_facts(study: str) -> str:
    """One row a method: classes, shifts, answers, relearning and distance to the exact oracle."""
    rows = []
    for row in rows_of(study, "table.csv"):
        defined = not row["class_name"].startswith("undefined")
        rows.append(
            (
                row["label"],
                row["class_name"] if defined else "no weight changes",
                row["calibrated"] if defined and not row["calibrated"].startswith("undefined") else "-",
                three(row, "cofi", 1),
                f"{number(row['accuracy_f'])} / {number(row['accuracy_a'])}",
                number(row["relearn_after"]),
                three(row, "distance", 3),
                number(row["weights"]),
            )
        )
    header = (
        "model",
        "published class",
        "calibrated class",
        "CoFi F / A / G %",
        "accuracy F / A",
        "accuracy F after relearning",
        "distance to the oracle F / A / G",
        "weights",
    )
    return table(header, rows)


def way(study: str) -> str:
    """One row a checkpoint: class, shifts, the score that relearning starts from and ends at."""
    rows = [
        (
            row["label"],
            row["class_name"],
            three(row, "cofi"),
            number(row["relearn_before"], 3),
            number(row["relearn_after"], 3),
            number(row["beyond"], 3),
            row["reading"],
        )
        for row in rows_of(study, "table.csv")
    ]
    header = (
        "model",
        "published class",
        "CoFi F / A / G %",
        "token probability before relearning",
        "after",
        "change beyond the oracle's",
        "reading",
    )
    return table(header, rows)


def tofu(study: str) -> str:
    """TOFU's scores of every model, a row a model."""
    found = rows_of(study, "tofu.csv")
    return table(list(found[0]), [list(row.values()) for row in found])
