"""The audit's own arithmetic of verdicts: distances, memory, bounds, harm, units, conditions and the word.

Written from the definitions alone, for arrays (N, C) of probabilities and without regard to speed. It imports
nothing of vestige's metrics, statistics or verdict, so that an error there cannot hide here; keep it that
way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from vestige.study.audit_numbers import js, right

__all__ = [
    "Models",
    "Request",
    "at_temperature",
    "expected_evidence",
    "expected_words",
]

Array = NDArray[np.float64]
Models = Sequence[Array]
SEEDS = {"F": 501, "G": 502, "R": 503}
ANY = (-1.0, 1.0)
"""What a difference of two distances can be on a row that was not seen."""
LEAST_ROWS = 10
UNDEFINED = "undefined"
"""Stands in an expected record where the stored one has to be undefined, for whatever reason it gives."""
NORMAL = stats.norm.ppf
ROUNDING = 1e-9
"""Sums are added in another order here, and small ways to retraining divide them."""


@dataclass(frozen=True)
class Request:
    """One view's probabilities of every model, right columns and units."""

    name: str
    fulls: Models
    oracles: Models
    gold: NDArray[np.intp]
    units: Sequence[str]
    draws: int
    divergences: dict[tuple[int, int], Array] = field(default_factory=dict)
    """By the identities of two tables: worked out once; the tables live as long as the request."""

    def js(self, p: Array, q: Array) -> Array:
        """Divergence of two tables, (N,)."""
        key = (min(id(p), id(q)), max(id(p), id(q)))
        if key not in self.divergences:
            self.divergences[key] = js(p, q)
        return self.divergences[key]


def expected_evidence(
    views: Mapping[str, Request],
    seeds: Mapping[str, Models],
    margins: Mapping[str, Any],
    named: set[str],
    probes: Mapping[str, Mapping[str, tuple[Request, Models]]] | None = None,
) -> dict[str, Any]:
    """What the evidence about one model has to hold. views: F, G, R; seeds: view -> its training seeds'
    tables.

    named: units that the record may call by their name.
    """
    rest = _retained(views["R"], seeds["R"], margins)
    found: dict[str, Any] = {"retained": rest, "draws": views["R"].draws}
    found["seeds"] = {
        "full": len(views["R"].fulls),
        "oracle": len(views["R"].oracles),
        "unlearned": len(seeds["R"]),
    }
    if not views["R"].oracles:
        return {**found, "views": []}
    deleted = [name for name in ("F", "G") if name in views]
    sides = [_view(views[name], seeds[name], margins) for name in deleted]
    moved = [name for name, side in zip(deleted, sides, strict=True) if side["visible"] is True]
    units = [item for name in moved for item in _units(views[name], seeds[name], named)]
    level = 1 - 0.05 / max(len(units), 1)
    judged = [unit(level) for unit in units]
    tenths = [item for name in moved if (item := _tenth(views[name], seeds[name])) is not None]
    limit = 2 * margins["memory"]
    found |= {
        "views": sides,
        "units": sorted(judged, key=lambda item: _last(item["memory"]))[:5],
        "judged": judged,
        "units_judged": sum(item["memory"] != UNDEFINED for item in judged),
        "worst_rows": tenths,
        "away": [side["view"] for side in sides if side["moved_away"] is True],
        "overshoot": [
            side["view"]
            for side in sides
            if side["memory"]["upper"] != UNDEFINED and side["memory"]["upper"] < -margins["memory"]
        ],
        "nothing_to_undo": [side["view"] for side in sides if side["visible"] is False],
        "share": _share(sides),
    }
    worse = [i for i in (*judged, *tenths) if i["lower"] != UNDEFINED and i["lower"] > limit]
    known = found["units_judged"] or tenths or True not in [side["visible"] for side in sides]
    of_retraining = [
        *(("E2", _within(side["excess"], side["margin"])) for side in sides),
        *(
            ("E3", True if side["visible"] is False else _within(side["memory"], margins["memory"]))
            for side in sides
        ),
        ("E4", _within(rest["excess"], margins["retained"])),
    ]
    enough = len(views["R"].oracles) >= 3
    found["holds"] = [
        ("E1", True if enough else None),
        *((name, None if holds and not enough else holds) for name, holds in of_retraining),
        ("E4", not rest["harmed_by"]),
        ("E5", not worse if known else (None if judged else True)),
    ]
    found["probes"] = [_probe(name, asked, margins) for name, asked in (probes or {}).items()]
    if found["probes"]:
        failed = any(probe["holds"] is False for probe in found["probes"])
        found["holds"].append(("probes", not failed))
    return found


