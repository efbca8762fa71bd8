"""Rows of a ledger: one type per kind of published table, with the columns of that table. No torch.

A row measured in a run folder and a row imported from a CSV file of published numbers are of one type. An
imported row keeps every cell as it was printed, signed zeros included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from vestige.contracts import Record

__all__ = [
    "KINDS",
    "ArchitectureRow",
    "ClincRow",
    "ComputeRow",
    "ControlRow",
    "CurveRow",
    "DisplacementRow",
    "FreshHeadRow",
    "LabelRow",
    "LedgerRow",
    "MainTable2Row",
    "MainTable3Row",
    "MethodRow",
    "OptimisationRow",
    "RecoveryRow",
    "RegistryRow",
    "SchemaRow",
    "StepRow",
    "SuppressionRow",
    "TuningRow",
]

Number = float | None


class LedgerRow(Record):
    """Base of every row.

    imported: from `imported/<kind>.csv`. origin: the file the row came from, relative to its run folder.
    printed: column -> text to show in place of the formatted value: what was printed, or why a value is
    undefined. FORMATS: column -> format of its number, default three decimals. OWN: columns that the
    published table lacks; they stand at the end of an export, where any row has them.
    """

    KIND: ClassVar[str] = ""
    FORMATS: ClassVar[Mapping[str, str]] = {}
    OWN: ClassVar[tuple[str, ...]] = ()

    imported: bool = False
    origin: str = ""
    printed: Annotated[dict[str, str], Field(default_factory=dict)]

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Columns of the published table, in its order."""
        skipped = {*LedgerRow.model_fields, *cls.OWN}
        return tuple(cls.column(name) for name in cls.model_fields if name not in skipped)

    @classmethod
    def column(cls, field: str) -> str:
        """The column of a field: its alias where the name is taken (`schema`)."""
        return cls.model_fields[field].alias or field

    @classmethod
    def field(cls, column: str) -> str:
        """The field of a column. Raises KeyError."""
        for name in cls.model_fields:
            if cls.column(name) == column:
                return name
        raise KeyError(column)

    def text(self, column: str) -> str:
        """The cell as text: as printed, else formatted; empty where there is none."""
        if column in self.printed:
            return self.printed[column]
        value: Any = getattr(self, self.field(column))
        if value is None:
            return ""
        if isinstance(value, float):
            return format(value, self.FORMATS.get(column, ".3f"))
        return str(value)


def _two(*names: str) -> dict[str, str]:
    """Two decimals for these columns and their bounds."""
    ends = ("", "_lo", "_hi", "_class_lo", "_class_hi")
    return {f"{name}{end}": ".2f" for name in names for end in ends}


class MethodRow(LedgerRow):
    """One unlearning configuration of one request and seed, scored under all options."""

    KIND: ClassVar[str] = "methods"
    FORMATS: ClassVar[Mapping[str, str]] = {**_two("progress_f", "progress_g"), "delta_acc_pp": ".1f"}
    OWN: ClassVar[tuple[str, ...]] = ("granularity", "experiment", "control", "method_name", "units_hash")

    id: int
    model: str
    dataset: str
    labels: str
    seed: int
    bundle: str
    method: str
    stage: str
    d0_f: Number
    d0_g: Number
    gain_f: Number
    gain_f_lo: Number
    gain_f_hi: Number
    gain_f_unit_lo: Number
    gain_f_unit_hi: Number
    gain_g: Number
    gain_g_lo: Number
    gain_g_hi: Number
    gain_g_unit_lo: Number
    gain_g_unit_hi: Number
    progress_f: Number
    progress_g: Number
    status: str
    delta_acc_pp: Number
    ece: Number
    delta_ece: Number
    rows_f: int | None
    rows_g: int | None
    units: int | None
    stage_as_printed: str | None = None
    granularity: str | None = None
    experiment: str | None = None
    control: bool | None = None
    method_name: str | None = None
    units_hash: str | None = None


class ArchitectureRow(LedgerRow):
    """Progress of one backbone under one frozen method, and its difference to the backbone's first run."""

    KIND: ClassVar[str] = "architectures"
    FORMATS: ClassVar[Mapping[str, str]] = {
        **_two("progress_f", "progress_g", "diff_progress_f", "diff_progress_g"),
        "delta_acc_pp": ".1f",
    }

    model: str
    seed: int
    bundle: str
    stage: str
    progress_f: Number
    progress_f_lo: Number
    progress_f_hi: Number
    progress_f_class_lo: Number
    progress_f_class_hi: Number
    progress_g: Number
    progress_g_lo: Number
    progress_g_hi: Number
    diff_progress_f: Number
    diff_progress_g: Number
    delta_acc_pp: Number
    status: str
    model_key: str


