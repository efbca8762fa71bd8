"""Whole studies of association and example deletion on the small backend, and their audit."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from bag_of_words import SPEC
from test_study_audit import edit, fails, reseal

from vestige.contracts import Assessment
from vestige.deletion.bundles import hash_order, hash_units
from vestige.deletion.clusters import Clustering, kmeans, parent_of, unit_vectors
from vestige.deletion.requests import DeletionRequest
from vestige.errors import InputError
from vestige.seeds import digest, generator
from vestige.study.audit import CHECKS, audit_study, run_check
from vestige.study.audit_folder import Folder
from vestige.study.bundle_names import differing_bundles
from vestige.study.embedded import vectors_of
from vestige.study.freeze import freeze_study
from vestige.study.plan import Plan, parse_plan
from vestige.study.runner import Execution, run_study
from vestige.study.sweep import load_study, run_all
from vestige.study.tune import tune_study

PARENTS = ("refund", "card", "login", "invoice", "delivery", "limit")
COUNTS = {"train": 20, "development": 10, "evaluation": 6}


def write_themes(folder: Path, parents: tuple[str, ...] = PARENTS) -> Path:
    """Intents of three themes that share no word but fillers: a cluster that goes is a theme forgotten."""
    folder.mkdir(parents=True)
    random = generator("tests", "themes")
    for split, count in COUNTS.items():
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(["text", "label"])
            for parent in parents:
                for theme in range(3):
                    for number in range(count):
                        own = f"{parent}{theme}a {parent}{theme}b {parent}{theme}c"
                        filler = " ".join(random.choice(("please", "my", "the", "help"), 2, replace=False))
                        out.writerow([f"{filler} {own} {split[0]}{parent}{theme}x{number}", parent])
    return folder


@pytest.fixture(scope="module")
def themes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_themes(tmp_path_factory.mktemp("themes") / "data")


@pytest.fixture(scope="module")
def make(themes: Path) -> Callable[..., Plan]:
    def made(**changes: Any) -> Plan:
        raw: dict[str, Any] = {
            "name": "themes",
            "dataset": {"name": "files", "path": str(themes)},
            "deletion": {"granularity": "association", "units_per_bundle": 2, "reserved": ["02"]},
            "seeds": [17],
            "noise_seeds": [42],
            "methods": [{"method": "grad_ascent", "settings": {"epochs": 2}}],
            "tuning": {"epochs": 2, "grid": {"grad_ascent": {"learning_rate": [1e-4]}}},
            "draws": 100,
        }
        raw.update(changes)
        return parse_plan(yaml.safe_dump(raw), "themes.yaml")

    return made


@pytest.fixture(scope="module")
def association_once(
    tmp_path_factory: pytest.TempPathFactory, make: Callable[..., Plan], execution: Execution
) -> Path:
    """Tuned on bundle 00, frozen, run on bundle 01 at two seeds."""
    root = tmp_path_factory.mktemp("studies") / "association"
    plan = make(seeds=[17, 42], noise_seeds=[], methods=[{"method": "grad_ascent", "frozen": True}])
    tune_study(plan, root, execution=execution)
    freeze_study(root)
    run_study(plan, root, execution=execution)
    return root


@pytest.fixture
def association(association_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(association_once, tmp_path / "association"))


@pytest.fixture(scope="module")
def example_once(
    tmp_path_factory: pytest.TempPathFactory, make: Callable[..., Plan], execution: Execution
) -> Path:
    root = tmp_path_factory.mktemp("studies") / "example"
    run_study(
        make(deletion={"granularity": "example", "share": 0.1, "reserved": ["03"]}), root, execution=execution
    )
    return root


@pytest.fixture
def example(example_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(example_once, tmp_path / "example"))


def request_of(root: Path, label: str) -> DeletionRequest:
    return DeletionRequest.model_validate_json((root / f"requests/{label}.json").read_text())


def view_rows(root: Path, name: str) -> list[tuple[str, str, str]]:
    with (root / f"views/{name}.csv").open(newline="", encoding="utf-8") as file:
        return [(row[0], row[1], row[2]) for row in csv.reader(file)][1:]


def failed(root: Path) -> dict[str, tuple[str, ...]]:
    return {check.name: check.findings for check in audit_study(root).checks if check.status == "failed"}


def test_an_association_study_deletes_themes_and_keeps_the_rest_of_their_intents(
    association_once: Path,
) -> None:
    root = association_once
    clusters = Clustering.model_validate_json((root / "clusters.json").read_text())
    assert len(clusters.clusters) == 18
    bundles = json.loads((root / "bundles.json").read_text())
    request = request_of(root, "01")
    assert list(request.units) == bundles["bundles"]["01"]
    assert bundles["eligible"] == 6  # one cluster of each intent
    assert len(bundles["reserved"]["02"]) == 64
    assert not list(root.glob("*/02*"))
    assert len({parent_of(unit) for units in bundles["bundles"].values() for unit in units}) == 4
    assert request.granularity == "association"
    assert request.forgotten == ()
    assert set(request.parents) == {parent_of(unit) for unit in request.units}
    assert len(request.row_ids) == 40
    rows = view_rows(root, "01-evaluation")
    unseen = {row: unit for row, view, unit in rows if view == "G"}
    assert set(unseen.values()) == set(request.units)
    assert len(unseen) == 2 * COUNTS["evaluation"]
    stay = [unit for _, view, unit in rows if view == "R" and unit in request.parents]
    assert len(stay) == 2 * 2 * COUNTS["evaluation"]
    assert {unit for _, view, unit in view_rows(root, "00-development") if view == "G"} == set(
        request_of(root, "00").units
    )


def test_an_association_study_s_numbers_have_units_and_no_forgotten_mass(association_once: Path) -> None:
    made = Assessment.model_validate_json((association_once / "assessments/01-s17.json").read_text())
    assert made.unit_kind == "association"
    assert made.forgotten == ()
    assert made.intervention_gate == "passed"
    full, unlearned, oracle = made.models
    assert full.metrics["displacement.F"].value > 0.3
    assert oracle.metrics["gold_probability.G"].value < full.metrics["gold_probability.G"].value
    assert not {"forgotten_mass.F", "suppression.FG"} & set(unlearned.metrics)
    assert made.provenance["request"]["granularity"] == "association"
    gates = json.loads((association_once / "gates.json").read_text())
    gate = gates["acquisition"]["17"]
    assert (gate["least_accuracy"], gate["least_gold_probability"]) == (0.65, None)
    assert set(gates["acquisition"]) == {"17", "42"}


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


def test_an_example_study_draws_rows_in_hash_order(example_once: Path, make: Callable[..., Plan]) -> None:
    from vestige.data.intents import load_intents

    root = example_once
    data = load_intents(make().dataset)
    train = data.rows("train")["row_id"]
    size = int(0.1 * len(train) + 0.5)
    request = request_of(root, "01")
    order = hash_order(train, "vestige")
    assert set(request.units) == set(order[size : 2 * size]) == set(request.row_ids)
    bundles = json.loads((root / "bundles.json").read_text())
    assert bundles["reserved"] == {"03": hash_units(order[3 * size : 4 * size])}
    assert bundles["left"] == len(train) - 4 * size
    assert not (root / "gates.json").exists()
    assert request.parents == ()
    made = Assessment.model_validate_json((root / "assessments/01-s17.json").read_text())
    assert made.unit_kind == "row"
    assert any("no acquisition gate" in caveat for caveat in made.caveats)


def test_example_deletion_within_the_noise_is_never_accepted(
    tmp_path: Path, make: Callable[..., Plan], execution: Execution
) -> None:
    plan = make(
        deletion={"granularity": "example", "share": 0.02},
        noise_seeds=[42, 99],
        training={"epochs": 2},
        methods=[
            "uniformization",
            {"method": "grad_ascent", "settings": {"epochs": 1, "learning_rate": 1e-6}},
        ],
    )
    made = run_study(plan, tmp_path / "run", execution=execution).assessments["assessments/01-s17.json"]
    assert made.intervention_gate == "displacement within noise"
    assert {model.decision for model in made.models if model.role == "unlearned"} == {
        "displacement within noise"
    }
    assert audit_study(tmp_path / "run").passed


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


def test_the_last_bundle_is_short_and_says_so(
    tmp_path: Path, make: Callable[..., Plan], execution: Execution
) -> None:
    plan = make(deletion={"granularity": "association", "units_per_bundle": 4}, noise_seeds=[])
    made = run_study(plan, tmp_path / "run", execution=execution).assessments["assessments/01-s17.json"]
    note = "Bundle 01 has 2 sub-intents instead of 4: no more were eligible."
    assert note in made.caveats
    assert audit_study(tmp_path / "run").passed


def test_a_run_goes_on_with_its_vectors_and_clusters(
    association: Path, make: Callable[..., Plan], execution: Execution
) -> None:
    before = {path: path.read_bytes() for path in association.rglob("*.parquet")}
    kept = (association / "clusters.json").read_bytes()
    plan = make(seeds=[17, 42], noise_seeds=[], methods=[{"method": "grad_ascent", "frozen": True}])
    run_study(plan, association, execution=execution)
    assert {path: path.read_bytes() for path in association.rglob("*.parquet")} == before
    assert (association / "clusters.json").read_bytes() == kept


@pytest.mark.parametrize(
    ("deletion", "part"),
    [
        (
            {"granularity": "association"},
            "found 6 intents large enough to delete a cluster of in data set 'data'; needed 11",
        ),
        (
            {"granularity": "association", "units_per_bundle": 2, "bundles": ["04"]},
            "needed 9: 5 bundles (00 included) of 2, the last of at least 1",
        ),
        (
            {"granularity": "example", "share": 0.4, "bundles": ["02"]},
            "found 360 training rows that may be deleted in data set 'data'; needed 432",
        ),
    ],
)
def test_too_few_units_are_refused_before_anything_is_trained(
    tmp_path: Path, make: Callable[..., Plan], execution: Execution, deletion: dict[str, Any], part: str
) -> None:
    with pytest.raises(InputError) as error:
        run_study(make(deletion=deletion), tmp_path / "run", execution=execution)
    assert part in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_intents_too_small_to_cluster_are_one_line(
    tmp_path: Path, make: Callable[..., Plan], execution: Execution, intents: Path
) -> None:
    with pytest.raises(InputError, match=r"found 10 intents large enough.*needed 11"):
        run_study(
            make(dataset={"name": "files", "path": str(intents)}, deletion={"granularity": "association"}),
            tmp_path / "run",
            execution=execution,
        )
    # Twenty rows an intent in three clusters: none keeps fifteen of them and eight development rows.
    with pytest.raises(InputError, match="0 eligible units; needed 3 for 2 bundles of 2"):
        run_study(
            make(
                dataset={"name": "files", "path": str(intents)},
                deletion={"granularity": "association", "units_per_bundle": 2},
            ),
            tmp_path / "run",
            execution=execution,
        )


def test_a_result_of_a_reserved_bundle_stops_the_study(
    association: Path, make: Callable[..., Plan], execution: Execution
) -> None:
    shutil.copy(association / "requests/01.json", association / "requests/02.json")
    with pytest.raises(InputError, match="a result of the reserved bundle 02"):
        run_study(make(), association, execution=execution)
    reseal(association)
    assert fails(association, "reserved")


def test_one_label_for_other_rows_is_said_across_folders_and_beside_results(
    association_once: Path, tmp_path: Path, make: Callable[..., Plan], execution: Execution
) -> None:
    """Settings frozen in one study, used where another salt (as another model would) draws other clusters."""
    plan = make(
        stage="screening",
        deletion={"granularity": "association", "units_per_bundle": 2, "salt": "other"},
        noise_seeds=[],
        methods=[{"method": "grad_ascent", "frozen": str(association_once / "frozen.json")}],
    )
    made = run_study(plan, tmp_path / "run", execution=execution).assessments["assessments/01-s17.json"]
    (said,) = [caveat for caveat in made.caveats if caveat.startswith("Bundle 01 holds other units here")]
    assert "frozen in" in said
    assert request_of(tmp_path / "run", "01").units_sha256[:8] in said
    (sentence,) = [
        item
        for item in differing_bundles({"a": association_once, "b": tmp_path / "run"})
        if item.startswith("Bundle 01 of data, association deletion")
    ]
    assert "40 rows" in sentence
    assert " in a; " in sentence
    assert differing_bundles({"a": association_once, "again": association_once}) == ()
    own = Assessment.model_validate_json((association_once / "assessments/01-s17.json").read_text())
    assert not any("holds other units" in caveat for caveat in own.caveats)


def test_arms_that_delete_other_rows_under_one_label_are_noted_and_share_vectors(
    tmp_path: Path, themes: Path
) -> None:
    raw = {
        "name": "arms",
        "dataset": {"name": "files", "path": str(themes)},
        "deletion": {"granularity": "association", "units_per_bundle": 2},
        "methods": ["grad_ascent"],
        "draws": 100,
        "arms": {"one": {}, "two": {"deletion": {"salt": "other"}}},
    }
    path = tmp_path / "arms.yaml"
    path.write_text(yaml.safe_dump(raw))
    made = run_all(load_study(path), tmp_path / "out", execution=Execution(jobs=2, backend=SPEC))
    assert len(made.notes) == 1
    assert made.notes[0].startswith("Bundle 01 of data, association deletion, stands for different rows")
    stored = [
        item.stat().st_ino for item in (tmp_path / "out").glob("arms/*/nodes/embeddings-*/vectors.parquet")
    ]
    assert len(stored) == 2
    assert len(set(stored)) == 1


@pytest.mark.parametrize(
    ("deletion", "gate", "unseen_units"),
    [
        ({"granularity": "association", "units_per_bundle": 2}, "passed", 2),
        ({"granularity": "example"}, "displacement within noise", None),
    ],
)
def test_the_embedded_helpdesk_data_in_both_granularities(
    tmp_path: Path,
    make: Callable[..., Plan],
    execution: Execution,
    deletion: dict[str, Any],
    gate: str,
    unseen_units: int | None,
) -> None:
    """Sub-intents leave a mark that retraining shows; a random twentieth of the rows is within the noise."""
    plan = make(dataset={"name": "helpdesk"}, deletion=deletion)
    made = run_study(plan, tmp_path / "run", execution=execution).assessments["assessments/01-s17.json"]
    assert made.intervention_gate == gate
    views = {view.view: view for view in made.views}
    assert sum(view.rows for view in made.views if view.view != "F") == 486
    if unseen_units is not None:
        assert views["F"].units == views["G"].units == unseen_units
    else:
        assert views["F"].rows == views["F"].units == 44  # 5 % of 882
    assert failed(tmp_path / "run") == {}


def test_tuning_an_example_deletion_reads_bundle_00_and_development_rows(
    tmp_path: Path, make: Callable[..., Plan], execution: Execution
) -> None:
    plan = make(deletion={"granularity": "example", "share": 0.1}, noise_seeds=[])
    tuning = tune_study(plan, tmp_path / "run", execution=execution)
    assert (tuning.bundle, tuning.held_out) == ("00", False)
    request = request_of(tmp_path / "run", "00")
    rows = view_rows(tmp_path / "run", "00-development")
    assert {row for row, view, _ in rows if view == "F"} == set(request.row_ids)
    assert {unit for _, view, unit in rows if view == "G"} <= set(request.units)
    assert all("development" in row for row, view, _ in rows if view != "F")
    assert failed(tmp_path / "run") == {}


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
