"""What holds for every registered unlearning method."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny import save_tiny_bert, tiny_rows, tiny_schema
from tests.tiny_lm import save_tiny_llama

from vestige.contracts import LossBatch, Objective
from vestige.errors import Diverged, InputError
from vestige.methods import METHODS
from vestige.methods.representation import middle_block, uniform_direction
from vestige.models.blocks import blocks_of
from vestige.models.decision import ModelSettings, SchemaModel, build_decision_model, load_decision_model
from vestige.seeds import generator
from vestige.study.backend import TorchBackend
from vestige.training import losses
from vestige.training.hidden import HiddenStates
from vestige.training.loop import TaskSettings, TrainingRecord, TrainRows, train_task, unlearn, weights_sha256

pytestmark = pytest.mark.train

NAMES = [method.name for method in METHODS if "decision" in method.models]
TRAINED = [name for name in NAMES if METHODS.get(name).forget is not None]
POST_HOC = [name for name in NAMES if METHODS.get(name).post_hoc is not None]
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


def run(
    full: Path, method: Objective, *, rate: float = 1e-3, folder: Path | None = None
) -> tuple[SchemaModel, TrainingRecord]:
    model = load_decision_model(full)
    record, _ = unlearn(
        model,
        method,
        method.settings(learning_rate=rate, epochs=2, forget_batch=8, retain_batch=8),  # type: ignore[arg-type]
        forget=FORGET,
        retain=RETAIN,
        schema=tiny_schema(),
        seed=4,
        folder=folder,
    )
    return model, record


@pytest.fixture(scope="module")
def unlearned(full: Path) -> dict[str, tuple[SchemaModel, TrainingRecord]]:
    return {name: run(full, METHODS.get(name)) for name in TRAINED}


def batch_of(n: int = 7, options: int = 5, seed: int = 0, *, same: bool = False) -> LossBatch:
    """A batch where theta differs from the reference (unless `same`); rows of unequal length."""
    random = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    logits = drawn(n, options).requires_grad_()
    ref = logits.detach() if same else drawn(n, options)
    hidden = drawn(n, 4, 3).requires_grad_()
    return LossBatch(
        log_probs=torch.log_softmax(logits, -1),
        gold=torch.randint(0, options, (n,), generator=random),
        ref_log_probs=torch.log_softmax(ref, -1),
        hidden=hidden,
        ref_hidden=hidden.detach() if same else drawn(n, 4, 3),
        hidden_mask=torch.arange(4)[None] <= torch.randint(0, 4, (n, 1), generator=random),
        steer=drawn(3),
    )


def row(batch: LossBatch, i: int) -> LossBatch:
    """One row of a batch."""
    values = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch)}
    cut = {k: v[i : i + 1] for k, v in values.items() if v is not None and k != "steer"}
    return LossBatch(**cut, steer=batch.steer)


def terms(method: Objective) -> list[Any]:
    return [term for term in (method.forget, method.retain) if term is not None]


def test_the_eight_methods_are_registered() -> None:
    expected = ["grad_ascent", "grad_diff", "grad_diff_kl", "npo", "rmu", "simnpo", "uniformization"]
    assert set(expected) <= set(TRAINED)
    assert POST_HOC == ["temperature"]
    assert sorted({*TRAINED, *POST_HOC}) == NAMES
    assert [m.name for m in METHODS if m.role == "control"] == ["temperature", "uniformization"]


@pytest.mark.parametrize("name", TRAINED)
def test_terms_are_finite_scalars_with_finite_gradients(name: str) -> None:
    method = METHODS.get(name)
    for term in terms(method):
        batch = batch_of()
        value = term(batch, method.settings())
        assert value.shape == ()
        read = (batch.hidden if method.hidden else batch.log_probs,)
        (gradient,) = torch.autograd.grad(value, read)  # type: ignore[arg-type]
        assert torch.isfinite(gradient).all()
        assert gradient.abs().sum() > 0


@pytest.mark.parametrize("name", TRAINED)
def test_a_term_is_the_mean_of_its_rows(name: str) -> None:
    method = METHODS.get(name)
    batch = batch_of()
    for term in terms(method):
        parts = [term(row(batch, i), method.settings()) for i in range(7)]
        torch.testing.assert_close(term(batch, method.settings()), torch.stack(parts).mean())


@pytest.mark.parametrize("name", TRAINED)
def test_padding_side_changes_no_loss(name: str) -> None:
    """Tokens moved to the other end of a padded row, with anything in the padding."""
    method = METHODS.get(name)
    batch = batch_of()
    assert batch.hidden is not None
    assert batch.ref_hidden is not None
    assert batch.hidden_mask is not None
    noise = torch.where(batch.hidden_mask[..., None], batch.hidden, torch.tensor(float("nan")))
    moved = dataclasses.replace(
        batch,
        hidden=noise.flip(1),
        ref_hidden=batch.ref_hidden.flip(1),
        hidden_mask=batch.hidden_mask.flip(1),
    )
    for term in terms(method):
        torch.testing.assert_close(term(moved, method.settings()), term(batch, method.settings()))


@pytest.mark.parametrize("name", TRAINED)
def test_only_the_stated_terms_read_the_reference(name: str) -> None:
    method = METHODS.get(name)
    settings = method.settings()
    batch = dataclasses.replace(batch_of(), ref_log_probs=None, ref_hidden=None)
    reads = method.reference_terms(settings)
    if method.hidden:
        reads = reads | method.hidden(settings).terms
    for term, loss in (("forget", method.forget), ("retain", method.retain)):
        if loss is not None and term in reads:
            with pytest.raises((ValueError, AssertionError)):
                loss(batch, settings)
        elif loss is not None:
            assert torch.isfinite(loss(batch, settings))


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


@pytest.mark.parametrize("name", TRAINED)
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
    assert unlearned[name][1].weights_sha256 == weights_sha256(unlearned[name][0].trainable_state())


@pytest.mark.parametrize("name", TRAINED)
def test_the_same_seed_gives_the_same_bytes(
    name: str, full: Path, unlearned: dict[str, tuple[SchemaModel, TrainingRecord]]
) -> None:
    assert run(full, METHODS.get(name))[1].weights_sha256 == unlearned[name][1].weights_sha256


@pytest.mark.parametrize("name", POST_HOC)
def test_post_hoc_methods_train_nothing(name: str, full: Path, tmp_path: Path) -> None:
    method = METHODS.get(name)
    model = load_decision_model(full)
    before = weights_sha256(dict(model.named_parameters()))
    start = model.predict(TEXTS, tiny_schema())
    with pytest.raises(InputError, match="trains nothing"):
        unlearn(model, method, method.settings(), forget=FORGET, retain=RETAIN, schema=tiny_schema(), seed=0)  # type: ignore[arg-type]
    assert method.post_hoc is not None
    method.post_hoc(model, method.settings(temperature=3.0))
    assert weights_sha256(dict(model.named_parameters())) == before
    expected = start ** (1 / 3)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict(TEXTS, tiny_schema()), expected, atol=1e-6)
    trained = model.log_probs(model.tokenise(TEXTS[:3]), tiny_schema())
    np.testing.assert_allclose(trained.detach().exp().numpy(), expected[:3], atol=1e-6)
    model.save(tmp_path / "soft")
    assert load_decision_model(tmp_path / "soft").temperature == 3.0
    text = json.loads((tmp_path / "soft/model.json").read_text())
    (tmp_path / "soft/model.json").write_text(json.dumps({**text, "temperature": 0.0}))
    with pytest.raises(InputError, match=r"temperature 0\.0"):
        load_decision_model(tmp_path / "soft")


@pytest.mark.parametrize("name", TRAINED)
def test_nan_stops_with_step_rows_and_rate_and_keeps_the_last_good_state(
    name: str, full: Path, tmp_path: Path
) -> None:
    method = METHODS.get(name)
    forget = method.forget
    assert forget is not None
    calls = itertools.count(1)

    def poisoned(batch: LossBatch, settings: Any) -> torch.Tensor:
        return forget(batch, settings) * (float("nan") if next(calls) == 2 else 1.0)

    with pytest.raises(Diverged, match="the state after step 1 was kept") as caught:
        run(full, dataclasses.replace(method, forget=poisoned), folder=tmp_path)
    assert caught.value.step == 2
    assert set(caught.value.row_ids) <= set(IDS)
    assert caught.value.learning_rate == pytest.approx(1e-3 * 2 / 6)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-00000001"]


LOWERING = [name for name in TRAINED if not METHODS.get(name).hidden]


@pytest.mark.parametrize("name", LOWERING)
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
    tmp_path: Path, full: Path, unlearned: dict[str, tuple[SchemaModel, TrainingRecord]]
) -> None:
    models = {name: model for name, (model, _) in unlearned.items()}
    for name in POST_HOC:
        models[name] = load_decision_model(full)
        METHODS.get(name).post_hoc(models[name], METHODS.get(name).settings())  # type: ignore[misc]
    for name, model in models.items():
        model.save(tmp_path / name, include_backbone=True)
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RELOAD, str(tmp_path), str(torch.get_num_threads())],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "src")))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    probs = json.loads(done.stdout)
    assert sorted(probs) == NAMES
    for name, model in models.items():
        assert np.array_equal(np.array(probs[name]), model.predict(TEXTS, tiny_schema())), name


def test_no_two_methods_agree_in_forget_and_retain_loss_and_start() -> None:
    """A post-hoc method has no losses; its start is another model's scores."""
    batch = batch_of()
    seen = {}
    for name in NAMES:
        method = METHODS.get(name)
        settings = method.settings()
        losses_now = [
            None if t is None else round(t(batch, settings).item(), 9) for t in (method.forget, method.retain)
        ]
        seen[name] = (*losses_now, method.post_hoc)
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


