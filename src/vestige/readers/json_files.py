"""The reader of JSON and JSON Lines: strict JSON, each name once in an object, no NaN and no Infinity."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from vestige.errors import InputError, shown
from vestige.readers.bytes_and_text import decoded, text_of_file
from vestige.readers.table import Cell, Column, Table

__all__ = [
    "JSONL_SUFFIXES",
    "as_cell",
    "json_lines",
    "json_value",
    "list_in",
    "read_json",
    "read_jsonl",
    "regular_rows",
]

JSONL_SUFFIXES = (".jsonl", ".ndjson")


class _RefusedError(ValueError):
    """What strict JSON does not have. found, needed, remedy: as of InputError."""

    def __init__(self, found: str, needed: str, remedy: str) -> None:
        super().__init__(found)
        self.found, self.needed, self.remedy = found, needed, remedy


def json_value(text: str, subject: str, needed: str = "one JSON value", remedy: str = "repair it") -> Any:
    """The value that a text holds as strict JSON.

    subject: the file, and where in it. Raises InputError: no JSON, a name twice in one object, NaN, Infinity,
    a number that no float can hold, lists or objects nested too deep.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite_float
        )
    except _RefusedError as error:
        raise InputError(subject, error.found, error.needed, error.remedy) from None
    except RecursionError:
        found = "lists or objects nested too deep"
        raise InputError(subject, found, needed, remedy) from None
    except ValueError as error:
        found = f"broken JSON ({shown(str(error), 100)})"
        raise InputError(subject, found, needed, remedy) from None


def list_in(cell: Cell) -> list[Any] | None:
    """The list that a cell is, or holds as a JSON text; None where it is another thing or nothing."""
    value: Any = cell
    if isinstance(cell, str):
        try:
            value = json_value(cell, "")
        except InputError:
            return None
    return value if isinstance(value, list) else None


def read_json(path: str | Path, needed: str = "a JSON file in UTF-8", remedy: str = "repair the file") -> Any:
    """The value of a JSON file. Raises InputError: no such file, not UTF-8, not strict JSON."""
    return json_value(text_of_file(path, needed), str(path), "one JSON value", remedy)


def json_lines(subject: str, data: bytes, example: str = "") -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, object) of each line that is not blank.

    example: an object of the wanted form, for the message. Raises InputError naming the line.
    """
    for number, line in enumerate(decoded(subject, data).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{subject}, line {number}"
        value = json_value(line, where, "one JSON object a line", "check that the file is complete")
        if not isinstance(value, dict):
            raise InputError(
                where,
                f"a JSON {_NAMES.get(type(value), 'null')}",
                "one JSON object a line",
                f"write {example}" if example else "repair the line",
            )
        yield number, value


_NAMES: dict[type, str] = {list: "list", str: "text", bool: "true or false", int: "number", float: "number"}


def read_jsonl(subject: str, data: bytes, *, example: str = "") -> Table:
    """The table in a JSON Lines file: a column for each name that some object has."""
    lines: list[int] = []
    records: list[dict[str, Any]] = []
    for number, record in json_lines(subject, data, example):
        lines.append(number)
        records.append(record)
    names = dict.fromkeys(name for record in records for name in record)
    columns = {name: Column([record.get(name) for record in records]) for name in names}
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InputError(
                subject, f"half a surrogate pair in a name ({shown(name)})", "valid Unicode", "rename it"
            ) from None
    return Table(subject, columns, len(records), lambda row: f"line {lines[row]}")


def regular_rows(
    data: bytes, texts: tuple[str, ...], nested: str, optional: tuple[str, ...] = ()
) -> Table | None:
    """Arrow's reader, for lines that all have the fields `texts` as text and one object of numbers.

    nested: the object's name; its members become columns named `nested:<member>`. optional: fields that are
    text or whole numbers in every line where they are in the first. None where a line is in any
    way otherwise, or odd: that is no verdict, the reader by lines then says what is wrong, if anything is.
    """
    import pyarrow as pa
    import pyarrow.json as pj

    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        data.decode()  # Arrow takes bytes that are no UTF-8 for text
        first = json.loads(data[: data.index(b"\n") if b"\n" in data else len(data)])
        members = list(first[nested])
        more = {name: _KINDS[type(first[name])] for name in optional if name in first}
        schema = pa.schema(
            [
                *(pa.field(name, pa.string()) for name in texts),
                *(pa.field(name, getattr(pa, kind)()) for name, kind in more.items()),
                pa.field(nested, pa.struct([(name, pa.float64()) for name in members])),
            ]
        )
        table = pj.read_json(
            io.BytesIO(data),
            read_options=pj.ReadOptions(block_size=max(1 << 22, min(len(data), 1 << 28))),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer"),
        )
    except (pa.ArrowException, ValueError, KeyError, TypeError, RecursionError):
        return None
    struct = table.column(nested).combine_chunks()
    names = [struct.type.field(place).name for place in range(struct.type.num_fields)]
    columns = struct.flatten()
    named = (*texts, *more)
    fixed = [table.column(name) for name in named]
    if not members or names != members or any(item.null_count for item in (struct, *columns, *fixed)):
        return None
    found = dict(zip(named, map(Column, fixed), strict=True))
    found |= {f"{nested}:{name}": Column(column) for name, column in zip(names, columns, strict=True)}
    return Table("", found, table.num_rows, lambda row: f"row {row + 1}")


_KINDS: dict[type, str] = {str: "string", int: "int64"}
"""Arrow's types of optional fields."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RefusedError(f"{shown(twice)} twice in one object", "each name once", "remove one")
    return made


def _no_constant(word: str) -> NoReturn:
    raise _RefusedError(f"{word}, which is no JSON", "numbers, or null for nothing", "write null instead")


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _RefusedError(f"the number {shown(text)}", "a number that a float can hold", "correct it")
    return number


def as_cell(value: Any) -> Cell:
    """A Python value of another library as a cell of JSON: dates as ISO texts, arrays as lists."""
    if value is None or isinstance(value, (str, bool, int, float, bytes)):
        return value
    if isinstance(value, dict):
        return {str(name): as_cell(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_cell(item) for item in value]
    if hasattr(value, "tolist"):
        return as_cell(value.tolist())
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return str(value)
