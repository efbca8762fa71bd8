"""Records of what is concluded beside the shifts: calibrated class, adjacency, self-test. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from vestige.contracts import Interval, PresetSettings, Record, Undefined
from vestige.csv_text import csv_text
from vestige.language import FitSettings
from vestige.limits import MOST_DRAWS
from vestige.models.lm_record import MeasuringDtype

__all__ = [
    "Adjacency",
    "CalibratedClass",
    "CalibratedName",
    "CalibrationSettings",
    "CorpusCalibration",
    "Headroom",
    "InjectionGates",
    "InjectionSettings",
    "Lengths",
    "Overlap",
    "SelfTest",
    "SelfTestCase",
    "SensitivityRow",
    "SensitivitySettings",
    "SensitivityTable",
]

CalibratedName = Literal["no-op", "undirected", "localized", "collateral", "undetermined"]
SIGNIFICANCE = 0.05


class CalibrationSettings(Record):
    """Settings of the calibrated class. With 19 copies and 39 references the smallest p values are 0.05 and
    0.025 (0.05 two-sided). coordinates, draws: of the document bootstrap.
    """

    copies: int = Field(19, ge=1)
    references: int = Field(39, ge=1)
    seed: int = 17
    coordinates: int = Field(2**17, ge=1)
    draws: int = Field(1000, ge=1, le=MOST_DRAWS)


class CorpusCalibration(Record):
    """One corpus. s: RMS log-ratio of the Fisher diagonal, fold: exp(s). f0: the base's median Fisher there.

    copies, references: their s, in order. e: s over the median of checkpoint and references. interval: of s
    by a document bootstrap on sampled coordinates, on which s itself is `s_sampled`.
    """

    corpus: str
    role: Literal["forget", "adjacent", "generic"]
    s: float
    fold: float
    f0: float
    copies: tuple[float, ...]
    references: tuple[float, ...]
    e: float
    s_sampled: float | Undefined
    interval: Interval | Undefined


class CalibratedClass(Record):
    """The calibrated class of one run and everything it rests on.

    moved: the largest s over the copies' median; moved_p: its rank among the copies. h = log e(G) / max(e(F),
    e(A)), g = log e(F) / e(A), with rank p values among the references; g_p is Undefined where h is not low,
    as nobody asks then. g_interval, h_interval: document bootstrap, references held fixed. changed: matrices
    and vectors that differ from the base; full_rank: those of them whose change is of full numerical rank.
    """

    name: CalibratedName | Undefined
    moved: float
    moved_p: float
    e_forget: float
    e_adjacent: float | Undefined
    e_generic: float
    h: float | Undefined
    h_p: float | Undefined
    h_interval: Interval | Undefined
    g: float | Undefined
    g_p: float | Undefined
    g_interval: Interval | Undefined
    corpora: tuple[CorpusCalibration, ...]
    changed: int
    full_rank: int
    settings: CalibrationSettings
    notes: tuple[str, ...] = ()


class Overlap(Record):
    """Shares in [0, 1] of the k largest Fisher entries that two roles share. margin: F-A minus F-G."""

    k: int
    forget_adjacent: float
    forget_generic: float
    adjacent_generic: float
    margin: float
    caution: bool


class Headroom(Record):
    """Whether the base knows the adjacent domain. value: accuracy in [0, 1], or log10 perplexity.

    chance: accuracy of guessing; p: one-sided binomial, where the number of questions is known.
    """

    kind: Literal["accuracy", "perplexity"]
    value: float
    chance: float | None = None
    questions: int | None = None
    p: float | None = None
    passes: bool
    said: str


class Lengths(Record):
    """Documents of a corpus and their lengths in words: quartiles."""

    corpus: str
    role: Literal["forget", "adjacent", "generic"]
    documents: int
    lower: float
    median: float
    upper: float


class Adjacency(Record):
    """Whether the adjacent corpus is valid. sim_*: mean cosine of sentence embeddings between two roles.

    passes: sim_f_a > sim_a_g. ratio: sim_f_a / sim_a_g, Undefined unless sim_a_g is positive. statement: what
    the user said about disjoint scopes; nothing here can check it.
    """

    encoder: str
    sim_f_a: float
    sim_f_g: float
    sim_a_g: float
    ratio: float | Undefined
    passes: bool
    overlaps: tuple[Overlap, ...] | Undefined
    headroom: Headroom | Undefined
    statement: str | Undefined
    lengths: tuple[Lengths, ...]
    lines: tuple[str, ...]
    """What to read, in words: failures first, then cautions."""


class InjectionSettings(Record):
    """40 entities x 3 attributes, half F and half A; LoRA adapters of the blocks `first_layer` to
    `last_layer` (0-based, both included; None: the model's last block), every projection, no dropout.

    copies: texts an entity; templates: how many ways of saying a fact they use. apart: F's adapter is trained
    on the base and not on base + A, so that A's and F's sum is no model that was trained; the exact oracle is
    base + A either way. fit: of each adapter. replay: F's adapter sees A's texts too, for a model so
    small that it would forget A while it learns F; what is taken away again is the same adapter.
    """

    entities: int = Field(40, ge=2)
    copies: int = Field(4, ge=1)
    templates: int = Field(4, ge=1, le=4)
    apart: bool = False
    rank: int = Field(16, ge=1)
    alpha: float = Field(32.0, gt=0)
    first_layer: int = Field(0, ge=0)
    last_layer: int | None = None
    fit: FitSettings = FitSettings(epochs=8, batch_size=1, learning_rate=2e-4)
    replay: bool = False


class InjectionGates(Record):
    """Accuracies in [0, 1] on fictitious facts: base near chance, injected above 0.9 on both, the oracle
    above 0.9 on A and near chance on F. Near chance: at most the 99.9 % binomial bound on guessing.

    cloze: `base_f`, ... -> share of facts that the model writes by itself; shown, no gate.
    """

    chance: float
    chance_bound: float
    base_f: float
    base_a: float
    injected_f: float
    injected_a: float
    oracle_f: float
    oracle_a: float
    cloze: dict[str, float]
    took: bool
    failed: tuple[str, ...]


class SelfTestCase(Record):
    """One known answer on one seed. expected: accepted outcomes. paper: what the published rule says.

    outcome: the calibrated class, or what was measured where no class is expected. hit: it is as expected.
    measured: the numbers it rests on.
    """

    case: str
    seed: int
    expected: tuple[str, ...]
    outcome: str
    paper: str
    hit: bool
    measured: dict[str, float | None] = Field(default_factory=dict)


class SelfTest(Record):
    """The self-test over its seeds. hits: case -> how many seeds came out as expected; passes: all did often
    enough (`needed` of `seeds`).
    """

    format: Literal["vestige-footprint-selftest-1"] = "vestige-footprint-selftest-1"
    version: str
    seeds: tuple[int, ...]
    needed: int
    hits: dict[str, int]
    undefined: dict[str, int]
    """Case -> seeds on which the injection did not take."""
    passes: bool
    cases: tuple[SelfTestCase, ...]
    gates: dict[int, InjectionGates]
    settings: dict[str, Any]
    seconds: float

    def lines(self) -> list[str]:
        """The result in words: a line a case, then what failed on which seed."""
        total = len(self.seeds)
        found = []
        for name, hits in self.hits.items():
            own = [case for case in self.cases if case.case == name]
            paper = Counter(case.paper for case in own)
            classes = ", ".join(f"{cls} {n}" for cls, n in paper.most_common())
            expected = " or ".join(own[0].expected) if own else ""
            line = f"{name}: {hits} of {total} as expected ({expected}); published rule: {classes}"
            if self.undefined.get(name):
                line += f"; undefined on {self.undefined[name]}"
            found.append(line)
        for case in self.cases:
            if not case.hit:
                found.append(f"seed {case.seed}, {case.case}: {case.outcome}, expected {case.expected[0]}")
        verdict = "passed" if self.passes else "failed"
        found.append(f"self-test {verdict}: {self.needed} of {total} seeds needed for every case")
        return found


class SensitivitySettings(PresetSettings):
    """What is varied, and how each value is measured.

    sizes: of the sample, each the first of the next. probes: of the Hessian; the middle number goes with the
    sizes, the largest with the parts of the model. max_length, hessian_length: tokens of a unit. sampling:
    `units` as a footprint samples, `published` the documents of the published sample's first subset, cut on
    the right and not windowed; sample_names as a footprint's. stored: the type that both models' logarithms
    are rounded to. divided_by: the base's norm on the same sample, or that of the footprint itself (its first
    subset), over the same part of the model. The others as in `FootprintSettings`.

    Preset `triage` is the published ablation.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "triage": {
            "max_length": 512,
            "sampling": "published",
            "estimator": "batch-mean",
            "hessian": "finite_difference",
            "step_dtype": "measured",
            "stored": "float16",
            "divided_by": "footprint",
            "dtype": "bfloat16",
            "seed": 1234,
        }
    }

    sizes: tuple[int, ...] = (52, 100, 200)
    probes: tuple[int, ...] = (2, 4, 8)
    max_length: int = Field(1024, ge=2)
    hessian_length: int = Field(512, ge=2)
    sampling: Literal["units", "published"] = "units"
    sample_names: dict[str, str] = Field(default_factory=dict)
    estimator: Literal["per-sequence", "batch-mean"] = "per-sequence"
    reduction: Literal["mean", "sum"] = "mean"
    hessian: Literal["hvp", "finite_difference"] = "hvp"
    step_dtype: Literal["float32", "measured"] = "float32"
    stored: Literal["as measured", "float16"] = "as measured"
    divided_by: Literal["own sample", "footprint"] = "own sample"
    dtype: MeasuringDtype = "float32"
    seed: int = 17


class SensitivityRow(Record):
    """One value of the table. quantity: `cofi`, `chess` (percent), `class_margin` (F minus A, of CoFi)."""

    quantity: Literal["cofi", "chess", "class_margin"]
    method: str
    corpus: str
    factor: Literal["sample_size", "probe_count", "subspace"]
    setting: str
    n: int
    probes_k: int | None
    subspace: Literal["attn", "ffn", "both"]
    value: float


class SensitivityTable(Record):
    """Shifts over sample sizes, probe counts and subspaces. Values of different subspaces do not compare."""

    format: Literal["vestige-footprint-sensitivity-1"] = "vestige-footprint-sensitivity-1"
    name: str = ""
    settings: SensitivitySettings | None = None
    rows: tuple[SensitivityRow, ...]
    notes: tuple[str, ...] = ()

    def to_csv(self) -> str:
        """The rows as CSV with a header, one line a value."""
        names = list(SensitivityRow.model_fields)
        return csv_text(names, ([getattr(row, name) for name in names] for row in self.rows))
