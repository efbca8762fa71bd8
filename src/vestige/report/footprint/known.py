"""Known facts on the page: every checkpoint against the exact oracle."""

from __future__ import annotations

from dataclasses import replace

from vestige.contracts import Undefined
from vestige.language_study.records import CheckpointRow, LanguageStudyRecord
from vestige.report.footprint.sections import Extras
from vestige.report.footprint.tables import lost_cell, text_cell
from vestige.report.sections import Bullets, Data, Prose
from vestige.report.tables import EMPTY, Cell, Column, Row, Table
from vestige.report.words import plain

__all__ = ["known_table", "with_known_facts"]


def with_known_facts(extras: Extras, record: LanguageStudyRecord) -> Extras:
    """The page's behaviour section with the table of known facts, where the study has any."""
    table = known_table(record)
    if table is None:
        return extras
    said = "The forgotten facts were put into the model, so that the model without them is known exactly."
    blocks = [*extras.behaviour, Prose(said), Data(table)]
    gates = record.gates
    if gates is not None and not gates.took:
        blocks.append(
            Bullets([f"undefined: the injection did not take: {plain(line)}" for line in gates.failed])
        )
    return replace(extras, behaviour=tuple(blocks))


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
            Column(key="class", title="class", numeric=False),
            Column(key="recovery", title="came back", detail="points"),
        ),
        rows=tuple(Row(label=row.label, tag=_TAGS.get(row.role, ""), cells=_cells(row)) for row in rows),
    )


_TAGS = {"base": "base", "oracle": "exact oracle"}


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
        Cell(text=EMPTY) if isinstance(row.recovery, Undefined) else Cell(text=f"{100 * row.recovery:+.1f}"),
    )
