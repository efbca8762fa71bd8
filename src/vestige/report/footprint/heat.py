"""Maps of footprints: methods by corpora, layers by projections, classes by methods and models.

A value is the strength of one colour, in steps; the number stands in the cell where there is room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vestige.footprint.tables import signed_text
from vestige.report.drawing import ACCENT, INK, MUTED, RULE, SERIES, WIDTH, Panel
from vestige.report.footprint.drawn import (
    class_color,
    class_key,
    class_marker,
    class_order,
    percent,
)
from vestige.report.footprint.rows import CheckpointRow, ShiftRow, class_word
from vestige.report.paper_figures.base import canvas, finish, key_rows, legend
from vestige.report.words import cut, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vestige.footprint.records import ModuleShift

__all__ = ["class_grid", "heat_maps", "module_maps"]

_STEPS = 10
_STRONGEST = 0.55
"""Opacity of the largest value: ink on it stays readable on light and on dark pages."""
_MOST_NUMBERED = 20
_ROLES = {"forget": "forget", "adjacent": "adjacent", "generic": "generic"}


@dataclass(frozen=True)
class _Measure:
    field: str
    title: str
    signed: bool = False


_MEASURES = (
    _Measure("cofi", "CoFi, %"),
    _Measure("chess", "CHess, %"),
    _Measure("log10_ppl", "log10 perplexity ratio", signed=True),
)


def heat_maps(rows: Sequence[ShiftRow], *, key: str) -> tuple[Panel, ...]:
    """CoFi, CHess and log10 perplexity ratio as checkpoints by corpora, rows grouped by class. A panel for
    each that was measured."""
    labels = {row.label: row.class_name for row in rows}
    ordered = sorted(labels, key=lambda label: class_order(labels[label]))
    corpora = sorted(
        dict.fromkeys((row.corpus, row.role) for row in rows), key=lambda pair: list(_ROLES).index(pair[1])
    )
    panels = []
    for measure in _MEASURES:
        values = {(row.label, row.corpus): getattr(row, measure.field) for row in rows}
        if any(value is not None for value in values.values()):
            panels.append(_heat(measure, ordered, labels, corpora, values, key))
    return tuple(panels)


def _heat(
    measure: _Measure,
    ordered: Sequence[str],
    classes: Mapping[str, str],
    corpora: Sequence[tuple[str, str]],
    values: Mapping[tuple[str, str], float | None],
    key: str,
) -> Panel:
    places, heads = _grouped(ordered, classes)
    height = 0.2 * (len(ordered) + len(heads)) + 0.5
    largest = max((abs(value) for value in values.values() if value is not None), default=0.0)
    with canvas(WIDTH, height, left=1.5, right=0.05, bottom=0.05, top=0.45) as (figure, axes):
        _plain_axes(axes, len(corpora), len(ordered) + len(heads))
        axes.set_xticks(
            [place + 0.5 for place in range(len(corpora))],
            [
                f"{cut(name, max(6, 40 // len(corpora)))}\n{_ROLES[role] if role != name else ''}"
                for name, role in corpora
            ],
            fontsize=8.5,
        )
        axes.set_yticks(
            [place + 0.5 for place in places.values()], [cut(name, 21) for name in places], fontsize=9
        )
        for place, name in heads:
            axes.text(
                0, place + 0.62, name, fontsize=8.5, color=class_color(name), ha="left", va="center",
                fontweight="bold",
            )  # fmt: skip
        cells = []
        for label, place in places.items():
            for column, (corpus, _) in enumerate(corpora):
                value = values.get((label, corpus))
                cells.append((column, place, value))
                text = "–" if value is None else _signed(value) if measure.signed else percent(value)
                axes.text(
                    column + 0.5, place + 0.52, text, fontsize=8.5, color=INK, ha="center", va="center",
                    zorder=3,
                )  # fmt: skip
        _fill(axes, cells, largest, signed=measure.signed)
        said = "; ".join(
            f"{short(label)} ({class_word(classes[label])}): "
            + ", ".join(
                f"{corpus} {'–' if (v := values.get((label, corpus))) is None else f'{v:.3g}'}"
                for corpus, _ in corpora
            )
            for label in places
        )
        return finish(
            figure, f"{key}-{measure.field}", measure.title, f"{measure.title}. {said}.", cells=True
        )


def _signed(value: float) -> str:
    return signed_text(value).replace("-", "−")


def _grouped(
    ordered: Sequence[str], classes: Mapping[str, str]
) -> tuple[dict[str, int], list[tuple[int, str]]]:
    """Line of each checkpoint, and (line, class) of the heads between them."""
    places: dict[str, int] = {}
    heads: list[tuple[int, str]] = []
    line, last = 0, None
    for label in ordered:
        name = classes[label] if class_word(classes[label]) != "undefined" else "undefined"
        if name != last:
            heads.append((line, name))
            line, last = line + 1, name
        places[label] = line
        line += 1
    return places, heads


def _plain_axes(axes: Axes, columns: int, lines: int) -> None:
    axes.set_xlim(0, columns)
    axes.set_ylim(lines, 0)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelcolor=INK, pad=3)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _fill(
    axes: Axes, cells: Sequence[tuple[int, int, float | None]], largest: float, *, signed: bool
) -> None:
    """The cells as squares with small gaps, one path a step of strength."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    steps: dict[tuple[int, bool], list[tuple[int, int]]] = {}
    for column, line, value in cells:
        share = 0.0 if value is None or largest <= 0 else (abs(value) / largest) ** 0.5
        steps.setdefault((round(share * _STEPS), value is not None and value < 0), []).append((column, line))
    gap = 0.03
    for (step, below), members in steps.items():
        squares = Path.make_compound_path(
            *(
                Path(
                    [
                        (column + gap, line + gap),
                        (column + 1 - gap, line + gap),
                        (column + 1 - gap, line + 1 - gap),
                        (column + gap, line + 1 - gap),
                        (column + gap, line + gap),
                    ],
                    closed=True,
                )
                for column, line in members
            )
        )
        color = (SERIES[1] if not below else ACCENT) if signed else ACCENT
        strength = _STRONGEST * step / _STEPS
        axes.add_patch(
            PathPatch(
                squares, facecolor=color if step else RULE, alpha=strength or 0.25, linewidth=0, zorder=1
            )
        )


