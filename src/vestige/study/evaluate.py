"""From finished prediction nodes to assessments and the registry of evaluations."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vestige.contracts import VERDICT_RULE, Assessment, Undefined
from vestige.decision.predictions import Predictions
from vestige.deletion.requests import DeletionRequest
from vestige.errors import InputError
from vestige.seeds import digest
from vestige.study.assess import AssessSettings, assess
from vestige.study.candidates import Offer, suffix
from vestige.study.caveats import Circumstances, notices
from vestige.study.cells import (
    Configured,
    Node,
    Setting,
    family,
    full_node,
    oracle_node,
    registry_entry,
    request_identity,
    unlearned_node,
)
from vestige.study.deletions import Deletions
from vestige.study.judge import UTILITY
from vestige.study.probes import ProbeNodes
from vestige.study.start import start_sentences
from vestige.study.store import RECORDS, Store, canonical
from vestige.study.verdicts import Group
from vestige.study.work import PREDICTIONS, load_node_predictions

__all__ = ["Cell", "assess_cell", "register"]


@dataclass(frozen=True)
class Cell:
    """One assessment: a request at a seed under a candidate set, with the nodes of its probabilities.

    stage: of its evaluations. fulls, oracles: by training seed, the compared one first. randoms: the
    untrained model of the seed, where the plan asks for it. probes: the same models asked in other ways.
    """

    bundle: str
    seed: int
    stage: str
    offer: Offer
    fulls: tuple[tuple[int, Node], ...]
    oracles: tuple[tuple[int, Node], ...]
    unlearned: dict[str, Node] = field(default_factory=dict)
    randoms: tuple[tuple[int, Node], ...] = ()
    probes: dict[str, ProbeNodes] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """File name of its records: `01-s17`, `01-s17-S1`."""
        return f"{self.bundle}-s{self.seed}{suffix(self.offer.name)}"

    @property
    def assessment(self) -> str:
        """Where its assessment lies in the run folder."""
        return f"assessments/{self.stem}.json"


def register(
    setting: Setting,
    store: Store,
    deletions: Deletions,
    configured: Configured,
    cells: Sequence[Cell],
) -> list[dict[str, Any]]:
    """Write evaluations.json, the registry entry of every planned evaluation, and left_out.json, methods of
    the plan that are not evaluated. Raises InputError for a duplicate."""
    if configured.left_out or configured.same:
        infeasible = {
            label: {"method": method, "why": why} for label, (method, why) in configured.left_out.items()
        }
        store.write_json("left_out.json", {"infeasible": infeasible, "same": configured.same})
    else:
        store.drop("left_out.json")
    entries: list[dict[str, Any]] = []
    for cell in cells:
        request = deletions.requests[cell.bundle]
        for item in configured.at(cell.bundle, cell.seed):
            entry = registry_entry(
                setting,
                request,
                cell.seed,
                item,
                {
                    "unlearned": unlearned_node(setting, request, cell.seed, item),
                    "full": full_node(setting, cell.seed),
                    "oracle": oracle_node(setting, request, cell.seed),
                },
                cell.stage,
                cell.offer,
            )
            node = store.node("predictions", cell.unlearned[item.label].key)
            entry["predictions"] = f"nodes/{node.name}/{PREDICTIONS}"
            entry["assessment"] = cell.assessment
            entries.append(entry)
    for one, other in itertools.combinations(entries, 2):
        if one["key"] == other["key"]:
            raise InputError(
                f"{setting.plan.source}: methods",
                f"'{one['label']}' and '{other['label']}' with the same settings",
                "each configuration once",
                "remove one of them",
            )
    store.write_json("evaluations.json", entries)
    return entries


def assess_cell(
    setting: Setting,
    store: Store,
    deletions: Deletions,
    configured: Configured,
    cell: Cell,
    entries: Sequence[Mapping[str, Any]],
    first: Assessment | None = None,
) -> Assessment | None:
    """Assess one cell, or read its assessment when nothing that it depends on changed.

    first: the assessment of the same models under S0, which feasibility is judged on.
    """
    name = cell.assessment
    utility = _utility(first) if first is not None else {}
    request = deletions.requests[cell.bundle]
    used = configured.at(cell.bundle, cell.seed)
    tables: dict[str, Predictions] = {}

    def table(node: Node, label: str) -> Predictions:
        place = store.node(node.kind, node.key)
        found = load_node_predictions(store.root, node.key, label)
        return dataclasses.replace(found, path=f"nodes/{place.name}/{PREDICTIONS}")

    present = {
        label: node for label, node in cell.unlearned.items() if store.node(node.kind, node.key).record()
    }
    fulls = _present(store, cell.fulls)
    oracles = _present(store, cell.oracles)
    if cell.seed not in fulls or (oracles and cell.seed not in oracles):
        return None
    if not present and used:
        return None
    provenance = _provenance(
        setting, request, cell, [*fulls.values(), *oracles.values(), *present.values()], store
    )
    provenance["evaluations"] = {
        entry["label"]: entry["key"]
        for entry in entries
        if entry["assessment"] == name and entry["label"] in present
    }
    provenance["frozen"] = {
        item.label: dict(item.source) for item in used if item.source and item.label in present
    }
    corrected = family(setting.plan, used, cell.stage)
    exceptions = notices(_circumstances(setting, store, deletions, configured, cell))
    probes = _probes(store, cell, present)
    if setting.plan.probes:
        provenance["probes"] = {name: sources for name, (_, sources) in probes.items()}
    margins = setting.plan.margins
    rule = [VERDICT_RULE, margins.model_dump(mode="json")]
    inputs: list[Any] = [
        RECORDS,
        provenance,
        setting.plan.draws,
        cell.stage,
        corrected,
        exceptions,
        rule,
    ]
    if utility:
        inputs.append({label: {k: str(v) for k, v in item.items()} for label, item in utility.items()})
    provenance["inputs"] = digest(canonical(inputs))
    if store.intact(name):
        old = store.read(name, Assessment)
        if old.provenance.get("inputs") == provenance["inputs"]:
            return old
    for label, node in present.items():
        tables[label] = table(node, label)
    made = assess(
        name=_title(setting, cell),
        fulls=[table(node, _seeded("full", seed, cell)) for seed, node in fulls.items()],
        unlearned=tables,
        oracles=[table(node, _seeded("oracle", seed, cell)) for seed, node in oracles.items()],
        forgotten=request.forgotten,
        settings=AssessSettings(
            draws=setting.plan.draws,
            unit_kind=request.unit_kind,
            exceptions=exceptions,
            candidates=cell.offer.name,
            utility=utility,
            margins=margins,
            probes=("temperature",)
            if "temperature" in setting.plan.probes and not cell.offer.options
            else (),
        ),
        condition=f"training seed {cell.seed}",
        stage=cell.stage,
        methods={item.label: (item.objective.name, item.control) for item in used},
        family=[label for label in corrected if label in tables],
        provenance=provenance,
        probes={name: group() for name, (group, _) in probes.items()},
    )
    _beside_development(made)
    store.write(name, (made.to_json() + "\n").encode())
    return made


def _probes(
    store: Store, cell: Cell, present: Mapping[str, Node]
) -> dict[str, tuple[Callable[[], Group], dict[str, Any]]]:
    """By probe whose every model was scored: how to load its tables, and where they lie.

    Probe tables hold F and G alone; a probe with a model that failed is left out whole.
    """
    found: dict[str, tuple[Callable[[], Group], dict[str, Any]]] = {}
    for name, nodes in cell.probes.items():
        unlearned = {label: nodes.unlearned[label] for label in present}
        every = [*nodes.fulls.values(), *nodes.oracles.values(), *unlearned.values()]
        if any(store.node(node.kind, node.key).record() is None for node in every):
            continue

        def group(nodes: ProbeNodes = nodes, unlearned: Mapping[str, Node] = unlearned) -> Group:
            def tables(given: Iterable[Node]) -> list[Predictions]:
                return [load_node_predictions(store.root, node.key, node.label) for node in given]

            return Group(
                tables(nodes.fulls.values()),
                tables(nodes.oracles.values()),
                {label: tables([node]) for label, node in unlearned.items()},
            )

        def path(node: Node) -> str:
            return f"nodes/{store.node(node.kind, node.key).name}/{PREDICTIONS}"

        sources = {
            "full": [path(node) for node in nodes.fulls.values()],
            "oracle": [path(node) for node in nodes.oracles.values()],
            "unlearned": {label: path(node) for label, node in unlearned.items()},
        }
        found[name] = (group, sources)
    return found


def _beside_development(made: Assessment) -> None:
    """The held-out suppression beside the development one of frozen settings."""
    for label, source in made.provenance["frozen"].items():
        measured = made.model_named(label).metrics.get("suppression.FG")
        if "development_s" in source and measured is not None:
            value = measured.value
            source["held_out_s"] = value if isinstance(value, float) else value.model_dump()


def _title(setting: Setting, cell: Cell) -> str:
    """`study / arm, bundle 01, seed 17, candidate set S1`, what applies of it."""
    study = " / ".join(part for part in (setting.plan.name, setting.plan.arm) if part)
    under = f", candidate set {cell.offer.name}" if cell.offer.options else ""
    return f"{study}, bundle {cell.bundle}, seed {cell.seed}{under}"


def _utility(first: Assessment) -> dict[str, dict[str, float | Undefined]]:
    """Changes of retained accuracy and calibration of every model under test."""
    return {
        model.label: {name: model.metrics[f"{name}.R"].value for name in UTILITY}
        for model in first.models
        if model.role == "unlearned"
    }


def _present(store: Store, nodes: Sequence[tuple[int, Node]]) -> dict[int, Node]:
    """Those that are there, by training seed, order kept."""
    return {seed: node for seed, node in nodes if store.node(node.kind, node.key).record() is not None}


def _seeded(role: str, seed: int, cell: Cell) -> str:
    """`full`, or `full (seed 42)` for another seed than the cell's."""
    return role if seed == cell.seed else f"{role} (seed {seed})"


