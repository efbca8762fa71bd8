"""From a plan to the pieces of work it needs, each with the identity that decides whether it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from vestige.attacks.exposure import chosen_labels
from vestige.contracts import MethodSettings, Objective, Record, UnlearnSettings
from vestige.data.intents import IntentData, load_intents
from vestige.decision.schema import Schema
from vestige.deletion.requests import DeletionRequest
from vestige.errors import InputError, did_you_mean
from vestige.seeds import digest
from vestige.study.candidates import EVERYTHING, Offer, offered_rows
from vestige.study.frozen import (
    Frozen,
    FrozenMethod,
    check_family,
    check_frozen,
    chosen_methods,
    origin_of,
)
from vestige.study.grids import tried_settings
from vestige.study.jobs import PredictWork, TrainWork, UnlearnWork, Work
from vestige.study.plan import MethodEntry, Plan, checked
from vestige.study.protocol import Backend, Rows, Start
from vestige.study.store import Identity, canonical, node_key

__all__ = [
    "Configuration",
    "Configured",
    "Node",
    "Setting",
    "configurations",
    "full_node",
    "oracle_node",
    "predictions_node",
    "prepare",
    "registry_entry",
    "table_hash",
    "unlearned_node",
]

Kind = Literal[
    "full", "oracle", "unlearned", "predictions", "tuning", "recovery", "fresh-head", "embeddings", "random"
]

EVALUATION_FORMAT = "vestige-evaluation-2"

# Work per row relative to one training row, for the estimate of the time left.
_SCORING = 0.3
_UNLEARNING = 1.4


@dataclass(frozen=True)
class Setting:
    """What every piece of work of a study shares."""

    plan: Plan
    data: IntentData = field(repr=False)
    schema: Schema = field(repr=False)
    backend: Backend = field(repr=False)
    model: Record
    task: Record

    @cached_property
    def base(self) -> Identity:
        """The part of every identity that the plan decides once."""
        return {
            "data": self.data.sha256,
            "schema": self.schema.sha256,
            "rendering": self.plan.rendering,
            "map_seed": self.plan.map_seed,
            "model": self.model.model_dump(mode="json"),
            "training": self.task.model_dump(mode="json"),
            "backend": self.backend.identity(self.model),
        }

    @cached_property
    def start(self) -> Start:
        """What is known of the weights that every training starts from."""
        return self.backend.start(self.model)

    @cached_property
    def texts(self) -> dict[str, str]:
        """Row id -> text."""
        return dict(zip(self.data.frame["row_id"], self.data.frame["text"], strict=True))

    @cached_property
    def gold(self) -> dict[str, str]:
        """Row id -> gold option id."""
        return dict(zip(self.data.frame["row_id"], self.data.frame["gold"], strict=True))

    @cached_property
    def train_ids(self) -> tuple[str, ...]:
        """Ids of the training rows, sorted."""
        return tuple(sorted(self.data.rows("train")["row_id"]))

    def rows(self, row_ids: Sequence[str]) -> Rows:
        """Texts and gold of row ids, order kept."""
        return Rows(
            tuple(row_ids),
            tuple(self.texts[row] for row in row_ids),
            tuple(self.gold[row] for row in row_ids),
        )

    def retained(self, deleted: Sequence[str]) -> tuple[str, ...]:
        """Training row ids that stay, sorted."""
        gone = set(deleted)
        return tuple(row for row in self.train_ids if row not in gone)


@dataclass(frozen=True)
class Configuration:
    """A method with the settings it runs with. origin: "plan" or "frozen"; source: where those come from.
    entry: what the plan says of it."""

    label: str
    objective: Objective
    settings: MethodSettings
    entry: MethodEntry = field(repr=False)
    origin: Literal["plan", "frozen"] = "plan"
    source: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def control(self) -> bool:
        """Controls stay outside Holm's family."""
        return self.objective.role == "control"

    @property
    def confirmed(self) -> bool:
        """Whether it was frozen as one of the family that a confirmation corrects over."""
        return self.label in (self.source or {}).get("family", ())


