"""Question files by role, topic and subject, read and checked against each other. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from vestige.behaviour.records import QuestionSet
from vestige.data.corpora import Role
from vestige.data.files import file_sha256
from vestige.data.question_settings import AskingSettings, header_line
from vestige.data.questions import LetterQuestion, read_questions
from vestige.errors import InputError, did_you_mean, first_five, shown
from vestige.readers import TABLE_SUFFIXES
from vestige.seeds import digest

__all__ = [
    "ALL",
    "MMLU",
    "MMLU_ADJACENT",
    "MMLU_GENERIC",
    "Subject",
    "check_keys",
    "partition_warnings",
    "question_sets",
    "read_partition",
]

ALL = "all"
MMLU = "mmlu"
MMLU_ADJACENT = {"bio": ("virology", "college_biology"), "cyber": ("computer_security",)}
"""Topic of WMDP -> MMLU's subjects beside it. MMLU's other 54 subjects are generic."""
MMLU_GENERIC = 54
ROLES: tuple[Role, ...] = get_args(Role)

Files = str | Path | Sequence[str | Path]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The questions of one subject. file_questions: how many the file has of it, before any limit. about:
    what the line above each question says it is about, "" where there is no such line."""

    role: Role
    topic: str
    name: str
    path: str
    sha256: str
    questions: tuple[LetterQuestion, ...]
    file_questions: int
    about: str = ""

    @property
    def key(self) -> tuple[Role, str, str]:
        """Role, topic and name: unique in a partition."""
        return self.role, self.topic, self.name

    @property
    def chance(self) -> float:
        """Accuracy of guessing, in [0, 1]."""
        return sum(1 / len(question.options) for question in self.questions) / len(self.questions)

    def repeated(self, *kinds: str) -> int:
        """How many of its questions print an option's text twice: `option`, a wrong one; `key`, the right."""
        return sum(question.repeated in kinds for question in self.questions)

    @property
    def content(self) -> str:
        """sha256 over what is asked, in order."""
        return digest(
            "questions",
            *(part for q in self.questions for part in (q.prompt, len(q.options), *q.options, q.answer)),
        )


def read_partition(
    sources: Mapping[str, Files], *, asking: AskingSettings | None = None
) -> tuple[Subject, ...]:
    """The subjects of `ROLE[:TOPIC[/SUBJECT]]` -> file, folder or several; forget first, then in their order.

    A folder stands for its question files. A column `subject` splits a file, else the subject is the file's
    name. `mmlu` -> MMLU's subjects by the published partition: two beside bio, one beside cyber, the others
    generic. asking: which questions of each, and the line above them. Raises InputError: an unknown role, a
    subject twice, topics of forget and adjacent questions that differ, a name in `about` that is no topic or
    subject, and what `read_questions` raises.
    """
    asking = asking or AskingSettings()
    found: list[Subject] = []
    for key, files in sources.items():
        found += _mmlu(key, files) if key == MMLU else _named(key, files)
    forgotten = {subject.topic for subject in found if subject.role == "forget"}
    if MMLU in sources:
        own = _not_forgotten(forgotten)
        found = [s for s in found if not (s.role == "adjacent" and s.topic in own and _of_mmlu(s))]
    _check(found)
    _refuse_unknown(asking.about, found)
    ordered = sorted(found, key=lambda subject: ROLES.index(subject.role))
    return tuple(_asked(subject, asking) for subject in ordered)


def _asked(subject: Subject, asking: AskingSettings) -> Subject:
    """The subject with the questions that are asked of it and the line above them."""
    chosen = asking.chosen(subject.questions, *subject.key)
    about = asking.about.get(subject.name) or subject.about or asking.about.get(subject.topic, "")
    if asking.header == "none" or not about:
        return replace(subject, questions=chosen, about="")
    line = header_line(about)
    asked = tuple(replace(question, prompt=line + question.prompt) for question in chosen)
    return replace(subject, questions=asked, about=about)


def _refuse_unknown(about: Mapping[str, str], subjects: Sequence[Subject]) -> None:
    known = dict.fromkeys(name for subject in subjects for name in (subject.topic, subject.name))
    for name in about:
        if name not in known:
            raise InputError(
                "about",
                f"the name '{name}'",
                "a topic or subject of the questions",
                did_you_mean(name, known),
            )


def check_keys(keys: Iterable[str]) -> None:
    """Raise InputError where `read_partition` would because of the keys alone, without a file.

    With `mmlu` among them the adjacent topics are those of its file, and are left to `read_partition`.
    """
    listed = list(keys)
    places = [_place(key) for key in listed if key != MMLU]
    if MMLU not in listed:
        _refuse_unpaired((role, topic) for role, topic, _ in places)


def question_sets(subjects: Sequence[Subject]) -> tuple[QuestionSet, ...]:
    """What was asked, as records without texts."""
    return tuple(
        QuestionSet(
            role=subject.role,
            topic=subject.topic,
            subject=subject.name,
            path=subject.path,
            sha256=subject.sha256,
            content=subject.content,
            questions=len(subject.questions),
            file_questions=subject.file_questions,
            chance=subject.chance,
            about=subject.about,
            repeated_options=subject.repeated("option", "key"),
            repeated_keys=subject.repeated("key"),
        )
        for subject in subjects
    )