def test_rmu_by_hand() -> None:
    """Three tokens of width 2, the third one padding in the first row."""
    hidden = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [9.0, 9.0]], [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]])
    ref = torch.tensor([[[1.0, 2.0], [0.0, 2.0], [0.0, 0.0]], [[1.0, 1.0], [0.0, 1.0], [3.0, 0.0]]])
    batch = LossBatch(
        log_probs=hidden.new_zeros(2, 0),
        gold=torch.zeros(2, dtype=torch.long),
        hidden=hidden,
        ref_hidden=ref,
        hidden_mask=torch.tensor([[True, True, False], [True, True, True]]),
        steer=torch.tensor([1.0, 2.0]),
    )
    method = METHODS.get("rmu")
    assert method.forget is not None
    assert method.retain is not None
    # rows' token means of |h - (1, 2)|^2 / 2: (4/2 + 1/2) / 2 and (1/2 + 1/2 + 5/2) / 3
    assert method.forget(batch, method.settings()).item() == pytest.approx((1.25 + 3.5 / 3) / 2)
    # |h - h_ref|^2 / 2: (4/2 + 0) / 2 and (0 + 1/2 + 9/2) / 3
    assert method.retain(batch, method.settings()).item() == pytest.approx((1.0 + 5 / 3) / 2)


