"""Recovery in a run folder: from its evaluated checkpoints to recovery/<bundle>-s<seed>-<label>.json."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from vestige.attacks.exposure import chosen_labels
from vestige.attacks.records import (
    POPULATIONS,
    SEEN,
    SETTINGS_CAVEAT,
    SWAP,
    UNSEEN,
    FreshHeadResult,
    RecoveryRecord,
)
from vestige.deletion.requests import DeletionRequest, request_from_json
from vestige.files import read_record
from vestige.metrics.recovery import horizon_weights
from vestige.seeds import digest
from vestige.study.deletions import read_table
from vestige.study.plan import Plan, checked
from vestige.study.recovery_measure import (
    CHECKPOINTS,
    SEEDS,
    curves_of,
    fresh_head_results,
    measured,
    reading_of,
)
from vestige.study.recovery_plan import RecoveryPlan, check_recovery
from vestige.study.recovery_rows import FORGOTTEN, SWAPPED, RecoveryRows, recovery_rows
from vestige.study.recovery_work import (
    CURVES,
    HEADS,
    adaptation_cost,
    fresh_head_cost,
    fresh_head_node,
    parquet,
    read_parquet,
    recovery_node,
)
from vestige.study.store import Store, canonical

if TYPE_CHECKING:
    from vestige.study.cells import Node, Setting
    from vestige.study.pool import Failure, Reporter, Team

__all__ = [
    "FOLDER",
    "Recovered",
    "Target",
    "foreseen",
    "recover",
    "recovery_name",
    "stored_plan",
    "targets",
]

FOLDER = "recovery"
RULES = "levels"
"""What a record says of its tables; another word makes finished records anew."""
CAVEATS = (
    SETTINGS_CAVEAT,
    "Absolute, adjusted and headroom contrasts answer different questions: read each start beside them.",
    "The label-swap control starts near zero probability and overrides a correct mapping: it shows how fast "
    "any label can be trained in, not that nothing was forgotten.",
    "Fresh heads show what a frozen backbone still tells apart; they do not show extraction of records.",
    "Nothing here is a privacy guarantee or says anything about what pretraining knew.",
)


@dataclass(frozen=True)
class Target:
    """One unlearned model with what it is compared to. models: checkpoint -> (kind, key)."""

    bundle: str
    seed: int
    label: str
    method: str
    control: bool
    models: dict[str, tuple[str, str]]


@dataclass
class _Piece:
    """A target with its rows and nodes. adapted: by (checkpoint, what, pair); heads: by checkpoint."""

    target: Target
    request: DeletionRequest
    plan: RecoveryPlan
    rows: RecoveryRows
    adapted: dict[tuple[str, str, tuple[int, int]], Node] = field(default_factory=dict)
    heads: dict[str, Node] = field(default_factory=dict)

    @property
    def nodes(self) -> list[Node]:
        return [*self.adapted.values(), *self.heads.values()]


@dataclass(frozen=True)
class Recovered:
    """What was made. records: by name. nodes: every part, made or not. failures: parts that diverged."""

    records: dict[str, RecoveryRecord]
    nodes: list[Node]
    failures: list[Failure]


def recovery_name(target: Target, others: Sequence[Target] = ()) -> str:
    """`recovery/01-s17-simnpo`: the label in lower case, dashes for the rest; a hash where two meet."""
    slug = _slug(target.label)
    twins = {item.label for item in others if _slug(item.label) == slug}
    tail = f"-{digest(target.label)[:6]}" if len(twins) > 1 else ""
    return f"{FOLDER}/{target.bundle}-s{target.seed}-{slug}{tail}"


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.") or "method"


def targets(store: Store) -> list[Target]:
    """Every unlearned model that was evaluated under all options and is there, in order of the registry."""
    entries = store.json("evaluations.json") if store.has("evaluations.json") else []
    found = []
    for entry in entries:
        identity = entry["identity"]
        models = {role: (role, str(identity[role])) for role in CHECKPOINTS}
        if identity["candidates"] != "S0" or any(
            store.node(*model).record() is None for model in models.values()
        ):
            continue
        found.append(
            Target(
                entry["bundle"],
                identity["seed"],
                entry["label"],
                identity["method"],
                entry["control"],
                models,
            )
        )
    return found


def stored_plan(store: Store, name: str) -> RecoveryPlan | None:
    """The plan of a record that is there. name: as `recovery_name` gives it."""
    record = _record(store, name)
    return None if record is None else checked(RecoveryPlan, record.plan, f"{store.path(name)}.json: plan")


def recover(
    setting: Setting,
    store: Store,
    workers: Team,
    report: Reporter,
    plans: Mapping[str, RecoveryPlan] | RecoveryPlan,
    counted: float = 0.0,
) -> Recovered:
    """Adapt what is missing, and write the record of every target that the plan names.

    plans: one for all, or by record name for those to be made. Finished parts are skipped. counted: work
    that the reporter's total already holds. Raises InputError before any work for a plan that the data cannot
    serve.
    """
    known = targets(store)
    pieces: dict[str, _Piece] = {}
    for target in known:
        name = recovery_name(target, known)
        plan = plans if isinstance(plans, RecoveryPlan) else plans.get(name)
        if plan is not None and _asked(setting.plan, target, plan, known):
            pieces[name] = _piece(setting, store, target, plan)
    nodes = [node for piece in pieces.values() for node in piece.nodes]
    missing = {node.key: node for node in nodes if store.node(node.kind, node.key).record() is None}
    report.total += sum(node.cost for node in missing.values()) - counted
    failures = workers.work_through(nodes)
    records = {}
    for name, piece in pieces.items():
        if any(store.node(node.kind, node.key).record() is None for node in piece.nodes):
            report.say(f"{name}: left out, for a part of it diverged")
            continue
        report.stage(f"measuring {name}")
        records[name] = _measure(setting, store, piece, name)
    return Recovered(records, nodes, failures)


def foreseen(
    setting: Setting, requests: Mapping[str, DeletionRequest], plan: RecoveryPlan, methods: int
) -> float:
    """Work of a plan in training rows, about, all checkpoints of `methods` unlearned models a cell included.

    Raises InputError, before anything is trained, for a budget or a control that the data cannot serve.
    """
    total = 0.0
    seeds = plan.seeds or setting.plan.seeds
    for bundle, request in requests.items():
        if plan.bundles is None or bundle in plan.bundles:
            rows = recovery_rows(setting, request, plan)
            each = sum(
                adaptation_cost(rows, what, plan, pair) for what in _kinds(rows) for pair in plan.pairs
            )
            scored = len(request.row_ids) + len(setting.data.rows("evaluation"))
            heads = fresh_head_cost(setting, request, scored) if plan.fresh_heads else 0.0
            total += len(seeds) * (2 + methods) * (each + heads)
    return total


def _kinds(rows: RecoveryRows) -> list[str]:
    return [FORGOTTEN, *([SWAPPED] if rows.pairs else [])]


def _asked(study: Plan, target: Target, plan: RecoveryPlan, known: Sequence[Target]) -> bool:
    subject = f"{study.name}: recovery"
    check_recovery(plan, study.deletion.granularity, study.bundles, study.seeds, subject)
    labels = tuple(dict.fromkeys(item.label for item in known))
    return (
        target.label in chosen_labels(plan.methods, labels, f"{subject}: methods")
        and (plan.bundles is None or target.bundle in plan.bundles)
        and (plan.seeds is None or target.seed in plan.seeds)
    )


def _piece(setting: Setting, store: Store, target: Target, plan: RecoveryPlan) -> _Piece:
    path = store.path(f"requests/{target.bundle}.json")
    request = request_from_json(path.read_text(encoding="utf-8"), str(path))
    rows = recovery_rows(setting, request, plan)
    piece = _Piece(target, request, plan, rows)
    for checkpoint, model in target.models.items():
        named = target.label if checkpoint == "unlearned" else f"the {checkpoint} model"
        label = f"{named}, seed {target.seed}"
        for what in _kinds(rows):
            for pair in plan.pairs:
                piece.adapted[checkpoint, what, pair] = recovery_node(
                    setting, request, model, what, rows, plan, pair, label
                )
        if plan.fresh_heads:
            table = read_table(
                store.path(f"views/{target.bundle}-evaluation.csv").read_text(encoding="utf-8")
            )
            piece.heads[checkpoint] = fresh_head_node(setting, request, model, table, plan.fresh_heads, label)
    return piece


def _measure(setting: Setting, store: Store, piece: _Piece, name: str) -> RecoveryRecord:
    target, plan, study = piece.target, piece.plan, setting.plan
    parts = tuple(node.key for node in piece.nodes)
    used = plan.model_dump(mode="json", exclude={"methods", "bundles", "seeds"})
    inputs = digest(
        "vestige-recovery-2",
        canonical([RULES, study.name, study.stage, target.label, parts, used, study.draws, target.models]),
    )
    old = _record(store, name)
    whole = store.intact(f"{name}.json") and (old is None or not old.curves or store.intact(old.curves))
    if old is not None and old.inputs == inputs and whole:
        return old
    condition = f"training seed {target.seed}"
    counts = piece.rows.counts
    assert counts is not None
    made: dict[str, Any] = {}
    if plan.budgets:
        table = _curves(store, piece)
        data = parquet(table)
        store.write(f"{name}.parquet", data)
        result = measured(
            curves_of(
                table,
                {key: piece.rows.units_of(key) for key in POPULATIONS},
                {key: piece.rows.drawn_from(key) for key in POPULATIONS},
            ),
            plan.evaluations,
            plan.pairs,
            _exposed(piece.rows),
            draws=study.draws,
            condition=condition,
            missing={SEEN: piece.rows.seen_missing, SWAP: "controls were not asked for"},
        )
        made = {
            "settings": result.settings,
            "pooled": result.pooled,
            "controls": result.controls,
            "reading": reading_of(result.pooled),
            "curves": f"{name}.parquet",
            "curves_sha256": _sha256(data),
        }
    record = RecoveryRecord(
        name=f"{study.name}, bundle {target.bundle}, seed {target.seed}, {target.label}",
        study=study.name,
        stage=study.stage,
        bundle=target.bundle,
        seed=target.seed,
        label=target.label,
        method=target.method,
        control=target.control,
        condition=condition,
        request={
            "granularity": piece.request.granularity,
            "units_sha256": piece.request.units_sha256,
            "rows_sha256": piece.request.rows_sha256,
            "deleted_rows": len(piece.request.row_ids),
        },
        model=setting.model.model_dump(mode="json"),
        dataset=setting.data.name,
        rendering=study.rendering,
        map_seed=study.map_seed,
        plan=used,
        updates=plan.evaluations,
        weights=tuple(horizon_weights(plan.evaluations).tolist()),
        draws=study.draws,
        seeds=dict(SEEDS),
        exposure=counts,
        fresh_heads=_heads(store, piece, study.draws, condition),
        nodes={role: key for role, (_, key) in target.models.items()},
        parts=parts,
        inputs=inputs,
        caveats=CAVEATS,
        **made,
    )
    store.write(f"{name}.json", (record.to_json() + "\n").encode())
    return record


def _curves(store: Store, piece: _Piece) -> pd.DataFrame:
    """All tables in one: population, k, adapt_seed, checkpoint, t, row_id, unit, p_gold, correct."""
    frames = []
    for (checkpoint, _, (k, seed)), node in piece.adapted.items():
        place = store.node(node.kind, node.key)
        place.verified()
        table = read_parquet(place.path / CURVES)
        table.insert(1, "k", k)
        table.insert(2, "adapt_seed", seed)
        table.insert(3, "checkpoint", checkpoint)
        frames.append(table)
    order = ["population", "k", "adapt_seed", "checkpoint", "t", "row_id"]
    return pd.concat(frames, ignore_index=True).sort_values(order, ignore_index=True)


def _exposed(rows: RecoveryRows) -> dict[str, dict[tuple[int, int], int]]:
    counts = {pair: len(chosen) for pair, chosen in rows.exposed.items()}
    swapped = {pair: len(chosen) for pair, chosen in rows.swap_exposed.items()}
    return {UNSEEN: counts, SEEN: counts, SWAP: swapped}


def _heads(store: Store, piece: _Piece, draws: int, condition: str) -> tuple[FreshHeadResult, ...]:
    found: list[FreshHeadResult] = []
    for checkpoint, node in piece.heads.items():
        place = store.node(node.kind, node.key)
        record = place.verified()
        initial = [str(item["initial_sha256"]) for item in record.result["heads"]]
        found += fresh_head_results(
            checkpoint,
            read_parquet(place.path / HEADS),
            initial,
            int(record.result["train_rows"]),
            draws,
            condition,
        )
    return tuple(found)


def _record(store: Store, name: str) -> RecoveryRecord | None:
    if not store.has(f"{name}.json"):
        return None
    return read_record(store.path(f"{name}.json"), RecoveryRecord, "remove it and run again")


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
