"""Figures S8, S14 and S15: tuning, ends of step logs, stronger updates."""

from __future__ import annotations

from collections.abc import Sequence

from vestige.report.drawing import ACCENT, INK, MUTED, Panel
from vestige.report.paper_figures.base import (
    Line,
    Mark,
    PaperFigure,
    canvas,
    figure_of,
    finish,
    forest,
    lines,
)
from vestige.report.words import cut
from vestige.study.ledger import Ledger
from vestige.study.ledger_rows import MethodRow, OptimisationRow, StepRow, TuningRow

__all__ = ["figure_s8", "figure_s14", "figure_s15"]


def figure_s8(ledger: Ledger) -> PaperFigure:
    """A heat map a method and data set."""
    groups: dict[tuple[str, str], list[TuningRow]] = {}
    for row in ledger.of(TuningRow):
        groups.setdefault((row.dataset, row.method), []).append(row)
    panels = [
        (f"{method} on {dataset}", _heat(rows, f"{method}, {dataset}", place))
        for place, ((dataset, method), rows) in enumerate(groups.items())
    ]
    return figure_of("S8", panels or [("tuning", None)])


def _heat(rows: Sequence[TuningRow], caption: str, place: int) -> Panel | None:
    from matplotlib.patches import Rectangle

    known = [row for row in rows if row.objective is not None]
    if not known:
        return None
    points = list(dict.fromkeys((row.learning_rate, row.beta, row.retain_weight) for row in known))
    values = sorted({float(row.objective or 0.0) for row in known})
    low, high = values[0], values[-1]
    if all(row.temperature is not None for row in known):
        return _by_temperature(known, caption, place)
    epochs = max(row.epoch for row in known)
    best = min((row for row in known if row.feasible), key=lambda row: row.objective or 0.0, default=None)
    with canvas(max(5.0, 2.2 + 0.3 * epochs), 0.95 + 0.25 * len(points), left=1.85, bottom=0.48, top=0.4) as (
        figure,
        axes,
    ):
        axes.set_xlim(0.5, epochs + 0.5)
        axes.set_ylim(len(points) - 0.5, -0.5)
        axes.set_xticks(range(1, epochs + 1))
        axes.set_yticks(range(len(points)), [cut(_point(item), 30) for item in points], fontsize=8.5)
        axes.tick_params(length=0)
        axes.set_xlabel("epoch", fontsize=10)
        for row in known:
            y = points.index((row.learning_rate, row.beta, row.retain_weight))
            share = 1.0 if high == low else (high - (row.objective or 0.0)) / (high - low)
            axes.add_patch(
                Rectangle(
                    (row.epoch - 0.46, y - 0.44),
                    0.92,
                    0.88,
                    facecolor=ACCENT,
                    alpha=0.06 + 0.84 * share,
                    linewidth=0,
                )
            )
            if not row.feasible:
                axes.plot([row.epoch], [y], marker="x", color=MUTED, markersize=5)
            if row.chosen:
                axes.plot(
                    [row.epoch],
                    [y],
                    marker="o",
                    markersize=9,
                    markerfacecolor="none",
                    color=INK,
                    markeredgewidth=1.4,
                )
        axes.text(
            1,
            1.02,
            f"objective {low:.3f} (dark) to {high:.3f} (pale); x infeasible, ring chosen",
            transform=axes.transAxes,
            fontsize=8.5,
            color=MUTED,
            va="bottom",
            ha="right",
        )
        said = f"{len(known)} candidates, {sum(row.feasible for row in known)} feasible"
        said += (
            f"; best {best.objective:.3f} at epoch {best.epoch}"
            if best and best.objective is not None
            else ""
        )
        return finish(figure, f"s8-{place}", caption, f"{caption}: {said}.")


def _by_temperature(rows: Sequence[TuningRow], caption: str, place: int) -> Panel:
    """The objective of a temperature control over its temperatures; a ring marks the chosen one."""
    ordered = sorted(rows, key=lambda row: row.temperature or 0.0)
    series = [
        Line(
            x=[row.temperature or 0.0 for row in ordered],
            y=[row.objective or 0.0 for row in ordered],
            group="every temperature",
            marker="",
        )
    ]
    series += [
        Line(x=[row.temperature or 0.0], y=[row.objective or 0.0], group="chosen", series=1, open=True)
        for row in ordered
        if row.chosen
    ]
    best = next((row for row in ordered if row.chosen), None)
    said = f"; chosen {best.temperature:g}, objective {best.objective:.3f}" if best and best.objective else ""
    return lines(
        series,
        key=f"s8-{place}",
        caption=caption,
        alternative=f"{caption}: {len(rows)} temperatures, "
        f"{sum(row.feasible for row in rows)} feasible{said}.",
        x_axis="temperature, log axis",
        log_x=True,
        y_axis="objective",
    )


def _point(item: tuple[str, str, str]) -> str:
    names = ("lr", "beta", "weight")
    return ", ".join(f"{name} {value}" for name, value in zip(names, item, strict=True) if value) or "default"


PARTS = (
    ("forget loss", "forget_loss"),
    ("retain loss", "retain_loss"),
    ("gradient norm", "grad_norm"),
)


