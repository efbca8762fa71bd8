"""The class rule at its thresholds, its marks, roles, and the behaviour gap."""

from __future__ import annotations

import math

import pytest

from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.metrics import (
    CorpusShift,
    FootprintThresholds,
    behaviour_gap,
    classify_footprint,
    footprint_class,
    gap_relation,
    globality,
)
from vestige.metrics.footprint import no_op_fluency_flag, role_half_width, role_shift


@pytest.mark.parametrize(
    ("forget", "adjacent", "generic", "expected"),
    [
        (1.49, 1.49, 1.49, "no-op"),
        (1.5, 0.0, 0.0, "partially-localized"),
        (4.0, 2.0, 3.0, "globally-destructive"),
        (4.0, 2.0, 2.99, "partially-localized"),
        (2.0, 4.0, 2.99, "collateral-dominant"),
        (2.0, 2.0, 0.0, "collateral-dominant"),
        (0.0, 0.0, 2.0, "globally-destructive"),
    ],
)
def test_classes_at_their_thresholds(forget: float, adjacent: float, generic: float, expected: str) -> None:
    assert classify_footprint({"f": forget}, {"a": adjacent}, {"g": generic}) == expected


def test_one_corpus_above_the_threshold_is_enough_to_have_moved() -> None:
    assert classify_footprint({"bio": 2.0, "cyber": 0.5}, {"a": 0.1}, {"g": 0.1}) == "partially-localized"


def test_a_generic_shift_up_to_one_percent_is_never_global() -> None:
    settings = FootprintThresholds(no_op=0.5)
    assert (
        classify_footprint({"f": 0.9}, {"a": 0.6}, {"g": 1.0}, thresholds=settings) == "partially-localized"
    )
    assert classify_footprint({"f": 0.9}, {"a": 0.6}, {"g": 1.01}, thresholds=settings) == (
        "globally-destructive"
    )


def test_without_an_adjacent_corpus_only_a_no_op_has_a_class() -> None:
    assert classify_footprint({"f": 0.1}, {}, {"g": 0.1}) == "no-op"
    found = classify_footprint({"f": 5.0}, {}, {"g": 0.1})
    assert found == Undefined(undefined="no adjacent corpus")
    record = footprint_class({"f": shift(5, 1)}, {}, {"g": shift(0.1, 0.1)})
    assert isinstance(record.adjacency_gap, Undefined)
    assert record.undetermined == ()


@pytest.mark.parametrize("value", [math.nan, -0.1, math.inf])
def test_shifts_that_are_no_percentages_are_refused(value: float) -> None:
    with pytest.raises(InputError, match="'bio'"):
        classify_footprint({"bio": value}, {"a": 1.0}, {"g": 1.0})
    with pytest.raises(InputError, match="forget shifts"):
        classify_footprint({}, {"a": 1.0}, {"g": 1.0})


def shift(value: float, half: float) -> CorpusShift:
    return CorpusShift(value=value, half_width=half)


@pytest.mark.parametrize(
    ("f", "a", "g", "name", "marks"),
    [
        ((5, 0.3), (3, 0.3), (0.2, 0.1), "partially-localized", []),
        ((5, 1.5), (3, 1.5), (0.2, 0.1), "partially-localized", ["adjacency gap"]),
        ((3, 1.5), (5, 1.5), (0.2, 0.1), "collateral-dominant", ["adjacency gap"]),
        ((1.4, 0.2), (0.1, 0.1), (0.1, 0.1), "no-op", ["no-op threshold"]),
        ((1.6, 0.2), (0.1, 0.1), (0.1, 0.1), "partially-localized", ["no-op threshold"]),
        # 1.5 inside F's interval, but A is above it for certain: it is no no-op either way.
        ((1.6, 0.2), (9.0, 0.1), (0.1, 0.1), "collateral-dominant", []),
        ((4, 0.1), (2, 0.1), (2.9, 0.5), "partially-localized", ["globality"]),
        ((4, 0.1), (2, 0.1), (3.1, 0.5), "globally-destructive", ["globality"]),
        # Globality in doubt, but generic text is below 1 % for certain.
        ((1.6, 0.05), (1.1, 0.05), (0.9, 0.05), "partially-localized", []),
        ((1.6, 0.05), (1.1, 0.05), (1.25, 0.3), "globally-destructive", ["globality", "generic text"]),
        # The gap covers 0, but does not decide.
        ((9, 2), (9, 2), (12, 0.5), "globally-destructive", []),
    ],
)
def test_undetermined_marks_only_what_decides(
    f: tuple[float, float],
    a: tuple[float, float],
    g: tuple[float, float],
    name: str,
    marks: list[str],
) -> None:
    found = footprint_class({"f": shift(*f)}, {"a": shift(*a)}, {"g": shift(*g)})
    assert found.name == name
    assert len(found.undetermined) == len(marks)
    for mark, line in zip(marks, found.undetermined, strict=True):
        assert mark in line
    assert str(found) == (f"{name} (undetermined)" if marks else name)