class ClincRow(LedgerRow):
    """One configuration on CLINC150, bundle by bundle."""

    KIND: ClassVar[str] = "clinc"
    FORMATS: ClassVar[Mapping[str, str]] = {**_two("progress_f", "progress_g"), "delta_acc_pp": ".1f"}

    id: int
    model: str
    seed: int
    bundle: str
    run_label: str
    stage: str
    d0_f: Number
    gain_f: Number
    gain_f_lo: Number
    gain_f_hi: Number
    gain_f_intent_lo: Number
    gain_f_intent_hi: Number
    gain_g: Number
    gain_g_lo: Number
    gain_g_hi: Number
    gain_g_intent_lo: Number
    gain_g_intent_hi: Number
    progress_f: Number
    progress_g: Number
    delta_acc_pp: Number
    status: str
    run_label_as_printed: str | None = None
    stage_as_printed: str | None = None


class LabelRow(LedgerRow):
    """One half of a pair: the same request, seed and model under semantic or opaque labels."""

    KIND: ClassVar[str] = "labels"
    FORMATS: ClassVar[Mapping[str, str]] = {
        **_two("progress_f", "progress_g"),
        **_two("min_class_acc_opaque", "min_class_acc_semantic", "min_gold_p_opaque"),
        "oracle_acc_f": ".4f",
        "oracle_acc_g": ".4f",
        "oracle_mass_f": ".3e",
        "oracle_mass_g": ".3e",
    }
    OWN: ClassVar[tuple[str, ...]] = ("model", "method", "map_seed")

    dataset: str
    bundle: str
    seed: int
    labels: str
    full_acc_f: Number
    full_acc_g: Number
    oracle_acc_f: Number
    oracle_acc_g: Number
    oracle_mass_f: Number
    oracle_mass_g: Number
    d0_f: Number
    d0_g: Number
    progress_f: Number
    progress_g: Number
    opaque_acquisition: str | None = None
    min_class_acc_opaque: Number = None
    min_class_acc_semantic: Number = None
    min_gold_p_opaque: Number = None
    model: str | None = None
    method: str | None = None
    map_seed: int | None = None


class SchemaRow(LedgerRow):
    """One configuration under one candidate set on one view: new forward passes of the same checkpoints."""

    KIND: ClassVar[str] = "schemas"
    FORMATS: ClassVar[Mapping[str, str]] = _two("progress") | {
        "progress_lo": ".2f",
        "progress_hi": ".2f",
    }
    OWN: ClassVar[tuple[str, ...]] = ("seed", "rows_r")

    id: int
    model: str
    dataset: str
    labels: str
    bundle: str
    method: str
    schema_: str = Field(alias="schema")
    schema_kind: str
    options: int
    view: str
    d0: Number
    progress: Number
    progress_lo: Number
    progress_hi: Number
    progress_class_lo: Number
    progress_class_hi: Number
    oracle_acc: Number
    seed: int | None = None
    rows_r: int | None = None


class SuppressionRow(LedgerRow):
    """Suppression and geometry of one configuration on F, G or both together (`fg`)."""

    KIND: ClassVar[str] = "suppression"
    FORMATS: ClassVar[Mapping[str, str]] = {
        **_two("dev_s", "s", "aligned_a", "residual", "progress_f"),
        "identity_error": ".1e",
    }
    OWN: ClassVar[tuple[str, ...]] = (
        "residual_only",
        "magnitude_only",
        "squared_error",
        "unmatched",
        "model",
        "labels",
        "bundle",
        "seed",
    )

    id: int
    dataset: str
    run: str
    view: str
    dev_s: Number
    s: Number
    s_lo: Number
    s_hi: Number
    s_class_lo: Number
    s_class_hi: Number
    aligned_a: Number
    aligned_a_lo: Number
    aligned_a_hi: Number
    residual: Number
    residual_lo: Number
    residual_hi: Number
    progress_f: Number
    feasible: bool | None
    identity_error: Number
    zero_rows: int | None
    run_as_printed: str | None = None
    residual_only: Number = None
    magnitude_only: Number = None
    squared_error: Number = None
    unmatched: bool | None = None
    model: str | None = None
    labels: str | None = None
    bundle: str | None = None
    seed: int | None = None


