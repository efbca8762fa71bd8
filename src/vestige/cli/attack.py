"""`vestige attack`: attacks on the unlearned models of a finished run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vestige.cli.relearn import correlate, relearn
from vestige.errors import CheckFailed, InputError, shown

if TYPE_CHECKING:
    from vestige.attacks.records import RecoveryRecord
    from vestige.contracts import Estimate

__all__ = ["app"]

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Attack unlearned models.")
app.command("relearn")(relearn)
app.command("correlate")(correlate)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `study run` finished.")]
Method = Annotated[
    list[str] | None, typer.Option("--method", help="Label of a method; repeat it for more. Default: all.")
]
Bundles = Annotated[str | None, typer.Option("--bundles", help="Bundles with commas: 01,02. Default: all.")]
Seeds = Annotated[str | None, typer.Option("--seeds", help="Training seeds with commas. Default: all.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="Worker processes.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Threads of each; default all cores, with --jobs 2 or more one."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the records and nothing else.")]


@app.command()
def recover(
    folder: Folder,
    method: Method = None,
    budgets: Annotated[
        str | None, typer.Option("--budgets", help="Rows a forgotten class, rising. Default: 1,5,20.")
    ] = None,
    adapt_seeds: Annotated[
        str | None, typer.Option("--adapt-seeds", help="Seeds of rows and order. Default: 0,1.")
    ] = None,
    evaluations: Annotated[
        str | None, typer.Option("--evaluations", help="Updates to score after. Default: 0,1,5,10,25.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", help="Constant rate. Default: 1e-4.")
    ] = None,
    controls: Annotated[
        bool | None, typer.Option("--controls/--no-controls", help="Seen rows and the label swap.")
    ] = None,
    bundles: Bundles = None,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Fine-tune full, unlearned and retrained checkpoints alike on a few rows of the forgotten classes.

    Follows the gold probability of their unseen rows over the updates. Writes recovery/*.json and *.parquet;
    what is done is skipped, so the same command goes on after an interruption.
    """
    changes: dict[str, Any] = {
        "budgets": _numbers(budgets, "--budgets"),
        "adapt_seeds": _numbers(adapt_seeds, "--adapt-seeds"),
        "evaluations": _numbers(evaluations, "--evaluations"),
        "learning_rate": learning_rate,
        "controls": controls,
    }
    _attack(folder, "recover", changes, method, bundles, seeds, jobs, threads, as_json)


@app.command("fresh-head")
def fresh_head(
    folder: Folder,
    method: Method = None,
    initialisations: Annotated[
        int, typer.Option("--initialisations", min=1, help="New heads a checkpoint.")
    ] = 3,
    bundles: Bundles = None,
    seeds: Seeds = None,
    jobs: Jobs = 1,
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train new heads on the frozen backbones, on retained classes alone, and score the forgotten ones.

    Writes recovery/*.json. It does not show extraction of records.
    """
    changes = {"fresh_heads": initialisations}
    _attack(folder, "fresh-head", changes, method, bundles, seeds, jobs, threads, as_json)


def _attack(
    folder: Path,
    verb: Literal["recover", "fresh-head"],
    changes: dict[str, Any],
    methods: Sequence[str] | None,
    bundles: str | None,
    seeds: str | None,
    jobs: int,
    threads: int | None,
    as_json: bool,
) -> None:
    from vestige.cli.console import Progress
    from vestige.study.attack import attack_folder, folders_with
    from vestige.study.runner import Execution

    records: dict[str, RecoveryRecord] = {}
    failures: list[Any] = []
    with Progress(1.0) as progress:
        for arm, (root, labels) in folders_with(folder, methods or None).items():
            made, failed = attack_folder(
                root,
                verb,
                {name: value for name, value in changes.items() if value is not None},
                methods=labels,
                bundles=None if bundles is None else tuple(part.strip() for part in bundles.split(",")),
                seeds=_numbers(seeds, "--seeds"),
                execution=Execution(jobs=jobs, threads=threads),
                report=progress,
            )
            records |= {f"{arm}/{name}" if arm else name: record for name, record in made.items()}
            failures += failed
    if as_json:
        import json

        found = [record.model_dump(mode="json") for record in records.values()]
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        for name, record in records.items():
            _print(name, record)
        if records:
            typer.echo(f"The page with it: vestige report {folder}")
    if failures:
        raise CheckFailed(
            f"{len(failures)} part(s) could not be made; the first, {failures[0].label}: {failures[0].reason}"
        )


def _numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(option, shown(text), "whole numbers with commas", "for example 1,5,20") from None


def _print(name: str, record: RecoveryRecord) -> None:
    from vestige.report.recovered import recovery_sentence

    typer.echo(f"\n{record.name}")
    counts = record.exposure
    if record.settings:
        typer.echo(
            f"{counts.exposed} of {counts.deleted} deleted rows exposed, {counts.unseen} unseen rows scored; "
            f"none in both"
        )
    for item in record.settings:
        if item.population == "unseen":
            starts = ", ".join(f"{key} {curve.start:.2f}" for key, curve in item.curves.items())
            ends = ", ".join(f"{key} {curve.gold_probability[-1]:.2f}" for key, curve in item.curves.items())
            typer.echo(
                f"k {item.k}, adaptation seed {item.adapt_seed}: gold probability {starts}; "
                f"after {record.updates[-1]} updates {ends}; adjusted {_shown(item.contrasts['g_adj'])}"
            )
    for pooled in record.pooled:
        parts = ", ".join(
            f"{title} {_shown(pooled.contrasts[key])}"
            for key, title in (
                ("level", "level after, beside the retrained model's"),
                ("g_abs", "absolute"),
                ("g_adj", "adjusted"),
                ("g_headroom", "headroom"),
            )
            if key in pooled.contrasts
        )
        typer.echo(f"pooled over {pooled.settings} setting(s), {pooled.population}: {parts}")
    if record.pooled:
        typer.echo(recovery_sentence(record))
    for direct in record.controls:
        if direct.k is None:
            difference = direct.difference
            text = _shown(difference) if hasattr(difference, "value") else str(difference)
            typer.echo(f"{direct.name}: {text}")
    for head in record.fresh_heads:
        values = ", ".join(
            f"{title} {_value(head.metrics[key])}"
            for key, title in (
                ("forgotten_accuracy.G", "forgotten accuracy"),
                ("gold_probability.G", "gold probability"),
                ("accuracy.R", "retained accuracy"),
            )
        )
        typer.echo(f"fresh head {head.initialisation} on {head.checkpoint}: {values}")
    for caveat in record.caveats:
        typer.echo(f"- {caveat}")
    typer.echo(f"Record: {name}.json")


def _value(item: Estimate) -> str:
    return f"{item.value:.3f}" if isinstance(item.value, float) else str(item.value)


def _shown(item: Any) -> str:
    text = _value(item)
    for interval in (item.row, item.unit):
        if interval is not None and hasattr(interval, "low"):
            text += f" [{interval.low:.3f}, {interval.high:.3f}]"
    return text
