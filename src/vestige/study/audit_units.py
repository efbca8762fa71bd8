"""Checks of units: which rows a cluster holds or lie nearest to a deleted row, from the stored vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from vestige.seeds import digest
from vestige.study.audit_folder import Finding, Folder, parsed

__all__ = ["too_small", "unit_rows", "units"]

LEAST = {"train": 15, "development": 8}
RULES = {
    "clusters_per_intent": 3,
    "starts": 10,
    "seed": 0,
    "least_training_rows": 15,
    "least_development_rows": 8,
}
CLOSE = 1e-8
"""Differences of distances below this are ties, whose order rounding decides."""
_BLOCK = 256
Vectors = dict[str, NDArray[np.float64]]


def unit_rows(folder: Folder, split: str) -> dict[str, str]:
    """Row id -> cluster, of a split, as clusters.json has it."""
    return {row: item["unit"] for item in folder.json("clusters.json")["clusters"] for row in item[split]}


def too_small(folder: Folder, unit: str) -> str:
    """Why a cluster has too few rows to be deleted, "" where it has enough."""
    item = next(item for item in folder.json("clusters.json")["clusters"] if item["unit"] == unit)
    words = {"train": "training", "development": "development"}
    return ", ".join(
        f"{len(item[split])} {words[split]} rows < {least}"
        for split, least in LEAST.items()
        if len(item[split]) < least
    )


def units(folder: Folder) -> Finding:
    """Units of the views' rows, clusters, and view G of deletions that nearness decides."""
    found = folder.finding("conditions")
    for name, rows in folder.views.items():
        request = folder.requests[name.rsplit("-", 1)[0]]
        for row, view, unit in rows:
            if view == "F":
                same = request["unit_of"].get(row) == unit
                found.need(same, f"views/{name}: a row of F under another unit than its request's")
            elif view == "G" and request["granularity"] != "custom":
                found.need(unit in request["units"], f"views/{name}: a row of G under a unit that stays")
    kinds = {request["granularity"] for request in folder.requests.values()}
    if not kinds - {"class"}:
        return found
    supplied = folder.plan.get("deletion", {}).get("g_rows")
    if supplied is not None:
        for name, rows in folder.views.items():
            if name.endswith("-evaluation"):
                given = {row for row, view, _ in rows if view == "G"}
                found.need(given == set(supplied), f"views/{name}: G is not the rows that were named")
    encoder = folder.json("clusters.json")["encoder"] if folder.has("clusters.json") else None
    paths = [
        folder.root / "nodes" / name / "vectors.parquet"
        for name, record in folder.nodes.items()
        if record["kind"] == "embeddings" and encoder in (None, record["identity"]["encoder"])
    ]
    needed = [name for name in folder.views if supplied is None or name.endswith("-development")]
    if not paths:
        if needed or folder.has("clusters.json"):
            found.unchecked.append("no sentence vectors are kept here: nearness cannot be checked")
        return found
    vectors = _vectors(paths[0], found)
    if "association" in kinds:
        _clusters(folder, vectors, found)
    else:
        for name in needed:
            _nearest(folder, name, vectors, found)
    return found


def _vectors(path: Path, found: Finding) -> Vectors:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    rows = table["row_id"].to_pylist()
    flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    values = flat.reshape(len(rows), -1).astype(np.float64)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    found.need(float(np.abs(norms - 1).max()) < 1e-5, "sentence vectors that are not of length 1")
    identity = parsed((path.parent / "record.json").read_bytes())["identity"]
    found.need(identity["rows"] == digest(*sorted(rows)), "sentence vectors of other rows than their key's")
    return dict(zip(rows, values / norms, strict=True))


