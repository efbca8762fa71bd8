"""Where the probability that a model took from a forgotten option went."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from vestige.contracts import Destination
from vestige.metrics.arrays import gold_columns, paired

__all__ = ["destinations"]


def destinations(
    p: ArrayLike,
    full: ArrayLike,
    gold: ArrayLike,
    options: Sequence[str],
    forgotten: Sequence[str],
    *,
    top: int = 5,
) -> tuple[Destination, ...]:
    """For each forgotten option, over the rows whose gold it is, where its lost probability went.

    p, full (N, C): the model and the full model on the F and G rows together; gold (N,) columns; options (C,)
    names of the columns. `moved` is the mean decrease of the option's own probability (negative when it
    grew); `to` holds the `top` options that gained most on average, gains above 0 only; `elsewhere` is moved
    minus what `to` received, so it is negative when other options lost probability too. Options without rows
    are left out.
    """
    after, before = paired(p, full, "destinations")
    columns = gold_columns(gold, after.shape)
    found = []
    for option in forgotten:
        own = list(options).index(option)
        rows = columns == own
        if not rows.any():
            continue
        change = (after[rows] - before[rows]).mean(axis=0)
        moved = -float(change[own])
        change[own] = 0.0
        order = np.lexsort((np.asarray(options, dtype=np.str_), -change))[:top]
        to = tuple((options[j], float(change[j])) for j in order if change[j] > 0)
        found.append(
            Destination(
                forgotten=option,
                rows=int(rows.sum()),
                moved=moved,
                to=to,
                elsewhere=moved - sum(gain for _, gain in to),
            )
        )
    return tuple(found)
