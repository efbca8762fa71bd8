"""`vestige unlearn`: one unlearned checkpoint of a causal language model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.errors import InputError, MissingDependency

if TYPE_CHECKING:
    from vestige.unlearning.records import CheckpointRecord

__all__ = ["app", "print_checkpoint", "training_bar"]

app = typer.Typer(add_completion=False)


@app.command()
def unlearn(
    model: Annotated[str, typer.Option("--model", help="Folder, adapter, wheel, GGUF file or hub id.")],
    method: Annotated[str, typer.Option("--method", help="A name of vestige list methods for causal-lm.")],
    forget: Annotated[list[str], typer.Option("--forget", help="Text to unlearn: FILE or TOPIC=FILE.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the checkpoint.")],
    retain: Annotated[
        list[str] | None, typer.Option("--retain", help="Text to keep: FILE for all topics, or TOPIC=FILE.")
    ] = None,
    preset: Annotated[
        str, typer.Option("--preset", help="default, or triage: the published settings.")
    ] = "default",
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting: beta=0.2, lora.rank=8. Repeatable.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", help="Of AdamW (1e-4; spul 1e-3; triage its own).")
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Passes over the smallest topic.")] = None,
    max_steps: Annotated[int | None, typer.Option("--max-steps", help="Steps at most.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", help="Sequences of each term.")] = None,
    max_length: Annotated[int | None, typer.Option("--max-length", help="Tokens of a sequence.")] = None,
    retain_weight: Annotated[
        list[str] | None, typer.Option("--retain-weight", help="NUMBER, or TOPIC=NUMBER. Repeatable.")
    ] = None,
    noise_std: Annotated[
        float | None, typer.Option("--noise-std", help="Of noise on the reference, in the retain term.")
    ] = None,
    lora: Annotated[bool, typer.Option("--lora/--full", help="Adapters, or all weights.")] = True,
    merge: Annotated[bool, typer.Option("--merge", help="Save merged weights, not an adapter.")] = False,
    concept: Annotated[
        list[str] | None,
        typer.Option("--concept", help="Of atu, a topic's concept: TEXT, FILE, or TOPIC=either."),
    ] = None,
    keywords: Annotated[
        list[str] | None,
        typer.Option("--keywords", help="Of obliviate, words to mute, commas between: [TOPIC=]WORDS."),
    ] = None,
    chat_template: Annotated[
        bool, typer.Option("--chat-template", help="Text through the tokenizer's chat template.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of order, adapters, dropout and draws.")] = 17,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1 ...")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")] = False,
) -> None:
    """Unlearn text from a causal language model into one checkpoint folder that reloads from itself alone.

    The same command again goes on where a stopped run was kept. A folder with another checkpoint is refused.
    """
    topics = by_topic(forget, "forget")
    values: dict[str, Any] = {}
    named = {
        "learning_rate": learning_rate,
        "epochs": epochs,
        "max_steps": max_steps,
        "batch_size": batch_size,
        "max_length": max_length,
        "noise_std": noise_std,
    }
    values |= {key: value for key, value in named.items() if value is not None}
    if not lora:
        values["lora"] = None
    if chat_template:
        values["text"] = "chat"
    values |= _weights(retain_weight or [], topics)
    try:
        from vestige.unlearning.run import unlearn as make
        from vestige.unlearning.settings import parsed
    except ImportError as error:
        raise MissingDependency(error.name or "torch", "train", "vestige unlearn") from None
    given = {"concept": _for_topics(concept, topics, "concept")}
    given["keywords"] = _for_topics(keywords, topics, "keywords")
    _refuse_unread(method, {option for option, texts in given.items() if texts})
    with training_bar(f"unlearning with {method}") as progress:
        record = make(
            model=model,
            method=method,
            forget=topics,
            retain=_retain(retain),
            out=out,
            preset=preset,
            settings={**values, **parsed(setting or [])},
            seed=seed,
            concepts={name: _text_or_file(text) for name, text in given["concept"].items()},
            keywords={
                name: tuple(word.strip() for word in text.split(",") if word.strip())
                for name, text in given["keywords"].items()
            },
            whole=merge,
            device=device,
            progress=progress,
        )
    print_checkpoint(record, as_json=as_json)


class training_bar:  # noqa: N801 - used as a function
    """Progress of a training run: enter it for the callback that the run wants."""

    def __init__(self, stage: str) -> None:
        from vestige.cli.console import Progress

        self._stage = stage
        self._bar = Progress(1.0)
        self._started = False

    def __enter__(self) -> Any:
        self._bar.__enter__()
        self._bar.stage("loading")
        return self._step

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__(*error)

    def _step(self, step: int, steps: int, loss: float) -> None:
        if not self._started:
            self._started = True
            self._bar.total, self._bar.done = float(steps), float(step - 1)
            self._bar.stage(f"{self._stage}, {steps} steps")
        self._bar.advance(1.0)


def by_topic(values: Sequence[str], option: str) -> dict[str, str]:
    """`TOPIC=FILE` or a file alone, named by its stem. Raises InputError for a topic given twice or none."""
    found: dict[str, str] = {}
    for value in values:
        name, mark, path = value.partition("=")
        if not mark or Path(value).exists():
            name, path = Path(value).stem, value
        if not name or not path:
            raise InputError(f"--{option}", f"'{value}'", "TOPIC=FILE or FILE", "for example bio=bio.jsonl")
        if name in found:
            raise InputError(
                f"--{option}", f"the topic '{name}' twice", "a name for each", "write TOPIC=FILE"
            )
        found[name] = path
    return found


def print_checkpoint(record: CheckpointRecord, *, as_json: bool) -> None:
    """The record, or what was done in a few lines."""
    if as_json:
        typer.echo(record.to_json())
        return
    done = record.training
    typer.echo(
        f"{record.title}: {done.steps} steps over {done.forget_rows + done.retain_rows} sequences "
        f"({done.tokens_seen:,} tokens) in {done.seconds:.0f} s, last loss {done.final_loss:.4f}"
    )
    for text in record.texts:
        left_out = _left_out(text.empty, text.short)
        place = f" for {text.topic}" if text.topic else ""
        typer.echo(f"{text.role}{place}: {text.rows} sequences of {text.path}{left_out}")
    for note in record.notes:
        typer.echo(note)
    typer.echo(f"Checkpoint: {record.folder} ({record.saved})")


def _left_out(empty: int, short: int) -> str:
    """Rows of a file that nothing was learned from, and why, as the end of its line."""
    parts = ((empty, "without text or answer"), (short, "without a token to predict"))
    said = ", ".join(f"{number:,} {why}" for number, why in parts if number)
    return f"; left out: {said}" if said else ""


def _retain(values: list[str] | None) -> Any:
    if not values:
        return None
    if len(values) == 1 and ("=" not in values[0] or Path(values[0]).exists()):
        return values[0]
    return by_topic(values, "retain")


def _weights(values: Sequence[str], topics: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    own: dict[str, float] = {}
    for value in values:
        name, mark, number = value.rpartition("=")
        try:
            if mark:
                own[name] = float(number)
            else:
                found["retain_weight"] = float(number)
        except ValueError:
            raise InputError(
                "--retain-weight", f"'{value}'", "NUMBER or TOPIC=NUMBER", "for example bio=1200"
            ) from None
    for name in own:
        if name not in topics:
            from vestige.errors import did_you_mean

            raise InputError(
                "--retain-weight", f"topic '{name}'", "a topic of --forget", did_you_mean(name, topics)
            )
    return {**found, "topic_weights": own} if own else found


def _refuse_unread(method: str, options: set[str]) -> None:
    """Raise InputError for a concept or keywords that the method would leave alone."""
    from vestige.methods import METHODS
    from vestige.unlearning.settings import language_method

    use = language_method(method).language
    assert use is not None
    for option in sorted(options - use.reads):
        readers = [m.name for m in METHODS if m.language is not None and option in m.language.reads]
        raise InputError(
            f"--{option}", f"the method '{method}', which reads none", ", ".join(readers), "leave it out"
        )


def _for_topics(values: list[str] | None, topics: dict[str, str], option: str) -> dict[str, str]:
    """Topic -> text; a text without a topic is of all. Raises InputError for a word before = that is none."""
    found: dict[str, str] = {}
    for value in values or []:
        name, mark, text = value.partition("=")
        if mark and name in topics:
            found[name] = text
        elif mark and name.isidentifier():
            from vestige.errors import did_you_mean

            raise InputError(
                f"--{option}", f"topic '{name}'", "a topic of --forget", did_you_mean(name, topics)
            )
        else:
            found |= {topic: value for topic in topics if topic not in found}
    return found


def _text_or_file(text: str) -> str:
    from vestige.files import is_path
    from vestige.readers import text_of_file

    return text_of_file(text) if is_path(text) and Path(text).is_file() else text
