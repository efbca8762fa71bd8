"""Frozen records of what models answer: what was asked, what was right, what was lost. No torch, no texts.

Accuracies and chances are in [0, 1]; relative losses and gaps in percent and percentage points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from vestige.contracts import Interval, Record, Undefined
from vestige.data.corpora import Role
from vestige.data.question_settings import AskingSettings
from vestige.errors import InputError, did_you_mean, shown
from vestige.limits import MOST_DRAWS
from vestige.metrics.behaviour import GapRelation
from vestige.metrics.tofu import ForgetQuality
from vestige.models.lm_record import LanguageModelRecord, MeasuringDtype

__all__ = [
    "RECORD",
    "BehaviourRecord",
    "BehaviourSettings",
    "CheckpointBehaviour",
    "Engine",
    "Loss",
    "QuestionSet",
    "RoleAccuracy",
    "RoleHeadroom",
    "SubjectAccuracy",
    "TofuRecord",
    "TofuScores",
    "TofuSet",
    "TofuSetName",
    "TofuSettings",
    "TripartiteLoss",
    "tofu_set_name",
]

RECORD = "behaviour.json"
Engine = Literal["vestige", "lm-eval"]
TofuSetName = Literal["forget", "retain", "real_authors", "world_facts"]


def tofu_set_name(name: str) -> TofuSetName:
    """TOFU's set of this name. Raises InputError for another."""
    names: tuple[TofuSetName, ...] = get_args(TofuSetName)
    for known in names:
        if known == name:
            return known
    raise InputError(f"--tofu {name}", f"the set {shown(name)}", "a set of TOFU", did_you_mean(name, names))


class TofuSettings(Record):
    """perturbed_mean: of the wrong answers in the truth ratio, `arithmetic` (paper) or `geometric` (code).

    max_new_tokens: of a written answer; 0 writes none, so that there is no ROUGE and no model utility.
    max_length: tokens of question and answer together. power_draws: resamples for the test's power.
    """

    perturbed_mean: Literal["arithmetic", "geometric"] = "arithmetic"
    max_new_tokens: int = Field(128, ge=0)
    max_length: int = Field(512, ge=2)
    power_draws: int = Field(200, ge=1, le=MOST_DRAWS)


class BehaviourSettings(AskingSettings):
    """Everything that changes a number, apart from models and files; how questions are asked as
    `AskingSettings` says.

    engine: who reads the options' log-likelihoods. draws: of the question bootstrap. dtype: all models are
    cast to it; bfloat16 in preset `triage`.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "triage": {**AskingSettings.PRESETS["triage"], "dtype": "bfloat16"}
    }

    engine: Engine = "vestige"
    draws: int = Field(5000, ge=100, le=MOST_DRAWS)
    dtype: MeasuringDtype = "float32"
    tofu: TofuSettings = TofuSettings()


class QuestionSet(Record):
    """The questions of one subject. path, sha256: of its file. file_questions: of the subject in the file,
    of which `questions` were asked. content: sha256 of prompts, options and answers as asked. chance:
    accuracy of guessing. about: what the line above each question says it is about. repeated_options:
    questions asked that print an option's text twice; repeated_keys: those of them where it is the right
    one.
    """

    role: Role
    topic: str
    subject: str
    path: str
    sha256: str
    content: str
    questions: int
    file_questions: int
    chance: float
    about: str = ""
    repeated_options: int = 0
    repeated_keys: int = 0


class SubjectAccuracy(Record):
    """One model on one subject. interval: Wilson. lost, gained: questions that the base, or this model,
    alone answers; both 0 for the base itself."""

    role: Role
    topic: str
    subject: str
    correct: int
    questions: int
    accuracy: float
    interval: Interval
    lost: int = 0
    gained: int = 0


class RoleAccuracy(Record):
    """A role: the mean over topics, each the plain mean over its subjects. interval: question bootstrap."""

    role: Role
    accuracy: float
    interval: Interval
    topics: dict[str, float]
    subjects: int
    questions: int


class RoleHeadroom(Record):
    """How far the base answers above chance: accuracy - chance, of which alone something can be lost.

    passes: the interval lies above 0. said: one sentence.
    """

    role: Role
    accuracy: float
    chance: float
    value: float
    interval: Interval
    passes: bool
    said: str


class Loss(Record):
    """A relative loss in percent, or a gap in percentage points, with its paired question bootstrap."""

    value: float | Undefined
    interval: Interval | Undefined


class TripartiteLoss(Record):
    """delta_c = 100 (base - after) / base for each role, topics averaged first; b_gap = delta_f - delta_a.

    adjacency_gap: of the footprint of the same weights, percentage points. relation: of the two gaps.
    """

    delta_f: Loss
    delta_a: Loss
    delta_g: Loss
    b_gap: Loss
    adjacency_gap: float | Undefined
    relation: GapRelation | Undefined


class TofuSet(Record):
    """A file of TOFU's form. empty: rows without an answer, left out. truncated: answers cut."""

    name: TofuSetName
    path: str
    sha256: str
    rows: int
    empty: int
    truncated: int
    perturbed: bool


