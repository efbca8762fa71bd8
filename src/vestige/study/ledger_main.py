"""Rows of the two main-text tables of a ledger. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from vestige.contracts import Interval, Record, Undefined
from vestige.files import read_record
from vestige.study.ledger_measured import Evaluation, Measured, evaluations
from vestige.study.ledger_rows import ClincRow, MainTable2Row, MainTable3Row
from vestige.study.ledger_run import REMEDY, Filled, Run, bundle_name
from vestige.study.summary_records import MethodReplication, PooledSummary, ReplicationSummary

__all__ = ["main_table2_rows", "main_table3_rows", "pooled_gain"]

S = TypeVar("S", bound=Record)
Summaries = Mapping[str, Sequence[tuple[Run, Any]]]
"""Name of a summary -> the runs that have it, with its contents."""

SETTINGS = {"transfer": "frozen_transfer", "confirmation": "tuned", "replication": "tuned"}


def main_table2_rows(items: Sequence[Measured], summaries: Summaries) -> list[MainTable2Row]:
    """Phase 1: configurations of a confirmation. Phase 2: the hierarchical summaries of replications."""
    found = []
    for one in evaluations(items):
        item, model = one.item, one.model
        if item.record.stage != "confirmation" or item.granularity != "class":
            continue
        if item.dataset == "clinc150" or item.labels != "semantic":
            continue
        filled = Filled()
        for view in ("f", "g"):
            name = view.upper()
            filled.take(item.full, **{f"d0_{view}": f"displacement.{name}"})
            filled.put(f"gain_{view}", model.metrics.get(f"gain.{name}"), row=True)
            filled.take(model, **{f"progress_{view}": f"progress.{name}"})
        p = model.p_value.get("holm")
        found.append(
            MainTable2Row(
                phase=1,
                method=model.label,
                seeds=str(item.seed),
                bundles=item.bundle,
                decision=_capital(str(model.decision)),
                p_holm=None if isinstance(p, Undefined) else p,
                origin=item.place,
                printed=filled.printed,
                **filled.values,
            )
        )
    for run, _ in summaries.get("replication", ()):
        summary = _summary(ReplicationSummary, run, "replication")
        if not _about(run, "clinc150") and run.plan.get("stage") in ("confirmation", "replication"):
            found += [_replicated(item) for item in summary.methods if _whole_grid(item)]
    return found


def _whole_grid(item: MethodReplication) -> bool:
    """Whether a candidate was evaluated on every one of several cells, each seed on each bundle."""
    cells = len(item.views[0].cells) if item.views else 0
    return not item.control and cells > 1 and cells == len(item.seeds) * len(item.bundles)


def _about(run: Run, dataset: str) -> bool:
    """Whether a run deletes classes of this data set under semantic labels; any other is not the table's."""
    return str(run.json("data.json", {}).get("name")) == dataset or not _plain(run)


def _plain(run: Run) -> bool:
    granularity = (run.plan.get("deletion") or {}).get("granularity", "class")
    return bool(granularity == "class" and run.plan.get("rendering", "semantic") == "semantic")


def _summary(kind: type[S], run: Run, name: str) -> S:
    """A summary of a run. Raises InputError naming file and field."""
    return read_record(run.root / "summaries" / f"{name}.json", kind, REMEDY)


def _replicated(item: MethodReplication) -> MainTable2Row:
    """Phase 2: one method over its seeds and bundles."""
    values: dict[str, Any] = {}
    for view in ("f", "g"):
        found = next((one for one in item.views if one.view == view.upper()), None)
        values[f"gain_{view}"] = found.estimate if found else None
        values |= _interval(f"gain_{view}", found.interval if found else None)
    return MainTable2Row(
        phase=2,
        method=item.label,
        seeds=";".join(map(str, item.seeds)),
        bundles=";".join(map(bundle_name, item.bundles)),
        d0_f=None,
        d0_g=None,
        progress_f=None,
        progress_g=None,
        decision=_capital(str(item.decision)),
        origin="summaries/replication.json",
        printed={},
        **values,
    )


