"""`vestige report`: the page and the tables of a folder of results, from its records alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.errors import InputError, did_you_mean, shown

if TYPE_CHECKING:
    from vestige.contracts import Assessment
    from vestige.footprint.records import FootprintRecord
    from vestige.report.paper import Paper
    from vestige.report.recovered import Recovered

__all__ = ["FORMATS", "app", "write_tables"]

app = typer.Typer(add_completion=False)

FORMATS = ("csv", "tex")
FIGURES = ("svg",)


@app.command()
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Folder that a study, a sweep, `compare --out` or `footprint --out` wrote, or one record; "
            "of footprints several, or a parent folder.",
        ),
    ],
    html: Annotated[
        bool, typer.Option("--html", help="Write report.html. The default without --tables and --figures.")
    ] = False,
    tables: Annotated[
        str | None, typer.Option("--tables", help="Write tables: csv, tex, or both with a comma.")
    ] = None,
    figures: Annotated[
        str | None,
        typer.Option("--figures", help="Write figures as files: svg. Of a study the numbered ones."),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="Only these numbered tables and figures, such as S3,5.")
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            "--with", help="Another run folder to read numbered tables and figures from; repeatable."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to. Default: DIR itself.")
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Heading of the page.")] = "",
    show_text: Annotated[
        bool,
        typer.Option("--show-text", help="Of footprints: show the beginnings of the most shifted documents."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every verdict and what was written as JSON.")
    ] = False,
) -> None:
    """Write the report of a folder of results, read from its records: no model is loaded.

    The page is one file without scripts or network. Tables: verdicts and every measurement as CSV, the
    verdict tables as LaTeX; of a study also its numbered tables and figures, with an index of captions. A
    folder may hold imported/KIND.csv with published numbers; they are marked. Several footprints become one
    page with class grids.
    """
    from vestige.files import writable_folder
    from vestige.report.consistency import contradictions
    from vestige.report.html import write_report
    from vestige.report.reader import assessment_files, has_assessments, read_assessments
    from vestige.report.recovered import recovered
    from vestige.report.together import together_sections
    from vestige.study.store import republishing

    formats = _formats(tables, "--tables", FORMATS)
    if _of_footprints(folders):
        for option, given in (("--only", only), ("--with", beside)):
            if given:
                raise InputError(
                    option, "footprints", "a study or a sweep", f"leave {option} away: footprints have none"
                )
        _footprints(
            folders,
            html=html,
            formats=formats,
            drawn=_formats(figures, "--figures", FIGURES),
            out=out,
            title=title,
            show_text=show_text,
            as_json=as_json,
        )
        return
    folder = _one(folders, show_text=show_text)
    drawn = _formats(figures, "--figures", FIGURES)
    _check_only(only)
    paper = _paper(folder, beside or [], only, asked=bool(drawn) or only is not None)
    alone = paper is not None and paper.present and not has_assessments(folder)
    assessments = [] if alone else read_assessments(folder)
    recoveries = [] if alone else recovered(assessment_files(folder))
    together = together_sections(folder) if assessments and folder.is_dir() else ()
    target = writable_folder(out or (folder.parent if folder.is_file() else folder))
    for item in assessments:
        for line in contradictions(item):
            typer.echo(f"warning: {item.name}: {line}".encode("unicode_escape").decode(), err=True)
    with republishing(target) as written:
        if html or not (formats or drawn):
            written.append(
                write_report(
                    assessments,
                    target / "report.html",
                    title=title,
                    paper=paper,
                    recoveries=recoveries,
                    together=together,
                )
            )
        if only is None and assessments:
            written += write_tables(assessments, target / "tables", formats)
        if paper is not None and (formats or drawn):
            from vestige.report.paper import write_paper

            written += write_paper(paper, target, tables=formats, figures=drawn)
    if as_json:
        typer.echo(_record(assessments, recoveries, written))
        return
    for path in written:
        typer.echo(f"Written: {path}")


def _of_footprints(folders: Sequence[Path]) -> bool:
    """Whether these folders hold footprints. Raises InputError where only some do."""
    from vestige.report.footprint.reader import is_footprint

    found = [folder for folder in folders if is_footprint(folder)]
    if found and len(found) < len(folders):
        odd = next(folder for folder in folders if folder not in found)
        raise InputError(str(odd), "no footprint.json", "footprints in every folder", "report on it alone")
    return bool(found)


def _one(folders: Sequence[Path], *, show_text: bool) -> Path:
    """The only folder of a study or comparison."""
    if len(folders) > 1:
        raise InputError(
            "vestige report",
            f"{len(folders)} folders",
            "one, or several of footprints",
            "give others by --with",
        )
    if show_text:
        raise InputError(
            "--show-text", "no footprint", "a folder with footprint.json", "leave it away: texts stay hidden"
        )
    return folders[0]


def _footprints(
    folders: Sequence[Path],
    *,
    html: bool,
    formats: Sequence[str],
    drawn: Sequence[str],
    out: Path | None,
    title: str,
    show_text: bool,
    as_json: bool,
) -> None:
    """Page, tables and figures of footprints. Written to the folder itself, or beside several."""
    from vestige.files import writable_folder
    from vestige.report.footprint.attached import extras_of
    from vestige.report.footprint.export import write_footprint_figures, write_footprint_tables
    from vestige.report.footprint.joined import beside, study_of
    from vestige.report.footprint.page import write_footprint_report
    from vestige.report.footprint.published import Measured
    from vestige.report.footprint.reader import footprint_files, read_footprints
    from vestige.report.footprint.texts import document_texts

    if out is None and len(folders) > 1:
        raise InputError("--out", "nothing", "a folder", "say where the page of several footprints goes")
    records = read_footprints(folders)
    first = folders[0]
    target = writable_folder(out or (first.parent if first.is_file() else first))
    written = []
    page = html or not (formats or drawn)
    extras = [
        extras_of(item, beside(path), key=f"f{place}", texts=document_texts(item) if show_text else None)
        for place, (item, path) in enumerate(zip(records, footprint_files(folders), strict=True), start=1)
        if page or drawn
    ]
    if page:
        written.append(write_footprint_report(records, target / "report.html", title=title, extras=extras))
    measured = [
        Measured(shifts=item, beside=beside(path), study=study_of(path))
        for item, path in zip(records, footprint_files(folders) if formats else (), strict=False)
    ]
    written += write_footprint_tables(records, target / "tables", formats, measured)
    if drawn:
        written += write_footprint_figures(records, target / "figures", extras)
    if as_json:
        typer.echo(_footprint_record(records, written))
        return
    for path in written:
        typer.echo(f"Written: {path}")


def _footprint_record(records: Sequence[FootprintRecord], written: Sequence[Path]) -> str:
    import json

    from vestige.footprint.tables import headline

    lines = [
        {"footprint": record.name, "checkpoint": checkpoint.label, "sentence": headline(record, checkpoint)}
        for record in records
        for checkpoint in record.checkpoints
    ]
    record = {"footprints": lines, "written": [str(path) for path in written]}
    return json.dumps(record, ensure_ascii=False, indent=2)


def _paper(folder: Path, beside: Sequence[Path], only: str | None, *, asked: bool) -> Paper | None:
    """The numbered tables and figures: of a study, a sweep, or a folder with imported tables; of a comparison
    or one record only when asked for."""
    from vestige.report.paper import read_paper

    study = any((folder / name).exists() for name in ("plan.json", "sweep.json", "imported"))
    if folder.is_file() or not (study or beside or asked):
        return None
    return read_paper([folder, *beside], only)


def _check_only(only: str | None) -> None:
    from vestige.report.paper_index import chosen

    chosen(only, ())


def write_tables(assessments: Sequence[Assessment], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write the tables in these formats and return their paths. Raises InputError."""
    from vestige.csv_text import csv_text
    from vestige.files import write_text
    from vestige.report.answers import evidence_table
    from vestige.report.export import LONG_COLUMNS, long_rows, to_tex, verdict_rows
    from vestige.report.tables import published_table

    written: list[Path] = []

    def write(name: str, text: str) -> None:
        write_text(folder / name, text)
        written.append(folder / name)

    if "csv" in formats:
        header, *rows = verdict_rows(assessments)
        write("verdicts.csv", csv_text(header, rows))
        write("measurements.csv", csv_text(LONG_COLUMNS, long_rows(assessments)))
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
        write("verdicts.tex", text)
    return written


def _formats(given: str | None, option: str, known: Sequence[str]) -> list[str]:
    found = [part.strip() for part in (given or "").split(",") if part.strip()]
    for name in found:
        if name not in known:
            raise InputError(option, shown(name), " or ".join(known), did_you_mean(name, known))
    if given is not None and not found:
        raise InputError(option, "no format", " or ".join(known), f"for example {option} {','.join(known)}")
    return found


def _record(
    assessments: Sequence[Assessment], recoveries: Sequence[Recovered], written: Sequence[Path]
) -> str:
    import json

    from vestige.contracts import Undefined
    from vestige.report.sentence import sentence

    verdicts = [
        {
            "assessment": item.name,
            "model": model.label,
            "verdict": model.verdict,
            "headline": model.headline or None,
            "decision": model.decision.model_dump()
            if isinstance(model.decision, Undefined)
            else model.decision,
            "sentence": sentence(item, model.label, known.get(model.label)),
        }
        for item, known in zip(assessments, recoveries, strict=True)
        for model in item.models
        if model.role == "unlearned"
    ]
    record = {"verdicts": verdicts, "written": [str(path) for path in written]}
    return json.dumps(record, ensure_ascii=False, indent=2)
