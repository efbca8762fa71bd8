"""Records as data frames and as small HTML tables for notebooks. pandas is imported when a frame is made."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.contracts import Assessment, Interval, ModelAssessment, Undefined

__all__ = ["assessment_frame", "assessment_html"]

_SHOWN = ("progress.F", "progress.G", "forgotten_mass.F", "forgotten_mass.G", "accuracy.R", "ece.R")
_JUDGED = ("memory.F", "memory.G", "distance.F", "distance.G", "accuracy_change.R")
_MOST = 60


def assessment_frame(assessment: Assessment) -> Any:
    """A pandas DataFrame with one measured number a row.

    Columns: model, role, verdict (as it is shown: `closer` with how far), decision (the published rule's),
    metric, view, value (NaN where undefined), undefined (why), row_low, row_high, unit_low, unit_high,
    trainings_low, trainings_high, rows, units, unstable. What the verdict reads is named `evidence.memory`
    and so on: its row interval is for these models and other rows like these, the one over trainings for
    other training runs.
    """
    import pandas as pd

    rows = []
    for model in assessment.models:
        about = {
            "model": model.label,
            "role": model.role,
            "verdict": model.headline,
            "decision": str(model.decision),
        }
        for key, estimate in model.metrics.items():
            metric, _, view = key.rpartition(".")
            numbers = _numbers(estimate.value, estimate.row, estimate.unit, None)
            counts = {"rows": estimate.rows, "units": estimate.units, "unstable": estimate.unstable}
            rows.append({**about, "metric": metric, "view": view, **numbers, **counts})
        for name, where, found in model.evidence.quantities() if model.evidence else ():
            numbers = _numbers(found.value, found.these_models, None, found.other_trainings)
            counts = {"rows": None, "units": None, "unstable": False}
            rows.append({**about, "metric": f"evidence.{name}", "view": where, **numbers, **counts})
    return pd.DataFrame(rows)


def assessment_html(assessment: Assessment) -> str:
    """Verdicts with their sentences, a table of models by what decides, and the caveats. All is escaped."""
    judged = [model for model in assessment.models if model.evidence is not None]
    verdicts = "".join(
        f"<p><strong>{escape(_short(model.label))}: {escape(model.headline)}</strong> (published rule: "
        f"{escape(_short(str(model.decision)))})<br>{escape(model.sentence)}</p>"
        for model in judged
    )
    caveats = "".join(f"<li>{escape(caveat)}</li>" for caveat in assessment.caveats)
    return (
        f"<p><strong>{escape(_short(assessment.name))}</strong></p>{verdicts}"
        f"{_judged_table(judged) if judged and assessment.has_oracle else _published_table(assessment)}"
        f"<details><summary>Caveats</summary><ul>{caveats}</ul></details>"
    )


def _judged_table(judged: Sequence[ModelAssessment]) -> str:
    """What the verdicts read, with intervals for these models and other rows like these."""
    lines = []
    for model in judged:
        found = {
            f"{name}.{view}": bounded
            for name, view, bounded in (model.evidence.quantities() if model.evidence else ())
        }
        cells = [_text(found[key].value, found[key].these_models) if key in found else "–" for key in _JUDGED]
        lines.append([model.label, model.headline, *cells])
    return _table(("model", "verdict", *_JUDGED), lines)


def _published_table(assessment: Assessment) -> str:
    keys = [key for key in _SHOWN if any(key in model.metrics for model in assessment.models)]
    lines = []
    for model in assessment.models:
        found = [model.metrics.get(key) for key in keys]
        cells = ["–" if item is None else _text(item.value, item.row) for item in found]
        lines.append([model.label, str(model.decision), *cells])
    return _table(("model", "published rule", *keys), lines)


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    columns = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join(
        f"<tr><th>{escape(_short(label))}</th>"
        + "".join(f"<td>{escape(_short(cell))}</td>" for cell in cells)
        + "</tr>"
        for label, *cells in lines
    )
    return f"<table><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]}… ({len(text)} characters)"


def _numbers(
    value: float | Undefined,
    row: Interval | Undefined | None,
    unit: Interval | Undefined | None,
    trainings: Interval | Undefined | None,
) -> dict[str, Any]:
    """Value and bounds; what does not exist is NaN here and named in `undefined`."""
    nan = float("nan")
    found: dict[str, Any] = {
        "value": value if isinstance(value, float) else nan,
        "undefined": "" if isinstance(value, float) else value.undefined,
    }
    for name, interval in (("row", row), ("unit", unit), ("trainings", trainings)):
        found[f"{name}_low"] = getattr(interval, "low", nan)
        found[f"{name}_high"] = getattr(interval, "high", nan)
    return found


def _text(value: float | Undefined, row: Interval | Undefined | None) -> str:
    if not isinstance(value, float):
        return str(value)
    low = getattr(row, "low", None)
    bounds = "" if low is None else f" [{low:.3f}, {getattr(row, 'high', low):.3f}]"
    return f"{value:.3f}{bounds}"
