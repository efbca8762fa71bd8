"""Tables of an assessment: what the console and the page show, and LaTeX tables are made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from vestige.contracts import Assessment, Estimate, Interval, ModelAssessment, Undefined, View
from vestige.report.measures import (
    change,
    judged_least_gain,
    judged_start,
    measure,
    noise,
    noise_pairs,
    remaining,
    starting,
    unlearned_models,
)
from vestige.report.words import (
    Style,
    conditions,
    counted,
    estimate_text,
    interval_text,
    plain,
    probability,
    short,
    styled,
)

__all__ = [
    "EMPTY",
    "Cell",
    "Column",
    "Row",
    "Table",
    "cell",
    "comparison_table",
    "decision_text",
    "definitions",
    "interval_notes",
    "measurement_tables",
    "noise_table",
    "ordered",
    "published_table",
    "published_value",
    "reliability_table",
    "style_of",
]

EMPTY = "–"
"""Shown where a number does not apply to a model."""

_STYLES: dict[str, Style] = {
    "progress": "percent",
    "accuracy": "share",
    "forgotten_accuracy": "share",
    "completeness": "share",
    "churn": "share",
    "delta_accuracy": "points",
    "delta_ece": "signed",
    "gain": "signed",
    "suppression": "ratio",
    "aligned_coefficient": "ratio",
    "relative_residual": "ratio",
    "identity_error": "small",
    "zero_rows": "count",
    "zero_displacement_rows": "count",
}
_DERIVED = {
    "excess_distance": ("Excess distance", "oracle distance minus what two retrainings differ by"),
    "identity_error": ("Geometry identity error", "largest error of the split into parts, should be 0"),
    "zero_displacement_rows": ("Rows that retraining does not move", "counted, not divided by"),
    "minimum_detectable_gain": ("Minimum detectable gain", "smallest true gain found with 80 % power"),
}
VIEWS: tuple[View, ...] = ("F", "G", "R")
_ALL_VIEWS = ("F", "G", "F+G", "R")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell. text: the value. row, unit: bounds in brackets or `undefined: reason`. lines: further short
    lines under it. note: beside it.

    change: the difference from the full model with its row interval, where that belongs beside the value.
    estimate: what the cell was printed from, for files that need the numbers.
    """

    text: str
    row: str = ""
    unit: str = ""
    lines: tuple[str, ...] = ()
    change: str = ""
    note: str = ""
    unstable: bool = False
    undefined: bool = False
    estimate: Estimate | None = None

    def __str__(self) -> str:
        parts = [self.text, self.row if self.row.startswith("[") else ""]
        parts.append(f"({self.change})" if self.change else "")
        parts.append(f"({'; '.join(self.lines)})" if self.lines else "")
        text = " ".join(part for part in parts if part)
        return f"{text} (unstable)" if self.unstable else text


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. title: its head in plain words. detail: a second, smaller line. view: F, G, R or empty."""

    key: str
    title: str
    detail: str = ""
    view: str = ""
    numeric: bool = True


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row. label: its head. role: of the model, or empty. tag: what stands behind the label."""

    label: str
    cells: tuple[Cell, ...]
    role: str = ""
    tag: str = ""
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of text. head: title of the first column. notes: what its intervals are."""

    key: str
    caption: str
    head: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    notes_are: str = "Brackets"

    def header(self) -> list[str]:
        """Column titles in one line each: `closed F`."""
        return [self.head, *(f"{item.title} {item.view}".strip() for item in self.columns)]

    def text_rows(self) -> Iterator[list[str]]:
        """Rows as strings, values with their row intervals: what a console prints."""
        for row in self.rows:
            yield [short(row.label), *(str(cell) for cell in row.cells)]


def style_of(metric: str) -> Style:
    """How a metric is printed."""
    return _STYLES.get(metric, "number")


def cell(estimate: Estimate | None, style: Style) -> Cell:
    """The cell of an estimate: a dash where not measured, `undefined: reason` where it does not exist."""
    if estimate is None:
        return Cell(text=EMPTY)
    if isinstance(estimate.value, Undefined):
        return Cell(text=plain(estimate.value), undefined=True, estimate=estimate, note=plain(estimate.note))
    return Cell(
        text=styled(estimate.value, style),
        row=plain(interval_text(estimate.row, style)),
        unit=plain(interval_text(estimate.unit, style)),
        note=plain(estimate.note),
        unstable=estimate.unstable,
        estimate=estimate,
    )


def published_table(assessment: Assessment) -> Table:
    """Models by what the published rule reads: progress, remaining distance, utility and the decision.

    Rows: full models, models under test, controls, oracles. Without an oracle the distances are replaced by
    the probability left on the forgotten options, or on the right option where none is forgotten.
    """
    columns = [Column(key="decision", title="published rule", numeric=False)]
    kinds: list[tuple[str, str, str, str]] = []
    if assessment.has_oracle:
        kinds += [("progress", view, "distance closed", "progress") for view in ("F", "G")]
        kinds += [("oracle_distance", view, "remaining distance", "JS, 0 to 1") for view in ("F", "G")]
    else:
        left = (
            ("forgotten_mass", "on deleted intents")
            if assessment.forgotten
            else ("gold_probability", "on gold")
        )
        kinds += [(left[0], view, left[1], "mean probability") for view in ("F", "G")]
    kinds += [
        ("accuracy", "R", "retained accuracy", "change in points"),
        ("ece", "R", "calibration error", "ECE and its change"),
    ]
    columns += [Column(key=key, title=title, detail=detail, view=view) for key, view, title, detail in kinds]
    tested = [model for model in assessment.models if model.role == "unlearned"]
    with_p = any(model.p_value for model in tested) and assessment.has_oracle
    corrected = bool(assessment.family)
    if with_p:
        columns.append(Column(key="p", title="p", detail="Holm" if corrected else "uncorrected"))
    rows = []
    for model in ordered(assessment):
        cells = [Cell(text=decision_text(model), undefined=isinstance(model.decision, Undefined))]
        for key, view, _, _ in kinds:
            if model.role == "oracle" and key == "oracle_distance":
                cells.append(Cell(text=styled(0.0, "number"), note="by definition"))
                continue
            found = cell(published_value(assessment, model, key, view), style_of(key))
            cells.append(_with_change(assessment, model, key, found) if view == "R" else found)
        if with_p:
            cells.append(_p_cell(model, corrected))
        rows.append(_row(model, cells))
    estimates = [item.estimate for row in rows for item in row.cells if item.estimate is not None]
    return Table(
        key="verdict",
        caption="What the published rule reads",
        head="model",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=tuple(interval_notes(estimates, units=False)),
    )


def published_value(
    assessment: Assessment, model: ModelAssessment, metric: str, view: str
) -> Estimate | None:
    """What the verdict table shows of `metric` on a view: None where it does not apply to the role."""
    if metric.startswith("delta_"):
        return change(assessment, model, metric.removeprefix("delta_")) if model.role == "unlearned" else None
    if metric == "oracle_distance":
        return remaining(model, view)
    if metric == "progress" and model.role != "unlearned":
        return None
    return measure(model, metric, view)


def measurement_tables(assessment: Assessment) -> tuple[Table, ...]:
    """Everything that was measured, one table a view: metrics down, models across."""
    tables = []
    models = list(ordered(assessment))
    for view in _ALL_VIEWS:
        names = list(
            dict.fromkeys(
                metric
                for model in models
                for key in model.metrics
                for metric, _, found in [key.rpartition(".")]
                if found == view or (view == "F+G" and found in ("FG", "both"))
            )
        )
        if not names:
            continue
        rows = []
        estimates: list[Estimate] = []
        for name in names:
            found = [measure(model, name, view) for model in models]
            estimates += [item for item in found if item is not None]
            rows.append(
                Row(label=metric_words(name)[0], cells=tuple(cell(item, style_of(name)) for item in found))
            )
        tables.append(
            Table(
                key=f"measured-{view}",
                caption=f"Everything measured on {view}",
                head="measure",
                columns=tuple(
                    Column(key=model.label, title=model.label, detail=model.role) for model in models
                ),
                rows=tuple(rows),
                notes=tuple(interval_notes(estimates, units=True)),
            )
        )
    return tuple(tables)


def noise_table(assessment: Assessment) -> Table:
    """Displacement beside the noise floors, a row a quantity, a column a view.

    The floors' intervals are over rows, by percentile bootstrap, and over training seeds where there are
    enough of them. In records with verdicts the displacement is that to all retrained models.
    """
    views = [
        view for view in ("F", "G", "R") if starting(assessment, view) or noise(assessment, "full", view)
    ]
    starts = [judged_start(assessment, view) for view in views]
    rows = [
        Row(
            label="displacement: full model to retrained",
            cells=tuple(_two_kinds(item, None if item is None else item.unit) for item in starts),
        )
    ]
    notes = interval_notes([item for item in starts if item is not None], units=False)
    for label, kind in (("two full trainings", "full"), ("two retrainings", "oracle")):
        found = [noise(assessment, kind, view) for view in views]
        notes += interval_notes([item for item in found if item is not None], units=False)
        pairs = next((n for view in views if (n := noise_pairs(assessment, kind, view))), None)
        over = [assessment.noise_over_seeds.get(f"noise_{kind}.{view}") for view in views]
        cells = [_two_kinds(item, seeds) for item, seeds in zip(found, over, strict=True)]
        rows.append(
            Row(label=label, detail=counted(pairs, "pair", "pairs") if pairs else "", cells=tuple(cells))
        )
        known = [item for item in over if isinstance(item, Interval)]
        why = [str(item.undefined) for item in over if isinstance(item, Undefined)]
        notes += [f"trainings: {conditions(known[0], seeds=[])}"] if known else []
        notes += [f"{label}, other trainings: {plain(why[0])}"] if why and not known and pairs else []
    gains = [judged_least_gain(assessment, view) for view in views]
    if any(item is not None for item in gains):
        rows.append(
            Row(
                label="smallest gain these data could show",
                cells=tuple(cell(item, "number") for item in gains),
            )
        )
    return Table(
        key="noise",
        caption="Distance to close, and what training alone moves",
        head="distance",
        columns=tuple(Column(key=view, title="", view=view) for view in views),
        rows=tuple(rows),
        notes=tuple(dict.fromkeys(notes)),
    )


def _two_kinds(found: Estimate | None, trainings: Interval | Undefined | None) -> Cell:
    """A value with its interval over rows and, where it is known, over training seeds."""
    made = cell(found, "number")
    lines = [f"rows {made.row}"] if made.row.startswith("[") else []
    lines += [f"trainings {interval_text(trainings, 'number')}"] if isinstance(trainings, Interval) else []
    return replace(made, row="", unit="", lines=tuple(lines))


def comparison_table(assessment: Assessment) -> Table:
    """Paired differences of oracle distance between models on the same rows: pairs down, views across."""
    pairs = dict.fromkeys((item.first, item.second) for item in assessment.comparisons)
    found = {(item.first, item.second, item.view): item.difference for item in assessment.comparisons}
    views = [view for view in VIEWS if any(item.view == view for item in assessment.comparisons)]
    rows = [
        Row(
            label=f"{short(first)} − {short(second)}",
            cells=tuple(cell(found.get((first, second, view)), "signed") for view in views),
        )
        for first, second in pairs
    ]
    return Table(
        key="comparisons",
        caption="Method against method",
        head="first − second",
        columns=tuple(Column(key=view, title="difference of distance", view=view) for view in views),
        rows=tuple(rows),
        notes=tuple(interval_notes([item.difference for item in assessment.comparisons], units=False)),
    )


def reliability_table(model: ModelAssessment) -> Table:
    """The bins of a reliability diagram."""
    rows = []
    for item in model.reliability:
        numbers = [
            Cell(text=plain(value), undefined=True)
            if isinstance(value, Undefined)
            else Cell(text=styled(value, "share"))
            for value in (item.confidence, item.accuracy)
        ]
        rows.append(
            Row(
                label=f"({item.low:.3f}, {item.high:.3f}]" if item.low else f"[0, {item.high:.3f}]",
                cells=(Cell(text=styled(item.rows, "count")), *numbers),
            )
        )
    return Table(
        key="reliability",
        caption="Reliability on R",
        head="top probability",
        columns=(
            Column(key="rows", title="rows"),
            Column(key="confidence", title="mean confidence"),
            Column(key="accuracy", title="accuracy"),
        ),
        rows=tuple(rows),
    )


def interval_notes(estimates: Iterable[Estimate], *, units: bool) -> list[str]:
    """What the brackets are: kind, level, draws, seed and condition of every interval, each said once.

    units: also those of the unit intervals.
    """
    seen: dict[tuple[str, float, int, str], list[Interval]] = {}
    for estimate in estimates:
        for interval in (estimate.row, estimate.unit if units else None):
            if isinstance(interval, Interval):
                key = (interval.kind, interval.level, interval.draws, interval.condition)
                seen.setdefault(key, []).append(interval)
    return [
        conditions(found[0], seeds=sorted({item.seed for item in found}))
        for key, found in sorted(seen.items(), key=lambda item: (not item[0][0].startswith("row"), item[0]))
    ]


def metric_words(name: str) -> tuple[str, str]:
    """Title and definition of a metric: from the registry, else the name with spaces and nothing."""
    from vestige.metrics import METRICS

    for metric in METRICS:
        if metric.name == name:
            return metric.title, metric.definition
    if name in _DERIVED:
        return _DERIVED[name]
    base = name.removeprefix("delta_")
    if base != name:
        title, _ = metric_words(base)
        return f"{title}, change", "unlearned minus full model"
    return name.replace("_", " "), ""


def definitions(assessments: Sequence[Assessment]) -> list[tuple[str, str]]:
    """(title, definition) of every measure in these records, in their order."""
    keys = (key for item in assessments for model in item.models for key in model.metrics)
    found = dict(metric_words(name) for name in dict.fromkeys(key.rpartition(".")[0] for key in keys))
    return [(title, definition) for title, definition in found.items() if definition]


def ordered(assessment: Assessment) -> Iterator[ModelAssessment]:
    """Models as tables list them: full, under test, controls, oracles."""
    yield from (model for model in assessment.models if model.role == "full")
    yield from unlearned_models(assessment)
    yield from (model for model in assessment.models if model.role == "oracle")


def _row(model: ModelAssessment, cells: Sequence[Cell]) -> Row:
    tag = {"full": "full model", "oracle": "retrained"}.get(model.role, "control" if model.control else "")
    method = f"method {short(model.method)}" if model.method and model.method != model.label else ""
    return Row(label=model.label, role=model.role, tag=tag, detail=method, cells=tuple(cells))


def decision_text(model: ModelAssessment) -> str:
    """The decision in words; a dash for full models and oracles, which are not judged."""
    if model.role != "unlearned":
        return EMPTY
    return plain(model.decision)


def _with_change(assessment: Assessment, model: ModelAssessment, metric: str, found: Cell) -> Cell:
    """The cell of a model under test with the change from the full model in place of the value's interval."""
    key = f"delta_{metric}"
    moved = published_value(assessment, model, key, "R")
    if moved is None:
        return found
    return replace(found, row="", change=estimate_text(moved, style_of(key)), estimate=moved)


def _p_cell(model: ModelAssessment, corrected: bool) -> Cell:
    value = model.p_value.get("holm") if corrected else None
    tag = "Holm"
    if value is None:
        value, tag = model.p_value.get("both"), "uncorrected"
    if value is None:
        return Cell(text=EMPTY)
    if isinstance(value, Undefined):
        return Cell(text=plain(value), undefined=True)
    return Cell(text=probability(value), note=tag if corrected and tag != "Holm" else "")
