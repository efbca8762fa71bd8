"""The loop: determinism, resuming after Ctrl-C and kill -9, NaN, what is logged."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny import save_tiny_bert, tiny_rows, tiny_schema

from vestige.contracts import LossBatch
from vestige.errors import Diverged, InputError, Interrupted
from vestige.methods import METHODS
from vestige.models.decision import ModelSettings, SchemaModel, build_decision_model
from vestige.training.batches import bucketed_batches, padding_factor, plan_steps
from vestige.training.checkpoint import load_checkpoint
from vestige.training.loop import Hooks, TaskSettings, TrainRows, train_task, unlearn, weights_sha256

pytestmark = pytest.mark.train

SETTINGS = TaskSettings(epochs=2, batch_size=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("bert"))  # dropout on: resuming must repeat it


def fresh(folder: Path) -> SchemaModel:
    return build_decision_model(ModelSettings(backbone=str(folder), lora_rank=4, dropout=None), seed=5)


def rows(n: int = 40) -> TrainRows:
    return TrainRows(*tiny_rows(n))


def train(model: SchemaModel, **options: Any) -> Any:
    return train_task(model, rows(), tiny_schema(), SETTINGS, seed=5, **options)


@pytest.fixture(scope="module")
def reference(folder: Path) -> str:
    """The weights of an uninterrupted run."""
    return str(train(fresh(folder))[0].weights_sha256)


def test_same_seed_same_bytes_other_seed_other_bytes(folder: Path, reference: str) -> None:
    assert train(fresh(folder))[0].weights_sha256 == reference
    other = train_task(fresh(folder), rows(), tiny_schema(), SETTINGS, seed=6)[0]
    assert other.weights_sha256 != reference


def test_ctrl_c_keeps_the_step_and_the_resumed_run_ends_the_same(
    folder: Path, reference: str, tmp_path: Path
) -> None:
    def press(step: int, steps: int, loss: float) -> None:
        if step == 4:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="interrupted after step 4 of 10: the state after step 4 was kept"):
        train(fresh(folder), folder=tmp_path, hooks=Hooks(progress=press))
    seen: list[int] = []
    record, log = train(
        fresh(folder), folder=tmp_path, hooks=Hooks(progress=lambda step, steps, loss: seen.append(step))
    )
    assert seen == [5, 6, 7, 8, 9, 10]
    assert record.weights_sha256 == reference
    assert record.resumed_at == (4,)
    assert [entry["step"] for entry in log] == list(range(1, 11))


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.training.test_loop import fresh, train
from vestige.training.loop import Hooks
def kill(step, steps, loss):
    if step == 6:
        os.kill(os.getpid(), signal.SIGKILL)
train(fresh(Path(sys.argv[1])), folder=Path(sys.argv[2]), hooks=Hooks(progress=kill, checkpoint_seconds=0))
"""


def test_kill_9_loses_at_most_the_checkpoint_interval(folder: Path, reference: str, tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), str(tmp_path)],
        cwd=root,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(root), str(root / "src"))),
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    (tmp_path / "partial-1").mkdir()  # what a kill inside a write leaves behind
    seen: list[int] = []
    record, _ = train(fresh(folder), folder=tmp_path, hooks=Hooks(progress=lambda s, n, x: seen.append(s)))
    assert seen == [6, 7, 8, 9, 10]
    assert record.weights_sha256 == reference


def test_a_checkpoint_of_other_settings_is_never_used(folder: Path, tmp_path: Path) -> None:
    train(fresh(folder), folder=tmp_path, hooks=Hooks(checkpoint_seconds=0))
    assert load_checkpoint(tmp_path, "something else") is None
    other = TaskSettings(epochs=2, batch_size=8, learning_rate=5e-4)
    record, _ = train_task(fresh(folder), rows(), tiny_schema(), other, seed=5, folder=tmp_path)
    assert record.resumed_at == ()


def test_a_damaged_checkpoint_is_passed_over(folder: Path, reference: str, tmp_path: Path) -> None:
    train(fresh(folder), folder=tmp_path, hooks=Hooks(checkpoint_seconds=0))
    (found,) = tmp_path.glob("checkpoint-*")
    (found / "weights.safetensors").write_bytes(b"cut")
    assert train(fresh(folder), folder=tmp_path)[0].weights_sha256 == reference


