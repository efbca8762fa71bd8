"""Rows of the two main-text tables of a ledger. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vestige.contracts import ModelAssessment, Undefined
from vestige.study.ledger_measured import Measured
from vestige.study.ledger_rows import ClincRow, MainTable2Row, MainTable3Row
from vestige.study.ledger_run import Filled

__all__ = ["main_table2_rows", "main_table3_rows", "pooled_gain"]

SETTINGS = {"transfer": "frozen_transfer", "confirmation": "tuned", "replication": "tuned"}


def main_table2_rows(
    items: Sequence[Measured], summaries: Mapping[str, Sequence[Any]]
) -> list[MainTable2Row]:
    """Phase 1: configurations of a confirmation. Phase 2: the hierarchical summaries of replications."""
    found = []
    for item in items:
        record = item.record
        if record.candidates != "S0" or record.stage != "confirmation" or item.granularity != "class":
            continue
        if item.dataset == "clinc150" or item.labels != "semantic" or not record.has_oracle:
            continue
        for model in item.tested:
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
    for summary in summaries.get("replication", ()):
        found += _replications(summary)
    return found


def _replications(summary: Mapping[str, Any]) -> list[MainTable2Row]:
    """Phase 2 from `summaries/replication.json`."""
    found = []
    for method in summary.get("methods", ()):
        views = {item["view"]: item for item in method.get("views", ())}
        values: dict[str, Any] = {}
        for view in ("f", "g"):
            item = views.get(view.upper(), {})
            value = item.get("estimate")
            values[f"gain_{view}"] = value if isinstance(value, int | float) else None
            interval = item.get("interval") or {}
            values[f"gain_{view}_lo"] = interval.get("low")
            values[f"gain_{view}_hi"] = interval.get("high")
        found.append(
            MainTable2Row(
                phase=2,
                method=str(method.get("label") or method.get("method")),
                seeds=";".join(map(str, method.get("seeds", ()))),
                bundles=";".join(f"b{item}" for item in method.get("bundles", ())),
                d0_f=None,
                d0_g=None,
                progress_f=None,
                progress_g=None,
                decision=_capital(str(method.get("decision") or "undefined")),
                origin="summaries/replication.json",
                **values,
            )
        )
    return found


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def main_table3_rows(
    items: Sequence[Measured], summaries: Mapping[str, Sequence[Any]]
) -> list[MainTable3Row]:
    """CLINC150 by bundle: frozen transfer, tuned, pooled intents, opaque labels; one candidate a record."""
    groups: dict[str, list[MainTable3Row]] = {"frozen_transfer": [], "tuned": [], "opaque": []}
    for item in items:
        if item.record.candidates != "S0" or item.dataset != "clinc150" or item.granularity != "class":
            continue
        opaque = item.labels == "opaque"
        setting = "tuned" if opaque else SETTINGS.get(item.record.stage, "")
        model = _candidate(item)
        if not setting or model is None or not item.record.has_oracle:
            continue
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
    pooled = [row for summary in summaries.get("pooled", ()) for row in _pooled(summary)]
    if not any(groups.values()):
        return []
    return [*groups["frozen_transfer"], *groups["tuned"], *pooled, *groups["opaque"]]


def _candidate(item: Measured) -> ModelAssessment | None:
    tested = [model for model in item.tested if not model.control]
    return next((model for model in tested if model.method == "simnpo"), tested[0] if tested else None)


def _pooled(summary: Mapping[str, Any]) -> list[MainTable3Row]:
    """Pooled intents from `summaries/pooled.json`."""
    return []


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
