"""`vestige study`: run, tune, freeze, check and audit planned studies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.cli.study_lines import print_audit, print_status, print_tuning, settings_text
from vestige.errors import CheckFailed, InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vestige.study.runner import Execution
    from vestige.study.sweep import Study, StudyRun

__all__ = ["app", "run_and_report"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Run, tune, freeze, check and audit studies."
)

Source = Annotated[str, typer.Argument(metavar="STUDY", help="A study file, or the name of a shipped study.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder that `study run` or `tune` wrote.")]
Out = Annotated[Path | None, typer.Option("--out", help="Run folder; default runs/NAME.")]
Data = Annotated[Path | None, typer.Option("--data", help="Where the study's data set lies.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Worker processes for independent trainings.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads of each; default all cores, with --jobs 2 or more one."),
]
Scale = Annotated[
    str | None,
    typer.Option(
        "--scale",
        metavar="small",
        help="small: 30 % of the rows, at most 3 bundles and 2 seeds, on MiniLM; of a language study its "
        "own smaller settings.",
    ),
]
Reuse = Annotated[
    list[Path] | None,
    typer.Option(
        "--reuse", help="A run folder whose finished models are taken where all is equal; repeatable."
    ),
]
Frozen = Annotated[
    list[Path] | None,
    typer.Option(
        "--frozen",
        help="A record of frozen settings, for `frozen: true` or `frozen_by` its study; repeatable.",
    ),
]
MERGED_SHOWN = 3
Json = Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")]


@app.command()
def run(
    study: Source,
    out: Out = None,
    data: Data = None,
    scale: Scale = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    frozen: Frozen = None,
    reuse: Reuse = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", help="Of a language study: NAME=FILE in place of its source. Repeatable."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="Of a language study: one of its models by name, or another to start from."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="List the cells, what they share and the time; of a language study its texts and stages. "
            "Train nothing.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Train, unlearn, score and assess what is missing of a study, arm by arm.

    Every model and table of probabilities is kept under a hash of all that changes its numbers; what is done
    is skipped, so the same command goes on after an interruption. Writes assessments/*.json and report.html.
    A study with `kind: language` is of one causal language model: footprint, behaviour and relearning.
    """
    from vestige.language_study.plan import language_source

    if language_source(study) is not None:
        from vestige.cli.language_study import run_language

        _refuse(data=data, frozen=frozen, reuse=reuse, threads=threads, jobs=jobs if jobs > 1 else None)
        run_language(
            study, out=out, texts=text or [], model=model, scale=scale, dry_run=dry_run, as_json=as_json
        )
        return
    for option, given in (("--text", text), ("--model", model)):
        if given:
            raise InputError(option, "a study of decision models", "a language study", f"leave {option} away")
    found = _study(study, data, scale, frozen or ())
    folder = out or _folder(found)
    if dry_run:
        _dry_run(found, folder, as_json, _execution(1, None, reuse))
        return
    result = run_and_report(found, folder, _execution(jobs, threads, reuse))
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
    study: Source,
    out: Out = None,
    data: Data = None,
    scale: Scale = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    reuse: Reuse = None,
    as_json: Json = False,
) -> None:
    """Choose every method's settings on bundle 00, development rows alone. Writes tuning.json.

    Of a study with arms the first one is tuned.
    """
    from vestige.cli.console import Progress
    from vestige.study.sweep import arm_folders, open_sweep
    from vestige.study.tune import tune_study

    found = _study(study, data, scale)
    root = out or _folder(found)
    open_sweep(found, root)
    folder = next(iter(arm_folders(found, root).values()))
    execution = _execution(jobs, threads, reuse)
    with Progress(1.0) as progress:
        tuning = tune_study(found.plan, folder, text=found.text, execution=execution, report=progress)
    if as_json:
        typer.echo(tuning.to_json())
        return
    print_tuning(tuning)
    typer.echo(f"Record: {folder / 'tuning.json'}. Next: vestige study freeze {root}")


