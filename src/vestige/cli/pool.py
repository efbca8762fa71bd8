"""`vestige pool`: models whose answer is known, and how often the verdict is wrong about them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.files import writable_folder

if TYPE_CHECKING:
    from vestige.pool.records import PoolScore

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Make models whose right verdict is known; see how often the verdict and other metrics are wrong.",
)
_JOBS = min(os.cpu_count() or 1, 4)


@app.command()
def build(
    out: Annotated[Path, typer.Option("--out", help="Folder of the pool. The same command goes on with it.")],
    anchors: Annotated[
        bool, typer.Option("--anchors/--no-anchors", help="Train eight LoRA models of the demo as well.")
    ] = True,
    small: Annotated[
        bool, typer.Option("--small", help="A tenth of the models, one deletion: a first look, no proof.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Worker processes.")] = _JOBS,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")] = False,
) -> None:
    """Train the models of the known-answer pool: offline, minutes on two cores.

    Full models, retrained ones, and some retrained with a part of the deleted rows, for deletions of the
    embedded help-desk data: two intents, six intents, eight customers, 5 % of the rows. What is there is not
    trained again.
    """
    from vestige.cli.console import Progress
    from vestige.pool.build import build_pool
    from vestige.pool.contents import SMALL, PoolSettings

    settings = SMALL if small else PoolSettings(anchors=8 if anchors else 0)
    with Progress(0) as progress:
        record = build_pool(out, settings, progress, jobs=jobs)
    typer.echo(record.to_json() if as_json else f"{record.models} trained models: {out}")


@app.command()
def score(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `vestige pool build` made.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Write every table as Markdown: between <!-- pool --> and <!-- /pool --> where the file has "
            "these marks, else as the whole file.",
        ),
    ] = None,
    command: Annotated[
        str,
        typer.Option(
            "--with",
            metavar="CMD",
            help="Another scoring command, called with a folder of models' probabilities; see the docs.",
        ),
    ] = "",
    oracles: Annotated[
        list[int] | None,
        typer.Option(
            "--oracles",
            min=3,
            help="Retrained models that a comparison is given; may be repeated. Default: 3, 5 and 8.",
        ),
    ] = None,
    panels: Annotated[
        int | None, typer.Option("--panels", min=1, help="Comparisons of each deletion. Default: all.")
    ] = None,
    draws: Annotated[int, typer.Option("--draws", min=100, help="Draws of every bound.")] = 1000,
    replicates: Annotated[
        int, typer.Option("--replicates", min=1, help="Repetitions of every simulated world.")
    ] = 60,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Worker processes.")] = _JOBS,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")] = False,
) -> None:
    """Judge every model of a pool, and print how often the verdict and other metrics are wrong.

    Rates have 95 % intervals over trained models. The record is DIR/score.json. The same command goes on
    where one was interrupted. With --with, CMD is run once a comparison as `CMD FOLDER`; FOLDER holds
    panel.json and a Parquet file a model in the format of `vestige compare`, and CMD prints a JSON object:
    file name -> word (`pass` or `equivalent` count as passed).
    """
    from vestige.cli.console import Progress
    from vestige.pool.records import ScoreSettings
    from vestige.pool.score import SCORE, score_pool
    from vestige.pool.tables import write_tables

    if out is not None:
        writable_folder(out.parent)
    settings = ScoreSettings(draws=draws, panels=panels, replicates=replicates, command=command)
    if oracles:
        settings = settings.model_copy(update={"oracles": tuple(sorted(set(oracles)))})
    with Progress(0) as progress:
        found = score_pool(folder, settings, progress, jobs=jobs)
    if out is not None:
        write_tables(found, out)
    if as_json:
        typer.echo(found.to_json())
        return
    _print(found)
    typer.echo(
        f"Record: {folder / SCORE}" + (f"; every table: {out}" if out else "; every table: --out FILE")
    )


_PRINTED = ("aims", "brief")
"""Tables that the terminal shows; the others are wide, and for reading."""


def _print(found: PoolScore) -> None:
    from rich.table import Table

    from vestige.cli.console import output
    from vestige.pool.tables import pool_tables

    console = output()
    for content in pool_tables(found):
        if content.name not in _PRINTED:
            continue
        table = Table(title=content.caption, title_justify="left")
        for place, name in enumerate(content.header):
            table.add_column(name, justify="right" if place else "left", overflow="fold")
        for row in content.rows:
            table.add_row(*row)
        console.print(table)
