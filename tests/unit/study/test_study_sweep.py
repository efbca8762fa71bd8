"""Studies with arms, scaled studies, parts taken from other runs, outlines and cells made anew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from bag_of_words import SPEC, BagOfWords

from vestige.deletion.bundles import hash_order
from vestige.errors import InputError
from vestige.study.audit import audit_study
from vestige.study.audit_sweep import audit_sweep
from vestige.study.freeze import freeze_study
from vestige.study.ledger import read_ledger
from vestige.study.ledger_rows import MethodRow
from vestige.study.outline import outline_all
from vestige.study.plan import Plan
from vestige.study.pool import Silent
from vestige.study.runner import Execution, StudyResult, run_study
from vestige.study.store import refresh_manifest, run_folders
from vestige.study.sweep import arm_folders, load_study, merge, placed, run_all
from vestige.study.tune import tune_study
from vestige.study.verify import verify_cell


@pytest.fixture
def write(tmp_path: Path, intents: Path) -> Callable[..., Path]:
    """A study file on the small data set; keyword arguments replace top-level keys."""

    def made(**changes: Any) -> Path:
        raw: dict[str, Any] = {
            "name": "pairs",
            "dataset": {"name": "files", "path": str(intents)},
            "deletion": {"units_per_bundle": 2, "bundles": ["01", "02", "03", "04"]},
            "seeds": [17, 42, 99],
            "methods": [{"method": "simnpo", "settings": {"epochs": 2, "learning_rate": 2e-4}}],
            "draws": 100,
            "arms": {
                "first": {"deletion": {"bundles": ["01"]}, "seeds": [17]},
                "second": {"deletion": {"bundles": ["01", "02"]}, "seeds": [17]},
            },
        }
        raw.update(changes)
        path = tmp_path / "pairs.yaml"
        path.write_text(yaml.safe_dump(raw))
        return path

    return made


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    original = BagOfWords.train

    def train(self: Any, **kwargs: Any) -> dict[str, Any]:
        calls.append("train")
        return original(self, **kwargs)

    monkeypatch.setattr(BagOfWords, "train", train)
    return calls


def test_arms_share_models_and_stand_alone(
    write: Callable[..., Path], execution: Execution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch)
    study = load_study(write())
    heard: list[str] = []
    meter = Silent()
    result = run_all(study, tmp_path / "run", execution=execution, report=meter, between=heard.append)
    assert heard == ["first", "second"]
    assert meter.done == pytest.approx(meter.total, rel=0.01)
    assert sorted(result.assessments) == [
        "arms/first/assessments/01-s17.json",
        "arms/second/assessments/01-s17.json",
        "arms/second/assessments/02-s17.json",
    ]
    assert len(calls) == 3  # one full model and two oracles for three cells
    one, other = (result.assessments[f"arms/{arm}/assessments/01-s17.json"] for arm in ("first", "second"))
    assert one.models == other.models
    assert [one.provenance["arm"], other.provenance["arm"]] == ["first", "second"]
    # One evaluation, whichever arm lists it.
    assert one.provenance["evaluations"] == other.provenance["evaluations"]
    assert len(read_ledger(tmp_path / "run").of(MethodRow)) == 2
    folders = run_folders(tmp_path / "run")
    assert list(folders) == ["first", "second"]
    assert all(audit_study(path).passed for path in folders.values())
    across = audit_sweep(tmp_path / "run")
    assert across.passed
    assert "(2 parts held by several arms)" not in across.check("shared").detail
    record = next(folders["second"].glob("nodes/full-*/record.json"))
    value = json.loads(record.read_text())
    value["files"]["model/weights.npy"] = "0" * 64
    record.unlink()  # a hard link: the other arm's stays
    record.write_text(json.dumps(value))
    assert audit_sweep(tmp_path / "run").check("shared").status == "failed"
    shutil.copy(folders["first"] / record.relative_to(folders["second"]), record)
    entries = folders["second"] / "evaluations.json"
    kept = entries.read_bytes()
    moved = json.loads(kept)
    moved[0]["predictions"] = moved[1]["predictions"]
    entries.write_text(json.dumps(moved))
    assert audit_sweep(tmp_path / "run").check("keys").status == "failed"
    entries.write_bytes(kept)
    sweep, first_file = tmp_path / "run/sweep.json", (tmp_path / "run/study.yaml").read_bytes()
    listed = sweep.read_bytes()
    for damage in (
        {"scale": "small"},
        {"name": "other"},
        {"format": "vestige-sweep-2"},
        {"merged": {"first": "second"}},
        {"arms": ["first"]},
        {"arms": 3},
    ):
        sweep.write_text(json.dumps({**json.loads(listed), **damage}))
        assert audit_sweep(tmp_path / "run").check("arms").status == "failed", damage
    sweep.write_bytes(listed)
    (tmp_path / "run/study.yaml").write_bytes(first_file + b"# later")
    assert audit_sweep(tmp_path / "run").check("arms").status == "failed"
    (tmp_path / "run/study.yaml").write_bytes(first_file)
    assert audit_sweep(tmp_path / "run").check("arms").status == "passed"
    (tmp_path / "run/arms/third").mkdir()
    assert audit_sweep(tmp_path / "run").check("arms").status == "failed"
    (tmp_path / "run/arms/third").rmdir()
    shutil.rmtree(folders["first"])
    assert audit_study(folders["second"]).passed


def test_arms_draw_at_one_seed_and_keep_one_reserve(
    write: Callable[..., Path], execution: Execution, tmp_path: Path
) -> None:
    """A seed of its own draws nothing anew; what the first arm reserves, a model with another gate leaves."""
    arms: dict[str, Any] = {
        "first": {"deletion": {"bundles": ["01"], "reserved": ["02"]}, "seeds": [17]},
        "later": {"deletion": {"bundles": ["01", "03"]}, "seeds": [42], "training": {"epochs": 10}},
    }
    study = load_study(write(arms=arms, deletion={"units_per_bundle": 2}, methods=[]))
    assert {plan.primary for plan in study.arms.values()} == {17}
    assert {plan.deletion.reserved for plan in study.arms.values()} == {("02",)}
    run_all(study, tmp_path / "run", execution=execution)
    first, later = run_folders(tmp_path / "run").values()
    gates = [json.loads((folder / "gates.json").read_text()) for folder in (first, later)]
    eligible = [
        hash_order(
            [one["option"] for one in gate["acquisition"]["17"]["classes"] if one["passed"]], "vestige"
        )
        for gate in gates
    ]
    assert eligible[0] != eligible[1]
    held = set(eligible[0][4:6])
    plans = [json.loads((folder / "bundles.json").read_text()) for folder in (first, later)]
    assert plans[0]["reserved"] == plans[1]["reserved"]
    drawn = {unit for units in plans[1]["bundles"].values() for unit in units}
    assert not held & drawn
    assert held & set(eligible[1][:8])  # by its own order it would have drawn one of them
    assert all(audit_study(folder).passed for folder in (first, later))
    gate = json.loads((later / "reserving-gate.json").read_text())
    place = next(one for one in gate["gate"]["classes"] if one["option"] in held)
    place["passed"] = False
    (later / "reserving-gate.json").write_text(json.dumps(gate))
    refresh_manifest(later, "reserving-gate.json")
    assert audit_study(later).check("requests").status == "failed"
    for changes, words in (
        ({"later": {"primary_seed": 42}}, "17, the file's: what is deleted is drawn once"),
        ({"later": {"deletion": {"bundles": ["02"]}}}, "bundle 02, which another arm reserves"),
    ):
        with pytest.raises(InputError, match=words):
            load_study(write(arms={"first": arms["first"], **changes}, deletion={"units_per_bundle": 2}))


def test_settings_and_parts_come_from_the_studies_beside(
    write: Callable[..., Path],
    make_plan: Callable[..., Plan],
    execution: Execution,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = tmp_path / "runs"
    changes: dict[str, Any] = {
        "name": "later",
        "arms": None,
        "seeds": [17],
        "deletion": {"units_per_bundle": 2, "bundles": ["01"]},
        "reuse": ["small", "not-run"],
        "methods": [{"method": "simnpo", "frozen_by": "small"}],
    }
    study = load_study(write(**changes))
    with pytest.raises(InputError, match=r"no frozen.json in .*runs/small;.*the study 'small' froze"):
        run_all(study, runs / "later", execution=execution)
    found, total = outline_all(
        placed(study, runs / "later", lenient=True), arm_folders(study, runs / "later"), execution=execution
    )
    assert total.refusals == (
        "simnpo: its settings are not frozen by the study 'small'; its defaults are counted",
    )
    assert not (runs / "later").exists()
    assert [item.kind for item in found if item.kind == "refused"]
    tuned = make_plan(methods=["simnpo"], noise_seeds=[], deletion={"units_per_bundle": 2, "bundles": ["01"]})
    tune_study(tuned, runs / "small", execution=execution)
    freeze_study(runs / "small")
    calls = counted(monkeypatch)
    (made,) = run_all(study, runs / "later", execution=execution).assessments.values()
    assert made.provenance["frozen"]["SimNPO"]["study"] == "small"
    assert len(calls) == 1  # the oracle: the full model was there
    other = write(**{**changes, "methods": [{"method": "simnpo", "frozen_by": "other"}]})
    with pytest.raises(InputError, match=r"found a record of 'small'; needed one of 'other'"):
        load_study(other, frozen=[runs / "small/frozen.json"])
    by_hand = load_study(write(**changes), frozen=[runs / "small/frozen.json"])
    (again,) = run_all(by_hand, tmp_path / "elsewhere", execution=execution).assessments.values()
    assert again.provenance["evaluations"] == made.provenance["evaluations"]
    # The evaluation is the first study's, wherever it is read.
    matched = {**changes, "name": "matched", "reuse": ["later"], "stage": "exploratory"}
    run_all(load_study(write(**matched)), runs / "matched", execution=execution)
    rows = read_ledger(runs / "matched", runs / "later").of(MethodRow)
    assert [(row.experiment, row.stage) for row in rows] == [("later", "pilot")]
    (row,) = read_ledger(runs / "matched").of(MethodRow)
    assert (row.experiment, row.stage) == ("matched", "pilot")


def test_lengths_are_runs_up_to_the_frozen_epochs(
    write: Callable[..., Path], confirmed_once: Path, execution: Execution, tmp_path: Path
) -> None:
    record = json.loads((confirmed_once / "frozen.json").read_text())
    frozen = next(item["settings"] for item in record["methods"] if item["method"] == "simnpo")
    entry = {"method": "simnpo", "label": "more", "frozen": str(confirmed_once / "frozen.json")}
    study = load_study(
        write(
            arms=None,
            seeds=[17],
            stage="exploratory",
            deletion={"units_per_bundle": 2, "bundles": ["01"]},
            methods=[{**entry, "settings": {"learning_rate": 1e-3}, "lengths": 2}],
        )
    )
    root = run_all(study, tmp_path / "run", execution=execution).root
    entries = json.loads((root / "evaluations.json").read_text())
    assert [item["identity"]["settings"] for item in entries] == [
        {**frozen, "learning_rate": 1e-3, "epochs": epochs}
        for epochs in ((frozen["epochs"] + 1) // 2, frozen["epochs"])
    ]
    assert audit_study(root).passed


def test_a_finished_run_gives_its_parts_to_another(
    make_plan: Callable[..., Plan], small_once: StudyResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch)
    plan = make_plan(candidates=["S0", "S1"])
    result = run_study(plan, tmp_path / "run", execution=Execution(backend=SPEC, reuse=(small_once.root,)))
    assert not calls
    assert sorted(result.assessments) == ["assessments/01-s17-S1.json", "assessments/01-s17.json"]
    old = small_once.assessments["assessments/01-s17.json"]
    assert result.assessments["assessments/01-s17.json"].models == old.models


def test_a_damaged_part_is_not_taken(
    make_plan: Callable[..., Plan], small_once: StudyResult, tmp_path: Path
) -> None:
    source = Path(shutil.copytree(small_once.root, tmp_path / "source"))
    path = next(source.glob("nodes/full-*/model/weights.npy"))
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(InputError, match="changed bytes"):
        run_study(make_plan(), tmp_path / "run", execution=Execution(backend=SPEC, reuse=(source,)))


def test_small_scale_says_what_it_takes(write: Callable[..., Path]) -> None:
    path = write(
        model={"scale": 1.0},
        scales={"small": {"draws": 150, "arms": {"first": None, "second": {"noise_seeds": [7]}}}},
    )
    study = load_study(path, scale="small")
    (plan,) = study.arms.values()
    assert list(study.arms) == ["second"]
    assert (plan.draws, plan.scale, plan.dataset.row_share, plan.noise_seeds) == (150, "small", 0.3, (7,))
    assert plan.model == {"backbone": "minilm"}
    whole = load_study(write(arms=None), scale="small").plan
    assert (whole.deletion.bundles, whole.seeds) == (("01", "02", "03"), (17, 42))


def test_arms_that_scaling_makes_equal_run_once(write: Callable[..., Path]) -> None:
    path = write(arms={"a": {"model": {"scale": 1.0}}, "b": {"model": {"scale": 2.0}}})
    assert list(load_study(path).arms) == ["a", "b"]
    study = load_study(path, scale="small")
    assert (list(study.arms), study.merged) == (["a"], {"b": "a"})


def test_axes_make_every_combination(write: Callable[..., Path]) -> None:
    axes = {
        "seed": {"a": {"seeds": [1]}, "b": {"seeds": [2]}},
        "size": {"two": {}, "three": {"deletion": {"units_per_bundle": 3}}},
    }
    study = load_study(write(arms=None, axes=axes, deletion={"units_per_bundle": 2}))
    assert list(study.arms) == ["a+three", "a+two", "b+three", "b+two"]
    assert [plan.seeds for plan in study.arms.values()] == [(1,), (1,), (2,), (2,)]
    assert study.arms["b+three"].deletion.units_per_bundle == 3


def test_merging_goes_into_mappings_and_null_removes() -> None:
    raw = {"a": {"x": 1, "y": 2}, "b": [1, 2], "c": 3}
    assert merge(raw, {"a": {"y": 5}, "b": [9], "c": None}) == {"a": {"x": 1, "y": 5}, "b": [9]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arms": []}, "a mapping of names"),
        ({"arms": {"a/b": {}}}, "none of them '/'"),
        ({"axes": {"x": {"a": {}}}}, "arms and axes"),
        ({"arms": None, "axes": {"x": []}}, "axes.x.*a mapping of names"),
        ({"arms": None, "axes": {"x": {"a": 1}}}, "axes.x.a.*a mapping of what differs"),
        ({"arms": {"a": 3}}, "a mapping of what differs"),
        ({"arms": {"a": {"seds": [1]}}}, "arms.a: found unknown key 'seds'.*seeds"),
        ({"scales": {"smal": {}}}, "did you mean.*small"),
        ({"scales": {"small": {"arms": {"thrid": None}}}}, "thrid"),
        ({"scales": {"small": {"arms": 3}}}, "a mapping of names"),
        ({"scales": {"small": {"arms": {"first": 3}}}}, r"scales.small.arms.first: .*what differs"),
        ({"scales": {"small": {}}, "dataset": 3}, "dataset: found '3'"),
        ({"scales": {"small": {}}, "arms": None, "deletion": "class"}, "deletion: found 'class'"),
        ({"arms": {"..": {}}}, "1 to 80 characters"),
        (
            {"arms": None, "axes": {"x": {"a+b": {}, "a": {}}, "y": {"c": {}, "b+c": {}}}},
            r"axes.*'a\+b\+c' twice",
        ),
    ],
)
def test_mistakes_in_arms_are_named(write: Callable[..., Path], changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_study(write(**changes), scale="small" if "scales" in changes else None)


def test_an_unknown_scale_and_a_foreign_folder(
    write: Callable[..., Path], execution: Execution, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"did you mean.*small"):
        load_study(write(), scale="smal")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("mine")
    with pytest.raises(InputError, match="a folder with other files"):
        run_all(load_study(write()), tmp_path / "other", execution=execution)
    assert [item.name for item in (tmp_path / "other").iterdir()] == ["notes.txt"]


def test_the_outline_counts_what_is_shared_and_then_done(
    write: Callable[..., Path], execution: Execution, tmp_path: Path
) -> None:
    study = load_study(write())
    folders = arm_folders(study, tmp_path / "run")
    _, before = outline_all(study.arms, folders, execution=execution)
    # Two full models, three oracles and three unlearned models planned; one of each is shared.
    assert (before.cells, before.trainings, before.distinct, before.done) == (3, 8, 5, 0)
    assert before.hours is None
    run_all(study, tmp_path / "run", execution=execution)
    _, after = outline_all(study.arms, folders, execution=execution)
    assert (after.distinct, after.done, after.rows) == (5, 5, 0.0)
    assert "measured on" in after.basis[0]


def test_a_cell_made_anew_is_the_same(small_once: StudyResult, execution: Execution) -> None:
    before = sorted(small_once.root.rglob("*"))
    report = verify_cell(small_once.root, "01-s17", execution=execution)
    assert report.same
    assert {part.kind for part in report.parts} == {"full", "oracle", "unlearned", "predictions"}
    assert sorted(small_once.root.rglob("*")) == before


def test_a_cell_that_comes_out_otherwise_is_told(
    small_once: StudyResult, execution: Execution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(shutil.copytree(small_once.root, tmp_path / "run"))
    original = BagOfWords.predict
    monkeypatch.setattr(
        BagOfWords,
        "predict",
        lambda self, **k: original(self, **k) ** 1.1 / (original(self, **k) ** 1.1).sum(1, keepdims=True),
    )
    report = verify_cell(root, "01-s17", method="SimNPO", execution=execution)
    assert not report.same
    differ = [part for part in report.parts if not part.same]
    assert {part.kind for part in differ} == {"predictions"}
    assert "probabilities differ by at most" in differ[0].note


def test_a_cell_that_is_not_there(small_once: StudyResult, execution: Execution) -> None:
    with pytest.raises(InputError, match=r"no such cell.*01-s17"):
        verify_cell(small_once.root, "01-s18", execution=execution)
    with pytest.raises(InputError, match="no such label"):
        verify_cell(small_once.root, "01-s17", method="SimNOP", execution=execution)


def test_the_sweep_file_lists_arms(write: Callable[..., Path], execution: Execution, tmp_path: Path) -> None:
    run_all(load_study(write()), tmp_path / "run", execution=execution)
    value = json.loads((tmp_path / "run/sweep.json").read_text())
    assert (value["arms"], value["scale"]) == (["first", "second"], "")
    with pytest.raises(InputError, match="name another --out"):
        run_all(load_study(write(name="others")), tmp_path / "run", execution=execution)


def test_another_rendering_deletes_what_the_first_arm_drew(
    write: Callable[..., Path], execution: Execution, tmp_path: Path
) -> None:
    arms = {
        "a-semantic": {},
        "b-opaque": {"rendering": "opaque", "map_seed": 0, "deletion": {"drawn_by": "a-semantic"}},
    }
    path = write(
        arms=arms, seeds=[17], deletion={"units_per_bundle": 2, "bundles": ["01"]}, training={"epochs": 120}
    )
    result = run_all(load_study(path), tmp_path / "run", execution=execution)
    one, other = result.assessments.values()
    assert one.forgotten == other.forgotten
    assert one.provenance["request"]["units"] == other.provenance["request"]["units"]
    opaque = tmp_path / "run/arms/b-opaque"
    report = audit_study(opaque)
    assert report.passed
    assert "drawn by the acquisition gate of another model" in report.check("requests").findings[0]
    gate = json.loads((opaque / "drawing-gate.json").read_text())
    gate["gate"]["classes"][0]["passed"] = not gate["gate"]["classes"][0]["passed"]
    for item in gate["gate"]["classes"]:
        item["passed"] = item["option"] not in one.forgotten
    (opaque / "drawing-gate.json").write_text(json.dumps(gate))
    refresh_manifest(opaque, "drawing-gate.json")
    assert audit_study(opaque).check("requests").status == "failed"


def test_bundles_cannot_be_drawn_by_a_folder_without_a_gate(
    make_plan: Callable[..., Plan], execution: Execution, tmp_path: Path
) -> None:
    plan = make_plan(deletion={"units_per_bundle": 2, "bundles": ["01"], "drawn_by": str(tmp_path / "gone")})
    with pytest.raises(InputError, match=r"drawn_by.*no gates.json"):
        run_study(plan, tmp_path / "run", execution=execution)
    with pytest.raises(InputError, match="has no acquisition gate"):
        make_plan(deletion={"granularity": "example", "drawn_by": "x"})


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        ({"a": {"deletion": {"drawn_by": "a"}}}, "not run before it"),
        ({"a": {"deletion": {"drawn_by": "b"}}, "b": {}}, "not run before it"),
        ({"first": {}, "second": {"deletion": {"drawn_by": "fist"}}}, "did you mean 'first'"),
    ],
)
def test_bundles_are_drawn_by_an_earlier_arm(
    write: Callable[..., Path], execution: Execution, tmp_path: Path, arms: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        run_all(load_study(write(arms=arms)), tmp_path / "run", execution=execution)
    assert not (tmp_path / "run").exists()


def test_a_relative_run_folder_of_drawn_by_is_meant_from_the_study_file(
    write: Callable[..., Path],
    execution: Execution,
    tmp_path: Path,
    small_once: StudyResult,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "gone").mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    deletion = {"units_per_bundle": 2, "bundles": ["01"]}
    changes: dict[str, Any] = {"arms": None, "seeds": [17], "methods": [], "draws": 100}
    # A folder of that name in the working directory is not the one that is meant.
    path = write(**changes, deletion={**deletion, "drawn_by": "gone"})
    with pytest.raises(InputError) as raised:
        run_all(load_study(path), tmp_path / "run", execution=execution)
    assert f"drawn_by: found no run folder '{tmp_path / 'gone'}'" in str(raised.value)
    assert not (tmp_path / "run").exists()
    # A run folder beside the study file is found from any working directory.
    shutil.copytree(small_once.root, tmp_path / "drawer")
    path = write(**changes, deletion={**deletion, "drawn_by": "drawer"})
    (made,) = run_all(load_study(path), tmp_path / "run", execution=execution).assessments.values()
    request = json.loads((tmp_path / "drawer/requests/01.json").read_text())
    assert set(made.forgotten) == set(request["units"])
    assert (tmp_path / "run/drawing-gate.json").is_file()
    # A run folder that has no gate is named in full.
    (tmp_path / "empty").mkdir()
    path = write(**changes, deletion={**deletion, "drawn_by": "./empty"})
    with pytest.raises(InputError, match=f"no gates.json in {tmp_path / 'empty'};"):
        run_all(load_study(path), tmp_path / "other", execution=execution)


def test_the_gate_that_drew_an_arms_bundles_is_checked(
    write: Callable[..., Path], execution: Execution, tmp_path: Path
) -> None:
    arms = {
        "names": {"deletion": {"bundles": ["01"]}, "seeds": [17], "methods": []},
        "opaque": {
            "deletion": {"bundles": ["01"], "drawn_by": "names"},
            "seeds": [17],
            "methods": [],
            "rendering": "opaque",
            "map_seed": 0,
        },
    }
    run_all(load_study(write(arms=arms)), tmp_path / "run", execution=execution)
    assert audit_sweep(tmp_path / "run").passed
    path = tmp_path / "run/arms/opaque/drawing-gate.json"
    value = json.loads(path.read_text())
    value["gate"]["classes"][0]["accuracy"] = 0.123
    path.write_text(json.dumps(value))
    assert audit_sweep(tmp_path / "run").check("drawn").status == "failed"