def _probe(
    name: str, asked: Mapping[str, tuple[Request, Models]], margins: Mapping[str, Any]
) -> dict[str, Any]:
    memory: dict[str, Any] = {}
    shown: list[bool | None] = []
    for view, (request, models) in asked.items():
        made = _view(request, models, margins)
        memory[view] = made["memory"]
        if made["visible"] is False:
            continue
        upper, lower = made["memory"]["upper"], made["memory"]["lower"]
        if UNDEFINED in (upper, lower):
            shown.append(None)
        elif lower > margins["memory"]:
            shown.append(False)
        else:
            shown.append(True if upper <= margins["memory"] else None)
    holds = False if False in shown else True if shown and None not in shown else None
    return {"name": name, "memory": memory, "holds": holds}


def at_temperature(request: Request, models: Models, temperature: float) -> tuple[Request, Models]:
    """The same models at another softmax temperature."""

    def changed(p: Array) -> Array:
        powers = np.maximum(p, np.finfo(np.float64).tiny) ** (1 / temperature)
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    again = replace(
        request,
        fulls=[changed(p) for p in request.fulls],
        oracles=[changed(p) for p in request.oracles],
        divergences={},
    )
    return again, [changed(p) for p in models]


def expected_words(evidences: Mapping[str, Mapping[str, Any]], family: Sequence[str]) -> dict[str, Any]:
    """Label -> (word, corrected p or "undefined"), from evidence as `expected_evidence` gives it."""
    ps: dict[str, Any] = {}
    for label, evidence in evidences.items():
        asked = [view["gain_p"] for view in evidence["views"] if view["visible"] is not False]
        ps[label] = UNDEFINED if not asked or UNDEFINED in asked else max(asked)
    tested = sorted((p, label) for label, p in ps.items() if label in set(family) and p != UNDEFINED)
    largest = 0.0
    for place, (p, label) in enumerate(tested):
        largest = max(largest, min(1.0, p * (len(tested) - place)))
        ps[label] = largest
    return {label: (_word(evidence, ps[label]), ps[label]) for label, evidence in evidences.items()}


def _word(evidence: Mapping[str, Any], p: Any) -> str:
    if evidence["retained"]["harm"] == "damaged":
        return "damaged"
    if not evidence["views"]:
        return "undetermined"
    if all(holds is True for _, holds in evidence["holds"]):
        return "equivalent"
    if p != UNDEFINED and p <= 0.025 and not evidence["away"]:
        return "closer"
    idle = any(view["gain_p"] != UNDEFINED and view["gain_p"] > 0.025 for view in evidence["views"])
    shown = idle and all(
        view["visible"] is not False
        and view["least_gain"] != UNDEFINED
        and view["least_gain"] <= evidence["margins"]["gain"] * view["displacement"]["value"]
        for view in evidence["views"]
    )
    excluded = any(
        view["visible"] is not False
        and view["gain"]["upper"] != UNDEFINED
        and view["gain"]["upper"] < evidence["margins"]["gain"] * view["displacement"]["value"]
        for view in evidence["views"]
    )
    return "not closer" if evidence["away"] or shown or excluded else "undetermined"


def _last(value: Any) -> float:
    return math.inf if value == UNDEFINED else -value


def _within(bounded: Mapping[str, Any], margin: Any) -> bool | None:
    if UNDEFINED in (margin, bounded["upper"], bounded["value"]):
        return None
    return bool(bounded["upper"] <= margin)


def _share(sides: Sequence[Mapping[str, Any]]) -> Any:
    shares = []
    for side in sides:
        if side["progress"] == UNDEFINED or side["visible"] is False:
            continue
        known = side["ceiling"] != UNDEFINED and side["ceiling"] > 0
        shares.append(side["progress"] / side["ceiling"] if known else side["progress"])
    return min(shares) if shares else UNDEFINED


