"""Rows of a ledger: one type per kind of published table, with the columns of that table. No torch.

A row measured in a run folder and a row imported from a CSV file of published numbers are of one type. An
imported row keeps every cell as it was printed, signed zeros included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from vestige.study.ledger_own_rows import (
    ControlRow,
    CurveRow,
    DisplacementRow,
    FreshHeadRow,
    StepRow,
    TuningRow,
)
from vestige.study.ledger_row import LedgerRow, Number, two_decimals

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


class MethodRow(LedgerRow):
    """One unlearning configuration of one request and seed, scored under all options."""

    KIND: ClassVar[str] = "methods"
    FORMATS: ClassVar[Mapping[str, str]] = {**two_decimals("progress_f", "progress_g"), "delta_acc_pp": ".1f"}
    OWN: ClassVar[tuple[str, ...]] = (
        "gate",
        "granularity",
        "experiment",
        "control",
        "method_name",
        "units_hash",
    )

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
    gate: str | None = None
    granularity: str | None = None
    experiment: str | None = None
    control: bool | None = None
    method_name: str | None = None
    units_hash: str | None = None


class ArchitectureRow(LedgerRow):
    """Progress of one backbone under one frozen method, and its difference to the backbone's first run."""

    KIND: ClassVar[str] = "architectures"
    FORMATS: ClassVar[Mapping[str, str]] = {
        **two_decimals("progress_f", "progress_g", "diff_progress_f", "diff_progress_g"),
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
    FORMATS: ClassVar[Mapping[str, str]] = {**two_decimals("progress_f", "progress_g"), "delta_acc_pp": ".1f"}
    OWN: ClassVar[tuple[str, ...]] = ("granularity", "units", "positive_f", "positive_g")

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
    granularity: str | None = None
    units: int | None = None
    positive_f: Number = None
    positive_g: Number = None


class LabelRow(LedgerRow):
    """One half of a pair: the same request, seed and model under semantic or opaque labels."""

    KIND: ClassVar[str] = "labels"
    FORMATS: ClassVar[Mapping[str, str]] = {
        **two_decimals("progress_f", "progress_g"),
        **two_decimals("min_class_acc_opaque", "min_class_acc_semantic", "min_gold_p_opaque"),
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
    FORMATS: ClassVar[Mapping[str, str]] = two_decimals("progress") | {
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
    """Suppression and geometry of one configuration on F, G or both together (`fg`).

    dev_s: suppression of the same settings on development rows, as the frozen record says it. matching: it is
    listed by a run with matched settings; the same configuration may stand in another row, as all do.
    """

    KIND: ClassVar[str] = "suppression"
    FORMATS: ClassVar[Mapping[str, str]] = {
        **two_decimals("dev_s", "s", "aligned_a", "residual", "progress_f"),
        "identity_error": ".1e",
    }
    OWN: ClassVar[tuple[str, ...]] = (
        "residual_only",
        "magnitude_only",
        "squared_error",
        "target_s",
        "unmatched",
        "matching",
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
    target_s: Number = None
    unmatched: bool | None = None
    matching: bool | None = None
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
    FORMATS: ClassVar[Mapping[str, str]] = two_decimals("progress_f", "s_f", "oracle_acc")
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
    OWN: ClassVar[tuple[str, ...]] = ("device", "covers")

    experiment: str
    stage: str
    evaluations: int
    gpu_hours_logged: float
    models: int
    device: str | None = None
    covers: str | None = None


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
    FORMATS: ClassVar[Mapping[str, str]] = two_decimals("progress_f", "progress_g")
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
    FORMATS: ClassVar[Mapping[str, str]] = two_decimals("progress_f", "progress_g")
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
