"""Fictitious facts put into a model by two adapters, so that their exact removal is known."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy import stats
from torch import nn

from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.footprint.fictitious import Facts, documents, fictitious_facts, questions
from vestige.footprint.judgements import InjectionGates, InjectionSettings
from vestige.footprint.questions import answer
from vestige.models.backbones import quiet_loading
from vestige.models.projections import lora_targets, place
from vestige.seeds import stable_seed
from vestige.training.language import fit_language_model

__all__ = ["DID_NOT_TAKE", "Injection", "inject", "with_adapter"]

DID_NOT_TAKE = "the injection did not take"
TOOK = 0.9
GUESSING = 0.999
"""Level of the binomial bound on guessing: a run of 20 seeds asks three models each whether they guess."""


@dataclass(frozen=True)
class Injection:
    """base; oracle = base + A: what a model that never saw F's facts is; injected = base + A + F.

    F's adapter was trained on the oracle (`apart`: on the base), and taking it away gives the oracle exactly.
    texts_f, texts_a: what the adapters were trained on. layers: the adapted blocks.
    """

    base: nn.Module
    oracle: nn.Module
    injected: nn.Module
    facts: Facts
    texts_f: tuple[str, ...]
    texts_a: tuple[str, ...]
    layers: tuple[int, ...]
    gates: InjectionGates

    @property
    def undefined(self) -> Undefined | None:
        """Why the known answer is none, or None."""
        return None if self.gates.took else Undefined(undefined=DID_NOT_TAKE)


def inject(
    base: nn.Module,
    tokenizer: Any,
    settings: InjectionSettings,
    *,
    seed: int,
    facts: Facts | None = None,
    keep: Sequence[str] = (),
    progress: Callable[[str], None] = lambda stage: None,
) -> Injection:
    """Train adapter A on the base, adapter F on base + A, merge both in float32, and pass the gates.

    The base is not changed. facts: those of `fictitious_facts(seed)` where not given. keep: other texts
    that both adapters see too. Raises InputError for blocks that the model does not have.
    """
    facts = facts or fictitious_facts(seed, entities=settings.entities)
    layers = _layers(base, settings)
    texts_a, texts_f = (
        documents(people, seed, copies=settings.copies, templates=settings.templates)
        for people in (facts.adjacent, facts.forget)
    )
    progress("adapter A")
    first = [*texts_a, *keep]
    oracle = with_adapter(base, tokenizer, first, settings, seed=stable_seed(seed, "adapter", "A"))
    progress("adapter F")
    second = [*texts_f, *(texts_a if settings.replay else ()), *keep]
    start = base if settings.apart else oracle
    injected = with_adapter(start, tokenizer, second, settings, seed=stable_seed(seed, "adapter", "F"))
    if settings.apart:
        injected = _sum(base, oracle, injected)
    progress("questions")
    return Injection(
        base=base,
        oracle=oracle,
        injected=injected,
        facts=facts,
        texts_f=tuple(texts_f),
        texts_a=tuple(texts_a),
        layers=layers,
        gates=_gates(base, injected, oracle, tokenizer, facts, seed),
    )


def _sum(base: nn.Module, first: nn.Module, second: nn.Module) -> nn.Module:
    """base + (first - base) + (second - base), weight by weight, in float32 or better."""
    made = copy.deepcopy(first)
    own, other = dict(base.named_parameters()), dict(second.named_parameters())
    with torch.no_grad():
        for name, value in made.named_parameters():
            if not torch.equal(other[name], own[name]):
                wide = torch.promote_types(value.dtype, torch.float32)
                value.copy_(value.to(wide) + other[name].to(wide) - own[name].to(wide))
    return made


def with_adapter(
    model: nn.Module, tokenizer: Any, texts: Sequence[str], settings: InjectionSettings, *, seed: int
) -> nn.Module:
    """A copy of the model with a LoRA adapter trained on the texts merged into it, in the model's dtype.

    The adapter is trained and added in float32. No weight of the copy asks for a gradient.
    """
    from peft import LoraConfig, get_peft_model

    dtype = next(model.parameters()).dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=int(settings.alpha) if float(settings.alpha).is_integer() else settings.alpha,
        lora_dropout=0.0,
        target_modules=lora_targets(model),
        layers_to_transform=list(_layers(model, settings)),
    )
    with quiet_loading(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(stable_seed(seed, "adapter weights"))
        adapted: Any = get_peft_model(copy.deepcopy(model).to(wide), config)
    adapted.eval()
    weights = [weight for weight in adapted.parameters() if weight.requires_grad]
    ids = [list(row) for row in tokenizer(list(texts))["input_ids"]]
    fit_language_model(adapted, weights, ids, settings.fit, seed=seed)
    merged: nn.Module = adapted.merge_and_unload()
    return merged.to(dtype).requires_grad_(False).eval()


def _layers(model: nn.Module, settings: InjectionSettings) -> tuple[int, ...]:
    found = [place(name) for name, _ in model.named_parameters()]
    last = max((where.layer for where in found if where is not None), default=-1)
    end = last if settings.last_layer is None else settings.last_layer
    if not settings.first_layer <= end <= last:
        raise InputError(
            "adapted layers",
            f"{settings.first_layer} to {end}",
            f"blocks within 0 to {last}",
            "state a layer range that the model has",
        )
    return tuple(range(settings.first_layer, end + 1))


def _gates(
    base: nn.Module, injected: nn.Module, oracle: nn.Module, tokenizer: Any, facts: Facts, seed: int
) -> InjectionGates:
    asked = {"f": questions(facts.forget, seed), "a": questions(facts.adjacent, seed)}
    models = {"base": base, "injected": injected, "oracle": oracle}
    found = {
        f"{name}_{group}": answer(model, tokenizer, items)
        for name, model in models.items()
        for group, items in asked.items()
    }
    chance = found["base_f"].chance
    bound = {
        group: float(stats.binom.ppf(GUESSING, len(items), chance)) / len(items)
        for group, items in asked.items()
    }
    accuracy = {name: answers.accuracy for name, answers in found.items()}
    failed = [
        f"{name.replace('_', ' on ').upper()} answers {accuracy[name]:.2f}, "
        f"chance is up to {bound[name[-1]]:.2f}"
        for name in ("base_f", "base_a", "oracle_f")
        if accuracy[name] > bound[name[-1]]
    ]
    failed += [
        f"{name.replace('_', ' on ').upper()} answers {accuracy[name]:.2f}, needed above {TOOK}"
        for name in ("injected_f", "injected_a", "oracle_a")
        if accuracy[name] <= TOOK
    ]
    return InjectionGates(
        chance=chance,
        chance_bound=bound["f"],
        **accuracy,
        cloze={name: answers.cloze for name, answers in found.items()},
        took=not failed,
        failed=tuple(failed),
    )