def figure_s14(ledger: Ledger) -> PaperFigure:
    """First and last ten steps, a row a backbone and seed."""
    rows = sorted(ledger.of(OptimisationRow), key=lambda row: (row.model, row.method or "", row.seed))
    panels: list[tuple[str, Panel | None]] = []
    for title, column in PARTS:
        found = []
        for row in rows:
            first, last = getattr(row, f"{column}_first10"), getattr(row, f"{column}_last10")
            if first is None or last is None:
                continue
            more = f" {row.method}" if row.method else ""
            marks = [
                Mark(value=first, series=1, marker="s", open=True, lane=0.0),
                Mark(value=last, series=0, lane=0.0),
            ]
            found.append((f"{row.model}{more}, seed {row.seed}", marks))
        drawn = None
        if found:
            drawn = forest(
                found,
                key=f"s14-{column.replace('_', '-')}",
                caption=title[:1].upper() + title[1:],
                alternative=f"{title}, first and last ten steps. "
                + "; ".join(f"{name}: {marks[0].value:.3f} to {marks[1].value:.3f}" for name, marks in found)
                + ".",
                axis=title,
                items=[("first ten steps", 1, "s", True, False), ("last ten steps", 0, "o", False, False)],
                reference=None,
                label_width=2.1,
            )
        panels.append((title, drawn))
    return figure_of("S14", panels)


def figure_s15(ledger: Ledger) -> PaperFigure:
    """Stronger updates beside the frozen setting at the same seed, and their traces."""
    rows = ledger.of(MethodRow)
    strong = [
        row for row in rows if row.stage == "exploratory" and row.labels == "semantic" and _strength(row)
    ]
    cells = {(row.model, row.seed, row.bundle) for row in strong}
    compared = [
        row
        for row in rows
        if (row.model, row.seed, row.bundle) in cells
        and (
            row in strong or row.stage in ("replication", "screening") or "strength" in (row.experiment or "")
        )
        and row.progress_f is not None
    ]
    found = []
    for row in sorted(compared, key=lambda item: (item.model, item in strong, item.id)):
        frozen = row not in strong
        marks = [Mark(value=row.progress_f or 0.0, series=int(frozen), open=frozen)]
        if row.progress_g is not None:
            marks.append(Mark(value=row.progress_g, series=int(frozen), marker="s", open=frozen))
        best = not frozen and row.progress_f == max(
            one.progress_f or 0.0 for one in strong if one.model == row.model
        )
        name = "frozen" if frozen else f"{row.method}{' (chosen after the fact)' if best else ''}"
        found.append((f"{row.id}. {row.model} {name}", marks))
    progress = None
    if found:
        progress = forest(
            found,
            key="s15a",
            caption="Progress of stronger updates and of the frozen setting",
            alternative=f"{len(strong)} stronger updates; "
            + "; ".join(f"{name}: F {marks[0].value:.2f}" for name, marks in found)
            + ".",
            axis="progress",
            items=[
                ("stronger, F", 0, "o", False, False),
                ("stronger, G", 0, "s", False, False),
                ("frozen, F", 1, "o", True, False),
                ("frozen, G", 1, "s", True, False),
            ],
            columns=2,
            label_width=3.6,
        )
    return figure_of("S15", [("progress", progress), ("step traces", _traces(ledger, cells))])


def _strength(row: MethodRow) -> bool:
    """Whether an exploratory row is a stronger update: its study and label say so, or (published rows name no
    study) it changes the seed on another backbone than the reference."""
    if row.experiment is not None:
        return "strength" in row.experiment and "stronger" in row.method.lower()
    return row.seed != 17 and row.model != "qwen3.5-0.8b"


def _traces(ledger: Ledger, cells: set[tuple[str, int, str]]) -> Panel | None:
    logs: dict[tuple[str, str, str], list[StepRow]] = {}
    for row in ledger.of(StepRow) if cells else ():
        if (row.model, row.seed, row.bundle) in cells and row.forget_loss is not None:
            logs.setdefault((row.model, row.method, row.stage), []).append(row)
    if not logs:
        return None
    longest: dict[tuple[str, str, str], tuple[str, list[StepRow]]] = {}
    for (model, method, stage), rows in logs.items():
        # Runs of several lengths begin alike: the longest shows them all.
        stem = method.rpartition(", ")[0] if method.endswith(("epoch", "epochs")) else method
        before = longest.get((model, stem, stage))
        if before is None or len(rows) > len(before[1]):
            longest[model, stem, stage] = method, rows
    series = [
        Line(
            x=[row.step for row in rows],
            y=[row.forget_loss or 0.0 for row in rows],
            group=f"{model} {method}",
            series=place,
            marker="",
            dash="solid" if "stronger" in method.lower() else "dashed",
        )
        for place, ((model, *_), (method, rows)) in enumerate(longest.items())
    ]
    return lines(
        series,
        key="s15b",
        caption="Forget loss by step",
        alternative=f"Forget loss by step of {len(series)} run(s).",
        x_axis="step",
        y_axis="forget loss",
        columns=2,
    )
