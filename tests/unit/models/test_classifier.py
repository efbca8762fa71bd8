"""Plain sequence classifiers, and the frozen sentence encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
import transformers
from tests.tiny import OPTIONS, save_tiny_bert, tiny_rows, tiny_schema

from vestige.decision.schema import Schema
from vestige.errors import InputError
from vestige.models.backbones import load_backbone
from vestige.models.classifier import SequenceClassifier, load_sequence_classifier
from vestige.models.embeddings import SentenceEncoder
from vestige.models.loading import quiet_loading
from vestige.training.loop import TaskSettings, TrainRows, train_task

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> SequenceClassifier:
    return load_sequence_classifier(save_tiny_bert(tmp_path_factory.mktemp("clf"), labels=sorted(OPTIONS)))


def test_columns_follow_the_schema_not_the_head(classifier: SequenceClassifier) -> None:
    schema, texts = tiny_schema(), tiny_rows(12)[1]
    order = [5, 3, 1, 0, 2, 4]
    direct = classifier.predict(texts, schema)
    np.testing.assert_allclose(direct.sum(1), 1)
    permuted = Schema(tuple(schema.options[i] for i in order))
    np.testing.assert_allclose(classifier.predict(texts, permuted), direct[:, order], rtol=1e-12)


def test_candidate_sets_are_refused(classifier: SequenceClassifier) -> None:
    with pytest.raises(InputError, match="candidate sets are not possible"):
        classifier.predict(["card"], tiny_schema().subset(["pin", "limit"]))


def test_opaque_renderings_are_refused(classifier: SequenceClassifier) -> None:
    with pytest.raises(InputError, match="reads no option text"):
        classifier.predict(["card"], Schema(tiny_schema().options, rendering="opaque", map_seed=1))


def test_it_trains_in_the_same_loop_and_reloads(classifier: SequenceClassifier, tmp_path: Path) -> None:
    ids, texts, gold = tiny_rows(48)
    before = classifier.predict(texts, tiny_schema())
    record, _ = train_task(
        classifier, TrainRows(ids, texts, gold), tiny_schema(), TaskSettings(epochs=2), seed=1
    )
    after = classifier.predict(texts, tiny_schema())
    assert record.steps == 4
    assert np.abs(after - before).max() > 1e-3
    classifier.save(tmp_path)
    assert np.array_equal(load_sequence_classifier(tmp_path).predict(texts, tiny_schema()), after)


def gpt2_classifier(folder: Path, *, pad: int | None, words: int) -> SequenceClassifier:
    """Classifies at a row's last token that is not the padding of its own configuration."""
    save_tiny_bert(folder)  # its tokenizer, whose padding is 0
    config = transformers.GPT2Config(
        vocab_size=words,
        n_embd=16,
        n_layer=1,
        n_head=2,
        n_positions=32,
        pad_token_id=pad,
        num_labels=len(OPTIONS),
        initializer_range=0.5,
    )
    config.id2label = dict(enumerate(sorted(OPTIONS)))
    config.label2id = {name: i for i, name in config.id2label.items()}
    with torch.random.fork_rng(devices=[]), quiet_loading():
        torch.manual_seed(0)
        transformers.GPT2ForSequenceClassification(config).save_pretrained(str(folder))
    return load_sequence_classifier(folder)


@pytest.mark.parametrize("pad", [0, 5, None, -1], ids=["the tokenizer's", "another", "none", "no token's"])
def test_batch_mates_change_no_probability(pad: int | None, tmp_path: Path) -> None:
    found = gpt2_classifier(tmp_path, pad=pad, words=80)
    texts = tiny_rows(16)[1]
    alone = np.concatenate([found.predict([text], tiny_schema()) for text in texts])
    np.testing.assert_allclose(found.predict(texts, tiny_schema()), alone, atol=1e-6)  # other batch shapes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem_type": "multi_label_classification"}, "a head for multi label classification"),
        ({"problem_type": "regression"}, "a head for regression"),
        (
            {"label2id": {name: 5 - i for i, name in enumerate(sorted(OPTIONS))}},
            "not the inverse of id2label",
        ),
        ({"id2label": {str(i): "same" for i in range(6)}, "label2id": None}, "the classes 'same', 'same'"),
        (
            {"id2label": {str(i + 1): f"o{i}" for i in range(6)}, "label2id": None},
            "numbered 1, 2, 3, 4, 5, 6",
        ),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_head_that_is_not_read_as_it_was_made_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = save_tiny_bert(tmp_path, labels=sorted(OPTIONS)) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InputError, match=message):
        load_sequence_classifier(tmp_path)


def test_a_text_beyond_the_positions_is_refused(classifier: SequenceClassifier, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found 72 tokens; needed at most 64, the positions of the model"):
        classifier.predict(["card " * 70], tiny_schema())
    encoder = SentenceEncoder(load_backbone(str(save_tiny_bert(tmp_path))))
    with pytest.raises(InputError, match="found 72 tokens; needed at most 64"):
        encoder.embed(["card " * 70])


def test_logits_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    found = load_sequence_classifier(save_tiny_bert(tmp_path, labels=sorted(OPTIONS)))
    found.model.classifier.weight.data.fill_(1e30)
    found.model.bert.pooler.dense.weight.data.fill_(1e30)
    found.model.classifier.weight.data[0] = -3e38
    with pytest.raises(InputError, match="values that are NaN or infinite; needed numbers"):
        found.predict(["card"], tiny_schema())


def test_sentence_vectors_have_length_one_and_ignore_company(tmp_path: Path) -> None:
    encoder = SentenceEncoder(load_backbone(str(save_tiny_bert(tmp_path))))
    texts = ["lost card", "change pin code please", "lost card"]
    rows = encoder.embed(texts)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)
    assert np.array_equal(rows[0], rows[2])
    np.testing.assert_allclose(encoder.embed(texts[:1])[0], rows[0], atol=1e-6)
    assert encoder.embed([]).shape == (0, 32)
