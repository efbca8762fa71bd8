"""Question files become roles, topics and subjects; answers mean what their JSON type says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vestige.behaviour.partition import partition_warnings, question_sets, read_partition
from vestige.data.questions import read_questions
from vestige.errors import InputError


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def question(text: str, **more: Any) -> dict[str, Any]:
    return {"question": text, "choices": ["a", "b", "c", "d"], "answer": 0} | more


def test_mmlu_is_dealt_out_by_subject(tmp_path: Path) -> None:
    subjects = ("virology", "college_biology", "computer_security", "law", "maths")
    rows = [question(f"{name} {k}", subject=name) for name in subjects for k in range(3)]
    mmlu = write(tmp_path / "mmlu.jsonl", rows)
    bio = write(tmp_path / "bio.jsonl", [question(f"bio {k}") for k in range(4)])
    cyber = write(tmp_path / "cyber.jsonl", [question("cyber")])
    sources = {"mmlu": mmlu, "forget:bio": bio, "forget:cyber": cyber}
    found = read_partition(sources, per_subject=2)
    assert [subject.key for subject in found] == [
        ("forget", "bio", "bio"),
        ("forget", "cyber", "cyber"),
        ("adjacent", "bio", "virology"),
        ("adjacent", "bio", "college_biology"),
        ("adjacent", "cyber", "computer_security"),
        ("generic", "all", "law"),
        ("generic", "all", "maths"),
    ]
    assert [len(subject.questions) for subject in found] == [2, 1, 2, 2, 2, 2, 2]
    assert [subject.file_questions for subject in found][:2] == [4, 1]
    lines = partition_warnings(found, sources)
    assert any("the first 2 questions of 6 subjects" in line for line in lines)
    assert any("2 generic subjects instead of MMLU's 54" in line for line in lines)
    assert all(entry.chance == 0.25 for entry in question_sets(found))
    alone = {"mmlu": mmlu, "forget:bio": bio}
    rest = read_partition(alone)
    assert {subject.name for subject in rest if subject.role == "adjacent"} == {"virology", "college_biology"}
    assert any("computer_security of MMLU left out" in line for line in partition_warnings(rest, alone))


def test_a_folder_holds_a_subject_a_file_and_shared_questions_are_said(tmp_path: Path) -> None:
    folder = tmp_path / "generic"
    folder.mkdir()
    write(folder / "law.jsonl", [question("one")])
    write(folder / "maths.jsonl", [question("two")])
    forget = write(tmp_path / "f.jsonl", [question("one")])
    sources = {"generic": folder, "forget": forget}
    found = read_partition(sources)
    assert [subject.name for subject in found] == ["f", "law", "maths"]
    assert any("1 questions are asked in two roles" in line for line in partition_warnings(found, sources))
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="a folder without question files"):
        read_partition({"generic": tmp_path / "none"})


def test_numbers_are_positions_and_strings_are_texts(tmp_path: Path) -> None:
    options = ["2", "1", "0"]
    rows = [{"question": "q", "options": options, "answer": value} for value in (0, "0", "B", 1, "1")]
    assert [q.answer for q in read_questions(write(tmp_path / "q.jsonl", rows))] == [0, 2, 1, 1, 1]
    table = tmp_path / "q.csv"
    table.write_text('question,options,answer\nq,"[""2"", ""1"", ""0""]",0\n')
    with pytest.raises(InputError, match="row 1, answer: found '0', a position and another option's text"):
        read_questions(table)
    for value in (True, None, 1.5, -1):
        with pytest.raises(InputError, match="row 1, answer"):
            read_questions(
                write(tmp_path / "b.jsonl", [{"question": "q", "options": options, "answer": value}])
            )
