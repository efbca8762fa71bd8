"""Rows of a ledger from the work a run kept: registry, device hours, tuning, step logs. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vestige.study.ledger_measured import Evaluation, Measured, evaluations, panel_runs
from vestige.study.ledger_rows import ComputeRow, OptimisationRow, RegistryRow, StepRow, TuningRow
from vestige.study.ledger_run import Run, model_names, number_of
from vestige.study.steps import STEPS, ends, read_steps

__all__ = [
    "compute_rows",
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


REFERENCE, DEVELOPMENT = "counterfactual reference", "development selection"
"""What full models and oracles, and what settings are chosen on, count as: every study shares them."""
ROLES = ("unlearned", "full", "oracle")
COVERS = {
    "full": "full models",
    "oracle": "oracles",
    "unlearned": "unlearning",
    "predictions": "scoring",
    "tuning": "sweeps",
    "recovery": "recovery",
    "fresh-head": "fresh heads",
    "embeddings": "sentence vectors",
    "random": "random models",
}
"""Kind of a node -> what its time went into."""


@dataclass(frozen=True)
class _Work:
    """One finished node, counted once however many arms and studies share it."""

    record: Mapping[str, Any]
    model: str
    experiment: str
    stage: str


def _work(runs: Sequence[Run]) -> Iterator[_Work]:
    seen: set[str] = set()
    for run in runs:
        development = _development(run)
        for record in run.nodes.values():
            if record["key"] in seen:
                continue
            seen.add(record["key"])
            stage = _stage(run, record, development)
            yield _Work(record, model_names(_model(run))[0], _experiment(_maker(run, record), stage), stage)


def _maker(run: Run, record: Mapping[str, Any]) -> str:
    """The study that made a node."""
    return str((record.get("made_for") or {}).get("study") or run.name)


def _experiment(study: str, stage: str) -> str:
    """The line of a study's work: references and sweeps are lines of their own."""
    return {
        "reference": REFERENCE,
        "development": DEVELOPMENT,
        "development_reference": DEVELOPMENT,
    }.get(stage, study)


def _development(run: Run) -> set[str]:
    """Keys of what serves tuning alone: oracles of the request that settings were tuned on, unless they were
    evaluated too, and the probabilities that candidates are compared with."""
    tuned = {
        run.json("requests/00.json", {}).get("rows_sha256"),
        run.json("tuning.json", {}).get("request", {}).get("rows"),
    } - {None}
    used = {entry["identity"].get("oracle") for entry in run.entries}
    return _development_tables(run) | {
        record["key"]
        for record in run.nodes.values()
        if record["kind"] == "oracle"
        and record["key"] not in used
        and record["identity"].get("request", {}).get("rows") in tuned
    }


def _development_tables(run: Run) -> set[str]:
    """Keys of the probabilities that tuning compares its candidates with: full model and oracle."""
    return {
        record["identity"][role]
        for record in run.nodes.values()
        if record["kind"] == "tuning"
        for role in ("full", "oracle")
    }


def _opaque(run: Run) -> bool:
    return str(run.plan.get("rendering") or "semantic") == "opaque"


def _stage(run: Run, record: Mapping[str, Any], development: set[str]) -> str:
    """The stage that a node's time belongs to. Full models and oracles under codes belong to their study."""
    kind, identity = record["kind"], record["identity"]
    own = str((record.get("made_for") or {}).get("stage") or run.plan.get("stage") or "pilot")
    if kind == "tuning":
        return "development"
    if kind == "embeddings":
        return "reference"
    if record["key"] in development:
        return "development_reference"
    if kind == "predictions":
        model = next(filter(None, (run.node(role, identity["model"]) for role in ROLES)), None)
        return own if model is None else _stage(run, model, development)
    return "reference" if kind in ("full", "oracle") and not _opaque(run) else own