def test_nan_stops_with_step_rows_and_rate_and_keeps_the_last_good_state(
    folder: Path, tmp_path: Path
) -> None:
    method = METHODS.get("grad_diff")
    calls: list[int] = []
    states: list[str] = []
    model = fresh(folder)

    def poisoned(batch: LossBatch, settings: Any) -> Any:
        calls.append(1)
        states.append(weights_sha256(model.trainable_state()))
        return method.forget(batch, settings) * (float("nan") if len(calls) == 3 else 1.0)

    ids, texts, gold = tiny_rows(40)
    with pytest.raises(Diverged) as caught:
        unlearn(
            model,
            dataclasses.replace(method, forget=poisoned),
            method.settings(forget_batch=4, retain_batch=4, learning_rate=1e-3),
            forget=TrainRows(ids[:16], texts[:16], gold[:16]),
            retain=TrainRows(ids[16:], texts[16:], gold[16:]),
            schema=tiny_schema(),
            seed=1,
            folder=tmp_path,
        )
    assert caught.value.step == 3
    assert caught.value.learning_rate == pytest.approx(1e-3 * 3 / 6)
    assert len(caught.value.row_ids) == 8
    assert set(caught.value.row_ids) <= set(ids)
    assert "the state after step 2 was kept" in str(caught.value)
    assert weights_sha256(model.trainable_state()) == states[2]  # as the third step found it
    kept = next(tmp_path.glob("checkpoint-*"))
    assert kept.name == "checkpoint-00000002"


def test_a_step_logs_losses_norms_rate_and_seconds(folder: Path) -> None:
    method = METHODS.get("simnpo")
    ids, texts, gold = tiny_rows(40)
    record, log = unlearn(
        fresh(folder),
        method,
        method.settings(epochs=2, forget_batch=8, retain_batch=8),
        forget=TrainRows(ids[:16], texts[:16], gold[:16]),
        retain=TrainRows(ids[16:], texts[16:], gold[16:]),
        schema=tiny_schema(),
        seed=1,
    )
    assert record.steps == len(log) == 4
    assert record.forget_rows == 16
    assert record.rows_seen == 4 * 16
    for entry in log:
        assert entry["loss"] == pytest.approx(entry["forget_loss"] + entry["retain_loss"], rel=1e-5)
        assert entry["gradient_norm"] > 0
        assert entry["update_norm"] > 0
        assert entry["seconds"] > 0
    assert log[0]["learning_rate"] == pytest.approx(1e-4 / 6)


def test_the_state_after_an_epoch_does_not_depend_on_how_many_follow(folder: Path) -> None:
    method = METHODS.get("simnpo")
    ids, texts, gold = tiny_rows(40)
    states: dict[int, list[str]] = {1: [], 3: []}
    for epochs in states:
        model = fresh(folder)

        def note(epoch: int, model: SchemaModel = model, epochs: int = epochs) -> bool:
            states[epochs].append(weights_sha256(model.trainable_state()))
            return False

        unlearn(
            model,
            method,
            method.settings(epochs=epochs, forget_batch=8),
            forget=TrainRows(ids[:16], texts[:16], gold[:16]),
            retain=TrainRows(ids[16:], texts[16:], gold[16:]),
            schema=tiny_schema(),
            seed=1,
            hooks=Hooks(on_epoch=note),
        )
    assert states[3][0] == states[1][0]
    assert len(set(states[3])) == 3


def test_on_epoch_can_stop(folder: Path, tmp_path: Path) -> None:
    record, log = train(fresh(folder), folder=tmp_path, hooks=Hooks(on_epoch=lambda epoch: epoch == 1))
    assert record.epochs == 1
    assert len(log) == 5


def test_a_gold_label_outside_the_schema_is_one_line(folder: Path) -> None:
    bad = TrainRows(["r1"], ["card"], ["nothing"])
    with pytest.raises(InputError, match="gold option 'nothing'"):
        train_task(fresh(folder), bad, tiny_schema(), SETTINGS, seed=0)


def test_no_rows_is_one_line(folder: Path) -> None:
    with pytest.raises(InputError, match="needed at least one row"):
        train_task(fresh(folder), TrainRows((), (), ()), tiny_schema(), SETTINGS, seed=0)


def test_batches_hold_every_row_once_and_pad_little() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 60, 500).tolist()
    batches = bucketed_batches(lengths, 32, np.random.default_rng(1))
    assert sorted(i for batch in batches for i in batch) == list(range(500))
    assert padding_factor(lengths, batches) < 1.1
    unsorted = [range(start, min(start + 32, 500)) for start in range(0, 500, 32)]
    assert padding_factor(lengths, unsorted) > 1.6


def test_retain_batches_cycle_through_all_rows() -> None:
    plan = plan_steps(
        epochs=4, seed=0, forget_lengths=[5] * 12, forget_batch=4, retain_lengths=[6] * 20, retain_batch=5
    )
    assert len(plan) == 12
    assert [step.last_of_epoch for step in plan] == [False, False, True] * 4
    for start in range(0, 12, 4):
        assert sorted(i for step in plan[start : start + 4] for i in step.retain) == list(range(20))
