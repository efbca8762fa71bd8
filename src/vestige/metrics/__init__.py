"""Metrics of an unlearned model. Importing this package imports neither torch nor any single metric.

`METRICS` holds every registered metric of one model on one view by name, `SEED_METRICS` those of several;
`vestige.metrics.oracle_distance` and the other functions named in `__all__` load their module at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vestige.contracts import Metric, SeedMetric
from vestige.registry import Registry

METRICS: Registry[Metric] = Registry("metric", "vestige.metrics")
SEED_METRICS: Registry[SeedMetric] = Registry("several-seed metric", "vestige.metrics.several")
"""Metrics of a method over several training seeds or several views at once."""

_WHERE = {
    "CorpusShift": "footprint",
    "FootprintClass": "footprint",
    "FootprintThresholds": "footprint",
    "Geometry": "geometry",
    "NoiseFloor": "noise",
    "activation_distance": "agreement",
    "adjacency_gap": "footprint",
    "behaviour_gap": "behaviour",
    "calibration_terms": "calibration",
    "classify_footprint": "footprint",
    "correct": "accuracy",
    "decompose": "geometry",
    "destinations": "destination",
    "footprint_class": "footprint",
    "forgotten_mass": "suppression",
    "gap_relation": "behaviour",
    "globality": "footprint",
    "gold_probability": "confidence",
    "js2": "oracle",
    "margin": "confidence",
    "noise_floor": "noise",
    "oracle_distance": "oracle",
    "progress_terms": "oracle",
    "progress_unstable": "oracle",
    "project_to_simplex": "geometry",
    "recovery_contrasts": "recovery",
    "reliability_bins": "calibration",
    "renormalise": "oracle",
    "same_decision": "agreement",
    "total_variation": "agreement",
}

if TYPE_CHECKING:
    from vestige.metrics.accuracy import correct
    from vestige.metrics.agreement import activation_distance, same_decision, total_variation
    from vestige.metrics.behaviour import behaviour_gap, gap_relation
    from vestige.metrics.calibration import calibration_terms, reliability_bins
    from vestige.metrics.confidence import gold_probability, margin
    from vestige.metrics.destination import destinations
    from vestige.metrics.footprint import (
        CorpusShift,
        FootprintClass,
        FootprintThresholds,
        adjacency_gap,
        classify_footprint,
        footprint_class,
        globality,
    )
    from vestige.metrics.geometry import Geometry, decompose, project_to_simplex
    from vestige.metrics.noise import NoiseFloor, noise_floor
    from vestige.metrics.oracle import js2, oracle_distance, progress_terms, progress_unstable, renormalise
    from vestige.metrics.recovery import recovery_contrasts
    from vestige.metrics.suppression import forgotten_mass

__all__ = [
    "METRICS",
    "SEED_METRICS",
    "CorpusShift",
    "FootprintClass",
    "FootprintThresholds",
    "Geometry",
    "NoiseFloor",
    "activation_distance",
    "adjacency_gap",
    "behaviour_gap",
    "calibration_terms",
    "classify_footprint",
    "correct",
    "decompose",
    "destinations",
    "footprint_class",
    "forgotten_mass",
    "gap_relation",
    "globality",
    "gold_probability",
    "js2",
    "margin",
    "noise_floor",
    "oracle_distance",
    "progress_terms",
    "progress_unstable",
    "project_to_simplex",
    "recovery_contrasts",
    "reliability_bins",
    "renormalise",
    "same_decision",
    "total_variation",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'vestige.metrics' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"vestige.metrics.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
