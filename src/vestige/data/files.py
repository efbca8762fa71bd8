"""Readers of CSV, JSONL and Parquet tables: every cell a string, every fault a one-line error."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.errors import InputError, did_you_mean, first_five, shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TABLE_SUFFIXES", "as_text", "file_sha256", "need_columns", "read_json", "read_table"]

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")

_LONGEST_FIELD = 10_000_000  # characters; csv's own limit of 131,072 refuses long documents


def read_table(
    path: str | Path, *, encoding: str = "utf-8", delimiter: str = ",", columns: Sequence[str] = ()
) -> pd.DataFrame:
    """A CSV (.csv, .tsv), JSONL (.jsonl, .ndjson) or Parquet table as strings, missing values as "".

    encoding, delimiter: of CSV (.tsv: always a tab). columns: that must be there. Numbers become their
    shortest text (17, not 17.0), nested values JSON. Raises InputError that names the file, the line and the
    remedy: no such file, another format, wrong encoding, a line of another width, broken JSON, a truncated
    Parquet, no rows, a column missing or named twice.
    """
    import pandas as pd

    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in TABLE_SUFFIXES:
        raise InputError(
            str(path),
            f"suffix {shown(suffix)}",
            ", ".join(TABLE_SUFFIXES),
            "convert the file or correct its suffix",
        )
    data = _read_bytes(path)
    if suffix == ".parquet":
        names, cells = _parquet(path, data)
    elif suffix in (".jsonl", ".ndjson"):
        names, cells = _jsonl(path, _decode(path, data, "utf-8"))
    else:
        names, cells = _csv(path, _decode(path, data, encoding), "\t" if suffix == ".tsv" else delimiter)
    if not cells:
        raise InputError(str(path), "no rows", "at least one row", "check the file")
    need_columns(str(path), names, columns)
    return pd.DataFrame(cells, columns=list(names)).astype(str)


def read_json(path: str | Path) -> Any:
    """The value of a JSON file. Raises InputError: no such file, not UTF-8, not JSON."""
    path = Path(path)
    text = _decode(path, _read_bytes(path), "utf-8")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"broken JSON ({error})", "one JSON value", "repair the file") from None


def file_sha256(path: str | Path) -> str:
    """sha256 in hexadecimal of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def need_columns(subject: str, found: Sequence[str], needed: Sequence[str]) -> None:
    """Raise InputError unless every needed column is among those found."""
    for column in needed:
        if column not in found:
            hint = did_you_mean(column, found) if len(found) <= 50 else "name one of the file's columns"
            if len(found) == 1 and any(mark in found[0] for mark in ";\t|"):
                hint = "set delimiter to the character between the columns"
            raise InputError(subject, f"columns {first_five(found)}", f"a column {shown(column)}", hint)


def as_text(value: object) -> str:
    """One cell as text: "" for a missing value, JSON for nested values, `true` / `false` for booleans."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return str(value)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        siblings = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, siblings) if 0 < len(siblings) <= 50 else "check the path"
        raise InputError(str(path), "no such file", "a readable file", hint) from None
    except IsADirectoryError:
        raise InputError(str(path), "a folder", "a file", "name a file in it") from None
    except OSError as error:
        raise InputError(str(path), f"{error.strerror}", "a readable file", "check its permissions") from None


def _decode(path: Path, data: bytes, encoding: str) -> str:
    """The text of a file; a byte order mark of UTF-8 is taken off."""
    codec = "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding
    try:
        return data.decode(codec)
    except LookupError:
        raise InputError(
            "setting 'encoding'", shown(encoding), "a codec of Python", "for example utf-8 or cp1252"
        ) from None
    except UnicodeError as error:
        start = getattr(error, "start", 0)
        line = data.count(b"\n", 0, start) + 1
        raise InputError(
            f"{path}, line {line}",
            f"byte 0x{data[start]:02x}, which is not {encoding}" if start < len(data) else "half a character",
            f"text in {encoding}",
            "save the file as UTF-8, or set encoding (for a CSV from Windows: cp1252)",
        ) from None


def _csv(path: Path, text: str, delimiter: str) -> tuple[list[str], list[list[str]]]:
    if len(delimiter) != 1:
        raise InputError("setting 'delimiter'", shown(delimiter), "one character", "for example ','")
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        names: list[str] = next((row for row in reader if row), [])
        _check_names(path, names)
        rows = []
        for row in reader:
            if row and len(row) != len(names):
                raise InputError(
                    f"{path}, line {reader.line_num}",
                    f"{len(row)} fields",
                    f"{len(names)}, as in the header",
                    "quote fields that hold the delimiter or a line break",
                )
            if row:
                rows.append(row)
    except csv.Error as error:
        raise InputError(
            f"{path}, line {reader.line_num}",
            f"broken CSV ({error})",
            "quoted fields closed",
            "repair the line",
        ) from None
    finally:
        csv.field_size_limit(before)
    return names, rows


def _jsonl(path: Path, text: str) -> tuple[list[str], list[list[str]]]:
    names: dict[str, None] = {}
    rows: list[dict[str, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(where, f"broken JSON ({error})", "one JSON object", "repair the line") from None
        if not isinstance(value, dict):
            raise InputError(where, f"a JSON {type(value).__name__}", "one JSON object", "repair the line")
        row = {name: as_text(cell) for name, cell in value.items()}
        for name, cell in row.items():
            try:
                (name + cell).encode()
            except UnicodeEncodeError:
                raise InputError(
                    f"{where}, field {shown(name)}",
                    "half a surrogate pair",
                    "valid Unicode",
                    "repair the text",
                ) from None
        names.update(dict.fromkeys(row))
        rows.append(row)
    return list(names), [[row.get(name, "") for name in names] for row in rows]


def _parquet(path: Path, data: bytes) -> tuple[list[str], list[list[str]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(data))
        columns = [[as_text(value) for value in column.to_pylist()] for column in table.columns]
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            str(path),
            f"{len(data)} bytes that are no Parquet table ({reason})",
            "a whole Parquet file",
            "write or copy the file again",
        ) from None
    _check_names(path, table.column_names)
    return list(table.column_names), [list(row) for row in zip(*columns, strict=True)]


def _check_names(path: Path, names: Sequence[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            str(path), f"columns named twice: {first_five(twice)}", "unique column names", "rename one"
        )
