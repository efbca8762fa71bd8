"""Pages, tables and figures of a run folder: made again from the records by the audit, and compared."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_study_audit import edit

from vestige.cli.app import run
from vestige.report.pages_audit import CHECK, audited
from vestige.study.audit import Check, run_check
from vestige.study.audit_folder import Folder
from vestige.study.runner import StudyResult
from vestige.study.store import refresh_manifest

REPORT = ["--html", "--tables", "csv,tex", "--figures", "svg"]


@pytest.fixture(scope="module")
def reported_once(small_once: StudyResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = Path(shutil.copytree(small_once.root, tmp_path_factory.mktemp("pages") / "run"))
    assert run(["report", str(root), *REPORT]) == 0
    return root


@pytest.fixture
def reported(reported_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reported_once, tmp_path / "run"))


def check(root: Path) -> Check:
    return run_check(Folder(root), *CHECK)


def test_what_a_report_wrote_is_what_the_records_give(reported_once: Path) -> None:
    found = check(reported_once)
    assert (found.status, found.findings) == ("passed", ())
    assert int(found.detail.rsplit("(", 1)[1].split()[0]) > 20
    assert audited(reported_once)[""].check("pages") == found


def test_pages_that_were_rewritten_are_found(reported: Path) -> None:
    patterns = ("figures/*.svg", "index.json", "report.html", "tables/verdicts.csv", "tables/verdicts.tex")
    names = [sorted(reported.glob(name))[0].relative_to(reported).as_posix() for name in patterns]
    for name in names:
        text = (reported / name).read_text()
        digit = next(place for place in range(len(text) // 2, len(text)) if text[place].isdigit())
        changed = (int(text[digit]) + 1) % 10
        (reported / name).write_text(f"{text[:digit]}{changed}{text[digit + 1 :]}")
    refresh_manifest(reported, *names)
    assert sorted(check(reported).findings) == [f"{name} is not what the records give" for name in names]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda value: value["made"][0]["files"].remove("report.html"), "nothing notes how it was made"),
        (lambda value: value["made"][0]["wanted"].update(title="Better"), "report.html is not what"),
        (lambda value: value["made"][0]["wanted"].update(beside=["/x"]), "made with other folders (/x)"),
        (lambda value: value["made"][0].update(made_of="0" * 64), "before the records were what they are"),
        (lambda value: value["made"].clear(), "is not as `vestige report` writes it"),
        (lambda value: value["made"][0]["wanted"].update(html="yes"), "is not as `vestige report` writes it"),
    ],
)
def test_a_wrong_note_of_how_pages_were_made_is_found(
    reported: Path, change: Callable[[Any], Any], told: str
) -> None:
    edit(reported, "pages.json", change)
    found = check(reported)
    assert found.status != "passed"
    assert told in "\n".join(found.findings)


def test_pages_that_are_older_than_the_records_are_not_called_wrong(reported: Path) -> None:
    edit(reported, "history.json", lambda value: value.append(value[-1]))
    found = check(reported)
    assert found.status == "not checked"
    assert "make it anew: vestige report" in found.findings[0]
    assert run(["report", str(reported), *REPORT]) == 0
    assert check(reported).status == "passed"


def test_a_page_without_a_note_and_a_lost_table_are_found(reported: Path) -> None:
    (reported / "tables/verdicts.csv").unlink()
    assert "tables/verdicts.csv is missing" in check(reported).findings
    (reported / "pages.json").unlink()
    assert "report.html: nothing notes how it was made" in check(reported).findings


def test_a_record_inside_a_run_folder_has_no_page_there(
    reported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = reported / "assessments/01-s17.json"
    assert run(["report", str(record)]) == 2
    assert "add --out DIR" in capsys.readouterr().err
    assert not (record.parent / "report.html").exists()
