"""What a numbered table is made of: panels to read, CSV files to compute with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from vestige.report.paper_index import TABLES, Entry
from vestige.report.tables import EMPTY, Cell, Column, Row, Table
from vestige.study.ledger_rows import LedgerRow

__all__ = ["IMPORTED", "Head", "PaperTable", "csv_of", "interval", "panel", "paper_table", "text", "valued"]

R = TypeVar("R", bound=LedgerRow)
CsvFile = tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]
IMPORTED = "imported"


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A numbered table. files: file stem -> (header, rows) for CSV. panels: the same for readers.

    notes: lines under it. Without panels the folder holds nothing of it.
    """

    entry: Entry
    files: dict[str, CsvFile]
    panels: tuple[Table, ...]
    notes: tuple[str, ...] = ()

    @property
    def number(self) -> str:
        """`2`, `S3`."""
        return self.entry.number

    @property
    def present(self) -> bool:
        """Whether there is anything to show."""
        return any(panel.rows for panel in self.panels)

    @property
    def heading(self) -> str:
        """`Table S3. Every configuration`."""
        return f"Table {self.number}. {self.entry.title}"

    @property
    def caption(self) -> str:
        """The caption with its caveats and notes."""
        return " ".join([self.entry.caption, *self.notes])


@dataclass(frozen=True, kw_only=True)
class Head:
    """A column of a panel: its title, where its cell comes from, and whether it is a number."""

    title: str
    cell: Callable[[Any], Cell]
    view: str = ""
    detail: str = ""
    numeric: bool = True


def text(row: LedgerRow, column: str) -> Cell:
    """The cell of a column: a dash where it is empty."""
    value = row.text(column)
    return Cell(text=value or EMPTY, undefined=value.startswith("undefined"))


def valued(row: LedgerRow, column: str, low: str = "", high: str = "") -> Cell:
    """A value with its interval in brackets; `low`, `high`: the columns of its bounds."""
    found = text(row, column)
    if not low or found.undefined:
        return found
    return Cell(text=found.text, row=interval(row, low, high))


def interval(row: LedgerRow, low: str, high: str) -> str:
    """`[0.1, 0.2]`, empty where a bound is."""
    bounds = row.text(low), row.text(high)
    return f"[{bounds[0]}, {bounds[1]}]" if all(bounds) else ""


def panel(
    key: str,
    caption: str,
    head: str,
    label: Callable[[R], str],
    heads: Sequence[Head],
    rows: Iterable[R],
    *,
    notes: Sequence[str] = (),
    tag: Callable[[R], str] | None = None,
) -> Table:
    """A panel of rows. Rows with an imported origin say so where the panel mixes them with measured ones."""
    listed = list(rows)
    mixed = len({row.imported for row in listed}) > 1

    def named(row: R) -> str:
        parts = [IMPORTED if mixed and row.imported else "", tag(row) if tag else ""]
        said = ", ".join(part for part in parts if part)
        return f"{label(row)} ({said})" if said else label(row)

    return Table(
        key=key,
        caption=caption,
        head=head,
        columns=tuple(
            Column(
                key=f"{key}-{place}",
                title=item.title,
                view=item.view,
                detail=item.detail,
                numeric=item.numeric,
            )
            for place, item in enumerate(heads)
        ),
        rows=tuple(Row(label=named(row), cells=tuple(item.cell(row) for item in heads)) for row in listed),
        notes=tuple(notes),
        notes_are="Note",
    )


def csv_of(kind: type[R], rows: Sequence[R]) -> CsvFile:
    """Header and cells of rows: the published table's columns, our own where any row has one.

    The last column, `imported`, is there where any row was imported.
    """
    columns = list(kind.columns())
    for name in kind.OWN:
        column = kind.column(name)
        if any(row.text(column) for row in rows):
            columns.append(column)
    marked = any(row.imported for row in rows)
    header = (*columns, *([IMPORTED] if marked else []))
    lines = tuple(
        (*(row.text(column) for column in columns), *([("yes" if row.imported else "no")] if marked else []))
        for row in rows
    )
    return header, lines


def paper_table(
    number: str,
    *,
    files: dict[str, CsvFile],
    panels: Sequence[Table],
    notes: Sequence[str] = (),
    rows: Sequence[LedgerRow] = (),
) -> PaperTable:
    """A numbered table. rows: those it shows, to say where they come from."""
    said = list(notes)
    given = sum(row.imported for row in rows)
    if given and given == len(rows):
        said.append("All rows are imported: published numbers as printed, not measured here.")
    elif given:
        said.append(
            f"{given} of {len(rows)} rows are imported: published numbers as printed, not measured here."
        )
    return PaperTable(entry=TABLES[number], files=files, panels=tuple(panels), notes=tuple(said))
