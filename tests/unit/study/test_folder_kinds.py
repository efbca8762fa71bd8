"""Every verb that takes a folder, given every kind of folder: it works, or one line says what fits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import footprints
from tests.assessments import assessment

from vestige.cli.app import run
from vestige.errors import InputError
from vestige.report.reader import assessment_files
from vestige.study.runner import Execution, StudyResult
from vestige.study.sweep import listed_arms
from vestige.study.verify import verify_cell

VERBS: dict[str, list[str]] = {
    "study status": [],
    "study audit": [],
    "study freeze": [],
    "study verify": ["01-s17"],
    "attack recover": [],
    "attack fresh-head": [],
    "attack correlate": [],
    "report": [],
}
PAGE = "`vestige report {}` writes its page"
BESIDE = "beside the footprint.json of the same checkpoints"


def compared(folder: Path) -> None:
    (folder / "assessment.json").write_text(assessment().to_json(), encoding="utf-8")


def measured(folder: Path) -> None:
    record = footprints.record(footprints.checkpoint("GA", {"bio": 1.0, "near": 0.5, "far": 0.1}))
    (folder / "footprint.json").write_text(record.to_json(), encoding="utf-8")


def language(folder: Path) -> None:
    """A finished language study: its record, and its footprint in a folder of its own."""
    (folder / "language-study.json").write_text('{"format": "vestige-language-study-1"}')
    (folder / "footprint").mkdir()
    measured(folder / "footprint")


def marked(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(json.dumps({"format": "vestige-made-1"})) and None


def imported(folder: Path) -> None:
    (folder / "imported").mkdir()
    text = "dataset,labels,stage,evaluations\nbanking77,semantic,pilot,3\n"
    (folder / "imported/registry.csv").write_text(text)


KINDS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "comparison": (
        compared,
        "a comparison that `vestige compare` wrote",
        "`vestige report {}` writes its page",
    ),
    "language study": (language, "a language study", PAGE),
    "footprint": (
        measured,
        "a footprint that `vestige footprint` wrote",
        "`vestige report {}` writes its page",
    ),
    "behaviour": (
        marked("behaviour.json"),
        "answers that `vestige behaviour` wrote",
        BESIDE,
    ),
    "relearn": (
        marked("relearn.json"),
        "an attack that `vestige attack relearn`",
        BESIDE,
    ),
    "model": (marked("unlearn.json"), "a model that `vestige unlearn`", "`vestige footprint --unlearned {}`"),
    "imported": (imported, "a folder of imported tables", PAGE),
    "empty": (lambda folder: None, "an empty folder", "; "),
    "strange": (marked("notes.json"), "found no ", "; "),
}
WORKS = {
    "report": {"comparison", "language study", "footprint", "imported"},
    "attack correlate": set(),
}
OWN_LINE = {"attack correlate": {"language study", "footprint"}}
"""Read, and refused for what is missing in it."""


def called(verb: str, path: Path) -> list[str]:
    return [*verb.split(), str(path), *VERBS[verb]]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_another_kind_is_named_with_the_verb_that_fits(
    verb: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, what, fits = KINDS[kind]
    folder = tmp_path / "folder"
    folder.mkdir()
    make(folder)
    code = run(called(verb, folder))
    said = capsys.readouterr().err
    if kind in WORKS.get(verb, ()):
        assert (code, said) == (0, "")
        return
    assert code == 2
    assert said.count("\n") == 1
    if kind in OWN_LINE.get(verb, ()):
        assert "run vestige attack relearn or vestige behaviour" in said
        return
    assert said.startswith(f"error: {folder}: found {what}" if kind != "strange" else f"error: {folder}: ")
    assert what in said
    assert fits.format(folder) in said
    assert f"`vestige {verb} {folder}`" not in said


@pytest.mark.parametrize("verb", VERBS)
def test_a_missing_folder_and_a_file_are_said(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(called(verb, tmp_path / "none")) == 2
    assert f"{tmp_path / 'none'}: found no such folder; needed " in capsys.readouterr().err
    (tmp_path / "notes.txt").write_text("x\n")
    assert run(called(verb, tmp_path / "notes.txt")) == 2
    said = capsys.readouterr().err
    # A report takes one record too.
    assert ("broken JSON" if verb == "report" else f"name a folder, perhaps {tmp_path}") in said
    assert said.count("\n") == 1


def test_a_study_serves_its_own_verbs(
    small_once: StudyResult, tmp_path: Path, execution: Execution, capsys: pytest.CaptureFixture[str]
) -> None:
    small = Path(shutil.copytree(small_once.root, tmp_path / "small"))
    for verb in ("study status", "study audit", "report"):
        assert run(called(verb, small)) == 0
    capsys.readouterr()
    assert run(called("study freeze", small)) == 2
    assert "no tuning.json; needed a tuned study; run `vestige study tune` first" in capsys.readouterr().err
    assert run(called("attack correlate", small)) == 2
    assert "a study that `vestige study run` or `tune` wrote, no footprint.json" in capsys.readouterr().err
    (small / "requests/01.json").unlink()
    with pytest.raises(InputError, match=r"cell 01-s17: found no requests/01.json; needed a cell that was"):
        verify_cell(small, "01-s17", execution=execution)
    assert run([*called("study verify", small), "--arm", "x"]) == 2
    assert "arm: found 'x'; needed a study with arms; leave --arm away" in capsys.readouterr().err


def test_a_study_without_assessments_is_not_sent_back_to_the_report(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(InputError) as raised:
        assessment_files(tmp_path)
    said = str(raised.value)
    assert said.startswith(f"{tmp_path}: found a study that `vestige study run` or `tune` wrote, no assess")
    assert said.endswith(f"; `vestige study status {tmp_path}` says what is done")


def test_a_sweep_wants_the_arm_of_a_cell(
    small_once: StudyResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arm in ("first", "second"):
        shutil.copytree(small_once.root, tmp_path / "arms" / arm)
    (tmp_path / "sweep.json").write_text(json.dumps({"arms": ["first", "second"]}))
    assert listed_arms(tmp_path) == ["first", "second"]
    assert run(called("study verify", tmp_path)) == 2
    assert "arm: found none named; needed one of first, second; add --arm first" in capsys.readouterr().err
