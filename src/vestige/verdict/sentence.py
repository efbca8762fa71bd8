"""The verdict in words: the answer first, then what was shown, what may be left, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from vestige.contracts import (
    Bounded,
    Evidence,
    Interval,
    RetainedEvidence,
    Undefined,
    Verdict,
    View,
    ViewCount,
    ViewEvidence,
)
from vestige.phrases import counted, listed, number_word, plain, short, way_words
from vestige.verdict.evidence import LEAST_ORACLES
from vestige.verdict.rule import excluded
from vestige.verdict.words import words_of

__all__ = ["admits", "retained_sentences", "sentence"]

_NOUNS = {
    "class": ("intent", "intents"),
    "association": ("sub-intent", "sub-intents"),
    "cluster": ("sub-intent", "sub-intents"),
}
_REASONS = 2
"""How many reasons a sentence gives why equivalence is not shown; every condition stands in the evidence."""


def sentence(
    verdict: Verdict,
    evidence: Evidence,
    *,
    label: str,
    counts: Mapping[View, ViewCount],
    unit_kind: str = "class",
) -> str:
    """Full sentences about the model `label`: the verdict first, then what it rests on.

    counts: rows and units of F and G. unit_kind: what a unit is, as in an assessment; `text` for language
    models, whose rows are documents.
    """
    about = _texts(counts) if unit_kind == "text" else _rows(counts, unit_kind)
    parts: list[str] = {
        "equivalent": _equivalent,
        "closer": _closer,
        "not closer": _not_closer,
        "damaged": _damaged,
        "undetermined": _undetermined,
    }[verdict](evidence, f"“{short(label)}”", about)
    parts += list(_beside(verdict, evidence))
    return " ".join(_capital(part) for part in parts if part)


def admits(evidence: Evidence) -> str:
    """What a model exactly at the memory margin may still keep, in probability of the right answer.

    Empty where no view has something to undo.
    """
    texts = []
    words = words_of(evidence)
    full = words.full.removeprefix("the ").removesuffix(" model")
    for view in evidence.views:
        levels = view.levels
        if view.visible is False or not {"full", "oracle"} <= levels.keys():
            continue
        at = levels["oracle"] + evidence.margins.memory * (levels["full"] - levels["oracle"])
        texts.append(
            f"{_number(at)} on {words.where[view.view]} (retrained {_number(levels['oracle'])}, {full} "
            f"{_number(levels['full'])})"
        )
    if not texts:
        return ""
    return (
        f"A model exactly at this margin may still give {words.right} a mean probability of {listed(texts)}."
    )


def retained_sentences(evidence: Evidence) -> list[str]:
    """A sentence on each retained text: whether it is harmed, and by how much it changed."""
    return [_capital(_retained(part)) for part in (evidence.retained, *evidence.other_retained)]


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _rows(counts: Mapping[View, ViewCount], unit_kind: str) -> str:
    parts = []
    noun = _NOUNS.get(unit_kind)
    if "F" in counts:
        parts.append(counted(counts["F"].rows, "deleted training row", "deleted training rows"))
    if "G" in counts:
        rows = counted(counts["G"].rows, "unseen row", "unseen rows")
        units = counts["F"].units if "F" in counts else counts["G"].units
        parts.append(
            f"{rows} of the {counted(units, f'deleted {noun[0]}', f'deleted {noun[1]}')}"
            if noun
            else f"{rows} like them"
        )
    return f"on {listed(parts)}"


def _texts(counts: Mapping[View, ViewCount]) -> str:
    nouns: dict[View, tuple[str, str]] = {
        "F": ("forget document", "forget documents"),
        "G": ("unseen document", "unseen documents"),
    }
    return f"on {listed([counted(counts[view].rows, *nouns[view]) for view in nouns if view in counts])}"


# The five words.


def _equivalent(evidence: Evidence, name: str, about: str) -> list[str]:
    full = words_of(evidence).full
    oracles = number_word(evidence.seeds["oracle"])
    nothing = evidence.nothing_to_undo
    first = f"{name} is equivalent to retraining within the stated margins"
    if nothing and len(nothing) == len(evidence.views):
        found = [
            f"{first}, and so is {full}: there was nothing to undo that these outputs show.",
            f"{about}, both lie where the {oracles} retrained models lie.",
        ]
    else:
        found = [f"{first}: {about} it lies where the {oracles} retrained models lie."]
    distances = _each(evidence, lambda view: _at_most(view.excess, _number))
    found.append(
        f"{name if nothing else 'it'} is further from them than they are from each other by at most "
        f"{distances} (upper 95 % bounds; {_margins(evidence)})."
    )
    kept = _each(evidence, lambda view: "" if view.visible is False else _at_most(view.memory, _percent))
    if kept:
        found.append(f"{_memory_is(full)} is at most {kept} ({_percent(evidence.margins.memory)} allowed).")
        found.append(admits(evidence))
    if nothing and len(nothing) < len(evidence.views):
        found.append(
            f"on {_everywhere(evidence, nothing)} {full} lies there as well: there was nothing to undo that "
            "these outputs show."
        )
    return [*found, *retained_sentences(evidence)]


def _closer(evidence: Evidence, name: str, about: str) -> list[str]:
    way = _way(evidence.share)
    full = words_of(evidence).full
    return [
        f"{name} is closer to retraining than {full}{f', {way}' if way else ''}, and is not shown to be "
        "equivalent to it.",
        *_remaining(evidence, about),
        *_nothing(evidence),
        *retained_sentences(evidence),
        *_not_equivalent(evidence),
    ]


def _not_closer(evidence: Evidence, name: str, about: str) -> list[str]:
    words = words_of(evidence)
    first = f"{name} is not closer to retraining than {words.full}"
    if evidence.away:
        found = [f"{first}: {_away(evidence)}."]
    elif small := excluded(evidence):
        most = _each(
            evidence,
            lambda view: _share_of_way(view.gain.upper, view) if view.view in small else "",
        )
        found = [
            f"{first}: it came at most {most} (upper end of a 95 % interval), where "
            f"{_percent(evidence.margins.gain)} would count."
        ]
    else:
        least = _each(
            evidence, lambda view: "" if isinstance(view.least_gain, Undefined) else _number(view.least_gain)
        )
        lacking = [view.view for view in evidence.views if not _gained(view)]
        on = "" if len(lacking) == len(evidence.views) else f" on {_everywhere(evidence, lacking)}"
        found = [
            f"{first}: had it come closer by {least}, these {words.rows} would have shown that four times in "
            f"five, and it is not shown{on}."
        ]
    return [*found, *_one_sided(evidence), *_remaining(evidence, about), *retained_sentences(evidence)]


def _share_of_way(gain: float | Undefined, view: ViewEvidence) -> str:
    """A gain as a share of the displacement, at least 0: `6 % of the way`."""
    size = view.displacement.value
    if isinstance(gain, Undefined) or isinstance(size, Undefined) or size <= 0:
        return ""
    return f"{_percent(max(gain, 0.0) / size)} of the way"


def _damaged(evidence: Evidence, name: str, about: str) -> list[str]:
    found = [f"{name} is damaged: {_harm(evidence)}.", *map(_retained, evidence.other_retained)]
    if not evidence.views:
        return [*found, "fidelity to retraining cannot be assessed: no retrained model was given."]
    if evidence.away:
        found.append(f"{_away(evidence)}.")
    asked = [view for view in evidence.views if view.visible is not False]
    way = _way(evidence.share)
    if asked and all(_gained(view) for view in asked) and way:
        found.append(f"apart from that it came closer to retraining than {words_of(evidence).full}, {way}.")
    return [*found, *_one_sided(evidence), *_nothing(evidence), *_remaining(evidence, about)]


def _undetermined(evidence: Evidence, name: str, about: str) -> list[str]:
    full = words_of(evidence).full
    if not evidence.views:
        return [
            f"whether {name} lies where retraining would have put it cannot be said: no retrained model was "
            "given.",
            *retained_sentences(evidence),
        ]
    return [
        f"it is not settled whether {name} is closer to retraining than {full}.",
        f"what is missing: {'; '.join(evidence.missing)}." if evidence.missing else "",
        *_one_sided(evidence),
        *_nothing(evidence),
        *_remaining(evidence, about),
        *retained_sentences(evidence),
    ]


# What they rest on.


def _gained(view: ViewEvidence) -> bool:
    """Whether a gain is shown on this view, for itself."""
    return not isinstance(view.gain.lower, Undefined) and view.gain.lower > 0


def _away(evidence: Evidence) -> str:
    """Where it moved away from retraining, which is said of each view for itself."""
    where, full = _everywhere(evidence, evidence.away), words_of(evidence).full
    return f"it moved away from retraining on {where}, where its distance is shown to be larger than {full}’s"


def _one_sided(evidence: Evidence) -> list[str]:
    """A gain on one view where the other shows none, or moved away: each is judged for itself."""
    gained = [view.view for view in evidence.views if _gained(view)]
    if not gained or len(gained) == len([view for view in evidence.views if view.visible is not False]):
        return []
    return [f"on {_everywhere(evidence, gained)} alone it came closer."]


def _nothing(evidence: Evidence) -> list[str]:
    if not evidence.nothing_to_undo:
        return []
    where = _everywhere(evidence, evidence.nothing_to_undo)
    return [
        f"on {where} there was nothing to undo that these outputs show: {words_of(evidence).full} already "
        "answers as retrained models do."
    ]


def _remaining(evidence: Evidence, about: str) -> list[str]:
    """The distance that remains beside the full model's and what two retrainings differ by; the memory."""
    known = [view for view in evidence.views if isinstance(view.distance.value, float)]
    if not known:
        return []
    full = words_of(evidence).full
    distances = _each(evidence, lambda view: _value(view.distance, _number))
    starts = [
        _number(view.displacement.value) for view in known if isinstance(view.displacement.value, float)
    ]
    before = f" ({full}’s: {_once(starts)})" if len(starts) == len(known) else ""
    times = [
        _times(view.distance.value / view.spread)
        for view in known
        if isinstance(view.spread, float) and view.spread > 0 and isinstance(view.distance.value, float)
    ]
    noise = f", {_once(times)} times what two retrainings differ by" if len(times) == len(known) else ""
    found = [f"{about}, its distance to retraining is {distances}{before}{noise}."]
    kept = _each(
        evidence,
        lambda view: (
            f"{_percent(view.memory.value)}{_ends(view.memory.these_models)}"
            if isinstance(view.memory.value, float)
            else ""
        ),
    )
    if kept:
        found.append(f"{_memory_is(full)} is {kept}.")
    return [*found, *_elsewhere(evidence)]


