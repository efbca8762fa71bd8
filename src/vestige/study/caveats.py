"""What has to be said beside a result: one sentence for each limit that applies to it. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from vestige.contracts import Assessment, Estimate, Interval, ModelAssessment, Undefined
from vestige.decision.predictions import Predictions
from vestige.errors import shown
from vestige.verdict.evidence import LEAST_ORACLES

__all__ = ["FEW_DRAWS", "FEW_ROWS", "FEW_UNITS", "Circumstances", "caveats", "notices", "top_k"]

FEW_UNITS = 10
"""Below this many deleted units, intervals over units are coarse."""
FEW_ROWS = 30
"""Below this many rows in a view, percentile intervals are only roughly right."""
FEW_DRAWS = 1000
TOP_K_ROWS = 10
"""From this many rows on, the same number of options above 0 in each of them is no accident."""
VISIBLE_DEVIATION = 1e-6
NOUNS = {"class": "deleted intents", "association": "deleted sub-intents", "cluster": "deleted sub-intents"}


@dataclass(frozen=True)
class Circumstances:
    """How the models of an assessment in a study came about, as far as a reader has to know it.

    seed: of training. left_out: label -> why a method that was tuned is not evaluated; same: label -> the one
    under which its settings are evaluated. start: sentences on the weights that training starts from. failed:
    (unit, reason) of deleted units that failed the acquisition gate at this seed; drawn_by_another: whether
    another model's gate chose them, else that of seed `primary`. held_out: deleted rows that tuning read.
    renamed: sentences on a bundle label that stood for other units; notes: of the request. scale: of the
    study, with what stands in for its own data and model.
    """

    seed: int
    left_out: Mapping[str, str] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    start: Sequence[str] = ()
    failed: Sequence[tuple[str, str]] = ()
    drawn_by_another: bool = False
    primary: int = 0
    held_out: int = 0
    renamed: Sequence[str] = ()
    notes: Sequence[str] = ()
    scale: str = ""
    train_rows: int = 0
    backbone: str = ""


def notices(found: Circumstances) -> tuple[str, ...]:
    """The circumstances in sentences, those that apply."""
    told = [f"{label} was tuned and is not evaluated: {why}." for label, why in found.left_out.items()]
    told += [
        f"{label} has the settings of {other} and is evaluated once, under that name."
        for label, other in found.same.items()
    ]
    told += found.start
    if found.failed:
        chooser = "by the gate of another model" if found.drawn_by_another else f"at seed {found.primary}"
        units = ", ".join(f"{unit} ({reason})" for unit, reason in found.failed)
        told.append(
            f"{len(found.failed)} deleted unit(s) failed the acquisition gate at training seed {found.seed}; "
            f"they were chosen {chooser} and stay in: {units}."
        )
    if found.held_out:
        told.append(
            f"{found.held_out} deleted rows were read by tuning and are left out of F; "
            "settings were tuned on this request itself."
        )
    told += found.renamed
    told += [f"{note[0].upper()}{note[1:]}." for note in found.notes]
    if found.scale:
        told.append(
            f"Run at scale {found.scale}: {found.train_rows:,} training rows and {found.backbone} stand in "
            "for the study's own data and models; this is no reproduction of it."
        )
    return tuple(told)


def caveats(
    assessment: Assessment, tables: Sequence[Predictions], *, exceptions: Sequence[str] = ()
) -> tuple[str, ...]:
    """Every caveat that applies, the gravest first. tables: all models' rows, aligned, the full model first.

    exceptions: gate exceptions in sentences, stated as they are.
    """
    found = [
        *_oracle(assessment),
        *_gate(assessment),
        *_displacement(assessment),
        *exceptions,
        *_same(assessment),
        *_inputs(assessment, tables),
        *_unnamed(assessment, tables[0]),
        *_size(assessment),
        *_units(assessment, tables[0]),
        *_intervals(assessment),
        *_seeds(assessment),
        *_power(assessment),
        *_tests(assessment),
        *_geometry(assessment),
        *_untested(assessment),
    ]
    return tuple(dict.fromkeys(found))


def top_k(table: Predictions) -> int | None:
    """k where every one of ten or more rows has exactly the same k < C options above 0, else None.

    Such a table was cut to the best options: a softmax over all of them has no exact zeros.
    """
    above = (table.p > 0).sum(axis=1)
    k = int(above[0])
    cut = len(table) >= TOP_K_ROWS and k < len(table.options) and bool((above == k).all())
    return k if cut else None


def _tested(assessment: Assessment) -> list[ModelAssessment]:
    return [model for model in assessment.models if model.role == "unlearned"]


def _oracle(assessment: Assessment) -> Iterator[str]:
    if not assessment.has_oracle:
        yield (
            "No retrained model was given: fidelity to retraining cannot be assessed. What is shown is how "
            "much probability left the deleted options and where it went."
        )


def _gate(assessment: Assessment) -> Iterator[str]:
    """The published rule's gate. The verdict judges F and G each for itself, against its own noise."""
    if not assessment.has_oracle:
        return
    if "not run" in assessment.intervention_gate:
        yield (
            "The intervention gate of the published rule was not run: with one full model, what two full "
            "trainings differ by is unknown."
        )
    elif "within noise" in assessment.intervention_gate:
        full = assessment.models[0]
        within: list[str] = []
        beyond: list[str] = []
        for view in ("F", "G"):
            start = full.metrics.get(f"displacement.{view}")
            floor = assessment.noise.get(f"noise_full.{view}")
            if start is None or floor is None:
                continue
            far, noise = _number(start), _number(floor)
            text = f"{far:.3f} on {view}, two full trainings {noise:.3f}"
            (within if far <= 2 * noise else beyond).append(text)
        rest = f" It is beyond that noise: {'; '.join(beyond)}." if beyond else ""
        yield (
            f"Displacement within training noise, at most twice what two full trainings differ by: "
            f"{'; '.join(within)}. The published rule accepts no model on this request.{rest}"
        )