def test_without_intervals_the_record_says_why() -> None:
    reason = Undefined(undefined="the subsets coincide")
    found = footprint_class(
        {"f": CorpusShift(value=5.0, half_width=reason)}, {"a": shift(3, 0.1)}, {"g": shift(0, 0)}
    )
    assert found.adjacency_gap == 2.0
    assert found.adjacency_gap_half_width == reason
    assert found.undetermined == ()


def test_a_no_op_whose_fluency_moved_is_flagged() -> None:
    quiet = {"f": shift(0.1, 0)}
    found = footprint_class(
        quiet, {"a": shift(0.1, 0)}, {"g": shift(0.1, 0)}, log10_perplexity_ratios={"f": -0.11, "g": 0.1}
    )
    assert len(found.flags) == 1
    assert "on f" in found.flags[0]
    loud = footprint_class(
        {"f": shift(9, 0)}, {"a": shift(0.1, 0)}, {"g": shift(0.1, 0)}, log10_perplexity_ratios={"f": 30}
    )
    assert loud.flags == ()
    assert no_op_fluency_flag({"g": 0.05}) == ()


def test_roles() -> None:
    assert role_shift([1.0, 4.0]) == 2.5
    assert role_half_width([3.0, 4.0]) == 2.5
    assert isinstance(globality(0, 0, 1), Undefined)
    with pytest.raises(ValueError, match="at least one corpus"):
        role_shift([])


def test_behaviour_gap_averages_topics_first() -> None:
    base = {"forget": {"bio": 0.8, "cyber": 0.4}, "adjacent": {"bio": 0.5}}
    after = {"forget": {"bio": 0.4, "cyber": 0.4}, "adjacent": {"bio": 0.6}}
    gap = behaviour_gap(base, after)
    assert gap.delta_f == pytest.approx(100 * 0.2 / 0.6)
    assert gap.delta_a == pytest.approx(-20)
    assert gap.b_gap == pytest.approx(100 / 3 + 20)
    flat = behaviour_gap(
        {"method": "x", "acc_forget_bio": "0.8", "acc_forget_cyber": "0.4", "acc_retain_bio": "0.5"},
        {"acc_forget_bio": 0.4, "acc_forget_cyber": 0.4, "acc_retain_bio": 0.6, "acc_general": 0.1},
    )
    assert flat == gap


def test_behaviour_gap_refuses_and_says_undefined() -> None:
    gap = behaviour_gap({"forget": 0.0, "adjacent": 0.5}, {"forget": 0.2, "adjacent": 0.5})
    assert isinstance(gap.delta_f, Undefined)
    assert isinstance(gap.b_gap, Undefined)
    assert gap.delta_a == 0
    with pytest.raises(InputError, match="adjacent"):
        behaviour_gap({"forget": 0.5}, {"forget": 0.5})
    with pytest.raises(InputError, match="give shares"):
        behaviour_gap({"forget": 50, "adjacent": 0.5}, {"forget": 0.5, "adjacent": 0.5})
    with pytest.raises(InputError, match="same topics"):
        behaviour_gap({"forget": {"a": 0.5}, "adjacent": 0.5}, {"forget": {"b": 0.5}, "adjacent": 0.5})


def test_relations() -> None:
    assert gap_relation(0.24, -1.9) == "near zero"
    assert gap_relation(0.3, -1.9) == "opposite"
    assert gap_relation(-0.3, -3.0) == "same sign"
