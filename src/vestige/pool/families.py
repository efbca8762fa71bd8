"""Models derived from those of a pool, with what is known of them by construction."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats, View
from vestige.pool.answers import Truth
from vestige.pool.contents import Outputs
from vestige.pool.panels import Panel, mean_of_models, mix, replaced

__all__ = ["FAMILIES", "Family", "Made"]


@dataclass(frozen=True)
class Made:
    """Models of one family in one panel: training seeds of one method. cluster: the trained model behind
    them."""

    seeds: list[Outputs]
    cluster: Hashable


@dataclass(frozen=True)
class Family:
    """A kind of model under test.

    name: short, unique. memory: the share of the full model that is left on F and G, None where only the pool
    can tell. make: gives None where the deletion has no such model. several: whether training seeds of it can
    be made that are no models of the comparison.
    """

    name: str
    truth: Truth
    make: Callable[[Panel], Made | None]
    memory: float | None = None
    several: bool = True


DELETED_VIEWS: tuple[View, ...] = ("F", "G")
_LEAST = 1e-12


def _exact(panel: Panel, seeds: int = 1) -> Made | None:
    if len(panel.others) < seeds - 1:
        return None
    more = [panel.all_oracles[place] for place in panel.others[: seeds - 1]]
    return Made([panel.retrained, *more], panel.held)


def _trained(panel: Panel, role: str) -> Made | None:
    """A trained model of another role; roles with fewer models come round again."""
    if not panel.pool.has(panel.deletion.key, role):
        return None
    models = panel.pool.role(panel.deletion.key, role)
    place = panel.held % len(models)
    return Made([models[place]], (role, place))


def _mixture(panel: Panel, share: float, other: str) -> Made:
    second, cluster = panel.retrained, panel.held
    if other == "first":
        second, cluster = panel.oracles[0], panel.oracle_places[0]
    elif other == "mean":
        second = mean_of_models(panel.oracles)
    return Made([mix(panel.fulls[0], second, share)], cluster)


def _where(first: Outputs, second: Outputs, chosen: dict[View, NDArray[np.bool_]]) -> Outputs:
    """The first model on the chosen rows of F and G, the second everywhere else."""
    changed = {view: np.where(chosen[view][:, None], first[view], second[view]) for view in DELETED_VIEWS}
    return replaced(second, **changed)


def _rows(panel: Panel, share: float) -> Made:
    random = panel.random("rows as before", share)
    chosen: dict[View, NDArray[np.bool_]] = {}
    for view in DELETED_VIEWS:
        rows = panel.deletion.rows(view)
        chosen[view] = np.zeros(rows, dtype=bool)
        chosen[view][random.choice(rows, max(1, round(share * rows)), replace=False)] = True
    return Made([_where(panel.fulls[0], panel.retrained, chosen)], panel.held)


def _unit(panel: Panel, share: float) -> Made | None:
    """One unit, drawn at random, with this share of the full model; the others retrained."""
    units = panel.deletion.units
    names, counts = np.unique(units["F"], return_counts=True)
    if counts.min() < 10:
        return None
    kept = panel.random("unit as before").choice(names)
    chosen = {view: units[view] == kept for view in DELETED_VIEWS}
    return Made([_where(mix(panel.fulls[0], panel.retrained, share), panel.retrained, chosen)], panel.held)


def _suppressed(panel: Panel) -> Made:
    """The right option's logit lowered on F and G, by as much as brings its mean probability on F to the
    oracles'."""
    gold, full = panel.deletion.gold, panel.fulls[0]

    def lowered(view: View, by: float) -> Floats:
        p = full[view].copy()
        p[np.arange(len(p)), gold[view]] *= np.exp(-by)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def level(p: Floats) -> float:
        return float(p[np.arange(len(p)), gold["F"]].mean())

    goal = float(np.mean([level(oracle["F"]) for oracle in panel.oracles]))
    by = _bisected(lambda by: goal - level(lowered("F", by)), 0.0, 30.0)
    return Made([replaced(full, F=lowered("F", by), G=lowered("G", by))], tuple(panel.full_places))


def _temperature(panel: Panel, temperature: float) -> Made:
    changed = {}
    for view in DELETED_VIEWS:
        p = np.maximum(panel.retrained[view], _LEAST) ** (1 / temperature)
        changed[view] = p / p.sum(axis=1, keepdims=True)
    return Made([replaced(panel.retrained, **changed)], panel.held)


def _base_rates(panel: Panel) -> Made:
    mean = mean_of_models(panel.oracles)
    changed = {view: np.broadcast_to(mean[view].mean(axis=0), mean[view].shape) for view in DELETED_VIEWS}
    return Made([replaced(panel.retrained, **changed)], panel.held)


