"""Text corpora from JSONL, text, CSV and Parquet files, and the units sampled from them. No torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vestige.data.chat import chat_text
from vestige.data.files import file_sha256
from vestige.data.questions import OPTION_COLUMNS, answers_are_places
from vestige.errors import InputError, first_five, shown
from vestige.files import reading
from vestige.readers import TABLE_SUFFIXES, Cell, Table, decoded, file_bytes, read_table
from vestige.seeds import generator

__all__ = [
    "Corpus",
    "Document",
    "Role",
    "Sample",
    "TextFormat",
    "TokenSequence",
    "draw_sample",
    "length_matched",
    "read_corpus",
    "shared_documents",
    "token_overlap",
    "truncated",
    "windowed",
]

Role = Literal["forget", "adjacent", "generic"]
TextFormat = Literal["plain", "chat"]
"""How a document becomes text: as it is, or through the tokenizer's chat template."""

TEXT_SUFFIXES = (".txt", ".md")
_TEXT_COLUMNS = ("text", "content", "document", "passage", "sentence")
_PAIR = ("question", "answer")
_UNIT = "unit"


@dataclass(frozen=True)
class Document:
    """One text. id: unique in its corpus. question, answer: where the text was made of the two. messages:
    (role, content) of each turn, where it was made of those. unit: the entity or topic that it belongs to, ""
    where the file names none."""

    id: str
    text: str
    question: str | None = None
    answer: str | None = None
    messages: tuple[tuple[str, str], ...] = ()
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Documents of one role. empty: documents without a visible character, which were left out."""

    name: str
    role: Role
    documents: tuple[Document, ...]
    path: str = ""
    sha256: str = ""
    empty: int = 0


@dataclass(frozen=True)
class TokenSequence:
    """A unit: a document, or a window of one.

    ids: at least two, the tokenizer's beginning token first where it adds one. The first id is never a
    target, every other is. start: the window's first token in its document. own: what the unit is made of: a
    document's text, or a window's tokens without the beginning token. A window has no text: its ends may lie
    inside a character.
    """

    ids: tuple[int, ...]
    document_id: str
    start: int
    own: str | tuple[int, ...] = field(repr=False)


@dataclass(frozen=True)
class Sample:
    """Seeded subsets of one corpus. Fields as `vestige.footprint.records.CorpusRecord` explains them.

    short: each subset's units for what is measured on shorter text; none: `subsets` cut on the right. texts:
    what each subset is made of, for perplexity; none: what its units are made of.
    """

    subsets: tuple[tuple[TokenSequence, ...], ...]
    documents: int
    one_token: int
    windowed: int
    overlap: float
    notes: tuple[str, ...] = ()
    short: tuple[tuple[TokenSequence, ...], ...] = ()
    texts: tuple[tuple[str, ...], ...] = ()

    @property
    def coincide(self) -> bool:
        """Whether all subsets hold the same tokens, so that nothing can be said about sampling."""
        return len(self.subsets) == 1 or self.overlap == 1.0

    @property
    def lengths(self) -> tuple[int, ...]:
        """Minimum, quartiles and maximum of the units' tokens."""
        sizes = [len(unit.ids) for subset in self.subsets for unit in subset]
        return tuple(int(value) for value in np.percentile(sizes, [0, 25, 50, 75, 100], method="nearest"))


