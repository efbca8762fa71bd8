"""Figures 3, S1 and S6: backbones, their replications, and what was covered."""

from __future__ import annotations

from collections.abc import Sequence

from vestige.report.drawing import INK, RULE, Panel
from vestige.report.paper_figures.base import (
    DASHED,
    Mark,
    PaperFigure,
    canvas,
    figure_of,
    finish,
    forest,
    legend,
    style,
)
from vestige.report.words import cut
from vestige.study.ledger import Ledger
from vestige.study.ledger_rows import (
    ArchitectureRow,
    ClincRow,
    DisplacementRow,
    MethodRow,
    RecoveryRow,
    SchemaRow,
)

__all__ = ["figure_3", "figure_s1", "figure_s6"]

SHORT = {"positive, unconfirmed": "unconfirmed", "displacement within noise": "within noise"}
FIRST = ("screening", "confirmation")
VIEWS_KEY = [("F", 0, "o", False, False), ("G", 1, "s", False, False)]


def _first(rows: Sequence[ArchitectureRow]) -> list[ArchitectureRow]:
    """First runs; of a backbone without one, the run without a difference."""
    return [row for row in rows if row.diff_progress_f is None and row.stage in FIRST]


def figure_3(ledger: Ledger) -> PaperFigure:
    """All backbones, then replications."""
    rows = ledger.of(ArchitectureRow)
    first = [row for row in _first(rows) if row.progress_f is not None]
    lines = []
    for row in sorted(first, key=lambda item: -(item.progress_f or 0.0)):
        marks = [Mark(value=row.progress_f or 0.0, low=row.progress_f_lo, high=row.progress_f_hi)]
        if row.progress_g is not None:
            marks.append(
                Mark(
                    value=row.progress_g, low=row.progress_g_lo, high=row.progress_g_hi, series=1, marker="s"
                )
            )
        lines.append((row.model, marks))
    statuses = {row.model: SHORT.get(row.status, row.status) for row in first}
    screen = None
    if lines:
        accepted = sum(row.status == "accepted" for row in first)
        screen = forest(
            lines,
            key="3a",
            caption="Progress of every backbone, with its decision",
            alternative=f"Progress on F and G of {len(first)} backbones; {accepted} accepted. "
            + "; ".join(f"{row.model} F {row.text('progress_f')} G {row.text('progress_g')}" for row in first)
            + ".",
            axis="progress",
            items=VIEWS_KEY,
            notes=[statuses[label] for label, _ in lines],
        )
    return figure_of("3", [("the screen", screen), ("replication", _replication(rows))])


def _replication(rows: Sequence[ArchitectureRow]) -> Panel | None:
    """Progress on F of first runs joined to runs with another seed (solid) or bundle (dashed)."""
    first = {row.model_key: row for row in _first(rows)}
    later = [
        row
        for row in rows
        if row.diff_progress_f is not None and row.progress_f is not None and row.model_key in first
    ]
    models = list(dict.fromkeys(row.model_key for row in later))
    if not models:
        return None
    said = []
    with canvas(height=0.75 + 0.5 * len(models), left=1.6, bottom=0.48, top=0.56) as (figure, axes):
        axes.set_ylim(len(models) - 0.4, -0.6)
        axes.set_yticks(
            range(len(models)), [cut(first[model].model, 22) for model in models], fontsize=9.5, color=INK
        )
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.axvline(0, color=RULE, linewidth=1)
        for place, model in enumerate(models):
            base = first[model]
            start = base.progress_f or 0.0
            for row in (item for item in later if item.model_key == model):
                seed = row.seed != base.seed
                y = place - 0.17 if seed else place + 0.17
                value = row.progress_f or 0.0
                color = style(1 if seed else 2)
                axes.plot(
                    [start, value],
                    [place, y],
                    color=color,
                    linestyle="solid" if seed else DASHED,
                    linewidth=1.3,
                )
                if row.progress_f_lo is not None and row.progress_f_hi is not None:
                    axes.plot([row.progress_f_lo, row.progress_f_hi], [y, y], color=color, linewidth=2.2)
                axes.plot([value], [y], marker="^" if seed else "D", color=color, markersize=5.5)
                said.append(
                    f"{base.model} {'seed ' + str(row.seed) if seed else 'bundle ' + row.bundle}: "
                    f"{base.text('progress_f')} to {row.text('progress_f')}"
                )
            axes.plot([start], [place], marker="o", color=style(0), markersize=6, zorder=5)
        axes.set_xlabel("progress on F", fontsize=10)
        items = [
            ("first run", 0, "o", False, False),
            ("another seed", 1, "^", False, False),
            ("another bundle", 2, "D", False, True),
        ]
        legend(axes, items, columns=3)
        return finish(figure, "3b", "Replication", f"Progress on F. {'; '.join(said)}.")


