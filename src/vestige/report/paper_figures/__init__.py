"""Figures 1 to 5 and S1 to S15 of the decision benchmark, from a ledger, as inline SVG panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


def paper_figures(ledger: Ledger, numbers: Sequence[str] | None = None) -> list[PaperFigure]:
    """The figures of these numbers (default all), also those that the folder holds nothing of."""
    return [_MAKERS[number](ledger) for number in (FIGURES if numbers is None else numbers)]
