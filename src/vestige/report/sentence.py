"""The result in words that hold up: the verdict, what the published rule says, and what was not tested."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vestige.attacks.records import RecoveryRecord
from vestige.contracts import Assessment, Estimate, Interval, ModelAssessment, Undefined
from vestige.errors import InputError, did_you_mean
from vestige.report.measures import (
    change,
    few_units,
    first_full,
    measure,
    noise,
    remaining,
    row_interval,
    starting,
    value_of,
    view_count,
)
from vestige.report.recovered import recovery_sentence
from vestige.report.words import (
    conditions,
    counted,
    estimate_text,
    interval_text,
    listed,
    plain,
    short,
    styled,
    unit_noun,
    unit_words,
    view_words,
)
from vestige.statistics.decision_rules import MARGIN, TOLERANCE

__all__ = ["MADE_BEFORE", "Told", "parted", "sentence", "stage_words", "told"]

MADE_BEFORE = "judged by the published rule; made before verdicts existed"
"""What stands in place of a verdict in older records."""

_STAGES = {
    "pilot": "This was a pilot with settings as they come, not a confirmation.",
    "development": "This was development, on the rows that settings were chosen with, not a confirmation.",
    "screening": "This was a screening: nothing is corrected for the number of models tried.",
    "exploratory": "This was exploratory: choices were made after seeing results.",
    "excluded": "This result is excluded from conclusions.",
}


@dataclass(frozen=True, kw_only=True)
class Told:
    """What is said of one model. answer: the first sentence. rest: what it rests on. limits: what the finding
    is not, each a sentence. published: what the published rule says, in a paragraph of its own.

    `str()` joins all but the last.
    """

    answer: str
    rest: str = ""
    limits: tuple[str, ...] = ()
    published: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.answer, self.rest, *self.limits) if part)


def sentence(assessment: Assessment, label: str, recovery: RecoveryRecord | None = None) -> str:
    """The verdict on the model `label`, with its conditions. Raises InputError for an unknown label."""
    return str(told(assessment, label, recovery))


def told(assessment: Assessment, label: str, recovery: RecoveryRecord | None = None) -> Told:
    """What is said of the model `label`. recovery: of this checkpoint, None: not tested.

    Raises InputError for an unknown label.
    """
    try:
        model = assessment.model_named(label)
    except KeyError:
        labels = [item.label for item in assessment.models]
        raise InputError(
            f"model {short(label)}", "no such model", "a label of the assessment", did_you_mean(label, labels)
        ) from None
    if model.role == "full":
        return Told(
            answer=f"{_quoted(model)} is the full model, before unlearning: it is where the others start."
        )
    if model.role == "oracle":
        what = "is retrained without the deleted rows: it is what the others are held to."
        return Told(answer=f"{_quoted(model)} {what}")
    published = _published(assessment, model)
    limits = (*_stage(assessment), recovery_sentence(recovery))
    if model.verdict is None:
        before = f"{_quoted(model)} was judged by the published rule: its record is older than verdicts."
        if not assessment.has_oracle:
            published += (
                " Fidelity to retraining cannot be assessed: no model retrained without the deleted rows was "
                "given."
            )
        return Told(answer=before, rest=published, limits=limits)
    answer, rest = parted(plain(model.sentence))
    if not assessment.has_oracle:
        return Told(answer=answer, rest=f"{rest} {published}".strip(), limits=limits)
    return Told(answer=answer, rest=rest, limits=limits, published=published)


def parted(text: str) -> tuple[str, str]:
    """The first sentence and the others. A label in it may have full stops of its own."""
    end = re.compile(r"(?<=[.])\s+(?=[A-Z“])").search(text, text.rfind("”") + 1)
    return (text, "") if end is None else (text[: end.start()], text[end.end() :])


def _published(assessment: Assessment, model: ModelAssessment) -> str:
    """The published rule's finding in words; without a retrained model, where the probability is now."""
    if not assessment.has_oracle:
        return _without_oracle(assessment, model)
    parts = (
        _measured(assessment, model),
        _decision(assessment, model),
        *_unstable(assessment, model),
        *_coarse(assessment, model),
        *_gate(assessment),
    )
    return " ".join(parts)


def stage_words(stage: str) -> str:
    """What a stage means for how far its result carries; empty where it needs no warning."""
    return _STAGES.get(stage, "")


def _quoted(model: ModelAssessment) -> str:
    return f"“{short(model.label)}”"


def _named(model: ModelAssessment) -> str:
    return f"the {'control' if model.control else 'unlearned model'} {_quoted(model)}"