def read_corpus(
    path: str | Path, *, name: str, role: Role, column: str | None = None, encoding: str = "utf-8"
) -> Corpus:
    """The documents of a file. JSONL, CSV, TSV, Parquet: a text column, question and answer, or messages;
    .txt, .md: one document a line.

    A column `unit` names the entity or topic that a document belongs to.

    column: the text column's name (default: text, content, document, passage or sentence; then question and
    answer, which become "Question: q\\nAnswer: a"). Documents without a visible character are counted and
    left out. Raises InputError: no such file, another format, not UTF-8, no text column, only empty text,
    multiple-choice questions whose answers are letters or positions.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in TEXT_SUFFIXES:
        documents = _lines(path, encoding)
    elif suffix in TABLE_SUFFIXES:
        _refuse_empty(path)
        table = read_table(path, encoding=encoding)
        documents = _rows(table, column)
        if _UNIT in table:
            units = table.texts(_UNIT)
            documents = [replace(item, unit=unit) for item, unit in zip(documents, units, strict=True)]
    else:
        raise InputError(
            str(path),
            f"suffix '{suffix}'",
            ", ".join((*TABLE_SUFFIXES, *TEXT_SUFFIXES)),
            "convert the file or correct its suffix",
        )
    full = tuple(document for document in documents if document.text.strip())
    if not full:
        raise InputError(
            str(path), f"{len(documents)} documents, all empty", "at least one with text", "check the file"
        )
    return Corpus(
        name=name,
        role=role,
        documents=full,
        path=str(path),
        sha256=file_sha256(path),
        empty=len(documents) - len(full),
    )


def _refuse_empty(path: Path) -> None:
    with reading(path, "a file of documents"):
        if path.stat().st_size == 0:
            raise InputError(str(path), "an empty file", "at least one document", "check the file")


def _lines(path: Path, encoding: str) -> list[Document]:
    _refuse_empty(path)
    text = decoded(str(path), file_bytes(path, "a file of documents, one a line"), encoding)
    lines = text.split("\n")
    lines = lines[:-1] if lines[-1] == "" else lines
    return [Document(id=f"{number}", text=line.rstrip("\r")) for number, line in enumerate(lines, start=1)]


def _rows(table: Table, column: str | None) -> list[Document]:
    names = table.names
    ids = _ids(table)
    if column is None:
        column = next((name for name in _TEXT_COLUMNS if name in names), None)
    else:
        table.need(column)
    if column is not None:
        return [Document(id=i, text=text) for i, text in zip(ids, table.texts(column), strict=True)]
    if all(name in names for name in _PAIR):
        listed = next((name for name in OPTION_COLUMNS if name in names), None)
        questions, answers = table.texts("question"), table.texts("answer")
        if listed is not None and answers_are_places(table.cells(listed), answers):
            raise InputError(
                table.subject,
                f"multiple-choice questions: each answer is a place among the {listed}",
                "answers as texts",
                "write a file of question and answer, the right option's text as the answer",
            )
        pairs = zip(ids, questions, answers, strict=True)
        return [
            Document(id=i, text=f"Question: {q}\nAnswer: {a}" if q or a else "", question=q, answer=a)
            for i, q, a in pairs
        ]
    if "messages" in names:
        return [
            _conversation(table.where(row, "messages"), ids[row], turns, cell)
            for row, (turns, cell) in enumerate(
                zip(table.lists("messages"), table.cells("messages"), strict=True)
            )
        ]
    raise InputError(
        table.subject,
        f"columns {first_five(names)}",
        f"one of {', '.join(_TEXT_COLUMNS)}, or question and answer, or messages",
        "name the text column 'text'",
    )


def _conversation(subject: str, document_id: str, turns: list[Any] | None, cell: Cell) -> Document:
    """A document of `[{"role": ..., "content": ...}, ...]`; its text is the contents, a line each."""
    messages: list[tuple[str, str]] = []
    for turn in turns or ():
        role, content = (turn.get("role"), turn.get("content")) if isinstance(turn, dict) else (None, None)
        if not isinstance(role, str) or not isinstance(content, str):
            raise InputError(
                subject,
                f"messages {shown(str(cell))}",
                "a list of objects with role and content, both texts",
                "repair the row",
            )
        messages.append((role, content))
    text = "\n".join(content for _, content in messages)
    return Document(id=document_id, text=text, messages=tuple(messages))


def _ids(table: Table) -> list[str]:
    """A column `id` where its values are unique, else numbers of rows from 1."""
    if "id" in table and all(isinstance(cell, (str, int)) and cell != "" for cell in table.cells("id")):
        found = table.texts("id")
        if len(set(found)) == len(found):
            return found
    return [str(number) for number in range(1, table.rows + 1)]


def shared_documents(first: Corpus, second: Corpus) -> int:
    """How many documents of `first` have the same text (outer white space aside) as one of `second`."""
    known = {_text_key(document.text) for document in second.documents}
    return sum(_text_key(document.text) in known for document in first.documents)


def _text_key(text: str) -> bytes:
    return hashlib.sha256(" ".join(text.split()).encode()).digest()


def draw_sample(
    corpus: Corpus,
    tokenizer: Any,
    *,
    units: int = 200,
    subsets: int = 3,
    max_length: int = 1024,
    seed: int = 17,
    text_format: TextFormat = "plain",
) -> Sample:
    """Seeded subsets of `units` units each, the same for every model with this tokenizer.

    A document of at most `max_length` tokens is one unit; of a longer one a unit is a window of `max_length`
    tokens at a random place. A window begins with the tokenizer's beginning token where it adds one, inside
    `max_length`. With at least `subsets * units` documents the subsets are disjoint; with at least `units`,
    each is drawn from all without replacement; with fewer, each holds every document once, and new windows of
    the long documents until `units` are reached or there are no long documents. Documents of fewer than two
    tokens are skipped and counted. Raises InputError when nothing is left.
    """
    encoded = [
        encode(tokenizer, document, text_format=text_format, subject=corpus.path or f"corpus '{corpus.name}'")
        for document in corpus.documents
    ]
    long_enough = [i for i, document in enumerate(encoded) if len(document.ids) >= 2]
    if not long_enough:
        raise InputError(
            corpus.path or f"corpus '{corpus.name}'",
            f"{len(encoded)} documents, none of two tokens",
            "text whose next token can be predicted",
            "check the file",
        )
    drawn = []
    for number, chosen in enumerate(
        _choices(corpus.name, encoded, long_enough, units, subsets, max_length, seed)
    ):
        rng = generator(seed, "windows", corpus.name, number)
        drawn.append(
            tuple(
                _unit(tokenizer, encoded[i], corpus.documents[i], max_length=max_length, rng=rng)
                for i in chosen
            )
        )
    if any(
        sum(len(unit.ids) - (unit.ids[0] == tokenizer.bos_token_id) for unit in part) < 2 for part in drawn
    ):
        raise InputError(
            corpus.path or f"corpus '{corpus.name}'",
            "a subset of one token",
            "two tokens of text in every subset",
            "give longer documents, or more of them",
        )
    notes = tuple(sorted({note for document in encoded for note in document.notes}))
    return Sample(
        subsets=tuple(drawn),
        documents=len(long_enough),
        one_token=len(encoded) - len(long_enough),
        windowed=sum(len(encoded[i].ids) > max_length for i in long_enough),
        overlap=token_overlap(drawn),
        notes=notes,
    )


@dataclass(frozen=True)
class Encoded:
    """A document's token ids, the beginning token first where there is one. bos: that token, else None."""

    ids: tuple[int, ...]
    bos: int | None
    notes: tuple[str, ...] = ()


