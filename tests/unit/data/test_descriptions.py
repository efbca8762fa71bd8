"""Descriptions of options from JSON and tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.readers.test_readers import refusal, write

from vestige.data.descriptions import described, read_descriptions


def test_descriptions_from_json_and_tables(tmp_path: Path) -> None:
    path = write(tmp_path / "d.json", '{"a": "first", "b": {"name": "Bee", "description": "second"}}')
    options = described(["b", "a"], read_descriptions(path), "d.json")
    assert [(option.id, option.text) for option in options] == [("b", "Bee: second"), ("a", "a: first")]
    table = write(tmp_path / "d.csv", "id,name,description\na,,first\nb,Bee,second\n")
    assert read_descriptions(table) == read_descriptions(path)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"a": "x"}', "no description of 1 options: 'b'"),
        ('{"a": "x", "b": "y", "card_lst": "z"}', "1 ids that are no option: 'card_lst'"),
        ('{"a": 1, "b": "y"}', "id 'a'"),
        ('{"a": {"text": "x"}, "b": "y"}', "id 'a'"),
        ('["a"]', "a JSON list"),
    ],
)
def test_bad_descriptions(tmp_path: Path, text: str, part: str) -> None:
    path = write(tmp_path / "d.json", text)
    assert part in refusal(lambda: described(["a", "b"], read_descriptions(path), str(path)))


def test_a_description_twice(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", "id,description\na,first\na,again\n")
    assert "id 'a' twice" in refusal(read_descriptions, path)
