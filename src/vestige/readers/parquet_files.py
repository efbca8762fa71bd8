"""The reader of Parquet files: every column with the type that it has there."""

from __future__ import annotations

from typing import Any

from vestige.errors import InputError, first_five, shown
from vestige.readers.bytes_and_text import refuse_other_kind
from vestige.readers.json_files import as_cell
from vestige.readers.table import Column, Table

__all__ = ["read_parquet"]


def read_parquet(subject: str, data: bytes) -> Table:
    """The table in a Parquet file's bytes. Dates and times are ISO 8601, categories the texts they stand for.

    Raises InputError: no whole Parquet file, text that is not UTF-8, a column named twice.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not data.startswith(b"PAR1"):
        refuse_other_kind(subject, data, "a Parquet file")
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            subject,
            f"a broken or truncated Parquet file ({shown(reason, 100)})",
            "a complete Parquet file",
            "write or copy the file again",
        ) from None
    names = table.column_names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            subject, f"columns named twice: {first_five(twice)}", "unique column names", "rename one"
        )
    columns = {name: Column(_cells(subject, name, table.column(name))) for name in names}
    return Table(subject, columns, table.num_rows, lambda row: f"row {row + 1}")


def _cells(subject: str, name: str, column: Any) -> Any:
    """The column itself where Arrow holds texts, numbers or true and false; else its cells."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    try:
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            return column
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            column.validate(full=True)
            return column
        if pa.types.is_decimal(kind):
            return [None if value is None else _decimal(value) for value in column.to_pylist()]
        return [as_cell(value) for value in column.to_pylist()]
    except (pa.ArrowException, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{subject}, column {shown(name)}",
            f"cells that cannot be read ({shown(str(error), 100)})",
            "text in UTF-8, numbers, dates, lists",
            "write the column again",
        ) from None


def _decimal(value: Any) -> int | float:
    """A decimal as a number: whole ones exactly."""
    return int(value) if value == value.to_integral_value() else float(value)