# Row values of one view.


def _distance(request: Request, models: Models, oracles: Models) -> Array:
    return np.asarray(np.mean([request.js(p, o) for p in models for o in oracles], axis=0))


def _spread(request: Request, oracles: Models) -> Array:
    pairs = [request.js(oracles[i], oracles[j]) for i in range(len(oracles)) for j in range(i)]
    return np.asarray(np.mean(pairs, axis=0))


def _way(request: Request, oracles: Models) -> Array:
    """Squared length of the way to retraining a row: mean of <O_i - F, O_j - F> over pairs i != j."""
    start = np.mean(request.fulls, axis=0)
    steps = [o - start for o in oracles]
    if len(steps) == 1:
        return np.asarray((steps[0] ** 2).sum(axis=1))
    products = [
        (steps[i] * steps[j]).sum(axis=1) for i in range(len(steps)) for j in range(len(steps)) if i != j
    ]
    return np.asarray(np.mean(products, axis=0))


def _made(request: Request, models: Models, oracles: Models) -> Array:
    start = np.mean(request.fulls, axis=0)
    return np.asarray(
        np.mean([((p - start) * (o - start)).sum(axis=1) for p in models for o in oracles], axis=0)
    )


def _memory(request: Request, models: Models, oracles: Models) -> float:
    return 1.0 - float(_made(request, models, oracles).sum() / _way(request, oracles).sum())


def _memory_rows(request: Request, models: Models) -> tuple[Array, float, float]:
    """Row values whose mean is the memory, and the least and most that one could be for any distribution."""
    oracles = request.oracles
    way = _way(request, oracles)
    share = _memory(request, models, oracles)
    start = np.mean(request.fulls, axis=0)
    step = np.mean(oracles, axis=0) - start
    along = (start * step).sum(axis=1)
    rows = {
        end: share + ((1 - share) * way - made) / way.mean()
        for end, made in (
            ("is", _made(request, models, oracles)),
            ("low", step.max(axis=1) - along),
            ("high", step.min(axis=1) - along),
        )
    }
    values = rows["is"]
    return values, min(rows["low"].min(), values.min()), max(rows["high"].max(), values.max())


# Bounds.


def _weighted(values: Array, low: float, high: float, request: Request) -> tuple[Array, Array]:
    """Dirichlet-weighted means with the extra row at its lowest and at its highest."""
    weights = _weights(len(values), request.draws, SEEDS[request.name])
    inner, rest = weights[:, :-1] @ values, weights[:, -1]
    return inner + rest * low, inner + rest * high


@lru_cache(maxsize=4)
def _weights(n: int, draws: int, seed: int) -> Array:
    """(draws, n + 1) standard exponentials, each row divided by its sum; the last is the extra row's."""
    weights = np.random.default_rng(seed).standard_exponential((draws, n + 1))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _leave_one_out(statistic: Callable[[list[Any]], float], models: Sequence[Any]) -> tuple[float, int]:
    m = len(models)
    left = np.array([statistic([p for j, p in enumerate(models) if j != i]) for i in range(m)])
    return math.sqrt((m - 1) / m * float(((left - left.mean()) ** 2).sum())), m


def _widened(value: float, end: float, errors: Sequence[tuple[float, int]], level: float) -> float:
    """A bound over rows joined with errors over seeds: one t quantile, Satterthwaite's degrees of freedom."""
    errors = [(deviation, m) for deviation, m in errors if deviation > 0]
    if not errors:
        return end
    rows = ((end - value) / NORMAL(level)) ** 2
    total = rows + sum(deviation**2 for deviation, _ in errors)
    freedom = total**2 / sum(deviation**4 / (m - 1) for deviation, m in errors)
    half = float(stats.t.ppf(level, freedom)) * math.sqrt(total)
    return value + half if end >= value else value - half


def _squared(value: float, end: float, errors: Sequence[tuple[float, int]]) -> float:
    """A bound over rows joined in squares with t half-widths over seeds, for a 95 % interval."""
    halves = [float(stats.t.ppf(0.975, m - 1)) * deviation for deviation, m in errors]
    half = math.hypot(end - value, *halves)
    return value + half if end >= value else value - half


