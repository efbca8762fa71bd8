"""Checks of finished parts: what each says of itself follows from its identity, files and step log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.seeds import digest
from vestige.study import plan_audit
from vestige.study.audit_compare import Later, Said, compared, count, number, text, time
from vestige.study.audit_folder import Finding, Folder

__all__ = ["keys", "listed_parts", "parts"]

FILES = {
    "predictions": ("predictions.parquet",),
    "tuning": ("epochs.json",),
    "recovery": ("curves.parquet",),
    "fresh-head": ("heads.parquet",),
    "embeddings": ("vectors.parquet",),
}
STEPS = "steps.parquet"
TRAINED = ("full", "oracle", "unlearned", "random")
"""Kinds that keep a model."""
SHA256 = Said("64 hexadecimal digits", lambda value: _is_hash(value))
SECONDS = Said("seconds, 0 or more", lambda value: number.holds(value) and value >= 0)
FITTED = Said("a candidate", lambda value: isinstance(value, dict) and "objective" in value)
SLACK = 1.0
"""Seconds by which two clocks of one run may differ."""


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def keys(folder: Folder) -> Finding:
    """Node keys and registry keys recomputed; nothing twice."""
    found = folder.finding("keys")
    known = {record["key"] for record in folder.nodes.values()}
    for name, record in folder.nodes.items():
        key = digest(record["format"], record["kind"], plan_audit.canonical(record["identity"]))
        found.need(key == record["key"], f"{name}: its key does not follow from its identity")
        found.need(name == f"{record['kind']}-{key[:16]}", f"{name}: its folder has another key")
        for need in record["needs"]:
            found.need(need in known, f"{name}: what it was made from ({need[:16]}) is missing")
    seen: set[str] = set()
    labels: set[tuple[Any, ...]] = set()
    for entry in folder.evaluations:
        identity = entry["identity"]
        place = f"{entry['label']} on bundle {entry['bundle']}, seed {identity['seed']}"
        key = digest(plan_audit.EVALUATION_FORMAT, plan_audit.canonical(identity))
        found.need(key == entry["key"], f"{place}: its key does not follow from its identity")
        found.need(entry["key"] not in seen, f"registry key {entry['key'][:16]} occurs twice")
        seen.add(entry["key"])
        label = (
            entry["label"],
            entry["bundle"],
            identity["seed"],
            identity["granularity"],
            plan_audit.canonical(identity["candidates"]),
        )
        found.need(label not in labels, f"label '{entry['label']}' stands for two configurations")
        labels.add(label)
        if folder.has(entry["predictions"]):
            record = folder.nodes[entry["predictions"].split("/")[1]]
            same = record["identity"]["model"] == identity["unlearned"]
            found.need(same, f"{place}: its probabilities are another model's")
    return found


def parts(folder: Folder) -> Finding:
    """Every record of a finished part, whole; step logs against what the part says; parts that nothing of the
    plan asks for."""
    found = folder.finding("entries")
    labels = listed_parts(folder)
    for name in folder.nodes:
        label = labels.get(name)
        found.add(folder.once(("part", name, label), partial(_part, folder, name, label)))
    _strangers(folder, labels, found)
    environments = {plan_audit.canonical(record["environment"]) for record in folder.nodes.values()}
    known = {plan_audit.canonical(item["environment"]) for item in folder.runs}
    if environments and not known <= environments:
        found.noted.append("history.json names an environment that no part was made in")
    return found


def _part(folder: Folder, name: str, label: str | None) -> Finding:
    """What is wrong with the record of one part."""
    found = folder.finding("")
    record = folder.json(f"nodes/{name}/record.json")
    compared(_expected(folder, name, record, label), record, found, f"nodes/{name}/record.json")
    _times(name, record, found)
    if STEPS in record["files"]:
        _steps(folder, name, record, found)
    return found


def _own(folder: Folder, record: Mapping[str, Any]) -> bool:
    """Whether a part was made by this study, and not taken from another one."""
    made = record.get("made_for") or {}
    plan = folder.planned
    return (made.get("study"), made.get("arm")) in ((plan.name, plan.arm), (None, None))


def _expected(folder: Folder, name: str, record: Mapping[str, Any], label: str | None) -> dict[str, Any]:
    kind, identity = record["kind"], record["identity"]
    result, rows = _result(folder, name, record)
    plan = folder.planned
    own = _own(folder, record)
    once = label is not None and own and len(_plans(folder)) == 1
    needed = {
        "unlearned": ["start"],
        "predictions": ["model"],
        "tuning": ["start", "full", "oracle"],
        "recovery": ["model"],
        "fresh-head": ["model"],
    }
    return {
        "format": "vestige-node-1",
        "kind": kind,
        "key": digest("vestige-node-1", kind, plan_audit.canonical(identity)),
        "label": label if once else text,
        "identity": identity,
        "needs": [identity[field] for field in needed.get(kind, [])],
        "files": _files(record, listed=label is not None),
        "started": time,
        "finished": time,
        "seconds": SECONDS,
        "rows": rows,
        "environment": _environment(record["environment"]),
        "result": result,
        "made_for": Later(
            {
                "study": plan.name if own else text,
                "arm": plan.arm if own else text,
                "stage": Said("a stage", lambda stage: isinstance(stage, str) and stage != ""),
            },
        ),
    }


def _plans(folder: Folder) -> set[str]:
    return {item["plan"] for item in folder.runs}


def _files(record: Mapping[str, Any], *, listed: bool) -> dict[str, Any]:
    """Names that a part of this kind keeps; of a model's own files the names are whatever they are."""
    kind = record["kind"]
    names = dict.fromkeys(FILES.get(kind, ()), SHA256)
    if kind in TRAINED:
        names |= {name: SHA256 for name in record["files"] if name.startswith("model/")}
        if listed and not names:
            names = {"model/...": SHA256}
    logged = _backend(record) == "torch" and kind in ("full", "oracle", "unlearned", "tuning")
    if logged and record["result"].get("kind") in ("task", "unlearning"):
        names[STEPS] = SHA256
    return names


