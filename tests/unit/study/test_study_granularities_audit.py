"""The audit of association and example deletion: sound studies pass, damaged records fail their check."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_study_audit import edit, fails, reseal
from themes import COUNTS, PARENTS, failed, request_of, view_rows

from vestige.deletion.clusters import Clustering, kmeans, parent_of, unit_vectors
from vestige.deletion.requests import DeletionRequest
from vestige.seeds import digest
from vestige.study.audit import CHECKS, audit_study, run_check
from vestige.study.audit_folder import Folder
from vestige.study.embedded import vectors_of


def test_a_sound_association_study_passes_the_audit(association_once: Path) -> None:
    report = audit_study(association_once)
    assert report.passed
    units = report.check("units")
    assert units.status == "passed"
    assert int(units.detail.rsplit("(", 1)[1].split()[0]) > 200


def move(value: Any, split: str) -> None:
    """A row of the first cluster's split goes to the second cluster of its intent."""
    first, second = value["clusters"][:2]
    second[split] = sorted([*second[split], first[split].pop()])


@pytest.mark.parametrize(
    ("name", "change", "check"),
    [
        ("clusters.json", lambda value: move(value, "train"), "units"),
        ("clusters.json", lambda value: move(value, "development"), "units"),
        ("clusters.json", lambda value: move(value, "evaluation"), "units"),
        ("clusters.json", lambda value: value["clusters"][0].update(centroid_sha256="0" * 64), "units"),
        ("clusters.json", lambda value: value.update(starts=1), "units"),
        ("clusters.json", lambda value: value.update(least_training_rows=2), "units"),
        ("clusters.json", lambda value: value["clusters"].pop(), "units"),
        ("clusters.json", lambda value: move(value, "development"), "gates"),
        ("requests/01.json", lambda value: value.update(clusters_sha256="0" * 64), "units"),
        ("gates.json", lambda value: value["acquisition"]["17"].update(least_accuracy=0.5), "gates"),
        ("gates.json", lambda value: value["acquisition"]["17"]["classes"][0].update(accuracy=0.1), "gates"),
        ("bundles.json", lambda value: value["bundles"]["01"].reverse(), "requests"),
        ("bundles.json", lambda value: value.update(size=3), "requests"),
        ("bundles.json", lambda value: value["reserved"].update({"02": "0" * 64}), "requests"),
        ("plan.json", lambda value: value["deletion"].update(granularity="class"), "requests"),
    ],
)
def test_a_damaged_association_record_fails_its_check(
    association: Path, name: str, change: Callable[[Any], None], check: str
) -> None:
    edit(association, name, change)
    assert fails(association, check)


def test_another_cluster_of_the_same_parent_in_a_bundle_fails(association: Path) -> None:
    """The request is sound by itself; only hash order says that this cluster was not its parent's first."""
    request = request_of(association, "01")
    clusters = Clustering.model_validate_json((association / "clusters.json").read_text())
    parent = parent_of(request.units[0])
    other = next(f"{parent}#{j}" for j in range(3) if f"{parent}#{j}" != request.units[0])
    swapped = DeletionRequest.model_validate(
        {
            **request.model_dump(exclude={"units_sha256", "rows_sha256", "sha256"}),
            "units": (other, request.units[1]),
            "unit_of": {row: unit for unit in (other, request.units[1]) for row in clusters.of(unit).train},
        }
    )
    (association / "requests/01.json").write_text(swapped.to_json())
    edit(association, "bundles.json", lambda value: value["bundles"].update({"01": list(swapped.units)}))
    assert fails(association, "requests")


@pytest.mark.parametrize("split", ["evaluation", "development"])
def test_a_row_in_the_wrong_view_fails(association: Path, split: str) -> None:
    name = "01-evaluation" if split == "evaluation" else "00-development"
    path = association / f"views/{name}.csv"
    assert not fails(association, "units")
    text = path.read_text()
    row = next(row for row, view, _ in view_rows(association, name) if view == "G")
    line = next(line for line in text.splitlines() if line.startswith(f"{row},"))
    parent = line.rsplit(",", 1)[1].split("#")[0]
    path.write_text(text.replace(line, f"{row},R,{parent}"))
    reseal(association)
    assert fails(association, "units")


