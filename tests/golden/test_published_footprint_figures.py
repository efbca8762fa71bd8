"""The page of the published footprints: classes of the grid, noise pairs and the recovery figure."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest
from tests.footprints import published_records

from vestige.report.footprint.heat import class_grid, heat_maps
from vestige.report.footprint.rows import CheckpointRow, RegimeRow, checkpoint_rows, shift_rows
from vestige.report.footprint.scatter import localisation, regimes
from vestige.report.footprint.tables import noise_variants


def rows(paper: Path, name: str) -> list[dict[str, str]]:
    with (paper / f"triage_{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def measured(paper: Path) -> list[CheckpointRow]:
    return checkpoint_rows(published_records(paper, "wmdp"))


def test_the_grid_shows_every_published_class(paper: Path, measured: list[CheckpointRow]) -> None:
    printed = {
        (row["model"], row["method"] + (" +noise" if row["noise"] == "True" else "")): row["class"]
        for row in rows(paper, "classes")
        if row["benchmark"] == "wmdp"
    }
    assert {(row.model, row.label): row.class_name for row in measured} == printed
    panel = class_grid(measured, key="g", caption="Classes")
    assert panel is not None
    for (model, label), name in printed.items():
        assert f"{label} on {model}: {name}" in panel.alternative


def test_noise_variants_pair_with_their_base(measured: list[CheckpointRow]) -> None:
    table = noise_variants(measured)
    assert table is not None
    pairs = Counter((row.model, row.method) for row in measured)
    assert len(table.rows) == sum(count == 2 for count in pairs.values())
    changed = sum(str(row.cells[2]) == "changes" for row in table.rows)
    assert f"the same class in {len(table.rows) - changed} of {len(table.rows)}" in table.caption


def test_published_shifts_in_the_scatter_and_the_heat_maps(
    paper: Path, measured: list[CheckpointRow]
) -> None:
    own = [row for row in measured if row.model == "Llama-3.1-8B" and not row.noise]
    panel = localisation(own, key="s")
    assert panel is not None
    assert "RMU forget 7.05 ± 0.1" in panel.alternative
    shifts = [row for row in shift_rows(published_records(paper, "wmdp")) if row.model == "Llama-3.1-8B"]
    maps = heat_maps(shifts, key="h")
    assert [item.caption for item in maps] == ["CoFi, %", "CHess, %", "log10 perplexity ratio"]
    assert "GA (destructive): bio-F 5.49" in maps[0].alternative


def test_recovery_regimes_of_the_published_attack(paper: Path, measured: list[CheckpointRow]) -> None:
    forget = {(row.model, row.label): row.forget for row in measured}
    found = [
        RegimeRow(
            checkpoint=row["method"],
            class_name=row["class"],
            cofi_forget=forget[row["model"], row["method"]] or 0.0,
            recovery=float(row["delta_acc_f_rl"]),
            before=(float(row["post_ul_forget_bio"]) + float(row["post_ul_forget_cyber"])) / 2,
            after=(float(row["post_rl_forget_bio"]) + float(row["post_rl_forget_cyber"])) / 2,
        )
        for row in rows(paper, "relearn")
    ]
    recovery, accuracy = regimes(found, key="r")
    assert "Adaptive-RMU (collateral-dominant): shift 6.43 %, recovery +30.2 points" in recovery.alternative
    assert "RMU 0.294 to 0.568 (localized)" in accuracy.alternative
