"""Known facts on the page: every checkpoint against the exact oracle."""

from __future__ import annotations

from dataclasses import replace

from vestige.contracts import Undefined
from vestige.footprint.levels import BASE, Level, Measure
from vestige.language_study.records import CheckpointRow, InjectedScores, LanguageStudyRecord
from vestige.report.footprint.attached import QUESTIONS
from vestige.report.footprint.sections import Extras
from vestige.report.footprint.tables import lost_cell, text_cell
from vestige.report.footprint.way import WayRow, way
from vestige.report.sections import Bullets, Data, Prose
from vestige.report.tables import EMPTY, Cell, Column, Row, Table
from vestige.report.words import plain

__all__ = ["known_table", "with_known_facts"]


def with_known_facts(extras: Extras, record: LanguageStudyRecord) -> Extras:
    """What is known of the facts, where the study has any: each checkpoint's answers, losses and table."""
    table = known_table(record)
    if table is None:
        return extras
    base = next((row.injected for row in record.rows if row.role == "base"), None)
    others = [row for row in record.rows if row.role != "base"]
    said = "The forgotten facts were put into the model, so that the model without them is known exactly."
    blocks = [*extras.behaviour, Prose(said), Data(table)]
    gates = record.gates
    if gates is not None and not gates.took:
        blocks.append(
            Bullets([f"undefined: the injection did not take: {plain(line)}" for line in gates.failed])
        )
    return replace(
        extras,
        levels=(_level_measure(record), *extras.levels),
        behaves={row.label: _behaves(row, base) for row in others},
        behaviour=tuple(blocks),
        way=way([_way_row(row, base) for row in others], key="known-way"),
        tested=extras.tested | {QUESTIONS},
    )


def _level_measure(record: LanguageStudyRecord) -> Measure:
    """Answers on the facts to forget, of every model."""
    levels = {
        BASE if row.role == "base" else row.label: Level(value=row.injected.accuracy_f)
        for row in record.rows
        if row.injected is not None
    }
    return Measure(
        key="facts",
        name="answers on the facts to forget",
        title="facts to forget",
        detail="accuracy",
        levels=levels,
        unit="percent",
    )


def _behaves(row: CheckpointRow, base: InjectedScores | None) -> str:
    """A checkpoint's answers on the facts in one line."""
    found = row.injected
    if found is None:
        return "not asked"
    before = f", {100 * base.accuracy_f:.1f} % before" if base is not None else ""
    return (
        f"answers {100 * found.accuracy_f:.1f} % of the facts to forget{before}, "
        f"{100 * found.accuracy_a:.1f} % of those to keep"
    )


def _lost(row: CheckpointRow, base: InjectedScores | None) -> float | None:
    """Lost of the answers on the facts to forget, percent of the injected model's."""
    found = row.injected
    if found is None or base is None or base.accuracy_f == 0:
        return None
    return 100 * (base.accuracy_f - found.accuracy_f) / base.accuracy_f


def _way_row(row: CheckpointRow, base: InjectedScores | None) -> WayRow:
    return WayRow(
        checkpoint=row.label,
        class_name="undefined" if row.class_name.startswith("undefined") else row.class_name,
        moved=None if isinstance(row.cofi_f, Undefined) else row.cofi_f,
        lost=_lost(row, base),
        returned=None if isinstance(row.recovery, Undefined) else 100 * row.recovery,
        retrained=row.role == "oracle",
    )


def known_table(record: LanguageStudyRecord) -> Table | None:
    """A row a checkpoint: answers on the facts, distance to the oracle, relearning; None without facts."""
    rows = [row for row in record.rows if row.injected is not None]
    if not rows:
        return None
    return Table(
        key="known",
        caption="Against the exact oracle",
        head="checkpoint",
        columns=(
            Column(key="known-f", title="facts to forget", detail="accuracy, percent"),
            Column(key="known-a", title="facts to keep", detail="accuracy, percent"),
            Column(key="distance-f", title="distance, forget", detail="base-2 JS"),
            Column(key="distance-a", title="distance, keep", detail="base-2 JS"),
            Column(key="distance-g", title="distance, other text", detail="base-2 JS"),
            Column(key="weights", title="weights", detail="norm left, 1: none undone"),
            Column(key="class", title="class", detail="published thresholds", numeric=False),
            Column(key="calibrated", title="calibrated class", numeric=False),
            Column(key="recovery", title="relearning", detail="before to after, percent"),
        ),
        rows=tuple(Row(label=row.label, tag=_TAGS.get(row.role, ""), cells=_cells(row)) for row in rows),
    )


_TAGS = {"base": "injected model", "oracle": "exact oracle"}


def _cells(row: CheckpointRow) -> tuple[Cell, ...]:
    found = row.injected
    assert found is not None
    return (
        Cell(text=f"{100 * found.accuracy_f:.1f}"),
        Cell(text=f"{100 * found.accuracy_a:.1f}"),
        *(Cell(text=f"{value:.3f}") for value in (found.distance_f, found.distance_a, found.distance_g)),
        lost_cell(found.weights)
        if isinstance(found.weights, Undefined)
        else Cell(text=f"{found.weights:.3f}"),
        text_cell(row.class_name),
        text_cell(row.calibrated),
        Cell(text=EMPTY)
        if isinstance(row.relearn_before, Undefined) or isinstance(row.relearn_after, Undefined)
        else Cell(text=f"{100 * row.relearn_before:.1f} to {100 * row.relearn_after:.1f}"),
    )
