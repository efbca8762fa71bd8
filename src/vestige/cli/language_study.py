"""`vestige study run` of a study with `kind: language`, and what it would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vestige.errors import CheckFailed, InputError, MissingDependency

if TYPE_CHECKING:
    from vestige.language_study.plan import LanguagePlan
    from vestige.language_study.records import CheckpointRow, LanguageStudyRecord

__all__ = ["run_language"]


def run_language(
    study: str,
    *,
    out: Path | None,
    texts: list[str],
    model: str | None,
    scale: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run it, or say what it would do."""
    from vestige.language_study.plan import load_language_study, study_models

    plan = load_language_study(study, texts=_texts(texts), model=model, scale=scale)
    models = study_models(study)
    parts = [plan.name, *([model] if model in models[1:] else []), *([scale] if scale else [])]
    folder = out or Path("runs") / "-".join(str(part) for part in parts)
    if dry_run:
        _dry_run(plan, folder, as_json, models)
        return
    from vestige.cli.console import Progress

    try:
        from vestige.language_study.run import run_language_study
    except ImportError as error:
        raise MissingDependency(error.name or "torch", "train", "vestige study run") from None
    with Progress(1.0) as progress:
        record = run_language_study(plan, folder, watcher=progress)
        page = _page(record, folder)
    if as_json:
        typer.echo(record.to_json())
    else:
        _print(record, folder, page)
    if record.failures:
        first = record.failures[0]
        raise CheckFailed(f"{len(record.failures)} stage(s) failed; the first, {first.name}: {first.failed}")
    if record.gates is not None and not record.gates.took:
        raise CheckFailed(f"the injection did not take: {record.gates.failed[0]}")


def _texts(values: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, mark, path = value.partition("=")
        if not mark or not name or not path:
            raise InputError("--text", f"'{value}'", "NAME=FILE", "for example --text forget=forget.jsonl")
        found[name] = path
    return found


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


def _page(record: LanguageStudyRecord, folder: Path) -> Path | None:
    """The footprint's page with everything that lies beside it."""
    from vestige.report.footprint.attached import extras_of
    from vestige.report.footprint.joined import beside
    from vestige.report.footprint.known import with_known_facts
    from vestige.report.footprint.page import write_footprint_report
    from vestige.report.footprint.reader import read_footprint

    path = folder / "footprint" / "footprint.json"
    if record.plan["footprint"] is None or not path.is_file():
        return None
    shifts = read_footprint(path)
    extras = with_known_facts(extras_of(shifts, beside(path), key="f1"), record)
    return write_footprint_report([shifts], folder / "report.html", title=record.name, extras=[extras])


def _print(record: LanguageStudyRecord, folder: Path, page: Path | None) -> None:
    from vestige.cli.console import output, paragraph

    console = output()
    for row in record.rows:
        paragraph(console, f"{row.label}: {row.verdict or row.role}")
        for line in _rests_on(row):
            paragraph(console, f"  {line}")
    for line in record.caveats:
        paragraph(console, f"- {line}")
    taken = sum(stage.taken for stage in record.stages)
    typer.echo(f"{len(record.stages)} stages, {taken} taken over from before")
    typer.echo(f"Table: {folder / 'table.csv'}. Record: {folder / 'language-study.json'}")
    if page is not None:
        typer.echo(f"Page: {page}")


def _rests_on(row: CheckpointRow) -> Iterator[str]:
    """What stands under a verdict: levels and memory, the same after relearning, and where weights moved."""

    def known(*numbers: tuple[str, object]) -> list[str]:
        return [text.format(value) for text, value in numbers if isinstance(value, float)]

    distance = row.injected.distance_f if row.injected is not None else None
    levels = known(
        ("probability of a forget token {:.3f}", row.level),
        ("memory {:.0%}", row.memory),
        ("distance to the oracle {:.3f}", distance),
        ("{:.1f} % of the answers lost", row.delta_f),
    )
    if levels:
        yield ", ".join(levels)
    before_after = known(("{:.1%}", row.relearn_before), ("{:.1%}", row.relearn_after))
    levels_after = f", {' to '.join(before_after)}" if before_after else ""
    yield f"relearning: {row.reading}{levels_after}"
    moved = known(
        ("forget {:.1f}", row.cofi_f), ("adjacent {:.1f}", row.cofi_a), ("generic {:.1f}", row.cofi_g)
    )
    shifts = f"{', '.join(moved)} % (CoFi), " if moved else ""
    yield f"weights moved: {shifts}{row.class_name}"


def _dry_run(plan: LanguagePlan, folder: Path, as_json: bool, models: Sequence[str]) -> None:
    """Texts, models and stages, and what is done; nothing is fetched or trained."""
    import json

    from vestige.language_study.outline import outline

    stages = outline(plan, folder)
    if as_json:
        typer.echo(
            json.dumps({"plan": plan.model_dump(mode="json"), "stages": stages}, indent=2, ensure_ascii=False)
        )
        return
    for line in (plan.about, plan.licence, plan.hazard):
        if line:
            typer.echo(line)
    typer.echo(f"model     {plan.model}{f'; also by name: {_list(models)}' if models else ''}")
    for name, source in plan.texts.items():
        part_of = source.config or source.file
        where = source.path or f"hub {source.hub}{f', {part_of}' if part_of else ''}, {source.split}"
        part = "" if source.rows is None else f", rows {source.start} to {source.start + source.rows - 1}"
        typer.echo(f"text      {name}: {where}{part}")
    for stage in stages:
        typer.echo(f"{stage['state']:<9} {stage['name']}")
    typer.echo(f"Nothing was written to {folder}")
