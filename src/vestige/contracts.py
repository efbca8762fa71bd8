"""Protocols and frozen records that the layers share. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from vestige.phrases import way_words

if TYPE_CHECKING:
    from torch import Tensor

    from vestige.decision.schema import Schema
    from vestige.language import LanguageUse

__all__ = [
    "VERDICT_RULE",
    "Assessment",
    "Bounded",
    "Calibration",
    "Condition",
    "Decision",
    "DecisionModel",
    "Destination",
    "Estimate",
    "Evidence",
    "Floats",
    "HiddenUse",
    "Interval",
    "LossBatch",
    "Margins",
    "MethodComparison",
    "MethodSettings",
    "Metric",
    "ModelAssessment",
    "Objective",
    "PresetSettings",
    "ProbeEvidence",
    "Record",
    "ReliabilityBin",
    "RetainedEvidence",
    "RowTerms",
    "SeedEstimate",
    "SeedMetric",
    "SeedModels",
    "Source",
    "Term",
    "Undefined",
    "UnitEvidence",
    "UnlearnSettings",
    "Verdict",
    "View",
    "ViewCount",
    "ViewEvidence",
]

Floats = NDArray[np.float64]
View = Literal["F", "G", "R"]
Term = Literal["forget", "retain"]
Decision = Literal[
    "accepted",
    "positive, unconfirmed",
    "no benefit",
    "infeasible",
    "displacement within noise",
]


class Record(BaseModel):
    """Base of everything written to disk: frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def to_json(self, *, indent: int | None = 2) -> str:
        """The record as JSON text, non-ASCII kept."""
        return self.model_dump_json(indent=indent)


class PresetSettings(Record):
    """Settings that begin with those of a preset: what is not given has the preset's value.

    PRESETS: name -> values of fields. The fields' own defaults are the preset `default`. It holds wherever
    settings are made: on the command line, in a study's file, in Python.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    preset: Literal["default", "triage"] = "default"

    @model_validator(mode="before")
    @classmethod
    def _begin_with_preset(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {**cls.PRESETS.get(str(values.get("preset", "default")), {}), **values}


class Undefined(Record):
    """A quantity that does not exist, and why. Prints as `undefined: reason`."""

    undefined: str

    def __str__(self) -> str:
        return f"undefined: {self.undefined}"


class Interval(Record):
    """A two-sided interval. It says its kind, level, draws, seed and what it is conditional on."""

    low: float
    high: float
    kind: str
    level: float = 0.95
    draws: int
    seed: int
    condition: str


class Estimate(Record):
    """One number with what is needed to read it.

    value: float or Undefined. row / unit: percentile intervals, or Undefined. rows, units: how many went in.
    unstable: the ratio's denominator is within noise. note: shown beside the number.
    """

    value: float | Undefined
    row: Interval | Undefined | None = None
    unit: Interval | Undefined | None = None
    rows: int | None = None
    units: int | None = None
    unstable: bool = False
    note: str = ""


class Source(Record):
    """Where a model's probabilities came from. sha256: of the probabilities in canonical order."""

    label: str
    role: Literal["full", "oracle", "unlearned"]
    path: str = ""
    sha256: str
    max_sum_deviation: float


class ViewCount(Record):
    """How many rows and units a view has."""

    view: View
    rows: int
    units: int


class Destination(Record):
    """Where the probability a model took from one forgotten option went, over that option's F and G rows.

    moved: mean decrease of the option's own probability. to: (option, mean increase), largest first; the
    remainder is `elsewhere`.
    """

    forgotten: str
    rows: int
    moved: float
    to: tuple[tuple[str, float], ...]
    elsewhere: float


class ReliabilityBin(Record):
    """One bin (low, high] of the reliability diagram of a model on R."""

    low: float
    high: float
    rows: int
    confidence: float | Undefined
    accuracy: float | Undefined


VERDICT_RULE = "vestige-verdict-1"
"""The rule that a verdict was given by."""

Verdict = Literal["equivalent", "closer", "not closer", "damaged", "undetermined"]
"""The answer about one unlearned model, in one word."""


