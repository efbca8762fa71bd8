"""A backend under the names of the panel: a nearest-prototype start and a few softmax steps on hashed words.

A model takes tens of milliseconds to train and knows real intents well enough to pass the acquisition gate.
What a backbone sees of a text is its own: a part of the features is hidden from each.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from bag_of_words import BagOfWords, WordTraining, one_hot, softmax

from vestige.contracts import Floats, Record
from vestige.decision.schema import Schema
from vestige.seeds import generator
from vestige.study.plan import checked
from vestige.study.protocol import Progress, Rows

SPEC = "panel_words:PanelWords"
FEATURES = 512
SCALE = "scale.npy"


class PanelModel(Record):
    """The keys that shipped studies set."""

    backbone: str = "minilm"
    reader: str = "encoder"
    dtype: str = "float32"


class PanelTraining(Record):
    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 2e-4


@cache
def seen(text: str) -> Floats:
    """(d,) whether a word or the beginning of one is there."""
    x = np.zeros(FEATURES)
    for word in re.findall(r"\w+", text.lower()):
        for part in (word, f"~{word[:4]}"):
            x[zlib.crc32(part.encode()) % FEATURES] = 1.0
    return x


def matrix(texts: Sequence[str]) -> Floats:
    return np.array([seen(text) for text in texts]).reshape(len(texts), FEATURES)


class PanelWords(BagOfWords):
    """See `vestige.study.protocol.Backend`."""

    strength = 6e5

    def model_settings(self, raw: Mapping[str, Any]) -> Record:
        return checked(PanelModel, raw, "model")

    def task_settings(self, raw: Mapping[str, Any]) -> Record:
        return checked(PanelTraining, raw, "training")

    def identity(self, model: Record) -> dict[str, Any]:
        return {"name": "panel-words", "version": 1}

    def read(self, texts: Sequence[str], model: Path) -> Floats:
        return self._scaled(texts, np.load(model / SCALE))

    def save(self, folder: Path, weights: Floats, schema: Schema, start: Path | None = None) -> None:
        super().save(folder, weights, schema)
        if start is not None:
            np.save(folder / "model" / SCALE, np.load(start / SCALE))

    def train(
        self,
        *,
        rows: Rows,
        schema: Schema,
        model: Record,
        settings: Record,
        seed: int,
        folder: Path,
        progress: Progress,
    ) -> dict[str, Any]:
        assert isinstance(model, PanelModel)
        x = matrix(rows.texts)
        hidden = generator("hidden", model.backbone).random(FEATURES) < 0.1
        scale = np.where(hidden, 0.0, np.log((1 + len(x)) / (1 + x.sum(axis=0))))
        x, y = self._scaled(rows.texts, scale), one_hot(rows.gold, schema)
        drawn = generator(seed, "rows", schema.texts()[0]).integers(0, 3, (len(x), 1))
        prototypes = x.T @ (y * drawn)
        lengths = np.linalg.norm(prototypes, axis=0)
        weights = 30.0 * prototypes / np.where(lengths == 0, 1.0, lengths)
        weights = weights - 200.0 * x.T @ (softmax(x @ weights) - y) / len(x)
        progress(len(x), len(x))
        self.save(folder, weights, schema)
        np.save(folder / "model" / SCALE, scale)
        return {"steps": 1}

    def fresh_heads(self, *, settings: Record, **kwargs: Any) -> list[tuple[dict[str, Any], Floats]]:
        return super().fresh_heads(settings=WordTraining(epochs=5, learning_rate=200.0), **kwargs)

    def embed(self, texts: Sequence[str]) -> Floats:
        return self._scaled(texts, np.ones(FEATURES))

    def _scaled(self, texts: Sequence[str], scale: Floats) -> Floats:
        x = matrix(texts) * scale
        norms = np.linalg.norm(x, axis=1, keepdims=True)
        return np.asarray(x / np.where(norms == 0, 1.0, norms))
