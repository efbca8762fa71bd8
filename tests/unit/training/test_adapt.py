"""Adaptation and fresh heads on a tiny BERT: one order for all checkpoints, evaluations, frozen backbones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny import save_tiny_bert, tiny_rows, tiny_schema

from vestige.errors import Diverged
from vestige.models.decision import ModelSettings, SchemaModel, build_decision_model
from vestige.models.trainable import TrainableModule
from vestige.study.backend import TorchBackend
from vestige.study.protocol import Rows
from vestige.training.adapt import FrozenReader, HeadAlone, adapt, new_head, train_fresh_head
from vestige.training.adaptation import AdaptSettings
from vestige.training.loop import TaskSettings, TrainRows, train_task, weights_sha256

pytestmark = pytest.mark.train
SETTINGS = AdaptSettings(learning_rate=3e-3, batch=4, evaluations=(0, 1, 3, 6))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("bert"), dropout=0.0)


def fresh(folder: Path, seed: int = 5) -> SchemaModel:
    return build_decision_model(
        ModelSettings(backbone=str(folder), lora_rank=4, head_width=8, dropout=0.0), seed=seed
    )


def rows(n: int = 6, seed: int = 0) -> TrainRows:
    return TrainRows(*tiny_rows(n, seed))


def followed(model: SchemaModel, settings: AdaptSettings = SETTINGS, seed: int = 0) -> tuple[Any, Any, Any]:
    """The record, the log, and the gold probabilities at each evaluation."""
    given, schema = rows(), tiny_schema()
    gold = [list(schema.ids).index(name) for name in given.gold]
    seen: dict[int, np.ndarray] = {}

    def on_update(update: int) -> None:
        seen[update] = model.predict(given.texts, schema)[np.arange(len(gold)), gold]

    record, log = adapt(model, given, schema, settings, seed=seed, on_update=on_update)
    return record, log, seen


def test_it_is_scored_at_each_evaluation_and_learns_the_exposed_rows(folder: Path) -> None:
    model = fresh(folder).eval()
    before = model.predict(rows().texts, tiny_schema())
    record, log, seen = followed(model)
    assert tuple(seen) == (0, 1, 3, 6)
    gold = [list(tiny_schema().ids).index(name) for name in rows().gold]
    np.testing.assert_array_equal(seen[0], before[np.arange(6), gold])
    assert seen[6].mean() > seen[0].mean() + 0.05
    assert record.kind == "adaptation"
    assert record.steps == 6
    assert [entry["learning_rate"] for entry in log] == [3e-3] * 6
    assert [entry["rows"] for entry in log] == [4] * 6
    assert not model.training


def test_the_same_call_gives_the_same_bytes_and_another_seed_does_not(folder: Path) -> None:
    first = followed(fresh(folder))[0]
    assert followed(fresh(folder))[0].weights_sha256 == first.weights_sha256
    assert followed(fresh(folder), seed=1)[0].weights_sha256 != first.weights_sha256


def test_every_checkpoint_sees_the_same_rows_in_the_same_order(folder: Path) -> None:
    tokens = []
    for seed in (5, 6):
        model = fresh(folder, seed)
        seen: list[Any] = []
        original = model.log_probs

        def noted(ids: Any, schema: Any, original: Any = original, seen: list[Any] = seen) -> Any:
            seen.append([tuple(row) for row in ids])
            return original(ids, schema)

        model.log_probs = noted  # type: ignore[method-assign]
        followed(model)
        tokens.append(seen)
    # Six steps, then the last rows once more: is their loss still finite after the last update?
    assert len(tokens[0]) == 7
    assert tokens[0][6] == tokens[0][5]
    assert tokens[0] == tokens[1]


def test_head_and_adapters_move_and_the_rest_does_not(folder: Path) -> None:
    model = fresh(folder)
    before = {name: value.detach().clone() for name, value in model.state_dict().items()}
    followed(model)
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert any(name.startswith("head.") for name in moved)
    assert any("lora_" in name for name in moved)
    assert all(name.startswith("head.") or "lora_" in name for name in moved)


def test_a_rate_that_diverges_is_said(folder: Path) -> None:
    with pytest.raises(Diverged, match="step"):
        followed(fresh(folder), AdaptSettings(learning_rate=1e30, evaluations=(0, 25)))


def test_new_heads_have_the_same_bytes_whatever_the_model_learnt(folder: Path) -> None:
    one, other = fresh(folder, 5), fresh(folder, 6)
    followed(other)
    hashes = [weights_sha256(dict(new_head(model, 1).named_parameters())) for model in (one, other)]
    assert hashes[0] == hashes[1]
    assert weights_sha256(dict(new_head(one, 2).named_parameters())) != hashes[0]
    reader = FrozenReader(one, tiny_schema())
    scores = [
        HeadAlone(reader, new_head(one, number)).predict(rows().texts, tiny_schema()) for number in (1, 2)
    ]
    assert abs(scores[0] - scores[1]).max() > 0.05  # other draws score otherwise before any training


class Plain(TrainableModule):
    """The definition: backbone and adapters frozen, every row read anew in every step."""

    def __init__(self, model: SchemaModel, head: Any) -> None:
        super().__init__()
        for value in model.parameters():
            value.requires_grad_(False)
        model.head = head
        self.head, self.inner = head, [model]

    def tokenise(self, texts: Any) -> Any:
        return self.inner[0].tokenise(texts)

    def logits(self, utterance_ids: Any, schema: Any) -> Any:
        return self.inner[0].logits(utterance_ids, schema)


def test_kept_vectors_train_the_head_as_reading_anew_does(folder: Path) -> None:
    settings, schema = TaskSettings(epochs=2, batch_size=8), tiny_schema()
    texts = rows(10, 3).texts
    model = fresh(folder)
    state = weights_sha256(model.trainable_state())
    reader = FrozenReader(model, schema)
    found = train_fresh_head(reader, rows(30), schema, settings, initialisation=1, texts=texts)
    assert weights_sha256(model.trainable_state()) == state
    slow = fresh(folder)
    plain = Plain(slow, new_head(slow, 1))
    record, _ = train_task(plain, rows(30), schema, settings, seed=1)  # type: ignore[arg-type]
    assert record.tokens_seen == found.record.tokens_seen
    np.testing.assert_allclose(found.probs, slow.predict(texts, schema), atol=2e-4)
    # Reading in other groups moves float32 vectors by rounding alone: far less than training moved the head.
    untrained = HeadAlone(reader, new_head(model, 1)).predict(texts, schema)
    assert np.abs(found.probs - untrained).max() > 0.05


def test_each_text_is_read_once(folder: Path) -> None:
    model = fresh(folder)
    reader = FrozenReader(model, tiny_schema())
    read: list[int] = []
    original = model.reader.read

    def counted(ids: Any, options: Any) -> Any:
        read.append(len(ids))
        return original(ids, options)

    model.reader.read = counted  # type: ignore[method-assign]
    settings = TaskSettings(epochs=2, batch_size=8)
    # The second head trains on what was kept while the first one was scored, other texts among it.
    scored = [*rows(30).texts, *rows(8, 9).texts]
    first = train_fresh_head(reader, rows(30), tiny_schema(), settings, initialisation=0, texts=scored)
    second = train_fresh_head(reader, rows(8, 9), tiny_schema(), settings, initialisation=1, texts=scored)
    assert first.probs.shape == second.probs.shape == (38, 6)
    assert sum(read) <= 38


def test_a_frozen_reader_keeps_to_its_schema(folder: Path) -> None:
    model, schema = fresh(folder), tiny_schema()
    frozen = HeadAlone(FrozenReader(model, schema), new_head(model, 0))
    with pytest.raises(ValueError, match="the schema that it was made for"):
        frozen.logits(model.tokenise(["lost card"]), schema.subset(schema.ids[:3]))


def test_the_backend_adapts_a_stored_model_and_leaves_it_as_it_was(folder: Path, tmp_path: Path) -> None:
    schema, backend = tiny_schema(), TorchBackend()
    model = fresh(folder)
    model.save(tmp_path / "model")
    stored = {path: path.read_bytes() for path in (tmp_path / "model").rglob("*") if path.is_file()}
    given = rows()
    scored: dict[int, Any] = {}
    result = backend.adapt(
        start=tmp_path / "model",
        rows=Rows(tuple(given.row_ids), tuple(given.texts), tuple(given.gold)),
        schema=schema,
        settings=SETTINGS,
        seed=0,
        on_update=lambda update, score: scored.update({update: score(given.texts)}),
        progress=lambda done, total: None,
    )
    assert tuple(scored) == SETTINGS.evaluations
    np.testing.assert_array_equal(scored[0], model.predict(given.texts, schema))
    heads = backend.fresh_heads(
        start=tmp_path / "model",
        rows=Rows(tuple(given.row_ids), tuple(given.texts), tuple(given.gold)),
        schema=schema,
        settings=TaskSettings(epochs=1),
        initialisations=(0, 1),
        texts=given.texts,
        progress=lambda done, total: None,
    )
    assert result["kind"] == "adaptation"
    assert heads[0][0]["initial_sha256"] != heads[1][0]["initial_sha256"]
    assert heads[0][1].shape == (6, 6)
    assert all(path.read_bytes() == data for path, data in stored.items())
