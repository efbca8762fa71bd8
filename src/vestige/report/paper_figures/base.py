"""What numbered figures are drawn with: forests of intervals, scatters and lines in one style.

Colour never stands alone: series differ in the shape of their marks or the dash of their lines too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vestige.report.drawing import INK, MUTED, RULE, SERIES, WIDTH, Panel, drawing, inline, svg_text
from vestige.report.paper_index import FIGURES, Entry
from vestige.report.words import cut, listed, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = [
    "Line",
    "Mark",
    "PaperFigure",
    "Point",
    "canvas",
    "figure_of",
    "finish",
    "forest",
    "legend",
    "lines",
    "plain_ticks",
    "scatter",
    "style",
]

DASHED = (0, (4, 2))
DOTTED = (0, (1, 2))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
_LABEL = 30


@dataclass(frozen=True, kw_only=True)
class PaperFigure:
    """A numbered figure. lettered: letter (empty for a single panel) and drawing of each panel there is;
    not_run: what the folder holds nothing of, in words."""

    entry: Entry
    lettered: tuple[tuple[str, Panel], ...]
    not_run: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def number(self) -> str:
        """`2`, `S3`."""
        return self.entry.number

    @property
    def present(self) -> bool:
        """Whether there is any drawing."""
        return bool(self.lettered)

    @property
    def heading(self) -> str:
        """`Figure S3. Progress against retained accuracy`."""
        return f"Figure {self.number}. {self.entry.title}"

    @property
    def caption(self) -> str:
        """The caption with its caveats and what was not run."""
        lost = f" Not run: {listed(list(self.not_run))} ({self.entry.made_by})." if self.not_run else ""
        return " ".join([self.entry.caption, *self.notes]) + lost


def figure_of(figure: str, panels: Sequence[tuple[str, Panel | None]]) -> PaperFigure:
    """A figure of panels in order. panels: (what it shows, drawing or None where it was not run); panels of
    the same words share a letter: A1, A2."""
    names = list(dict.fromkeys(what for what, _ in panels))
    drawn: list[tuple[str, Panel]] = []
    for place, (what, panel) in enumerate(panels):
        if panel is None:
            continue
        same = [at for at, (other, _) in enumerate(panels) if other == what]
        number = str(same.index(place) + 1) if len(same) > 1 else ""
        letter = "abcdefghijklmnopqrstuvwxyz"[names.index(what) % 26]
        drawn.append((f"{letter}{number}" if len(panels) > 1 else "", panel))
    lost = tuple(dict.fromkeys(what for what, panel in panels if panel is None)) if drawn else ()
    return PaperFigure(entry=FIGURES[figure], lettered=tuple(drawn), not_run=lost)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One value on a line of a forest. low, high: thick interval; far_low, far_high: thin one.

    series: place of its colour; marker: its shape; open: not filled; dashed: interval in dashes. lane: where
    it stands in its row, from -1 (top) to 1; default below the mark before it.
    """

    value: float
    low: float | None = None
    high: float | None = None
    far_low: float | None = None
    far_high: float | None = None
    series: int = 0
    marker: str = "o"
    open: bool = False
    dashed: bool = False
    lane: float | None = None
    size: float = 5.0


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a scatter; group: its entry in the key."""

    x: float
    y: float
    group: str = ""
    series: int = 0
    marker: str = "o"
    open: bool = False
    x_low: float | None = None
    x_high: float | None = None
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line through points, with a mark at each unless `marker` is empty."""

    x: Sequence[float]
    y: Sequence[float]
    group: str = ""
    series: int = 0
    marker: str = "o"
    dash: str = "solid"
    open: bool = False
    thin: bool = False