def _displacement(assessment: Assessment) -> Iterator[str]:
    full = assessment.models[0]
    for view in ("F", "G"):
        start = full.metrics.get(f"displacement.{view}")
        progress = [model.metrics.get(f"progress.{view}") for model in _tested(assessment)]
        if start is None or not any(item is not None and item.unstable for item in progress):
            continue
        yield (
            f"Progress on {view} is unstable: it is a share of a small displacement, {_number(start):.3f}. "
            "Read the distances instead."
        )


def _same(assessment: Assessment) -> Iterator[str]:
    for first, second in combinations(assessment.sources, 2):
        if first.sha256 == second.sha256:
            yield (
                f"{shown(first.label)} ({first.role}) and {shown(second.label)} ({second.role}) have the "
                "same probabilities on every row."
            )


def _inputs(assessment: Assessment, tables: Sequence[Predictions]) -> Iterator[str]:
    worst = max(assessment.sources, key=lambda source: source.max_sum_deviation)
    if worst.max_sum_deviation > VISIBLE_DEVIATION:
        yield (
            f"Probabilities were rescaled to sum to 1: off by up to {worst.max_sum_deviation:.2g}, in "
            f"{shown(worst.label)}."
        )
    for table in tables:
        k = top_k(table)
        if k is not None:
            yield (
                f"{shown(table.label)} has exactly {k} of {len(table.options)} options above 0 in every row: "
                "if it was cut to its best options, its distances are wrong."
            )


def _unnamed(assessment: Assessment, first: Predictions) -> Iterator[str]:
    """A class deletion whose deleted options were not named."""
    deleted = first.view != "R"
    if assessment.forgotten or assessment.unit_kind != "class" or not deleted.any():
        return
    whole = (first.unit[deleted] == first.gold[deleted]).all()
    if whole and not set(first.gold[deleted]) & set(first.gold[~deleted]):
        count = len(set(first.gold[deleted]))
        yield (
            f"Every F and G row's unit is its gold option, so {count} option(s) seem to have been deleted, "
            "but none was named: forgotten mass, suppression and where it went are missing (name them with "
            "--forget)."
        )


def _size(assessment: Assessment) -> Iterator[str]:
    for item in assessment.views:
        if item.rows < FEW_ROWS:
            yield f"View {item.view} has {item.rows} row(s): its intervals are wide and only roughly right."
    if assessment.draws < FEW_DRAWS:
        draws = "1 draw" if assessment.draws == 1 else f"{assessment.draws} draws"
        yield f"Only {draws}: the bounds of the intervals are rough."


def _units(assessment: Assessment, first: Predictions) -> Iterator[str]:
    if assessment.unit_kind == "row":
        return
    count = {item.view: item.units for item in assessment.views}
    noun = NOUNS.get(assessment.unit_kind, f"deleted values of {shown(assessment.unit_kind)}")
    if min(count["F"], count["G"]) < FEW_UNITS:
        yield (
            f"Few {noun} (F {count['F']}, G {count['G']}): intervals over them are coarse, and say little "
            "about others that could have been deleted."
        )
    deleted, unseen = (set(first.unit[first.view == view]) for view in ("F", "G"))
    if deleted - unseen:
        yield f"{len(deleted - unseen)} of {len(deleted)} {noun} have no unseen rows in G."
    if unseen - deleted:
        yield f"{len(unseen - deleted)} unit(s) of G have no deleted rows in F."


