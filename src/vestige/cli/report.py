"""`vestige report`: the page and the tables of a folder of results, from its records alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.errors import InputError, did_you_mean, shown

if TYPE_CHECKING:
    from vestige.contracts import Assessment

__all__ = ["FORMATS", "app", "write_tables"]

app = typer.Typer(add_completion=False)

FORMATS = ("csv", "tex")


@app.command()
def report(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder that a study or `compare --out` wrote, or one record."),
    ],
    html: Annotated[
        bool, typer.Option("--html", help="Write report.html. The default without --tables.")
    ] = False,
    tables: Annotated[
        str | None, typer.Option("--tables", help="Write tables: csv, tex, or both with a comma.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to. Default: DIR itself.")
    ] = None,
    title: Annotated[str, typer.Option("--title", help="Heading of the page.")] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every verdict and what was written as JSON.")
    ] = False,
) -> None:
    """Write the report of a folder of results, read from its records: no model is loaded.

    The page is one file without scripts or network. Tables: verdicts and every measurement as CSV, the
    verdict tables as LaTeX.
    """
    from vestige.files import writable_folder
    from vestige.report.html import write_report
    from vestige.report.reader import read_assessments
    from vestige.study.store import refresh_manifest

    formats = _formats(tables)
    assessments = read_assessments(folder)
    target = writable_folder(out or (folder.parent if folder.is_file() else folder))
    written = []
    if html or not formats:
        written.append(write_report(assessments, target / "report.html", title=title))
    written += write_tables(assessments, target / "tables", formats)
    refresh_manifest(target, *(path.relative_to(target).as_posix() for path in written))
    if as_json:
        typer.echo(_record(assessments, written))
        return
    for path in written:
        typer.echo(f"Written: {path}")


def write_tables(assessments: Sequence[Assessment], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write the tables in these formats and return their paths. Raises InputError."""
    from vestige.files import write_text
    from vestige.report.export import LONG_COLUMNS, long_rows, to_csv, to_tex, verdict_rows
    from vestige.report.tables import verdict_table

    written: list[Path] = []

    def write(name: str, text: str) -> None:
        write_text(folder / name, text)
        written.append(folder / name)

    if "csv" in formats:
        header, *rows = verdict_rows(assessments)
        write("verdicts.csv", to_csv(header, rows))
        write("measurements.csv", to_csv(LONG_COLUMNS, long_rows(assessments)))
    if "tex" in formats:
        text = "\n".join(to_tex(verdict_table(item), caption=item.name) for item in assessments)
        write("verdicts.tex", text)
    return written


def _formats(given: str | None) -> list[str]:
    found = [part.strip() for part in (given or "").split(",") if part.strip()]
    for name in found:
        if name not in FORMATS:
            raise InputError("--tables", shown(name), " or ".join(FORMATS), did_you_mean(name, FORMATS))
    if given is not None and not found:
        raise InputError("--tables", "no format", " or ".join(FORMATS), "for example --tables csv,tex")
    return found


def _record(assessments: Sequence[Assessment], written: Sequence[Path]) -> str:
    import json

    from vestige.contracts import Undefined
    from vestige.report.sentence import sentence

    verdicts = [
        {
            "assessment": item.name,
            "model": model.label,
            "decision": model.decision.model_dump()
            if isinstance(model.decision, Undefined)
            else model.decision,
            "sentence": sentence(item, model.label),
        }
        for item in assessments
        for model in item.models
        if model.role == "unlearned"
    ]
    record = {"verdicts": verdicts, "written": [str(path) for path in written]}
    return json.dumps(record, ensure_ascii=False, indent=2)
