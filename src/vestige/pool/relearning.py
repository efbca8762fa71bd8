"""Models whose answer to relearning is known, each trained again on a few deleted rows beside an oracle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.attacks.exposure import exposed_rows, swap_pairs
from vestige.attacks.records import SWAP, UNSEEN
from vestige.contracts import Floats
from vestige.pool.contents import Rows, deletion_of
from vestige.seeds import generator

__all__ = ["BUDGETS", "CASES", "relearned"]

CASES: Mapping[str, str] = {
    "oracle": "the oracle's own weights under another name",
    "oracle and noise": "the oracle with a little noise on its weights",
    "other retraining": "an oracle of another training seed",
    "broken": "the full model with its weights drowned in noise",
    "full": "the full model",
    "suppressed": "the full model with the deleted options' logits lowered",
}
BUDGETS = (4, 16)
"""Deleted rows of each option that are trained again."""
_SUPPRESSED = 5.0
"""Taken off the logits of deleted options: enough to bring them below the oracle's level."""
_NOISE, _BROKEN = 0.02, 3.0


def relearned(folder: Path, rows: Rows, key: str, number: int) -> dict[str, Any]:
    """Curves of every case beside oracle `number`. Needs torch.

    `case|population|budget` -> (2, N, T): gold probability, and whether the model was right.
    """
    from vestige.pool.build import read_weights
    from vestige.pool.towers import Weights, adapted, noised

    deletion = deletion_of(key, rows)
    oracles = len(list((folder / "models" / key).glob("oracle-*.npz")))
    fulls = len(list((folder / "models" / "all").glob("full-*.npz")))
    random = generator("pool", "relearned", key, number)
    oracle = read_weights(folder, key, "oracle", number)
    full = read_weights(folder, "all", "full", number % fulls)
    offset = np.zeros(len(rows.options))
    offset[list(deletion.forgotten)] = -_SUPPRESSED
    starts: dict[str, tuple[Weights, Floats | None]] = {
        "oracle": (oracle, None),
        "oracle and noise": (noised(oracle, _NOISE, random), None),
        "other retraining": (read_weights(folder, key, "oracle", (number + 1) % oracles), None),
        "broken": (noised(full, _BROKEN, random), None),
        "full": (full, None),
        "suppressed": (full, offset),
    }
    gold, vectors = rows.gold, rows.vectors
    retained = [column for column in range(len(rows.options)) if column not in deletion.forgotten]
    pairs = swap_pairs([f"{c:02d}" for c in deletion.forgotten], [f"{c:02d}" for c in retained])
    trained_as = {
        UNSEEN: {column: column for column in deletion.forgotten},
        SWAP: {int(pair.source): int(pair.target) for pair in pairs},
    }
    found: dict[str, NDArray[np.float32]] = {}
    for population, labels in trained_as.items():
        scored = np.isin(gold["evaluation"], list(labels))
        asked = vectors["evaluation"][scored]
        right = np.array([labels[int(column)] for column in gold["evaluation"][scored]])
        for budget in BUDGETS:
            of_option = {
                str(column): [f"{row:05d}" for row in np.flatnonzero(gold["train"] == column)]
                for column in labels
            }
            exposed = exposed_rows(of_option, budget, number)
            taught = [(int(row), labels[int(column)]) for column, ids in exposed.items() for row in ids]
            places, targets = (np.array(side) for side in zip(*taught, strict=True))
            for case, (start, added) in starts.items():
                curve: list[Floats] = []

                def evaluate(answers, curve=curve, asked=asked, right=right) -> None:  # type: ignore[no-untyped-def]
                    p = answers(asked)
                    curve.append(np.stack([p[np.arange(len(p)), right], p.argmax(axis=1) == right]))

                adapted(
                    start,
                    vectors["train"][places],
                    targets,
                    rows.names,
                    offset=added,
                    rng=generator("pool", "adaptation", key, number, population, budget),
                    evaluate=evaluate,
                )
                found[f"{case}|{population}|{budget}"] = np.stack(curve, axis=-1).astype(np.float32)
    return found
