"""The torch backend under a study: a tiny random BERT, a real run, an interruption during training."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import OPTIONS, save_tiny_bert

from vestige.errors import InputError, Interrupted
from vestige.study.audit import audit_study
from vestige.study.backend import TorchBackend
from vestige.study.plan import Plan, parse_plan
from vestige.study.pool import Silent
from vestige.study.runner import run_study
from vestige.study.status import study_status
from vestige.study.steps import ends, read_steps
from vestige.study.tune import tune_study

pytestmark = pytest.mark.train
FILLERS = ["please", "help", "why", "my", "is", "the", "a", "how", "do", "i"]


def _rows(count: int, seed: int) -> list[dict[str, str]]:
    """Two words of an option among words that say nothing."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        option = sorted(OPTIONS)[number % len(OPTIONS)]
        words = [*rng.sample(OPTIONS[option].split(), 2), *rng.choices(FILLERS, k=rng.randint(1, 6))]
        rng.shuffle(words)
        rows.append({"row_id": f"{seed}-{number:03d}", "text": " ".join(words), "label": option})
    return rows


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny_bert(folder / "bert", dropout=0.0)
    for seed, split in enumerate(("train", "development", "evaluation")):
        lines = [json.dumps(row) for row in _rows(180 if split == "train" else 60, seed)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return parse_plan(
        json.dumps(
            {
                "name": "tiny",
                "dataset": {"name": "files", "path": str(folder)},
                "model": {"backbone": str(folder / "bert"), "lora_rank": 8, "head_width": 16},
                "training": {"epochs": 6, "batch_size": 16, "learning_rate": 1e-2},
                "deletion": {"units_per_bundle": 1, "bundles": ["01"]},
                "methods": [
                    {"method": "simnpo", "settings": {"epochs": 2, "learning_rate": 2e-3}},
                    {"method": "rmu", "settings": {"epochs": 2, "learning_rate": 2e-3}},
                    {"method": "temperature", "settings": {"temperature": 3.0}},
                ],
                "tuning": {
                    "epochs": 2,
                    "grid": {
                        "simnpo": {"learning_rate": [2e-3], "beta": [2.5], "retain_weight": [1.0]},
                        "rmu": {"learning_rate": [2e-3], "scale": [2.0], "retain_weight": [1.0]},
                    },
                },
                "draws": 100,
            }
        ),
        "tiny.yaml",
    )


class Interrupting(Silent):
    """Sends the signal of Ctrl-C once, in the middle of the second model."""

    def advance(self, amount: float = 1.0) -> None:
        super().advance(amount)
        if "oracle" in self.lines[-1] and not hasattr(self, "sent"):
            self.sent = True
            os.kill(os.getpid(), signal.SIGINT)


def test_a_real_run_interrupted_ends_in_the_same_bytes(plan: Plan, tmp_path: Path) -> None:
    whole = run_study(plan, tmp_path / "whole")
    (found,) = whole.assessments.values()
    full = found.model_named("full")
    assert found.options == len(OPTIONS)
    assert full.metrics["accuracy.R"].value > 0.8
    assert full.metrics["displacement.F"].value > 0.2
    assert found.model_named("SimNPO").metrics["progress.F"].value > 0.05
    assert found.model_named("RMU").metrics["oracle_distance.F"].value != full.metrics["displacement.F"].value
    softer = found.model_named("Temperature")
    assert softer.control
    assert softer.metrics["accuracy.R"].value == full.metrics["accuracy.R"].value
    assert softer.metrics["confidence.R"].value < full.metrics["confidence.R"].value
    assert audit_study(whole.root).passed
    with pytest.raises(Interrupted, match="checkpoint of the part at work"):
        run_study(plan, tmp_path / "run", report=Interrupting())
    begun = [item for item in study_status(tmp_path / "run").work if item.state == "interrupted"]
    assert [item.kind for item in begun] == ["oracle"]
    again = run_study(plan, tmp_path / "run")
    assert again.assessments["assessments/01-s17.json"].sources == found.sources
    oracle = next(path for path in (tmp_path / "run/nodes").glob("oracle-*/record.json"))
    assert json.loads(oracle.read_text())["result"]["resumed_at"]
    steps = read_steps(oracle.parent / "steps.parquet")
    assert list(steps["step"]) == list(range(1, len(steps) + 1))
    assert steps["resumed"].sum() == 1
    assert steps["forget_loss"].isna().all()
    first, last = ends(steps, "retain_loss") or (0.0, 0.0)
    assert first > last > 0
    assert ends(steps, "forget_loss") is None
    logs = list((tmp_path / "run/nodes").glob("unlearned-*/steps.parquet"))
    assert len(logs) == 2
    for log in logs:
        assert (read_steps(log)[["forget_loss", "update_norm", "seconds"]] > 0).all(axis=None)
        assert (read_steps(log)["retain_loss"] >= 0).all()  # RMU starts at its reference
    assert not list(tmp_path.rglob("checkpoint*"))


def test_tuning_scores_the_model_after_each_epoch(plan: Plan, tmp_path: Path) -> None:
    tuning = tune_study(plan, tmp_path / "run")
    for name in ("simnpo", "rmu"):
        (point,) = tuning.method(name).points
        first, second = point.epochs
        assert (first.epoch, second.epoch) == (1, 2)
        assert first.objective != second.objective
        assert 0 < first.update_norm < second.update_norm  # type: ignore[operator]
        assert isinstance(second.s, float)
    temperature = tuning.method("temperature")
    assert temperature.chosen is not None
    assert temperature.fitted is not None
    assert temperature.fitted.objective >= temperature.chosen.objective or not temperature.fitted.feasible
    assert not list((tmp_path / "run/nodes").glob("tuning-*/model"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda backend: backend.model_settings({"backbon": "x"}), "did you mean 'backbone'"),
        (lambda backend: backend.task_settings({"epoch": 1}), "did you mean 'epochs'"),
        (lambda backend: backend.objective("simnop"), "did you mean 'simnpo'"),
        (
            lambda backend: backend.identity(backend.model_settings({"backbone": "nowhere"})),
            "no such wheel",
        ),
    ],
)
def test_settings_that_do_not_exist(call: Callable[[TorchBackend], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(TorchBackend())


def test_the_identity_names_the_weights_and_the_packages(plan: Plan) -> None:
    backend = TorchBackend()
    model = backend.model_settings(plan.model)
    before = backend.identity(model)
    assert len(before["backbone"]) == 64
    assert {"torch", "transformers", "peft"} <= set(before["packages"])
    weights = Path(plan.model["backbone"]) / "model.safetensors"
    raw = weights.read_bytes()
    weights.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    try:
        assert backend.identity(model)["backbone"] != before["backbone"]
    finally:
        weights.write_bytes(raw)
