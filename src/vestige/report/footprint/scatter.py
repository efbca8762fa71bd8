"""Scatters of footprints: shift on forget against adjacent text, and what relearning brings back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vestige.report.drawing import BAND, INK, MUTED, RULE, WIDTH, Panel
from vestige.report.footprint.drawn import (
    NO_OP,
    class_color,
    class_key,
    class_marker,
    class_order,
    label_points,
    percent,
    shift_axes,
    top_of,
)
from vestige.report.footprint.rows import CheckpointRow, RegimeRow, class_word
from vestige.report.paper_figures.base import canvas, finish, key_rows, legend
from vestige.report.words import cut, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["localisation", "regimes"]

MARGINAL = "Ellipses: the two intervals side by side (marginal, 95 % each), not a joint region."
_STEPS = 72


def localisation(rows: Sequence[CheckpointRow], *, key: str, caption: str = "") -> Panel | None:
    """Shift on forget text (x) against adjacent text (y), a mark a checkpoint; None without both.

    Below the diagonal forget text moved more than adjacent text. The corner where both are below 1.5 % is
    shaded; the class asks it of every single corpus. Ellipses have the half-widths as their half-axes.
    """
    known = [row for row in rows if row.forget is not None and row.adjacent is not None]
    if not known:
        return None
    caption = caption or "Shift on forget and on adjacent text"
    ends = [
        value + (half or 0.0)
        for row in known
        for value, half in ((row.forget, row.forget_half), (row.adjacent, row.adjacent_half))
        if value is not None
    ]
    top = top_of(ends)
    items = class_key([row.class_name for row in known])
    over = 0.14 + 0.2 * key_rows(items, 2)
    with canvas(WIDTH, 4.5 + over, left=0.62, right=0.2, top=over) as (figure, axes):
        shift_axes(axes, "x", top)
        shift_axes(axes, "y", top)
        axes.fill_between([0, NO_OP], 0, NO_OP, color=BAND, linewidth=0, zorder=0)
        axes.plot([0, top], [0, top], color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
        for row in known:
            _ellipse(axes, row)
        for row in known:
            axes.plot(
                [row.forget or 0.0], [row.adjacent or 0.0], marker=class_marker(row.class_name),
                color=class_color(row.class_name), markersize=6.5, linestyle="none", zorder=4, clip_on=False,
                markerfacecolor="none" if row.oracle else class_color(row.class_name), markeredgewidth=1.3,
            )  # fmt: skip
        axes.text(
            0.02, 0.98, "adjacent text moved more", transform=axes.transAxes, fontsize=8.5, color=MUTED,
            ha="left", va="top",
        )  # fmt: skip
        axes.text(
            0.99, 0.02, "forget text moved more", transform=axes.transAxes, fontsize=8.5, color=MUTED,
            ha="right", va="bottom",
        )  # fmt: skip
        axes.set_xlabel("CoFi on forget text, %", fontsize=10)
        axes.set_ylabel("CoFi on adjacent text, %", fontsize=10)
        legend(axes, items, columns=2)
        label_points(figure, axes, [(row.forget or 0.0, row.adjacent or 0.0, row.label) for row in known])
        said = "; ".join(
            f"{short(row.label)} forget {_with_half(row.forget, row.forget_half)}, adjacent "
            f"{_with_half(row.adjacent, row.adjacent_half)}, {row.class_name}"
            for row in known
        )
        words = f"Percent. The no-op corner ends at {NO_OP:g} on both axes. {said}. {MARGINAL}"
        return finish(figure, key, caption, words)


def _with_half(value: float | None, half: float | None) -> str:
    return percent(value) if half is None else f"{percent(value)} ± {percent(half)}"


def _ellipse(axes: Axes, row: CheckpointRow) -> None:
    """The axis-aligned ellipse of the two half-widths, in the axes' own scale, cut at 0."""
    if row.forget is None or row.adjacent is None or not row.forget_half or not row.adjacent_half:
        return
    turns = [2 * math.pi * step / _STEPS for step in range(_STEPS)]
    x = [max(row.forget + row.forget_half * math.cos(turn), 0.0) for turn in turns]
    y = [max(row.adjacent + row.adjacent_half * math.sin(turn), 0.0) for turn in turns]
    color = class_color(row.class_name)
    axes.fill(x, y, facecolor=color, alpha=0.16, edgecolor="none", zorder=2)
    axes.plot([*x, x[0]], [*y, y[0]], color=color, linewidth=0.8, zorder=3)