class Margins(Record):
    """What counts as small, set before results are seen.

    excess: largest excess distance on F and G that is still as good as retraining; None: 0.05 or half of what
    two retrainings differ by, whichever is larger. memory: largest share of the full model that may be left.
    retained: largest excess distance on R. accuracy, calibration: largest loss of retained accuracy and rise
    of calibration error, on [0, 1]. gain: the gain, as a share of the displacement, that the data must be
    able to show before `not closer` is said. loss: for language models in place of accuracy, nats a token.
    """

    excess: float | None = Field(None, gt=0, lt=1)
    memory: float = Field(0.10, gt=0, lt=1)
    retained: float = Field(0.02, gt=0, lt=1)
    accuracy: float = Field(0.02, gt=0, lt=1)
    calibration: float = Field(0.02, gt=0, lt=1)
    gain: float = Field(0.10, gt=0, lt=1)
    loss: float = Field(0.05, gt=0)


class Bounded(Record):
    """A quantity with what is known of its error.

    value: over all models and rows. these_models: 95 % interval for these models and other rows like these.
    other_trainings: 95 % interval for other trainings of every role and other rows; undefined where a role
    has one training seed. upper, lower: the one-sided 95 % bounds that the verdict reads: rows, and the
    training seeds of every role that has more than one.
    """

    value: float | Undefined
    these_models: Interval | Undefined
    other_trainings: Interval | Undefined
    lower: float | Undefined
    upper: float | Undefined


class ViewEvidence(Record):
    """F or G: how far from retraining, how much of the way, how much of the full model is left.

    displacement: distance of the full models to the oracles. full_excess: their excess, which says whether
    retraining can be told from doing nothing here. visible: whether it can. margin: the excess that is still
    as good as retraining. spread: what two retrainings differ by. gain_p: one-sided p of no gain, before any
    correction. least_gain: the smallest true gain that these data show with 89 % power, so that both views
    together have 80 %. ceiling: progress of a held-out oracle. progress: of the model. moved_away: the
    distance is shown to be larger than the full models'.
    """

    view: View
    rows: int
    units: int
    distance: Bounded
    displacement: Bounded
    spread: float | Undefined
    excess: Bounded
    margin: float | Undefined
    full_excess: Bounded
    visible: bool | Undefined
    memory: Bounded
    gain: Bounded
    gain_p: float | Undefined
    least_gain: float | Undefined
    progress: float | Undefined
    ceiling: float | Undefined
    moved_away: bool | Undefined
    levels: dict[str, float] = Field(default_factory=dict)
    """Mean probability of the right answer: `full`, `oracle`, `unlearned`."""


class Calibration(Record):
    """Root mean square calibration error on R, debiased, in equal-mass bins of the top probability.

    model, full: of the model and the mean over full models, in [0, 1]. change: model minus full, with its
    interval. Undefined below 100 rows.
    """

    bins: int
    model: float | Undefined
    full: float | Undefined
    change: Bounded


class RetainedEvidence(Record):
    """R: does the rest still work, and is it where retraining leaves it?

    accuracy, accuracy_full, accuracy_oracle: means over models. change: of accuracy, model minus the full
    models. retraining: the oracles' own change. calibration, excess: see those records. harm: "damaged",
    "unharmed" or "unsettled", by accuracy and calibration. measure: `loss` of language models, nats a token.
    name: which text, where several are judged each for itself.
    """

    name: str = ""
    rows: int
    measure: Literal["accuracy", "loss"] = "accuracy"
    model: float | Undefined
    full: float | Undefined
    oracle: float | Undefined
    change: Bounded
    retraining: float | Undefined
    calibration: Calibration | None = None
    excess: Bounded
    harm: Literal["damaged", "unharmed", "unsettled"]
    harmed_by: tuple[str, ...] = ()


class UnitEvidence(Record):
    """Memory left in one unit of F or G. name: of a deleted option; other units are numbered, never named.

    lower: simultaneous over all units of both views."""

    view: View
    name: str
    rows: int
    memory: float | Undefined
    lower: float | Undefined


class ProbeEvidence(Record):
    """Memory when every model is asked in another way. name: for example "temperature 2" or "renaming".

    memory: by view, as in `ViewEvidence`. holds: whether memory is shown to stay within its margin on
    every view where retraining shows; False: it is shown to be above it on one; None: neither is shown.
    """

    name: str
    memory: dict[View, Bounded]
    holds: bool | None


class Condition(Record):
    """One condition of equivalence. holds: None where it cannot be judged. text: what was found, in words."""

    name: str
    holds: bool | None
    text: str