@dataclass(frozen=True)
class Configured:
    """Every method of a plan as it runs. left_out: label -> (method, why it is not evaluated). same: label ->
    the earlier label whose method and settings it has, where both were frozen."""

    used: tuple[Configuration, ...]
    left_out: dict[str, tuple[str, str]] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)

    def at(self, bundle: str, seed: int) -> tuple[Configuration, ...]:
        """Those that are evaluated on a bundle at a seed, each configuration once."""
        here = {item.label: item for item in self.used if item.entry.at(bundle, seed)}
        return tuple(item for label, item in here.items() if self.same.get(label) not in here)


@dataclass(frozen=True)
class Node:
    """One piece of work. needs: keys of nodes that must be there before. cost: in training rows. stage: of
    the evaluation that it is made for, where that is not the study's."""

    kind: Kind
    label: str
    identity: Identity = field(repr=False)
    work: Work = field(repr=False, compare=False)
    needs: tuple[str, ...] = ()
    cost: float = 0.0
    stage: str = ""

    @cached_property
    def key(self) -> str:
        """Hash of the kind and the identity."""
        return node_key(self.kind, self.identity)


def prepare(plan: Plan, backend: Backend, data: IntentData | None = None) -> Setting:
    """Load the data and fill in the settings. data: the plan's own, loaded before. Raises InputError."""
    with plan.naming_the_file():
        model = backend.model_settings(plan.model)
        task = backend.task_settings(plan.training)
        for name in [*(entry.method for entry in plan.methods), *plan.tuning.grid]:
            backend.refuse(model, backend.objective(name))
    for name in plan.tuning.grid:
        tried_settings(plan, backend.objective(name))
    data = data or load_intents(plan.dataset)
    return Setting(
        plan=plan,
        data=data,
        schema=Schema(data.options, plan.rendering, plan.map_seed),
        backend=backend,
        model=model,
        task=task,
    )


def configurations(setting: Setting, frozen: Mapping[int, Frozen | None] | None = None) -> Configured:
    """Every method of the plan with its settings, labels unique.

    frozen: by place in the plan, for entries that take frozen settings. A method that found no feasible
    setting when it was tuned is left out. Raises InputError when a record is missing, does not name the
    method, or was frozen on other data or another model than a confirmation's, and when a confirmation lists
    another family than was frozen.
    """
    found: list[Configuration] = []
    left_out: dict[str, tuple[str, str]] = {}
    for index, entry in enumerate(setting.plan.methods):
        objective = setting.backend.objective(entry.method)
        place = f"{setting.plan.source}: methods[{index}] ({objective.name})"
        listed: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = []
        if entry.takes_frozen:
            for item, source in _from_frozen(setting, objective, entry, (frozen or {}).get(index), place):
                label = _frozen_label(entry, item, objective)
                if item.settings is None:
                    why = f"{item.note or 'no feasible candidate'}, of {item.candidates} measured"
                    left_out[label] = objective.name, why
                else:
                    listed.append((label, {**item.settings, **entry.settings}, source))
        else:
            listed.append((entry.label or objective.title, entry.settings, None))
        for label, raw, origin_record in listed:
            settings = checked(objective.settings, raw, f"{place}: settings")
            origin: Literal["plan", "frozen"] = "frozen" if entry.takes_frozen else "plan"
            made = Configuration(label, objective, settings, entry, origin, origin_record)
            found += _lengths(made, place) if entry.lengths else [made]
    labels = [item.label for item in found]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(
                f"{setting.plan.source}: methods",
                f"label '{label}' twice",
                "each label once",
                "give one of them another label",
            )
    configured = Configured(tuple(found), left_out, _same(found))
    _check_family(setting.plan, configured)
    return configured


def _same(found: Sequence[Configuration]) -> dict[str, str]:
    """Two studies can freeze the same settings: they are evaluated once, under the first of their labels."""
    same: dict[str, str] = {}
    first: dict[str, str] = {}
    for item in found:
        if item.origin == "frozen":
            what = canonical([item.objective.name, item.settings.model_dump(mode="json")])
            if what in first:
                same[item.label] = first[what]
            first.setdefault(what, item.label)
    return same


def _frozen_label(entry: MethodEntry, item: FrozenMethod, objective: Objective) -> str:
    """The entry's label; else the record's, which tells several listings of a matched method apart."""
    if entry.label is not None:
        return entry.label
    return item.label if entry.matched is not None else objective.title


