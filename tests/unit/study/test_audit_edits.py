"""Every kind of field of every kind of file of a study folder is edited, with all hashes written anew.

Each edit is found by a check or stands under the audit's printed limits; none ends the audit. The table has
some 12,000 edits of one small folder. Here every kind of field gets another value, and every kind of file
some of the other kinds of edit; `VESTIGE_EDITS=all` makes every edit, which takes about a quarter of an hour.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from edit_table import Desk, Edit, Watched, covered, edits, together

from vestige.seeds import digest
from vestige.study.audit import CHECKS, Check, audit_study, run_check
from vestige.study.audit_limits import LIMITS
from vestige.study.freeze import freeze_study
from vestige.study.plan import Plan, parse_plan
from vestige.study.runner import Execution, run_study
from vestige.study.store import file_sha256
from vestige.study.tune import tune_study

EVERY = os.environ.get("VESTIGE_EDITS") == "all"
VALUES = ("another number", "another text", "turned over", "sign")
"""Kinds of edit that leave a record readable: many of them are made at once."""
BATCH, ALONE = 40, 5
ALL = {name: (name, told, check) for name, told, check in CHECKS}


@pytest.fixture(scope="module")
def desk(
    tmp_path_factory: pytest.TempPathFactory, make_plan: Callable[..., Plan], execution: Execution
) -> Desk:
    """A folder with every kind of record: tuned, frozen, run at two seeds, under two candidate sets, probed,
    adapted and summarised. Pages have a test of their own."""
    root = tmp_path_factory.mktemp("edits") / "run"
    text = yaml.safe_dump(
        make_plan(
            stage="confirmation",
            seeds=[17, 42],
            noise_seeds=[],
            oracle_seeds=[7],
            draws=100,
            methods=[{"method": "simnpo", "frozen": True}],
            tuning={"epochs": 2, "grid": {"simnpo": {"beta": [2.5], "retain_weight": [1.0]}}},
            cells=[{"bundles": ["01"], "seeds": [17, 42]}],
            candidates=["S0", "S1"],
            probes=["temperature", "renaming"],
            recovery={"budgets": [1], "seeds": [17], "learning_rate": 2e-4, "fresh_heads": 1},
        ).model_dump(mode="json", exclude_unset=True)
    )
    plan = parse_plan(text, "small.yaml")
    tune_study(plan, root, text=text, execution=execution)
    freeze_study(root)
    run_study(plan, root, text=text, execution=execution)
    return Desk(root)


class Auditor:
    """Audits a desk after an edit, by the checks that read what was edited."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.warm = Watched(desk.root)
        self.before: dict[str, Check] = {}
        self.reads: dict[str, set[str]] = {}
        self.cost: dict[str, float] = {}
        for name, entry in ALL.items():
            began = time.process_time()
            self.warm.reading.append(set())
            self.before[name] = run_check(self.warm, *entry)
            self.reads[name] = self.warm.reading.pop()
            self.cost[name] = time.process_time() - began
        self.found_by: Counter[tuple[str, str]] = Counter()

    def checks(self, edit: Edit) -> Iterator[Check]:
        """Checks that fail or note something after an edit, with what is new; best finders first."""
        touched = self.desk.write(edit)
        try:
            folder = self.warm.but(touched)
            kind = edit.file.split("-")[0].split(".")[0]
            for name in sorted(
                ALL,
                key=lambda name: (
                    not self.reads[name] & touched,
                    -self.found_by[kind, name],
                    self.cost[name],
                ),
            ):
                check = run_check(folder, *ALL[name])
                new = set(check.findings) - set(self.before[name].findings)
                if check.status == "failed" or new:
                    self.found_by[kind, name] += 1
                    yield check.model_copy(update={"findings": tuple(new)})
        finally:
            self.desk.undo(edit)

    def finds(self, edit: Edit) -> bool:
        """Whether any check finds an edit."""
        return next(self.checks(edit), None) is not None

    def named(self, batch: list[Edit]) -> set[tuple[Any, ...]]:
        """Places of edits that a check names when all are made at once."""
        told: set[str] = set()
        left = {}
        for edit in batch:
            # Of tuning and frozen settings a method is named before what is in it.
            whole = edit.file in ("tuning.json", "frozen.json") and edit.place[0] == "methods"
            left[".".join(map(str, edit.place[2:] if whole else edit.place))] = edit.place
        for check in self.checks(together(batch, self.desk.files)):
            told |= {word for line in check.findings for word in line.split()}
            if left.keys() <= told or not self.reads[check.name] & {batch[0].file}:
                break
        found = {place for name, place in left.items() if name in told}
        if len(found) < len(batch) / 2 and len(batch) > 3:  # one of them kept a check from the others
            half = len(batch) // 2
            return self.named(batch[:half]) | self.named(batch[half:])
        return found