class Evidence(Record):
    """Everything that a verdict reads, for one unlearned model."""

    rule: str = VERDICT_RULE
    margins: Margins
    seeds: dict[str, int]
    """Training seeds of each role: full, oracle, unlearned."""
    draws: int
    views: tuple[ViewEvidence, ...]
    retained: RetainedEvidence
    """Of several retained texts, each judged for itself, the one with most harm."""
    other_retained: tuple[RetainedEvidence, ...] = ()
    """The others of them."""
    units: tuple[UnitEvidence, ...] = ()
    """The units with most memory, largest first, at most five."""
    units_judged: int = 0
    worst_rows: tuple[UnitEvidence, ...] = ()
    """Memory of the tenth of a view's rows that keeps most, beyond what oracles show; from 8 oracles on."""
    conditions: tuple[Condition, ...]
    missing: tuple[str, ...] = ()
    """What would settle an undetermined verdict: rows, retrained models, an oracle."""
    away: tuple[View, ...] = ()
    """Views on which the model is shown to have moved away from retraining."""
    overshoot: tuple[View, ...] = ()
    """Views on which it is shown to be further from the full model than retraining is."""
    nothing_to_undo: tuple[View, ...] = ()
    """Views on which the full models already lie where retraining lies."""
    share: float | Undefined
    """Progress as a share of the ceiling, the smaller of the views."""
    probes: tuple[ProbeEvidence, ...] = ()
    """The same models asked in other ways; empty: not asked."""

    def view(self, name: View) -> ViewEvidence:
        """The evidence on F or G. Raises KeyError."""
        for item in self.views:
            if item.view == name:
                return item
        raise KeyError(name)

    def headline(self, verdict: Verdict) -> str:
        """The verdict as it is shown, see `ModelAssessment.headline`."""
        if verdict != "closer":
            return verdict
        way = "" if isinstance(self.share, Undefined) else way_words(self.share)
        return f"closer, {way or 'by how much is not known'}"

    def quantities(self) -> Iterator[tuple[str, View, Bounded]]:
        """(name, view, quantity with its bounds) of everything that was bounded, for tables and frames."""
        for item in self.views:
            for name in ("distance", "displacement", "excess", "memory", "gain"):
                yield name, item.view, getattr(item, name)
        yield f"{self.retained.measure}_change", "R", self.retained.change
        if self.retained.calibration is not None:
            yield "calibration_change", "R", self.retained.calibration.change
        yield "excess", "R", self.retained.excess


class ModelAssessment(Record):
    """Everything measured on one model. `metrics` is keyed `metric.view`, for example `gain.F`."""

    label: str
    role: Literal["full", "oracle", "unlearned"]
    method: str = ""
    control: bool = False
    metrics: dict[str, Estimate]
    decision: Decision | Undefined
    p_value: Annotated[dict[str, float | Undefined], Field(default_factory=dict)]
    """`F`, `G`, `both` (intersection-union) and `holm` where a family was named."""
    equivalence: Estimate | Undefined | None = None
    equivalent: bool | Undefined | None = None
    """Both read from records made before the verdict existed; not computed any more."""
    verdict: Verdict | None = None
    """The answer in one word; None for full models and oracles, and in records made before it existed."""
    evidence: Evidence | None = None
    """What the verdict rests on."""
    sentence: str = ""
    """The verdict in words: what was shown, what a model at the margin may still keep, what is missing."""
    verdict_p: float | Undefined | None = None
    """One-sided p of no gain on the views where there is something to undo, corrected within the family."""
    seeds: int = 1
    """Training seeds of this method that were given; its metrics are means over them."""
    destinations: tuple[Destination, ...] = ()
    reliability: tuple[ReliabilityBin, ...] = ()
    utility: Annotated[dict[str, float | Undefined], Field(default_factory=dict)]
    """`delta_accuracy` and `delta_ece` under S0, where the metrics are of another candidate set: feasibility
    is always judged on S0. Empty: the metrics themselves are of S0."""

    @property
    def headline(self) -> str:
        """The verdict as it is shown: `closer` never stands alone but says how far, `closer, 9 % of the way`.

        Empty for full models and oracles, and in records made before verdicts existed.
        """
        if self.verdict is None:
            return ""
        return self.verdict if self.evidence is None else self.evidence.headline(self.verdict)


class MethodComparison(Record):
    """Paired difference of oracle distance, first minus second, on the same rows."""

    first: str
    second: str
    view: View
    difference: Estimate


