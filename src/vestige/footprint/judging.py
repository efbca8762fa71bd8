"""The verdict on language models from models and texts: what opens them, and one call for all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vestige.data.corpora import Corpus, Role, TextFormat, read_corpus
from vestige.errors import InputError
from vestige.footprint.cache import Cache
from vestige.footprint.checkpoints import (
    Checkpoint,
    ModelSource,
    ModelSources,
    Opened,
    checkpoints_of,
    listed,
    opener,
    oracles_of,
    resolvable,
)
from vestige.footprint.judged_texts import refuse_seen
from vestige.footprint.outputs import DISK_BYTES, Reading, fit_together
from vestige.footprint.texts import Source, corpora_of
from vestige.footprint.verdict import Cast, JudgedCorpora, Member, judge, judged_corpora, reading_of
from vestige.footprint.verdict_records import VerdictRecord, VerdictSettings
from vestige.footprint.world import World
from vestige.models.causal_lm import LanguageModel, check_readable_alike
from vestige.models.devices import chosen_device
from vestige.models.lm_record import LanguageModelRecord, MeasuringDtype
from vestige.models.positions import refuse_unreadable

__all__ = ["Judging", "bases_of", "judging_of", "language_verdict", "named", "unseen_corpora"]

_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


def language_verdict(
    *,
    base: ModelSources,
    unlearned: ModelSources,
    forget: Mapping[str, Source] | Source,
    generic: Mapping[str, Source] | Source,
    oracle: ModelSources | None = None,
    adjacent: Mapping[str, Source] | Source | None = None,
    unseen: Mapping[str, Source] | Source | None = None,
    settings: VerdictSettings | None = None,
    max_length: int = 1024,
    text: TextFormat = "plain",
    dtype: MeasuringDtype = "float32",
    seed: int = 17,
    family: Sequence[str] = (),
    device: str | None = None,
    batch_tokens: int = 1024,
    disk_bytes: int = DISK_BYTES,
    held: bool | None = None,
    cache: str | Path | None = None,
) -> VerdictRecord:
    """The verdict on unlearned language models alone, without their footprint.

    base: models that knew the text to be forgotten, the first is what adapters are put on. oracle: models
    retrained without it. unlearned: label -> model, or its training seeds. forget, adjacent, generic: as in
    `vestige.footprint`; unseen: texts like those to be forgotten, or paraphrases of them, that no model was
    trained on. max_length, text, dtype, seed: of rows and models. family: labels of methods that Holm's
    correction runs over. held: keep all models open; default: where they fit. Raises InputError.
    """
    settings = settings or VerdictSettings()
    corpora = corpora_of(named(forget, "forget"), named(adjacent, "adjacent"), named(generic, "generic"))
    others = unseen_corpora(named(unseen, "unseen"), corpora)
    bases = bases_of(base)
    resolvable(*bases.values(), *listed(unlearned).values(), *oracles_of(oracle).values())
    device = chosen_device(device)
    opened = opener(dtype=dtype, revision=None, device=device)
    first = opened(next(iter(bases.values())), None, None)
    checkpoints = checkpoints_of(unlearned, oracle, first, opened)
    records = []
    for checkpoint in checkpoints:
        model = checkpoint.open()
        check_readable_alike(first, model)
        records.append(model.record)
    return judging_of(
        first=first,
        bases=bases,
        opened=opened,
        checkpoints=checkpoints,
        records=records,
        corpora=corpora,
        unseen=others,
        settings=settings or VerdictSettings(),
        max_length=max_length,
        text=text,
        seed=seed,
        device=device,
        held=held,
        batch_tokens=batch_tokens,
        disk_bytes=disk_bytes,
        folder=Path(cache) if cache is not None else None,
        cache=Cache(Path(cache), World()) if cache is not None else None,
    ).judge(family=family)


@dataclass(frozen=True, kw_only=True)
class Judging:
    """A verdict that is ready to be made: who is compared, on what, by what rule."""

    cast: Cast
    texts: JudgedCorpora
    settings: VerdictSettings
    reading: Reading

    @property
    def tokens(self) -> int:
        """What all models read together."""
        return self.texts.tokens * len(self.cast.members)

    def judge(self, *, family: Sequence[str] = ()) -> VerdictRecord:
        """Levels and verdicts. family: see `language_verdict`."""
        return judge(self.cast, self.texts, self.settings, self.reading, family=family)


def judging_of(
    *,
    first: LanguageModel,
    bases: Mapping[str, ModelSource],
    opened: Opened,
    checkpoints: Sequence[Checkpoint],
    records: Sequence[LanguageModelRecord],
    corpora: Mapping[str, Corpus],
    unseen: Mapping[str, Corpus],
    settings: VerdictSettings,
    max_length: int,
    text: TextFormat,
    seed: int,
    device: str,
    held: bool | None = None,
    **how: Any,
) -> Judging:
    """first: the first base, open. records: of the checkpoints, in their order. how: fields of `Reading`."""
    cast, every, here = cast_of(first, bases, opened, checkpoints, records)
    texts = judged_corpora(
        corpora, unseen, first.tokenizer, settings, max_length=max_length, text_format=text, seed=seed
    )
    for (_, corpus), rows in zip(texts.corpora, texts.rows, strict=True):
        refuse_unreadable(
            first.model,
            (row.ids for row in rows),
            subject=f"corpus '{corpus.name}', a document",
            remedy="lower --max-length",
            before=max((record.virtual_tokens for record in every), default=0),
        )
    reading = reading_of(
        cast,
        held=held_together(every, here, device) if held is None else held,
        vocabulary=first.record.vocabulary,
        device=torch.device(device if device.startswith("cuda") else "cpu"),
        **how,
    )
    return Judging(cast=cast, texts=texts, settings=settings, reading=reading)


def named(source: Mapping[str, Source] | Source | None, role: str) -> Mapping[str, Source]:
    """Name -> file or corpus; one alone has the role's name."""
    if source is None:
        return {}
    return source if isinstance(source, Mapping) else {role: source}