@contextmanager
def canvas(
    width: float = WIDTH,
    height: float = 3.2,
    *,
    left: float = 0.62,
    right: float = 0.12,
    bottom: float = 0.52,
    top: float = 0.34,
) -> Iterator[tuple[Figure, Axes]]:
    """A figure with one pair of axes, all sizes in inches."""
    with drawing() as figure:
        figure.set_size_inches(width, height)
        axes = figure.add_axes(
            (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
        )
        axes.tick_params(length=3)
        yield figure, axes


def finish(figure: Figure, key: str, caption: str, alternative: str, *, cells: bool = False) -> Panel:
    """The figure as a panel. key: begins its ids, unique on a page. cells: as of `Panel`."""
    return Panel(
        svg=inline(svg_text(figure), f"paper-{key}", caption, alternative),
        caption=plain(caption),
        alternative=plain(alternative),
        cells=cells,
    )


def style(series: int) -> str:
    """The colour of a series."""
    return SERIES[series % len(SERIES)]


def legend(axes: Axes, items: Sequence[tuple[str, int, str, bool, bool]], *, columns: int = 3) -> None:
    """A key above the axes. items: (words, series, marker, open, dashed)."""
    from matplotlib.lines import Line2D

    if not items:
        return
    handles = [
        Line2D(
            [],
            [],
            color=style(series),
            marker=marker or None,
            markerfacecolor="none" if hollow else style(series),
            markeredgecolor=style(series),
            markersize=5.5,
            linestyle=DASHED if dashed else "solid",
            linewidth=1.4,
        )
        for _, series, marker, hollow, dashed in items
    ]
    axes.legend(
        handles,
        [cut(words, _LABEL if columns > 1 else 2 * _LABEL) for words, *_ in items],
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=9,
        handlelength=1.8,
        columnspacing=1.1,
        handletextpad=0.5,
        borderaxespad=0.15,
        labelcolor=INK,
    )


def plain_ticks(axis: Axis) -> None:
    """Decimal numbers at the powers of ten of a log axis."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def key_rows(items: Sequence[object], columns: int) -> int:
    """Rows that a key of these entries needs."""
    return math.ceil(len(items) / columns)


def forest(
    rows: Sequence[tuple[str, Sequence[Mark]]],
    *,
    key: str,
    caption: str,
    alternative: str,
    axis: str,
    items: Sequence[tuple[str, int, str, bool, bool]] = (),
    columns: int = 3,
    reference: float | None = 0.0,
    notes: Sequence[str] = (),
    limits: tuple[float, float] | None = None,
    label_width: float = 1.75,
    width: float = WIDTH,
    pitch: float = 0.0,
    log: bool = False,
) -> Panel:
    """Values with intervals, a row a label; several marks of a row stand below each other.

    notes: one short text a row, right of the axes. log: a log axis, for values above 0. limits: of the axis;
    longer intervals end in an arrow.
    """
    lanes = max((sum(mark.lane is None for mark in marks) for _, marks in rows), default=1)
    pitch = pitch or max(0.24, 0.11 * lanes + 0.08)
    fits = int((label_width - 0.1) / 0.0715)
    note_width = 0.85 if any(notes) else 0.12
    top = 0.16 + 0.2 * key_rows(items, columns)
    height = top + pitch * max(len(rows), 1) + 0.5
    with canvas(width, height, left=label_width, right=note_width, bottom=0.48, top=top) as (figure, axes):
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), [cut(label, fits) for label, _ in rows], fontsize=9.5)
        axes.tick_params(axis="y", length=0)
        for text in axes.get_yticklabels():
            text.set_color(INK)
        if limits is not None:
            axes.set_xlim(*limits)
        elif rows and all(mark.value == 0 for _, marks in rows for mark in marks):
            axes.set_xlim(-0.02, 1.0)
        for place in range(len(rows)):
            axes.axhline(place, color=RULE, linewidth=0.5, zorder=0)
        if reference is not None:
            axes.axvline(reference, color=MUTED, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1)
        for place, (_, marks) in enumerate(rows):
            for lane, mark in enumerate(marks):
                spread = 0.62 / max(lanes, 1)
                offset = (lane - (len(marks) - 1) / 2) * spread if mark.lane is None else mark.lane * 0.4
                _draw_mark(axes, mark, place + offset, limits)
        for place, note in enumerate(notes):
            if note:
                axes.text(
                    1.015, place, cut(note, 16), transform=axes.get_yaxis_transform(),
                    ha="left", va="center", fontsize=8.5, color=MUTED,
                )  # fmt: skip
        axes.set_xlabel(axis, fontsize=10)
        if log:
            axes.set_xscale("log")
            plain_ticks(axes.xaxis)
        else:
            axes.locator_params(axis="x", nbins=6)
        axes.spines["left"].set_visible(False)
        legend(axes, items, columns=columns)
        return finish(figure, key, caption, alternative)


def _draw_mark(axes: Axes, mark: Mark, y: float, limits: tuple[float, float] | None) -> None:
    color = style(mark.series)
    dash = DASHED if mark.dashed else "solid"

    def inside(value: float) -> float:
        return value if limits is None else min(max(value, limits[0]), limits[1])

    if mark.far_low is not None and mark.far_high is not None:
        axes.plot([inside(mark.far_low), inside(mark.far_high)], [y, y], color=color, linewidth=0.9, zorder=2)
        for bound, symbol in ((mark.far_low, "<"), (mark.far_high, ">")):
            if inside(bound) != bound:
                axes.plot([inside(bound)], [y], marker=symbol, markersize=4, color=color, clip_on=False)
    if mark.low is not None and mark.high is not None:
        axes.plot(
            [inside(mark.low), inside(mark.high)],
            [y, y],
            color=color,
            linewidth=2.2,
            linestyle=dash,
            zorder=3,
        )
        for bound, symbol in ((mark.low, "<"), (mark.high, ">")):
            if inside(bound) != bound:
                axes.plot([inside(bound)], [y], marker=symbol, markersize=4, color=color, clip_on=False)
    axes.plot(
        [inside(mark.value)],
        [y],
        marker=mark.marker,
        markersize=mark.size,
        color=color,
        markerfacecolor="none" if mark.open else color,
        markeredgewidth=1.2,
        linestyle="none",
        zorder=4,
        clip_on=False,
    )


def scatter(
    points: Sequence[Point],
    *,
    key: str,
    caption: str,
    alternative: str,
    x_axis: str,
    y_axis: str,
    guides: Sequence[tuple[Point, Point]] = (),
    vertical: float | None = None,
    horizontal: float | None = None,
    diagonal: bool = False,
    columns: int = 3,
    height: float = 3.6,
    floor: float | None = None,
) -> Panel:
    """Points, their groups in a key; guides: pairs joined by dots. floor: points below it are drawn at it, as
    an arrow down."""
    groups: dict[str, Point] = {}
    for point in points:
        if point.group:
            groups.setdefault(point.group, point)
    items = [(name, item.series, item.marker, item.open, False) for name, item in groups.items()]
    top = 0.14 + 0.2 * key_rows(items, columns)
    with canvas(height=height + top, top=top, left=0.7) as (figure, axes):
        for value, draw in ((vertical, axes.axvline), (horizontal, axes.axhline)):
            if value is not None:
                draw(value, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)), zorder=0)
        if diagonal:
            known = [value for point in points for value in (point.x, point.y)]
            ends = [min(known), max(known)]
            axes.plot(ends, ends, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)), zorder=0)
        for one, other in guides:
            axes.plot(
                [one.x, other.x], [one.y, other.y], color=style(one.series), linestyle=DOTTED, linewidth=1.2
            )
        for point in points:
            color = style(point.series)
            if point.x_low is not None and point.x_high is not None:
                axes.plot([point.x_low, point.x_high], [point.y, point.y], color=color, linewidth=1.4)
            y = point.y if floor is None else max(point.y, floor)
            below = y != point.y
            axes.plot(
                [point.x],
                [y],
                marker=11 if below else point.marker,
                markersize=6,
                linestyle="none",
                color=color,
                clip_on=False,
                markerfacecolor="none" if point.open else color,
                markeredgewidth=1.2,
            )
            if point.label:
                axes.annotate(
                    cut(point.label, 22),
                    (point.x, point.y),
                    xytext=(6, 4),
                    textcoords="offset points",
                    fontsize=8.5,
                )
        axes.set_xlabel(x_axis, fontsize=10)
        axes.set_ylabel(y_axis, fontsize=10)
        axes.locator_params(nbins=6)
        if floor is not None and any(point.y < floor for point in points):
            axes.set_ylim(bottom=floor)
        legend(axes, items, columns=columns)
        return finish(figure, key, caption, alternative)


def lines(
    series: Sequence[Line],
    *,
    key: str,
    caption: str,
    alternative: str,
    x_axis: str,
    y_axis: str,
    columns: int = 3,
    height: float = 2.9,
    y_limits: tuple[float, float] | None = None,
    ticks: Sequence[float] = (),
    log_x: bool = False,
) -> Panel:
    """Lines over one x axis, their groups in a key. log_x: a log axis, for x above 0."""
    groups: dict[str, Line] = {}
    for item in series:
        if item.group:
            groups.setdefault(item.group, item)
    items = [
        (name, item.series, item.marker, item.open, item.dash != "solid") for name, item in groups.items()
    ]
    top = 0.14 + 0.2 * key_rows(items, columns)
    with canvas(height=height + top, top=top) as (figure, axes):
        for item in series:
            color = style(item.series)
            axes.plot(
                list(item.x),
                list(item.y),
                color=color,
                linewidth=0.9 if item.thin else 1.5,
                linestyle={"dashed": DASHED, "dotted": DOTTED}.get(item.dash, "solid"),
                marker=item.marker or None,
                markersize=4.5,
                markerfacecolor="none" if item.open else color,
            )
        axes.set_xlabel(x_axis, fontsize=10)
        axes.set_ylabel(y_axis, fontsize=10)
        axes.locator_params(axis="y", nbins=5)
        if log_x:
            axes.set_xscale("log")
            plain_ticks(axes.xaxis)
        if ticks:
            axes.set_xticks(list(ticks))
        if y_limits is not None:
            axes.set_ylim(*y_limits)
        legend(axes, items, columns=columns)
        return finish(figure, key, caption, alternative)
