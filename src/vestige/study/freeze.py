"""Freezing: write down what a study will use, before anything of it is evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vestige.contracts import Undefined
from vestige.deletion.bundles import BundlePlan, hash_units
from vestige.errors import InputError, did_you_mean
from vestige.study.frozen import FROZEN, Frozen, FrozenMethod
from vestige.study.plan import MethodEntry, Plan, checked
from vestige.study.store import Store, file_sha256, now
from vestige.study.tune import TUNING, MethodTuning, Tuning
from vestige.study.tuning_rules import MATCHED_WITHIN, EpochResult, Point, chosen_settings, match

__all__ = ["TARGETS", "freeze_study", "match_study", "matched_name"]

TARGETS = {"banking77": 0.6, "clinc150": 1.0}
"""Data set -> the suppression that methods are matched to. Wu and Lim 2026."""


def freeze_study(out: str | Path) -> Frozen:
    """Write frozen.json from tuning.json. Raises InputError without tuning or after an evaluation."""
    Store.reading(out)
    with Store.writing(out) as store:
        plan, tuning = _tuned(store)
        seen = [record.label for record in store.nodes() if record.kind == "unlearned"]
        if seen:
            raise InputError(
                str(out),
                f"{len(seen)} evaluated model(s), the first: {seen[0]}",
                "none before settings are frozen",
                "tune and freeze in a folder where nothing was evaluated",
            )
        labels = {entry.method: entry.label for entry in plan.methods}
        methods = [_best(item, labels.get(item.method) or item.title) for item in tuning.methods]
        return _written(store, FROZEN, _record(store, plan, tuning, methods))


def match_study(
    out: str | Path, target: float | None = None, *, each: str | None = None
) -> tuple[Frozen, str]:
    """(record, its name in the folder): per method the feasible development candidate nearest the target.

    target: suppression ratio; None: that of the data set (`TARGETS`). A method that the plan lists with
    settings is matched among the candidates that have them, once a listing. each: a setting; a method is then
    matched once for every tested value of it but the chosen one, its other settings as chosen, so that the
    epoch alone is free. Raises InputError without tuning, without a target, or where no suppression was
    measured.
    """
    Store.reading(out)
    with Store.writing(out) as store:
        plan, tuning = _tuned(store)
        if tuning.prune:
            raise InputError(
                str(store.path(TUNING)),
                "points that were stopped early",
                "every epoch of every point: a stopped one may be the nearest",
                "tune without tuning.prune",
            )
        target = _target(store, target)
        if each is None:
            listed = [item for tuned in tuning.methods for item in _listings(plan, tuned)]
        else:
            listed = [item for tuned in tuning.methods for item in _values(tuned, each)]
            if not listed:
                known = sorted({name for tuned in tuning.methods for name in tuned.grid})
                raise InputError(
                    "--each", f"'{each}'", "a setting with several tested values", did_you_mean(each, known)
                )
        methods = [_nearest(tuned, label, asked, target) for tuned, label, asked in listed]
        reasons = {
            epoch.s.undefined
            for item in tuning.methods
            for point in item.points
            for epoch in point.epochs
            if isinstance(epoch.s, Undefined)
        }
        if reasons and all(item.settings is None for item in methods):
            raise InputError(
                str(store.path(TUNING)),
                f"no suppression of any candidate ({sorted(reasons)[0]})",
                "candidates of a class deletion with their suppression",
                "tune a class deletion",
            )
        name = matched_name(target)
        return _written(store, name, _record(store, plan, tuning, methods, match=target)), name


def matched_name(target: float) -> str:
    """The record's file name."""
    return f"matched-{target:g}.json"


def _tuned(store: Store) -> tuple[Plan, Tuning]:
    if not store.has(TUNING):
        raise InputError(str(store.root), "no tuning.json", "a tuned study", "run `vestige study tune` first")
    return store.read("plan.json", Plan), store.read(TUNING, Tuning)


def _target(store: Store, target: float | None) -> float:
    if target is None:
        name = str(store.json("data.json")["name"])
        target = TARGETS.get(name)
        if target is None:
            raise InputError(
                f"data set '{name}'",
                "no target of its own",
                f"a suppression to match, such as 0.6 ({', '.join(sorted(TARGETS))} have one)",
                "give the number",
            )
    if not 0 < target < float("inf"):
        raise InputError("--match-suppression", f"{target:g}", "a number above 0", "give, for example, 0.6")
    return target


