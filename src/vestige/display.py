"""Records as data frames and as small HTML tables for notebooks. pandas is imported when a frame is made."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.contracts import Assessment, Estimate

__all__ = ["assessment_frame", "assessment_html"]

_SHOWN = ("progress.F", "progress.G", "forgotten_mass.F", "forgotten_mass.G", "accuracy.R", "ece.R")
_MOST = 60


def assessment_frame(assessment: Assessment) -> Any:
    """A pandas DataFrame with one measured number a row.

    Columns: model, role, decision, metric, view, value (NaN where undefined), undefined (why), row_low,
    row_high, unit_low, unit_high, rows, units, unstable.
    """
    import pandas as pd

    rows = []
    for model in assessment.models:
        for key, estimate in model.metrics.items():
            metric, _, view = key.rpartition(".")
            rows.append(
                {
                    "model": model.label,
                    "role": model.role,
                    "decision": str(model.decision),
                    "metric": metric,
                    "view": view,
                    **_numbers(estimate),
                }
            )
    return pd.DataFrame(rows)


def assessment_html(assessment: Assessment) -> str:
    """A table of models by what decides, with row intervals, and the caveats. Everything is escaped."""
    keys = [key for key in _SHOWN if any(key in model.metrics for model in assessment.models)]
    head = "".join(f"<th>{escape(text)}</th>" for text in ("model", "decision", *keys))
    body = "".join(
        f"<tr><th>{escape(_short(model.label))}</th><td>{escape(_short(str(model.decision)))}</td>"
        + "".join(f"<td>{escape(_text(model.metrics.get(key)))}</td>" for key in keys)
        + "</tr>"
        for model in assessment.models
    )
    caveats = "".join(f"<li>{escape(caveat)}</li>" for caveat in assessment.caveats)
    return (
        f"<p><strong>{escape(_short(assessment.name))}</strong></p><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table><details><summary>Caveats</summary><ul>{caveats}</ul></details>"
    )


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]}… ({len(text)} characters)"


def _numbers(estimate: Estimate) -> dict[str, Any]:
    """Value and bounds; what does not exist is NaN here and named in `undefined`."""
    nan = float("nan")
    found: dict[str, Any] = {
        "value": estimate.value if isinstance(estimate.value, float) else nan,
        "undefined": "" if isinstance(estimate.value, float) else estimate.value.undefined,
    }
    for name, interval in (("row", estimate.row), ("unit", estimate.unit)):
        found[f"{name}_low"] = getattr(interval, "low", nan)
        found[f"{name}_high"] = getattr(interval, "high", nan)
    return {**found, "rows": estimate.rows, "units": estimate.units, "unstable": estimate.unstable}


def _text(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    if not isinstance(estimate.value, float):
        return str(estimate.value)
    low = getattr(estimate.row, "low", None)
    bounds = "" if low is None else f" [{low:.3f}, {getattr(estimate.row, 'high', low):.3f}]"
    return f"{estimate.value:.3f}{bounds}"
