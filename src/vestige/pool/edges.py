"""Models that lie exactly at a margin of the verdict, and at the smallest gain that it says it could show."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats, Margins, Undefined, View
from vestige.metrics.oracle import js2
from vestige.pool.answers import AtEdge, name_of
from vestige.pool.contents import VIEWS, Outputs
from vestige.pool.coverage import drawn
from vestige.pool.families import DELETED_VIEWS, harmed
from vestige.pool.judging import judged
from vestige.pool.panels import Panel, mean_of_models, mix, replaced
from vestige.verdict.evidence import SMALLEST_MARGIN
from vestige.verdict.rule import GAIN_LEVEL, both_views_p

__all__ = ["EDGES", "NO_GAIN", "SIZES", "at_edges", "power_of_least_gain"]

NO_GAIN = "gain 0 on G, retrained on F"
SIZES = (40, 160, 400)
"""Rows that are seen of each view, drawn with replacement: the view's rows stand for all rows like them."""
EDGES = {
    "memory 10 % on F and on G": "equivalent",
    "excess at its margin on F and on G": "equivalent",
    "excess .02 on R": "equivalent",
    "accuracy on R 2 points down": "damaged",
    NO_GAIN: "closer",
}
"""Where a model lies -> the word that may be said of it at most at the rate of the verdict's own errors."""


Made = Callable[[float], Floats]


def at_edges(panel: Panel, size: int, *, draws: int) -> Iterator[AtEdge]:
    """Every edge once, in this panel, with so many rows of every view."""
    models = {name: model for name, model in _models(panel).items() if model is not None}
    seen = drawn({view: panel.deletion.rows(view) for view in VIEWS}, size, panel.random("edges", size))
    found = judged(
        panel.deletion,
        panel.fulls,
        panel.oracles,
        {name: [model] for name, model in models.items()},
        draws=draws,
        seen=seen,
    )
    for name, (word, _) in found.items():
        yield AtEdge(
            edge=name,
            size=size,
            deletion=panel.deletion.key,
            cluster=name_of(panel.held),
            said=word == EDGES[name],
        )


def _models(panel: Panel) -> dict[str, Outputs | None]:
    margins, retrained = Margins(), panel.retrained
    return {
        "memory 10 % on F and on G": _at_memory(panel, margins.memory),
        "excess at its margin on F and on G": _at_excess(panel, DELETED_VIEWS, None),
        "excess .02 on R": _at_excess(panel, ("R",), margins.retained),
        "accuracy on R 2 points down": harmed(retrained, panel, 100 * margins.accuracy),
        NO_GAIN: _without_gain(panel, "G"),
    }


def _oracles(panel: Panel, view: View) -> Floats:
    """All oracles of the pool but the panel's retrained model, (m, N, C)."""
    return np.stack([model[view] for place, model in enumerate(panel.all_oracles) if place != panel.held])


def _at_memory(panel: Panel, share: float) -> Outputs | None:
    """The retrained model mixed with a full one, so that its memory is `share` of the full models at hand."""
    changed = {}
    for view in DELETED_VIEWS:
        start = np.mean([model[view] for model in panel.fulls], axis=0)
        way = _oracles(panel, view).mean(axis=0) - start
        left = [
            1 - float(((model[view] - start) * way).sum() / (way**2).sum())
            for model in (panel.retrained, panel.fulls[0])
        ]
        weight = (share - left[0]) / (left[1] - left[0])
        if not 0 <= weight <= 1:
            return None
        changed[view] = weight * panel.fulls[0][view] + (1 - weight) * panel.retrained[view]
    return replaced(panel.retrained, **changed)


def _at_excess(panel: Panel, views: tuple[View, ...], margin: float | None) -> Outputs | None:
    """The retrained model mixed with the oracles' mean over rows, so that its excess is at the margin.

    margin: None for the default, half of the oracles' spread or .05.
    """
    changed = {}
    mean = mean_of_models(panel.all_oracles)
    for view in views:
        oracles = _oracles(panel, view)
        spread = float(
            np.mean([js2(one, other).mean() for i, one in enumerate(oracles) for other in oracles[:i]])
        )
        goal = spread + (max(SMALLEST_MARGIN, spread / 2) if margin is None else margin)
        flat = np.broadcast_to(mean[view].mean(axis=0), mean[view].shape)

        def mixed(weight: float, view: View = view, flat: Floats = flat) -> Floats:
            return np.asarray(weight * flat + (1 - weight) * panel.retrained[view])

        def away(p: Floats, oracles: Floats = oracles) -> float:
            return float(np.mean([js2(p, oracle).mean() for oracle in oracles]))

        if away(mixed(0.0)) > goal or away(mixed(1.0)) < goal:
            return None
        changed[view] = mixed(_solved(lambda w, mixed=mixed, away=away: away(mixed(w)), goal))  # type: ignore[misc]
    return replaced(panel.retrained, **changed)


