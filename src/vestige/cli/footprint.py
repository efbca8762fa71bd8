"""`vestige footprint`: what unlearning moved inside a causal language model, and whether there alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.cli.footprint_checks import adjacency, selftest, sensitivity
from vestige.cli.margins import VERDICT_CONDITIONS, conditions_of, margins_of, verdict_fails
from vestige.errors import CheckFailed, InputError, did_you_mean, shown
from vestige.files import is_path

if TYPE_CHECKING:
    from vestige.contracts import Margins, Verdict
    from vestige.footprint.records import FootprintRecord, FootprintSettings

__all__ = ["app", "labelled", "print_footprint"]

app = typer.Typer(add_completion=False)
app.command("selftest")(selftest)
app.command("sensitivity")(sensitivity)
app.command("adjacency")(adjacency)

QUICK = {"units": 20, "max_length": 256, "hessian_length": 128, "probes": 1, "perplexity_tokens": 5_000}
"""What `--quick` samples instead."""
QUICK_VERDICT = {"documents": 60, "positions": 64}
"""What it reads for the verdict instead."""
_QUICK_WORDS = ", ".join(f"{name} {value}" for name, value in {**QUICK, **QUICK_VERDICT}.items())


@app.callback(invoke_without_command=True)
def footprint(
    context: typer.Context,
    base: Annotated[
        list[str] | None,
        typer.Option(
            "--base",
            help="Model before unlearning: folder, wheel, GGUF or hub id. Shifts are from the first; others, "
            "of other training seeds, say what trainings differ by.",
        ),
    ] = None,
    unlearned: Annotated[
        list[str] | None,
        typer.Option(
            "--unlearned",
            help="Unlearned model or adapter, or LABEL=MODEL. Repeatable; models with one LABEL are training "
            "seeds of one method.",
        ),
    ] = None,
    oracle: Annotated[
        list[str] | None,
        typer.Option(
            "--oracle",
            help="Model retrained without the forget text, or its adapter. Repeatable: equivalence needs 3.",
        ),
    ] = None,
    forget: Annotated[
        list[str] | None, typer.Option("--forget", help="Text to be removed: NAME=FILE or FILE. Repeatable.")
    ] = None,
    adjacent: Annotated[
        list[str] | None, typer.Option("--adjacent", help="Text of the same domain to be kept. Repeatable.")
    ] = None,
    generic: Annotated[
        list[str] | None, typer.Option("--generic", help="Other text that should not move. Repeatable.")
    ] = None,
    unseen: Annotated[
        list[str] | None,
        typer.Option(
            "--unseen",
            help="Text like that to be removed, or paraphrases, that no model was trained on. Repeatable.",
        ),
    ] = None,
    verdict: Annotated[
        bool,
        typer.Option("--verdict/--no-verdict", help="Judge the unlearned models against the retrained ones."),
    ] = True,
    margin: Annotated[
        list[str] | None,
        typer.Option(
            "--margin",
            metavar="NAME=VALUE",
            help="What the verdict counts as small, set before looking: excess, memory, retained, gain, "
            "loss. Repeatable.",
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            help=f"Exit with 1 when this holds for any unlearned model: {', '.join(VERDICT_CONDITIONS)}.",
        ),
    ] = None,
    verdict_gb: Annotated[
        float,
        typer.Option(
            "--verdict-gb",
            min=0.01,
            help="Disk for the outputs of models that do not fit into memory together.",
        ),
    ] = 8.0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for footprint.json, report.html and cache.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Folder for diagonals that several runs share.")
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            "--preset", help="default, or triage: measured as the published tables were, in bfloat16."
        ),
    ] = "default",
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Also the calibrated class: about 60 more passes.")
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help=f"A smaller sample: {_QUICK_WORDS}.",
        ),
    ] = False,
    subspace: Annotated[str, typer.Option("--subspace", help="both, attention or ffn.")] = "both",
    scale: Annotated[str, typer.Option("--scale", help="log, or linear (without a class).")] = "log",
    reduction: Annotated[str, typer.Option("--reduction", help="A sequence's loss: mean or sum.")] = "mean",
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            help="float32 (the preset triage: bfloat16), bfloat16, float16, float64: all cast to it.",
        ),
    ] = None,
    units: Annotated[int | None, typer.Option("--units", min=1, help="Units of a subset (200).")] = None,
    max_length: Annotated[int | None, typer.Option("--max-length", min=2, help="Tokens (1024).")] = None,
    probes: Annotated[
        int | None, typer.Option("--probes", min=0, help="Hessian probes (4); 0 leaves it out.")
    ] = None,
    hessian: Annotated[
        str | None,
        typer.Option("--hessian", help="hvp (the preset triage: finite_difference) or finite_difference."),
    ] = None,
    length_matched: Annotated[
        bool, typer.Option("--length-matched", help="Cut units so that all corpora have the same lengths.")
    ] = False,
    chat_template: Annotated[
        bool, typer.Option("--chat-template", help="Text through the tokenizer's chat template.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of samples and probes.")] = 17,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda, cuda:1 ...")] = None,
    four_bit: Annotated[
        bool, typer.Option("--four-bit", help="Store both models in 4 bits and dequantise them.")
    ] = False,
    checkpointing: Annotated[
        bool, typer.Option("--checkpointing", help="Less memory, one more forward pass.")
    ] = False,
    batch_tokens: Annotated[int, typer.Option("--batch-tokens", min=1, help="Tokens of one pass.")] = 1024,
    retained_text: Annotated[
        str, typer.Option("--retained-text", help="What the method retained on while unlearning.")
    ] = "",
    statement: Annotated[
        str, typer.Option("--statement", help="Why forget and adjacent text have disjoint scopes.")
    ] = "",
    base_accuracy: Annotated[
        str | None, typer.Option("--base-accuracy", help="On adjacent questions: a number or a JSONL file.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the footprint.")] = "footprint",
    as_json: Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")] = False,
) -> None:
    """What an unlearned language model still gives the forgotten text, a verdict, and what moved inside.

    Every model is scored on every text; with models retrained without the forget text (--oracle) each
    unlearned one gets a verdict: equivalent, closer, not closer, damaged or undetermined.
    Measures the relative shift of the Fisher (CoFi) and Hessian (CHess) diagonals of the attention and
    feed-forward weights on text to be forgotten, adjacent text and generic text. The same command again takes
    from --out what is finished. Several GPUs: accelerate launch --no_python vestige footprint ...
    """
    if context.invoked_subcommand is not None:
        return
    for option, given in (
        ("--base", base),
        ("--unlearned", unlearned),
        ("--forget", forget),
        ("--generic", generic),
    ):
        if not given:
            raise InputError(option, "nothing", "a value", "see vestige footprint --help")
    conditions = conditions_of(fail_on or [], VERDICT_CONDITIONS)
    settings = _settings(
        preset=preset,
        quick=quick,
        given={"units": units, "max_length": max_length, "probes": probes},
        calibrate=calibrate,
        subspace=subspace,
        scale=scale,
        reduction=reduction,
        dtype=dtype,
        hessian=hessian,
        length_matched=length_matched,
        text="chat" if chat_template else "plain",
        seed=seed,
        retained_text=retained_text,
        statement=statement,
        judged=verdict,
        margins=margins_of(margin or []) if margin else None,
    )
    from vestige.cli.console import Progress
    from vestige.errors import MissingDependency

    try:
        from vestige.footprint.run import Quiet
        from vestige.footprint.run import footprint as measure
        from vestige.footprint.texts import named_paths
        from vestige.footprint.world import launched
    except ImportError as error:
        raise MissingDependency(error.name or "torch", "train", "vestige footprint") from None
    with launched() as world, Progress(1.0) as progress:
        record = measure(
            base=base or [],
            unlearned=seeds_of(unlearned or []),
            oracle=oracle or None,
            unseen=named_paths(unseen or [], "unseen") or None,
            forget=named_paths(forget or [], "forget"),
            adjacent=named_paths(adjacent or [], "adjacent"),
            generic=named_paths(generic or [], "generic"),
            settings=settings,
            out=out,
            cache=cache,
            name=name,
            device=device,
            four_bit=four_bit,
            base_accuracy=base_accuracy,
            batch_tokens=batch_tokens,
            checkpointing=checkpointing,
            disk_bytes=int(verdict_gb * 1e9),
            world=world,
            watcher=progress if world.leads else Quiet(),
        )
    if not world.leads:
        return
    page = _page(record, out) if out is not None else None
    if as_json:
        typer.echo(record.to_json())
    else:
        print_footprint(record)
        if out is not None:
            typer.echo(f"Record: {out / 'footprint.json'}")
            typer.echo(f"Page: {page}")
    _check(record, conditions)


def _check(record: FootprintRecord, conditions: list[str]) -> None:
    """Raise CheckFailed when a `--fail-on` condition holds for an unlearned model, or nothing was judged."""
    from vestige.contracts import Undefined

    words: dict[str, Verdict | Undefined | None] = {
        item.label: None for item in record.checkpoints if item.role == "unlearned"
    }
    if record.verdict is not None and not isinstance(record.verdict, Undefined):
        words = {model.label: model.verdict for model in record.verdict.models}
    failed = [
        f"{shown(label)} is {condition.replace('-', ' ')} (verdict: {word or 'none'})"
        for condition in conditions
        for label, word in words.items()
        if verdict_fails(word, condition)
    ]
    if failed:
        raise CheckFailed(f"--fail-on: {'; '.join(failed)}")


def _page(record: FootprintRecord, out: Path) -> Path:
    """Write the record's page."""
    from vestige.report.footprint.page import write_footprint_report

    return write_footprint_report([record], out / "report.html")


