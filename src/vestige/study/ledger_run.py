"""What a ledger reads of one run folder: records and JSON files, each once. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from vestige.contracts import Assessment, Estimate, Interval, ModelAssessment, Undefined
from vestige.errors import InputError
from vestige.files import read_record
from vestige.readers import read_json
from vestige.readers.table import described

__all__ = ["Filled", "Run", "bundle_name", "model_names", "number_of"]

REMEDY = "restore the file, or make the folder again with the version that reads it"


@dataclass(frozen=True)
class Run:
    """One run folder, or one arm of a sweep. arm: its name, empty without arms. experiment: the study's."""

    root: Path
    arm: str = ""
    experiment: str = ""

    def json(self, name: str, default: Any = None) -> Any:
        """The value in a JSON file, or `default` where there is none. Raises InputError.

        A default that is an object or a list says what the value has to be too.
        """
        path = self.root / name
        if not path.is_file():
            return default
        found = read_json(path, "a JSON file of a run folder", REMEDY)
        if isinstance(default, (dict, list)) and not isinstance(found, type(default)):
            needed = "an object" if isinstance(default, dict) else "a list"
            raise InputError(str(path), described(found), needed, REMEDY)
        return found

    @cached_property
    def plan(self) -> dict[str, Any]:
        """plan.json, empty where there is none (probabilities that were compared)."""
        found: dict[str, Any] = self.json("plan.json", {})
        return found

    @cached_property
    def name(self) -> str:
        """The study's name."""
        return self.experiment or str(self.plan.get("name") or self.root.name)

    @cached_property
    def assessments(self) -> dict[str, Assessment]:
        """File name -> record, of every candidate set. Raises InputError naming file and field."""
        files = sorted(self.root.glob("assessments/*.json"))
        single = self.root / "assessment.json"
        files += [single] if single.is_file() else []
        return {
            path.relative_to(self.root).as_posix(): read_record(path, Assessment, REMEDY) for path in files
        }

    @cached_property
    def entries(self) -> list[dict[str, Any]]:
        """The registry of evaluations."""
        found: list[dict[str, Any]] = self.json("evaluations.json", [])
        return found

    @cached_property
    def frozen(self) -> list[dict[str, Any]]:
        """Every record of frozen settings that it holds or took."""
        return [self.json(path.name) for path in sorted(self.root.glob("frozen*.json"))]

    @cached_property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """Folder name -> record of every finished node."""
        return {
            path.parent.name: self.json(path.relative_to(self.root).as_posix())
            for path in sorted(self.root.glob("nodes/*/record.json"))
            if not path.parent.name.startswith(".")
        }

    def node(self, kind: str, key: str) -> dict[str, Any] | None:
        """The record of a node, or None."""
        return self.nodes.get(f"{kind}-{key[:16]}")

    @cached_property
    def kept_nodes(self) -> dict[str, Path]:
        """Folder name -> path of every finished node."""
        return {name: self.root / "nodes" / name for name in self.nodes}


def model_names(model: Mapping[str, Any]) -> tuple[str, str]:
    """(key, title) of a backbone: the panel's names where it is in the panel, else the end of its path."""
    settings = ", ".join(f"{name} {model[name]}" for name in sorted(model))
    backbone = str(model.get("backbone") or settings or "own model")
    for key, title, places in _panel():
        if backbone.lower() in {name.lower() for name in (key, title, *places)}:
            return key, title
    tail = backbone.rstrip("/").rpartition("/")[2]
    return tail, tail


@cache
def _panel() -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """(key, title, places) of the panel's backbones."""
    from vestige.models.panel import panel

    return tuple((_panel_key(item.name), item.name, (item.hub_id,)) for item in panel())


def _panel_key(name: str) -> str:
    """The published key of a name: `Llama-3.2-1B` is `llama3.2-1b`, `Granite-4.0-Micro` `granite4-micro`."""
    return re.sub(r"^([a-z]+)-([0-9.]+)-", r"\1\2-", name.lower()).replace(".0-", "-")


def bundle_name(bundle: str) -> str:
    """`b01` for bundle 01; other labels as they are."""
    return f"b{bundle}" if bundle.isdigit() else bundle


def number_of(estimate: Estimate | None) -> float | None:
    """The number, or None where it is undefined or was not measured."""
    return None if estimate is None or isinstance(estimate.value, Undefined) else estimate.value


class Filled:
    """Columns of a row filled from estimates. values: column -> number; printed: why one is undefined."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.printed: dict[str, str] = {}

    def put(
        self,
        column: str,
        estimate: Estimate | None,
        *,
        row: bool = False,
        unit: str = "",
        scale: float = 1.0,
    ) -> None:
        """Fill `column`, with `row` also its `_lo` and `_hi`, with `unit` its bounds over units under that
        name (`_class`)."""
        value = number_of(estimate)
        self.values[column] = None if value is None else value * scale
        if estimate is not None and isinstance(estimate.value, Undefined):
            self.printed[column] = str(estimate.value)
        for wanted, tail, kind in ((row, "", "row"), (bool(unit), unit, "unit")):
            if not wanted:
                continue
            interval = getattr(estimate, kind) if estimate is not None else None
            known = interval if isinstance(interval, Interval) else None
            self.values[f"{column}{tail}_lo"] = known.low * scale if known else None
            self.values[f"{column}{tail}_hi"] = known.high * scale if known else None

    def take(self, model: ModelAssessment | None, **columns: str) -> None:
        """Fill columns from metrics of a model, `column="metric.view"`, without intervals."""
        for column, key in columns.items():
            self.put(column, model.metrics.get(key) if model else None)
