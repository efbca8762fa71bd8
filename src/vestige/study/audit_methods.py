"""Checks of verdicts on methods, all training seeds of a bundle together, with the audit's own arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vestige.study import audit_evidence, audit_verdicts
from vestige.study.audit_compare import compared
from vestige.study.audit_folder import Finding, Folder
from vestige.study.audit_numbers import Array, Table
from vestige.study.audit_summaries import CellTables, cell_tables, framed, labels_of, tested
from vestige.study.audit_verdicts import Models, Request
from vestige.study.words_audit import Speaker

__all__ = ["method_verdicts"]

NAME = "summaries/verdicts.json"
VIEWS = ("F", "G", "R")
TEMPERATURES = (0.5, 2.0, 5.0)


def method_verdicts(folder: Folder) -> Finding:
    """Evidence, word, sentence and corrected p of every verdict on a method, from probabilities."""
    found = folder.finding("verdicts on methods")
    stored = tested(folder, NAME, found)
    if stored is None:
        return found
    cells = cell_tables(folder)
    methods: list[Any] = []
    for bundle in sorted({cell.bundle for cell in cells}):
        methods += _bundle(folder, [cell for cell in cells if cell.bundle == bundle], stored)
    compared(framed(folder, "vestige-method-verdicts-1", methods), stored, found, NAME)
    return found


def _bundle(folder: Folder, cells: Sequence[CellTables], stored: Any) -> list[dict[str, Any]]:
    """The verdicts on methods that a bundle's cells test at two training seeds or more."""
    seeds = {
        label: sorted(cell.seed for cell in cells if label in cell.unlearned) for label in labels_of(folder)
    }
    several = {label: listed for label, listed in seeds.items() if len(listed) > 1}
    if not several:
        return []
    bundle = cells[0].bundle
    evidences, requests, models = folder.once(
        ("evidence over seeds", bundle), partial(_evidences, folder, bundle, list(several))
    )
    records = [folder.assessments[_stem(folder, cell)] for cell in cells]
    margins = folder.planned.margins.model_dump(mode="json")
    family = list(dict.fromkeys(name for record in records for name in record["family"]))
    told = {item["label"]: item for item in stored["methods"] if item["bundle"] == bundle}
    speaker = Speaker(records[0], told)
    judged = audit_evidence.judged(evidences, requests, models, margins, family, speaker)
    return [
        {
            **{key: _model(cells, label)[key] for key in ("label", "method", "control")},
            "bundle": bundle,
            "seeds": several[label],
            **item,
        }
        for label, item in judged.items()
    ]


def _evidences(
    folder: Folder, bundle: str, several: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Request], dict[str, dict[str, list[Array]]]]:
    """By label the evidence over all seeds; the requests by view; the tables by label and view."""
    cells = [cell for cell in cell_tables(folder) if cell.bundle == bundle]
    records = [folder.assessments[_stem(folder, cell)] for cell in cells]
    tables = {
        role: [
            folder.table(path)
            for path in sorted({path for cell in cells for own, path in cell.paths if own == role})
        ]
        for role in ("full", "oracle")
    }
    requests = {view: _request(view, cells[0].full, tables, folder.planned.draws) for view in VIEWS}
    options = {name for record in records for name in record["forgotten"]}
    # All of them at once: a request knows divergences by the identity of tables, which must live as long.
    models = {
        label: {
            view: [_rows(cell.unlearned[label], view) for cell in cells if label in cell.unlearned]
            for view in VIEWS
        }
        for label in several
    }
    margins = folder.planned.margins.model_dump(mode="json")
    evidences = {
        label: audit_verdicts.expected_evidence(
            requests, models[label], margins, options, _asked(folder, records, label, requests, models[label])
        )
        for label in several
    }
    return evidences, requests, models


def _model(cells: Sequence[CellTables], label: str) -> Any:
    return next(cell.models[label] for cell in cells if label in cell.models)


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
    if "temperature" in folder.planned.probes:
        for temperature in TEMPERATURES:
            found[f"temperature {temperature:g}"] = {
                view: audit_verdicts.at_temperature(requests[view], seeds[view], temperature)
                for view in ("F", "G")
            }
    return found
