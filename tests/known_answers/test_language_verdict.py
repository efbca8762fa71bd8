"""Verdicts on language models whose answer is known: an adapter kept, taken away, and everything between.

The full models differ from retrained ones by what the names of four people mean; training seeds move every
weight a little. They are tiny models with random weights, and the texts are what they would write, so that
nothing has to be trained.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.tiny_lm import VOCABULARY, tiny_llama, tiny_tokenizer
from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.footprint.judgements import InjectionSettings
from vestige.footprint.judging import language_verdict
from vestige.footprint.known_models import KnownCase, KnownModels, KnownSettings, corpus_of, known_models
from vestige.footprint.outputs import Outputs, Reading, Row, Shelf, read_outputs
from vestige.footprint.tiny import TinySettings
from vestige.footprint.verdict_records import JudgedModel, VerdictRecord, VerdictSettings
from vestige.language import FitSettings
from vestige.models.causal_lm import LanguageModel, language_model
from vestige.verdict.quantities import view_table

PEOPLE = range(3, 7)
"""Ids of the words that are people's names."""
QUICK = VerdictSettings(draws=500)


def trained(seed: int, *, knows: bool) -> Any:
    """A model of this training seed, with what the people's names mean or without."""
    model = tiny_llama(seed=0, spread=0.35)
    rng = torch.Generator().manual_seed(seed + 1)
    learned = torch.Generator().manual_seed(0)
    with torch.no_grad():
        rows = model.get_input_embeddings().weight
        for person in PEOPLE:
            known = torch.randn(rows.shape[1], generator=learned)
            if knows:
                rows[person] += known
        for value in model.parameters():
            value += 0.01 * value.std().nan_to_num(0.0) * torch.randn(value.shape, generator=rng)
    return model


def written(model: Any, n: int, seed: int, *, people: bool) -> list[tuple[str, str]]:
    """n texts of nine words that the model writes, and the person each begins with, "" for none."""
    rng = torch.Generator().manual_seed(seed)
    first = [PEOPLE[i % 4] if people else 7 + i % (len(VOCABULARY) - 7) for i in range(n)]
    ids = torch.tensor([[1, word] for word in first])
    with torch.inference_mode():
        for _ in range(8):
            logits = model(input_ids=ids).logits[:, -1]
            logits[:, : PEOPLE.stop] = -torch.inf
            ids = torch.cat([ids, torch.multinomial(torch.softmax(logits, -1), 1, generator=rng)], dim=1)
    texts = [" ".join(VOCABULARY[word] for word in row[1:]) for row in ids.tolist()]
    return [(text, VOCABULARY[word] if people else "") for text, word in zip(texts, first, strict=True)]


@pytest.fixture(scope="module")
def world() -> KnownModels:
    oracles = [trained(seed, knows=False) for seed in range(3)]
    fulls = [trained(seed, knows=True) for seed in range(3, 5)]
    texts = {
        "forget": written(fulls[0], 260, 1, people=True),
        "unseen": written(fulls[0], 260, 2, people=True),
        "adjacent": written(oracles[0], 200, 3, people=False),
        "generic": written(oracles[0], 200, 4, people=False),
    }
    return KnownModels(
        tokenizer=tiny_tokenizer(),
        oracles=oracles,
        fulls=fulls,
        pair=(trained(9, knows=False), trained(9, knows=True)),
        texts={role: corpus_of(role, own) for role, own in texts.items()},  # type: ignore[arg-type]
    )


def judged(
    world: KnownModels, unlearned: Mapping[str, nn.Module | Sequence[nn.Module]], **more: Any
) -> VerdictRecord:
    """The models under test against the world's full and retrained models."""

    def opened(models: Sequence[nn.Module], label: str) -> list[LanguageModel]:
        return [language_model(model, world.tokenizer, label=label) for model in models]

    given: dict[str, Any] = {
        "base": opened(world.fulls, "full"),
        "oracle": opened(world.oracles, "oracle"),
        "settings": QUICK,
        **world.texts,
    }
    tested = {
        label: opened([models] if isinstance(models, nn.Module) else models, label)
        for label, models in unlearned.items()
    }
    return language_verdict(unlearned=tested, **{**given, **more})


