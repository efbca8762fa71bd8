"""What a study needs of whatever trains and scores models. No torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from vestige.contracts import Floats, MethodSettings, Objective, Record
from vestige.decision.schema import Schema
from vestige.errors import InputError
from vestige.training.adaptation import AdaptSettings

__all__ = ["DEFAULT_BACKEND", "Backend", "Progress", "Rows", "Score", "Start", "Stop", "load_backend"]

DEFAULT_BACKEND = "vestige.study.backend:TorchBackend"

Progress = Callable[[int, int], None]
"""Called with (rows processed, rows in all), now and then."""

Stop = Callable[[], bool]
"""True once the work should stop at the next safe point."""

Score = Callable[[Sequence[str]], Floats]
"""(N,) texts -> (N, C) probabilities of the model as it is now, columns in the schema's order."""

OnEpoch = Callable[[int, Score, float], bool]
"""Called after each epoch over the forget rows with its number from 1, a way to score the model as it stands,
and the size of the update so far: the norm of the change of all parameters. False ends the work there."""


@dataclass(frozen=True)
class Rows:
    """Training rows: ids, texts and gold option ids, position by position."""

    row_ids: tuple[str, ...]
    texts: tuple[str, ...]
    gold: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.row_ids)


@dataclass(frozen=True)
class Start:
    """What is known of the weights that training starts from. local: the user's own folder, not published
    ones. labels: of a classifier that they were part of, in order."""

    name: str
    local: bool = False
    labels: tuple[str, ...] = ()


class Backend(Protocol):
    """Trains, unlearns and scores. Every method is deterministic for its arguments.

    `folder` arguments are working folders: a call that finds a checkpoint of the same work there goes on
    from it, and leaves only the finished model and its logs. Return values are plain JSON data that the
    node's record keeps.
    """

    def model_settings(self, raw: Mapping[str, Any]) -> Record:
        """The model's settings with defaults filled in.

        Raises InputError for an unknown key, and for a model that cannot be there.
        """
        ...

    def task_settings(self, raw: Mapping[str, Any]) -> Record:
        """Settings of task training with defaults filled in. Raises InputError for an unknown key."""
        ...

    def start(self, model: Record) -> Start:
        """What is known of the weights that training starts from."""
        ...

    def objective(self, name: str) -> Objective:
        """The registered method of exactly this name. Raises InputError."""
        ...

    def refuse(self, model: Record, objective: Objective) -> None:
        """Raise InputError for a method that could not change this model, before anything is trained."""
        ...

    def identity(self, model: Record) -> dict[str, Any]:
        """Everything outside the settings that changes a number: weights' hash, package versions."""
        ...

    def environment(self) -> dict[str, Any]:
        """Package versions, machine, threads: what is recorded beside a result."""
        ...

    def set_threads(self, threads: int) -> None:
        """Use this many threads from now on in this process."""
        ...

    def build(self, *, schema: Schema, model: Record, seed: int, folder: Path) -> dict[str, Any]:
        """Save in `folder` an untrained model whose trainable weights are drawn at random for this seed."""
        ...

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
        """Train a fresh model on `rows` and save it in `folder`."""
        ...

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
        """Unlearn from the model saved in `start`; save the result in `folder` unless `keep` is false.

        A post-hoc method trains nothing and calls no on_epoch.
        """
        ...

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
        """Fine-tune head and adapters of the model saved in `start` on `rows`; nothing is saved.

        on_update(t, score): called at each of `settings.evaluations`, 0 before the first update. The order
        of rows depends on the seed and their number alone.
        """
        ...

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
        """Train a new head for each initialisation on the frozen backbone of the model saved in `start`.

        Returns for each: its record with `initial_sha256` of the untrained head, and the probabilities
        (N, C) of `texts`. One initialisation has the same bytes on every checkpoint.
        """
        ...

    def predict(self, *, model: Path, texts: Sequence[str], schema: Schema, progress: Progress) -> Floats:
        """(N,) texts -> (N, C) float64 probabilities of a saved model, columns in the schema's order."""
        ...

    def embed(self, texts: Sequence[str]) -> Floats:
        """(N,) texts -> (N, d) unit rows of the frozen sentence encoder."""
        ...

    def encoder(self) -> str:
        """Name and hash of the sentence encoder."""
        ...


def load_backend(spec: str) -> Backend:
    """The backend named `module:attribute`, made without arguments."""
    module, _, attribute = spec.partition(":")
    try:
        made: Backend = getattr(importlib.import_module(module), attribute)()
    except (ModuleNotFoundError, AttributeError) as error:
        raise InputError(
            f"backend '{spec}'", str(error), "an importable 'module:class'", "check the name"
        ) from None
    return made
