"""The verdict on unlearned language models: a causal model decides over its vocabulary at every position."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vestige.contracts import Evidence, Floats, Interval, Undefined, View, ViewCount
from vestige.data.corpora import Corpus, TextFormat
from vestige.footprint.judged_texts import VIEWS, judged_rows
from vestige.footprint.outputs import Outputs, Reading, Row, Shelf, read_outputs
from vestige.footprint.verdict_records import (
    JudgedModel,
    JudgedText,
    LevelRole,
    ModelLevels,
    TextLevel,
    TextRole,
    VerdictRecord,
    VerdictSettings,
)
from vestige.models.causal_lm import LanguageModel
from vestige.verdict.evidence import Retained, Side
from vestige.verdict.quantities import Indices, Models, ViewTable
from vestige.verdict.rule import gather, say, with_levels
from vestige.verdict.sentence import retained_sentences, sentence

__all__ = ["NO_ORACLE", "Cast", "JudgedCorpora", "Member", "judge", "judged_corpora", "reading_of"]

NO_ORACLE = "no retrained model was given"
_ASKED: tuple[View, ...] = ("F", "G")
_KEPT: tuple[TextRole, ...] = ("adjacent", "generic")


@dataclass(frozen=True, kw_only=True)
class Member:
    """A model of the comparison. sha256: of its weights."""

    label: str
    sha256: str
    open: Callable[[], LanguageModel]


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Who is compared. unlearned: a method's label -> its training seeds, at least one each."""

    bases: Sequence[Member]
    oracles: Sequence[Member]
    unlearned: Mapping[str, Sequence[Member]]

    @property
    def references(self) -> list[Member]:
        """Bases, then oracles, each in the order of their hashes, so that no number depends on another."""
        return [*_by_hash(self.bases), *_by_hash(self.oracles)]

    @property
    def members(self) -> list[Member]:
        """References, then the models under test."""
        return [*self.references, *(member for seeds in self.tested.values() for member in seeds)]

    @property
    def tested(self) -> dict[str, list[Member]]:
        """The models under test, seeds of one in the order of their hashes."""
        return {label: _by_hash(seeds) for label, seeds in self.unlearned.items()}

    @property
    def models(self) -> Models:
        """Places in `members`."""
        k, m = len(self.bases), len(self.oracles)
        places: dict[str, Indices] = {}
        start = k + m
        for label, seeds in self.unlearned.items():
            places[label] = np.arange(start, start + len(seeds))
            start += len(seeds)
        return Models(fulls=np.arange(k), oracles=np.arange(k, k + m), unlearned=places)


def _by_hash(members: Sequence[Member]) -> list[Member]:
    return sorted(members, key=lambda member: member.sha256)


@dataclass(frozen=True, kw_only=True)
class JudgedCorpora:
    """Corpora by role with the rows of each. available: documents that could be rows."""

    corpora: Sequence[tuple[TextRole, Corpus]]
    rows: Sequence[list[Row]]
    available: Sequence[int]

    @property
    def tokens(self) -> int:
        """Of all rows, read by every model once."""
        return sum(len(row.ids) for rows in self.rows for row in rows)


def judged_corpora(
    corpora: Mapping[str, Corpus],
    unseen: Mapping[str, Corpus],
    tokenizer: Any,
    settings: VerdictSettings,
    *,
    max_length: int,
    text_format: TextFormat,
    seed: int,
) -> JudgedCorpora:
    """The rows of every corpus; units are topics where several corpora are to be forgotten."""
    listed: list[tuple[TextRole, Corpus]] = [(corpus.role, corpus) for corpus in corpora.values()]
    listed += [("unseen", corpus) for corpus in unseen.values()]
    several = sum(role == "forget" for role, _ in listed) > 1
    found = [
        judged_rows(
            corpus,
            tokenizer,
            settings,
            max_length=max_length,
            text_format=text_format,
            seed=seed,
            topic=corpus.name if several and VIEWS[role] != "R" else "",
        )
        for role, corpus in listed
    ]
    return JudgedCorpora(
        corpora=listed, rows=[rows for rows, _ in found], available=[number for _, number in found]
    )


