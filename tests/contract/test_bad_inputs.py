"""Every bad input of the table is one line with its remedy; nothing is asked, hangs or crashes."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.bad_inputs.harness import TRAINING, arguments, cases, matches, run_case, said, write_good

from vestige.cli.app import VERBS

CASES = cases()
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    write_good(folder / "good")
    return folder


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{c['verb']}: {c['what']}" for c in CASES])
def test_a_bad_input_is_one_line(number: int, root: Path) -> None:
    case: dict[str, Any] = CASES[number]
    if case["verb"] in TRAINING and not HAS_TORCH:
        pytest.skip("the extra 'train' is not installed")
    folder = root / str(number)
    outcome = run_case(case, folder)
    line = said(outcome, folder)
    assert matches(line, case["line"]), f"now: {line}\nin the table: {case['line']}"
    assert outcome.exit == case["exit"]
    assert outcome.out == "" or outcome.exit == 1  # an audit prints its checks
    assert "bug in vestige" not in outcome.err


def test_the_table_covers_every_verb_and_says_each_thing_once() -> None:
    assert len(CASES) >= 500
    assert {case["verb"] for case in CASES if case["exit"] != 2} == {"folder"}
    assert {case["exit"] for case in CASES} == {1, 2}
    twice = [key for key, count in Counter((c["verb"], c["what"]) for c in CASES).items() if count > 1]
    assert not twice
    commands = {arguments(case)[0] for case in CASES}
    assert set(VERBS) <= commands
