"""Tables for the console, CSV and LaTeX."""

from __future__ import annotations

import csv
import io

import pytest
from tests.assessments import assessment, comparison, estimate, unlearned

from vestige.contracts import Undefined
from vestige.csv_text import csv_text, sheet_cell, text_of_sheet_cell
from vestige.report.export import LONG_COLUMNS, long_rows, to_tex, verdict_rows
from vestige.report.tables import (
    comparison_table,
    measurement_tables,
    metric_words,
    noise_table,
    published_table,
    reliability_table,
)


def test_the_published_table_row_by_row() -> None:
    record = assessment(
        unlearned("temperature", control=True, decision="no benefit", p_value={"both": 0.31}),
        unlearned("simnpo"),
        family=("simnpo",),
    )
    table = published_table(record)
    assert table.header() == [
        "model",
        "published rule",
        "distance closed F",
        "distance closed G",
        "remaining distance F",
        "remaining distance G",
        "retained accuracy R",
        "calibration error R",
        "p",
    ]
    assert list(table.text_rows()) == [
        [
            "full-17",
            "–",
            "–",
            "–",
            "0.610 [0.590, 0.630]",
            "0.440 [0.410, 0.470]",
            "90.2 % [89.0, 91.2]",
            "0.024 [0.019, 0.030]",
            "–",
        ],
        [
            "simnpo",
            "accepted",
            "59 % [54, 64]",
            "57 % [48, 66]",
            "0.250 [0.220, 0.280]",
            "0.190 [0.150, 0.230]",
            "90.1 % (-0.1 [-0.5, +0.3])",
            "0.025 (+0.001 [-0.002, +0.004])",
            "0.0006",
        ],
        [
            "temperature",
            "no benefit",
            "59 % [54, 64]",
            "57 % [48, 66]",
            "0.250 [0.220, 0.280]",
            "0.190 [0.150, 0.230]",
            "90.1 % (-0.1 [-0.5, +0.3])",
            "0.025 (+0.001 [-0.002, +0.004])",
            "0.310",
        ],
        ["retrained-17", "–", "–", "–", "0.000", "0.000", "90.5 % [89.3, 91.5]", "0.022 [0.017, 0.028]", "–"],
    ]
    assert table.rows[2].cells[-1].note == "uncorrected"


def test_every_interval_of_a_table_is_explained_in_its_notes() -> None:
    assert published_table(assessment()).notes == (
        "row bootstrap, percentile, 95 % level, 5,000 draws, seeds 1, 2, 3, conditional on training seed 17",
    )
    units = measurement_tables(assessment())[0].notes
    assert units == (
        "row bootstrap, percentile, 95 % level, 5,000 draws, seed 1, conditional on training seed 17",
        "unit bootstrap, percentile, 95 % level, 5,000 draws, seed 101, conditional on training seed 17",
    )


def test_without_an_oracle_the_table_shows_what_is_left() -> None:
    none = Undefined(undefined="no retrained model")
    table = published_table(assessment(unlearned(decision=none), has_oracle=False))
    assert table.header()[1:4] == ["published rule", "on deleted intents F", "on deleted intents G"]
    assert next(row for row in table.text_rows() if row[0] == "simnpo")[1:3] == [
        "undefined: no retrained model",
        "0.310 [0.280, 0.340]",
    ]
    custom = published_table(assessment(unlearned(decision=none), has_oracle=False, intents=()))
    assert custom.header()[2] == "on gold F"


def test_undefined_and_unstable_are_printed() -> None:
    model = unlearned(unstable=True)
    metrics = {**model.metrics, "progress.G": estimate("displacement below 1e-9")}
    row = published_table(assessment(model.model_copy(update={"metrics": metrics}))).rows[1]
    assert [str(cell) for cell in row.cells[1:3]] == [
        "59 % [54, 64] (unstable)",
        "undefined: displacement below 1e-9",
    ]


def test_a_change_without_a_record_is_the_difference() -> None:
    model = unlearned()
    metrics = {key: value for key, value in model.metrics.items() if not key.startswith("delta_")}
    row = list(published_table(assessment(model.model_copy(update={"metrics": metrics}))).text_rows())[1]
    assert row[6] == "90.1 % (-0.1)"


def test_all_measurements_are_listed_by_view() -> None:
    tables = {table.key: table for table in measurement_tables(assessment())}
    assert list(tables) == ["measured-F", "measured-G", "measured-F+G", "measured-R"]
    both = tables["measured-F+G"]
    assert [row.label for row in both.rows] == ["Suppression ratio"]
    assert [str(cell) for cell in both.rows[0].cells] == ["–", "0.91 [0.88, 0.94]", "–"]
    assert both.rows[0].cells[1].unit == "[0.70, 1.04]"


