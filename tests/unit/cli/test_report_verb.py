"""`vestige report`: files, formats, exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.assessments import assessment, unlearned

from vestige.cli import run


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    (folder / "assessments").mkdir(parents=True)
    for seed in (17, 42):
        record = assessment(unlearned("a/b\n<i>"), name=f"bundle 01, seed {seed}")
        (folder / "assessments" / f"01-s{seed}.json").write_text(record.to_json(), encoding="utf-8")
    return folder


def test_the_page_is_the_default(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(results)]) == 0
    assert capsys.readouterr().out == f"Written: {results / 'report.html'}\n"
    assert "bundle 01, seed 42" in (results / "report.html").read_text(encoding="utf-8")


def test_tables_are_written_alone_or_with_the_page(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(["report", str(results), "--tables", "csv, tex", "--out", str(out)]) == 0
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*.*")) == [
        "tables/measurements.csv",
        "tables/verdicts.csv",
        "tables/verdicts.tex",
    ]
    assert (out / "tables" / "verdicts.tex").read_text(encoding="utf-8").count(r"\begin{table}") == 2
    assert run(["report", str(results), "--tables", "csv", "--html", "--out", str(out)]) == 0
    assert (out / "report.html").is_file()


def test_json_holds_every_sentence(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = results / "assessments" / "01-s17.json"
    assert run(["report", str(one), "--tables", "tex", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["written"] == [str(one.parent / "tables" / "verdicts.tex")]
    (found,) = record["verdicts"]
    assert found["decision"] == "accepted"
    assert found["model"] == "a/b\n<i>"
    assert found["verdict"] is None
    older = "“a/b\\n<i>” was judged by the published rule: its record is older than verdicts"
    assert found["sentence"].startswith(older)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tables", "cvs"], "did you mean 'csv'?"),
        (["--tables", ","], "needed csv or tex"),
    ],
)
def test_wrong_formats_are_refused(
    results: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(results), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (results / "report.html").exists()


def test_an_empty_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(tmp_path)]) == 2
    assert "no assessment.json" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "file"
    target.write_text("")
    assert run(["report", str(results), "--out", str(target / "x")]) == 2
    error = capsys.readouterr().err
    assert str(target) in error
    assert error.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to read-only folders")
def test_a_read_only_folder_is_named(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results.chmod(0o555)
    try:
        assert run(["report", str(results)]) == 2
        assert "no permission to write" in capsys.readouterr().err
    finally:
        results.chmod(0o755)
