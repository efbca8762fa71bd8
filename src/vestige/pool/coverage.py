"""How often an interval holds the truth, for every kind that the product prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product

import numpy as np

from vestige.contracts import Bounded, Evidence, Floats, Interval, Margins, RetainedEvidence, Undefined, View
from vestige.metrics.noise import noise_floor
from vestige.pool.answers import Held, name_of
from vestige.pool.contents import VIEWS, Outputs, Pool
from vestige.pool.families import FAMILIES
from vestige.pool.judging import Seen, evidence_of
from vestige.pool.panels import Panel, mix
from vestige.pool.worlds import REFERENCE, mean_distance, mean_spread, world_of
from vestige.seeds import generator
from vestige.statistics.bootstrap import bootstrap_rows, bootstrap_units
from vestige.statistics.bounds import Bounds, unit_mean_bounds
from vestige.statistics.crossed import crossed_mean
from vestige.statistics.terms import mean_of
from vestige.verdict.evidence import Retained, Side, retained_evidence
from vestige.verdict.quantities import view_table

__all__ = ["ROWS", "UNITS", "calibration", "noise_floors", "other_trainings", "these_models", "units"]

ROWS = (10, 40, 160, 400)
UNITS = (2, 4, 10, 40)
ORACLES = (3, 5, 8)
_FROM = ("retrained", "30 % full, held out oracle", "5 % of F kept", "another full model")
"""Families whose intervals are looked at."""


def drawn(panel_rows: Mapping[View, int], size: int, random: np.random.Generator) -> Seen:
    """So many rows of every view, with replacement: the view's rows stand for all rows like them."""
    return {view: np.sort(random.integers(panel_rows[view], size=size)) for view in VIEWS}


def _holds(interval: Interval | Undefined, truth: float) -> bool | None:
    if isinstance(interval, Undefined):
        return None
    return interval.low <= truth <= interval.high


def _quantities(evidence: Evidence) -> dict[str, Bounded]:
    """Everything with an interval, F standing for both views of what was deleted."""
    found: dict[str, Bounded] = {}
    for view in evidence.views:
        if view.view == "F":
            found |= {
                "distance": view.distance,
                "displacement": view.displacement,
                "gain": view.gain,
                "excess": view.excess,
                "memory": view.memory,
            }
    found["excess on R"] = evidence.retained.excess
    found["accuracy change"] = evidence.retained.change
    return found


def these_models(panel: Panel, size: int) -> Iterator[Held]:
    """Intervals about these models and other rows, when `size` rows of each view are seen."""
    tested = {
        family.name: made for family in FAMILIES if family.name in _FROM and (made := family.make(panel))
    }
    models = {name: made.seeds for name, made in tested.items()}
    counts = {view: panel.deletion.rows(view) for view in VIEWS}
    random = panel.random("these models", size)
    seen = drawn(counts, size, random)
    whole = _whole(panel, models)
    found = evidence_of(panel.deletion, panel.fulls, panel.oracles, models, draws=1000, seen=seen)
    for name, evidence in found.items():
        for quantity, bounded in _quantities(evidence).items():
            if quantity == "displacement" and name != _FROM[0]:
                continue  # the same for every model under test
            yield Held(
                kind="these models",
                quantity=quantity,
                size=size,
                seeds="",
                deletion=panel.deletion.key,
                cluster=name_of(panel.held),
                holds=_holds(bounded.these_models, whole[name][quantity]),
            )
    yield from _published(panel, seen, size)


def _whole(panel: Panel, models: Mapping[str, list[Outputs]]) -> dict[str, dict[str, float]]:
    """The same quantities of these models on all rows."""
    found: dict[str, dict[str, float]] = {name: {} for name in models}
    for view in ("F", "R"):
        table = view_table(
            fulls=[model[view] for model in panel.fulls],
            oracles=[model[view] for model in panel.oracles],
            unlearned={name: [model[view] for model in seeds] for name, seeds in models.items()},
            units=np.asarray(panel.deletion.units[view]),
        )
        gold = panel.deletion.gold[view]
        start = float(np.mean([(model[view].argmax(axis=1) == gold).mean() for model in panel.fulls]))
        for name, places in table.models.unlearned.items():
            values = found[name]
            if view == "R":
                values["excess on R"] = float(table.excess(places).mean())
                right = [(model[view].argmax(axis=1) == gold).mean() for model in models[name]]
                values["accuracy change"] = float(np.mean(right)) - start
            else:
                values["distance"] = float(table.distance(places).mean())
                values["displacement"] = float(table.distance(table.models.fulls).mean())
                values["gain"] = float(table.gain(places).mean())
                values["excess"] = float(table.excess(places).mean())
                values["memory"] = table.memory(places)
    return found


