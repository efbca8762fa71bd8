"""From tables over models and rows to bounded evidence about one unlearned model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from vestige.contracts import (
    Bounded,
    Calibration,
    Floats,
    Interval,
    Margins,
    ProbeEvidence,
    RetainedEvidence,
    Undefined,
    UnitEvidence,
    View,
    ViewEvidence,
)
from vestige.metrics.oracle import SMALLEST_DISPLACEMENT
from vestige.statistics.bounds import (
    LEAST_DRAWS,
    LEAST_ROWS,
    Bounds,
    SeedError,
    WorstCase,
    dirichlet_weights,
    jackknife,
    joined,
    joined_satterthwaite,
    newcombe_paired,
    worst_case_bounds,
)
from vestige.verdict.quantities import Indices, ViewTable

__all__ = [
    "BOUND_SEEDS",
    "Retained",
    "Side",
    "probe_evidence",
    "retained_evidence",
    "unit_evidence",
    "view_evidence",
    "worst_rows",
]

BOUND_SEEDS: Mapping[View, int] = {"F": 501, "G": 502, "R": 503}
"""Seeds of the weights that bounds over rows draw."""
ONE_SIDED = 0.95
"""Level of the one-sided bounds of equivalence."""
TWO_SIDED = 0.975
"""Level of each side of a 95 % interval; gain and harm are judged by its ends."""
LEAST_ORACLES = 3
"""Below this many oracles nothing that reads their spread can be bounded over their seeds."""
ORACLES_FOR_ROWS = 8
"""From this many oracles on, the tenth of the rows that keeps most is judged against them."""
SMALLEST_MARGIN = 0.05
BINS = 10
LEAST_CALIBRATION_ROWS = 100
BOTH_VIEWS_POWER = 0.8
_DIFFERENCES = (-1.0, 1.0)
"""What a difference of two distances can be on a row that was not seen, whatever the rows seen are like."""
_KEPT_WEIGHTS = 20_000_000
"""Entries of weights that are kept for a view: 160 MB."""
_ROWS_KIND = "Dirichlet-weighted rows with one worst-case row"
_SEEDS_KIND = "rows as before, training seeds by jackknife with t quantiles, joined in squares"
NO_ORACLE = "no retrained model"


@dataclass(frozen=True, eq=False)
class Side:
    """One view under one set of draws: `table`, its mean over rows, and how often bounds are drawn."""

    view: View
    table: ViewTable
    draws: int

    @cached_property
    def totals(self) -> ViewTable:
        """The table with its rows averaged into one: what leaving out a seed is computed from."""
        table = self.table
        return ViewTable(
            table.js.mean(axis=-1, keepdims=True),
            table.inner.mean(axis=-1, keepdims=True),
            table.reach.mean(axis=-1, keepdims=True),
            np.array([""]),
            table.models,
        )

    @property
    def too_few(self) -> Undefined | None:
        """Why nothing here has a bound over rows; None where it has."""
        for name, there, least in (("rows", self.table.rows, LEAST_ROWS), ("draws", self.draws, LEAST_DRAWS)):
            if there < least:
                return Undefined(undefined=f"a bound needs at least {least} {name}, there are {there}")
        return None

    def rows(self, values: Floats, lowest: float, highest: float) -> WorstCase | Undefined:
        """Bounds over rows of the mean of `values` (N,), or why there are none."""
        if self.too_few is not None:
            return self.too_few
        return worst_case_bounds(
            values,
            lowest,
            highest,
            draws=self.draws,
            seed=BOUND_SEEDS[self.view],
            weights=self._weights if self.draws * len(values) <= _KEPT_WEIGHTS else None,
        )[0]

    @cached_property
    def _weights(self) -> list[Floats]:
        """Every quantity of the view is bounded under the same draws, so they are made once."""
        seed = BOUND_SEEDS[self.view]
        return list(dirichlet_weights(self.table.rows, draws=self.draws, seed=seed))


Statistic = Callable[[Indices, Indices, Indices], float]
"""Places of oracles, full models and unlearned models that are kept -> the quantity."""


def view_evidence(side: Side, places: Indices, margins: Margins) -> ViewEvidence:
    """Everything about one model on F or G. places: of its training seeds in the table."""
    table, totals = side.table, side.totals
    fulls, oracles = table.models.fulls, table.models.oracles
    if not len(oracles):
        raise ValueError("evidence about retraining needs an oracle")
    start, distance = table.distance(fulls), table.distance(places)
    everyone = (oracles, fulls, places)

    def value(of: Callable[[ViewTable, Indices, Indices, Indices], float]) -> Statistic:
        return lambda o, f, u: of(totals, o, f, u)

    distances = _bounded(
        side,
        distance,
        (0.0, 1.0),
        value(lambda t, o, f, u: float(t.distance(u, o)[0])),
        everyone,
        roles=("oracle", "unlearned"),
        read=("unlearned",),
    )
    displacement = _bounded(
        side,
        start,
        (0.0, 1.0),
        value(lambda t, o, f, u: float(t.distance(f, o)[0])),
        everyone,
        roles=("oracle", "full"),
        read=(),
    )
    gains = start - distance
    gain, gain_rows, gain_errors = _bounded_parts(
        side,
        gains,
        _DIFFERENCES,
        value(lambda t, o, f, u: float(t.gain(u, o, f)[0])),
        everyone,
        roles=("oracle", "full", "unlearned"),
        read=("unlearned",),
        level=TWO_SIDED,
    )
    size = float(start.mean())
    none = Undefined(undefined="displacement below 1e-9") if size < SMALLEST_DISPLACEMENT else None
    spread: float | Undefined
    if len(oracles) > 1:
        spreads = table.spread()
        spread = float(spreads.mean())
        excess = _bounded(
            side,
            distance - spreads,
            _DIFFERENCES,
            value(lambda t, o, f, u: float(t.excess(u, o)[0])),
            everyone,
            roles=("pairs", "unlearned"),
            read=("pairs", "unlearned"),
        )
        full_excess = _bounded(
            side,
            start - spreads,
            _DIFFERENCES,
            value(lambda t, o, f, u: float(t.excess(f, o)[0])),
            everyone,
            roles=("pairs", "full"),
            read=("pairs",),
        )
        margin: float | Undefined = (
            margins.excess if margins.excess is not None else max(SMALLEST_MARGIN, spread / 2)
        )
        visible = _visible(full_excess, margin)
        ceiling: float | Undefined = none if none is not None else 1.0 - spread / size
    else:
        spread = Undefined(undefined="what two retrainings differ by is not known: one retrained model")
        excess = full_excess = _unbounded(spread)
        margin, visible, ceiling = spread, spread, spread
    memory = _memory(side, everyone, visible)
    return ViewEvidence(
        view=side.view,
        rows=table.rows,
        units=len(set(table.units.tolist()) - {""}),
        distance=distances,
        displacement=displacement,
        spread=spread,
        excess=excess,
        margin=margin,
        full_excess=full_excess,
        visible=visible,
        memory=memory,
        gain=gain,
        gain_p=_p_value(gain.value, gain_rows, gain_errors),
        least_gain=_least_gain(side, gains, start, gain_errors),
        progress=none if none is not None else float(gains.mean()) / size,
        ceiling=ceiling,
        moved_away=gain.upper if isinstance(gain.upper, Undefined) else gain.upper < 0,
    )


def _visible(full_excess: Bounded, margin: float | Undefined) -> bool | Undefined:
    """Whether the full models can be told from retrained ones; Undefined where that is not settled either
    way."""
    if isinstance(full_excess.lower, Undefined):
        return full_excess.lower
    if full_excess.lower > 0:
        return True
    if isinstance(full_excess.upper, float) and isinstance(margin, float) and full_excess.upper <= margin:
        return False
    return Undefined(undefined="the rows do not settle whether retraining moves these outputs at all")


def _memory(side: Side, everyone: tuple[Indices, Indices, Indices], visible: bool | Undefined) -> Bounded:
    table, totals = side.table, side.totals
    oracles, _, places = everyone
    if visible is False:
        return _unbounded(Undefined(undefined="the full model already lies where retraining lies"))
    if isinstance(visible, Undefined) and len(oracles) > 1:
        return _unbounded(visible)
    values, support = _memory_rows(table, places)
    if values is None:
        return _unbounded(Undefined(undefined="retraining moves nothing here"))
    return _bounded(
        side,
        values,
        support,
        lambda o, f, u: totals.memory(u, o, f),
        everyone,
        roles=("pairs", "full", "unlearned"),
        read=("pairs", "unlearned"),
        note="against one retraining" if len(oracles) == 1 else "",
    )


def _memory_rows(table: ViewTable, places: Indices) -> tuple[Floats | None, tuple[float, float]]:
    """Memory as a mean of row values, linear around its estimate, and the range that a row's value has."""
    way = table.move()
    mean = float(way.mean())
    if mean <= 0:
        return None, (0.0, 0.0)
    share = table.memory(places)

    def terms(made: Floats) -> Floats:
        return np.asarray(share + ((1.0 - share) * way - made) / mean)

    values = terms(table.made(places))
    ends = terms(table.reach[1]).min(), terms(table.reach[0]).max()
    return values, (min(float(ends[0]), float(values.min())), max(float(ends[1]), float(values.max())))