class TofuScores(Record):
    """One model on one set: means over rows. probability: length-normalised, of the answer; among the choices
    for real authors and world facts. rouge: ROUGE-L recall of the written answer. truth_ratio: mean R;
    truth: mean max(0, 1 - R). intervals: metric -> row bootstrap of its mean, where there are two rows.
    left_out: metric -> rows on which it does not exist.
    """

    name: TofuSetName
    probability: float | Undefined
    rouge: float | Undefined
    truth_ratio: float | Undefined
    truth: float | Undefined
    intervals: dict[str, Interval] = Field(default_factory=dict)
    left_out: dict[str, int] = Field(default_factory=dict)


class TofuRecord(Record):
    """TOFU's scores of one model. utility: harmonic mean of nine. forget_quality: against the oracle."""

    sets: tuple[TofuScores, ...]
    utility: float | Undefined
    forget_quality: ForgetQuality | Undefined


class CheckpointBehaviour(Record):
    """Everything measured on one checkpoint against the base."""

    label: str
    role: Literal["unlearned", "oracle"]
    model: LanguageModelRecord
    subjects: tuple[SubjectAccuracy, ...]
    roles: tuple[RoleAccuracy, ...]
    loss: TripartiteLoss
    tofu: TofuRecord | Undefined
    notes: tuple[str, ...] = ()


class BehaviourRecord(Record):
    """The result: what the terminal prints, `behaviour.json` holds and reports read. No question, no answer.

    headroom: of the base, a role each. not_tested: what a reader could take for tested and is not.
    """

    format: Literal["vestige-behaviour-1"] = "vestige-behaviour-1"
    name: str
    settings: BehaviourSettings
    base: LanguageModelRecord
    question_sets: tuple[QuestionSet, ...]
    tofu_sets: tuple[TofuSet, ...]
    base_subjects: tuple[SubjectAccuracy, ...]
    base_roles: tuple[RoleAccuracy, ...]
    headroom: tuple[RoleHeadroom, ...]
    base_tofu: TofuRecord | Undefined
    checkpoints: tuple[CheckpointBehaviour, ...]
    seconds: dict[str, float] = Field(default_factory=dict)
    from_cache: int = 0
    caveats: tuple[str, ...] = ()
    not_tested: tuple[str, ...] = ()
    condition: str
    provenance: Annotated[dict[str, Any], Field(default_factory=dict)]

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row a model and subject: `vestige.behaviour.tables.behaviour_frame`."""
        from vestige.behaviour.tables import behaviour_frame

        return behaviour_frame(self)

    def _repr_html_(self) -> str:
        from vestige.behaviour.tables import behaviour_html

        text: str = behaviour_html(self)
        return text
