"""The corpora of one footprint: read, checked against each other, sampled, recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from vestige.data.corpora import (
    Corpus,
    Document,
    Role,
    Sample,
    TextFormat,
    TokenSequence,
    draw_sample,
    encode,
    length_matched,
    read_corpus,
    shared_documents,
)
from vestige.data.published_sample import drawn_documents, published_sample
from vestige.errors import InputError, did_you_mean
from vestige.files import is_path
from vestige.footprint.records import CorpusRecord, FootprintSettings

__all__ = [
    "corpora_of",
    "corpus_records",
    "cut_units",
    "document_units",
    "first_of_roles",
    "named_paths",
    "sampled_documents",
    "samples_of",
    "warnings_of",
]

Source = str | Path | Corpus


def named_paths(values: Sequence[str], role: Role | Literal["unseen"]) -> dict[str, str]:
    """`name=path` or a path alone, whose name is the role's, or the file's where there are several. Raises
    InputError for a name given twice or none."""
    found: dict[str, str] = {}
    for value in values:
        name, mark, path = value.partition("=")
        if not mark or is_path(value):
            name, path = (role if len(values) == 1 else Path(value).stem), value
        name = name.strip()
        if not name or not path:
            raise InputError(f"--{role}", f"'{value}'", "NAME=FILE or FILE", "for example bio=bio.jsonl")
        if name in found:
            raise InputError(
                f"--{role}", f"the name '{name}' twice", "a name for each corpus", "write NAME=FILE"
            )
        found[name] = path
    return found


def corpora_of(
    forget: Mapping[str, Source],
    adjacent: Mapping[str, Source],
    generic: Mapping[str, Source],
    *,
    needed: Sequence[Role] = ("forget", "generic"),
) -> dict[str, Corpus]:
    """Name -> corpus, forget first. Raises InputError: no corpus of a role that is needed, a name twice, a
    file that cannot be read."""
    roles: dict[Role, Mapping[str, Source]] = {"forget": forget, "adjacent": adjacent, "generic": generic}
    found: dict[str, Corpus] = {}
    for role, sources in roles.items():
        if not sources and role in needed:
            raise InputError(f"--{role}", "no corpus", "at least one", f"give --{role} NAME=FILE")
        for name, source in sources.items():
            if name in found:
                raise InputError(
                    f"--{role}",
                    f"the name '{name}', which a {found[name].role} corpus has",
                    "a name for each corpus",
                    f"write another NAME=FILE; {did_you_mean(name, [f'{role}-{name}'])}",
                )
            found[name] = (
                Corpus(
                    name=name,
                    role=role,
                    documents=source.documents,
                    path=source.path,
                    sha256=source.sha256,
                    empty=source.empty,
                )
                if isinstance(source, Corpus)
                else read_corpus(source, name=name, role=role)
            )
    return found


def warnings_of(corpora: Mapping[str, Corpus]) -> list[str]:
    """What is odd about the corpora together: documents that two roles share, no adjacent corpus."""
    lines = []
    listed = list(corpora.values())
    for i, first in enumerate(listed):
        for second in listed[i + 1 :]:
            shared = shared_documents(first, second) if first.role != second.role else 0
            if shared:
                lines.append(
                    f"{shared} of {len(first.documents)} documents of {first.name} ({first.role}) are also "
                    f"in {second.name} ({second.role}): their shifts cannot come apart on these"
                )
    if not any(corpus.role == "adjacent" for corpus in listed):
        lines.append("no adjacent corpus: the gap, globality and the classes that need them are undefined")
    return lines


def samples_of(
    corpora: Mapping[str, Corpus], tokenizer: Any, settings: FootprintSettings
) -> dict[str, Sample]:
    """The seeded subsets of each corpus by these settings."""
    if settings.sampling == "published":
        for name in settings.sample_names:
            if name not in corpora:
                raise InputError(
                    "sample_names", f"the corpus '{name}'", "a corpus", did_you_mean(name, corpora)
                )
        return {
            name: published_sample(
                corpus,
                tokenizer,
                units=settings.units,
                subsets=settings.subsets,
                max_length=settings.max_length,
                short_length=settings.hessian_length,
                short_documents=settings.hessian_documents,
                name=settings.sample_names.get(name, ""),
                text_format=settings.text,
            )
            for name, corpus in corpora.items()
        }
    drawn = {
        name: draw_sample(
            corpus,
            tokenizer,
            units=settings.units,
            subsets=settings.subsets,
            max_length=settings.max_length,
            seed=settings.seed,
            text_format=settings.text,
        )
        for name, corpus in corpora.items()
    }
    return length_matched(drawn) if settings.length_matched else drawn


def first_of_roles(corpora: Mapping[str, Corpus]) -> dict[str, Corpus]:
    """The first corpus of each role, as the published check of the adjacent corpus takes them."""
    found: dict[Role, Corpus] = {}
    for corpus in corpora.values():
        found.setdefault(corpus.role, corpus)
    return {corpus.name: corpus for corpus in found.values()}


def document_units(corpus: Corpus, tokenizer: Any, settings: FootprintSettings) -> tuple[TokenSequence, ...]:
    """The published sample of whole documents for the check of the adjacent corpus, each cut on the right."""
    documents = sampled_documents(corpus, settings.units)
    return cut_units(corpus, documents, tokenizer, settings.max_length, settings.text)


def cut_units(
    corpus: Corpus,
    documents: Sequence[Document],
    tokenizer: Any,
    max_length: int,
    text_format: TextFormat = "plain",
) -> tuple[TokenSequence, ...]:
    """Each document as one unit, cut on the right. Raises InputError where none has two tokens."""
    subject = corpus.path or f"corpus '{corpus.name}'"
    found = []
    for document in documents:
        encoded = encode(tokenizer, document, text_format=text_format, subject=subject)
        if len(encoded.ids) >= 2:
            found.append(TokenSequence(encoded.ids[:max_length], document.id, 0, ""))
    if not found:
        raise InputError(subject, "no document of two tokens", "text to measure", "check the file")
    return tuple(found)


def sampled_documents(corpus: Corpus, count: int) -> list[Document]:
    """The documents of the published check of the adjacent corpus: a sample of its own, seed 0."""
    return drawn_documents(corpus.documents, count, 0)


def corpus_records(
    corpora: Mapping[str, Corpus], samples: Mapping[str, Sample], settings: FootprintSettings
) -> tuple[CorpusRecord, ...]:
    """What was sampled of each corpus, with what limits its intervals."""
    return tuple(_record(corpora[name], sample, settings) for name, sample in samples.items())


def _record(corpus: Corpus, sample: Sample, settings: FootprintSettings) -> CorpusRecord:
    notes = list(sample.notes)
    fewest = min(len(subset) for subset in sample.subsets)
    if fewest < settings.units and settings.sampling == "units":
        notes.append(f"{fewest} units a subset instead of {settings.units}: {sample.documents} documents")
    if sample.coincide:
        notes.append(f"{no_interval(sample)}: point estimates without intervals")
    elif sample.overlap > 0:
        notes.append(
            f"two subsets have {sample.overlap:.0%} of their tokens in common: intervals are too short"
        )
    return CorpusRecord(
        name=corpus.name,
        role=corpus.role,
        path=corpus.path,
        sha256=corpus.sha256,
        documents=len(corpus.documents),
        empty=corpus.empty,
        one_token=sample.one_token,
        windowed=sample.windowed,
        units=tuple(len(subset) for subset in sample.subsets),
        tokens=tuple(sum(len(unit.ids) for unit in subset) for subset in sample.subsets),
        overlap=sample.overlap,
        coincide=sample.coincide,
        lengths=sample.lengths,
        notes=tuple(notes),
    )


def no_interval(sample: Sample) -> str:
    """Why a sample gives no interval, "" when it does."""
    if len(sample.subsets) == 1:
        return "one subset"
    return "all subsets hold the same text" if sample.coincide else ""
