"""The sections of one footprint, in the order of the page. Each takes the record and gives a section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vestige.contracts import Undefined
from vestige.footprint.judgements import Adjacency, Headroom
from vestige.footprint.levels import Measure, level_glance, text_measures, verdict_word
from vestige.footprint.records import CheckpointFootprint, CorpusFootprint, FootprintRecord
from vestige.footprint.tables import answers, of_role
from vestige.metrics.footprint import FootprintClass
from vestige.models.lm_record import LanguageModelRecord
from vestige.report.answers import verdict_chip
from vestige.report.drawing import Panel
from vestige.report.footprint.details import (
    adjacency_table,
    calibration_entries,
    calibration_table,
    corpora_table,
    documents_table,
    layers_table,
    modules_table,
)
from vestige.report.footprint.drawn import percent
from vestige.report.footprint.heat import heat_maps, module_maps
from vestige.report.footprint.levels import compared_line, evidence_table, levels_table
from vestige.report.footprint.rows import RegimeRow, checkpoint_rows, shift_rows
from vestige.report.footprint.scatter import MARGINAL, localisation, regimes
from vestige.report.footprint.tables import checkpoint_table, shift_table
from vestige.report.sections import (
    Answers,
    Block,
    Bullets,
    Data,
    Drawings,
    Entries,
    Fold,
    Prose,
    Section,
)
from vestige.report.words import count, plain, short, styled

__all__ = ["Extras", "footprint_sections"]

_OPEN_ANSWERS = 3
_MAPPED_ROLES = ("forget", "adjacent", "generic")
MOST_MAPPED = 12
"""Checkpoints whose layers are drawn; of the others the tables are in the files of `--tables csv`."""


@dataclass(frozen=True, kw_only=True)
class Extras:
    """What other records say about the same checkpoints.

    levels: what was measured of base, unlearned and retrained models, most telling first. behaves, returns:
    checkpoint label -> the answer in one line; glance: both in a few words. regimes:
    relearning attacks. behaviour, relearning: blocks of those sections. way: one picture of all three
    questions, a row a checkpoint. tested: lines of `not_tested` that these records answer.
    """

    levels: Sequence[Measure] = ()
    behaves: Mapping[str, str] = field(default_factory=dict)
    returns: Mapping[str, str] = field(default_factory=dict)
    glance: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    regimes: Sequence[RegimeRow] = ()
    behaviour: Sequence[Block] = ()
    relearning: Sequence[Block] = ()
    way: Panel | None = None
    tested: frozenset[str] = frozenset()
    texts: dict[tuple[str, str], str] | None = None


def footprint_sections(record: FootprintRecord, extras: Extras, *, key: str) -> list[Section]:
    """All sections of a record. key: begins the ids of its drawings, unique on the page."""
    sections = [
        _first(record, extras),
        _behaviour(extras),
        _returns(extras, key),
        _classes(record, key),
        _shifts(record, key),
        _inside(record, key),
        _calibration(record),
        _adjacent(record),
        _documents(record, extras),
        _setup(record),
        _caveats(record),
    ]
    return [section for section in sections if section is not None]


def _first(record: FootprintRecord, extras: Extras) -> Section:
    """What was compared, what every model knows, the verdicts; where weights moved comes after."""
    blocks: list[Block] = [Prose(plain(compared_line(record)))]
    measures = [*extras.levels, *text_measures(record.verdict)]
    table = levels_table(record, measures)
    if table is not None:
        blocks.append(Data(table))
    ordered = sorted(record.checkpoints, key=lambda item: item.role == "oracle")
    tested = sum(checkpoint.role != "oracle" for checkpoint in ordered)
    for checkpoint in ordered:
        word = verdict_word(record, checkpoint)
        # Retrained models come along; however many they are, the sentences on few models under test are open.
        beside = tested if checkpoint.role != "oracle" else len(ordered)
        blocks.append(
            Answers(
                label=checkpoint.label,
                tag="retrained" if checkpoint.role == "oracle" else "",
                chips=(verdict_chip(word),) if word else (),
                answers=answers(
                    record,
                    checkpoint,
                    measures=measures,
                    behaves=extras.behaves.get(checkpoint.label, ""),
                    returns=extras.returns.get(checkpoint.label, ""),
                ),
                folded=beside > _OPEN_ANSWERS,
                glance=(
                    *((known,) if (known := level_glance(record, checkpoint.label, measures)) else ()),
                    *extras.glance.get(checkpoint.label, ()),
                    *_moved_glance(checkpoint),
                ),
            )
        )
    if extras.way is not None:
        blocks.append(Drawings([extras.way]))
    evidence = evidence_table(record)
    if evidence is not None:
        blocks.append(Fold("What the verdicts rest on", [Data(evidence)]))
    left = [line for line in record.not_tested if line not in extras.tested]
    if left:
        blocks += [Prose("What was not tested:"), Bullets(left)]
    blocks.append(
        Prose(
            "The class of a footprint says which weights react differently to which text, not what the model "
            "still knows: it is neither a success nor a failure, and no evidence of removal.",
            note=True,
        )
    )
    return Section("answers", "What is left, and the verdict", "First answers", blocks)


def _moved_glance(checkpoint: CheckpointFootprint) -> Iterator[str]:
    for role in checkpoint.roles:
        if role.role == "forget" and isinstance(role.fisher.value, float):
            yield f"weights moved {percent(role.fisher.value)} % on forget text"


def _classes(record: FootprintRecord, key: str) -> Section:
    blocks: list[Block] = [Data(checkpoint_table(record))]
    labels = dict.fromkeys(checkpoint.estimator_label for checkpoint in record.checkpoints)
    blocks.append(Prose(f"Published class: {', '.join(labels)}.", note=True))
    lines = [line for checkpoint in record.checkpoints for line in _readings(checkpoint)]
    if lines:
        blocks.append(Bullets(lines))
    if not record.settings.calibrate:
        blocks.append(Prose("The calibrated class was not computed: give --calibrate.", note=True))
    panel = localisation(checkpoint_rows([record]), key=f"{key}-scatter")
    if panel is None:
        blocks.append(Prose("No scatter of forget against adjacent shift: one of the two is undefined."))
    else:
        retrained = any(checkpoint.role == "oracle" for checkpoint in record.checkpoints)
        blocks.append(Drawings([panel]))
        blocks.append(
            Prose(
                f"{MARGINAL} The shaded corner is where both shifts lie below the no-op threshold; the class "
                f"asks that of every single corpus.{' Hollow: retrained.' if retrained else ''}",
                note=True,
            )
        )
    return Section("classes", "Classes", "Classes", blocks)


def _readings(checkpoint: CheckpointFootprint) -> Iterator[str]:
    """Marks, flags and disagreement of one checkpoint as lines."""
    published = checkpoint.published
    if isinstance(published, FootprintClass):
        yield from (f"{short(checkpoint.label)}, undetermined: {line}" for line in published.undetermined)
        yield from (f"{short(checkpoint.label)}, flag: {line}" for line in published.flags)
    if checkpoint.disagreement:
        yield f"{short(checkpoint.label)}: {checkpoint.disagreement}"


def _shifts(record: FootprintRecord, key: str) -> Section:
    blocks: list[Block] = [
        Prose(
            "How far the Fisher (CoFi) and Hessian (CHess) diagonals moved on each text, relative to the "
            "base. CHess is an estimate from random probes: read it only against its noise floor beside it. "
            "Weights below the floor of the published scale hardly count in CoFi."
        )
    ]
    panels = heat_maps(shift_rows([record]), key=f"{key}-heat")
    folded = len(record.checkpoints) > _OPEN_ANSWERS
    tables: list[Block] = [
        Data(shift_table(record, checkpoint, noted=folded or checkpoint is record.checkpoints[-1]))
        for checkpoint in record.checkpoints
    ]
    if folded:
        blocks += [
            Fold(f"{short(checkpoint.label)}: every corpus", [table], open=place == 0)
            for place, (checkpoint, table) in enumerate(zip(record.checkpoints, tables, strict=True))
        ]
    else:
        blocks += tables
    if panels:
        blocks.append(Drawings(panels))
    return Section("shifts", "Shifts by text", "Shifts", blocks)


def _inside(record: FootprintRecord, key: str) -> Section | None:
    moved = [checkpoint for checkpoint in record.checkpoints if _has_moved(checkpoint)]
    folds = [
        _maps_of(checkpoint, key=f"{key}-modules-{place}", open_=place == 0)
        for place, checkpoint in enumerate(moved[:MOST_MAPPED])
    ]
    if not folds:
        return Section(
            "inside",
            "Which layers and projections",
            "",
            [Prose("No weight matrix moved on any text, or no checkpoint changes weights.")],
        )
    intro: list[Block] = [
        Prose(
            "Left, how far each matrix moved relative to itself; right, its part of the whole squared shift. "
            "A small matrix can move far and still be a small part."
        )
    ]
    left = len(moved) - MOST_MAPPED
    if left > 0:
        intro.append(Prose(f"{left} more checkpoints: vestige report --tables csv writes modules.csv."))
    return Section("inside", "Which layers and projections", "Layers", [*intro, *folds])


def _maps_of(checkpoint: CheckpointFootprint, *, key: str, open_: bool) -> Fold:
    """Maps and tables of one checkpoint, a fold a role."""
    folds: list[Block] = []
    for corpus in _one_of_each_role(checkpoint):
        name = f"{short(checkpoint.label)} on {corpus.corpus}"
        panels = module_maps(corpus.modules, key=f"{key}-{corpus.role}", name=name)
        blocks: list[Block] = [Drawings(panels)] if panels else []
        blocks.append(Fold("Most shifted matrices", [Data(modules_table(corpus, checkpoint.label))]))
        blocks.append(Fold("Projections and layers", [Data(layers_table(corpus, checkpoint.label))]))
        folds.append(Fold(f"on {of_role(corpus.corpus, corpus.role)}", blocks, open=open_ and not folds))
    return Fold(short(checkpoint.label), folds, open=open_)


def _has_moved(checkpoint: CheckpointFootprint) -> bool:
    return any(
        isinstance(module.shift, float) and module.shift > 0
        for corpus in checkpoint.corpora
        for module in corpus.modules[:1]
    )


def _one_of_each_role(checkpoint: CheckpointFootprint) -> list[CorpusFootprint]:
    """The most shifted corpus of each role."""

    def size(corpus: CorpusFootprint) -> float:
        value = corpus.fisher.value
        return -1.0 if isinstance(value, Undefined) else value

    found = []
    for role in _MAPPED_ROLES:
        own = [corpus for corpus in checkpoint.corpora if corpus.role == role and corpus.modules]
        if own:
            found.append(max(own, key=size))
    return found


def _behaviour(extras: Extras) -> Section:
    blocks: list[Block] = list(extras.behaviour) or [
        Prose("Not tested: no questions were asked. Perplexity, in the tables above, measures no knowledge.")
    ]
    return Section("behaviour", "Does it behave?", "Behaviour", blocks)


def _returns(extras: Extras, key: str) -> Section:
    panels = regimes(extras.regimes, key=f"{key}-regimes")
    blocks: list[Block] = [Drawings(panels)] if panels else []
    if panels:
        blocks.append(
            Prose(
                "Shaded: below the no-op threshold. A rise after a destructive change is a broken model "
                "being repaired, not a memory returning: read it beside the accuracy on generic questions.",
                note=True,
            )
        )
    blocks += extras.relearning
    return Section(
        "returns",
        "Does it return?",
        "Relearning",
        blocks or [Prose("Not run: no relearning attack on these checkpoints.")],
    )


def _calibration(record: FootprintRecord) -> Section | None:
    if not record.settings.calibrate:
        return None
    blocks: list[Block] = [
        Prose(
            "Two questions in a fixed order. Moved: does the Fisher diagonal change more than storing the "
            "model in 8 bits does? Where: less on generic text (h), and then more on forget or on adjacent "
            "text (g), than changes of the same singular values in random directions?"
        )
    ]
    for checkpoint in record.checkpoints:
        found = checkpoint.calibrated
        if isinstance(found, Undefined):
            blocks.append(Prose(f"{short(checkpoint.label)}: {plain(found)}."))
            continue
        inner: list[Block] = [
            Entries(
                [("calibrated class", plain(found.name)), *calibration_entries(found, record.parameters)]
            ),
            Data(calibration_table(found, checkpoint.label)),
        ]
        if found.notes:
            inner.append(Bullets([plain(note) for note in found.notes]))
        blocks.append(Fold(f"{short(checkpoint.label)}: {plain(found.name)}", inner, open=len(blocks) == 1))
    return Section("calibration", "The calibrated class", "Calibrated", blocks)


def _adjacent(record: FootprintRecord) -> Section:
    found = record.adjacency
    if isinstance(found, Undefined):
        return Section(
            "adjacent", "Is the adjacent corpus valid?", "", [Prose(f"Undefined: {found.undefined}.")]
        )
    blocks: list[Block] = []
    if found.lines:
        blocks.append(Bullets([plain(line) for line in found.lines]))
    blocks.append(Entries(list(_adjacency_entries(found))))
    table = adjacency_table(found)
    if table is not None:
        blocks.append(Data(table, compact=True))
    elif isinstance(found.overlaps, Undefined):
        blocks.append(Prose(f"Fisher overlap: {plain(found.overlaps)}.", note=True))
    return Section("adjacent", "Is the adjacent corpus valid?", "Adjacent corpus", blocks)


def _adjacency_entries(found: Adjacency) -> Iterator[tuple[str, Any]]:
    ratio = plain(found.ratio) if isinstance(found.ratio, Undefined) else f"{found.ratio:.2f}"
    yield "meaning", "passes: nearer to forget than to generic text" if found.passes else "fails: rebuild it"
    yield (
        "mean cosine",
        f"forget–adjacent {found.sim_f_a:.3f}, forget–generic {found.sim_f_g:.3f}, adjacent–generic "
        f"{found.sim_a_g:.3f}; ratio of first to last {ratio} ({found.encoder})",
    )
    room = found.headroom
    if isinstance(room, Headroom):
        yield "headroom", f"{'yes' if room.passes else 'no'}: {plain(room.said)}"
    else:
        yield "headroom", plain(room)
    statement = found.statement
    yield (
        "disjoint scopes",
        f"{plain(statement)}; no check can tell"
        if isinstance(statement, Undefined)
        else f"the user states: {plain(statement)}",
    )
    yield (
        "lengths in words",
        [
            (
                of_role(item.corpus, item.role),
                f"median {item.median:.0f}, quartiles {item.lower:.0f} to {item.upper:.0f}, "
                f"{count(item.documents)} documents",
            )
            for item in found.lengths
        ],
    )


def _documents(record: FootprintRecord, extras: Extras) -> Section | None:
    folds: list[Block] = []
    for checkpoint in record.checkpoints[:MOST_MAPPED]:
        inner = [
            Fold(
                f"on {of_role(corpus.corpus, corpus.role)}",
                [Data(documents_table(corpus, checkpoint.label, extras.texts))],
            )
            for corpus in checkpoint.corpora
            if corpus.documents
        ]
        if inner and _has_moved(checkpoint):
            folds.append(Fold(short(checkpoint.label), inner, open=len(record.checkpoints) == 1))
    if not folds:
        return None
    note = (
        "Beginnings of texts are shown because --show-text was given; they may be hazardous."
        if extras.texts is not None
        else "Documents by their ids; texts are hidden. vestige report --show-text shows their beginnings."
    )
    return Section("documents", "Most shifted documents", "Documents", [Prose(note, note=True), *folds])


def _setup(record: FootprintRecord) -> Section:
    settings = record.settings
    own = dict.fromkeys(text for checkpoint in record.checkpoints for text in checkpoint.retained)
    retained = plain(settings.retained_text or "; ".join(own)) or "not named"
    blocks: list[Block] = [
        Data(corpora_table(record)),
        Entries([("text retained on while unlearning", retained), ("condition", plain(record.condition))]),
        Fold("Models and their hashes", [Entries(list(_models(record)))]),
        Fold("Settings", [Entries(list(_settings(record)))]),
        Fold("Cost", [Entries(list(_cost(record)))]),
        Fold(
            "Files of the corpora and their hashes",
            [
                Entries(
                    [
                        (corpus.name, [("file", corpus.path), _hash(corpus.sha256)])
                        for corpus in record.corpora
                    ]
                )
            ],
        ),
    ]
    return Section("setup", "Models, texts, settings, cost", "Settings", blocks)


def _models(record: FootprintRecord) -> Iterator[tuple[str, Any]]:
    yield f"base: {short(record.base.label)}", list(_model(record.base))
    for checkpoint in record.checkpoints:
        tag = "retrained" if checkpoint.role == "oracle" else "unlearned"
        probes = [("Hessian probes", f"seed {checkpoint.probe_seeds[1]}")] if checkpoint.probe_seeds else []
        yield f"{tag}: {short(checkpoint.label)}", [*_model(checkpoint.model), *probes]


def _model(model: LanguageModelRecord) -> Iterator[tuple[str, Any]]:
    yield "from", f"{model.location} ({model.kind})"
    yield "architecture", f"{model.architecture}, {count(model.parameters)} weights"
    yield "measured in", model.dtype + (f", stored in {model.quantised}" if model.quantised else "")
    if model.adapter != "none":
        rank = f" of rank {model.rank}" if model.rank else ""
        yield "adapter", f"{model.adapter}{rank}, merged in float32" if model.rank else model.adapter
    yield _hash(model.sha256)
    if model.source_sha256:
        yield "files", ("hash", model.source_sha256)


def _hash(text: str) -> tuple[str, Any]:
    return "sha256", ("hash", text) if text else "none"


def _settings(record: FootprintRecord) -> Iterator[tuple[str, Any]]:
    yield "measured weights", f"{count(record.parameters)} in {record.layers} layers"
    for name, value in record.settings.model_dump().items():
        if name == "thresholds":
            yield "thresholds", [(part.replace("_", " "), f"{number:g}") for part, number in value.items()]
        elif name == "verdict":
            yield "verdict", "left out" if value is None else _verdict_settings(value)
        elif isinstance(value, bool):
            yield name.replace("_", " "), "yes" if value else "no"
        elif name not in ("retained_text", "statement") and value not in (None, {}):
            yield name.replace("_", " "), f"{value:g}" if isinstance(value, float) else str(value)
    for name, value in record.provenance.items():
        yield name, plain(value)


def _verdict_settings(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    margins = given["margins"]
    read = ("memory", "retained", "gain", "loss")
    excess = margins["excess"]
    return [
        *((name, count(given[name])) for name in ("documents", "positions", "draws")),
        (
            "margin, excess",
            f"{excess:g}" if excess is not None else "0.05 or half of two retrainings' distance",
        ),
        *((f"margin, {name}", f"{margins[name]:g}") for name in read),
    ]


def _cost(record: FootprintRecord) -> Iterator[tuple[str, Any]]:
    cost = record.cost
    yield (
        "passes",
        (
            f"{count(cost.passes_run)} run, {count(cost.passes_cached)} taken from the cache, "
            f"{count(cost.passes_planned)} planned"
        ),
    )
    yield "tokens", count(cost.tokens)
    yield "cache planned", f"{cost.gigabytes_planned:.3g} GB"
    yield "machine", f"{cost.device}, {cost.processes} {'process' if cost.processes == 1 else 'processes'}"
    if cost.seconds:
        yield "seconds", [(plain(name), styled(value, "number")) for name, value in cost.seconds.items()]


def _caveats(record: FootprintRecord) -> Section:
    return Section("caveats", "Caveats", "Caveats", [Bullets([plain(line) for line in record.caveats])])
