"""What a model computes are numbers, or nothing is measured: finite weights may give logits that are none."""

from __future__ import annotations

import torch
from torch import Tensor

from vestige.errors import InputError

__all__ = ["refuse_no_numbers"]


def refuse_no_numbers(values: Tensor, subject: str) -> None:
    """Raise InputError unless all values, of whatever was computed from logits, are finite."""
    wrong = int((~torch.isfinite(values)).sum())
    if wrong:
        raise InputError(
            subject,
            f"{wrong} of {values.numel()} values that are NaN or infinite",
            "numbers: a wrong answer is another thing than none",
            "take an earlier checkpoint, or measure in float32 what overflows in fewer bits",
        )
