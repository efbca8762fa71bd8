"""Figures 1 to 5 and S1 to S15 of the decision benchmark, from a ledger, as inline SVG panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vestige.report.paper_figures import (
    backbones,
    displacement,
    effects,
    geometry,
    labels,
    optimisation,
    recovery,
)
from vestige.report.paper_figures.base import PaperFigure
from vestige.report.paper_index import FIGURES
from vestige.study.ledger import Ledger
from vestige.study.ledger_rows import (
    ArchitectureRow,
    ClincRow,
    ControlRow,
    CurveRow,
    DisplacementRow,
    FreshHeadRow,
    LabelRow,
    LedgerRow,
    MainTable3Row,
    MethodRow,
    OptimisationRow,
    RecoveryRow,
    SchemaRow,
    StepRow,
    SuppressionRow,
    TuningRow,
)

__all__ = ["PaperFigure", "paper_figures"]

_MAKERS: dict[str, Callable[[Ledger], PaperFigure]] = {
    "1": displacement.figure_1,
    "2": labels.figure_2,
    "3": backbones.figure_3,
    "4": geometry.figure_4,
    "5": recovery.figure_5,
    "S1": backbones.figure_s1,
    "S2": displacement.figure_s2,
    "S3": effects.figure_s3,
    "S4": labels.figure_s4,
    "S5": labels.figure_s5,
    "S6": backbones.figure_s6,
    "S7": effects.figure_s7,
    "S8": optimisation.figure_s8,
    "S9": geometry.figure_s9,
    "S10": geometry.figure_s10,
    "S11": recovery.figure_s11,
    "S12": recovery.figure_s12,
    "S13": recovery.figure_s13,
    "S14": optimisation.figure_s14,
    "S15": optimisation.figure_s15,
}

_KINDS: dict[str, tuple[type[LedgerRow], ...]] = {
    "1": (DisplacementRow,),
    "2": (LabelRow, SchemaRow),
    "3": (ArchitectureRow,),
    "4": (SuppressionRow,),
    "5": (CurveRow, RecoveryRow, ControlRow, FreshHeadRow),
    "S1": (MethodRow, ClincRow, DisplacementRow, SchemaRow, RecoveryRow),
    "S2": (DisplacementRow,),
    "S3": (MethodRow, ClincRow),
    "S4": (LabelRow,),
    "S5": (SchemaRow,),
    "S6": (ArchitectureRow,),
    "S7": (ClincRow, MainTable3Row),
    "S8": (TuningRow,),
    "S9": (SuppressionRow,),
    "S10": (SuppressionRow,),
    "S11": (CurveRow,),
    "S12": (ControlRow,),
    "S13": (FreshHeadRow,),
    "S14": (OptimisationRow,),
    "S15": (MethodRow, StepRow),
}
"""The rows that a figure draws, to say where they come from."""


def paper_figures(ledger: Ledger, numbers: Sequence[str] | None = None) -> list[PaperFigure]:
    """The figures of these numbers (default all), also those that the folder holds nothing of."""
    return [_made(ledger, number) for number in (FIGURES if numbers is None else numbers)]


def _made(ledger: Ledger, number: str) -> PaperFigure:
    figure = _MAKERS[number](ledger)
    if not any(row.imported for kind in _KINDS[number] for row in ledger.of(kind)):
        return figure
    return replace(figure, notes=("Holds imported rows: published numbers as printed, not measured here.",))
