"""Tables in the published form, made from records of the published numbers, against those very tables."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.footprints import published_records

from vestige.behaviour.accuracy import wilson
from vestige.behaviour.records import SubjectAccuracy
from vestige.report.footprint.published import Measured, PublishedTable, published_tables, subject_mean

Row = dict[str, str]


def rows(paper: Path, name: str) -> list[Row]:
    with (paper / f"triage_{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module", params=["wmdp", "tofu"])
def made(paper: Path, request: pytest.FixtureRequest) -> tuple[str, dict[str, PublishedTable]]:
    records = [
        record.model_copy(update={"name": request.param})
        for record in published_records(paper, request.param)
    ]
    tables = published_tables([Measured(shifts=record) for record in records])
    return request.param, {table.name: table for table in tables}


def lines(table: PublishedTable) -> list[Row]:
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


def test_every_shift_stands_in_its_table(paper: Path, made: tuple[str, dict[str, PublishedTable]]) -> None:
    """All variants and corpora of all models; CHess as well; and of which table each row is."""
    benchmark, tables = made
    for name, numbers in (("cofi", ("cofi", "chess")), ("ppl", ("log10_ppl_ratio",))):
        printed = [row for row in rows(paper, name) if row["benchmark"] == benchmark]
        found = lines(tables[name])
        keys = [key for key in printed[0] if key not in ("class_heading", "cofi_ci", "chess_ci", *numbers)]

        def listed(own: list[Row], keys: list[str] = keys) -> list[tuple[str, ...]]:
            return sorted(tuple(row[key] for key in keys) for row in own)

        assert listed(found) == listed(printed)
        by_key = {tuple(row[key] for key in keys): row for row in printed}
        for row in found:
            for number in numbers:
                assert float(row[number]) == float(by_key[tuple(row[key] for key in keys)][number])


def test_every_class_and_every_role_stands_in_its_table(
    paper: Path, made: tuple[str, dict[str, PublishedTable]]
) -> None:
    benchmark, tables = made
    printed = {
        (row["model"], row["method"], row["noise"]): row["class"]
        for row in rows(paper, "classes")
        if row["benchmark"] == benchmark
    }
    found = {(row["model"], row["method"], row["noise"]): row["class"] for row in lines(tables["classes"])}
    assert found == printed
    roles = {(row["model"], row["method"]): row for row in rows(paper, "aggregates") if benchmark == "wmdp"}
    own = {(row["model"], row["method"]): row for row in lines(tables["aggregates"])}
    for key, row in roles.items():
        assert own[key]["source_table"] == row["source_table"]
        for column in ("cofi_f", "cofi_a", "cofi_g"):  # means of numbers with two digits
            assert float(own[key][column]) == pytest.approx(float(row[column]), abs=0.0101)


def test_the_discrepancy_is_over_the_active_pairs_of_the_grid(
    made: tuple[str, dict[str, PublishedTable]],
) -> None:
    """63 of WMDP's 80 checkpoints moved, 11 of TOFU's 60; each of eight methods has a noise variant."""
    benchmark, tables = made
    found = {row["quantity"]: row for row in lines(tables["discrepancy"])}
    active = {"wmdp": 63, "tofu": 11}[benchmark]
    assert {row["pairs"] for name, row in found.items() if "noise" not in name} == {str(active)}
    (noise,) = [row for name, row in found.items() if "noise" in name]
    assert noise["pairs"] == str({"wmdp": 32, "tofu": 24}[benchmark])
    assert {row["benchmark"] for row in found.values()} == {benchmark}


def test_mmlu_is_the_plain_mean_over_all_57_subjects(paper: Path) -> None:
    """Table 38 from Table 36: two subjects beside bio, one beside cyber, 54 others, each with equal
    weight."""

    def subject(accuracy: float) -> SubjectAccuracy:
        return SubjectAccuracy(
            role="generic", topic="all", subject="s", correct=0, questions=1, accuracy=accuracy,
            interval=wilson(0, 1),
        )  # fmt: skip

    printed = {(row["model"], row["method"]): float(row["acc_mmlu"]) for row in rows(paper, "conventional")}
    compared = 0
    for row in rows(paper, "behaviour"):
        own = [*[subject(float(row["acc_general"]))] * 54, *[subject(float(row["acc_retain_bio"]))] * 2]
        own.append(subject(float(row["acc_retain_cyber"])))
        # Both are rounded to three digits.
        assert subject_mean(own) == pytest.approx(printed[row["model"], row["method"]], abs=0.00101)
        compared += 1
    assert compared == 26