def _memory_is(full: str) -> str:
    return f"memory, the share that is left of the difference between {full} and a retrained one,"


def _elsewhere(evidence: Evidence) -> list[str]:
    """Little memory is no retraining: a model may lose what it knew and answer as no retrained model does."""
    where = [
        view.view
        for view in evidence.views
        if view.view not in evidence.overshoot
        and isinstance(view.memory.value, float)
        and view.memory.value <= evidence.margins.memory
        and isinstance(view.excess.lower, float)
        and isinstance(view.margin, float)
        and view.excess.lower > view.margin
    ]
    if not where:
        return []
    there = _everywhere(evidence, where)
    return [f"little memory is left on {there}, but it does not answer there as retrained models do."]


def _not_equivalent(evidence: Evidence) -> list[str]:
    """Why equivalence is not shown, the reasons that say most first."""
    reasons = [text for _, text in _reasons(evidence)]
    return [f"equivalence is not shown: {'; '.join(reasons[:_REASONS])}."] if reasons else []


def _reasons(evidence: Evidence) -> list[tuple[str, str]]:
    """(condition, why it does not hold), most telling first."""
    oracles = evidence.seeds["oracle"]
    if oracles < LEAST_ORACLES:
        there = f"there {'is' if oracles == 1 else 'are'} {number_word(oracles)}"
        return [("E1", f"it takes at least {number_word(LEAST_ORACLES)} retrained models, and {there}")]
    words = words_of(evidence)
    memory = evidence.margins.memory
    found = []
    if above := _above(evidence, lambda view: view.memory, lambda _: memory, _percent):
        found.append(("E3", f"memory may be as high as {above} ({_percent(memory)} allowed)"))
    if far := _above(evidence, lambda view: view.excess, lambda view: view.margin, _number):
        found.append(
            (
                "E2",
                f"it may be further from retrained models than they are from each other by up to {far} "
                f"({_margins(evidence)})",
            )
        )
    for part in (evidence.retained, *evidence.other_retained):
        if isinstance(part.excess.upper, float) and part.excess.upper > evidence.margins.retained:
            found.append(
                (
                    "E4",
                    f"on {part.name or words.rest} it may be further from retrained models than they are "
                    f"from each other by up to {_number(part.excess.upper)} "
                    f"({_number(evidence.margins.retained)} allowed)",
                )
            )
    for unit in (*evidence.units, *evidence.worst_rows):
        if isinstance(unit.lower, float) and unit.lower > 2 * memory:
            where = f"on {words.where[unit.view]} ({_percent(2 * memory)} allowed in one part)"
            found.append(("E5", f"{short(unit.name)} keeps at least {_percent(unit.lower)} {where}"))
            break
    said = {name for name, _ in found}
    found += [
        (condition.name, plain(condition.text))
        for condition in evidence.conditions
        if condition.holds is not True and condition.name not in said
    ]
    return found


