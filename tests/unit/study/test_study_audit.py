"""The audit: a sound folder passes; each check fails when what it checks is damaged."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vestige.study
from vestige.seeds import digest
from vestige.study import audit_numbers
from vestige.study.audit import CHECKS, audit_study, run_check
from vestige.study.audit_folder import Folder
from vestige.study.store import canonical, file_sha256, node_key, pretty

Edit = Callable[[Any], None]


def reseal(root: Path) -> None:
    """Write the manifest anew, so that only the check under test can notice a change."""
    files = {}
    for path in sorted((root / "nodes").glob("*/record.json")):
        record = json.loads(path.read_text())
        record["files"] = {
            item.relative_to(path.parent).as_posix(): file_sha256(item)
            for item in sorted(path.parent.rglob("*"))
            if item.is_file() and item != path
        }
        path.write_text(pretty(record))
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        inner = name.startswith("nodes/") and not name.endswith("record.json")
        if path.is_file() and name not in ("manifest.json", ".lock") and not inner:
            files[name] = file_sha256(path)
    body = {"format": "vestige-manifest-1", "files": files}
    (root / "manifest.json").write_text(pretty({**body, "seal": digest(canonical(body))}))


def edit(root: Path, name: str, change: Edit) -> None:
    value = json.loads((root / name).read_text())
    change(value)
    (root / name).write_text(pretty(value))
    reseal(root)


def failed(root: Path) -> set[str]:
    return {check.name for check in audit_study(root).checks if check.status == "failed"}


def fails(root: Path, name: str) -> bool:
    """Whether this one check fails: quicker than the whole audit."""
    check = next(item for item in CHECKS if item[0] == name)
    return run_check(Folder(root), *check).status == "failed"


def node_of(root: Path, kind: str, **identity: Any) -> Path:
    for path in sorted((root / "nodes").glob(f"{kind}-*/record.json")):
        record = json.loads(path.read_text())
        if all(record["identity"].get(key) == value for key, value in identity.items()):
            return path
    raise AssertionError(identity)


def test_a_sound_folder_passes_and_says_what_it_cannot_check(confirmed_once: Path) -> None:
    report = audit_study(confirmed_once)
    assert report.passed
    assert [check.name for check in report.checks] == [*(name for name, _, _ in CHECKS), "limits"]
    status = {check.name: check.status for check in report.checks}
    assert status["limits"] == "not checked"
    assert status["data"] == "passed"
    assert status["intervals"] == "passed"
    counts = {check.name: int(check.detail.rsplit("(", 1)[1].split()[0]) for check in report.checks[:-1]}
    # Four cells of seven compared models: a check that looked at nothing would say so.
    assert counts["distances"] > 2000
    assert counts["intervals"] > 5000
    empty = {name for name, count in counts.items() if not count}
    assert empty == {name for name, found in status.items() if found == "nothing to check"}
    assert report.to_json()


def files_of(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name != ".lock":
            yield path


def test_flipping_any_byte_fails(confirmed: Path) -> None:
    kinds: dict[tuple[str, ...], Path] = {}
    for path in files_of(confirmed):
        parts = path.relative_to(confirmed).parts
        # One file of each place and name: nodes/full/model/weights.npy, requests/.json, plan.json, ...
        place = [part.split("-")[0] for part in parts[:-1]]
        kinds.setdefault((*place, path.name if len(parts) != 2 else path.suffix), path)
    assert len(kinds) > 15
    for path in kinds.values():
        raw = path.read_bytes()
        for place in {0, len(raw) // 2, len(raw) - 1}:
            path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
            assert fails(confirmed, "files"), f"{path} byte {place}"
        path.write_bytes(raw)
    assert not fails(confirmed, "files")
    # The files of the same kinds are hashed as well: each is listed.
    listed = set(json.loads((confirmed / "manifest.json").read_text())["files"])
    for record in confirmed.glob("nodes/*/record.json"):
        folder = record.parent.relative_to(confirmed).as_posix()
        listed |= {f"{folder}/{name}" for name in json.loads(record.read_text())["files"]}
    assert {path.relative_to(confirmed).as_posix() for path in files_of(confirmed)} == {
        *listed,
        "manifest.json",
    }


def test_missing_and_foreign_files_fail(confirmed: Path) -> None:
    (confirmed / "notes.txt").write_text("x")
    assert failed(confirmed) == {"files"}
    (confirmed / "notes.txt").unlink()
    (confirmed / ".lock").write_text("x")
    assert fails(confirmed, "files")
    (confirmed / ".lock").write_text("")
    assert not fails(confirmed, "files")
    (confirmed / "study.yaml").unlink()
    assert fails(confirmed, "files")


def test_unfinished_work_is_noted(confirmed: Path) -> None:
    (confirmed / "nodes/.part-full-0123").mkdir()
    (confirmed / "nodes/.part-full-0123/x").write_text("x")
    check = audit_study(confirmed).check("files")
    assert check.status == "noted"
    assert check.findings == ("unfinished work: nodes/.part-full-0123",)


@pytest.mark.parametrize(
    ("name", "change", "check"),
    [
        ("evaluations.json", lambda value: value.append(value[0]), "keys"),
        ("evaluations.json", lambda value: value[0]["identity"].update(seed=3), "keys"),
        ("evaluations.json", lambda value: value[1].update(label=value[0]["label"]), "keys"),
        ("requests/01.json", lambda value: value["unit_of"].popitem(), "requests"),
        ("requests/01.json", lambda value: value.update(sha256="0" * 64), "requests"),
        ("bundles.json", lambda value: value["bundles"]["01"].reverse(), "requests"),
        ("bundles.json", lambda value: value["reserved"].update({"03": "0" * 64}), "requests"),
        ("bundles.json", lambda value: value.update(salt="other"), "requests"),
        ("plan.json", lambda value: value["deletion"].update(reserved=["02", "03"]), "reserved"),
        ("plan.json", lambda value: value["deletion"].update(bundles=["01", "02", "04"]), "coverage"),
        ("plan.json", lambda value: value.update(seeds=[17, 42, 99]), "coverage"),
        ("plan.json", lambda value: value["methods"].append({"method": "npo", "frozen": True}), "coverage"),
        ("plan.json", lambda value: value.update(draws=9000), "history"),
        ("frozen.json", lambda value: value.update(time="2999-01-01T00:00:00.000000+00:00"), "freeze"),
        ("frozen.json", lambda value: value.update(time="2001-01-01T00:00:00.000000+00:00"), "freeze"),
        ("frozen.json", lambda value: value["methods"][0]["settings"].update(epochs=1), "freeze"),
        ("frozen.json", lambda value: value["bundles"].update({"01": "0" * 64}), "freeze"),
        ("frozen.json", lambda value: value.update(data="0" * 64), "freeze"),
        ("frozen.json", lambda value: value["family"].pop(), "freeze"),
        ("evaluations.json", lambda value: value[0].update(origin="plan"), "freeze"),
        ("tuning.json", lambda value: value["methods"][0]["settings"].update(epochs=1), "tuning"),
        ("tuning.json", lambda value: value["methods"][0]["points"][0]["epochs"].pop(), "tuning"),
        ("tuning.json", lambda value: value["methods"][0].update(candidates=99), "tuning"),
        ("tuning.json", lambda value: value["methods"][0].update(budget=99), "tuning"),
        ("tuning.json", lambda value: value.update(equal_budgets=True), "tuning"),
        ("gates.json", lambda value: value["acquisition"]["17"]["classes"][0].update(accuracy=0.1), "gates"),
        ("gates.json", lambda value: value["acquisition"]["17"]["classes"][0].update(passed=False), "gates"),
        ("gates.json", lambda value: value["acquisition"]["17"].update(least_accuracy=0.1), "gates"),
        ("gates.json", lambda value: value.update(primary_seed=42), "gates"),
        ("data.json", lambda value: value.update(sha256="0" * 64), "data"),
    ],
)
def test_a_damaged_record_fails_its_check(confirmed: Path, name: str, change: Edit, check: str) -> None:
    assert not fails(confirmed, check)
    edit(confirmed, name, change)
    assert fails(confirmed, check)


CELL = "assessments/01-s17.json"


def metric(value: Any, key: str) -> Any:
    return value["models"][1]["metrics"][key]


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda v: metric(v, "oracle_distance.F").update(value=0.3), "distances"),
        (
            lambda v: metric(v, "progress.G").update(value=metric(v, "progress.G")["value"] + 1e-9),
            "distances",
        ),
        (lambda v: metric(v, "ece.R").update(value={"undefined": "no rows"}), "distances"),
        (lambda v: metric(v, "gain.F").update(rows=3), "distances"),
        (lambda v: metric(v, "identity_error.F").update(value=0.1), "distances"),
        (lambda v: metric(v, "minimum_detectable_gain.F").update(value=0.5), "distances"),
        (lambda v: v["noise"]["noise_full.F"].update(value=0.5), "distances"),
        (lambda v: v["noise_over_seeds"].update({"noise_full.F": {"low": 0.1, "high": 0.2}}), "intervals"),
        (lambda v: v["comparisons"][0]["difference"].update(value=0.5), "distances"),
        (lambda v: v["models"][1]["reliability"][14].update(rows=1), "distances"),
        (lambda v: v["models"][1]["destinations"][0].update(moved=0.9), "distances"),
        (lambda v: metric(v, "gain.F")["row"].update(low=-1.0), "intervals"),
        (lambda v: metric(v, "gain.F")["row"].update(seed=9), "intervals"),
        (lambda v: metric(v, "gain.F")["row"].update(draws=9), "intervals"),
        (lambda v: metric(v, "gain.F")["unit"].update(high=1.0), "intervals"),
        (lambda v: metric(v, "suppression.FG")["unit"].update(high=1.0), "intervals"),
        (lambda v: metric(v, "suppression.FG")["row"].update(high=1.0), "intervals"),
        (lambda v: metric(v, "ece.R").update(row={"undefined": "no rows"}), "intervals"),
        (lambda v: v["comparisons"][0]["difference"]["row"].update(low=-1.0), "intervals"),
        (lambda v: v["models"][1].update(decision="no benefit"), "decisions"),
        (lambda v: v["models"][1]["p_value"].update(F=0.5), "decisions"),
        (lambda v: v["models"][1]["p_value"].update(holm=0.5), "decisions"),
        (lambda v: v["models"][1].update(verdict="equivalent"), "verdicts"),
        (lambda v: v["models"][1].update(verdict_p=0.5), "verdicts"),
        (lambda v: v["models"][1]["evidence"].update(units_judged=0), "verdicts"),
        (lambda v: v["models"][1]["evidence"]["views"][0]["memory"].update(value=0.0), "verdicts"),
        (lambda v: v["models"][1]["evidence"]["retained"].update(harm="unharmed"), "verdicts"),
        (lambda v: v["models"][1]["evidence"]["conditions"][0].update(holds=None), "verdicts"),
        (lambda v: v["models"][1]["evidence"]["margins"].update(memory=0.9), "verdicts"),
        (lambda v: v["family"].append("Uniformization"), "decisions"),
        (lambda v: v.update(intervention_gate="gate not run"), "gates"),
        (lambda v: v["sources"][1].update(sha256="0" * 64), "probabilities"),
        (lambda v: v["sources"][2].update(path=v["sources"][3]["path"]), "probabilities"),
        (lambda v: v["sources"][0].update(path=v["sources"][1]["path"]), "probabilities"),
    ],
)
def test_a_wrong_result_fails_its_check(confirmed: Path, change: Edit, check: str) -> None:
    for path in confirmed.glob("assessments/0[12]-s*.json"):
        if path.name != Path(CELL).name:
            path.unlink()
    edit(confirmed, CELL, lambda value: None)
    assert not fails(confirmed, check)
    edit(confirmed, CELL, change)
    assert fails(confirmed, check)


def test_a_metric_unknown_to_the_audit_is_named(confirmed: Path) -> None:
    edit(confirmed, CELL, lambda v: v["models"][1]["metrics"].update({"glow.F": {**metric(v, "gain.F")}}))
    check = audit_study(confirmed).check("distances")
    assert check.status == "not checked"
    assert "'glow'" in check.findings[0]


def test_a_reserved_bundle_with_any_trace_fails(confirmed: Path) -> None:
    for name, source in (
        ("requests/03.json", "requests/01.json"),
        ("assessments/03-s17.json", CELL),
        ("views/03-evaluation.csv", "views/01-evaluation.csv"),
    ):
        shutil.copy(confirmed / source, confirmed / name)
        reseal(confirmed)
        assert fails(confirmed, "reserved"), name
        (confirmed / name).unlink()
    reserve = json.loads((confirmed / "bundles.json").read_text())["reserved"]["03"]
    record = json.loads(node_of(confirmed, "unlearned").read_text())
    record["identity"]["request"]["units"] = reserve
    record["key"] = node_key("unlearned", record["identity"])
    target = confirmed / f"nodes/unlearned-{record['key'][:16]}"
    target.mkdir()
    (target / "record.json").write_text(pretty(record))
    reseal(confirmed)
    assert failed(confirmed) == {"reserved"}


def test_exposure_of_tuning_and_oracles(confirmed: Path) -> None:
    views = confirmed / "views"
    tuned, evaluated = views / "00-development.csv", views / "01-evaluation.csv"
    original = tuned.read_text()
    leaked = next(line for line in evaluated.read_text().splitlines() if ",R," in line)
    tuned.write_text(original + leaked + "\n")
    reseal(confirmed)
    assert fails(confirmed, "exposure")
    tuned.write_text(original)
    text = evaluated.read_text()
    deleted = next(line for line in text.splitlines() if ",F," in line)
    evaluated.write_text(text.replace(deleted, deleted.replace(",F,", ",R,")))
    reseal(confirmed)
    assert fails(confirmed, "exposure")
    assert fails(confirmed, "probabilities")
    evaluated.write_text(text)
    path = node_of(confirmed, "oracle")
    record = json.loads(path.read_text())
    record["result"]["deleted_rows"] -= 1
    path.write_text(pretty(record))
    reseal(confirmed)
    assert fails(confirmed, "exposure")


def test_an_oracle_trained_on_other_rows_fails(confirmed: Path) -> None:
    path = node_of(confirmed, "oracle")
    record = json.loads(path.read_text())
    record["identity"]["rows"] = "0" * 64
    path.write_text(pretty(record))
    reseal(confirmed)
    assert fails(confirmed, "keys")
    assert fails(confirmed, "data")


def test_changed_probabilities_fail_even_when_resealed(confirmed: Path) -> None:
    from vestige.decision.predictions import read_predictions, write_predictions

    stored = json.loads((confirmed / CELL).read_text())
    path = confirmed / next(item["path"] for item in stored["sources"] if item["role"] == "unlearned")
    table = read_predictions(path, "x")
    p = np.array(table.p)
    p[0] = np.roll(p[0], 1)
    object.__setattr__(table, "p", p)
    write_predictions(table, path)
    reseal(confirmed)
    assert {"distances", "intervals"} <= failed(confirmed)


def test_post_hoc_changes_and_mixed_environments_are_noted(confirmed: Path) -> None:
    history = json.loads((confirmed / "history.json").read_text())
    history.insert(0, {**history[0], "plan": "0" * 64})
    (confirmed / "history.json").write_text(pretty(history))
    path = node_of(confirmed, "oracle")
    record = json.loads(path.read_text())
    record["environment"] = {"numpy": "0"}
    path.write_text(pretty(record))
    reseal(confirmed)
    check = audit_study(confirmed).check("history")
    assert check.status == "noted"
    assert [finding.split(" ")[0] for finding in check.findings] == ["the", "nodes"]
    assert audit_study(confirmed).passed


def test_without_the_data_set_the_audit_says_so(confirmed: Path) -> None:
    value = json.loads((confirmed / "plan.json").read_text())
    value["dataset"]["path"] = str(confirmed / "gone")
    (confirmed / "plan.json").write_text(pretty(value))
    reseal(confirmed)
    check = audit_study(confirmed).check("data")
    assert check.status == "not checked"
    assert "could not be loaded" in check.findings[0]


def test_another_version_of_the_data_set_is_said_not_failed(
    confirmed: Path, intents: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(intents, tmp_path / "other"))
    with (other / "evaluation.csv").open("a", encoding="utf-8") as file:
        file.write("one more please,refund,3\n")
    value = json.loads((confirmed / "plan.json").read_text())
    value["dataset"]["path"] = str(other)
    (confirmed / "plan.json").write_text(pretty(value))
    reseal(confirmed)
    check = audit_study(confirmed).check("data")
    assert check.status == "not checked"
    assert "another version of it" in check.findings[0]


def test_excluded_models_are_named_with_their_reason(confirmed: Path) -> None:
    entry = json.loads((confirmed / "evaluations.json").read_text())[0]
    failure = {
        "key": entry["identity"]["unlearned"],
        "label": "SimNPO on bundle 01",
        "reason": "nan",
        "time": "",
    }
    (confirmed / "failures.json").write_text(pretty([failure]))
    reseal(confirmed)
    check = audit_study(confirmed).check("coverage")
    assert check.findings == ("excluded: SimNPO on bundle 01 (nan)",)


def test_the_audit_shares_no_metric_code_with_the_product() -> None:
    folder = Path(vestige.study.__file__).parent
    common = {"vestige.errors", "vestige.seeds", "vestige.contracts", "vestige.data.intents"}
    common |= {"vestige.study", "vestige.study.store", "vestige.study.plan", "vestige.methods"}
    # What a plan asks for and what words say is no arithmetic: two modules ask the product for it.
    more = {
        "plan_audit.py": {
            "vestige.decision.schema",
            "vestige.deletion.clusters",
            "vestige.deletion.requests",
            "vestige.readers",
            "vestige.study.sweep",
        },
        "words_audit.py": {
            "vestige.attacks.records",
            "vestige.decision.predictions",
            "vestige.study.caveats",
            "vestige.study.recovery",
            "vestige.verdict.rule",
            "vestige.verdict.sentence",
        },
    }
    modules = sorted({*folder.glob("audit*.py"), *(folder / name for name in more)})
    assert len(modules) >= 20
    for path in modules:
        allowed = common | more.get(path.name, set()) | {f"vestige.study.{Path(name).stem}" for name in more}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                own = name.startswith("vestige.study.audit") or name in allowed
                assert own or not name.startswith("vestige"), (path.name, name)
    source = hashlib.sha256((folder / "audit_numbers.py").read_bytes()).hexdigest()
    assert source
    assert "vestige" not in {name.split(".")[0] for name in vars(audit_numbers) if not name.startswith("__")}


def test_own_distance_and_projection_against_closed_forms() -> None:
    p = np.array([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]])
    q = np.array([[0.0, 1.0], [0.5, 0.5], [0.75, 0.25]])
    # Disjoint: 1; equal: 0; mirrored (1/4, 3/4): 1 minus the entropy of (1/4, 3/4).
    entropy = -(0.25 * np.log2(0.25) + 0.75 * np.log2(0.75))
    np.testing.assert_allclose(audit_numbers.js(p, q), [1.0, 0.0, 1 - entropy], atol=1e-10)
    inside = np.array([[0.2, 0.3, 0.5]])
    np.testing.assert_allclose(audit_numbers.simplex(inside), inside, atol=1e-15)
    outside = np.array([[1.5, 0.2, -0.3]])
    np.testing.assert_allclose(audit_numbers.simplex(outside), [[1.0, 0.0, 0.0]], atol=1e-15)
    assert audit_numbers.bin_of(0.0) == 0
    assert audit_numbers.bin_of(1 / 15) == 0
    assert audit_numbers.bin_of(1.0) == 14
