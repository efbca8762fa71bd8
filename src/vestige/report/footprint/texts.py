"""The beginnings of documents, read again from their files only when a reader asks to see text."""

from __future__ import annotations

from pathlib import Path

from vestige.data.corpora import read_corpus
from vestige.errors import InputError
from vestige.footprint.records import FootprintRecord
from vestige.report.words import cut

__all__ = ["document_texts"]

LONGEST = 240


def document_texts(record: FootprintRecord) -> dict[tuple[str, str], str]:
    """(corpus, document) -> the beginning of its text, for the documents that the record lists.

    A corpus whose file is gone or has changed gives the reason in place of each text.
    """
    found: dict[tuple[str, str], str] = {}
    for corpus in record.corpora:
        wanted = {
            document.document
            for checkpoint in record.checkpoints
            for part in checkpoint.corpora
            if part.corpus == corpus.name
            for document in part.documents
        }
        if not wanted:
            continue
        try:
            read = read_corpus(Path(corpus.path), name=corpus.name, role=corpus.role)
        except InputError:
            found |= {(corpus.name, name): f"not readable: {corpus.path}" for name in wanted}
            continue
        if read.sha256 != corpus.sha256:
            found |= {(corpus.name, name): f"the file has changed: {corpus.path}" for name in wanted}
            continue
        texts = {document.id: document.text for document in read.documents}
        found |= {(corpus.name, name): cut(texts.get(name, "not found"), LONGEST) for name in wanted}
    return found
