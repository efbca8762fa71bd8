"""Whatever reads a record says what is wrong with it in the same words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.assessments import assessment

from vestige.errors import InputError
from vestige.report.footprint.joined import beside
from vestige.report.footprint.reader import read_footprint
from vestige.report.reader import read_assessment
from vestige.study.ledger_main import main_table2_rows
from vestige.study.ledger_recovery import recoveries
from vestige.study.ledger_run import Run
from vestige.study.recovery import stored_plan
from vestige.study.store import Store

READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "assessment-1": ("assessment.json", lambda root: read_assessment(root / "assessment.json")),
    "assessment-1 of a run": ("assessments/01-s17.json", lambda root: Run(root).assessments),
    "footprint-1": ("footprint.json", lambda root: read_footprint(root / "footprint.json")),
    "behaviour-1": ("behaviour.json", beside),
    "relearn-1": ("relearn/relearn.json", beside),
    "recovery-1": ("recovery/01-s17-npo.json", lambda root: recoveries([Run(root)])),
    "recovery-1 to go on": (
        "recovery/01-s17-npo.json",
        lambda root: stored_plan(Store(root), "recovery/01-s17-npo"),
    ),
    "replication-1": (
        "summaries/replication.json",
        lambda root: main_table2_rows([], {"replication": [(Run(root), {})]}),
    ),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("fault", ["another format", "no JSON", "no text"])
def test_every_reader_says_the_same(reader: str, fault: str, tmp_path: Path) -> None:
    name, read = READERS[reader]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    data = {"another format": b'{"format": "vestige-other-1"}', "no JSON": b"{", "no text": b"\xff\xfe"}
    path.write_bytes(data[fault])
    with pytest.raises(InputError) as raised:
        read(tmp_path)
    form = f"vestige-{reader.split(' ')[0]}"
    said = str(raised.value)
    if fault == "no text":
        assert said.startswith(f"{path}: found text in UTF-16; ")
        assert "; needed a JSON file in UTF-8; " in said
        return
    assert f"; needed a record of the format {form}; " in said
    assert said.startswith(f"{path}: found broken JSON" if fault == "no JSON" else f"{path}, ")
    if fault == "another format":
        assert said.endswith("; write it again with the version of vestige that reads it")


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ({"models": 3}, "'models': found '3' (Input should be "),
        ({}, "'models': found no such field; needed a record of the format vestige-assessment-1"),
    ],
)
def test_a_field_that_is_wrong_is_named_with_what_stands_there(
    fault: dict[str, int], found: str, tmp_path: Path
) -> None:
    record = json.loads(assessment().to_json())
    del record["models"]
    path = tmp_path / "assessment.json"
    path.write_text(json.dumps({**record, **fault}), encoding="utf-8")
    with pytest.raises(InputError) as raised:
        read_assessment(path)
    assert str(raised.value).startswith(f"{path}, {found}")