_CHOICES = {
    "preset": ("default", "triage"),
    "subspace": ("both", "attention", "ffn"),
    "scale": ("log", "linear"),
    "reduction": ("mean", "sum"),
    "dtype": ("float32", "bfloat16", "float16", "float64"),
    "hessian": ("hvp", "finite_difference"),
}


def _settings(
    *,
    preset: str,
    quick: bool,
    given: dict[str, int | None],
    judged: bool = True,
    margins: Margins | None = None,
    **rest: Any,
) -> FootprintSettings:
    """The settings of a command line: preset, then --quick, then what was named."""
    from vestige.footprint.records import FootprintSettings
    from vestige.footprint.verdict_records import VerdictSettings
    from vestige.unlearning.settings import chosen as given_settings

    for option, choices in _CHOICES.items():
        value = {**rest, "preset": preset}.get(option)
        if value is not None and value not in choices:
            raise InputError(
                f"--{option}", f"'{value}'", f"one of {', '.join(choices)}", did_you_mean(value, choices)
            )
    chosen: dict[str, Any] = {"preset": preset, "quick": quick, **(QUICK if quick else {})}
    if margins is not None and not judged:
        raise InputError("--margin", "--no-verdict beside it", "one of them", "leave one away")
    if quick or not judged or margins is not None:
        own = {**(QUICK_VERDICT if quick else {}), **({"margins": margins} if margins is not None else {})}
        chosen["verdict"] = VerdictSettings.model_validate(own) if judged else None
    chosen |= {key: value for key, value in {**rest, **given}.items() if value is not None}
    return given_settings(FootprintSettings, {}, chosen)