class Assessment(Record):
    """The result of comparing one request's models. Everything a report shows, no texts, no row ids."""

    format: Literal["vestige-assessment-1"] = "vestige-assessment-1"
    name: str
    stage: str = "own predictions"
    condition: str
    """What every interval is conditional on, for example `training seed 17`."""
    options: int
    candidates: str = "S0"
    """The candidate set: S0 all options, S1 and S2 forgotten ones among neighbours or distractors."""
    forgotten: tuple[str, ...]
    unit_kind: str = "class"
    views: tuple[ViewCount, ...]
    has_oracle: bool
    draws: int
    seeds: dict[str, int]
    sources: tuple[Source, ...]
    noise: dict[str, Estimate]
    """`noise_full.F`, `noise_oracle.G`, ...: mean JS over pairs of models of different seeds."""
    noise_pairs: dict[str, int]
    noise_over_seeds: dict[str, Interval | Undefined] = Field(default_factory=dict)
    """Where the noise floor of many trainings may lie, by the keys of `noise`; empty in older records."""
    intervention_gate: str
    minimum_detectable_gain: dict[str, float | Undefined]
    models: tuple[ModelAssessment, ...]
    comparisons: tuple[MethodComparison, ...] = ()
    family: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    provenance: Annotated[dict[str, Any], Field(default_factory=dict)]
    """Hashes, counts and settings of the data, the request and the training. Never texts."""

    def model_named(self, label: str) -> ModelAssessment:
        """The model of this label. Raises KeyError."""
        for model in self.models:
            if model.label == label:
                return model
        raise KeyError(label)

    def to_frame(self) -> Any:
        """A pandas DataFrame with one measured number a row: see `vestige.display.assessment_frame`."""
        from vestige.display import assessment_frame

        return assessment_frame(self)

    def _repr_html_(self) -> str:
        from vestige.display import assessment_html

        return assessment_html(self)


