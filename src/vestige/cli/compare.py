"""`vestige compare`: the verdict on prediction files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.margins import VERDICT_CONDITIONS, conditions_of, margins_of, verdict_fails
from vestige.errors import CheckFailed, InputError, first_five, shown, suggestion
from vestige.limits import MOST_DRAWS

if TYPE_CHECKING:
    from rich.table import Table

    from vestige.contracts import Assessment, ModelAssessment
    from vestige.report.recovered import Recovered
    from vestige.report.tables import Table as Content

__all__ = ["FAIL_ON", "app", "forgotten_options", "print_assessment"]

app = typer.Typer(add_completion=False)

FAIL_ON = {
    "infeasible": "retained accuracy or calibration suffered more than allowed",
    "no-benefit": "infeasible, no gain on both views, or a displacement within noise",
    "not-accepted": "any decision but accepted",
    **VERDICT_CONDITIONS,
}


@app.command()
def compare(
    full: Annotated[
        list[Path],
        typer.Option("--full", help="Predictions of the full model. More than one give the noise floor."),
    ],
    unlearned: Annotated[
        list[str],
        typer.Option(
            "--unlearned",
            metavar="[NAME=]PATH",
            help="Predictions of an unlearned model. Files with one NAME are training seeds of one method.",
        ),
    ],
    oracle: Annotated[
        list[Path] | None,
        typer.Option("--oracle", help="Predictions of a model retrained without the deleted rows."),
    ] = None,
    forget: Annotated[
        list[str] | None,
        typer.Option("--forget", help="Deleted options: one, or several with commas between. Repeatable."),
    ] = None,
    forget_file: Annotated[
        Path | None, typer.Option("--forget-file", help="Deleted options, one JSON string a line.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for assessment.json and report.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")] = False,
    draws: Annotated[
        int, typer.Option("--draws", min=1, max=MOST_DRAWS, help="Resamples of every bootstrap.")
    ] = 5000,
    fail_on: Annotated[
        list[str] | None,
        typer.Option("--fail-on", help=f"Exit with 1 when this holds for any model: {', '.join(FAIL_ON)}."),
    ] = None,
    margin: Annotated[
        list[str] | None,
        typer.Option(
            "--margin",
            metavar="NAME=VALUE",
            help="What the verdict counts as small, set before looking: excess, memory, retained, accuracy, "
            "calibration, gain. Repeatable.",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the comparison.")] = "comparison",
    unit: Annotated[
        str | None,
        typer.Option("--unit", help="What a unit is: class, association, row or a column's name."),
    ] = None,
    filtered: Annotated[
        bool,
        typer.Option(
            "--filtered",
            help="Judge a model's outputs although they are the full model's own behind a filter.",
        ),
    ] = False,
    condition: Annotated[
        str | None,
        typer.Option("--condition", help="What intervals are conditional on, e.g. 'training seed 17'."),
    ] = None,
) -> None:
    """Compare unlearned models with the full model and, where there is one, a retrained model.

    Files: JSONL, CSV, Parquet or .npz with row_id, view (F deleted training rows, G unseen rows of what was
    deleted, R all others), unit, gold and the probability of every option (columns p:OPTION, in JSONL an
    object p, in .npz also arrays p and options). Rows are matched by row_id and options by name. Without
    --oracle it says what left the deleted options and where it went, not whether that is where retraining
    would have put it.
    """
    from vestige.files import writable_folder
    from vestige.study.compare import CONDITION, load_tables
    from vestige.study.compare import compare as run

    conditions = conditions_of(fail_on or [], FAIL_ON)
    margins = margins_of(margin or [])
    if out is not None:
        writable_folder(out)
    tables = load_tables(full=full, unlearned=_methods(unlearned), oracle=oracle)
    assessment = run(
        full=tables.full,
        unlearned=tables.unlearned,
        oracle=tables.oracle or None,
        forget=forgotten_options(forget or [], forget_file, tables.full[0].options),
        name=name,
        draws=draws,
        margins=margins,
        unit=unit,
        condition=condition or CONDITION,
        filtered=filtered,
    )
    # What was computed is shown first: a full disk then costs the files, not the verdict.
    if as_json:
        typer.echo(assessment.to_json())
    else:
        print_assessment(assessment)
    if out is not None:
        _write(assessment, out)
        if not as_json:
            typer.echo(f"Record: {out / 'assessment.json'}\nReport: {out / 'report.html'}")
    _check(assessment, conditions)


def _methods(given: Sequence[str]) -> list[str] | dict[str, list[str]]:
    """Paths as they are where none is named; else name -> its paths, a path alone under its own stem."""
    named = [_name_and_path(value) for value in given]
    if not any(name for name, _ in named):
        return list(given)
    found: dict[str, list[str]] = {}
    for name, path in named:
        found.setdefault(name or Path(path).stem, []).append(path)
    return found


def _name_and_path(value: str) -> tuple[str, str]:
    """The parts of NAME=PATH; a file whose name holds `=` is that file."""
    name, sign, path = value.partition("=")
    return (name.strip(), path) if sign and path and not Path(value).exists() else ("", value)


def forgotten_options(given: Sequence[str], file: Path | None, options: Sequence[str]) -> list[str]:
    """The options that `--forget` and `--forget-file` name.

    A value that is an option is that option, whatever characters it has; else it is split at commas. Lines of
    the file are JSON strings. Raises InputError for names that are no option.
    """
    known = set(options)
    names: list[str] = []
    asked = bool(given) or file is not None
    for value in given:
        names += [value] if value in known else [part for part in value.split(",") if part]
    if file is not None:
        names += _json_lines(file)
    names = [name if name in known else name.strip() for name in names]
    if asked and not names:
        raise InputError(
            "--forget" if given else str(file),
            "no option",
            "at least one",
            "name what was deleted, or leave it out where rows and not options were deleted",
        )
    missing = [name for name in dict.fromkeys(names) if name not in known]
    if missing:
        raise InputError(
            "--forget",
            f"no option {first_five(missing)}",
            f"names among the {len(known)} options of the files",
            suggestion(missing[0], known) or f"options begin {first_five(sorted(known))}",
        )
    return list(dict.fromkeys(names))


def _json_lines(file: Path) -> list[str]:
    from vestige.readers import json_value, text_of_file

    names = []
    for number, line in enumerate(
        text_of_file(file, "a file of JSON strings, one a line").split("\n"), start=1
    ):
        if not line.strip():
            continue
        remedy = 'write each option in double quotes, for example "card, lost"'
        try:
            value = json_value(line, "")
        except InputError:
            value = None
        if not isinstance(value, str):
            raise InputError(f"{file}, line {number}", shown(line), "one JSON string a line", remedy)
        names.append(value)
    return names


def _write(assessment: Assessment, out: Path) -> None:
    from vestige.files import write_text
    from vestige.report.html import write_report

    write_text(out / "assessment.json", assessment.to_json() + "\n")
    write_report([assessment], out / "report.html")


def print_assessment(assessment: Assessment, recoveries: Recovered = MappingProxyType({})) -> None:
    """The verdicts with their sentences, the table of what decides, and every caveat, on standard output."""
    from vestige.cli.console import output, paragraph
    from vestige.report.answers import evidence_table, published_tag
    from vestige.report.sentence import told
    from vestige.report.tables import published_table
    from vestige.report.words import short

    console = output()
    tested = [model for model in assessment.models if model.role == "unlearned"]
    judged = [model for model in tested if model.evidence is not None]
    for model in tested:
        said = told(assessment, model.label, recoveries.get(model.label))
        if model.verdict is not None:
            paragraph(console, f"{short(model.label)}: {model.headline} ({published_tag(model)})")
        paragraph(console, f"{said}\n")
        if not assessment.has_oracle:
            for line in _destinations(model):
                paragraph(console, line)
    content = evidence_table(assessment) if judged else published_table(assessment)
    for table in _tables(content, console.width, across=not judged):
        console.print(table)
    for note in content.notes:
        paragraph(console, f"{note}." if judged else f"Brackets: {note}.")
    if judged and assessment.has_oracle:
        paragraph(console, "\nPublished rule")
        for model in judged:
            paragraph(console, f"- {told(assessment, model.label).published}")
    paragraph(console, "\nCaveats")
    for caveat in assessment.caveats:
        paragraph(console, f"- {caveat}")


def _destinations(model: ModelAssessment) -> Iterator[str]:
    """Where the probability went, a line a forgotten option."""
    from vestige.report.words import short, styled

    for item in model.destinations:
        to = [f"{short(name)} {styled(gain, 'signed')}" for name, gain in item.to]
        to.append(f"elsewhere {styled(item.elsewhere, 'signed')}")
        yield (
            f"- {short(item.forgotten)} ({item.rows} rows) lost {styled(item.moved, 'number')} on average; "
            f"{', '.join(to)}"
        )


_LABELS = 30
_MODEL = 22
"""Terminal columns of the row labels and of one model."""


def _tables(content: Content, width: int, *, across: bool) -> Iterator[Table]:
    """Measures down, models across; as many tables as the width needs. across: `content` has models down."""
    from rich.table import Table

    from vestige.report.words import short

    if across:
        header = [row.label for row in content.rows]
        lines = [
            [title, *(str(row.cells[place]) for row in content.rows)]
            for place, title in enumerate(content.header()[1:])
        ]
    else:
        header = content.header()[1:]
        lines = [
            [row.label, *("\n".join([cell.text, *cell.lines]) for cell in row.cells)] for row in content.rows
        ]
    at_once = max(1, (width - _LABELS) // _MODEL)
    for start in range(0, len(header), at_once):
        caption = content.caption if start == 0 else f"{content.caption}, continued"
        table = Table(title=caption, title_justify="left")
        table.add_column(content.head)
        for title in header[start : start + at_once]:
            table.add_column(short(title), justify="right", overflow="fold")
        for label, *cells in lines:
            table.add_row(label, *cells[start : start + at_once])
        yield table


def _check(assessment: Assessment, conditions: Sequence[str]) -> None:
    """Raise CheckFailed when a `--fail-on` condition holds for a model under test."""
    failed = [
        f"{shown(model.label)} is {condition.replace('-', ' ')} ({_said(model, condition)})"
        for condition in conditions
        for model in assessment.models
        if model.role == "unlearned" and _fails(model, condition)
    ]
    if failed:
        raise CheckFailed(f"--fail-on: {'; '.join(failed)}")


def _said(model: ModelAssessment, condition: str) -> str:
    """The word that a condition was judged by: the verdict, or the published rule's."""
    if condition in VERDICT_CONDITIONS:
        return f"verdict: {model.verdict}"
    return f"published rule: {model.decision}"


def _fails(model: ModelAssessment, condition: str) -> bool:
    from vestige.study.assess import is_feasible

    infeasible = is_feasible(model) is not True
    match condition:
        case "infeasible":
            return infeasible
        case "no-benefit":
            return infeasible or model.decision not in ("accepted", "positive, unconfirmed")
        case "not-accepted":
            return model.decision != "accepted"
        case _:
            return verdict_fails(model.verdict, condition)