def _clusters(folder: Folder, vectors: Vectors, found: Finding) -> None:
    """Rows at the nearest mean, means of their own rows, requests and views from these clusters."""
    kept = folder.json("clusters.json")
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for name, value in RULES.items():
        found.need(kept[name] == value, f"clusters.json: {name} is {kept[name]}, not {value}")
    found.need(kept["data_sha256"] == folder.json("data.json")["sha256"], "clusters of other data")
    by_unit = {item["unit"]: item for item in kept["clusters"]}
    parents: dict[str, list[Any]] = {}
    for item in kept["clusters"]:
        parents.setdefault(item["unit"].rsplit("#", 1)[0], []).append(item)
    for parent, items in parents.items():
        found.need(
            [item["unit"] for item in items] == [f"{parent}#{j}" for j in range(3)],
            f"clusters of '{parent}' are not three",
        )
        means = []
        for item in items:
            own = np.array([vectors[row] for row in sorted(item["train"])])
            means.append(own.mean(axis=0))
            same = digest(means[-1].astype("<f8").tobytes()) == item["centroid_sha256"]
            found.need(same, f"{item['unit']}: its centroid is not the mean of its training rows")
        centre = np.array(means)
        _best_of_starts(parent, items, centre, vectors, found)
        for place, item in enumerate(items):
            for split in ("train", "development", "evaluation"):
                if not item[split]:
                    continue
                points = np.array([vectors[row] for row in item[split]])
                far = np.array([((points - one) ** 2).sum(axis=1) for one in centre])
                wrong = int((far[place] > far.min(axis=0) + CLOSE).sum())
                found.need(not wrong, f"{item['unit']}: {wrong} {split} rows lie nearer to another centroid")
    for split in ("train", "development", "evaluation"):
        listed = [row for item in kept["clusters"] for row in item[split]]
        found.need(len(listed) == len(set(listed)), f"clusters.json: a {split} row in two clusters")
    for label, request in folder.requests.items():
        same = request["clusters_sha256"] == digest("clusters-1", text)
        found.need(same, f"request {label}: made from other clusters")
        wanted = {row: unit for unit in request["units"] for row in by_unit[unit]["train"]}
        found.need(request["unit_of"] == wanted, f"request {label} is not the training rows of its clusters")
    for name, rows in folder.views.items():
        label, split = name.rsplit("-", 1)
        lost = folder.requests[label]["units"]
        wanted = {row: unit for unit in lost for row in by_unit[unit][split]}
        given = {row: unit for row, view, unit in rows if view == "G"}
        found.need(given == wanted, f"views/{name}: G is not the rows nearest to the deleted clusters")


def _best_of_starts(
    parent: str, items: list[Any], centre: NDArray[np.float64], vectors: Vectors, found: Finding
) -> None:
    """The kept clusters are no wider than the best of ten k-means++ starts, made again from the seed."""
    rows = sorted(row for item in items for row in item["train"])
    points = np.array([vectors[row] for row in rows])
    kept = sum(
        float(((np.array([vectors[row] for row in item["train"]]) - mean) ** 2).sum())
        for item, mean in zip(items, centre, strict=True)
    )
    rng = np.random.default_rng(RULES["seed"])
    best = np.inf
    for _ in range(RULES["starts"]):
        means = points[[rng.integers(len(points))]]
        while len(means) < RULES["clusters_per_intent"]:
            gap = cdist(points, means, "sqeuclidean").min(axis=1)
            means = np.vstack([means, points[rng.choice(len(points), p=gap / gap.sum())]])
        own: NDArray[np.int64] | None = None
        for _ in range(300):
            if own is not None and len(set(own.tolist())) < len(means):
                break
            squared = cdist(points, means, "sqeuclidean")
            again = np.asarray(np.round(squared, 12).argmin(axis=1), dtype=np.int64)
            if own is not None and (again == own).all():
                best = min(best, float(squared.min(axis=1).sum()))
                break
            own = again
            means = np.array(
                [points[own == j].mean(axis=0) if (own == j).any() else mean for j, mean in enumerate(means)]
            )
    found.need(kept <= best + CLOSE, f"clusters of '{parent}' are not the best of ten starts")


def _nearest(folder: Folder, name: str, vectors: Vectors, found: Finding) -> None:
    """G of a view table against the nearest training rows by cosine; ties may fall either way."""
    if "training rows" not in folder.memo:
        loaded = folder.data_set()
        if isinstance(loaded, str):
            found.unchecked.append(f"nearest rows: {loaded}")
            return
        outside = loaded.frame.loc[loaded.frame["gold"] == loaded.out_of_scope, "row_id"]
        folder.memo["training rows"] = (sorted(loaded.rows("train")["row_id"]), set(outside))
    train, outside = folder.memo["training rows"]
    unit_of = folder.requests[name.rsplit("-", 1)[0]]["unit_of"]
    base = np.array([vectors[row] for row in train])
    asked = [(row, view, unit) for row, view, unit in folder.views[name] if view != "F"]
    wrong = 0
    for start in range(0, len(asked), _BLOCK):
        part = asked[start : start + _BLOCK]
        cosine = np.array([vectors[row] for row, _, _ in part]) @ base.T
        near = cosine >= cosine.max(axis=1, keepdims=True) - CLOSE
        for place, (row, view, unit) in enumerate(part):
            allowed = {unit_of.get(train[column]) for column in np.flatnonzero(near[place])}
            given = unit if view == "G" else None
            wrong += given not in ({None} if row in outside else allowed)
    found.count += len(asked)
    found.need(not wrong, f"views/{name}: {wrong} rows in the wrong one of G and R by their nearest row")