def _rows(assessment: Assessment) -> str:
    """`On 428 deleted training rows and 160 unseen rows of the 4 deleted intents`."""
    deleted, unseen = view_count(assessment, "F"), view_count(assessment, "G")
    kind = assessment.unit_kind
    parts = []
    if deleted is not None:
        parts.append(counted(deleted.rows, "deleted training row", "deleted training rows"))
    if unseen is not None:
        rows = counted(unseen.rows, "unseen row", "unseen rows")
        if kind in ("class", "association", "cluster") and deleted is not None:
            parts.append(f"{rows} of the {unit_words(kind, deleted.units)}")
        else:
            parts.append(f"{rows} like {'them' if parts else 'the deleted ones'}")
    return f"On {listed(parts)}"


def _utility(assessment: Assessment, model: ModelAssessment) -> str:
    accuracy, ece = change(assessment, model, "accuracy"), change(assessment, model, "ece")
    if accuracy is None or ece is None:
        return "retained accuracy and calibration error were not measured"
    if isinstance(accuracy.value, Undefined) or isinstance(ece.value, Undefined):
        reasons = {str(item.value) for item in (accuracy, ece) if isinstance(item.value, Undefined)}
        return f"the change of retained accuracy or calibration error is {listed(sorted(reasons))}"
    return (
        f"retained accuracy changed by {styled(accuracy.value, 'points')} points and calibration error by "
        f"{styled(ece.value, 'signed')}"
    )


def _measured(assessment: Assessment, model: ModelAssessment) -> str:
    if model.decision == "displacement within noise":
        return _within_noise(assessment, model)
    progress = {view: measure(model, "progress", view) for view in ("F", "G")}
    known = {view: item for view, item in progress.items() if item is not None}
    lost = {view: item.value.undefined for view, item in known.items() if isinstance(item.value, Undefined)}
    utility = _utility(assessment, model)
    retrained = "a model retrained without them"
    if not known:
        return f"{_rows(assessment)}, progress was not measured; {utility}."
    if lost:
        where = listed([f"{view_words(view, assessment.unit_kind)} ({why})" for view, why in lost.items()])
        rest = [
            f"{estimate_text(item, 'percent')} on {view_words(view, assessment.unit_kind)}"
            for view, item in known.items()
            if view not in lost
        ]
        how = _interval_conditions(*(item for view, item in known.items() if view not in lost))
        also = f"; it closed {rest[0]} ({how})" if rest else ""
        return (
            f"{_rows(assessment)}, the share of its distance to {retrained} that {_named(model)} closed is "
            f"undefined on {where}{also}; {utility}."
        )
    worse = [view for view in known if (_gain(model, view) or 0.0) <= 0]
    texts = [estimate_text(item, "percent") for item in known.values()]
    how = _interval_conditions(*known.values())
    if not worse:
        return (
            f"{_rows(assessment)}, {_named(model)} closed {listed(texts)} of its distance to {retrained} "
            f"({how}); {utility}."
        )
    where = (
        "either of the two"
        if len(worse) == len(known) == 2
        else listed([f"the {view_words(view, assessment.unit_kind)}" for view in worse])
    )
    return (
        f"{_rows(assessment)}, {_named(model)} did not come closer to {retrained} on {where}: progress was "
        f"{listed(texts)} ({how}); {utility}."
    )


def _gain(model: ModelAssessment, view: str) -> float | None:
    gain = value_of(measure(model, "gain", view))
    return gain if gain is not None else value_of(measure(model, "progress", view))


def _interval_conditions(*estimates: Estimate) -> str:
    """Conditions of the row intervals; stated once when they agree."""
    texts = list(dict.fromkeys(conditions(item.row) for item in estimates))
    return "; ".join(texts)


def _decision(assessment: Assessment, model: ModelAssessment) -> str:
    decision = model.decision
    if isinstance(decision, Undefined):
        return f"Published rule: no decision, {plain(decision.undefined)}."
    reason = ""
    if decision == "positive, unconfirmed":
        views = [
            f"the {view_words(view, assessment.unit_kind)}"
            for view in ("F", "G")
            if (bounds := row_interval(measure(model, "gain", view))) is not None and bounds.low <= 0
        ]
        if views:
            reason = f": the interval of the gain reaches zero on {listed(views)}"
    elif decision == "infeasible":
        reason = _infeasible(assessment, model)
    return f"Published rule: {decision}{reason}."


