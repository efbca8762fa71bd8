"""Who is exposed: nested budgets, label-swap pairs, disjointness; and the registry of attacks."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from vestige.attacks import ATTACKS
from vestige.attacks.exposure import chosen_labels, exposed_rows, refuse_overlap, swap_pairs
from vestige.cli.app import run
from vestige.deletion.bundles import hash_order
from vestige.errors import InputError
from vestige.training.adaptation import AdaptSettings, adaptation_batches

ROWS = {name: [f"{name}-{i:02d}" for i in range(30)] for name in ("pin", "refund", "card")}


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_budgets_are_nested_and_depend_on_the_seed_alone(seed: int) -> None:
    one, five, twenty = (exposed_rows(ROWS, k, seed) for k in (1, 5, 20))
    for name, rows in ROWS.items():
        assert one[name] == five[name][:1]
        assert five[name] == twenty[name][:5]
        assert len(set(twenty[name])) == 20
        assert set(twenty[name]) <= set(rows)
    shuffled = {name: list(reversed(rows)) for name, rows in ROWS.items()}
    assert exposed_rows(shuffled, 20, seed) == twenty
    assert exposed_rows(ROWS, 20, seed + 1) != twenty


def test_a_budget_above_the_class_is_refused() -> None:
    with pytest.raises(InputError, match="class 'card': found 30 rows to expose; needed 31") as caught:
        exposed_rows({"card": ROWS["card"]}, 31, 0)
    assert "\n" not in str(caught.value)


def test_pairs_are_distinct_retained_classes_in_hash_order() -> None:
    names = [f"class{i}" for i in range(20)]
    pairs = swap_pairs(names[:4], names)
    flat = [name for pair in pairs for name in (pair.source, pair.target)]
    assert len(set(flat)) == 8
    assert not set(flat) & set(names[:4])
    assert flat == list(hash_order(names[4:], "label-swap"))[:8]
    assert swap_pairs(names[:4], list(reversed(names))) == pairs


def test_too_few_retained_classes_for_pairs() -> None:
    with pytest.raises(InputError, match="label-swap control: found 3 retained classes") as caught:
        swap_pairs(["a", "b"], ["a", "b", "c", "d", "e"])
    assert "needed 4" in str(caught.value)


def test_an_adaptation_set_that_overlaps_the_evaluation_rows() -> None:
    refuse_overlap(["a", "b"], ["c"], "unseen")
    with pytest.raises(
        InputError, match="rows of population 'unseen': found 1 that the adaptation sees, 'b'"
    ):
        refuse_overlap(["a", "b"], ["b", "c"], "unseen")


def test_labels_by_exact_name() -> None:
    assert chosen_labels(None, ("A", "B"), "--method") == ("A", "B")
    assert chosen_labels(("B", "B"), ("A", "B"), "--method") == ("B",)
    with pytest.raises(InputError, match="did you mean 'SimNPO'"):
        chosen_labels(("SimNP",), ("SimNPO", "GradDiff"), "--method")


def test_batches_pass_over_all_rows_before_any_comes_again() -> None:
    found = adaptation_batches(20, 16, 25, np.random.default_rng(0))
    assert [len(batch) for batch in found] == [16] * 25
    flat = [row for batch in found for row in batch]
    for start in range(0, 400, 20):
        assert sorted(flat[start : start + 20]) == list(range(20))
    small = adaptation_batches(4, 16, 25, np.random.default_rng(0))
    assert all(sorted(batch) == [0, 1, 2, 3] for batch in small)
    assert len(small) == 25


@pytest.mark.parametrize("evaluations", [(0,), (1, 5), (0, 5, 5), ()])
def test_evaluations_must_rise_from_zero(evaluations: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rise from 0"):
        AdaptSettings(evaluations=evaluations)


def test_every_attack_is_listed_with_what_it_does_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "attacks", "--json"]) == 0
    listed = {item["name"] for item in json.loads(capsys.readouterr().out)}
    assert listed == set(ATTACKS.names()) >= {"recover", "fresh-head"}
    for item in ATTACKS:
        assert item.question
        assert item.shows_not
        assert item.settings().model_dump()
    with pytest.raises(InputError, match="did you mean 'recover'"):
        ATTACKS.get("recovery")


def test_listing_attacks_imports_no_torch() -> None:
    code = (
        "import sys, vestige.attacks as a, vestige.attacks.records; a.ATTACKS.names(); "
        "print('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
