"""Bounds that the verdict reads, where the truth is made: they hold as often as they say."""

from __future__ import annotations

from typing import Any

import numpy as np

from vestige.contracts import Margins, Undefined
from vestige.seeds import generator
from vestige.verdict.evidence import Retained, Side, retained_evidence, view_evidence, worst_rows
from vestige.verdict.quantities import view_table
from vestige.verdict.rule import GAIN_LEVEL


def two_options(first: Any) -> Any:
    """(N,) probabilities of the first of two options -> (N, 2)."""
    return np.stack([first, 1 - np.asarray(first)], axis=1)


def evidence(full: Any, oracles: Any, unlearned: Any) -> Any:
    table = view_table(
        fulls=[two_options(full)],
        oracles=[two_options(oracle) for oracle in oracles],
        unlearned={"": [two_options(unlearned)]},
        units=np.full(len(full), "", dtype=np.str_),
    )
    return view_evidence(Side("F", table, 500), table.models.unlearned[""], Margins())


def test_the_change_of_calibration_error_lies_in_its_interval() -> None:
    """An overconfident model beside a calibrated one; the change of the root mean square error is known."""
    random = generator("known answers", "calibration")
    confidence = np.sort(0.5 + 0.5 * random.beta(4, 1, 2000))
    logit = np.log(confidence / (1 - confidence))
    chance = 1 / (1 + np.exp(-0.6 * logit))
    gaps = [part.mean() for part in np.array_split(confidence - chance, 10)]
    truth = float(np.sqrt(np.mean(np.square(gaps))))
    held = []
    for _ in range(200):
        rows = random.integers(len(confidence), size=400)
        p = two_options(confidence[rows])
        table = view_table(fulls=[p], oracles=[], unlearned={"": [p]}, units=np.full(400, ""))
        right = random.random(400) < np.stack([confidence[rows], chance[rows]])
        seen = Retained(Side("R", table, 100), right=right, confidence=np.stack([confidence[rows]] * 2))
        found = retained_evidence(seen, table.models.unlearned[""], Margins()).calibration
        assert found is not None
        interval = found.change.these_models
        assert not isinstance(interval, Undefined)
        held.append(interval.low <= truth <= interval.high)
    assert np.mean(held) >= 0.92


def test_a_row_that_was_not_seen_may_have_gained_everything() -> None:
    """Every row seen starts near the oracle and stays; among rows like them one may not."""
    n = 20
    found = evidence(np.full(n, 0.6), [np.full(n, 0.5), np.full(n, 0.5)], np.full(n, 0.6))
    gain = found.gain.these_models
    assert gain.high > 0.1
    assert gain.low < -0.1


def test_rows_that_keep_most_are_sought_seed_by_seed() -> None:
    """Four retrainings keep in their worst tenth what one keeps there, nothing beyond chance.

    Their mean scatters less than single oracles do; its worst tenth lies below theirs for that alone.
    """
    retrained = generator("known answers", "worst tenth").uniform(0.0, 0.8, (12, 400))
    table = view_table(
        fulls=[two_options(np.full(400, 0.9))],
        oracles=[two_options(oracle) for oracle in retrained[:8]],
        unlearned={
            label: [two_options(p) for p in retrained[8 : 8 + n]] for label, n in (("1", 1), ("4", 4))
        },
        units=np.full(400, "", dtype=np.str_),
    )
    for places in table.models.unlearned.values():
        found = worst_rows(Side("F", table, 100), places)
        assert found is not None
        assert abs(found.memory) < 0.12


def test_a_gain_of_the_smallest_size_printed_is_confirmed_four_times_in_five() -> None:
    """On one view: sqrt(0.8) of the time. Some rows make the whole gain, the others stay as they are."""
    random = generator("known answers", "smallest gain")
    confirmed, n = 0, 160
    for _ in range(60):
        full, oracles = random.uniform(0.85, 1.0, n), random.uniform(0.0, 0.2, (3, n))
        idle = evidence(full, oracles, np.clip(full + random.normal(0, 0.01, n), 0, 1))
        share = idle.least_gain / idle.displacement.value
        retrained = random.random(n) < share
        found = evidence(full, oracles, np.where(retrained, random.uniform(0.0, 0.2, n), full))
        confirmed += found.gain_p <= GAIN_LEVEL
    assert confirmed / 60 >= np.sqrt(0.8) - 0.1
