"""The in-context reader: one prefix for all rows, padding and batches that change nothing, order, saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny import save_tiny_bert

from vestige.decision.schema import Option, Schema
from vestige.errors import InputError
from vestige.models import in_context
from vestige.models.decision import ModelSettings, SchemaModel, build_decision_model, load_decision_model
from vestige.models.in_context import InContextReader, SchemaPrefix
from vestige.models.reload_check import FAMILIES, write_tiny_backbone
from vestige.models.trainable import seeded
from vestige.training.loop import TaskSettings, TrainRows, train_task

pytestmark = pytest.mark.train

NAMES = ("lost stolen card", "top up failed", "exchange rate wrong", "change pin code", "raise limit")
SCHEMA = Schema(tuple(Option(id=name.replace(" ", "_"), name=name) for name in NAMES))
TEXTS = [
    "my card is lost",
    "why is the exchange rate wrong please help",
    "raise limit",
    "where do i change my old pin code when the new code is not right please",
    "top up failed",
    "stolen card",
    "how do i raise the limit",
    "wrong rate",
]
GOLD = [SCHEMA.ids[i] for i in (0, 2, 4, 3, 1, 0, 4, 2)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_backbone(FAMILIES["llama"], tmp_path_factory.mktemp("llama"))


def fresh(folder: Path, **settings: Any) -> SchemaModel:
    given = {"backbone": str(folder), "reader": "in_context", "lora_rank": 4, "head_width": 8, **settings}
    return build_decision_model(ModelSettings(**given), seed=3)


def train(model: SchemaModel, seed: int = 3, epochs: int = 4) -> Any:
    rows = TrainRows([str(i) for i in range(len(TEXTS))], TEXTS, GOLD)
    settings = TaskSettings(epochs=epochs, batch_size=4, learning_rate=3e-3)
    return train_task(model, rows, SCHEMA, settings, seed=seed)


@pytest.fixture(scope="module")
def trained(folder: Path) -> SchemaModel:
    model = fresh(folder)
    train(model)
    return model


def uncached(model: SchemaModel, prefix: SchemaPrefix) -> SchemaPrefix:
    return SchemaPrefix(prefix.options, prefix.tokens, None)


def test_shared_prefix_equals_full_sequences_in_value_and_gradient(folder: Path) -> None:
    """Tolerance 1e-5 of values of order 1, gradients 1e-4 of the largest: float32 sums in another order."""
    model = fresh(folder)
    train(model, epochs=1)
    reader = model.reader
    assert isinstance(reader, InContextReader)
    assert reader.path == "cached prefix"
    ids, options = model.tokenise(TEXTS), model.tokenise(SCHEMA.texts())
    found = []
    for cut in (lambda prefix: prefix, lambda prefix: uncached(model, prefix)):
        model.zero_grad()
        with seeded(0):  # the same order both times
            prefix = reader.options(options)
        reading = reader.read(ids, cut(prefix))
        logits = model.head(reading.utterances, reading.options)
        torch.log_softmax(logits, -1)[:, 0].sum().backward()
        gradients = [
            value.grad.clone() for value in model.trainable_state().values() if value.grad is not None
        ]
        found.append((logits.detach(), gradients))
    (cached, cached_gradients), (full, full_gradients) = found
    torch.testing.assert_close(cached, full, atol=1e-5, rtol=1e-5)
    assert len(cached_gradients) == len(full_gradients) == len(model.trainable_state())
    for one, other in zip(cached_gradients, full_gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4 * float(other.abs().max()) + 1e-7, rtol=1e-3)


def test_batch_composition_and_padding_change_nothing(
    trained: SchemaModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = trained.predict(TEXTS, SCHEMA)
    alone = np.concatenate([trained.predict([text], SCHEMA) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(trained.predict(TEXTS[::-1], SCHEMA)[::-1], together, atol=1e-5)
    monkeypatch.setattr(in_context, "length_groups", lambda lengths: [list(range(len(lengths)))])
    np.testing.assert_allclose(
        trained.predict(TEXTS, SCHEMA), together, atol=1e-5
    )  # all padded to the longest
    monkeypatch.setattr(in_context, "TOKENS_AT_ONCE", 1)
    np.testing.assert_allclose(trained.predict(TEXTS, SCHEMA), together, atol=1e-5)  # row by row


def test_options_before_are_seen_and_the_utterance_is_not(trained: SchemaModel) -> None:
    reader = trained.reader
    assert isinstance(reader, InContextReader)
    options = trained.tokenise(SCHEMA.texts())
    trained.eval()
    with torch.no_grad():
        whole = reader.options(options).options
        swapped = reader.options([options[1], options[0], *options[2:]]).options
        fewer = reader.options(options[:3]).options
    # Nothing looks ahead; sequences of other lengths are summed in another order.
    torch.testing.assert_close(fewer, whole[:3], atol=1e-5, rtol=0)
    assert float((swapped[[1, 0]] - whole[:2]).abs().max()) > 1e-3


def test_training_draws_the_order_and_scoring_does_not(trained: SchemaModel) -> None:
    reader = trained.reader
    assert isinstance(reader, InContextReader)
    options = trained.tokenise(SCHEMA.texts())
    canonical = [token for ids in options for token in [*ids, *reader._end]]

    def between() -> list[int]:
        tokens = reader.options(options).tokens
        return tokens[len(reader._before) : len(tokens) - len(reader._after)]

    trained.train()
    try:
        with torch.no_grad():
            with seeded(1):
                first = between()
            with seeded(1):
                again = between()
            with seeded(2):
                other = between()
    finally:
        trained.eval()
    assert first == again
    assert first != other
    assert sorted(first) == sorted(canonical)
    with torch.no_grad():
        assert between() == canonical


def test_same_seed_trains_the_same_bytes_and_another_does_not(folder: Path) -> None:
    hashes = [train(fresh(folder), seed=seed, epochs=1)[0].weights_sha256 for seed in (5, 5, 6)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_training_learns(folder: Path) -> None:
    model = fresh(folder)
    _, log = train(model, epochs=12)
    assert np.mean([entry["loss"] for entry in log[-4:]]) < 0.5 * log[0]["loss"]


def test_saved_and_loaded_scores_bit_for_bit(trained: SchemaModel, tmp_path: Path) -> None:
    trained.save(tmp_path)
    np.testing.assert_array_equal(
        load_decision_model(tmp_path).predict(TEXTS, SCHEMA), trained.predict(TEXTS, SCHEMA)
    )
    assert '"reading": "cached prefix"' in (tmp_path / "model.json").read_text()


def test_states_are_those_of_the_whole_sequence(trained: SchemaModel) -> None:
    ids, options = trained.tokenise(TEXTS), trained.tokenise(SCHEMA.texts())
    with torch.no_grad():
        states, mask = trained.reader.states(ids, options, 1)
        assert mask.sum(1).tolist() == [len(row) for row in ids]
        reader = trained.reader
        assert isinstance(reader, InContextReader)
        prefix = reader.options(options)
        base: Any = trained.backbone
        for i, row in enumerate(ids):
            tokens = torch.tensor([[*prefix.tokens, *row]])
            hidden = base(input_ids=tokens, output_hidden_states=True).hidden_states[1]
            low, _ = trained.reader.states([row], options, 0)
            torch.testing.assert_close(low[0], hidden[0, len(prefix.tokens) :], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(
                states[i, : len(row)], trained.reader.states([row], options, 1)[0][0], atol=1e-5, rtol=1e-5
            )


def test_only_the_last_blocks_are_adapted_and_differentiated(folder: Path) -> None:
    model = fresh(folder, lora_layers=1)
    adapted = [name for name in model.trainable_state() if "lora" in name]
    assert adapted
    assert all(".layers.1." in name for name in adapted)
    seen: list[bool] = []
    base: Any = model.backbone
    handle = (
        base.get_base_model()
        .layers[0]
        .register_forward_hook(
            lambda _m, _i, out: seen.append((out[0] if isinstance(out, tuple) else out).requires_grad)
        )
    )
    model.train()
    model.log_probs(model.tokenise(TEXTS), SCHEMA).sum().backward()
    handle.remove()
    assert seen
    assert not any(seen)
    with pytest.raises(InputError, match="at most the backbone's 2 blocks"):
        fresh(folder, lora_layers=3)


def test_bfloat16_backbone_keeps_float32_adapters_and_reloads_alike(folder: Path, tmp_path: Path) -> None:
    model = fresh(folder, dtype="bfloat16")
    train(model, epochs=1)
    assert {value.dtype for value in model.trainable_state().values()} == {torch.float32}
    assert next(model.backbone.parameters()).dtype == torch.bfloat16
    probs = model.predict(TEXTS, SCHEMA)
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-12)
    model.save(tmp_path)
    np.testing.assert_array_equal(load_decision_model(tmp_path).predict(TEXTS, SCHEMA), probs)


def test_empty_text_and_a_single_option_are_read(trained: SchemaModel) -> None:
    assert np.isfinite(trained.predict([""], SCHEMA)).all()
    np.testing.assert_allclose(trained.predict(["pin"], Schema(SCHEMA.options[:1])), 1)


def test_a_reader_that_does_not_fit_says_which_does(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"set model\.reader to 'in_context'"):
        fresh(folder, reader="encoder")
    with pytest.raises(InputError, match=r"set model\.reader to 'encoder'"):
        fresh(save_tiny_bert(tmp_path))
