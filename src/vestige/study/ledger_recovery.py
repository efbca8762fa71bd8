"""Rows of a ledger from recovery records: contrasts, curves, controls, fresh heads. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vestige.attacks.records import (
    UNSEEN,
    RecoveryCurve,
    RecoveryRecord,
    RecoverySetting,
    Threshold,
)
from vestige.contracts import Estimate, Floats, Interval, Undefined
from vestige.files import read_record
from vestige.study.ledger_rows import ControlRow, CurveRow, FreshHeadRow, RecoveryRow
from vestige.study.ledger_run import REMEDY, Filled, Run, bundle_name, model_names, number_of
from vestige.study.recovery_work import read_parquet

__all__ = [
    "control_rows",
    "curve_rows",
    "fresh_head_rows",
    "recoveries",
    "recovery_rows",
    "start_probabilities",
]

UNLEARNED, ORACLE, FULL = "unlearned", "oracle", "full"
CONTRASTS = ("g_abs", "g_adj", "g_headroom")
CURVE_COLUMNS = ("population", "checkpoint", "unit", "k", "adapt_seed", "t", "p_gold")


def recoveries(runs: Sequence[Run]) -> list[tuple[Run, RecoveryRecord]]:
    """Every recovery record. Raises InputError naming file and field."""
    return [
        (run, read_record(path, RecoveryRecord, REMEDY))
        for run in runs
        for path in sorted(run.root.glob("recovery/*.json"))
    ]


def _common(record: RecoveryRecord) -> dict[str, Any]:
    return {
        "model": model_names(record.model)[0],
        "bundle": bundle_name(record.bundle),
        "seed": record.seed,
        "method": record.label,
        "origin": f"recovery/{record.bundle}-s{record.seed} ({record.label})",
    }


def _curve(setting: RecoverySetting, which: str) -> RecoveryCurve | None:
    """The curve of a checkpoint; the unlearned one is the one that is neither full nor oracle."""
    if which != UNLEARNED:
        return setting.curves.get(which)
    return next((curve for name, curve in setting.curves.items() if name not in (FULL, ORACLE)), None)


def recovery_rows(records: Sequence[tuple[Run, RecoveryRecord]]) -> list[RecoveryRow]:
    """Contrasts on unseen rows, a row a budget and adaptation seed."""
    found: list[RecoveryRow] = []
    for _, record in records:
        for setting in record.settings:
            if setting.population != UNSEEN:
                continue
            filled = Filled()
            for column, name in (("g_abs", "g_abs"), ("g_adj", "g_adj"), ("g_h", "g_headroom")):
                filled.put(
                    column,
                    setting.contrasts.get(name),
                    row=True,
                    unit="_class" if column == "g_adj" else "",
                )
            for short, which in (("u", UNLEARNED), ("o", ORACLE)):
                curve = _curve(setting, which)
                filled.values[f"p0_{short}"] = curve.start if curve else None
                filled.values[f"a_abs_{short}"] = curve.area if curve else None
                filled.values[f"a_adj_{short}"] = curve.adjusted if curve else None
                for name, level in (("t50", 0.5), ("t80", 0.8)):
                    reached = _threshold(curve, level)
                    known = reached is not None and not reached.censored
                    filled.values[f"{name}_{short}"] = reached.update if known and reached else None
                    filled.values[f"{name}_{short}_censored"] = reached.censored if reached else None
            found.append(
                RecoveryRow(
                    id=len(found) + 1,
                    k=setting.k,
                    adapt_seed=setting.adapt_seed,
                    identity_residual=setting.identity_residual,
                    g_h_row_mean=number_of(setting.contrasts.get("g_row_headroom")),
                    printed=filled.printed,
                    **_common(record),
                    **filled.values,
                )
            )
    return found


def _threshold(curve: RecoveryCurve | None, level: float) -> Threshold | None:
    if curve is None:
        return None
    return next((item for item in curve.reached if abs(item.threshold - level) < 1e-9), None)


def curve_rows(records: Sequence[tuple[Run, RecoveryRecord]]) -> list[CurveRow]:
    """Mean gold probability and accuracy of every checkpoint at every evaluation, all populations."""
    found = []
    for _, record in records:
        for setting in record.settings:
            for name, curve in setting.curves.items():
                for place, t in enumerate(record.updates):
                    found.append(
                        CurveRow(
                            population=setting.population,
                            k=setting.k,
                            adapt_seed=setting.adapt_seed,
                            checkpoint=name if name in (FULL, ORACLE) else UNLEARNED,
                            t=t,
                            p_gold=curve.gold_probability[place],
                            accuracy=curve.accuracy[place],
                            rows=setting.rows,
                            **_common(record),
                        )
                    )
    return found


def control_rows(records: Sequence[tuple[Run, RecoveryRecord]]) -> list[ControlRow]:
    """Contrasts by setting, pooled, and by class; direct contrasts between populations."""
    found = []
    for run, record in records:
        common = _common(record)
        for setting in record.settings:
            for name in CONTRASTS:
                found.append(
                    _control(
                        f"{name} {setting.population}",
                        setting.contrasts.get(name),
                        common,
                        k=setting.k,
                        adapt_seed=setting.adapt_seed,
                        rows=setting.rows,
                    )
                )
        for pooled in record.pooled:
            for name in CONTRASTS:
                found.append(_control(f"{name} {pooled.population}", pooled.contrasts.get(name), common))
        for direct in record.controls:
            estimate = (
                Estimate(value=direct.difference)
                if isinstance(direct.difference, Undefined)
                else direct.difference
            )
            found.append(_control(direct.name, estimate, common, k=direct.k, adapt_seed=direct.adapt_seed))
        for unit, name, value in _by_unit(run, record):
            found.append(_control(f"{name} {UNSEEN}", Estimate(value=value), common, unit=unit))
    return found


def _control(
    quantity: str,
    estimate: Estimate | None,
    common: Mapping[str, Any],
    *,
    unit: str | None = None,
    k: int | None = None,
    adapt_seed: int | None = None,
    rows: int | None = None,
) -> ControlRow:
    row = estimate.row if estimate and isinstance(estimate.row, Interval) else None
    units = estimate.unit if estimate and isinstance(estimate.unit, Interval) else None
    undefined = estimate is not None and isinstance(estimate.value, Undefined)
    return ControlRow(
        quantity=quantity,
        unit=unit,
        k=k,
        adapt_seed=adapt_seed,
        value=number_of(estimate),
        lo=row.low if row else None,
        hi=row.high if row else None,
        class_lo=units.low if units else None,
        class_hi=units.high if units else None,
        rows=rows,
        printed={"value": str(estimate.value)} if undefined and estimate else {},
        **common,
    )


def _by_unit(run: Run, record: RecoveryRecord) -> Iterator[tuple[str, str, float]]:
    """(class, contrast, value) of each class over all settings, from the table of curves.

    Absolute: weighted mean over updates of the difference of mean gold probabilities; adjusted: from where
    each checkpoint starts; headroom: each divided by 1 - its start.
    """
    path = run.root / record.curves if record.curves else None
    if path is None or not path.is_file():
        return
    table = read_parquet(path, CURVE_COLUMNS)
    table = table[table["population"] == UNSEEN]
    roles = table["checkpoint"].where(table["checkpoint"].isin([FULL, ORACLE]), UNLEARNED)
    means = (
        table.assign(checkpoint=roles)
        .groupby(["unit", "checkpoint", "k", "adapt_seed", "t"])["p_gold"]
        .mean()
        .unstack("t")
    )
    weights = np.asarray(record.weights, dtype=np.float64)
    for number, unit in enumerate(sorted(set(table["unit"])), start=1):
        sides = {}
        for role in (UNLEARNED, ORACLE):
            curves = means.loc[unit, role][list(record.updates)].to_numpy(dtype=np.float64)
            area, start = curves @ weights, curves[:, 0]
            sides[role] = (area, area - start, (area - start) / np.where(start < 1, 1 - start, np.nan))
        for name, mine, theirs in zip(CONTRASTS, sides[UNLEARNED], sides[ORACLE], strict=True):
            value = float(np.mean(mine - theirs))
            if np.isfinite(value):
                yield f"class {number}", name, value


def fresh_head_rows(records: Sequence[tuple[Run, RecoveryRecord]]) -> list[FreshHeadRow]:
    """New heads on frozen backbones, a row a checkpoint and initialisation; forgotten rows are those of G."""
    found = []
    for _, record in records:
        for item in record.fresh_heads:
            found.append(
                FreshHeadRow(
                    checkpoint=item.checkpoint if item.checkpoint in (FULL, ORACLE) else UNLEARNED,
                    initialisation=item.initialisation,
                    forgotten_accuracy=number_of(item.metrics.get("forgotten_accuracy.G")),
                    gold_p=number_of(item.metrics.get("gold_probability.G")),
                    retained_accuracy=number_of(item.metrics.get("accuracy.R")),
                    **_common(record),
                )
            )
    return found


def start_probabilities(
    records: Sequence[tuple[Run, RecoveryRecord]],
) -> dict[tuple[str, str], Floats]:
    """(model and method, population) -> sorted gold probabilities, unlearned model, before any update."""
    found: dict[tuple[str, str], Floats] = {}
    for run, record in records:
        path = run.root / record.curves if record.curves else None
        if path is None or not path.is_file():
            continue
        table = read_parquet(path, CURVE_COLUMNS)
        settings = table.loc[table["t"] == 0, ["k", "adapt_seed"]].drop_duplicates()
        if settings.empty:
            continue
        k, seed = settings.sort_values(["k", "adapt_seed"]).iloc[0]
        start = table[
            (table["t"] == 0)
            & ~table["checkpoint"].isin([FULL, ORACLE])
            & (table["k"] == k)
            & (table["adapt_seed"] == seed)
        ]
        for population, rows in start.groupby("population"):
            name = f"{model_names(record.model)[0]}, {record.label}"
            found[name, str(population)] = np.sort(rows["p_gold"].to_numpy(dtype=np.float64))
    return found