@pytest.fixture(scope="module")
def cases(world: KnownModels) -> dict[str, KnownCase]:
    return {case.label: case for case in world.cases()}


@pytest.fixture(scope="module")
def record(world: KnownModels, cases: dict[str, KnownCase]) -> VerdictRecord:
    return judged(world, {label: case.model for label, case in cases.items()})


def model_of(record: VerdictRecord, label: str) -> JudgedModel:
    found = record.model(label)
    assert found is not None
    return found


def memory(model: JudgedModel, view: str = "F") -> float:
    value = model.evidence.view(view).memory.value  # type: ignore[arg-type]
    assert isinstance(value, float)
    return value


EXPECTED = {
    "retrained": "equivalent",
    "20% mixed": "closer",
    "20% of the adapter": "closer",
    "50% mixed": "closer",
    "50% of the adapter": "closer",
    "full": "not closer",
    "destroyed": "damaged",
}


def test_the_word_is_true(record: VerdictRecord, cases: dict[str, KnownCase]) -> None:
    said = {model.label: model.verdict for model in record.models}
    assert said == EXPECTED
    for label, case in cases.items():
        assert said[label] in case.words
        assert f"“{label}”" in model_of(record, label).sentence


def test_memory_is_the_share_that_is_kept(record: VerdictRecord, cases: dict[str, KnownCase]) -> None:
    for view in ("F", "G"):
        for label, case in cases.items():
            if case.memory is not None:
                assert memory(model_of(record, label), view) == pytest.approx(case.memory, abs=0.02), label
        kept = [memory(model_of(record, f"{share}% of the adapter"), view) for share in (20, 50)]
        assert 0.1 < kept[0] < kept[1] < 0.9


def test_levels_stand_between_those_of_base_and_retrained(record: VerdictRecord) -> None:
    levels = {item.label: item for item in record.levels}
    forget = {label: item.level("forget") for label, item in levels.items()}
    assert forget["full"] == pytest.approx(forget["full (2)"], abs=0.02)
    assert forget["retrained"] == pytest.approx(forget["oracle"], abs=0.02)
    assert forget["oracle"] < forget["20% mixed"] < forget["50% mixed"] < forget["full"]  # type: ignore[operator]
    (text,) = [text for text in levels["full"].texts if text.role == "forget"]
    assert text.change == pytest.approx(0.0, abs=0.01)
    assert record.compared.startswith("Compared: 7 unlearned models with the bases “full”, “full (2)”")


def test_the_worst_retained_text_decides(world: KnownModels, record: VerdictRecord) -> None:
    broken = model_of(record, "destroyed")
    assert broken.evidence.retained.harmed_by == ("loss",)
    assert broken.evidence.retained.name in ("adjacent text", "generic text")
    # Text like that to be forgotten as generic text: retraining itself loses it, and only that.
    other = judged(world, {"retrained": world.kept(0.0)}, generic=world.texts["unseen"], unseen=None)
    found = other.models[0]
    assert found.verdict == "damaged"
    assert found.evidence.retained.name == "generic text"
    assert [part.harm for part in found.evidence.other_retained] == ["unharmed"]
    assert "retraining itself changed the loss a token by +" in found.sentence


def test_without_unseen_text_the_verdict_rests_on_the_forget_text(world: KnownModels) -> None:
    found = judged(world, {"retrained": world.kept(0.0), "half": world.mixed(0.5)}, unseen=None)
    assert "rests on the forget text alone" in found.compared
    assert [model.verdict for model in found.models] == ["equivalent", "closer"]
    for model in found.models:
        assert "This rests on the forget text alone, without unseen text." in model.sentence


def test_one_retrained_model_says_so(world: KnownModels) -> None:
    oracle = language_model(world.oracles[0], world.tokenizer, label="oracle")
    found = judged(world, {"half": world.mixed(0.5)}, oracle=oracle).models[0]
    assert found.verdict == "closer"
    assert memory(found) == pytest.approx(0.5, abs=0.03)
    assert "Only one retrained model was given" in found.sentence


def test_without_a_retrained_model_there_is_no_verdict(world: KnownModels) -> None:
    record = judged(world, {"broken": world.destroyed()}, oracle=None)
    model = record.models[0]
    assert isinstance(model.verdict, Undefined)
    assert "There is no verdict: no retrained model was given." in record.compared
    assert "was compared with the bases “full”, “full (2)” alone" in model.sentence
    assert "this text is damaged" in model.sentence
    assert {item.role for item in record.levels} == {"base", "unlearned"}


