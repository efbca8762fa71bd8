"""What a footprint will take, counted before it starts: passes, minutes and gigabytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vestige.footprint.records import FootprintSettings

__all__ = ["Estimate", "estimate"]

_FORWARD = 1 / 3
"""A forward pass over forward and backward."""
_COMPARED = 1 / 3
"""Comparing a position's distributions, over forward and backward."""
_PRODUCT = 2.0
"""A Hessian-vector product over forward and backward; the first gradient is one more."""


@dataclass(frozen=True)
class Estimate:
    """passes: sequences that go forward and backward once. work: tokens of forward and backward, whatever is
    done weighed against that. gigabytes: of the cache. seconds: by a rate in work per second, once known."""

    passes: int
    tokens: int
    work: float
    gigabytes: float
    weights: Mapping[str, float]

    def seconds(self, rate: float, processes: int = 1) -> float:
        """At `rate` units of work per second and process."""
        return self.work / (rate * processes)

    def line(self, seconds: float) -> str:
        """What is printed before the work starts."""
        minutes = f"about {seconds / 60:.0f} minutes" if seconds >= 90 else f"about {seconds:.0f} seconds"
        return (
            f"{self.passes:,} passes of a sequence forward and backward, {self.tokens:,} tokens, {minutes}, "
            f"{self.gigabytes:.2f} GB of cache"
        )


def estimate(
    settings: FootprintSettings,
    *,
    lengths: Mapping[str, list[list[int]]],
    short: Mapping[str, list[list[int]]],
    checkpoints: int,
    weight_changes: int,
    parameters: int,
    chunks: int = 1,
    wide: bool = False,
    judged: int = 0,
) -> Estimate:
    """lengths: corpus -> subsets -> tokens of each unit; short: of each that the Hessian is measured on.
    checkpoints: models besides the base; weight_changes: those of them that have a shift. parameters:
    measured weights. wide: float64. judged: tokens that all models read for the verdict together."""
    s = settings
    subsets = [units for corpus in lengths.values() for units in corpus]
    units = sum(len(subset) for subset in subsets)
    tokens = sum(sum(subset) for subset in subsets)
    curved = [subset for own in short.values() for subset in own]
    curved_tokens = sum(sum(subset) for subset in curved)
    scored = sum(min(sum(subset), s.perplexity_tokens) for subset in subsets)
    windows = s.perplexity_window / s.perplexity_stride
    weights = {
        "fisher": float(chunks),
        "hessian": 1 + _PRODUCT * s.probes if s.probes else 0.0,
        "perplexity": _FORWARD * windows,
        "verdict": _FORWARD + _COMPARED,
    }
    fishers, hessians = 1 + weight_changes, (2 + weight_changes if s.probes else 0)
    passes = units * chunks * fishers + sum(map(len, curved)) * s.probes * hessians
    work = weights["fisher"] * tokens * fishers + weights["hessian"] * curved_tokens * hessians
    work += weights["perplexity"] * scored * (1 + checkpoints)
    work += weights["verdict"] * judged
    if s.calibrate:
        first = [corpus[0] for corpus in lengths.values()]
        copies = s.noise_copies + weight_changes * s.reference_changes
        passes += copies * sum(len(subset) for subset in first)
        work += copies * chunks * sum(sum(subset) for subset in first)
        weights["calibration"] = float(chunks)
    stored = len(subsets) * (1 + (2 if s.probes else 0)) + (
        weight_changes * len(lengths) if s.calibrate else 0
    )
    return Estimate(
        passes=passes,
        tokens=tokens,
        work=work,
        gigabytes=stored * parameters * (8 if wide else 4) / 1e9,
        weights=weights,
    )
