"""How a verdict is shown: its chip, the published rule beside it, and the table of what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from vestige.contracts import (
    Assessment,
    Bounded,
    Evidence,
    Interval,
    ModelAssessment,
    Undefined,
    ViewEvidence,
)
from vestige.report.measures import first_full, measure, unlearned_models
from vestige.report.sections import Chip, ChipKind
from vestige.report.tables import EMPTY, Cell, Column, Row, Table, cell, decision_text, style_of
from vestige.report.words import (
    Style,
    counted,
    interval_text,
    listed,
    plain,
    probability,
    short,
    styled,
)
from vestige.verdict.sentence import admits

__all__ = [
    "ASKED",
    "Asked",
    "bounded_cell",
    "conditions_of",
    "evidence_table",
    "margin_lines",
    "published_tag",
    "unit_table",
    "verdict_chip",
]

_CHIPS: dict[str, tuple[ChipKind, str]] = {
    "equivalent": ("equivalent", "✓"),
    "closer": ("closer", "→"),
    "not closer": ("none", "–"),
    "damaged": ("damaged", "✕"),
    "undetermined": ("none", "?"),
}

ASKED = {
    "E1": "Are there three or more retrained models, so that it is known what two of them differ by?",
    "E2": "Is the model no further from the retrained ones than they are from each other, beyond the margin?",
    "E3": "Is at most the margin left of the full model? 0 % is a retrained model, 100 % the full one.",
    "E4": "Are the retained rows where retraining leaves them, and neither accuracy nor calibration harmed?",
    "E5": "Does no single part of what was deleted keep more than twice that margin?",
    "probes": "Does that hold when the models are asked in other ways?",
}
"""The conditions of equivalence as questions."""
_SHORT = {
    "E1": "three retrained",
    "E2": "as near as they",
    "E3": "little memory",
    "E4": "the rest alike",
    "E5": "in every part",
    "probes": "asked otherwise",
}


def verdict_chip(headline: str) -> Chip:
    """A verdict as it is shown, in a frame: green for `equivalent` alone, amber `closer`, red `damaged`."""
    kind, glyph = _CHIPS[headline.partition(",")[0]]
    return Chip(text=headline, kind=kind, glyph=glyph)


def published_tag(model: ModelAssessment) -> str:
    """The published rule's answer, named as such: `published rule: accepted`."""
    undefined = isinstance(model.decision, Undefined)
    return f"published rule: {'no decision' if undefined else decision_text(model)}"


def margin_lines(evidence: Evidence) -> list[str]:
    """What counts as small, and what a model exactly at the memory margin may keep."""
    margins = evidence.margins
    excess = (
        styled(margins.excess, "number")
        if margins.excess is not None
        else "0.05 or half of what two retrainings differ by, whichever is larger"
    )
    lines = [
        f"Distance beyond what two retrainings differ by, on F and G: {excess}; on R: "
        f"{styled(margins.retained, 'number')}.",
        f"Memory, the share of the full model that is left: {styled(margins.memory, 'percent')}; in one part "
        f"of what was deleted {styled(2 * margins.memory, 'percent')}.",
        f"Loss of retained accuracy: {margins.accuracy * 100:.3g} points; rise of calibration error: "
        f"{margins.calibration:.3g}."
        if evidence.retained.measure == "accuracy"
        else f"Rise of the loss a token on retained text: {margins.loss:.3g} nats.",
        f"Before “not closer” is said, these rows must be able to show a gain of "
        f"{styled(margins.gain, 'percent')} of the distance.",
    ]
    admitted = admits(evidence)
    return [*lines, admitted] if admitted else lines


# The table of what decides.