def test_copies_are_no_other_trainings(world: KnownModels) -> None:
    """The same weights twice are one retraining: their spread of 0 says nothing of two."""
    same = language_model(world.oracles[0], world.tokenizer, label="oracle")
    with pytest.raises(InputError, match=r"model 'oracle \(2\)': found the weights of 'oracle'"):
        judged(world, {"half": world.mixed(0.5)}, oracle=[same, same])
    with pytest.raises(InputError, match="a training run of its own"):
        judged(world, {"half": [world.mixed(0.5), world.mixed(0.5)]})


def test_no_order_of_models_changes_a_bit(world: KnownModels) -> None:
    seeds = [world.mixed(0.5), trained(20, knows=False)]
    several = judged(world, {"method": seeds}).models[0]
    assert several.evidence.seeds == {"full": 2, "oracle": 3, "unlearned": 2}
    assert several.checkpoints == ("method", "method (2)")
    turned = KnownModels(**{**vars(world), "oracles": world.oracles[::-1], "fulls": world.fulls[::-1]})
    again = judged(turned, {"method": seeds[::-1]}).models[0]
    assert again.evidence == several.evidence
    assert again.verdict == several.verdict


def rows(n: int) -> list[Row]:
    """Rows of different lengths, with some of their positions."""
    rng = np.random.default_rng(5)
    made = []
    for number in range(n):
        ids = (1, *rng.integers(3, len(VOCABULARY), 3 + number % 7).tolist())
        positions = tuple(sorted((rng.permutation(len(ids) - 1)[:4] + 1).tolist()))
        made.append(Row(ids=ids, document=str(number), unit="", positions=positions))
    return made


def outputs(world: KnownModels, *, held: bool, **more: Any) -> tuple[Outputs, Reading]:
    models = [*world.fulls, *world.oracles, world.kept(0.5), world.mixed(0.3)]
    loaded = [language_model(model, world.tokenizer, label=str(i)) for i, model in enumerate(models)]
    reading = Reading(
        shelf=Shelf([lambda model=model: model for model in loaded], held),  # type: ignore[misc]
        digests=[model.record.sha256 for model in loaded],
        references=5,
        bases=2,
        vocabulary=len(VOCABULARY),
        batch_tokens=24,
        **more,
    )
    return read_outputs(reading, rows(11)), reading


def test_tables_are_those_of_the_slow_definition(world: KnownModels) -> None:
    """The mean over a document's positions of what a decision model's table holds."""
    found, _ = outputs(world, held=True)
    models = [*world.fulls, *world.oracles, world.kept(0.5), world.mixed(0.3)]
    for number, row in enumerate(rows(11)):
        with torch.inference_mode():
            logits = [model(input_ids=torch.tensor([row.ids])).logits[0].double() for model in models]
        at = [place - 1 for place in row.positions]
        p = [torch.softmax(one, -1)[at].numpy() for one in logits]
        table = view_table(
            fulls=p[:2], oracles=p[2:5], unlearned={"a": [p[5]], "b": [p[6]]}, units=np.array([""] * len(at))
        )
        for name in ("js", "inner"):
            got, wanted = getattr(found, name)[..., number], getattr(table, name).mean(axis=-1)
            read = ~np.isnan(got)
            assert read[:5, :5].all()
            np.testing.assert_allclose(got[read], wanted[read], atol=1e-6)
        np.testing.assert_allclose(found.reach[:, number], table.reach.mean(axis=-1), atol=1e-6)
        gold = torch.log_softmax(logits[6], -1)[range(len(row.ids) - 1), row.ids[1:]]
        assert found.log_p[6, number] == pytest.approx(float(gold.mean()), abs=1e-6)
        assert found.p[6, number] == pytest.approx(float(gold.exp().mean()), abs=1e-6)