def _circumstances(
    setting: Setting, store: Store, deletions: Deletions, configured: Configured, cell: Cell
) -> Circumstances:
    """What readers must know of the start of training, the gates and tuning."""
    gates = store.json("gates.json")["exceptions"] if store.has("gates.json") else {}
    return Circumstances(
        seed=cell.seed,
        left_out={label: why for label, (_, why) in configured.left_out.items()},
        same=configured.same,
        start=start_sentences(setting),
        failed=tuple(
            (item["unit"], item["reason"]) for item in gates.get(cell.bundle, []) if item["seed"] == cell.seed
        ),
        drawn_by_another=setting.plan.deletion.drawn_by is not None,
        primary=setting.plan.primary,
        held_out=len(deletions.held_out),
        renamed=deletions.renamed.get(cell.bundle, ()),
        notes=deletions.requests[cell.bundle].notes,
        scale=setting.plan.scale,
        train_rows=len(setting.train_ids),
        backbone=str(setting.model.model_dump().get("backbone", "a small model")),
    )


def _provenance(
    setting: Setting, request: DeletionRequest, cell: Cell, scored: Sequence[Node], store: Store
) -> dict[str, Any]:
    """Hashes, counts, settings, seconds and versions. No texts, no row ids, no custom units."""
    data, plan = setting.data, setting.plan
    report = data.report
    records = [record for node in scored if (record := store.node(node.kind, node.key).record())]
    made = [
        place.record()
        for record in records
        for place in [_model_place(store, record.identity["model"])]
        if place
    ]
    return {
        "data": {
            "name": data.name,
            "sha256": data.sha256,
            "splits": {item.split: item.rows for item in report.splits},
            "left_out": {item.reason: item.rows for item in report.dropped},
            "conflicting_label_texts": report.conflicting.texts,
        },
        "request": {
            "bundle": request.bundle,
            "purpose": request.purpose,
            **request_identity(request),
            "units_sha256": request.units_sha256,
            "rows_sha256": request.rows_sha256,
            "deleted_rows": len(request.row_ids),
            "deleted_units": len(request.units),
            "salt": request.salt,
        },
        "model": setting.model.model_dump(mode="json"),
        "training": setting.task.model_dump(mode="json"),
        "backend": setting.backend.identity(setting.model),
        "arm": plan.arm,
        "scale": plan.scale,
        "rendering": plan.rendering,
        "map_seed": plan.map_seed,
        "candidates": cell.offer.identity,
        "seed": cell.seed,
        "primary_seed": plan.primary,
        "training_rows": len(setting.train_ids),
        "seconds": round(sum(record.seconds for record in made if record), 1),
        "models_trained": len(made),
    }


def _model_place(store: Store, key: str) -> Any:
    for kind in ("full", "oracle", "unlearned"):
        place = store.node(kind, key)
        if place.path.exists():
            return place
    return None
