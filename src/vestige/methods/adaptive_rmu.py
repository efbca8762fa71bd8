"""Adaptive-RMU: RMU whose steering vector is as long as the model's own states, up to a factor."""

from __future__ import annotations

from pydantic import Field

from vestige.contracts import Objective
from vestige.language import LanguageUse
from vestige.methods import METHODS
from vestige.methods.representation import (
    LanguageRMUSettings,
    held,
    steered,
    steered_needs,
    uniform_direction,
)

__all__ = ["ADAPTIVE_RMU", "AdaptiveRMUSettings"]


class AdaptiveRMUSettings(LanguageRMUSettings):
    """scale: length of the steering vector, in mean token norms of the reference on the topic's first forget
    batch. coeff: a further factor, 1 unless set."""

    coeff: float = Field(1.0, gt=0)
    scale: float = Field(3.0, gt=0)


ADAPTIVE_RMU = METHODS.register(
    Objective(
        name="adaptive_rmu",
        title="Adaptive-RMU",
        formula=(
            "MSE(h_layer(D_F), c u) + w MSE(h_layer, h_ref) on D_R, "
            "c = coeff x scale x mean token norm of h_ref on the topic's first forget batch"
        ),
        source="Dang et al. 2025, On Effects of Steering Latent Representation for LLM Unlearning",
        deviations=(
            "the norm is taken once, before the first step, of the reference's states at real tokens of "
            "the topic's first forget batch; block 7, counted from 0, floor(L/4) of fewer than 16; each "
            "row weighs the same; adapters instead of three layers' weights"
        ),
        models=("causal-lm",),
        role="candidate",
        settings=AdaptiveRMUSettings,
        forget=None,
        retain=None,
        reference_terms=lambda settings: frozenset(),
        language=LanguageUse(
            settings=AdaptiveRMUSettings,
            needs=steered_needs,
            forget=steered,
            retain=held,
            triage={
                "learning_rate": 5e-5,
                "retain_weight": 1200.0,
                "coeff": 1.0,
                "scale": 3.0,
                "retain_length": 512,
            },
            steer=lambda settings, rng, width, norm: (
                settings.coeff * settings.scale * norm * uniform_direction(rng, width)
            ),
        ),
    )
)