def test_chunks_on_disk_give_the_same_tables_and_are_kept(world: KnownModels, tmp_path: Path) -> None:
    from vestige.footprint.cache import Cache
    from vestige.footprint.world import World

    whole, _ = outputs(world, held=True)
    read: list[float] = []
    more: dict[str, Any] = {
        "disk_bytes": 6 * 4 * len(VOCABULARY) * 8,
        "folder": tmp_path,
        "cache": Cache(tmp_path, World()),
        "advance": read.append,
    }
    parts, reading = outputs(world, held=False, **more)
    assert reading.chunks > 3
    again, other = outputs(world, held=False, **more)
    assert other.chunks == 1
    for name in ("js", "inner", "reach", "log_p", "p"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-6)
        np.testing.assert_array_equal(getattr(again, name), getattr(parts, name))
    assert not list(tmp_path.glob("outputs-*/*.f32"))
    tokens = sum(len(row.ids) for row in rows(11))
    assert sum(read) == 2 * 7 * tokens


def test_text_to_be_forgotten_is_not_unseen(world: KnownModels) -> None:
    with pytest.raises(InputError, match="260 of 260 documents that are also in forget"):
        judged(world, {"half": world.mixed(0.5)}, unseen=world.texts["forget"])


def test_long_documents_are_cut_into_windows_without_overlap(world: KnownModels) -> None:
    words = " ".join(VOCABULARY[7:] * 3)
    long = corpus_of("forget", [(words, ""), (words[: len(words) // 2], "")])
    found = judged(world, {"half": world.mixed(0.5)}, forget=long, unseen=None, max_length=8)
    (text,) = [text for text in found.texts if text.role == "forget"]
    tokens = sum(len(document.text.split()) for document in long.documents)
    assert text.available == 2
    assert text.units == 2
    assert tokens / 7 <= text.documents <= tokens / 7 + 2
    assert text.positions == tokens
    few = judged(
        world,
        {"half": world.mixed(0.5)},
        forget=long,
        unseen=None,
        max_length=8,
        settings=QUICK.model_copy(update={"documents": 5, "positions": 3}),
    )
    (text,) = [text for text in few.texts if text.role == "forget"]
    assert (text.documents, text.positions) == (5, 15)


def test_injected_facts_make_such_a_world() -> None:
    """Trained models: what the pool is built of. A few steps of each, so that the facts hardly take."""
    few = FitSettings(epochs=2, batch_size=16, learning_rate=1e-2)
    settings = KnownSettings(
        fulls=1,
        oracles=1,
        background=2,
        everyday=4,
        tiny=TinySettings(layers=1, hidden=16, feed_forward=16, fit=few),
        injection=InjectionSettings(entities=4, rank=2, fit=few),
    )
    made = known_models(settings, seed=3)
    forget, unseen = (
        {document.text for document in made.texts[role].documents} for role in ("forget", "unseen")
    )  # type: ignore[index]
    assert (len(forget), len(unseen)) == (18, 6)
    assert not forget & unseen
    assert {document.unit for document in made.texts["forget"].documents} == {
        document.unit for document in made.texts["unseen"].documents
    }
    ends = [dict(model.named_parameters()) for model in made.pair]
    for share, end in ((0.0, ends[0]), (1.0, ends[1])):
        for name, value in made.kept(share).named_parameters():
            torch.testing.assert_close(value, end[name])
    assert any(not torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    one, other = copy.deepcopy(made.pair[0]), made.oracles[0]
    assert any(
        not torch.equal(value, dict(other.named_parameters())[name]) for name, value in one.named_parameters()
    )
    assert judged(made, {"half": made.mixed(0.5)}).models[0].evidence.seeds["oracle"] == 1

    # The same world from its stored weights, and each of its pairs held out in turn.
    again = known_models(settings, seed=3, weights=made.weights())
    assert again.texts == made.texts
    same(again, made)
    first, second = again.turns()
    same(first, made)
    same(
        second,
        replace(made, pair=(made.oracles[0], made.fulls[0]), oracles=made.pair[:1], fulls=made.pair[1:]),
    )


def same(one: KnownModels, other: KnownModels) -> None:
    for role in ("pair", "oracles", "fulls"):
        pairs = zip(getattr(one, role), getattr(other, role), strict=True)
        for mine, theirs in pairs:
            for name, value in mine.state_dict().items():
                torch.testing.assert_close(value, theirs.state_dict()[name], rtol=0, atol=0)