def evidence_table(assessment: Assessment) -> Table:
    """What decides, measures down and models across: full models, models under test, retrained models.

    Of records with verdicts. Every interval is printed twice: for these models and other rows like these, and
    for other trainings, or with a note why the latter is not known.
    """
    tested = [(model, model.evidence) for model in unlearned_models(assessment) if model.evidence is not None]
    first = tested[0][1]
    rows = [
        _row("verdict", tested, lambda model, _: _text(model.headline)),
        _row("published rule", tested, lambda model, _: _decided(model)),
        _row("other trainings", tested, lambda _, found: _text(_trainings(found))),
        *_deleted(first, tested),
        *(() if first.views else _left(assessment, tested)),
        *_rest(first, tested),
        *_conditions(first, tested),
    ]
    if first.views:
        rows.append(_row("p of no gain", tested, lambda model, _: _p(model, assessment)))
    ends = (("full", "full model"), ("oracle", "retrained"))
    before, after = (Column(key=role, title=title, detail=_seeds(first.seeds[role])) for role, title in ends)
    return Table(
        key="evidence",
        caption="What decides",
        head="measure",
        columns=(
            before,
            *(
                Column(key=model.label, title=model.label, detail=_detail(model, found))
                for model, found in tested
            ),
            *((after,) if first.seeds["oracle"] else ()),
        ),
        rows=tuple(row if first.seeds["oracle"] else replace(row, cells=row.cells[:-1]) for row in rows),
        notes=tuple(_notes(tested)),
        notes_are="F deleted rows, G unseen rows, R retained rows",
    )


Tested = Sequence[tuple[ModelAssessment, Evidence]]


def _row(
    label: str,
    tested: Tested,
    of: Callable[[ModelAssessment, Evidence], Cell],
    *,
    full: Cell | None = None,
    oracle: Cell | None = None,
) -> Row:
    """A row whose cells are the full models', each tested model's and the retrained models'."""
    nothing = Cell(text=EMPTY)
    cells = (full or nothing, *(of(model, found) for model, found in tested), oracle or nothing)
    return Row(label=label, cells=cells)


def _seeds(number: int) -> str:
    return counted(number, "training seed", "training seeds") if number else "none given"


def _detail(model: ModelAssessment, found: Evidence) -> str:
    parts = ["control"] if model.control else []
    if model.method and model.method != model.label:
        parts.append(f"method {short(model.method)}")
    return ", ".join([*parts, _seeds(found.seeds["unlearned"])])


def _text(text: str) -> Cell:
    return Cell(text=text)


def _number(value: float | Undefined | None, style: Style) -> Cell:
    if value is None:
        return Cell(text=EMPTY)
    if isinstance(value, Undefined):
        return Cell(text=plain(value), undefined=True)
    return Cell(text=styled(value, style))


def bounded_cell(found: Bounded, style: Style, *lines: str) -> Cell:
    """A quantity with both kinds of interval under it, that for other trainings where it is known.

    lines: what stands between.
    """
    if isinstance(found.value, Undefined):
        return Cell(text=plain(found.value), undefined=True)
    known = [f"rows {plain(interval_text(found.these_models, style))}"]
    if isinstance(found.other_trainings, Interval):
        known.append(f"trainings {interval_text(found.other_trainings, style)}")
    return Cell(text=styled(found.value, style), lines=(*lines, *known))


def _deleted(first: Evidence, tested: Tested) -> Iterator[Row]:
    """Levels first, then distance, way, memory and excess, each on F and on G."""
    for make in (_level, _distance, _way, _memory, _excess):
        for view in first.views:
            yield make(view, tested)


def _level(view: ViewEvidence, tested: Tested) -> Row:
    return _row(
        f"P(right answer), {view.view}",
        tested,
        lambda _, found: _number(found.view(view.view).levels.get("unlearned"), "number"),
        full=_number(view.levels.get("full"), "number"),
        oracle=_number(view.levels.get("oracle"), "number"),
    )


def _distance(view: ViewEvidence, tested: Tested) -> Row:
    def distance(_: ModelAssessment, found: Evidence) -> Cell:
        side = found.view(view.view)
        return bounded_cell(side.distance, "number", *_times(side))

    between = _number(view.spread, "number") if isinstance(view.spread, float) else None
    return _row(
        f"distance to retraining, {view.view}",
        tested,
        distance,
        full=bounded_cell(view.displacement, "number"),
        oracle=between and replace(between, lines=("two retrainings",)),
    )