def _intervals(assessment: Assessment) -> Iterator[str]:
    yield (
        "Intervals named rows are about these models and other rows like these; F is every row that was "
        "deleted, so for those very rows there is no sampling error. Only intervals named trainings cover "
        "another training run, and none covers another choice of what to delete."
    )
    yield (
        "Intervals of the published rule are percentile bootstraps over the rows of one pair of models, "
        f"conditional on {assessment.condition}."
    )


def _seeds(assessment: Assessment) -> Iterator[str]:
    counts = {
        role: [source.label for source in assessment.sources if source.role == role]
        for role in ("full", "oracle")
    }
    if max(map(len, counts.values())) > 1:
        full = counts["full"][0]
        pair = f"{shown(full)} with {shown(counts['oracle'][0])}" if counts["oracle"] else shown(full)
        yield (
            f"The verdict reads all full models ({len(counts['full'])}) and retrained models "
            f"({len(counts['oracle'])}) alike; the published rule compares {pair} and takes the others for "
            "its noise floors."
        )
    oracles = len(counts["oracle"])
    if 0 < oracles < LEAST_ORACLES:
        unknown = "What two retrainings differ by is unknown: one retrained model. " if oracles == 1 else ""
        yield (
            f"{unknown}Equivalence to retraining cannot be judged: it needs at least {LEAST_ORACLES} "
            f"retrained models, there {'is' if oracles == 1 else 'are'} {oracles}."
        )


def _power(assessment: Assessment) -> Iterator[str]:
    """The largest over the models: a gain of this size would be found for each of them."""
    known = []
    for view in ("F", "G"):
        sizes = [
            side.least_gain
            for model in _tested(assessment)
            for side in (model.evidence.views if model.evidence else ())
            if side.view == view and isinstance(side.least_gain, float)
        ]
        known += [f"{max(sizes):.3f} on {view}"] if sizes else []
    if known:
        yield (
            f"A true gain below {' and '.join(known)} could not have been told from none, for each of "
            "these models and with these rows (80 % power for both kinds of row together)."
        )


def _untested(assessment: Assessment) -> Iterator[str]:
    """Ways of asking that this record does not hold. Recovery is said by whoever knows of it."""
    asked = {
        probe.name.partition(" ")[0]
        for model in _tested(assessment)
        for probe in (model.evidence.probes if model.evidence else ())
    }
    ways = {
        "renaming": "options under other names",
        "temperature": "other softmax temperatures",
        "paraphrase": "paraphrases",
    }
    left = [text for name, text in ways.items() if name not in asked]
    yield f"Not tested here: {', '.join([*left, 'other candidate sets'])}."


def _tests(assessment: Assessment) -> Iterator[str]:
    tested = _tested(assessment)
    if not assessment.has_oracle:
        return
    if not assessment.family:
        if len(tested) > 1:
            yield f"p-values are not corrected for the {len(tested)} models compared: no family was named."
        return
    if len(assessment.family) > 1:
        yield f"p-values are corrected (Holm) over a family of {len(assessment.family)} models."
    missing = [model for model in tested if model.label in assessment.family and "holm" not in model.p_value]
    if missing:
        yield f"Holm's correction leaves out {len(missing)} model(s) without a p-value."
    alone = [model for model in tested if _no_interval(model)]
    if alone:
        yield "A gain without an interval (a single row) is never confirmed."


def _no_interval(model: ModelAssessment) -> bool:
    gains = [model.metrics.get(f"gain.{view}") for view in ("F", "G")]
    return any(gain is not None and not isinstance(gain.row, Interval) for gain in gains)


def _geometry(assessment: Assessment) -> Iterator[str]:
    for view in ("F", "G"):
        for model in _tested(assessment)[:1]:
            zero = model.metrics.get(f"zero_displacement_rows.{view}")
            if zero is not None and _number(zero) > 0:
                yield (
                    f"Retraining moves nothing on {_number(zero):.0f} of {zero.rows} rows of {view}: the "
                    "geometry counts them and does not divide by them."
                )


def _number(estimate: Estimate) -> float:
    return 0.0 if isinstance(estimate.value, Undefined) else estimate.value