def module_maps(modules: Sequence[ModuleShift], *, key: str, name: str) -> tuple[Panel, ...]:
    """Layers by projections: the module's own shift beside its share of the squared shift. name: what is
    drawn, such as `RMU on bio`. No panels where no module has a layer and a projection."""
    known = [module for module in modules if module.layer is not None and module.projection is not None]
    if not known:
        return ()
    order = ("q", "k", "v", "qkv", "o", "gate", "up", "gate_up", "down")
    columns = sorted(
        {str(module.projection) for module in known},
        key=lambda text: (order.index(text) if text in order else len(order), text),
    )
    layers = sorted({module.layer for module in known if module.layer is not None})
    panels = []
    for field, title, unit in (
        ("shift", "own shift", "%"),
        ("share", "share of the squared shift", "%"),
    ):
        values = {
            (module.layer, module.projection): (
                value * (100 if field == "share" else 1)
                if isinstance(value := getattr(module, field), float)
                else None
            )
            for module in known
        }
        panels.append(_modules(layers, columns, values, f"{key}-{field}", f"{name}: {title}", unit))
    return tuple(panels)


def _modules(
    layers: Sequence[int],
    columns: Sequence[str],
    values: Mapping[tuple[int | None, str | None], float | None],
    key: str,
    caption: str,
    unit: str,
) -> Panel:
    numbered = len(layers) <= _MOST_NUMBERED
    pitch = 0.21 if numbered else max(0.1, min(0.21, 5.0 / len(layers)))
    present = {place: value for place, value in values.items() if value is not None}
    largest = max(present.values(), default=0.0)
    with canvas(WIDTH, pitch * len(layers) + 0.6, left=0.55, right=0.05, bottom=0.32, top=0.28) as (
        figure,
        axes,
    ):
        _plain_axes(axes, len(columns), len(layers))
        axes.set_xticks([place + 0.5 for place in range(len(columns))], list(columns), fontsize=9)
        every = 1 if numbered else max(1, round(len(layers) / 16))
        axes.set_yticks(
            [place + 0.5 for place in range(0, len(layers), every)],
            [str(layer) for layer in layers[::every]],
            fontsize=8.5,
        )
        axes.set_ylabel("layer", fontsize=9.5)
        cells = [
            (column, line, values.get((layer, projection)))
            for line, layer in enumerate(layers)
            for column, projection in enumerate(columns)
        ]
        _fill(axes, cells, largest, signed=False)
        if numbered:
            for column, line, value in cells:
                axes.text(
                    column + 0.5, line + 0.52, percent(value), fontsize=8.5, color=INK, ha="center",
                    va="center", zorder=3,
                )  # fmt: skip
        axes.text(
            0, -0.02, f"strongest colour: {percent(largest)} {unit}", transform=axes.transAxes,
            fontsize=8.5, color=MUTED, va="top",
        )  # fmt: skip
        most = sorted(present.items(), key=lambda item: -item[1])[:5]
        said = ", ".join(f"layer {place[0]} {place[1]} {percent(value)} {unit}" for place, value in most)
        return finish(
            figure,
            key,
            caption,
            f"{len(layers)} layers by {len(columns)} projections. Largest: {said or 'none'}.",
            cells=True,
        )