def shifted(root: Path) -> None:
    """Every sentence vector becomes its neighbour's."""
    path = next(root.glob("nodes/embeddings-*/vectors.parquet"))
    table = pq.read_table(path)
    vectors = table["vector"].to_pylist()
    turned = pa.array([*vectors[1:], vectors[0]], table["vector"].type)
    pq.write_table(pa.table({"row_id": table["row_id"], "vector": turned}), path)
    reseal(root)


def test_other_vectors_fail_the_units(association: Path, example: Path) -> None:
    for root in (association, example):
        shifted(root)
        assert fails(root, "units")


def test_without_vectors_nearness_is_said_to_be_unchecked(example: Path) -> None:
    shutil.rmtree(next(example.glob("nodes/embeddings-*")))
    reseal(example)
    check = audit_study(example).check("units")
    assert check.status == "not checked"
    assert "no sentence vectors are kept" in check.findings[0]


def test_a_sound_example_study_passes_the_audit(example_once: Path) -> None:
    assert failed(example_once) == {}
    assert audit_study(example_once).check("units").status == "passed"


@pytest.mark.parametrize(
    ("name", "change", "check"),
    [
        ("bundles.json", lambda value: value["bundles"]["01"].reverse(), "data"),
        ("bundles.json", lambda value: value.update(size=9), "data"),
        ("bundles.json", lambda value: value["reserved"].update({"03": "0" * 64}), "data"),
        ("bundles.json", lambda value: value["bundles"]["01"].pop(), "requests"),
        ("plan.json", lambda value: value["deletion"].update(share=0.2), "data"),
    ],
)
def test_a_damaged_example_record_fails_its_check(
    example: Path, name: str, change: Callable[[Any], None], check: str
) -> None:
    assert not fails(example, check)
    edit(example, name, change)
    assert fails(example, check)


def test_a_row_of_g_far_from_what_was_deleted_fails(example: Path) -> None:
    path = example / "views/01-evaluation.csv"
    rows = view_rows(example, "01-evaluation")
    line = next(f"{row},R,{unit}" for row, view, unit in rows if view == "R")
    unit = next(unit for _, view, unit in rows if view == "G")
    path.write_text(path.read_text().replace(line, f"{line.split(',')[0]},G,{unit}"))
    reseal(example)
    assert fails(example, "units")


def other_optimum(points: np.ndarray) -> np.ndarray:
    """Labels that settle with one theme split in two and the others together: nearest means, yet wide."""
    best = kmeans(points)
    first = np.flatnonzero(best == 0)
    labels = np.where(best == 0, 0, 2)
    labels[first[: len(first) // 2]] = 1
    for _ in range(100):
        means = np.array([points[labels == j].mean(axis=0) for j in range(3)])
        again = ((points[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
        if (again == labels).all():
            break
        labels = again
    assert len(set(labels.tolist())) == 3
    return labels


def test_clusters_that_settle_and_are_not_the_best_of_ten_starts_fail(association: Path) -> None:
    kept = json.loads((association / "clusters.json").read_text())
    used = {unit for label in ("00", "01") for unit in request_of(association, label).units}
    parent = next(p for p in PARENTS if not any(unit.startswith(f"{p}#") for unit in used))
    by_row = vectors_of(next(association.glob("nodes/embeddings-*/vectors.parquet")))
    mine = [item for item in kept["clusters"] if item["unit"].startswith(f"{parent}#")]

    def points(rows: list[str]) -> np.ndarray:
        return unit_vectors(np.array([by_row[row] for row in rows]))

    rows = {split: sorted(row for item in mine for row in item[split]) for split in COUNTS}
    labels = other_optimum(points(rows["train"]))
    means = np.array([points(rows["train"])[labels == j].mean(axis=0) for j in range(3)])
    for j, item in enumerate(mine):
        for split in COUNTS:
            near = ((points(rows[split])[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
            item[split] = [row for row, of in zip(rows[split], near, strict=True) if of == j]
        item["centroid_sha256"] = digest(means[j].astype("<f8").tobytes())
    (association / "clusters.json").write_text(json.dumps(kept))
    sha = Clustering.model_validate(kept).sha256
    for label in ("00", "01"):
        edit(association, f"requests/{label}.json", lambda value: value.update(clusters_sha256=sha))
    check = next(item for item in CHECKS if item[0] == "units")
    assert run_check(Folder(association), *check).findings == (
        f"clusters of '{parent}' are not the best of ten starts",
    )
