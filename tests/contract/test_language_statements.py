"""What every registered method that trains causal language models states about itself."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

from vestige.language import TRIAGE
from vestige.methods import METHODS

NAMES = [method.name for method in METHODS if method.language is not None]


def test_these_methods_train_language_models() -> None:
    expected = ["adaptive_rmu", "atu", "dpo", "grad_ascent", "grad_diff", "grad_diff_kl", "loku", "loku_fila"]
    assert [*expected, "npo", "obliviate", "rmu", "rsv", "simnpo", "spul"] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_states_formula_source_deviations_and_its_presets(name: str) -> None:
    method = METHODS.get(name)
    assert method.language is not None
    assert method.formula
    assert method.source
    assert method.deviations
    assert "causal-lm" in method.models
    defaults = method.language.settings()
    triage = method.language.settings.model_validate({**TRIAGE, **method.language.triage})
    assert triage.select == "last"
    assert triage.max_grad_norm is None
    assert set(method.language.needs(triage)) <= {"forget", "retain"}
    assert "forget" in method.language.needs(defaults)
