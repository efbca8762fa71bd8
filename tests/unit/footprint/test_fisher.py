"""The Fisher diagonal against a loop over single sequences and torch.func, whatever the batches."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny_lm import tiny_llama, tiny_texts, tiny_tokenizer
from torch import Tensor

from vestige.data.corpora import Corpus, Document, TokenSequence, draw_sample
from vestige.errors import InputError
from vestige.footprint.fisher import chunked, fisher_diagonal
from vestige.models.projections import target_parameters

ROOT = Path(__file__).resolve().parents[3]


def sequences(n: int = 13, seed: int = 0) -> tuple[TokenSequence, ...]:
    documents = tuple(Document(str(i), text) for i, text in enumerate(tiny_texts(n, seed=seed)))
    corpus = Corpus(name="a", role="forget", documents=documents)
    return draw_sample(corpus, tiny_tokenizer(), units=n, subsets=1).subsets[0]


def one_at_a_time(model: Any, units: Sequence[TokenSequence], reduction: str = "mean") -> dict[str, Tensor]:
    """The definition: a backward pass a sequence, squares summed in float64."""
    targets = target_parameters(model)
    total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in targets.items()}
    for unit in units:
        ids = torch.tensor([unit.ids])
        for value in targets.values():
            value.requires_grad_()
            value.grad = None
        logits = model(input_ids=ids).logits[0, :-1]
        torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction=reduction).backward()
        for name, value in targets.items():
            assert value.grad is not None
            total[name] += value.grad.double() ** 2
            value.grad = None
            value.requires_grad_(False)
    return {name: value / len(units) for name, value in total.items()}


def distance(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """|dF| / |F|."""
    off = sum(float((found[name].double() - value).square().sum()) for name, value in expected.items())
    return float((off / sum(float(value.square().sum()) for value in expected.values())) ** 0.5)


@pytest.fixture(scope="module")
def exact() -> tuple[Any, tuple[TokenSequence, ...], dict[str, Tensor]]:
    model, units = tiny_llama(dtype="float64"), sequences()
    return model, units, one_at_a_time(model, units)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_size": 1},
        {"batch_size": 5},
        {"batch_size": 4, "side": "left"},
        {"batch_tokens": 30},
        {"checkpointing": True},
        {"max_bytes": 20_000},
        {"max_bytes": 1, "checkpointing": True, "batch_size": 3},
    ],
    ids=str,
)
def test_batches_padding_checkpointing_and_chunks_change_nothing(exact: Any, settings: Any) -> None:
    model, units, expected = exact
    found = fisher_diagonal(model, target_parameters(model), units, **settings)
    assert distance(found.values, expected) < 1e-9
    total = sum(float(value.sum()) for value in expected.values())
    assert float(found.traces.mean()) == pytest.approx(total, rel=1e-9)
    assert {value.dtype for value in found.values.values()} == {torch.float64}


def test_the_order_of_sequences_changes_nothing(exact: Any) -> None:
    model, units, expected = exact
    found = fisher_diagonal(model, target_parameters(model), units[::-1], batch_size=4)
    assert distance(found.values, expected) < 1e-9
    forward = fisher_diagonal(model, target_parameters(model), units)
    assert torch.allclose(found.traces.flip(0), forward.traces, rtol=1e-9)


def test_float32_is_close_to_float64_and_bfloat16_sums_in_float32(exact: Any) -> None:
    _, units, expected = exact
    model = tiny_llama()
    for settings in ({}, {"batch_size": 1}, {"side": "left"}):
        found = fisher_diagonal(model, target_parameters(model), units, **settings)
        assert distance(found.values, expected) < 1e-4
    rough = tiny_llama(dtype="bfloat16")
    found = fisher_diagonal(rough, target_parameters(rough), units)
    assert {value.dtype for value in found.values.values()} == {torch.float32}
    # the model itself rounds to 8 bits; its own gradients, one at a time, are as far away
    assert distance(found.values, one_at_a_time(rough, units)) < 0.02


def test_sums_over_tokens_instead_of_means(exact: Any) -> None:
    model, units, _ = exact
    found = fisher_diagonal(model, target_parameters(model), units, reduction="sum")
    assert distance(found.values, one_at_a_time(model, units, "sum")) < 1e-9


def test_against_torch_func(exact: Any) -> None:
    model, units, _ = exact
    same = [TokenSequence(unit.ids[:6], unit.document_id, 0, "") for unit in units if len(unit.ids) >= 6]
    assert len(same) > 5
    ids = torch.tensor([unit.ids for unit in same])
    weights = {name: value.detach() for name, value in model.named_parameters()}
    chosen = list(target_parameters(model))

    def loss(part: dict[str, Tensor], row: Tensor) -> Tensor:
        logits = torch.func.functional_call(
            model, {**weights, **part}, kwargs={"input_ids": row[None]}
        ).logits
        return torch.nn.functional.cross_entropy(logits[0, :-1], row[1:])

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(
            {name: weights[name] for name in chosen}, ids
        )
    direct = {name: value.square().mean(0) for name, value in gradients.items()}
    found = fisher_diagonal(model, target_parameters(model), same)
    assert distance(found.values, direct) < 1e-9


def test_the_batch_mean_estimator_squares_the_gradient_of_the_batch(exact: Any) -> None:
    model, units, _ = exact
    targets = target_parameters(model)
    total = {name: torch.zeros_like(value) for name, value in targets.items()}
    starts = range(0, len(units), 4)
    for start in starts:
        for value in targets.values():
            value.requires_grad_()
            value.grad = None
        losses = [
            torch.nn.functional.cross_entropy(
                model(input_ids=torch.tensor([unit.ids])).logits[0, :-1],
                torch.tensor(unit.ids[1:]),
                reduction="none",
            )
            for unit in units[start : start + 4]
        ]
        torch.cat(losses).mean().backward()
        for name, value in targets.items():
            assert value.grad is not None
            total[name] += value.grad.square()
            value.requires_grad_(False)
            value.grad = None
    found = fisher_diagonal(model, targets, units, estimator="batch-mean")
    assert distance(found.values, {name: value / len(starts) for name, value in total.items()}) < 1e-9


def test_sampled_coordinates_are_each_sequences_squares(exact: Any) -> None:
    model, units, expected = exact
    targets = target_parameters(model)
    places = {name: torch.arange(0, value.numel(), 97) for name, value in targets.items()}
    found = fisher_diagonal(model, targets, units, coordinates=places, max_bytes=40_000)
    flat = torch.cat([expected[name].flatten()[index] for name, index in places.items()])
    assert found.rows.shape == (len(units), len(flat))
    assert torch.allclose(found.rows.double().mean(0), flat, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"batch_size": 1}, {"side": "left"}], ids=str)
def test_a_prompt_in_context_reaches_the_weights_at_its_own_positions_too(settings: Any) -> None:
    """The gradient of the text's loss by autograd over prompt and text: virtual positions are not scored, and
    what flows through them counts."""
    import peft

    from vestige.models.adapters import PromptedLM

    base = tiny_llama(dtype="float64")
    config = peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=8)
    model = PromptedLM(peft.get_peft_model(base, config).double().eval())
    units = sequences(5)
    targets = target_parameters(base)
    found = fisher_diagonal(model, targets, units, **settings).values
    total = {name: torch.zeros_like(value) for name, value in targets.items()}
    prompt = model.prompted.get_prompt(batch_size=1).detach()
    for unit in units:
        ids = torch.tensor([unit.ids])
        for value in targets.values():
            value.requires_grad_(True)
            value.grad = None
        embeds = torch.cat([prompt, base.get_input_embeddings()(ids)], 1)
        logits = base(inputs_embeds=embeds).logits[0, 3:-1]
        torch.nn.functional.cross_entropy(logits, ids[0, 1:]).backward()
        for name, value in targets.items():
            assert value.grad is not None
            total[name] += value.grad**2 / len(units)
            value.requires_grad_(False)
    assert distance(found, total) < 1e-9


def test_end_tokens_in_the_text_are_scored_though_padding_has_their_id() -> None:
    model = tiny_llama(dtype="float64")
    ids = [(1, 5, 2, 9, 2), (1, 5), (1, 8, 2)]
    units = [TokenSequence(row, str(i), 0, "") for i, row in enumerate(ids)]
    found = fisher_diagonal(model, target_parameters(model), units)
    assert distance(found.values, one_at_a_time(model, units)) < 1e-9
    without = [TokenSequence(tuple(i for i in row if i != 2), str(k), 0, "") for k, row in enumerate(ids)]
    other = fisher_diagonal(model, target_parameters(model), without)
    assert distance(other.values, found.values) > 0.01


def test_conv1d_weights_and_fused_projections() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

    small: dict[str, Any] = {"vocab_size": 70, "initializer_range": 0.2, "bos_token_id": 1, "eos_token_id": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, **small))
        neox = GPTNeoXForCausalLM(
            GPTNeoXConfig(
                hidden_size=16,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=32,
                max_position_embeddings=32,
                **small,
            )
        )
    units = [TokenSequence((1, 5, 9, 12, 7), "0", 0, ""), TokenSequence((1, 6, 3), "1", 0, "")]
    for made in (gpt2, neox):
        model = made.double().eval()
        expected = one_at_a_time(model, units)
        for side in ("right", "left"):
            found = fisher_diagonal(model, target_parameters(model), units, side=side)  # type: ignore[arg-type]
            assert distance(found.values, expected) < 1e-9
        assert len(expected) == 8


def test_what_the_pass_touches_is_put_back() -> None:
    model = tiny_llama()
    model.train()
    names = {name: value.requires_grad for name, value in model.named_parameters()}
    fisher_diagonal(model, target_parameters(model), sequences(3), checkpointing=True)
    assert model.training
    assert {name: value.requires_grad for name, value in model.named_parameters()} == names
    assert not any(module._forward_hooks for module in model.modules())
    assert not any("forward" in module.__dict__ for module in model.modules())
    assert all(value.grad is None for value in model.parameters())


def test_a_graph_that_is_cut_is_an_error_and_not_a_zero() -> None:
    model = tiny_llama()
    units = sequences(3)
    last = model.model.layers[-1]
    hook = last.register_forward_hook(
        lambda module, inputs, out: torch.zeros_like(out).requires_grad_()  # nothing before it is reached
    )
    names = [name for name in target_parameters(model) if "layers.0" in name]
    try:
        with pytest.raises(InputError, match="a gradient of zero at every measured weight"):
            fisher_diagonal(model, {name: target_parameters(model)[name] for name in names}, units)
    finally:
        hook.remove()


def test_a_loss_that_is_not_finite_names_the_document() -> None:
    model = tiny_llama()
    model.lm_head.weight.data.fill_(1e38)
    with pytest.raises(InputError, match=r"document \d+: found a loss of"):
        fisher_diagonal(model, target_parameters(model), sequences(3))


def test_chunks_hold_every_name_once() -> None:
    targets = target_parameters(tiny_llama())
    runs = chunked(targets, 20_000)
    assert [name for run in runs for name in run] == list(targets)
    assert all(len(run) == 1 or sum(4 * targets[name].numel() for name in run) <= 20_000 for run in runs)


WORKER = """
import sys
import torch
from tests.tiny_lm import tiny_llama
from tests.unit.footprint.test_fisher import sequences
from vestige.footprint.fisher import fisher_diagonal
from vestige.footprint.world import launched
from vestige.models.projections import target_parameters

