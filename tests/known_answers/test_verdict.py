"""Verdicts on models whose answer is known: made of full and retrained models over 77 options.

Four deleted options of 54 deleted and 40 unseen rows each, 1,500 retained rows. Training seeds differ as
small trained models do: two retrainings by about 0.1 on the deleted rows, by 0.01 on the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import vestige
from vestige.contracts import Margins, ModelAssessment, Undefined
from vestige.errors import InputError
from vestige.seeds import generator
from vestige.study import audit_evidence, audit_verdicts
from vestige.study.audit_compare import agree
from vestige.study.audit_folder import Finding
from vestige.study.words_audit import Speaker

OPTIONS = [f"option {number:02d}" for number in range(77)]
DELETED = 4
SIZES = {"F": 216, "G": 160, "R": 1500}
VIEW = np.repeat(list(SIZES), list(SIZES.values()))
GOLD = np.concatenate(
    [
        np.arange(SIZES["F"]) % DELETED,
        np.arange(SIZES["G"]) % DELETED,
        DELETED + np.arange(SIZES["R"]) % (77 - DELETED),
    ]
)
ROWS = {
    "row_id": [f"{number:05d}" for number in range(len(VIEW))],
    "view": VIEW.tolist(),
    "unit": [OPTIONS[place] for place in GOLD],
    "gold": [OPTIONS[place] for place in GOLD],
}
DELETED_ROWS = VIEW != "R"
Probabilities = Any


def trained(kind: str, seed: int) -> Probabilities:
    """A full or a retrained model of this seed, (N, 77)."""
    rng = generator("known answers", kind, seed)
    logits = generator("known answers", "rows").normal(0, 1.2, (len(GOLD), 77))
    strength = np.where(DELETED_ROWS & (kind == "oracle"), -4.0, 8.0)
    logits[np.arange(len(GOLD)), GOLD] += strength
    # A training seed moves each option's bias on the deleted rows, and every row a little.
    logits += np.where(DELETED_ROWS[:, None], rng.normal(0, 0.4, 77), 0.0)
    logits += rng.normal(0, 0.5, logits.shape)
    return softmax(logits)


def softmax(logits: Probabilities) -> Probabilities:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


FULLS = [trained("full", seed) for seed in (1, 2)]
ORACLES = [trained("oracle", seed) for seed in range(9)]


def judged(unlearned: Mapping[str, Any], **more: Any) -> dict[str, ModelAssessment]:
    """The models under test by label, against two full models and the first three oracles."""
    given: dict[str, Any] = {
        "full": FULLS,
        "oracle": ORACLES[:3],
        "forget": OPTIONS[:DELETED],
        "rows": ROWS,
        "options": OPTIONS,
        "draws": 1000,
    }
    found = vestige.compare(unlearned=unlearned, **{**given, **more})
    return {model.label: model for model in found.models if model.role == "unlearned"}


def memory(model: ModelAssessment, view: str) -> float:
    assert model.evidence is not None
    value = model.evidence.view(view).memory.value  # type: ignore[arg-type]
    assert isinstance(value, float)
    return value


def where(deleted: Probabilities, retained: Probabilities) -> Probabilities:
    return np.where(DELETED_ROWS[:, None], deleted, retained)


FIRST = ORACLES[0]
HELD_OUT = ORACLES[8]
UNTOUCHED_UNIT = np.where(((GOLD == 0) & DELETED_ROWS)[:, None], FULLS[0], HELD_OUT)
UNTOUCHED_ROWS = np.where(
    (DELETED_ROWS & (generator("untouched").random(len(GOLD)) < 0.15))[:, None], FULLS[0], HELD_OUT
)

CASES: dict[str, tuple[Probabilities, str]] = {
    "retrained": (HELD_OUT, "equivalent"),
    "30 % full, 70 % first oracle": (0.3 * FULLS[0] + 0.7 * FIRST, "closer"),
    "20 % full, 80 % mean oracle": (0.2 * FULLS[0] + 0.8 * np.mean(ORACLES[:3], axis=0), "closer"),
    "20 % full, 80 % held-out oracle": (0.2 * FULLS[0] + 0.8 * HELD_OUT, "closer"),
    "one unit as before": (UNTOUCHED_UNIT, "closer"),
    "15 % of rows as before": (UNTOUCHED_ROWS, "closer"),
    "destroyed on retained rows": (where(FIRST, np.full_like(FIRST, 1 / 77)), "damaged"),
    "the full model": (FULLS[0], "not closer"),
    "away from retraining": (where(np.eye(77)[GOLD], FULLS[0]), "not closer"),
}


@pytest.fixture(scope="module")
def found() -> dict[str, ModelAssessment]:
    return judged({label: p for label, (p, _) in CASES.items()})


@pytest.mark.parametrize("label", CASES)
def test_the_word_is_true(found: dict[str, ModelAssessment], label: str) -> None:
    model = found[label]
    assert model.verdict == CASES[label][1], model.sentence
    assert f"“{label}”" in model.sentence


def test_a_gain_too_small_to_count_is_not_closer() -> None:
    """With 40 rows no power is left, but that a tenth of the way was not gone can be shown all the same."""
    few = np.concatenate([np.flatnonzero(view == VIEW)[:40] for view in ("F", "G")])
    few = np.concatenate([few, np.flatnonzero(VIEW == "R")])
    rows = {name: [column[place] for place in few] for name, column in ROWS.items()}
    fulls, oracles = ([table[few] for table in group] for group in (FULLS, ORACLES[:3]))
    model = judged({"unchanged": FULLS[0][few]}, full=fulls, oracle=oracles, rows=rows)["unchanged"]
    assert model.verdict == "not closer"
    assert "would count" in model.sentence
    assert model.evidence is not None
    view = model.evidence.view("G")
    assert isinstance(view.least_gain, float)
    assert isinstance(view.displacement.value, float)
    assert view.least_gain > 0.1 * view.displacement.value


def test_memory_is_the_share_of_the_full_model_that_is_left(found: dict[str, ModelAssessment]) -> None:
    for view in ("F", "G"):
        assert memory(found["retrained"], view) == pytest.approx(0.0, abs=0.03)
        assert memory(found["the full model"], view) == pytest.approx(1.0, abs=0.05)
        assert memory(found["30 % full, 70 % first oracle"], view) == pytest.approx(0.30, abs=0.02)
        assert memory(found["20 % full, 80 % mean oracle"], view) == pytest.approx(0.195, abs=0.01)
        assert memory(found["20 % full, 80 % held-out oracle"], view) == pytest.approx(0.20, abs=0.03)
        assert memory(found["15 % of rows as before"], view) == pytest.approx(0.15, abs=0.04)
        assert memory(found["one unit as before"], view) == pytest.approx(0.25, abs=0.04)


def test_the_worst_unit_is_named(found: dict[str, ModelAssessment]) -> None:
    evidence = found["one unit as before"].evidence
    assert evidence is not None
    worst = evidence.units[0]
    assert worst.name == OPTIONS[0]
    assert isinstance(worst.lower, float)
    assert worst.lower > 0.2


def test_no_order_of_models_changes_a_bit() -> None:
    mixture = {"mixture": 0.3 * FULLS[0] + 0.7 * FIRST, "again": [HELD_OUT, ORACLES[7]]}
    made = [
        judged(mixture, oracle=list(oracles), full=fulls, draws=200)
        for oracles in permutations(ORACLES[:3])
        for fulls in (FULLS, FULLS[::-1])
    ]
    first = {label: model.to_json() for label, model in made[0].items()}
    for other in made[1:]:
        for label, model in other.items():
            assert model.verdict == made[0][label].verdict
            assert model.evidence == made[0][label].evidence
            assert {k: v.value for k, v in model.metrics.items()} == {
                k: v.value for k, v in made[0][label].metrics.items()
            }
    assert set(first) == set(mixture)


def test_what_is_missing_is_said() -> None:
    few = judged({"retrained": HELD_OUT}, oracle=ORACLES[:2])["retrained"]
    assert few.verdict == "closer"
    assert few.evidence is not None
    asked = {item.name: item for item in few.evidence.conditions}
    assert [asked[name].holds for name in ("E1", "E2", "E3")] == [None] * 3
    assert asked["E2"].text.endswith("allowed, for these retrained models alone")
    none = judged({"broken": where(FIRST, np.full_like(FIRST, 1 / 77)), "kept": FULLS[0]}, oracle=None)
    assert none["broken"].verdict == "damaged"
    assert none["kept"].verdict == "undetermined"
    assert "no retrained model was given" in none["kept"].sentence


def test_a_deletion_that_does_not_show_says_so() -> None:
    """The full models lie where the oracles lie: nothing to undo, and doing nothing is equivalent."""
    same = [where(trained("oracle", 20 + seed), FULLS[seed]) for seed in (0, 1)]
    model = judged({"nothing done": same[0]}, full=same, oracle=ORACLES[:6])["nothing done"]
    assert model.verdict == "equivalent"
    assert "there was nothing to undo that these outputs show" in model.sentence
    assert model.evidence is not None
    assert model.evidence.nothing_to_undo == ("F", "G")
    assert isinstance(model.evidence.view("F").memory.value, Undefined)


def test_harm_is_not_hidden_by_a_deletion_that_hardly_shows() -> None:
    """A customer's rows: retraining moves nothing, unlearning took 14 points and moved ten times further.

    And rows that do show on F, while on a noisy G nothing does, which stops the gate of the published rule.
    """
    rng = generator("harm")
    small = [where(trained("oracle", 30 + seed), FULLS[seed]) for seed in (0, 1)]
    wrong = np.roll(np.eye(77), 1, axis=1)[GOLD]
    struck = (rng.random(len(GOLD)) < 0.14)[:, None] & ~DELETED_ROWS[:, None]
    taken = np.where(struck, wrong, where(np.eye(77)[(GOLD + 40) % 77], small[0]))
    model = judged({"customer": taken}, full=small)["customer"]
    assert (model.verdict, model.decision) == ("damaged", "infeasible")
    assert "accuracy on 1,500 retained rows fell by 1" in model.sentence
    assert "It moved away from retraining on the deleted rows and the unseen rows" in model.sentence

    noisy = [np.where((VIEW == "G")[:, None], trained("oracle", 40 + seed), FULLS[seed]) for seed in (0, 1)]
    models = judged({"kept": noisy[0], "undone": HELD_OUT}, full=noisy)
    assert models["undone"].decision == "displacement within noise"
    assert models["undone"].verdict == "equivalent"
    assert models["kept"].verdict == "not closer"
    assert "On the unseen rows the full model lies there as well" in models["undone"].sentence


def test_copies_are_no_other_trainings() -> None:
    """The same model three times is one retraining, not three that never differ."""
    for copies in ({"oracle": [FIRST, FIRST, ORACLES[1]]}, {"full": [FULLS[0], FULLS[0].copy()]}):
        with pytest.raises(InputError, match="found the same probabilities on every row as"):
            judged({"U": HELD_OUT}, **copies)
    exports = [FIRST, FIRST.astype(np.float32).astype(np.float64), FIRST.round(6)]
    with pytest.raises(InputError, match=r"to 0\.00001"):
        judged({"U": HELD_OUT}, oracle=exports)
    with pytest.raises(InputError, match="a training run of its own"):
        judged({"method": [HELD_OUT, HELD_OUT]})


def test_a_gain_shown_alone_is_never_not_closer() -> None:
    """No p is below 1 / (draws + 1): of ten models nearly all the way, none is confirmed in 250 draws."""
    mostly = {f"model {seed}": 0.15 * FULLS[0] + 0.85 * trained("oracle", 60 + seed) for seed in range(10)}
    for model in judged(mostly, draws=250, margins={"gain": 0.15}).values():
        assert model.verdict == "undetermined"
        assert "judged alone it came closer" in model.sentence


def test_too_few_draws_have_no_bound() -> None:
    """Of one draw every quantile is that draw: no word may rest on it, and it says what is missing."""
    mixture = {"mixture": 0.15 * FULLS[0] + 0.85 * HELD_OUT, "two seeds": ORACLES[6:8]}
    for draws in (1, 38):
        for model in judged(mixture, draws=draws).values():
            assert model.verdict == "undetermined"
            assert f"more draws ({draws} are too few for any bound)" in model.sentence
            assert model.evidence is not None
            assert isinstance(model.evidence.view("F").memory.upper, Undefined)
    assert judged(mixture, draws=99)["mixture"].verdict == "closer"


def test_seeds_of_one_method_are_one_method() -> None:
    several = judged({"method": ORACLES[5:8], "single": HELD_OUT})
    method, single = several["method"], several["single"]
    assert (method.seeds, single.seeds) == (3, 1)
    assert method.evidence is not None
    assert single.evidence is not None
    one = single.evidence.view("F").gain.other_trainings
    assert isinstance(one, Undefined)
    assert "one training run" in str(one)
    interval = method.evidence.view("F").gain.other_trainings
    assert not isinstance(interval, Undefined)
    assert "seeds: 3 oracle, 2 full, 3 unlearned" in interval.condition
    assert "One training run" not in method.sentence


@pytest.mark.parametrize("oracles", [1, 2, 3, 8])
def test_the_audits_own_arithmetic_finds_the_same(oracles: int) -> None:
    """Every number of the evidence, by code that shares nothing with it but the random stream."""
    cases = {label: CASES[label][0] for label in ("retrained", "one unit as before", "the full model")}
    found = judged(cases, oracle=ORACLES[:oracles], draws=300)
    views = {
        view: audit_verdicts.Request(
            view,
            [p[view == VIEW] for p in FULLS],
            [p[view == VIEW] for p in ORACLES[:oracles]],
            GOLD[view == VIEW],
            [OPTIONS[place] for place in GOLD[view == VIEW]],
            300,
        )
        for view in SIZES
    }
    models = {label: {view: [table[view == VIEW]] for view in SIZES} for label, table in cases.items()}
    margins = Margins().model_dump(mode="json")
    expected = {
        label: audit_verdicts.expected_evidence(views, seeds, margins, set(OPTIONS[:DELETED]))
        for label, seeds in models.items()
    }
    whole = audit_evidence.judged(expected, views, models, margins, list(found), Speaker({}, {}))
    for label, model in found.items():
        stored = json.loads(model.to_json())
        record = {name: stored[name] for name in whole[label]}
        assert list(agree(whole[label], record, Finding())) == []
        record["evidence"]["views"][0]["memory"]["upper"] = 0.0123
        wrong = [place for place, _ in agree(whole[label], record, Finding())]
        assert wrong == [("evidence", "views", 0, "memory", "upper")]
        assert whole[label]["verdict"].value == model.verdict
