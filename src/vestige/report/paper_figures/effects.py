"""Figures S3 and S7: progress against utility, and effects on CLINC150."""

from __future__ import annotations

from collections.abc import Sequence

from vestige.report.drawing import Panel
from vestige.report.paper_figures.base import MARKERS, Mark, PaperFigure, Point, figure_of, forest, scatter
from vestige.study.ledger import Ledger
from vestige.study.ledger_main import pooled_gain
from vestige.study.ledger_rows import ClincRow, MainTable3Row, MethodRow

__all__ = ["figure_s3", "figure_s7"]

FLOOR = -1.5
"""Progress below it is drawn at the edge: one run far off would flatten all others."""
TUNED = ("confirmation", "replication")


def figure_s3(ledger: Ledger) -> PaperFigure:
    """A panel a data set and view."""
    points: dict[str, list[tuple[str, float, float | None, float | None]]] = {}
    methods = ledger.of(MethodRow)
    for row in methods:
        if row.delta_acc_pp is not None:
            points.setdefault(row.dataset, []).append(
                (row.stage, row.delta_acc_pp, row.progress_f, row.progress_g)
            )
    if "clinc150" not in points:
        for one in ledger.of(ClincRow):
            if one.delta_acc_pp is not None:
                points.setdefault("clinc150", []).append(
                    (one.stage, one.delta_acc_pp, one.progress_f, one.progress_g)
                )
    stages = list(dict.fromkeys(item[0] for group in points.values() for item in group))
    panels: list[tuple[str, Panel | None]] = []
    for dataset in points or {"a data set": []}:
        for view in ("F", "G"):
            found = [
                Point(
                    x=change,
                    y=progress,
                    group=stage.replace("_", " "),
                    series=stages.index(stage),
                    marker=MARKERS[stages.index(stage) % len(MARKERS)],
                    open=stages.index(stage) >= 6,
                )
                for stage, change, f, g in points.get(dataset, [])
                if (progress := f if view == "F" else g) is not None
            ]
            drawn = None
            if found:
                drawn = scatter(
                    found,
                    key=f"s3-{len(panels)}",
                    caption=f"{dataset}, {view}",
                    alternative=f"Progress on {view} against the change of retained accuracy, {len(found)} "
                    f"configurations of {dataset}; {sum(point.x < -2 for point in found)} below -2 points; "
                    f"{sum(point.y < FLOOR for point in found)} below {FLOOR}, drawn at the edge.",
                    x_axis="change of retained accuracy, points",
                    y_axis=f"progress on {view}",
                    vertical=-2.0,
                    horizontal=0.0,
                    floor=FLOOR,
                )
            panels.append((f"{dataset}, {view}", drawn))
    return figure_of("S3", panels)


def figure_s7(ledger: Ledger) -> PaperFigure:
    """Gains of frozen transfer and of the tuned setting on both views, over bundles, and by intent."""
    rows = [
        row
        for row in ledger.of(ClincRow)
        if row.stage in (*TUNED, "transfer") and "temperature" not in row.run_label.lower()
    ]
    return figure_of(
        "S7",
        [
            *((f"gain on {view}", _effects(ledger, rows, view)) for view in ("F", "G")),
            ("intents with a positive gain", _positive(rows)),
        ],
    )


def _named(row: ClincRow) -> str:
    """Bundle and seed of a tuned row; a transferred one says what it is too."""
    if row.stage != "transfer":
        return f"{row.bundle}, seed {row.seed}"
    kind = "" if row.granularity in (None, "class") else f" {row.granularity}"
    return f"{row.id}. {row.run_label.rpartition('__')[2]} transferred, {row.model}{kind}"


def _positive(rows: Sequence[ClincRow]) -> Panel | None:
    """Share of the deleted intents with a mean gain above 0."""
    lines = []
    for row in rows:
        marks = [
            Mark(value=value, series=series, marker=marker)
            for value, series, marker in ((row.positive_f, 0, "o"), (row.positive_g, 1, "s"))
            if value is not None
        ]
        if marks:
            lines.append((_named(row), marks))
    if not lines:
        return None
    said = "; ".join(f"{name}: " + ", ".join(f"{mark.value:.2f}" for mark in marks) for name, marks in lines)
    return forest(
        lines,
        key="s7-positive",
        caption="Share of deleted intents with a positive mean gain",
        alternative=f"Share of deleted intents with a positive mean gain, F and G. {said}.",
        axis="share of intents",
        items=[("F", 0, "o", False, False), ("G", 1, "s", False, False)],
        label_width=2.6,
    )


def _effects(ledger: Ledger, rows: Sequence[ClincRow], view: str) -> Panel | None:
    low = view.lower()
    lines = []
    for row in rows:
        value = getattr(row, f"gain_{low}")
        if value is None:
            continue
        mark = Mark(
            value=value,
            low=getattr(row, f"gain_{low}_lo"),
            high=getattr(row, f"gain_{low}_hi"),
            far_low=getattr(row, f"gain_{low}_intent_lo"),
            far_high=getattr(row, f"gain_{low}_intent_hi"),
        )
        lines.append((_named(row), [mark]))
    if not lines:
        return None
    said = [f"{label}: {marks[0].value:+.3f}" for label, marks in lines]
    pooled = _pooled(ledger, [row for row in rows if row.stage in TUNED], low)
    if pooled is not None:
        lines.append((pooled[0], [pooled[1]]))
        said.append(f"{pooled[0]}: {pooled[1].value:+.3f}")
    return forest(
        lines,
        key=f"s7-{low}",
        caption=f"Gain on {view}",
        alternative=f"Gain on {view} by bundle. {'; '.join(said)}.",
        axis=f"gain on {view}",
        items=[("row interval", 0, "o", False, False), ("pooled", 1, "D", False, False)],
        label_width=2.6,
    )


def _pooled(ledger: Ledger, rows: Sequence[ClincRow], low: str) -> tuple[str, Mark] | None:
    """The pooled row of the main table with its interval, else the mean over bundles without one."""
    table = next((row for row in ledger.of(MainTable3Row) if row.setting == "pooled"), None)
    value = getattr(table, f"gain_{low}") if table else None
    if table is not None and value is not None:
        mark = Mark(
            value=value,
            low=getattr(table, f"gain_{low}_lo"),
            high=getattr(table, f"gain_{low}_hi"),
            series=1,
            marker="D",
        )
        return "pooled intents", mark
    mean = pooled_gain(rows, low)
    return None if mean is None else ("mean over bundles", Mark(value=mean, series=1, marker="D"))
