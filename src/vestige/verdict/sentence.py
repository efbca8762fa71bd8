"""The verdict in words: what was shown, what a model at the margin may still keep, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vestige.contracts import (
    Bounded,
    Evidence,
    Interval,
    RetainedEvidence,
    Undefined,
    Verdict,
    View,
    ViewCount,
)
from vestige.verdict.words import words_of

__all__ = ["retained_sentences", "sentence"]

_NOUNS = {"class": ("intent", "intents"), "association": ("sub-intent", "sub-intents")}


def sentence(
    verdict: Verdict,
    evidence: Evidence,
    *,
    label: str,
    counts: Mapping[View, ViewCount],
    unit_kind: str = "class",
) -> str:
    """Full sentences that state the verdict on the model `label` and what it rests on.

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
    }[verdict](evidence, f"“{label}”", about)
    parts += list(_beside(verdict, evidence))
    return " ".join(part[0].upper() + part[1:] for part in parts if part)


def _rows(counts: Mapping[View, ViewCount], unit_kind: str) -> str:
    parts = []
    noun = _NOUNS.get(unit_kind)
    if "F" in counts:
        parts.append(_counted(counts["F"].rows, "deleted training row", "deleted training rows"))
    if "G" in counts:
        rows = _counted(counts["G"].rows, "unseen row", "unseen rows")
        units = counts["F"].units if "F" in counts else counts["G"].units
        parts.append(
            f"{rows} of the {_counted(units, f'deleted {noun[0]}', f'deleted {noun[1]}')}"
            if noun
            else f"{rows} like them"
        )
    return f"on {_listed(parts)}"


def _texts(counts: Mapping[View, ViewCount]) -> str:
    nouns: dict[View, tuple[str, str]] = {
        "F": ("forget document", "forget documents"),
        "G": ("unseen document", "unseen documents"),
    }
    return f"on {_listed([_counted(counts[view].rows, *nouns[view]) for view in nouns if view in counts])}"


def _equivalent(evidence: Evidence, name: str, about: str) -> list[str]:
    oracles = evidence.seeds["oracle"]
    distances = _each(evidence, lambda view: _at_most(view.excess, _number))
    margins = _each(evidence, lambda view: "" if isinstance(view.margin, Undefined) else _number(view.margin))
    found = [
        f"{about}, {name} lies where {oracles} retrained models lie: beyond what two of them differ by, its "
        f"distance to them is at most {distances} (upper 95 % bounds; {margins} allowed).",
    ]
    kept = _each(evidence, lambda view: "" if view.visible is False else _at_most(view.memory, _percent))
    if kept:
        found.append(
            f"Of what told {words_of(evidence).full} from retraining it keeps at most {kept} "
            f"({_percent(evidence.margins.memory)} allowed). {_admits(evidence)}"
        )
    if evidence.nothing_to_undo:
        where = _everywhere(evidence, evidence.nothing_to_undo)
        full = words_of(evidence).full
        found.append(f"On {where} so does {full}: there was nothing to undo that these outputs show.")
    return [*found, *retained_sentences(evidence)]


def _admits(evidence: Evidence) -> str:
    """What a model exactly at the memory margin may still keep, in probability of the right answer."""
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
        f"A model exactly at this margin may still give {words.right} a mean probability of {_listed(texts)}."
    )


def _closer(evidence: Evidence, name: str, about: str) -> list[str]:
    share = evidence.share
    way = "" if isinstance(share, Undefined) else f", {_percent(share)} of the way"
    full = words_of(evidence).full
    found = [f"{about}, {name} is closer to retraining than {full}{way}; equivalence is not shown."]
    found += _remaining(evidence)
    if evidence.nothing_to_undo:
        where = _everywhere(evidence, evidence.nothing_to_undo)
        found.append(f"On {where} there was nothing to undo that these outputs show.")
    return [*found, *retained_sentences(evidence), *_not_equivalent(evidence)]


