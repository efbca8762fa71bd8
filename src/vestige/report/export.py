"""Tables as files: CSV with every number in full precision, LaTeX for papers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vestige.contracts import Assessment, Bounded, Estimate, Interval, ModelAssessment, Undefined
from vestige.report.measures import row_interval, value_of
from vestige.report.tables import EMPTY, Table, decision_text, ordered, published_value
from vestige.report.words import plain, short

__all__ = ["LONG_COLUMNS", "long_rows", "tex_text", "to_tex", "verdict_rows"]

LONG_COLUMNS = (
    "assessment",
    "stage",
    "model",
    "role",
    "control",
    "verdict",
    "decision",
    "metric",
    "view",
    "value",
    "undefined",
    "row_low",
    "row_high",
    "row_seed",
    "unit_low",
    "unit_high",
    "unit_seed",
    "trainings_low",
    "trainings_high",
    "kind",
    "level",
    "draws",
    "condition",
    "rows",
    "units",
    "unstable",
    "note",
)


def long_rows(assessments: Sequence[Assessment]) -> Iterator[list[str]]:
    """Every number with its interval, one a line, full precision: the rows of `measurements.csv`.

    What a verdict reads is named `evidence.memory` and so on: its row interval is that for these models and
    other rows, and `trainings` that for other trainings.
    """
    for assessment in assessments:
        for model in ordered(assessment):
            about = [assessment.name, assessment.stage, model.label, model.role, str(model.control).lower()]
            about += [model.headline, decision_text(model) if model.role == "unlearned" else ""]
            for key, estimate in model.metrics.items():
                metric, _, view = key.rpartition(".")
                yield [*about, metric, view, *_numbers(estimate)]
            for name, where, found in model.evidence.quantities() if model.evidence else ():
                as_estimate = Estimate(value=found.value, row=found.these_models)
                yield [*about, f"evidence.{name}", where, *_numbers(as_estimate, found.other_trainings)]


def _numbers(estimate: Estimate, trainings: Interval | Undefined | None = None) -> list[str]:
    """The columns of `LONG_COLUMNS` from the value on."""
    row = estimate.row if isinstance(estimate.row, Interval) else None
    unit = estimate.unit if isinstance(estimate.unit, Interval) else None
    known = row or unit
    lost = estimate.value.undefined if isinstance(estimate.value, Undefined) else None
    return [
        repr(estimate.value) if lost is None else "",
        lost or "",
        *_bounds(row),
        *_bounds(unit),
        *_bounds(trainings if isinstance(trainings, Interval) else None)[:2],
        known.kind if known else "",
        repr(known.level) if known else "",
        str(known.draws) if known else "",
        known.condition if known else "",
        "" if estimate.rows is None else str(estimate.rows),
        "" if estimate.units is None else str(estimate.units),
        str(estimate.unstable).lower(),
        estimate.note,
    ]


_EVIDENCE = (
    *((name, view) for name in ("memory", "distance", "excess", "gain") for view in ("F", "G")),
    ("accuracy_change", "R"),
    ("calibration_change", "R"),
    ("excess", "R"),
)


def verdict_rows(assessments: Sequence[Assessment]) -> Iterator[list[str]]:
    """`verdicts.csv`: a header, then a line a model of every record; numbers in full precision.

    First the verdict and what it reads, each with its interval for these models and other rows like these,
    then the published rule's answer and numbers. A number that is undefined or was not measured is empty; the
    reason stands in `measurements.csv`.
    """
    keys = [(metric, view) for metric in ("progress", "gain", "oracle_distance") for view in ("F", "G")]
    keys += [(metric, "R") for metric in ("accuracy", "delta_accuracy", "ece", "delta_ece")]
    header = ["assessment", "stage", "model", "role", "method", "control", "verdict", "share_of_the_way"]
    for name, view in _EVIDENCE:
        header += [f"{name}_{view}", f"{name}_{view}_low", f"{name}_{view}_high"]
    header += ["p_verdict", "training_seeds", "decision"]
    for metric, view in keys:
        shown = f"published_{metric}_{view}"
        header += [shown, f"{shown}_low", f"{shown}_high"]
    yield [*header, "p_both", "p_holm", "intervention_gate", "condition"]
    for assessment in assessments:
        for model in ordered(assessment):
            line = [assessment.name, assessment.stage, model.label, model.role, model.method]
            line += [str(model.control).lower(), model.verdict or "", *_judged(model)]
            line.append(decision_text(model).replace(EMPTY, ""))
            for metric, view in keys:
                found = published_value(assessment, model, metric, view)
                line += [_full_precision(value_of(found)), *_bounds(row_interval(found))[:2]]
            for kind in ("both", "holm"):
                p = model.p_value.get(kind)
                line.append(_full_precision(None if isinstance(p, Undefined) else p))
            yield [*line, assessment.intervention_gate, assessment.condition]


def _judged(model: ModelAssessment) -> list[str]:
    """Share of the way, every bounded quantity, p and training seeds; empty without a verdict."""
    evidence = model.evidence
    if evidence is None:
        return [""] * (3 + 3 * len(_EVIDENCE))
    found: dict[tuple[str, str], Bounded] = {
        (name, view): bounded for name, view, bounded in evidence.quantities()
    }
    line = [_full_precision(evidence.share)]
    for key in _EVIDENCE:
        bounded = found.get(key)
        rows = bounded.these_models if bounded is not None else None
        line.append(_full_precision(None if bounded is None else bounded.value))
        line += _bounds(rows if isinstance(rows, Interval) else None)[:2]
    return [*line, _full_precision(model.verdict_p), str(evidence.seeds["unlearned"])]


def _full_precision(value: float | Undefined | None) -> str:
    return "" if value is None or isinstance(value, Undefined) else repr(value)


CAPTION_LIMIT = 2000
"""Captions longer than this are cut: names in them may be of any length."""

_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "…": r"\dots{}",
    "–": "--",
    "−": "$-$",
}


def tex_text(text: str) -> str:
    """`text` with everything that LaTeX reads as a command escaped."""
    return "".join(_TEX.get(char, char) for char in plain(text))


def to_tex(table: Table, *, caption: str = "", label: str = "", long: bool = False) -> str:
    """A booktabs table. Intervals stand behind their values; notes become a paragraph under it.

    caption: default the table's own. label: for `\\ref`. long: over several pages (package longtable).
    """
    alignment = "l" + "".join("r" if column.numeric else "l" for column in table.columns)
    words = tex_text(short(caption or table.caption, CAPTION_LIMIT if label else 200))
    named = rf"\label{{{label}}}" if label else ""
    head = _tex_row(table.header())
    body = [_tex_row(row) for row in table.text_rows()]
    notes = [rf"\par\footnotesize {table.notes_are}: {tex_text(note)}." for note in table.notes]
    if long:
        lines = [
            rf"\begin{{longtable}}{{{alignment}}}",
            rf"\caption{{{words}}}{named}\\",
            *(r"\toprule", head, r"\midrule", r"\endfirsthead"),
            *(r"\toprule", head, r"\midrule", r"\endhead"),
            r"\bottomrule",
            r"\endlastfoot",
            *body,
            r"\end{longtable}",
            *notes,
        ]
        return "\n".join(lines) + "\n"
    lines = [
        r"\begin{table}",
        rf"\caption{{{words}}}{named}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *notes,
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tex_row(cells: Iterable[str]) -> str:
    """A line of a table. A `[` or `*` at its start would be read as an argument of the line end before it."""
    line = " & ".join(tex_text(cell) for cell in cells) + r" \\"
    return "{}" + line if line.startswith(("[", "*")) else line


def _bounds(interval: Interval | None) -> list[str]:
    return ["", "", ""] if interval is None else [repr(interval.low), repr(interval.high), str(interval.seed)]
