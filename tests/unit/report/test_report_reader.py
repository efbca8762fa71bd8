"""Which records a folder holds, and what is said about broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.assessments import assessment

from vestige.errors import InputError
from vestige.report.reader import assessment_files, read_assessments


def test_a_comparison_and_a_run_are_read(tmp_path: Path) -> None:
    (tmp_path / "assessments").mkdir()
    for name in (
        "assessments/01-s42.json",
        "assessments/01-s7.json",
        "assessments/10-s7.json",
        "assessment.json",
    ):
        (tmp_path / name).write_text(assessment(name=name).to_json(), encoding="utf-8")
    (tmp_path / "assessments" / "notes.txt").write_text("no record")
    assert [path.relative_to(tmp_path).as_posix() for path in assessment_files(tmp_path)] == [
        "assessment.json",
        "assessments/01-s7.json",
        "assessments/01-s42.json",
        "assessments/10-s7.json",
    ]
    assert read_assessments(tmp_path)[1].name == "assessments/01-s7.json"
    assert assessment_files(tmp_path / "assessment.json") == [tmp_path / "assessment.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "broken JSON"),
        ('{"format": "vestige-assessment-9"}', "vestige-assessment-1"),
        ("\xff", "UTF-8"),
    ],
)
def test_a_broken_record_is_named_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "assessment.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        read_assessments(tmp_path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_key_is_named(tmp_path: Path) -> None:
    text = assessment().to_json().replace('"gain.F": {', '"gain.F": {"typo": 1,', 1)
    (tmp_path / "assessment.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"metrics\.gain\.F\.typo"):
        read_assessments(tmp_path)


def test_an_empty_or_missing_folder_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no assessment\.json.*vestige compare"):
        read_assessments(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        read_assessments(tmp_path / "missing")
