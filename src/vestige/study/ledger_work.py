"""Rows of a ledger from the work a run kept: registry, device hours, tuning, step logs. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vestige.contracts import ModelAssessment
from vestige.study.ledger_measured import Measured
from vestige.study.ledger_rows import ComputeRow, OptimisationRow, RegistryRow, StepRow, TuningRow
from vestige.study.ledger_run import Run, model_names, number_of
from vestige.study.steps import STEPS, ends, read_steps

__all__ = [
    "compute_rows",
    "development_suppression",
    "optimisation_rows",
    "registry_rows",
    "step_rows",
    "tuning_rows",
]

FIELDS = ("learning_rate", "beta", "retain_weight")
LOGGED = {
    "forget_loss": "forget_loss",
    "retain_loss": "retain_loss",
    "grad_norm": "gradient_norm",
    "update_norm": "update_norm",
    "learning_rate": "learning_rate",
}
"""Column of a ledger -> column of a step log."""


@dataclass(frozen=True)
class _Work:
    """One finished node, counted once however many arms share it."""

    run: Run
    record: Mapping[str, Any]
    stage: str


def _work(runs: Sequence[Run]) -> Iterator[_Work]:
    seen: set[str] = set()
    for run in runs:
        development = _development_models(run)
        for record in run.nodes.values():
            if record["key"] in seen:
                continue
            seen.add(record["key"])
            yield _Work(run, record, _stage(run, record, development))


def _development_models(run: Run) -> set[str]:
    """Keys of oracles that serve tuning alone: those of the request that settings were tuned on, unless they
    were evaluated too."""
    tuned = {
        run.json("requests/00.json", {}).get("rows_sha256"),
        run.json("tuning.json", {}).get("request", {}).get("rows"),
    } - {None}
    used = {entry["identity"].get("oracle") for entry in run.entries}
    return {
        record["key"]
        for record in run.nodes.values()
        if record["kind"] == "oracle"
        and record["key"] not in used
        and record["identity"].get("request", {}).get("rows") in tuned
    }


def _stage(run: Run, record: Mapping[str, Any], development: set[str]) -> str:
    """The stage that a node's time belongs to."""
    kind, identity = record["kind"], record["identity"]
    if kind == "tuning":
        return "development"
    if kind in ("full", "oracle"):
        return "development_reference" if record["key"] in development else "reference"
    if kind == "predictions":
        model = identity["model"]
        if run.node("unlearned", model) is None:
            return "development_reference" if model in development else "reference"
    return str(run.plan.get("stage") or "pilot")


def compute_rows(runs: Sequence[Run]) -> list[ComputeRow]:
    """Hours of every finished node by experiment and stage. evaluations: see `registry_rows`; for
    development, candidates."""
    hours: dict[tuple[str, str], float] = {}
    models: dict[tuple[str, str], set[str]] = {}
    devices: dict[tuple[str, str], set[str]] = {}
    counts = _evaluations(runs)
    for work in _work(runs):
        key = (work.run.name, work.stage)
        hours[key] = hours.get(key, 0.0) + float(work.record["seconds"]) / 3600
        models.setdefault(key, set()).add(model_names(_model(work.run))[0])
        devices.setdefault(key, set()).add(str(work.record.get("environment", {}).get("device") or "unknown"))
    return [
        ComputeRow(
            experiment=key[0],
            stage=key[1],
            evaluations=counts.get(key, 0),
            gpu_hours_logged=value,
            models=len(models[key]),
            device=", ".join(sorted(devices[key])),
            printed={"gpu_hours_logged": f"{value:.4f}"} if value < 0.05 else {},
        )
        for key, value in sorted(hours.items())
    ]


def _model(run: Run) -> Mapping[str, Any]:
    """The model settings of a run, from any node that names them."""
    for record in run.nodes.values():
        found = record["identity"].get("model")
        if isinstance(found, Mapping):
            return found
    return run.plan.get("model") or {}


