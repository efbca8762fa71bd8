"""Multiple-choice questions from JSONL and table files. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from vestige.errors import InputError, did_you_mean, first_five, shown
from vestige.readers import CSV_SUFFIXES, Cell, list_in, read_table, text_of_cell

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
    number in JSONL or Parquet is a position, a text first an option's. subject: an optional column. Published
    sets print an option twice here and there: as the letters are what is answered, such a question is taken
    as it is and marked. Raises InputError naming the row: an answer that is none of the options or could be
    two of them, options that are empty; and what `read_table` raises.
    """
    table = read_table(path, columns=("question",))
    column = next((name for name in OPTION_COLUMNS if name in table), None)
    if column is None or "answer" not in table:
        missing = "answer" if column else "options"
        raise InputError(
            table.subject,
            f"columns {first_five(table.names)}",
            f"a column '{missing}' beside 'question'",
            did_you_mean(missing, table.names) if len(table.names) <= 50 else "rename the columns",
        )
    typed = Path(path).suffix.lower() not in CSV_SUFFIXES
    answers = table.cells("answer")
    subjects = table.texts("subject") if "subject" in table else [""] * table.rows
    listed = table.lists(column)
    found = []
    for row, text in enumerate(table.texts("question")):
        if not text.strip():
            raise InputError(
                table.where(row, "question"), "no text", "a question", "correct or remove this row"
            )
        options = _options(listed[row], table.where(row, column))
        right = _position(answers[row], options, table.where(row, "answer"), typed=typed)
        found.append(_lettered(text, options, right, subject=subjects[row].strip(), row=row + 1))
    return found


def answers_are_places(options: Iterable[Cell], answers: Iterable[str]) -> bool:
    """Whether every answer that is not blank is a letter or a 0-based position among its row's options (a
    list, or one as JSON), and at least one is not an option's own text."""
    points = False
    for cell, value in zip(options, answers, strict=True):
        text = value.strip()
        if not text:
            continue
        listed = list_in(cell)
        if listed is None:
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


def _options(listed: list[Any] | None, where: str) -> list[str]:
    texts = [text_of_cell(option) for option in listed or ()]
    if None in texts:
        odd = (listed or [])[texts.index(None)]
        raise InputError(where, f"the option {shown(repr(odd))}", "a text each", "correct this row")
    options = [(text or "").strip() for text in texts]
    if not 2 <= len(options) <= len(LETTERS):
        raise InputError(
            where, shown(str(listed)), f"a list of 2 to {len(LETTERS)} texts", "correct this row"
        )
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


def _position(value: Cell, options: Sequence[str], where: str, *, typed: bool) -> int:
    """Which option is right. typed: numbers are positions and strings texts; else one cell may be both."""
    text = (text_of_cell(value) or "").strip()
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
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