def _way(view: ViewEvidence, tested: Tested) -> Row:
    def way(_: ModelAssessment, found: Evidence) -> Cell:
        side = found.view(view.view)
        made = _number(side.progress, "percent")
        if isinstance(side.progress, Undefined) or isinstance(side.ceiling, Undefined) or side.ceiling <= 0:
            return made
        return replace(made, lines=(f"{styled(side.progress / side.ceiling, 'percent')} of the ceiling",))

    ceiling = _number(view.ceiling, "percent") if isinstance(view.ceiling, float) else None
    return _row(
        f"share of the way, {view.view}",
        tested,
        way,
        full=_text("0 %"),
        oracle=ceiling and replace(ceiling, lines=("the ceiling",)),
    )


def _memory(view: ViewEvidence, tested: Tested) -> Row:
    def memory(_: ModelAssessment, found: Evidence) -> Cell:
        allowed = f"{styled(found.margins.memory, 'percent')} allowed"
        return bounded_cell(found.view(view.view).memory, "percent", allowed)

    # Where no model's memory is known, there is no way to retraining for it to be a share of.
    known = any(isinstance(found.view(view.view).memory.value, float) for _, found in tested)
    ends = (_text("100 %"), _text("0 %")) if known else (None, None)
    return _row(f"memory left, {view.view}", tested, memory, full=ends[0], oracle=ends[1])


def _excess(view: ViewEvidence, tested: Tested) -> Row:
    def excess(_: ModelAssessment, found: Evidence) -> Cell:
        side = found.view(view.view)
        return bounded_cell(side.excess, "signed", *_allowed(side.margin))

    return _row(
        f"beyond retraining’s own, {view.view}",
        tested,
        excess,
        full=bounded_cell(view.full_excess, "signed"),
        oracle=_number(0.0, "number") if isinstance(view.spread, float) else None,
    )


def _times(view: ViewEvidence) -> tuple[str, ...]:
    if isinstance(view.spread, Undefined) or isinstance(view.distance.value, Undefined) or view.spread <= 0:
        return ()
    return (f"{view.distance.value / view.spread:.1f} × retraining’s own",)


def _allowed(margin: float | Undefined) -> tuple[str, ...]:
    return () if isinstance(margin, Undefined) else (f"{styled(margin, 'number')} allowed",)


def _left(assessment: Assessment, tested: Tested) -> Iterator[Row]:
    """Without a retrained model: the probability left where it was to be removed."""
    metric, title = (
        ("forgotten_mass", "probability on the deleted options")
        if assessment.forgotten
        else ("gold_probability", "probability of the right answer")
    )
    full = first_full(assessment)
    for view in ("F", "G"):

        def left(model: ModelAssessment | None, view: str = view) -> Cell:
            found = cell(None if model is None else measure(model, metric, view), style_of(metric))
            bounds = (f"rows {found.row} (percentile)",) if found.row else ()
            return replace(found, row="", unit="", lines=bounds)

        yield _row(f"{title}, {view}", tested, lambda model, _: left(model), full=left(full))


def _rest(first: Evidence, tested: Tested) -> Iterator[Row]:
    """Does the rest still work: level, change with both intervals, retraining's own change beside it."""
    kept = first.retained
    yield _row(
        "retained accuracy, R",
        tested,
        lambda _, found: _number(found.retained.model, "share"),
        full=_number(kept.full, "share"),
        oracle=_number(kept.oracle, "share"),
    )
    yield _row(
        "its change in points",
        tested,
        lambda _, found: bounded_cell(
            found.retained.change,
            "points",
            f"{found.margins.accuracy * 100:.3g} fewer allowed",
            *_judged_by(found.retained.change, "points"),
        ),
        oracle=_number(kept.retraining, "points"),
    )
    if kept.calibration is not None:
        yield _row(
            "calibration error (debiased), R",
            tested,
            lambda _, found: _calibrated(found),
            full=_number(kept.calibration.full, "number"),
        )
        yield _row("its change", tested, _calibration)
    if first.views:
        yield _row(
            "beyond retraining’s own, R",
            tested,
            lambda _, found: bounded_cell(found.retained.excess, "signed", *_allowed(found.margins.retained)),
            oracle=_number(0.0, "number") if isinstance(kept.excess.value, float) else Cell(text=EMPTY),
        )


