"""Every verb answers --help: help texts are markup, and a stray bracket in one would be a crash."""

from __future__ import annotations

import pytest
import typer

from vestige.cli import run
from vestige.cli.app import app


def paths(group: object, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The words of every verb below a group, the group itself first."""
    found = [before]
    context = typer.Context(group, info_name="vestige")  # type: ignore[arg-type]
    for name in getattr(group, "list_commands", lambda _: [])(context):
        found += paths(group.get_command(context, name), (*before, name))  # type: ignore[attr-defined]
    return found


VERBS = paths(typer.main.get_command(app))


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_help(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_nested_verbs_are_among_them() -> None:
    assert ("study", "verify") in VERBS
    assert ("behaviour",) in VERBS
    assert len(VERBS) > 20
