"""Every numbered table and figure of run folders: collected, and written as files with an index. No torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vestige.csv_text import csv_text
from vestige.files import write_text
from vestige.report.drawing import standalone
from vestige.report.export import to_tex
from vestige.report.paper_figures import PaperFigure, paper_figures
from vestige.report.paper_index import FIGURES, TABLES, chosen
from vestige.report.paper_panel import PaperTable
from vestige.report.paper_tables import paper_tables
from vestige.report.words import plain
from vestige.study.ledger import Ledger, read_ledger

__all__ = ["FIGURE_FORMATS", "TABLE_FORMATS", "Paper", "read_paper", "write_paper"]

TABLE_FORMATS = ("csv", "tex")
FIGURE_FORMATS = ("svg",)
LONG = 40
"""From so many rows on, a LaTeX table goes over several pages (package longtable)."""


@dataclass(frozen=True)
class Paper:
    """Tables and figures of a ledger, also those that it holds nothing of."""

    tables: tuple[PaperTable, ...]
    figures: tuple[PaperFigure, ...]

    @property
    def present(self) -> bool:
        """Whether there is anything that a run has to make: definitions alone do not count."""
        return any(item.present for item in self.tables if item.number != "S2") or any(
            item.present for item in self.figures
        )

    @property
    def shown_tables(self) -> list[PaperTable]:
        """Tables with rows."""
        return [item for item in self.tables if item.present]

    @property
    def shown_figures(self) -> list[PaperFigure]:
        """Figures with at least one drawing."""
        return [item for item in self.figures if item.present]

    @property
    def missing(self) -> list[tuple[str, str]]:
        """(heading, what makes it) of every table and figure that there is nothing of."""
        items: list[PaperTable | PaperFigure] = [*self.tables, *self.figures]
        return [(item.heading, item.entry.made_by) for item in items if not item.present]


def read_paper(folders: Sequence[str | Path] | Ledger, only: str | None = None) -> Paper:
    """The tables and figures of run folders. only: numbers, `S3,5`. Raises InputError."""
    ledger = folders if isinstance(folders, Ledger) else read_ledger(*folders)
    return Paper(
        tables=tuple(paper_tables(ledger, chosen(only, list(TABLES)))),
        figures=tuple(paper_figures(ledger, chosen(only, list(FIGURES)))),
    )


def write_paper(
    paper: Paper, folder: Path, *, tables: Sequence[str] = (), figures: Sequence[str] = ()
) -> list[Path]:
    """Write `tables/`, `figures/` and index.md, index.json beside them. Returns the paths."""
    written: list[Path] = []
    files: dict[str, list[str]] = {}

    def write(key: str, name: str, text: str) -> None:
        write_text(folder / name, text)
        written.append(folder / name)
        files.setdefault(key, []).append(name)

    for table in paper.shown_tables if tables else ():
        if "csv" in tables:
            for stem, (header, rows) in table.files.items():
                write(table.heading, f"tables/{stem}.csv", csv_text(header, rows))
        if "tex" in tables:
            write(table.heading, f"tables/table-{table.number.lower()}.tex", table_tex(table))
    for figure in paper.shown_figures if figures else ():
        for letter, panel in figure.lettered:
            write(figure.heading, f"figures/figure-{figure.number.lower()}{letter}.svg", standalone(panel))
    index = _index(paper, files, with_tables=bool(tables), with_figures=bool(figures))
    write_text(folder / "index.json", json.dumps(index, ensure_ascii=False, indent=1) + "\n")
    write_text(folder / "index.md", _markdown(index))
    return [*written, folder / "index.json", folder / "index.md"]


def table_tex(table: PaperTable) -> str:
    """All panels of a table; the caption with its caveats stands on the first."""
    parts = []
    for place, panel in enumerate(table.panels):
        letter = f" ({'abcdefgh'[place]}) {panel.caption}." if len(table.panels) > 1 else ""
        caption = (
            f"{table.entry.title}.{letter} {table.caption}" if place == 0 else f"{table.entry.title}.{letter}"
        )
        label = f"tab:vestige-{table.number.lower()}{'abcdefgh'[place] if len(table.panels) > 1 else ''}"
        parts.append(to_tex(panel, caption=caption, label=label, long=len(panel.rows) >= LONG))
    return "\n".join(parts)


def _index(
    paper: Paper, files: dict[str, list[str]], *, with_tables: bool, with_figures: bool
) -> list[dict[str, object]]:
    items: list[tuple[str, PaperTable | PaperFigure]] = []
    items += [("table", item) for item in paper.tables] if with_tables else []
    items += [("figure", item) for item in paper.figures] if with_figures else []
    return [
        {
            "kind": kind,
            "number": item.number,
            "title": item.entry.title,
            "caption": item.caption,
            "status": "shown" if item.present else "not run",
            "made_by": item.entry.made_by,
            "files": files.get(item.heading, []),
            **({"not_run": list(item.not_run)} if isinstance(item, PaperFigure) and item.not_run else {}),
        }
        for kind, item in items
    ]


def _markdown(index: Sequence[dict[str, object]]) -> str:
    lines = ["# Tables and figures", ""]
    for item in index:
        lines.append(f"## {str(item['kind']).capitalize()} {item['number']}. {item['title']}")
        lines.append("")
        if item["status"] == "not run":
            lines += [f"Not run: `{item['made_by']}`.", ""]
            continue
        lines += [plain(item["caption"]), ""]
        names = item["files"]
        assert isinstance(names, list)
        lines += [f"- [{name}]({name})" for name in names]
        panels = item.get("not_run", [])
        assert isinstance(panels, list)
        lines += [f"- not run: {plain(panel)} (`{item['made_by']}`)" for panel in panels]
        lines.append("")
    return "\n".join(lines)
