"""Figures 4, S9 and S10: suppression and where probability was moved."""

from __future__ import annotations

from collections.abc import Sequence

from vestige.report.drawing import Panel
from vestige.report.paper_figures.base import MARKERS, Mark, PaperFigure, Point, figure_of, forest, scatter
from vestige.study.ledger import Ledger
from vestige.study.ledger_rows import SuppressionRow

__all__ = ["figure_4", "figure_s9", "figure_s10", "matched_rows"]


def matched_rows(ledger: Ledger) -> list[SuppressionRow]:
    """Configurations of runs with matched settings, and imported ones; else every one."""
    rows = ledger.of(SuppressionRow)
    matched = [row for row in rows if row.matching or (row.imported and row.dev_s is not None)]
    return matched or list(rows)


def _every(ledger: Ledger) -> list[SuppressionRow]:
    """Every configuration once."""
    return [row for row in ledger.of(SuppressionRow) if not row.matching]


def _names(rows: Sequence[SuppressionRow]) -> dict[int, str]:
    """Row id -> a name: method, bundle and seed; the model and the labels where rows differ in them."""
    models = len({row.model for row in rows}) > 1
    labels = len({row.labels for row in rows}) > 1
    found = {}
    for row in rows:
        parts = [
            row.run.replace("__", " ").replace("_", " "),
            row.bundle or "",
            f"s{row.seed}" if row.seed else "",
            (row.model or "") if models else "",
            (row.labels or "") if labels and row.labels != "semantic" else "",
        ]
        found[row.id] = " ".join(part for part in parts if part)
    return found


def _both(rows: Sequence[SuppressionRow]) -> list[SuppressionRow]:
    return [row for row in rows if row.view == "fg"]


def figure_4(ledger: Ledger) -> PaperFigure:
    """Suppression against progress; aligned coefficient against residual."""
    rows = matched_rows(ledger)
    names = _names(rows)
    runs = list(dict.fromkeys(names.values()))
    points: list[Point] = []
    guides = []
    for row in _both(rows):
        if row.s is None or row.progress_f is None:
            continue
        place = runs.index(names[row.id])
        held = Point(
            x=row.s,
            y=row.progress_f,
            group=names[row.id],
            series=place,
            marker=MARKERS[place % len(MARKERS)],
            x_low=row.s_lo,
            x_high=row.s_hi,
        )
        points.append(held)
        if row.dev_s is not None:
            before = Point(x=row.dev_s, y=row.progress_f, series=place, marker=held.marker, open=True)
            points.append(before)
            guides.append((before, held))
    first = None
    if points:
        first = scatter(
            points,
            key="4a",
            caption="Held-out suppression and progress; open: development suppression",
            alternative="Suppression against progress on F. "
            + "; ".join(
                f"{names[row.id]}: development {row.text('dev_s') or 'unknown'}, held out {row.text('s')}, "
                f"progress {row.text('progress_f')}"
                for row in _both(rows)
            )
            + ".",
            x_axis="suppression s",
            y_axis="progress on F",
            guides=guides,
            columns=2,
        )
    return figure_of(
        "4", [("suppression against progress", first), ("direction of the change", _direction(rows, names))]
    )


def _direction(rows: Sequence[SuppressionRow], names: dict[int, str]) -> Panel | None:
    known = [row for row in _both(rows) if row.aligned_a is not None and row.residual is not None]
    view = "F and G together"
    if not known:
        known = [
            row for row in rows if row.view == "f" and row.aligned_a is not None and row.residual is not None
        ]
        view = "F"
    if not known:
        return None
    lines = []
    for row in known:
        lines.append(
            (
                names[row.id],
                [
                    Mark(value=row.aligned_a or 0.0, low=row.aligned_a_lo, high=row.aligned_a_hi),
                    Mark(
                        value=row.residual or 0.0,
                        low=row.residual_lo,
                        high=row.residual_hi,
                        series=1,
                        marker="s",
                        open=True,
                    ),
                ],
            )
        )
    return forest(
        lines,
        key="4b",
        caption=f"Aligned coefficient and relative residual on {view}",
        alternative=f"On {view}. "
        + "; ".join(
            f"{names[row.id]}: aligned {row.text('aligned_a')}, residual {row.text('residual')}"
            for row in known
        )
        + ".",
        axis="coefficient",
        items=[("aligned a", 0, "o", False, False), ("residual", 1, "s", True, False)],
        reference=1.0,
        label_width=1.9,
    )


PARTS = (
    ("aligned coefficient", "aligned_a", True),
    ("relative residual", "residual", True),
    ("distance, residual only", "residual_only", False),
    ("distance, magnitude only", "magnitude_only", False),
    ("mean squared error", "squared_error", False),
    ("identity error", "identity_error", False),
)


def figure_s9(ledger: Ledger) -> PaperFigure:
    """Six diagnostics of every class deletion, circles F, squares G."""
    rows = _every(ledger)
    names = _names(rows)
    panels: list[tuple[str, Panel | None]] = []
    for title, column, bounded in PARTS:
        found: dict[str, list[Mark]] = {}
        for row in rows:
            value = getattr(row, column)
            if value is None or row.view not in ("f", "g"):
                continue
            found.setdefault(names[row.id], []).append(
                Mark(
                    value=value,
                    low=getattr(row, f"{column}_lo") if bounded else None,
                    high=getattr(row, f"{column}_hi") if bounded else None,
                    series=int(row.view == "g"),
                    marker="s" if row.view == "g" else "o",
                )
            )
        drawn = None
        if found:
            drawn = forest(
                list(found.items()),
                key=f"s9-{column.replace('_', '-')}",
                caption=title[:1].upper() + title[1:],
                alternative=f"{title} of {len(found)} configuration(s) on F and G.",
                axis=title,
                items=[("F", 0, "o", False, False), ("G", 1, "s", False, False)],
                reference=None if column == "identity_error" else 1.0 if column == "aligned_a" else 0.0,
                label_width=1.9,
            )
        panels.append((title, drawn))
    return figure_of("S9", panels)


def figure_s10(ledger: Ledger) -> PaperFigure:
    """Development against held-out suppression; on the diagonal they agree."""
    rows = [row for row in _both(matched_rows(ledger)) if row.dev_s is not None and row.s is not None]
    names = _names(rows)
    runs = list(dict.fromkeys(names.values()))
    points = [
        Point(
            x=row.s or 0.0,
            y=row.dev_s or 0.0,
            group=names[row.id],
            series=runs.index(names[row.id]),
            marker=MARKERS[runs.index(names[row.id]) % len(MARKERS)],
            x_low=row.s_lo,
            x_high=row.s_hi,
        )
        for row in rows
    ]
    drawn = None
    if points:
        drawn = scatter(
            points,
            key="s10",
            caption="Suppression on held-out and development rows",
            alternative="Held-out against development suppression. "
            + "; ".join(f"{names[row.id]}: {row.text('s')} against {row.text('dev_s')}" for row in rows)
            + ".",
            x_axis="held-out suppression",
            y_axis="development suppression",
            diagonal=True,
            columns=2,
        )
    return figure_of("S10", [("suppression", drawn)])
