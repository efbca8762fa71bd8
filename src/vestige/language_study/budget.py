"""The budget of a relearning attack: what is trained on and what is scored, the same for every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from vestige.attacks.relearn_records import RelearnSettings, RelearnText
from vestige.attacks.relearning import halves, refuse_shared
from vestige.behaviour.partition import ALL, MMLU, Subject, read_partition
from vestige.data.corpora import Corpus, Role, read_corpus
from vestige.data.language_rows import LanguageRow, language_rows
from vestige.data.question_settings import AskingSettings
from vestige.data.questions import Asked
from vestige.errors import InputError, did_you_mean
from vestige.seeds import digest

__all__ = ["ROLES", "Budget", "QuestionFile", "Scored", "Source", "budget_of", "question_files", "read_texts"]

ROLES: tuple[Role, ...] = get_args(Role)
Source = str | Path | Corpus


@dataclass(frozen=True, kw_only=True)
class QuestionFile:
    """The questions of one subject of a topic. name: the topic's, with the subject's where it has several."""

    name: str
    topic: str
    role: Role
    questions: tuple[Asked, ...]
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What a checkpoint is scored on: questions or sequences. topic: scores of one are averaged first."""

    name: str
    topic: str
    role: Role
    rows: tuple[LanguageRow, ...] = ()
    questions: tuple[Asked, ...] = ()


@dataclass(kw_only=True)
class Budget:
    """The same for every checkpoint: what is trained on, what is scored."""

    rows: list[LanguageRow] = field(default_factory=list)
    scored: list[Scored] = field(default_factory=list)
    texts: list[RelearnText] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)


def question_files(
    values: Mapping[str, str | Path], corpora: Mapping[str, Role], *, asking: AskingSettings | None = None
) -> list[QuestionFile]:
    """Multiple choice by subject. values: name of a corpus, `ROLE[:TOPIC[/SUBJECT]]` or `mmlu` -> file or
    folder. asking: as for `vestige behaviour`, so that both average and ask alike. Raises InputError."""
    keys = {}
    for key, path in values.items():
        if key not in corpora and key.partition(":")[0] not in (*ROLES, MMLU):
            known = [*corpora, *ROLES, MMLU]
            raise InputError(
                "--questions", f"the name '{key}'", "a corpus, ROLE:TOPIC or mmlu", did_you_mean(key, known)
            )
        keys[f"{corpora[key]}:{key}" if key in corpora else key] = path
    topics: dict[tuple[Role, str], list[Subject]] = {}
    for subject in read_partition(keys, asking=asking):
        topics.setdefault((subject.role, subject.topic), []).append(subject)
    return [
        QuestionFile(
            name=topic if len(own) == 1 else f"{topic}/{subject.name}",
            topic=topic,
            role=role,
            questions=subject.questions,
            sha256=subject.content,
        )
        for (role, topic), own in topics.items()
        for subject in own
    ]


def read_texts(sources: Mapping[Role, Mapping[str, Source]]) -> list[Corpus]:
    """The corpora of all roles. Raises InputError for a name given twice."""
    found: dict[str, Corpus] = {}
    for role, named in sources.items():
        for name, source in named.items():
            if name in found:
                raise InputError(
                    f"--{role}",
                    f"the name '{name}' twice",
                    "a name for each corpus",
                    "write another NAME=FILE",
                )
            found[name] = source if isinstance(source, Corpus) else read_corpus(source, name=name, role=role)
    return list(found.values())


def budget_of(
    texts: Sequence[Corpus], asked: Sequence[QuestionFile], tokenizer: Any, settings: RelearnSettings
) -> Budget:
    """What is trained on and scored; a topic that is scored by its text trains on one half and is scored on
    the other."""
    budget = Budget()
    by_questions = {item.role for item in asked}
    names = {item.topic for item in asked if item.role == "forget"}
    topics = [corpus.name for corpus in texts if corpus.role == "forget"]
    every = ALL in names or len(topics) == 1

    def rows_of(corpus: Corpus) -> tuple[LanguageRow, ...]:
        return language_rows(
            corpus,
            tokenizer,
            topic=corpus.name,
            max_length=settings.topic_lengths.get(corpus.name, settings.max_length),
            reading=settings,
        ).rows

    for corpus in texts:
        questioned = corpus.name in names or ("forget" in by_questions and every)
        trained: tuple[LanguageRow, ...] = ()
        scored: tuple[LanguageRow, ...] = ()
        held = 0
        if corpus.role == "forget":
            split = settings.hold_out == "always" or (settings.hold_out == "auto" and not questioned)
            if split:
                first, second = halves(corpus, settings.hold_out_seed)
                held = len(second.documents)
                trained, scored = rows_of(first)[: settings.sequences], rows_of(second)
                refuse_shared(trained, scored, corpus.path or f"corpus '{corpus.name}'")
            else:
                trained = rows_of(corpus)[: settings.sequences]
            if questioned:
                scored = ()
        elif corpus.role not in by_questions:
            scored = rows_of(corpus)
        scored = scored[: settings.score_rows]
        budget.rows += trained
        own = [item for item in asked if item.role == corpus.role and item.topic == corpus.name]
        budget.texts.append(
            RelearnText(
                name=corpus.name,
                role=corpus.role,
                path=corpus.path,
                sha256=corpus.sha256,
                documents=len(corpus.documents),
                held_out=held,
                trained=len(trained),
                scored=len(scored),
                questions=sum(len(item.questions) for item in own),
                questions_sha256=digest(*[item.sha256 for item in own]) if own else "",
                note=_note(corpus, trained, settings),
            )
        )
        if scored:
            budget.scored.append(Scored(name=corpus.name, topic=corpus.name, role=corpus.role, rows=scored))
    for item in budget.scored:
        refuse_shared(budget.rows, item.rows, f"corpus '{item.name}'")
    budget.scored += [
        Scored(name=item.name, topic=item.topic, role=item.role, questions=item.questions) for item in asked
    ]
    if not any(item.role == "forget" for item in budget.scored):
        raise InputError(
            "--hold-out",
            "never, without questions",
            "something of the forgotten to score",
            "give --questions",
        )
    if not any(item.role == "generic" for item in budget.scored):
        budget.caveats.append(
            "nothing generic was scored: a broken model that is repaired cannot be told from a return"
        )
    return budget


def _note(corpus: Corpus, trained: Sequence[LanguageRow], settings: RelearnSettings) -> str:
    if corpus.role == "forget" and len(trained) < settings.sequences:
        return f"{len(trained)} sequences instead of {settings.sequences}"
    return ""
