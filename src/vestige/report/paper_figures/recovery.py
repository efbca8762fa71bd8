"""Figures 5 and S11 to S13: recovery by fine-tuning, its controls, fresh heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vestige.report.drawing import Panel
from vestige.report.paper_figures.base import Line, Mark, PaperFigure, figure_of, forest, lines
from vestige.study.ledger import Ledger
from vestige.study.ledger_recovery import start_probabilities
from vestige.study.ledger_rows import ControlRow, CurveRow, FreshHeadRow, RecoveryRow
from vestige.study.ledger_run import model_names

__all__ = ["figure_5", "figure_s11", "figure_s12", "figure_s13"]

CHECKPOINTS = {"unlearned": (0, "o"), "oracle": (1, "s"), "full": (2, "^")}
DASHES = ("dotted", "dashed", "solid")
CONTRASTS = (("absolute", "g_abs"), ("adjusted", "g_adj"), ("headroom", "g_h"))
POPULATIONS = ("unseen", "seen", "label swap")
CHECKPOINT_KEY = [(name, series, marker, False, False) for name, (series, marker) in CHECKPOINTS.items()]


def _subjects(rows: Sequence[CurveRow | ControlRow | FreshHeadRow | RecoveryRow]) -> list[str]:
    return list(dict.fromkeys(_subject(row) for row in rows))


def _subject(row: CurveRow | ControlRow | FreshHeadRow | RecoveryRow) -> str:
    return f"{row.model}, {row.method}" if row.method else row.model


def figure_5(ledger: Ledger) -> PaperFigure:
    """Curves, contrasts, controls, fresh heads."""
    panels: list[tuple[str, Panel | None]] = [("curves", panel) for panel in _curves(ledger)]
    panels = panels or [("curves", None)]
    return figure_of(
        "5",
        [
            *panels,
            ("contrasts", _contrasts(ledger)),
            ("controls", _controls(ledger)),
            ("fresh heads", _fresh(ledger, "forgotten_accuracy", "5d", "Fresh heads: forgotten accuracy")),
        ],
    )


def _curves(ledger: Ledger) -> list[Panel]:
    """Gold probability of unseen rows, a panel a model: colour the checkpoint, dashes the budget."""
    rows = [row for row in ledger.of(CurveRow) if row.population == "unseen" and row.p_gold is not None]
    found = []
    for place, subject in enumerate(_subjects(rows)):
        mine = [row for row in rows if _subject(row) == subject]
        budgets = sorted({row.k for row in mine})
        series = []
        for name, (color, marker) in CHECKPOINTS.items():
            for k in budgets:
                for seed in sorted({row.adapt_seed for row in mine}):
                    points = sorted(
                        (row.t, row.p_gold or 0.0)
                        for row in mine
                        if (row.checkpoint, row.k, row.adapt_seed) == (name, k, seed)
                    )
                    if points:
                        dash = DASHES[budgets.index(k) % 3] if len(budgets) > 1 else "solid"
                        series.append(
                            Line(
                                x=[t for t, _ in points],
                                y=[p for _, p in points],
                                group=f"{name}, k {k}",
                                series=color,
                                marker=marker,
                                dash=dash,
                                thin=seed != 0,
                            )
                        )
        ends = "; ".join(f"{item.group}: {item.y[0]:.2f} to {item.y[-1]:.2f}" for item in series)
        found.append(
            lines(
                series,
                key=f"5a-{place}",
                caption=f"Gold probability by update: {subject}; thin: later adaptation seeds",
                alternative=f"Gold probability of unseen rows of {subject}. {ends}.",
                x_axis="updates",
                y_axis="gold probability",
                y_limits=(0, 1),
                ticks=sorted({row.t for row in mine}),
            )
        )
    return found


def _contrasts(ledger: Ledger) -> Panel | None:
    """Dots a configuration, diamonds a class, pooled with row and class intervals; else their mean."""
    rows, controls = ledger.of(RecoveryRow), ledger.of(ControlRow)
    found = []
    said = []
    for subject in _subjects(rows):
        mine = [row for row in rows if _subject(row) == subject]
        for words, column in CONTRASTS:
            values = [value for row in mine if (value := getattr(row, column)) is not None]
            if not values:
                continue
            name = "g_headroom" if column == "g_h" else column
            theirs = [
                row
                for row in controls
                if _subject(row) == subject and row.quantity == f"{name} unseen" and row.value is not None
            ]
            marks = [Mark(value=value, series=5, open=True, lane=-0.55, size=4) for value in values]
            marks += [
                Mark(value=row.value or 0.0, series=2, marker="D", lane=0.6, size=4.5)
                for row in theirs
                if row.unit
            ]
            pooled = next((row for row in theirs if not row.unit and row.k is None), None)
            if pooled is not None:
                marks.append(
                    Mark(
                        value=pooled.value or 0.0,
                        low=pooled.lo,
                        high=pooled.hi,
                        far_low=pooled.class_lo,
                        far_high=pooled.class_hi,
                        marker="s",
                        lane=0.0,
                        size=6,
                    )
                )
            else:
                marks.append(Mark(value=sum(values) / len(values), marker="s", lane=0.0, size=6))
            centre = marks[-1].value
            found.append((f"{subject}: {words}", marks))
            said.append(f"{subject} {words} {centre:+.3f} over {len(values)} settings")
    if not found:
        return None
    return forest(
        found,
        key="5b",
        caption="Recovery of the unlearned model minus the oracle's",
        alternative="; ".join(said) + ".",
        axis="contrast of areas",
        items=[
            ("a setting", 5, "o", True, False),
            ("pooled, or mean", 0, "s", False, False),
            ("a class", 2, "D", False, False),
        ],
        pitch=0.42,
        label_width=2.6,
        width=5.6,
    )


def _control_rows(ledger: Ledger) -> list[ControlRow]:
    wanted = [f"g_adj {name}" for name in POPULATIONS] + ["specificity", "exposure"]
    rows = [
        row
        for row in ledger.of(ControlRow)
        if row.quantity in wanted and not row.unit and row.value is not None
    ]
    return sorted(rows, key=lambda row: (_subject(row), wanted.index(row.quantity)))


def _control_words(quantity: str) -> str:
    return {
        "g_adj unseen": "unseen",
        "g_adj seen": "seen",
        "g_adj label swap": "label swap",
        "specificity": "unseen - label swap",
        "exposure": "seen - unseen",
    }.get(quantity, quantity)


def _controls(ledger: Ledger) -> Panel | None:
    """Pooled adjusted recovery by population, and the direct contrasts."""
    rows = [row for row in _control_rows(ledger) if row.k is None]
    if not rows or not any("label swap" in row.quantity or row.quantity == "specificity" for row in rows):
        return None
    found = [
        (
            f"{_subject(row)}: {_control_words(row.quantity)}",
            [_control_mark(row)],
        )
        for row in rows
    ]
    return forest(
        found,
        key="5c",
        caption="Adjusted recovery by population, and differences",
        alternative="; ".join(f"{label} {marks[0].value:+.3f}" for label, marks in found) + ".",
        axis="adjusted advantage",
        items=[("row interval; thin: classes", 0, "o", False, False), ("difference", 1, "D", False, False)],
        label_width=2.9,
        width=5.9,
        columns=2,
    )


def _control_mark(row: ControlRow, *, small: bool = False) -> Mark:
    direct = row.quantity in ("specificity", "exposure")
    return Mark(
        value=row.value or 0.0,
        low=row.lo,
        high=row.hi,
        far_low=row.class_lo,
        far_high=row.class_hi,
        series=int(direct),
        marker="D" if direct else "o",
        open=small,
        size=4 if small else 5,
    )


def _fresh(ledger: Ledger, column: str, key: str, caption: str) -> Panel | None:
    rows = [row for row in ledger.of(FreshHeadRow) if getattr(row, column) is not None]
    if not rows:
        return None
    found = []
    for subject in _subjects(rows):
        for name, (series, marker) in CHECKPOINTS.items():
            marks = [
                Mark(
                    value=getattr(row, column), series=series, marker=marker, lane=0.0, open=name == "oracle"
                )
                for row in rows
                if _subject(row) == subject and row.checkpoint == name
            ]
            if marks:
                found.append((f"{subject}: {name}", marks))
    said = "; ".join(f"{label} " + ", ".join(f"{mark.value:.3f}" for mark in marks) for label, marks in found)
    return forest(
        found,
        key=key,
        caption=caption,
        alternative=f"{caption}, a mark an initialisation. {said}.",
        axis=column.replace("_p", " probability").replace("_", " "),
        items=[
            (name, series, marker, name == "oracle", False) for name, series, marker, *_ in CHECKPOINT_KEY
        ],
        label_width=2.4,
    )


def figure_s11(ledger: Ledger) -> PaperFigure:
    """Accuracy and gold probability by update, a panel a subject, budget and measure."""
    rows = [row for row in ledger.of(CurveRow) if row.population == "unseen"]
    panels: list[tuple[str, Panel | None]] = []
    for subject in _subjects(rows):
        mine = [row for row in rows if _subject(row) == subject]
        for k in sorted({row.k for row in mine}):
            for words, column in (("accuracy", "accuracy"), ("gold probability", "p_gold")):
                series = []
                for name, (color, marker) in CHECKPOINTS.items():
                    for seed in sorted({row.adapt_seed for row in mine}):
                        points = sorted(
                            (row.t, value)
                            for row in mine
                            if (row.checkpoint, row.k, row.adapt_seed) == (name, k, seed)
                            and (value := getattr(row, column)) is not None
                        )
                        if points:
                            series.append(
                                Line(
                                    x=[t for t, _ in points],
                                    y=[value for _, value in points],
                                    group=name,
                                    series=color,
                                    marker=marker,
                                    dash="solid" if seed == 0 else "dashed",
                                )
                            )
                caption = f"{words[:1].upper()}{words[1:]}, k {k}: {subject}"
                drawn = (
                    lines(
                        series,
                        key=f"s11-{len(panels)}",
                        caption=caption,
                        alternative=f"{caption}; dashed: the second adaptation seed. "
                        + "; ".join(f"{item.group} ends at {item.y[-1]:.2f}" for item in series)
                        + ".",
                        x_axis="updates",
                        y_axis=words,
                        y_limits=(0, 1),
                        ticks=sorted({row.t for row in mine}),
                        height=2.4,
                    )
                    if series
                    else None
                )
                panels.append((caption, drawn))
    return figure_of("S11", panels or [("curves", None)])


def figure_s12(ledger: Ledger) -> PaperFigure:
    """Direct contrasts by budget and pooled, rows of the exposure audit, start probabilities."""
    rows = [
        row
        for row in _control_rows(ledger)
        if row.quantity in ("specificity", "exposure") and row.adapt_seed is None
    ]
    controls: list[tuple[str, Panel | None]] = [
        ("controls", _control_forest([row for row in rows if _subject(row) == subject], subject, place))
        for place, subject in enumerate(_subjects(rows))
    ]
    return figure_of(
        "S12",
        [
            *(controls or [("controls", None)]),
            ("exposure audit", _exposure(ledger)),
            ("start probabilities", _starts(ledger)),
        ],
    )


def _control_forest(rows: Sequence[ControlRow], subject: str, place: int) -> Panel:
    found = []
    for row in rows:
        pooled = row.k is None
        where = "pooled" if pooled else f"k {row.k}"
        found.append((f"{_control_words(row.quantity)}, {where}", [_control_mark(row, small=not pooled)]))
    return forest(
        found,
        key=f"s12a-{place}",
        caption=f"{subject}: differences between populations; filled pooled, open a budget",
        alternative=f"{subject}. "
        + "; ".join(f"{label} {marks[0].value:+.3f}" for label, marks in found)
        + ".",
        axis="difference of adjusted advantages",
        items=[("difference", 1, "D", False, False)],
        label_width=2.2,
    )


def _exposure(ledger: Ledger) -> Panel | None:
    """Rows exposed and rows scored as seen, of every setting of a record with controls."""
    found = []
    for _, record in ledger.recoveries:
        for setting in record.settings:
            if setting.population != "seen":
                continue
            name = f"{model_names(record.model)[0]} {record.bundle}: k {setting.k}, s{setting.adapt_seed}"
            marks = [
                Mark(value=float(setting.exposed), series=1, marker="s", open=True, lane=0.0),
                Mark(value=float(setting.rows), lane=0.0),
            ]
            found.append((name, marks, f"{setting.exposed} / {setting.rows}"))
    if not found:
        return None
    return forest(
        [(label, marks) for label, marks, _ in found],
        key="s12b",
        caption="Deleted rows in the exposure audit: exposed / scored as seen",
        alternative="Exposed and scored as seen. "
        + "; ".join(f"{label}: {count}" for label, _, count in found)
        + ". No row is in both.",
        axis="rows",
        items=[("exposed", 1, "s", True, False), ("seen", 0, "o", False, False)],
        notes=[count for *_, count in found],
        label_width=2.4,
    )


def _starts(ledger: Ledger) -> Panel | None:
    series = []
    said = []
    for place, ((subject, population), values) in enumerate(start_probabilities(ledger.recoveries).items()):
        shares = np.arange(1, len(values) + 1) / len(values)
        name = f"{subject}: {population}"
        series.append(
            Line(
                x=[0.0, *values.tolist(), 1.0],
                y=[0.0, *shares.tolist(), 1.0],
                group=name,
                series=place,
                marker="",
                dash=("solid", "dashed", "dotted")[POPULATIONS.index(population)],
            )
        )
        said.append(f"{name}: median {float(np.median(values)):.3f} of {len(values)} rows")
    if not series:
        return None
    return lines(
        series,
        key="s12c",
        caption="Probability at the start, unlearned model",
        alternative=f"Cumulative share of rows. {'; '.join(said)}.",
        x_axis="gold probability before any update",
        y_axis="share of rows",
        columns=1,
    )


def figure_s13(ledger: Ledger) -> PaperFigure:
    """Three measures of fresh heads."""
    return figure_of(
        "S13",
        [
            (words, _fresh(ledger, column, f"s13-{place}", f"Fresh heads: {words}"))
            for place, (words, column) in enumerate(
                (
                    ("forgotten accuracy", "forgotten_accuracy"),
                    ("gold probability", "gold_p"),
                    ("retained accuracy", "retained_accuracy"),
                )
            )
        ],
    )