model = tiny_llama(dtype="float64")
with launched() as world:
    assert world.size == 2
    targets = target_parameters(model)
    places = {name: torch.arange(3) for name in targets}
    each = fisher_diagonal(model, targets, sequences(), batch_size=3, world=world, coordinates=places)
    mean = fisher_diagonal(model, targets, sequences(), estimator="batch-mean", world=world)
    if world.leads:
        found = {"each": each.values, "mean": mean.values, "traces": each.traces, "rows": each.rows}
        torch.save(found, sys.argv[1])
"""


def test_two_processes_with_unequal_shares_give_the_same(exact: Any, tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="the extra 'train' is not installed")
    model, units, expected = exact
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # What accelerate and torchrun set for each process they start.
    shared = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    workers = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path / "out.pt")],
            env={
                **os.environ,
                **shared,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
                "OMP_NUM_THREADS": "1",
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors[-2000:]
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert distance(found["each"], expected) < 1e-9
    alone = fisher_diagonal(model, target_parameters(model), units, estimator="batch-mean")
    assert distance(found["mean"], alone.values) < 1e-9
    one = fisher_diagonal(
        model,
        target_parameters(model),
        units,
        coordinates={name: torch.arange(3) for name in target_parameters(model)},
    )
    assert torch.allclose(found["traces"], one.traces, rtol=1e-9)
    assert torch.allclose(found["rows"], one.rows, rtol=1e-5)
