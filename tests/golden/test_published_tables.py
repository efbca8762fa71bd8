"""The published tables through the ledger: a folder of imported numbers exports tables equal cell by cell."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pytest

from vestige.csv_text import csv_text
from vestige.report.consistency import row_contradiction
from vestige.report.paper_tables import paper_tables
from vestige.report.paper_tables_supplement import screening_summary
from vestige.study.ledger import Ledger, read_ledger
from vestige.study.ledger_main import pooled_gain
from vestige.study.ledger_rows import (
    KINDS,
    ArchitectureRow,
    ClincRow,
    ComputeRow,
    LabelRow,
    MethodRow,
    RegistryRow,
)

FILES = {
    "methods": "S3",
    "architectures": "S4",
    "labels": "S5",
    "schemas": "S6",
    "clinc": "S7",
    "suppression": "S8",
    "recovery": "S9",
    "optimisation": "S10",
    "compute": "S11",
    "registry": "S1",
    "main_table2": "2",
    "main_table3": "3",
}


@pytest.fixture(scope="module")
def published(paper: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    (folder / "imported").mkdir()
    for path in paper.glob("dub_*.csv"):
        shutil.copy(path, folder / "imported" / path.name)
    return folder


@pytest.fixture(scope="module")
def ledger(published: Path) -> Ledger:
    return read_ledger(published)


@pytest.mark.parametrize("kind", FILES)
def test_a_table_of_imported_numbers_is_equal_cell_by_cell(ledger: Ledger, paper: Path, kind: str) -> None:
    with (paper / f"dub_{kind}.csv").open(encoding="utf-8", newline="") as file:
        printed = list(csv.reader(file))
    (table,) = paper_tables(ledger, [FILES[kind]])
    ((stem, (header, rows)),) = table.files.items()
    found = list(csv.reader(io.StringIO(csv_text(header, rows))))
    assert stem == f"table-{FILES[kind].lower()}"
    assert found[0] == [*printed[0], "imported"]
    assert [line[:-1] for line in found[1:]] == printed[1:]
    assert {line[-1] for line in found[1:]} == {"yes"}
    assert "All rows are imported" in table.caption


@pytest.mark.parametrize("kind", FILES)
def test_a_measured_number_would_be_printed_with_the_published_digits(ledger: Ledger, kind: str) -> None:
    """Forgotten mass in scientific notation, signed zeros from the sign of the value."""
    row_type = KINDS[kind]
    wrong = []
    for row in ledger.of(row_type):
        bare = row.model_copy(update={"printed": {}})
        wrong += [
            (column, bare.text(column), row.text(column))
            for column in row_type.columns()
            if bare.text(column) != row.text(column)
        ]
    # One cell of the source was printed with a digit less.
    assert wrong == ([("gain_g", "0.070", "0.07")] if kind == "methods" else [])


def test_every_published_status_follows_from_its_numbers(ledger: Ledger) -> None:
    rows = ledger.of(MethodRow)
    assert len(rows) == 105
    assert [row_contradiction(row) for row in rows if row_contradiction(row)] == []
    other = rows[0].model_copy(update={"status": "no benefit"})
    assert row_contradiction(other) == "status 'no benefit', but its numbers give 'accepted'"


def test_the_screen_accepts_19_of_20_at_a_median_progress_of_046(ledger: Ledger) -> None:
    said = screening_summary(ledger.of(ArchitectureRow))
    assert said.startswith("First runs: 19 of 20 accepted, median progress on F 0.46;")


def test_the_pooled_gain_of_clinc150_is_0022(ledger: Ledger) -> None:
    means = [pooled_gain(ledger.of(ClincRow), view) for view in ("f", "g")]
    assert [f"{mean:.3f}" for mean in means if mean is not None] == ["0.022", "0.022"]


def test_registry_and_device_hours_count_the_same_evaluations(ledger: Ledger) -> None:
    registered: dict[str, int] = {}
    for row in ledger.of(RegistryRow):
        registered[row.stage] = registered.get(row.stage, 0) + row.evaluations
    logged: dict[str, int] = {}
    for item in ledger.of(ComputeRow):
        logged[item.stage] = logged.get(item.stage, 0) + item.evaluations
    outside = {"development", "development_reference", "excluded"}
    assert registered == {stage: count for stage, count in logged.items() if stage not in outside}
    assert sum(registered.values()) == 358


def test_forgotten_mass_stays_in_scientific_notation(ledger: Ledger) -> None:
    masses = [row.text("oracle_mass_f") for row in ledger.of(LabelRow)]
    assert masses[:2] == ["3.043e-01", "1.126e-03"]
    assert all("e" in text for text in masses)