def _backend(record: Mapping[str, Any]) -> str:
    return str((record["identity"].get("backend") or {}).get("name", ""))


def _environment(stored: Any) -> Any:
    """Names and versions: their form alone."""
    if not isinstance(stored, dict) or not stored:
        return {"packages": text}
    return {
        key: _environment(value) if isinstance(value, dict) else _plain(value)
        for key, value in stored.items()
    }


def _plain(value: Any) -> Said:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return (
        count if whole else Said("a short text", lambda item: isinstance(item, str) and 0 < len(item) < 200)
    )


def _result(folder: Folder, name: str, record: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """What a part has to report, and the rows that it worked on."""
    kind, identity, stored = record["kind"], record["identity"], record["result"]
    told: dict[str, Any] = {}
    rows: Any = count
    request = _request(folder, identity)
    gone = len(request["unit_of"]) if request is not None else None
    if kind in ("full", "oracle"):
        told = {"train_rows": count, "deleted_rows": 0 if kind == "full" else count if gone is None else gone}
        rows = stored["train_rows"]
        told |= _training(record, "task", identity["training"], 0, rows)
    elif kind == "random":
        told, rows = {**{key: count for key in stored if key != "train_rows"}, "train_rows": 0}, 0
    elif kind == "unlearned":
        rows = count if gone is None else gone
        told = _training(record, "unlearning", identity["settings"], rows, None)
    elif kind == "predictions":
        table = folder.table(f"nodes/{name}/predictions.parquet")
        told, rows = {"sha256": table.sha256, "rows": len(table.row_ids)}, len(table.row_ids)
    elif kind == "embeddings":
        told = {"rows": count, "texts": count, "width": count}
        rows = stored["rows"]
    elif kind == "tuning":
        epochs = folder.json(f"nodes/{name}/epochs.json")
        told = {"epochs_run": len(epochs), "stopped": text}
        if "values" in identity:
            told |= {
                "fitted": FITTED,
                "fitted_at_bound": Said("true or false", lambda v: isinstance(v, bool)),
            }
        else:
            rows = count if gone is None else gone
            whole = stored["stopped"].startswith("diverged")
            if not whole:
                told |= _training(record, "unlearning", identity["settings"], rows, None)
    elif kind == "recovery":
        exposed = len(identity["exposed"])
        told = {"exposed": exposed, "evaluated": _evaluated(folder, name)}
        told |= _training(record, "adaptation", identity["settings"], 0, exposed)
        rows = exposed
    elif kind == "fresh-head":
        heads = [
            {
                "initial_sha256": SHA256,
                **_trained(head, "task", identity["training"], 0, stored["train_rows"], number),
            }
            for number, head in enumerate(stored["heads"])
        ]
        told = {"heads": heads, "train_rows": count}
        if len(heads) != identity["initialisations"]:
            told["heads"] = [{}] * identity["initialisations"]
        rows = stored["train_rows"]
    return told, rows


def _evaluated(folder: Folder, name: str) -> dict[str, int]:
    """Rows of each population that a recovery scored."""
    table = folder.columns(f"nodes/{name}/curves.parquet")
    rows = set(zip(table["population"], table["row_id"], strict=True))
    found: dict[str, int] = {}
    for population, _ in rows:
        found[population] = found.get(population, 0) + 1
    return found


def _request(folder: Folder, identity: Mapping[str, Any]) -> Any:
    rows = (identity.get("request") or {}).get("rows")
    return next((item for item in folder.requests.values() if item["rows_sha256"] == rows), None)


def _training(
    record: Mapping[str, Any], kind: str, settings: Mapping[str, Any], forget: Any, retain: Any
) -> dict[str, Any]:
    """What the training of a part reports; of another backend than torch whatever counts it gives."""
    stored, known = (
        record["result"],
        ("train_rows", "deleted_rows", "exposed", "evaluated", "epochs_run", "stopped"),
    )
    if _backend(record) != "torch":
        return {key: count for key in stored if key not in known}
    if stored.get("kind") == "post hoc":
        return {
            "kind": "post hoc",
            "steps": 0,
            "weights_sha256": SHA256,
            **{k: float(v) for k, v in settings.items()},
        }
    own = record["identity"].get("adapt_seed", record["identity"].get("seed"))
    return {
        **_trained(stored, kind, settings, forget, retain, own),
        "torch": record["environment"]["packages"]["torch"],
        "threads": record["environment"]["threads"],
    }


def _trained(
    stored: Mapping[str, Any], kind: str, settings: Mapping[str, Any], forget: Any, retain: Any, seed: Any
) -> dict[str, Any]:
    if "kind" not in stored:
        return {key: count for key in stored if key != "initial_sha256"}
    epochs = settings["evaluations"][-1] if "evaluations" in settings else settings["epochs"]
    return {
        "kind": kind,
        "steps": count,
        "epochs": epochs if kind != "adaptation" else count,
        "forget_rows": forget,
        "retain_rows": count if retain is None else retain,
        "rows_seen": count,
        "tokens_seen": count,
        "seconds": SECONDS,
        "resumed_at": [count] * len(stored["resumed_at"]),
        "threads": count,
        "torch": text,
        "seed": seed,
        "weights_sha256": SHA256,
        "final_loss": number,
    }


def _times(name: str, record: Mapping[str, Any], found: Finding) -> None:
    began, ended = (datetime.fromisoformat(record[field]) for field in ("started", "finished"))
    found.need(began <= ended, f"{name}: finished before it was started")
    spent = (ended - began).total_seconds()
    found.need(
        record["seconds"] <= spent + SLACK, f"{name}: {record['seconds']} seconds of work in {spent:.1f}"
    )
    told = record["result"].get("seconds")
    found.need(
        told is None or told <= record["seconds"] + SLACK, f"{name}: it trained for longer than it worked"
    )


def _steps(folder: Folder, name: str, record: Mapping[str, Any], found: Finding) -> None:
    """A step log: as many steps, rows and tokens as the part reports, at the rates of its settings.

    The loss is the sum of its terms, and whatever has a gradient moves.
    """
    place = f"nodes/{name}/{STEPS}"
    columns = folder.columns(place)
    result, settings = record["result"], _settings(record)
    steps = np.array(columns["step"])
    found.need(steps.tolist() == list(range(1, len(steps) + 1)), f"{place}: steps are not numbered in order")
    whole = "diverged" not in str(result.get("stopped", ""))
    early = result.get("stopped") not in (None, "all epochs")
    if whole and not early:
        for column, told in (("rows", "rows_seen"), ("tokens", "tokens_seen")):
            found.need(sum(columns[column]) == result[told], f"{place}: other {column} than the part reports")
        found.need(len(steps) == result["steps"], f"{place}: {len(steps)} steps, not {result['steps']}")
        found.need(columns["epoch"][-1] == result["epochs"], f"{place}: another last epoch")
        last = columns["loss"][-1]
        found.need(math.isclose(last, result["final_loss"], rel_tol=1e-9), f"{place}: another last loss")
    epochs = np.array(columns["epoch"])
    found.need(bool((np.diff(epochs) >= 0).all()) and epochs[0] == 1, f"{place}: epochs are not in order")
    spent = sum(columns["seconds"])
    found.need(
        bool((_floats(columns["seconds"]) >= 0).all()) and spent <= record["seconds"] + SLACK,
        f"{place}: more seconds than the part took",
    )
    rates = np.array([_rate(int(step) - 1, record, settings, len(steps)) for step in steps])
    told_rates = _floats(columns["learning_rate"])
    found.need(
        bool(np.allclose(told_rates, rates, rtol=1e-9)), f"{place}: other learning rates than its settings'"
    )
    _terms(columns, settings, place, found)


def _terms(columns: Mapping[str, Any], settings: Mapping[str, Any], place: str, found: Finding) -> None:
    forget, retain = (_floats(columns[f"{name}_loss"]) for name in ("forget", "retain"))
    weight = 1.0 if np.isnan(forget).all() else float(settings.get("retain_weight", 1.0))
    terms = np.nan_to_num(forget) + weight * np.nan_to_num(retain)
    found.need(
        bool(np.allclose(_floats(columns["loss"]), terms, rtol=1e-4, atol=1e-6)),
        f"{place}: the loss is not the sum of its terms",
    )
    moved, pushed = (_floats(columns[f"{name}_norm"]) for name in ("update", "gradient"))
    same = bool((moved >= 0).all() and (pushed >= 0).all() and (moved > 0).any() == (pushed > 0).any())
    found.need(
        same and bool((moved > 0).any()), f"{place}: norms of gradients and updates contradict each other"
    )


def _floats(values: Any) -> NDArray[np.float64]:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _settings(record: Mapping[str, Any]) -> Mapping[str, Any]:
    identity = record["identity"]
    found: Mapping[str, Any] = identity["settings"] if "settings" in identity else identity["training"]
    return found


def _rate(step: int, record: Mapping[str, Any], settings: Mapping[str, Any], steps: int) -> float:
    """Learning rate of a 0-based step: up over the warm-up, then constant, or down to 0 in task training."""
    rate = float(settings["learning_rate"])
    if "warmup_share" not in settings:
        warmup = int(settings.get("warmup_steps", 0))
        return rate * (step + 1) / (warmup + 1) if step < warmup else rate
    warmup = round(float(settings["warmup_share"]) * steps)
    if step < warmup:
        return rate * (step + 1) / (warmup + 1)
    return rate * max(0.0, (steps - step) / max(1, steps - warmup))


def listed_parts(folder: Folder) -> dict[str, str]:
    """Folder name -> label of every part that the plan asks for or a record of the folder names."""
    return folder.once("listed parts", lambda: plan_audit.labels_of(folder))


def _strangers(folder: Folder, labels: Mapping[str, str], found: Finding) -> None:
    """Parts of this study that its plan does not ask for, and parts that were taken from other studies."""
    if not folder.evaluations:
        return
    taken = sorted(
        {
            " / ".join(filter(None, (made.get("study"), made.get("arm"))))
            for record in folder.nodes.values()
            if not _own(folder, record)
            for made in [record["made_for"]]
        }
    )
    if taken:
        found.noted.append(f"parts made for {', '.join(taken)} were taken")
    for name, record in folder.nodes.items():
        if name not in labels and _own(folder, record):
            found.noted.append(f"{name} ({record['label']}) is a part of nothing that the plan lists")