def partition_warnings(subjects: Sequence[Subject], sources: Mapping[str, Files]) -> list[str]:
    """What is odd about the partition: limits, few MMLU subjects, questions in two roles."""
    lines = []
    cut = [subject for subject in subjects if len(subject.questions) < subject.file_questions]
    if cut:
        lines.append(
            f"{len(cut[0].questions)} questions of each of {len(cut)} subjects were asked, not all: "
            "not comparable with accuracies on all of them"
        )
    twice = sum(subject.repeated("option", "key") for subject in subjects)
    if twice:
        keys = sum(subject.repeated("key") for subject in subjects)
        lines.append(
            f"{twice} question{'s print' if twice > 1 else ' prints'} the text of an option twice, "
            f"{keys} of them that of the right one: asked by letter as published, one letter alone is right"
        )
    generic = sum(subject.role == "generic" for subject in subjects)
    if MMLU in sources and generic != MMLU_GENERIC:
        lines.append(f"{generic} generic subjects instead of MMLU's {MMLU_GENERIC}")
    topics = {subject.topic for subject in subjects if subject.role == "forget"}
    for topic in sorted(_not_forgotten(topics)) if MMLU in sources else ():
        names = ", ".join(MMLU_ADJACENT[topic])
        lines.append(f"{names} of MMLU left out: no forget questions on {topic}")
    prompts: dict[str, Role] = {}
    shared: set[str] = set()
    for subject in subjects:
        line = header_line(subject.about) if subject.about else ""
        for question in subject.questions:
            prompt = question.prompt.removeprefix(line)
            if prompts.setdefault(prompt, subject.role) != subject.role:
                shared.add(prompt)
    if shared:
        lines.append(f"{len(shared)} questions are asked in two roles: their losses cannot come apart")
    return lines


def _named(key: str, files: Files) -> list[Subject]:
    role, topic, name = _place(key)
    found = []
    for path in _paths(files, f"--questions {key}"):
        for own, questions in _by_subject(path).items():
            label = name if name and not own else own or path.stem
            found.append(_subject(role, topic, label, path, questions))
    return found


def _place(key: str) -> tuple[Role, str, str]:
    head, mark, rest = key.partition(":")
    topic, slash, name = rest.partition("/")
    if head not in ROLES:
        raise InputError(
            f"--questions {key}",
            f"the role {shown(head)}",
            "ROLE[:TOPIC]=FILE",
            did_you_mean(head, [*ROLES, MMLU]),
        )
    if (mark and not topic.strip()) or (slash and not name.strip()):
        raise InputError(
            f"--questions {key}", "an empty topic or subject", "ROLE[:TOPIC[/SUBJECT]]=FILE", "name it"
        )
    return head, topic.strip() or ALL, name.strip()


def _mmlu(key: str, files: Files) -> list[Subject]:
    beside = {name: topic for topic, names in MMLU_ADJACENT.items() for name in names}
    found = []
    for path in _paths(files, f"--questions {key}"):
        for own, questions in _by_subject(path).items():
            name = (own or path.stem).removeprefix("mmlu_")
            role: Role = "adjacent" if name in beside else "generic"
            subject = _subject(role, beside.get(name, ALL), name, path, questions)
            found.append(replace(subject, about=name.replace("_", " ")))
    return found


def _not_forgotten(topics: set[str]) -> set[str]:
    """MMLU's adjacent topics that no forget question is about, where forget questions name topics."""
    return set(MMLU_ADJACENT) - topics if topics - {ALL} else set()


def _of_mmlu(subject: Subject) -> bool:
    return any(subject.name in names for names in MMLU_ADJACENT.values())


def _subject(role: Role, topic: str, name: str, path: Path, questions: Sequence[LetterQuestion]) -> Subject:
    return Subject(
        role=role,
        topic=topic,
        name=name,
        path=str(path),
        sha256=file_sha256(path),
        questions=tuple(questions),
        file_questions=len(questions),
    )


def _paths(files: Files, subject: str) -> list[Path]:
    listed = [Path(files)] if isinstance(files, str | Path) else [Path(file) for file in files]
    found: list[Path] = []
    for path in listed:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(file for file in path.iterdir() if file.suffix.lower() in TABLE_SUFFIXES)
        if not inside:
            raise InputError(
                f"{subject}, {path}", "a folder without question files", "JSONL files", "name another folder"
            )
        found += inside
    return found


def _by_subject(path: Path) -> dict[str, list[LetterQuestion]]:
    """The file's questions by their column `subject`, "" without one."""
    found: dict[str, list[LetterQuestion]] = {}
    for question in read_questions(path):
        found.setdefault(question.subject, []).append(question)
    return found


def _check(subjects: Sequence[Subject]) -> None:
    seen: dict[tuple[Role, str, str], str] = {}
    for subject in subjects:
        if subject.key in seen:
            raise InputError(
                f"{subject.role} questions on {subject.topic}",
                f"the subject '{subject.name}' in {seen[subject.key]} and in {subject.path}",
                "a subject once",
                "write ROLE:TOPIC/SUBJECT=FILE",
            )
        seen[subject.key] = subject.path
    _refuse_unpaired((subject.role, subject.topic) for subject in subjects)


def _refuse_unpaired(places: Iterable[tuple[Role, str]]) -> None:
    """Raise InputError when forget and adjacent questions are on different topics. places: role, topic."""
    topics: dict[Role, set[str]] = {"forget": set(), "adjacent": set()}
    for role, topic in places:
        topics.setdefault(role, set()).add(topic)
    one, other = topics["forget"], topics["adjacent"]
    if one and other and {ALL} not in (one, other) and one != other:
        raise InputError(
            "adjacent questions",
            f"topics {first_five(sorted(other))}",
            f"those of the forget questions: {first_five(sorted(one))}",
            "give both roles the same topics, or one of them none",
        )
