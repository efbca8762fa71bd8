"""Figures 2, S4 and S5: labels and candidate sets."""

from __future__ import annotations

from collections.abc import Sequence

from vestige.report.drawing import Panel
from vestige.report.paper_figures.base import Mark, PaperFigure, figure_of, forest
from vestige.study.ledger import Ledger
from vestige.study.ledger_rows import LabelRow, SchemaRow

__all__ = ["figure_2", "figure_s4", "figure_s5"]

SETS = {"S0": ("o", 0), "S1": ("^", 1), "S2": ("D", 2)}
LABELS_KEY = [
    ("semantic F", 0, "o", False, False),
    ("semantic G", 0, "s", False, False),
    ("opaque F", 1, "o", True, False),
    ("opaque G", 1, "s", True, False),
]


def _pairs(rows: Sequence[LabelRow]) -> dict[str, list[LabelRow]]:
    """`banking77 b01, seed 17` -> its rows, semantic first."""
    found: dict[str, list[LabelRow]] = {}
    for row in rows:
        model = f" {row.model}" if row.model else ""
        found.setdefault(f"{row.dataset} {row.bundle} s{row.seed}{model}", []).append(row)
    return found


def _pair_panel(
    rows: Sequence[LabelRow],
    columns: tuple[str, str],
    *,
    key: str,
    caption: str,
    axis: str,
    strip: bool = False,
    log: bool = False,
) -> Panel | None:
    """Semantic against opaque: circles F, squares G. strip: lowest development accuracies at the right."""
    lines: list[tuple[str, list[Mark]]] = []
    notes: list[str] = []
    for label, group in _pairs(rows).items():
        marks = []
        for row in group:
            opaque = row.labels == "opaque"
            for column, marker in zip(columns, ("o", "s"), strict=True):
                value = getattr(row, column)
                if value is not None:
                    marks.append(Mark(value=value, series=int(opaque), marker=marker, open=opaque))
        if marks:
            lines.append((label, marks))
            notes.append(_strip(group) if strip else "")
    if not lines:
        return None
    said = "; ".join(
        f"{label}: "
        + ", ".join(f"{row.labels} F {row.text(columns[0])} G {row.text(columns[1])}" for row in group)
        for label, group in _pairs(rows).items()
    )
    return forest(
        lines,
        key=key,
        caption=caption,
        alternative=f"{caption}. {said}.",
        axis=axis,
        items=LABELS_KEY,
        columns=2,
        notes=notes,
        reference=None if log else 0.0,
        pitch=0.42,
        log=log,
    )


def _strip(group: Sequence[LabelRow]) -> str:
    row = next((item for item in group if item.min_class_acc_opaque is not None), None)
    if row is None:
        return ""
    return f"{row.text('min_class_acc_semantic')} / {row.text('min_class_acc_opaque')}"


def figure_2(ledger: Ledger) -> PaperFigure:
    """Recognition and displacement by labels; recognition and progress by candidate set."""
    pairs, sets = ledger.of(LabelRow), ledger.of(SchemaRow)
    return figure_of(
        "2",
        [
            (
                "recognition by labels",
                _pair_panel(
                    pairs,
                    ("oracle_acc_f", "oracle_acc_g"),
                    key="2a",
                    caption="Oracle recognition; right: lowest class accuracy, semantic / opaque",
                    axis="oracle accuracy",
                    strip=True,
                ),
            ),
            (
                "displacement by labels",
                _pair_panel(
                    pairs, ("d0_f", "d0_g"), key="2b", caption="The denominators", axis="displacement D0"
                ),
            ),
            ("recognition by candidate set", _recognition(sets)),
            ("progress by candidate set", _progress(_first_data(sets), "f", key="2d", main=True)),
        ],
    )


def _first_data(rows: Sequence[SchemaRow]) -> list[SchemaRow]:
    """Rows of the data set that has most of them."""
    names = [row.dataset for row in rows]
    return [row for row in rows if row.dataset == max(names, key=names.count)]


Cell = tuple[str, str, str, str, str, int]
"""Model, data, labels, bundle (and seed, where known), method, which of equal names."""


def _cells(rows: Sequence[SchemaRow], view: str, *, main: bool) -> dict[Cell, dict[str, SchemaRow]]:
    """(model, data, labels, bundle, method, which of equal names) -> candidate set -> row, of one view.

    main: of each cell, the method that most cells have.
    """
    found: dict[Cell, dict[str, SchemaRow]] = {}
    for row in rows:
        if row.view != view:
            continue
        bundle = row.bundle if row.seed is None else f"{row.bundle} s{row.seed}"
        whose = (row.model, row.dataset, row.labels, bundle, row.method)
        place = 0
        while row.schema_ in found.get((*whose, place), {}):
            place += 1
        key = (*whose, place)
        found.setdefault(key, {})[row.schema_] = row
    if main:
        methods = [key[4] for key in found]
        most = max(set(methods), key=lambda name: (methods.count(name), -methods.index(name)), default="")
        found = {key: sets for key, sets in found.items() if key[4] == most} or found
    return found


def _cell_label(key: Cell) -> str:
    model, dataset, labels, bundle, _, place = key
    short = {"banking77": "B77", "clinc150": "CLINC"}.get(dataset, dataset)
    number = f" ({place + 1})" if place else ""
    return f"{model} {short} {bundle}{' opaque' if labels == 'opaque' else ''}{number}"


def _set_items(rows: Sequence[SchemaRow]) -> list[tuple[str, int, str, bool, bool]]:
    items = [
        (
            f"{name} {next(row.schema_kind for row in rows if row.schema_ == name)}",
            series,
            marker,
            False,
            False,
        )
        for name, (marker, series) in SETS.items()
        if any(row.schema_ == name for row in rows)
    ]
    if any(row.labels == "opaque" for row in rows):
        items.append(("opaque labels", 5, "o", True, True))
    return items