@dataclass(frozen=True)
class RowTerms:
    """A metric's additive per-row terms and the function that finishes their sums.

    terms: (N, K) float64, finite. finish: sums (..., K) -> values (...); it may return NaN where a
    resample leaves the metric undefined (an empty bin is not; a zero denominator is).
    """

    terms: Floats
    finish: Callable[[Floats], Floats]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A registered metric of one model on a view.

    compute takes keyword arrays that it names in `needs`, each aligned by row: `p` (N, C) of the model
    under test, `full` (N, C), `oracle` (N, C), `gold` (N,) integer columns, `forgotten` (C,) bool.
    `direction`: "higher", "lower" or "" (neither is better).
    """

    name: str
    title: str
    definition: str
    source: str
    direction: Literal["higher", "lower", ""]
    views: tuple[str, ...]
    needs: tuple[str, ...]
    compute: Callable[..., RowTerms]


class SeedEstimate(Record):
    """A number about a method over several training seeds of one request.

    value: over all seeds, or Undefined. by_seed: training seed -> value, where single seeds have one.
    chance: where the value would lie if there were nothing to find; says how it was made. power: how
    often a difference of half a standard deviation would leave the chance band with as many models, where
    the metric says; in [0, 1]. beside: values of other models or parts, by name. seeds: role -> models
    used; rows: view -> rows used.
    """

    value: float | Undefined
    by_seed: dict[str, float] = Field(default_factory=dict)
    chance: Interval | Undefined | None = None
    power: float | None = None
    beside: dict[str, float] = Field(default_factory=dict)
    seeds: dict[str, int] = Field(default_factory=dict)
    rows: dict[str, int] = Field(default_factory=dict)
    note: str = ""


ViewTables = Mapping[View, Floats]
"""View -> (N, C) probabilities of one model, the same rows and options in every model."""


@dataclass(frozen=True, kw_only=True)
class SeedModels:
    """Models of one request and one method by training seed, aligned by row and option.

    gold: view -> (N,) integer columns. random: models with random weights, untrained, where there are any.
    """

    gold: Mapping[View, NDArray[np.intp]]
    unlearned: Mapping[int, ViewTables]
    oracle: Mapping[int, ViewTables]
    full: Mapping[int, ViewTables] = field(default_factory=dict)
    random: Mapping[int, ViewTables] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SeedMetric:
    """A registered metric that needs models of several training seeds, or several views at once.

    views: those that it reads together. needs: roles that it reads. least_seeds: fewest models of each role;
    below them the value is Undefined. compute never raises for too few of them.
    """

    name: str
    title: str
    definition: str
    source: str
    direction: Literal["higher", "lower", ""]
    views: tuple[View, ...]
    needs: tuple[Literal["unlearned", "oracle", "full", "random"], ...]
    least_seeds: int
    compute: Callable[[SeedModels], SeedEstimate]


class MethodSettings(Record):
    """Settings of an unlearning method of any kind."""


class UnlearnSettings(MethodSettings):
    """Settings of every method that trains. Units: learning_rate per AdamW step; epochs over the forget set.

    The rate is constant after `warmup_steps`, so that the state after epoch e does not depend on how many
    epochs follow.
    """

    learning_rate: float = Field(1e-4, gt=0)
    epochs: int = Field(5, ge=1)
    forget_batch: int = Field(16, ge=1)
    retain_batch: int = Field(32, ge=1)
    max_grad_norm: float = Field(1.0, gt=0)
    warmup_steps: int = Field(5, ge=0)
    weight_decay: float = Field(0.0, ge=0)


@dataclass(frozen=True)
class LossBatch:
    """What a loss may look at: one batch scored by the model being trained and by the frozen reference.

    log_probs (n, C): log distribution over options (or vocabulary) under theta. gold (n,): column of the
    target. ref_log_probs (n, C) or None: the same under the reference, no gradient. lengths (n,): number of
    predicted positions, 1 for a decision model.

    For an objective that reads a block's output: hidden (n, L, d) of theta and ref_hidden (n, L, d) of the
    reference, no gradient; hidden_mask (n, L): True at the utterance's real tokens; steer (d,): the fixed
    vector `c u`. A decision model's log_probs are then (n, 0): nothing is scored.
    """

    log_probs: Tensor
    gold: Tensor
    ref_log_probs: Tensor | None = None
    lengths: Tensor | None = None
    hidden: Tensor | None = None
    ref_hidden: Tensor | None = None
    hidden_mask: Tensor | None = None
    steer: Tensor | None = None

    @property
    def target_log_probs(self) -> Tensor:
        """log p(target), (n,), at most 0."""
        return self.log_probs.gather(1, self.gold[:, None])[:, 0]

    @property
    def ref_target_log_probs(self) -> Tensor:
        """log p_ref(target), (n,), at most 0. Raises ValueError without a reference."""
        if self.ref_log_probs is None:
            raise ValueError("this loss needs the reference model's log-probabilities")
        return self.ref_log_probs.gather(1, self.gold[:, None])[:, 0]

    @property
    def summed_log_probs(self) -> Tensor:
        """log p(target) summed over `lengths`, (n,): `target_log_probs` of a decision model."""
        return self.target_log_probs

    @property
    def mean_log_probs(self) -> Tensor:
        """log p(target) a predicted position, (n,), at most 0: `target_log_probs` of a decision model."""
        return self.target_log_probs


@dataclass(frozen=True, kw_only=True)
class HiddenUse:
    """What an objective reads inside the network, at the utterance's real tokens.

    block: number of blocks -> 0-based block whose output is read; parameters that this output does not depend
    on stay as they are. terms: the loss terms that read `ref_hidden`. steer: (generator, width d, mean token
    norm of the reference's output on D_F) -> the fixed vector (d,).
    """

    block: Callable[[int], int]
    terms: frozenset[Term]
    steer: Callable[[np.random.Generator, int, float], Floats]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A registered unlearning method: composed terms, no inheritance.

    The loss is `forget(D_F batch) + w * retain(D_R batch)`, w = settings.retain_weight where the method has
    a retain term. reference_terms(settings): the terms that read `ref_log_probs`; the reference scores only
    their rows. hidden(settings): the objective reads a block's output instead of the scores.
    post_hoc(model, settings): what a method does that trains nothing and has no terms. role: "candidate" or
    "control" (controls stay outside Holm's family). grid: default tuning values of settings fields.
    language: how it trains a causal language model; the other fields are then those of decision models.
    """

    name: str
    title: str
    formula: str
    source: str
    deviations: str
    models: tuple[Literal["decision", "causal-lm"], ...]
    role: Literal["candidate", "control"]
    settings: type[MethodSettings]
    forget: Callable[[LossBatch, Any], Tensor] | None
    retain: Callable[[LossBatch, Any], Tensor] | None
    reference_terms: Callable[[Any], frozenset[Term]]
    hidden: Callable[[Any], HiddenUse] | None = None
    post_hoc: Callable[[Any, Any], None] | None = None
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    language: LanguageUse | None = None


@runtime_checkable
class DecisionModel(Protocol):
    """Anything that maps utterances and a schema to distributions."""

    def predict(self, texts: Sequence[str], schema: Schema) -> Floats:
        """(N,) texts -> (N, C) float64 probabilities, rows sum to 1, columns in the schema's order."""
        ...
