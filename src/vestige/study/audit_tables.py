"""Checks of the tables of probabilities and of the gates that follow from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vestige.seeds import digest
from vestige.study import audit_numbers as numbers
from vestige.study import plan_audit
from vestige.study.audit_compare import agree, shown
from vestige.study.audit_folder import Finding, Folder
from vestige.study.audit_subjects import intervention_of, recomputed, sources_of, subjects
from vestige.study.audit_units import too_small, unit_rows

__all__ = ["gates", "probabilities"]


def probabilities(folder: Folder) -> Finding:
    """Tables whole, sums 1, the same rows in each, those of the view table; hashes as assessed."""
    found = folder.finding("conditions")
    for name, record in folder.nodes.items():
        if record["kind"] != "predictions":
            continue
        table = folder.table(f"nodes/{name}/predictions.parquet")
        off = float(np.abs(table.p.sum(axis=1) - 1).max())
        found.need(off <= 1e-9 and bool((table.p >= 0).all()), f"{name}: rows that are no distribution")
        found.need(table.off <= 1e-9, f"{name}: rows that do not sum to 1 as they are stored")
        rows = digest(*table.row_ids, *table.view, *table.unit)
        found.need(rows == record["identity"]["rows"], f"{name}: other rows than it was made for")
        found.need(len(set(table.row_ids)) == len(table.row_ids), f"{name}: a row twice")
        found.need(set(table.gold) <= set(table.options), f"{name}: right answers that are not on offer")
        wrong = sum(
            unit != gold
            for view, unit, gold in zip(table.view, table.unit, table.gold, strict=True)
            if view == "R"
        )
        found.need(not wrong, f"{name}: {wrong} rows of R under another unit than their right answer")
    _same_gold(folder, found)
    for stem, stored in folder.assessments.items():
        bundle = stem.split("-s", 1)[0]
        offered = _offered(folder, stored, bundle, found, stem)
        view = {row[0]: row[1:] for row in folder.views[f"{bundle}-evaluation"]}
        for source in stored["sources"]:
            table = folder.table(source["path"])
            place = f"{stem}, {source['label']}"
            mine = dict(zip(table.row_ids, zip(table.view, table.unit, strict=True), strict=True))
            record = folder.nodes[Path(source["path"]).parent.name]
            if offered is None:
                same = mine == view and record["identity"]["candidates"] == "S0"
            else:
                same = mine.items() <= view.items() and set(table.gold) <= set(table.options)
                same = same and all(row in mine for row, (name, _) in view.items() if name != "R")
                same = same and list(table.options) == sorted(offered)  # a table's columns are sorted
                same = same and record["identity"]["candidates"] == {
                    "set": stored["candidates"],
                    "options": offered,
                }
            found.need(same, f"{place}: its rows are not those of views/{bundle}-evaluation.csv")
            found.need(source["sha256"] == table.sha256, f"{place}: another table than was assessed")
            _right_model(folder, stored, source, record, found, place)
        if stem in plan_audit.cells(folder):
            subject = subjects(folder)[stem]
            for place_in, line in agree(sources_of(folder, subject), stored["sources"], found):
                found.failed.append(f"{stem}: sources {shown(place_in)} {line}")
    return found


def _same_gold(folder: Folder, found: Finding) -> None:
    """A row has one right answer, whichever table it stands in, and the data set's where that is here."""
    gold: dict[str, str] = {}
    loaded = folder.data_set()
    if not isinstance(loaded, str):
        gold = dict(zip(loaded.frame["row_id"], loaded.frame["gold"], strict=True))
    for name, record in folder.nodes.items():
        if record["kind"] == "predictions":
            table = folder.table(f"nodes/{name}/predictions.parquet")
            other = sum(
                gold.setdefault(row, own) != own for row, own in zip(table.row_ids, table.gold, strict=True)
            )
            found.need(not other, f"{name}: {other} rows with another right answer than elsewhere")


def _offered(folder: Folder, stored: Any, bundle: str, found: Finding, stem: str) -> list[str] | None:
    """Options that an assessment's candidate set offers; None: all of them."""
    name = stored.get("candidates", "S0")
    if name == "S0":
        return None
    offered: list[str] = folder.json(f"candidates/{bundle}.json")["sets"][name]
    lost = set(stored["forgotten"])
    found.need(lost <= set(offered), f"{stem}: {name} lacks a forgotten option")
    if name in ("S1", "S2"):
        same = len(offered) == 3 * len(lost) or not lost
        found.need(same, f"{stem}: {name} offers {len(offered)} options")
    return offered


def _right_model(folder: Folder, stored: Any, source: Any, record: Any, found: Finding, place: str) -> None:
    """A source's table is its role's, its request's and, for what was compared, its seed's."""
    made = folder.by_key(source["role"], record["identity"]["model"])["identity"]
    request = stored["provenance"]["request"]
    if source["role"] != "full":
        found.need(
            made["request"]["rows"] == request["rows_sha256"], f"{place}: a model of another deletion request"
        )
    seed = stored["provenance"]["seed"]
    if "(seed " in source["label"]:
        seed = int(source["label"].rsplit("(seed ", 1)[1].rstrip(")"))
    found.need(made["seed"] == seed, f"{place}: a model of another seed")