def figure_s6(ledger: Ledger) -> PaperFigure:
    """Differences to the first run."""
    rows = [row for row in ledger.of(ArchitectureRow) if row.diff_progress_f is not None]
    bases = {row.model_key: row for row in _first(ledger.of(ArchitectureRow))}
    panels: list[tuple[str, Panel | None]] = []
    for what in ("seed", "bundle"):
        lines = []
        for row in rows:
            base = bases.get(row.model_key)
            changed = base is not None and getattr(row, what) != getattr(base, what)
            if not changed:
                continue
            marks = [Mark(value=row.diff_progress_f or 0.0)]
            if row.diff_progress_g is not None:
                marks.append(Mark(value=row.diff_progress_g, series=1, marker="s"))
            name = f"seed {row.seed}" if what == "seed" else row.bundle
            lines.append((f"{row.model}, {name}", marks))
        drawn = None
        if lines:
            drawn = forest(
                lines,
                key=f"s6-{what}",
                caption=f"Another {what}",
                alternative="Progress minus the first run's. "
                + "; ".join(f"{label}: F {marks[0].value:+.2f}" for label, marks in lines)
                + ".",
                axis="difference of progress",
                items=VIEWS_KEY,
                label_width=2.0,
            )
        panels.append((f"another {what}", drawn))
    panels.append(("seeds and bundles of one backbone", _grid(ledger)))
    return figure_of("S6", panels)


def _grid(ledger: Ledger) -> Panel | None:
    """Progress at every seed and bundle of the backbone that was run at several of both, by one method."""
    runs: dict[tuple[str, str, str], dict[tuple[str, int], MethodRow]] = {}
    for row in ledger.of(MethodRow):
        plain = row.labels == "semantic" and row.granularity in (None, "class") and row.units is not None
        if plain and row.stage in ("confirmation", "replication") and not row.control:
            runs.setdefault((row.dataset, row.model, row.method), {})[row.bundle, row.seed] = row
    whole = {
        key: cells
        for key, cells in runs.items()
        if len({seed for _, seed in cells}) > 1
        and len(cells) == len({bundle for bundle, _ in cells}) * len({seed for _, seed in cells})
        and len({bundle for bundle, _ in cells}) > 1
    }
    if not whole:
        return None
    (_, model, method), cells = max(whole.items(), key=lambda item: len(item[1]))
    lines = []
    for (bundle, seed), row in sorted(cells.items()):
        marks = [
            Mark(value=value, series=series, marker=marker)
            for value, series, marker in ((row.progress_f, 0, "o"), (row.progress_g, 1, "s"))
            if value is not None
        ]
        lines.append((f"{bundle}, seed {seed}", marks))
    return forest(
        lines,
        key="s6-grid",
        caption=f"{model}, {method}: every seed and bundle",
        alternative=f"Progress of {method} on {model}. "
        + "; ".join(f"{label}: " + ", ".join(f"{mark.value:.2f}" for mark in marks) for label, marks in lines)
        + ".",
        axis="progress",
        items=VIEWS_KEY,
        label_width=2.0,
    )


def figure_s1(ledger: Ledger) -> PaperFigure:
    """Counts of evaluations, models down, experiments across."""
    counts: dict[tuple[str, str], int] = {}

    def add(model: str, experiment: str) -> None:
        counts[model, experiment] = counts.get((model, experiment), 0) + 1

    for row in ledger.of(MethodRow):
        words = row.experiment or f"{row.dataset} {row.stage}{' opaque' if row.labels == 'opaque' else ''}"
        add(row.model, words)
    if not any(row.dataset == "clinc150" for row in ledger.of(MethodRow)):
        for listed in ledger.of(ClincRow):
            add(listed.model, f"clinc150 {listed.stage}")
    for one in ledger.of(DisplacementRow):
        add(one.model, f"full and oracle, {one.granularity}")
    for schema in ledger.of(SchemaRow):
        if schema.schema_ != "S0" and schema.view == "f":
            add(schema.model, "candidate sets")
    for setting in ledger.of(RecoveryRow):
        add(setting.model, "recovery settings")
    if not counts:
        return figure_of("S1", [("coverage", None)])
    models = sorted({model for model, _ in counts})
    experiments = list(dict.fromkeys(experiment for _, experiment in counts))
    width = max(5.0, 2.8 + 0.36 * len(experiments))
    with canvas(width, 0.3 + 1.9 + 0.24 * len(models), left=1.6, right=0.95, bottom=0.1, top=1.95) as (
        figure,
        axes,
    ):
        axes.set_xlim(-0.5, len(experiments) - 0.5)
        axes.set_ylim(len(models) - 0.5, -0.5)
        axes.xaxis.tick_top()
        axes.set_xticks(
            range(len(experiments)),
            [cut(item.replace("_", " "), 30) for item in experiments],
            rotation=55,
            ha="left",
            fontsize=9,
        )
        axes.set_yticks(range(len(models)), [cut(item, 22) for item in models], fontsize=9.5)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        for place in range(len(models)):
            axes.axhline(place, color=RULE, linewidth=0.5, zorder=0)
        for (model, experiment), count in counts.items():
            x, y = experiments.index(experiment), models.index(model)
            axes.plot([x], [y], marker="s", markersize=14, color=style(0), alpha=0.22, markeredgewidth=0)
            axes.text(x, y, str(count), ha="center", va="center", fontsize=8.5, color=INK)
        said = (
            f"{len(models)} model(s), {len(experiments)} experiment(s), {sum(counts.values())} evaluations."
        )
        return figure_of(
            "S1", [("coverage", finish(figure, "s1", "Evaluations by model and experiment", said))]
        )
