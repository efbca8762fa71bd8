"""Language models whose verdict is known: facts put in by an adapter, kept, taken away, or kept in part."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from vestige.contracts import Record, Verdict
from vestige.data.corpora import Corpus, Document
from vestige.footprint.fictitious import (
    TEMPLATES,
    Entity,
    everyday_sentences,
    fictitious_facts,
    vocabulary,
)
from vestige.footprint.injection import with_adapter
from vestige.footprint.judgements import InjectionSettings
from vestige.footprint.tiny import TinySettings, tiny_model, train_tiny, word_tokenizer
from vestige.footprint.verdict_records import TextRole
from vestige.language import FitSettings
from vestige.seeds import generator, stable_seed

__all__ = ["KnownCase", "KnownModels", "KnownSettings", "Mixture", "known_models"]

WORDS: Mapping[str, tuple[Verdict, ...]] = {
    "retrained": ("equivalent", "closer", "undetermined"),
    "memory": ("closer", "not closer", "undetermined"),
    "full": ("not closer", "undetermined"),
    "destroyed": ("damaged",),
}
"""Kind of case -> words that are true of it."""


class KnownSettings(Record):
    """fulls, oracles: models that a verdict is given, of different training seeds; one more pair is held out,
    of which the models under test are made. background: people that the start knows. everyday: sentences
    that everything is trained on. templates: of four that state a fact, those in training; others are unseen.
    """

    fulls: int = Field(2, ge=1)
    oracles: int = Field(5, ge=1)
    background: int = Field(24, ge=0)
    everyday: int = Field(60, ge=1)
    templates: int = Field(3, ge=1, le=3)
    tiny: TinySettings = TinySettings(
        layers=1, fit=FitSettings(epochs=10, batch_size=32, learning_rate=1e-2, warmup_share=0.05)
    )
    injection: InjectionSettings = InjectionSettings(
        fit=FitSettings(epochs=20, batch_size=48, learning_rate=2e-2)
    )


@dataclass(frozen=True, kw_only=True)
class KnownCase:
    """A model under test. memory: what is left of the full model, None where it is not known. words: verdicts
    that are true of it; `undetermined`, and `closer` of a retrained model, are no errors, only weak."""

    label: str
    model: nn.Module
    memory: float | None
    words: tuple[Verdict, ...]


@dataclass(frozen=True, kw_only=True)
class KnownModels:
    """Models and texts of one world.

    oracles, fulls: what a verdict is given. pair: a retrained model and the same with the facts put in, of
    another training seed than those. texts: role -> corpus; a document is a sentence, its unit the person.
    """

    tokenizer: Any
    oracles: Sequence[nn.Module]
    fulls: Sequence[nn.Module]
    pair: tuple[nn.Module, nn.Module]
    texts: Mapping[TextRole, Corpus]

    def turns(self) -> Iterator[KnownModels]:
        """This world and the same with each other pair held out, and the pair that was at hand.

        A full model is made of the oracle that has its place.
        """
        oracles, fulls = [self.pair[0], *self.oracles], [self.pair[1], *self.fulls]
        for place in range(len(fulls)):
            yield replace(
                self,
                pair=(oracles[place], fulls[place]),
                oracles=[*oracles[:place], *oracles[place + 1 :]],
                fulls=[*fulls[:place], *fulls[place + 1 :]],
            )

    def weights(self) -> dict[str, dict[str, Tensor]]:
        """Name of each model -> its weights: what `known_models` takes in place of training."""
        oracles, fulls = [self.pair[0], *self.oracles], [self.pair[1], *self.fulls]
        named = {
            **{f"oracle {place}": model for place, model in enumerate(oracles)},
            **{f"full {place}": model for place, model in enumerate(fulls)},
        }
        return {name: model.state_dict() for name, model in named.items()}

    def kept(self, share: float) -> nn.Module:
        """The held-out pair with so much of the change that put the facts in, in weights: 0 is the retrained
        model itself, 1 the full one."""
        made = copy.deepcopy(self.pair[0])
        ends = dict(self.pair[1].named_parameters())
        with torch.no_grad():
            for name, value in made.named_parameters():
                value.add_(ends[name] - value, alpha=share)
        return made

    def mixed(self, share: float) -> Mixture:
        """The held-out pair mixed in probability, so much of it the full model: that is its memory."""
        return Mixture([self.pair[1], self.pair[0]], [share, 1.0 - share])

    def cases(self, shares: Sequence[float] = (0.2, 0.5)) -> Iterator[KnownCase]:
        """Models whose answer is known. shares: of what is kept, in weights and in probability."""
        yield KnownCase(label="retrained", model=self.kept(0.0), memory=0.0, words=WORDS["retrained"])
        for share in shares:
            yield KnownCase(
                label=f"{share:.0%} mixed", model=self.mixed(share), memory=share, words=WORDS["memory"]
            )
            yield KnownCase(
                label=f"{share:.0%} of the adapter",
                model=self.kept(share),
                memory=None,
                words=("equivalent", *WORDS["memory"]) if share < 0.3 else WORDS["memory"],
            )
        yield KnownCase(label="full", model=self.kept(1.0), memory=1.0, words=WORDS["full"])
        yield KnownCase(label="destroyed", model=self.destroyed(), memory=None, words=WORDS["destroyed"])

    def destroyed(self) -> nn.Module:
        """The retrained model with every matrix drawn anew, of the same size."""
        made = copy.deepcopy(self.pair[0])
        rng = torch.Generator().manual_seed(stable_seed("known models", "destroyed"))
        with torch.no_grad():
            for value in made.parameters():
                if value.ndim > 1:
                    value.copy_(torch.randn(value.shape, generator=rng) * value.square().mean().sqrt())
        return made


class Mixture(nn.Module):
    """Causal language models mixed in probability: `p = sum of share * p of each`, as logits."""

    def __init__(self, models: Sequence[nn.Module], shares: Sequence[float]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.shares = tuple(shares)
        self.config: Any = models[0].config

    def get_input_embeddings(self) -> nn.Module:
        """Those of the first model."""
        first: Any = self.models[0]
        found: nn.Module = first.get_input_embeddings()
        return found

    def forward(self, input_ids: Tensor, **more: Any) -> Any:
        """logits (n, L, V): the mixture's log-probabilities."""
        parts = [
            torch.log_softmax(model(input_ids=input_ids, **more).logits.float(), dim=-1) + math.log(share)
            for model, share in zip(self.models, self.shares, strict=True)
            if share > 0
        ]
        return SimpleNamespace(logits=torch.logsumexp(torch.stack(parts), dim=0))