def labelled(values: list[str]) -> dict[str, str]:
    """`LABEL=MODEL` values by label; a plain one has its folder's name, numbered where it repeats. Raises
    InputError for one without a label or a model."""
    found: dict[str, str] = {}
    for value in values:
        label, mark, model = value.partition("=")
        if not mark or is_path(value):
            label, model = Path(value).name or value, value
        label = label.strip()
        if not label or not model:
            raise InputError(
                "--unlearned", f"'{value}'", "MODEL or LABEL=MODEL", "for example RMU=models/rmu"
            )
        number, own = 2, label
        while label in found:
            label, number = f"{own} ({number})", number + 1
        found[label] = model
    return found


def seeds_of(values: list[str]) -> dict[str, list[str]]:
    """`LABEL=MODEL` values by label, those of one label together; others as `labelled` names them."""
    found: dict[str, list[str]] = {}
    plain = []
    for value in values:
        label, mark, model = value.partition("=")
        if mark and not is_path(value) and label.strip() and model:
            found.setdefault(label.strip(), []).append(model)
        else:
            plain.append(value)
    for label, model in labelled(plain).items():
        number, own = 2, label
        while label in found:
            label, number = f"{own} ({number})", number + 1
        found[label] = [model]
    return found


def print_footprint(record: FootprintRecord) -> None:
    """What was compared, what every model knows, each verdict; then shifts, classes and caveats."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from vestige.cli.console import output, paragraph
    from vestige.footprint.levels import text_measures
    from vestige.footprint.tables import HEADER, NOT_TESTED, corpus_rows, summary_lines, told
    from vestige.phrases import counted
    from vestige.report.footprint.levels import compared_line, levels_table

    console = output()
    paragraph(console, compared_line(record))
    known = levels_table(record, text_measures(record.verdict))
    if known is not None:
        levels = Table(title=known.caption, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for place, (title, column) in enumerate(zip(known.header(), (None, *known.columns), strict=True)):
            text = title if column is None else f"{title}, {column.detail}"
            levels.add_column(text, overflow="fold", justify="right" if place else "left")
        for row in known.rows:
            tag = f" ({row.tag})" if row.tag else ""
            levels.add_row(f"{row.label}{tag}", *(str(cell) for cell in row.cells))
        console.print(levels)
    for checkpoint in record.checkpoints:
        first, *others = told(record, checkpoint)
        paragraph(console, first)
        for line in others:
            paragraph(console, f"  {line}")
        paragraph(console, "")
    paragraph(console, f"{NOT_TESTED}: {', '.join(record.not_tested)}\n")
    table = Table(
        title=f"{record.name}: shift of {record.parameters:,} weights in "
        f"{counted(record.layers, 'layer', 'layers')}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("corpus", overflow="fold")
    for text in HEADER[3:]:
        table.add_column(text, overflow="fold", justify="right")
    label = ""
    for own, corpus, role, *cells in corpus_rows(record):
        if own != label:
            table.add_section()
            table.add_row(own, *([""] * len(cells)), style="bold")
            label = own
        table.add_row(f"  {corpus}" + (f" ({role})" if role != corpus else ""), *cells)
    console.print(table)
    paragraph(console, f"±: t-based 95 % over subsets; {record.condition}.")
    for line in summary_lines(record):
        paragraph(console, line)
    paragraph(console, "\nCaveats")
    for line in record.caveats:
        paragraph(console, f"- {line}")