def _not_closer(evidence: Evidence, name: str, about: str) -> list[str]:
    words = words_of(evidence)
    on = f" on {words.both}" if len(evidence.views) > 1 else ""
    if evidence.away:
        first = f"{about}, {name} did not come closer to retraining{on}."
    else:
        least = _each(
            evidence, lambda view: "" if isinstance(view.least_gain, Undefined) else _number(view.least_gain)
        )
        first = (
            f"{about}, {name} is not closer to retraining than {words.full}: these {words.rows} would have "
            f"shown a gain of {least} with 80 % power, and none is shown{on}."
        )
    return [first, *_remaining(evidence), *retained_sentences(evidence)]


def _damaged(evidence: Evidence, name: str, about: str) -> list[str]:
    retained = evidence.retained
    found = [f"{name} is damaged: {_harm(retained)}.", *map(_retained, evidence.other_retained)]
    if evidence.views:
        share = evidence.share
        if not isinstance(share, Undefined) and share > 0:
            found.append(f"{about}, it went {_percent(share)} of the way to retraining.")
        found += _remaining(evidence)
    else:
        found.append("Fidelity to retraining cannot be assessed: no retrained model was given.")
    return found


def _undetermined(evidence: Evidence, name: str, about: str) -> list[str]:
    missing = "; ".join(evidence.missing)
    found = [f"{about}, nothing is shown about {name} that would settle it. What is missing: {missing}."]
    return [*found, *_remaining(evidence), *retained_sentences(evidence)]


def retained_sentences(evidence: Evidence) -> list[str]:
    """A sentence on each retained text: what it lost, and whether that is harm."""
    return [_retained(part) for part in (evidence.retained, *evidence.other_retained)]


def _harm(retained: RetainedEvidence) -> str:
    texts = []
    if "accuracy" in retained.harmed_by:
        texts.append(f"retained accuracy {_moved(retained.change, 'points')}{_levels(retained)}")
    if "loss" in retained.harmed_by:
        texts.append(
            f"the loss a token on {retained.name or words_of(retained).rest} "
            f"{_moved(retained.change, 'nats')}{_levels(retained)}"
        )
    if "calibration" in retained.harmed_by and retained.calibration is not None:
        texts.append(f"its calibration error {_moved(retained.calibration.change, '')}")
    if not isinstance(retained.retraining, Undefined):
        texts.append(
            f"retraining itself changed it by {retained.retraining * 100:+.1f} points"
            if retained.measure == "accuracy"
            else f"retraining itself changed it by {retained.retraining:+.3f} nats"
        )
    return "; ".join(texts)


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
        ends = sorted((abs(change.lower) * scale, abs(change.upper) * scale))
        text += f" [{ends[0]:.{places}f}, {ends[1]:.{places}f}]"
    return text


def _retained(retained: RetainedEvidence) -> str:
    change = retained.change
    if isinstance(change.value, Undefined):
        return f"Whether the rest still works is not known: {change.value.undefined}."
    if retained.measure == "accuracy":
        text = f"retained accuracy changed by {change.value * 100:+.1f} points"
        ends = (
            f" [{change.lower * 100:+.1f}, {change.upper * 100:+.1f}]"
            if isinstance(change.lower, float) and isinstance(change.upper, float)
            else ""
        )
    else:
        text = f"the loss a token changed by {change.value:+.3f} nats"
        ends = (
            f" [{change.lower:+.3f}, {change.upper:+.3f}]"
            if isinstance(change.lower, float) and isinstance(change.upper, float)
            else ""
        )
    rest = "it" if retained.name else "the rest"
    meaning = {
        "unharmed": f"{rest} is unharmed",
        "unsettled": f"whether {rest} is unharmed is not settled",
        "damaged": f"{rest} is damaged",
    }[retained.harm]
    words = words_of(retained)
    where = f"{retained.rows} {words.row}{'s' if retained.rows != 1 else ''}"
    if retained.measure == "loss":
        where += f" of {retained.name or words.rest}"
    return f"On {where} {text}{ends}: {meaning}."


