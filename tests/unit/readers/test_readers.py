"""Readers of CSV, JSON, JSONL, Parquet and YAML: what a cell means in each, and what is refused."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vestige.errors import InputError
from vestige.readers import read_json, read_table, yaml_mapping

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
    assert read.texts("text") == ODD
    assert read.texts("label") == ODD[::-1]


NOTHING = float("nan")
MEANING: list[tuple[str, object, str | None, float | None]] = [
    # what a file holds, in JSON and in Parquet: as text, as number; None: refused
    ("text", "001", "001", None),
    ("a text that looks like a number", "1e5", "1e5", None),
    ("a word for nothing", "nan", "nan", None),
    ("a word for true", "true", "true", None),
    ("white space", " NA ", " NA ", None),
    ("nothing", None, "", NOTHING),
    ("a whole number", 17, "17", 17.0),
    ("a large one", 2**60 + 1, "1152921504606846977", float(2**60 + 1)),
    ("a whole number with a gap", 17.0, "17", 17.0),
    ("minus zero", -0.0, "0", 0.0),
    ("another number", 1.10, "1.1", 1.1),
    ("a small one", 1e-7, "1e-07", 1e-7),
    ("a whole number beyond what floats tell apart", 1e300, "1e+300", 1e300),
    ("true", True, "true", None),
    ("a list", ["a"], None, None),
    ("an object", {"a": 1}, None, None),
]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("value", "text", "number"), [case[1:] for case in MEANING], ids=[case[0] for case in MEANING]
)
def test_a_cell_means_the_same_in_every_format(
    tmp_path: Path, suffix: str, value: object, text: str | None, number: float | None
) -> None:
    path = tmp_path / f"t{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table({"row": ["a", "b"], "x": [value, value]}), path)
    else:
        path.write_text(
            json.dumps({"row": "a", "x": value}) + "\n" + json.dumps({"row": "b", "x": value}) + "\n"
        )
    table = read_table(path)
    if text is None:
        assert "needed text" in refusal(table.texts, "x")
    else:
        assert table.texts("x") == [text, text]
    if number is None:
        assert "needed a number" in refusal(table.numbers, "x")
    else:
        np.testing.assert_array_equal(table.numbers("x"), [number, number])


def test_csv_keeps_the_text_that_is_in_the_file(tmp_path: Path) -> None:
    cells = ["001", "1.10", "1e5", "true", "TRUE", "nan", "NA", "null", " 5", "5 ", "-0", "17.0", "½"]
    path = write(tmp_path / "t.csv", "".join(f"{cell},x\n" for cell in ["label", *cells]))
    assert read_table(path).texts("label") == cells


def test_csv_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", 'p,q\n 0.5 ,"0.25"\n,1e-3\n1,\n')
    table = read_table(path)
    np.testing.assert_array_equal(table.numbers("p"), [0.5, NOTHING, 1])
    np.testing.assert_array_equal(table.numbers("q"), [0.25, 0.001, NOTHING])
    for odd in ("true", "0,5", "1_0", "0x1", "one"):
        path = write(tmp_path / "t.csv", f'p,q\n0.5,x\n\n"{odd}",y\n')
        assert f"line 4, field 'p': found the text '{odd}'; needed a number" in refusal(
            read_table(path).numbers, "p"
        )


def test_whole_numbers_with_a_gap_stay_whole(tmp_path: Path) -> None:
    frame = pd.DataFrame({"customer": [17, None, 4], "text": ["a", None, "c"]})
    assert frame["customer"].dtype == np.float64
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    for name in ("t.parquet", "t.jsonl"):
        table = read_table(tmp_path / name)
        assert table.texts("customer") == ["17", "", "4"]
        assert table.texts("text") == ["a", "", "c"]


def test_parquet_types_beyond_those_of_json(tmp_path: Path) -> None:
    moment = datetime(2026, 3, 1, 12, 30)
    columns = {
        "day": pa.array([moment.date()]),
        "moment": pa.array([moment]),
        "price": pa.array([Decimal("1.50")]),
        "kind": pa.array(["a"]).dictionary_encode(),
        "half": pa.array([np.float16(0.5)]),
        "unsigned": pa.array([2**63], pa.uint64()),
    }
    pq.write_table(pa.table(columns | {"blob": pa.array([b"caf\xe9"])}), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    assert [table.texts(name)[0] for name in columns] == [
        "2026-03-01",
        "2026-03-01T12:30:00",
        "1.5",
        "a",
        "0.5",
        "9223372036854775808",
    ]
    assert "row 1, field 'blob': found bytes" in refusal(table.texts, "blob")
    assert "not as binary" in refusal(table.texts, "blob")


def test_lists_are_lists_or_texts_of_json(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", '{"o": ["a", 1]}\n{"o": "[\\"b\\"]"}\n{"o": null}\n{"o": ""}\n')
    assert read_table(path).lists("o") == [["a", 1], ["b"], None, None]
    path = write(tmp_path / "t.jsonl", '{"o": ["a"]}\n\n{"o": "b"}\n')
    assert "line 3, field 'o': found the text 'b'; needed a list" in refusal(read_table(path).lists, "o")


def test_a_frame_leaves_out_what_has_no_text(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", '{"n": 17, "b": true}\n\n{"n": null, "b": null, "c": {"é": 1}}\n')
    assert read_table(path).frame().to_dict("list") == {"n": ["17", ""], "b": ["true", ""]}


def test_byte_order_mark_and_blank_lines_are_skipped(tmp_path: Path) -> None:
    for text in (
        "\ufefftext,label\r\n\r\nhi,a\r\n",
        '\n\n"text",label\n\n"hi",a',
        "\r\n\ntext,label\nhi,a\n\n",
    ):
        assert read_table(write(tmp_path / "t.csv", text)).frame().to_dict("records") == [
            {"text": "hi", "label": "a"}
        ]


def test_cp1252_is_refused_as_utf8_and_read_when_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "text,label\ncafé,a\nnaïve,b\n".encode("cp1252"))
    message = refusal(read_table, path, setting="encoding")
    assert message.startswith(f"{path}, line 2: found byte 0xe9, which is not UTF-8 (cp1252 or Latin-1?)")
    assert "iconv -f cp1252 -t utf-8 t.csv > utf8-t.csv, or set encoding" in message
    assert read_table(path, encoding="cp1252").texts("text") == ["café", "naïve"]


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_wide_encodings_are_told_apart(tmp_path: Path, codec: str) -> None:
    message = refusal(read_table, write(tmp_path / "t.csv", "text,label\nhi,a\n".encode(codec)))
    assert (
        f"found text in {codec[:6].upper()}; needed text in UTF-8; convert it: iconv -f {codec[:6]} -t"
        in message
    )


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (gzip.compress(b"text,label\nhi,a\n", mtime=0), "a gzip-compressed file"),
        (bz2.compress(b"text"), "a bzip2-compressed file"),
        (lzma.compress(b"text"), "an xz-compressed file"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"PAR1rest", "a Parquet file"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook"),
    ],
)
def test_other_kinds_of_file_are_named(tmp_path: Path, data: bytes, kind: str) -> None:
    for name in ("t.csv", "t.jsonl"):
        assert f"found {kind}" in refusal(read_table, write(tmp_path / name, data))


def test_semicolons_are_a_setting(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "text;label\nhi;a\n")
    assert "set delimiter" in refusal(read_table, path, columns=("text", "label"))
    assert read_table(path, delimiter=";", columns=("text",)).texts("label") == ["a"]


@pytest.mark.parametrize(
    ("name", "data", "parts"),
    [
        ("t.csv", "text,label\nhi,a,b\n", ["line 2", "3 fields", "2, as in the header"]),
        ("t.csv", "text,label\nhi\n", ["line 2", "1 fields"]),
        ("t.csv", 'text,label\n"open,a\nx,b\n', ["broken CSV"]),
        ("t.csv", 'text,label\nx,"open\ny,b\nz,c\n', ["line 4", "broken CSV"]),
        ("t.csv", 'text,label\n"x"y,b\n', ["line 2", "broken CSV"]),
        ("t.csv", 'text,"label\nx,b\n', ["broken CSV"]),
        ("t.csv", "text,text\nhi,a\n", ["named twice: 'text'"]),
        ("t.csv", "text,label\n", ["no rows"]),
        ("t.csv", "", ["no header line"]),
        ("t.csv", "\n\n", ["no header line"]),
        ("t.jsonl", '{"text": "a"}\n{"text": \n', ["line 2", "broken JSON"]),
        ("t.jsonl", "[1, 2]\n", ["line 1", "a JSON list"]),
        ("t.jsonl", '{"text": "a"}\n{"text": "b", "text": "c"}\n', ["line 2", "'text' twice in one object"]),
        ("t.jsonl", '{"x": {"a": 1, "a": 1}}\n', ["line 1", "'a' twice in one object"]),
        ("t.jsonl", '{"text": NaN}\n', ["line 1", "NaN, which is no JSON", "write null"]),
        ("t.jsonl", '{"n": 1e400}\n', ["line 1", "the number '1e400'"]),
        ("t.jsonl", "null\n", ["line 1", "a JSON null"]),
        ("t.jsonl", '{"\\ud83d": "x"}\n', ["half a surrogate pair in a name"]),
        ("t.jsonl", b'{"text": "\xff"}\n', ["line 1", "byte 0xff"]),
        ("t.json", "[]", ["suffix '.json'", ".jsonl"]),
        ("t.parquet", b"PAR1 and then nothing", ["a broken or truncated Parquet file"]),
        ("t.parquet", b"", ["a broken or truncated Parquet file"]),
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
    assert "nested too deep" in refusal(read_json, write(tmp_path / "deep.json", "[" * 100_000))
    path = write(tmp_path / "half.jsonl", '{"text": "a"}\n{"text": "\\ud83d"}\n')
    assert "line 2, field 'text': found half a surrogate pair" in refusal(read_table(path).texts, "text")


def test_many_rows_and_quotes_are_read_by_either_parser_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pieces = ["a", "1", ",", "\n", '"', " ", "é", "\r\n", ";", "x y"]
    rows = [["".join(rng.choice(pieces, size=rng.integers(1, 6))) for _ in range(3)] for _ in range(400)]
    path = tmp_path / "t.csv"
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, quoting=quoting).writerows([["p", "q", "r"], *rows])
        table = read_table(path)
        assert [list(row) for row in zip(*(table.texts(name) for name in "pqr"), strict=True)] == rows


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1\na: 2\n", "line 2: found key 'a' twice"),
        ("5: 1\n", "line 1: found the key 5, which YAML reads as no text"),
        ("a:\n  ~: 1\n", "line 2: found the key ~, which YAML reads as no text"),
        ("no: 1\n", "the key no, which YAML reads as no text"),
        ("2026-01-01: 1\n", "the key 2026-01-01, which YAML reads as no text"),
        ("<<: {a: 1}\n", "the key <<"),
        ("[a]: 1\n", "a list or mapping as a key"),
        ("a: *b\n", "an alias"),
        ("a: .nan\n", "a number that is not finite"),
        ("a: !!python/object:os.system x\n", "could not determine a constructor"),
        ("- a\n", "no mapping at the top"),
        ("", "nothing at the top"),
        ("a: [" * 2000, "nested too deep"),
        ('a: "\\ud83d"\n', "does not exist"),
    ],
)
def test_yaml_is_plain(text: str, found: str) -> None:
    assert found in refusal(yaml_mapping, text, "study.yaml")
    assert yaml_mapping("'5': 1e-4\nb: [x, 1]\n", "study.yaml") == {"5": 1e-4, "b": ["x", 1]}
