"""The root command. It knows each verb's module and one line of help; a verb's module loads when it runs."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from vestige.cli.console import guarded
from vestige.errors import InputError, did_you_mean

__all__ = ["VERBS", "Verb", "main", "run"]


@dataclass(frozen=True)
class Verb:
    """A verb: the module whose `app` (a Typer) holds it, and its line in `vestige --help`."""

    module: str
    help: str


VERBS: dict[str, Verb] = {
    "demo": Verb(
        "vestige.cli.demo", "Train, unlearn, compare and report on embedded data, offline, in minutes."
    ),
    "compare": Verb("vestige.cli.compare", "Compare prediction files: full, unlearned and retrained models."),
    "study": Verb("vestige.cli.study", "Run, tune, freeze, check and audit planned studies."),
    "finetune": Verb("vestige.cli.finetune", "Teach a causal language model a text; make its oracle."),
    "unlearn": Verb("vestige.cli.unlearn", "Unlearn text from a causal language model into a checkpoint."),
    "footprint": Verb(
        "vestige.cli.footprint", "Measure what unlearning moved inside a causal language model, and where."
    ),
    "behaviour": Verb(
        "vestige.cli.behaviour", "Ask unlearned language models what they still answer, and what they lost."
    ),
    "attack": Verb("vestige.cli.attack", "Attack unlearned models: recovery by fine-tuning, fresh heads."),
    "pool": Verb("vestige.cli.pool", "Models whose answer is known: how often the verdict is wrong."),
    "report": Verb("vestige.cli.report", "Write the report of a folder of results again."),
    "list": Verb("vestige.cli.list_", "List methods, metrics, attacks, models or data sets."),
}


class LazyGroup(TyperGroup):
    """A group whose commands are imported at use; help lists them without importing any."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        if self._listing:
            return TyperCommand(name=cmd_name, help=verb.help)
        command = get_command(importlib.import_module(verb.module).app)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise InputError(
                f"vestige {args[0]}", "no such verb", "a verb of vestige --help", did_you_mean(args[0], VERBS)
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; its errors are printed here, before click sees them."""
        code = guarded(lambda: super(LazyGroup, self).invoke(ctx))
        if code:
            raise typer.Exit(code)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


app = typer.Typer(
    name="vestige",
    cls=LazyGroup,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from vestige import __version__

        typer.echo(f"vestige {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Measure what machine unlearning leaves behind.

    Exit codes: 0 done; 1 a stated threshold or check failed; 2 bad input; 130 interrupted.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's) and return its exit code. Prints errors in one line."""
    command = get_command(app)
    given = list(sys.argv[1:] if arguments is None else arguments)

    def work() -> object:
        _refuse_no_folder(given)
        return command.main(args=given or ["--help"], prog_name="vestige", standalone_mode=False)

    return guarded(work)


def _refuse_no_folder(arguments: Sequence[str]) -> None:
    """Raise InputError for an empty `--out`, which would be read as the present folder."""
    if "--out=" in arguments or ("--out", "") in pairwise(arguments):
        raise InputError("--out", "an empty name", "a folder", "name one, or leave --out away")


def main() -> None:
    """The `vestige` script. A polite kill (SIGTERM) is taken as Ctrl-C: what was done is kept and said."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run())
