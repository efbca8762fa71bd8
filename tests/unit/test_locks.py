"""Locks: one process inside however many ask, nothing left behind, and looking writes nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vestige.behaviour.run import behaviour
from vestige.errors import InputError
from vestige.footprint.run import footprint
from vestige.language_study.relearn import relearn
from vestige.language_study.run import run_language_study
from vestige.locks import LOCK, alone_in, held, holding

# Each of three processes goes in and out; a file that only one may make stands while one is inside.
_TAKER = """
import os, sys
from pathlib import Path
from vestige.locks import holding
folder = Path(sys.argv[1])
for _ in range(150):
    with holding(folder / "lock"):
        os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))
        (folder / "inside").unlink()
"""


def test_one_of_three_processes_is_inside_though_the_file_goes_each_time(tmp_path: Path) -> None:
    takers = [
        subprocess.Popen([sys.executable, "-c", _TAKER, str(tmp_path)], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for taker in takers:
        _, said = taker.communicate()
        assert taker.returncode == 0, said
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_made_anew_is_waited_for(tmp_path: Path) -> None:
    """Whoever holds a file that has lost its name holds nothing."""
    path = tmp_path / "lock"
    with holding(path):
        path.unlink()
        with holding(path, wait=False):
            assert path.is_file()
            with pytest.raises(BlockingIOError), holding(path, wait=False):
                pass


def test_looking_whether_a_folder_is_held_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def readable(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if mode.strip("b") != "r":
            raise PermissionError(30, "Read-only file system")
        return opened(self, mode, *args, **kwargs)

    with alone_in(tmp_path), monkeypatch.context() as patch:
        patch.setattr(Path, "open", readable)
        assert held(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", readable)
        assert not held(tmp_path)
    (tmp_path / LOCK).unlink()
    assert not held(tmp_path)
    assert list(tmp_path.iterdir()) == []


_TEXT = {"forget": "f.jsonl", "generic": "g.jsonl"}


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        ("footprint", lambda out: footprint(base="b", unlearned={"u": "u"}, out=out, **_TEXT)),
        ("behaviour", lambda out: behaviour(base="b", models={"u": "u"}, questions={}, out=out)),
        ("relearn", lambda out: relearn(base="b", models={"u": "u"}, forget={"f": "f.jsonl"}, out=out)),
        ("study", lambda out: run_language_study(None, out)),  # type: ignore[arg-type]
    ],
)
def test_two_of_a_verb_in_one_folder_are_refused(
    verb: str, call: Callable[[Path], object], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with alone_in(out, f".lock-{verb}"), pytest.raises(InputError, match="another run at work"):
        call(out)
    # Another verb may work there, and what is refused for another reason leaves no folder of its own.
    with alone_in(out, ".lock-other"), pytest.raises((InputError, AttributeError)) as error:
        call(out)
    assert "another run" not in str(error.value)
    with pytest.raises((InputError, AttributeError)):
        call(tmp_path / "new")
    assert not (tmp_path / "new").exists()