def _nothing() -> dict[str, Any]:
    return dict.fromkeys(("value", "these_models", "other_trainings", "lower", "upper"), UNDEFINED)


def _quantity(
    request: Request,
    values: Array,
    support: tuple[float, float],
    errors: Mapping[str, tuple[float, int] | None],
    reading: Sequence[str],
    level: float,
) -> tuple[dict[str, Any], Callable[[float], float] | None]:
    """The record of a mean over rows, and its lower bound at any level. errors: role -> error, None: one
    seed."""
    value = float(values.mean())
    if len(values) < LEAST_ROWS:
        return {**_nothing(), "value": value}, None
    lower, upper = _weighted(values, *support, request)
    ends = [float(np.quantile(lower, 0.025)), float(np.quantile(upper, 0.975))]
    known = [error for error in errors.values() if error is not None]
    entering = [error for role in reading if (error := errors[role]) is not None]
    every = len(known) == len(errors)

    def low_at(at: float) -> float:
        return _widened(value, min(float(np.quantile(lower, 1 - at)), value), entering, at)

    record = {
        "value": value,
        "these_models": ends,
        "other_trainings": [_squared(value, end, known) for end in ends] if every else UNDEFINED,
        "lower": low_at(level),
        "upper": _widened(value, float(np.quantile(upper, level)), entering, level),
    }
    return record, low_at


def _error(
    statistic: Callable[[list[Any]], float], models: Sequence[Any], least: int = 2
) -> tuple[float, int] | None:
    return None if len(models) < least else _leave_one_out(statistic, models)


def _view(request: Request, models: Models, margins: Mapping[str, Any]) -> dict[str, Any]:
    fulls, oracles = request.fulls, request.oracles
    start, distance = _distance(request, fulls, oracles), _distance(request, models, oracles)
    gains, size = start - distance, float(start.mean())
    of_u = _error(lambda kept: float(_distance(request, kept, oracles).mean()), models)
    of_f = _error(lambda kept: float(_distance(request, kept, oracles).mean()), fulls)
    found: dict[str, Any] = {"view": request.name, "rows": len(start)}
    found["distance"], _ = _quantity(
        request,
        distance,
        (0.0, 1.0),
        {"o": _error(lambda kept: float(_distance(request, models, kept).mean()), oracles), "u": of_u},
        ("u",),
        0.95,
    )
    found["displacement"], _ = _quantity(
        request,
        start,
        (0.0, 1.0),
        {"o": _error(lambda kept: float(_distance(request, fulls, kept).mean()), oracles), "f": of_f},
        (),
        0.95,
    )
    found["gain"], low_at = _quantity(
        request,
        gains,
        ANY,
        {
            "o": _error(
                lambda kept: float(
                    (_distance(request, fulls, kept) - _distance(request, models, kept)).mean()
                ),
                oracles,
            ),
            "f": of_f,
            "u": of_u,
        },
        ("u",),
        0.975,
    )
    found["gain_p"] = UNDEFINED if low_at is None else _p_value(gains, low_at, request)
    found["least_gain"] = _least_gain(gains, start, of_u, request)
    found["progress"] = float(gains.mean()) / size if size >= 1e-9 else UNDEFINED
    up = found["gain"]["upper"]
    found["moved_away"] = UNDEFINED if up == UNDEFINED else up < 0
    if len(oracles) > 1:
        spread = _spread(request, oracles)
        found["spread"] = float(spread.mean())
        found["ceiling"] = 1 - found["spread"] / size if size > 0 else UNDEFINED

        def beyond(group: Models, kept: Models) -> float:
            return float((_distance(request, group, kept) - _spread(request, kept)).mean())

        found["excess"], _ = _quantity(
            request,
            distance - spread,
            ANY,
            {"o": _error(lambda kept: beyond(models, kept), oracles, 3), "u": of_u},
            ("o", "u"),
            0.95,
        )
        found["full_excess"], _ = _quantity(
            request,
            start - spread,
            ANY,
            {"o": _error(lambda kept: beyond(fulls, kept), oracles, 3), "f": of_f},
            ("o",),
            0.95,
        )
        given = margins.get("excess")
        found["margin"] = max(0.05, found["spread"] / 2) if given is None else given
        found["visible"] = _visible(found["full_excess"], found["margin"])
    else:
        found |= {"spread": UNDEFINED, "ceiling": UNDEFINED, "margin": UNDEFINED, "visible": UNDEFINED}
        found |= {"excess": _nothing(), "full_excess": _nothing()}
    hidden = found["visible"] is False or (found["visible"] == UNDEFINED and len(oracles) > 1)
    if hidden or _way(request, oracles).mean() <= 0:
        found["memory"] = _nothing()
        return found
    values, low, high = _memory_rows(request, models)
    errors = {
        "o": _error(lambda kept: _memory(request, models, kept), oracles, 3),
        "f": _error(lambda kept: _memory(_with_fulls(request, kept), models, oracles), fulls),
        "u": _error(lambda kept: _memory(request, kept, oracles), models),
    }
    found["memory"], _ = _quantity(request, values, (low, high), errors, ("o", "u"), 0.95)
    return found


