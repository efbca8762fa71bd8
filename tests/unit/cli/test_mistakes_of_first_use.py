"""What a first user gets wrong in prediction files and options: one line names the mistake and the fix."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import tables

from vestige.cli import run

WITHOUT_NAMES = "none was named"


def plain_options(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]] = dict) -> Path:
    """A CSV of ten rows over three options, with columns changed."""
    views = ["F"] * 4 + ["G"] * 2 + ["R"] * 4
    gold = ["refund"] * 6 + ["card"] * 2 + ["login"] * 2
    columns: dict[str, Any] = {
        "row_id": [f"r{place}" for place in range(10)],
        "view": views,
        "unit": gold,
        "gold": gold,
        "p:refund": [0.5] * 10,
        "p:card": [0.25] * 10,
        "p:login": [0.25] * 10,
    }
    return tables.write(change(columns), path)


def compared(*more: str, full: Path, unlearned: Path) -> list[str]:
    return ["compare", "--full", str(full), "--unlearned", str(unlearned), "--draws", "20", *more]


def error_of(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return plain_options(tmp_path / "full.csv")


def renamed(columns: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: values for name, values in columns.items()}


def test_an_option_renamed_in_one_file(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(columns: dict[str, Any]) -> dict[str, Any]:
        return renamed(columns, "p:card", "p:cards") | {"gold": ["refund"] * 6 + ["login"] * 4}

    other = plain_options(tmp_path / "other.csv", change)
    assert "for 'card': did you mean 'cards'?" in error_of(capsys, compared(full=good, unlearned=other))


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("café", "cafe\u0301", "in another Unicode form (composed and decomposed letters): write both alike"),
        ("card", "c\u0430rd", "did you mean 'c\u0430rd'? Its character 2 is U+0430, here it is U+0061"),
    ],
)
def test_names_that_look_alike_are_told_apart(
    tmp_path: Path, one: str, other: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [
        plain_options(
            tmp_path / f"{place}.csv",
            lambda columns, name=name: renamed(columns, "p:card", f"p:{name}") | {"gold": ["refund"] * 10},
        )
        for place, name in enumerate((one, other))
    ]
    assert said in error_of(capsys, compared(full=files[0], unlearned=files[1]))


def test_a_gold_option_that_no_column_has(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = plain_options(tmp_path / "other.csv", lambda columns: renamed(columns, "p:refund", "p:refunds"))
    found = error_of(capsys, compared(full=good, unlearned=other))
    assert "gold 'refund' outside the options" in found
    assert "did you mean 'refunds'?" in found


@pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_columns_parted_by_something_else(
    good: Path, tmp_path: Path, mark: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.csv"
    with good.open(newline="", encoding="utf-8") as file, other.open("w", newline="") as out:
        csv.writer(out, delimiter=mark).writerows(csv.reader(file))
    found = error_of(capsys, compared(full=good, unlearned=other))
    assert f"columns parted by {name}" in found
    assert f"sep={mark!r}" in found or repr(mark) in found


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_text_in_utf16(good: Path, tmp_path: Path, codec: str, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.csv"
    other.write_bytes(good.read_text(encoding="utf-8").encode(codec))
    found = error_of(capsys, compared(full=good, unlearned=other))
    assert "text in UTF-16" in found
    assert "iconv -f utf-16 -t utf-8 other.csv" in found


def test_percentages(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def change(columns: dict[str, Any]) -> dict[str, Any]:
        return {
            name: [100 * value for value in values] if name.startswith("p:") else values
            for name, values in columns.items()
        }

    other = plain_options(tmp_path / "other.csv", change)
    assert "these are percentages: divide by 100" in error_of(capsys, compared(full=good, unlearned=other))


def test_other_wrong_sums_are_not_called_percentages(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = plain_options(tmp_path / "other.csv", lambda columns: columns | {"p:card": [0.5] * 10})
    found = error_of(capsys, compared(full=good, unlearned=other))
    assert "percentages" not in found
    assert "full distribution" in found


def test_choices_of_fail_on_are_listed_once(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = error_of(capsys, compared("--fail-on", "xx", full=good, unlearned=good))
    assert found.count("not-accepted") == 1
    assert "choose one of them" in found
    close = error_of(capsys, compared("--fail-on", "infeasable", full=good, unlearned=good))
    assert "did you mean 'infeasible'?" in close


@pytest.mark.parametrize("empty", [["--out", ""], ["--out="]])
def test_an_empty_out_is_refused(good: Path, empty: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "--out: found an empty name" in error_of(capsys, compared(*empty, full=good, unlearned=good))


def caveats(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> list[str]:
    assert run([*arguments, "--json"]) == 0
    found: list[str] = json.loads(capsys.readouterr().out)["caveats"]
    return found


def test_a_class_deletion_without_forget_is_noticed(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = caveats(capsys, compared(full=good, unlearned=good))
    (said,) = [line for line in found if WITHOUT_NAMES in line]
    assert "1 option(s) seem to have been deleted" in said
    assert "--forget" in said
    named = caveats(capsys, compared("--forget", "refund", full=good, unlearned=good))
    assert not [line for line in named if WITHOUT_NAMES in line]


def test_deleted_customers_are_no_class_deletion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = plain_options(
        tmp_path / "custom.csv",
        lambda columns: columns | {"unit": ["customer 3"] * 10, "gold": ["refund", "card"] * 5},
    )
    found = caveats(capsys, compared(full=other, unlearned=other))
    assert not [line for line in found if WITHOUT_NAMES in line]


def test_one_draw_is_singular(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = compared(full=good, unlearned=good)
    arguments[arguments.index("20")] = "1"
    assert "Only 1 draw: the bounds of the intervals are rough." in caveats(capsys, arguments)
