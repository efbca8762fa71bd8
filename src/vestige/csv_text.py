"""CSV text of exported tables, in which no cell is a formula to a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

__all__ = ["csv_text", "sheet_cell", "text_of_sheet_cell"]

_FORMULA = re.compile(r"'*[=+\-@\t\r].")
"""How a cell begins that a spreadsheet would compute, or one that was kept from it before."""
_MARKED = re.compile(r"'+[=+\-@\t\r].")


def sheet_cell(value: object) -> object:
    """A cell as it is; text that a spreadsheet would take for a formula has `'` before it.

    Labels and names come from users and from files: `=HYPERLINK(...)` or `@SUM(...)` in one of them would
    run when the table is opened. Numbers, also as text, stay numbers.
    """
    if not isinstance(value, str) or not _FORMULA.match(value) or _is_number(value):
        return value
    return f"'{value}"


def text_of_sheet_cell(text: str) -> str:
    """The reverse of `sheet_cell`, for tables that are read again."""
    return text[1:] if _MARKED.match(text) and not _is_number(text) else text


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV: one header line, line feeds, every cell through `sheet_cell`."""
    made = io.StringIO()
    plain = csv.writer(made, lineterminator="\n")
    quoted = csv.writer(made, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for cells in (header, *rows):
        # A lone carriage return is no line end to this writer, and is one to readers.
        odd = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        (quoted if odd else plain).writerow([sheet_cell(cell) for cell in cells])
    return made.getvalue()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