def test_rmus_direction_and_block() -> None:
    assert [middle_block(blocks) for blocks in (1, 2, 3, 4, 5, 6, 24)] == [0, 1, 2, 2, 3, 3, 12]
    direction = uniform_direction(np.random.default_rng(0), 5)
    assert np.linalg.norm(direction) == pytest.approx(1)
    drawn = np.random.default_rng(0).random(5)
    np.testing.assert_allclose(direction, drawn / np.linalg.norm(drawn))


def test_hidden_states_are_those_of_the_utterance_and_the_reference_is_the_start(full: Path) -> None:
    model = load_decision_model(full)
    schema = tiny_schema()
    method = METHODS.get("rmu")
    settings = method.settings(scale=3.0)  # type: ignore[call-arg]
    assert method.hidden is not None
    use = dataclasses.replace(method.hidden(settings), block=lambda blocks: 0)
    # unequal lengths, and a real separator inside a text
    ids = model.tokenise([*TEXTS[:5], "card [SEP] fee cash"])
    states = HiddenStates(model, schema, use, ids, seed=9)
    lengths = torch.tensor([len(item) for item in ids])
    hidden, mask = model.hidden(ids, schema, 0)
    assert torch.equal(mask.sum(-1), lengths)
    norm = hidden.norm(dim=-1)[mask].mean().item()
    expected = 3.0 * norm * uniform_direction(generator(9, "steering direction"), 32)
    np.testing.assert_allclose(states.steer.numpy(), expected, rtol=1e-5)
    assert {name.split(".")[0] for name in states.above} == {"backbone", "head"}
    assert all("head." in name or ".layer.1." in name for name in states.above)
    start = hidden.detach().clone()
    for name, value in model.trainable_state().items():
        value.data = value.data + (0.0 if name in states.above else 0.05)
    scored = states.score(ids, 2)
    assert scored.hidden is not None
    assert scored.ref_hidden is not None
    assert scored.mask is not None
    torch.testing.assert_close(scored.ref_hidden[2:][mask[2:]], start[2:][mask[2:]])
    assert (scored.hidden[mask] - start[mask]).abs().max() > 1e-3
    for i, row_ids in enumerate(ids):  # batch composition changes no row
        alone, _ = model.hidden([row_ids], schema, 0)
        torch.testing.assert_close(scored.hidden[i][mask[i]], alone[0], atol=1e-5, rtol=1e-5)
    assert not any(block._forward_hooks for block in blocks_of(model))
    assert np.isfinite(model.predict(TEXTS[:2], schema)).all()


