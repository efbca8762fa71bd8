"""Readers of CSV, JSONL and Parquet: what they accept and the one line they refuse with."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vestige.data.descriptions import described, read_descriptions
from vestige.data.files import read_json, read_table
from vestige.errors import InputError

ODD = [
    "a/b",
    "a,b",
    "line\nbreak",
    "🎉",
    "a__b",
    "<script>alert(1)</script>",
    "x" * 10_000,
    'say "hi"',
    " NA",
]


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def refusal(call, *arguments, **settings) -> str:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as caught:
        call(*arguments, **settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_odd_texts_survive_every_format(tmp_path: Path, suffix: str) -> None:
    frame = pd.DataFrame({"text": ODD, "label": ODD[::-1]})
    path = tmp_path / f"t{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    read = read_table(path, columns=("text", "label"))
    assert read["text"].tolist() == ODD
    assert read["label"].tolist() == ODD[::-1]


def test_numbers_missing_values_and_nested_values_become_text(tmp_path: Path) -> None:
    table = pa.table(
        {"n": pa.array([17, None], pa.int64()), "b": [True, False], "f": [0.5, 2.0], "l": [["a"], None]}
    )
    pq.write_table(table, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").to_dict("list") == {
        "n": ["17", ""],
        "b": ["true", "false"],
        "f": ["0.5", "2.0"],
        "l": ['["a"]', ""],
    }
    path = write(tmp_path / "t.jsonl", '{"n": 17, "b": true}\n\n{"n": null, "c": {"é": 1}}\n')
    assert read_table(path).to_dict("list") == {"n": ["17", ""], "b": ["true", ""], "c": ["", '{"é": 1}']}


def test_words_for_missing_stay_words(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "text,label\nnone of these,NA\nnull,None\n")
    assert read_table(path)["label"].tolist() == ["NA", "None"]


def test_byte_order_mark_and_blank_lines_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "\ufefftext,label\r\n\r\nhi,a\r\n")
    assert read_table(path).to_dict("records") == [{"text": "hi", "label": "a"}]


def test_cp1252_is_refused_as_utf8_and_read_when_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "text,label\ncafé,a\nnaïve,b\n".encode("cp1252"))
    message = refusal(read_table, path)
    assert message.startswith(f"{path}, line 2: found byte 0xe9, which is not utf-8")
    assert "cp1252" in message
    assert read_table(path, encoding="cp1252")["text"].tolist() == ["café", "naïve"]


def test_semicolons_are_a_setting(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "text;label\nhi;a\n")
    assert "set delimiter" in refusal(read_table, path, columns=("text", "label"))
    assert read_table(path, delimiter=";", columns=("text",))["label"].tolist() == ["a"]


@pytest.mark.parametrize(
    ("name", "data", "parts"),
    [
        ("t.csv", "text,label\nhi,a,b\n", ["line 2", "3 fields", "2, as in the header"]),
        ("t.csv", "text,label\nhi\n", ["line 2", "1 fields"]),
        ("t.csv", 'text,label\n"open,a\nx,b\n', ["broken CSV"]),
        ("t.csv", "text,text\nhi,a\n", ["named twice: 'text'"]),
        ("t.csv", "text,label\n", ["no rows"]),
        ("t.csv", "", ["no rows"]),
        ("t.jsonl", '{"text": "a"}\n{"text": \n', ["line 2", "broken JSON"]),
        ("t.jsonl", "[1, 2]\n", ["line 1", "a JSON list"]),
        ("t.jsonl", '{"text": "\\ud83d"}\n', ["line 1", "field 'text'", "surrogate"]),
        ("t.jsonl", b'{"text": "\xff"}\n', ["line 1", "byte 0xff"]),
        ("t.json", "[]", ["suffix '.json'", ".jsonl"]),
        ("t.parquet", b"PAR1 and then nothing", ["no Parquet table"]),
        ("t.parquet", b"", ["0 bytes"]),
    ],
)
def test_broken_files_are_one_line_errors(
    tmp_path: Path, name: str, data: bytes | str, parts: list[str]
) -> None:
    path = write(tmp_path / name, data)
    message = refusal(read_table, path)
    assert str(path) in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_truncated_parquet(tmp_path: Path, keep: float) -> None:
    path = tmp_path / "t.parquet"
    pd.DataFrame({"text": [f"row {i}" for i in range(500)]}).to_parquet(path)
    data = path.read_bytes()
    write(path, data[: int(keep * len(data))])
    assert "write or copy the file again" in refusal(read_table, path)


def test_missing_files_columns_and_settings(tmp_path: Path) -> None:
    path = write(tmp_path / "train.csv", "text,label\nhi,a\n")
    assert "did you mean 'train.csv'?" in refusal(read_table, tmp_path / "trian.csv")
    assert "did you mean 'label'?" in refusal(read_table, path, columns=("labels",))
    assert "a codec of Python" in refusal(read_table, path, encoding="utf-9")
    assert "one character" in refusal(read_table, path, delimiter="||")
    (tmp_path / "folder.csv").mkdir()
    assert "a folder" in refusal(read_table, tmp_path / "folder.csv")
    assert "no such file" in refusal(read_json, tmp_path / "none" / "a.json")
    assert "broken JSON" in refusal(read_json, write(tmp_path / "deep.json", "[" * 100_000))


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