class RecoveryRow(LedgerRow):
    """Recovery contrasts of one setting: k exposed rows a class, one adaptation seed."""

    KIND: ClassVar[str] = "recovery"
    FORMATS: ClassVar[Mapping[str, str]] = {"identity_residual": ".0e"}
    OWN: ClassVar[tuple[str, ...]] = ("bundle", "seed", "method", "g_h_row_mean")

    id: int
    model: str
    k: int
    adapt_seed: int
    p0_u: Number
    p0_o: Number
    g_abs: Number
    g_abs_lo: Number
    g_abs_hi: Number
    g_adj: Number
    g_adj_lo: Number
    g_adj_hi: Number
    g_adj_class_lo: Number
    g_adj_class_hi: Number
    g_h: Number
    g_h_lo: Number
    g_h_hi: Number
    a_abs_u: Number
    a_abs_o: Number
    a_adj_u: Number
    a_adj_o: Number
    t50_u: int | None
    t50_u_censored: bool | None
    t50_o: int | None
    t50_o_censored: bool | None
    t80_u: int | None
    t80_u_censored: bool | None
    t80_o: int | None
    t80_o_censored: bool | None
    identity_residual: Number
    bundle: str | None = None
    seed: int | None = None
    method: str | None = None
    g_h_row_mean: Number = None


class OptimisationRow(LedgerRow):
    """How one unlearning run went, from its step log. first10, last10: means over ten steps."""

    KIND: ClassVar[str] = "optimisation"
    FORMATS: ClassVar[Mapping[str, str]] = _two("progress_f", "s_f", "oracle_acc")
    OWN: ClassVar[tuple[str, ...]] = ("bundle", "method", "update_norm_last", "steps")

    model: str
    seed: int
    progress_f: Number
    s_f: Number
    full_gold_p: Number
    full_confidence: Number
    full_margin: Number
    oracle_acc: Number
    forget_loss_first10: Number
    forget_loss_last10: Number
    retain_loss_first10: Number
    retain_loss_last10: Number
    grad_norm_first10: Number
    grad_norm_last10: Number
    source: str = ""
    bundle: str | None = None
    method: str | None = None
    update_norm_last: Number = None
    steps: int | None = None


class ComputeRow(LedgerRow):
    """Logged device hours of one experiment and stage."""

    KIND: ClassVar[str] = "compute"
    FORMATS: ClassVar[Mapping[str, str]] = {"gpu_hours_logged": ".1f"}
    OWN: ClassVar[tuple[str, ...]] = ("device",)

    experiment: str
    stage: str
    evaluations: int
    gpu_hours_logged: float
    models: int
    device: str | None = None


class RegistryRow(LedgerRow):
    """How many evaluations the registry holds."""

    KIND: ClassVar[str] = "registry"

    dataset: str
    labels: str
    stage: str
    evaluations: int


class MainTable2Row(LedgerRow):
    """The method comparison as the main text shows it: confirmation (1) and replication (2)."""

    KIND: ClassVar[str] = "main_table2"
    FORMATS: ClassVar[Mapping[str, str]] = _two("progress_f", "progress_g")
    OWN: ClassVar[tuple[str, ...]] = ("gain_f_lo", "gain_f_hi", "gain_g_lo", "gain_g_hi", "p_holm")

    phase: int
    method: str
    seeds: str
    bundles: str
    d0_f: Number
    d0_g: Number
    gain_f: Number
    gain_g: Number
    progress_f: Number
    progress_g: Number
    decision: str
    gain_f_lo: Number = None
    gain_f_hi: Number = None
    gain_g_lo: Number = None
    gain_g_hi: Number = None
    p_holm: Number = None


class MainTable3Row(LedgerRow):
    """CLINC150 as the main text shows it."""

    KIND: ClassVar[str] = "main_table3"
    FORMATS: ClassVar[Mapping[str, str]] = _two("progress_f", "progress_g")
    OWN: ClassVar[tuple[str, ...]] = ("gain_f_lo", "gain_f_hi", "gain_g_lo", "gain_g_hi")

    configuration: str
    setting: str
    labels: str
    bundle: str | None
    seed: int | None
    gain_f: Number
    gain_g: Number
    progress_f: Number
    progress_g: Number
    gain_f_lo: Number = None
    gain_f_hi: Number = None
    gain_g_lo: Number = None
    gain_g_hi: Number = None


