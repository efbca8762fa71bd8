"""What holds for every registered unlearning method."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny import save_tiny_bert, tiny_rows, tiny_schema

from vestige.contracts import LossBatch, Objective
from vestige.methods import METHODS
from vestige.models.decision import ModelSettings, SchemaModel, build_decision_model, load_decision_model
from vestige.training import losses
from vestige.training.loop import TaskSettings, TrainingRecord, TrainRows, train_task, unlearn

pytestmark = pytest.mark.train

NAMES = METHODS.names()
IDS, TEXTS, GOLD = tiny_rows(64)
FORGET = TrainRows(IDS[:20], TEXTS[:20], GOLD[:20])
RETAIN = TrainRows(IDS[20:], TEXTS[20:], GOLD[20:])


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained full model that stands alone in its folder."""
    root = tmp_path_factory.mktemp("full")
    backbone = save_tiny_bert(root / "bert", dropout=0.0)
    model = build_decision_model(ModelSettings(backbone=str(backbone), lora_rank=4), seed=2)
    settings = TaskSettings(epochs=8, batch_size=16, learning_rate=3e-3)
    train_task(model, TrainRows(IDS, TEXTS, GOLD), tiny_schema(), settings, seed=2)
    model.save(root / "model", include_backbone=True)
    return root / "model"


def run(full: Path, method: Objective, *, rate: float = 1e-3) -> tuple[SchemaModel, TrainingRecord]:
    model = load_decision_model(full)
    record, _ = unlearn(
        model,
        method,
        method.settings(learning_rate=rate, epochs=2, forget_batch=8, retain_batch=8),
        forget=FORGET,
        retain=RETAIN,
        schema=tiny_schema(),
        seed=4,
    )
    return model, record


@pytest.fixture(scope="module")
def unlearned(full: Path) -> dict[str, tuple[SchemaModel, TrainingRecord]]:
    return {name: run(full, METHODS.get(name)) for name in NAMES}


def batch_of(n: int = 7, options: int = 5, seed: int = 0, *, same: bool = False) -> LossBatch:
    """A batch where theta differs from the reference (unless `same`)."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, options, generator=random, dtype=torch.float64, requires_grad=True)
    ref = logits.detach() if same else torch.randn(n, options, generator=random, dtype=torch.float64)
    return LossBatch(
        log_probs=torch.log_softmax(logits, -1),
        gold=torch.randint(0, options, (n,), generator=random),
        ref_log_probs=torch.log_softmax(ref, -1),
    )


def test_the_six_methods_are_registered() -> None:
    expected = ["grad_ascent", "grad_diff", "grad_diff_kl", "npo", "simnpo", "uniformization"]
    assert set(expected) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_terms_are_finite_scalars_with_finite_gradients(name: str) -> None:
    method = METHODS.get(name)
    settings = method.settings()
    for term in filter(None, (method.forget, method.retain)):
        batch = batch_of()
        value = term(batch, settings)
        assert value.shape == ()
        (gradient,) = torch.autograd.grad(value, batch.log_probs)
        assert torch.isfinite(gradient).all()
        assert gradient.abs().sum() > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_term_is_the_mean_of_its_rows(name: str) -> None:
    method = METHODS.get(name)
    batch = batch_of()
    assert batch.ref_log_probs is not None
    for term in filter(None, (method.forget, method.retain)):
        parts = [
            term(
                LossBatch(
                    log_probs=batch.log_probs[i : i + 1],
                    gold=batch.gold[i : i + 1],
                    ref_log_probs=batch.ref_log_probs[i : i + 1],
                ),
                method.settings(),
            )
            for i in range(7)
        ]
        torch.testing.assert_close(term(batch, method.settings()), torch.stack(parts).mean())


@pytest.mark.parametrize("name", NAMES)
def test_only_the_stated_terms_read_the_reference(name: str) -> None:
    method = METHODS.get(name)
    batch = dataclasses.replace(batch_of(), ref_log_probs=None)
    reads = method.reference_terms(method.settings())
    for term, loss in (("forget", method.forget), ("retain", method.retain)):
        if loss is not None and term in reads:
            with pytest.raises((ValueError, AssertionError)):
                loss(batch, method.settings())
        elif loss is not None:
            assert torch.isfinite(loss(batch, method.settings()))


@pytest.mark.parametrize("name", NAMES)
def test_it_states_formula_source_and_deviations(name: str) -> None:
    method = METHODS.get(name)
    assert method.formula
    assert method.source
    assert method.deviations
    for field in method.grid:
        assert field in method.settings.model_fields
        for value in method.grid[field]:
            method.settings(**{field: value})


@pytest.mark.parametrize("name", NAMES)
def test_only_trainable_parameters_move(
    name: str, full: Path, unlearned: dict[str, tuple[SchemaModel, TrainingRecord]]
) -> None:
    before = dict(load_decision_model(full).named_parameters())
    moved = 0
    for key, value in unlearned[name][0].named_parameters():
        if value.requires_grad:
            moved += not torch.equal(value, before[key])
        else:
            assert torch.equal(value, before[key]), key
    assert moved > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_bytes(
    name: str, full: Path, unlearned: dict[str, tuple[SchemaModel, TrainingRecord]]
) -> None:
    assert run(full, METHODS.get(name))[1].weights_sha256 == unlearned[name][1].weights_sha256


@pytest.mark.parametrize("name", NAMES)
def test_it_lowers_the_forgotten_probability(
    name: str, full: Path, unlearned: dict[str, tuple[SchemaModel, TrainingRecord]]
) -> None:
    schema = tiny_schema()
    columns = [schema.ids.index(gold) for gold in FORGET.gold]
    rows = np.arange(len(FORGET))
    start = load_decision_model(full).predict(FORGET.texts, schema)[rows, columns].mean()
    assert unlearned[name][0].predict(FORGET.texts, schema)[rows, columns].mean() < start


RELOAD = """
import json, sys
from pathlib import Path
import torch
from tests.tiny import tiny_rows, tiny_schema
from vestige.models.decision import load_decision_model
torch.set_num_threads(int(sys.argv[2]))
out = {}
for folder in sorted(Path(sys.argv[1]).iterdir()):
    out[folder.name] = load_decision_model(folder).predict(tiny_rows(64)[1], tiny_schema()).tolist()