def _margins(evidence: Evidence) -> str:
    margins = (_number(view.margin) for view in evidence.views if isinstance(view.margin, float))
    return f"{_once(margins)} allowed"


def _above(
    evidence: Evidence,
    quantity: Callable[[ViewEvidence], Bounded],
    margin: Callable[[ViewEvidence], float | Undefined],
    style: Callable[[float], str],
) -> str:
    """The upper bounds that are above their margin, with where."""

    def said(view: ViewEvidence) -> str:
        upper, limit = quantity(view).upper, margin(view)
        above = isinstance(upper, float) and isinstance(limit, float) and upper > limit
        return style(upper) if above and isinstance(upper, float) else ""

    return _each(evidence, said)


def _harm(evidence: Evidence) -> str:
    """What was harmed and by how much; where calibration alone was, accuracy's change as well."""
    retained, margins = evidence.retained, evidence.margins
    texts = []
    if "accuracy" in retained.harmed_by:
        texts.append(
            f"accuracy on {counted(retained.rows, 'retained row', 'retained rows')} "
            f"{_moved(retained.change, 'points')}{_levels(retained)} ({margins.accuracy * 100:.3g} points "
            "allowed)"
        )
    if "loss" in retained.harmed_by:
        texts.append(
            f"the loss a token on {retained.name or words_of(retained).rest} "
            f"{_moved(retained.change, 'nats')}{_levels(retained)} ({margins.loss:.3g} allowed)"
        )
    if "calibration" in retained.harmed_by and retained.calibration is not None:
        what = "its" if texts else "the"
        texts.append(
            f"{what} calibration error {_moved(retained.calibration.change, '')} ({margins.calibration:.3g} "
            "allowed)"
        )
    if "accuracy" not in retained.harmed_by and retained.measure == "accuracy":
        texts.append(_changed(retained))
    elif isinstance(retained.retraining, float):
        scale, places = _SCALES[retained.measure]
        what, unit = _MEASURES[retained.measure]
        change = _signed(retained.retraining * scale, places)
        texts.append(f"retraining itself changed {what} by {change} {unit}")
    return "; ".join(texts)


