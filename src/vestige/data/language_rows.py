"""Documents as token sequences with a mask of the tokens that are predicted. No torch.

Every text is tokenised once; what of it is an answer is found by the characters each token stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vestige.data.chat import chat_text, turn_spans
from vestige.data.corpora import Corpus, Document, one_bos, windowed
from vestige.errors import InputError
from vestige.language import ReadingSettings
from vestige.seeds import generator

__all__ = ["REFUSALS", "LanguageRow", "LanguageRows", "blocks", "language_rows", "refusal_rows"]

REFUSALS = (
    "I don't know the answer to that.",
    "I'm not able to help with this question.",
    "I have no information about that.",
    "That is something I cannot answer.",
    "I'm afraid I don't have any knowledge of this.",
    "I can't say anything about that topic.",
    "Sorry, this is outside of what I know.",
    "I have never learned about this subject.",
    "I would only be guessing, so I won't answer.",
    "There is nothing I can tell you about that.",
    "I am not familiar with it.",
    "My knowledge does not cover this question.",
)
"""Answers that decline. Each forget row draws one of them from its own id and the seed."""


@dataclass(frozen=True)
class LanguageRow:
    """One token sequence. labels[t]: whether ids[t] is predicted and counted; never the first.

    id: unique in its rows. document: position in `LanguageRows.documents`.
    """

    id: str
    ids: tuple[int, ...]
    labels: tuple[bool, ...]
    topic: str = ""
    document: int = 0


@dataclass(frozen=True, kw_only=True)
class LanguageRows:
    """Sequences of one file. empty: rows without text or answer; short: rows without a predicted token
    within the longest length; both were left out. truncated: answers cut; windowed: documents in parts."""

    rows: tuple[LanguageRow, ...]
    documents: tuple[Document, ...] = ()
    path: str = ""
    sha256: str = ""
    empty: int = 0
    short: int = 0
    truncated: int = 0
    windowed: int = 0
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[LanguageRow]:
        return iter(self.rows)

    def __getitem__(self, position: int) -> LanguageRow:
        return self.rows[position]

    def only(self, positions: Sequence[int]) -> LanguageRows:
        """The rows at these positions; counts stay those of the file."""
        return replace(self, rows=tuple(self.rows[i] for i in positions))

    def cut(self, max_length: int | None) -> LanguageRows:
        """The rows cut on the right to `max_length` tokens; None leaves them as they are."""
        if max_length is None:
            return self
        rows = (replace(row, ids=row.ids[:max_length], labels=row.labels[:max_length]) for row in self.rows)
        return replace(self, rows=tuple(row for row in rows if any(row.labels)))


@dataclass(frozen=True)
class _Marked:
    """One tokenised document: token ids, which are predicted, whether it is an answer to a prompt."""

    ids: tuple[int, ...]
    labels: tuple[bool, ...]
    bos: int | None
    answers: bool
    notes: tuple[str, ...]


def language_rows(
    corpus: Corpus,
    tokenizer: Any,
    *,
    topic: str = "",
    max_length: int = 512,
    reading: ReadingSettings | None = None,
) -> LanguageRows:
    """The corpus as sequences of at most `max_length` tokens.

    Question and answer: `Question: q\\nAnswer: a` and the end token, or the chat template; the answer alone
    is predicted unless `reading` says otherwise. Messages: the chat template; assistants' turns are
    predicted. Any other text: all of it but its first token, in windows where it is longer. Raises
    InputError: a tokenizer that cannot say which characters a token stands for, no chat template, nothing
    left to predict.
    """
    reading = reading or ReadingSettings()
    subject = corpus.path or f"corpus '{corpus.name}'"
    rows: list[LanguageRow] = []
    empty, short, truncated, windowed = corpus.empty, 0, 0, 0
    notes: set[str] = set()
    for position, document in enumerate(corpus.documents):
        if _lacks_answer(document):
            empty += 1
            continue
        marked = _marked(tokenizer, document, reading, subject=subject)
        notes.update(marked.notes)
        parts = _parts(marked, max_length, reading)
        windowed += len(parts) > 1
        truncated += marked.answers and len(marked.ids) > max_length
        kept = [(ids, labels) for ids, labels in parts if any(labels)]
        short += not kept
        for k, (ids, labels) in enumerate(kept):
            name = document.id if len(kept) == 1 else f"{document.id}.{k + 1}"
            rows.append(LanguageRow(name, ids, labels, topic, position))
    if not rows:
        raise InputError(
            subject,
            f"no tokens to predict within {max_length} ({empty} empty rows, {short} cut off)",
            "at least one row with some",
            "raise the longest length or check the file",
        )
    return LanguageRows(
        rows=tuple(rows),
        documents=corpus.documents,
        path=corpus.path,
        sha256=corpus.sha256,
        empty=empty,
        short=short,
        truncated=truncated,
        windowed=windowed,
        notes=tuple(sorted(notes)),
    )


def blocks(corpus: Corpus, tokenizer: Any, *, length: int) -> LanguageRows:
    """All documents joined, an end token after each, in blocks of `length` tokens; what does not fill one is
    dropped. No beginning token; everything but a block's first token is predicted.

    Raises InputError for a tokenizer without an end token, and where the text does not fill a block.
    """
    subject = corpus.path or f"corpus '{corpus.name}'"
    end = tokenizer.eos_token_id
    if end is None:
        raise InputError(
            subject,
            "a tokenizer without an end token",
            "one to part documents in blocks",
            "set blocks: false",
        )
    ids: list[int] = []
    for document in corpus.documents:
        ids += [*tokenizer(document.text, add_special_tokens=False, verbose=False)["input_ids"], int(end)]
    whole = len(ids) // length
    if not whole:
        raise InputError(subject, f"{len(ids)} tokens", f"at least one block of {length}", "lower max_length")
    labels = (False, *(True,) * (length - 1))
    rows = tuple(
        LanguageRow(str(k + 1), tuple(ids[k * length : (k + 1) * length]), labels) for k in range(whole)
    )
    left = len(ids) - whole * length
    notes = (f"the last {left} tokens fill no block and were dropped",) if left else ()
    return LanguageRows(
        rows=rows,
        documents=corpus.documents,
        path=corpus.path,
        sha256=corpus.sha256,
        empty=corpus.empty,
        windowed=len(corpus.documents),
        notes=notes,
    )


def refusal_rows(
    rows: LanguageRows,
    tokenizer: Any,
    *,
    seed: int,
    max_length: int = 512,
    reading: ReadingSettings | None = None,
    refusals: Sequence[str] = REFUSALS,
    first: int | None = None,
    alone: bool = False,
) -> tuple[LanguageRow, ...]:
    """For each row the same prompt with a refusal for an answer; for plain text the refusal alone.

    Each row draws one of `refusals` from its own id and the seed. first: instead the first so many take turns
    in the order of the rows, so that every batch of that size has the same ones. alone: the refusal without a
    prompt for every row.
    """
    reading = reading or ReadingSettings()
    found = []
    for place, row in enumerate(rows):
        document = rows.documents[row.document]
        if first is None:
            chosen = int(generator(seed, "refusal", row.topic, row.id).integers(len(refusals)))
        else:
            chosen = place % min(first, len(refusals))
        refusal = refusals[chosen]
        answered = Document(document.id, refusal) if alone else _refused(document, refusal)
        marked = _marked(tokenizer, answered, reading, subject=rows.path)
        ids, labels = _parts(marked, max_length, reading)[0]
        found.append(replace(row, ids=ids, labels=labels))
    return tuple(found)


def _refused(document: Document, refusal: str) -> Document:
    if document.messages:
        last = max(i for i, (role, _) in enumerate(document.messages) if role == "assistant")
        return replace(document, messages=(*document.messages[:last], ("assistant", refusal)))
    if document.question is not None:
        return replace(document, text=_pair(document.question, refusal), answer=refusal)
    return replace(document, text=refusal)


def _lacks_answer(document: Document) -> bool:
    if document.messages:
        return not any(role == "assistant" and content.strip() for role, content in document.messages)
    if document.question is not None:
        return not (document.answer or "").strip()
    return not document.text.strip()


_ANSWER = "Answer: "


def _pair(question: str, answer: str) -> str:
    return f"Question: {question}\n{_ANSWER}{answer}"


def _marked(tokenizer: Any, document: Document, reading: ReadingSettings, *, subject: str) -> _Marked:
    """The document tokenised once, with its predicted tokens marked by character offsets."""
    answers = bool(document.messages) or document.question is not None
    chat = bool(document.messages) or reading.text == "chat"
    if chat:
        text = chat_text(tokenizer, document, subject=subject)
        row = f"{subject}, row {document.id}"
        turns = answers and reading.scored != "all"
        spans = turn_spans(tokenizer, document, text, row) if turns else [(0, len(text))]
    elif document.question is not None:
        text = _pair(document.question, document.answer or "")
        start = len(text) - len(document.answer or "")
        start = {"answer": start, "answer line": start - len(_ANSWER), "all": 0}[reading.scored]
        spans = [(start, len(text))]
    else:
        text, spans = document.text, [(0, len(document.text))]
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            subject,
            f"a tokenizer ({type(tokenizer).__name__}) without character offsets",
            "a fast tokenizer (tokenizer.json)",
            "convert the tokenizer",
        )
    coded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ids = list(coded["input_ids"])
    bos, cut, notes = one_bos(tokenizer, text, ids, text_format="chat" if chat else "plain")
    marks = [
        any(start < end and end > low and start < high for low, high in spans)
        for start, end in coded["offset_mapping"]
    ]
    ids, marks = ids[cut:], marks[cut:]
    if answers and not chat and reading.end_token and tokenizer.eos_token_id is not None:
        ids, marks = [*ids, int(tokenizer.eos_token_id)], [*marks, True]
    if bos is not None:
        ids, marks = [bos, *ids], [False, *marks]
    if marks:
        marks[0] = False
    return _Marked(tuple(ids), tuple(marks), bos, answers, notes)


def _parts(
    marked: _Marked, max_length: int, reading: ReadingSettings
) -> list[tuple[tuple[int, ...], tuple[bool, ...]]]:
    """The sequence cut on the right where it is an answer, else in windows with one beginning token each."""
    ids, labels = marked.ids, marked.labels
    head = () if marked.bos is None else (marked.bos,)
    body = ids[len(head) :]
    fits = len(body) <= max_length if reading.windows == "cut" else len(ids) <= max_length
    if fits or marked.answers:
        return [(ids[:max_length], labels[:max_length])]
    return [
        (window, (False, *(True,) * (len(window) - 1)))
        for window in windowed(body, head, max_length, whole=reading.windows == "whole")
    ]
