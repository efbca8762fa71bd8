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
    path: str | Path,
    *,
    encoding: str = "utf-8",
    delimiter: str = ",",
    columns: Sequence[str] = (),
    setting: str = "",
) -> Table:
    """The CSV (.csv, .tsv), JSON Lines (.jsonl, .ndjson) or Parquet table in a file.

    encoding, delimiter: of CSV; in a .tsv the delimiter is always a tab.
    columns: that must be there.
    setting: the name of the setting that chooses the encoding, for messages.
    Raises InputError that names the file, the line and the remedy: no such file, another format or encoding,
    a broken line, no rows, a column missing or named twice.
    """
    path = Path(path)
    suffix, subject = path.suffix.lower(), str(path)
    if suffix not in TABLE_SUFFIXES:
        raise InputError(
            subject,
            f"suffix {shown(suffix)}",
            ", ".join(TABLE_SUFFIXES),
            "convert the file or correct its suffix",
        )
    data = file_bytes(path)
    if suffix == ".parquet":
        table = read_parquet(subject, data)
    elif suffix in JSONL_SUFFIXES:
        table = read_jsonl(subject, data)
    else:
        mark = "\t" if suffix == ".tsv" else delimiter
        table = read_csv(subject, data, encoding=encoding, delimiter=mark, setting=setting)
    if not table.rows:
        raise InputError(subject, "no rows", "at least one row", "check the file")
    table.need(*columns)
    return table
