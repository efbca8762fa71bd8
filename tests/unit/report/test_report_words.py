"""How numbers and names are printed."""

from __future__ import annotations

import math

import pytest
from tests.assessments import interval

from vestige.contracts import Undefined
from vestige.report.words import (
    Style,
    conditions,
    cut,
    interval_text,
    listed,
    plain,
    probability,
    short,
    styled,
    unit_words,
)


@pytest.mark.parametrize(
    ("value", "style", "text"),
    [
        (0.594, "percent", "59 %"),
        (-0.004, "percent", "0 %"),
        (0.9014, "share", "90.1 %"),
        (-0.0012, "points", "-0.1"),
        (0.0301, "points", "+3.0"),
        (-0.0001, "points", "0.0"),
        (0.0009, "signed", "+0.001"),
        (-0.0, "signed", "0.000"),
        (0.2512, "number", "0.251"),
        (1234.5678, "number", "1,234.568"),
        (0.2512, "ratio", "0.25"),
        (3e-8, "small", "3.0e-08"),
        (0.0, "small", "0.000"),
        (1234.0, "count", "1,234"),
    ],
)
def test_styles(value: float, style: Style, text: str) -> None:
    assert styled(value, style) == text


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        styled(math.nan, "number")


@pytest.mark.parametrize(
    ("value", "text"), [(0.00001, "below 0.0001"), (0.0002, "0.0002"), (0.0123, "0.012"), (1.0, "1.000")]
)
def test_p_values_are_never_zero(value: float, text: str) -> None:
    assert probability(value) == text


def test_long_text_is_cut_in_the_middle_with_its_length() -> None:
    text = "runs/2026/" + "a" * 100 + "/simnpo"
    assert short(text) == "runs/2026/" + "a" * 22 + "…" + "a" * 9 + "/simnpo (117 characters)"
    assert short("simnpo") == "simnpo"
    assert cut("abcdefghij", 6) == "abcd…ij"


def test_plain_escapes_what_could_deceive_and_keeps_emoji() -> None:
    assert plain("a\nb\u202ec\x00") == "a\\nb\\u202ec\\x00"
    family = "👩\u200d👧"
    assert plain(family) == family


def test_lists() -> None:
    assert [listed(items) for items in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


def test_intervals_print_without_their_unit() -> None:
    assert interval_text(interval(0.55, 0.63), "percent") == "[55, 63]"
    assert interval_text(Undefined(undefined="one row"), "percent") == "undefined: one row"
    assert interval_text(None, "percent") == ""


def test_conditions_state_kind_draws_seed_level_and_condition() -> None:
    found = interval(0.1, 0.2, view="G", unit=True)
    assert conditions(found) == "unit bootstrap, 5,000 draws, conditional on training seed 17"
    assert conditions(found, seeds=(102,)) == (
        "unit bootstrap, percentile, 95 % level, 5,000 draws, seed 102, conditional on training seed 17"
    )
    assert conditions(found.model_copy(update={"level": 0.9})).startswith("unit bootstrap, 90 % level, 5,000")
    assert conditions(Undefined(undefined="one row")) == "interval undefined: one row"
    assert conditions(None) == "no interval"


def test_units_are_named_by_kind() -> None:
    assert unit_words("class", 1) == "1 deleted intent"
    assert unit_words("cluster", 10) == "10 deleted sub-intents"
    assert unit_words("customer_id", 2) == "2 deleted values of customer_id"
