"""The views F, G and R."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.data import DatasetSpec, IntentData, assemble, load_intents
from vestige.deletion.requests import class_request, custom_request
from vestige.deletion.views import build_views, nearest_training_rows
from vestige.errors import InputError

SPLITS = ("train", "development", "evaluation")


def intents(out_of_scope: str | None = None) -> IntentData:
    rows = [
        (f"{split}-{label}-{i}", f"{split} {label} {i}", label, split, str(i))
        for split in SPLITS
        for label in ("a", "b", "c", "oos")
        for i in range(6)
    ]
    frame = pd.DataFrame(rows, columns=["row_id", "text", "gold", "split", "customer_id"]).astype(str)
    return assemble("d", frame, out_of_scope=out_of_scope)


def embed(texts: Sequence[str]) -> np.ndarray:
    """A row of another split points where the training row of the same label and number does."""
    columns = {name: place for place, name in enumerate(f"{x} {i}" for x in "abcz" for i in range(6))}
    vectors = np.full((len(texts), len(columns)), 0.01)
    for row, text in enumerate(texts):
        label, number = text.split()[1:]
        vectors[row, columns[f"{'z' if label == 'oos' else label} {number}"]] = 3.0
    return vectors


def parts(frame: pd.DataFrame) -> dict[str, dict[str, str]]:
    return {
        view: dict(zip(rows["row_id"], rows["unit"], strict=True)) for view, rows in frame.groupby("view")
    }


def refusal(call, *arguments, **given_settings) -> str:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as caught:
        call(*arguments, **given_settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("split", ["evaluation", "development"])
def test_class_views(split: str) -> None:
    data = intents("oos")
    request = class_request(data, ["b", "a"], bundle="01", purpose="pilot", seed=17)
    frame = build_views(data, request, split=split)  # type: ignore[arg-type]
    assert list(frame.columns) == ["row_id", "view", "unit"]
    assert frame.equals(frame.sort_values(["view", "row_id"]).reset_index(drop=True))
    found = parts(frame)
    assert found["F"] == {f"train-{x}-{i}": x for x in "ab" for i in range(6)}
    assert found["G"] == {f"{split}-{x}-{i}": x for x in "ab" for i in range(6)}
    assert found["R"] == {f"{split}-{x}-{i}": x for x in ("c", "oos") for i in range(6)}


def test_custom_views_by_nearest_training_row() -> None:
    data = intents("oos")
    request = custom_request(data, row_ids=["train-a-1", "train-b-4"], purpose="pilot", seed=17)
    found = parts(build_views(data, request, embed=embed))
    assert found["F"] == {"train-a-1": "train-a-1", "train-b-4": "train-b-4"}
    assert found["G"] == {"evaluation-a-1": "train-a-1", "evaluation-b-4": "train-b-4"}
    assert len(found["R"]) == 22
    development = parts(build_views(data, request, split="development", embed=embed))
    assert set(development["G"]) == {"development-a-1", "development-b-4"}


def test_units_of_a_predicate_reach_g() -> None:
    data = intents()
    request = custom_request(data, where=["customer_id=1", "customer_id=2"], purpose="pilot", seed=17)
    found = parts(build_views(data, request, embed=embed))
    assert found["G"] == {f"evaluation-{x}-{i}": str(i) for x in ("a", "b", "c", "oos") for i in (1, 2)}


def test_out_of_scope_rows_stay_in_r_even_near_a_deleted_row() -> None:
    data = intents("oos")
    request = custom_request(data, row_ids=["train-a-1"], purpose="pilot", seed=17)

    def near_everything(texts: Sequence[str]) -> np.ndarray:
        return np.ones((len(texts), 2))  # all cosines tie: the smallest row id is nearest, train-a-0

    assert "view G" in refusal(build_views, data, request, embed=near_everything)
    first = custom_request(data, row_ids=["train-a-0"], purpose="pilot", seed=17)
    found = parts(build_views(data, first, embed=near_everything))
    assert len(found["G"]) == 18
    assert set(found["R"]) == {f"evaluation-oos-{i}" for i in range(6)}


def test_nearest_is_by_cosine_and_agrees_with_the_definition() -> None:
    random = np.random.default_rng(0)
    data = intents()
    table = {text: random.normal(size=5) * random.uniform(0.1, 9) for text in data.frame["text"]}
    found = nearest_training_rows(
        data, data.rows("evaluation"), lambda texts: np.stack([table[text] for text in texts])
    )
    train = data.rows("train")
    for text, near in zip(data.rows("evaluation")["text"], found, strict=True):
        cosines = {
            row_id: table[text] @ table[other] / np.linalg.norm(table[text]) / np.linalg.norm(table[other])
            for row_id, other in zip(train["row_id"], train["text"], strict=True)
        }
        assert near == max(cosines, key=lambda row_id: cosines[row_id])


@pytest.mark.parametrize(
    "vectors", [np.zeros((48, 2)), np.full((48, 2), np.nan), np.ones((3, 2)), np.ones(48)]
)
def test_vectors_without_a_direction_are_refused(vectors: np.ndarray) -> None:
    data = intents()
    with pytest.raises(ValueError, match="embed must give"):
        nearest_training_rows(data, data.rows("evaluation"), lambda texts: vectors)


def test_supplied_rows_and_their_units() -> None:
    plain = intents()
    single = custom_request(plain, where="customer_id=1", purpose="pilot", seed=17)
    assert parts(build_views(plain, single, supplied_g=["evaluation-a-5"]))["G"] == {"evaluation-a-5": "1"}
    several = custom_request(plain, where=["customer_id=1", "customer_id=2"], purpose="pilot", seed=17)
    found = parts(build_views(plain, several, supplied_g=["evaluation-a-2", "evaluation-a-5"]))
    assert found["G"] == {"evaluation-a-2": "2", "evaluation-a-5": "evaluation-a-5"}
    named = build_views(plain, several, supplied_g={"evaluation-a-5": "1", "evaluation-b-0": "2"})
    assert parts(named)["G"] == {"evaluation-a-5": "1", "evaluation-b-0": "2"}
    rows = custom_request(plain, row_ids=["train-a-1", "train-a-2"], purpose="pilot", seed=17)
    assert parts(build_views(plain, rows, supplied_g=["evaluation-a-1"]))["G"] == {
        "evaluation-a-1": "evaluation-a-1"
    }


@pytest.mark.parametrize(
    ("settings_", "part"),
    [
        ({}, "neither a sentence encoder nor rows for G"),
        ({"embed": embed, "supplied_g": ["evaluation-a-1"]}, "both an encoder and rows for G"),
        ({"supplied_g": []}, "view G of bundle custom: found no evaluation rows"),
        ({"supplied_g": ["train-a-1"]}, "no rows of the evaluation split"),
        ({"supplied_g": ["evaluation-a-1", "evaluation-a-1"]}, "more than once"),
        ({"supplied_g": {"evaluation-a-1": "train-a-2"}}, "no unit of the request"),
        ({"supplied_g": ["evaluation-oos-1"]}, "out-of-scope rows belong to R"),
        ({"embed": embed, "split": "train"}, "split 'train'"),
    ],
)
def test_custom_views_that_cannot_be_made(settings_: dict[str, object], part: str) -> None:
    data = intents("oos")
    request = custom_request(data, row_ids=["train-a-1"], purpose="pilot", seed=17)
    assert part in refusal(build_views, data, request, **settings_)


def test_class_views_that_cannot_be_made() -> None:
    data = intents()
    request = class_request(data, ["a"], bundle="01", purpose="pilot", seed=17)
    assert "supplied G rows" in refusal(build_views, data, request, supplied_g=["evaluation-a-1"])
    other = assemble("d", data.frame[data.frame["row_id"] != "train-b-1"])
    assert "a request made on other data" in refusal(build_views, other, request)
    frame = data.frame
    no_g = assemble("d", frame[(frame["gold"] != "a") | (frame["split"] != "evaluation")])
    request = class_request(no_g, ["a"], bundle="01", purpose="pilot", seed=17)
    assert "view G of bundle 01: found no evaluation rows" in refusal(build_views, no_g, request)
    no_r = assemble("d", frame[(frame["gold"] == "a") | (frame["split"] != "evaluation")])
    request = class_request(no_r, ["a"], bundle="01", purpose="pilot", seed=17)
    assert "view R of bundle 01" in refusal(build_views, no_r, request)


@settings(max_examples=30, deadline=None)
@given(st.sets(st.sampled_from([f"train-{x}-{i}" for x in "abc" for i in range(6)]), min_size=1))
def test_views_cover_every_row_once(row_ids: set[str]) -> None:
    data = intents("oos")
    request = custom_request(data, row_ids=row_ids, purpose="pilot", seed=17)
    frame = build_views(data, request, embed=embed)
    assert sorted(frame["row_id"]) == sorted([*row_ids, *data.rows("evaluation")["row_id"]])


@pytest.mark.shared
def test_views_of_four_banking77_intents(shared_data: Path) -> None:
    data = load_intents(DatasetSpec(name="banking77", path=str(shared_data)))
    units = ["cancel_transfer", "reverted_card_payment?", "lost_or_stolen_phone", "change_pin"]
    request = class_request(data, units, bundle="01", purpose="pilot", salt="vestige", seed=17)
    counts = build_views(data, request)["view"].value_counts().to_dict()
    assert counts == {"F": 430, "G": 160, "R": 2920}