def _bounded(
    side: Side,
    values: Floats,
    support: tuple[float, float],
    statistic: Statistic,
    everyone: tuple[Indices, Indices, Indices],
    *,
    roles: Sequence[str],
    read: Sequence[str],
    level: float = ONE_SIDED,
    note: str = "",
) -> Bounded:
    return _bounded_parts(
        side, values, support, statistic, everyone, roles=roles, read=read, level=level, note=note
    )[0]


def _bounded_parts(
    side: Side,
    values: Floats,
    support: tuple[float, float],
    statistic: Statistic,
    everyone: tuple[Indices, Indices, Indices],
    *,
    roles: Sequence[str],
    read: Sequence[str],
    level: float = ONE_SIDED,
    note: str = "",
) -> tuple[Bounded, WorstCase | Undefined, list[SeedError]]:
    """A mean over rows with its bounds, the bounds over rows, and the errors over each role's seeds.

    roles: those whose training seeds the quantity depends on; "pairs" are oracles read in pairs, of which one
    can be left out only from three on. read: those whose error enters the bounds that the verdict reads. A
    model is *closer* than the full models at hand to the oracles at hand, so that of a gain only its own
    seeds are random; it is *equivalent* to retraining, so that there the oracles stand for all others that
    might have been.
    """
    oracles, fulls, places = everyone
    errors = {}
    for role in roles:
        least = LEAST_ORACLES if role == "pairs" else 2
        group = {"oracle": oracles, "pairs": oracles, "full": fulls, "unlearned": places}[role]
        if len(group) < least:
            errors[role] = SeedError(math.nan, 1)
        elif role in ("oracle", "pairs"):
            errors[role] = jackknife(lambda kept: statistic(oracles[kept], fulls, places), len(group))
        elif role == "full":
            errors[role] = jackknife(lambda kept: statistic(oracles, fulls[kept], places), len(group))
        else:
            errors[role] = jackknife(lambda kept: statistic(oracles, fulls, places[kept]), len(group))
    value = float(values.mean())
    rows = side.rows(values, *support)
    entering = [errors[role] for role in read]
    return _record(side, value, rows, errors, entering, level, note), rows, entering


