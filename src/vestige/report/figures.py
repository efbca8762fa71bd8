"""Figures as inline SVG: small panels that follow the page's colours and fonts. Matplotlib without pyplot.

A panel is drawn about as wide as a phone, so that pages lay panels out side by side or below each other
without scaling their text. Colours are placeholders that become CSS variables, so one drawing serves light,
dark and print.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vestige.contracts import Assessment, Estimate, Interval, ModelAssessment, Undefined
from vestige.report.drawing import (
    ACCENT,
    BAND,
    INK,
    MUTED,
    RULE,
    SECOND,
    WIDTH,
    Panel,
    drawing,
    inline,
    svg_text,
)
from vestige.report.measures import (
    first_full,
    judged_distance,
    judged_spread,
    judged_start,
    measure,
    noise,
    unlearned_models,
    value_of,
)
from vestige.report.words import counted, cut, estimate_text, plain, short, styled, view_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Panel", "distance_panels", "mass_panels", "reliability_panel"]


def distance_panels(assessment: Assessment, prefix: str) -> tuple[Panel, ...]:
    """Remaining distance of every model under test, a panel a view, between retrained (0) and the full model.

    prefix: begins every id in the drawings. Views without a defined displacement give no panel.
    """
    panels = []
    for view in ("F", "G"):
        start = judged_start(assessment, view)
        if value_of(start) is None:
            continue
        entries = [(model.label, judged_distance(model, view)) for model in unlearned_models(assessment)]
        if not entries:
            continue
        floor = judged_spread(assessment, view)
        full_floor = value_of(noise(assessment, "full", view))
        known = [f"{short(label)} {estimate_text(item, 'number')}" for label, item in entries]
        words = view_words(view, assessment.unit_kind)
        alternative = (
            f"Distance to the retrained model on {words}. Full model {estimate_text(start, 'number')}; "
            f"{'; '.join(known)}. "
            + (
                f"Two retrainings differ by {styled(floor, 'number')}."
                if floor is not None
                else "What two retrainings differ by is not known."
            )
            + (
                f" Two full trainings differ by {styled(full_floor, 'number')}."
                if full_floor is not None
                else ""
            )
        )
        svg = _draw_distances(entries, start, floor, ("retrained", "full model"))
        panels.append(
            Panel(
                svg=inline(svg, f"{prefix}-{view}", f"Remaining distance on {words}", alternative),
                caption=f"{view} · {words}",
                alternative=alternative,
                marks=_marks(entries, floor),
            )
        )
    return tuple(panels)


def mass_panels(assessment: Assessment, prefix: str) -> tuple[Panel, ...]:
    """Probability left on the forgotten options, a panel a view: what can be shown without an oracle."""
    full = first_full(assessment)
    panels = []
    for view in ("F", "G"):
        start = measure(full, "forgotten_mass", view) if full else None
        entries = [
            (model.label, measure(model, "forgotten_mass", view)) for model in unlearned_models(assessment)
        ]
        if value_of(start) is None or all(item is None for _, item in entries):
            continue
        words = view_words(view, assessment.unit_kind)
        known = [f"{short(label)} {estimate_text(item, 'number')}" for label, item in entries]
        alternative = (
            f"Mean probability on the deleted options, {words}. Full model {estimate_text(start, 'number')}; "
            f"{'; '.join(known)}."
        )
        svg = _draw_distances(entries, start, None, ("none left", "full model"))
        panels.append(
            Panel(
                svg=inline(svg, f"{prefix}-{view}", f"Probability left on {words}", alternative),
                caption=f"{view} · {words}",
                alternative=alternative,
                marks=_marks(entries, None),
            )
        )
    return tuple(panels)


def reliability_panel(model: ModelAssessment, full: ModelAssessment | None, prefix: str) -> Panel:
    """Reliability diagram of a model on R, the full model behind it, and how many rows each bin has."""
    ece = measure(model, "ece", "R")
    worst = max(
        (
            (abs(float(item.confidence) - float(item.accuracy)), item)
            for item in model.reliability
            if not isinstance(item.confidence, Undefined) and not isinstance(item.accuracy, Undefined)
        ),
        key=lambda pair: pair[0] * pair[1].rows,
        default=None,
    )
    rows = sum(item.rows for item in model.reliability)
    alternative = (
        f"Accuracy against confidence of {short(model.label)} over {counted(rows, 'row', 'rows')}; "
        f"calibration error {estimate_text(ece, 'number')}."
    )
    if worst is not None:
        item = worst[1]
        alternative += (
            f" The bin that adds most to it, ({item.low:.2f}, {item.high:.2f}], has "
            f"{counted(item.rows, 'row', 'rows')}, confidence {styled(float(item.confidence), 'number')} and "  # type: ignore[arg-type]
            f"accuracy {styled(float(item.accuracy), 'number')}."  # type: ignore[arg-type]
        )
    svg = _draw_reliability(model, full if full is not None and full.label != model.label else None)
    return Panel(
        svg=inline(svg, prefix, f"Reliability of {short(model.label)}", alternative),
        caption=model.label,
        alternative=alternative,
    )


def _marks(entries: Sequence[tuple[str, Estimate | None]], floor: float | None) -> frozenset[str]:
    units = any(item is not None and isinstance(item.unit, Interval) for _, item in entries)
    return frozenset((["unit"] if units else []) + ([] if floor is None else ["band"]))


def _draw_distances(
    entries: Sequence[tuple[str, Estimate | None]],
    start: Estimate | None,
    floor: float | None,
    ends: tuple[str, str],
) -> str:
    origin = value_of(start) or 0.0
    rows = len(entries)
    bounds = [origin, floor or 0.0]
    for estimate in (start, *(item for _, item in entries)):
        value = value_of(estimate)
        bounds += [] if value is None else [value]
        if estimate is not None:
            bounds += [item.high for item in (estimate.row, estimate.unit) if isinstance(item, Interval)]
    right = max(bounds) * 1.06 or 1.0
    head, pitch, foot = 0.42, 0.52, 0.46
    height = head + pitch * max(rows, 1) + foot
    with drawing() as figure:
        figure.set_size_inches(WIDTH, height)
        axes = figure.add_axes((0.03, foot / height, 0.94, pitch * max(rows, 1) / height))
        axes.set_xlim(0, right)
        axes.set_ylim(rows, 0)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="x", length=3)
        axes.locator_params(axis="x", nbins=5)
        if floor is not None:
            axes.axvspan(0, floor, color=BAND, linewidth=0)
        axes.axvline(0, color=INK, linewidth=1.2, clip_on=False)
        axes.axvline(origin, color=MUTED, linewidth=1.0, linestyle=(0, (2, 2)))
        top = axes.get_xaxis_transform()
        axes.text(
            0, 1 + 0.1 / (pitch * max(rows, 1)), ends[0], transform=top, ha="left", va="bottom", fontsize=10
        )
        near = origin < 0.45 * right
        axes.text(
            max(origin, 0.24 * right) if near else origin,
            1 + 0.1 / (pitch * max(rows, 1)),
            f"{ends[1]} {styled(origin, 'ratio')}",
            transform=top,
            ha="left" if near else "right" if origin > 0.72 * right else "center",
            va="bottom",
            fontsize=10,
            color=MUTED,
        )
        for position, (label, estimate) in enumerate(entries):
            _draw_entry(axes, position, label, estimate, origin, right)
        return svg_text(figure)


def _draw_entry(
    axes: Axes, position: int, label: str, estimate: Estimate | None, origin: float, right: float
) -> None:
    line = position + 0.7
    value = value_of(estimate)
    axes.text(right * 0.012, position + 0.34, cut(label, 28), ha="left", va="center", fontsize=11)
    if estimate is None or value is None:
        reason = "not measured" if estimate is None else plain(estimate.value)
        axes.text(right, position + 0.34, cut(reason, 34), ha="right", va="center", fontsize=10, color=MUTED)
        return
    axes.text(
        right,
        position + 0.34,
        estimate_text(estimate, "number"),
        ha="right",
        va="center",
        fontsize=10,
        color=MUTED,
    )
    axes.plot([min(value, origin), max(value, origin)], [line, line], color=RULE, linewidth=1.0, zorder=1)
    if isinstance(estimate.unit, Interval):
        axes.plot(
            [estimate.unit.low, estimate.unit.high], [line, line], color=ACCENT, linewidth=1.0, zorder=2
        )
    if isinstance(estimate.row, Interval):
        axes.plot([estimate.row.low, estimate.row.high], [line, line], color=ACCENT, linewidth=3.2, zorder=3)
    axes.plot([value], [line], marker="o", markersize=6.5, color=ACCENT, zorder=4, clip_on=False)


def _draw_reliability(model: ModelAssessment, full: ModelAssessment | None) -> str:
    with drawing() as figure:
        figure.set_size_inches(3.4, 4.3)
        axes = figure.add_axes((0.12, 0.34, 0.85, 0.6))
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_xticks([0, 0.5, 1], ["", "", ""])
        axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1.0, linestyle=(0, (2, 2)))
        axes.text(0, 1.03, "accuracy", ha="left", va="bottom", fontsize=10, color=MUTED)
        for shown, color, width, size in ((full, SECOND, 1.2, 3.5), (model, ACCENT, 1.6, 5.0)):
            if shown is None:
                continue
            points = [
                (item.confidence, item.accuracy)
                for item in shown.reliability
                if not isinstance(item.confidence, Undefined) and not isinstance(item.accuracy, Undefined)
            ]
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=color,
                linewidth=width,
                marker="o",
                markersize=size,
                clip_on=False,
            )
        below = figure.add_axes((0.12, 0.115, 0.85, 0.14))
        below.set_xlim(0, 1)
        total = sum(item.rows for item in model.reliability) or 1
        shares = [item.rows / total for item in model.reliability]
        below.bar(
            [item.low for item in model.reliability],
            shares,
            width=[(item.high - item.low) * 0.86 for item in model.reliability],
            align="edge",
            color=SECOND,
            linewidth=0,
        )
        below.set_ylim(0, max([*shares, 0.01]) * 1.05)
        below.set_yticks([])
        below.spines["left"].set_visible(False)
        below.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        below.text(
            0,
            1.05,
            "share of rows",
            transform=below.transAxes,
            ha="left",
            va="bottom",
            fontsize=10,
            color=MUTED,
        )
        below.set_xlabel("confidence", fontsize=10, labelpad=1)
        return svg_text(figure)
