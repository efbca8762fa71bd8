"""Reading a table by its file's suffix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vestige.errors import InputError, shown
from vestige.readers.bytes_and_text import file_bytes
from vestige.readers.csv_files import CSV_SUFFIXES, read_csv
from vestige.readers.json_files import JSONL_SUFFIXES, read_jsonl
from vestige.readers.parquet_files import read_parquet
from vestige.readers.table import Table

__all__ = ["TABLE_SUFFIXES", "read_table"]

TABLE_SUFFIXES = (*CSV_SUFFIXES, *JSONL_SUFFIXES, ".parquet")


def read_table(
    path: str | Path, *, encoding: str = "utf-8", delimiter: str = ",", columns: Sequence[str] = ()
) -> Table:
    """The CSV (.csv, .tsv), JSON Lines (.jsonl, .ndjson) or Parquet table in a file.

    encoding, delimiter: of CSV; in a .tsv the delimiter is always a tab. columns: that must be there.
    Raises InputError that names the file, the line and the remedy: no such file, another format or encoding,
    a broken line, no rows, a column missing or named twice.
    """
    path = Path(path)
    table = table_of(str(path), file_bytes(path), path.suffix.lower(), encoding=encoding, delimiter=delimiter)
    if not table.rows:
        raise InputError(str(path), "no rows", "at least one row", "check the file")
    table.need(*columns)
    return table


def table_of(
    subject: str, data: bytes, suffix: str, *, encoding: str = "utf-8", delimiter: str = ","
) -> Table:
    """The table in a file's bytes. suffix: which format it is in. Raises InputError."""
    if suffix == ".parquet":
        return read_parquet(subject, data)
    if suffix in JSONL_SUFFIXES:
        return read_jsonl(subject, data)
    if suffix in CSV_SUFFIXES:
        mark = "\t" if suffix == ".tsv" else delimiter
        return read_csv(subject, data, encoding=encoding, delimiter=mark)
    raise InputError(
        subject,
        f"suffix {shown(suffix)}",
        ", ".join(TABLE_SUFFIXES),
        "convert the file or correct its suffix",
    )
