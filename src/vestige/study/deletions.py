"""What a study deletes: the acquisition gate, bundles, requests and view tables, kept in the run folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from vestige.decision.predictions import Predictions
from vestige.deletion.bundles import BundlePlan, plan_bundles, reserved_units
from vestige.deletion.clusters import (
    CLUSTERS,
    LEAST_DEVELOPMENT_ROWS,
    LEAST_TRAINING_ROWS,
    one_per_parent,
)
from vestige.deletion.gates import (
    AcquisitionGate,
    acquisition_gate,
    association_gate,
    gate_exceptions,
)
from vestige.deletion.requests import (
    DeletionRequest,
    association_request,
    class_request,
    custom_request,
    example_request,
    tuning_rows,
)
from vestige.deletion.views import build_views
from vestige.errors import InputError
from vestige.readers.csv_files import read_csv
from vestige.seeds import digest
from vestige.study.bundle_names import renamed
from vestige.study.cells import Node, full_node, predictions_node
from vestige.study.deletion_plan import each_once
from vestige.study.embedded import clusters_of, embeddings_node, stored_embed
from vestige.study.frozen import taken
from vestige.study.plan import CUSTOM_BUNDLE, DEVELOPMENT_BUNDLE
from vestige.study.probes import SCHEMA_PROBES, probe_schema
from vestige.study.start import refuse_seen_start
from vestige.study.store import read_json

if TYPE_CHECKING:
    from vestige.study.cells import Setting
    from vestige.study.store import Store

__all__ = [
    "DRAWING_GATE",
    "Deletions",
    "FirstNodes",
    "capped",
    "development_table",
    "expected_rows",
    "first_nodes",
    "gate_of",
    "needs_vectors",
    "read_table",
    "refuse_impossible",
    "refuse_reserved",
    "settle",
    "table_csv",
    "tuning_bundle",
    "view_table",
]

COLUMNS = ("row_id", "view", "unit")
DRAWING_GATE = "drawing-gate.json"
"""The acquisition gate of another model that drew the bundles."""
RESERVING_GATE = "reserving-gate.json"
"""The acquisition gate of another model whose reserve binds here too."""
LEAST_OPTIONS = 2
"""Of a candidate set."""
DEVELOPMENT, EVALUATION = "development", "evaluation"
"""Purposes of a request: tuning alone, or results."""


@dataclass(frozen=True)
class Deletions:
    """Requests by bundle label. gate: at the primary seed, where there is one. plan: of the bundles, None for
    custom deletion. held_out: rows of a custom request that tuning reads and its reported F leaves out.
    renamed: by label what to say where it stood for other units when settings were frozen."""

    requests: dict[str, DeletionRequest]
    gate: AcquisitionGate | None = None
    plan: BundlePlan | None = None
    held_out: tuple[str, ...] = field(default=(), repr=False)
    renamed: dict[str, tuple[str, ...]] = field(default_factory=dict)


def tuning_bundle(setting: Setting) -> str:
    """The label of the request that tuning reads."""
    return DEVELOPMENT_BUNDLE if setting.plan.deletion.bundled else CUSTOM_BUNDLE


def needs_vectors(setting: Setting, split: Literal["evaluation", "development"]) -> bool:
    """Whether units or view G of this deletion come from sentence vectors."""
    deletion = setting.plan.deletion
    supplied = deletion.g_rows is not None and split == "evaluation"
    return deletion.granularity != "class" and not supplied


@dataclass(frozen=True)
class FirstNodes:
    """What must be there before results. gated: by seed the probabilities that the gate reads. deciding: what
    the requests wait for."""

    nodes: list[Node]
    gated: dict[int, Node]
    deciding: list[Node]


def first_nodes(
    setting: Setting,
    fulls: Sequence[int],
    gated: Sequence[int],
    split: Literal["evaluation", "development"],
) -> FirstNodes:
    """Full models, sentence vectors where units or view G need them, and what the gate reads.

    fulls: seeds of the full models; gated: those among them whose gate is asked. split: whose views follow.
    """
    models = {seed: full_node(setting, seed) for seed in fulls}
    read = {}
    if setting.plan.deletion.gated:
        table = development_table(setting)
        read = {seed: predictions_node(setting, models[seed], table, "development") for seed in gated}
    vectors = [embeddings_node(setting)] if needs_vectors(setting, split) else []
    primary = setting.plan.primary
    return FirstNodes(
        [*vectors, *models.values(), *read.values()],
        read,
        [read.get(primary, models[primary]), *vectors],
    )


def development_table(setting: Setting) -> pd.DataFrame:
    """All development rows as a view table: what the acquisition gate reads."""
    rows = setting.data.rows("development")
    if rows.empty:
        raise InputError(
            f"data set '{setting.data.name}'", "no development rows", "some", "set development_share"
        )
    return pd.DataFrame({"row_id": rows["row_id"], "view": "R", "unit": rows["gold"]}).astype(str)


def gate_of(setting: Setting, store: Store, predictions: Predictions, seed: int) -> AcquisitionGate:
    """The acquisition gate of a full model from its development probabilities."""
    if setting.plan.deletion.granularity == "association":
        return association_gate(
            list(predictions.gold),
            predictions.p,
            predictions.options,
            list(predictions.row_ids),
            clusters_of(setting, store),
            seed=seed,
        )
    return acquisition_gate(
        list(predictions.gold),
        predictions.p,
        predictions.options,
        seed=seed,
        out_of_scope=setting.data.out_of_scope,
    )


def refuse_impossible(setting: Setting) -> None:
    """Raise InputError for a deletion that no gate could make possible, and for a start that would make
    retraining none, before anything is trained."""
    refuse_seen_start(setting)
    for probe in SCHEMA_PROBES:
        if probe in setting.plan.probes:
            probe_schema(setting, probe)
    deletion = setting.plan.deletion
    for name, own in setting.plan.own_sets.items():
        place = f"{setting.plan.source}: own_sets.{name}"
        each_once(own, place)
        if len(own) < LEAST_OPTIONS:
            raise InputError(place, f"{len(own)} option", "at least two to choose between", "add some")
        setting.schema.subset(own)
    if deletion.granularity == "custom":
        _custom(setting)
        return
    count, size = _bundle_count(setting), _bundle_size(setting)
    _refuse_candidates(setting, size)
    possible, what, short = _possible(setting)
    needed = size * (count - 1) + 1 if short else size * count
    if possible < needed:
        raise InputError(
            "deletion",
            f"{possible} {what} in data set '{setting.data.name}'",
            f"{needed}: {count} bundles (00 included) of {size}"
            + (", the last of at least 1" if short else ""),
            "plan fewer or smaller bundles",
        )


def _refuse_candidates(setting: Setting, size: int) -> None:
    """Raise InputError where S1 or S2 need more retained options than a bundle leaves."""
    retained = len(setting.data.options) - size
    for name, each in (("S1", 2), ("S2", 4)):
        if name in setting.plan.candidates and retained < each * size:
            raise InputError(
                f"candidate set {name}",
                f"{max(0, retained)} options beside the {size} of a bundle",
                f"at least {each * size}",
                "delete fewer at once, or leave the set out",
            )


def _possible(setting: Setting) -> tuple[int, str, bool]:
    """At most this many units can be eligible, what they are, and whether the last bundle may be short."""
    data = setting.data
    if setting.plan.deletion.granularity == "example":
        return len(_deletable(setting)), "training rows that may be deleted", False
    if setting.plan.deletion.granularity == "class":
        return len([option for option in data.options if option.id != data.out_of_scope]), "classes", False
    train, development = data.rows("train"), data.rows("development")
    rows, texts = train["gold"].value_counts(), train.groupby("gold")["text"].nunique()
    read = development["gold"].value_counts()
    large = [
        option.id
        for option in data.options
        if option.id != data.out_of_scope
        and texts.get(option.id, 0) >= CLUSTERS
        and rows.get(option.id, 0) >= LEAST_TRAINING_ROWS + CLUSTERS - 1
        and read.get(option.id, 0) >= LEAST_DEVELOPMENT_ROWS
    ]
    return len(large), "intents large enough to delete a cluster of", True


def _deletable(setting: Setting) -> list[str]:
    """Training rows but the out-of-scope ones, sorted."""
    train = setting.data.rows("train")
    return sorted(train.loc[train["gold"] != setting.data.out_of_scope, "row_id"])


def _bundle_size(setting: Setting) -> int:
    return setting.plan.deletion.size(len(_deletable(setting)))


def _bundle_count(setting: Setting) -> int:
    deletion = setting.plan.deletion
    return max(int(label) for label in (DEVELOPMENT_BUNDLE, *deletion.bundles, *deletion.reserved)) + 1


def _custom(setting: Setting) -> DeletionRequest:
    deletion = setting.plan.deletion
    return custom_request(
        setting.data,
        where=deletion.where,
        row_ids=deletion.row_ids,
        bundle=CUSTOM_BUNDLE,
        purpose=EVALUATION,
        salt=deletion.salt,
        seed=setting.plan.primary,
    )


def settle(
    setting: Setting, store: Store, gates: Mapping[int, AcquisitionGate], bundles: Sequence[str]
) -> Deletions:
    """Decide the requests of `bundles` and write them; they never change afterwards.

    gates: by seed, the primary one among them (class and association). Raises InputError when the folder
    holds other requests, or too few units are eligible.
    """
    deletion = setting.plan.deletion
    if deletion.granularity == "custom":
        request = _custom(setting)
        _write_request(store, request)
        tuned = any(entry.takes_frozen for entry in setting.plan.methods)
        return Deletions({CUSTOM_BUNDLE: request}, held_out=tuning_rows(request) if tuned else ())
    gate = gates[setting.plan.primary] if deletion.gated else None
    drawing = gate
    if deletion.drawn_by is not None:
        drawing = _gate_elsewhere(setting, store, deletion.drawn_by, DRAWING_GATE, "drawn_by")
    eligible = _eligible(setting, drawing)
    held = None
    if deletion.reserved_by is not None:
        other = _gate_elsewhere(setting, store, deletion.reserved_by, RESERVING_GATE, "reserved_by")
        held = reserved_units(
            _eligible(setting, other), deletion.salt, _bundle_size(setting), deletion.reserved
        )
    plan = plan_bundles(
        eligible,
        deletion.salt,
        _bundle_size(setting),
        _bundle_count(setting),
        deletion.reserved,
        short=deletion.granularity == "association",
        held=held,
    )
    store.write_once("bundles.json", plan.model_dump(mode="json"), "plan of bundles")
    requests = {label: _drawn(setting, store, label, plan) for label in bundles}
    for request in requests.values():
        _write_request(store, request)
    if gate is not None:
        _write_gates(setting, store, gates, requests)
    frozen = [taken(store, entry) for entry in setting.plan.methods if entry.takes_frozen]
    notes = {label: renamed(request, setting.data.sha256, frozen) for label, request in requests.items()}
    return Deletions(requests, gate, plan, renamed=notes)


def _eligible(setting: Setting, gate: AcquisitionGate | None) -> tuple[str, ...]:
    """Units that a gate lets through, of associations one a parent; every row of an example deletion."""
    found = gate.eligible if gate is not None else tuple(_deletable(setting))
    deletion = setting.plan.deletion
    return one_per_parent(found, deletion.salt) if deletion.granularity == "association" else found


def _gate_elsewhere(setting: Setting, store: Store, given: str, name: str, key: str) -> AcquisitionGate:
    """The gate of the run folder that the plan names, kept here as `name`. Raises InputError."""
    folder = Path(given).resolve()
    if store.has(name):
        return AcquisitionGate.model_validate(store.json(name)["gate"])
    if not (folder / "gates.json").is_file():
        raise InputError(
            f"deletion: {key}",
            f"no gates.json in {folder}",
            "a run folder whose acquisition gate has been run, or an earlier arm",
            "run it first",
        )
    other = read_json(folder / "data.json")
    if other["sha256"] != setting.data.sha256:
        raise InputError(
            f"deletion: {key}", f"{folder}, made on other data", "a run on the same data", "name another"
        )
    gates = read_json(folder / "gates.json")
    gate = gates["acquisition"][str(gates["primary_seed"])]
    store.write_once(
        name, {"data": other["sha256"], "seed": gates["primary_seed"], "gate": gate}, "acquisition gate"
    )
    return AcquisitionGate.model_validate(gate)


def _drawn(setting: Setting, store: Store, label: str, plan: BundlePlan) -> DeletionRequest:
    """The request of a bundle."""
    granularity = setting.plan.deletion.granularity
    common: dict[str, Any] = {
        "bundle": label,
        "purpose": DEVELOPMENT if label == DEVELOPMENT_BUNDLE else EVALUATION,
        "salt": plan.salt,
        "seed": setting.plan.primary,
    }
    units = plan.units(label)
    if granularity == "association":
        clusters = clusters_of(setting, store)
        return association_request(setting.data, units, clusters, size=plan.size, **common)
    if granularity == "example":
        return example_request(setting.data, units, **common)
    return class_request(setting.data, units, **common)


def _write_request(store: Store, request: DeletionRequest) -> None:
    store.write_once(f"requests/{request.bundle}.json", request.model_dump(mode="json"), "deletion request")


def _write_gates(
    setting: Setting,
    store: Store,
    gates: Mapping[int, AcquisitionGate],
    requests: Mapping[str, DeletionRequest],
) -> None:
    old = store.json("gates.json") if store.has("gates.json") else {"acquisition": {}, "exceptions": {}}
    acquisition: dict[str, Any] = {**old["acquisition"]}
    exceptions: dict[str, Any] = {**old["exceptions"]}
    for seed, gate in sorted(gates.items()):
        acquisition[str(seed)] = gate.model_dump(mode="json")
    for label, request in requests.items():
        found = [
            item.model_dump(mode="json")
            for seed, gate in sorted(gates.items())
            if seed in setting.plan.seeds_of(label)
            if seed != setting.plan.primary or store.has(DRAWING_GATE)
            for item in gate_exceptions(request, gate)
        ]
        exceptions[label] = found
    store.write_json(
        "gates.json",
        {"primary_seed": setting.plan.primary, "acquisition": acquisition, "exceptions": exceptions},
    )


def view_table(
    setting: Setting,
    store: Store,
    request: DeletionRequest,
    split: Literal["evaluation", "development"],
    held_out: Sequence[str] = (),
) -> pd.DataFrame:
    """The views of a request, written as CSV (row ids, no texts).

    held_out: deleted rows that tuning has read. On the development split of a custom request, F is these
    rows alone.
    """
    supplied = setting.plan.deletion.g_rows if split == "evaluation" else None
    nearest = request.granularity in ("example", "custom") and supplied is None
    table = build_views(
        setting.data,
        request,
        split=split,
        embed=stored_embed(setting, store) if nearest else None,
        supplied_g=supplied,
        clusters=clusters_of(setting, store) if request.granularity == "association" else None,
    )
    if request.granularity == "custom":
        read = set(tuning_rows(request) if split == "development" else held_out)
        is_f = table["view"] == "F"
        keep = table["row_id"].isin(read) if split == "development" else ~table["row_id"].isin(read)
        table = table[~is_f | keep]
    if split == "development":
        table = capped(table, setting.plan.tuning.development_rows)
    store.write(f"views/{request.bundle}-{split}.csv", table_csv(table).encode())
    return table.reset_index(drop=True)


def capped(table: pd.DataFrame, most: int | None) -> pd.DataFrame:
    """At most `most` rows of R, those first in hash order; F and G whole."""
    kept = table.loc[table["view"] == "R", "row_id"]
    if most is None or len(kept) <= most:
        return table
    chosen = set(sorted(kept, key=lambda row: digest("development rows", row))[:most])
    return table[(table["view"] != "R") | table["row_id"].isin(chosen)]


def table_csv(table: pd.DataFrame) -> str:
    """A view table as CSV in order of row_id."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    rows = table.sort_values("row_id", kind="stable")
    writer.writerows(zip(*(rows[name] for name in COLUMNS), strict=True))
    return out.getvalue()


