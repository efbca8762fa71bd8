"""Figures 1 and S2: what is compared, and how far full models are from their oracles."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from vestige.report.drawing import ACCENT, BAND, INK, MUTED, RULE, Panel
from vestige.report.paper_figures.base import (
    Mark,
    PaperFigure,
    canvas,
    figure_of,
    finish,
    forest,
    plain_ticks,
)
from vestige.study.ledger import Ledger
from vestige.study.ledger_rows import DisplacementRow

__all__ = ["figure_1", "figure_s2"]

GRANULARITIES = ("example", "association", "class")


def figure_1(ledger: Ledger) -> PaperFigure:
    """Scheme, then displacement on F and on G."""
    rows = _first(ledger.of(DisplacementRow))
    views = [(f"displacement on {view}", _paths(rows, view)) for view in ("F", "G")]
    drawn = any(panel for _, panel in views)
    return figure_of("1", [("scheme", _scheme() if drawn else None), *views])


def _first(rows: Sequence[DisplacementRow]) -> list[DisplacementRow]:
    """The first row of each backbone and granularity under semantic labels: one seed and bundle, of the data
    set that has most of them."""
    found: dict[str, dict[tuple[str, str], DisplacementRow]] = {}
    for row in sorted(rows, key=lambda item: (item.bundle, item.seed)):
        if row.labels == "semantic":
            found.setdefault(row.dataset, {}).setdefault((row.model, row.granularity), row)
    return list(max(found.values(), key=len).values()) if found else []


def _scheme() -> Panel:
    boxes = (
        (0.02, 0.62, "full model", "trained on D"),
        (0.02, 0.08, "unlearned", "full, then a method"),
        (0.62, 0.35, "oracle", "trained without D_F"),
    )
    with canvas(height=2.3, left=0.1, bottom=0.05, top=0.05) as (figure, axes):
        axes.set_axis_off()
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        from matplotlib.patches import FancyBboxPatch

        for x, y, name, made in boxes:
            axes.add_patch(
                FancyBboxPatch(
                    (x, y), 0.34, 0.28, boxstyle="round,pad=0.01", fill=False, edgecolor=RULE, linewidth=1.2
                )
            )
            axes.text(x + 0.17, y + 0.18, name, ha="center", va="center", fontsize=11)
            axes.text(x + 0.17, y + 0.07, made, ha="center", va="center", fontsize=8.5, color=MUTED)
        arrow = {"arrowstyle": "<->", "color": ACCENT, "linewidth": 1.3}
        axes.annotate("", (0.61, 0.58), (0.38, 0.78), arrowprops=arrow)
        axes.annotate("", (0.61, 0.40), (0.38, 0.20), arrowprops=arrow)
        axes.annotate(
            "", (0.19, 0.38), (0.19, 0.60), arrowprops={"arrowstyle": "->", "color": MUTED, "linewidth": 1.3}
        )
        axes.text(0.53, 0.78, "displacement D0", ha="left", fontsize=9.5)
        axes.text(0.53, 0.17, "oracle distance", ha="left", fontsize=9.5)
        axes.text(0.21, 0.49, "unlearning", ha="left", va="center", fontsize=9.5, color=MUTED)
        alternative = (
            "Full model, trained on all data D; unlearned model, the full model after a method; oracle, "
            "trained without the deleted rows. Displacement: full to oracle. Distance: unlearned to oracle."
        )
        return finish(figure, "1a", "What is compared", alternative)


def _value(row: DisplacementRow, view: str) -> float | None:
    return row.d0_f if view == "F" else row.d0_g


def _paths(rows: Sequence[DisplacementRow], view: str) -> Panel | None:
    """A thin line a backbone through the granularities, log axis, medians and quartiles, noise range."""
    known = [row for row in rows if (_value(row, view) or 0) > 0 and row.granularity in GRANULARITIES]
    if not known:
        return None
    noises = [
        value
        for row in rows
        if (value := row.noise_f if view == "F" else row.noise_g) is not None and value > 0
    ]
    paths: dict[tuple[str, str], dict[int, float]] = {}
    for row in known:
        value = _value(row, view)
        assert value is not None
        paths.setdefault((row.model, row.dataset), {})[GRANULARITIES.index(row.granularity)] = value
    said = []
    with canvas(height=3.5) as (figure, axes):
        axes.set_yscale("log")
        plain_ticks(axes.yaxis)
        if noises:
            low, high = min(noises), max(noises)
            axes.axhspan(low, high * 1.001 if low == high else high, color=BAND, linewidth=0)
            axes.axhline(low, color=MUTED, linewidth=0.6)
            axes.text(2.45, high, "noise floor", ha="right", va="bottom", fontsize=9, color=MUTED)
        for path in paths.values():
            places = sorted(path)
            axes.plot(
                places,
                [path[place] for place in places],
                color=MUTED,
                linewidth=0.8,
                marker="o",
                markersize=2.5,
            )
        for place, name in enumerate(GRANULARITIES):
            values = sorted(path[place] for path in paths.values() if place in path)
            if not values:
                continue
            low_quarter, high_quarter = (float(np.quantile(values, q)) for q in (0.25, 0.75))
            axes.plot([place, place], [low_quarter, high_quarter], color=ACCENT, linewidth=4, zorder=4)
            axes.plot([place], [median(values)], marker="D", color=INK, markersize=6, zorder=5)
            said.append(
                f"{name}: median {median(values):.3f}, quartiles {low_quarter:.3f} to {high_quarter:.3f}, "
                f"{len(values)} backbone(s)"
            )
        axes.set_xticks(range(3), list(GRANULARITIES))
        axes.set_xlim(-0.45, 2.5)
        axes.set_ylabel("displacement D0, log axis", fontsize=10)
        noise = f" Noise floor {min(noises):.4f} to {max(noises):.4f}." if noises else ""
        return finish(
            figure,
            "1b" if view == "F" else "1c",
            f"Displacement on {view}",
            f"Displacement on {view} by granularity. {'; '.join(said)}.{noise}",
        )


def figure_s2(ledger: Ledger) -> PaperFigure:
    """Displacement and retained accuracy by backbone."""
    rows = _first(ledger.of(DisplacementRow))
    models = sorted({row.model for row in rows})
    panels: list[tuple[str, Panel | None]] = []
    for view in ("F", "G"):
        lines = []
        for model in models:
            marks = [
                Mark(
                    value=value,
                    low=row.d0_f_lo if view == "F" else row.d0_g_lo,
                    high=row.d0_f_hi if view == "F" else row.d0_g_hi,
                    series=GRANULARITIES.index(row.granularity) if row.granularity in GRANULARITIES else 3,
                    marker=_marker(row.granularity),
                )
                for row in rows
                if row.model == model and (value := _value(row, view)) is not None
            ]
            if marks:
                lines.append((model, marks))
        kinds = [name for name in (*GRANULARITIES, "custom") if any(row.granularity == name for row in rows)]
        panels.append(
            (
                f"displacement on {view}",
                forest(
                    lines,
                    key=f"s2-{view.lower()}",
                    caption=f"Displacement on {view}",
                    alternative=f"Displacement on {view} of {len(lines)} backbone(s), row intervals.",
                    axis="displacement D0",
                    items=[
                        (
                            name,
                            GRANULARITIES.index(name) if name in GRANULARITIES else 3,
                            _marker(name),
                            False,
                            False,
                        )
                        for name in kinds
                    ],
                )
                if lines
                else None,
            )
        )
    utility = []
    for model in models:
        row = next(
            (
                item
                for name in reversed(GRANULARITIES)
                for item in rows
                if item.model == model and item.granularity == name
            ),
            None,
        )
        if row is not None and row.acc_full is not None and row.acc_oracle is not None:
            utility.append(
                (
                    model,
                    [
                        Mark(value=row.acc_full, series=0, lane=0.0),
                        Mark(value=row.acc_oracle, series=1, marker="s", open=True, lane=0.0),
                    ],
                )
            )
    panels.append(
        (
            "retained accuracy",
            forest(
                utility,
                key="s2-r",
                caption="Retained accuracy",
                alternative=f"Retained accuracy of full model and oracle, {len(utility)} backbone(s).",
                axis="accuracy on R",
                items=[("full model", 0, "o", False, False), ("oracle", 1, "s", True, False)],
                reference=None,
            )
            if utility
            else None,
        )
    )
    return figure_of("S2", panels)


def _marker(granularity: str) -> str:
    return {"example": "^", "association": "D", "class": "o"}.get(granularity, "s")