_MEASURES = {"accuracy": ("accuracy", "points"), "loss": ("the loss a token", "nats")}
_SCALES = {"accuracy": (100, 1), "loss": (1, 3)}


def _changed(retained: RetainedEvidence) -> str:
    """`on 1,500 retained rows accuracy changed by -0.3 points [-0.9, +0.2] (retraining itself: -0.1)`."""
    words = words_of(retained)
    where = f"on {counted(retained.rows, words.row, f'{words.row}s')}"
    where += f" of {short(retained.name)}" if retained.name else ""
    change = retained.change
    if isinstance(change.value, Undefined):
        return f"{where} it is not known whether they still work: {plain(change.value.undefined)}"
    scale, places = _SCALES[retained.measure]
    what, unit = _MEASURES[retained.measure]
    text = f"{where} {what} changed by {_signed(change.value * scale, places)} {unit}"
    if isinstance(change.lower, float) and isinstance(change.upper, float):
        low, high = (_signed(end * scale, places) for end in (change.lower, change.upper))
        text += f" [{low}, {high}]"
    if isinstance(retained.retraining, float):
        text += f" (retraining itself: {_signed(retained.retraining * scale, places)})"
    return text


def _levels(retained: RetainedEvidence) -> str:
    if isinstance(retained.full, Undefined) or isinstance(retained.model, Undefined):
        return ""
    if retained.measure == "accuracy":
        return f", from {_percent(retained.full)} to {_percent(retained.model)}"
    return f", from {_number(retained.full)} to {_number(retained.model)}"


def _moved(change: Bounded, unit: str) -> str:
    assert isinstance(change.value, float)
    scale, places = (100, 1) if unit == "points" else (1, 3)
    word = "fell" if change.value < 0 else "rose"
    text = f"{word} by {abs(change.value) * scale:.{places}f}{' ' + unit if unit else ''}"
    if isinstance(change.lower, float) and isinstance(change.upper, float):
        sign = -scale if change.value < 0 else scale
        ends = sorted((change.lower * sign, change.upper * sign))
        text += f" [{ends[0]:.{places}f}, {ends[1]:.{places}f}]"
    return text


