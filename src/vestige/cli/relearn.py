"""`vestige attack relearn` and `correlate`: relearning of language models, and what it goes with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.errors import CheckFailed, InputError, MissingDependency, did_you_mean

if TYPE_CHECKING:
    from vestige.attacks.relearn_records import RelearnRecord
    from vestige.language_study.correlations import CorrelationRecord

__all__ = ["correlate", "relearn"]

Json = Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")]


def relearn(
    base: Annotated[str, typer.Option("--base", help="Model before unlearning; it is attacked too.")],
    model: Annotated[
        list[str], typer.Option("--model", help="Unlearned model or adapter, or LABEL=MODEL. Repeatable.")
    ],
    forget: Annotated[
        list[str], typer.Option("--forget", help="Text that was removed: NAME=FILE or FILE. Repeatable.")
    ],
    oracle: Annotated[
        str | None, typer.Option("--oracle", help="Model retrained without the forget text; attacked too.")
    ] = None,
    adjacent: Annotated[
        list[str] | None, typer.Option("--adjacent", help="Text of the same domain to score. Repeatable.")
    ] = None,
    generic: Annotated[
        list[str] | None, typer.Option("--generic", help="Other text to score. Repeatable.")
    ] = None,
    questions: Annotated[
        list[str] | None,
        typer.Option(
            "--questions",
            help="Multiple choice: NAME=FILE, the name of a text, a role, or ROLE:NAME. Repeatable.",
        ),
    ] = None,
    about: Annotated[
        list[str] | None,
        typer.Option(
            "--about", help="TOPIC=TEXT: what the line above its questions says they are about. Repeatable."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for relearn.json.")] = None,
    preset: Annotated[
        str, typer.Option("--preset", help="default, or triage: the published budget, in bfloat16.")
    ] = "default",
    hold_out: Annotated[
        str, typer.Option("--hold-out", help="Half of the forget text is scored only: auto, always, never.")
    ] = "auto",
    documents: Annotated[
        int | None, typer.Option("--documents", min=1, help="Forget sequences a topic (50).")
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", min=1, help="Passes over them (5).")] = None,
    learning_rate: Annotated[float | None, typer.Option("--learning-rate", help="Largest (1e-5).")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", min=1, help="Sequences (4).")] = None,
    max_steps: Annotated[int | None, typer.Option("--max-steps", min=1, help="At most (500).")] = None,
    max_length: Annotated[int | None, typer.Option("--max-length", min=2, help="Tokens (512).")] = None,
    score_rows: Annotated[
        int | None, typer.Option("--score-rows", min=1, help="Sequences of a text scored at most (200).")
    ] = None,
    chat_template: Annotated[
        bool, typer.Option("--chat-template", help="Text through the tokenizer's chat template.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of adapters and order.")] = 17,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", help="Of the frozen weights: float32 (the preset triage: bfloat16), ..."),
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:1 ...")] = None,
    four_bit: Annotated[
        bool, typer.Option("--four-bit", help="Store the weights in 4 bits and dequantise them.")
    ] = False,
    name: Annotated[str, typer.Option("--name", help="Name of the record.")] = "relearning",
    as_json: Json = False,
) -> None:
    """Train fresh adapters on a little forgotten text and see what comes back, in every checkpoint alike.

    Accuracy where questions are given, else the token probability of a half of the forget text that is never
    trained on. The same command goes on where it was interrupted.
    """
    for option, value, choices in (
        ("--preset", preset, ("default", "triage")),
        ("--hold-out", hold_out, ("auto", "always", "never")),
        ("--dtype", dtype, ("float32", "bfloat16", "float16", "float64")),
    ):
        if value is not None and value not in choices:
            raise InputError(
                option, f"'{value}'", f"one of {', '.join(choices)}", did_you_mean(value, choices)
            )
    from vestige.attacks.relearn_records import RelearnSettings
    from vestige.cli.behaviour import by_topic
    from vestige.cli.console import Progress
    from vestige.cli.footprint import labelled

    try:
        from vestige.footprint.texts import named_paths
        from vestige.language_study.relearn import relearn as attack
        from vestige.unlearning.settings import chosen
    except ImportError as error:
        raise MissingDependency(error.name or "torch", "train", "vestige attack relearn") from None
    given: dict[str, Any] = {
        "documents": documents,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "max_steps": max_steps,
        "max_length": max_length,
        "score_rows": score_rows,
    }
    given |= {"hold_out": hold_out, "dtype": dtype, "text": "chat" if chat_template else "plain"}
    given |= {"preset": preset, "seed": seed}
    given["asking"] = {"preset": preset, "about": by_topic(about or [])}
    settings = chosen(RelearnSettings, {}, {key: value for key, value in given.items() if value is not None})
    with Progress(1.0) as progress:
        record = attack(
            base=base,
            models=labelled(model),
            oracle=oracle,
            forget=named_paths(forget, "forget"),
            adjacent=named_paths(adjacent or [], "adjacent"),
            generic=named_paths(generic or [], "generic"),
            questions=_questions(questions or []),
            settings=settings,
            out=out,
            name=name,
            device=device,
            four_bit=four_bit,
            watcher=progress,
        )
    if as_json:
        typer.echo(record.to_json())
    else:
        print_relearning(record)
        if out is not None:
            typer.echo(f"Record: {out / 'relearn.json'}")
    of_base = next(item for item in record.checkpoints if item.role == "base")
    if of_base.failed is not None:
        raise CheckFailed("the attack on the base stopped, so nothing is there to compare with")


def _questions(values: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, mark, path = value.partition("=")
        if not mark or not name or not path:
            raise InputError("--questions", f"'{value}'", "NAME=FILE", "for example forget:bio=bio.jsonl")
        if name in found:
            raise InputError(
                "--questions", f"the name '{name}' twice", "a name a file", "write ROLE:NAME=FILE"
            )
        found[name] = path
    return found


def print_relearning(record: RelearnRecord) -> None:
    """One line a checkpoint, then the caveats."""
    for item in record.checkpoints:
        typer.echo(f"{item.label} ({item.role}): {relearn_line(record, item)}")
    for line in record.caveats:
        typer.echo(f"- {line}")


def relearn_line(record: RelearnRecord, item: Any) -> str:
    """What relearning did to a checkpoint, in one line."""
    parts = [record.sentence(item)]
    for role in item.roles:
        if role.role != "forget":
            interval = "" if hasattr(role.low, "undefined") else f" [{role.low:+.3f}, {role.high:+.3f}]"
            parts.append(f"{role.role} {role.before:.3f} to {role.after:.3f} ({role.change:+.3f}{interval})")
    return "; ".join(parts)


def correlate(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR...]", help="Folders with footprint.json, relearn.json and behaviour.json."
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table",
            help="A CSV instead, a row a checkpoint: checkpoint, method, class, cofi_f, cofi_a, cofi_g, "
            "chess_f, recovery, forget_before, delta_f, b_gap.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for correlations.json and correlations.csv.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What recovery by relearning goes with: Pearson and Spearman over methods, with p and BCa intervals.

    Checkpoints of one method are averaged; below six methods there is no p. CoFi and CHess on forget text,
    globality, the gaps of footprint and behaviour; with and without globally-destructive checkpoints. No
    model is loaded.
    """
    from vestige.language_study.correlations import correlation_record, rows_of_table
    from vestige.report.footprint.joined import joined_rows

    if bool(folders) == (table is not None):
        raise InputError(
            "vestige attack correlate", "both or neither of DIR and --table", "one of them", "see --help"
        )
    rows = rows_of_table(table) if table is not None else joined_rows(folders or [])
    record = correlation_record(rows)
    if out is not None:
        from vestige.files import writable_folder, write_text

        target = writable_folder(out)
        write_text(target / "correlations.json", record.to_json() + "\n")
        write_text(target / "correlations.csv", record.to_csv())
    if as_json:
        typer.echo(record.to_json())
        return
    _print(record)


def _print(record: CorrelationRecord) -> None:
    for line in record.lines():
        typer.echo(line)
