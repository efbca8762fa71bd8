"""`vestige study`: run, tune, freeze, check and audit planned studies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.errors import CheckFailed, InputError, did_you_mean

if TYPE_CHECKING:
    from vestige.study.plan import Plan
    from vestige.study.runner import Execution, StudyResult
    from vestige.study.status import StudyStatus
    from vestige.study.tune import Tuning

__all__ = ["app", "run_and_report"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Run, tune, freeze, check and audit studies."
)

Study = Annotated[str, typer.Argument(metavar="STUDY", help="A study file, or the name of a shipped study.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder that `study run` or `tune` wrote.")]
Out = Annotated[Path | None, typer.Option("--out", help="Run folder; default runs/NAME.")]
Data = Annotated[Path | None, typer.Option("--data", help="Where the study's data set lies.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Worker processes for independent trainings.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads of each; default all cores, with --jobs 2 or more one."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")]


@app.command()
def run(
    study: Study,
    out: Out = None,
    data: Data = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be trained, and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Train, unlearn, score and assess what is missing of a study.

    Every model and table of probabilities is kept under a hash of all that changes its numbers; what is done
    is skipped, so the same command goes on after an interruption. Writes assessments/*.json and report.html.
    """
    plan, text = _plan(study, data)
    folder = out or Path("runs") / plan.name
    if dry_run:
        _dry_run(plan, folder, as_json)
        return
    result = run_and_report(plan, folder, text, _execution(jobs, threads))
    if as_json:
        typer.echo(_json([item.model_dump(mode="json") for item in result.assessments.values()]))
    else:
        _print_result(result)
    if result.failures:
        first = result.failures[0]
        raise CheckFailed(
            f"{len(result.failures)} model(s) could not be made; the first, {first.label}: {first.reason}"
        )


@app.command()
def tune(
    study: Study,
    out: Out = None,
    data: Data = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Choose every method's settings on bundle 00, development rows alone. Writes tuning.json."""
    from vestige.cli.console import Progress
    from vestige.study.tune import tune_study

    plan, text = _plan(study, data)
    folder = out or Path("runs") / plan.name
    with Progress(1.0) as progress:
        tuning = tune_study(plan, folder, text=text, execution=_execution(jobs, threads), report=progress)
    if as_json:
        typer.echo(tuning.to_json())
        return
    _print_tuning(tuning)
    typer.echo(f"Record: {folder / 'tuning.json'}. Next: vestige study freeze {folder}")


@app.command()
def freeze(folder: Folder, as_json: Json = False) -> None:
    """Write the tuned settings down for a confirmation, before anything of it is evaluated."""
    from vestige.study.freeze import freeze_study

    frozen = freeze_study(folder)
    if as_json:
        typer.echo(frozen.to_json())
        return
    for item in frozen.methods:
        settings = "no feasible setting" if item.settings is None else _settings(item.settings)
        edge = f" (edge of the grid: {', '.join(item.edges)})" if item.edges else ""
        typer.echo(f"{item.label}: {settings}{edge}")
    typer.echo(
        f"Frozen {frozen.time} in {folder / 'frozen.json'}; family: {', '.join(frozen.family) or 'none'}"
    )


@app.command()
def status(folder: Folder, as_json: Json = False) -> None:
    """What is done, at work and missing, with times."""
    from vestige.study.status import study_status

    found = study_status(folder)
    if as_json:
        typer.echo(found.to_json())
    else:
        _print_status(found)


@app.command()
def audit(folder: Folder, as_json: Json = False) -> None:
    """Recompute every distance and interval with code of its own, and check what the folder claims.

    Exit code 1 when a check fails.
    """
    from vestige.study.audit import audit_study

    report = audit_study(folder)
    if as_json:
        typer.echo(report.to_json())
    else:
        for check in report.checks:
            typer.echo(f"{check.status:<12} {check.name}: {check.detail}")
            for finding in check.findings[:5]:
                typer.echo(f"{'':<13}- {finding}")
            if len(check.findings) > 5:
                typer.echo(f"{'':<13}- and {len(check.findings) - 5} more (see --json)")
    if not report.passed:
        failed = [check.name for check in report.checks if check.status == "failed"]
        raise CheckFailed(f"audit of {folder}: {len(failed)} check(s) failed: {', '.join(failed)}")


@app.command()
def show(
    study: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A shipped study; all without one.")
    ] = None,
) -> None:
    """Print a shipped study file, to copy and change; without a name, list them."""
    from vestige.study.plan import parse_plan
    from vestige.study.source import shipped_studies

    shipped = shipped_studies()
    if study is None:
        for name, text in shipped.items():
            plan = parse_plan(text, name)
            methods = ", ".join(entry.label or entry.method for entry in plan.methods)
            typer.echo(
                f"{name}: {plan.dataset.name}, {plan.deletion.granularity} deletion, {plan.stage}; {methods}"
            )
        return
    if study not in shipped:
        raise InputError(
            f"shipped study '{study}'", "no such name", "a shipped study", did_you_mean(study, shipped)
        )
    typer.echo(shipped[study], nl=False)


