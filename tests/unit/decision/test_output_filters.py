"""A filter on outputs is no unlearned model: found from the tables alone, refused unless asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests import tables

import vestige
from vestige.cli import run
from vestige.contracts import Floats
from vestige.decision.output_filters import output_filter
from vestige.decision.predictions import Predictions, predictions_from_arrays
from vestige.errors import InputError


def table(p: Floats, label: str) -> Predictions:
    return predictions_from_arrays(
        p / p.sum(axis=1, keepdims=True),
        row_ids=(names := tables.rows())["row_id"],
        view=names["view"],
        unit=names["unit"],
        gold=names["gold"],
        options=tables.OPTIONS,
        label=label,
    )


def multiplied(factor: float, options: tuple[str, ...] = tables.FORGOTTEN) -> Floats:
    p = tables.probabilities("full", 1).copy()
    p[:, [tables.OPTIONS.index(name) for name in options]] *= factor
    return np.asarray(p / p.sum(axis=1, keepdims=True))


FULL = table(tables.probabilities("full", 1), "full")


@pytest.mark.parametrize("factor", [1 / 50, 0.5, 0.0, 3.0])
@pytest.mark.parametrize("options", [tables.FORGOTTEN, tables.FORGOTTEN[:1], ("plain", *tables.FORGOTTEN)])
def test_multiplied_columns_are_found(factor: float, options: tuple[str, ...]) -> None:
    found = output_filter(FULL, table(multiplied(factor, options), "filter"))
    assert found is not None
    assert set(found.factors) == set(options)
    assert list(found.factors.values()) == pytest.approx([factor] * len(options))


def test_they_are_found_in_a_file_of_four_decimals_and_on_deleted_rows_alone() -> None:
    found = output_filter(FULL, table(np.round(multiplied(1 / 50), 4), "rounded"))
    assert found is not None
    assert list(found.factors.values()) == pytest.approx([0.02, 0.02], rel=0.05)
    kept = np.where((np.array(tables.rows()["view"]) == "R")[:, None], FULL.p, 0)
    partly = multiplied(1 / 50)
    order = [list(FULL.row_ids).index(row) for row in tables.rows()["row_id"]]
    columns = [FULL.options.index(option) for option in tables.OPTIONS]
    retained = np.array(tables.rows()["view"]) == "R"
    partly[retained] = FULL.p[np.ix_(order, columns)][retained]
    assert kept.shape == partly.shape
    assert output_filter(FULL, table(partly, "partly")) is not None


@pytest.mark.parametrize(
    "p",
    [
        tables.probabilities("full", 1),
        tables.probabilities("unlearned", 2),
        tables.probabilities("oracle", 3),
        0.3 * tables.probabilities("full", 1) + 0.7 * tables.probabilities("oracle", 3),
        tables.probabilities("full", 1) ** 0.5,
        np.full((58, 7), 1 / 7),
    ],
    ids=["the full model itself", "unlearned", "retrained", "a mixture", "a temperature", "uniform"],
)
def test_other_models_are_none(p: Floats) -> None:
    assert output_filter(FULL, table(p, "other")) is None


def test_rows_that_are_all_alike_tell_nothing() -> None:
    same = np.tile(FULL.p[0], (58, 1))
    other = same.copy()
    other[:, 0] /= 50
    assert output_filter(table(same, "full"), table(other, "other")) is None


def test_a_comparison_refuses_a_filter_and_says_so_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filtered = table(multiplied(1 / 50), "filter")
    models = {"full": FULL, "unlearned": filtered, "oracle": tables.table("oracle", 3)}
    with pytest.raises(InputError, match=r"2 option\(s\) .* multiplied by 0.02 on 28 rows, and nothing"):
        vestige.compare(**models, forget=tables.FORGOTTEN, draws=50)
    made = vestige.compare(**models, forget=tables.FORGOTTEN, draws=50, filtered=True)
    assert any("a filter on outputs. No model was changed" in line for line in made.caveats)
    with pytest.raises(InputError, match="filter: found the probabilities of 'full'"):
        vestige.compare(full=FULL, unlearned=tables.table("unlearned", 2), oracle=filtered, draws=50)
    given = ["compare", "--draws", "50"]
    for name, model in models.items():
        path = tables.write(model.to_frame().to_dict("list"), tmp_path / f"{name}.csv")
        given += [f"--{name}", str(path)]
    assert run(given) == 2
    assert "without a filter on its outputs; to judge the filter: --filtered" in capsys.readouterr().err
    assert run([*given, "--filtered"]) == 0