def _from_frozen(
    setting: Setting, objective: Objective, entry: MethodEntry, frozen: Frozen | None, place: str
) -> list[tuple[FrozenMethod, dict[str, Any]]]:
    """(listing in the record, where it comes from)."""
    if frozen is None:
        raise InputError(
            place,
            "no frozen settings in the run folder" if entry.frozen is True else "no frozen settings",
            "frozen.json",
            "run `vestige study tune` and `vestige study freeze` with this --out first",
        )
    stages = setting.plan.stages
    if "confirmation" in stages:
        check_frozen(
            frozen,
            data=setting.data.sha256,
            model=setting.model.model_dump(mode="json"),
            training=setting.task.model_dump(mode="json"),
            margins=setting.plan.margins,
            place=place,
        )
    chosen = chosen_methods(frozen, objective.name, entry.label, place, exploratory=stages == {"exploratory"})
    return [(item, origin_of(frozen, item)) for item in chosen]


def _lengths(made: Configuration, place: str) -> list[Configuration]:
    """The configuration at `lengths` numbers of epochs, spread evenly up to its own, from 1 on if smaller."""
    count = made.entry.lengths or 1
    if not isinstance(made.settings, UnlearnSettings):
        raise InputError(
            f"{place}: lengths", str(count), "a method that trains for some epochs", "remove the key"
        )
    most = made.settings.epochs
    epochs = sorted({max(1, round(most * (place + 1) / count)) for place in range(count)})
    if most < count:
        epochs = list(range(1, count + 1))
    return [
        replace(
            made,
            label=f"{made.label}, {number} epoch{'s' if number > 1 else ''}",
            settings=made.settings.model_copy(update={"epochs": number}),
        )
        for number in epochs
    ]


def _check_family(plan: Plan, configured: Configured) -> None:
    """The plan's family names candidates; at every confirmed cell it is the one that was frozen."""
    labels = {item.label for item in configured.used}
    controls = {item.label for item in configured.used if item.control}
    for label in plan.family or ():
        if label not in labels and label not in configured.left_out:
            raise InputError(
                f"{plan.source}: family", f"'{label}'", "labels of methods", did_you_mean(label, labels)
            )
        if label in controls:
            raise InputError(
                f"{plan.source}: family", f"the control '{label}'", "candidate methods", "remove it"
            )
    if plan.recovery is not None:
        known = [*(item.label for item in configured.used), *configured.left_out]
        chosen_labels(plan.recovery.methods, known, f"{plan.source}: recovery: methods")
    for cell in plan.planned:
        if cell.stage == "confirmation":
            here = configured.at(cell.bundle, cell.seed)
            frozen = {label for item in here for label in (item.source or {}).get("family", ())}
            check_family(family(plan, here, cell.stage), sorted(frozen), plan.source)


def family(plan: Plan, found: Sequence[Configuration], stage: str) -> tuple[str, ...]:
    """Labels under Holm's correction at a cell: the plan's, else a confirmation's frozen family, else none.

    Methods that were tuned for development alone, and controls, stay outside.
    """
    if plan.family is not None:
        labels = {item.label for item in found}
        return tuple(label for label in plan.family if label in labels)
    if stage == "confirmation":
        return tuple(item.label for item in found if item.confirmed and not item.control)
    return ()


def table_hash(table: pd.DataFrame) -> str:
    """Hash of a view table: row_id, view, unit of each row, in order of row_id."""
    rows = table.sort_values("row_id", kind="stable")
    return digest(*rows["row_id"], *rows["view"], *rows["unit"])


def full_node(setting: Setting, seed: int) -> Node:
    """The full model of a seed."""
    rows = len(setting.train_ids)
    return Node(
        kind="full",
        label=f"full model, seed {seed}",
        identity={**setting.base, "seed": seed, "rows": digest(*setting.train_ids)},
        work=TrainWork(seed),
        cost=rows * _epochs(setting.task),
    )


def oracle_node(setting: Setting, request: DeletionRequest, seed: int) -> Node:
    """The model retrained without a request's rows."""
    stay = setting.retained(request.row_ids)
    return Node(
        kind="oracle",
        label=f"oracle of bundle {request.bundle}, seed {seed}",
        identity={**setting.base, "seed": seed, "rows": digest(*stay), "request": request_identity(request)},
        work=TrainWork(seed, tuple(request.row_ids)),
        cost=len(stay) * _epochs(setting.task),
    )


