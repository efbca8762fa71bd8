"""Everything that `vestige report` writes of a study or comparison, from its records, and how it was made.

Of a run folder or sweep pages.json says how each page, table and figure was made, so that the audit can make
it again and compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vestige.contracts import Assessment, Record
from vestige.files import read_record, write_text
from vestige.report.html import write_report
from vestige.report.paper import Paper, read_paper, write_paper
from vestige.report.reader import assessment_files, has_assessments, read_assessments
from vestige.report.recovered import Recovered, recovered
from vestige.report.sections import Section
from vestige.report.together import together_sections
from vestige.seeds import digest
from vestige.study.store import (
    SWEEP,
    canonical,
    file_sha256,
    program_sha256,
    read_manifest,
    republishing,
    run_folders,
)

__all__ = [
    "PAGES",
    "Making",
    "Pages",
    "Publication",
    "Wanted",
    "is_page",
    "made_of",
    "publish",
    "read_publication",
    "write_files",
]

PAGES = "pages.json"
_REMEDY = "remove it and run: vestige report"


class Wanted(Record):
    """What to write. html: the page, under the heading `title`. tables, figures: formats.

    only: numbers such as `S3,5`. beside: other run folders to read numbered tables and figures from.
    """

    html: bool = True
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    only: str | None = None
    beside: tuple[str, ...] = ()
    title: str = ""


class Making(Record):
    """How some files of a run folder were made. made_of: hash of the records then; program: of this package.

    files: paths in the folder that are still those of this making: a later one takes over what it writes.
    """

    wanted: Wanted
    made_of: str
    program: str
    files: tuple[str, ...]


class Pages(Record):
    """pages.json."""

    format: Literal["vestige-pages-1"] = "vestige-pages-1"
    made: tuple[Making, ...] = ()


@dataclass(frozen=True)
class Publication:
    """What a folder has to show. assessments: none of a study that was only tuned."""

    assessments: list[Assessment]
    recoveries: list[Recovered]
    together: tuple[Section, ...]
    paper: Paper | None


def read_publication(folder: Path, wanted: Wanted) -> Publication:
    """Read the records of a folder, or one record. Raises InputError."""
    paper = _paper(folder, wanted)
    alone = paper is not None and paper.present and not has_assessments(folder)
    assessments = [] if alone else read_assessments(folder)
    return Publication(
        assessments=assessments,
        recoveries=[] if alone else recovered(assessment_files(folder)),
        together=together_sections(folder) if assessments and folder.is_dir() else (),
        paper=paper,
    )


def _paper(folder: Path, wanted: Wanted) -> Paper | None:
    """The numbered tables and figures: of a study, a sweep, or a folder with imported tables; of a comparison
    or one record only when asked for."""
    asked = bool(wanted.figures) or wanted.only is not None
    study = any((folder / name).exists() for name in ("plan.json", SWEEP, "imported"))
    if folder.is_file() or not (study or wanted.beside or asked):
        return None
    return read_paper([folder, *map(Path, wanted.beside)], wanted.only)


def publish(folder: Path, target: Path, wanted: Wanted, found: Publication) -> list[Path]:
    """Write what is wanted into `target` and return the paths; a run folder notes how it was made.

    Raises InputError, with nothing written, while a run is at work in the folder.
    """
    with republishing(target) as written:
        for path in write_files(target, wanted, found):
            written.append(path)
        made = list(written)
        if target.resolve() == folder.resolve() and _is_study(folder):
            _note(folder, wanted, made)
            written.append(folder / PAGES)
    return made


def write_files(target: Path, wanted: Wanted, found: Publication) -> Iterator[Path]:
    """Write what is wanted into any folder, path by path."""
    if wanted.html:
        yield write_report(
            found.assessments,
            target / "report.html",
            title=wanted.title,
            paper=found.paper,
            recoveries=found.recoveries,
            together=found.together,
        )
    if wanted.only is None and found.assessments:
        yield from _write_tables(found.assessments, target / "tables", wanted.tables)
    if found.paper is not None and (wanted.tables or wanted.figures):
        yield from write_paper(found.paper, target, tables=wanted.tables, figures=wanted.figures)


def _write_tables(assessments: Sequence[Assessment], folder: Path, formats: Sequence[str]) -> Iterator[Path]:
    """Verdicts and measurements in these formats."""
    from vestige.csv_text import csv_text
    from vestige.report.answers import evidence_table
    from vestige.report.export import LONG_COLUMNS, long_rows, to_tex, verdict_rows
    from vestige.report.tables import published_table

    def write(name: str, text: str) -> Path:
        write_text(folder / name, text)
        return folder / name

    if "csv" in formats:
        header, *rows = verdict_rows(assessments)
        yield write("verdicts.csv", csv_text(header, rows))
        yield write("measurements.csv", csv_text(LONG_COLUMNS, long_rows(assessments)))
    if "tex" in formats:
        tables = [
            (make(item), item.name)
            for item in assessments
            for make in (
                *((evidence_table,) if any(model.evidence for model in item.models) else ()),
                published_table,
            )
        ]
        text = "\n".join(to_tex(table, caption=f"{name}: {table.caption}") for table, name in tables)
        yield write("verdicts.tex", text)


def _is_study(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("plan.json", SWEEP))


def _note(folder: Path, wanted: Wanted, written: Sequence[Path]) -> None:
    """Enter this making into pages.json."""
    path = folder / PAGES
    before = read_record(path, Pages, _REMEDY).made if path.is_file() else ()
    names = [item.relative_to(folder).as_posix() for item in written]
    kept = [
        making.model_copy(update={"files": tuple(name for name in making.files if name not in names)})
        for making in before
    ]
    mine = Making(wanted=wanted, made_of=made_of(folder), program=program_sha256(), files=tuple(names))
    pages = Pages(made=tuple(making for making in (*kept, mine) if making.files))
    write_text(path, pages.to_json() + "\n")


def is_page(name: str) -> bool:
    """Whether a path in a run folder is one that `vestige report` writes to."""
    return name in (PAGES, "report.html", "index.json", "index.md") or name.startswith(
        ("tables/", "figures/")
    )


def made_of(folder: Path) -> str:
    """Hash of every record of a run folder or sweep that pages can be made of, and of imported tables."""
    found: dict[str, Any] = {
        arm: {name: sha for name, sha in read_manifest(run).items() if not is_page(name)}
        for arm, run in run_folders(folder).items()
    }
    imported = {
        path.relative_to(folder).as_posix(): file_sha256(path)
        for path in sorted((folder / "imported").glob("*"))
        if path.is_file()
    }
    return digest(canonical([found, imported]))
