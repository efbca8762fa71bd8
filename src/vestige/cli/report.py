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
    from vestige.report.recovered import Recovered

__all__ = ["FORMATS", "app"]

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
    from vestige.report.publish import Wanted, publish, read_publication

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
    wanted = Wanted(
        html=html or not (formats or drawn),
        tables=tuple(formats),
        figures=tuple(drawn),
        only=only,
        beside=tuple(map(str, beside or ())),
        title=title,
    )
    found = read_publication(folder, wanted)
    if out is None and folder.is_file() and (folder.parent.parent / "manifest.json").is_file():
        where = folder.parent.parent
        raise InputError(
            str(folder),
            "a record inside a run folder, where no page belongs",
            "a place for its page",
            f"add --out DIR, or report on the whole: vestige report {where}",
        )
    target = writable_folder(out or (folder.parent if folder.is_file() else folder))
    for item in found.assessments:
        for line in contradictions(item):
            typer.echo(f"warning: {item.name}: {line}".encode("unicode_escape").decode(), err=True)
    written = publish(folder, target, wanted, found)
    if as_json:
        typer.echo(_record(found.assessments, found.recoveries, written))
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


def _check_only(only: str | None) -> None:
    from vestige.report.paper_index import chosen

    chosen(only, ())


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