def unseen_corpora(unseen: Mapping[str, Source], corpora: Mapping[str, Corpus]) -> dict[str, Corpus]:
    """Corpora of unseen text. Raises InputError for a name that another has, and for text to be forgotten."""
    found: dict[str, Corpus] = {}
    for name, source in unseen.items():
        if name in corpora:
            raise InputError(
                "--unseen",
                f"the name '{name}', which a {corpora[name].role} corpus has",
                "a name for each corpus",
                "write another NAME=FILE",
            )
        role: Role = "forget"
        found[name] = source if isinstance(source, Corpus) else read_corpus(source, name=name, role=role)
    refuse_seen([corpus for corpus in corpora.values() if corpus.role == "forget"], list(found.values()))
    return found


def bases_of(base: ModelSources) -> dict[str, ModelSource]:
    """Label -> base, the first one that checkpoints are compared with."""
    return listed(base, option="--base")


def cast_of(
    first: LanguageModel,
    bases: Mapping[str, ModelSource],
    opened: Opened,
    checkpoints: Sequence[Checkpoint],
    records: Sequence[LanguageModelRecord],
) -> tuple[Cast, list[LanguageModelRecord], list[bool]]:
    """Who is compared, with every model's record and whether it is in memory already, in one order.

    first: the first base, open. records: of the checkpoints, in their order.
    """
    members: dict[str, list[Member]] = {"base": [], "oracle": []}
    found: list[LanguageModelRecord] = []
    here: list[bool] = []
    for place, (label, source) in enumerate(bases.items()):
        model = first if place == 0 else opened(source, None, first, "oracle")
        if place:
            check_readable_alike(first, model)
        members["base"].append(_member(label, model.record, source, opened, first, place == 0))
        found.append(model.record)
        here.append(place == 0 or isinstance(source, LanguageModel))
    unlearned: dict[str, list[Member]] = {}
    for checkpoint, record in zip(checkpoints, records, strict=True):
        member = Member(label=checkpoint.label, sha256=record.sha256, open=checkpoint.open)
        if checkpoint.role == "oracle":
            members["oracle"].append(member)
        else:
            unlearned.setdefault(checkpoint.method, []).append(member)
        found.append(record)
        here.append(checkpoint.in_memory)
    for seeds in (*members.values(), *unlearned.values()):
        _refuse_copies(seeds)
    return Cast(bases=members["base"], oracles=members["oracle"], unlearned=unlearned), found, here


def _refuse_copies(seeds: Sequence[Member]) -> None:
    """Refuse the same weights twice among the training seeds of a role: copies say nothing of another run."""
    first: dict[str, Member] = {}
    for member in seeds:
        other = first.setdefault(member.sha256, member)
        if other is not member:
            raise InputError(
                f"model '{member.label}'",
                f"the weights of '{other.label}'",
                "a training run of its own for each model of one role or method",
                "give each model once",
            )


def _member(
    label: str,
    record: LanguageModelRecord,
    source: ModelSource,
    opened: Opened,
    first: LanguageModel,
    is_first: bool,
) -> Member:
    def again() -> LanguageModel:
        return first if is_first else opened(source, None, first, "oracle")

    return Member(label=label, sha256=record.sha256, open=again)


def held_together(records: Sequence[LanguageModelRecord], here: Sequence[bool], device: str) -> bool:
    """Whether all models may stay open at once: those that are not in memory yet fit into half of what is
    free."""
    sizes = [
        record.parameters * _BYTES[record.dtype]
        for record, there in zip(records, here, strict=True)
        if not there
    ]
    return fit_together(sizes, torch.device(device))
