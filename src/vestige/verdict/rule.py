"""The rule: which of the five words is said, under which conditions, and what is missing where none is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from vestige.contracts import (
    Bounded,
    Condition,
    Evidence,
    Margins,
    ProbeEvidence,
    RetainedEvidence,
    Undefined,
    UnitEvidence,
    Verdict,
    View,
    ViewEvidence,
)
from vestige.phrases import listed, number_word
from vestige.statistics.bounds import LEAST_ROWS
from vestige.statistics.multiplicity import holm
from vestige.verdict.evidence import (
    LEAST_ORACLES,
    Retained,
    Side,
    probe_evidence,
    retained_evidence,
    unit_evidence,
    view_evidence,
    worst_rows,
)
from vestige.verdict.quantities import Indices, Models
from vestige.verdict.words import words_of

__all__ = [
    "GAIN_LEVEL",
    "both_views_p",
    "conditions_of",
    "excluded",
    "gather",
    "judge_model",
    "say",
    "with_levels",
    "with_probes",
]

GAIN_LEVEL = 0.025
"""A gain is confirmed where its one-sided p, corrected within the family, is at most this."""
_LISTED_UNITS = 5


def gather(
    sides: Sequence[Side],
    retained: Retained | Sequence[Retained],
    places: Indices,
    margins: Margins,
    unit_names: Mapping[str, str],
) -> Evidence:
    """The evidence about one unlearned model. sides: F and, where there are rows for it, G.

    retained: several are judged each for itself; the model is damaged where one of them shows it.
    """
    parts = [retained] if isinstance(retained, Retained) else list(retained)
    table, draws = parts[0].side.table, parts[0].side.draws
    kept, *others = sorted(
        (retained_evidence(part, places, margins) for part in parts), key=_harm_order, reverse=True
    )
    seeds = {
        "full": len(table.models.fulls),
        "oracle": len(table.models.oracles),
        "unlearned": len(places),
    }
    if not seeds["oracle"]:
        none = Undefined(undefined="no retrained model")
        return Evidence(
            margins=margins,
            seeds=seeds,
            draws=draws,
            views=(),
            retained=kept,
            other_retained=tuple(others),
            conditions=(),
            missing=("a retrained model: without one, fidelity to retraining cannot be assessed",),
            share=none,
        )
    views = [view_evidence(side, places, margins) for side in sides]
    moved = [side for side, view in zip(sides, views, strict=True) if view.visible is True]
    units, judged = unit_evidence(moved, places, unit_names)
    units.sort(key=lambda item: -math.inf if isinstance(item.memory, Undefined) else -item.memory)
    units.sort(key=lambda item: isinstance(item.memory, Undefined))
    tenths = [found for side in moved if (found := worst_rows(side, places)) is not None]
    made = Evidence(
        margins=margins,
        seeds=seeds,
        draws=draws,
        views=tuple(views),
        retained=kept,
        other_retained=tuple(others),
        units=tuple(units[:_LISTED_UNITS]),
        units_judged=judged,
        worst_rows=tuple(tenths),
        conditions=(),
        missing=(),
        away=tuple(view.view for view in views if view.moved_away is True),
        overshoot=tuple(
            view.view
            for view in views
            if not isinstance(view.memory.upper, Undefined) and view.memory.upper < -margins.memory
        ),
        nothing_to_undo=tuple(view.view for view in views if view.visible is False),
        share=_share(views),
    )
    return made.model_copy(update={"conditions": conditions_of(made, units)})


def conditions_of(evidence: Evidence, units: Sequence[UnitEvidence]) -> tuple[Condition, ...]:
    """The conditions of equivalence on this evidence. units: every unit that was judged, of which the
    evidence lists those with most memory. Empty without a retrained model."""
    if not evidence.views:
        return ()
    found = _conditions(
        evidence.views,
        (evidence.retained, *evidence.other_retained),
        units,
        evidence.units_judged,
        evidence.worst_rows,
        evidence.margins,
        evidence.seeds["oracle"],
    )
    return (*found, *_asked_otherwise(evidence.probes))


def _asked_otherwise(probes: Sequence[ProbeEvidence]) -> list[Condition]:
    """That no probe shows more memory than the margin; nothing where none was asked."""
    if not probes:
        return []
    failed = [probe.name for probe in probes if probe.holds is False]
    unsettled = [probe.name for probe in probes if probe.holds is None]
    text = f"memory under {len(probes)} probe{'s' if len(probes) > 1 else ''}: "
    text += f"above the margin under {', '.join(failed)}" if failed else "under none shown above the margin"
    text += f"; not settled under {', '.join(unsettled)}" if unsettled else ""
    return [Condition(name="probes", holds=not failed, text=text)]


def with_probes(evidence: Evidence, probes: Mapping[str, Sequence[Side]], label: str) -> Evidence:
    """The evidence about `label` with memory under each probe, and the condition that none shows more than
    the margin.

    probes: name -> F and G of all models asked in that way. A model that lies where retraining lies under one
    set of names only, or at one temperature only, does not lie there.
    """
    found = tuple(probe_evidence(name, sides, label, evidence.margins) for name, sides in probes.items())
    conditions = (*evidence.conditions, *_asked_otherwise(found))
    return evidence.model_copy(update={"probes": found, "conditions": conditions})


def with_levels(
    evidence: Evidence, gold: Mapping[View, Sequence[float]], models: Models, places: Indices
) -> Evidence:
    """The evidence with mean probabilities of the right answer added to its views.

    gold: view -> one mean for each model, in the order of the tables.
    """
    views = []
    for view in evidence.views:
        values = np.asarray(gold[view.view], dtype=np.float64)
        groups = {"full": models.fulls, "oracle": models.oracles, "unlearned": places}
        levels = {name: float(values[group].mean()) for name, group in groups.items() if len(group)}
        views.append(view.model_copy(update={"levels": levels}))
    return evidence.model_copy(update={"views": tuple(views)})


def _harm_order(found: RetainedEvidence) -> tuple[int, float]:
    """Larger for more harm: shown, unsettled, none; then by how much."""
    change = found.change.value
    size = 0.0 if isinstance(change, Undefined) else -change if found.measure == "accuracy" else change
    return ("unharmed", "unsettled", "damaged").index(found.harm), size


def _share(views: Sequence[ViewEvidence]) -> float | Undefined:
    """Progress over the ceiling, where retraining is visible; the smaller of the views."""
    found = []
    for view in views:
        if isinstance(view.progress, Undefined) or view.visible is False:
            continue
        known = not isinstance(view.ceiling, Undefined) and view.ceiling > 0
        found.append(view.progress / view.ceiling if known else view.progress)  # type: ignore[operator]
    return min(found) if found else Undefined(undefined="retraining moves nothing that these outputs show")


def _conditions(
    views: Sequence[ViewEvidence],
    retained: Sequence[RetainedEvidence],
    units: Sequence[UnitEvidence],
    judged: int,
    tenths: Sequence[UnitEvidence],
    margins: Margins,
    oracles: int,
) -> list[Condition]:
    """E1 to E5, each for itself. With too few oracles for an error over them, no bound on a distance to
    retraining or on memory holds for retrainings that might have been: it settles nothing."""
    enough = oracles >= LEAST_ORACLES
    alone = "for this retrained model alone" if oracles == 1 else "for these retrained models alone"

    def add(condition: Condition) -> None:
        if condition.holds and not enough:
            condition = condition.model_copy(update={"holds": None, "text": f"{condition.text}, {alone}"})
        found.append(condition)

    words = words_of(retained[0])
    found = [
        Condition(
            name="E1",
            holds=True if enough else None,
            text=f"{oracles} retrained model{'s' if oracles != 1 else ''}, at least {LEAST_ORACLES} needed",
        )
    ]
    for view in views:
        add(_at_most("E2", f"excess distance on {words.where[view.view]}", view.excess, view.margin))
    for view in views:
        what = f"memory on {words.where[view.view]}"
        if view.visible is False:
            add(Condition(name="E3", holds=True, text=f"{what}: so is {words.full}"))
        else:
            add(_at_most("E3", what, view.memory, margins.memory, percent=True))
    for part in retained:
        rest = part.name or words.rest
        add(_at_most("E4", f"excess distance on {rest}", part.excess, margins.retained))
        harm = f"harm to {' and '.join(part.harmed_by)} is shown" if part.harmed_by else "no harm is shown"
        found.append(Condition(name="E4", holds=not part.harmed_by, text=f"on {rest} {harm}"))
    limit = 2 * margins.memory
    worse = [
        item for item in (*units, *tenths) if not isinstance(item.lower, Undefined) and item.lower > limit
    ]
    keep = len([i for i in worse if i in units])
    what = (
        f"{keep} of {judged} units judged keep more than {limit * 100:.0f} %"
        if judged
        else "no unit could be judged"
    )
    if tenths:
        what += f"; the tenth of the rows that keeps most does{'' if set(tenths) & set(worse) else ' not'}"
    visible = any(view.visible is True for view in views)
    holds = not worse if judged or tenths or not visible else (True if not units else None)
    found.append(Condition(name="E5", holds=holds, text=what))
    return found


def _at_most(
    name: str, what: str, found: Bounded, margin: float | Undefined, *, percent: bool = False
) -> Condition:
    def said(value: float) -> str:
        text = f"{value * 100:.0f} %" if percent else f"{value:.3f}"
        return text if text.strip("-0. %") else text.removeprefix("-")

    for part in (margin, found.upper, found.value):
        if isinstance(part, Undefined):
            return Condition(name=name, holds=None, text=f"{what}: {part.undefined}")
    assert isinstance(found.upper, float)
    assert isinstance(found.value, float)
    assert isinstance(margin, float)
    return Condition(
        name=name,
        holds=found.upper <= margin,
        text=f"{what}: {said(found.value)}, at most {said(found.upper)} (upper 95 % bound), "
        f"{said(margin)} allowed",
    )


def judge_model(evidence: Evidence, *, gain_p: float | Undefined | None = None) -> tuple[Verdict, Evidence]:
    """The word for one model, and the evidence with what is missing filled in.

    gain_p: one-sided p of no gain on either view, corrected within its family; None: uncorrected, from the
    evidence. First that applies: damaged, equivalent, closer, not closer, undetermined.
    """
    if evidence.retained.harm == "damaged":
        return "damaged", evidence
    if not evidence.views:
        return "undetermined", evidence
    if all(condition.holds is True for condition in evidence.conditions):
        return "equivalent", evidence
    p = both_views_p(evidence) if gain_p is None else gain_p
    if not isinstance(p, Undefined) and p <= GAIN_LEVEL and not evidence.away:
        return "closer", evidence
    if evidence.away or excluded(evidence) or _would_have_shown(evidence):
        return "not closer", evidence
    return "undetermined", evidence.model_copy(update={"missing": _missing(evidence, p)})


def both_views_p(evidence: Evidence) -> float | Undefined:
    """p of `a gain on every view where there is something to undo`: the largest of them. Berger 1982."""
    asked = [view for view in evidence.views if view.visible is not False]
    if not asked:
        return Undefined(undefined="the full model already lies where retraining lies")
    values = [view.gain_p for view in asked]
    undefined = next((value for value in values if isinstance(value, Undefined)), None)
    return undefined or max(value for value in values if not isinstance(value, Undefined))


def excluded(evidence: Evidence) -> tuple[View, ...]:
    """Views on which a gain of the stated share of the displacement is shown not to be there.

    Being closer takes a gain on every view, so one such view is enough for `not closer`.
    """
    found = []
    for view in evidence.views:
        size, most = view.displacement.value, view.gain.upper
        if isinstance(size, Undefined) or isinstance(most, Undefined) or view.visible is False:
            continue
        if most < evidence.margins.gain * size:
            found.append(view.view)
    return tuple(found)


def _would_have_shown(evidence: Evidence) -> bool:
    """Whether a gain of the stated share of the displacement would have shown on both views, and none did.

    The smallest gain is that of one test alone. A gain that shows alone, and is not confirmed for the number
    of models tried, is no sign that there is none.
    """
    alone = both_views_p(evidence)
    if isinstance(alone, Undefined) or alone <= GAIN_LEVEL:
        return False
    for view in evidence.views:
        size, least = view.displacement.value, view.least_gain
        if isinstance(size, Undefined) or isinstance(least, Undefined) or view.visible is False:
            return False
        if least > evidence.margins.gain * size:
            return False
    return True


def _missing(evidence: Evidence, p: float | Undefined) -> tuple[str, ...]:
    """What would settle it: the first things to get, in words that say where. p: corrected in its family."""
    found: list[str] = []
    oracles = evidence.seeds["oracle"]
    words = words_of(evidence)
    hidden: list[View] = []
    open_: list[View] = []
    for view in evidence.views:
        if isinstance(view.gain.lower, Undefined):
            found.append(
                f"more draws ({evidence.draws} are too few for any bound)"
                if view.rows >= LEAST_ROWS
                else f"more {words.rows} ({view.rows} on {words.where[view.view]} are too few for any bound)"
            )
        elif isinstance(view.visible, Undefined) and oracles >= LEAST_ORACLES:
            hidden.append(view.view)
        elif (
            view.visible is not False and not isinstance(view.gain_p, Undefined) and view.gain_p > GAIN_LEVEL
        ):
            open_.append(view.view)
    if hidden:
        where = listed([words.where[view] for view in hidden])
        found.append(
            f"more {words.rows} or retrained models (on {where} it is not settled whether retraining moves "
            "anything)"
        )
    if open_:
        where = listed([words.where[view] for view in open_])
        found.append(f"more {words.rows} (on {where} it is not shown to have come closer)")
    alone = both_views_p(evidence)
    if not isinstance(p, Undefined) and not isinstance(alone, Undefined) and alone <= GAIN_LEVEL < p:
        found.append(
            f"more {words.rows} or fewer models tried (judged alone it came closer; corrected for the number "
            "of models tried, that is not shown)"
        )
    if oracles < LEAST_ORACLES:
        there = f"there {'is' if oracles == 1 else 'are'} {number_word(oracles)}"
        found.append(f"more retrained models (equivalence needs {number_word(LEAST_ORACLES)}, {there})")
    else:
        unmet = [c for c in evidence.conditions if c.holds is not True]
        if all(c.holds is not False or _could_hold(evidence, c) for c in unmet) and unmet:
            found.append(f"for equivalence, more {words.rows} or retrained models ({unmet[0].text})")
    if evidence.retained.harm == "unsettled":
        name = evidence.retained.name
        rest = f"{words.rows} of {name}" if name else words.rest
        found.append(f"more {rest} (whether the rest still works is not settled)")
    open_question = f"more {words.rows} (whether it lies where retraining lies is not settled)"
    return tuple(dict.fromkeys(found)) or (open_question,)


def _could_hold(evidence: Evidence, condition: Condition) -> bool:
    """Whether a failed condition has its estimate inside the margin, so that more data could show it."""
    pairs: list[tuple[Bounded, float | Undefined]] = []
    if condition.name == "E2":
        pairs = [(view.excess, view.margin) for view in evidence.views]
    elif condition.name == "E3":
        pairs = [(view.memory, evidence.margins.memory) for view in evidence.views]
    elif condition.name == "E4":
        parts = (evidence.retained, *evidence.other_retained)
        pairs = [(part.excess, evidence.margins.retained) for part in parts]
    return bool(pairs) and all(
        isinstance(value.value, Undefined) or isinstance(margin, Undefined) or value.value <= margin
        for value, margin in pairs
    )


def say(
    evidences: Mapping[str, Evidence], family: Sequence[str]
) -> dict[str, tuple[Verdict, Evidence, float | Undefined]]:
    """Word, evidence and corrected p of every model; Holm's correction runs over the family's labels."""
    raw = {
        label: both_views_p(evidence) if evidence.views else Undefined(undefined="no retrained model")
        for label, evidence in evidences.items()
    }
    known = {label: p for label, p in raw.items() if label in set(family) and not isinstance(p, Undefined)}
    corrected: dict[str, float | Undefined] = {**raw, **(holm(known) if known else {})}
    return {
        label: (*judge_model(evidence, gain_p=corrected[label]), corrected[label])
        for label, evidence in evidences.items()
    }
