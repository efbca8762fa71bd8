"""Attacks on a finished run folder, from its stored checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vestige.attacks.exposure import chosen_labels
from vestige.attacks.records import RecoveryRecord
from vestige.errors import InputError, Interrupted
from vestige.study.cells import prepare
from vestige.study.plan import Plan, checked
from vestige.study.pool import Failure, Silent
from vestige.study.recovery import recover, recovery_name, stored_plan, targets
from vestige.study.recovery_plan import RecoveryPlan, check_recovery
from vestige.study.runner import Execution, close_folder, note_failures, open_folder, stopped, team
from vestige.study.store import Store, run_folders

if TYPE_CHECKING:
    from vestige.study.pool import Reporter
    from vestige.study.recovery import Target

__all__ = ["attack_folder", "folders_with"]

Verb = Literal["recover", "fresh-head"]


def attack_folder(
    root: str | Path,
    verb: Verb,
    changes: Mapping[str, Any],
    *,
    methods: Sequence[str] | None = None,
    bundles: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    execution: Execution | None = None,
    report: Reporter | None = None,
) -> tuple[dict[str, RecoveryRecord], tuple[Failure, ...]]:
    """Recovery or fresh heads on the evaluated models of a run folder; finished parts are skipped.

    changes: fields of RecoveryPlan over what the record there, or else the study's plan, says. methods:
    labels. bundles, seeds: a part of the study's. Returns the records by name, and what diverged. Raises
    InputError, Interrupted.
    """
    execution, report = execution or Execution(), report or Silent()
    Store.reading(root)
    backend = execution.opened()
    with Store.writing(root) as store:
        study = checked(Plan, store.json("plan.json"), str(store.path("plan.json")))
        known = targets(store)
        plans = {
            recovery_name(target, known): _plan(store, study, target, known, verb, changes)
            for target in _chosen(store, study, known, methods, bundles, seeds)
        }
        setting = prepare(study, backend)
        open_folder(store, setting, "", f"attack {verb}")
        try:
            with team(store, setting, execution, report) as workers:
                made = recover(setting, store, workers, report, plans)
        except (KeyboardInterrupt, Interrupted):
            raise stopped(store) from None
        note_failures(store, made.nodes, made.failures)
        close_folder(store)
        return made.records, tuple(made.failures)


def folders_with(
    root: str | Path, methods: Sequence[str] | None
) -> dict[str, tuple[Path, tuple[str, ...] | None]]:
    """Run folders of a study, by arm ("" without arms), with those of `methods` that each has evaluated.

    Arms that have none of them are left out. Raises InputError for a label that no arm has.
    """
    found = run_folders(root)
    if methods is None:
        return {arm: (folder, None) for arm, folder in found.items()}
    labels = {
        arm: tuple(dict.fromkeys(item.label for item in targets(Store.reading(folder))))
        for arm, folder in found.items()
    }
    known = tuple(dict.fromkeys(label for mine in labels.values() for label in mine))
    asked = chosen_labels(methods, known, "--method")
    mine = {arm: tuple(label for label in asked if label in labels[arm]) for arm in found}
    return {arm: (folder, mine[arm]) for arm, folder in found.items() if mine[arm]}


def _chosen(
    store: Store,
    study: Plan,
    known: Sequence[Target],
    methods: Sequence[str] | None,
    bundles: Sequence[str] | None,
    seeds: Sequence[int] | None,
) -> list[Target]:
    part = RecoveryPlan(
        bundles=None if bundles is None else tuple(bundles), seeds=None if seeds is None else tuple(seeds)
    )
    check_recovery(part, study.deletion.granularity, study.bundles, study.seeds, f"{store.root}: recovery")
    if not known:
        raise InputError(
            str(store.root),
            "no evaluated unlearned model",
            "one or more",
            "run the study with its methods first",
        )
    labels = chosen_labels(methods, tuple(dict.fromkeys(item.label for item in known)), "--method")
    return [
        item
        for item in known
        if item.label in labels
        and (part.bundles is None or item.bundle in part.bundles)
        and (part.seeds is None or item.seed in part.seeds)
    ]


def _plan(
    store: Store, study: Plan, target: Target, known: Sequence[Target], verb: Verb, changes: Mapping[str, Any]
) -> RecoveryPlan:
    """What is there already is kept: recovering leaves fresh heads as they are, and the other way round."""
    there = stored_plan(store, recovery_name(target, known)) or study.recovery
    other: dict[str, Any] = {"fresh_heads": 0} if verb == "recover" else {"budgets": ()}
    base = RecoveryPlan(**other) if there is None else there
    if verb == "recover" and not base.budgets and "budgets" not in changes:
        changes = {**changes, "budgets": RecoveryPlan().budgets}
    fields = {**base.model_dump(exclude={"methods", "bundles", "seeds"}), **changes}
    plan = checked(RecoveryPlan, fields, "recovery")
    check_recovery(plan, study.deletion.granularity, study.bundles, study.seeds, "recovery")
    return plan
