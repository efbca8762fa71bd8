"""Checks of verdicts on methods, all training seeds of a bundle together, with the audit's own arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vestige.study import audit_verdicts
from vestige.study.audit_folder import Finding, Folder
from vestige.study.audit_numbers import Array, Table
from vestige.study.audit_summaries import CellTables, cell_tables, tested
from vestige.study.audit_verdicts import Models, Request

__all__ = ["method_verdicts"]

NAME = "summaries/verdicts.json"
VIEWS = ("F", "G", "R")
TEMPERATURES = (0.5, 2.0, 5.0)


def method_verdicts(folder: Folder) -> Finding:
    """Evidence, word and corrected p of every verdict on a method, from probabilities."""
    found = Finding(what="verdicts on methods")
    stored = tested(folder, NAME, found)
    if stored is None:
        return found
    cells = cell_tables(folder)
    given = {(item["label"], item["bundle"]): item for item in stored["methods"]}
    wanted: set[tuple[str, str]] = set()
    for bundle in sorted({cell.bundle for cell in cells}):
        here = [cell for cell in cells if cell.bundle == bundle]
        several = {
            label: seeds
            for label in dict.fromkeys(label for cell in here for label in cell.unlearned)
            if len(seeds := [cell.seed for cell in here if label in cell.unlearned]) > 1
        }
        wanted |= {(label, bundle) for label in several}
        mine = {label: given[label, bundle] for label in several if (label, bundle) in given}
        if mine:
            _bundle(folder, here, mine, several, found)
    found.need(set(given) == wanted, f"{NAME}: verdicts on {sorted(given)}, not on {sorted(wanted)}")
    return found


def _bundle(
    folder: Folder,
    cells: Sequence[CellTables],
    stored: Mapping[str, Any],
    several: Mapping[str, list[int]],
    found: Finding,
) -> None:
    records = [folder.assessments[_stem(folder, cell)] for cell in cells]
    paths = {
        role: sorted({path for cell in cells for own, path in cell.paths if own == role})
        for role in ("full", "oracle")
    }
    first = cells[0].full
    tables = {role: [folder.table(path) for path in listed] for role, listed in paths.items()}
    draws = folder.plan.get("draws", 5000)
    requests = {view: _request(view, first, tables, draws) for view in VIEWS}
    options = {name for record in records for name in record["forgotten"]}
    # All of them at once: a request knows divergences by the identity of tables, which must live as long.
    tested_models = {
        label: {
            view: [_rows(cell.unlearned[label], view) for cell in cells if label in cell.unlearned]
            for view in VIEWS
        }
        for label in stored
    }
    expected = {}
    for label, item in stored.items():
        place = f"'{label}' on bundle {cells[0].bundle}"
        found.need(sorted(item["seeds"]) == sorted(several[label]), f"{place}: seeds {item['seeds']}")
        seeds = tested_models[label]
        margins = item["evidence"]["margins"]
        for name, value in folder.plan.get("margins", {}).items():
            found.need(margins[name] == value, f"{place}: the margin of {name} is not the plan's")
        probes = _asked(folder, records, label, requests, seeds)
        expected[label] = audit_verdicts.expected_evidence(requests, seeds, margins, options, probes)
        for line in audit_verdicts.differences(expected[label], item["evidence"]):
            found.need(False, f"{place}: {line}")
        expected[label]["margins"] = margins
    family = list(dict.fromkeys(name for record in records for name in record["family"]))
    words = audit_verdicts.expected_words(expected, family)
    for label, item in stored.items():
        word, p = words[label]
        place = f"'{label}' on bundle {cells[0].bundle}"
        found.need(item["verdict"] == word, f"{place} is {word}, recorded {item['verdict']}")
        found.need(audit_verdicts.same(p, item["verdict_p"]), f"{place}: p of its verdict is {p}")


def _stem(folder: Folder, cell: CellTables) -> str:
    """The assessment of a cell: the one under all options."""
    return next(
        Path(entry["assessment"]).stem
        for entry in folder.evaluations
        if entry["bundle"] == cell.bundle
        and entry["identity"]["seed"] == cell.seed
        and folder.assessments.get(Path(entry["assessment"]).stem, {}).get("candidates") == "S0"
    )


def _rows(table: Table, view: str) -> Array:
    return np.asarray(table.p[[row for row, name in enumerate(table.view) if name == view]])


def _request(view: str, first: Table, tables: Mapping[str, list[Table]], draws: int) -> Request:
    rows = [row for row, name in enumerate(first.view) if name == view]
    place = {option: column for column, option in enumerate(first.options)}
    return Request(
        view,
        [_rows(table, view) for table in tables["full"]],
        [_rows(table, view) for table in tables["oracle"]],
        np.array([place[first.gold[row]] for row in rows], dtype=np.intp),
        [first.unit[row] for row in rows],
        draws,
    )


def _asked(
    folder: Folder,
    records: Sequence[Any],
    label: str,
    requests: Mapping[str, Request],
    seeds: Mapping[str, Models],
) -> dict[str, dict[str, tuple[Request, Models]]]:
    """By probe, in the order of the record: all models of the method asked in that way."""
    found: dict[str, dict[str, tuple[Request, Models]]] = {}
    sources = [record["provenance"].get("probes", {}) for record in records]
    for name in dict.fromkeys(name for item in sources for name in item):
        mine = [item[name] for item in sources if name in item]
        tables = {
            role: [folder.table(path) for path in sorted({path for item in mine for path in item[role]})]
            for role in ("full", "oracle")
        }
        models = [folder.table(item["unlearned"][label]) for item in mine if label in item["unlearned"]]
        found[name] = {
            view: (
                _request(view, models[0], tables, requests[view].draws),
                [_rows(table, view) for table in models],
            )
            for view in ("F", "G")
        }
    if "temperature" in folder.plan.get("probes", ()):
        for temperature in TEMPERATURES:
            found[f"temperature {temperature:g}"] = {
                view: audit_verdicts.at_temperature(requests[view], seeds[view], temperature)
                for view in ("F", "G")
            }
    return found
