"""An .npz with all probabilities in one matrix is the same table as one with an array an option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import tables

from vestige.cli.app import run
from vestige.decision.predictions import Predictions, read_predictions
from vestige.errors import InputError


def arrays(table: Predictions) -> dict[str, Any]:
    """A table as its matrix and names, rows and options in another order."""
    rows = np.random.default_rng(1).permutation(len(table))
    columns = np.random.default_rng(2).permutation(len(table.options))
    fixed = {
        name: np.array(list(getattr(table, place)[rows]), dtype=str)
        for name, place in (("row_id", "row_ids"), ("view", "view"), ("unit", "unit"), ("gold", "gold"))
    }
    options = np.array([table.options[column] for column in columns], dtype=str)
    return {**fixed, "p": table.p[rows][:, columns], "options": options}


def saved(path: Path, **changes: Any) -> Path:
    """An archive of the full model with some arrays replaced, or left out by None."""
    made = {**arrays(tables.table("full")), **changes}
    np.savez(path, **{name: value for name, value in made.items() if value is not None})
    return path


def test_a_matrix_is_the_same_table_as_columns(tmp_path: Path) -> None:
    expected = tables.table("full")
    found = read_predictions(saved(tmp_path / "full.npz"))
    assert found.options == expected.options
    assert found.row_ids.tolist() == expected.row_ids.tolist()
    assert found.p.tobytes() == expected.p.tobytes()
    assert found.sha256 == expected.sha256


def test_columns_are_read_where_there_are_any(tmp_path: Path) -> None:
    columns = tables.shuffled(tables.table("full"), np.random.default_rng(3))
    path = tmp_path / "full.npz"
    np.savez(path, p=np.zeros(3), **{name: np.array(list(values)) for name, values in columns.items()})
    assert read_predictions(path).sha256 == tables.table("full").sha256


def test_half_precision_and_whole_numbers_as_options_are_read(tmp_path: Path) -> None:
    p = np.array([[0.25, 0.75], [0.5, 0.5]], dtype=np.float16)
    names = {"row_id": ["a", "b"], "view": ["F", "R"], "unit": ["0", ""], "gold": ["0", "1"]}
    np.savez(tmp_path / "m.npz", p=p, options=np.array([0, 1]), **{k: np.array(v) for k, v in names.items()})
    found = read_predictions(tmp_path / "m.npz")
    assert found.options == ("0", "1")
    assert found.p.tolist() == [[0.25, 0.75], [0.5, 0.5]]


FULL = arrays(tables.table("full"))
N, C = FULL["p"].shape


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": None}, "no array 'options'; needed arrays row_id, view, unit, gold, p and options"),
        ({"gold": None, "unit": None}, "no array 'unit', 'gold'; needed arrays row_id"),
        (
            {"p": FULL["p"].T},
            f"({C}, {N}) with {N} row_id values and {C} options; needed shape ({N}, {C})",
        ),
        ({"p": FULL["p"].T}, "transpose it"),
        (
            {"p": FULL["p"][:, 1:]},
            f"'p' of shape ({N}, {C - 1}) with {N} row_id values and {C} options",
        ),
        ({"p": FULL["p"].max(axis=1)}, f"array 'p' of shape ({N},)"),
        ({"options": FULL["options"][:, None]}, f"array 'options' of shape ({C}, 1)"),
        ({"view": FULL["view"][1:]}, f"array 'view' of shape ({N - 1},)"),
        ({"p": FULL["p"].astype(str)}, "arrays that are no numbers"),
        ({"options": np.array([*FULL["options"][:-1], FULL["options"][0]])}, "option given more than once"),
        ({"options": np.array(list(FULL["options"]), dtype=object)}, "arrays of Python objects"),
        ({"p": FULL["p"] * 2}, "do not sum to 1"),
    ],
    ids=range(12),
)
def test_wrong_matrices_are_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = saved(tmp_path / "full.npz", **changes)
    with pytest.raises(InputError) as raised:
        read_predictions(path)
    assert str(raised.value).startswith(str(path))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_command_compares_matrices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = []
    for kind in ("full", "unlearned", "oracle"):
        np.savez(tmp_path / f"{kind}.npz", **arrays(tables.table(kind)))
        options += [f"--{kind}", str(tmp_path / f"{kind}.npz")]
    options += ["--forget", tables.FORGOTTEN[0], "--forget", tables.FORGOTTEN[1], "--draws", "50"]
    assert run(["compare", *options]) == 0
    assert "(published rule: accepted)" in capsys.readouterr().out
    np.savez(tmp_path / "full.npz", **{**FULL, "p": FULL["p"].T})
    assert run(["compare", *options]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {tmp_path / 'full.npz'}: found array 'p' of shape ({C}, {N})")
    assert said.count("\n") == 1
