"""Which option is chosen: a tie is no choice, in whatever order the options stand."""

from __future__ import annotations

import numpy as np
import pytest

from vestige.decision.choices import best_options, is_right, same_choice
from vestige.metrics.accuracy import correct
from vestige.metrics.agreement import same_decision
from vestige.study import audit_numbers

TIED = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.2, 0.4, 0.4], [0.1, 0.1, 0.8], [1 / 3, 1 / 3, 1 / 3]])
GOLD = np.array([0, 1, 0, 2, 1], dtype=np.intp)


def test_a_tie_is_wrong_for_every_gold() -> None:
    assert is_right(TIED, GOLD).tolist() == [False, False, False, True, False]
    assert best_options(TIED).sum(axis=1).tolist() == [2, 2, 2, 1, 3]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_the_order_of_options_decides_nothing(order: list[int]) -> None:
    moved, gold = TIED[:, order], np.array([order.index(column) for column in GOLD])
    np.testing.assert_array_equal(correct(moved, gold), is_right(TIED, GOLD))
    other = TIED[::-1]
    np.testing.assert_array_equal(same_decision(moved, other[:, order]), same_choice(TIED, other))


def test_a_model_agrees_with_itself_on_ties() -> None:
    assert same_choice(TIED, TIED).all()
    assert not same_choice(TIED[:1], np.array([[0.6, 0.4, 0.0]])).any()


def test_the_audit_counts_ties_alike() -> None:
    np.testing.assert_array_equal(audit_numbers.right(TIED, GOLD), is_right(TIED, GOLD))
    assert audit_numbers.best(TIED)[2] == {1, 2}
