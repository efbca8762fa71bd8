"""The sentence of each verdict, word for word: the answer first, then what it rests on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.evidence import COUNTS, bounded, equivalent, evidence, retained, undefined, view

from vestige.contracts import (
    Calibration,
    Evidence,
    ProbeEvidence,
    RetainedEvidence,
    Undefined,
    UnitEvidence,
    Verdict,
)
from vestige.verdict.sentence import sentence


def said(verdict: Verdict, found: Evidence, **more: Any) -> str:
    return sentence(verdict, found, **{"label": "U", "counts": COUNTS, **more})


RUN = "Only one training run of the unlearned model was given: how another would come out is not known."
ABOUT = "n 98 deleted training rows and 54 unseen rows of the 2 deleted intents"
UNHARMED = (
    "The rest is unharmed: on 1,500 retained rows accuracy changed by -0.3 points [-0.9, +0.2] (retraining "
    "itself: -0.1)."
)
LEFT = (
    f"O{ABOUT}, its distance to retraining is 0.28 on the deleted rows and 0.27 on the unseen rows (the full "
    "model’s: 0.66), 2.8 and 2.7 times what two retrainings differ by. Memory, the share that is left of the "
    "difference between the full model and a retrained one, is 25 % [19, 32] on both kinds of row."
)


def test_equivalent_says_what_is_left_at_most_and_what_the_margin_admits() -> None:
    assert said("equivalent", equivalent()) == (
        f"“U” is equivalent to retraining within the stated margins: o{ABOUT} it lies where the three "
        "retrained models lie. It is further from them than they are from each other by at most 0.040 on "
        "both kinds of row (upper 95 % bounds; 0.050 allowed). Memory, the share that is left of the "
        "difference between the full model and a retrained one, is at most 4 % on both kinds of row (10 % "
        "allowed). A model exactly at this margin may still "
        "give the right answer a mean probability of 0.18 on the deleted rows (retrained 0.10, full 0.90) "
        f"and 0.18 on the unseen rows (retrained 0.10, full 0.90). {UNHARMED} {RUN}"
    )


def test_equivalent_where_nothing_was_to_undo_says_so_first() -> None:
    same = {"distance": 0.11, "start": 0.11, "memory": None, "visible": False}
    text = said("equivalent", equivalent(views=[view("F", **same), view("G", **same)]))
    assert text.startswith(
        "“U” is equivalent to retraining within the stated margins, and so is the full model: there was "
        "nothing to undo that these outputs show. "
    )
    assert "“U” is further from them than they are from each other by at most 0.040" in text
    assert "memory" not in text.lower()


def test_closer_says_how_far_what_is_left_and_why_it_is_not_equivalent() -> None:
    assert said("closer", evidence(share=0.74)) == (
        "“U” is closer to retraining than the full model, 74 % of the way, and is not shown to be equivalent "
        f"to it. {LEFT} {UNHARMED} Equivalence is not shown: memory may be as high as 32 % on both kinds of "
        "row (10 % allowed); it may be further from retrained models than they are from each other by up to "
        f"0.21 on the deleted rows and 0.20 on the unseen rows (0.050 allowed). {RUN}"
    )


@pytest.mark.parametrize(
    ("share", "way"),
    [
        (0.09, "9 % of the way"),
        (0.004, "less than 1 % of the way"),
        (1.06, "the whole way by distance"),
        (Undefined(undefined="no"), "by how much is not known"),
    ],
)
def test_closer_never_stands_alone(share: float | Undefined, way: str) -> None:
    assert evidence(share=share).headline("closer") == f"closer, {way}"
    assert evidence(share=share).headline("damaged") == "damaged"


def test_closer_with_few_retrained_models_names_what_equivalence_needs() -> None:
    found = evidence(seeds={"full": 1, "oracle": 2, "unlearned": 3}, share=0.5)
    text = said("closer", found)
    assert text.endswith(
        "Equivalence is not shown: it takes at least three retrained models, and there are two."
    )
    alone = evidence(
        [view("F", spread=None), view("G", spread=None)], seeds={"full": 1, "oracle": 1, "unlearned": 2}
    )
    text = said("closer", alone)
    assert "times what two retrainings differ by" not in text
    assert "it takes at least three retrained models, and there is one." in text
    assert text.endswith(
        "Only one retrained model was given: how another retraining would come out is not known."
    )


def test_not_closer_says_what_would_have_been_seen() -> None:
    still = [view(name, distance=0.65, memory=(0.98, 0.9, 1.05), gain=(-0.02, 0.07)) for name in ("F", "G")]
    text = said("not closer", evidence(still))
    assert text.startswith(
        "“U” is not closer to retraining than the full model: had it come closer by 0.050 on both kinds of "
        "row, these rows would have shown that four times in five, and it is not shown. "
    )
    half = said("not closer", evidence([view("F"), still[1]]))
    assert "and it is not shown on the unseen rows. On the deleted rows alone it came closer." in half


def test_not_closer_says_what_is_shown_not_to_be_there() -> None:
    still = view("G", distance=0.65, memory=(0.98, 0.9, 1.05), gain=(-0.02, 0.04))
    assert said("not closer", evidence([view("F"), still])).startswith(
        "“U” is not closer to retraining than the full model: it came at most 6 % of the way on the unseen "
        "rows (upper end of a 95 % interval), where 10 % would count. On the deleted rows alone it came "
        "closer."
    )


def test_moving_away_is_said_of_each_kind_of_row() -> None:
    away = view("G", distance=0.9, memory=(1.3, 1.2, 1.4))
    text = said("not closer", evidence([view("F"), away]))
    assert text.startswith(
        "“U” is not closer to retraining than the full model: it moved away from retraining on the unseen "
        "rows, where its distance is shown to be larger than the full model’s. On the deleted rows alone it "
        "came closer."
    )
    assert "0.28 on the deleted rows and 0.90 on the unseen rows (the full model’s: 0.66)" in text


def test_damage_comes_first_with_its_size_and_with_what_else_holds() -> None:
    harmed = retained((-0.14, -0.162, -0.119), harm="damaged")
    customer = [view(name, distance=0.1, start=0.01, memory=(8.0, 6.0, 10.0)) for name in ("F", "G")]
    text = said("damaged", evidence(customer, retained=harmed), unit_kind="customer_id")
    assert text.startswith(
        "“U” is damaged: accuracy on 1,500 retained rows fell by 14.0 points [11.9, 16.2], from 92 % to 78 % "
        "(2 points allowed); retraining itself changed accuracy by -0.1 points. It moved away from "
        "retraining on the deleted rows and the unseen rows, where its distance is shown to be larger than "
        "the full model’s. On 98 deleted training rows and 54 unseen rows like them, its distance to "
        "retraining is "
        "0.10 on both kinds of row (the full model’s: 0.010),"
    )
    closer = said("damaged", evidence(retained=harmed, share=0.42))
    assert "Apart from that it came closer to retraining than the full model, 42 % of the way." in closer
    alone = said("damaged", evidence([], retained=harmed))
    assert alone.endswith("Fidelity to retraining cannot be assessed: no retrained model was given.")


def test_calibration_alone_is_damage_too() -> None:
    worse = Calibration(bins=10, model=0.09, full=0.03, change=bounded(0.06, 0.03, 0.09))
    found = retained(harm="damaged", harmed_by=("calibration",), calibration=worse)
    assert said("damaged", evidence(retained=found)).startswith(
        "“U” is damaged: the calibration error rose by 0.060 [0.030, 0.090] (0.02 allowed); on 1,500 "
        "retained rows accuracy changed by -0.3 points [-0.9, +0.2] (retraining itself: -0.1). Apart"
    )


def test_little_memory_far_from_retraining_is_not_praised() -> None:
    """A model may lose what it knew and lie as far from retraining as before: memory would hide that."""
    lost = [view(name, distance=0.6, memory=(0.02, -0.03, 0.07)) for name in ("F", "G")]
    words = "Little memory is left on the deleted rows and the unseen rows, but it does not answer there as"
    assert words in said("not closer", evidence(lost))
    assert "Little memory" not in said("closer", evidence([view("F"), view("G", distance=0.12)]))


def test_undetermined_says_what_is_missing() -> None:
    missing = ("more rows (on the unseen rows it is not shown to have come closer)", "more retained rows")
    one = evidence([view("F"), view("G", gain=(-0.01, 0.8))], missing=missing)
    assert said("undetermined", one).startswith(
        "It is not settled whether “U” is closer to retraining than the full model. What is missing: more "
        "rows (on the unseen rows it is not shown to have come closer); more retained rows. On the deleted "
        "rows alone it came closer. "
    )
    assert said("undetermined", evidence([])).startswith(
        "Whether “U” lies where retraining would have put it cannot be said: no retrained model was given. "
        "The rest is unharmed"
    )


def test_the_worst_unit_overshoot_and_probes_are_said() -> None:
    near = {"distance": 0.11, "memory": (0.01, -0.02, 0.04)}
    unit = UnitEvidence(view="F", name="card_arrival", rows=49, memory=0.41, lower=0.33)
    probes = (
        ProbeEvidence(
            name="renaming", memory={"F": bounded(0.6, 0.5, 0.7), "G": undefined("no")}, holds=False
        ),
        ProbeEvidence(name="temperature 2", memory={"F": bounded(0.0, -0.1, 0.05)}, holds=True),
        ProbeEvidence(name="paraphrase", memory={}, holds=None),
    )
    found = evidence([view("F", **near), view("G", **near)], units=(unit,), overshoot=("G",), probes=probes)
    text = said("closer", found)
    assert (
        "Equivalence is not shown: card_arrival keeps at least 33 % on the deleted rows (20 % allowed in one "
        "part)" in text
    )
    assert "On the unseen rows it goes further from the full model than retraining does (overshoot)." in text
    assert (
        "it remembers more than the margin allows: under renaming it keeps 60 % on the deleted rows." in text
    )
    assert "Under temperature 2, too, no more than the margin is left of the full model." in text
    assert "Whether that holds under paraphrase is not settled." in text


def test_a_view_without_something_to_undo_is_named() -> None:
    text = said("closer", evidence([view("F"), view("G", visible=False, memory=None)], share=0.4))
    assert "On the unseen rows there was nothing to undo that these outputs show: the full model" in text


def test_language_models_are_told_of_texts_and_losses() -> None:
    worse = RetainedEvidence(
        name="neighbours",
        rows=40,
        measure="loss",
        model=3.1,
        full=2.9,
        oracle=2.91,
        change=bounded(0.2, 0.1, 0.3),
        retraining=0.01,
        excess=bounded(0.1, 0.05, 0.15),
        harm="damaged",
        harmed_by=("loss",),
    )
    other = worse.model_copy(
        update={"name": "generic", "harm": "unharmed", "change": bounded(0.0, -0.01, 0.01)}
    )
    found = evidence([view("F")], retained=worse, other_retained=(other,))
    text = said("damaged", found, unit_kind="text", counts={"F": COUNTS["F"]})
    assert text.startswith(
        "“U” is damaged: the loss a token on neighbours rose by 0.200 nats [0.100, 0.300], from 2.90 to 3.10 "
        "(0.05 allowed); retraining itself changed the loss a token by +0.010 nats. On 40 documents of "
        "generic the loss a token changed by 0.000 nats [-0.010, +0.010] (retraining itself: +0.010): this "
        "text is unharmed."
    )
    assert (
        " On 98 forget documents, its distance to retraining is 0.28 on the forget text (the base’s:" in text
    )
    assert "between the base and a retrained one, is 25 % [19, 32] on the forget text" in text
    alone = evidence([view("F")], retained=other)
    text = said("closer", alone, unit_kind="text", counts={"F": COUNTS["F"]})
    assert "This rests on the forget text alone, without unseen text." in text


@pytest.mark.parametrize("label", ["a\nb", "\u202eevil", "x" * 10_000])
def test_odd_labels_stay_short_and_on_one_line(label: str) -> None:
    text = said("closer", evidence(), label=label)
    assert text.isprintable()
    assert len(text) < 1300