def _remaining(evidence: Evidence) -> list[str]:
    """The distance that remains, as a multiple of what two retrainings differ by, and the memory left."""
    texts = []
    where = words_of(evidence).where
    for view in evidence.views:
        if isinstance(view.distance.value, Undefined):
            continue
        text = f"{_number(view.distance.value)} on {where[view.view]}"
        if isinstance(view.spread, float) and view.spread > 0:
            text += f", {view.distance.value / view.spread:.1f} times what two retrainings differ by"
        if isinstance(view.memory.value, float):
            text += f", memory {_percent(view.memory.value)}{_ends(view.memory.these_models)}"
        texts.append(text)
    return [f"The remaining distance to retraining is {'; '.join(texts)}."] if texts else []


def _not_equivalent(evidence: Evidence) -> list[str]:
    """Why equivalence is not shown: the conditions that fail or cannot be judged, at most two."""
    failed = [condition.text for condition in evidence.conditions if condition.holds is not True]
    return [f"Equivalence: {'; '.join(failed[:2])}."] if failed else []


def _beside(verdict: Verdict, evidence: Evidence) -> Iterator[str]:
    words = words_of(evidence)
    if evidence.away:
        where = _everywhere(evidence, evidence.away)
        yield (
            f"It moved away from retraining on {where}: the distance is shown to be larger than that of "
            f"{words.full}."
        )
    if evidence.overshoot:
        where = _everywhere(evidence, evidence.overshoot)
        yield f"On {where} it goes further from {words.full} than retraining does (overshoot)."
    if verdict in ("equivalent", "closer") and "G" not in [view.view for view in evidence.views]:
        yield f"This rests on {words.where['F']} alone: no {words.where['G'].removeprefix('the ')} was given."
    yield from _probes(evidence)
    if verdict != "damaged" and evidence.views:
        if evidence.seeds["unlearned"] == 1:
            yield "One training run of the unlearned model: how another would come out is not known."
        if evidence.seeds["oracle"] == 1:
            yield "Against one retraining: how another retraining would come out is not known."


def _everywhere(evidence: Evidence, views: Sequence[View]) -> str:
    """The views' rows in words, with `and` between them."""
    words = words_of(evidence)
    return _listed([words.where[view] for view in views])


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
            kept.append(f"under {probe.name} it keeps {_listed(values)}")
    if kept:
        yield f"Asked in other ways it remembers more than the margin allows: {_listed(kept)}."
    held = [probe.name for probe in evidence.probes if probe.holds is True]
    if held:
        yield f"That little of the full model is left holds under {_listed(held)}, too."
    unsettled = [probe.name for probe in evidence.probes if probe.holds is None]
    if unsettled:
        yield f"Under {_listed(unsettled)} it is not settled."


def _each(evidence: Evidence, text: object) -> str:
    """`a on the deleted rows and b on the unseen rows`; views with an empty text are left out."""
    assert callable(text)
    where = words_of(evidence).where
    found = [(text(view), view) for view in evidence.views]
    return _listed([f"{words} on {where[view.view]}" for words, view in found if words])


def _at_most(bounded: Bounded, style: object) -> str:
    assert callable(style)
    if isinstance(bounded.upper, Undefined):
        return ""
    return str(style(max(bounded.upper, 0.0)))


def _ends(interval: Interval | Undefined) -> str:
    if isinstance(interval, Undefined):
        return ""
    return f" [{interval.low * 100:.0f}, {interval.high * 100:.0f}]"


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= 0.095 else f"{value:.3f}"


def _percent(value: float) -> str:
    return f"{value * 100:.0f} %".replace("-0 %", "0 %") if abs(value) < 0.005 else f"{value * 100:.0f} %"


def _counted(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""