def compute_rows(runs: Sequence[Run]) -> list[ComputeRow]:
    """Hours of every finished node by experiment and stage. evaluations: see `registry_rows`; for
    development, candidates as measured, and the references that they were compared with."""
    hours: dict[tuple[str, str], float] = {}
    models: dict[tuple[str, str], set[str]] = {}
    devices: dict[tuple[str, str], set[str]] = {}
    covers: dict[tuple[str, str], set[str]] = {}
    counts = _evaluations(runs)
    for work in _work(runs):
        key = (work.experiment, work.stage)
        hours[key] = hours.get(key, 0.0) + float(work.record["seconds"]) / 3600
        models.setdefault(key, set()).add(work.model)
        devices.setdefault(key, set()).add(str(work.record.get("environment", {}).get("device") or "unknown"))
        covers.setdefault(key, set()).add(work.record["kind"])
    return [
        ComputeRow(
            experiment=key[0],
            stage=key[1],
            evaluations=counts.get(key, 0),
            gpu_hours_logged=value,
            models=len(models[key]),
            device=", ".join(sorted(devices[key])),
            covers=", ".join(text for kind, text in COVERS.items() if kind in covers[key]),
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
    for one in _registered(runs):
        key = (_experiment(one.study, one.stage), one.stage)
        found[key] = found.get(key, 0) + 1
    candidates, references = set(), set()
    for run in runs:
        references |= _development_tables(run)
        for method in run.json("tuning.json", {}).get("methods", ()):
            for point in method["points"]:
                candidates |= {(point["node"], epoch["epoch"]) for epoch in point["epochs"]}
    found[DEVELOPMENT, "development"] = len(candidates)
    found[DEVELOPMENT, "development_reference"] = len(references)
    return found


@dataclass(frozen=True)
class _Registered:
    """One evaluation that was done: of an unlearned model, or of a full model or oracle."""

    study: str
    dataset: str
    labels: str
    stage: str


def _registered(runs: Sequence[Run]) -> Iterator[_Registered]:
    """Every evaluation under all options, each once however many studies hold it."""
    seen: set[str] = set()
    for run in runs:
        done = {
            key
            for record in run.assessments.values()
            for key in dict(record.provenance.get("evaluations") or {}).values()
        }
        for entry in run.entries:
            identity = entry["identity"]
            whole = identity["candidates"] == "S0"
            if not whole or entry["key"] in seen or entry["key"] not in done:
                continue
            seen.add(entry["key"])
            node = run.node("unlearned", identity["unlearned"]) or {}
            made = node.get("made_for") or {}
            yield _Registered(
                str(made.get("study") or run.name),
                identity["dataset"],
                identity["rendering"],
                str(made.get("stage") or entry.get("stage") or run.plan.get("stage") or "pilot"),
            )
        development = _development(run)
        dataset = str(run.json("data.json", {}).get("name") or "")
        rendering = str(run.plan.get("rendering") or "semantic")
        for record in run.nodes.values():
            identity = record["identity"]
            if record["kind"] != "predictions" or record["key"] in seen:
                continue
            if identity.get("what") != "evaluation" or identity.get("candidates", "S0") != "S0":
                continue
            if all(run.node(role, identity["model"]) is None for role in ("full", "oracle")):
                continue
            seen.add(record["key"])
            yield _Registered(_maker(run, record), dataset, rendering, _stage(run, record, development))


def registry_rows(runs: Sequence[Run]) -> list[RegistryRow]:
    """Evaluations by data set, labels and stage."""
    counts: dict[tuple[str, str, str], int] = {}
    for one in _registered(runs):
        key = one.dataset, one.labels, one.stage
        counts[key] = counts.get(key, 0) + 1
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


def _logs(items: Sequence[Measured]) -> Iterator[tuple[Evaluation, pd.DataFrame, Path]]:
    """Evaluated models with the step log of their unlearning."""
    for one in evaluations(items):
        entry = one.entry
        if entry is None:
            continue
        path = one.item.run.root / "nodes" / f"unlearned-{str(entry['identity']['unlearned'])[:16]}" / STEPS
        if path.is_file():
            yield one, read_steps(path), path


def optimisation_rows(items: Sequence[Measured]) -> list[OptimisationRow]:
    """Ends of step logs beside what the run reached: of the panel's runs at two training seeds on the first
    bundle, where there are any, else of every run."""
    first = [one for one in panel_runs(items) if one.first is None]
    bundles = {one.run.item.key: one.run.item.bundle for one in first}
    panel = [one.run for one in panel_runs(items) if one.run.item.bundle == bundles.get(one.run.item.key)]
    seeds: dict[str, set[int]] = {}
    for run in panel:
        seeds.setdefault(run.item.key, set()).add(run.item.seed)
    twice = {run.key for run in panel if len(seeds[run.item.key]) > 1}
    found = []
    for one, log, path in _logs(items):
        if twice and one.key not in twice:
            continue
        item, model = one.item, one.model
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
    for one, log, path in _logs(items):
        item, model = one.item, one.model
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
                    stage=one.stage,
                    step=int(log["step"].iloc[at]),
                    epoch=int(log["epoch"].iloc[at]),
                    origin=place,
                    **values,
                )
            )
    return found