def _calibrated(found: Evidence) -> Cell:
    calibration = found.retained.calibration
    return _number(None if calibration is None else calibration.model, "number")


def _calibration(_: ModelAssessment, found: Evidence) -> Cell:
    if found.retained.calibration is None:
        return Cell(text=EMPTY)
    change = found.retained.calibration.change
    allowed = f"{found.margins.calibration:.3g} more allowed"
    return bounded_cell(change, "signed", allowed, *_judged_by(change, "signed"))


def _judged_by(change: Bounded, style: Style) -> tuple[str, ...]:
    """The bounds that harm is judged by, where they differ from those over rows."""
    if isinstance(change.lower, Undefined) or isinstance(change.upper, Undefined):
        return ()
    text = f"[{styled(change.lower, style)}, {styled(change.upper, style)}]"
    return () if text == interval_text(change.these_models, style) else (f"judged by {text}",)


def _conditions(first: Evidence, tested: Tested) -> Iterator[Row]:
    for name in dict.fromkeys(condition.name for condition in first.conditions):
        label = f"{_NAMES.get(name, name)}: {_SHORT[name]}" if name in _SHORT else name

        def held(_: ModelAssessment, found: Evidence, name: str = name) -> Cell:
            return _text(_held(found, name))

        yield _row(label, tested, held)


def _holds(found: Evidence, name: str) -> bool | None:
    """Whether every part of a condition holds: no where one fails, open where one cannot be judged."""
    parts = [item.holds for item in found.conditions if item.name == name]
    return False if False in parts else None if None in parts else True


def _held(found: Evidence, name: str) -> str:
    """Whether a condition holds, in words. One that only a shown failure breaks "holds" as well where
    nothing could be judged; a reader has to see that nothing was."""
    holds = _holds(found, name)
    if name == "probes" and holds:
        settled = [probe.holds is not None for probe in found.probes]
        return _HOLDS[True if all(settled) else None] if len(set(settled)) == 1 else "holds where settled"
    if name == "E5" and holds and not found.units_judged and not found.worst_rows:
        return "nothing could be judged"
    return _HOLDS[holds]


def _decided(model: ModelAssessment) -> Cell:
    return Cell(text=decision_text(model), undefined=isinstance(model.decision, Undefined))


def _p(model: ModelAssessment, assessment: Assessment) -> Cell:
    value = model.verdict_p
    if value is None or isinstance(value, Undefined):
        return _number(value, "number")
    family = model.label in assessment.family and len(assessment.family) > 1
    return Cell(text=probability(value), lines=("Holm",) if family else ())


def _trainings(found: Evidence) -> str:
    """Whether anything can be said of other trainings of this method."""
    bounds = [bounded.other_trainings for name, _, bounded in found.quantities() if name != "displacement"]
    if any(isinstance(bound, Interval) for bound in bounds):
        return "under each number"
    if found.seeds["unlearned"] == 1:
        return "not known: one training run"
    return "not known"


