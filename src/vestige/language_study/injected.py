"""Known facts as a benchmark: the model they were put into, the exact oracle, and the way to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vestige.contracts import Undefined
from vestige.data.corpora import read_corpus
from vestige.data.language_rows import LanguageRow, language_rows
from vestige.errors import InputError
from vestige.files import write_text, writing
from vestige.footprint.fictitious import (
    Entity,
    Facts,
    everyday_sentences,
    fictitious_facts,
    questions,
)
from vestige.footprint.injection import inject, with_adapter
from vestige.footprint.judgements import InjectionGates, InjectionSettings
from vestige.footprint.questions import answer
from vestige.footprint.selftest import SelfTestSettings, tiny_base
from vestige.language_study.checks import TINY
from vestige.language_study.plan import InjectionPlan
from vestige.language_study.records import InjectedScores
from vestige.metrics.oracle import oracle_distance
from vestige.models.causal_lm import LanguageModel, load_language_model
from vestige.models.projections import target_parameters
from vestige.seeds import stable_seed
from vestige.training.sequences import SequenceScorer, still

__all__ = ["TEXTS", "Injected", "injected_model", "injected_scores"]

TEXTS = ("injected-forget", "injected-adjacent", "everyday")
SCORED_ROWS = 40


@dataclass(frozen=True, kw_only=True)
class Injected:
    """Folders of the injected model and its exact oracle, files of its texts, and the facts. others: of
    retrained models of other training seeds."""

    model: Path
    oracle: Path
    texts: Mapping[str, Path]
    facts: Facts
    gates: InjectionGates
    seed: int
    others: tuple[Path, ...] = ()


def injection_settings(plan: InjectionPlan, model: str) -> InjectionSettings:
    """The plan's settings; those of the self-test for a tiny model."""
    start = SelfTestSettings().injection if model == TINY else InjectionSettings()
    return InjectionSettings.model_validate({**start.model_dump(), **plan.settings})


def injected_model(
    plan: InjectionPlan, model: str, folder: Path, *, seed: int, progress: Callable[[str], None]
) -> Injected:
    """Inject the facts and write everything into `folder`, or take what is there."""
    settings = injection_settings(plan, model)
    facts = fictitious_facts(
        seed, entities=settings.entities, background=SelfTestSettings().background if model == TINY else 0
    )
    mark = folder / "gates.json"
    if not mark.is_file():
        if model == TINY:
            base, tokenizer, facts, keep = tiny_base(
                SelfTestSettings().model_copy(update={"injection": settings}), seed
            )
        else:
            loaded = load_language_model(model)
            base, tokenizer, keep = loaded.model, loaded.tokenizer, []
        found = inject(base, tokenizer, settings, seed=seed, facts=facts, keep=keep, progress=progress)
        for name, made in (("injected", found.injected), ("oracle", found.oracle)):
            _saved(made, tokenizer, folder / name)
        for number in range(1, plan.oracles):
            progress(f"retrained model {number + 1}")
            own = stable_seed(seed, "retrained model", number)
            known = [*found.texts_a, *keep]
            other = with_adapter(base, tokenizer, known, settings, seed=own)
            _saved(other, tokenizer, folder / f"oracle-{number + 1}")
        texts = (found.texts_f, found.texts_a, tuple(everyday_sentences(plan.generic, seed, "measured")))
        people = (found.facts.forget, found.facts.adjacent, ())
        for name, lines, known_people in zip(TEXTS, texts, people, strict=True):
            rows = "".join(
                json.dumps({"text": text, **_unit(text, known_people)}, ensure_ascii=False) + "\n"
                for text in lines
            )
            write_text(folder / f"{name}.jsonl", rows)
        write_text(mark, found.gates.to_json() + "\n")
    return Injected(
        model=folder / "injected",
        oracle=folder / "oracle",
        texts={name: folder / f"{name}.jsonl" for name in TEXTS},
        facts=facts,
        gates=InjectionGates.model_validate_json(mark.read_text(encoding="utf-8")),
        seed=seed,
        others=tuple(folder / f"oracle-{number + 1}" for number in range(1, plan.oracles)),
    )


def _unit(text: str, people: Sequence[Entity]) -> dict[str, str]:
    """The person that a text is about, as its unit."""
    found = next((person.name for person in people if person.name in text), "")
    return {"unit": found} if found else {}


def _saved(model: nn.Module, tokenizer: Any, folder: Path) -> None:
    from vestige.models.backbones import quiet_loading

    own: Any = model
    with writing(folder), quiet_loading():
        own.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))


def injected_scores(
    found: Injected, checkpoint: LanguageModel, *, start: LanguageModel, oracle: LanguageModel
) -> InjectedScores:
    """A checkpoint's answers on the facts, its distance from the exact oracle. start: the injected model."""
    forget, adjacent = (
        answer(checkpoint.model, checkpoint.tokenizer, questions(people, found.seed))
        for people in (found.facts.forget, found.facts.adjacent)
    )
    distances = [_distance(found.texts[name], checkpoint, oracle) for name in TEXTS]
    return InjectedScores(
        accuracy_f=forget.accuracy,
        accuracy_a=adjacent.accuracy,
        cloze_f=forget.cloze,
        distance_f=distances[0],
        distance_a=distances[1],
        distance_g=distances[2],
        weights=_weights(checkpoint, start, oracle),
    )


def _distance(path: Path, checkpoint: LanguageModel, oracle: LanguageModel) -> float:
    """Mean divergence over the predicted tokens of the first rows of a file."""
    corpus = read_corpus(path, name=path.stem, role="generic")
    rows = language_rows(corpus, oracle.tokenizer).rows[:SCORED_ROWS]
    total, count = 0.0, 0
    for row in rows:
        values = oracle_distance(_probabilities(checkpoint.model, [row]), _probabilities(oracle.model, [row]))
        total += float(values.sum())
        count += len(values)
    return total / count


def _probabilities(model: nn.Module, rows: Sequence[LanguageRow]) -> Any:
    """(P, V) next-token distributions, float64, rows sum to 1."""
    with still(model):
        scores = SequenceScorer(model).batch(rows).log_probs.double()
        return torch.softmax(scores, dim=-1).cpu().numpy()


def _weights(checkpoint: LanguageModel, start: LanguageModel, oracle: LanguageModel) -> float | Undefined:
    if not checkpoint.weight_change:
        return Undefined(undefined="a prompt encoder: its weights are the base's")
    wanted, first, own = (target_parameters(item.model) for item in (oracle, start, checkpoint))
    far = sum(float((first[name].double() - value.double()).square().sum()) for name, value in wanted.items())
    if far == 0:
        raise InputError("injection", "an oracle with the injected weights", "two models", "make it again")
    left = sum(float((own[name].double() - value.double()).square().sum()) for name, value in wanted.items())
    return float((left / far) ** 0.5)