def _record(
    side: Side,
    value: float,
    rows: WorstCase | Undefined,
    errors: Mapping[str, SeedError],
    entering: Sequence[SeedError],
    level: float,
    note: str,
) -> Bounded:
    if isinstance(rows, Undefined):
        return _without_bounds(value, rows)
    ends = rows.bounds(TWO_SIDED)
    read = joined_satterthwaite(value, rows.bounds(level), entering, level=level)
    return Bounded(
        value=value,
        these_models=_interval(
            side, ends, _ROWS_KIND, "these models, other rows like these" + (f", {note}" if note else "")
        ),
        other_trainings=_other_trainings(side, value, ends, errors),
        lower=read.low,
        upper=read.high,
    )


_SINGLE = {
    "unlearned": "one training run of the unlearned model: how another would come out is not known",
    "full": "one full model: how another training would come out is not known",
    "oracle": "one retrained model: how another retraining would come out is not known",
    "pairs": "fewer than three retrained models: how other retrainings would come out is not known",
}


def _other_trainings(
    side: Side, value: float, ends: Bounds, errors: Mapping[str, SeedError]
) -> Interval | Undefined:
    for role, error in errors.items():
        if error.seeds < 2:
            return Undefined(undefined=_SINGLE[role])
    both = joined(value, ends, list(errors.values()), level=TWO_SIDED)
    seeds = ", ".join(
        f"{error.seeds} {'oracle' if role == 'pairs' else role}" for role, error in errors.items()
    )
    return _interval(side, both, _SEEDS_KIND, f"other trainings and other rows; seeds: {seeds}")


