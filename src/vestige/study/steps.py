"""The log of a training, one row an optimiser step: written with the model, read by tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from vestige.errors import InputError
from vestige.files import atomic_path

__all__ = ["ENDS", "STEPS", "ends", "read_steps", "write_steps"]

STEPS = "steps.parquet"
"""Beside the model in its node."""
ENDS = 10
"""Steps at either end of a training that diagnostics average over."""

_INTEGERS = ("step", "epoch", "rows", "tokens")
_FLOATS = (
    "loss",
    "forget_loss",
    "retain_loss",
    "gradient_norm",
    "update_norm",
    "learning_rate",
    "seconds",
)


def write_steps(log: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write a training's log. A loss that is not there is null; `resumed`: first step of a sitting."""
    frame = pd.DataFrame({name: [entry[name] for entry in log] for name in _INTEGERS}, dtype="int64")
    for name in _FLOATS:
        frame[name] = pd.Series([entry[name] for entry in log], dtype="float64")
    frame["resumed"] = [bool(entry.get("resumed")) for entry in log]
    with atomic_path(path) as temporary:
        frame.to_parquet(temporary, index=False)


def read_steps(path: Path) -> pd.DataFrame:
    """The log, in order of step; NaN where the loss has no such term. Raises InputError."""
    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or ["unreadable"])[0]
        raise InputError(str(path), reason[:200], "the step log of a training", "train it again") from None
    missing = [name for name in (*_INTEGERS, *_FLOATS) if name not in frame]
    if missing:
        raise InputError(
            str(path), f"no column '{missing[0]}'", "the step log of a training", "train it again"
        )
    return frame.sort_values("step", kind="stable", ignore_index=True)


def ends(steps: pd.DataFrame, column: str, count: int = ENDS) -> tuple[float, float] | None:
    """Mean of a column over the first and over the last `count` steps (fewer where there are fewer).

    None where the loss has no such term.
    """
    values = steps[column]
    if values.isna().all():
        return None
    return float(values.iloc[:count].mean()), float(values.iloc[-count:].mean())
