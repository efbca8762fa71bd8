"""Correlations of recovery with footprints, against the published ones."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from vestige.contracts import Interval
from vestige.language_study.correlations import CorrelationRow, correlation_record


def read(folder: Path, name: str) -> dict[str, dict[str, str]]:
    with (folder / name).open() as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == "Llama-3.1-8B"]
    return {row["method"]: row for row in rows if row.get("benchmark", "wmdp") == "wmdp"}


@pytest.fixture(scope="module")
def record(paper: Path) -> Any:
    aggregates, attacked, behaved, asked = (
        read(paper, f"triage_{name}.csv") for name in ("aggregates", "relearn", "bgap", "behaviour")
    )
    rows = []
    for method, gap in behaved.items():
        shift, attack = aggregates[method], attacked.get(method)
        known = [float(asked[method][f"acc_forget_{topic}"]) for topic in ("bio", "cyber")]
        rows.append(
            CorrelationRow(
                checkpoint=method,
                method=method,
                class_name=gap["class_heading"],
                cofi_f=float(shift["cofi_f"]),
                cofi_a=float(shift["cofi_a"]),
                cofi_g=float(shift["cofi_g"]),
                chess_f=float(shift["chess_f"]),
                recovery=float(attack["delta_acc_f_rl"]) if attack else None,
                forget_before=sum(known) / 2,
                delta_f=float(gap["delta_f"]),
                b_gap=float(gap["b_gap"]),
            )
        )
    return correlation_record(rows)


@pytest.mark.shared
def test_recovery_goes_with_the_shift_as_published(record: Any) -> None:
    everything = record.named("cofi-recovery")
    assert everything.n == 11
    assert everything.spearman.value == pytest.approx(0.651, abs=5e-4)
    assert everything.spearman.p == pytest.approx(0.0299, abs=5e-5)
    calm = record.named("cofi-recovery, not-destructive")
    assert calm.n == 8
    assert calm.pearson.value == pytest.approx(0.763, abs=5e-4)
    assert calm.pearson.p == pytest.approx(0.0277, abs=5e-5)
    assert calm.spearman.value == pytest.approx(0.683, abs=5e-4)
    assert calm.spearman.p == pytest.approx(0.062, abs=5e-4)
    assert record.named("chess-recovery, not-destructive").pearson.value == pytest.approx(0.722, abs=1e-3)


@pytest.mark.shared
def test_the_shift_goes_with_the_loss_where_something_was_still_known(record: Any) -> None:
    """Over all twelve, and over the seven whose forget accuracy stayed above 0.27."""
    everything = record.named("cofi-loss")
    assert everything.n == 12
    assert everything.spearman.value == pytest.approx(0.476, abs=5e-4)
    assert everything.spearman.p == pytest.approx(0.118, abs=5e-4)
    restricted = record.named("cofi-loss, knowing")
    assert restricted.n == 7
    assert restricted.spearman.value == pytest.approx(0.775, abs=5e-4)
    assert restricted.spearman.p == pytest.approx(0.041, abs=5e-4)
    (item,) = [item for item in record.correlations if item.key == "cofi-loss, knowing"]
    assert set(item.checkpoints) == {"ATU", "Obliviate", "RSV", "RMU", "NPO", "SimNPO", "DPO"}
    share = record.named("share-recovery")
    assert (share.n, share.spearman.value) == (11, pytest.approx(-0.764, abs=5e-4))
    assert share.spearman.p == pytest.approx(0.006, abs=5e-4)


@pytest.mark.shared
def test_the_two_gaps_hardly_agree(record: Any) -> None:
    gaps = record.named("gaps")
    assert gaps.n == 12
    assert gaps.pearson.value == pytest.approx(-0.134, abs=5e-4)


@pytest.mark.shared
def test_intervals_say_what_they_are_and_hold_the_value(record: Any) -> None:
    for item in record.correlations:
        for found in (item.pair.pearson, item.pair.spearman):
            assert isinstance(found.interval, Interval)
            assert found.interval.low <= found.value <= found.interval.high
            assert found.interval.kind.startswith("BCa")
    assert "globally-destructive" in "\n".join(record.lines())
