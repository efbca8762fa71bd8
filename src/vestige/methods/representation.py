"""RMU: hidden states of the forget rows are steered to a random direction, those of retain rows held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from vestige.contracts import Floats, HiddenUse, LossBatch, MethodSettings, Objective, Term
from vestige.language import LanguageSettings, LanguageUse, Need
from vestige.methods import METHODS
from vestige.methods.gradient import LEARNING_RATES, RETAIN_WEIGHTS, RetainWeighted

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "HOLDS",
    "RMU",
    "LanguageRMUSettings",
    "RMUSettings",
    "held",
    "middle_block",
    "steered",
    "steered_needs",
    "uniform_direction",
]

SCALES = (1.0, 2.0, 4.0)


class RMUSettings(RetainWeighted):
    """scale: length of the steering vector, in mean token norms of the reference on D_F."""

    scale: float = Field(2.0, gt=0)


class LanguageRMUSettings(LanguageSettings):
    """coeff: length of the steering vector."""

    retain_weight: float = Field(1200.0, ge=0)
    coeff: float = Field(6.5, gt=0)


HOLDS: frozenset[Need] = frozenset({"hidden", "ref_hidden"})
"""What a term reads that compares a block's output with the reference's."""


def steered_needs(settings: LanguageSettings) -> Mapping[Term, frozenset[Need]]:
    """The block's output, and the reference's where it is to be held."""
    return {"forget": frozenset({"hidden"}), "retain": HOLDS}


def middle_block(blocks: int) -> int:
    """round(L/2) of L blocks, halves up, counted from 0; the last one where there is no such block."""
    return min((blocks + 1) // 2, blocks - 1)


def uniform_direction(rng: np.random.Generator, width: int) -> Floats:
    """(width,) float64 of length 1: independent uniform entries on [0, 1), normalised."""
    drawn = rng.random(width)
    return np.asarray(drawn / np.linalg.norm(drawn))


def steered(batch: LossBatch, settings: MethodSettings) -> Tensor:
    """MSE(h_layer, c u) on D_F. Scalar in [0, inf)."""
    from vestige.training.losses import hidden_mse

    assert batch.hidden is not None
    assert batch.hidden_mask is not None
    assert batch.steer is not None
    return hidden_mse(batch.hidden, batch.steer, batch.hidden_mask)


def held(batch: LossBatch, settings: MethodSettings) -> Tensor:
    """MSE(h_layer, h_ref) on D_R. Scalar in [0, inf)."""
    from vestige.training.losses import hidden_mse

    assert batch.hidden is not None
    assert batch.hidden_mask is not None
    assert batch.ref_hidden is not None
    return hidden_mse(batch.hidden, batch.ref_hidden, batch.hidden_mask)


def rmu_hidden(settings: RMUSettings) -> HiddenUse:
    """Block round(L/2); c = scale times the mean token norm."""
    return HiddenUse(
        block=middle_block,
        terms=frozenset({"retain"}),
        steer=lambda rng, width, norm: settings.scale * norm * uniform_direction(rng, width),
    )


RMU = METHODS.register(
    Objective(
        name="rmu",
        title="RMU",
        formula="MSE(h_layer(D_F), c u) + w MSE(h_layer, h_ref) on D_R, u uniform on [0, 1), of length 1",
        source="Li et al. 2024, The WMDP Benchmark",
        deviations=(
            "each row weighs the same; parameters above the block stay as they are. Decision models: block "
            "round(L/2), halves up; real utterance tokens only, options untouched; c = scale x mean token "
            "norm of the reference on D_F. Language models: block 7, from 0, floor(L/4) of fewer than 16; "
            "all real tokens; c = coeff; one u a topic; adapters instead of three layers' weights"
        ),
        models=("decision", "causal-lm"),
        role="candidate",
        settings=RMUSettings,
        forget=steered,
        retain=held,
        reference_terms=lambda settings: frozenset(),
        hidden=rmu_hidden,
        grid={"learning_rate": LEARNING_RATES, "scale": SCALES, "retain_weight": RETAIN_WEIGHTS},
        language=LanguageUse(
            settings=LanguageRMUSettings,
            needs=steered_needs,
            triage={"learning_rate": 5e-5, "retain_weight": 1200.0, "coeff": 6.5, "retain_length": 512},
            steer=lambda settings, rng, width, norm: settings.coeff * uniform_direction(rng, width),
        ),
    )
)
