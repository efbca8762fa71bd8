"""Hash order, bundles, and the requests that class and custom deletion make."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from vestige.data import DatasetSpec, IntentData, assemble, load_intents
from vestige.deletion.bundles import hash_order, hash_units, plan_bundles
from vestige.deletion.requests import (
    DeletionRequest,
    GateException,
    check_granularity,
    class_request,
    custom_request,
    request_from_json,
    tuning_rows,
)
from vestige.errors import InputError


def intents(out_of_scope: str | None = None) -> IntentData:
    rows = [
        (f"{split}-{label}-{i}", f"{split} {label} {i}", label, split, str(i % 5))
        for split in ("train", "development", "evaluation")
        for label in ("a", "b", "c", "oos")
        for i in range(10)
    ]
    rows += [
        ("train-a-copy", "TRAIN a 0 ", "a", "train", "9"),
        ("train-a-dropped", "evaluation a 1", "a", "train", "9"),
    ]
    frame = pd.DataFrame(rows, columns=["row_id", "text", "gold", "split", "customer_id"]).astype(str)
    return assemble("d", frame, out_of_scope=out_of_scope)


def refusal(call, *arguments, **settings) -> str:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as caught:
        call(*arguments, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def of_classes(data: IntentData, *units: str) -> DeletionRequest:
    return class_request(data, units, bundle="01", purpose="pilot", salt="s", seed=17)


def custom(data: IntentData, **settings: object) -> DeletionRequest:
    return custom_request(data, purpose="pilot", seed=17, **settings)  # type: ignore[arg-type]


def test_hash_order_is_by_sha256_of_salt_colon_unit() -> None:
    units = ["x", "y", "🎉", "a/b"]
    expected = sorted(units, key=lambda unit: hashlib.sha256(f"salt:{unit}".encode()).hexdigest())
    assert hash_order(units, "salt") == tuple(expected)
    assert hash_order(["x", "x"], "salt") == ("x",)


@settings(max_examples=30, deadline=None)
@given(st.sets(st.text(min_size=1, max_size=5), min_size=12, max_size=30), st.text(max_size=5))
def test_bundles_are_disjoint_consecutive_and_reserved_ones_are_hashes(units: set[str], salt: str) -> None:
    plan = plan_bundles(units, salt, 3, 4, ("02",))
    order = hash_order(units, salt)
    assert plan.bundles == {"00": order[:3], "01": order[3:6], "03": order[9:12]}
    assert plan.reserved == {"02": hash_units(order[6:9])}
    assert (plan.eligible, plan.left) == (len(units), len(units) - 12)


def test_reserved_units_are_nowhere_in_the_record() -> None:
    units = [f"option-{i}" for i in range(8)]
    plan = plan_bundles(units, "s", 2, 4, ("03",))
    text = plan.to_json()
    hidden = set(hash_order(units, "s")[6:8])
    assert not any(f'"{unit}"' in text for unit in hidden)
    assert all(f'"{unit}"' in text for unit in set(units) - hidden)


def test_reserved_bundles_cannot_be_used() -> None:
    units = [f"option-{i}" for i in range(8)]
    plan = plan_bundles(units, "s", 2, 4, ("03",))
    assert plan.units("01") == hash_order(units, "s")[2:4]
    assert "a reserved bundle" in refusal(plan.units, "03")
    assert "only bundles 00, 01, 02" in refusal(plan.units, "04")
    plan.refuse_reserved(hash_units(bundle) for bundle in plan.bundles.values())
    assert "bundle 03" in refusal(plan.refuse_reserved, [hash_units(hash_order(units, "s")[6:8][::-1])])


def test_too_few_units_and_bad_reserved_labels() -> None:
    assert "5 eligible units; needed 6 for 3 bundles of 2" in refusal(plan_bundles, "abcde", "s", 2, 3)
    assert "the development bundle" in refusal(plan_bundles, "abcd", "s", 2, 2, ("00",))
    assert "no such bundle" in refusal(plan_bundles, "abcd", "s", 2, 2, ("07",))


def test_class_deletion_takes_every_training_row_of_the_classes() -> None:
    data = intents("oos")
    request = of_classes(data, "b", "a")
    train = data.rows("train")
    assert request.row_ids == tuple(sorted(train.loc[train["gold"].isin(["a", "b"]), "row_id"]))
    assert request.units == request.forgotten == ("b", "a")
    assert request.unit_of["train-b-3"] == "b"
    assert request.notes == ()
    assert (request.granularity, request.salt, request.seed) == ("class", "s", 17)


def test_identity_is_units_and_rows_only() -> None:
    data = intents()
    request = of_classes(data, "a", "b")
    other = class_request(data, ["b", "a"], bundle="07", purpose="confirmation", salt="t", seed=42)
    assert other.sha256 == request.sha256
    failed = GateException(seed=42, unit="a", accuracy=0.5, mean_gold_probability=0.6, reason="low")
    assert request.with_exceptions([failed]).sha256 == request.sha256
    assert request.with_exceptions([failed]).exceptions == (failed,)
    assert of_classes(data, "a").sha256 != request.sha256
    smaller = assemble("d", data.frame[data.frame["row_id"] != "train-a-3"])
    assert of_classes(smaller, "a", "b").units_sha256 == request.units_sha256
    assert of_classes(smaller, "a", "b").sha256 != request.sha256


def test_a_stored_request_is_equal_and_any_change_is_noticed() -> None:
    request = of_classes(intents(), "a", "b")
    text = request.to_json()
    assert request_from_json(text, "request.json") == request
    for change in (
        text.replace("train-a-3", "train-a-33"),
        text.replace(request.units_sha256, "0" * 64),
        text.replace('"class"', '"custom"', 1),
        text.replace('"units"', '"united"'),
        text[:-30],
    ):
        assert "request.json" in refusal(request_from_json, change, "request.json")
    stored = json.loads(text)
    stored["units"] = ["a"]
    with pytest.raises(ValidationError):
        DeletionRequest.model_validate(stored)


@pytest.mark.parametrize(
    ("units", "part"),
    [
        (["nope"], "option 'nope': found not in the schema"),
        (["oos"], "the out-of-scope option"),
        (["a", "a"], "named twice"),
        ([], "no options to delete"),
    ],
)
def test_classes_that_cannot_be_deleted(units: list[str], part: str) -> None:
    data = intents("oos")
    assert part in refusal(of_classes, data, *units)


def test_a_class_with_no_training_rows_and_every_class() -> None:
    data = intents()
    assert "all 41 training rows deleted" in refusal(of_classes, data, "a", "b", "c", "oos")
    frame = data.frame[(data.frame["gold"] != "c") | (data.frame["split"] != "train")].reset_index(drop=True)
    object.__setattr__(data, "frame", frame)  # a data set built by other hands
    assert "class deletion of 'c': found no training rows" in refusal(of_classes, data, "a", "c")


def test_custom_deletion_by_predicate() -> None:
    data = intents()
    request = custom(data, where="customer_id=3")
    assert request.units == ("3",)
    assert request.row_ids == tuple(
        sorted(f"train-{label}-{i}" for label in ("a", "b", "c", "oos") for i in (3, 8))
    )
    assert (request.column, request.forgotten, request.bundle) == ("customer_id", (), "custom")
    two = custom(data, where=["customer_id=3", " customer_id = 9 "])
    assert two.units == ("3", "9")
    assert two.unit_of["train-a-copy"] == "9"
    assert two.notes == ("1 deleted rows have a copy of their text that stays in training",)


def test_custom_deletion_of_given_rows_has_the_row_as_unit() -> None:
    request = custom(intents(), row_ids=["train-b-1", "train-a-2"])
    assert request.units == request.row_ids == ("train-a-2", "train-b-1")
    assert request.unit_of == {"train-a-2": "train-a-2", "train-b-1": "train-b-1"}


def test_options_that_lose_all_rows_are_noted() -> None:
    request = custom(intents(), row_ids=[f"train-b-{i}" for i in range(10)])
    assert request.notes == ("1 options lose all their training rows",)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({}, "neither a predicate nor row ids"),
        ({"where": "customer_id=1", "row_ids": ["train-a-1"]}, "both a predicate and row ids"),
        ({"where": "customer_id"}, "needed column=value"),
        ({"where": "customer_id="}, "needed column=value"),
        ({"where": "customer=1"}, "did you mean 'customer_id'?"),
        ({"where": "gold=a"}, "use class deletion"),
        ({"where": "customer_id=77"}, "no training row among 31"),
        ({"where": ["customer_id=1", "row_id=train-a-1"]}, "predicates on columns 'customer_id', 'row_id'"),
        ({"where": []}, "predicates on columns none"),
        ({"where": "customer_id=1"}, "2 rows of the out-of-scope option"),
        ({"row_ids": []}, "no row ids"),
        ({"row_ids": ["train-a-1", "train-a-1"]}, "row ids more than once: 'train-a-1'"),
        ({"row_ids": ["train-z-1"]}, "no such row"),
        ({"row_ids": ["evaluation-a-1"]}, "a row of the evaluation split"),
        ({"row_ids": ["train-a-dropped"]}, "train copy of a text in evaluation"),
        ({"row_ids": ["train-oos-1"]}, "1 rows of the out-of-scope option"),
    ],
)
def test_custom_requests_that_cannot_be_made(settings: dict[str, object], part: str) -> None:
    data = intents("oos")
    if settings.get("where") == "customer_id=77":
        data = assemble("d", data.frame[data.frame["gold"] != "oos"])
    assert part in refusal(custom, data, **settings)


def test_deleting_every_row_is_refused() -> None:
    data = intents()
    assert "all 41 training rows" in refusal(custom, data, row_ids=data.rows("train")["row_id"])


def test_other_granularities_are_refused_with_what_is_supported() -> None:
    assert check_granularity("association") == "association"
    assert "did you mean 'association'?" in refusal(check_granularity, "asociation")
    assert "class, association, example or custom" in refusal(check_granularity, "row")


def test_tuning_rows_are_a_hash_chosen_part() -> None:
    request = of_classes(intents(), "a", "b")
    part = tuning_rows(request)
    assert len(part) == 6  # 0.3 of 21, half up
    assert set(part) == set(hash_order(request.row_ids, "tuning")[:6])
    assert len(tuning_rows(request, 0.99)) == 20
    assert len(tuning_rows(request, 0.001)) == 1
    assert "one deleted row" in refusal(tuning_rows, custom(intents(), row_ids=["train-a-1"]))


@pytest.mark.shared
def test_clinc150_out_of_scope_is_no_target(shared_data: Path) -> None:
    data = load_intents(DatasetSpec(name="clinc150", path=str(shared_data)))
    assert "the out-of-scope option" in refusal(of_classes, data, "oos")
    request = of_classes(data, *hash_order([o for o in data.schema().ids if o != "oos"], "vestige")[:8])
    assert 790 <= len(request.row_ids) <= 800


def test_the_last_bundle_may_be_short_but_not_empty() -> None:
    plan = plan_bundles("abcdefg", "s", 3, 3, short=True)
    assert [len(units) for units in plan.bundles.values()] == [3, 3, 1]
    assert plan.left == 0
    assert "6 eligible units; needed 7 for 3 bundles of 3, the last of at least 1" in refusal(
        plan_bundles, "abcdef", "s", 3, 3, short=True
    )