def known_models(
    settings: KnownSettings | None = None,
    *,
    seed: int,
    progress: Callable[[str], None] = lambda stage: None,
    weights: Mapping[str, Mapping[str, Tensor]] | None = None,
) -> KnownModels:
    """Train a world: a start that has met every word, retrainings of it, and full models on those.

    A retrained model is the start with an adapter of the facts to keep; its full model has one more, of the
    facts to forget beside those. About three seconds of one core a model. seed: of everything. weights: of
    such a world of this seed and these settings, which is then not trained again.
    """
    s = settings or KnownSettings()
    facts = fictitious_facts(seed, entities=s.injection.entities, background=s.background)
    everyday = everyday_sentences(s.everyday, seed, "known models")
    people = [*facts.background, *facts.forget, *facts.adjacent]
    mentions = [
        " ".join([person.name, *text.split()[3:]])
        for person, text in zip(people, everyday_sentences(len(people), seed, "mentions"), strict=True)
    ]
    known = [text for trained in (True, False) for text, _ in _sentences(facts.background, s, seed, trained)]
    texts = [*known, *everyday, *mentions]
    if weights is None:
        progress("start")
        start, tokenizer = train_tiny(texts, vocabulary(), s.tiny, seed=seed)
    else:
        tokenizer = word_tokenizer(vocabulary())
        start = tiny_model(len(tokenizer), s.tiny, seed=seed).requires_grad_(False)
    forget, unseen = (_sentences(facts.forget, s, seed, trained) for trained in (True, False))
    adjacent = _sentences(facts.adjacent, s, seed, True)
    keep = [*(text for text, _ in adjacent), *everyday]

    def model(role: str, number: int, on: nn.Module, taught: Sequence[str]) -> nn.Module:
        if weights is not None:
            made = copy.deepcopy(start)
            made.load_state_dict(weights[f"{role} {number}"])
            return made
        progress(f"{role} {number}")
        own = stable_seed(seed, "known models", role, number)
        return with_adapter(on, tokenizer, taught, s.injection, seed=own)

    def oracle(number: int) -> nn.Module:
        return model("oracle", number, start, keep)

    def full(number: int, on: nn.Module) -> nn.Module:
        return model("full", number, on, [*(text for text, _ in forget), *keep])

    held = oracle(0)
    pair = (held, full(0, held))
    others = [oracle(number) for number in range(1, 1 + max(s.oracles, s.fulls))]
    generic = [(text, "") for text in everyday_sentences(len(adjacent), seed, "measured")]
    listed: dict[TextRole, list[tuple[str, str]]] = {
        "forget": forget, "unseen": unseen, "adjacent": adjacent, "generic": generic
    }  # fmt: skip
    return KnownModels(
        tokenizer=tokenizer,
        oracles=others[: s.oracles],
        fulls=[full(number, others[number - 1]) for number in range(1, 1 + s.fulls)],
        pair=pair,
        texts={role: corpus_of(role, texts) for role, texts in listed.items()},
    )


def corpus_of(role: TextRole, texts: Sequence[tuple[str, str]]) -> Corpus:
    """A corpus of (text, unit) pairs."""
    return Corpus(
        name=role,
        role="forget" if role == "unseen" else role,
        documents=tuple(
            Document(id=str(number), text=text, unit=unit)
            for number, (text, unit) in enumerate(texts, start=1)
        ),
    )


def _sentences(
    people: Sequence[Entity], settings: KnownSettings, seed: int, trained: bool
) -> list[tuple[str, str]]:
    """(sentence, person): each fact in the templates that training states it in, or in the others."""
    found = []
    for person in people:
        for attribute, value in person.facts.items():
            templates = TEMPLATES[attribute]
            order = generator(seed, "templates", person.name, attribute).permutation(len(templates)).tolist()
            chosen = order[: settings.templates] if trained else order[settings.templates :]
            found += [(templates[k].format(name=person.name, value=value), person.name) for k in chosen]
    return found
