"""RSV: the forget rows' hidden states are moved off their own place along a random direction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from vestige.contracts import Floats, LossBatch, Objective, Term
from vestige.language import LanguageSettings, LanguageUse, Need
from vestige.methods import METHODS
from vestige.methods.representation import HOLDS, held

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RSV", "RSVSettings", "displaced", "normal_direction"]


class RSVSettings(LanguageSettings):
    """coeff: length of the steering vector that is added to the reference's states."""

    retain_weight: float = Field(5000.0, ge=0)
    coeff: float = Field(10.0, gt=0)


def normal_direction(rng: np.random.Generator, width: int) -> Floats:
    """(width,) float64 of length 1: independent standard normal entries, normalised."""
    drawn = rng.standard_normal(width)
    return np.asarray(drawn / np.linalg.norm(drawn))


def displaced(batch: LossBatch, settings: RSVSettings) -> Tensor:
    """MSE(h_layer, h_ref + c u) on D_F. Scalar in [0, inf)."""
    from vestige.training.losses import hidden_mse

    assert batch.hidden is not None
    assert batch.ref_hidden is not None
    assert batch.hidden_mask is not None
    assert batch.steer is not None
    return hidden_mse(batch.hidden, batch.ref_hidden + batch.steer, batch.hidden_mask)


def rsv_needs(settings: LanguageSettings) -> Mapping[Term, frozenset[Need]]:
    """Both terms compare with the reference's states."""
    return {"forget": HOLDS, "retain": HOLDS}


RSV = METHODS.register(
    Objective(
        name="rsv",
        title="RSV",
        formula=(
            "MSE(h_layer(D_F), h_ref(D_F) + c u) + w MSE(h_layer, h_ref) on D_R, u gaussian, of length 1, "
            "c = coeff"
        ),
        source="Dang et al. 2025, Improving LLM Unlearning Robustness via Random Perturbations",
        deviations=(
            "one u a topic; block 7, counted from 0, floor(L/4) of fewer than 16 blocks; all real tokens, "
            "each row weighs the same; noise_std never touches the forget term's reference"
        ),
        models=("causal-lm",),
        role="candidate",
        settings=RSVSettings,
        forget=None,
        retain=None,
        reference_terms=lambda settings: frozenset(),
        language=LanguageUse(
            settings=RSVSettings,
            needs=rsv_needs,
            forget=displaced,
            retain=held,
            triage={"learning_rate": 5e-5, "retain_weight": 5000.0, "coeff": 10.0},
            steer=lambda settings, rng, width, norm: settings.coeff * normal_direction(rng, width),
        ),
    )
)
