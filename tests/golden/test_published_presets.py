"""Preset `triage` of the methods for language models against the published hyperparameters."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from vestige.language import TRIAGE
from vestige.methods import METHODS

NAMES = {
    "GA": "grad_ascent",
    "GD": "grad_diff",
    "NPO": "npo",
    "SimNPO": "simnpo",
    "DPO": "dpo",
    "RMU": "rmu",
    "Adaptive-RMU": "adaptive_rmu",
    "RSV": "rsv",
    "ATU": "atu",
    "Obliviate": "obliviate",
    "SPUL": "spul",
    "LoKU+FILA": "loku_fila",
}
FIELDS = {
    "lr": "learning_rate",
    "alpha_retain_weight": "retain_weight",
    "beta": "beta",
    "coeff": "coeff",
    "scale": "scale",
    "threshold": "threshold",
    "align_lr": "align_rate",
    "lambda_1": "lambda_1",
    "lambda_2": "lambda_2",
    "prompt_tokens": "virtual_tokens",
}


def preset(name: str) -> Any:
    use = METHODS.get(name).language
    assert use is not None
    return use.settings.model_validate({**TRIAGE, **use.triage})


def test_every_published_number_is_a_preset(paper: Path) -> None:
    with (paper / "triage_hyperparameters.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert {row["method"] for row in table} == set(NAMES)
    compared = 0
    for row in table:
        settings = preset(NAMES[row["method"]])
        for column, field in FIELDS.items():
            if row[column]:
                assert getattr(settings, field) == pytest.approx(float(row[column])), (row["method"], field)
                compared += 1
        if row["retain_loss"] == "KL" and hasattr(settings, "retain"):
            assert settings.retain == "kl"
    assert compared == 36


@pytest.mark.parametrize("name", [m.name for m in METHODS if m.language is not None])
def test_the_run_itself_is_the_published_one(name: str) -> None:
    """Batches of 4, at most 500 of them, one pass in file order, constant rate, no clipping, last state."""
    settings = preset(name)
    assert (settings.batch_size, settings.max_steps, settings.epochs, settings.shuffle) == (4, 500, 1, False)
    assert (settings.warmup_steps, settings.weight_decay, settings.max_grad_norm) == (0, 0.01, None)
    assert (settings.max_length, settings.length("cyber"), settings.select) == (512, 768, "last")
    assert settings.lora.model_dump() == {"rank": 16, "alpha": 32.0, "dropout": 0.05}
    assert settings.noise_std == 0