def _evaluations(runs: Sequence[Run]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for run, _, _, stage, _ in _registered(runs):
        found[run.name, stage] = found.get((run.name, stage), 0) + 1
    for run in runs:
        tuning = run.json("tuning.json")
        if tuning:
            key = (run.name, "development")
            found[key] = found.get(key, 0) + sum(item["candidates"] for item in tuning["methods"])
    return found


def _registered(runs: Sequence[Run]) -> Iterator[tuple[Run, str, str, str, str]]:
    """(run, data set, labels, stage, key) of every evaluation, each once: registered ones that were done,
    and full models and oracles scored on evaluation rows."""
    seen: set[str] = set()
    for run in runs:
        done = {
            key
            for record in run.assessments.values()
            for key in dict(record.provenance.get("evaluations") or {}).values()
        }
        for entry in run.entries:
            identity = entry["identity"]
            if entry["key"] in seen or entry["key"] not in done:
                continue
            seen.add(entry["key"])
            yield run, identity["dataset"], identity["rendering"], identity["stage"], entry["key"]
        development = _development_models(run)
        dataset = str(run.json("data.json", {}).get("name") or "")
        rendering = str(run.plan.get("rendering") or "semantic")
        for record in run.nodes.values():
            identity = record["identity"]
            if record["kind"] != "predictions" or identity.get("what") != "evaluation":
                continue
            if record["key"] in seen or run.node("unlearned", identity["model"]) is not None:
                continue
            seen.add(record["key"])
            stage = "development_reference" if identity["model"] in development else "reference"
            yield run, dataset, rendering, stage, record["key"]


def registry_rows(runs: Sequence[Run]) -> list[RegistryRow]:
    """Evaluations by data set, labels and stage."""
    counts: dict[tuple[str, str, str], int] = {}
    for _, dataset, labels, stage, _ in _registered(runs):
        counts[dataset, labels, stage] = counts.get((dataset, labels, stage), 0) + 1
    return [
        RegistryRow(dataset=dataset, labels=labels, stage=stage, evaluations=count, printed={})
        for (dataset, labels, stage), count in sorted(counts.items())
    ]


def tuning_rows(runs: Sequence[Run]) -> list[TuningRow]:
    """Every development candidate."""
    found = []
    for run in runs:
        tuning = run.json("tuning.json")
        for method in tuning["methods"] if tuning else ():
            best, chosen = method.get("settings"), method.get("chosen")
            for point in method["points"]:
                settings = point["settings"]
                for epoch in point["epochs"]:
                    own = {**settings, **epoch.get("settings", {})}
                    same = (
                        best is not None
                        and chosen is not None
                        and chosen["epoch"] == epoch["epoch"]
                        and all(best.get(name) == value for name, value in own.items() if name != "epochs")
                    )
                    found.append(
                        TuningRow(
                            dataset=str(run.json("data.json", {}).get("name") or ""),
                            model=model_names(_model(run))[0],
                            method=method["title"],
                            **{field: _setting(own.get(field)) for field in FIELDS},
                            epoch=epoch["epoch"],
                            od_f=epoch["od_f"],
                            od_g=epoch["od_g"],
                            objective=epoch["objective"],
                            delta_accuracy=epoch["delta_accuracy"],
                            delta_ece=epoch["delta_ece"],
                            feasible=epoch["feasible"],
                            chosen=same,
                            suppression=_suppression_of(epoch),
                            temperature=own.get("temperature"),
                            origin=f"{run.arm}/tuning.json" if run.arm else "tuning.json",
                        )
                    )
    return found


def _setting(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)


def _suppression_of(epoch: Mapping[str, Any]) -> float | None:
    value = epoch.get("suppression", epoch.get("s"))
    return float(value) if isinstance(value, int | float) else None


def development_suppression(items: Sequence[Measured]) -> dict[tuple[str, str], tuple[float, bool]]:
    """(place of the assessment, label) -> suppression of the same method and settings on development rows,
    and whether it missed the target that it was matched to."""
    known: dict[tuple[str, str], tuple[float, bool]] = {}
    for item in items:
        known |= _recorded(item.run)
    found = {}
    for item in items:
        by_key = {entry["key"]: entry for entry in item.run.entries}
        for label, key in dict(item.record.provenance.get("evaluations") or {}).items():
            identity = by_key.get(key, {}).get("identity", {})
            value = known.get((str(identity.get("method")), _canonical(identity.get("settings") or {})))
            if value is not None:
                found[item.place, label] = value
    return found


def _canonical(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings), sort_keys=True)