def chosen(file: str, every: list[Edit], seen: set[tuple[str, str]]) -> list[Edit]:
    """A change of the value of each kind of place that no file of the same folder has had; of the other kinds
    of edit a few, other ones of each file."""
    if EVERY:
        return every
    by_place: dict[str, list[Edit]] = {}
    for edit in every:
        by_place.setdefault(edit.where, []).append(edit)
    found = []
    for place, mine in by_place.items():
        values = [edit for edit in mine if edit.kind in VALUES]
        field = (file.split("/")[0], place.partition(":")[2])
        if values and field not in seen:
            found.append(values[0])
        seen.add(field)
    others = sorted(
        (edit for edit in every if edit.kind not in VALUES), key=lambda edit: digest(edit.where, edit.kind)
    )
    kinds = dict.fromkeys(edit.kind for edit in others)
    return found + [next(edit for edit in others if edit.kind == kind) for kind in list(kinds)[:ALONE]]


def batches(given: list[Edit]) -> Iterator[list[Edit]]:
    """Changes of values, which can be made together: none lies inside another."""
    left = [edit for edit in given if edit.change is not None and edit.kind in VALUES]
    alike = not left or left[0].file.startswith(
        ("assessments/", "summaries/", "recovery/", "tuning", "frozen")
    )
    if not EVERY and alike:
        yield from (left[start : start + BATCH] for start in range(0, len(left), BATCH))


def unnoticed(auditor: Auditor, given: list[Edit]) -> list[Edit]:
    """Edits that no check finds. Several at once first: one that is named by its place is found."""
    named: set[tuple[Any, ...]] = set()
    for batch in batches(given):
        named |= {
            (place, edit.kind) for place in auditor.named(batch) for edit in batch if edit.place == place
        }
    return [edit for edit in given if (edit.place, edit.kind) not in named and not auditor.finds(edit)]


def test_every_kind_of_field_is_checked_or_named_as_a_limit(desk: Desk) -> None:
    auditor = Auditor(desk)
    assert [check.name for check in auditor.before.values() if check.status == "failed"] == []
    places = tuple(place for limit in LIMITS for place in limit.places)
    passed, made = [], 0
    seen: set[tuple[str, str]] = set()
    for file in desk.kinds().values():
        every = [edit for edit in edits(desk.root, file) if not covered(edit, places)]
        given = [
            edit
            for edit in chosen(file, every, seen)
            if edit.change is not None or edit.make() != desk.files[file]
        ]
        made += len(given)
        passed += unnoticed(auditor, given)
    assert made > 1000
    assert [f"{edit.where}: {edit.kind}" for edit in passed] == []


def test_limits_are_printed_with_the_hash_to_deposit(desk: Desk) -> None:
    limits = audit_study(desk.root).check("limits")
    assert [limit.told for limit in LIMITS] == list(limits.findings[:-1])
    assert limits.findings[-1].endswith(f"sha256 {file_sha256(desk.root / 'manifest.json')}")
