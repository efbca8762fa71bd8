"""Rows of a ledger that figures draw and no published table prints. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from vestige.study.ledger_row import LedgerRow, Number

__all__ = ["ControlRow", "CurveRow", "DisplacementRow", "FreshHeadRow", "StepRow", "TuningRow"]


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