def _interval(side: Side, ends: Bounds, kind: str, condition: str) -> Interval:
    return Interval(
        low=ends.low,
        high=ends.high,
        kind=kind,
        level=0.95,
        draws=side.draws,
        seed=BOUND_SEEDS[side.view],
        condition=condition,
    )


def _unbounded(why: Undefined) -> Bounded:
    return _without_bounds(why, why)


def _without_bounds(value: float | Undefined, why: Undefined) -> Bounded:
    return Bounded(value=value, these_models=why, other_trainings=why, lower=why, upper=why)


def _p_value(
    value: float | Undefined, rows: WorstCase | Undefined, errors: Sequence[SeedError]
) -> float | Undefined:
    """The level at which the joined lower bound reaches 0, by bisection; one-sided."""
    if isinstance(value, Undefined):
        return value
    if isinstance(rows, Undefined):
        return rows
    if value <= 0:
        return max(0.5, rows.p_above())

    def above(p: float) -> bool:
        return joined_satterthwaite(value, rows.bounds(1 - p), errors, level=1 - p).low > 0

    low, high = 1.0 / (len(rows.lower) + 1), 0.5
    if above(low):
        return low
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if above(middle) else (middle, high)
    return high


def _least_gain(side: Side, gains: Floats, start: Floats, seeds: Sequence[SeedError]) -> float | Undefined:
    """The true gain that would be confirmed with probability sqrt(0.8), so that two views have 0.8 together.

    Small gains are seldom even: models retrained with most of the deleted rows gain on some rows a lot and on
    the others nothing. So a share of the rows is taken to make the whole way, the others none, beside what
    this model's own gains vary by; that is the least favourable way to spread a gain. The smallest share is
    sought at which the lower bound lies above 0 by that power's normal quantile times the standard error.
    """
    n = len(gains)
    if side.too_few is not None:
        return side.too_few
    power = NormalDist().inv_cdf(math.sqrt(BOTH_VIEWS_POWER))
    own = np.clip(gains - gains.mean(), -1.0, 1.0)
    # Rows in an order that has nothing to do with their values or units.
    place = np.argsort(np.random.default_rng(BOUND_SEEDS[side.view]).random(n), kind="stable").argsort()

    def made(share: float) -> Floats:
        return np.asarray(np.clip(share * n - place, 0.0, 1.0) * start)

    def shown(share: float) -> bool:
        values = np.clip(own + made(share), -1.0, 1.0)
        rows = side.rows(values, *_DIFFERENCES)
        assert isinstance(rows, WorstCase)
        value = float(values.mean())
        bound = joined_satterthwaite(value, rows.bounds(TWO_SIDED), seeds, level=TWO_SIDED).low
        return bound > power * float(values.std(ddof=1)) / math.sqrt(n)

    if not shown(1.0):
        return Undefined(undefined="these rows could not show even the whole way to retraining")
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if shown(middle) else (middle, high)
    return high * float(start.mean())


@dataclass(frozen=True, eq=False)
class Retained:
    """R with what a model does there. right (M, N): whether each model is right, with places as in the
    table's.

    confidence (M, N): the top probability. For language models `loss` (M, N), nats a token, in place of both.
    name: of the text, where several are judged each for itself.
    """

    side: Side
    right: NDArray[np.bool_] | None = None
    confidence: Floats | None = None
    loss: Floats | None = None
    name: str = ""


