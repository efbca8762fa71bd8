"""Multiple-choice questions from JSONL and table files. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from vestige.data.files import read_table
from vestige.errors import InputError, did_you_mean, first_five, shown

__all__ = [
    "LETTERS",
    "OPTION_COLUMNS",
    "Asked",
    "LetterQuestion",
    "Repeated",
    "answers_are_places",
    "letter_questions",
    "read_questions",
]

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
OPTION_COLUMNS = ("options", "choices")


Repeated = Literal["", "option", "key"]
"""Whether a question prints an option's text twice: never, one that is wrong, or the right one."""


class Asked(Protocol):
    """A prompt, the options that may follow it, and which one is right."""

    @property
    def prompt(self) -> str: ...
    @property
    def options(self) -> tuple[str, ...]: ...
    @property
    def answer(self) -> int: ...


@dataclass(frozen=True)
class LetterQuestion:
    """A prompt that lists the options; the letters are what may follow it. row: 1-based in its file.

    subject: what the file's column `subject` says, "" without one. repeated: see `Repeated`; where it is the
    key, another letter says the same as the right one and counts as wrong all the same.
    """

    prompt: str
    options: tuple[str, ...]
    answer: int
    subject: str = ""
    row: int = 0
    repeated: Repeated = ""


def letter_questions(items: Iterable[tuple[str, Sequence[str], int]]) -> list[LetterQuestion]:
    """(question, options, answer) as `question / A. ... / Answer:` prompts whose options are the letters."""
    return [_lettered(text, options, right) for text, options, right in items]


def read_questions(path: str | Path) -> list[LetterQuestion]:
    """The questions of a JSONL or table file with columns question, options (or choices) and answer.

    options: a list of two or more texts. answer: a 0-based position, an option's own text, or a letter; a
    number in JSONL is a position, a string first an option's text. subject: an optional column. Published
    sets print an option twice here and there: as the letters are what is answered, such a question is taken
    as it is and marked. Raises InputError naming the row: an answer that is none of the options or could be
    two of them, options that are empty; and what `read_table` raises.
    """
    path = Path(path)
    table = read_table(path, columns=("question",))
    column = next((name for name in OPTION_COLUMNS if name in table.columns), None)
    if column is None or "answer" not in table.columns:
        missing = "answer" if column else "options"
        raise InputError(
            str(path),
            f"columns {first_five(table.columns)}",
            f"a column '{missing}' beside 'question'",
            did_you_mean(missing, table.columns) if len(table.columns) <= 50 else "rename the columns",
        )
    answers = _raw_answers(path) if path.suffix.lower() in (".jsonl", ".ndjson") else list(table["answer"])
    typed = path.suffix.lower() in (".jsonl", ".ndjson")
    subjects = table["subject"] if "subject" in table.columns else [""] * len(table)
    found = []
    for number, (text, cell, value, subject) in enumerate(
        zip(table["question"], table[column], answers, subjects, strict=True), start=1
    ):
        where = f"{path}, row {number}"
        if not text.strip():
            raise InputError(f"{where}, question", "no text", "a question", "correct or remove this row")
        options = _options(cell, f"{where}, {column}")
        right = _position(value, options, f"{where}, answer", typed=typed)
        found.append(_lettered(text, options, right, subject=str(subject).strip(), row=number))
    return found


def answers_are_places(options: Iterable[str], answers: Iterable[str]) -> bool:
    """Whether every answer that is not blank is a letter or a 0-based position among its row's options (a
    JSON list of texts), and at least one is not an option's own text."""
    points = False
    for cell, value in zip(options, answers, strict=True):
        text = value.strip()
        if not text:
            continue
        try:
            listed = json.loads(cell)
        except json.JSONDecodeError:
            return False
        if not isinstance(listed, list):
            return False
        letters = LETTERS[: len(listed)]
        place = text.isdecimal() and int(text) < len(listed)
        if not place and not (len(text) == 1 and text.upper() in letters):
            return False
        points |= text not in {str(option).strip() for option in listed}
    return points


def _lettered(
    text: str, options: Sequence[str], right: int, *, subject: str = "", row: int = 0
) -> LetterQuestion:
    lines = [f"{LETTERS[i]}. {option}" for i, option in enumerate(options)]
    prompt = "\n".join([text.strip(), *lines, "Answer:"])
    return LetterQuestion(
        prompt, tuple(LETTERS[: len(options)]), right, subject, row, _repeated(options, right)
    )


def _raw_answers(path: Path) -> list[Any]:
    """The answers of a JSONL file that `read_table` has read, with their JSON types."""
    text = path.read_text(encoding="utf-8-sig")
    return [json.loads(line).get("answer", "") for line in text.split("\n") if line.strip()]


def _options(value: str, where: str) -> list[str]:
    try:
        listed = json.loads(value)
    except json.JSONDecodeError:
        listed = None
    options = [str(option).strip() for option in listed] if isinstance(listed, list) else []
    if not 2 <= len(options) <= len(LETTERS):
        raise InputError(where, shown(value), f"a list of 2 to {len(LETTERS)} texts", "correct this row")
    if "" in options:
        raise InputError(
            where, f"option {options.index('') + 1} without text", "a text each", "correct this row"
        )
    return options


def _repeated(options: Sequence[str], right: int) -> Repeated:
    """Which of the options, if any, has the text of another."""
    if options.count(options[right]) > 1:
        return "key"
    return "option" if len(set(options)) < len(options) else ""


def _position(value: Any, options: Sequence[str], where: str, *, typed: bool) -> int:
    """Which option is right. typed: numbers are positions and strings texts; else one cell may be both."""
    text = str(value).strip()
    number = isinstance(value, int) and not isinstance(value, bool)
    as_text = options.index(text) if text in options and not (typed and number) else None
    if as_text is not None and options.count(text) > 1:
        raise InputError(
            where, f"{shown(text)}, the text of two options", "an answer that means one", "give its letter"
        )
    as_place = int(text) if text.isdecimal() and int(text) < len(options) else None
    if as_text is not None and as_place not in (None, as_text) and not typed:
        raise InputError(
            where,
            f"{shown(text)}, a position and another option's text",
            "an answer that means one option",
            "give the answer's letter, or JSONL with a number for a position",
        )
    letter = LETTERS.index(text.upper()) if len(text) == 1 and text.upper() in LETTERS else len(options)
    for place in (as_text, as_place, letter):
        if place is not None and place < len(options):
            return place
    raise InputError(
        where,
        shown(text),
        f"one of the {len(options)} options: its text, its letter or its 0-based position",
        "correct this row",
    )