def judge(
    cast: Cast,
    texts: JudgedCorpora,
    settings: VerdictSettings,
    reading: Reading,
    *,
    family: Sequence[str] = (),
) -> VerdictRecord:
    """Levels of every model on every text, and the verdict on each model under test.

    reading: of `cast.members`. family: labels that Holm's correction runs over. Without an oracle levels and
    harm alone, and no verdict.
    """
    outputs = [read_outputs(reading, rows) for rows in texts.rows]
    models = cast.models
    parts: dict[View, Read] = {view: _of_view(texts, outputs, view) for view in _ASKED}
    parts = {view: part for view, part in parts.items() if part and reading.joint}
    sides = {view: Side(view, _table(part, models), settings.draws) for view, part in parts.items()}
    retained = [
        _retained(part, models, settings.draws, f"{role} text")
        for role in _KEPT
        if (part := _of_role(texts, outputs, role))
    ]
    gold: dict[View, Sequence[float]] = {
        view: np.concatenate([out.p for _, out in part], axis=1).mean(axis=1).tolist()
        for view, part in parts.items()
    }
    topics = {corpus.name: corpus.name for role, corpus in texts.corpora if role == "forget"}
    evidences: dict[str, Evidence] = {}
    for label, places in models.unlearned.items():
        made = gather(list(sides.values()), retained, places, settings.margins, topics)
        evidences[label] = with_levels(made, gold, models, places)
    found = say(evidences, family)
    counts = {view: _count(view, part) for view, part in parts.items()}
    names = _bases(cast)
    judged = []
    for label, (word, evidence, p) in found.items():
        said = (
            sentence(word, evidence, label=label, counts=counts, unit_kind="text")
            if cast.oracles
            else f"“{label}” was compared with {names} alone: {NO_ORACLE}, so there is no verdict. "
            + " ".join(retained_sentences(evidence))
        )
        judged.append(
            JudgedModel(
                label=label,
                checkpoints=tuple(member.label for member in cast.unlearned[label]),
                verdict=word if cast.oracles else Undefined(undefined=NO_ORACLE),
                evidence=evidence,
                p=p,
                sentence=said,
            )
        )
    return VerdictRecord(
        settings=settings,
        compared=_compared(cast, texts),
        bases=tuple(member.label for member in cast.bases),
        oracles=tuple(member.label for member in cast.oracles),
        texts=tuple(_judged_texts(texts)),
        levels=tuple(_levels(cast, texts, outputs)),
        models=tuple(judged),
        family=tuple(family),
        held=reading.shelf.held,
        chunks=reading.chunks,
    )


Read = list[tuple[list[Row], Outputs]]


def _of_role(texts: JudgedCorpora, outputs: Sequence[Outputs], role: TextRole) -> Read:
    return [
        (rows, out)
        for (own, _), rows, out in zip(texts.corpora, texts.rows, outputs, strict=True)
        if own == role
    ]


def _of_view(texts: JudgedCorpora, outputs: Sequence[Outputs], view: View) -> Read:
    roles = [role for role in VIEWS if VIEWS[role] == view]
    return [part for role in roles for part in _of_role(texts, outputs, role)]


def _table(parts: Read, models: Models) -> ViewTable:
    """The rows of several corpora, one after another."""

    def joined(name: str) -> Floats:
        return np.concatenate([getattr(out, name) for _, out in parts], axis=-1)

    units = np.array([row.unit for rows, _ in parts for row in rows], dtype=np.str_)
    return ViewTable(joined("js"), joined("inner"), joined("reach"), units, models)


def _retained(parts: Read, models: Models, draws: int, name: str) -> Retained:
    loss = -np.concatenate([out.log_p for _, out in parts], axis=1)
    return Retained(Side("R", _table(parts, models), draws), loss=loss, name=name)