class DisplacementRow(LedgerRow):
    """Full model against its oracle, one request and seed; noise floors between training seeds beside it."""

    KIND: ClassVar[str] = "displacements"
    FORMATS: ClassVar[Mapping[str, str]] = {"delta_acc_pp": ".1f"}

    model: str
    dataset: str
    labels: str
    granularity: str
    bundle: str
    seed: int
    d0_f: Number
    d0_f_lo: Number
    d0_f_hi: Number
    d0_g: Number
    d0_g_lo: Number
    d0_g_hi: Number
    acc_full: Number
    acc_oracle: Number
    delta_acc_pp: Number
    noise_f: Number = None
    noise_g: Number = None
    noise_pairs: int | None = None
    rows_f: int | None = None
    rows_g: int | None = None
    units: int | None = None
    gate: str | None = None
    experiment: str | None = None


class CurveRow(LedgerRow):
    """Mean gold probability and accuracy of one checkpoint after t recovery updates."""

    KIND: ClassVar[str] = "curves"
    OWN: ClassVar[tuple[str, ...]] = ("bundle", "seed", "method")

    model: str
    population: str
    k: int
    adapt_seed: int
    checkpoint: str
    t: int
    p_gold: Number
    accuracy: Number
    rows: int | None = None
    bundle: str | None = None
    seed: int | None = None
    method: str | None = None


class ControlRow(LedgerRow):
    """A recovery contrast of one population, or between two, pooled over settings (`k` empty) or of one."""

    KIND: ClassVar[str] = "controls"
    OWN: ClassVar[tuple[str, ...]] = ("bundle", "seed", "method")

    model: str
    quantity: str
    unit: str | None
    k: int | None
    adapt_seed: int | None
    value: Number
    lo: Number
    hi: Number
    class_lo: Number
    class_hi: Number
    rows: int | None = None
    bundle: str | None = None
    seed: int | None = None
    method: str | None = None


class FreshHeadRow(LedgerRow):
    """A new head on a frozen backbone: one checkpoint and initialisation."""

    KIND: ClassVar[str] = "fresh_heads"
    OWN: ClassVar[tuple[str, ...]] = ("bundle", "seed", "method")

    model: str
    checkpoint: str
    initialisation: int
    forgotten_accuracy: Number
    gold_p: Number
    retained_accuracy: Number
    bundle: str | None = None
    seed: int | None = None
    method: str | None = None


class TuningRow(LedgerRow):
    """One development candidate: a grid point after an epoch."""

    KIND: ClassVar[str] = "tuning"
    FORMATS: ClassVar[Mapping[str, str]] = {"delta_accuracy": ".4f", "delta_ece": ".4f"}

    dataset: str
    model: str
    method: str
    learning_rate: str
    beta: str
    retain_weight: str
    epoch: int
    od_f: Number
    od_g: Number
    objective: Number
    delta_accuracy: Number
    delta_ece: Number
    feasible: bool
    chosen: bool
    suppression: Number = None
    temperature: Number = None


class StepRow(LedgerRow):
    """One optimiser step of an unlearning run."""

    KIND: ClassVar[str] = "steps"
    FORMATS: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("forget_loss", "retain_loss", "grad_norm", "update_norm", "learning_rate"), ".6g"
    )

    model: str
    seed: int
    bundle: str
    method: str
    stage: str
    step: int
    epoch: int | None
    forget_loss: Number
    retain_loss: Number
    grad_norm: Number
    update_norm: Number = None
    learning_rate: Number = None


KINDS: dict[str, type[LedgerRow]] = {
    item.KIND: item
    for item in (
        MethodRow,
        ArchitectureRow,
        ClincRow,
        LabelRow,
        SchemaRow,
        SuppressionRow,
        RecoveryRow,
        OptimisationRow,
        ComputeRow,
        RegistryRow,
        MainTable2Row,
        MainTable3Row,
        DisplacementRow,
        CurveRow,
        ControlRow,
        FreshHeadRow,
        TuningRow,
        StepRow,
    )
}
"""Kind -> row type; the kinds of `imported/<kind>.csv`."""
