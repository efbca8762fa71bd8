"""The reload check of every architecture family, which layers are adapted, and the shipped panel."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

from torch import nn

from vestige.cli import run
from vestige.errors import InputError
from vestige.models import reload_check as checks
from vestige.models.lora_targets import adapted_layers
from vestige.models.panel import panel
from vestige.models.reload_check import FAMILIES, reload_check

pytestmark = pytest.mark.train

RECURRENT = {"qwen3.5", "granite4-hybrid", "falcon-h1", "lfm2", "nemotron-h"}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_family_trains_saves_and_reloads_bit_for_bit(family: str, tmp_path: Path) -> None:
    found = reload_check(family, tmp_path)
    if not found.available:
        pytest.skip(f"{FAMILIES[family].config} is not in the installed transformers")
    assert found.equal
    assert found.adapted == found.expected
    assert found.trained == 1.0
    assert found.passed
    expected = "full sequences" if family in RECURRENT else "cached prefix"
    assert found.reading == (expected if FAMILIES[family].reader == "in_context" else "joint options")
    if found.reading == "cached prefix":
        assert found.cached_error is not None
        assert found.cached_error < 1e-4  # of probabilities, logits of size 20
    else:
        assert found.cached_error is None


def test_a_model_that_comes_back_changed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    load = checks.load_decision_model

    def damaged(folder: Path) -> object:
        model = load(folder)
        model.head.log_scale.data += 1e-3
        return model

    monkeypatch.setattr(checks, "load_decision_model", damaged)
    found = reload_check("llama")
    assert not found.equal
    assert not found.passed
    assert run(["list", "models", "--check", "llama"]) == 1


def test_a_family_that_transformers_lacks_is_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(FAMILIES, "llama", checks.Family("NoSuchConfig", ()))
    found = reload_check("llama")
    assert not found.available
    assert not found.passed
    assert run(["list", "models", "--check", "llama"]) == 0
    assert "not in the installed transformers" in capsys.readouterr().out


def test_check_prints_json_and_refuses_unknown_families(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "models", "--check", "qwen2", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["equal"]
    assert found["reading"] == "cached prefix"
    assert run(["list", "models", "--check", "qwenn2"]) == 2
    assert "did you mean 'qwen2'?" in capsys.readouterr().err
    assert run(["list", "methods", "--check", "qwen2"]) == 2


def test_panel_is_the_published_one() -> None:
    models = panel()
    assert len({model.name for model in models}) == 20
    assert len({model.hub_id for model in models}) == 20
    assert [model.name for model in models if model.role == "reference"] == ["Qwen3.5-0.8B"]
    assert {model.family for model in models} <= set(FAMILIES)
    assert {model.reader for model in models} == {"in_context"}
    assert Counter(model.family for model in models)["qwen3.5"] == 4


def test_no_projection_inside_the_blocks_is_an_error_with_the_layers_there_are() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lm_head = nn.Linear(2, 2)
            self.router = nn.Linear(2, 2)

    with pytest.raises(InputError, match="no dense layers"):
        adapted_layers(Odd())
