"""The rows that a verdict on language models is about: documents, or windows of long ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vestige.contracts import View
from vestige.data.corpora import Corpus, TextFormat, encode, shared_documents, windowed
from vestige.errors import InputError
from vestige.footprint.outputs import Row
from vestige.footprint.verdict_records import TextRole, VerdictSettings
from vestige.seeds import generator

__all__ = ["VIEWS", "judged_rows", "refuse_seen"]

VIEWS: Mapping[TextRole, View] = {"forget": "F", "unseen": "G", "adjacent": "R", "generic": "R"}


def judged_rows(
    corpus: Corpus,
    tokenizer: Any,
    settings: VerdictSettings,
    *,
    max_length: int,
    text_format: TextFormat,
    seed: int,
    topic: str,
) -> tuple[list[Row], int]:
    """The corpus's rows and how many of its documents could be one.

    A document of at most `max_length` tokens is a row; a longer one is cut into windows without overlap. With
    more documents than `settings.documents` so many are drawn, of a long one a window at random; with fewer,
    further windows are drawn until there are so many or none is left. A row's unit is what its document says,
    else the topic, else, where a document gives several rows, the document. Raises InputError without a row.
    """
    subject = corpus.path or f"corpus '{corpus.name}'"
    rng = generator(seed, "judged rows", corpus.name)
    cut: list[tuple[str, str, list[tuple[int, ...]]]] = []
    for document in corpus.documents:
        encoded = encode(tokenizer, document, text_format=text_format, subject=subject)
        head = () if encoded.bos is None else (encoded.bos,)
        body = encoded.ids[len(head) :]
        parts = [ids for ids in windowed(body, head, max_length, whole=True) if len(ids) >= 2]
        if parts:
            order = rng.permutation(len(parts)).tolist()
            cut.append((document.id, document.unit, [parts[i] for i in order]))
    if not cut:
        raise InputError(subject, "no document of two tokens", "text to judge", "check the file")
    chosen = sorted(rng.permutation(len(cut))[: settings.documents].tolist())
    taken = [(place, 0) for place in chosen]
    further = [(place, number) for place in chosen for number in range(1, len(cut[place][2]))]
    room = settings.documents - len(taken)
    taken += [further[i] for i in sorted(rng.permutation(len(further))[:room].tolist())]
    several = len(taken) > len(chosen)
    rows = []
    for place, number in sorted(taken):
        name, unit, parts = cut[place]
        ids = parts[number]
        positions = rng.permutation(len(ids) - 1)[: settings.positions] + 1
        rows.append(
            Row(
                ids=ids,
                document=name,
                unit=unit or topic or (name if several else ""),
                positions=tuple(sorted(positions.tolist())),
            )
        )
    return rows, len(cut)


def refuse_seen(forget: Sequence[Corpus], unseen: Sequence[Corpus]) -> None:
    """Raise InputError where unseen text is text to be forgotten: a model was trained on it."""
    for other in unseen:
        for corpus in forget:
            shared = shared_documents(other, corpus)
            if shared:
                raise InputError(
                    f"--unseen {other.name}",
                    f"{shared} of {len(other.documents)} documents that are also in {corpus.name}",
                    "text that no model was trained on",
                    "give paraphrases or held-out text, or leave --unseen out",
                )
