"""A table as a file holds it: named columns of cells, and the one rule by which a cell is text or number."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vestige.errors import InputError, did_you_mean, first_five, shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Cell", "Column", "Table", "described", "need_columns", "text_of_cell"]

Cell: TypeAlias = str | int | float | bool | list[Any] | dict[str, Any] | bytes | None
"""What a file holds in one place. None: nothing. Parquet's dates are ISO texts."""
_EXACT = 2.0**53
"""From here on, not every whole number is a float."""


def text_of_cell(value: Any) -> str | None:
    """A cell where text is wanted, by the table at the head of `vestige.readers`; "" for a missing one.

    None where a text is no possible reading: bytes, a list, an object.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return _number_text(value)
    if type(value).__name__ in ("NAType", "NaTType"):  # pandas' words for nothing
        return ""
    return str(value.isoformat()) if hasattr(value, "isoformat") else None


def _number_text(value: float | np.floating[Any]) -> str:
    number = float(value)
    if np.isnan(number):
        return ""
    if number.is_integer() and abs(number) < _EXACT:
        return str(int(number))
    return repr(number) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Column:
    """One column: a list of cells, or an Arrow array of texts, numbers or true and false.

    plain: everything is text because the format has nothing else, so a text may be read as a number.
    """

    data: Any
    plain: bool = False

    def __len__(self) -> int:
        return len(self.data)

    @property
    def cells(self) -> list[Cell]:
        """The cells as Python values. An empty cell of a format of plain text is None."""
        values: list[Cell] = self.data if isinstance(self.data, list) else self.data.to_pylist()
        return [None if value == "" else value for value in values] if self.plain else values

    def numbers(self) -> NDArray[np.float64] | None:
        """(n,) float64, NaN where nothing is. None where some cell is no number; `first_odd` says which."""
        if isinstance(self.data, list):
            return _list_numbers(self.data)
        import pyarrow as pa
        import pyarrow.compute as pc

        array = self.data.combine_chunks() if isinstance(self.data, pa.ChunkedArray) else self.data
        kind = array.type
        if not (self.plain or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return None
        try:
            found = array.cast(pa.float64(), safe=False)
        except pa.ArrowException:
            if not self.plain:
                return None
            trimmed = pc.utf8_trim_whitespace(array)
            try:
                found = pc.if_else(pc.equal(trimmed, ""), None, trimmed).cast(pa.float64())
            except pa.ArrowException:
                return None
        found = found.fill_null(float("nan")) if found.null_count else found
        # Not `to_numpy`, which imports pandas.
        return np.array(np.from_dlpack(found), dtype=np.float64) if len(found) else np.empty(0)

    def first_odd(self, accepted: Callable[[Cell], bool]) -> int:
        """The place of the first cell that `accepted` refuses."""
        return next(place for place, cell in enumerate(self.cells) if not accepted(cell))


def _list_numbers(cells: list[Any]) -> NDArray[np.float64] | None:
    kinds = {type(cell) for cell in cells}
    if not kinds <= {int, float, type(None)}:
        return None
    try:
        return np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)
    except OverflowError:  # a whole number beyond the largest float
        return None


def is_number(cell: Cell) -> bool:
    """Whether a cell can be read as a number, missing ones included."""
    return cell is None or (isinstance(cell, (int, float)) and not isinstance(cell, bool))


@dataclass(frozen=True)
class Table:
    """What a file holds, nothing of it judged yet.

    subject: the file's path, or what else the table is called in messages. columns: by name, in the file's
    order. rows: how many. place: says where a row (from 0) stands, such as `line 7`.
    """

    subject: str
    columns: Mapping[str, Column]
    rows: int
    place: Callable[[int], str]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def where(self, row: int, column: str = "") -> str:
        """The subject of a message about a row (from 0), and a column of it."""
        at = f"{self.subject}, {self.place(row)}"
        return f"{at}, {column}" if column else at

    def need(self, *names: str) -> None:
        """Raise InputError unless every one of `names` is a column."""
        need_columns(self.subject, self.names, names)

    def cells(self, name: str) -> list[Cell]:
        """The cells of a column as the file holds them; None for a missing one."""
        return self.columns[name].cells

    def texts(self, name: str) -> list[str]:
        """A column as text, "" where a cell is missing.

        Raises InputError that names the first row with bytes, a list, an object, or half a character.
        """
        found = [text_of_cell(cell) for cell in self.cells(name)]
        if None in found:
            self._refuse(name, found.index(None), "text")
        texts = [text or "" for text in found]
        try:
            "".join(texts).encode()
        except UnicodeEncodeError:
            odd = next(row for row, text in enumerate(texts) if _half(text))
            raise InputError(
                self.where(odd, f"field {shown(name)}"),
                "half a surrogate pair",
                "valid Unicode text",
                "check the export's encoding",
            ) from None
        return texts

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column as float64, NaN where a cell is missing. Raises InputError naming the first other cell."""
        column = self.columns[name]
        found = column.numbers()
        if found is None:
            odd = column.first_odd(_reads_as_number if column.plain else _is_float)
            self._refuse(name, odd, "a number")
        return found

    def lists(self, name: str) -> list[list[Any] | None]:
        """A column of lists, None where a cell is missing. A text has to hold a list as JSON.

        Raises InputError naming the first row that is none.
        """
        from vestige.readers.json_files import list_in

        found = [list_in(cell) for cell in self.cells(name)]
        for row, (cell, listed) in enumerate(zip(self.cells(name), found, strict=True)):
            if listed is None and cell is not None and cell != "":
                self._refuse(name, row, "a list")
        return found

    def frame(self) -> pd.DataFrame:
        """Every column whose cells are texts, numbers, true or false, as texts; others are left out.

        A column of lists or objects has no text to be found by.
        """
        import pandas as pd

        kept = {}
        for name, column in self.columns.items():
            if not any(isinstance(cell, (list, dict, bytes)) for cell in column.cells):
                kept[name] = self.texts(name)
        return pd.DataFrame(kept, index=range(self.rows)).astype(str)

    def _refuse(self, name: str, row: int, needed: str) -> NoReturn:
        cell = self.cells(name)[row]
        remedy = "correct this row"
        if isinstance(cell, bytes):
            remedy = "write the column as text in UTF-8, not as binary"
        elif needed == "a number" and isinstance(cell, bool):
            remedy = "write probabilities and counts as numbers, not as true and false"
        elif needed == "a number" and isinstance(cell, str):
            remedy = "write numbers, with a decimal point and without marks"
        raise InputError(self.where(row, f"field {shown(name)}"), described(cell), needed, remedy)


