"""What footprint figures share: marks and colours of classes, shift axes, free places for labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vestige.report.drawing import INK, SERIES
from vestige.report.footprint.rows import CLASSES, class_word
from vestige.report.words import cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "NO_OP",
    "class_color",
    "class_key",
    "class_marker",
    "class_order",
    "label_points",
    "percent",
    "shift_axes",
]

NO_OP = 1.5
"""Percent: the published no-op threshold, where figures draw the corner."""
_MARKS = {
    "no-op": (5, "o"),
    "partially-localized": (0, "^"),
    "collateral-dominant": (4, "s"),
    "globally-destructive": (1, "D"),
}
"""Class -> (colour, mark): no green, no red and no cross, for no class is a success or a failure."""
_OTHER = (5, "P")
_TICKS = (0.0, 0.75, 1.5, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0, 200.0, 400.0)


def class_color(name: str) -> str:
    """The colour of a class."""
    return SERIES[_MARKS.get(name, _OTHER)[0]]


def class_marker(name: str) -> str:
    """The mark of a class."""
    return _MARKS.get(name, _OTHER)[1]


def class_order(name: str) -> int:
    """Place of a class in figures, undefined ones last."""
    return CLASSES.index(name) if name in CLASSES else len(CLASSES)


def class_key(names: Sequence[str]) -> list[tuple[str, int, str, bool, bool]]:
    """Entries of a figure's key, as `paper_figures.base.legend` takes them, for the classes there are."""
    present = sorted({name if name in CLASSES else "undefined" for name in names}, key=class_order)
    return [
        (name if name in CLASSES else class_word(name), *_MARKS.get(name, _OTHER), False, False)
        for name in present
    ]


def percent(value: float | None) -> str:
    """A shift in percent with about three digits: `0.03`, `7.05`, `51.7`, `373`; a dash where undefined."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    size = abs(value)
    if size < 0.01:
        return f"{value:.1e}"
    return f"{value:.2f}" if size < 10 else f"{value:.1f}" if size < 100 else f"{value:,.0f}"


def shift_axes(axes: Axes, which: str, top: float) -> None:
    """A shift axis from 0: even up to 1.5 %, logarithmic above it."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    set_scale, set_limits, axis = (
        (axes.set_xscale, axes.set_xlim, axes.xaxis)
        if which == "x"
        else (axes.set_yscale, axes.set_ylim, axes.yaxis)
    )
    set_scale("symlog", linthresh=NO_OP, linscale=0.35)
    set_limits(0, top)
    axis.set_major_locator(FixedLocator([tick for tick in _TICKS if tick <= top]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def top_of(values: Sequence[float]) -> float:
    """Where a shift axis ends that has to hold these values."""
    return max(3.0, 1.35 * max(values, default=0.0))


def label_points(
    figure: Figure, axes: Axes, points: Sequence[tuple[float, float, str]], *, size: float = 8.5
) -> None:
    """Names beside points where there is room: of eight places around a point the first that covers no other
    name or point. A name without a free place is left out: the table has it."""
    width, height = figure.get_size_inches() * 72
    box = axes.get_position()
    to_point = axes.transData
    scale = 72 / figure.dpi
    spots = [tuple(to_point.transform((x, y)) * scale) for x, y, _ in points]
    left, right = box.x0 * width, min(box.x1 * width + 8, width)
    bottom, top = box.y0 * height, box.y1 * height
    taken: list[tuple[float, float, float, float]] = [(x - 4, y - 4, x + 4, y + 4) for x, y in spots]
    offsets = ((6, 0), (-6, 0), (0, 9), (0, -9), (6, 9), (6, -9), (-6, 9), (-6, -9), (0, 18), (0, -18))
    for (x, y), (at_x, at_y, name) in zip(spots, points, strict=True):
        text = cut(name, 20)
        long = 0.56 * size * len(text)
        for right_by, up in offsets:
            anchor = "left" if right_by > 0 else "right" if right_by < 0 else "center"
            start = x + right_by - {"left": 0, "right": long, "center": long / 2}[anchor]
            found = (start, y + up - size * 0.6, start + long, y + up + size * 0.6)
            if found[0] < left or found[2] > right or found[1] < bottom or found[3] > top:
                continue
            if any(_touch(found, other) for other in taken if other != (x - 4, y - 4, x + 4, y + 4)):
                continue
            taken.append(found)
            axes.annotate(
                text,
                (at_x, at_y),
                xytext=(right_by, up),
                textcoords="offset points",
                ha=anchor,
                va="center",
                fontsize=size,
                color=INK,
                annotation_clip=False,
            )
            break


def _touch(one: tuple[float, float, float, float], two: tuple[float, float, float, float]) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]