def _recorded(run: Run) -> dict[tuple[str, str], tuple[float, bool]]:
    """(method, settings) -> development suppression: of tuning candidates, of matched or frozen records."""
    found: dict[tuple[str, str], tuple[float, bool]] = {}
    tuning = run.json("tuning.json")
    for method in tuning["methods"] if tuning else ():
        for point in method["points"]:
            for epoch in point["epochs"]:
                value = _suppression_of(epoch)
                if value is not None:
                    settings = {**point["settings"], "epochs": epoch["epoch"]}
                    found[method["method"], _canonical(settings)] = value, False
    for path in sorted([*run.root.glob("frozen*.json"), *run.root.glob("matched*.json")]):
        for method in run.json(path.name).get("methods", ()):
            value = _suppression_of(method)
            if value is not None and method.get("settings"):
                missed = bool(method.get("unmatched"))
                found[method["method"], _canonical(method["settings"])] = value, missed
    return found


def _logs(items: Sequence[Measured]) -> Iterator[tuple[Measured, ModelAssessment, pd.DataFrame, Path]]:
    """Assessed models with the step log of their unlearning, each log once."""
    seen: set[str] = set()
    for item in items:
        if item.record.candidates != "S0":
            continue
        by_key = {entry["key"]: entry for entry in item.run.entries}
        evaluations = dict(item.record.provenance.get("evaluations") or {})
        for model in item.tested:
            entry = by_key.get(evaluations.get(model.label, ""))
            node = str(entry["identity"].get("unlearned")) if entry else ""
            if not node or node in seen:
                continue
            folder = item.run.root / "nodes" / f"unlearned-{node[:16]}"
            path = folder / STEPS
            if path.is_file():
                seen.add(node)
                yield item, model, read_steps(path), path


def optimisation_rows(items: Sequence[Measured]) -> list[OptimisationRow]:
    """Ends of every step log beside what the run reached."""
    found = []
    for item, model, log, path in _logs(items):
        means: dict[str, float | None] = {}
        for column in ("forget_loss", "retain_loss", "grad_norm"):
            both = ends(log, LOGGED[column])
            means[f"{column}_first10"], means[f"{column}_last10"] = both or (None, None)
        full, oracle = item.full, item.oracle
        found.append(
            OptimisationRow(
                model=item.key,
                seed=item.seed,
                progress_f=number_of(model.metrics.get("progress.F")),
                s_f=number_of(model.metrics.get("suppression.F")),
                full_gold_p=number_of(full.metrics.get("gold_probability.F")) if full else None,
                full_confidence=number_of(full.metrics.get("confidence.F")) if full else None,
                full_margin=number_of(full.metrics.get("margin.F")) if full else None,
                oracle_acc=number_of(oracle.metrics.get("forgotten_accuracy.F")) if oracle else None,
                source="recorded training log",
                bundle=item.bundle,
                method=model.label,
                update_norm_last=_last(log, "update_norm"),
                steps=len(log),
                origin=path.relative_to(item.run.root).as_posix(),
                **means,
            )
        )
    return found


def _last(log: pd.DataFrame, column: str) -> float | None:
    if column not in log or not len(log):
        return None
    value = float(np.asarray(log[column], dtype=np.float64)[-1])
    return value if np.isfinite(value) else None


def step_rows(items: Sequence[Measured]) -> list[StepRow]:
    """Every step of every unlearning run."""
    found = []
    for item, model, log, path in _logs(items):
        numbers = {column: np.asarray(log[logged], dtype=np.float64) for column, logged in LOGGED.items()}
        place = path.relative_to(item.run.root).as_posix()
        for at in range(len(log)):
            values = {
                name: float(array[at]) if np.isfinite(array[at]) else None for name, array in numbers.items()
            }
            found.append(
                StepRow(
                    model=item.key,
                    seed=item.seed,
                    bundle=item.bundle,
                    method=model.label,
                    stage=item.record.stage,
                    step=int(log["step"].iloc[at]),
                    epoch=int(log["epoch"].iloc[at]),
                    origin=place,
                    **values,
                )
            )
    return found