def _interval(column: str, found: Interval | Undefined | None) -> dict[str, float | None]:
    known = found if isinstance(found, Interval) else None
    return {f"{column}_lo": known.low if known else None, f"{column}_hi": known.high if known else None}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def main_table3_rows(items: Sequence[Measured], summaries: Summaries) -> list[MainTable3Row]:
    """CLINC150 by bundle: frozen transfer, tuned, pooled intents, opaque labels; one candidate a record."""
    groups: dict[str, list[MainTable3Row]] = {"frozen_transfer": [], "tuned": [], "opaque": []}
    for one in _clinc(items):
        item, model = one.item, one.model
        opaque = item.labels == "opaque"
        setting = "tuned" if opaque else SETTINGS[one.stage]
        words = "Opaque" if opaque else {"tuned": "Tuned"}.get(setting, "Frozen transfer")
        filled = Filled()
        for view in ("f", "g"):
            filled.put(f"gain_{view}", model.metrics.get(f"gain.{view.upper()}"), row=True)
            filled.take(model, **{f"progress_{view}": f"progress.{view.upper()}"})
        groups["opaque" if opaque else setting].append(
            MainTable3Row(
                configuration=f"{words}, {item.bundle}/s{item.seed}",
                setting=setting,
                labels=item.labels,
                bundle=item.bundle,
                seed=item.seed,
                origin=item.place,
                printed=filled.printed,
                **filled.values,
            )
        )
    if not any(groups.values()):
        return []
    pooled = [
        row
        for run, _ in summaries.get("pooled", ())
        if str(run.json("data.json", {}).get("name")) == "clinc150"
        and _plain(run)
        and SETTINGS.get(str(run.plan.get("stage"))) == "tuned"
        for row in _pooled(_summary(PooledSummary, run, "pooled"))
    ]
    return [*groups["frozen_transfer"], *groups["tuned"], *pooled, *groups["opaque"]]


def _clinc(items: Sequence[Measured]) -> list[Evaluation]:
    """Evaluations of one method and one model on CLINC150's classes, those of most of the tuned ones, else of
    the first: semantic ones that transferred or were tuned there, and opaque ones."""
    known = [
        one
        for one in evaluations(items)
        if one.item.dataset == "clinc150"
        and one.item.granularity == "class"
        and not one.model.control
        and (one.item.labels == "opaque" or one.stage in SETTINGS)
    ]
    whose = [
        (one.item.key, one.model.method or one.model.label)
        for one in sorted(known, key=lambda one: SETTINGS.get(one.stage) != "tuned")
    ]
    tuned = [
        (one.item.key, one.model.method or one.model.label)
        for one in known
        if SETTINGS.get(one.stage) == "tuned" and one.item.labels == "semantic"
    ]
    if not whose:
        return []
    most = max(tuned, key=tuned.count) if tuned else whose[0]
    chosen = [one for one in known if (one.item.key, one.model.method or one.model.label) == most]
    return sorted(chosen, key=lambda one: (one.item.primary is False, one.item.seed, one.item.bundle))


def _pooled(summary: PooledSummary) -> list[MainTable3Row]:
    """Pooled intents: a row a candidate method, with the interval over all intents drawn together."""
    found = []
    for item in summary.methods:
        if item.control or not item.views or item.views[0].bundles < 2:
            continue
        values: dict[str, Any] = {}
        for one in item.views:
            column = f"gain_{one.view.lower()}"
            values[column] = one.estimate
            values |= _interval(column, one.unit)
        found.append(
            MainTable3Row(
                configuration=f"Pooled, {item.views[0].units} intents ({item.label})",
                setting="pooled",
                labels="semantic",
                bundle=None,
                seed=None,
                progress_f=None,
                progress_g=None,
                origin="summaries/pooled.json",
                printed={},
                **values,
            )
        )
    return found


def pooled_gain(rows: Sequence[ClincRow], view: str) -> float | None:
    """Mean over bundles of the seed-averaged gain of confirmed and replicated configurations.

    A mean of row gains: without the intents of each row, intents cannot be weighted.
    """
    by_bundle: dict[str, list[float]] = {}
    for row in rows:
        value = row.gain_f if view == "f" else row.gain_g
        if row.stage in ("confirmation", "replication") and value is not None:
            by_bundle.setdefault(row.bundle, []).append(value)
    if not by_bundle:
        return None
    return sum(sum(values) / len(values) for values in by_bundle.values()) / len(by_bundle)