def _recognition(rows: Sequence[SchemaRow]) -> Panel | None:
    lines = []
    notes = []
    said = []
    seen: set[tuple[str, str, str, str]] = set()
    for key, sets in _cells(rows, "f", main=True).items():
        if key[:4] in seen:
            continue
        seen.add(key[:4])
        marks = [
            Mark(
                value=row.oracle_acc,
                series=SETS.get(name, ("s", 3))[1],
                marker=SETS.get(name, ("s", 3))[0],
                open=row.labels == "opaque",
                lane=0.0,
            )
            for name, row in sorted(sets.items())
            if row.oracle_acc is not None
        ]
        if marks:
            lines.append((_cell_label(key), marks))
            notes.append("/".join(str(row.options) for _, row in sorted(sets.items())))
            said.append(
                f"{_cell_label(key)}: "
                + ", ".join(f"{name} {row.text('oracle_acc')}" for name, row in sorted(sets.items()))
            )
    if not lines:
        return None
    return forest(
        lines,
        key="2c",
        caption="Oracle accuracy on F by candidate set; right: options of each set",
        alternative=f"Oracle accuracy on F by candidate set. {'; '.join(said)}.",
        axis="oracle accuracy on F",
        items=_set_items(rows),
        columns=2,
        notes=notes,
        label_width=2.2,
    )


def _progress(rows: Sequence[SchemaRow], view: str, *, key: str, main: bool) -> Panel | None:
    lines = []
    for cell, sets in _cells(rows, view, main=main).items():
        marks = [
            Mark(
                value=row.progress,
                low=row.progress_lo,
                high=row.progress_hi,
                series=SETS.get(name, ("s", 3))[1],
                marker=SETS.get(name, ("s", 3))[0],
                open=row.labels == "opaque",
                dashed=row.labels == "opaque",
            )
            for name, row in sorted(sets.items())
            if row.progress is not None
        ]
        if marks:
            lines.append((_cell_label(cell), marks))
    if not lines:
        return None
    return forest(
        lines,
        key=key,
        caption=f"Progress on {view.upper()} by candidate set",
        alternative=f"Progress on {view.upper()} under each candidate set, {len(lines)} rows.",
        axis=f"progress on {view.upper()}",
        items=_set_items(rows),
        columns=2,
        pitch=0.36,
        label_width=2.2,
    )


def figure_s4(ledger: Ledger) -> PaperFigure:
    """Everything measured on label pairs."""
    rows = ledger.of(LabelRow)
    parts = (
        ("acquisition", ("full_acc_f", "full_acc_g"), "full-model accuracy"),
        ("recognition", ("oracle_acc_f", "oracle_acc_g"), "oracle accuracy"),
        ("forgotten mass", ("oracle_mass_f", "oracle_mass_g"), "oracle's forgotten mass"),
        ("displacement", ("d0_f", "d0_g"), "displacement D0"),
        ("progress", ("progress_f", "progress_g"), "progress"),
    )
    return figure_of(
        "S4",
        [
            (
                name,
                _pair_panel(
                    rows,
                    columns,
                    key=f"s4-{place}",
                    caption=name[:1].upper() + name[1:],
                    axis=axis,
                    log="mass" in name and _wide(rows, columns),
                ),
            )
            for place, (name, columns, axis) in enumerate(parts)
        ],
    )


def _wide(rows: Sequence[LabelRow], columns: tuple[str, str]) -> bool:
    """Whether every value can stand on a log axis, and they span more than a power of ten."""
    values = [value for row in rows for column in columns if (value := getattr(row, column)) is not None]
    return bool(values) and min(values) > 0 and max(values) > 20 * min(values)


def figure_s5(ledger: Ledger) -> PaperFigure:
    """Every condition, D0 at the right."""
    rows = ledger.of(SchemaRow)
    panels: list[tuple[str, Panel | None]] = []
    for view in ("f", "g"):
        lines = []
        notes = []
        for cell, sets in _cells(rows, view, main=False).items():
            for name, row in sorted(sets.items()):
                if row.progress is None:
                    continue
                marker, series = SETS.get(name, ("s", 3))
                opaque = row.labels == "opaque"
                mark = Mark(
                    value=row.progress,
                    low=row.progress_lo,
                    high=row.progress_hi,
                    series=series,
                    marker=marker,
                    open=opaque,
                    dashed=opaque,
                )
                lines.append((f"{_cell_label(cell)} {row.method} {name}", [mark]))
                notes.append(f"D0 {row.text('d0')}")
        drawn = None
        if lines:
            drawn = forest(
                lines,
                key=f"s5-{view}",
                caption=f"Progress on {view.upper()}, with D0",
                alternative=f"Progress on {view.upper()} in {len(lines)} conditions, D0 beside it.",
                axis=f"progress on {view.upper()}",
                items=_set_items(rows),
                columns=2,
                notes=notes,
                label_width=3.0,
                width=6.5,
                limits=_limits([mark for _, marks in lines for mark in marks]),
            )
        panels.append((f"progress on {view.upper()}", drawn))
    return figure_of("S5", panels)


def _limits(marks: Sequence[Mark]) -> tuple[float, float] | None:
    """The axis ends at the values and the bounds within 1 of zero, so that one wide interval hides none."""
    known = [
        value
        for mark in marks
        for value in (mark.value, mark.low, mark.high)
        if value is not None and (abs(value) <= 1 or value == mark.value)
    ]
    return (min([*known, 0.0]) - 0.05, max([*known, 0.0]) + 0.05) if known else None
