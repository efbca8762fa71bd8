"""Unlearning a language model in memory: topics in turn, all weights, and the epoch that is kept."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny_lm import tiny_llama, tiny_texts, tiny_tokenizer

from vestige.data.corpora import Corpus, Document
from vestige.data.language_rows import LanguageRows, language_rows
from vestige.methods import METHODS
from vestige.training.selection import Measured, best_epoch
from vestige.training.session import Session, Topic, begin, trainable, unlearn_language

pytestmark = pytest.mark.train


def rows(seed: int, topic: str) -> LanguageRows:
    documents = tuple(Document(str(i), text) for i, text in enumerate(tiny_texts(4, seed=seed, longest=8)))
    corpus = Corpus(name=topic, role="forget", documents=documents)
    return language_rows(corpus, tiny_tokenizer(), topic=topic, max_length=16)


def session_of(name: str, **more: Any) -> Session:
    use = METHODS.get(name).language
    assert use is not None
    settings = use.settings(
        **{"epochs": 2, "warmup_steps": 0, "select": "last", "learning_rate": 1e-3, **more}
    )
    topics = {"a": Topic(rows(1, "a"), rows(2, "a")), "b": Topic(rows(3, "b"), rows(4, "b"))}
    return begin(tiny_llama(layers=1), tiny_tokenizer(), METHODS.get(name), settings, topics, seed=5)


def test_all_weights_train_and_the_reference_stays_at_the_start() -> None:
    session = session_of("npo", lora=None, retain="kl")
    start = {name: value.detach().clone() for name, value in trainable(session.model).items()}
    _, log = unlearn_language(session)
    assert [entry["topic"] for entry in log] == ["a", "b", "a", "b"]
    assert log[0]["retain_loss"] == pytest.approx(0, abs=1e-6)
    assert log[-1]["retain_loss"] > 1e-5
    with session.reference():
        assert all(torch.equal(value, start[name]) for name, value in trainable(session.model).items())
    assert any(not torch.equal(value, start[name]) for name, value in trainable(session.model).items())


def test_the_loss_is_forget_plus_the_topic_s_weight_times_retain() -> None:
    _, log = unlearn_language(session_of("grad_diff", topic_weights={"b": 3.0}, epochs=1))
    for entry, weight in zip(log, (1.0, 3.0), strict=True):
        assert entry["loss"] == pytest.approx(entry["forget_loss"] + weight * entry["retain_loss"])


def test_the_epoch_kept_forgets_most_within_the_tolerance() -> None:
    start = Measured(0, 2.0, 2.0)
    found = [Measured(1, 3.0, 2.05), Measured(2, 4.0, 2.1), Measured(3, 9.0, 2.2)]
    assert best_epoch(start, found, 0.15).epoch == 2
    assert best_epoch(start, found, 0.01).epoch == 1  # none is within: the one that rose least
    assert best_epoch(start, found, 1.0).epoch == 3
