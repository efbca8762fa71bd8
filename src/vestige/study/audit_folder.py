"""What the audit reads of a run folder, each file once."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from vestige.study.audit_numbers import Table, load_table

__all__ = ["Finding", "Folder"]


@dataclass
class Finding:
    """What a check found. count, what: how much was checked, for the report."""

    failed: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    count: int = 0
    what: str = ""

    def need(self, holds: bool, otherwise: str) -> bool:
        """Count a condition; note `otherwise` where it does not hold."""
        self.count += 1
        if not holds:
            self.failed.append(otherwise)
        return holds


@dataclass
class Folder:
    """A run folder. Raises OSError, ValueError or KeyError where a file is not what it should be."""

    root: Path
    memo: dict[str, Any] = field(default_factory=dict)
    """What one check worked out and another needs."""
    _tables: dict[str, Table] = field(default_factory=dict)

    def json(self, name: str) -> Any:
        """The value in a JSON file."""
        return json.loads((self.root / name).read_bytes())

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        return (self.root / name).is_file()

    @cached_property
    def plan(self) -> Any:
        """plan.json as it is."""
        return self.json("plan.json")

    @cached_property
    def nodes(self) -> dict[str, Any]:
        """Folder name -> record of every finished node."""
        found = {}
        for path in sorted((self.root / "nodes").glob("*/record.json")):
            if not path.parent.name.startswith("."):
                found[path.parent.name] = json.loads(path.read_bytes())
        return found

    def by_key(self, kind: str, key: str) -> Any:
        """The record of a node. Raises KeyError."""
        return self.nodes[f"{kind}-{key[:16]}"]

    @cached_property
    def requests(self) -> dict[str, Any]:
        """Bundle label -> request."""
        return {
            path.stem: json.loads(path.read_bytes()) for path in sorted(self.root.glob("requests/*.json"))
        }

    @cached_property
    def assessments(self) -> dict[str, Any]:
        """File name without suffix -> assessment."""
        return {
            path.stem: json.loads(path.read_bytes()) for path in sorted(self.root.glob("assessments/*.json"))
        }

    @cached_property
    def evaluations(self) -> list[Any]:
        """Every planned evaluation with its key."""
        found: list[Any] = self.json("evaluations.json") if self.has("evaluations.json") else []
        return found

    @cached_property
    def views(self) -> dict[str, list[tuple[str, str, str]]]:
        """`bundle-split` -> (row id, view, unit) of each row."""
        found = {}
        for path in sorted(self.root.glob("views/*.csv")):
            with path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.reader(file))
            if rows[0] != ["row_id", "view", "unit"]:
                raise ValueError(f"{path.name}: columns {rows[0]}")
            found[path.stem] = [(row[0], row[1], row[2]) for row in rows[1:]]
        return found

    def table(self, name: str) -> Table:
        """A prediction file, by its path in the folder."""
        if name not in self._tables:
            self._tables[name] = load_table(self.root / name)
        return self._tables[name]

    def evaluates(self, bundle: str, seed: int) -> bool:
        """Whether the plan evaluates a bundle at a seed."""
        parts = self.plan.get("cells") or [{}]
        for part in parts:
            bundles = part.get("bundles") or self.plan.get("deletion", {}).get("bundles", ["01"])
            labels = [f"{item:02d}" if isinstance(item, int) else item for item in bundles]
            if bundle in labels and seed in (part.get("seeds") or self.plan.get("seeds", [17])):
                return True
        return False

    @property
    def primary_seed(self) -> int:
        """The seed that decides eligibility."""
        seeds = self.plan.get("seeds", [17])
        given = self.plan.get("primary_seed")
        return int(seeds[0] if given is None else given)