def test_metrics_are_explained() -> None:
    assert metric_words("oracle_distance")[0] == "Oracle distance"
    assert metric_words("identity_error")[1] != ""
    assert metric_words("delta_margin") == ("Margin, change", "unlearned minus full model")
    assert metric_words("some_plugin") == ("some plugin", "")


def test_noise_stands_beside_the_displacement() -> None:
    table = noise_table(assessment())
    assert [row[0] for row in table.text_rows()] == [
        "displacement: full model to retrained",
        "two full trainings",
        "two retrainings",
        "smallest gain these data could show",
    ]
    assert [row.detail for row in table.rows] == ["", "3 pairs", "3 pairs", ""]
    unknown = noise_table(assessment(noise={"noise_full.F": estimate("one seed")}, noise_pairs={}))
    assert str(unknown.rows[1].cells[0]) == "undefined: one seed"


def test_comparisons_are_paired_by_view() -> None:
    record = assessment(comparisons=(comparison("a", "b"), comparison("a", "b", "G"), comparison("a", "c")))
    table = comparison_table(record)
    assert list(table.text_rows()) == [
        ["a − b", "-0.110 [-0.130, -0.090]", "-0.110 [-0.130, -0.090]"],
        ["a − c", "-0.110 [-0.130, -0.090]", "–"],
    ]


def test_reliability_bins_are_half_open() -> None:
    rows = list(reliability_table(unlearned()).text_rows())
    assert rows[0] == ["[0, 0.067]", "0", "undefined: no rows in this bin", "undefined: no rows in this bin"]
    assert rows[14][0] == "(0.933, 1.000]"


def test_csv_holds_full_precision_and_awkward_labels() -> None:
    label = 'a,"b"\n<i>'
    record = assessment(unlearned(label))
    header, *rows = csv.reader(io.StringIO(csv_text(LONG_COLUMNS, long_rows([record]))))
    found = next(
        dict(zip(header, row, strict=True)) for row in rows if row[2] == label and row[7:9] == ["gain", "G"]
    )
    gain = record.model_named(label).metrics["gain.G"]
    assert float(found["value"]) == gain.value
    assert found["row_low"] == repr(gain.row.low)  # type: ignore[union-attr]
    assert (found["row_seed"], found["unit_seed"], found["draws"]) == ("2", "102", "5000")
    header, *rows = csv.reader(io.StringIO(csv_text(*_split(verdict_rows([record, record])))))
    assert len(rows) == 6
    assert {len(row) for row in rows} == {len(header)}


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", '=HYPERLINK("x")']


@pytest.mark.parametrize("text", FORMULAS)
def test_no_label_is_a_formula_to_a_spreadsheet(text: str) -> None:
    made = csv_text([text, "x"], [[text, "-0.5"], ["plain", -0.5]])
    header, first, second = csv.reader(io.StringIO(made, newline=""))
    assert header[0] == first[0] == f"'{text}"
    assert first[1] == second[1] == "-0.5"
    assert text_of_sheet_cell(first[0]) == text
    record = assessment(unlearned(text))
    _, *rows = csv.reader(io.StringIO(csv_text(LONG_COLUMNS, long_rows([record])), newline=""))
    assert f"'{text}" in {row[2] for row in rows}
    assert text not in {row[2] for row in rows}


@pytest.mark.parametrize("value", ["-0.5", "+1e-3", "-inf", "-", "", "a=b", "'quoted'", "0", -0.5, 3, None])
def test_other_cells_stay_as_they_are(value: object) -> None:
    assert sheet_cell(value) == value
    if isinstance(value, str):
        assert text_of_sheet_cell(value) == value


def _split(rows: object) -> tuple[list[str], list[list[str]]]:
    header, *rest = rows  # type: ignore[misc]
    return header, rest


def test_undefined_numbers_are_empty_in_csv_with_their_reason() -> None:
    model = unlearned().model_copy(update={"metrics": {"gain.F": estimate("one row")}})
    line = next(row for row in long_rows([assessment(model)]) if row[2] == "simnpo")
    assert line[9:11] == ["", "one row"]


@pytest.mark.parametrize("name", ["[a]", "*a"])
def test_a_row_of_a_tex_table_is_no_argument_of_the_line_before(name: str) -> None:
    assert f"{{}}{name}" in to_tex(published_table(assessment(unlearned(name))))


def test_tex_escapes_everything_latex_reads() -> None:
    text = to_tex(published_table(assessment(unlearned(r"a_b & 50% $x$ \{~^}#<>|"))), caption="R & D")
    assert r"\caption{R \& D}" in text
    assert (
        r"a\_b \& 50\% \$x\$ "
        r"\textbackslash{}\{\textasciitilde{}\textasciicircum{}\}\#\textless{}\textgreater{}"
        r"\textbar{} & accepted &" in text
    )
    assert r"59 \% [54, 64]" in text
    assert text.count(r" \\") == 4
