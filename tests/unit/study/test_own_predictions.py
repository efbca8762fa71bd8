"""`vestige.compare`: the same verdict from paths, frames and arrays, in any order, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import tables

import vestige
from vestige.contracts import Assessment
from vestige.decision.predictions import Predictions, predictions_from_arrays, read_predictions
from vestige.errors import InputError
from vestige.study.compare import load_tables

MODELS = {
    "full": tables.table("full", 1, "full"),
    "unlearned": tables.table("unlearned", 2, "unlearned"),
    "oracle": tables.table("oracle", 3, "oracle"),
}


def verdict(draws: int = 100, **given: object) -> Assessment:
    models: dict[str, object] = MODELS | given
    return vestige.compare(**models, forget=tables.FORGOTTEN, draws=draws)  # type: ignore[arg-type]


EXPECTED = verdict()


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_no_order_of_rows_or_options_changes_a_bit(seed: int) -> None:
    generator = np.random.default_rng(seed)
    found = verdict(**{role: tables.shuffled(table, generator) for role, table in MODELS.items()})
    assert found.to_json() == EXPECTED.to_json()


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "npz"])
def test_files_in_any_order_give_the_same_bits(suffix: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    paths = {
        role: tables.write(tables.shuffled(table, generator), tmp_path / f"{role}.{suffix}")
        for role, table in MODELS.items()
    }
    found = verdict(**paths)
    bare = [source.model_copy(update={"path": ""}) for source in found.sources]
    assert found.model_copy(update={"sources": tuple(bare)}).to_json() == EXPECTED.to_json()
    assert found.sources[0].path == str(paths["full"])


def test_frames_and_arrays_give_the_same_verdict() -> None:
    frames = {role: table.to_frame() for role, table in MODELS.items()}
    assert verdict(**frames).to_json() == EXPECTED.to_json()
    rows = frames["full"][["row_id", "view", "unit", "gold"]]
    arrays = {role: table.p for role, table in MODELS.items()}
    found = verdict(**arrays, rows=rows, options=MODELS["full"].options)
    assert found.to_json() == EXPECTED.to_json()


def test_several_models_of_a_role() -> None:
    found = vestige.compare(
        full=[tables.table("full", 1), tables.table("full", 2)],
        unlearned={"npo": tables.table("unlearned", 1), "simnpo": tables.table("unlearned", 2)},
        oracle=[tables.table("oracle", seed) for seed in (1, 2, 3)],
        forget=tables.FORGOTTEN,
        draws=50,
        name="two methods",
        condition="training seed 1",
    )
    assert found.family == ("npo", "simnpo")
    assert found.name == "two methods"
    assert found.intervention_gate == "passed"
    assert found.condition == "training seed 1"
    assert found.noise_pairs["noise_oracle"] == 3


def test_without_an_oracle_and_without_forgotten_options() -> None:
    assert not verdict(oracle=None).has_oracle
    custom = vestige.compare(**MODELS, draws=20, unit="customer_id")  # type: ignore[arg-type]
    assert custom.forgotten == ()
    assert custom.unit_kind == "customer_id"
    assert EXPECTED.unit_kind == "class"


def test_units_that_are_not_the_gold_options_are_called_units() -> None:
    def with_units(table: Predictions) -> Predictions:
        return predictions_from_arrays(
            table.p,
            row_ids=list(table.row_ids),
            view=list(table.view),
            unit=[f"customer {place % 3}" for place in range(len(table))],
            gold=list(table.gold),
            options=table.options,
            label=table.label,
        )

    found = verdict(**{role: with_units(table) for role, table in MODELS.items()})
    assert found.unit_kind == "unit"
    assert found.views[0].units == 3


def test_labels_tell_models_apart(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        tables.write(tables.shuffled(MODELS["full"], np.random.default_rng(0)), tmp_path / folder / "p.csv")
    one, two = tmp_path / "one" / "p.csv", tmp_path / "two" / "p.csv"
    groups = load_tables(full=one, unlearned=[two], oracle=None)
    assert [groups.full[0].label, *groups.unlearned] == ["one/p", "two/p"]
    groups = load_tables(full=one, unlearned=[one, one], oracle=None)
    assert [groups.full[0].label, *groups.unlearned] == ["full p", "unlearned p", "unlearned p (2)"]
    groups = load_tables(full=one, unlearned=[one], oracle=None)
    assert [groups.full[0].label, *groups.unlearned] == ["full p", "unlearned p"]


def one_hot(table: Predictions, k: int) -> Predictions:
    """The table cut to its k best options, renormalised."""
    cut = np.where(table.p >= np.sort(table.p, axis=1)[:, -k][:, None], table.p, 0.0)
    return predictions_from_arrays(
        cut / cut.sum(axis=1, keepdims=True),
        row_ids=list(table.row_ids),
        view=list(table.view),
        unit=list(table.unit),
        gold=list(table.gold),
        options=table.options,
        label=table.label,
    )


@pytest.mark.parametrize(("role", "k"), [("full", 1), ("full", 3), ("oracle", 1)])
def test_top_k_outputs_are_refused(role: str, k: int) -> None:
    with pytest.raises(InputError, match="top-1 labels or top-k lists are not enough") as caught:
        verdict(**{role: one_hot(MODELS[role], k)})
    assert f"exactly {k} of 7 options above 0 in every row" in str(caught.value)


def test_a_collapsed_unlearned_model_is_compared_with_a_caveat() -> None:
    found = verdict(unlearned=one_hot(MODELS["unlearned"], 1))
    assert any("exactly 1 of 7 options above 0" in caveat for caveat in found.caveats)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"full": []}, "no full model"),
        ({"unlearned": {}}, "no unlearned model"),
        ({"full": 3}, "an object of type int"),
        ({"full": MODELS["full"].p}, "an array alone"),
        ({"full": MODELS["full"].p, "rows": {"row_id": []}, "options": ["a"]}, "no 'view', 'unit', 'gold'"),
    ],
)
def test_what_is_no_table_is_refused(given: dict[str, object], part: str) -> None:
    with pytest.raises(InputError) as caught:
        verdict(**given)
    assert part in str(caught.value)


def test_rescaled_rows_are_said() -> None:
    full = MODELS["full"]
    off = predictions_from_arrays(
        full.p * 0.9995,
        row_ids=list(full.row_ids),
        view=list(full.view),
        unit=list(full.unit),
        gold=list(full.gold),
        options=full.options,
        label="full",
    )
    assert any("off by up to 0.0005, in 'full'" in caveat for caveat in verdict(full=off).caveats)


def seeded(kind: str, seeds: tuple[int, ...]) -> dict[str, Any]:
    """The columns of several training seeds in one table, shuffled together."""
    parts = [tables.shuffled(tables.table(kind, seed), np.random.default_rng(seed)) for seed in seeds]
    names = list(parts[0])
    joined = {name: np.concatenate([part[name] for part in parts]) for name in names}
    joined["seed"] = np.repeat([f"0{seed}" for seed in seeds], len(parts[0]["row_id"]))
    order = np.random.default_rng(9).permutation(len(joined["seed"]))
    return {name: values[order] for name, values in joined.items()}


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "npz", ""])
def test_a_column_of_seeds_is_a_model_of_several_training_seeds(suffix: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"unlearned": seeded("unlearned", (2, 3, 4)), "oracle": seeded("oracle", (3, 5))}
    if suffix:
        given = {
            role: tables.write(columns, tmp_path / f"{role}.{suffix}") for role, columns in given.items()
        }
    found = verdict(**given)
    apart = verdict(
        unlearned={"unlearned": [tables.table("unlearned", seed) for seed in (4, 2, 3)]},
        oracle=[tables.table("oracle", seed) for seed in (5, 3)],
    )
    model = found.model_named("unlearned")
    assert model.seeds == 3
    assert model.evidence == apart.model_named("unlearned").evidence
    assert model.sentence == apart.model_named("unlearned").sentence
    assert [s.label for s in found.sources if s.role == "oracle"] in (
        ["oracle (seed 03)", "oracle (seed 05)"],
        ["oracle (seed 05)", "oracle (seed 03)"],
    )


def test_a_column_of_seeds_that_is_none_is_refused(tmp_path: Path) -> None:
    columns = seeded("unlearned", (2, 3))
    with pytest.raises(InputError, match="2 training seeds in column 'seed'; needed one model"):
        read_predictions(tables.write(columns, tmp_path / "two.csv"))
    alone = {name: values[columns["seed"] == "02"] for name, values in columns.items()}
    assert len(read_predictions(tables.write(alone, tmp_path / "one.csv"))) == len(MODELS["full"])
    for change, message in (
        ({"seed": np.where(columns["seed"] == "02", "", "03")}, r"no seed on 58 row\(s\)"),
        ({"row_id": np.array([f"r{place}" for place in range(116)])}, "no row_id that recurs"),
    ):
        with pytest.raises(InputError, match=message):
            verdict(unlearned={**columns, **change})
    short = {name: values[:-1] for name, values in columns.items()}
    with pytest.raises(InputError, match=r"unlearned \(seed 0[23]\): found 1 row"):
        verdict(unlearned=short)


def test_margins_are_stated_before_looking() -> None:
    model = verdict(margins={"memory": 0.5, "accuracy": 0.1}).model_named("unlearned")
    assert model.evidence is not None
    assert (model.evidence.margins.memory, model.evidence.margins.accuracy) == (0.5, 0.1)
    assert model.evidence.margins.retained == 0.02
    with pytest.raises(InputError, match=r"margins: memory: found '1\.5'; needed a number below 1"):
        verdict(margins={"memory": 1.5})


def test_the_record_as_a_frame_and_in_a_notebook() -> None:
    frame = EXPECTED.to_frame()
    row = frame[(frame.model == "unlearned") & (frame.metric == "gain") & (frame["view"] == "F")].iloc[0]
    gain = EXPECTED.model_named("unlearned").metrics["gain.F"]
    assert row["value"] == gain.value
    assert row["row_low"] == gain.row.low  # type: ignore[union-attr]
    model = EXPECTED.model_named("unlearned")
    assert model.evidence is not None
    memory = frame[(frame.metric == "evidence.memory") & (frame["view"] == "F")].iloc[0]
    assert memory["value"] == model.evidence.view("F").memory.value
    assert np.isnan(memory["trainings_low"])
    assert set(frame[frame.model == "unlearned"].verdict) == {model.headline}
    assert len(frame) == sum(len(m.metrics) for m in EXPECTED.models) + len([*model.evidence.quantities()])
    label = "<b>npo</b>"
    shown = verdict(unlearned=MODELS["unlearned"].named(label))._repr_html_()
    assert "&lt;b&gt;npo&lt;/b&gt;" in shown
    assert label not in shown
    assert EXPECTED.model_named("unlearned").sentence in EXPECTED._repr_html_()
    assert "no retrained model was given" in verdict(oracle=None)._repr_html_()


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"draws": 0}, "draws: found '0'"),
        ({"draws": 1.5}, "draws: found '1.5'"),
        ({"draws": 10**12}, "from 1 to 1,000,000"),
        ({"forget": 3}, "forget: found '3'"),
        ({"name": 3}, "name: found '3'"),
        ({"condition": None}, "condition: found 'None'"),
        ({"unit": 3}, "unit: found '3'"),
        ({"full": np.full((2, 2), "x"), "rows": {}, "options": ["a", "b"]}, "rows: found no 'row_id'"),
    ],
)
def test_settings_of_another_type_are_refused(given: dict[str, object], part: str) -> None:
    call: dict[str, Any] = {**MODELS, "forget": tables.FORGOTTEN, "draws": 10, **given}
    with pytest.raises(InputError) as caught:
        vestige.compare(**call)
    assert part in str(caught.value)


def test_forgotten_options_are_any_collection_or_none() -> None:
    call: dict[str, Any] = {**MODELS, "draws": 10}
    for forget in (np.array(tables.FORGOTTEN), tuple(tables.FORGOTTEN)):
        assert vestige.compare(**call, forget=forget).forgotten == EXPECTED.forgotten
    assert vestige.compare(**call, forget=None).forgotten == ()


def test_a_single_row_has_no_p_value() -> None:
    rows = {
        "row_id": ["f", "g", "r"],
        "view": ["F", "G", "R"],
        "unit": ["a", "a", ""],
        "gold": ["a", "a", "b"],
    }
    full, oracle = (
        np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]]),
        np.array([[0.3, 0.7], [0.3, 0.7], [0.2, 0.8]]),
    )
    found = vestige.compare(
        full=full, unlearned=oracle, oracle=oracle, forget="a", rows=rows, options=["a", "b"]
    )
    model = found.model_named("unlearned")
    reason = {"undefined": "a test needs at least two rows"}
    assert model.model_dump()["p_value"] == {"F": reason, "G": reason, "both": reason}
    assert model.decision == "positive, unconfirmed"
