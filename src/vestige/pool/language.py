"""Language models of the pool: worlds of injected facts, and what the verdict says of models made of them.

Needs torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from vestige.footprint.judging import language_verdict
from vestige.footprint.known_models import KnownModels, KnownSettings, known_models
from vestige.footprint.verdict_records import VerdictSettings
from vestige.models.causal_lm import LanguageModel, language_model
from vestige.pool.answers import Said, Truth, name_of
from vestige.pool.contents import LANGUAGE, language_path
from vestige.seeds import stable_seed

__all__ = ["SETTINGS", "said_of_language", "trained_world"]

SETTINGS = KnownSettings(templates=2, injection=KnownSettings().injection.model_copy(update={"entities": 60}))
"""Half of what states a fact is unseen, so that there is as much unseen text as forget text."""
_TRUTH: Mapping[str, Truth] = {"retrained": "retrained", "full": "full", "destroyed": "harmed"}
SHARES = (0.1, 0.2, 0.3, 0.5)
"""Of the full model that models under test keep, in weights and in probability."""


def trained_world(number: int) -> dict[str, Any]:
    """Train world `number`: name of a model and of a weight, joined by a bar, -> the weight."""
    world = known_models(SETTINGS, seed=_seed(number))
    return {
        f"{model}|{name}": value.numpy()
        for model, weights in world.weights().items()
        for name, value in weights.items()
    }


def said_of_language(folder: Path, number: int, turn: int, *, draws: int) -> Iterator[Said]:
    """The verdict on models made of the pair that is held out in this turn of world `number`."""
    world = next(islice(_world(folder, number).turns(), turn, None))
    cases = list(world.cases(SHARES))
    record = language_verdict(
        base=_opened(world, world.fulls, "full"),
        oracle=_opened(world, world.oracles, "oracle"),
        unlearned={case.label: _opened(world, [case.model], case.label) for case in cases},
        settings=VerdictSettings(draws=draws),
        forget=world.texts["forget"],
        unseen=world.texts["unseen"],
        adjacent=world.texts["adjacent"],
        generic=world.texts["generic"],
    )
    for case, judged in zip(cases, record.models, strict=True):
        yield Said(
            deletion=LANGUAGE,
            oracles=len(world.oracles),
            family=case.label,
            truth=_TRUTH.get(case.label, "memory"),
            cluster=name_of((number, turn)),
            word=str(judged.verdict),
            memory={},
            excess={},
            visible={"F": True, "G": True},
            nominal=case.memory,
        )


def _world(folder: Path, number: int) -> KnownModels:
    found: dict[str, dict[str, Any]] = {}
    with np.load(language_path(folder, number)) as stored:
        for key in stored.files:
            model, name = key.split("|")
            found.setdefault(model, {})[name] = torch.from_numpy(stored[key])
    return known_models(SETTINGS, seed=_seed(number), weights=found)


def _seed(number: int) -> int:
    return stable_seed("pool", "language", number) % 2**31


def _opened(world: KnownModels, models: Sequence[nn.Module], label: str) -> list[LanguageModel]:
    return [language_model(model, world.tokenizer, label=label) for model in models]
