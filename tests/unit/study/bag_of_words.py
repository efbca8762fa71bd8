"""A small real backend for tests: softmax regression on hashed words, in NumPy, milliseconds a model.

Training, unlearning and retraining all happen; only the size is a toy's.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from vestige.contracts import Floats, MethodSettings, Objective, Record, UnlearnSettings
from vestige.decision.schema import Schema
from vestige.errors import Diverged, InputError
from vestige.methods import METHODS
from vestige.seeds import generator
from vestige.study.plan import checked
from vestige.study.protocol import OnEpoch, Progress, Rows, Score, Start
from vestige.training.adaptation import AdaptSettings, adaptation_batches

WIDTH = 256
SPEC = "bag_of_words:BagOfWords"


class WordModel(Record):
    scale: float = Field(1.0, gt=0)


class WordTraining(Record):
    epochs: int = Field(120, ge=1)
    learning_rate: float = Field(20.0, gt=0)


def features(texts: Sequence[str]) -> Floats:
    x = np.zeros((len(texts), WIDTH))
    for row, text in enumerate(texts):
        for word in re.findall(r"\w+", text.lower()):
            x[row, zlib.crc32(word.encode()) % WIDTH] += 1.0
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x / np.where(norms == 0, 1, norms))


def softmax(z: Floats) -> Floats:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


class BagOfWords:
    """See `vestige.study.protocol.Backend`."""

    strength = 6e4
    """The toy's rates are far larger than a transformer's: the same grid moves it usefully."""

    def model_settings(self, raw: Mapping[str, Any]) -> Record:
        return checked(WordModel, raw, "model")

    def task_settings(self, raw: Mapping[str, Any]) -> Record:
        return checked(WordTraining, raw, "training")

    def start(self, model: Record) -> Start:
        return Start("hashed words")

    def objective(self, name: str) -> Objective:
        return METHODS.get(name)

    def refuse(self, model: Record, objective: Objective) -> None:
        pass

    def identity(self, model: Record) -> dict[str, Any]:
        return {"name": "bag-of-words", "version": 1}

    def environment(self) -> dict[str, Any]:
        return {"numpy": np.__version__}

    def set_threads(self, threads: int) -> None:
        pass

    def build(self, *, schema: Schema, model: Record, seed: int, folder: Path) -> dict[str, Any]:
        self.save(folder, generator(seed, "start").normal(0, 0.3, (WIDTH, len(schema.ids))), schema)
        return {}

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
        assert isinstance(settings, WordTraining)
        weights = generator(seed, "start").normal(0, 0.3, (WIDTH, len(schema.ids)))
        x, y = features(rows.texts), one_hot(rows.gold, schema)
        for epoch in range(settings.epochs):
            weights = weights - settings.learning_rate * x.T @ (softmax(x @ weights) - y) / len(x)
            progress((epoch + 1) * len(x), settings.epochs * len(x))
        self.save(folder, weights, schema)
        return {"steps": settings.epochs}

    def unlearn(
        self,
        *,
        start: Path,
        method: str,
        settings: MethodSettings,
        forget: Rows,
        retain: Rows,
        schema: Schema,
        seed: int,
        folder: Path,
        progress: Progress,
        on_epoch: OnEpoch | None = None,
        keep: bool = True,
    ) -> dict[str, Any]:
        weights = np.load(start / "weights.npy")
        if method == "temperature":
            self.save(folder, weights / settings.temperature, schema, start)  # type: ignore[attr-defined]
            return {"steps": 0}
        assert isinstance(settings, UnlearnSettings)
        before = weights
        xf, yf = self.read(forget.texts, start), one_hot(forget.gold, schema)
        xr, yr = self.read(retain.texts, start), one_hot(retain.gold, schema)
        if settings.learning_rate >= 1e6:
            raise Diverged(
                "the loss is nan", 1, forget.row_ids[:3], settings.learning_rate, "nothing was kept"
            )
        weight = float(getattr(settings, "retain_weight", 0.0))
        rng = generator(seed, "unlearn")
        steps = 0
        for epoch in range(1, settings.epochs + 1):
            order = rng.permutation(len(xf))
            for begin in range(0, len(order), settings.forget_batch):
                rows = order[begin : begin + settings.forget_batch]
                p = softmax(xf[rows] @ weights)
                push = (1 / len(schema.ids) - p) if method == "uniformization" else (p - yf[rows])
                if method == "simnpo":
                    chance = (p * yf[rows]).sum(axis=1, keepdims=True) ** settings.beta  # type: ignore[attr-defined]
                    push = push * 2 * chance / (1 + chance)
                sign = -1.0 if method == "uniformization" else 1.0
                ascent = xf[rows].T @ (sign * push) / len(rows)
                kept = rng.integers(0, len(xr), settings.retain_batch)
                descent = xr[kept].T @ (softmax(xr[kept] @ weights) - yr[kept]) / len(kept)
                weights = weights + self.strength * settings.learning_rate * (ascent - weight * descent)
                steps += 1
            progress(epoch, settings.epochs)
            moved = float(np.linalg.norm(weights - before))
            if on_epoch is not None and not on_epoch(
                epoch,
                lambda texts: softmax(self.read(texts, start) @ weights),  # noqa: B023
                moved,
            ):
                break
        if keep:
            self.save(folder, weights, schema, start)
        return {"steps": steps}

    def adapt(
        self,
        *,
        start: Path,
        rows: Rows,
        schema: Schema,
        settings: AdaptSettings,
        seed: int,
        on_update: Callable[[int, Score], None],
        progress: Progress,
    ) -> dict[str, Any]:
        weights = np.load(start / "weights.npy")
        x, y = self.read(rows.texts, start), one_hot(rows.gold, schema)
        order = adaptation_batches(
            len(rows), settings.batch, settings.updates, generator(seed, "adaptation", len(rows))
        )
        on_update(0, lambda texts: softmax(self.read(texts, start) @ weights))
        for update, batch in enumerate(order, start=1):
            some = list(batch)
            weights = weights - 1e4 * settings.learning_rate * x[some].T @ (
                softmax(x[some] @ weights) - y[some]
            ) / len(some)
            if update in settings.evaluations:
                on_update(update, lambda texts: softmax(self.read(texts, start) @ weights))  # noqa: B023
            progress(update, settings.updates)
        return {"steps": settings.updates}

    def fresh_heads(
        self,
        *,
        start: Path,
        rows: Rows,
        schema: Schema,
        settings: Record,
        initialisations: Sequence[int],
        texts: Sequence[str],
        progress: Progress,
    ) -> list[tuple[dict[str, Any], Floats]]:
        """The backbone is the hashing; all that is learned is the head."""
        assert isinstance(settings, WordTraining)
        x, y = self.read(rows.texts, start), one_hot(rows.gold, schema)
        found = []
        for number in initialisations:
            weights = generator("fresh head", number).normal(0, 0.3, (x.shape[1], len(schema.ids)))
            before = hashlib.sha256(weights.tobytes()).hexdigest()
            for _ in range(settings.epochs):
                weights = weights - settings.learning_rate * x.T @ (softmax(x @ weights) - y) / len(x)
            progress(number + 1, len(initialisations))
            found.append(({"initial_sha256": before}, softmax(self.read(texts, start) @ weights)))
        return found

    def predict(self, *, model: Path, texts: Sequence[str], schema: Schema, progress: Progress) -> Floats:
        progress(len(texts), len(texts))
        names = json.loads((model / "options.json").read_text(encoding="utf-8"))
        z = self.read(texts, model) @ np.load(model / "weights.npy")
        # Sharper among fewer options: a subset is no slice of the whole.
        sharper = 1 + 0.2 * (1 - len(schema.ids) / len(names))
        return softmax(sharper * z[:, [names.index(name) for name in schema.ids]])

    def read(self, texts: Sequence[str], model: Path) -> Floats:
        """(N,) texts -> (N, d) what the saved model in a folder sees of them."""
        return features(texts)

    def save(self, folder: Path, weights: Floats, schema: Schema, start: Path | None = None) -> None:
        """Write a model; start: the one that it began as."""
        target = folder / "model"
        target.mkdir(exist_ok=True)
        np.save(target / "weights.npy", weights)
        (target / "options.json").write_text(json.dumps(list(schema.ids)) + "\n", encoding="utf-8")

    def embed(self, texts: Sequence[str]) -> Floats:
        return features(texts)

    def encoder(self) -> str:
        return "hashed words"


def one_hot(gold: Sequence[str], schema: Schema) -> Floats:
    y = np.zeros((len(gold), len(schema.ids)))
    y[np.arange(len(gold)), [schema.ids.index(name) for name in gold]] = 1.0
    return y


class DyingBackend(BagOfWords):
    """Killed while it trains."""

    def train(self, **kwargs: Any) -> dict[str, Any]:
        os.kill(os.getpid(), 9)
        raise AssertionError


class RefusingBackend(BagOfWords):
    """Refuses the input of seed 17, has no room for any other."""

    def train(self, *, seed: int, **kwargs: Any) -> dict[str, Any]:
        if seed == 17:
            raise InputError("today", "rain", "a better day", "wait")
        raise OSError(errno.ENOSPC, "No space left on device", "weights")


class KilledBackend(BagOfWords):
    """Kills its own process, as a power cut would, when it unlearns; a file is half written by then."""

    def unlearn(self, *, folder: Path, **kwargs: Any) -> dict[str, Any]:
        (folder / "model").mkdir(exist_ok=True)
        (folder / "model/weights.npy").write_bytes(b"half")
        os.kill(os.getpid(), 9)
        raise AssertionError
