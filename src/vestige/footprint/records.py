"""Frozen records of a footprint: what was asked, what was measured, what it cost. No torch.

Shifts are in percent: 100 |V(base) - V(after)| / |V(base)|, V the transformed Fisher or Hessian diagonal on
one corpus, |.| the Euclidean norm over the measured weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from vestige.contracts import PresetSettings, Record, Undefined
from vestige.data.corpora import Role, TextFormat
from vestige.footprint.judgements import Adjacency, CalibratedClass
from vestige.footprint.verdict_records import VerdictRecord, VerdictSettings
from vestige.metrics.footprint import FootprintClass, FootprintThresholds
from vestige.models.lm_record import LanguageModelRecord, MeasuringDtype

__all__ = [
    "CheckpointFootprint",
    "CorpusFootprint",
    "CorpusRecord",
    "CostRecord",
    "DocumentShift",
    "FloorShare",
    "FootprintRecord",
    "FootprintSettings",
    "ModuleShift",
    "PerplexityShift",
    "RoleFootprint",
    "Shift",
]

PerplexityPart = Literal["on", "off"]
CheckpointRole = Literal["unlearned", "oracle"]


class FootprintSettings(PresetSettings):
    """Everything that changes a number, apart from models and texts.

    batch_mean_size: sequences of one squared gradient of the estimator batch-mean. max_length,
    hessian_length: tokens, the beginning token included. units: of a subset. sampling: `units` as
    `draw_sample` says, or `published`, as `published_sample` says; sample_names: corpus -> its name in the
    seed there; hessian_documents: so many documents of each subset for the Hessian alone. floor: added
    before the logarithm. stored_base: the type that the base's logarithms are rounded to before they are
    compared. probes: of the Hessian, 0 leaves it out; probe_seeds: one set for all models, or one for each;
    step_dtype: finite differences in float32, or as measured. perplexity_tokens: the first tokens of each
    subset that are scored, 0 leaves perplexity out; ratio_mean: how subsets' ratios are averaged. prompts:
    a checkpoint that moves no weight is undefined, or measured at the base's weights with its prompt in
    context. adjacency_texts: every role's corpora together, or its first one on a sample of its own. dtype:
    both models are cast to it. retained_text: what the method retained on while unlearning. statement: what
    the user says about the scopes of forget and adjacent text. verdict: how unlearned models are judged
    against retrained ones; None leaves it out.

    Preset `triage` measures as the published tables were made.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "triage": {
            "estimator": "batch-mean",
            "sampling": "published",
            "stored_base": "float16",
            "hessian": "finite_difference",
            "probe_seeds": "own",
            "step_dtype": "measured",
            "ratio_mean": "arithmetic",
            "prompts": "in context",
            "adjacency_texts": "first",
            "dtype": "bfloat16",
        }
    }

    estimator: Literal["per-sequence", "batch-mean"] = "per-sequence"
    reduction: Literal["mean", "sum"] = "mean"
    scale: Literal["log", "linear"] = "log"
    floor: float = Field(1e-5, gt=0)
    subspace: Literal["both", "attention", "ffn"] = "both"
    units: int = Field(200, ge=1)
    subsets: int = Field(3, ge=1, le=20)
    sampling: Literal["units", "published"] = "units"
    sample_names: dict[str, str] = Field(default_factory=dict)
    stored_base: Literal["as measured", "float16"] = "as measured"
    max_length: int = Field(1024, ge=2)
    length_matched: bool = False
    text: TextFormat = "plain"
    batch_mean_size: int = Field(4, ge=1)
    probes: int = Field(4, ge=0)
    hessian: Literal["hvp", "finite_difference"] = "hvp"
    hessian_length: int = Field(512, ge=2)
    hessian_group: int = Field(8, ge=1)
    hessian_documents: int | None = Field(None, ge=1)
    probe_seeds: Literal["shared", "own"] = "shared"
    step_dtype: Literal["float32", "measured"] = "float32"
    perplexity_tokens: int = Field(50_000, ge=0)
    perplexity_window: int = Field(2048, ge=2)
    perplexity_stride: int = Field(512, ge=1)
    ratio_mean: Literal["geometric", "arithmetic"] = "geometric"
    prompts: Literal["undefined", "in context"] = "undefined"
    adjacency_texts: Literal["pooled", "first"] = "pooled"
    dtype: MeasuringDtype = "float32"
    seed: int = 17
    quick: bool = False
    calibrate: bool = False
    noise_copies: int = Field(19, ge=1)
    reference_changes: int = Field(39, ge=1)
    thresholds: FootprintThresholds = FootprintThresholds()
    retained_text: str = ""
    statement: str = ""
    verdict: VerdictSettings | None = VerdictSettings()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.sampling == "published" and self.length_matched:
            raise ValueError("lengths are matched of sampled units: set sampling: units")
        if self.hessian_documents is not None and self.sampling != "published":
            raise ValueError("documents of the Hessian's own are drawn with sampling: published alone")
        return self

    @property
    def estimator_label(self) -> str:
        """What a class printed from these shifts is called."""
        if self.scale == "linear":
            return "linear scale, on which the published thresholds say nothing"
        if self.estimator == "batch-mean" and self.reduction == "mean":
            return "published thresholds and estimator"
        return "paper thresholds, per-sequence estimator"