def retained_evidence(retained: Retained, places: Indices, margins: Margins) -> RetainedEvidence:
    """Harm on R: accuracy (or loss) against all full models, calibration, and distance to retraining."""
    side, table = retained.side, retained.side.table
    fulls, oracles = table.models.fulls, table.models.oracles
    if len(oracles) > 1:
        spreads = table.spread()
        excess = _bounded(
            side,
            table.distance(places) - spreads,
            _DIFFERENCES,
            lambda o, f, u: float(side.totals.excess(u, o)[0]),
            (oracles, fulls, places),
            roles=("pairs", "unlearned"),
            read=("pairs", "unlearned"),
        )
    else:
        excess = _unbounded(
            Undefined(undefined=NO_ORACLE if not len(oracles) else "one retrained model: no spread is known")
        )
    measure = "accuracy" if retained.loss is None else "loss"
    values = retained.right if retained.loss is None else retained.loss
    assert values is not None
    level = {
        name: float(values[group].mean()) if len(group) else Undefined(undefined=NO_ORACLE)
        for name, group in (("model", places), ("full", fulls), ("oracle", oracles))
    }
    change = _change(retained, places, fulls)
    calibration = None
    harmed: list[str] = []
    settled = True
    if retained.loss is None:
        calibration = _calibration(retained, places, fulls)
        harmed += _harm(change, -margins.accuracy, "accuracy")
        settled = not isinstance(change.lower, Undefined) and change.lower > -margins.accuracy
        rise = calibration.change
        if not isinstance(rise.lower, Undefined) and rise.lower > margins.calibration:
            harmed.append("calibration")
    else:
        if not isinstance(change.lower, Undefined) and change.lower > margins.loss:
            harmed.append("loss")
        settled = not isinstance(change.upper, Undefined) and change.upper < margins.loss
    oracle, full = level["oracle"], level["full"]
    return RetainedEvidence(
        name=retained.name,
        rows=table.rows,
        measure=measure,
        model=level["model"],
        full=full,
        oracle=oracle,
        change=change,
        retraining=oracle if isinstance(oracle, Undefined) else oracle - float(full),  # type: ignore[arg-type]
        calibration=calibration,
        excess=excess,
        harm="damaged" if harmed else "unharmed" if settled else "unsettled",
        harmed_by=tuple(harmed),
    )


def _harm(change: Bounded, margin: float, name: str) -> list[str]:
    return [name] if not isinstance(change.upper, Undefined) and change.upper < margin else []


def _change(retained: Retained, places: Indices, fulls: Indices) -> Bounded:
    """Change of accuracy or loss on R, model minus full models; its bounds are ends of a 95 % interval."""
    side = retained.side
    values = retained.right if retained.loss is None else retained.loss
    assert values is not None
    numbers = values.astype(np.float64)
    value = float(numbers[places].mean() - numbers[fulls].mean())
    if side.table.rows < LEAST_ROWS:
        assert side.too_few is not None
        return _without_bounds(value, side.too_few)
    means = numbers.mean(axis=1)
    errors = _over_seeds(lambda group: float(means[group].mean()), fulls, places)
    if retained.right is not None:
        pairs = [_newcombe(retained.right[u], retained.right[f]) for u in places for f in fulls]
        below = np.mean([p - bound.low for p, bound in pairs])
        above = np.mean([bound.high - p for p, bound in pairs])
        ends = Bounds(value - float(below), value + float(above))
        kind = "Newcombe's interval of a paired difference, averaged over pairs of models"
    else:
        # A loss has no upper end: t over documents, which the margins of language models are wide enough for.
        rows = numbers[places].mean(axis=0) - numbers[fulls].mean(axis=0)
        half = stdtrit(len(rows) - 1, TWO_SIDED) * rows.std(ddof=1) / math.sqrt(len(rows))
        ends = Bounds(value - half, value + half)
        kind = "t over documents"
    read = joined_satterthwaite(value, ends, list(errors.values()), level=TWO_SIDED)
    condition = "these models, other rows like these"
    return Bounded(
        value=value,
        these_models=_interval(side, ends, kind, condition).model_copy(update={"draws": 0, "seed": 0}),
        other_trainings=_other_trainings(side, value, ends, errors),
        lower=read.low,
        upper=read.high,
    )


def _over_seeds(
    statistic: Callable[[Indices], float], fulls: Indices, places: Indices
) -> dict[str, SeedError]:
    """Error over the training seeds of full and of unlearned models of a value that each role has alone."""

    def of(group: Indices) -> SeedError:
        if len(group) < 2:
            return SeedError(math.nan, 1)
        return jackknife(lambda kept: statistic(group[kept]), len(group))

    return {"full": of(fulls), "unlearned": of(places)}