def _notes(tested: Tested) -> Iterator[str]:
    """What the numbers and the two intervals are, and why one is not known, each said once."""
    yield "P(right answer): mean probability of it"
    yield "memory: the share left of the difference between the full model and a retrained one"
    yield (
        "share of the way: how much of the full model’s distance is closed; the ceiling is what a retrained "
        "model closes. A mixture with half of the full model keeps 50 % memory, and is further than half of "
        "the way, because this distance grows faster than in proportion"
    )
    yield "beyond retraining’s own: distance less what two retrainings differ by"
    yield "calibration error (debiased): chance adds nothing to it, as it does to the published rule’s ECE"
    yield "judged by: rows, and training seeds of every role that has more than one"
    bounds = [bounded for _, found in tested for _, _, bounded in found.quantities()]
    for what, intervals in (
        ("rows", [bounded.these_models for bounded in bounds]),
        ("trainings", [bounded.other_trainings for bounded in bounds]),
    ):
        kinds: dict[tuple[float, str], list[Interval]] = {}
        for interval in intervals:
            if isinstance(interval, Interval):
                # Which roles' seeds enter differs between quantities; what the interval is about does not.
                condition = interval.condition.partition("; seeds: ")[0]
                kinds.setdefault((interval.level, condition), []).append(interval)
        for (level, condition), same in kinds.items():
            yield f"{what}: {level * 100:g} % interval, {condition} ({'; '.join(_made(same))})"
    unknown = {
        plain(bounded.other_trainings.undefined): None
        for bounded in bounds
        if isinstance(bounded.other_trainings, Undefined) and isinstance(bounded.value, float)
    }
    for why in unknown:
        yield f"trainings: {why}"


def _made(intervals: Sequence[Interval]) -> Iterator[str]:
    """How they were made, each way once: `Dirichlet-weighted rows ..., 5,000 draws, seeds 501 and 502`."""
    ways: dict[tuple[str, int], set[int]] = {}
    for interval in intervals:
        ways.setdefault((interval.kind, interval.draws), set()).add(interval.seed)
    for (kind, draws), drawn_by in ways.items():
        seeds = listed([str(seed) for seed in sorted(drawn_by)])
        drawn = f", {counted(draws, 'draw', 'draws')}, seed{'s' if len(drawn_by) > 1 else ''} {seeds}"
        yield f"{plain(kind)}{drawn if draws else ''}"


# What stands beside it for one model.

_HOLDS = {True: "holds", False: "does not hold", None: "not settled"}
_NAMES = {"probes": "Probes"}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A condition of equivalence of one model. found: each a line. holds: of all of them, in words."""

    name: str
    question: str
    found: tuple[str, ...]
    holds: str


def conditions_of(found: Evidence) -> list[Asked]:
    """The conditions of equivalence, each once: the question, what was found, whether it holds."""
    return [
        Asked(
            name=_NAMES.get(name, name),
            question=ASKED.get(name, ""),
            found=tuple(plain(item.text) for item in found.conditions if item.name == name),
            holds=_held(found, name),
        )
        for name in dict.fromkeys(item.name for item in found.conditions)
    ]


def unit_table(model: ModelAssessment) -> Table:
    """The parts of what was deleted that keep most, and with many oracles the rows that do.

    No rows where none could be judged; the note says why.
    """
    assert model.evidence is not None
    found = model.evidence
    every = [*found.units, *found.worst_rows]
    parts = [item for item in every if isinstance(item.memory, float)]
    why = [item.memory.undefined for item in every if isinstance(item.memory, Undefined)]
    limit = styled(2 * found.margins.memory, "percent")
    return Table(
        key="units",
        caption=f"Parts that keep most: {short(model.label)}",
        head="part",
        columns=(
            Column(key="view", title="of", numeric=False),
            Column(key="rows", title="rows"),
            Column(key="memory", title="memory left"),
            Column(key="lower", title="at least", detail="95 %, over all parts together"),
        ),
        rows=tuple(
            Row(
                label=item.name,
                cells=(
                    Cell(text=item.view),
                    Cell(text=styled(item.rows, "count")),
                    _number(item.memory, "percent"),
                    _number(item.lower, "percent"),
                ),
            )
            for item in parts
        ),
        notes=(
            f"{counted(found.units_judged, 'part', 'parts')} judged, {limit} allowed in each"
            if parts
            else f"none could be judged{f', {plain(why[0])}' if why else ''}",
        ),
        notes_are="Parts",
    )
