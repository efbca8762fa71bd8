"""What the product says of the models of a panel, through the functions that `vestige compare` calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Evidence, Floats, Margins, Verdict, View
from vestige.metrics.accuracy import correct
from vestige.pool.contents import VIEWS, Deletion, Outputs
from vestige.verdict.evidence import Retained, Side
from vestige.verdict.quantities import Models, view_table
from vestige.verdict.rule import gather, say

__all__ = ["Seen", "evidence_of", "judged", "sides_of"]

Seen = Mapping[View, NDArray[np.intp]]
"""Rows of each view that a comparison is given, repeats allowed."""


def sides_of(
    deletion: Deletion,
    fulls: Sequence[Outputs],
    oracles: Sequence[Outputs],
    tested: Mapping[str, Sequence[Outputs]],
    *,
    draws: int,
    seen: Seen | None = None,
) -> tuple[list[Side], Retained]:
    """Tables of F and G, and of R with what every model does there. tested: label -> its training seeds."""
    every = [*fulls, *oracles, *(model for seeds in tested.values() for model in seeds)]

    def shown(values: NDArray[np.generic] | Floats, view: View) -> Floats:
        return values if seen is None else values[seen[view]]  # type: ignore[return-value]

    sides = {}
    for view in VIEWS:
        table = view_table(
            fulls=[shown(model[view], view) for model in fulls],
            oracles=[shown(model[view], view) for model in oracles],
            unlearned={
                label: [shown(model[view], view) for model in seeds] for label, seeds in tested.items()
            },
            units=np.asarray(shown(deletion.units[view], view), dtype=np.str_),
        )
        sides[view] = Side(view, table, draws)
    gold = np.asarray(shown(deletion.gold["R"], "R"))
    rest = [shown(model["R"], "R") for model in every]
    retained = Retained(
        side=sides["R"],
        right=np.array([correct(p, gold) for p in rest]),
        confidence=np.array([p.max(axis=1) for p in rest]),
    )
    return [sides["F"], sides["G"]], retained


def evidence_of(
    deletion: Deletion,
    fulls: Sequence[Outputs],
    oracles: Sequence[Outputs],
    tested: Mapping[str, Sequence[Outputs]],
    *,
    draws: int,
    margins: Margins | None = None,
    seen: Seen | None = None,
) -> dict[str, Evidence]:
    """Everything that a verdict reads, of each model under test."""
    sides, retained = sides_of(deletion, fulls, oracles, tested, draws=draws, seen=seen)
    models: Models = retained.side.table.models
    return {
        label: gather(sides, retained, models.unlearned[label], margins or Margins(), {}) for label in tested
    }


def judged(
    deletion: Deletion,
    fulls: Sequence[Outputs],
    oracles: Sequence[Outputs],
    tested: Mapping[str, Sequence[Outputs]],
    *,
    draws: int,
    seen: Seen | None = None,
) -> dict[str, tuple[Verdict, Evidence]]:
    """Word and evidence of each model, each judged as if it were the only one."""
    found = evidence_of(deletion, fulls, oracles, tested, draws=draws, seen=seen)
    return {label: (word, evidence) for label, (word, evidence, _) in say(found, ()).items()}
