"""The base of a ledger's rows: columns, printed text, where a row came from. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from vestige.contracts import Record

__all__ = ["LedgerRow", "Number", "two_decimals"]

Number = float | None


class LedgerRow(Record):
    """Base of every row.

    imported: from `imported/<kind>.csv`. origin: the file the row came from, relative to its run folder.
    printed: column -> text to show in place of the formatted value: what was printed, or why a value is
    undefined. FORMATS: column -> format of its number, default three decimals. OWN: columns that the
    published table lacks; they stand at the end of an export, where any row has them.
    """

    KIND: ClassVar[str] = ""
    FORMATS: ClassVar[Mapping[str, str]] = {}
    OWN: ClassVar[tuple[str, ...]] = ()

    imported: bool = False
    origin: str = ""
    printed: Annotated[dict[str, str], Field(default_factory=dict)]

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Columns of the published table, in its order."""
        skipped = {*LedgerRow.model_fields, *cls.OWN}
        return tuple(cls.column(name) for name in cls.model_fields if name not in skipped)

    @classmethod
    def column(cls, field: str) -> str:
        """The column of a field: its alias where the name is taken (`schema`)."""
        return cls.model_fields[field].alias or field

    @classmethod
    def field(cls, column: str) -> str:
        """The field of a column. Raises KeyError."""
        for name in cls.model_fields:
            if cls.column(name) == column:
                return name
        raise KeyError(column)

    def text(self, column: str) -> str:
        """The cell as text: as printed, else formatted; empty where there is none."""
        if column in self.printed:
            return self.printed[column]
        value: Any = getattr(self, self.field(column))
        if value is None:
            return ""
        if isinstance(value, float):
            return format(value, self.FORMATS.get(column, ".3f"))
        return str(value)


def two_decimals(*names: str) -> dict[str, str]:
    """Two decimals for these columns and their bounds."""
    ends = ("", "_lo", "_hi", "_class_lo", "_class_hi")
    return {f"{name}{end}": ".2f" for name in names for end in ends}
