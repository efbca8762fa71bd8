"""From the tables of finished adaptations to contrasts with intervals. No torch.

Row draws: one set for each population, shared by checkpoints, evaluations, budgets and adaptation seeds. Unit
draws: one set for all populations, by unit index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vestige.attacks.reading import LEAST, LevelReading, beyond_retraining, level_reading
from vestige.attacks.records import (
    POPULATIONS,
    SEEN,
    SETTINGS_CAVEAT,
    SWAP,
    UNSEEN,
    DirectContrast,
    FreshHeadResult,
    PooledRecovery,
    Population,
    RecoveryCurve,
    RecoverySetting,
    Threshold,
)
from vestige.contracts import Estimate, Floats, Interval, RowTerms, Undefined
from vestige.metrics.recovery import (
    THRESHOLDS,
    average,
    contrast_terms,
    first_reached,
    level_terms,
    recovery_contrasts,
    row_headroom_terms,
)
from vestige.statistics import (
    ROW_SEEDS,
    UNIT_SEED_OFFSET,
    BootstrapResult,
    bootstrap_rows,
    bootstrap_two_views,
    bootstrap_units,
    bootstrap_units_two_views,
    estimate,
    mean_of,
)
from vestige.statistics.terms import ReasonedTerms, divide

__all__ = ["CHECKPOINTS", "SEEDS", "Curves", "curves_of", "fresh_head_results", "measured", "reading_of"]

CHECKPOINTS = ("full", "unlearned", "oracle")
SEEDS: Mapping[str, int] = {
    UNSEEN: ROW_SEEDS["G"],
    SEEN: ROW_SEEDS["F"],
    SWAP: ROW_SEEDS["R"],
    "units": ROW_SEEDS["G"] + UNIT_SEED_OFFSET,
}
"""Unseen rows are rows of G, seen ones of F, those of the label swap of R; units are drawn once for all."""
CONTRASTS = ("g_abs", "g_adj", "g_headroom")
LEVELS = ("level", "start_level", "rise")
LEAST_ROWS = 10

Pair = tuple[int, int]


@dataclass(frozen=True)
class Curves:
    """One population. rows (N,): ids that are drawn from, sorted. unit_index (N,): `000`, `001`, ... p,
    correct: by (pair, checkpoint), rows x evaluations (N, T), 0 at rows that a setting does not score; scored
    (N,): by pair, which it does."""

    rows: tuple[str, ...]
    unit_index: tuple[str, ...]
    p: dict[tuple[Pair, str], Floats]
    correct: dict[tuple[Pair, str], Floats]
    scored: dict[Pair, NDArray[np.bool_]]


@dataclass(frozen=True)
class Measured:
    """What the tables give."""

    settings: tuple[RecoverySetting, ...]
    pooled: tuple[PooledRecovery, ...]
    controls: tuple[DirectContrast, ...]


def curves_of(
    table: pd.DataFrame, units: Mapping[str, Sequence[str]], drawn_from: Mapping[str, Mapping[str, str]]
) -> dict[Population, Curves]:
    """The long table of curves by population. units: population -> unit names in the order of the index.
    drawn_from: population -> row id -> unit of every row that its intervals draw from."""
    found: dict[Population, Curves] = {}
    for name in POPULATIONS:
        part = table[table["population"] == name]
        if part.empty:
            continue
        place = {unit: f"{i:03d}" for i, unit in enumerate(units[name])}
        rows = sorted(drawn_from[name])
        p: dict[tuple[Pair, str], Floats] = {}
        correct: dict[tuple[Pair, str], Floats] = {}
        scored: dict[Pair, NDArray[np.bool_]] = {}
        key_of: Any
        for key_of, group in part.groupby(["k", "adapt_seed", "checkpoint"]):
            gold, right = (
                group.pivot(index="row_id", columns="t", values=column)
                .reindex(rows)
                .to_numpy(dtype=np.float64)
                for column in ("p_gold", "correct")
            )
            pair = (int(key_of[0]), int(key_of[1]))
            there = np.isfinite(gold).all(axis=1)
            if (scored.setdefault(pair, there) != there).any() or there.sum() != group["row_id"].nunique():
                raise ValueError(f"population '{name}': other rows at {pair}, {key_of[2]}")
            key = (pair, str(key_of[2]))
            p[key], correct[key] = np.nan_to_num(gold), np.nan_to_num(right)
        index = tuple(place[drawn_from[name][row]] for row in rows)
        found[name] = Curves(tuple(rows), index, p, correct, scored)
    return found


def measured(
    curves: Mapping[Population, Curves],
    updates: Sequence[int],
    pairs: Sequence[Pair],
    exposed: Mapping[str, Mapping[Pair, int]],
    *,
    draws: int,
    condition: str,
    missing: Mapping[str, str],
) -> Measured:
    """Contrasts of every population and setting, pooled ones, and direct contrasts between populations.

    exposed: population -> pair -> rows that the adaptation saw. missing: population -> why it is not there.
    """
    settings: list[RecoverySetting] = []
    pooled: list[PooledRecovery] = []
    for name, item in curves.items():
        terms: dict[str, RowTerms] = {}
        for pair in pairs:
            u, o, on = item.p[pair, "unlearned"], item.p[pair, "oracle"], item.scored[pair]
            made = contrast_terms(updates, u, o, on) | level_terms(u, o, on)
            made["g_row_headroom"] = row_headroom_terms(updates, u, o, on)
            terms |= {_key(metric, *pair): stat for metric, stat in made.items()}
        for metric in (*CONTRASTS, *LEVELS, "g_row_headroom"):
            terms[_key(metric, None, None)] = average([terms[_key(metric, *pair)] for pair in pairs])
        by_row = bootstrap_rows(terms, draws=draws, seed=SEEDS[name])
        by_unit = bootstrap_units(terms, item.unit_index, draws=draws, seed=SEEDS["units"])

        def estimates(
            pair: Group,
            by_row: dict[str, BootstrapResult] = by_row,
            by_unit: dict[str, BootstrapResult] = by_unit,
        ) -> dict[str, Estimate]:
            return {
                metric: estimate(
                    by_row[_key(metric, *pair)],
                    by_unit[_key(metric, *pair)],
                    condition=_condition(condition, *pair),
                    note="mean of row ratios" if metric == "g_row_headroom" else "",
                )
                for metric in (*CONTRASTS, *LEVELS, "g_row_headroom")
            }

        for pair in pairs:
            on = item.scored[pair]
            settings.append(
                RecoverySetting(
                    population=name,
                    k=pair[0],
                    adapt_seed=pair[1],
                    exposed=exposed[name][pair],
                    rows=int(on.sum()),
                    units=len({unit for unit, there in zip(item.unit_index, on, strict=True) if there}),
                    curves={
                        checkpoint: _curve(
                            updates, item.p[pair, checkpoint][on], item.correct[pair, checkpoint][on]
                        )
                        for checkpoint in CHECKPOINTS
                    },
                    contrasts=estimates(pair),
                    identity_residual=recovery_contrasts(
                        updates, item.p[pair, "unlearned"][on], item.p[pair, "oracle"][on]
                    ).identity_residual,
                )
            )
        pooled.append(PooledRecovery(population=name, settings=len(pairs), contrasts=estimates((None, None))))
    return Measured(
        tuple(settings), tuple(pooled), _direct(curves, updates, pairs, draws, condition, missing)
    )


def reading_of(pooled: Sequence[PooledRecovery]) -> LevelReading | Undefined:
    """What recovery showed of the unlearned model, from the pooled levels and their row intervals.

    A difference counts from 0.01 on and where its interval lies above 0; the level after the attack only
    where it or the level before lies further above the retrained model's than another seed's would. The label
    swap is where there is nothing to remember: a model that ends as far above the retrained one there learns
    faster, and needs no memory. Undefined without unseen rows, or with fewer than ten of them.
    """
    by_name = {item.population: item.contrasts for item in pooled}
    unseen, swap = by_name.get(UNSEEN), by_name.get(SWAP)
    if unseen is None:
        return Undefined(undefined="no unseen rows were scored")
    if (rows := unseen["level"].rows or 0) < LEAST_ROWS:
        return Undefined(undefined=f"{rows} unseen rows, needed {LEAST_ROWS}")
    elsewhere = (
        swap is not None and _shown(swap["level"]) and _value(swap["level"]) >= _value(unseen["level"])
    )
    return level_reading(
        rose=_shown(unseen["rise"]),
        above=_shown(unseen["level"]) and beyond_retraining(_value(unseen["level"]), _start(unseen)),
        above_before=_shown(unseen["start_level"]),
        elsewhere=elsewhere,
    )


def _shown(item: Estimate) -> bool:
    return _value(item) >= LEAST and isinstance(item.row, Interval) and item.row.low > 0


def _start(contrasts: Mapping[str, Estimate]) -> float:
    """Levels before the attack, unlearned less oracle: what `g_adj` takes off `g_abs`."""
    return _value(contrasts["g_abs"]) - _value(contrasts["g_adj"])


def _value(item: Estimate) -> float:
    return item.value if isinstance(item.value, float) else float("-inf")


def _direct(
    curves: Mapping[Population, Curves],
    updates: Sequence[int],
    pairs: Sequence[Pair],
    draws: int,
    condition: str,
    missing: Mapping[str, str],
) -> tuple[DirectContrast, ...]:
    """specificity = R_unseen - R_swap, exposure = R_seen - R_unseen; R is the adjusted advantage."""
    found = []
    wanted: tuple[tuple[Literal["specificity", "exposure"], Population, Population], ...] = (
        ("specificity", UNSEEN, SWAP),
        ("exposure", SEEN, UNSEEN),
    )
    for name, first, second in wanted:
        lacking = [side for side in (first, second) if side not in curves]
        if lacking:
            why = missing.get(lacking[0], "was not evaluated")
            found.append(
                DirectContrast(
                    name=name,
                    difference=Undefined(undefined=f"no population '{lacking[0]}': {why}"),
                )
            )
            continue
        groups = _groups(pairs)
        left = {_key("", *group): _side(curves[first], updates, own, 0) for group, own in groups.items()}
        right = {_key("", *group): _side(curves[second], updates, own, 2) for group, own in groups.items()}
        by_row = bootstrap_two_views(
            left, right, draws=draws, seed_first=SEEDS[first], seed_second=SEEDS[second]
        )
        by_unit = bootstrap_units_two_views(
            left,
            right,
            curves[first].unit_index,
            curves[second].unit_index,
            draws=draws,
            seed=SEEDS["units"],
        )
        for group in groups:
            key = _key("", *group)
            found.append(
                DirectContrast(
                    name=name,
                    k=group[0],
                    adapt_seed=group[1],
                    difference=estimate(by_row[key], by_unit[key], condition=_condition(condition, *group)),
                    caveat="" if group[1] is not None else SETTINGS_CAVEAT,
                )
            )
    return tuple(found)


Group = tuple[int | None, int | None]
"""A budget and an adaptation seed; None: pooled over them."""


def _groups(pairs: Sequence[Pair]) -> dict[Group, list[Pair]]:
    """Every setting, every budget over its adaptation seeds, and all together -> the settings in it."""
    found: dict[Group, list[Pair]] = {pair: [pair] for pair in pairs}
    for k in dict.fromkeys(k for k, _ in pairs):
        found[k, None] = [pair for pair in pairs if pair[0] == k]
    found[None, None] = list(pairs)
    return found


def _side(item: Curves, updates: Sequence[int], pairs: Sequence[Pair], place: int) -> RowTerms:
    """Half of a difference of two means of adjusted advantages, each setting over the rows that it scores,
    averaged over settings: four columns a setting, value and 1 in `place` and `place + 1` of them."""
    parts = []
    for pair in pairs:
        on = item.scored[pair]
        terms = contrast_terms(updates, item.p[pair, "unlearned"], item.p[pair, "oracle"], on)["g_adj"].terms
        columns = np.zeros((len(terms), 4))
        columns[:, place] = (terms[:, 0] - terms[:, 2]) - (terms[:, 1] - terms[:, 3])
        columns[:, place + 1] = on
        parts.append(columns)

    def finish(sums: Floats) -> Floats:
        each = sums.reshape(*sums.shape[:-1], len(pairs), 4)
        gaps = divide(each[..., 0], each[..., 1]) - divide(each[..., 2], each[..., 3])
        return np.asarray(gaps.mean(axis=-1))

    return ReasonedTerms(np.hstack(parts), finish, "a population is empty")


def _curve(updates: Sequence[int], p: Floats, correct: Floats) -> RecoveryCurve:
    own = recovery_contrasts(updates, p, p)
    mean = p.mean(axis=0)
    reached = [first_reached(updates, mean, threshold) for threshold in THRESHOLDS]
    return RecoveryCurve(
        gold_probability=tuple(mean.tolist()),
        accuracy=tuple(correct.mean(axis=0).tolist()),
        start=own.start_unlearned,
        area=own.area_unlearned,
        adjusted=own.adjusted_unlearned,
        headroom=own.headroom_unlearned,
        reached=tuple(
            Threshold(threshold=item.threshold, update=int(item.update), censored=item.censored)
            for item in reached
        ),
    )


def _key(metric: str, k: int | None, seed: int | None) -> str:
    return f"{metric} k{k} s{seed}"


def _condition(condition: str, k: int | None, seed: int | None) -> str:
    if k is None:
        return f"{condition}, these checkpoints, the settings adapted"
    if seed is None:
        return f"{condition}, these checkpoints, k {k}, the adaptation seeds used"
    return f"{condition}, these checkpoints, k {k}, adaptation seed {seed}"


def fresh_head_results(
    checkpoint: str, table: pd.DataFrame, initial: Sequence[str], trained: int, draws: int, condition: str
) -> tuple[FreshHeadResult, ...]:
    """One result an initialisation. table: initialisation, view, row_id, unit, p_gold, correct."""
    found = []
    number: Any
    for number, group in table.groupby("initialisation"):
        metrics: dict[str, Estimate] = {}
        for view in ("F", "G", "R"):
            rows = group[group["view"] == view].sort_values("row_id")
            right = "accuracy" if view == "R" else "forgotten_accuracy"
            terms = {
                f"{right}.{view}": mean_of(rows["correct"].to_numpy(dtype=np.float64)),
                f"gold_probability.{view}": mean_of(rows["p_gold"].to_numpy(dtype=np.float64)),
            }
            by_row = bootstrap_rows(terms, draws=draws, seed=ROW_SEEDS[view])
            by_unit = bootstrap_units(
                terms,
                [str(unit) for unit in rows["unit"]],
                draws=draws,
                seed=ROW_SEEDS[view] + UNIT_SEED_OFFSET,
            )
            metrics |= {
                name: estimate(
                    by_row[name],
                    by_unit[name],
                    condition=f"{condition}, this checkpoint, initialisation {number}",
                )
                for name in terms
            }
        found.append(
            FreshHeadResult(
                checkpoint=checkpoint,
                initialisation=int(number),
                initial_sha256=initial[int(number)],
                trained_rows=trained,
                metrics=metrics,
            )
        )
    return tuple(found)