def _with_fulls(request: Request, fulls: Models) -> Request:
    return replace(request, fulls=fulls)


def _visible(full_excess: Mapping[str, Any], margin: float) -> Any:
    if full_excess["lower"] == UNDEFINED:
        return UNDEFINED
    if full_excess["lower"] > 0:
        return True
    return False if full_excess["upper"] <= margin else UNDEFINED


def _p_value(gains: Array, low_at: Callable[[float], float], request: Request) -> float:
    """The level at which the lower bound of the gain reaches 0, to 40 halvings."""
    smallest = 1 / (request.draws + 1)
    if gains.mean() <= 0:
        lower, _ = _weighted(gains, *ANY, request)
        return max(0.5, (1 + int((lower <= 0).sum())) / (request.draws + 1))
    if low_at(1 - smallest) > 0:
        return smallest
    low, high = smallest, 0.5
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if low_at(1 - middle) > 0 else (middle, high)
    return high


def _least_gain(gains: Array, start: Array, of_u: tuple[float, int] | None, request: Request) -> Any:
    """The displacement times the smallest share of rows that would show, had they gone the whole way."""
    n = len(gains)
    if n < LEAST_ROWS:
        return UNDEFINED
    places = np.random.default_rng(SEEDS[request.name]).random(n).argsort(kind="stable")
    power = float(NORMAL(math.sqrt(0.8)))

    def missing(share: float) -> bool:
        moved = np.zeros(n)
        whole = min(int(share * n), n)
        moved[places[:whole]] = start[places[:whole]]
        if whole < n:
            moved[places[whole]] = (share * n - whole) * start[places[whole]]
        rows = np.clip(np.clip(gains - gains.mean(), -1, 1) + moved, -1, 1)
        lower, _ = _weighted(rows, *ANY, request)
        errors = [] if of_u is None else [of_u]
        end = _widened(float(rows.mean()), float(np.quantile(lower, 0.025)), errors, 0.975)
        return end <= power * float(rows.std(ddof=1)) / math.sqrt(n)

    if missing(1.0):
        return UNDEFINED
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if missing(middle) else (low, middle)
    return high * float(start.mean())


# Units.


def _units(request: Request, models: Models, named: set[str]) -> list[Callable[[float], dict[str, Any]]]:
    names = sorted(set(request.units) - {""})
    found: list[Callable[[float], dict[str, Any]]] = []
    for place, unit in enumerate(names, start=1):
        rows = np.array([name == unit for name in request.units])
        if rows.sum() < 2:
            continue
        part = Request(
            request.name,
            [p[rows] for p in request.fulls],
            [p[rows] for p in request.oracles],
            request.gold[rows],
            [unit] * int(rows.sum()),
            request.draws,
        )
        label = unit if unit in named else f"unit {place}"
        kept = [p[rows] for p in models]
        found.append(partial(_unit, part, kept, label))
    return found