def run_and_report(plan: Plan, folder: Path, text: str, execution: Execution) -> StudyResult:
    """Run with progress on the terminal and write report.html."""
    from vestige.cli.console import Progress
    from vestige.report.html import write_report
    from vestige.study.runner import run_study
    from vestige.study.store import refresh_manifest

    with Progress(1.0) as progress:
        result = run_study(plan, folder, text=text, execution=execution, report=progress)
        if result.assessments:
            progress.stage("writing the report")
            write_report(list(result.assessments.values()), folder / "report.html", title=plan.name)
            refresh_manifest(folder, "report.html")
    return result


def _plan(study: str, data: Path | None) -> tuple[Plan, str]:
    from vestige.data.intents import DatasetSpec
    from vestige.study.plan import load_plan

    plan, text = load_plan(study)
    if data is not None:
        raw = {**plan.dataset.model_dump(exclude_unset=True), "path": str(data)}
        plan = plan.model_copy(update={"dataset": DatasetSpec.model_validate(raw)})
    return plan, text


def _execution(jobs: int, threads: int | None) -> Execution:
    from vestige.study.runner import Execution

    return Execution(jobs=jobs, threads=threads)


def _json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _dry_run(plan: Plan, folder: Path, as_json: bool) -> None:
    from dataclasses import asdict

    from vestige.study.runner import outline

    found = outline(plan, folder, execution=_execution(1, None))
    if as_json:
        typer.echo(_json([asdict(item) for item in found]))
        return
    for item in found:
        rows = f", about {item.cost:,.0f} training rows" if item.cost else ""
        typer.echo(f"{item.state:<15} {item.kind:<10} {item.label}{rows if item.state != 'done' else ''}")
    left = sum(item.cost for item in found if item.state != "done")
    typer.echo(f"At most {left:,.0f} training rows of work; nothing was written to {folder}")


def _print_result(result: StudyResult) -> None:
    from vestige.cli.compare import print_assessment
    from vestige.cli.console import output

    console = output()
    for name, assessment in result.assessments.items():
        console.print(f"\n{assessment.name}")
        print_assessment(assessment)
        console.print(f"Record: {result.root / name}", soft_wrap=True)
    if result.assessments:
        console.print(f"Report: {result.root / 'report.html'}", soft_wrap=True)


def _print_tuning(tuning: Tuning) -> None:
    rows = ", ".join(f"{view} {count}" for view, count in tuning.rows.items())
    typer.echo(
        f"Bundle {tuning.bundle}, seed {tuning.seed}; development rows: {rows}. Tuning used an oracle."
    )
    for item in tuning.methods:
        tried = f"{item.candidates} of at most {item.budget} candidates, {item.feasible_candidates} feasible"
        if item.settings is None or item.chosen is None:
            typer.echo(f"{item.title}: {item.note} ({tried})")
            continue
        edge = f"; at the edge of the grid: {', '.join(item.edges)}" if item.edges else ""
        varied = {name: item.settings[name] for name in [*item.grid, "epochs"]}
        typer.echo(
            f"{item.title}: {_settings(varied)}; OD_F {item.chosen.od_f:.4f}, OD_G {item.chosen.od_g:.4f}, "
            f"accuracy {item.chosen.delta_accuracy:+.4f} ({tried}{edge})"
        )
    if not tuning.equal_budgets:
        typer.echo("Budgets differ between methods; they are recorded.")


def _print_status(found: StudyStatus) -> None:
    from vestige.cli.console import duration

    state = "a run is at work" if found.running else "no run is at work"
    typer.echo(f"{found.name} ({found.stage}): {state}; {duration(found.seconds)} of work kept")
    for what, time in (("tuned", found.tuned), ("frozen", found.frozen)):
        if time:
            typer.echo(f"{what} {time}")
    for item in found.work:
        if item.kind == "predictions" and item.state == "done":
            continue
        parts = [f"{item.state:<12} {item.kind:<10} {item.label}"]
        if item.share is not None:
            parts.append(f"{item.share:.0%}")
        if item.seconds is not None:
            parts.append(duration(item.seconds))
        parts += [part for part in (item.finished, item.note) if part]
        typer.echo(", ".join(parts))