def adds_bos(tokenizer: Any) -> bool:
    """Whether the tokenizer puts its beginning token before a text."""
    bos = tokenizer.bos_token_id
    ids = tokenizer("a")["input_ids"]
    return bos is not None and len(ids) > 0 and ids[0] == bos


def encode(tokenizer: Any, document: Document, *, text_format: TextFormat, subject: str) -> Encoded:
    """Token ids with exactly one beginning token where the tokenizer or its template adds any.

    An end token that the tokenizer appends to every text is left out; end tokens in the text stay. A template
    that writes the beginning token beside the one that the tokenizer adds gives two: one is taken away and a
    note says so. Raises InputError for chat text without a template.
    """
    plain = text_format == "plain"
    text = document.text if plain else chat_text(tokenizer, document, subject=subject)
    ids = list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    bos, cut, notes = one_bos(tokenizer, text, ids, text_format=text_format)
    return Encoded(tuple(ids[cut:]) if bos is None else (bos, *ids[cut:]), bos, notes)


def one_bos(
    tokenizer: Any, text: str, ids: Sequence[int], *, text_format: TextFormat
) -> tuple[int | None, int, tuple[str, ...]]:
    """What to put before `ids`, the tokens of `text` without special ones, so that it begins with exactly one
    beginning token where the tokenizer or its template adds any: (that token or None, how many leading ids it
    takes the place of, notes)."""
    bos = tokenizer.bos_token_id
    adds = adds_bos(tokenizer)
    if not (adds or (text_format == "chat" and bos is not None and text.startswith(tokenizer.bos_token))):
        return None, 0, ()
    leading = 0
    while leading < len(ids) and ids[leading] == bos:
        leading += 1
    if bos == tokenizer.eos_token_id and text_format == "plain":
        return bos, 0, ()  # what the text begins with may be an end token of its own
    written = leading + (text_format == "chat" and adds)
    notes: tuple[str, ...] = ()
    if written > 1:
        notes = (f"{written} beginning tokens at the start of a text were made one",)
    elif leading and text_format == "plain":
        notes = ("a beginning token written in the text was taken for the one the tokenizer adds",)
    return bos, leading, notes


