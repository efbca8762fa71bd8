"""What the plan of a run folder asks for, worked out anew from its records: settings, cells, registry, parts.

No number of a result is worked out here; the registry of methods is asked for titles, roles and defaults.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from vestige.decision.schema import Option, Schema
from vestige.deletion.clusters import Clustering
from vestige.deletion.requests import (
    DeletionRequest,
    association_request,
    class_request,
    custom_request,
    example_request,
)
from vestige.errors import InputError
from vestige.methods import METHODS
from vestige.readers import text_of_file, yaml_mapping
from vestige.seeds import digest
from vestige.study.audit_compare import Said, compared, text
from vestige.study.audit_folder import Finding, Folder

__all__ = [
    "Asked",
    "Cell",
    "Configured",
    "Scored",
    "asked",
    "base_of",
    "cells",
    "coverage",
    "defaults",
    "excused",
    "family_of",
    "frozen_records",
    "identity_of",
    "labels_of",
    "model_node",
    "node_name",
    "plan_stands_since",
    "probed",
    "record_for",
    "requested",
    "rows_hash",
    "scored",
    "study_file",
]

NODE_FORMAT, EVALUATION_FORMAT = "vestige-node-1", "vestige-evaluation-2"
ALL_OPTIONS = "S0"
SCHEMA_PROBES = ("renaming", "paraphrase")
MAP_SEED = 7919
"""Of the codes that the renaming probe shows."""


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


# Settings.


@dataclass(frozen=True)
class Configured:
    """A method as the plan has it evaluated. entry: of the plan; record, item: the frozen record and its
    listing, where settings come from one; changed: settings that the plan leaves to defaults which are not
    today's."""

    label: str
    method: str
    control: bool
    settings: dict[str, Any]
    entry: Any = field(repr=False)
    record: Any = field(default=None, repr=False)
    item: Any = field(default=None, repr=False)
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    """Every method of the plan. left_out, same: as left_out.json has them."""

    used: tuple[Configured, ...]
    left_out: dict[str, dict[str, str]]
    same: dict[str, str]
    lacking: tuple[str, ...] = ()
    """Methods whose frozen settings are not in the folder."""

    def at(self, bundle: str, seed: int) -> tuple[Configured, ...]:
        """What is evaluated on a bundle at a seed, each configuration once."""
        here = {item.label: item for item in self.used if item.entry.at(bundle, seed)}
        return tuple(item for label, item in here.items() if self.same.get(label) not in here)


def frozen_records(folder: Folder) -> dict[str, Any]:
    """File name -> every record of frozen settings in the folder."""
    return {path.name: folder.json(path.name) for path in sorted(folder.root.glob("frozen*.json"))}


def record_for(folder: Folder, entry: Any) -> Any:
    """The record in the folder that an entry of the plan takes its settings from; None: it is not there."""
    known = frozen_records(folder)
    if entry.frozen is True and "frozen.json" in known:
        return known["frozen.json"]
    fitting = [
        record
        for name, record in known.items()
        if name != "frozen.json"
        and (
            entry.frozen_by is None or (record["study"], record["match"]) == (entry.frozen_by, entry.matched)
        )
        and any(item["method"] == entry.method for item in record["methods"])
    ]
    if not fitting and entry.frozen_by is None:
        fitting = [known["frozen.json"]] if "frozen.json" in known else []
    evaluated = {
        (item["identity"]["method"], canonical(item["identity"]["settings"])) for item in folder.evaluations
    }
    for record in fitting:
        if any((item["method"], canonical(item["settings"])) in evaluated for item in record["methods"]):
            return record
    return fitting[0] if fitting else None