def test_rmu_unlearns_a_causal_reader_below_the_block_alone(tmp_path: Path) -> None:
    """A decoder that reads the options first: the utterance's own tokens after them, lower adapters alone."""
    save_tiny_llama(tmp_path / "llama", layers=4)
    made = ModelSettings(backbone=str(tmp_path / "llama"), reader="in_context", lora_rank=4)
    model = build_decision_model(made, seed=3)
    schema, ids = tiny_schema(), model.tokenise(TEXTS[:4])
    hidden, mask = model.hidden(ids, schema, 1)
    assert mask.sum(-1).tolist() == [len(item) for item in ids]
    for i, row_ids in enumerate(ids):
        alone, _ = model.hidden([row_ids], schema, 1)
        torch.testing.assert_close(hidden[i][mask[i]], alone[0], atol=1e-5, rtol=1e-4)
    fewer = schema.subset(schema.ids[:2])
    assert (model.hidden(ids, fewer, 1)[0][mask] - hidden[mask]).abs().max() > 1e-3
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    method = METHODS.get("rmu")
    _, log = unlearn(
        model,
        method,
        method.settings(learning_rate=5e-3, epochs=3, forget_batch=10, retain_batch=10, warmup_steps=0),  # type: ignore[call-arg, arg-type]
        forget=FORGET,
        retain=RETAIN,
        schema=schema,
        seed=4,
    )
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert moved
    assert all("lora_" in name and ".layers.3." not in name for name in moved)
    assert any(".layers.2." in name for name in moved)
    assert log[-1]["forget_loss"] < log[0]["forget_loss"]
    assert all(
        value.requires_grad == ("lora_" in name or "head." in name)
        for name, value in model.named_parameters()
    )


def test_adapters_above_the_steered_block_alone_are_refused_in_one_line(tmp_path: Path) -> None:
    """Nothing that the block's output depends on would be trained: said before training, and by the loop."""
    save_tiny_llama(tmp_path / "llama", layers=4)
    method = METHODS.get("rmu")
    made = ModelSettings(backbone=str(tmp_path / "llama"), reader="in_context", lora_rank=4, lora_layers=1)
    needed = r"output of block 2.*needed adapters at that block or below it"
    with pytest.raises(InputError, match=needed):
        TorchBackend().refuse(made, method)
    with pytest.raises(InputError, match=needed):
        unlearn(
            build_decision_model(made, seed=3),
            method,
            method.settings(),  # type: ignore[arg-type]
            forget=FORGET,
            retain=RETAIN,
            schema=tiny_schema(),
            seed=4,
        )
    TorchBackend().refuse(ModelSettings(**{**made.model_dump(), "lora_layers": 2}), method)
    TorchBackend().refuse(made, METHODS.get("simnpo"))