print(json.dumps(out))
"""


def test_a_new_process_reloads_each_from_its_folder_alone(
    tmp_path: Path, unlearned: dict[str, tuple[SchemaModel, TrainingRecord]]
) -> None:
    for name, (model, _) in unlearned.items():
        model.save(tmp_path / name, include_backbone=True)
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RELOAD, str(tmp_path), str(torch.get_num_threads())],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    probs = json.loads(done.stdout)
    assert sorted(probs) == NAMES
    for name, (model, _) in unlearned.items():
        assert np.array_equal(np.array(probs[name]), model.predict(TEXTS, tiny_schema())), name


def test_no_two_methods_agree_in_forget_and_retain_loss() -> None:
    batch = batch_of()
    seen = {}
    for name in NAMES:
        method = METHODS.get(name)
        settings = method.settings()
        kept = method.retain(batch, settings).item() if method.retain else None
        seen[name] = (round(method.forget(batch, settings).item(), 9), kept)
    for first, second in itertools.combinations(NAMES, 2):
        assert seen[first] != seen[second], (first, second)


def test_losses_by_hand() -> None:
    p = torch.tensor([0.5, 0.25], dtype=torch.float64)
    ref = torch.tensor([0.25, 0.5], dtype=torch.float64)
    assert losses.nll(p.log()).item() == pytest.approx((np.log(2) + np.log(4)) / 2)
    # (p/ref)^beta with beta = 2: 4 and 1/4; -(2/2) mean log(1 / (1 + x))
    assert losses.npo(p.log(), ref.log(), 2.0).item() == pytest.approx((np.log(5) + np.log(1.25)) / 2)
    # p^beta = 1/4 and 1/16; the second row has two positions, so its exponent is halved: 1/4
    lengths = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert losses.simnpo(p.log(), lengths, 2.0, 0.0).item() == pytest.approx(np.log(1.25))
    assert losses.simnpo(p.log(), None, 2.0, 0.0).item() == pytest.approx(
        (np.log(1.25) + np.log(17 / 16)) / 2
    )
    two = torch.tensor([[0.5, 0.5], [0.75, 0.25]], dtype=torch.float64).log()
    other = torch.tensor([[0.75, 0.25], [0.75, 0.25]], dtype=torch.float64).log()
    kl = 0.75 * np.log(0.75 / 0.5) + 0.25 * np.log(0.25 / 0.5)
    assert losses.kl_from_reference(two, other).item() == pytest.approx(kl / 2)
    uniform = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
    assert losses.kl_from_uniform(two).item() == pytest.approx(uniform / 2)


@pytest.mark.parametrize("beta", [2.5, 10.0])
def test_npo_at_the_reference_is_its_constant(beta: float) -> None:
    batch = batch_of(same=True)
    value = losses.npo(batch.target_log_probs, batch.ref_target_log_probs, beta)
    assert value.item() == pytest.approx(2 / beta * np.log(2))
    assert losses.kl_from_reference(batch.log_probs, batch.ref_log_probs).item() == pytest.approx(
        0, abs=1e-12
    )  # type: ignore[arg-type]


def test_losses_stay_finite_where_probabilities_vanish() -> None:
    tiny = torch.tensor([-800.0, -0.0], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([-0.1, -700.0], dtype=torch.float64)
    for value in (losses.npo(tiny, ref, 10.0), losses.simnpo(tiny, None, 10.0, 0.0)):
        (gradient,) = torch.autograd.grad(value, tiny)
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()
