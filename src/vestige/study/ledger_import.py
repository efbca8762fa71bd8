"""Published numbers in `imported/<kind>.csv`, read into the same rows that a run gives. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from vestige.csv_text import text_of_sheet_cell
from vestige.errors import InputError, did_you_mean, shown
from vestige.readers import file_bytes
from vestige.readers.csv_files import read_csv
from vestige.study.ledger_rows import KINDS, LedgerRow

__all__ = ["FOLDER", "read_imported"]

FOLDER = "imported"
PREFIX = "dub_"
"""File names may carry it: `imported/dub_methods.csv` is `imported/methods.csv`."""


def read_imported(root: Path) -> dict[str, list[LedgerRow]]:
    """Kind -> rows of every CSV file in `root/imported`. Raises InputError naming file, line and column."""
    found: dict[str, list[LedgerRow]] = {}
    for path in sorted((root / FOLDER).glob("*.csv")):
        kind = path.stem.removeprefix(PREFIX)
        if kind not in KINDS:
            raise InputError(str(path), f"kind {shown(kind)}", "a known kind", did_you_mean(kind, KINDS))
        if kind in found:
            raise InputError(str(path), f"'{kind}' twice", "one file of a kind", "remove one of them")
        found[kind] = _rows(path, KINDS[kind])
    return found


def _rows(path: Path, row_type: type[LedgerRow]) -> list[LedgerRow]:
    table = read_csv(str(path), file_bytes(path, "a CSV file"))
    header = table.names
    known = {row_type.column(name): name for name in row_type.model_fields}
    ignored = {"imported"}
    for column in header:
        if (column not in known and column not in ignored) or column in ("origin", "printed"):
            raise InputError(
                f"{path}, header", f"column {shown(column)}", "a known column", did_you_mean(column, known)
            )
    missing = [
        column
        for column, name in known.items()
        if row_type.model_fields[name].is_required() and column not in header
    ]
    if missing:
        raise InputError(f"{path}, header", f"no column '{missing[0]}'", "all columns of its table", "add it")
    columns = [[text_of_sheet_cell(text) for text in table.texts(column)] for column in header]
    return [
        _row(path, table.where(row), row_type, dict(zip(header, cells, strict=True)), known)
        for row, cells in enumerate(zip(*columns, strict=True))
    ]


def _row(
    path: Path, where: str, row_type: type[LedgerRow], cells: dict[str, str], known: dict[str, str]
) -> LedgerRow:
    cells.pop("imported", None)
    values: dict[str, Any] = {
        column: None if text == "" and _may_be_empty(row_type, known[column]) else text
        for column, text in cells.items()
    }
    try:
        return row_type.model_validate(
            {**values, "imported": True, "origin": f"{FOLDER}/{path.name}", "printed": cells}
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        column = str(first["loc"][0]) if first["loc"] else ""
        raise InputError(
            f"{where}, column '{column}'",
            shown(str(first.get("input"))),
            first["msg"][:1].lower() + first["msg"][1:],
            "correct the cell",
        ) from None


def _may_be_empty(row_type: type[LedgerRow], name: str) -> bool:
    return type(None) in get_args(row_type.model_fields[name].annotation)
