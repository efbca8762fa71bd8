"""What the audit reads of a run folder, each file once."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vestige.errors import InputError
from vestige.study.audit_numbers import Table, load_table, read_columns
from vestige.study.store import RECORDS, program_sha256

if TYPE_CHECKING:
    from vestige.data.intents import IntentData
    from vestige.study.plan import Plan

__all__ = ["VIEW_COLUMNS", "Finding", "Folder", "parsed"]

T = TypeVar("T")
VIEW_COLUMNS = ("row_id", "view", "unit")


@dataclass
class Finding:
    """What a check found. count, what: how much was checked, for the report. earlier: whether the folder was
    made by a version whose records say less; reworded: whether by another version than this one;
    unfinished: whether its last run was interrupted."""

    failed: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    count: int = 0
    what: str = ""
    earlier: bool = False
    reworded: bool = False
    unfinished: bool = False

    def there(self, holds: bool, otherwise: str) -> bool:
        """As `need`, of what a run that was interrupted may not have made yet: it is then not checked."""
        if not holds and self.unfinished:
            self.count += 1
            self.unchecked.append(f"{otherwise}: the last run was interrupted")
            return False
        return self.need(holds, otherwise)

    def add(self, other: Finding) -> None:
        """Enter what another finding holds."""
        self.failed += other.failed
        self.noted += other.noted
        self.unchecked += other.unchecked
        self.count += other.count

    def need(self, holds: bool, otherwise: str) -> bool:
        """Count a condition; note `otherwise` where it does not hold."""
        self.count += 1
        if not holds:
            self.failed.append(otherwise)
        return holds


def parsed(raw: bytes) -> Any:
    """The value in a JSON file as vestige writes them: no name twice, no NaN. Raises ValueError."""
    return json.loads(raw, object_pairs_hook=_each_once, parse_constant=_no_number)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name twice in one object")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} for a number")


def _remembered(make: Callable[[Folder], T]) -> T:
    """A property of a folder that is worked out once."""

    @wraps(make)
    def given(self: Folder) -> T:
        return self.once(make.__name__, partial(make, self))

    return property(given)  # type: ignore[return-value]


@dataclass
class Folder:
    """A run folder. Raises OSError, ValueError or KeyError where a file is not what it should be."""

    root: Path
    memo: dict[Hashable, Any] = field(default_factory=dict)
    """What was read, and what one check worked out and another needs."""

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, worked out once. An error is raised again each time."""
        if key not in self.memo:
            self.memo[key] = make()
        found: T = self.memo[key]
        return found

    def json(self, name: str) -> Any:
        """The value in a JSON file."""
        return self.once(("json", name), lambda: parsed(self.bytes(name)))

    def bytes(self, name: str) -> bytes:
        """A file as it is."""
        return self.once(("bytes", name), (self.root / name).read_bytes)

    def optional(self, name: str, absent: Any) -> Any:
        """The value in a JSON file, or what its absence stands for."""
        return self.json(name) if self.has(name) else absent

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        return (self.root / name).is_file()

    def finding(self, what: str) -> Finding:
        """An empty finding of this folder. what: what its check counts."""
        return Finding(what=what, earlier=self.earlier, reworded=self.reworded, unfinished=self.unfinished)

    @_remembered
    def runs(self) -> list[Any]:
        """The runs that history.json names; none where it is gone or damaged, which another check says."""
        try:
            found = self.json("history.json")
        except (OSError, ValueError, RecursionError):
            return []
        whole = isinstance(found, list) and all(isinstance(item, dict) for item in found)
        return found if whole else []

    @_remembered
    def earlier(self) -> bool:
        """Whether a version made the folder whose records lack what today's have."""
        return any(item.get("records") != RECORDS for item in self.runs)

    @_remembered
    def unfinished(self) -> bool:
        """Whether the last run was interrupted; of an earlier version that is not known, and taken for no."""
        return bool(self.runs) and not self.earlier and "ended" not in self.runs[-1]

    @_remembered
    def reworded(self) -> bool:
        """Whether another version of vestige made the folder, whose sentences may read otherwise."""
        return any(item.get("program") != program_sha256() for item in self.runs)

    @_remembered
    def plan(self) -> Any:
        """plan.json as it is."""
        return self.json("plan.json")

    @_remembered
    def nodes(self) -> dict[str, Any]:
        """Folder name -> record of every finished node."""
        found = {}
        for path in sorted((self.root / "nodes").glob("*/record.json")):
            if not path.parent.name.startswith("."):
                found[path.parent.name] = self.json(f"nodes/{path.parent.name}/record.json")
        return found

    def by_key(self, kind: str, key: str) -> Any:
        """The record of a node. Raises KeyError."""
        return self.nodes[f"{kind}-{key[:16]}"]

    @_remembered
    def requests(self) -> dict[str, Any]:
        """Bundle label -> request."""
        return {
            path.stem: self.json(f"requests/{path.name}")
            for path in sorted(self.root.glob("requests/*.json"))
        }

    @_remembered
    def assessments(self) -> dict[str, Any]:
        """File name without suffix -> assessment."""
        return {
            path.stem: self.json(f"assessments/{path.name}")
            for path in sorted(self.root.glob("assessments/*.json"))
        }

    @_remembered
    def evaluations(self) -> list[Any]:
        """Every planned evaluation with its key."""
        found: list[Any] = self.optional("evaluations.json", [])
        return found

    @_remembered
    def views(self) -> dict[str, list[tuple[str, str, str]]]:
        """`bundle-split` -> (row id, view, unit) of each row."""
        found = {}
        for path in sorted(self.root.glob("views/*.csv")):
            rows = list(csv.reader(io.StringIO(self.bytes(f"views/{path.name}").decode(), newline="")))
            if rows[0] != list(VIEW_COLUMNS):
                raise ValueError(f"{path.name}: columns {rows[0]}")
            found[path.stem] = [(row[0], row[1], row[2]) for row in rows[1:]]
        return found

    def table(self, name: str) -> Table:
        """A prediction file, by its path in the folder."""
        return self.once(("table", name), lambda: load_table(self.root / name))

    def columns(self, name: str) -> dict[str, list[Any]]:
        """Another Parquet file, column by column."""
        return self.once(("columns", name), lambda: read_columns(self.root / name))

    def evaluates(self, bundle: str, seed: int) -> bool:
        """Whether the plan evaluates a bundle at a seed."""
        parts = self.plan.get("cells") or [{}]
        for part in parts:
            bundles = part.get("bundles") or self.plan.get("deletion", {}).get("bundles", ["01"])
            labels = [f"{item:02d}" if isinstance(item, int) else item for item in bundles]
            if bundle in labels and seed in (part.get("seeds") or self.plan.get("seeds", [17])):
                return True
        return False

    @_remembered
    def planned(self) -> Plan:
        """The plan as a study is run by it. Raises ValueError where it is none."""
        from vestige.study.plan import Plan

        return Plan.model_validate(self.plan)

    def data_set(self) -> IntentData | str:
        """The data set that the plan names, or why it cannot be compared with: it is not here, or is another
        version of what was used."""
        return self.once("data set", self._data_set)

    def _data_set(self) -> IntentData | str:
        from vestige.data.intents import load_intents

        try:
            loaded = load_intents(self.planned.dataset)
        except InputError as error:
            return f"the data set could not be loaded: {error}"
        used = str(self.json("data.json")["sha256"])
        if loaded.sha256 != used:
            return (
                f"the data set here has another hash ({loaded.sha256[:16]}) than the one that was used "
                f"({used[:16]}): another version of it"
            )
        return loaded

    @property
    def primary_seed(self) -> int:
        """The seed that decides eligibility."""
        seeds = self.plan.get("seeds", [17])
        given = self.plan.get("primary_seed")
        return int(seeds[0] if given is None else given)