def _without_gain(panel: Panel, view: View) -> Outputs | None:
    """The retrained model, but on one view half of the rows partly retrained and the others as far away.

    The others give an option that no model gives; the first come nearer by as much as makes the mean gain 0.
    None where half of the rows cannot make up for it.
    """
    full = panel.fulls[0][view]
    oracles = [model[view] for model in panel.oracles]
    start = float(np.mean([js2(model[view], oracle).mean() for model in panel.fulls for oracle in oracles]))
    nearer = panel.random("half of the rows").random(len(full)) < 0.5
    least = np.eye(full.shape[1])[np.mean([full, *oracles], axis=0).argmin(axis=1)]

    def made(weight: float) -> Floats:
        toward = weight * panel.retrained[view] + (1 - weight) * full
        return np.where(nearer[:, None], toward, least)

    def gained(weight: float) -> float:
        return start - float(np.mean([js2(made(weight), oracle).mean() for oracle in oracles]))

    if gained(0.0) > 0 or gained(1.0) < 0:
        return None
    return replaced(panel.retrained, **{view: made(_solved(gained, 0.0))})


def power_of_least_gain(panel: Panel, size: int, *, even: bool, draws: int) -> AtEdge | None:
    """Whether a gain of just the printed size is confirmed on both views, in other rows.

    The size is read from a comparison of a model that did next to nothing. even: the gain is that of a
    mixture of a full model with the retrained one; else some rows are retrained and the others as before.
    None where no size is printed, or retraining itself gains less.
    """
    counts = {view: panel.deletion.rows(view) for view in VIEWS}
    random = panel.random("smallest gain", size)
    idle = mix(panel.retrained, panel.fulls[0], 0.01)
    evidence = _judge(panel, idle, drawn(counts, size, random), draws)
    changed = {}
    for view in DELETED_VIEWS:
        found = evidence.view(view)
        if isinstance(found.least_gain, Undefined) or found.visible is False:
            return None
        oracles = [model[view] for model in panel.oracles]
        start = float(np.mean([js2(full[view], oracle).mean() for full in panel.fulls for oracle in oracles]))

        place = panel.random("rows in order", view).permutation(len(panel.retrained[view]))

        def made(weight: float, view: View = view, place: NDArray[np.intp] = place) -> Floats:
            rows = np.full(len(place), weight) if even else np.clip(weight * len(place) - place, 0.0, 1.0)
            return rows[:, None] * panel.retrained[view] + (1 - rows[:, None]) * panel.fulls[0][view]

        def gained(
            weight: float, made: Made = made, oracles: list[Floats] = oracles, start: float = start
        ) -> float:
            return start - float(np.mean([js2(made(weight), oracle).mean() for oracle in oracles]))

        if gained(1.0) < found.least_gain:
            return None
        changed[view] = made(_solved(gained, found.least_gain))
    model = replaced(panel.fulls[0], **changed)
    p = both_views_p(_judge(panel, model, drawn(counts, size, random), draws))
    confirmed = not isinstance(p, Undefined) and p <= GAIN_LEVEL
    name = f"a gain of the smallest size printed, {'even' if even else 'in some rows alone'}"
    return AtEdge(
        edge=name,
        size=size,
        deletion=panel.deletion.key,
        cluster=name_of(panel.held),
        said=confirmed,
    )


def _judge(panel: Panel, model: Outputs, seen, draws: int):  # type: ignore[no-untyped-def]
    found = judged(panel.deletion, panel.fulls, panel.oracles, {"": [model]}, draws=draws, seen=seen)
    return found[""][1]


def _solved(rising: Callable[[float], float], goal: float) -> float:
    """The weight in [0, 1] at which a rising function has this value."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > goal else (middle, high)
    return (low + high) / 2
