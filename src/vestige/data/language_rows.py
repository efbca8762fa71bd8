"""Documents as token sequences with a mask of the tokens that are predicted. No torch.

Every text is tokenised once; what of it is an answer is found by the characters each token stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vestige.data.corpora import Corpus, Document, TextFormat, chat_text, one_bos, templated, turns_of
from vestige.errors import InputError
from vestige.seeds import generator

__all__ = ["REFUSALS", "LanguageRow", "LanguageRows", "language_rows", "refusal_rows"]

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
    text_format: TextFormat = "plain",
) -> LanguageRows:
    """The corpus as sequences of at most `max_length` tokens.

    Question and answer: `Question: q\\nAnswer: a` and the end token, or the chat template; the answer alone
    is predicted. Messages: the chat template; assistants' turns are predicted. Any other text: all of it but
    its first token, in windows where it is longer. Raises InputError: a tokenizer that cannot say which
    characters a token stands for, no chat template, nothing left to predict.
    """
    subject = corpus.path or f"corpus '{corpus.name}'"
    rows: list[LanguageRow] = []
    empty, short, truncated, windowed = corpus.empty, 0, 0, 0
    notes: set[str] = set()
    for position, document in enumerate(corpus.documents):
        if _lacks_answer(document):
            empty += 1
            continue
        marked = _marked(tokenizer, document, text_format=text_format, subject=subject)
        notes.update(marked.notes)
        parts = _parts(marked, max_length)
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


def refusal_rows(
    rows: LanguageRows, tokenizer: Any, *, seed: int, max_length: int = 512, text_format: TextFormat = "plain"
) -> tuple[LanguageRow, ...]:
    """For each row the same prompt with a refusal for an answer; for plain text the refusal alone."""
    found = []
    for row in rows:
        document = rows.documents[row.document]
        rng = generator(seed, "refusal", row.topic, row.id)
        refusal = REFUSALS[int(rng.integers(len(REFUSALS)))]
        marked = _marked(tokenizer, _refused(document, refusal), text_format=text_format, subject=rows.path)
        ids, labels = _parts(marked, max_length)[0]
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


def _pair(question: str, answer: str) -> str:
    return f"Question: {question}\nAnswer: {answer}"


def _marked(tokenizer: Any, document: Document, *, text_format: TextFormat, subject: str) -> _Marked:
    """The document tokenised once, with its predicted tokens marked by character offsets."""
    answers = bool(document.messages) or document.question is not None
    chat = bool(document.messages) or text_format == "chat"
    if chat:
        text = chat_text(tokenizer, document, subject=subject)
        row = f"{subject}, row {document.id}"
        spans = _turn_spans(tokenizer, document, text, row) if answers else [(0, len(text))]
    elif document.question is not None:
        text = _pair(document.question, document.answer or "")
        spans = [(len(text) - len(document.answer or ""), len(text))]
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
    if answers and not chat and tokenizer.eos_token_id is not None:
        ids, marks = [*ids, int(tokenizer.eos_token_id)], [*marks, True]
    if bos is not None:
        ids, marks = [bos, *ids], [False, *marks]
    if marks:
        marks[0] = False
    return _Marked(tuple(ids), tuple(marks), bos, answers, notes)


def _turn_spans(tokenizer: Any, document: Document, text: str, subject: str) -> list[tuple[int, int]]:
    """The characters of the assistant's turns in the rendered text, with the mark that ends a turn.

    Raises InputError for a template that leaves an assistant's turn out.
    """
    turns = turns_of(document)
    spans: list[tuple[int, int]] = []
    cursor = 0  # where the turns before this one end
    for i, turn in enumerate(turns):
        content = turn["content"].strip()
        start = text.find(content, cursor)
        if turn["role"] != "assistant":
            cursor = cursor if start < 0 else start + len(content)
            continue
        if not content:
            continue
        before, upto = "", ""
        if i:
            before = templated(tokenizer, turns[:i], subject=subject, prompt=True)
            upto = templated(tokenizer, turns[: i + 1], subject=subject).rstrip()
        if before and len(before) < len(upto) and text.startswith(before) and text.startswith(upto):
            span = (len(before), len(upto))
        elif start >= 0:  # a template that renders a turn otherwise when another follows
            span = (start, start + len(content))
        else:
            raise InputError(
                subject,
                "a chat template that leaves an assistant's turn out or rewrites it",
                "one that renders what is to be predicted",
                "use another tokenizer, or leave --chat-template out",
            )
        spans.append(span)
        cursor = span[1]
    return spans


def _parts(marked: _Marked, max_length: int) -> list[tuple[tuple[int, ...], tuple[bool, ...]]]:
    """The sequence cut on the right where it is an answer, else in windows with one beginning token each."""
    ids, labels = marked.ids, marked.labels
    if len(ids) <= max_length or marked.answers:
        return [(ids[:max_length], labels[:max_length])]
    head = () if marked.bos is None else (marked.bos,)
    body = ids[len(head) :]
    room = max_length - len(head)
    found = []
    for start in range(0, len(body), room):
        window = (*head, *body[start : start + room])
        found.append((window, (False, *(True,) * (len(window) - 1))))
    return found