def class_grid(rows: Sequence[CheckpointRow], *, key: str, caption: str) -> Panel | None:
    """Published classes as methods by models. Several runs of a cell: how many have the class that most have;
    `?` where sampling of text could change a class. None without rows."""
    rows = [row for row in rows if not row.oracle]
    if not rows:
        return None
    models = list(dict.fromkeys(row.model for row in rows))
    methods = list(dict.fromkeys(row.label for row in rows))
    cells: dict[tuple[str, str], list[CheckpointRow]] = {}
    for row in rows:
        cells.setdefault((row.label, row.model), []).append(row)
    items = class_key([row.class_name for row in rows])
    over = 0.4 + 0.2 * key_rows(items, 2)
    room = (WIDTH - 1.55) / len(models)
    with canvas(WIDTH, 0.24 * len(methods) + over + 0.05, left=1.5, right=0.05, bottom=0.05, top=over) as (
        figure,
        axes,
    ):
        _plain_axes(axes, len(models), len(methods))
        axes.set_xticks(
            [place + 0.5 for place in range(len(models))],
            [cut(name, max(5, int(room / 0.058))) for name in models],
            fontsize=8.5,
        )
        axes.set_yticks(
            [place + 0.5 for place in range(len(methods))], [cut(name, 21) for name in methods], fontsize=9
        )
        said = []
        for line, method in enumerate(methods):
            for column, model in enumerate(models):
                found = cells.get((method, model), [])
                if not found:
                    axes.text(
                        column + 0.5, line + 0.52, "–", fontsize=8.5, color=MUTED, ha="center", va="center"
                    )
                else:
                    said.append(
                        f"{short(method)} on {short(model)}: {_class_cell(axes, column, line, found, room)}"
                    )
        legend(axes, items, columns=2)
        made = axes.get_legend()
        if made is not None:
            made.set_bbox_to_anchor((-0.02, 1.0 + 0.28 / (0.24 * len(methods))))
        return finish(figure, key, caption, f"{'; '.join(said)}.", cells=True)


def _class_cell(axes: Axes, column: int, line: int, found: Sequence[CheckpointRow], room: float) -> str:
    """Draw a cell of the class grid; what it says in words."""
    counts: dict[str, int] = {}
    for row in found:
        counts[row.class_name] = counts.get(row.class_name, 0) + 1
    name = max(counts, key=lambda word: counts[word])
    color = class_color(name)
    _square(axes, column, line, color)
    agreement = f" {counts[name]}/{len(found)}" if len(found) > 1 else ""
    doubt = "?" if any(row.undetermined for row in found) else ""
    wide = room >= 0.82
    axes.plot(
        [column + (0.09 if wide else 0.5 if not agreement and not doubt else 0.3)], [line + 0.5],
        marker=class_marker(name), markersize=5.5, color=color, linestyle="none", zorder=3,
    )  # fmt: skip
    text = f"{class_word(name)}{agreement}{doubt}" if wide else f"{agreement}{doubt}".strip()
    if text:
        axes.text(
            column + (0.17 if wide else 0.65), line + 0.52, text, fontsize=8.5, color=INK,
            ha="left" if wide else "center", va="center", zorder=3,
        )  # fmt: skip
    return f"{name}{f' ({counts[name]} of {len(found)} runs)' if agreement else ''}" + (
        " (undetermined)" if doubt else ""
    )


def _square(axes: Axes, column: int, line: int, color: str) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(
        Rectangle(
            (column + 0.02, line + 0.06), 0.96, 0.88, facecolor=color, alpha=0.18, linewidth=0, zorder=1
        )
    )