def defaults(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a method as they are today, with those given."""
    return METHODS.get(method).settings.model_validate(dict(given)).model_dump(mode="json")


def asked(folder: Folder) -> Asked:
    """What the plan's methods stand for."""
    return folder.once("asked", lambda: _asked(folder))


def _asked(folder: Folder) -> Asked:
    used: list[Configured] = []
    left_out: dict[str, dict[str, str]] = {}
    lacking: list[str] = []
    for entry in folder.planned.methods:
        objective = METHODS.get(entry.method)
        control = objective.role == "control"
        if not entry.takes_frozen:
            label = entry.label or objective.title
            settings, changed = _as_run(folder, entry, label)
            made = Configured(label, entry.method, control, settings, entry, changed=changed)
            used += _lengths(made) if entry.lengths else [made]
            continue
        record = record_for(folder, entry)
        if record is None:
            lacking.append(entry.label or objective.title)
            continue
        listed = [item for item in record["methods"] if item["method"] == entry.method]
        if len(listed) > 1 and entry.label is not None:
            listed = [item for item in listed if item["label"] == entry.label]
        if not listed:
            lacking.append(entry.label or objective.title)
        for item in listed:
            label = entry.label or (item["label"] if entry.matched is not None else objective.title)
            if item["settings"] is None:
                why = f"{item['note'] or 'no feasible candidate'}, of {item.get('candidates', 0)} measured"
                left_out[label] = {"method": entry.method, "why": why}
                continue
            settings = defaults(entry.method, {**item["settings"], **entry.settings})
            made = Configured(label, entry.method, control, settings, entry, record, item)
            used += _lengths(made) if entry.lengths else [made]
    return Asked(tuple(used), left_out, _same(used), tuple(lacking))


def _as_run(folder: Folder, entry: Any, label: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Settings of an entry of the plan: what it states, with today's defaults, or with those of the version
    that the folder was run by where they differ, and which do."""
    today = defaults(entry.method, entry.settings)
    stated = {name: today[name] for name in entry.settings if name in today}
    for item in folder.evaluations:
        identity = item["identity"]
        if item["label"] != label or identity["method"] != entry.method or entry.lengths:
            continue
        then = dict(identity["settings"])
        if stated.items() <= then.items() and then != today:
            differ = {name for name in {*then, *today} if then.get(name) != today.get(name)}
            return then, tuple(sorted(differ))
    return today, ()


def _lengths(made: Configured) -> list[Configured]:
    count, most = made.entry.lengths, int(made.settings["epochs"])
    epochs = sorted({max(1, round(most * (place + 1) / count)) for place in range(count)})
    if most < count:
        epochs = list(range(1, count + 1))
    return [
        replace(
            made,
            label=f"{made.label}, {number} epoch{'s' if number > 1 else ''}",
            settings={**made.settings, "epochs": number},
        )
        for number in epochs
    ]


def _same(used: Sequence[Configured]) -> dict[str, str]:
    same: dict[str, str] = {}
    first: dict[str, str] = {}
    for item in used:
        if item.record is not None:
            what = canonical([item.method, item.settings])
            if what in first:
                same[item.label] = first[what]
            first.setdefault(what, item.label)
    return same


def plan_stands_since(folder: Folder, when: str) -> bool:
    """Whether the plan of the last run stood at a time, too: only the present one is kept."""
    history = folder.runs
    if not history:
        return True
    before = [item["plan"] for item in history if item["time"] <= when] or [history[0]["plan"]]
    return bool(before[-1] == history[-1]["plan"])


def family_of(folder: Folder, here: Sequence[Configured], stage: str) -> tuple[str, ...]:
    """Labels that Holm corrects at a cell: the plan's, else a confirmation's frozen family, else none."""
    plan = folder.planned
    if plan.family is not None:
        labels = {item.label for item in here}
        return tuple(label for label in plan.family if label in labels)
    if stage != "confirmation":
        return ()
    return tuple(
        item.label
        for item in here
        if not item.control and item.record is not None and item.label in item.record["family"]
    )


# Requests.


def requested(folder: Folder, label: str) -> dict[str, Any]:
    """The record of a deletion request that plan, bundles and data set give.

    Without the data set its rows, and what it notes of them, are taken as they are recorded.
    """
    stored, deletion = folder.requests[label], folder.planned.deletion
    plan = folder.planned
    units = stored["units"]
    if deletion.bundled:
        units = folder.json("bundles.json")["bundles"].get(label, [])
    common: dict[str, Any] = {
        "bundle": label,
        "purpose": "development" if label == "00" else "evaluation",
        "salt": deletion.salt,
        "seed": plan.primary,
    }
    data = folder.data_set()
    if isinstance(data, str):
        return _without_data(folder, stored, units, common)
    made: DeletionRequest
    if deletion.granularity == "class":
        made = class_request(data, units, **common)
    elif deletion.granularity == "example":
        made = example_request(data, units, **common)
    elif deletion.granularity == "association":
        clusters = Clustering.model_validate(folder.json("clusters.json"))
        size = folder.json("bundles.json")["size"]
        made = association_request(data, units, clusters, size=size, **common)
    else:
        made = custom_request(data, where=deletion.where, row_ids=deletion.row_ids, **common)
    found: dict[str, Any] = made.model_dump(mode="json")
    return found


def _without_data(
    folder: Folder, stored: Mapping[str, Any], units: Sequence[str], common: Mapping[str, Any]
) -> dict[str, Any]:
    deletion, data = folder.planned.deletion, folder.json("data.json")
    rows = stored["unit_of"]
    hashes = digest("units", *sorted(units)), digest(*sorted(rows))
    kind = deletion.granularity
    column = ""
    if kind == "custom" and deletion.where is not None:
        first = deletion.where if isinstance(deletion.where, str) else deletion.where[0]
        column = first.partition("=")[0].strip()
    clusters = folder.optional("clusters.json", None)
    return {
        "format": "vestige-request-1",
        "dataset": data["name"],
        "data_sha256": data["sha256"],
        "granularity": kind,
        "column": column,
        "units": list(units),
        "unit_of": rows,
        "forgotten": list(units) if kind == "class" else [],
        "clusters_sha256": digest("clusters-1", canonical(clusters)) if kind == "association" else "",
        "exceptions": [],
        "notes": Said("sentences", lambda told: isinstance(told, list)),
        "units_sha256": hashes[0],
        "rows_sha256": hashes[1],
        "sha256": digest("request-1", kind, *hashes),
        **common,
    }


# Parts.


def node_name(kind: str, identity: Mapping[str, Any]) -> str:
    """The folder of a part of this identity."""
    return f"{kind}-{_node_key(kind, identity)[:16]}"


def _node_key(kind: str, identity: Mapping[str, Any]) -> str:
    return digest(NODE_FORMAT, kind, canonical(identity))


def base_of(folder: Folder) -> dict[str, Any]:
    """What every model of the plan has in its identity: of the registered full models, or of the only kind of
    full model that fits the plan. Raises ValueError where there is none."""
    return folder.once("base", lambda: _base_of(folder))


def _base_of(folder: Folder) -> dict[str, Any]:
    fulls = [record for record in folder.nodes.values() if record["kind"] == "full"]
    registered = {item["identity"]["full"] for item in folder.evaluations}
    plan, data = folder.planned, folder.json("data.json")
    fitting = [
        record
        for record in fulls
        if record["identity"]["data"] == data["sha256"]
        and (record["identity"]["rendering"], record["identity"]["map_seed"])
        == (plan.rendering, plan.map_seed)
        and _states(plan.model, record["identity"]["model"])
        and _states(plan.training, record["identity"]["training"])
    ]
    chosen = [record for record in fitting if record["key"] in registered] or fitting
    if not chosen:
        raise ValueError("no full model of the plan's data, model, training and rendering")
    newest = max(chosen, key=lambda record: str(record["finished"]))
    return {name: value for name, value in newest["identity"].items() if name not in ("seed", "rows")}


def _states(given: Mapping[str, Any], used: Mapping[str, Any]) -> bool:
    """Whether settings were used as a plan states them: "1e-4" in a file is the number."""
    return all(
        name in used and (used[name] == value or _as_number(value) == used[name])
        for name, value in given.items()
    )


def _as_number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def model_node(folder: Folder, kind: str, **identity: Any) -> Any:
    """The record of a model of the plan: kind, seed, request, ... as its identity has them beside the plan's
    own; None where it is not there. Which rows it was trained on is checked against the data set."""

    def index() -> dict[str, Any]:
        return {
            canonical([record["kind"], _but_rows(record["identity"])]): record
            for record in folder.nodes.values()
            if record["kind"] in ("full", "oracle", "unlearned", "random")
        }

    base = base_of(folder)
    if kind == "random":
        base = {name: value for name, value in base.items() if name != "training"}
    return folder.once("models by identity", index).get(canonical([kind, {**base, **identity}]))


def _but_rows(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in identity.items() if name != "rows"}


def identity_of(request: Mapping[str, Any]) -> dict[str, str]:
    """What a part's identity says of its request."""
    return {
        "granularity": request["granularity"],
        "units": request["units_sha256"],
        "rows": request["rows_sha256"],
    }


def rows_hash(rows: Sequence[tuple[str, str, str]]) -> str:
    """Of (row id, view, unit), in any order, as the identity of probabilities has it."""
    columns = list(zip(*sorted(rows), strict=True)) or [(), (), ()]
    return digest(*columns[0], *columns[1], *columns[2])


def scored(
    folder: Folder,
    model: Mapping[str, Any],
    what: str,
    rows: str,
    candidates: Any = ALL_OPTIONS,
    schema: str | None = None,
) -> str | None:
    """The path of a model's probabilities; None where they are not there. rows: as `rows_hash` gives it."""
    base = base_of(folder)
    identity = {
        "data": base["data"],
        "schema": schema or base["schema"],
        "candidates": candidates,
        "model": model["key"],
        "rows": rows,
        "what": what,
    }
    name = node_name("predictions", identity)
    return f"nodes/{name}/predictions.parquet" if name in folder.nodes else None


@dataclass(frozen=True)
class Scored:
    """A model of a cell and its probabilities. model: its part's record; path: of the table."""

    seed: int
    model: Any = field(repr=False)
    path: str


@dataclass(frozen=True)
class Cell:
    """One planned assessment. candidates: what the identity of probabilities says of them; rows: hash of its
    rows. fulls, oracles: those that are there, the compared one first; unlearned: by label, with what was
    configured; registered: every planned evaluation."""

    stem: str
    bundle: str
    seed: int
    stage: str
    offer: str
    candidates: Any
    rows: str
    configured: tuple[Configured, ...]
    fulls: tuple[Scored, ...]
    oracles: tuple[Scored, ...]
    unlearned: dict[str, Scored]
    registered: tuple[dict[str, Any], ...] = field(repr=False)


def probed(folder: Folder, cell: Cell) -> dict[str, Any]:
    """By probe of the plan that every model of a cell was scored under, where the tables lie.

    `full` and `oracle` in order of the plan's seeds, `unlearned` by label.
    """
    if cell.offer != ALL_OPTIONS:
        return {}
    plan = folder.planned
    rows = rows_hash([row for row in folder.views[f"{cell.bundle}-evaluation"] if row[1] != "R"])
    groups = {
        "full": _in_order(cell.fulls, plan.full_seeds_of(cell.bundle)),
        "oracle": _in_order(cell.oracles, plan.oracle_seeds_of(cell.bundle)),
    }
    found = {}
    for name in SCHEMA_PROBES:
        schema = _probe_schema(folder, cell, name) if name in plan.probes else None
        if schema is None:
            continue
        tables: dict[str, Any] = {
            role: [scored(folder, model, "probe", rows, schema=schema) for model in group]
            for role, group in groups.items()
        }
        tables["unlearned"] = {
            label: scored(folder, item.model, "probe", rows, schema=schema)
            for label, item in cell.unlearned.items()
        }
        if None not in (*tables["full"], *tables["oracle"], *tables["unlearned"].values()):
            found[name] = tables
    return found


def _in_order(group: Sequence[Scored], seeds: Sequence[int]) -> list[Any]:
    there = {item.seed: item.model for item in group}
    return [there[seed] for seed in seeds if seed in there]


def _probe_schema(folder: Folder, cell: Cell, name: str) -> str | None:
    """Hash of the schema that a probe shows. Without the data set, whose texts it is made of, it is the one
    that the record names."""
    data = folder.data_set()
    if isinstance(data, str):
        told = (folder.assessments.get(cell.stem) or {"provenance": {}})["provenance"].get("probes") or {}
        paths = told.get(name, {"full": []})["full"]
        record = folder.nodes.get(paths[0].split("/")[1]) if paths else None
        asked = record is not None and record["identity"]["what"] == "probe"
        return str(record["identity"]["schema"]) if record is not None and asked else None
    plan = folder.planned
    if name == "renaming":
        return Schema(data.options, "opaque", MAP_SEED + (plan.map_seed == MAP_SEED)).sha256
    others = (Option(item.id, plan.synonyms.get(item.id) or item.description) for item in data.options)
    return Schema(tuple(others)).sha256


def excused(folder: Folder) -> dict[str, Any]:
    """Key -> entry of failures.json."""
    return {item["key"]: item for item in folder.optional("failures.json", [])}


def cells(folder: Folder) -> dict[str, Cell]:
    """Stem -> every planned assessment, in the order of a run."""
    return folder.once("cells", lambda: {cell.stem: cell for cell in _cells(folder)})


def _cells(folder: Folder) -> Iterator[Cell]:
    plan, every = folder.planned, asked(folder)
    for bundle in plan.bundles:
        if bundle not in folder.requests:
            continue
        request = folder.requests[bundle]
        view = folder.views[f"{bundle}-evaluation"]
        for offer in plan.offered_sets:
            candidates: Any = ALL_OPTIONS
            here = view
            if offer != ALL_OPTIONS:
                options = folder.json(f"candidates/{bundle}.json")["sets"][offer]
                candidates = {"set": offer, "options": options}
                gold = _gold(folder, bundle)
                here = [row for row in view if gold.get(row[0]) in set(options)]
            rows = folder.once(("rows", bundle, offer), partial(rows_hash, here))
            for cell in plan.planned:
                if cell.bundle == bundle:
                    used = every.at(bundle, cell.seed)
                    yield _cell(folder, cell, offer, candidates, rows, used, request)


def _gold(folder: Folder, bundle: str) -> dict[str, str]:
    """Row id -> gold of a bundle's evaluation rows, from any table under all options."""

    def make() -> dict[str, str]:
        rows = rows_hash(folder.views[f"{bundle}-evaluation"])
        for name, record in folder.nodes.items():
            identity = record["identity"]
            if record["kind"] == "predictions" and (identity["candidates"], identity["rows"]) == ("S0", rows):
                table = folder.table(f"nodes/{name}/predictions.parquet")
                return dict(zip(table.row_ids, table.gold, strict=True))
        return {}

    return folder.once(("gold", bundle), make)


def _cell(
    folder: Folder,
    planned: Any,
    offer: str,
    candidates: Any,
    rows: str,
    used: tuple[Configured, ...],
    request: Any,
) -> Cell:
    plan, seed = folder.planned, planned.seed
    asked_of = identity_of(request)

    def there(seeds: Sequence[int], kind: str, **identity: Any) -> tuple[Scored, ...]:
        found = []
        for one in (seed, *(other for other in seeds if other != seed)):
            model = model_node(folder, kind, seed=one, **identity)
            path = None if model is None else scored(folder, model, "evaluation", rows, candidates)
            if path is not None:
                found.append(Scored(one, model, path))
        return tuple(found)

    full = model_node(folder, "full", seed=seed)
    oracle = model_node(folder, "oracle", seed=seed, request=asked_of)
    unlearned: dict[str, Scored] = {}
    entries = []
    stem = f"{planned.bundle}-s{seed}" + (f"-{offer}" if offer != ALL_OPTIONS else "")
    for item in used:
        identity: dict[str, Any] = {
            **base_of(folder),
            "seed": seed,
            "start": full["key"] if full is not None else "",
            "request": asked_of,
            "method": item.method,
            "settings": item.settings,
        }
        key = _node_key("unlearned", identity)
        model = folder.nodes.get(f"unlearned-{key[:16]}")
        made = {"key": key} if model is None else model
        path = scored(folder, made, "evaluation", rows, candidates)
        if path is not None and model is not None:
            unlearned[item.label] = Scored(seed, model, path)
        entries.append(_registered(folder, planned, stem, item, request, candidates, rows, key, full, oracle))
    return Cell(
        stem=stem,
        bundle=planned.bundle,
        seed=seed,
        stage=planned.stage,
        offer=offer,
        candidates=candidates,
        rows=rows,
        configured=used,
        fulls=there(plan.full_seeds_of(planned.bundle), "full"),
        oracles=there(plan.oracle_seeds_of(planned.bundle), "oracle", request=asked_of),
        unlearned=unlearned,
        registered=tuple(entries),
    )


def _registered(
    folder: Folder,
    planned: Any,
    stem: str,
    item: Configured,
    request: Any,
    candidates: Any,
    rows: str,
    key: str,
    full: Any,
    oracle: Any,
) -> dict[str, Any]:
    """The registry entry that one evaluation has to have."""
    base, data = base_of(folder), folder.json("data.json")
    identity = {
        "dataset": data["name"],
        "data": base["data"],
        "granularity": request["granularity"],
        "purpose": request["purpose"],
        "units": request["units_sha256"],
        "rows": request["rows_sha256"],
        "model": base["model"],
        "training": base["training"],
        "backend": base["backend"],
        "rendering": base["rendering"],
        "map_seed": base["map_seed"],
        "candidates": candidates,
        "seed": planned.seed,
        "method": item.method,
        "settings": item.settings,
        "unlearned": key,
        "full": "" if full is None else full["key"],
        "oracle": text if oracle is None else oracle["key"],
    }
    predictions = node_name(
        "predictions",
        {
            "data": base["data"],
            "schema": base["schema"],
            "candidates": candidates,
            "model": key,
            "rows": rows,
            "what": "evaluation",
        },
    )
    known = all(not isinstance(value, Said) for value in identity.values())
    return {
        "key": digest(EVALUATION_FORMAT, canonical(identity)) if known else text,
        "label": item.label,
        "bundle": planned.bundle,
        "stage": planned.stage,
        "origin": "plan" if item.record is None else "frozen",
        "control": item.control,
        "identity": identity,
        "predictions": f"nodes/{predictions}/predictions.parquet",
        "assessment": f"assessments/{stem}.json",
    }


# Names.


def labels_of(folder: Folder) -> dict[str, str]:
    """Folder name -> label of every part that the plan asks for or a record of the folder names."""
    from vestige.study import audit_tuning

    plan = folder.planned
    found: dict[str, str] = {}
    full_label, oracle_label = "full model, seed {}", "oracle of bundle {}, seed {}"
    models: dict[str, str] = {}

    def model(record: Any, label: str) -> None:
        if record is not None:
            models[record["key"]] = label
            found[f"{record['kind']}-{record['key'][:16]}"] = label

    for seed in (*plan.full_seeds, plan.primary):
        model(model_node(folder, "full", seed=seed), full_label.format(seed))
    for bundle, request in folder.requests.items():
        seeds = plan.oracle_seeds_of(bundle) if bundle in plan.bundles else ()
        for seed in {*seeds, plan.primary}:
            made = model_node(folder, "oracle", seed=seed, request=identity_of(request))
            model(made, oracle_label.format(bundle, seed))
    if plan.seed_metrics:
        for seed in plan.seeds:
            model(model_node(folder, "random", seed=seed), f"random model, seed {seed}")
    for cell in cells(folder).values():
        for label, item in cell.unlearned.items():
            model(item.model, f"{label} on bundle {cell.bundle}, seed {cell.seed}")
    tables = {
        rows_hash(rows): (name.rsplit("-", 1)[1], f" of bundle {name.rsplit('-', 1)[0]}")
        for name, rows in folder.views.items()
    }
    offers = {cell.rows: cell for cell in cells(folder).values()}
    for name, record in folder.nodes.items():
        identity = record["identity"]
        if record["kind"] == "embeddings":
            found[name] = "sentence vectors of every row"
        if record["kind"] != "predictions" or identity["model"] not in models:
            continue
        what, rows = identity["what"], identity["rows"]
        label = models[identity["model"]]
        named = label if " on bundle " in label and "oracle of" not in label else f"the {label}"
        _, bundle = tables.get(rows, ("", f" of bundle {offers[rows].bundle}" if rows in offers else ""))
        under = identity["candidates"]
        told = "" if under == ALL_OPTIONS else f", under {under['set']}"
        if what == "probe":
            told, bundle = _probe(folder, name), _probed_bundle(folder, rows)
        found[name] = f"probabilities of {named}, on the {what} rows{bundle}{told}"
    found |= audit_tuning.labels(folder)
    found |= _attacked(folder)
    return found


def _probe(folder: Folder, name: str) -> str:
    """`, renaming`: the probe that an assessment names the table under."""
    path = f"nodes/{name}/predictions.parquet"
    for stored in folder.assessments.values():
        for probe, sources in (stored["provenance"].get("probes") or {}).items():
            if path in (*sources["full"], *sources["oracle"], *sources["unlearned"].values()):
                return f", {probe}"
    return ""


def _probed_bundle(folder: Folder, rows: str) -> str:
    for name, view in folder.views.items():
        if rows_hash([row for row in view if row[1] != "R"]) == rows:
            return f" of bundle {name.rsplit('-', 1)[0]}"
    return ""


def _attacked(folder: Folder) -> dict[str, str]:
    """Labels of the parts that recovery records name."""
    found: dict[str, str] = {}
    for path in sorted((folder.root / "recovery").glob("*.json")):
        record = folder.json(f"recovery/{path.name}")
        role = {key: name for name, key in record["nodes"].items()}
        for key in record["parts"]:
            for kind in ("recovery", "fresh-head"):
                name = f"{kind}-{key[:16]}"
                if name not in folder.nodes:
                    continue
                identity = folder.nodes[name]["identity"]
                checkpoint = role.get(identity["model"], "")
                named = record["label"] if checkpoint == "unlearned" else f"the {checkpoint} model"
                label, bundle = f"{named}, seed {record['seed']}", record["bundle"]
                found[name] = (
                    f"fresh heads on {label} of bundle {bundle}"
                    if kind == "fresh-head"
                    else f"recovery of {label} on bundle {bundle}: {identity['population_set']} rows, "
                    f"k {identity['k']}, adaptation seed {identity['adapt_seed']}"
                )
    return found


# Checks.


def coverage(folder: Folder) -> Finding:
    """Planned against done; what failed is named with its reason."""
    plan = folder.planned
    found = folder.finding("planned results")
    failures = excused(folder)
    for item in failures.values():
        found.noted.append(f"excluded: {item['label']} ({item['reason']})")
    if not folder.assessments and not folder.evaluations:
        found.unchecked.append(
            "no evaluation was made yet: a tuned study, or one that was interrupted before its first"
        )
        return found
    seeds = {*plan.full_seeds, *([plan.primary] if plan.deletion.gated else [])}
    for seed in sorted(seeds):
        found.there(model_node(folder, "full", seed=seed) is not None, f"no full model of seed {seed}")
    every = asked(folder)
    for label in every.lacking:
        found.need(False, f"{label}: its frozen settings are not in the folder")
    _left_out(folder, every, found)
    for item in every.used:
        if item.changed:
            found.noted.append(
                f"{item.label}: other defaults than this version's ({', '.join(item.changed)})"
            )
    for bundle in plan.bundles:
        found.there(bundle in folder.requests, f"no request of bundle {bundle}")
    planned = cells(folder)
    registered = [entry for cell in planned.values() for entry in cell.registered]
    listed = folder.finding("")
    if not compared(registered, folder.evaluations, listed, "evaluations.json") and folder.unfinished:
        found.unchecked.append("evaluations.json is not of this plan: the last run was interrupted")
    else:
        found.failed += listed.failed
    found.count += listed.count
    for stem, cell in planned.items():
        if cell.configured and not cell.unlearned:
            lost = [entry["identity"]["unlearned"] for entry in cell.registered]
            found.there(all(key in failures for key in lost), f"{stem}: nothing of it is there")
            continue
        _models(folder, cell, failures, found)
        if not found.there(stem in folder.assessments, f"no assessment {stem}"):
            continue
        stored = folder.assessments[stem]
        found.need(stored["stage"] == cell.stage, f"{stem}: of stage {stored['stage']}, planned {cell.stage}")
        labels = {model["label"] for model in stored["models"] if model["role"] == "unlearned"}
        for label in cell.unlearned.keys() - labels:
            found.need(False, f"{stem}: '{label}' was planned and is missing")
        found.need(labels <= cell.unlearned.keys(), f"{stem}: a model that was not planned")
    extra = set(folder.assessments) - set(planned)
    changed = len({item["plan"] for item in folder.runs}) > 1 or folder.unfinished
    for name in sorted(extra):
        line = f"assessments/{name}.json is not in the present plan"
        if changed:
            found.noted.append(line)
        else:
            found.need(False, f"{line}, and no other was run")
    return found


def _models(folder: Folder, cell: Cell, failures: Mapping[str, Any], found: Finding) -> None:
    """Every model that a cell compares is there, or has failed."""
    plan = folder.planned
    for kind, seeds, made in (
        ("full", plan.full_seeds_of(cell.bundle), cell.fulls),
        ("oracle", plan.oracle_seeds_of(cell.bundle), cell.oracles),
    ):
        for seed in seeds:
            there = any(item.seed == seed for item in made)
            label = (
                f"full model, seed {seed}"
                if kind == "full"
                else f"oracle of bundle {cell.bundle}, seed {seed}"
            )
            lost = any(item["label"].endswith(label) for item in failures.values())
            found.there(there or lost, f"{cell.stem}: no probabilities of the {kind} model of seed {seed}")
    for entry in cell.registered:
        if entry["label"] not in cell.unlearned:
            lost = entry["identity"]["unlearned"] in failures
            lost = lost or any(entry["label"] in item["label"] for item in failures.values())
            found.there(lost, f"{cell.stem}: '{entry['label']}' was planned and is missing")


def _left_out(folder: Folder, every: Asked, found: Finding) -> None:
    expected = {"infeasible": every.left_out, "same": every.same}
    stored = folder.optional("left_out.json", {"infeasible": {}, "same": {}})
    compared(expected, stored, found, "left_out.json")
    empty = not every.left_out and not every.same
    found.need(not (empty and folder.has("left_out.json")), "left_out.json leaves nothing out")
    for label, other in every.same.items():
        found.noted.append(f"{label} has the settings of {other} and is evaluated once")
    for label, item in every.left_out.items():
        found.noted.append(f"left out: {label} ({item['why']})")


def study_file(folder: Folder) -> Finding:
    """plan.json against the file that it was read from, key by key."""
    from vestige.study.sweep import load_study

    found = folder.finding("keys of the plan")
    plan = folder.planned
    _whole(folder, found)
    if not folder.has("study.yaml"):
        found.unchecked.append("no study.yaml: the study was run from Python, or its file is gone")
        return found
    given = plan.model_dump(mode="json")
    try:
        study = load_study(folder.root / "study.yaml", scale=plan.scale or None)
    except InputError as error:
        raw = yaml_mapping(text_of_file(folder.root / "study.yaml"), "study.yaml")
        for key, value in raw.items():
            found.need(key in given and given[key] == value, f"plan.json: {key} is not what study.yaml says")
        found.noted.append(f"study.yaml is no whole study: {error}")
        return found
    arms = study.merged or {}
    name = arms.get(plan.arm, plan.arm)
    if not found.need(name in study.arms, f"study.yaml has no arm '{plan.arm}'"):
        return found
    wanted = study.arms[name].model_dump(mode="json", exclude_unset=True)
    for key, value in wanted.items():
        told = folder.plan.get(key, given.get(key))
        same = _placed(key, value) == _placed(key, told)
        found.need(same, f"plan.json: {key} is not what study.yaml says")
        if same and value != told:
            found.noted.append(f"plan.json: {key} names another path than study.yaml")
    more = sorted(folder.plan.keys() - wanted.keys())
    if more:
        found.noted.append(f"plan.json says more than study.yaml: {', '.join(more)}")
    return found


def _whole(folder: Folder, found: Finding) -> None:
    """The plan as a run writes it: every value as its type has it."""
    again = folder.planned.model_dump(mode="json", exclude_unset=True)
    compared(again, folder.plan, found, "plan.json")


def _placed(key: str, value: Any) -> Any:
    """A part of a plan without what depends on where the study was run: paths, by their last name alone."""
    if not isinstance(value, dict | list):
        return value
    if key == "dataset" and isinstance(value, dict):
        return {name: item for name, item in value.items() if name not in ("path", "descriptions")}
    if key == "deletion" and isinstance(value, dict):
        kept = {name: item for name, item in value.items() if name != "reserved_by"}
        if kept.get("drawn_by"):
            kept["drawn_by"] = Path(kept["drawn_by"]).name
        return kept
    if key == "model" and isinstance(value, dict):
        return {name: Path(item).name if name == "backbone" else item for name, item in value.items()}
    if key == "methods" and isinstance(value, list):
        return [_source(entry) for entry in value]
    return value


def _source(entry: Any) -> Any:
    """An entry without the file that its settings were found in: that depends on where the study was run."""
    if not isinstance(entry, dict):
        return entry
    kept = {name: item for name, item in entry.items() if name != "frozen"}
    taken = bool(entry.get("frozen")) and not entry.get("frozen_by")
    return {**kept, "frozen": True} if taken else kept
