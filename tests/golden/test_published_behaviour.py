"""Accuracies, losses, B-Gap and relations against the published tables, within their rounding."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from vestige.behaviour.accuracy import (
    Paired,
    headroom,
    role_accuracies,
    subject_accuracies,
    tripartite_loss,
    wilson,
)
from vestige.behaviour.partition import MMLU_ADJACENT, Subject
from vestige.contracts import Undefined
from vestige.data.questions import LetterQuestion
from vestige.metrics import behaviour_gap, gap_relation

Row = dict[str, str]
EXACT = 1e-9
QUESTION = LetterQuestion("q", ("A", "B", "C", "D"), 0)


def rows(paper: Path, name: str) -> list[Row]:
    with (paper / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def paired(role: str, topic: str, name: str, before: int, after: int, total: int) -> Paired:
    """So many right answers of base and model, those of the fewer being among those of the more."""
    subject = Subject(
        role=role,  # type: ignore[arg-type]
        topic=topic,
        name=name,
        path="",
        sha256="",
        questions=(QUESTION,) * total,
        file_questions=total,
    )
    first, second = ([k < right for k in range(total)] for right in (before, after))
    return Paired(subject, tuple(first), tuple(second))


def test_counts_give_the_printed_accuracies_and_lie_in_their_intervals(paper: Path) -> None:
    table = rows(paper, "triage_partition_counts.csv")
    for row in table:
        right, total = int(row["correct"]), int(row["total"])
        pair = paired(row["role"], "t", row["subset"], right, right, total)
        (entry,) = subject_accuracies([pair])
        assert (entry.correct, entry.questions) == (right, total)
        # Printed with two digits: half of the last, and its binary fraction.
        assert entry.accuracy == pytest.approx(float(row["acc_printed"]), abs=0.005 + EXACT), row
        interval = wilson(right, total)
        assert interval.low < entry.accuracy < interval.high
    assert len(table) > 40


def test_the_partition_names_the_published_subjects(paper: Path) -> None:
    printed = {
        row["subset"] for row in rows(paper, "triage_partition_counts.csv") if row["role"] == "adjacent"
    }
    assert printed == {name for names in MMLU_ADJACENT.values() for name in names}


def test_every_published_gap_and_relation(paper: Path) -> None:
    """Accuracies have three digits: a topic is off by 0.0005 at most, and so is their mean; the loss then by
    0.05 (1 + after / base) / base percent, plus half a printed digit; the gap by both."""
    accuracies = {(row["model"], row["method"]): row for row in rows(paper, "triage_behaviour.csv")}
    table = rows(paper, "triage_bgap.csv")
    for row in table:
        base, after = accuracies[row["model"], "base"], accuracies[row["model"], row["method"]]
        gap = behaviour_gap(base, after)
        slack = {}
        for letter, kind in (("f", "forget"), ("a", "retain")):
            columns = [f"acc_{kind}_{topic}" for topic in ("bio", "cyber")]
            before, now = (sum(float(record[column]) for column in columns) / 2 for record in (base, after))
            slack[letter] = 0.05 * (1 + now / before) / before
        assert gap.delta_f == pytest.approx(float(row["delta_f"]), abs=slack["f"] + 0.05 + EXACT), row
        assert gap.delta_a == pytest.approx(float(row["delta_a"]), abs=slack["a"] + 0.05 + EXACT), row
        assert gap.b_gap == pytest.approx(float(row["b_gap"]), abs=sum(slack.values()) + 0.05 + EXACT), row
        assert not isinstance(gap.b_gap, Undefined)
        assert gap_relation(float(row["adj_gap"]), gap.b_gap) == row["relation"], row
    assert len(table) == 12


def test_topics_are_averaged_before_the_loss_is_taken(paper: Path) -> None:
    """A mean of the topics' losses would not give the printed ones."""
    accuracies = {(row["model"], row["method"]): row for row in rows(paper, "triage_behaviour.csv")}
    missed = 0
    for row in rows(paper, "triage_bgap.csv"):
        base, after = accuracies[row["model"], "base"], accuracies[row["model"], row["method"]]
        losses = [
            100 * (1 - float(after[column]) / float(base[column]))
            for column in ("acc_forget_bio", "acc_forget_cyber")
        ]
        missed += abs(sum(losses) / 2 - float(row["delta_f"])) > 0.35
    assert missed >= 4


def test_the_record_of_counts_agrees_with_the_rule() -> None:
    """The base: (0.8 + 0.6) / 2 on forget, ((0.5 + 0.7) / 2 + 0.8) / 2 on adjacent questions: both 0.7."""
    pairs = [
        paired("forget", "bio", "wmdp_bio", 80, 40, 100),
        paired("forget", "cyber", "wmdp_cyber", 30, 20, 50),
        paired("adjacent", "bio", "virology", 10, 8, 20),
        paired("adjacent", "bio", "college_biology", 21, 21, 30),
        paired("adjacent", "cyber", "computer_security", 8, 6, 10),
        paired("generic", "all", "law", 5, 5, 10),
        paired("generic", "all", "maths", 30, 20, 100),
    ]
    loss = tripartite_loss(pairs, draws=1000, seed=17, adjacency_gap=1.0)
    f = 100 * (0.7 - 0.4) / 0.7
    a = 100 * (0.7 - 0.575) / 0.7
    assert loss.delta_f.value == pytest.approx(f)
    assert loss.delta_a.value == pytest.approx(a)
    assert loss.delta_g.value == pytest.approx(100 * (0.4 - 0.35) / 0.4)
    assert loss.b_gap.value == pytest.approx(f - a)
    assert loss.relation == "same sign"
    accuracy = {entry.role: entry for entry in role_accuracies(pairs, draws=1000, seed=17)}
    assert accuracy["adjacent"].accuracy == pytest.approx(0.575)
    # A standard error worked out: sqrt(sum of p (1 - p) / n over subjects, weights squared), normal at 95 %.
    variance = (0.4 * 0.6 / 100 + 0.4 * 0.6 / 50) / 4
    half = accuracy["forget"].interval.high - accuracy["forget"].accuracy
    assert half == pytest.approx(1.96 * variance**0.5, rel=0.12)
    base = [Paired(pair.subject, pair.base, pair.base) for pair in pairs]
    rooms = {entry.role: entry for entry in headroom(base, draws=1000, seed=17)}
    assert rooms["forget"].value == pytest.approx(0.45)
    assert rooms["forget"].passes
    guessing = [paired("forget", "bio", "s", 25, 25, 100)]
    (room,) = headroom(guessing, draws=500, seed=17)
    assert not room.passes
    assert "a loss of knowledge is undefined here" in room.said


def test_a_base_that_answers_nothing_and_roles_without_questions() -> None:
    loss = tripartite_loss(
        [paired("forget", "all", "s", 0, 3, 10)],
        draws=200,
        seed=1,
        adjacency_gap=Undefined(undefined="no footprint was given"),
    )
    assert loss.delta_f.value == Undefined(undefined="the base answers nothing here")
    assert loss.delta_a.value == Undefined(undefined="no adjacent questions")
    assert loss.b_gap.value == Undefined(undefined="no adjacent questions")
    assert isinstance(loss.relation, Undefined)
