"""Temperature control: the full model's logits divided by one number. It trains nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from vestige.contracts import MethodSettings, Objective
from vestige.methods import METHODS

if TYPE_CHECKING:
    from vestige.models.decision import SchemaModel

__all__ = ["TEMPERATURE", "TEMPERATURES", "TemperatureSettings"]

TEMPERATURES = tuple(round(10 ** (step / 20), 6) for step in range(-20, 41))
"""0.1 to 100, twenty values a decade."""


class TemperatureSettings(MethodSettings):
    """temperature: what the logits are divided by, above 0; 1 changes nothing."""

    temperature: float = Field(2.0, gt=0)


def soften(model: SchemaModel, settings: TemperatureSettings) -> None:
    """Divide the model's logits by T, on top of a temperature that it has already."""
    model.temperature *= settings.temperature


TEMPERATURE = METHODS.register(
    Objective(
        name="temperature",
        title="Temperature",
        formula="none: logits of the full model / T",
        source="DecisionUnlearn-Bench 2026, control; Guo et al. 2017",
        deviations="T minimises OD_F + OD_G among feasible values on development rows",
        models=("decision",),
        role="control",
        settings=TemperatureSettings,
        forget=None,
        retain=None,
        reference_terms=lambda settings: frozenset(),
        post_hoc=soften,
        grid={"temperature": TEMPERATURES},
    )
)
