"""Data sets: splits by hash, copies that straddle splits, the report, the loaders."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.data import DATASETS, DatasetSpec, IntentData, assemble, load_intents
from vestige.data.assemble import hash_share, text_key, text_sha256
from vestige.decision.schema import Option
from vestige.deletion.requests import custom_request
from vestige.errors import InputError, MissingDependency
from vestige.seeds import digest

Row = tuple[str, str, str, str]


def frame(rows: list[Row]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["row_id", "text", "gold", "split"]).astype(str)


def plain(labels: str = "ab", each: int = 20) -> list[Row]:
    return [
        (f"{split}-{label}-{i:03d}", f"{split} {label} {i}", label, split)
        for split in ("train", "development", "evaluation")
        for label in labels
        for i in range(each)
    ]


def refusal(call, *arguments, **given_settings) -> str:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as caught:
        call(*arguments, **given_settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def no_text_in_two_splits(data: IntentData) -> bool:
    keys = data.frame["text"].map(text_key)
    return bool((data.frame["split"].groupby(keys).nunique() == 1).all())


def test_given_splits_stand_and_rows_are_sorted() -> None:
    data = assemble("d", frame(plain()[::-1]))
    assert data.frame["row_id"].is_monotonic_increasing
    assert [data.report.rows(split) for split in ("train", "development", "evaluation")] == [40, 40, 40]
    assert [option.id for option in data.options] == ["a", "b"]
    assert data.dropped == {}
    assert list(data.rows("train").index) == list(range(40))


def test_evaluation_copies_win_then_development_and_drops_are_reported() -> None:
    rows = [
        *plain(),
        ("t1", "  Same TEXT ", "a", "train"),
        ("d1", "same text", "a", "development"),
        ("e1", "Same Text", "b", "evaluation"),
        ("t2", "STRASSE dev", "a", "train"),
        ("d2", "straße dev", "a", "development"),
        ("t3", "twice in training", "a", "train"),
        ("t4", "Twice in training", "b", "train"),
    ]
    data = assemble("d", frame(rows))
    assert data.dropped == {
        "t1": "train copy of a text in evaluation",
        "d1": "development copy of a text in evaluation",
        "t2": "train copy of a text in development",
    }
    assert {"e1", "d2", "t3", "t4"} <= set(data.frame["row_id"])
    assert no_text_in_two_splits(data)
    report = data.report
    assert {drop.reason: (drop.rows, drop.sha256) for drop in report.dropped} == {
        reason: (1, digest(row_id)) for row_id, reason in data.dropped.items()
    }
    assert report.repeated == {"train": 1, "development": 0, "evaluation": 0}
    assert (report.conflicting.texts, report.conflicting.rows) == (2, 5)
    assert report.conflicting.sha256 == tuple(
        sorted([text_sha256("same text"), text_sha256("twice in training")])
    )
    assert report.read == {"train": 44, "development": 42, "evaluation": 41}
    assert "same text" not in report.to_json().casefold()


def test_held_out_rows_are_stratified_and_stable() -> None:
    rows = [row for row in plain("abc", 50) if row[3] != "development"]
    data = assemble("d", frame(rows), development_share=0.23)
    development = data.rows("development")
    assert development["gold"].value_counts().to_dict() == {"a": 12, "b": 12, "c": 12}  # 0.23 * 50 = 11.5
    for label in "abc":
        hashes = [text_sha256(row[1]) for row in rows if row[3] == "train" and row[2] == label]
        held = {text_sha256(text) for text in development.loc[development["gold"] == label, "text"]}
        assert held == set(sorted(hashes)[:12])
    # other rows of other options do not move what is held out of this one
    fewer = assemble("d", frame([row for row in rows if row[2] != "c"]), development_share=0.23)
    assert set(fewer.rows("development")["row_id"]) == {
        row_id for row_id in development["row_id"] if "-c-" not in row_id
    }


def test_copies_are_held_out_together_even_with_two_labels() -> None:
    rows = [(f"r{i:03d}{label}", f"text {i}", label, "train") for i in range(40) for label in "ab"]
    data = assemble("d", frame(rows), development_share=0.3, evaluation_share=0.2)
    assert no_text_in_two_splits(data)
    assert data.dropped == {}
    assert data.report.rows("evaluation") == 2 * 8
    assert data.report.repeated["evaluation"] == 8


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["x", "X ", "y", "\tY", "z", "Z", "ß", "ss", "SS"]),
            st.sampled_from("ab"),
            st.sampled_from(["train", "development", "evaluation"]),
        ),
        max_size=25,
    )
)
def test_no_text_straddles_splits_whatever_the_rows(extra: list[tuple[str, str, str]]) -> None:
    rows = [*plain("ab", 3), *((f"x{i}", *row) for i, row in enumerate(extra))]
    data = assemble("d", frame(rows))
    assert no_text_in_two_splits(data)
    assert len(data.frame) + len(data.dropped) == len(rows)
    evaluation = {row[0] for row in rows if row[3] == "evaluation"}
    assert evaluation <= set(data.frame["row_id"])


def test_row_share_is_stratified_nested_and_leaves_other_splits() -> None:
    rows = frame(plain("abc", 40))
    whole, half, tenth = (assemble("d", rows, row_share=share) for share in (1.0, 0.5, 0.1))
    ids = [set(data.rows("train")["row_id"]) for data in (whole, half, tenth)]
    assert ids[2] < ids[1] < ids[0]
    assert half.rows("train")["gold"].value_counts().to_dict() == {"a": 20, "b": 20, "c": 20}
    assert half.rows("evaluation").equals(whole.rows("evaluation"))
    assert half.report.dropped[0].rows == 60
    assert assemble("d", rows, row_share=0.001).report.rows("train") == 3
    assert len({data.sha256 for data in (whole, half, tenth)}) == 3


def test_identity_changes_with_every_row_and_option_and_not_with_order() -> None:
    rows = plain()
    base = assemble("d", frame(rows)).sha256
    assert assemble("other name", frame(rows[::-1])).sha256 == base
    changed = [
        [("new", *rows[0][1:]), *rows[1:]],
        [(rows[0][0], "new text", *rows[0][2:]), *rows[1:]],
        [(*rows[0][:2], "b", rows[0][3]), *rows[1:]],
        rows[1:],
    ]
    hashes = {assemble("d", frame(variant)).sha256 for variant in changed}
    hashes.add(assemble("d", frame(rows), options=[Option("a", "a", "x"), Option("b", "b", "y")]).sha256)
    assert len(hashes) == 5
    assert base not in hashes


def test_hash_share_rounds_half_up_and_never_takes_all() -> None:
    assert hash_share(["c", "a", "b", "a"], 0.5) == {"a", "b"}
    assert hash_share(["a"], 0.99) == set()
    assert hash_share([], 0.5) == set()


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ([("r", "x", "a", "train"), ("r", "y", "a", "train")], "row ids more than once: 'r'"),
        ([("r", " \t", "a", "train")], "blank text in rows 'r'"),
        ([("r", "x", "", "train")], "blank gold in rows 'r'"),
        ([("r", "x", "a", "holdout")], "split 'holdout'"),
        ([("r", "x", "y" * 10_000, "train")], "labels longer than 1000 characters in rows 'r'"),
        ([("r", "x", "c", "evaluation")], "label 'c' outside the schema (1 such rows)"),
    ],
)
def test_bad_rows_are_one_line_errors(rows: list[Row], part: str) -> None:
    assert part in refusal(assemble, "d", frame([*plain(), *rows]))


def test_bad_option_lists_and_splits() -> None:
    options = [Option("a", "a"), Option("b", "b"), Option("empty", "empty")]
    assert "no training rows of 1 options: 'empty'" in refusal(assemble, "d", frame(plain()), options=options)
    assert "outside the schema" in refusal(assemble, "d", frame(plain()), options=options[:1])
    assert "no development rows" in refusal(
        assemble, "d", frame([row for row in plain() if row[3] != "development"])
    )
    assert "no evaluation rows" in refusal(
        assemble, "d", frame([row for row in plain() if row[3] != "evaluation"])
    )
    assert "out-of-scope label 'oos'" in refusal(assemble, "d", frame(plain()), out_of_scope="oos")
    assert "did you mean 'train'?" in refusal(assemble("d", frame(plain())).rows, "trian")


def test_a_class_whose_training_rows_are_all_copies_is_refused() -> None:
    rows = [*plain(), ("t", "only one", "c", "train"), ("e", "only one", "c", "evaluation")]
    assert "label 'c' outside the schema" in refusal(assemble, "d", frame(rows))


@pytest.mark.parametrize("label", ["a/b", "a,b", "line\nbreak", "🎉", "a__b", "<b>x</b>", "--forget", "'"])
def test_odd_labels_are_kept_as_they_are(label: str) -> None:
    data = assemble("d", frame([(*row[:2], label if row[2] == "a" else "b", row[3]) for row in plain()]))
    assert label in data.schema().ids
    assert set(data.rows("train")["gold"]) == {label, "b"}


def test_files_folder_with_all_splits(tmp_path: Path) -> None:
    names = {"train": "train.csv", "development": "valid.jsonl", "evaluation": "test.parquet"}
    table = frame(plain())
    for split, name in names.items():
        part = table.loc[table["split"] == split, ["text", "gold"]].rename(columns={"gold": "label"})
        part["customer_id"] = [str(i % 7) for i in range(len(part))]
        match name.split(".")[1]:
            case "csv":
                part.to_csv(tmp_path / name, index=False)
            case "jsonl":
                part.to_json(tmp_path / name, orient="records", lines=True)
            case _:
                part.to_parquet(tmp_path / name)
    data = load_intents(DatasetSpec(name="files", path=str(tmp_path)))
    assert {count.split: count.rows for count in data.report.splits} == dict.fromkeys(names, 40)
    assert set(data.report.files) == set(names.values())
    assert data.rows("train")["row_id"].tolist()[:2] == ["train-00000", "train-00001"]
    assert set(data.frame["customer_id"]) == {str(i) for i in range(7)}
    named = load_intents(
        DatasetSpec(
            name="files",
            path=str(tmp_path),
            train="train.csv",
            development="valid.jsonl",
            evaluation="test.parquet",
        )
    )
    assert named.sha256 == data.sha256


def test_one_table_is_split_by_hash_or_by_its_column(tmp_path: Path) -> None:
    table = frame(plain("ab", 50))
    table.drop(columns=["split", "row_id"]).to_csv(tmp_path / "mine.csv", index=False)
    spec = DatasetSpec(
        name="files", path=str(tmp_path / "mine.csv"), label_column="gold", development_share=0.25
    )
    data = load_intents(spec)
    assert data.name == "mine"
    assert [data.report.rows(split) for split in ("train", "development", "evaluation")] == [180, 60, 60]
    table.to_parquet(tmp_path / "kept.parquet")
    kept = load_intents(DatasetSpec(name="files", path=str(tmp_path / "kept.parquet"), label_column="gold"))
    assert kept.sha256 == assemble("d", table).sha256


def test_files_with_descriptions_and_out_of_scope(tmp_path: Path) -> None:
    table = frame(plain())
    table.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "d.json").write_text('{"b": "bee", "a": "ay"}')
    spec = DatasetSpec(
        name="files",
        path=str(tmp_path / "t.csv"),
        label_column="gold",
        descriptions=str(tmp_path / "d.json"),
        out_of_scope="b",
    )
    data = load_intents(spec)
    assert data.schema().texts() == ("b: bee", "a: ay")
    assert data.out_of_scope == "b"
    assert [count.out_of_scope for count in data.report.splits] == [20, 20, 20]
    assert "d.json" in data.report.files


@pytest.mark.parametrize(
    ("settings_", "part"),
    [
        ({}, "neither path nor train"),
        ({"path": "nowhere"}, "no such file or folder"),
        ({"path": "."}, "no training table"),
        ({"path": ".", "evaluation": "x.csv"}, "no train"),
        ({"path": "two"}, "2 tables for train: 'train.csv', 'train.tsv'"),
        ({"path": "two/train.csv", "evaluation": "x.csv"}, "while path is the table train.csv"),
        ({"path": "two/train.csv", "label_column": "intent"}, "a column 'intent'"),
        ({"path": "two/train.csv", "row_id_column": "id"}, "a column 'id'"),
        ({"path": "two/train.csv", "label_column": "text"}, "named twice"),
        ({"path": "two/train.csv", "hub_id": "x"}, "setting 'hub_id'"),
        ({"path": "same.csv"}, "row ids more than once: '7'"),
    ],
)
def test_files_that_cannot_be_a_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings_: dict[str, str], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two").mkdir()
    for name in ("train.csv", "train.tsv"):
        (tmp_path / "two" / name).write_text("text,label\nhi,a\n")
    (tmp_path / "same.csv").write_text("row_id,text,label\n7,hi,a\n7,ho,b\n")
    assert part in refusal(load_intents, DatasetSpec(name="files", **settings_))  # type: ignore[arg-type]


def test_unknown_data_sets_and_settings() -> None:
    assert "did you mean 'banking77'?" in refusal(load_intents, DatasetSpec(name="banking7"))
    assert "setting 'text_column'" in refusal(
        load_intents, DatasetSpec(name="banking77", text_column="utterance")
    )
    assert {"banking77", "clinc150", "files", "helpdesk", "hub"} <= set(DATASETS.names())


def test_a_public_data_set_that_is_not_there_says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VESTIGE_SHARED", raising=False)
    monkeypatch.delenv("VESTIGE_DATA", raising=False)
    for name in ("banking77", "clinc150"):
        assert "VESTIGE_DATA" in refusal(load_intents, DatasetSpec(name=name))
        assert str(tmp_path) in refusal(load_intents, DatasetSpec(name=name, path=str(tmp_path)))


def hub(tmp_path: Path, files: dict[str, str | pa.Table], **settings: str) -> DatasetSpec:
    """A data set in the hub's layout, in a folder: the client reads it as it reads the hub's."""
    folder = tmp_path / "hub set"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            (folder / name).write_text(content, encoding="utf-8")
        else:
            pq.write_table(content, folder / name)
    return DatasetSpec(name="hub", hub_id=str(folder), **settings)  # type: ignore[arg-type]


NAMED = """---
dataset_info:
  features:
  - name: text
    dtype: string
  - name: label
    dtype:
      class_label:
        names:
          '0': first
          '1': second
