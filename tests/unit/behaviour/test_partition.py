"""Question files become roles, topics and subjects; answers mean what their JSON type says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vestige.behaviour.partition import partition_warnings, question_sets, read_partition
from vestige.behaviour.records import BehaviourSettings
from vestige.data.question_settings import AskingSettings
from vestige.data.questions import read_questions
from vestige.errors import InputError
from vestige.footprint.questions import right_is_best


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
    found = read_partition(sources, asking=AskingSettings(per_subject=2))
    assert [subject.key for subject in found] == [
        ("forget", "bio", "bio"),
        ("forget", "cyber", "cyber"),
        ("adjacent", "bio", "virology"),
        ("adjacent", "bio", "college_biology"),
        ("adjacent", "cyber", "computer_security"),
        ("generic", "all", "law"),
        ("generic", "all", "maths"),
    ]
    # What was forgotten is asked whole.
    assert [len(subject.questions) for subject in found] == [4, 1, 2, 2, 2, 2, 2]
    assert [subject.file_questions for subject in found][:2] == [4, 1]
    lines = partition_warnings(found, sources)
    assert any("2 questions of each of 5 subjects were asked, not all" in line for line in lines)
    assert any("2 generic subjects instead of MMLU's 54" in line for line in lines)
    assert all(entry.chance == 0.25 for entry in question_sets(found))
    alone = {"mmlu": mmlu, "forget:bio": bio}
    rest = read_partition(alone)
    assert {subject.name for subject in rest if subject.role == "adjacent"} == {"virology", "college_biology"}
    assert any("computer_security of MMLU left out" in line for line in partition_warnings(rest, alone))


def test_the_prompt_is_the_published_harness_s(tmp_path: Path) -> None:
    """The line above, a blank line, the stripped question, lettered options, and `Answer:`."""
    rows = [question(" What is it? ", subject=name) for name in ("high_school_physics", "virology")]
    mmlu = write(tmp_path / "mmlu.jsonl", rows)
    bio = write(tmp_path / "bio.jsonl", [question("Which?")])
    sources = {"forget:bio": bio, "mmlu": mmlu}
    forget, beside, generic = read_partition(sources, asking=AskingSettings(about={"bio": "biology"}))
    assert (beside.topic, beside.about) == ("bio", "virology")  # a subject's own name goes before its topic's
    assert generic.questions[0].prompt == (
        "The following are multiple choice questions (with answers) about high school physics.\n\n"
        "What is it?\nA. a\nB. b\nC. c\nD. d\nAnswer:"
    )
    assert forget.questions[0].prompt.startswith(
        "The following are multiple choice questions (with answers) about biology.\n\nWhich?\nA. a\n"
    )
    assert [entry.about for entry in question_sets([forget, generic])] == ["biology", "high school physics"]
    plain, _, other = read_partition(sources)
    assert (plain.questions[0].prompt[:6], other.about) == ("Which?", "high school physics")
    bare = read_partition(sources, asking=AskingSettings(header="none", about={"bio": "biology"}))
    assert {subject.questions[0].prompt[:3] for subject in bare} == {"Whi", "Wha"}
    with pytest.raises(InputError, match="did you mean 'bio'"):
        read_partition(sources, asking=AskingSettings(about={"bioo": "biology"}))


def test_a_cap_is_of_roles_and_takes_the_first_or_draws(tmp_path: Path) -> None:
    rows = [question(f"q{k}") for k in range(30)]
    sources = {"forget": write(tmp_path / "f.jsonl", rows), "generic": write(tmp_path / "g.jsonl", rows)}

    def asked(**settings: Any) -> list[list[int]]:
        found = read_partition(sources, asking=AskingSettings(**settings))
        return [[q.row for q in subject.questions] for subject in found]

    assert asked(per_subject=20) == [list(range(1, 31)), list(range(1, 21))]
    assert [len(part) for part in asked(per_subject=20, capped_roles=("forget", "generic"))] == [20, 20]
    drawn = asked(per_subject=20, cap="random")[1]
    assert drawn == sorted(drawn) != list(range(1, 21))
    assert drawn == asked(per_subject=20, cap="random")[1] != asked(per_subject=20, cap="random", seed=1)[1]
    published = BehaviourSettings(preset="triage")
    assert (published.per_subject, published.bos, published.dtype) == (20, "none", "bfloat16")
    assert (published.ties, BehaviourSettings().ties) == ("first", "wrong")
    for losses, right, strict, first in (
        ([1.0, 1.0, 2.0], 0, False, True),
        ([1.0, 1.0, 2.0], 1, False, False),
        ([2.0, 1.0, 2.0], 1, True, True),
        ([float("nan"), 1.0], 1, False, False),
    ):
        assert right_is_best(losses, right) == strict
        assert right_is_best(losses, right, "first") == first
    assert BehaviourSettings(preset="triage", per_subject=40).per_subject == 40
    assert BehaviourSettings.model_validate_json(published.to_json()) == published


def test_questions_that_print_an_option_twice_are_asked_by_letter(tmp_path: Path) -> None:
    """As MMLU's nine: the letters are the options, one of two equal texts is right."""
    rows = [
        question("wrong one twice", choices=["a", "b", "b", "d"], answer=3),
        question("right one twice", choices=["a", "b", "b", "d"], answer=2),
        question("none"),
    ]
    subject = read_partition({"generic": write(tmp_path / "g.jsonl", rows)})[0]
    assert [q.repeated for q in subject.questions] == ["option", "key", ""]
    assert [(q.options, q.answer) for q in subject.questions][1] == (("A", "B", "C", "D"), 2)
    (entry,) = question_sets([subject])
    assert (entry.repeated_options, entry.repeated_keys) == (2, 1)
    assert partition_warnings([subject], {}) == [
        "2 questions print the text of an option twice, 1 of them that of the right one: asked by letter as "
        "published, one letter alone is right"
    ]
    texts = [question("by its text", choices=["a", "b", "b", "d"], answer="b")]
    with pytest.raises(
        InputError, match=r"line 1, answer: found 'b', the text of two options; .*give its letter"
    ):
        read_questions(write(tmp_path / "t.jsonl", texts))


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
    with pytest.raises(InputError, match="line 2, answer: found '0', a position and another option's text"):
        read_questions(table)
    for value in (True, None, 1.5, -1):
        with pytest.raises(InputError, match="line 1, answer"):
            read_questions(
                write(tmp_path / "b.jsonl", [{"question": "q", "options": options, "answer": value}])
            )