def described(cell: Cell) -> str:
    """A cell in words, for messages: `a list (...)`, `the text 'a'`, `true`, `1.5`."""
    if isinstance(cell, bytes):
        return f"bytes ({shown(repr(cell), 30)})"
    if isinstance(cell, (list, dict)):
        kind = "a list" if isinstance(cell, list) else "an object"
        return f"{kind} ({shown(json.dumps(cell, ensure_ascii=False, default=str), 40)})"
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return f"the text {shown(cell)}" if isinstance(cell, str) else str(cell)


def _is_float(cell: Cell) -> bool:
    """Whether a cell is missing, or a number that a float can hold."""
    if not is_number(cell):
        return False
    try:
        float(cell or 0)  # type: ignore[arg-type]
    except OverflowError:
        return False
    return True


def _reads_as_number(cell: Cell) -> bool:
    """Whether a text, its white space aside, reads as a number; a missing one does."""
    if cell is None:
        return True
    import pyarrow as pa

    text = str(cell).strip()
    try:
        pa.array([text], pa.string()).cast(pa.float64())
    except pa.ArrowException:
        return not text
    return True


def _half(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def need_columns(subject: str, found: Sequence[str], needed: Sequence[str]) -> None:
    """Raise InputError unless every needed column is among those found."""
    for column in needed:
        if column not in found:
            hint = did_you_mean(column, found) if len(found) <= 50 else "name one of the file's columns"
            if len(found) == 1 and any(mark in found[0] for mark in ";\t|"):
                hint = "set delimiter to the character between the columns"
            listed = first_five(found) if found else "none"
            raise InputError(subject, f"columns {listed}", f"a column {shown(column)}", hint)
