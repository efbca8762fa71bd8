"""Who is exposed and who is evaluated in a recovery: chosen and checked before anything is adapted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vestige.attacks.exposure import exposed_rows, refuse_overlap, swap_pairs
from vestige.attacks.records import SEEN, SWAP, UNSEEN, ExposureCounts, Population, SwapPair
from vestige.errors import InputError
from vestige.seeds import digest

if TYPE_CHECKING:
    from vestige.deletion.requests import DeletionRequest
    from vestige.study.cells import Setting
    from vestige.study.recovery_plan import RecoveryPlan

__all__ = ["FORGOTTEN", "SWAPPED", "Evaluated", "RecoveryRows", "recovery_rows"]

NOT_ENOUGH_SEEN = "a forgotten class has no deleted row beside the exposed ones"
FORGOTTEN, SWAPPED = "forgotten", "label-swap"
"""What is adapted on: rows of the forgotten classes, or retained rows under another label."""

Pair = tuple[int, int]
"""Budget and adaptation seed: a setting."""


@dataclass(frozen=True)
class Evaluated:
    """A row to score. gold: the option whose probability is followed. unit: class, or label-swap pair."""

    population: Population
    row_id: str
    unit: str
    gold: str


@dataclass(frozen=True)
class RecoveryRows:
    """Rows of one request under one plan.

    units: forgotten classes, sorted: unit i of every population belongs to class i. exposed, swap_exposed:
    setting -> (row id, label trained), by class and hash order. unseen, swap_evaluated: rows scored at every
    setting; deleted: rows of the request, of which a setting scores those that it does not expose.
    seen_missing: why there is no seen population, "" where there is one.
    """

    units: tuple[str, ...]
    exposed: dict[Pair, tuple[tuple[str, str], ...]]
    unseen: tuple[Evaluated, ...] = field(repr=False)
    deleted: tuple[Evaluated, ...] = field(repr=False)
    pairs: tuple[SwapPair, ...] = ()
    swap_exposed: dict[Pair, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    swap_evaluated: tuple[Evaluated, ...] = field(default=(), repr=False)
    seen_missing: str = ""
    counts: ExposureCounts | None = None

    def seen(self, pair: Pair) -> tuple[Evaluated, ...]:
        """Deleted rows that a setting does not expose; none where there is no seen population."""
        if self.seen_missing:
            return ()
        gone = {row for row, _ in self.exposed[pair]}
        return tuple(row for row in self.deleted if row.row_id not in gone)

    def evaluated(self, what: str, pair: Pair) -> tuple[Evaluated, ...]:
        """Rows that an adaptation is scored on. what: FORGOTTEN or SWAPPED."""
        return _sorted([*self.unseen, *self.seen(pair)]) if what == FORGOTTEN else self.swap_evaluated

    def drawn_from(self, population: Population) -> dict[str, str]:
        """Row id -> unit of the rows that intervals of a population draw from; for seen ones all deleted."""
        rows = {UNSEEN: self.unseen, SEEN: self.deleted, SWAP: self.swap_evaluated}[population]
        return {row.row_id: row.unit for row in rows}

    def units_of(self, population: str) -> tuple[str, ...]:
        """Unit names of a population in the order of its unit index."""
        return tuple(pair.unit for pair in self.pairs) if population == SWAP else self.units

    def sha256(self, which: Sequence[Evaluated]) -> str:
        """Hash of rows to score with what is followed."""
        return digest(*(part for row in which for part in (row.population, row.row_id, row.unit, row.gold)))


def recovery_rows(setting: Setting, request: DeletionRequest, plan: RecoveryPlan) -> RecoveryRows:
    """Choose and check every row set. Raises InputError for a budget above a class, too few retained classes,
    a class without evaluation rows, and any overlap."""
    if request.granularity != "class":
        raise InputError(
            f"recovery on bundle {request.bundle}",
            f"a deletion of granularity '{request.granularity}'",
            "a class deletion: recovery trains rows of whole forgotten classes and scores their unseen rows",
            "run it on a study that deletes classes",
        )
    units = tuple(sorted(request.units))
    train, evaluation = (_by_class(setting, split) for split in ("train", "evaluation"))
    for name in units:
        if not evaluation.get(name):
            raise InputError(
                f"class '{name}'", "no evaluation rows", "unseen rows to score", "add evaluation rows of it"
            )
    deleted = {name: [row for row, unit in request.unit_of.items() if unit == name] for name in units}
    exposed = {
        (k, seed): _labelled(exposed_rows(deleted, k, seed), {name: name for name in units})
        for k, seed in plan.pairs
    }
    ever = {row for rows in exposed.values() for row, _ in rows}
    unseen = _sorted([Evaluated(UNSEEN, row, name, name) for name in units for row in evaluation[name]])
    refuse_overlap(ever, [row.row_id for row in unseen], UNSEEN)
    gone = _sorted([Evaluated(SEEN, row, name, name) for name in units for row in deleted[name]])
    missing = "" if plan.controls and plan.budgets else "controls were not asked for"
    if not missing and any(len(deleted[name]) <= k for name in units for k in plan.budgets):
        missing = NOT_ENOUGH_SEEN
    made = RecoveryRows(units, exposed, unseen, gone, seen_missing=missing)
    for pair in plan.pairs:
        refuse_overlap([row for row, _ in exposed[pair]], [row.row_id for row in made.seen(pair)], SEEN)
    if plan.controls and plan.budgets:
        made = _with_swap(setting, made, plan, train, evaluation)
    return _counted(made, request, plan)


def _with_swap(
    setting: Setting,
    made: RecoveryRows,
    plan: RecoveryPlan,
    train: Mapping[str, Sequence[str]],
    evaluation: Mapping[str, Sequence[str]],
) -> RecoveryRows:
    most = max(plan.budgets)
    able = [
        name
        for name, rows in train.items()
        if name != setting.data.out_of_scope and len(rows) >= most and evaluation.get(name)
    ]
    pairs = swap_pairs(made.units, able)
    target = {pair.source: pair.target for pair in pairs}
    sources = {pair.source: train[pair.source] for pair in pairs}
    exposed = {
        (k, seed): _labelled(exposed_rows(sources, k, seed, salt="label-swap rows"), target)
        for k, seed in plan.pairs
    }
    scored = _sorted(
        [Evaluated(SWAP, row, pair.unit, pair.target) for pair in pairs for row in evaluation[pair.source]]
    )
    refuse_overlap(
        {row for rows in exposed.values() for row, _ in rows}, [row.row_id for row in scored], SWAP
    )
    return replace(made, pairs=pairs, swap_exposed=exposed, swap_evaluated=scored)


def _counted(made: RecoveryRows, request: DeletionRequest, plan: RecoveryPlan) -> RecoveryRows:
    ever = {row for rows in made.exposed.values() for row, _ in rows}
    swapped = {row for rows in made.swap_exposed.values() for row, _ in rows}
    unseen, scored = ({row.row_id for row in rows} for rows in (made.unseen, made.swap_evaluated))
    seen = {pair: {row.row_id for row in made.seen(pair)} for pair in plan.pairs}
    both = sum(len({row for row, _ in made.exposed[pair]} & rows) for pair, rows in seen.items())
    counts = ExposureCounts(
        deleted=len(request.row_ids),
        exposed=len(ever),
        unseen=len(unseen),
        seen=None if made.seen_missing else len(set().union(*seen.values())),
        swap_exposed=len(swapped) if made.pairs else None,
        swap_evaluated=len(scored) if made.pairs else None,
        exposed_in_unseen=len(ever & unseen),
        exposed_in_seen=None if made.seen_missing else both,
        swap_exposed_in_evaluated=len(swapped & scored) if made.pairs else None,
        nested=all(_nested(rows, plan) for rows in (made.exposed, made.swap_exposed) if rows),
        units=made.units,
        pairs=made.pairs,
        note=made.seen_missing,
    )
    return replace(made, counts=counts)


def _nested(exposed: Mapping[tuple[int, int], Sequence[tuple[str, str]]], plan: RecoveryPlan) -> bool:
    return all(
        set(exposed[small, seed]) <= set(exposed[large, seed])
        for seed in plan.adapt_seeds
        for small, large in zip(plan.budgets, plan.budgets[1:], strict=False)
    )


def _by_class(setting: Setting, split: str) -> dict[str, list[str]]:
    rows = setting.data.rows("train" if split == "train" else "evaluation")
    found: dict[str, list[str]] = {}
    for row, gold in zip(rows["row_id"], rows["gold"], strict=True):
        found.setdefault(str(gold), []).append(str(row))
    return found


def _labelled(rows: Mapping[str, Sequence[str]], label: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((row, label[name]) for name, chosen in rows.items() for row in chosen)


def _sorted(rows: Sequence[Evaluated]) -> tuple[Evaluated, ...]:
    return tuple(sorted(rows, key=lambda row: (row.population, row.row_id)))
