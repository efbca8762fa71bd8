"""The step log of a training as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from vestige.errors import InputError
from vestige.study.steps import STEPS, ends, read_steps, write_steps


def entry(step: int, **fields: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "step": step,
        "epoch": 1 + step // 10,
        "loss": 0.5 * step,
        "forget_loss": float(step),
        "retain_loss": None,
        "gradient_norm": 1.0,
        "update_norm": 0.1,
        "learning_rate": 1e-4,
        "seconds": 0.25,
        "rows": 8,
        "tokens": 80,
    }
    return {**base, **fields}


def test_a_log_comes_back_as_it_was(tmp_path: Path) -> None:
    log = [entry(step, resumed=step == 13, stopped=step == 25) for step in range(1, 26)]
    write_steps(log, tmp_path / STEPS)
    found = read_steps(tmp_path / STEPS)
    assert list(found["step"]) == list(range(1, 26))
    assert found.loc[found["resumed"], "step"].tolist() == [13]
    assert found["retain_loss"].isna().all()
    assert ends(found, "retain_loss") is None
    assert ends(found, "forget_loss") == (np.mean(range(1, 11)), np.mean(range(16, 26)))
    assert ends(found, "forget_loss", 100) == (13.0, 13.0)
    assert ends(found, "seconds") == (0.25, 0.25)


def test_what_is_no_log_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / STEPS
    with pytest.raises(InputError, match="the step log of a training"):
        read_steps(path)
    path.write_bytes(b"cut")
    with pytest.raises(InputError, match="the step log of a training"):
        read_steps(path)
    pd.DataFrame({"step": [1]}).to_parquet(path)
    with pytest.raises(InputError, match="no column 'epoch'"):
        read_steps(path)