def gates(folder: Folder) -> Finding:
    """The acquisition gate from development probabilities, its exceptions, and the intervention gate."""
    found = folder.finding("conditions")
    if folder.has("gates.json"):
        stored = folder.json("gates.json")
        expected: dict[str, Any] = {
            "primary_seed": folder.primary_seed,
            "acquisition": {
                seed: _acquisition(folder, int(seed), gate, found)
                for seed, gate in stored["acquisition"].items()
            },
            "exceptions": {bundle: _exceptions(folder, stored, bundle) for bundle in stored["exceptions"]},
        }
        for place, line in agree(expected, stored, found):
            found.failed.append(f"gates.json: {shown(place)} {line}")
        asked = {str(folder.primary_seed), *map(str, folder.planned.seeds)} if folder.evaluations else set()
        for seed in sorted(asked - set(stored["acquisition"])):
            found.need(False, f"gates.json has no acquisition gate of seed {seed}")
        for bundle in folder.requests:
            found.need(bundle in stored["exceptions"], f"gates.json has no exceptions of bundle {bundle}")
        found.noted += [
            f"bundle {bundle}: '{item['unit']}' failed the acquisition gate at seed {item['seed']}"
            for bundle, listed in expected["exceptions"].items()
            for item in listed
        ]
    else:
        gated = folder.planned.deletion.gated and bool(folder.requests)
        found.need(not gated, "no gates.json, though units are chosen by the acquisition gate")
    for stem, subject in subjects(folder).items():
        gate = intervention_of(subject, recomputed(folder, subject))
        told = folder.assessments[stem]["intervention_gate"]
        found.need(gate == told, f"{stem}: the intervention gate is '{gate}', recorded '{told}'")
        if gate != "passed":
            found.noted.append(f"{stem}: {gate}")
    return found


def _exceptions(folder: Folder, stored: Any, bundle: str) -> list[dict[str, Any]]:
    """Units of a bundle that fail the gate of a seed at which it is evaluated; the seed that drew them, which
    they passed, is left out."""
    units = folder.requests[bundle]["units"]
    others = folder.has("drawing-gate.json")
    return [
        {
            "seed": int(seed),
            "unit": unit,
            **{name: item[name] for name in ("accuracy", "mean_gold_probability", "reason")},
        }
        for seed, gate in sorted(stored["acquisition"].items(), key=lambda pair: int(pair[0]))
        if (others or int(seed) != folder.primary_seed) and folder.evaluates(bundle, int(seed))
        for unit in units
        for item in gate["classes"]
        if item["option"] == unit and not item["passed"]
    ]


def _acquisition(folder: Folder, seed: int, gate: Any, found: Finding) -> dict[str, Any]:
    """The gate of every unit that a seed's full model gives, from its development probabilities."""
    tables = [
        folder.table(f"nodes/{name}/predictions.parquet")
        for name, record in folder.nodes.items()
        if record["kind"] == "predictions"
        and record["identity"]["what"] == "development"
        and set(folder.table(f"nodes/{name}/predictions.parquet").view) == {"R"}
        and _is_full(folder, record["identity"]["model"], seed)
    ]
    if not found.need(bool(tables), f"no development probabilities of the full model of seed {seed}"):
        return {}
    table = tables[0]
    data = folder.json("data.json")
    association = folder.plan.get("deletion", {}).get("granularity") == "association"
    least = (0.65, None) if association else (0.7, 0.5)
    of = (
        unit_rows(folder, "development") if association else dict(zip(table.row_ids, table.gold, strict=True))
    )
    if association:
        units = [item["unit"] for item in folder.json("clusters.json")["clusters"]]
    else:
        units = sorted(data["options"])
    best = [[table.options[column] for column in columns] for columns in numbers.best(table.p)]
    by_unit: dict[str, list[int]] = {}
    for row, name in enumerate(table.row_ids):
        by_unit.setdefault(of.get(name, ""), []).append(row)
    classes = []
    for unit in units:
        rows = by_unit.get(unit, [])
        option = unit.rsplit("#", 1)[0] if association else unit
        fault = too_small(folder, unit) if association else ""
        if not association and unit == data["out_of_scope"]:
            fault = "out of scope: never a deletion target"
        accuracy = sum(best[row] == [option] for row in rows) / len(rows) if rows else None
        mean = float(table.p[rows, table.options.index(option)].mean()) if rows else None
        reason = fault or _failed(accuracy, mean, least)
        classes.append(
            {
                "option": unit,
                "rows": len(rows),
                "accuracy": accuracy,
                "mean_gold_probability": mean,
                "passed": not reason,
                "reason": reason,
            }
        )
    return {"seed": seed, "least_accuracy": least[0], "least_gold_probability": least[1], "classes": classes}


def _failed(accuracy: float | None, mean: float | None, least: tuple[float, float | None]) -> str:
    if accuracy is None or mean is None:
        return "no development rows"
    faults = [f"accuracy {accuracy:.3f} < {least[0]:.2f}"] if accuracy < least[0] else []
    if least[1] is not None and mean < least[1]:
        faults.append(f"mean gold probability {mean:.3f} < {least[1]:.2f}")
    return ", ".join(faults)


def _is_full(folder: Folder, key: str, seed: int) -> bool:
    record = folder.nodes.get(f"full-{key[:16]}")
    return record is not None and record["identity"]["seed"] == seed