def read_table(text: str) -> pd.DataFrame:
    """The reverse of `table_csv`."""
    return read_csv("a table of views", text.encode()).frame()


def expected_rows(setting: Setting) -> int:
    """About how many rows a bundle deletes, before the gate has decided: for the estimate of the time."""
    deletion, rows = setting.plan.deletion, len(setting.train_ids)
    if deletion.granularity == "custom":
        return max(1, rows // 20)
    size = _bundle_size(setting)
    if deletion.granularity == "example":
        return size
    parts = len(setting.data.options) * (CLUSTERS if deletion.granularity == "association" else 1)
    return max(1, rows * size // parts)


def refuse_reserved(store: Store) -> None:
    """Raise InputError when anything of a reserved bundle lies in the folder."""
    if not store.has("bundles.json"):
        return
    plan = store.read("bundles.json", BundlePlan)
    for label in plan.reserved:
        for name in (f"requests/{label}.json", *_results(store, label)):
            if store.has(name):
                raise InputError(
                    str(store.path(name)),
                    f"a result of the reserved bundle {label}",
                    "none",
                    "the study has lost its reserve: start another, or remove the file if it is a mistake",
                )
    plan.refuse_reserved(
        str(record.identity["request"]["units"]) for record in store.nodes() if "request" in record.identity
    )


def _results(store: Store, label: str) -> list[str]:
    kinds = ("assessments", "views", "recovery")
    found = [path for kind in kinds for path in sorted(store.root.glob(f"{kind}/{label}-*"))]
    return [path.relative_to(store.root).as_posix() for path in found]