def _count(view: View, part: Read) -> ViewCount:
    units = [row.unit for rows, _ in part for row in rows]
    return ViewCount(view=view, rows=len(units), units=len(set(units) - {""}))


def _bases(cast: Cast) -> str:
    names = [f"“{member.label}”" for member in cast.bases]
    return f"the base {names[0]}" if len(names) == 1 else f"the bases {', '.join(names)}"


def _compared(cast: Cast, texts: JudgedCorpora) -> str:
    """The first line: what was compared with what."""
    tested = len(cast.unlearned)
    line = f"Compared: {tested} unlearned model{'' if tested == 1 else 's'} with {_bases(cast)}"
    oracles = len(cast.oracles)
    if oracles:
        line += f" and {oracles} model{'' if oracles == 1 else 's'} retrained without the forget text"
    sizes = {
        role: sum(len(rows) for (own, _), rows in zip(texts.corpora, texts.rows, strict=True) if own == role)
        for role in VIEWS
    }
    line += ", on " + ", ".join(f"{size:,} {role}" for role, size in sizes.items() if size) + " documents."
    if not oracles:
        line += f" There is no verdict: {NO_ORACLE}."
    elif not sizes["unseen"]:
        line += " No unseen text was given: the verdict rests on the forget text alone."
    return line


def _judged_texts(texts: JudgedCorpora) -> list[JudgedText]:
    return [
        JudgedText(
            name=corpus.name,
            role=role,
            view=VIEWS[role],
            path=corpus.path,
            sha256=corpus.sha256,
            available=available,
            documents=len(rows),
            positions=sum(len(row.positions) for row in rows),
            units=len({row.unit for row in rows} - {""}),
        )
        for (role, corpus), rows, available in zip(texts.corpora, texts.rows, texts.available, strict=True)
    ]


def _levels(cast: Cast, texts: JudgedCorpora, outputs: Sequence[Outputs]) -> list[ModelLevels]:
    """Every model on every corpus, bases first, then the models under test, then the oracles."""
    places = {id(member): place for place, member in enumerate(cast.members)}
    bases = np.arange(len(cast.bases))
    roles: list[tuple[LevelRole, Member]] = [("base", member) for member in cast.bases]
    roles += [("unlearned", member) for seeds in cast.unlearned.values() for member in seeds]
    roles += [("oracle", member) for member in cast.oracles]
    return [
        ModelLevels(
            label=member.label,
            role=role,
            sha256=member.sha256,
            texts=tuple(
                _level(corpus.name, of, out.log_p, places[id(member)], bases)
                for (of, corpus), out in zip(texts.corpora, outputs, strict=True)
            ),
        )
        for role, member in roles
    ]


def _level(corpus: str, role: TextRole, log_p: Floats, place: int, bases: Indices) -> TextLevel:
    every = np.exp(log_p)
    own, change = every[place], every[place] - every[bases].mean(axis=0)
    return TextLevel(
        corpus=corpus,
        role=role,
        documents=log_p.shape[1],
        probability=float(own.mean()),
        interval=_interval(own, "this model, other documents like these"),
        loss=float(-log_p[place].mean()),
        change=float(change.mean()),
        change_interval=_interval(change, "these models, other documents like these, paired"),
    )


def _interval(values: Floats, condition: str) -> Interval | Undefined:
    from scipy import stats

    n = len(values)
    if n < 2:
        return Undefined(undefined="one document")
    half = float(stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / math.sqrt(n))
    mean = float(values.mean())
    return Interval(
        low=mean - half, high=mean + half, kind="t over documents", draws=0, seed=0, condition=condition
    )


def reading_of(cast: Cast, *, held: bool, vocabulary: int, **more: Any) -> Reading:
    """How the members' outputs are read. more: fields of `Reading`."""
    members = cast.members
    return Reading(
        shelf=Shelf([member.open for member in members], held),
        digests=[member.sha256 for member in members],
        references=len(cast.references),
        bases=len(cast.bases),
        vocabulary=vocabulary,
        **more,
    )
