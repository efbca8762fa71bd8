"""The reader of CSV and TSV files: RFC 4180, one header line, every cell the text that is in the file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from vestige.errors import InputError, first_five, shown
from vestige.readers.bytes_and_text import decoded
from vestige.readers.table import Column, Table

__all__ = ["CSV_SUFFIXES", "read_csv"]

CSV_SUFFIXES = (".csv", ".tsv")

_LONGEST_FIELD = 10_000_000
"""Characters; the csv module's own limit of 131,072 refuses long documents."""
_MARKS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def read_csv(
    subject: str, data: bytes, *, encoding: str = "utf-8", delimiter: str = ",", setting: str = ""
) -> Table:
    """The table in a CSV file's bytes. Blank lines are skipped, before the header too.

    subject: the file's path. delimiter: one character between the cells. setting: the name of the setting
    that would choose another encoding, "" where there is none.
    Raises InputError: another encoding, an unclosed or misplaced quote, a line of another width than the
    header's, a column named twice, no header.
    """
    if len(delimiter) != 1:
        raise InputError("setting 'delimiter'", shown(delimiter), "one character", "for example ','")
    text = decoded(subject, data, encoding, setting=setting)
    with _long_fields():
        names, start = _header(subject, text, delimiter)
        found = _by_arrow(text[start:], names, delimiter) or _by_lines(subject, text, names, delimiter)

    def place(row: int) -> str:
        return f"line {_line_of(text, row, delimiter)}"

    columns = {name: Column(cells, plain=True) for name, cells in zip(names, found, strict=True)}
    return Table(subject, columns, len(found[0]), place)


def _header(subject: str, text: str, delimiter: str) -> tuple[list[str], int]:
    """The column names, and where in the text the rows begin."""
    stream = io.StringIO(text, newline="")
    reader = csv.reader(stream, delimiter=delimiter, strict=True)
    try:
        names: list[str] = next((row for row in reader if row), [])
    except csv.Error as error:
        raise _broken(subject, reader.line_num, error) from None
    if not names:
        raise InputError(subject, "no header line", "a line of column names, then rows", "check the file")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            subject, f"columns named twice: {first_five(twice)}", "unique column names", "rename one"
        )
    return names, stream.tell()


@lru_cache(maxsize=8)
def _well_formed(delimiter: str) -> re.Pattern[bytes]:
    """Cells that are quoted from end to end or not at all: what both parsers read alike."""
    mark = re.escape(delimiter.encode())
    cell = rb'"(?:[^"]++|"")*+"|[^"' + mark + rb"\r\n][^" + mark + rb"\r\n]*+"
    return re.compile(rb"(?:(?:" + cell + rb")?+(?:" + mark + rb"|[\r\n]|\Z))*+")


def _by_arrow(text: str, names: list[str], delimiter: str) -> list[Any] | None:
    """Arrow's fast parser, for rows that it reads as RFC 4180 says; None for anything it might not.

    On its own it takes an unclosed quote for one long cell, and so loses the rows after it without a word.
    """
    import pyarrow as pa
    import pyarrow.csv as pc

    data = text.encode()
    if len(delimiter.encode()) != 1 or len(data) >= 2**30 or not _well_formed(delimiter).fullmatch(data):
        return None
    if not data.strip(b"\r\n"):
        return [pa.array([], pa.string()) for _ in names]
    try:
        table = pc.read_csv(
            io.BytesIO(data),
            # One block: a quoted line end must not straddle two.
            read_options=pc.ReadOptions(block_size=len(data) + 1, column_names=names),
            parse_options=pc.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pc.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowException:
        return None
    return list(table.columns)


def _by_lines(subject: str, text: str, names: list[str], delimiter: str) -> list[Any]:
    """The strict parser of the standard library, which knows the line it is at."""
    import pyarrow as pa

    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    try:
        for row in reader:
            if row and len(row) != len(names):
                raise InputError(
                    f"{subject}, line {reader.line_num}",
                    f"{len(row)} fields",
                    f"{len(names)}, as in the header",
                    "quote fields that hold the delimiter or a line break",
                )
            if row:
                rows.append(row)
    except csv.Error as error:
        raise _broken(subject, reader.line_num, error) from None
    columns: Any = zip(*rows[1:], strict=True) if len(rows) > 1 else [()] * len(names)
    return [pa.array(cells, pa.string()) for cells in columns]


def _line_of(text: str, row: int, delimiter: str) -> int:
    """The line (from 1) on which a row (from 0, the header not counted) ends."""
    with _long_fields():
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        for number, _ in enumerate(cells for cells in reader if cells):
            if number == row + 1:
                break
        return reader.line_num


def _broken(subject: str, line: int, error: csv.Error) -> InputError:
    return InputError(
        f"{subject}, line {line}", f"broken CSV ({error})", "quoted fields closed", "repair the line"
    )


@contextmanager
def _long_fields() -> Iterator[None]:
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def other_delimiter(names: tuple[str, ...], wanted: str) -> tuple[str, str] | None:
    """(character, its name) between the columns of a header read as one column that names `wanted`."""
    if len(names) != 1:
        return None
    for mark, name in _MARKS.items():
        if wanted in [part.strip('" ') for part in names[0].split(mark)]:
            return mark, name
    return None