def _unit(part: Request, models: Models, label: str, level: float) -> dict[str, Any]:
    record: dict[str, Any] = {"view": part.name, "name": label, "rows": len(part.gold)}
    oracles = part.oracles
    if len(oracles) < 3:
        return {**record, "memory": UNDEFINED, "lower": UNDEFINED}
    deviation, m = _leave_one_out(lambda kept: float(_way(part, kept).mean()), oracles)
    if float(_way(part, oracles).mean()) <= float(stats.t.ppf(0.95, m - 1)) * deviation:
        return {**record, "memory": UNDEFINED, "lower": UNDEFINED}
    values, low, high = _memory_rows(part, models)
    lower, _ = _weighted(values, low, high, part)
    error = _leave_one_out(lambda kept: _memory(part, models, kept), oracles)
    value = float(values.mean())
    end = min(float(np.quantile(lower, 1 - level)), value)
    return {**record, "memory": value, "lower": _widened(value, end, [error], level)}


def _tenth(request: Request, models: Models) -> dict[str, Any] | None:
    oracles, m = request.oracles, len(request.oracles)
    if m < 8 or _way(request, oracles).mean() <= 0:
        return None
    tenth = max(1, len(request.gold) // 10)

    def worst(kept: Models, which: Models) -> float:
        way = _way(request, kept)
        left = (way - _made(request, which, kept)) / way.mean()
        return float(np.sort(left)[-tenth:].mean())

    own = np.array([worst([*oracles[:i], *oracles[i + 1 :]], [oracles[i]]) for i in range(m)])
    value = float(np.mean([worst(oracles, [model]) for model in models])) - float(own.mean())
    half = float(stats.t.ppf(0.95, m - 1)) * float(own.std(ddof=1)) * math.sqrt(1 + 1 / m)
    return {"view": request.name, "rows": tenth, "memory": value, "lower": value - half}


# Retained rows.


def _retained(request: Request, models: Models, margins: Mapping[str, Any]) -> dict[str, Any]:
    hits = {
        role: [right(p, request.gold) for p in group]
        for role, group in (("model", models), ("full", request.fulls), ("oracle", request.oracles))
    }
    level: dict[str, Any] = {role: float(np.mean(made)) if made else UNDEFINED for role, made in hits.items()}
    found: dict[str, Any] = {"rows": len(request.gold), **level}
    found["retraining"] = UNDEFINED if not request.oracles else level["oracle"] - level["full"]
    value = level["model"] - level["full"]
    if len(request.gold) < LEAST_ROWS:
        found["change"] = {**_nothing(), "value": value}
    else:
        pairs = [_newcombe(u, f) for u in hits["model"] for f in hits["full"]]
        ends = [value - float(np.mean([b for b, _ in pairs])), value + float(np.mean([a for _, a in pairs]))]
        found["change"] = _plain(
            value,
            ends,
            _error(lambda kept: float(np.mean(kept)), hits["full"]),
            _error(lambda kept: float(np.mean(kept)), hits["model"]),
        )
    calibration = found["calibration"] = _calibration(request, models, hits)
    found["excess"] = _nothing()
    if len(request.oracles) > 1:
        spread = _spread(request, request.oracles)
        found["excess"], _ = _quantity(
            request,
            _distance(request, models, request.oracles) - spread,
            ANY,
            {
                "o": _error(
                    lambda kept: float((_distance(request, models, kept) - _spread(request, kept)).mean()),
                    request.oracles,
                    3,
                ),
                "u": _error(lambda kept: float(_distance(request, kept, request.oracles).mean()), models),
            },
            ("o", "u"),
            0.95,
        )
    change, rise = found["change"], calibration["change"]
    harmed = []
    if change["upper"] != UNDEFINED and change["upper"] < -margins["accuracy"]:
        harmed.append("accuracy")
    if rise["lower"] != UNDEFINED and rise["lower"] > margins["calibration"]:
        harmed.append("calibration")
    settled = change["lower"] != UNDEFINED and change["lower"] > -margins["accuracy"]
    found["harmed_by"] = harmed
    found["harm"] = "damaged" if harmed else "unharmed" if settled else "unsettled"
    return found


def _plain(
    value: float, ends: list[float], full: tuple[float, int] | None, model: tuple[float, int] | None
) -> dict[str, Any]:
    """The record of a change whose interval over rows has a formula of its own."""
    known = [error for error in (full, model) if error is not None]
    both = full is not None and model is not None
    return {
        "value": value,
        "these_models": ends,
        "other_trainings": [_squared(value, end, known) for end in ends] if both else UNDEFINED,
        "lower": _widened(value, ends[0], known, 0.975),
        "upper": _widened(value, ends[1], known, 0.975),
    }


def _wilson(count: int, n: int) -> tuple[float, float]:
    z = float(NORMAL(0.975))
    p = count / n
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def _newcombe(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> tuple[float, float]:
    """Distances from the difference of two paired proportions to its bounds, below and above (method 10)."""
    n = len(first)
    a, b = int((first & second).sum()), int((first & ~second).sum())
    c = int((~first & second).sum())
    d = n - a - b - c
    low1, high1 = _wilson(a + b, n)
    low2, high2 = _wilson(a + c, n)
    p1, p2 = (a + b) / n, (a + c) / n
    bottom = (a + b) * (c + d) * (a + c) * (b + d)
    top = float(a * d - b * c)
    if top > 0:
        top = max(top - n / 2, 0.0)
    phi = top / math.sqrt(bottom) if bottom else 0.0
    below = (p1 - low1) ** 2 - 2 * phi * (p1 - low1) * (high2 - p2) + (high2 - p2) ** 2
    above = (high1 - p1) ** 2 - 2 * phi * (high1 - p1) * (p2 - low2) + (p2 - low2) ** 2
    return math.sqrt(max(below, 0.0)), math.sqrt(max(above, 0.0))


def _calibration(
    request: Request, models: Models, hits: Mapping[str, Sequence[NDArray[np.bool_]]]
) -> dict[str, Any]:
    if len(request.gold) < 100:
        return {"model": UNDEFINED, "full": UNDEFINED, "change": _nothing()}
    parts = {
        role: [_squared_error(p.max(axis=1), hit) for p, hit in zip(group, hits[role], strict=True)]
        for role, group in (("model", models), ("full", request.fulls))
    }
    middle, low, high = {}, {}, {}
    for role, found in parts.items():
        square, slope, rest = (float(np.mean(column)) for column in zip(*found, strict=True))
        middle[role] = math.sqrt(max(square, 0.0))
        low[role], high[role] = _score_ends(square, slope, rest)
    value = middle["model"] - middle["full"]
    ends = [
        value - math.hypot(middle["model"] - low["model"], high["full"] - middle["full"]),
        value + math.hypot(high["model"] - middle["model"], middle["full"] - low["full"]),
    ]

    def error(role: str) -> tuple[float, int] | None:
        squares = [np.array([s]) for s, _, _ in parts[role]]
        return _error(lambda kept: math.sqrt(max(float(np.mean(kept)), 0.0)), squares)

    change = _plain(value, ends, error("full"), error("model"))
    return {"model": middle["model"], "full": middle["full"], "change": change}


def _score_ends(square: float, slope: float, rest: float) -> tuple[float, float]:
    """Roots of the sums S whose distance from `square` is the normal quantile of a variance slope S + rest.

    They solve S^2 - (2 square + z^2 slope) S + square^2 - z^2 rest = 0.
    """
    z2 = float(NORMAL(0.975)) ** 2
    linear = 2 * square + z2 * slope
    root = math.sqrt(max(0.0, linear**2 - 4 * (square**2 - z2 * rest)))
    return math.sqrt(max((linear - root) / 2, 0.0)), math.sqrt(max((linear + root) / 2, square, 0.0))


def _squared_error(confidence: Array, hit: NDArray[np.bool_]) -> tuple[float, float, float]:
    """Debiased squared calibration error in ten equal-mass bins; slope and rest of its variance."""
    order = np.argsort(confidence, kind="stable")
    total = rest = above = below = 0.0
    for rows in np.array_split(order, 10):
        gap = confidence[rows] - hit[rows]
        n = len(rows)
        noise, square = float(gap.var(ddof=1)) / n, float(gap.mean()) ** 2
        weight = n / len(confidence)
        total += weight * (square - noise)
        rest += 2 * weight**2 * noise**2 * n / (n - 1)
        above += weight * max(square, noise) * 4 * weight * noise
        below += weight * max(square, noise)
    return total, above / below if below > 0 else 0.0, rest
