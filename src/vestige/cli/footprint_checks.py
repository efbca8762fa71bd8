"""`vestige footprint selftest`, `sensitivity` and `adjacency`: does the measurement itself hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.errors import CheckFailed, MissingDependency

if TYPE_CHECKING:
    from vestige.footprint.judgements import SelfTest, SensitivityTable

__all__ = ["adjacency", "selftest", "sensitivity"]


def selftest(
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for selftest.json; goes on from it.")
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="Two seeds and four cases.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")] = False,
) -> None:
    """Check the footprint against known answers: no change, injected facts removed exactly, noise, and an
    estimator broken on purpose. Exit code 1 when it does not find them."""
    try:
        from vestige.footprint.selftest import SHORT
        from vestige.footprint.selftest import selftest as check
    except ImportError as error:
        raise MissingDependency(error.name or "torch", "train", "vestige footprint selftest") from None
    from vestige.cli.console import Progress
    from vestige.files import writable_folder

    if out is not None:
        writable_folder(out)
    with Progress(1.0) as progress:
        done = 0.0

        def advance(text: str, share: float) -> None:
            nonlocal done
            progress.stage(text)
            progress.advance(max(0.0, share - done))
            done = max(done, share)

        found = check(SHORT if short else None, out=out, progress=advance)
    if as_json:
        typer.echo(found.to_json())
    else:
        _print_selftest(found)
    if not found.passes:
        missed = [case for case, hits in found.hits.items() if hits < found.needed]
        raise CheckFailed(f"the self-test missed {', '.join(missed)} too often; see its table")


def _print_selftest(found: SelfTest) -> None:
    from rich.table import Table

    from vestige.cli.console import output

    console = output()
    table = Table(title="Footprint self-test", title_justify="left")
    for text in ("case", "expected", "hits", "undefined", "outcomes"):
        table.add_column(text, overflow="fold")
    for case, hits in found.hits.items():
        own = [item for item in found.cases if item.case == case]
        expected = " or ".join(own[0].expected) if own else ""
        outcomes = ", ".join(sorted({item.outcome for item in own}))
        table.add_row(
            case, expected, f"{hits} of {len(found.seeds)}", str(found.undefined.get(case, 0)), outcomes
        )
    console.print(table)
    verdict = "passed" if found.passes else "failed"
    console.print(f"{verdict}: {found.needed} of {len(found.seeds)} seeds are needed, {found.seconds:.0f} s")


def sensitivity(
    base: Annotated[str, typer.Option("--base", help="Model before unlearning.")],
    unlearned: Annotated[list[str], typer.Option("--unlearned", help="MODEL or LABEL=MODEL. Repeatable.")],
    forget: Annotated[list[str], typer.Option("--forget", help="NAME=FILE or FILE. Repeatable.")],
    generic: Annotated[
        list[str] | None, typer.Option("--generic", help="NAME=FILE or FILE. Repeatable.")
    ] = None,
    adjacent: Annotated[
        list[str] | None, typer.Option("--adjacent", help="NAME=FILE or FILE. Repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for sensitivity.csv and sensitivity.json.")
    ] = None,
    preset: Annotated[
        str, typer.Option("--preset", help="default, or triage: the published ablation, in bfloat16.")
    ] = "default",
    units: Annotated[
        int | None,
        typer.Option("--units", min=1, help="The largest sample (200); larger sizes are left out."),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option("--max-length", min=2, help="Tokens of a unit (1024; triage 512).")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of sample and probes (17; triage 1234).")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda ...")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")] = False,
) -> None:
    """How the shifts depend on sample size (52, 100, 200), Hessian probes (2, 4, 8) and subspace."""
    from vestige.cli.console import Progress
    from vestige.cli.footprint import labelled
    from vestige.files import writable_folder, write_text

    try:
        from vestige.footprint.sensitivity import samples_for
        from vestige.footprint.sensitivity import sensitivity as vary
        from vestige.footprint.texts import corpora_of, named_paths
        from vestige.models.causal_lm import check_comparable, load_language_model
    except ImportError as error:
        raise MissingDependency(error.name or "torch", "train", "vestige footprint sensitivity") from None
    from vestige.footprint.judgements import SensitivitySettings
    from vestige.unlearning.settings import chosen

    given: dict[str, Any] = {"preset": preset, "max_length": max_length, "seed": seed}
    if units is not None:
        given["sizes"] = tuple(sorted({*(n for n in SensitivitySettings().sizes if n < units), units}))
    settings = chosen(
        SensitivitySettings, {}, {key: value for key, value in given.items() if value is not None}
    )
    corpora = corpora_of(
        named_paths(forget, "forget"),
        named_paths(adjacent or [], "adjacent"),
        named_paths(generic or [], "generic"),
        needed=("forget",),
    )
    if out is not None:
        writable_folder(out)
    with Progress(1.0) as progress:
        progress.stage("reading the models")
        first = load_language_model(base, dtype=settings.dtype, device=device)
        checkpoints: dict[str, Any] = {}
        for label, name in labelled(unlearned).items():
            checkpoints[label] = load_language_model(
                name, dtype=settings.dtype, base=first, label=label, device=device
            )
            check_comparable(first, checkpoints[label])
        found = vary(
            base=first,
            checkpoints=checkpoints,
            samples=samples_for(corpora, first, settings),
            settings=settings,
            progress=progress.stage,
        )
    if out is not None:
        write_text(out / "sensitivity.csv", found.to_csv())
        write_text(out / "sensitivity.json", found.to_json() + "\n")
    if as_json:
        typer.echo(found.to_json())
        return
    _print_sensitivity(found)
    if out is not None:
        typer.echo(f"Table: {out / 'sensitivity.csv'}")


def adjacency(
    base: Annotated[str, typer.Option("--base", help="The model that a shift would start from.")],
    forget: Annotated[list[str], typer.Option("--forget", help="NAME=FILE or FILE. Repeatable.")],
    adjacent: Annotated[list[str], typer.Option("--adjacent", help="NAME=FILE or FILE. Repeatable.")],
    generic: Annotated[list[str], typer.Option("--generic", help="NAME=FILE or FILE. Repeatable.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for footprint.json and cache.")] = None,
    preset: Annotated[
        str,
        typer.Option("--preset", help="default: all texts of a role; triage: as published, in bfloat16."),
    ] = "default",
    units: Annotated[int | None, typer.Option("--units", min=1, help="Documents of a corpus (200).")] = None,
    max_length: Annotated[int | None, typer.Option("--max-length", min=2, help="Tokens (1024).")] = None,
    base_accuracy: Annotated[
        str | None, typer.Option("--base-accuracy", help="On adjacent questions: a number or a JSONL file.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the record.")] = "adjacency",
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda ...")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record and nothing else.")] = False,
) -> None:
    """Is the adjacent corpus one: near the forget text in meaning and in the model, and known to it?

    No unlearned model is needed. The record is a footprint's without checkpoints.
    """
    from vestige.cli.console import Progress, output, paragraph
    from vestige.contracts import Undefined
    from vestige.footprint.records import FootprintSettings
    from vestige.unlearning.settings import chosen

    given = {"preset": preset, "units": units, "max_length": max_length, "probes": 0, "subsets": 1}
    settings = chosen(
        FootprintSettings, {}, {key: value for key, value in given.items() if value is not None}
    )
    try:
        from vestige.footprint.run import footprint as measure
        from vestige.footprint.texts import named_paths
    except ImportError as error:
        raise MissingDependency(error.name or "torch", "train", "vestige footprint adjacency") from None
    with Progress(1.0) as progress:
        record = measure(
            base=base,
            unlearned={},
            forget=named_paths(forget, "forget"),
            adjacent=named_paths(adjacent, "adjacent"),
            generic=named_paths(generic, "generic"),
            settings=settings,
            out=out,
            name=name,
            device=device,
            base_accuracy=base_accuracy,
            watcher=progress,
        )
    if as_json:
        typer.echo(record.to_json())
        return
    console, found = output(), record.adjacency
    if isinstance(found, Undefined):
        paragraph(console, str(found))
        return
    paragraph(
        console,
        f"mean cosine forget-adjacent {found.sim_f_a:.4f}, forget-generic {found.sim_f_g:.4f}, "
        f"adjacent-generic {found.sim_a_g:.4f}: {'passes' if found.passes else 'fails'}",
    )
    if not isinstance(found.overlaps, Undefined):
        for item in found.overlaps:
            paragraph(console, f"largest {item.k:,} Fisher entries: margin {item.margin:+.3f}")
    for line in found.lines:
        paragraph(console, f"- {line}")


def _print_sensitivity(found: SensitivityTable) -> None:
    from rich.table import Table

    from vestige.cli.console import output, paragraph

    console = output()
    table = Table(title="Sensitivity of the footprint", title_justify="left")
    for text in ("quantity", "method", "corpus", "factor", "setting", "value"):
        table.add_column(text, overflow="fold")
    for row in found.rows:
        table.add_row(row.quantity, row.method, row.corpus, row.factor, row.setting, f"{row.value:.4g}")
    console.print(table)
    for note in found.notes:
        paragraph(console, f"- {note}")