def regimes(rows: Sequence[RegimeRow], *, key: str) -> tuple[Panel, ...]:
    """What relearning brings back: recovery over the shift, and accuracy before and after it. No panels
    without rows."""
    if not rows:
        return ()
    return _recovery(rows, key), _before_after(rows, key)


def _recovery(rows: Sequence[RegimeRow], key: str) -> Panel:
    caption = "Recovery by relearning, over the shift on forget text"
    items = class_key([row.class_name for row in rows])
    over = 0.14 + 0.2 * key_rows(items, 2)
    with canvas(WIDTH, 3.5 + over, left=0.7, right=0.2, top=over) as (figure, axes):
        shift_axes(axes, "x", top_of([row.cofi_forget for row in rows]))
        axes.axvspan(0, NO_OP, color=BAND, linewidth=0, zorder=0)
        axes.axhline(0, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
        values = [100 * row.recovery for row in rows]
        for row, value in zip(rows, values, strict=True):
            axes.plot(
                [row.cofi_forget], [value], marker=class_marker(row.class_name), markersize=6.5,
                color=class_color(row.class_name), linestyle="none", zorder=3, clip_on=False,
            )  # fmt: skip
        spread = max(max(values) - min(values), 1.0)
        axes.set_ylim(min(*values, 0) - 0.1 * spread, max(*values, 0) + 0.15 * spread)
        axes.set_xlabel("CoFi on forget text before relearning, %", fontsize=10)
        axes.set_ylabel(f"recovered {rows[0].score}, points", fontsize=10)
        axes.locator_params(axis="y", nbins=6)
        legend(axes, items, columns=2)
        label_points(
            figure,
            axes,
            [(row.cofi_forget, value, row.checkpoint) for row, value in zip(rows, values, strict=True)],
        )
        said = "; ".join(
            f"{short(row.checkpoint)} ({row.class_name}): shift {percent(row.cofi_forget)} %, recovery "
            f"{100 * row.recovery:+.1f} points"
            for row in rows
        )
        return finish(figure, f"{key}-recovery", caption, f"{said}.")


def _before_after(rows: Sequence[RegimeRow], key: str) -> Panel:
    what = (
        "Accuracy on forget questions" if rows[0].score == "accuracy" else "Token probability of forget text"
    )
    caption = f"{what} before and after relearning"
    ordered = sorted(rows, key=lambda row: (class_order(row.class_name), -row.recovery))
    items = [("before", 5, "o", True, False), *class_key([row.class_name for row in ordered])]
    over = 0.16 + 0.2 * key_rows(items, 2)
    height = over + 0.25 * len(ordered) + 0.55
    with canvas(WIDTH, height, left=1.5, right=0.25, bottom=0.5, top=over) as (figure, axes):
        axes.set_ylim(len(ordered) - 0.5, -0.5)
        axes.set_yticks(range(len(ordered)), [cut(row.checkpoint, 19) for row in ordered], fontsize=9.5)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.spines["left"].set_visible(False)
        for place, row in enumerate(ordered):
            color = class_color(row.class_name)
            axes.axhline(place, color=RULE, linewidth=0.5, zorder=0)
            axes.plot([row.before, row.after], [place, place], color=color, linewidth=2.0, zorder=2)
            axes.plot(
                [row.before], [place], marker="o", markersize=5.5, color=MUTED, markerfacecolor="none",
                linestyle="none", zorder=3, clip_on=False,
            )  # fmt: skip
            axes.plot(
                [row.after], [place], marker=class_marker(row.class_name), markersize=6.5, color=color,
                linestyle="none", zorder=4, clip_on=False,
            )  # fmt: skip
        axes.set_xlabel(what.lower(), fontsize=10)
        axes.locator_params(axis="x", nbins=6)
        legend(axes, items, columns=2)
        said = "; ".join(
            f"{short(row.checkpoint)} {row.before:.3f} to {row.after:.3f} ({class_word(row.class_name)})"
            for row in ordered
        )
        return finish(figure, f"{key}-before", caption, f"{said}.")
