"""`vestige behaviour`: what unlearned language models still answer, and on which questions alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.errors import InputError, did_you_mean
from vestige.limits import MOST_DRAWS

if TYPE_CHECKING:
    from vestige.behaviour.records import BehaviourRecord

__all__ = ["app", "by_topic", "print_behaviour"]

app = typer.Typer(add_completion=False)

_CHOICES = {
    "preset": ("default", "triage"),
    "engine": ("vestige", "lm-eval"),
    "dtype": ("float32", "bfloat16", "float16", "float64"),
}


@app.command()
def behaviour(
    base: Annotated[
        str | None,
        typer.Option("--base", help="Model before unlearning: folder, wheel, GGUF or hub id."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="Unlearned model or adapter, or LABEL=MODEL. Repeatable."),
    ] = None,
    oracle: Annotated[
        str | None, typer.Option("--oracle", help="Model retrained without the forget text, or its adapter.")
    ] = None,
    questions: Annotated[
        list[str] | None,
        typer.Option(
            "--questions",
            help="ROLE=FILE, ROLE:TOPIC=FILE or ROLE:TOPIC/SUBJECT=FILE (or a FOLDER); "
            "roles forget, adjacent, generic; or mmlu=FOLDER, "
            "which is dealt out by subject. Repeatable.",
        ),
    ] = None,
    tofu: Annotated[
        list[str] | None,
        typer.Option("--tofu", help="SET=FILE: forget, retain, real_authors, world_facts. Repeatable."),
    ] = None,
    footprint: Annotated[
        Path | None,
        typer.Option("--footprint", help="footprint.json of the same checkpoints, for AdjGap's relation."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for behaviour.json and cache.")] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Folder for answers that several runs share.")
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            "--preset",
            help="default, or triage: 20 questions of each MMLU subject, no first token, bfloat16.",
        ),
    ] = "default",
    engine: Annotated[
        str, typer.Option("--engine", help="vestige, or lm-eval: lm-evaluation-harness on the same files.")
    ] = "vestige",
    per_subject: Annotated[
        int | None,
        typer.Option(
            "--per-subject", min=1, help="The first questions of each adjacent and generic subject alone."
        ),
    ] = None,
    about: Annotated[
        list[str] | None,
        typer.Option(
            "--about", help="TOPIC=TEXT: what the line above its questions says they are about. Repeatable."
        ),
    ] = None,
    draws: Annotated[
        int, typer.Option("--draws", min=100, max=MOST_DRAWS, help="Of the question bootstrap.")
    ] = 5000,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=0, help="Of a written TOFU answer; 0: none, no ROUGE.")
    ] = 128,
    seed: Annotated[int, typer.Option("--seed", help="Of the bootstrap.")] = 17,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", help="float32 (the preset triage: bfloat16), bfloat16, float16, float64."),
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:1 ...")] = None,
    batch_tokens: Annotated[int, typer.Option("--batch-tokens", min=1, help="Tokens of one pass.")] = 8192,
    name: Annotated[str, typer.Option("--name", help="Name of the record.")] = "behaviour",
    as_json: Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")] = False,
) -> None:
    """What unlearned language models still answer: forgotten, adjacent and generic questions, and TOFU.

    Multiple choice is zero-shot by option log-likelihood. Losses are relative to the base, with intervals
    over questions. The same command again takes from --out what is finished.
    """
    for option, given in (("--base", base), ("--model", model), ("--questions or --tofu", questions or tofu)):
        if not given:
            raise InputError(option, "nothing", "a value", "see vestige behaviour --help")
    for option, value in (("preset", preset), ("engine", engine), ("dtype", dtype)):
        if value is not None and value not in _CHOICES[option]:
            known = _CHOICES[option]
            raise InputError(
                f"--{option}", f"'{value}'", f"one of {', '.join(known)}", did_you_mean(value, known)
            )
    from vestige.behaviour.records import BehaviourSettings, TofuSettings
    from vestige.cli.console import Progress
    from vestige.cli.footprint import labelled
    from vestige.errors import MissingDependency

    values = {
        "preset": preset,
        "engine": engine,
        "per_subject": per_subject,
        "about": by_topic(about) if about else None,
        "draws": draws,
        "seed": seed,
        "dtype": dtype,
        "tofu": TofuSettings(max_new_tokens=max_new_tokens),
    }
    settings = BehaviourSettings.model_validate({k: v for k, v in values.items() if v is not None})
    try:
        from vestige.behaviour.run import behaviour as measure
    except ImportError as error:
        raise MissingDependency(error.name or "torch", "train", "vestige behaviour") from None
    with Progress(1.0) as progress:
        record = measure(
            base=str(base),
            models=labelled(model or []),
            oracle=oracle,
            questions=_pairs(questions or [], "--questions", "ROLE:TOPIC=FILE"),
            tofu=_single(_pairs(tofu or [], "--tofu", "SET=FILE")),
            footprint=footprint,
            settings=settings,
            out=out,
            cache=cache,
            name=name,
            device=device,
            batch_tokens=batch_tokens,
            watcher=progress,
        )
    if as_json:
        typer.echo(record.to_json())
        return
    print_behaviour(record)
    if out is not None:
        typer.echo(f"Record: {out / 'behaviour.json'}")


def by_topic(values: list[str]) -> dict[str, str]:
    """`TOPIC=TEXT` values by topic. Raises InputError."""
    found: dict[str, str] = {}
    for value in values:
        topic, mark, text = value.partition("=")
        if not mark or not topic.strip() or not text.strip():
            raise InputError("--about", f"'{value}'", "TOPIC=TEXT", "for example --about bio=biology")
        found[topic.strip()] = text.strip()
    return found


def _pairs(values: list[str], option: str, form: str) -> dict[str, list[str]]:
    """KEY=FILE values by key, in their order."""
    found: dict[str, list[str]] = {}
    for value in values:
        key, mark, path = value.partition("=")
        if not mark or not key.strip() or not path.strip():
            raise InputError(option, f"'{value}'", form, f"for example {_EXAMPLES[option]}")
        found.setdefault(key.strip(), []).append(path)
    return found


_EXAMPLES = {"--questions": "forget:bio=bio.jsonl", "--tofu": "forget=forget10_perturbed.jsonl"}


def _single(sets: dict[str, list[str]]) -> dict[str, str]:
    for name, paths in sets.items():
        if len(paths) > 1:
            raise InputError("--tofu", f"the set '{name}' twice", "a file for each set", "give it once")
    return {name: paths[0] for name, paths in sets.items()}


def print_behaviour(record: BehaviourRecord) -> None:
    """Each checkpoint's sentence, the tables, what they rest on and the caveats, on standard output."""
    from rich.table import Table

    from vestige.behaviour.tables import (
        HEADER,
        TOFU_HEADER,
        headline,
        summary_lines,
        tofu_rows,
        tripartite_rows,
    )
    from vestige.cli.console import output, paragraph

    console = output()
    if record.question_sets:
        for checkpoint in record.checkpoints:
            paragraph(console, headline(record, checkpoint))
        asked = sum(entry.questions for entry in record.question_sets)
        title = f"{record.name}: {asked:,} questions in {len(record.question_sets)} subjects"
        _print_table(console, Table(title=title, title_justify="left"), HEADER, tripartite_rows(record))
        paragraph(
            console,
            f"[ ]: 95 %, paired bootstrap of {record.settings.draws:,} draws over questions within subjects "
            f"(seed {record.settings.seed}); {record.condition}.",
        )
    if record.tofu_sets:
        rows = tofu_rows(record)
        _print_table(console, Table(title="TOFU", title_justify="left"), TOFU_HEADER, rows)
    for line in summary_lines(record):
        paragraph(console, line)
    paragraph(console, "\nCaveats")
    for line in record.caveats:
        paragraph(console, f"- {line}")
    paragraph(console, f"Not tested: {'; '.join(record.not_tested)}.")


def _print_table(
    console: object, table: object, header: tuple[str, ...], rows: list[tuple[str, ...]]
) -> None:
    from rich.console import Console
    from rich.table import Table

    assert isinstance(console, Console)
    assert isinstance(table, Table)
    for text in header:
        table.add_column(text, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
