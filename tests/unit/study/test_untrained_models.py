"""Random models on real backbones: what ZRF compares with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.tiny import OPTIONS, save_tiny_bert

from vestige.contracts import Floats
from vestige.decision.schema import Option, Schema
from vestige.models.decision import ModelSettings, build_decision_model
from vestige.study.backend import TorchBackend

pytestmark = pytest.mark.train


def test_a_seeds_random_model_is_the_same_each_time_and_no_other_seeds(tmp_path: Path) -> None:
    save_tiny_bert(tmp_path / "bert", dropout=0.0)
    backend = TorchBackend()
    schema = Schema(tuple(Option(name, text) for name, text in OPTIONS.items()))
    settings = backend.model_settings({"backbone": str(tmp_path / "bert"), "lora_rank": 8, "head_width": 16})
    assert isinstance(settings, ModelSettings)
    texts = list(OPTIONS.values())

    def built(name: str, seed: int) -> Floats:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        assert backend.build(schema=schema, model=settings, seed=seed, folder=folder)["drawn_parameters"] > 0
        return backend.predict(
            model=folder / "model", texts=texts, schema=schema, progress=lambda done, total: None
        )

    first, again, other = built("first", 17), built("again", 17), built("other", 42)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(built("first", 17), first)  # over what an interrupted sitting left
    assert not np.allclose(first, other)
    np.testing.assert_allclose(first.sum(axis=1), 1.0, atol=1e-12)
    # The texts are the options' own: what is only untrained finds some by similarity, random models fewer.
    right = [float(np.diag(p).mean()) for p in (first, other)]
    untrained = build_decision_model(settings, seed=17).predict(texts, schema)
    assert float(np.diag(untrained).mean()) > 0.4
    assert max(right) < float(np.diag(untrained).mean())
