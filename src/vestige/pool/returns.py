"""What the product reads of relearning, where the answer is known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vestige.attacks.records import SEEN, SWAP, UNSEEN, Population
from vestige.contracts import Undefined
from vestige.pool.answers import Returned
from vestige.pool.contents import CURVES, Pool
from vestige.pool.relearning import BUDGETS, CASES
from vestige.study.recovery_measure import Curves, measured, reading_of

__all__ = ["readings"]

UPDATES = (0, 1, 5, 10, 25)


def readings(pool: Pool, key: str, number: int, *, draws: int) -> Iterator[Returned]:
    """Every case beside one oracle, both budgets pooled, read as `vestige attack recover` reads them."""
    with np.load(pool.folder / CURVES / key / f"{number:02d}.npz") as stored:
        arrays = {name: stored[name].astype(np.float64) for name in stored.files}
    pairs = [(budget, 0) for budget in BUDGETS]
    populations: tuple[Population, ...] = (UNSEEN, SWAP)
    for case in CASES:
        curves: dict[Population, Curves] = {}
        for population in populations:
            rows = arrays[f"oracle|{population}|{BUDGETS[0]}"].shape[1]
            p, right = {}, {}
            for role, name in (("full", "full"), ("unlearned", case), ("oracle", "oracle")):
                for pair in pairs:
                    p[pair, role], right[pair, role] = arrays[f"{name}|{population}|{pair[0]}"]
            curves[population] = Curves(
                rows=tuple(f"{row:05d}" for row in range(rows)),
                unit_index=("000",) * rows,
                p=p,
                correct=right,
                scored={pair: np.ones(rows, dtype=bool) for pair in pairs},
            )
        found = measured(
            curves,
            UPDATES,
            pairs,
            {name: {pair: pair[0] for pair in pairs} for name in curves},
            draws=draws,
            condition="a model of the pool",
            missing={SEEN: "not asked"},
        )
        reading = reading_of(found.pooled)
        word = "undefined" if isinstance(reading, Undefined) else reading
        yield Returned(case=case, deletion=key, number=number, reading=word)
