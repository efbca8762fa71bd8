"""`vestige demo`: the main job on embedded data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Run folder.")] = Path("vestige-demo"),
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Worker processes.")] = 1,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Threads of each.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")] = False,
) -> None:
    """Delete two intents from the embedded helpdesk data and see whether unlearning reached retraining.

    Trains two full models and three oracles (so that it is known what training alone moves), unlearns with
    SimNPO and GradAscent, prints the verdict and writes report.html. Offline, minutes on two cores. The same
    command again goes on where it stopped.
    """
    from vestige.cli.compare import print_assessment
    from vestige.cli.study import run_and_report
    from vestige.study.runner import Execution
    from vestige.study.sweep import load_study

    result = run_and_report(load_study("demo"), out, Execution(jobs=jobs, threads=threads))
    for name, assessment in result.assessments.items():
        if as_json:
            typer.echo(assessment.to_json())
            continue
        print_assessment(assessment)
        typer.echo(f"Record: {out / name}\nReport: {out / 'report.html'}")