def request_identity(request: DeletionRequest) -> Identity:
    """What a node's identity says of its request: hashes only."""
    return {
        "granularity": request.granularity,
        "units": request.units_sha256,
        "rows": request.rows_sha256,
    }


def unlearned_node(setting: Setting, request: DeletionRequest, seed: int, used: Configuration) -> Node:
    """The full model of a seed after unlearning a request."""
    start = full_node(setting, seed)
    settings = used.settings.model_dump(mode="json")
    return Node(
        kind="unlearned",
        label=f"{used.label} on bundle {request.bundle}, seed {seed}",
        identity={
            **setting.base,
            "seed": seed,
            "start": start.key,
            "request": request_identity(request),
            "method": used.objective.name,
            "settings": settings,
        },
        work=UnlearnWork(seed, start.key, used.objective.name, settings, tuple(request.row_ids)),
        needs=(start.key,),
        cost=unlearning_cost(used.settings, len(request.row_ids)),
    )


def predictions_node(
    setting: Setting,
    model: Node,
    table: pd.DataFrame,
    what: str,
    bundle: str = "",
    offer: Offer = EVERYTHING,
    *,
    asked: tuple[str, Schema] | None = None,
) -> Node:
    """The probabilities of a model on the rows of a view table whose gold is on offer.

    what: "development", "evaluation" or "probe" rows. asked: name and schema of a probe, in place of the
    study's own schema. bundle: whose views they are, for the label. offer: the
    candidate set, scored by a forward pass of its own.
    """
    named = model.label if model.kind == "unlearned" else f"the {model.label}"
    views = f"the {what} rows" + (f" of bundle {bundle}" if bundle else "")
    under = "" if offer.options is None else f", under {offer.name}"
    under += f", {asked[0]}" if asked else ""
    rows = offered_rows(setting, table, offer)
    return Node(
        kind="predictions",
        label=f"probabilities of {named}, on {views}{under}",
        identity={
            "data": setting.data.sha256,
            "schema": asked[1].sha256 if asked else setting.schema.sha256,
            "candidates": offer.identity,
            "model": model.key,
            "rows": table_hash(rows),
            "what": what,
        },
        work=PredictWork((model.kind, model.key), rows, offer.options, asked[1] if asked else None),
        needs=(model.key,),
        cost=len(rows) * _SCORING,
    )


def unlearning_cost(settings: MethodSettings, rows: int, epochs: int | None = None) -> float:
    """Rows passed through the model, forget and retain, weighted; none for a method that trains nothing."""
    if not isinstance(settings, UnlearnSettings):
        return 0.0
    steps = max(1, -(-rows // settings.forget_batch)) * (epochs or settings.epochs)
    return steps * (settings.forget_batch + settings.retain_batch) * _UNLEARNING


def _epochs(task: Record) -> float:
    return float(getattr(task, "epochs", 1))


def registry_entry(
    setting: Setting,
    request: DeletionRequest,
    seed: int,
    used: Configuration,
    nodes: Mapping[str, Node],
    stage: str,
    offer: Offer = EVERYTHING,
) -> Identity:
    """The registry entry of one evaluation. Its key is of everything that changes a number, and of nothing
    else: the same evaluation has the same key in every arm and study that lists it.

    nodes: "unlearned", "full", "oracle" -> their nodes.
    """
    plan = setting.plan
    identity = {
        "dataset": setting.data.name,
        "data": setting.data.sha256,
        "granularity": request.granularity,
        "purpose": request.purpose,
        "units": request.units_sha256,
        "rows": request.rows_sha256,
        "model": setting.model.model_dump(mode="json"),
        "training": setting.task.model_dump(mode="json"),
        "backend": setting.backend.identity(setting.model),
        "rendering": plan.rendering,
        "map_seed": plan.map_seed,
        "candidates": offer.identity,
        "seed": seed,
        "method": used.objective.name,
        "settings": used.settings.model_dump(mode="json"),
        **{role: node.key for role, node in nodes.items()},
    }
    return {
        "key": digest(EVALUATION_FORMAT, canonical(identity)),
        "label": used.label,
        "bundle": request.bundle,
        "stage": stage,
        "origin": used.origin,
        "control": used.control,
        "identity": identity,
    }