---
"""


def test_hub_labels_take_their_names_and_missing_splits_are_held_out(tmp_path: Path) -> None:
    def rows(start: str, last: int) -> pa.Table:
        numbers = list(range(100))
        return pa.table(
            {"text": [f"{start} {i}" for i in numbers], "label": [i % 2 for i in numbers[:-1]] + [last]}
        )

    spec = hub(
        tmp_path,
        {"train.parquet": rows("t", 1), "test.parquet": rows("e", 1), "README.md": NAMED},
        development_share="0.2",
    )
    data = load_intents(spec)
    assert [option.id for option in data.options] == ["first", "second"]
    assert [data.report.rows(split) for split in ("train", "development", "evaluation")] == [80, 20, 100]
    assert "no split 'dev'" in refusal(load_intents, spec.model_copy(update={"development": "dev"}))
    assert "did you mean 'label'?" in refusal(
        load_intents, spec.model_copy(update={"label_column": "labels"})
    )
    # -1 is the hub's word for no label; it is not the last of the names
    hub(tmp_path, {"test.parquet": rows("e", -1)})
    assert "blank gold in rows 'evaluation-00099'" in refusal(load_intents, spec)
    hub(tmp_path, {"test.parquet": rows("e", 2)})
    assert "row 100, label: found the label 2; needed a place among its 2 names" in refusal(
        load_intents, spec
    )


LABELS = ["001", "1.10", "1e5", "true", "NA", "2026-01-01"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json"])
def test_hub_tables_keep_the_text_of_their_files(tmp_path: Path, suffix: str) -> None:
    def content(split: str) -> str:
        rows = [{"text": f"{split} {label} {i}", "label": label} for label in LABELS for i in range(3)]
        if suffix == "csv":
            return "text,label\n" + "".join(f"{row['text']},{row['label']}\n" for row in rows)
        return json.dumps(rows) if suffix == "json" else "".join(json.dumps(row) + "\n" for row in rows)

    data = load_intents(hub(tmp_path, {f"{split}.{suffix}": content(split) for split in ("train", "test")}))
    assert [option.id for option in data.options] == sorted(LABELS)


def test_hub_numbers_with_gaps_can_be_found(tmp_path: Path) -> None:
    def rows(start: str) -> pa.Table:
        texts = [f"{start} {letter}" for letter in "abcd"]
        return pa.table({"text": texts, "label": list("xyxy"), "customer_id": [17.0, None, 4.0, None]})

    spec = hub(tmp_path, {f"{split}.parquet": rows(split) for split in ("train", "validation", "test")})
    data = load_intents(spec)
    assert sorted(data.rows("train")["customer_id"]) == ["", "", "17", "4"]
    request = custom_request(data, where="customer_id=17", purpose="evaluation", seed=17)
    assert request.row_ids == ("train-00000",)


def test_hub_faults_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no hub_id" in refusal(load_intents, DatasetSpec(name="hub"))
    assert "hub data set 'no/such-set': found" in refusal(
        load_intents, DatasetSpec(name="hub", hub_id="no/such-set")
    )
    assert "set train" in refusal(load_intents, hub(tmp_path, {"test.csv": "text,label\nhi,a\n"}))
    spec = hub(tmp_path, {"train.csv": "text,label\nhi,a\nho\n"})
    assert "file train.csv, line 3: found 1 fields; needed 2" in refusal(load_intents, spec)
    (tmp_path / "hub set" / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  skiprows: 1\n---\n"
    )
    assert "its setting 'skiprows': found '1'; needed a plain CSV" in refusal(load_intents, spec)
    assert "files that are read as text" in refusal(load_intents, hub(tmp_path / "x", {"train.txt": "a\n"}))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependency, match=r"vestige\[train\]"):
        load_intents(DatasetSpec(name="hub", hub_id="some/set"))


@pytest.fixture(scope="module")
def banking77(shared_data: Path) -> IntentData:
    return load_intents(DatasetSpec(name="banking77", path=str(shared_data / "banking77")))


@pytest.mark.shared
def test_banking77(banking77: IntentData) -> None:
    report = banking77.report
    assert report.read == {"train": 10_003, "development": 0, "evaluation": 3_080}
    assert [count.rows for count in report.splits] == [7_692, 2_305, 3_080]
    assert [count.options for count in report.splits] == [77, 77, 77]
    assert {drop.reason: drop.rows for drop in report.dropped} == {"train copy of a text in evaluation": 6}
    assert report.conflicting.texts == 0
    assert no_text_in_two_splits(banking77)
    assert len(banking77.options) == 77
    assert "card arrival" in banking77.schema().texts()
    shares = banking77.rows("development")["gold"].value_counts()
    whole = shares + banking77.rows("train")["gold"].value_counts()
    # half a text of rounding, and copies of a text (at most two rows here) that move together
    assert ((shares - 0.23 * whole).abs() <= 1.5).all()


@pytest.mark.shared
def test_banking77_in_its_parent_folder_and_from_the_environment(
    banking77: IntentData, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_intents(DatasetSpec(name="banking77", path=str(shared_data))).sha256 == banking77.sha256
    monkeypatch.setenv("VESTIGE_DATA", str(shared_data))
    small = load_intents(DatasetSpec(name="banking77", row_share=0.3))
    assert small.rows("evaluation").equals(banking77.rows("evaluation"))
    assert 0.29 < small.report.rows("train") / banking77.report.rows("train") < 0.31


@pytest.mark.shared
def test_clinc150(shared_data: Path) -> None:
    data = load_intents(DatasetSpec(name="clinc150", path=str(shared_data / "clinc150")))
    assert data.report.read == {"train": 15_100, "development": 3_100, "evaluation": 5_500}
    assert [(count.rows, count.options, count.out_of_scope) for count in data.report.splits] == [
        (15_095, 151, 100),
        (3_100, 151, 100),
        (5_500, 151, 1_000),
    ]
    assert {drop.reason: drop.rows for drop in data.report.dropped} == {
        "train copy of a text in development": 3,
        "train copy of a text in evaluation": 2,
    }
    assert (data.report.conflicting.texts, data.report.conflicting.rows) == (4, 8)
    assert no_text_in_two_splits(data)
    assert data.out_of_scope == "oos"
    assert data.options[data.schema().index("oos")].text == "out of scope"
    domains = data.frame.groupby("domain")["gold"].nunique()
    assert domains.drop("").tolist() == [15] * 10
    assert domains[""] == 1
