"""`vestige study ...` at the command line: output, exit codes, what a kill leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from bag_of_words import SPEC, BagOfWords

import vestige.cli.study
from vestige.cli import run
from vestige.locks import alone_in
from vestige.study.audit import audit_study
from vestige.study.plan import Plan
from vestige.study.runner import Execution, StudyResult, run_study
from vestige.study.status import study_status

Make = Callable[..., Plan]


@pytest.fixture
def study(make_plan: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a study file; verbs use the small backend."""
    monkeypatch.setattr(
        vestige.cli.study,
        "_execution",
        lambda jobs, threads, reuse=None: Execution(jobs=jobs, threads=threads, backend=SPEC),
    )

    def write(**changes: Any) -> Path:
        path = tmp_path / "small.yaml"
        plan = make_plan(**changes).model_dump(mode="json", exclude_unset=True)
        path.write_text(yaml.safe_dump(plan), encoding="utf-8")
        return path

    return write


def test_run_prints_the_verdict_and_leaves_a_report_that_the_audit_accepts(
    study: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(["study", "run", str(study()), "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "SimNPO" in shown.out
    assert "accepted" in shown.out
    assert "Caveats" in shown.out
    assert str(out / "report.html") in " ".join(shown.out.split())
    assert "assessing bundle 01, seed 17" in shown.err
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!")
    assert (out / "study.yaml").read_bytes() == (tmp_path / "small.yaml").read_bytes()
    assert run(["study", "audit", str(out)]) == 0
    assert "distances" in capsys.readouterr().out
    # The report may be written again on purpose; the manifest follows.
    assert run(["report", str(out), "--title", "Another heading", "--tables", "csv"]) == 1 - 1
    assert audit_study(out).passed
    # While a run is at work nothing is written: the manifest could not follow.
    before = (out / "report.html").read_bytes()
    with alone_in(out):
        assert run(["report", str(out), "--title", "A third"]) == 2
        assert "another run at work" in capsys.readouterr().err
    assert (out / "report.html").read_bytes() == before
    assert audit_study(out).passed
    (out / "report.html").write_text("forged", encoding="utf-8")
    capsys.readouterr()
    assert run(["study", "audit", str(out)]) == 1
    told = capsys.readouterr()
    assert "- report.html was changed" in told.out
    assert told.err.startswith(f"error: audit of {out}: 2 check(s) failed: files, pages")


def test_records_as_json(
    study: Callable[..., Path], small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(study())
    assert run(["study", "run", path, "--out", str(small), "--json"]) == 0
    (assessment,) = json.loads(capsys.readouterr().out)
    assert assessment["format"] == "vestige-assessment-1"
    assert run(["study", "status", str(small), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["running"] is False
    assert run(["study", "audit", str(small), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checks"][0]["name"] == "files"
    assert run(["study", "run", path, "--out", str(small), "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert {item["kind"] for item in planned["work"]} == {"full", "oracle", "unlearned", "assessment"}
    assert planned["summary"]["cells"] == 1
    assert planned["summary"]["done"] == planned["summary"]["distinct"] == 7


def test_verify_makes_a_cell_anew(
    study: Callable[..., Path], small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["study", "verify", str(small), "01-s17", "--method", "SimNPO"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("same") == 6
    assert "differs" not in shown
    assert run(["study", "verify", str(small), "01-s1"]) == 2
    assert "no such cell" in capsys.readouterr().err


def test_arms_at_the_command_line(
    study: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = study()
    arms = {"plain": {}, "sets": {"candidates": ["S0", "S1"]}}
    path.write_text(path.read_text() + yaml.safe_dump({"arms": arms}), encoding="utf-8")
    out = tmp_path / "run"
    assert run(["study", "run", str(path), "--out", str(out), "--dry-run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "3 cells; 14 trainings and unlearnings, 7 of them different, 0 done" in shown
    assert not out.exists()
    assert run(["study", "run", str(path), "--out", str(out)]) == 0
    assert "arm sets (2 of 2)" in capsys.readouterr().err
    assert (out / "report.html").is_file()
    assert run(["study", "status", str(out)]) == 0
    assert "\nsets:\n" in capsys.readouterr().out
    assert run(["study", "audit", str(out), "--json"]) == 0
    assert sorted(json.loads(capsys.readouterr().out)) == ["across arms", "plain", "sets"]
    assert run(["study", "verify", str(out), "01-s17"]) == 2
    assert "one of plain, sets" in capsys.readouterr().err


def test_tune_freeze_run(
    study: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    grid = {"simnpo": {"beta": [2.5], "retain_weight": [1.0]}}
    path = str(
        study(
            stage="confirmation",
            methods=[{"method": "simnpo", "frozen": True}],
            tuning={"epochs": 2, "grid": grid},
        )
    )
    assert run(["study", "run", path, "--out", out]) == 2
    assert "vestige study tune" in capsys.readouterr().err
    assert run(["study", "freeze", out]) == 2
    assert "run `vestige study tune` first" in capsys.readouterr().err
    assert run(["study", "tune", path, "--out", out]) == 0
    shown = capsys.readouterr().out
    assert "SimNPO: beta 2.5" in shown
    assert "at the edge of the grid" in shown
    assert run(["study", "status", out]) == 0
    assert "tuned 2" in capsys.readouterr().out
    assert run(["study", "freeze", out]) == 0
    assert "family: SimNPO" in capsys.readouterr().out
    assert run(["study", "run", path, "--out", out]) == 0
    assert run(["study", "audit", out]) == 0


def test_status_and_dry_run_in_words(
    study: Callable[..., Path], small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["study", "status", str(small)]) == 0
    shown = capsys.readouterr().out
    assert "small (pilot): no run is at work" in shown
    assert "done         oracle     oracle of bundle 01, seed 42" in shown
    assert run(["study", "run", str(study()), "--out", str(tmp_path / "new"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "to do           full       full model, seed 17, about 24,000 rows through the model" in shown
    assert "Nothing was written" in shown
    assert not (tmp_path / "new").exists()


def test_shipped_studies_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["study", "show"]) == 0
    assert "banking77-class (confirmation): BANKING77" in capsys.readouterr().out
    assert run(["study", "show", "demo"]) == 0
    assert "dataset: helpdesk" in capsys.readouterr().out
    assert run(["study", "show", "demmo"]) == 2
    assert "did you mean 'demo'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["study", "run", "demmo"],
        ["study", "run", "gone.yaml"],
        ["study", "status", "gone"],
        ["study", "audit", "gone"],
        ["study", "freeze", "gone"],
        ["study", "run", "demo", "--jobs", "0"],
        ["study", "rum", "demo"],
    ],
)
def test_wrong_command_lines_are_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_gets_a_suggestion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("name: s\ndataset: helpdesk\nmetods: []\n", encoding="utf-8")
    assert run(["study", "run", str(path), "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert told == (
        f"error: {path}: found unknown key 'metods'; needed a known key; did you mean 'methods'?\n"
    )


def test_an_interrupt_is_130_and_says_what_was_kept(
    study: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(self: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(BagOfWords, "unlearn", stop)
    assert run(["study", "run", str(study()), "--out", str(tmp_path / "run")]) == 130
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("error: interrupted: 5 finished part(s)")
    assert "run the same command again to go on" in told


def test_a_diverged_model_makes_the_exit_code_1(
    study: Callable[..., Path], small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = ["uniformization", {"method": "npo", "settings": {"learning_rate": 1e6}}]
    assert run(["study", "run", str(study(methods=methods)), "--out", str(small)]) == 1
    assert "1 model(s) could not be made; the first, NPO on bundle 01, seed 17" in capsys.readouterr().err


def test_kill_9_loses_nothing_that_was_finished(
    study: Callable[..., Path],
    make_plan: Make,
    small_once: StudyResult,
    execution: Execution,
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from vestige.study.sweep import load_study\n"
        "from vestige.study.runner import Execution, run_study\n"
        f"plan = load_study({str(study())!r}).plan\n"
        f"run_study(plan, {str(out)!r}, execution=Execution(backend='bag_of_words:KilledBackend'))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    status = study_status(out)
    assert not status.running
    assert status.count("interrupted") == 1
    before = {item.label: item.finished for item in status.work if item.state == "done"}
    assert sum(item.kind in ("full", "oracle") for item in status.work if item.state == "done") == 4
    result = run_study(make_plan(), out, execution=execution)
    after = {item.label: item.finished for item in study_status(out).work if item.state == "done"}
    assert before.items() <= after.items()
    for name, found in result.assessments.items():
        assert found.models == small_once.assessments[name].models
    assert audit_study(out).passed
