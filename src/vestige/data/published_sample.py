"""The published way to sample a corpus: whole documents by a seed of its own, their first windows. No
torch."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

from vestige.data.corpora import (
    Corpus,
    Document,
    Sample,
    TextFormat,
    TokenSequence,
    encode,
    token_overlap,
    windowed,
)
from vestige.errors import InputError

__all__ = ["drawn_documents", "published_documents", "published_sample"]


def drawn_documents(documents: Sequence[Document], count: int, seed: int) -> list[Document]:
    """`count` of the documents, or all where there are fewer, by Python's seeded sample, in their order."""
    chosen = random.Random(seed).sample(range(len(documents)), min(count, len(documents)))
    return [documents[i] for i in sorted(chosen)]


def published_documents(corpus: Corpus, count: int, name: str, subset: int = 0) -> list[Document]:
    """The documents of one subset of the published sample. name: the published name of the corpus."""
    return drawn_documents(corpus.documents, count, _seed(f"{name}|sub{subset}"))


def published_sample(
    corpus: Corpus,
    tokenizer: Any,
    *,
    units: int = 200,
    subsets: int = 3,
    max_length: int = 1024,
    short_length: int = 512,
    short_documents: int | None = None,
    name: str = "",
    text_format: TextFormat = "plain",
) -> Sample:
    """Subsets as the published code draws them; they may overlap, and coincide where there are few documents.

    Subset k holds `units` documents of a seeded sample, whose seed is of the text `NAME|subK`; all its
    documents in consecutive windows of `max_length` tokens, of which the first `units` are measured. `short`
    holds windows of `short_length` of the same documents, or of `short_documents` others, drawn by
    `NAME|subK|chess`. name: the published name of the corpus where it is not its own. Documents of fewer than
    two tokens are skipped and counted. Raises InputError when nothing is left.
    """
    subject = corpus.path or f"corpus '{corpus.name}'"
    label = name or corpus.name
    long: list[tuple[TokenSequence, ...]] = []
    short: list[tuple[TokenSequence, ...]] = []
    texts: list[tuple[str, ...]] = []
    notes: set[str] = set()
    long_documents: set[str] = set()
    read: list[int] = []
    for k in range(subsets):
        own = published_documents(corpus, units, label, k)
        other = own
        if short_documents is not None:
            other = drawn_documents(corpus.documents, short_documents, _seed(f"{label}|sub{k}|chess"))
        measured, longer, said = _windows(own, tokenizer, max_length, units, text_format, subject)
        long.append(measured)
        short.append(_windows(other, tokenizer, short_length, units, text_format, subject)[0])
        texts.append(tuple(document.text for document in own))
        long_documents |= longer
        notes |= said
        read.append(len({unit.document_id for unit in measured}))
    if min(read) < min(units, len(corpus.documents)):
        notes.add(
            f"published sample: the first {units} windows of each subset's "
            f"{min(units, len(corpus.documents))} documents reach {min(read)} to {max(read)} of them"
        )
    return Sample(
        subsets=tuple(long),
        documents=len(corpus.documents),
        one_token=0,
        windowed=len(long_documents),
        overlap=token_overlap(long),
        notes=tuple(sorted(notes)),
        short=tuple(short),
        texts=tuple(texts),
    )


def _seed(text: str) -> int:
    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:8], 16)


def _windows(
    documents: Sequence[Document],
    tokenizer: Any,
    length: int,
    units: int,
    text_format: TextFormat,
    subject: str,
) -> tuple[tuple[TokenSequence, ...], set[str], set[str]]:
    """The first `units` windows of two tokens or more, which documents were too long, and notes."""
    found: list[TokenSequence] = []
    longer: set[str] = set()
    notes: set[str] = set()
    for document in documents:
        if len(found) >= units:
            break
        encoded = encode(tokenizer, document, text_format=text_format, subject=subject)
        notes |= set(encoded.notes)
        head = () if encoded.bos is None else (encoded.bos,)
        body = encoded.ids[len(head) :]
        if len(body) > length:
            longer.add(document.id)
        for k, ids in enumerate(windowed(body, head, length, whole=False)):
            if len(ids) >= 2:
                found.append(TokenSequence(ids, document.id, k * length, ""))
    if not found:
        raise InputError(
            subject,
            f"{len(documents)} documents, none of two tokens",
            "text whose next token can be predicted",
            "check the file",
        )
    return tuple(found[:units]), longer, notes