def _infeasible(assessment: Assessment, model: ModelAssessment) -> str:
    accuracy = value_of(change(assessment, model, "accuracy"))
    ece = value_of(change(assessment, model, "ece"))
    reasons = []
    if accuracy is not None and accuracy < -MARGIN - TOLERANCE:
        reasons.append("retained accuracy fell by more than the 2 points allowed")
    if ece is not None and ece > MARGIN + TOLERANCE:
        reasons.append("calibration error rose by more than the 0.02 allowed")
    return f": {listed(reasons)}" if reasons else ""


def _within_noise(assessment: Assessment, model: ModelAssessment) -> str:
    """The measured part where the intervention gate stopped: nothing to close that stands out from noise."""
    failed: list[tuple[str, float, float]] = []
    for view in ("F", "G"):
        start, floor = value_of(starting(assessment, view)), value_of(noise(assessment, "full", view))
        if start is not None and floor is not None and start <= 2 * floor:
            failed.append((view_words(view, assessment.unit_kind), start, floor))
    why = ""
    if failed:
        starts = listed([styled(start, "number") for _, start, _ in failed])
        floors = listed([styled(floor, "number") for _, _, floor in failed])
        why = (
            f": on the {listed([words for words, _, _ in failed])} the full model is {starts} from a model "
            f"retrained without them, not more than twice what two full trainings differ by ({floors})"
        )
    text = f"{_rows(assessment)}, there is nothing to close that can be told from training noise{why}."
    left = [item for view in ("F", "G") if (item := remaining(model, view)) is not None]
    name = _named(model)
    if left:
        distances = listed([estimate_text(item, "number") for item in left])
        text += (
            f" {name[0].upper()}{name[1:]} is {distances} from the retrained model "
            f"({_interval_conditions(*left)}); {_utility(assessment, model)}."
        )
    return text


def _unstable(assessment: Assessment, model: ModelAssessment) -> tuple[str, ...]:
    texts = []
    for view in ("F", "G"):
        progress = measure(model, "progress", view)
        if progress is None or not progress.unstable:
            continue
        start = value_of(starting(assessment, view))
        size = f", {styled(start, 'number')}," if start is not None else ""
        texts.append(
            f"Progress on the {view_words(view, assessment.unit_kind)} is unstable: the distance it is a "
            f"share of{size} is small."
        )
    return tuple(texts)


def _coarse(assessment: Assessment, model: ModelAssessment) -> tuple[str, ...]:
    units = few_units(assessment)
    if units is None:
        return ()
    noun = unit_noun(assessment.unit_kind)
    many = unit_words(assessment.unit_kind, units)
    estimates = [item for view in ("F", "G") if (item := measure(model, "progress", view)) is not None]
    bounds = [interval_text(item.unit, "percent") for item in estimates if isinstance(item.unit, Interval)]
    if units > 1 and bounds:
        return (f"With {many}, intervals over {noun} are coarse: {listed(bounds)}.",)
    return (f"With {many}, no interval over {noun} is stated.",)


def _gate(assessment: Assessment) -> tuple[str, ...]:
    if "not run" not in assessment.intervention_gate:
        return ()
    return ("Gate not run: what two full trainings differ by is not known.",)


def _stage(assessment: Assessment) -> tuple[str, ...]:
    text = stage_words(assessment.stage)
    return (text,) if text else ()


def _without_oracle(assessment: Assessment, model: ModelAssessment) -> str:
    """What can be said without a retrained model: where probability is now, and the utility."""
    deleted = counted(len(assessment.forgotten), "deleted intent", "deleted intents")
    metric, what = (
        ("forgotten_mass", f"to the {deleted}")
        if assessment.forgotten
        else (
            "gold_probability",
            "to the right option",
        )
    )
    full = first_full(assessment)
    after = [item for view in ("F", "G") if (item := measure(model, metric, view)) is not None]
    before = [
        item for view in ("F", "G") if full is not None and (item := measure(full, metric, view)) is not None
    ]
    utility = _utility(assessment, model)
    if not after:
        return f"{_rows(assessment)}, where probability went was not measured; {utility}."
    now = listed([estimate_text(item, "ratio") for item in after])
    then = f", the full model {listed([_bare(item) for item in before])}" if before else ""
    return (
        f"{_rows(assessment)}, {_named(model)} gives {what} a mean probability of {now}{then} "
        f"({_interval_conditions(*after)}); {utility}."
    )


def _bare(estimate: Estimate) -> str:
    return str(estimate.value) if isinstance(estimate.value, Undefined) else styled(estimate.value, "ratio")
