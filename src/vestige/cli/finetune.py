"""`vestige finetune`: a causal language model learns a text, before it is made to unlearn part of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vestige.cli.unlearn import print_checkpoint, training_bar
from vestige.errors import MissingDependency

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command()
def finetune(
    model: Annotated[str, typer.Option("--model", help="Folder, adapter, wheel, GGUF file or hub id.")],
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            help="JSONL, CSV, Parquet: text, question and answer, or messages; .txt: a line a document.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the checkpoint.")],
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting: weight_decay=0. Repeatable.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option("--learning-rate", help="Of AdamW (2e-5).")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Passes over the text (5).")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", help="Sequences of a step (16).")] = None,
    max_length: Annotated[int | None, typer.Option("--max-length", help="Tokens (512).")] = None,
    lora: Annotated[bool, typer.Option("--lora/--full", help="Adapters, or all weights.")] = False,
    merge: Annotated[bool, typer.Option("--merge", help="Save merged weights, not an adapter.")] = False,
    chat_template: Annotated[
        bool, typer.Option("--chat-template", help="Text through the tokenizer's chat template.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of order, adapters and dropout.")] = 17,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1 ...")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")] = False,
) -> None:
    """Train a causal language model on a text: answers alone where there are questions.

    The model that never saw the forget text (the oracle) is made by the same command on the rest of the text.
    """
    given = {
        "learning_rate": learning_rate,
        "epochs": epochs,
        "batch_size": batch_size,
        "max_length": max_length,
    }
    values: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if lora:
        values["lora"] = {}
    if chat_template:
        values["text"] = "chat"
    try:
        from vestige.unlearning.run import finetune as make
        from vestige.unlearning.settings import parsed
    except ImportError as error:
        raise MissingDependency(error.name or "torch", "train", "vestige finetune") from None
    with training_bar("fine-tuning") as progress:
        record = make(
            model=model,
            data=data,
            out=out,
            settings={**values, **parsed(setting or [])},
            seed=seed,
            whole=merge,
            device=device,
            progress=progress,
        )
    print_checkpoint(record, as_json=as_json)
