"""Levels on the page, before any class: what base, unlearned and retrained models know. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from vestige.contracts import Bounded, Interval, Undefined
from vestige.footprint.levels import BASE, Level, Measure, verdict_word
from vestige.footprint.records import FootprintRecord
from vestige.footprint.verdict_records import VerdictRecord
from vestige.report.footprint.tables import lost_cell, text_cell
from vestige.report.tables import EMPTY, Cell, Column, Row, Table
from vestige.report.words import plain

__all__ = ["compared_line", "evidence_table", "levels_table", "verdicts_table"]


def compared_line(record: FootprintRecord) -> str:
    """What was compared with what, the first line of the page."""
    verdict = record.verdict
    if isinstance(verdict, VerdictRecord):
        return verdict.compared
    tested = [item for item in record.checkpoints if item.role == "unlearned"]
    oracles = len(record.checkpoints) - len(tested)
    line = f"Compared: {len(tested)} unlearned model{'' if len(tested) == 1 else 's'} with the base"
    line += f" “{record.base.label}”"
    if oracles:
        line += f" and {oracles} model{'' if oracles == 1 else 's'} retrained without the forget text"
    why = (
        "this record was made before language models were judged"
        if verdict is None
        else plain(verdict.undefined)
    )
    return f"{line}. There is no verdict: {why}."


def levels_table(record: FootprintRecord, measures: Sequence[Measure]) -> Table | None:
    """A row a model, base first and retrained models last, a column a measure; None without any."""
    if not measures:
        return None
    rows = [Row(label=record.base.label, tag="base", cells=_cells(measures, BASE))]
    if isinstance(record.verdict, VerdictRecord):
        rows += [
            Row(label=label, tag="base", cells=_cells(measures, label)) for label in record.verdict.bases[1:]
        ]
    ordered = sorted(record.checkpoints, key=lambda item: item.role == "oracle")
    rows += [
        Row(
            label=item.label,
            tag="retrained" if item.role == "oracle" else "",
            cells=_cells(measures, item.label),
        )
        for item in ordered
    ]
    return Table(
        key="levels",
        caption="What each model knows",
        head="model",
        columns=tuple(
            Column(key=measure.key, title=measure.title, detail=measure.detail) for measure in measures
        ),
        rows=tuple(rows),
        notes_are="95 % intervals",
        notes=("over documents or questions like these, one training run of each model",),
    )


def _cells(measures: Sequence[Measure], label: str) -> tuple[Cell, ...]:
    return tuple(_cell(measure, measure.levels.get(label)) for measure in measures)


def _cell(measure: Measure, level: Level | None) -> Cell:
    if level is None:
        return Cell(text=EMPTY)
    text = measure.text(level.value)
    if level.after is not None:
        text = f"{text} to {measure.text(level.after)}"
    if level.low is None or level.high is None:
        return Cell(text=text)
    return Cell(text=text, row=f"[{measure.text(level.low)}, {measure.text(level.high)}]")


def evidence_table(record: FootprintRecord) -> Table | None:
    """What the verdicts rest on, a row a model and view; None without a verdict."""
    verdict = record.verdict
    if not isinstance(verdict, VerdictRecord):
        return None
    names = {"F": "forget text", "G": "unseen text"}
    rows = []
    for model in verdict.models:
        for view in model.evidence.views:
            rows.append(
                Row(
                    label=f"{model.label}, {names[view.view]}",
                    cells=(
                        _bounded(view.displacement, 3),
                        _bounded(view.distance, 3),
                        _number(view.spread, 3),
                        _bounded(view.memory, 2, percent=True),
                        _share(view.progress),
                        _share(view.ceiling),
                    ),
                )
            )
    if not rows:
        return None
    return Table(
        key="evidence",
        caption="Distance to retraining, and what is left of the base",
        head="model",
        columns=(
            Column(key="start", title="base's distance", detail="base-2 JS, mean over documents"),
            Column(key="distance", title="distance", detail="to the retrained models"),
            Column(key="spread", title="two retrainings", detail="differ by"),
            Column(key="memory", title="memory", detail="0 % retrained, 100 % the base"),
            Column(key="progress", title="progress", detail="of the base's distance"),
            Column(key="ceiling", title="ceiling", detail="of a retraining"),
        ),
        rows=tuple(rows),
        notes_are="95 % intervals",
        notes=("these models, other documents like these",),
    )


def _bounded(found: Bounded, digits: int, *, percent: bool = False) -> Cell:
    if isinstance(found.value, Undefined):
        return lost_cell(found.value)
    scale, unit = (100.0, " %") if percent else (1.0, "")
    places = 0 if percent else digits
    cell = f"{found.value * scale:.{places}f}{unit}"
    ends = found.these_models
    if not isinstance(ends, Interval):
        return Cell(text=cell, note=plain(ends.undefined))
    return Cell(text=cell, row=f"[{ends.low * scale:.{places}f}, {ends.high * scale:.{places}f}]")


def _number(value: float | Undefined, digits: int) -> Cell:
    return lost_cell(value) if isinstance(value, Undefined) else Cell(text=f"{value:.{digits}f}")


def _share(value: float | Undefined) -> Cell:
    return lost_cell(value) if isinstance(value, Undefined) else Cell(text=f"{100 * value:.0f} %")


def verdicts_table(records: Sequence[FootprintRecord]) -> Table | None:
    """Of several records: each unlearned model's verdict and levels; None where none was judged."""
    rows = []
    for record in records:
        verdict = record.verdict
        if not isinstance(verdict, VerdictRecord):
            continue
        base, oracles = verdict.level(verdict.bases[0]), [verdict.level(label) for label in verdict.oracles]
        retrained = [level.level("forget") for level in oracles if level is not None]
        known = [value for value in retrained if value is not None]
        for checkpoint in record.checkpoints:
            own = verdict.level(checkpoint.label)
            if checkpoint.role == "oracle" or own is None:
                continue
            judged = verdict.model(checkpoint.label)
            word = verdict_word(record, checkpoint)
            memory = judged.evidence.views[0].memory if judged is not None and judged.evidence.views else None
            rows.append(
                Row(
                    label=checkpoint.label,
                    cells=(
                        text_cell(word)
                        if word or judged is None
                        else lost_cell(Undefined(undefined="no retrained model")),
                        _bounded(memory, 2, percent=True) if memory is not None else Cell(text=EMPTY),
                        _level(own.level("forget")),
                        _level(base.level("forget") if base is not None else None),
                        _level(sum(known) / len(known) if known else None),
                        text_cell(f"{record.name}: {record.base.label}"),
                    ),
                )
            )
    if not rows:
        return None
    return Table(
        key="verdicts",
        caption="Verdicts and levels",
        head="checkpoint",
        columns=(
            Column(key="verdict", title="verdict", numeric=False),
            Column(key="memory", title="memory", detail="forget text"),
            Column(key="level", title="forget text", detail="probability of a token"),
            Column(key="base-level", title="base", detail="the same"),
            Column(key="oracle-level", title="retrained", detail="the same"),
            Column(key="where", title="footprint", numeric=False),
        ),
        rows=tuple(rows),
    )


def _level(value: float | None) -> Cell:
    return Cell(text=EMPTY) if value is None else Cell(text=f"{value:.3f}")
