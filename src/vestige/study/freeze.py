"""Freezing: write down what a confirmation will use, before anything of it is evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vestige.deletion.bundles import BundlePlan, hash_units
from vestige.errors import InputError
from vestige.study.frozen import FROZEN, Frozen, FrozenMethod
from vestige.study.plan import Plan
from vestige.study.store import Store, file_sha256, now
from vestige.study.tune import TUNING, Tuning

__all__ = ["freeze_study"]


def freeze_study(out: str | Path) -> Frozen:
    """Write frozen.json from tuning.json. Raises InputError without tuning or after an evaluation."""
    Store.reading(out)
    with Store.writing(out) as store:
        if not store.has(TUNING):
            raise InputError(str(out), "no tuning.json", "a tuned study", "run `vestige study tune` first")
        plan = Plan.model_validate(store.json("plan.json"))
        seen = [record.label for record in store.nodes() if record.kind == "unlearned"]
        if seen:
            raise InputError(
                str(out),
                f"{len(seen)} evaluated model(s), the first: {seen[0]}",
                "none before settings are frozen",
                "tune and freeze in a folder where nothing was evaluated",
            )
        tuning = Tuning.model_validate(store.json(TUNING))
        point = next(record for record in store.nodes() if record.kind == "tuning")
        frozen = _frozen(store, plan, tuning, point.identity)
        if store.has(FROZEN):
            old = Frozen.model_validate(store.json(FROZEN))
            if old == frozen.model_copy(update={"time": old.time}):
                return old
        store.write_json(FROZEN, frozen.model_dump(mode="json"))
        return frozen


def _frozen(store: Store, plan: Plan, tuning: Tuning, identity: dict[str, Any]) -> Frozen:
    bundles: dict[str, str] = {}
    if store.has("bundles.json"):
        drawn = BundlePlan.model_validate(store.json("bundles.json"))
        bundles = {label: hash_units(units) for label, units in drawn.bundles.items()}
        bundles |= drawn.reserved
    else:
        bundles = {tuning.bundle: str(tuning.request["units"])}
    roles = _roles([item.method for item in tuning.methods])
    labels = {entry.method: entry.label for entry in plan.methods}
    methods = tuple(
        FrozenMethod(
            method=item.method,
            label=labels.get(item.method) or item.title,
            control=roles[item.method] == "control",
            settings=item.settings,
            objective=item.chosen.objective if item.chosen else None,
            edges=item.edges,
            budget=item.budget,
            note=item.note,
        )
        for item in tuning.methods
    )
    family = plan.family
    if family is None:
        family = tuple(item.label for item in methods if not item.control and item.settings is not None)
    return Frozen(
        time=now(),
        study=plan.name,
        stage=plan.stage,
        data=store.json("data.json")["sha256"],
        model=identity["model"],
        training=identity["training"],
        seed=tuning.seed,
        development=tuning.request,
        bundles=bundles,
        family=family,
        equal_budgets=tuning.equal_budgets,
        tuning_sha256=file_sha256(store.path(TUNING)),
        methods=methods,
    )


def _roles(names: list[str]) -> dict[str, str]:
    from vestige.methods import METHODS

    return {name: METHODS.get(name).role for name in names}
