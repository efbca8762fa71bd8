"""Small prediction tables with known structure, and writers of every accepted format."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vestige.contracts import Floats
from vestige.decision.predictions import Predictions, predictions_from_arrays

FORGOTTEN = ("lost, card", "top/up")
OPTIONS = (*FORGOTTEN, "new\nline", "ümlaut 😀", "__dunder__", "<b>bold</b>", "plain")
COUNTS = {"F": 16, "G": 12, "R": 30}


def softmax(logits: Floats) -> Floats:
    """(N, C) -> (N, C), rows sum to 1."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def rows() -> dict[str, list[str]]:
    """row_id, view, unit and gold of every row: F and G of the forgotten options, R of the others."""
    view = [name for name, count in COUNTS.items() for _ in range(count)]
    gold = [
        FORGOTTEN[place % 2] if name != "R" else OPTIONS[2 + place % (len(OPTIONS) - 2)]
        for place, name in enumerate(view)
    ]
    # Not in the order of the file when sorted: 10 comes before 9.
    return {
        "row_id": [f"row {place}" for place in range(len(view))],
        "view": view,
        "unit": gold,
        "gold": gold,
    }


def probabilities(kind: str, seed: int = 0) -> Floats:
    """(N, C): `full` knows every gold option, `oracle` not the forgotten ones, `unlearned` half of that."""
    table = rows()
    gold = np.array([OPTIONS.index(name) for name in table["gold"]])
    deleted = np.array(table["view"]) != "R"
    size = (len(gold), len(OPTIONS))
    logits = np.random.default_rng(0).normal(size=size) + 0.1 * np.random.default_rng(seed).normal(size=size)
    push = {"full": 4.0, "oracle": 0.0, "unlearned": 1.5}[kind]
    logits[np.arange(len(gold)), gold] += np.where(deleted, push, 4.0)
    return softmax(logits)


def table(kind: str, seed: int = 0, label: str = "") -> Predictions:
    """One model's table. Seeds differ as training seeds would."""
    names = rows()
    return predictions_from_arrays(
        probabilities(kind, seed),
        row_ids=names["row_id"],
        view=names["view"],
        unit=names["unit"],
        gold=names["gold"],
        options=OPTIONS,
        label=label or f"{kind} {seed}",
    )


def shuffled(predictions: Predictions, generator: np.random.Generator) -> dict[str, Any]:
    """The columns of a table in another order of rows and options."""
    order = generator.permutation(len(predictions))
    options = generator.permutation(len(predictions.options))
    columns: dict[str, Any] = {
        "row_id": predictions.row_ids[order],
        "view": predictions.view[order],
        "unit": predictions.unit[order],
        "gold": predictions.gold[order],
    }
    return columns | {f"p:{predictions.options[place]}": predictions.p[order, place] for place in options}


def write(columns: dict[str, Any], path: Path) -> Path:
    """Write columns as JSONL, CSV, Parquet or npz, by the path's suffix, without vestige's own writer."""
    names = list(columns)
    lines = zip(*columns.values(), strict=True)
    match path.suffix:
        case ".jsonl":
            path.write_text("".join(json.dumps(_record(names, line)) + "\n" for line in lines), "utf-8")
        case ".csv":
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(names)
                writer.writerows(
                    [[repr(float(v)) if isinstance(v, float) else v for v in line] for line in lines]
                )
        case ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({name: list(values) for name, values in columns.items()}), path)
        case _:
            np.savez(path, **{name: np.array(list(values)) for name, values in columns.items()})
    return path


def _record(names: Sequence[str], line: Sequence[Any]) -> dict[str, Any]:
    record: dict[str, Any] = {"p": {}}
    for name, value in zip(names, line, strict=True):
        if name.startswith("p:"):
            record["p"][name[2:]] = float(value)
        else:
            record[name] = value
    return record
