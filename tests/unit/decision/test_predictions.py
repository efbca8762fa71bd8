"""Prediction tables: every format reads to the same table, every fault gives one line that names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import tables

from vestige.decision.predictions import (
    Predictions,
    align,
    predictions_from,
    predictions_from_arrays,
    read_predictions,
    write_predictions,
)
from vestige.errors import InputError

FORMATS = ("jsonl", "csv", "parquet", "npz")
WILD = [
    "a/b",
    "a,b",
    "a\nb",
    "😀",
    "__",
    "x" * 10_000,
    "<script>alert(1)</script>",
    "p:",
    '"quoted"',
    " ",
    "'",
]


def same(first: Predictions, second: Predictions) -> bool:
    """Bit for bit, labels and paths apart."""
    names = ("row_ids", "view", "unit", "gold")
    return (
        first.options == second.options
        and all(list(getattr(first, name)) == list(getattr(second, name)) for name in names)
        and first.p.tobytes() == second.p.tobytes()
        and first.sha256 == second.sha256
    )


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_same_table_whatever_its_order(suffix: str, tmp_path: Path) -> None:
    expected = tables.table("full")
    columns = tables.shuffled(expected, np.random.default_rng(3))
    found = read_predictions(tables.write(columns, tmp_path / f"model.{suffix}"))
    assert same(found, expected)
    assert found.label == "model"
    assert found.row_ids.tolist() == sorted(found.row_ids.tolist())
    assert found.options == tuple(sorted(tables.OPTIONS))


@pytest.mark.parametrize("suffix", FORMATS)
def test_any_text_can_name_an_option(suffix: str, tmp_path: Path) -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(len(WILD)), 4)
    expected = predictions_from_arrays(
        p, row_ids=list("abcd"), view=list("FGRR"), unit=WILD[:4], gold=WILD[4:8], options=WILD, label="wild"
    )
    columns = tables.shuffled(expected, np.random.default_rng(1))
    assert same(read_predictions(tables.write(columns, tmp_path / f"wild.{suffix}")), expected)


def test_what_is_written_reads_back_to_the_same_bytes(tmp_path: Path) -> None:
    names = tables.rows()
    off = predictions_from_arrays(
        tables.probabilities("full") * 1.0009,
        row_ids=names["row_id"],
        view=names["view"],
        unit=names["unit"],
        gold=names["gold"],
        options=tables.OPTIONS,
        label="off",
    )
    write_predictions(off, tmp_path / "off.parquet")
    assert same(read_predictions(tmp_path / "off.parquet"), off)
    assert off.max_sum_deviation == pytest.approx(0.0009)
    np.testing.assert_allclose(off.p, tables.table("full").p, rtol=1e-12)


def test_rows_that_sum_to_one_are_left_as_they_are() -> None:
    p = np.array([[0.1, 0.2, 0.7], [0.25, 0.25, 0.5]])
    table = small(p=p, gold=["a", "b"], view=["F", "R"], unit=["a", ""], row_ids=["1", "2"])
    assert table.p.tobytes() == p.tobytes()


def test_a_frame_and_a_mapping_give_the_same_table() -> None:
    expected = tables.table("oracle")
    frame = expected.to_frame()
    assert same(predictions_from(frame.sample(frac=1, random_state=0), label="frame"), expected)
    assert same(predictions_from(frame.to_dict("list"), label="mapping"), expected)
    assert list(frame.columns[:4]) == ["row_id", "view", "unit", "gold"]


def test_a_view_keeps_the_order_and_knows_its_gold_columns() -> None:
    table = tables.table("full")
    part = table.of_view("G")
    assert len(part) == tables.COUNTS["G"]
    assert set(part.view) == {"G"}
    assert [part.options[column] for column in part.gold_index] == part.gold.tolist()
    assert len(table.take(np.zeros(len(table), dtype=bool))) == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["full", "oracle", "unlearned"]))
def test_no_order_changes_a_table(seed: int, kind: str) -> None:
    expected = tables.table(kind)
    columns = tables.shuffled(expected, np.random.default_rng(seed))
    assert same(predictions_from(columns, label="x"), expected)


def small(label: str = "small.csv", **changes: Any) -> Predictions:
    """Three rows and options, one thing changed."""
    given: dict[str, Any] = {
        "p": np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.1, 0.1, 0.8]]),
        "row_ids": ["1", "2", "3"],
        "view": ["F", "G", "R"],
        "unit": ["a", "a", ""],
        "gold": ["a", "a", "c"],
        "options": ["a", "b", "c"],
    }
    return predictions_from_arrays(**(given | changes), label=label)


def changed(value: float, row: int = 1, column: int = 0) -> np.ndarray[Any, Any]:
    p = np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.1, 0.1, 0.8]])
    p[row, column] = value
    return p


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"row_ids": ["1", "2", "1"]}, ["row_id given more than once: '1'", "remove duplicates"]),
        ({"options": ["a", "b", "a"]}, ["option given more than once: 'a'"]),
        ({"options": ["a", "b", ""]}, ["an option without a name"]),
        ({"p": changed(0.27)}, ["do not sum to 1 on 1 row(s): '2' (0.97)", "within 0.001 of 1"]),
        ({"p": changed(-0.3)}, ["negative probabilities on 1 row(s): '2'", "option 'a'"]),
        ({"p": changed(float("nan"))}, ["missing or NaN probabilities on 1 row(s): '2'", "options: 'a'"]),
        ({"p": changed(float("inf"))}, ["infinite probabilities"]),
        ({"gold": ["a", "a", "z"]}, ["gold 'z' outside the options on 1 row(s): '3'"]),
        ({"view": ["F", "G", "X"]}, ["view 'X' on 1 row(s): '3'", "view F, G or R"]),
        ({"unit": ["", "a", ""]}, ["no unit on 1 row(s) of F or G: '1'"]),
        ({"gold": ["a", None, "c"]}, ["no gold on 1 row(s): '2'", "needed a gold in every row"]),
        ({"row_ids": ["1", "2", b"3"]}, ["row_id 'b'3'' in number 3"]),
        ({"gold": ["a", "a", "\ud800"]}, ["half a surrogate pair"]),
        ({"view": ["F", "G"]}, ["one row_id, view, unit and gold a row"]),
        ({"p": np.zeros((0, 3)), "row_ids": [], "view": [], "unit": [], "gold": []}, ["no rows"]),
        ({"p": np.ones((3, 1)), "options": ["a"]}, ["one option in all", "top-1 labels or top-k lists"]),
    ],
)
def test_a_fault_is_one_line_that_names_it(changes: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        small(**changes)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("small.csv: found ")
    for part in parts:
        assert part in message


def test_only_the_first_five_rows_are_named() -> None:
    names = tables.rows()
    with pytest.raises(InputError) as caught:
        predictions_from_arrays(
            tables.probabilities("full") * np.where(np.arange(58)[:, None] < 9, 0.97, 1.0),
            row_ids=names["row_id"],
            view=names["view"],
            unit=names["unit"],
            gold=names["gold"],
            options=tables.OPTIONS,
            label="x",
        )
    assert "on 9 row(s): 'row 0' (0.97)" in str(caught.value)
    assert str(caught.value).count("(0.97)") == 5
    assert "and 4 more" in str(caught.value)


def test_a_sum_off_by_exactly_a_thousandth_is_accepted() -> None:
    assert small(p=changed(0.299)).max_sum_deviation == pytest.approx(0.001)
    with pytest.raises(InputError, match="do not sum to 1"):
        small(p=changed(0.2989))


@pytest.mark.parametrize(
    ("p", "found"),
    [
        ([[0.9, 0, 0], [0, 0.8, 0], [0, 0, 0.7]], "1 of 3 options above 0"),
        (
            [[0.9, np.nan, np.nan], [np.nan, 0.8, np.nan], [np.nan, np.nan, 0.7]],
            "1 of 3 options in every row",
        ),
    ],
)
def test_top_k_columns_are_refused(p: list[list[float]], found: str) -> None:
    with pytest.raises(InputError, match="top-1 labels or top-k lists are not enough") as caught:
        small(p=np.array(p))
    assert found in str(caught.value)


def line(**changes: Any) -> str:
    record = {"row_id": "1", "view": "F", "unit": "a", "gold": "a", "p": {"a": 0.5, "b": 0.5}} | changes
    return json.dumps({key: value for key, value in record.items() if value is not None})


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ([line(p=None)], ["line 1: found no field 'p'", "top-1 labels or top-k lists are not enough"]),
        ([line(p=None, label="a", score=0.9)], ["no field 'p'"]),
        ([line(p=["a", "b"])], ["'p' as a list"]),
        ([line(p={"a": 0.9}), line(row_id="2", p={"b": 0.8})], ["1 of 2 options in every row", "top-k"]),
        (
            [line(), line(row_id="2", p={"a": 1.0})],
            ["1 row(s) without some option: '2'; options: 'b'", "full distribution"],
        ),
        ([line(), line(row_id="2", p={"a": 0.5, "b": 0.3, "c": 0.2})], ["row(s) without some option: '1'"]),
        ([line(gold=None)], ["line 1: found no field 'gold'"]),
        ([line(), "{"], ["line 2: found broken JSON"]),
        ([line(), "3"], ["line 2: found a JSON number"]),
        (['{"row_id": "1", "p": {"a": 0.5, "a": 0.5}}'], ["'a' twice in one object"]),
        ([line(p={"a": "much", "b": 0.5})], ["'\"much\"' of 'a'"]),
        ([line(), line(row_id="2", p={"a": float("nan"), "b": 0.5})], ["missing or NaN probabilities"]),
        ([line(gold=True)], ["gold 'true' outside the options"]),
        ([line(p={"a": True, "b": False})], ["probability 'true' of 'a', row '1'", "a number"]),
        ([line(unit=["a"])], ["line 1, field 'unit'", "a list"]),
        ([" "], ["no rows"]),
    ],
)
def test_broken_jsonl_is_one_line_that_names_the_line(
    lines: list[str], parts: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "model.jsonl"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError) as caught:
        read_predictions(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_jsonl_with_options_in_another_order_on_each_line_is_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.jsonl"
    path.write_text(line(p={"a": 0.75, "b": 0.25}) + "\n\n" + line(row_id=2, p={"b": 1, "a": 0}) + "\r\n")
    found = read_predictions(path)
    assert found.row_ids.tolist() == ["1", "2"]
    assert found.p.tolist() == [[0.75, 0.25], [0.0, 1.0]]


def test_a_csv_in_another_encoding_names_the_line_and_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "model.csv"
    path.write_bytes("row_id,view,unit,gold,p:a,p:é\n1,F,a,a,1,0\n".encode("cp1252"))
    with pytest.raises(InputError, match=r"line 1: found byte 0xe9, which is not UTF-8 .*iconv -f cp1252"):
        read_predictions(path)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    for suffix in ("csv", "jsonl"):
        columns = tables.shuffled(tables.table("full"), np.random.default_rng(0))
        path = tables.write(columns, tmp_path / f"model.{suffix}")
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert same(read_predictions(path), tables.table("full"))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("row_id,view,unit,gold,label,score\n1,F,a,a,a,0.9\n", "top-1 labels or top-k lists"),
        ("row_id,view,gold,p:a,p:b\n1,F,a,1,0\n", "no column 'unit'"),
        ("row_id,view,unit,gold,p:a,p:a\n1,F,a,a,1,0\n", "columns named twice: 'p:a'"),
        (
            "row_id,view,unit,gold,p:a,p:b\n1,F,a,a,one,0\n",
            "line 2, field 'p:a': found the text 'one'; needed a number",
        ),
        ("row_id,view,unit,gold,p:a,p:b\n1,F,a,a,1\n", "line 2: found 5 fields; needed 6"),
        ("row_id,view,unit,gold,p:a,p:b\n", "no rows"),
        ("row_id,view,unit,gold,p:a,p:b\n1,F,a,a,0.4,\n2,G,a,a,0.5,0.5\n", "missing or NaN probabilities"),
    ],
)
def test_broken_csv_is_one_line(text: str, part: str, tmp_path: Path) -> None:
    path = tmp_path / "model.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_predictions(path)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_truncated_parquet_is_one_line(tmp_path: Path) -> None:
    write_predictions(tables.table("full"), tmp_path / "whole.parquet")
    path = tmp_path / "half.parquet"
    data = (tmp_path / "whole.parquet").read_bytes()
    for size in (len(data) // 2, 5):
        path.write_bytes(data[:size])
        with pytest.raises(InputError, match="a broken or truncated Parquet file"):
            read_predictions(path)


def test_a_parquet_column_that_is_no_number_is_named(tmp_path: Path) -> None:
    columns = tables.shuffled(tables.table("full"), np.random.default_rng(0))
    columns["p:plain"] = ["much"] * 58
    with pytest.raises(InputError, match=r"row 1, field 'p:plain': found the text 'much'"):
        read_predictions(tables.write(columns, tmp_path / "model.parquet"))


def test_an_npz_of_objects_is_never_unpickled(tmp_path: Path) -> None:
    columns = tables.shuffled(tables.table("full"), np.random.default_rng(0))
    path = tmp_path / "model.npz"
    np.savez(path, **columns)
    with pytest.raises(InputError, match=r"arrays of Python objects; .*dtype=str"):
        read_predictions(path)


def test_broken_npz_files_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    path.write_bytes(b"PK no archive")
    with pytest.raises(InputError, match="npz"):
        read_predictions(path)
    columns = tables.shuffled(tables.table("full"), np.random.default_rng(0))
    columns["p:plain"] = columns["p:plain"][:-1]
    with pytest.raises(InputError, match=r"array 'p:plain' of shape \(57,\)"):
        read_predictions(tables.write(columns, path))


@pytest.mark.parametrize(
    ("name", "part"),
    [("absent.csv", "no such file"), ("model.xlsx", "suffix '.xlsx'"), ("empty.csv", "an empty file")],
)
def test_a_file_that_cannot_be_read_says_so(name: str, part: str, tmp_path: Path) -> None:
    (tmp_path / "model.xlsx").write_text("x")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(InputError, match=part):
        read_predictions(tmp_path / name)


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="a folder"):
        read_predictions(tmp_path / "folder.csv")


def test_alignment_is_by_name_and_names_what_is_missing() -> None:
    first = tables.table("full")
    assert align([first, tables.table("oracle")])[1].label == "oracle 0"
    fewer = first.take(np.arange(len(first)) >= 7)
    for pair in ([first, fewer], [fewer, first]):
        with pytest.raises(InputError) as caught:
            align(pair)
        assert "7 row(s) missing that 'full 0' has: 'row 0', 'row 1', 'row 10'" in str(caught.value)
        assert "and 2 more" in str(caught.value)


def test_alignment_names_a_missing_option() -> None:
    with pytest.raises(InputError, match=r"two: found 1 option\(s\) missing that 'one' has: 'd'"):
        align([small("one", options=["a", "d", "c"]), small("two")])


@pytest.mark.parametrize(("field", "value"), [("view", "G"), ("gold", "b"), ("unit", "b")])
def test_alignment_refuses_rows_that_disagree(field: str, value: str) -> None:
    other = small("two", **{field: [value, *{"view": "GR", "gold": "ac", "unit": ["a", ""]}[field]]})
    with pytest.raises(InputError, match=rf"two: found another {field} than 'one' on 1 row\(s\): '1'"):
        align([small("one"), other])


def test_the_hash_sees_every_part_of_a_table() -> None:
    hashes = {
        small().sha256,
        small(p=changed(0.3000001)).sha256,
        small(gold=["a", "b", "c"]).sha256,
        small(view=["F", "G", "G"], unit=["a", "a", "c"]).sha256,
        small(row_ids=["1", "2", "4"]).sha256,
    }
    assert len(hashes) == 5
    assert small("other").sha256 == small().sha256


def test_tables_without_columns_are_refused() -> None:
    with pytest.raises(InputError, match="an object of type int"):
        predictions_from(3, label="x")
    with pytest.raises(InputError, match="top-1 labels"):
        predictions_from(pd.DataFrame({"row_id": ["1"], "label": ["a"]}), label="x")
    with pytest.raises(InputError, match=r"no column 'view', 'unit', 'gold'"):
        predictions_from({"row_id": ["1"], "p:a": [1.0]}, label="x")


ROW = '{"row_id": "%s", "view": "%s", "unit": %s, "gold": "a", "p": {"a": %s, "%s": %s}}'


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_null_unit_is_an_empty_one(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.{suffix}"
    if suffix == "jsonl":
        lines = [ROW % ("1", "F", '"a"', 0.5, "b", 0.5), ROW % ("2", "R", "null", 0.5, "b", 0.5)]
        path.write_text("\n".join(lines))
    else:
        frame = pd.DataFrame({"row_id": ["1", "2"], "view": ["F", "R"], "unit": ["a", None], "gold": "a"})
        frame.assign(**{"p:a": 0.5, "p:b": 0.5}).to_parquet(path)
    assert read_predictions(path).unit.tolist() == ["a", ""]


@pytest.mark.parametrize("empty", [None, float("nan"), pd.NA])
def test_an_empty_unit_of_a_frame_is_named_on_f_alone(empty: object) -> None:
    columns = {"row_id": ["1", "2"], "gold": ["a", "a"], "p:a": [0.5, 0.5], "p:b": [0.5, 0.5]}
    found = predictions_from({**columns, "view": ["R", "R"], "unit": [empty, "x"]}, label="model")
    assert found.unit.tolist() == ["", "x"]
    with pytest.raises(InputError, match=r"no unit on 1 row\(s\) of F or G: '1'"):
        predictions_from({**columns, "view": ["F", "F"], "unit": [empty, "x"]}, label="model")


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ([ROW % ("1", "R", '""', "[0.5]", "b", "[0.5]")], "probability '[0.5]' of 'a', row '1'"),
        (["[" * 100_000], "line 1: found lists or objects nested too deep"),
        (['{"a":' * 100_000], "line 1: found lists or objects nested too deep"),
        (
            [ROW % (str(row), "R", '""', 0.5, "c" if row == 2 else "b", 0.5) for row in range(5)],
            "1 row(s) with other options than most: '2'; options: 'b', 'c'",
        ),
        ([ROW % ("", "R", '""', 0.5, "b", 0.5)], "1 row(s) without a row_id, the first is number 1"),
        (['{"row_id": "1", "view": "R", "unit": "", "gold": "a", "p": {}}'], "found no option;"),
    ],
)
def test_odd_jsonl_is_one_line(lines: list[str], part: str, tmp_path: Path) -> None:
    path = tmp_path / "model.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError) as caught:
        read_predictions(path)
    assert part in str(caught.value)


def test_sums_beyond_the_largest_number_are_one_line() -> None:
    with pytest.raises(InputError, match=r"'1' \(inf\)"):  # a warning would be an error here
        predictions_from_arrays(
            [[1e308, 1e308]], row_ids=["1"], view=["R"], unit=[""], gold=["a"], options=["a", "b"], label="m"
        )


def test_an_npz_that_is_none_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    np.save(tmp_path / "model.npy", np.zeros(3))
    (tmp_path / "model.npy").rename(path)
    with pytest.raises(InputError, match=r"found a NumPy array; needed an \.npz"):
        read_predictions(path)
    np.savez(path, row_id=np.array(["1"]))
    damaged = bytearray(path.read_bytes())
    at = damaged.rindex(b"PK\x01\x02")
    damaged[at + 6] = 200  # the version that is needed to extract
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=r"broken \.npz file"):
        read_predictions(path)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"p:a": ["x"]}, "probabilities of 'a' that are no numbers"),
        ({"p:a": np.array([0.5 + 0j])}, "probabilities of 'a' that are no numbers"),
        ({"p:a": [0.5, 0.5]}, "columns of 1, 2 rows"),
        ({"p:a": [[0.5]]}, "probabilities of 'a' of shape (1, 1)"),
    ],
)
def test_columns_that_are_no_probabilities_are_named(change: dict[str, Any], part: str) -> None:
    columns = {"row_id": ["1"], "view": ["R"], "unit": [""], "gold": ["a"], "p:a": [0.5], "p:b": [0.5]}
    with pytest.raises(InputError) as caught:
        predictions_from(columns | change, label="model")
    assert part in str(caught.value)


def test_a_frame_with_a_column_twice_is_refused() -> None:
    frame = tables.table("full").to_frame()
    with pytest.raises(InputError, match="column 'row_id' twice"):
        predictions_from(pd.concat([frame, frame[["row_id"]]], axis=1), label="model")


def test_parquet_text_that_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.parquet"
    names = pa.array([b"caf\xe9"]).cast(pa.binary()).view(pa.string())
    pq.write_table(
        pa.table({"row_id": names, "view": ["R"], "unit": [""], "gold": ["a"], "p:a": [0.5], "p:b": [0.5]}),
        path,
    )
    with pytest.raises(InputError, match=r"Invalid UTF8 sequence.*needed text in UTF-8"):
        read_predictions(path)
