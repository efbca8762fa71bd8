"""One picture of a checkpoint's way: how far it moved, what it lost, what it relearned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vestige.report.drawing import INK, MUTED, RULE, WIDTH, Panel, drawing
from vestige.report.footprint.drawn import (
    class_color,
    class_key,
    class_marker,
    class_order,
    percent,
    shift_axes,
    top_of,
)
from vestige.report.paper_figures.base import finish, key_rows, legend
from vestige.report.words import cut, short

__all__ = ["WayRow", "way"]

CAPTION = "Moved, behaves, returns"
_TICKS = (0.0, 1.5, 6.0, 25.0, 100.0, 400.0)
"""Fewer than a whole figure's, for a narrow column."""


@dataclass(frozen=True, kw_only=True)
class WayRow:
    """A checkpoint. moved: CoFi on forget text, percent. lost: of the forget accuracy, percent of the base's.
    returned: gained by relearning, memory or not, points. None where not measured. retrained: without the
    forget text, so that what it gains is learned anew."""

    checkpoint: str
    class_name: str
    moved: float | None = None
    lost: float | None = None
    returned: float | None = None
    retrained: bool = False


_PARTS: tuple[tuple[str, Callable[[WayRow], float | None]], ...] = (
    ("CoFi forget, %", lambda row: row.moved),
    ("accuracy lost, %", lambda row: row.lost),
    ("relearned, points", lambda row: row.returned),
)


def way(rows: Sequence[WayRow], *, key: str) -> Panel | None:
    """Three columns of marks, a row a checkpoint, by class, retrained ones last and hollow; None without any
    loss and any return."""
    if all(row.lost is None for row in rows) and all(row.returned is None for row in rows):
        return None
    ordered = sorted(rows, key=lambda row: (row.retrained, class_order(row.class_name), row.moved or 0.0))
    items = class_key([row.class_name for row in ordered])
    if any(row.retrained for row in ordered):
        items.append(("hollow: retrained", 5, "o", True, False))
    over = 0.2 + 0.2 * key_rows(items, 2)
    height = over + 0.26 * len(ordered) + 0.6
    names, gap, bottom = 1.32, 0.16, 0.52
    with drawing() as figure:
        figure.set_size_inches(WIDTH, height)
        each = (WIDTH - names - 2 * gap - 0.14) / 3
        for place, (title, read) in enumerate(_PARTS):
            left = names + place * (each + gap)
            axes = figure.add_axes(
                (left / WIDTH, bottom / height, each / WIDTH, (height - over - bottom) / height)
            )
            axes.set_ylim(len(ordered) - 0.5, -0.5)
            known = [value for row in ordered if (value := read(row)) is not None]
            if place == 0:
                top = top_of(known)
                shift_axes(axes, "x", top)
                axes.set_xticks([tick for tick in _TICKS if tick <= top])
                axes.set_yticks(range(len(ordered)), [cut(row.checkpoint, 17) for row in ordered], fontsize=9)
                axes.tick_params(axis="y", length=0, labelcolor=INK)
                legend(axes, items, columns=2)
            else:
                spread = max([abs(value) for value in known], default=1.0) or 1.0
                axes.set_xlim(min([0.0, *known]) - 0.08 * spread, max([0.0, *known]) + 0.12 * spread)
                axes.set_yticks([])
                axes.locator_params(axis="x", nbins=3)
            axes.spines["left"].set_visible(False)
            axes.axvline(0, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)), zorder=1)
            axes.set_xlabel(title, fontsize=9)
            axes.tick_params(axis="x", labelsize=8, length=3)
            for line, row in enumerate(ordered):
                axes.axhline(line, color=RULE, linewidth=0.5, zorder=0)
                value = read(row)
                if value is None:
                    axes.text(0, line, " –", fontsize=9, color=MUTED, va="center", ha="left")
                    continue
                color = class_color(row.class_name)
                axes.plot([0, value], [line, line], color=color, linewidth=1.6, zorder=2)
                axes.plot(
                    [value], [line], marker=class_marker(row.class_name), markersize=6, color=color,
                    linestyle="none", zorder=3, clip_on=False,
                    markerfacecolor="white" if row.retrained else color,
                )  # fmt: skip
        said = "; ".join(
            f"{short(row.checkpoint)} ({_kind(row)}): moved {percent(row.moved)} %, lost "
            f"{_said(row.lost)} %, relearned {_said(row.returned)} points"
            for row in ordered
        )
        return finish(figure, key, CAPTION, f"{said}.")


def _kind(row: WayRow) -> str:
    return f"{row.class_name}, retrained" if row.retrained else row.class_name


def _said(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f}"