def _copy_of_f(panel: Panel) -> Made:
    return Made([replaced(panel.retrained, G=panel.fulls[0]["G"])], panel.held)


def _another_full(panel: Panel) -> Made | None:
    others = [place for place in range(len(panel.all_fulls)) if place not in panel.full_places]
    if not others:
        return None
    place = others[panel.held % len(others)]
    return Made([panel.all_fulls[place]], ("full", place))


def _away(panel: Panel) -> Made:
    """The full model surer of what was to be forgotten."""
    changed = {}
    for view in DELETED_VIEWS:
        sure = np.eye(panel.fulls[0][view].shape[1])[panel.deletion.gold[view]]
        changed[view] = 0.5 * panel.fulls[0][view] + 0.5 * sure
    return Made([replaced(panel.fulls[0], **changed)], tuple(panel.full_places))


def harmed(model: Outputs, panel: Panel, points: float) -> Outputs:
    """The model with as many right answers on R made wrong as puts it `points` below the full models' mean.

    A wrong answer is made by exchanging the two largest probabilities of a row, so confidence stays.
    """
    gold = panel.deletion.gold["R"]
    p = model["R"].copy()
    right = np.flatnonzero(p.argmax(axis=1) == gold)
    goal = float(np.mean([(full["R"].argmax(axis=1) == gold).mean() for full in panel.fulls])) - points / 100
    count = len(right) - round(goal * len(gold))
    order = panel.random(points).permutation(right)
    if count >= 0:
        _exchange(p, order[:count])
    else:
        # Already further down than asked: as many wrong answers are put right.
        wrong = np.flatnonzero(p.argmax(axis=1) != gold)[:-count]
        place = p[wrong].argmax(axis=1)
        p[wrong, place], p[wrong, gold[wrong]] = p[wrong, gold[wrong]], p[wrong, place]
    return replaced(model, R=p)


def _exchange(p: Floats, rows: NDArray[np.intp]) -> None:
    order = np.argsort(p[rows], axis=1)
    first, second = order[:, -1], order[:, -2]
    p[rows, first], p[rows, second] = p[rows, second], p[rows, first]


def _harmed(panel: Panel, points: float) -> Made:
    return Made([harmed(panel.retrained, panel, points)], panel.held)


def _destroyed(panel: Panel) -> Made:
    p = panel.retrained["R"]
    return Made([replaced(panel.retrained, R=np.full_like(p, 1 / p.shape[1]))], panel.held)


def _bisected(above: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function crosses 0."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if above(middle) > 0 else (middle, high)
    return (low + high) / 2


def _families() -> Iterator[Family]:
    yield Family("retrained", "retrained", _exact, 0.0)
    yield Family("retrained, 3 seeds", "retrained", partial(_exact, seeds=3), 0.0)
    for share in (5, 10, 25, 50):
        role = f"kept{share:02d}"
        yield Family(f"{share} % of F kept", "memory", partial(_trained, role=role))
    for other in ("first", "mean", "held out"):
        for share in (5, 10, 20, 30, 50):
            yield Family(
                f"{share} % full, {other} oracle",
                "memory",
                partial(_mixture, share=share / 100, other=other),
                share / 100,
            )
    for share in (10, 20, 50):
        yield Family(
            f"{share} % full in weights",
            "memory",
            partial(_trained, role=f"weights{share:02d}"),
            several=False,
        )
    for share in (5, 10, 15, 20, 50):
        yield Family(
            f"{share} % of rows as before",
            "memory",
            partial(_rows, share=share / 100),
            share / 100,
        )
    yield Family("one unit as before", "memory", partial(_unit, share=1.0))
    yield Family("one unit, 50 % full", "memory", partial(_unit, share=0.5))
    yield Family("suppressed", "elsewhere", _suppressed)
    for temperature in (0.5, 2.0, 5.0):
        yield Family(
            f"retrained, T = {temperature:g} on F and G",
            "elsewhere",
            partial(_temperature, temperature=temperature),
        )
    yield Family("base rates on F and G", "elsewhere", _base_rates)
    yield Family("F of a retrained model, G as before", "elsewhere", _copy_of_f)
    yield Family("R destroyed", "harmed", _destroyed)
    for points in (3, 5, 10):
        yield Family(f"R {points} points down", "harmed", partial(_harmed, points=points))
    yield Family("another full model", "full", _another_full, 1.0)
    yield Family("surer of F and G", "full", _away, 1.0)


FAMILIES: Sequence[Family] = tuple(_families())