class CorpusRecord(Record):
    """A corpus and what was sampled of it. Counts of documents, units and tokens; no text.

    empty, one_token: documents that were skipped. windowed: documents longer than `max_length`, of which
    units are windows. units, tokens: per subset. overlap: mean share of tokens that two subsets have in
    common, in [0, 1]. coincide: all subsets are the same. lengths: minimum, quartiles and maximum of the
    units' tokens.
    """

    name: str
    role: Role
    path: str
    sha256: str
    documents: int
    empty: int
    one_token: int
    windowed: int
    units: tuple[int, ...]
    tokens: tuple[int, ...]
    overlap: float
    coincide: bool
    lengths: tuple[int, ...]
    notes: tuple[str, ...] = ()


class Shift(Record):
    """A mean over subsets with its interval. half_width: t-based, 95 %, sampling of text only."""

    value: float | Undefined
    half_width: float | Undefined
    per_subset: tuple[float, ...] = ()


class FloorShare(Record):
    """Share of measured weights whose Fisher value lies below the floor, mean over subsets, in [0, 1]."""

    base: float
    after: float


class ModuleShift(Record):
    """One layer, projection or weight matrix. shift: its own, percent. share: of the squared shift of all."""

    name: str
    layer: int | None
    projection: str | None
    parameters: int
    shift: float | Undefined
    share: float | Undefined


class DocumentShift(Record):
    """How a document's Fisher trace (sum of its squared gradient) and loss moved. shift: percent, signed."""

    document: str
    units: int
    shift: float | Undefined
    trace_base: float
    trace_after: float
    loss_base: float
    loss_after: float


class PerplexityShift(Record):
    """Perplexities, geometric means over subsets, and the log10 of their ratio. tokens: scored per subset."""

    log10_base: float
    log10_after: float
    log10_ratio: Shift
    tokens: tuple[int, ...]


class CorpusFootprint(Record):
    """One checkpoint on one corpus.

    fisher: CoFi. hessian: CHess. hessian_floor: shift between two probe seeds of the base, which shared
    probes do not remove for changed models. fisher_linear: on the linear scale, never mixed with the
    thresholds. layers, projections, modules: of the Fisher shift; modules holds every matrix, most shifted
    first. documents: the most shifted, by absolute shift.
    """

    corpus: str
    role: Role
    fisher: Shift
    fisher_linear: Shift
    floor_share: FloorShare | Undefined
    hessian: Shift
    hessian_floor: Shift
    perplexity: PerplexityShift | Undefined
    layers: tuple[ModuleShift, ...] = ()
    projections: tuple[ModuleShift, ...] = ()
    modules: tuple[ModuleShift, ...] = ()
    documents: tuple[DocumentShift, ...] = ()


class RoleFootprint(Record):
    """A role over its corpora: plain mean, half-width sqrt(sum h^2) / n; perplexity: geometric mean."""

    role: Role
    corpora: tuple[str, ...]
    fisher: Shift
    hessian: Shift
    log10_ppl_ratio: Shift


class CheckpointFootprint(Record):
    """Everything measured on one checkpoint against the base.

    method: by which `vestige unlearn` made it, "" for any other checkpoint. estimator_label: what the
    published class was printed from. calibrated: the class of `--calibrate`. disagreement: one line when
    the two classes say different things, else "". probe_seeds: of the base's Hessian probes and of this
    model's, () without a Hessian. retained: what it retained on, by its own record, and which measured text
    that is.
    """

    label: str
    role: CheckpointRole
    method: str = ""
    model: LanguageModelRecord
    corpora: tuple[CorpusFootprint, ...]
    roles: tuple[RoleFootprint, ...]
    published: FootprintClass | Undefined
    estimator_label: str
    calibrated: CalibratedClass | Undefined
    disagreement: str = ""
    probe_seeds: tuple[int, ...] = ()
    retained: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def corpus(self, name: str) -> CorpusFootprint:
        """The footprint on this corpus. Raises KeyError."""
        for found in self.corpora:
            if found.corpus == name:
                return found
        raise KeyError(name)


class CostRecord(Record):
    """What was planned and what it took. passes: forward and backward over one sequence. seconds: by part."""

    passes_planned: int
    passes_run: int
    passes_cached: int
    tokens: int
    gigabytes_planned: float
    seconds: Annotated[dict[str, float], Field(default_factory=dict)]
    processes: int
    chunks: int
    device: str


class FootprintRecord(Record):
    """The result: what the terminal prints, `footprint.json` holds and the report reads. No texts.

    parameters: how many weights are measured. verdict: on the unlearned models, with what every model gives
    the texts; undefined where it was left out, None in records made before there was one. not_tested: what a
    reader could take for tested and is not.
    """

    format: Literal["vestige-footprint-1"] = "vestige-footprint-1"
    name: str
    settings: FootprintSettings
    base: LanguageModelRecord
    parameters: int
    layers: int
    corpora: tuple[CorpusRecord, ...]
    checkpoints: tuple[CheckpointFootprint, ...]
    adjacency: Adjacency | Undefined
    verdict: VerdictRecord | Undefined | None = None
    cost: CostRecord
    caveats: tuple[str, ...] = ()
    not_tested: tuple[str, ...] = ()
    condition: str
    provenance: Annotated[dict[str, Any], Field(default_factory=dict)]

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row a checkpoint and corpus: `vestige.footprint.tables.footprint_frame`."""
        from vestige.footprint.tables import footprint_frame

        return footprint_frame(self)

    def _repr_html_(self) -> str:
        from vestige.footprint.tables import footprint_html

        text: str = footprint_html(self)
        return text
