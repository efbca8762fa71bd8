"""Plain sequence classifiers, and the frozen sentence encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

from tests.tiny import OPTIONS, save_tiny_bert, tiny_rows, tiny_schema

from vestige.decision.schema import Schema
from vestige.errors import InputError
from vestige.models.backbones import load_backbone
from vestige.models.classifier import SequenceClassifier, load_sequence_classifier
from vestige.models.embeddings import SentenceEncoder
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


def test_sentence_vectors_have_length_one_and_ignore_company(tmp_path: Path) -> None:
    encoder = SentenceEncoder(load_backbone(str(save_tiny_bert(tmp_path))))
    texts = ["lost card", "change pin code please", "lost card"]
    rows = encoder.embed(texts)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)
    assert np.array_equal(rows[0], rows[2])
    np.testing.assert_allclose(encoder.embed(texts[:1])[0], rows[0], atol=1e-6)
    assert encoder.embed([]).shape == (0, 32)