def _published(panel: Panel, seen: Seen, size: int) -> Iterator[Held]:
    """The percentile bootstrap of the published rule, on the gain of the retrained model on F."""
    table = view_table(
        fulls=[panel.fulls[0]["F"]],
        oracles=[panel.oracles[0]["F"]],
        unlearned={"": [panel.retrained["F"]]},
        units=np.asarray(panel.deletion.units["F"]),
    )
    gains = table.gain(table.models.unlearned[""])
    found = bootstrap_rows({"": mean_of(gains[seen["F"]])}, draws=1000, seed=1)[""]
    yield Held(
        kind="percentile bootstrap of rows",
        quantity="gain",
        size=size,
        seeds="",
        deletion=panel.deletion.key,
        cluster=name_of(panel.held),
        holds=bool(found.low <= gains.mean() <= found.high),
        published=True,
    )


def other_trainings(pool: Pool, key: str, repeats: int, portion: int) -> Iterator[Held]:
    """Intervals over other trainings and other rows, and the bounds that the verdict reads, in a made world.

    The unlearned model is a retrained one, or a mixture with 30 % of a full model.
    """
    worlds = {role: world_of(pool, key, role) for role in ("full", "oracle")}
    random = generator("pool", "other trainings", key, portion)
    fulls = worlds["full"].models(REFERENCE, random)
    oracles = worlds["oracle"].models(REFERENCE, random)
    deletion = pool.deletion(key)
    counts = {view: deletion.rows(view) for view in VIEWS}
    spread = mean_spread([model["F"] for model in oracles])
    start = mean_distance([model["F"] for model in fulls], [model["F"] for model in oracles])
    mixtures = [mix(*pair, 0.3) for pair in zip(fulls, oracles[::-1], strict=True)]
    mixed = mean_distance(
        [model["F"] for model in mixtures], [model["F"] for model in oracles[: REFERENCE // 2]]
    )
    truth = {
        "retrained": {"distance": spread, "gain": start - spread, "excess": 0.0, "memory": 0.0},
        "mixture": {"distance": mixed, "gain": start - mixed, "excess": mixed - spread, "memory": 0.3},
    }
    for values in truth.values():
        values["displacement"] = start
    for m, k, u in ((3, 2, 2), (5, 2, 2), (8, 3, 3)):
        for size, repeat in product(ROWS[1:], range(repeats)):
            given, known = worlds["full"].models(k, random), worlds["oracle"].models(m, random)
            fresh, starts = worlds["oracle"].models(u, random), worlds["full"].models(u, random)
            tested = {
                "retrained": fresh,
                "mixture": [mix(*pair, 0.3) for pair in zip(starts, fresh, strict=True)],
            }
            seen = drawn(counts, size, random)
            found = evidence_of(deletion, given, known, tested, draws=500, seen=seen)
            for name, evidence in found.items():
                held = partial(
                    Held,
                    size=size,
                    seeds=f"{m} oracles, {k} full, {u} unlearned",
                    deletion=key,
                    cluster=f"{m} {size} {portion} {repeat}",
                )
                yield from _over_trainings(held, _quantities(evidence), truth[name])


def _over_trainings(
    held: Callable[..., Held], quantities: Mapping[str, Bounded], truth: Mapping[str, float]
) -> Iterator[Held]:
    for quantity, value in truth.items():
        interval = quantities[quantity].other_trainings
        yield held(kind="other trainings", quantity=quantity, holds=_holds(interval, value))
        if quantity in ("excess", "memory"):
            upper = quantities[quantity].upper
            holds = None if isinstance(upper, Undefined) else upper >= value
            yield held(kind="upper bound that the verdict reads", quantity=quantity, holds=holds)


def calibration(pool: Pool, key: str, repeats: int, portion: int) -> Iterator[Held]:
    """The interval of the change of calibration error, where the truth is made.

    Confidences are those of a full and of a retrained model on rows of R; a row is right with a probability
    that is its confidence, or its confidence with the logit halved (an overconfident model).
    """
    random = generator("pool", "calibration", key, portion)
    full, oracle = (pool.role(key, role)[0]["R"].max(axis=1) for role in ("full", "oracle"))
    halved = {"calibrated": 1.0, "overconfident": 0.5}
    for name, slope in halved.items():
        confidences = np.stack([full, oracle])
        chances = np.stack([full, _flattened(oracle, slope)])
        truth = _error(oracle, chances[1]) - _error(full, chances[0])
        for size in (100, *ROWS[2:]):
            for repeat in range(repeats):
                rows = random.integers(len(full), size=size)
                # One draw a row for both models: two models that differ little err on the same rows.
                right = random.random(size) < chances[:, rows]
                evidence = _retained(confidences[:, rows], right)
                assert evidence.calibration is not None
                yield Held(
                    kind="these models",
                    quantity=f"calibration change, {name} model",
                    size=size,
                    seeds="",
                    deletion=key,
                    cluster=f"{portion} {repeat}",
                    holds=_holds(evidence.calibration.change.these_models, truth),
                )


def _flattened(confidence: Floats, slope: float) -> Floats:
    logit = np.log(np.maximum(confidence, 1e-9)) - np.log(np.maximum(1 - confidence, 1e-9))
    return np.asarray(1 / (1 + np.exp(-slope * logit)))


def _error(confidence: Floats, chance: Floats) -> float:
    """Root mean square calibration error over ten equal-mass bins of all rows."""
    parts = np.array_split(np.argsort(confidence, kind="stable"), 10)
    squares = [len(rows) * float((confidence[rows] - chance[rows]).mean()) ** 2 for rows in parts]
    return float(np.sqrt(sum(squares) / len(confidence)))


def _retained(confidences: Floats, right: np.ndarray) -> RetainedEvidence:
    tables = [np.stack([row, 1 - row], axis=1) for row in confidences]
    table = view_table(
        fulls=tables[:1], oracles=[], unlearned={"": tables[1:]}, units=np.full(len(tables[0]), "")
    )
    retained = Retained(side=Side("R", table, 200), right=right, confidence=confidences)
    return retained_evidence(retained, table.models.unlearned[""], Margins())


def noise_floors(pool: Pool, key: str, repeats: int, portion: int) -> Iterator[Held]:
    """Intervals of the noise floor over training seeds, on the rows of F."""
    random = generator("pool", "noise floors", key, portion)
    world = world_of(pool, key, "oracle")
    truth = mean_spread([model["F"] for model in world.models(2 * REFERENCE, random)])
    for m in ORACLES:
        for repeat in range(repeats):
            floor = noise_floor([model["F"] for model in world.models(m, random)])
            yield Held(
                kind="noise floor over seeds",
                quantity="noise floor",
                size=pool.deletion(key).rows("F"),
                seeds=f"{m} oracles",
                deletion=key,
                cluster=f"{portion} {repeat}",
                holds=_holds(floor.over_seeds(""), truth),
            )


def units(repeats: int, key: str, portion: int) -> Iterator[Held]:
    """Intervals over units, in a made table: skewed units, rows inside them, seeds that they cross."""
    random = generator("pool", "units", key, portion)
    for count in UNITS:
        for repeat in range(repeats):
            cluster = f"{key} {portion} {repeat}"
            unit = 0.15 * (random.exponential(size=count) - 1)
            rows = unit[:, None] + 0.3 * random.standard_normal((count, 10))
            names = [f"{number:02d}" for number in range(count) for _ in range(10)]
            bounds = unit_mean_bounds(rows.mean(axis=1), level=0.975)
            yield _of_units("t over units", count, "", cluster, _inside(bounds, 0.0))
            found = bootstrap_units({"": mean_of(rows.ravel())}, names, draws=1000, seed=1)[""]
            held = found.low <= 0.0 <= found.high
            yield _of_units("percentile bootstrap of units", count, "", cluster, bool(held), published=True)
            for seeds in (2, 5):
                of_seed = 0.05 * random.standard_normal((seeds, 1))
                table = unit + of_seed + 0.1 * random.standard_normal((seeds, count))
                mean = crossed_mean(table)
                holds = None if isinstance(mean, Undefined) else _holds(mean.interval(""), 0.0)
                yield _of_units("seeds and units, crossed", count, f"{seeds} seeds", cluster, holds)


def _of_units(
    kind: str, count: int, seeds: str, cluster: str, holds: bool | None, *, published: bool = False
) -> Held:
    return Held(
        kind=kind,
        quantity="gain",
        size=count,
        seeds=seeds,
        deletion="",
        cluster=cluster,
        holds=holds,
        published=published,
    )


def _inside(bounds: Bounds | Undefined, truth: float) -> bool | None:
    return None if isinstance(bounds, Undefined) else bounds.low <= truth <= bounds.high