def _retained(retained: RetainedEvidence) -> str:
    """`The rest is unharmed: on 1,500 retained rows accuracy changed by -0.3 points [-0.9, +0.2].`"""
    changed = _changed(retained)
    if isinstance(retained.change.value, Undefined):
        return f"{changed}."
    rest = "this text" if retained.name else "the rest"
    meaning = {
        "unharmed": f"{rest} is unharmed",
        "unsettled": f"whether {rest} is unharmed is not settled",
        "damaged": f"{rest} is damaged",
    }[retained.harm]
    return f"{changed}: {meaning}." if retained.name else f"{meaning}: {changed}."


def _beside(verdict: Verdict, evidence: Evidence) -> Iterator[str]:
    words = words_of(evidence)
    if evidence.overshoot:
        where = _everywhere(evidence, evidence.overshoot)
        yield f"on {where} it goes further from {words.full} than retraining does (overshoot)."
    if verdict in ("equivalent", "closer") and "G" not in [view.view for view in evidence.views]:
        yield f"this rests on {words.where['F']} alone, without {words.where['G'].removeprefix('the ')}."
    yield from _probes(evidence)
    if evidence.views and evidence.seeds["unlearned"] == 1:
        yield (
            "only one training run of the unlearned model was given: how another would come out is not known."
        )
    if evidence.views and evidence.seeds["oracle"] == 1:
        yield "only one retrained model was given: how another retraining would come out is not known."


def _probes(evidence: Evidence) -> Iterator[str]:
    """Whether what is said of memory holds when the models are asked in other ways."""
    words = words_of(evidence)
    kept = []
    for probe in evidence.probes:
        if probe.holds is False:
            values = [
                f"{_percent(bounded.value)} on {words.where[view]}"
                for view, bounded in probe.memory.items()
                if isinstance(bounded.value, float)
            ]
            kept.append(f"under {probe.name} it keeps {listed(values)}")
    if kept:
        yield f"asked in other ways it remembers more than the margin allows: {listed(kept)}."
    held = [probe.name for probe in evidence.probes if probe.holds is True]
    if held:
        yield f"under {listed(held)}, too, no more than the margin is left of {words.full}."
    unsettled = [probe.name for probe in evidence.probes if probe.holds is None]
    if unsettled:
        yield f"whether that holds under {listed(unsettled)} is not settled."


# Numbers and places.


def _everywhere(evidence: Evidence, views: Sequence[View]) -> str:
    """The views' rows in words, with `and` between them."""
    words = words_of(evidence)
    return listed([words.where[view] for view in views])


def _each(evidence: Evidence, text: Callable[[ViewEvidence], str]) -> str:
    """`a on the deleted rows and b on the unseen rows`; views with an empty text are left out."""
    words = words_of(evidence)
    where = words.where
    found = [(text(view), view) for view in evidence.views]
    if len(found) > 1 and len({said for said, _ in found}) == 1 and found[0][0]:
        return f"{found[0][0]} on {words.both}"
    return listed([f"{said} on {where[view.view]}" for said, view in found if said])


def _once(texts: Iterable[str]) -> str:
    """`0.05` where all are alike, else `0.05 and 0.06`."""
    return listed(list(dict.fromkeys(texts)))


def _way(share: float | Undefined) -> str:
    return "" if isinstance(share, Undefined) else way_words(share)


def _value(bounded: Bounded, style: Callable[[float], str]) -> str:
    return "" if isinstance(bounded.value, Undefined) else style(bounded.value)


def _at_most(bounded: Bounded, style: Callable[[float], str]) -> str:
    return "" if isinstance(bounded.upper, Undefined) else style(max(bounded.upper, 0.0))


def _ends(interval: Interval | Undefined) -> str:
    if isinstance(interval, Undefined):
        return ""
    return f" [{_whole(interval.low * 100)}, {_whole(interval.high * 100)}]"


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= 0.095 else _positive(f"{value:.3f}")


def _times(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{_whole(value * 100)} %"


def _whole(value: float) -> str:
    return _positive(f"{value:.0f}")


def _signed(value: float, places: int) -> str:
    """With its sign, but none for a value that rounds to zero."""
    text = f"{value:+.{places}f}"
    return text if text.strip("+-0.") else text[1:]


def _positive(text: str) -> str:
    """Without the sign of a value that rounds to zero."""
    return text if text.strip("-0.") else text.removeprefix("-")