def _listings(plan: Plan, tuned: MethodTuning) -> list[tuple[MethodTuning, str, dict[str, Any]]]:
    """(tuning, label, settings that a candidate must have) of each of the plan's entries of the method."""
    entries = [entry for entry in plan.methods if entry.method == tuned.method]
    if not entries:
        return [(tuned, tuned.title, {})]
    return [(tuned, entry.label or tuned.title, _asked(entry)) for entry in entries]


def _values(tuned: MethodTuning, field: str) -> list[tuple[MethodTuning, str, dict[str, Any]]]:
    """As `_listings`, for every tested value of a setting but the chosen one."""
    chosen = tuned.settings or {}
    same = {name: chosen[name] for name in tuned.grid if name != field and name in chosen}
    return [
        (tuned, f"{tuned.title}, {field} {value:g}", {**same, field: value})
        for value in tuned.grid.get(field, ())
        if value != chosen.get(field)
    ]


def _asked(entry: MethodEntry) -> dict[str, Any]:
    """The entry's own settings, as numbers."""
    from vestige.methods import METHODS

    known = checked(METHODS.get(entry.method).settings, entry.settings, f"settings of {entry.method}")
    return {name: value for name, value in known.model_dump(mode="json").items() if name in entry.settings}


def _best(item: MethodTuning, label: str) -> FrozenMethod:
    chosen = item.chosen
    return FrozenMethod(
        method=item.method,
        label=label,
        control=_control(item.method),
        settings=item.settings,
        objective=chosen.objective if chosen else None,
        edges=item.edges,
        unbracketed=item.unbracketed,
        budget=item.budget,
        candidates=item.candidates,
        note=item.note,
        s=chosen.s if chosen else None,
    )


def _nearest(item: MethodTuning, label: str, asked: dict[str, Any], target: float) -> FrozenMethod:
    points = [_having(point, asked) for point in item.points]
    found = match(points, target)
    common: dict[str, Any] = {
        "method": item.method,
        "label": label,
        "control": _control(item.method),
        "edges": (),
        "budget": item.budget,
        "candidates": item.candidates,
        "among": asked,
    }
    if found is None:
        there = any(point.epochs for point in points)
        note = "no feasible candidate" if there else "no candidate with the listed settings"
        return FrozenMethod(**common, settings=None, objective=None, note=note)
    point, epoch, gap = found
    unmatched = gap > MATCHED_WITHIN
    return FrozenMethod(
        **common,
        settings=chosen_settings(point, epoch),
        objective=epoch.objective,
        s=epoch.s,
        gap=gap,
        unmatched=unmatched,
        note=f"unmatched: {gap:.3f} from the target" if unmatched else "",
    )


def _having(point: Point, asked: dict[str, Any]) -> Point:
    """The point with the candidates whose settings are those asked for."""

    def fits(epoch: EpochResult) -> bool:
        settings = chosen_settings(point, epoch)
        return all(settings.get(name) == value for name, value in asked.items())

    return point.model_copy(update={"epochs": tuple(epoch for epoch in point.epochs if fits(epoch))})


def _control(method: str) -> bool:
    from vestige.methods import METHODS

    return METHODS.get(method).role == "control"


def _record(
    store: Store, plan: Plan, tuning: Tuning, methods: Sequence[FrozenMethod], match: float | None = None
) -> Frozen:
    bundles: dict[str, str] = {}
    if store.has("bundles.json"):
        drawn = store.read("bundles.json", BundlePlan)
        bundles = {label: hash_units(units) for label, units in drawn.bundles.items()}
        bundles |= drawn.reserved
    else:
        bundles = {tuning.bundle: str(tuning.request["units"])}
    labels = {item.label for item in methods if not item.control and item.settings is not None}
    family = tuple(label for label in plan.family or [item.label for item in methods] if label in labels)
    identity = next(record for record in store.nodes() if record.kind == "tuning").identity
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
        methods=tuple(methods),
        match=match,
        margins=plan.margins,
    )


def _written(store: Store, name: str, record: Frozen) -> Frozen:
    """Write the record, or keep the one that says the same from an earlier time."""
    if store.has(name):
        old = store.read(name, Frozen)
        if old == record.model_copy(update={"time": old.time}):
            return old
    store.write_json(name, record.model_dump(mode="json"))
    return record
