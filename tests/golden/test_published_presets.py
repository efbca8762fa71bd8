"""Preset `triage` of the methods for language models against the published hyperparameters."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from vestige.attacks.relearn_records import RelearnSettings
from vestige.language import TRIAGE, FitSettings
from vestige.methods import METHODS
from vestige.training.language import share_of_rate

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
    # Weights in bfloat16; questions are scored with their answers, without an end token; published windows.
    assert (settings.dtype, settings.scored, settings.end_token) == ("bfloat16", "all", False)
    assert (settings.windows, settings.reduction) == ("cut", "mean")


def test_what_single_methods_do_as_the_published_code() -> None:
    for name in ("npo", "simnpo", "dpo"):
        assert preset(name).sigmoid == "batch"
    assert (preset("dpo").refusal_draw, preset("dpo").refusal_alone) == ("first", True)
    assert [preset(name).retain_length for name in ("rmu", "adaptive_rmu", "rsv", "npo")] == [
        512,
        512,
        None,
        None,
    ]
    assert preset("atu").encoder == "sentence-transformers/all-mpnet-base-v2"
    spul = preset("spul")
    assert (spul.divergence, spul.tune_steps, spul.tune_once) == ("frozen to prompted", 300, True)
    assert {preset(name).reload for name in ("spul", "loku_fila")} == {"published"}
    assert (preset("obliviate").keyword_tokens, preset("obliviate").skip_ends) == ("start", True)


def test_the_relearning_attack_is_the_published_one() -> None:
    """52 windows a topic (13 whole batches), 130 steps of two topics, AdamW's own decay, no clipping."""
    settings = RelearnSettings(preset="triage")
    assert (settings.weight_decay, settings.max_grad_norm, settings.learning_rate) == (0.01, None, 1e-5)
    assert (settings.sequences, settings.batch_size, settings.epochs) == (52, 4, 5)
    assert (settings.max_length, settings.topic_lengths) == (512, {"cyber": 768})
    assert (settings.dtype, settings.windows, settings.asking.bos) == ("bfloat16", "cut", "none")
    steps = settings.epochs * 2 * settings.sequences // settings.batch_size
    fit = FitSettings(warmup_share=settings.warmup_share, warmup_from_zero=settings.warmup_from_zero)
    rates = [share_of_rate(step, steps, fit) for step in range(steps)]
    assert steps == 130
    assert rates[:5] == pytest.approx([0, 1 / 3, 2 / 3, 1, 126 / 127])
    assert rates[-1] == pytest.approx(1 / 127)