def _newcombe(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> tuple[float, Bounds]:
    both, one, two = (
        int((first & second).sum()),
        int((first & ~second).sum()),
        int((~first & second).sum()),
    )
    n = len(first)
    return (one - two) / n, newcombe_paired(both, one, two, n - both - one - two, level=0.95)


def _calibration(retained: Retained, places: Indices, fulls: Indices) -> Calibration:
    """Change of the debiased root mean square calibration error.

    In each of ten equal-mass bins of the top probability the squared mean of (confidence - right), less its
    sampling variance: an unbiased estimate of the bin's squared miscalibration (Kumar, Liang and Ma 2019).
    The variance of its sum over bins depends on the true sum, so the interval holds every sum that lies
    within the normal quantile of the estimate under its own variance, as Wilson's interval of a proportion
    does; with the variance at the estimate it covers 83 to 91 % for overconfident models. The interval of the
    root is the root of the interval; those of the two models are joined in squares.
    """
    side = retained.side
    n = side.table.rows
    if n < LEAST_CALIBRATION_ROWS:
        few = Undefined(
            undefined=f"calibration needs at least {LEAST_CALIBRATION_ROWS} retained rows, there are {n}"
        )
        return Calibration(bins=BINS, model=few, full=few, change=_unbounded(few))
    assert retained.right is not None
    assert retained.confidence is not None
    errors_squared = np.zeros((len(retained.right), 3))
    for place in (*places, *fulls):
        errors_squared[place] = _squared_error(
            retained.confidence[place], retained.right[place].astype(np.float64)
        )
    model, full = (_root(errors_squared[group].mean(axis=0)) for group in (places, fulls))
    value = model[0] - full[0]
    ends = Bounds(
        value - math.hypot(model[0] - model[1].low, full[1].high - full[0]),
        value + math.hypot(model[1].high - model[0], full[0] - full[1].low),
    )

    def root(group: Indices) -> float:
        return _root(errors_squared[group].mean(axis=0))[0]

    errors = _over_seeds(root, fulls, places)
    read = joined_satterthwaite(value, ends, list(errors.values()), level=TWO_SIDED)
    kind = f"score interval of the debiased squared error in {BINS} equal-mass bins, root taken"
    change = Bounded(
        value=value,
        these_models=_interval(side, ends, kind, "these models, other rows like these").model_copy(
            update={"draws": 0, "seed": 0}
        ),
        other_trainings=_other_trainings(side, value, ends, errors),
        lower=read.low,
        upper=read.high,
    )
    return Calibration(bins=BINS, model=model[0], full=full[0], change=change)


def _squared_error(confidence: Floats, right: Floats) -> tuple[float, float, float]:
    """Debiased squared calibration error T in equal-mass bins, and a and c of its variance.

    A bin of n rows, variance v and weight w adds w^2 (4 s v / n + 2 v^2 / (n (n - 1))) at a true square s:
    a S + c for all bins together, S the true sum, where it lies among the bins as the squares that were seen,
    their sampling variance left in, so that a bin in which little can be seen counts.
    """
    order = np.argsort(confidence, kind="stable")
    parts = []
    for rows in np.array_split(order, BINS):
        gaps = confidence[rows] - right[rows]
        n = len(rows)
        parts.append((n / len(confidence), n, float(gaps.mean()) ** 2, float(gaps.var(ddof=1)) / n))
    weight, n, square, noise = np.array(parts).T
    seen = weight * np.maximum(square, noise)
    slope = 4 * float((seen * weight * noise).sum() / seen.sum()) if seen.sum() > 0 else 0.0
    constant = float((weight**2 * 2 * noise**2 * n / (n - 1)).sum())
    return float((weight * (square - noise)).sum()), slope, constant


def _root(error: Floats) -> tuple[float, Bounds]:
    """The root of a squared error (T, a, c), and of the ends of {S: |T - S| <= z sqrt(a S + c)}."""
    square, slope, constant = (float(part) for part in error)
    z = NormalDist().inv_cdf(TWO_SIDED)
    middle = square + z * z * slope / 2
    half = z * math.sqrt(max(0.0, slope * square + z * z * slope**2 / 4 + constant))
    return math.sqrt(max(square, 0.0)), Bounds(
        math.sqrt(max(middle - half, 0.0)), math.sqrt(max(middle + half, square, 0.0))
    )


def unit_evidence(
    sides: Sequence[Side], places: Indices, names: Mapping[str, str]
) -> tuple[list[UnitEvidence], int]:
    """Memory in every unit of the views given, with simultaneous lower bounds; and how many were judged.

    names: unit -> what it may be called; others are numbered. A unit is judged where it has at least two rows
    and retraining is shown to move it.
    """
    found: list[tuple[Side, str, ViewTable]] = []
    for side in sides:
        units = side.table.units
        for unit in sorted(set(units.tolist()) - {""}):
            here = side.table.take(units == unit)
            if here.rows >= 2:
                found.append((side, unit, here))
    judged: list[UnitEvidence] = []
    level = 1 - (1 - ONE_SIDED) / max(len(found), 1)
    for side, unit, table in found:
        place = sorted(set(side.table.units.tolist()) - {""}).index(unit) + 1
        part = Side(side.view, table, side.draws)
        memory, lower = _unit_memory(part, places, level)
        judged.append(
            UnitEvidence(
                view=side.view,
                name=names.get(unit, f"unit {place}"),
                rows=table.rows,
                memory=memory,
                lower=lower,
            )
        )
    return judged, sum(not isinstance(item.memory, Undefined) for item in judged)


def _unit_memory(part: Side, places: Indices, level: float) -> tuple[float | Undefined, float | Undefined]:
    table, totals = part.table, part.totals
    oracles = table.models.oracles
    if len(oracles) < LEAST_ORACLES:
        why = Undefined(undefined="fewer than three retrained models")
        return why, why
    way = jackknife(lambda kept: float(totals.move(oracles[kept])[0]), len(oracles))
    if float(totals.move()[0]) <= way.half_width(ONE_SIDED):
        why = Undefined(undefined="retraining is not shown to move this unit")
        return why, why
    values, support = _memory_rows(table, places)
    assert values is not None
    value = float(values.mean())
    rows = worst_case_bounds(values, *support, draws=part.draws, seed=BOUND_SEEDS[part.view])[0]
    error = jackknife(lambda kept: totals.memory(places, oracles[kept]), len(oracles))
    return value, joined_satterthwaite(value, rows.bounds(level), [error], level=level).low


def probe_evidence(name: str, sides: Sequence[Side], label: str, margins: Margins) -> ProbeEvidence:
    """Memory on F and G when every model was asked in another way: see `ProbeEvidence`.

    label: of the model under test, whose places in the probe's own tables count.
    """
    memory: dict[View, Bounded] = {}
    shown: list[bool | None] = []
    for side in sides:
        view = view_evidence(side, side.table.models.unlearned[label], margins)
        memory[side.view] = view.memory
        if view.visible is False:
            continue
        upper, lower = view.memory.upper, view.memory.lower
        if isinstance(upper, Undefined) or isinstance(lower, Undefined):
            shown.append(None)
        elif lower > margins.memory:
            shown.append(False)
        else:
            shown.append(True if upper <= margins.memory else None)
    holds = False if False in shown else True if shown and None not in shown else None
    return ProbeEvidence(name=name, memory=memory, holds=holds)


def worst_rows(side: Side, places: Indices) -> UnitEvidence | None:
    """Memory of the tenth of the rows that keep most, beyond what single oracles show of the others.

    With m >= 8 oracles: each is held against the rest in the same way; the lower bound is a prediction bound,
    t with m - 1 degrees of freedom. Several training seeds are held one by one and averaged: the mean of
    models scatters less than any of them, and would lie below single oracles for that alone. None with fewer
    oracles, or where retraining moves nothing.
    """
    table = side.table
    oracles = table.models.oracles
    m = len(oracles)
    if m < ORACLES_FOR_ROWS or float(table.move().mean()) <= 0:
        return None
    tenth = max(1, table.rows // 10)

    def worst(kept: Indices, which: Indices) -> float:
        way = table.move(kept)
        left = (way - table.made(which, kept)) / way.mean()
        return float(np.sort(left)[-tenth:].mean())

    own = np.array([worst(np.delete(oracles, i), oracles[i : i + 1]) for i in range(m)])
    seeds = [worst(oracles, places[i : i + 1]) for i in range(len(places))]
    value = float(np.mean(seeds)) - float(own.mean())
    error = SeedError(float(own.std(ddof=1) * math.sqrt(1 + 1 / m)), m)
    return UnitEvidence(
        view=side.view,
        name="the tenth of the rows that keeps most",
        rows=tenth,
        memory=value,
        lower=value - error.half_width(ONE_SIDED),
    )
