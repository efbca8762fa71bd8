"""The self-test: known answers on a tiny model, a broken estimator fails it, a second run reads the first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

from vestige.footprint.fictitious import (
    ATTRIBUTES,
    documents,
    everyday_sentences,
    fictitious_facts,
    questions,
    vocabulary,
)
from vestige.footprint.injection import inject, with_adapter
from vestige.footprint.judgements import CalibrationSettings, InjectionSettings
from vestige.footprint.selftest import (
    SelfTestSettings,
    broken_estimator,
    selftest,
    standard_estimator,
    tiny_base,
)
from vestige.footprint.tiny import TinySettings
from vestige.language import FitSettings
from vestige.seeds import stable_seed

QUICK = SelfTestSettings(
    seeds=(1,),
    needed=1,
    background=2,
    everyday=20,
    kept=2,
    texts=3,
    cases=("null", "rank-1", "faint noise", "removal", "broken"),
    tiny=TinySettings(hidden=16, feed_forward=24, layers=1, fit=FitSettings(epochs=1, batch_size=16)),
    injection=InjectionSettings(entities=8, copies=1, fit=FitSettings(epochs=1, batch_size=8)),
    calibration=CalibrationSettings(coordinates=64, draws=10),
)
"""Trained for a second: enough for every case but those that need the facts to be learned."""


def test_facts_are_made_up_balanced_and_asked_about() -> None:
    facts = fictitious_facts(3, background=10)
    everyone = [*facts.forget, *facts.adjacent, *facts.background]
    assert len({person.name for person in everyone}) == 50
    assert len(facts.forget) == len(facts.adjacent) == 20
    for group in (facts.forget, facts.adjacent):
        for attribute, values in ATTRIBUTES.items():
            counts = [sum(person.facts[attribute] == value for person in group) for value in values]
            assert max(counts) - min(counts) <= 1
    asked = questions(facts.forget, 3)
    assert len(asked) == 60
    known = {person.name: person.facts for person in facts.forget}
    for question in asked:
        name = " ".join(question.prompt.split()[:2])
        assert question.options[question.answer] == known[name][question.attribute]
        assert len(set(question.options)) == 4
    texts = documents(facts.forget, 3)
    assert len(set(texts)) == len(texts) == 80
    once = documents(facts.forget, 3, copies=1, templates=1)
    assert len(once) == 20
    assert all(" works as a " in text and " lives in " in text and " plays the " in text for text in once)
    words = set(vocabulary())
    for text in [*texts, *everyday_sentences(20, 1)]:
        assert set(text.split()) <= words
    values = {value for group in ATTRIBUTES.values() for value in group}
    assert not any(values & set(text.split()) for text in everyday_sentences(50, 1))
    assert fictitious_facts(3, background=10) == facts
    assert fictitious_facts(4, background=10) != facts
    with pytest.raises(ValueError, match="even number"):
        fictitious_facts(1, entities=3)


def test_known_answers_and_a_second_run_that_reads_the_first(tmp_path: Path) -> None:
    found = selftest(QUICK, out=tmp_path)
    cases = {case.case: case for case in found.cases}
    assert cases["null"].outcome == "zero"
    assert set(cases["null"].measured) >= {"cofi_F", "cofi_A", "cofi_G", "chess_F", "log10_ppl_ratio_F"}
    assert cases["rank-1"].hit
    assert cases["rank-1"].measured["cofi_F"] != 0
    assert cases["faint noise"].outcome == "no-op"
    # One pass over four texts teaches nothing: that is said, and is no hit.
    assert not found.gates[1].took
    assert cases["removal"].outcome == cases["broken"].outcome == "undefined: the injection did not take"
    assert not found.passes
    assert found.undefined["removal"] == 1
    assert any("removal: 0 of 1" in line for line in found.lines())
    assert found.lines()[-1].startswith("self-test failed")

    def never(*_: Any) -> Any:
        raise AssertionError("measured again")

    assert selftest(QUICK, out=tmp_path, fisher=never).cases == found.cases
    assert (tmp_path / "selftest.json").stat().st_size > 500


def test_known_answers_of_a_model_that_learned_the_facts() -> None:
    # Fewer people and texts than reported, on a seed that is not among the reported ones.
    full = SelfTestSettings()
    settings = SelfTestSettings(
        seeds=(101,),
        needed=1,
        background=12,
        everyday=80,
        kept=40,
        texts=6,
        cases=("null", "rank-1", "removal", "broken"),
        injection=full.injection.model_copy(
            update={"entities": 12, "fit": full.injection.fit.model_copy(update={"batch_size": 16})}
        ),
    )
    found = selftest(settings)
    assert found.gates[101].took
    null, rank_one, removal, broken = found.cases
    assert null.outcome == "zero"
    assert rank_one.outcome in rank_one.expected
    assert (rank_one.measured["moved"] or 0) > 1
    assert removal.outcome == "localized"
    assert removal.paper == "partially-localized"
    assert (removal.measured["adjacency_gap"] or 0) > 10
    assert broken.outcome == "found out"
    assert broken.measured["adjacency_gap"] == 0
    assert found.passes


def test_adapters_trained_apart_add_up() -> None:
    """injected - oracle is what F's adapter alone did to the base, in the adapted block and nowhere else."""
    base, tokenizer, facts, _ = tiny_base(QUICK, 1)
    apart = QUICK.injection.model_copy(
        update={"apart": True, "fit": FitSettings(epochs=1, learning_rate=1e-2)}
    )
    found = inject(base, tokenizer, apart, seed=1, facts=facts)
    alone = with_adapter(base, tokenizer, found.texts_f, apart, seed=stable_seed(1, "adapter", "F"))
    start, oracle, both, forget = (
        dict(model.named_parameters()) for model in (base, found.oracle, found.injected, alone)
    )
    moved = 0
    for name, value in both.items():
        torch.testing.assert_close(value - oracle[name], forget[name] - start[name], atol=1e-6, rtol=0)
        moved += not torch.equal(value, oracle[name])
    assert moved == 7


def test_guessing_is_allowed_for_at_its_stated_level() -> None:
    longer = QUICK.injection.model_copy(update={"entities": 40})
    gates = selftest(QUICK.model_copy(update={"cases": (), "injection": longer})).gates[1]
    # 60 questions of four options: more than 26 right by guessing in fewer than 1 of 1,000 tries.
    assert gates.chance_bound * 60 == pytest.approx(26)
    assert stats.binom.sf(26, 60, 0.25) < 0.001 < stats.binom.sf(25, 60, 0.25)


def test_a_broken_estimator_fails(tmp_path: Path) -> None:
    settings = QUICK.model_copy(update={"cases": ("rank-1", "faint noise")})
    found = selftest(settings, fisher=broken_estimator(standard_estimator))
    assert not found.passes
    assert found.hits == {"rank-1": 0, "faint noise": 0}
    assert all("does not see" in case.outcome for case in found.cases)
    assert found.cases[0].measured["cofi_F"] == 0