@app.command()
def freeze(
    folder: Folder,
    match_suppression: Annotated[
        str | None,
        typer.Option(
            "--match-suppression",
            metavar="S",
            help="Choose by suppression instead: nearest this ratio, or `default` for the data set's.",
        ),
    ] = None,
    each: Annotated[
        str | None,
        typer.Option(
            "--each",
            metavar="SETTING",
            help="With --match-suppression: once for every tested value of it but the chosen one.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the tuned settings down, before anything of a confirmation is evaluated.

    With --match-suppression: per method the feasible development candidate whose suppression is nearest, in a
    record of its own for exploratory studies (`frozen: PATH`).
    """
    from vestige.study.freeze import freeze_study, match_study
    from vestige.study.frozen import FROZEN

    root = next(iter(_runs(folder).values()), None)
    if root is None:
        raise InputError(
            str(folder), "no arm that has begun", "a tuned study", "run `vestige study tune` first"
        )
    if each is not None and match_suppression is None:
        raise InputError(
            "--each", "no --match-suppression", "both", "add --match-suppression or leave it away"
        )
    if match_suppression is None:
        frozen, name = freeze_study(root), FROZEN
    else:
        frozen, name = match_study(root, _target(match_suppression), each=each)
    if as_json:
        typer.echo(frozen.to_json())
        return
    for item in frozen.methods:
        settings = "no feasible setting" if item.settings is None else settings_text(item.settings)
        edge = f" (edge of the grid: {', '.join(item.edges)})" if item.edges else ""
        edge += f" (not bracketed: {', '.join(item.unbracketed)})" if item.unbracketed else ""
        matched = "" if item.gap is None else f"; s {item.s:.3f}, {item.gap:.3f} from {frozen.match:g}"
        note = f" ({item.note})" if item.note else ""
        typer.echo(f"{item.label}: {settings}{matched}{edge}{note}")
    typer.echo(f"Frozen {frozen.time} in {root / name}; family: {', '.join(frozen.family) or 'none'}")


@app.command()
def status(folder: Folder, as_json: Json = False) -> None:
    """What is done, at work and missing, with times; of a study with arms, arm by arm."""
    from vestige.study.status import study_status

    found = {arm: study_status(path) for arm, path in _runs(folder).items()}
    if as_json:
        typer.echo(_by_arm(found))
        return
    for arm, item in found.items():
        if arm:
            typer.echo(f"\n{arm}:")
        print_status(item)


@app.command()
def audit(folder: Folder, as_json: Json = False) -> None:
    """Recompute every distance and interval with code of its own, and check what the folder claims.

    Exit code 1 when a check fails.
    """
    from vestige.report.pages_audit import audited

    _runs(folder)
    reports = audited(folder)
    if as_json:
        typer.echo(_by_arm(reports))
    else:
        for arm, report in reports.items():
            if arm:
                typer.echo(f"\n{arm}:")
            print_audit(report)
    failed = [
        f"{arm}: {check.name}" if arm else check.name
        for arm, report in reports.items()
        for check in report.checks
        if check.status == "failed"
    ]
    if failed:
        raise CheckFailed(f"audit of {folder}: {len(failed)} check(s) failed: {', '.join(failed)}")


@app.command()
def verify(
    folder: Folder,
    cell: Annotated[str, typer.Argument(metavar="CELL", help="Bundle and seed, as in 01-s17.")],
    arm: Annotated[str, typer.Option("--arm", help="Of a study with arms: which.")] = "",
    method: Annotated[str | None, typer.Option("--method", help="One label instead of all.")] = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Make one cell anew, models and probabilities, and compare it with what is stored.

    Exit code 1 when anything differs. Nothing of the folder is changed.
    """
    from vestige.cli.console import Progress
    from vestige.study.verify import verify_cell

    runs = _runs(folder)
    if arm not in runs:
        known = [name for name in runs if name]
        remedy = (
            "leave --arm away" if not known else did_you_mean(arm, known) if arm else f"add --arm {known[0]}"
        )
        raise InputError(
            f"{folder}: arm",
            f"'{arm}'" if arm else "none named",
            f"one of {', '.join(known)}" if known else "a study with arms",
            remedy,
        )
    with Progress(1.0) as progress:
        report = verify_cell(
            runs[arm], cell, method=method, execution=_execution(jobs, threads, None), report=progress
        )
    if as_json:
        typer.echo(report.to_json())
    else:
        for item in report.parts:
            typer.echo(
                f"{'same' if item.same else 'differs':<8} {item.label}{f': {item.note}' if item.note else ''}"
            )
    if not report.same:
        raise CheckFailed(f"{folder}, cell {cell}: what was made anew differs from what is stored")


@app.command()
def show(
    study: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A shipped study; all without one.")
    ] = None,
) -> None:
    """Print a shipped study file, to copy and change; without a name, list them."""
    from vestige.language_study.plan import load_language_study, shipped_language_studies
    from vestige.study.source import shipped_studies
    from vestige.study.sweep import load_study

    shipped, language = shipped_studies(), shipped_language_studies()
    if study in language:
        typer.echo(language[study], nl=False)
        return
    if study is None:
        for name in shipped:
            found = load_study(name)
            arms = ""
            if found.sweeps:
                arms = (
                    f"; {len(found.arms)} arms" if len(found.arms) > 6 else f"; arms {', '.join(found.arms)}"
                )
            typer.echo(f"{name} ({found.plan.stage}): {found.plan.about or found.plan.dataset.name}{arms}")
        for name in language:
            typer.echo(f"{name} (language model): {load_language_study(name).about}")
        return
    if study not in shipped:
        raise InputError(
            f"shipped study '{study}'",
            "no such name",
            "a shipped study",
            did_you_mean(study, [*shipped, *language]),
        )
    typer.echo(shipped[study], nl=False)


def _refuse(**given: Any) -> None:
    """Raise InputError for an option that a language study does not have."""
    for name, value in given.items():
        if value:
            raise InputError(
                f"--{name}", "a language study", "a study of decision models", f"leave --{name} away"
            )


def run_and_report(study: Study, folder: Path, execution: Execution) -> StudyRun:
    """Run with progress on the terminal and write report.html."""
    from vestige.cli.console import Progress
    from vestige.report.publish import Wanted, publish, read_publication
    from vestige.study.sweep import run_all

    with Progress(1.0) as progress:
        result = run_all(
            study,
            folder,
            execution=execution,
            report=progress,
            between=lambda arm: progress.say(
                f"arm {arm} ({list(study.arms).index(arm) + 1} of {len(study.arms)})"
            ),
        )
        if result.assessments:
            progress.stage("writing the report")
            wanted = Wanted(title=study.name)
            publish(folder, folder, wanted, read_publication(folder, wanted))
    return result


def _study(source: str, data: Path | None, scale: str | None, frozen: Sequence[Path] = ()) -> Study:
    from vestige.study.sweep import load_study

    found = load_study(source, data=data, scale=scale, frozen=frozen)
    merged = found.merged or {}
    for arm, other in list(merged.items())[:MERGED_SHOWN]:
        typer.echo(f"arm {arm} is the same as {other} at scale {scale}: it is not run", err=True)
    if len(merged) > MERGED_SHOWN:
        typer.echo(f"and {len(merged) - MERGED_SHOWN} more arms are the same as another", err=True)
    return found


def _folder(study: Study) -> Path:
    return Path("runs") / (f"{study.name}-{study.scale}" if study.scale else study.name)


def _runs(folder: Path) -> dict[str, Path]:
    from vestige.study.store import run_folders

    return run_folders(folder)


def _execution(jobs: int, threads: int | None, reuse: list[Path] | None = None) -> Execution:
    from vestige.study.runner import Execution

    sources = [path for root in reuse or () for path in _runs(root).values()]
    return Execution(jobs=jobs, threads=threads, reuse=tuple(sources))


def _by_arm(found: dict[str, Any]) -> str:
    """One record as it is; several as an object by arm."""
    if list(found) == [""]:
        return str(found[""].to_json())
    return _json({arm: item.model_dump(mode="json") for arm, item in found.items()})


def _json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, ensure_ascii=False)


def _target(value: str) -> float | None:
    """A suppression ratio; None for `default`."""
    if value == "default":
        return None
    try:
        return float(value)
    except ValueError:
        raise InputError(
            "--match-suppression", f"'{value}'", "a number, or default", "give, for example, 0.6"
        ) from None


def _dry_run(study: Study, folder: Path, as_json: bool, execution: Execution) -> None:
    from dataclasses import asdict

    from vestige.study.outline import outline_all
    from vestige.study.sweep import arm_folders, placed

    plans = placed(study, folder, lenient=True)
    found, total = outline_all(plans, arm_folders(study, folder), execution=execution)
    if as_json:
        typer.echo(_json({"work": [asdict(item) for item in found], "summary": asdict(total)}))
        return
    arm = ""
    for item in found:
        if item.kind == "refused":
            continue
        if item.arm != arm:
            arm = item.arm
            typer.echo(f"\n{arm}:")
        rows = f", about {item.cost:,.0f} rows through the model" if item.cost else ""
        typer.echo(f"{item.state:<15} {item.kind:<10} {item.label}{rows if item.state != 'done' else ''}")
    shared = f", {total.distinct} of them different" if total.distinct < total.trainings else ""
    hours = "an unknown time" if total.hours is None else _hours(total.hours)
    typer.echo(
        f"\n{total.cells} cell{'s' if total.cells != 1 else ''}; {total.trainings} trainings and "
        f"unlearnings{shared}, {total.done} done; "
        f"at most {total.rows:,.0f} rows through the model (rows x epochs), {hours} on one idle device"
    )
    for refusal in total.refusals:
        typer.echo(f"A run would refuse now: {refusal}")
    for basis in total.basis[:3]:
        typer.echo(f"Time from: {basis}")
    if len(total.basis) > 3:
        typer.echo(f"and from {len(total.basis) - 3} more (see --json)")
    typer.echo(f"Nothing was written to {folder}")


def _hours(hours: float) -> str:
    minutes = max(1, round(hours * 60))
    return (
        f"about {hours:,.1f} hours" if hours >= 1 else f"about {minutes} minute{'s' if minutes > 1 else ''}"
    )


def _print_result(result: StudyRun) -> None:
    from vestige.cli.compare import print_assessment
    from vestige.cli.console import output
    from vestige.report.recovered import recovered
    from vestige.report.together import together_lines

    console = output()
    recoveries = recovered([result.root / name for name in result.assessments])
    for (name, assessment), known in zip(result.assessments.items(), recoveries, strict=True):
        console.print(f"\n{assessment.name}")
        print_assessment(assessment, known)
        console.print(f"Record: {result.root / name}", soft_wrap=True)
    for line in together_lines(result.root):
        console.print(line, soft_wrap=True)
    for note in result.notes:
        console.print(note)
    if result.assessments:
        console.print(f"Report: {result.root / 'report.html'}", soft_wrap=True)