def _choices(
    name: str,
    encoded: Sequence[Encoded],
    usable: Sequence[int],
    units: int,
    subsets: int,
    max_length: int,
    seed: int,
) -> list[list[int]]:
    """Which documents each subset's units come from."""
    if len(usable) >= units * subsets:
        shuffled = [int(i) for i in generator(seed, "units", name).permutation(usable)]
        return [shuffled[k * units : (k + 1) * units] for k in range(subsets)]
    found: list[list[int]] = []
    for k in range(subsets):
        order = [int(i) for i in generator(seed, "units", name, k).permutation(usable)]
        chosen = order[:units]
        cycled = [i for i in order if len(encoded[i].ids) > max_length]
        while cycled and len(chosen) < units:
            chosen += cycled[: units - len(chosen)]
        found.append(chosen)
    return found


def _unit(
    tokenizer: Any, encoded: Encoded, document: Document, *, max_length: int, rng: np.random.Generator
) -> TokenSequence:
    if len(encoded.ids) <= max_length:
        return TokenSequence(encoded.ids, document.id, 0, document.text)
    body = encoded.ids if encoded.bos is None else encoded.ids[1:]
    room = max_length - (encoded.bos is not None)
    start = int(rng.integers(0, len(body) - room + 1))
    window = body[start : start + room]
    ids = window if encoded.bos is None else (encoded.bos, *window)
    return TokenSequence(ids, document.id, start, window)


def token_overlap(subsets: Sequence[Sequence[TokenSequence]]) -> float:
    """Mean over pairs of subsets of the tokens both read, over those of the smaller one, in [0, 1]."""
    shares = []
    for k, first in enumerate(subsets):
        for second in subsets[k + 1 :]:
            one, two = _read_tokens(first), _read_tokens(second)
            smaller = min(sum(map(len, one.values())), sum(map(len, two.values())))
            common = sum(len(tokens & two.get(name, set())) for name, tokens in one.items())
            shares.append(common / smaller)
    return float(np.mean(shares)) if shares else 0.0


def _read_tokens(subset: Iterable[TokenSequence]) -> Mapping[str, set[int]]:
    found: dict[str, set[int]] = {}
    for unit in subset:
        found.setdefault(unit.document_id, set()).update(range(unit.start, unit.start + len(unit.ids)))
    return found


def windowed(
    body: Sequence[int], head: tuple[int, ...], max_length: int, *, whole: bool
) -> list[tuple[int, ...]]:
    """Consecutive windows of a document of at most `max_length` ids, each with `head` before it.

    whole: every id of `body` lies in one window. Else slices of `max_length` ids, of which the head takes the
    place of as many at the end, as the published code has it.
    """
    room = max_length - len(head)
    step = room if whole else max_length
    return [(*head, *body[start : start + room]) for start in range(0, len(body), step)]


def truncated(sequences: Sequence[TokenSequence], max_length: int) -> tuple[TokenSequence, ...]:
    """The same units cut on the right to `max_length` tokens; `own` stays the whole unit's."""
    return tuple(
        unit if len(unit.ids) <= max_length else replace(unit, ids=unit.ids[:max_length])
        for unit in sequences
    )


def _at_rank(sorted_sizes: Any, ranks: Any) -> Any:
    """The sizes at relative ranks in (0, 1)."""
    return sorted_sizes[np.minimum((ranks * len(sorted_sizes)).astype(int), len(sorted_sizes) - 1)]


def length_matched(samples: Mapping[str, Sample]) -> dict[str, Sample]:
    """The samples cut so that, in every subset, the k-th quantile of length is the same for all corpora.

    Units are put in order of length; the unit at relative rank r of each corpus is cut on the right to the
    shortest length that any corpus has there, so that nothing is thrown away but ends of texts.
    """
    matched: dict[str, list[tuple[TokenSequence, ...]]] = {name: [] for name in samples}
    for k in range(min(len(sample.subsets) for sample in samples.values())):
        ordered = {
            name: sorted(sample.subsets[k], key=lambda unit: len(unit.ids))
            for name, sample in samples.items()
        }
        ranks = {name: (np.arange(len(units)) + 0.5) / len(units) for name, units in ordered.items()}
        sizes = {name: np.array([len(unit.ids) for unit in units]) for name, units in ordered.items()}
        for name, units in ordered.items():
            limits = np.min(
                [
                    sizes[o][np.minimum((ranks[name] * len(sizes[o])).astype(int), len(sizes[o]) - 1)]
                    for o in ordered
                ],
                axis=0,
            )
            matched[name].append(
                tuple(truncated([unit], int(limit))[0] for unit, limit in zip(units, limits, strict=True))
            )
    return {
        name: replace(sample, subsets=tuple(matched[name]), overlap=token_overlap(matched[name]))
        for name, sample in samples.items()
    }
