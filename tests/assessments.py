"""Assessments made of chosen numbers, for tests of what is written about them."""

from __future__ import annotations

from typing import Any

from tests.evidence import COUNTS, evidence
from vestige.contracts import (
    Assessment,
    Destination,
    Estimate,
    Evidence,
    Interval,
    MethodComparison,
    ModelAssessment,
    ReliabilityBin,
    Source,
    Undefined,
    Verdict,
    ViewCount,
)
from vestige.verdict.sentence import sentence

CONDITION = "training seed 17"
SEEDS = {"F": 1, "G": 2, "R": 3}
INTENTS = ("card_arrival", "lost_or_stolen_card", "pending_top_up", "exchange_rate")


def interval(low: float, high: float, *, view: str = "F", unit: bool = False) -> Interval:
    return Interval(
        low=low,
        high=high,
        kind=f"{'unit' if unit else 'row'} bootstrap, percentile",
        draws=5000,
        seed=SEEDS.get(view, 1) + (100 if unit else 0),
        condition=CONDITION,
    )


def estimate(
    value: float | str,
    low: float | None = None,
    high: float | None = None,
    *,
    unit: tuple[float, float] | None = None,
    view: str = "F",
    unstable: bool = False,
    note: str = "",
) -> Estimate:
    """An estimate; a text value is the reason of an undefined one."""
    return Estimate(
        value=Undefined(undefined=value) if isinstance(value, str) else value,
        row=interval(low, high, view=view) if low is not None and high is not None else None,
        unit=interval(*unit, view=view, unit=True) if unit else None,
        unstable=unstable,
        note=note,
    )


def bins(shift: float = 0.0, rows: int = 2920) -> tuple[ReliabilityBin, ...]:
    """Fifteen bins, the lowest three empty, accuracy off confidence by `shift`."""
    found = []
    for j in range(15):
        low, high = j / 15, (j + 1) / 15
        share = 0.0 if j < 3 else (0.55 if j == 14 else 0.45 * (j - 2) / 66)
        count = round(rows * share)
        middle = (low + high) / 2
        empty = Undefined(undefined="no rows in this bin")
        found.append(
            ReliabilityBin(
                low=low,
                high=high,
                rows=count,
                confidence=middle if count else empty,
                accuracy=min(1.0, max(0.0, middle + shift)) if count else empty,
            )
        )
    return tuple(found)


def flows(
    scale: float = 1.0, intents: tuple[str, ...] = INTENTS, prefix: str = "neighbour"
) -> tuple[Destination, ...]:
    found = []
    for position, name in enumerate(intents):
        moved = round(scale * (0.86 - 0.06 * position), 4)
        to = tuple(
            (f"{prefix}_{position}_{j}", round(moved * share, 4)) for j, share in enumerate((0.5, 0.2, 0.1))
        )
        found.append(
            Destination(
                forgotten=name,
                rows=147 - position,
                moved=moved,
                to=to,
                elsewhere=round(moved - sum(value for _, value in to), 4),
            )
        )
    return tuple(found)


def unlearned(
    label: str = "simnpo",
    *,
    f: tuple[float, float, float] = (0.25, 0.22, 0.28),
    g: tuple[float, float, float] = (0.19, 0.15, 0.23),
    start: tuple[float, float] = (0.61, 0.44),
    decision: Any = "accepted",
    accuracy: float = -0.001,
    ece: float = 0.001,
    units: bool = True,
    unstable: bool = False,
    intents: tuple[str, ...] = INTENTS,
    **more: Any,
) -> ModelAssessment:
    """A model under test whose distances (value, low, high) on F and G are given, without a verdict: as in
    records made before there were any."""
    metrics: dict[str, Estimate] = {}
    for view, (value, low, high), origin in (("F", f, start[0]), ("G", g, start[1])):
        wide = (low - 0.08, high + 0.09) if units else None
        metrics[f"oracle_distance.{view}"] = estimate(value, low, high, unit=wide, view=view)
        gain = (origin - value, origin - high, origin - low)
        metrics[f"gain.{view}"] = estimate(
            *gain, unit=(gain[1] - 0.09, gain[2] + 0.08) if units else None, view=view
        )
        metrics[f"progress.{view}"] = estimate(
            *(item / origin for item in gain),
            unit=((gain[1] - 0.05) / origin, (gain[2] + 0.05) / origin) if units else None,
            view=view,
            unstable=unstable,
        )
        metrics[f"forgotten_mass.{view}"] = estimate(0.31, 0.28, 0.34, unit=(0.2, 0.4), view=view)
        metrics[f"gold_probability.{view}"] = estimate(0.12, 0.10, 0.14, view=view)
        metrics[f"suppression.{view}"] = estimate(0.92, 0.88, 0.97, view=view)
        metrics[f"aligned_coefficient.{view}"] = estimate(0.71, 0.66, 0.75, view=view)
        metrics[f"relative_residual.{view}"] = estimate(0.55, 0.51, 0.6, view=view)
    metrics["suppression.FG"] = estimate(0.91, 0.88, 0.94, unit=(0.7, 1.04))
    metrics["accuracy.R"] = estimate(0.902 + accuracy, 0.89 + accuracy, 0.912 + accuracy, view="R")
    metrics["ece.R"] = estimate(0.024 + ece, 0.019 + ece, 0.03 + ece, view="R")
    metrics["delta_accuracy.R"] = estimate(accuracy, accuracy - 0.004, accuracy + 0.004, view="R")
    metrics["delta_ece.R"] = estimate(ece, ece - 0.003, ece + 0.003, view="R")
    metrics["completeness.R"] = estimate(0.955, 0.947, 0.962, view="R")
    values = {
        "label": label,
        "role": "unlearned",
        "method": "",
        "metrics": metrics,
        "decision": decision,
        "p_value": {"F": 0.0002, "G": 0.0002, "both": 0.0002, "holm": 0.0006},
        "equivalence": Undefined(undefined="equivalence needs at least three oracle seeds"),
        "equivalent": Undefined(undefined="equivalence needs at least three oracle seeds"),
        "destinations": flows(0.9, intents),
        "reliability": bins(0.03),
    }
    return ModelAssessment(**{**values, **more})


def judged(
    label: str = "simnpo", verdict: Verdict = "closer", found: Evidence | None = None, **more: Any
) -> ModelAssessment:
    """A model under test with a verdict and what it rests on."""
    rests_on = found or evidence()
    words = sentence(verdict, rests_on, label=label, counts=COUNTS)
    return unlearned(
        label,
        **{
            "verdict": verdict,
            "evidence": rests_on,
            "sentence": words,
            "verdict_p": 0.001 if verdict in ("closer", "equivalent") else 0.4,
            "equivalence": None,
            "equivalent": None,
            **more,
        },
    )


def full(label: str = "full-17", start: tuple[float, float] = (0.61, 0.44)) -> ModelAssessment:
    return ModelAssessment(
        label=label,
        role="full",
        metrics={
            "displacement.F": estimate(start[0], start[0] - 0.02, start[0] + 0.02),
            "displacement.G": estimate(start[1], start[1] - 0.03, start[1] + 0.03, view="G"),
            "oracle_distance.F": estimate(start[0], start[0] - 0.02, start[0] + 0.02),
            "oracle_distance.G": estimate(start[1], start[1] - 0.03, start[1] + 0.03, view="G"),
            "forgotten_mass.F": estimate(0.96, 0.95, 0.97),
            "forgotten_mass.G": estimate(0.82, 0.78, 0.86, view="G"),
            "gold_probability.F": estimate(0.94, 0.93, 0.95),
            "gold_probability.G": estimate(0.79, 0.75, 0.83, view="G"),
            "accuracy.R": estimate(0.902, 0.89, 0.912, view="R"),
            "ece.R": estimate(0.024, 0.019, 0.03, view="R"),
        },
        decision=Undefined(undefined="the full model is not judged"),
        reliability=bins(0.02),
    )


def oracle(label: str = "retrained-17", intents: tuple[str, ...] = INTENTS) -> ModelAssessment:
    return ModelAssessment(
        label=label,
        role="oracle",
        metrics={
            "forgotten_mass.F": estimate(0.24, 0.21, 0.27),
            "forgotten_mass.G": estimate(0.22, 0.18, 0.26, view="G"),
            "accuracy.R": estimate(0.905, 0.893, 0.915, view="R"),
            "ece.R": estimate(0.022, 0.017, 0.028, view="R"),
        },
        decision=Undefined(undefined="an oracle is not judged"),
        destinations=flows(1.0, intents),
        reliability=bins(0.015),
    )


def assessment(
    *models: ModelAssessment,
    name: str = "BANKING77, bundle 01, seed 17",
    has_oracle: bool = True,
    intents: tuple[str, ...] = INTENTS,
    unit_kind: str = "class",
    units: int | None = None,
    rows: tuple[int, int] = (428, 160),
    noise: dict[str, Estimate] | None = None,
    start: tuple[float, float] = (0.61, 0.44),
    gate: str = "passed",
    options: int = 77,
    **more: Any,
) -> Assessment:
    """A record of a full model, the given models and, with an oracle, a retrained one."""
    deleted = len(intents) if units is None else units
    tested = models or (unlearned(),)
    everything = (full(start=start), *tested, *((oracle(intents=intents),) if has_oracle else ()))
    floors = {
        "noise_full.F": estimate(0.004, 0.003, 0.005),
        "noise_full.G": estimate(0.021, 0.016, 0.027, view="G"),
        "noise_oracle.F": estimate(0.031, 0.027, 0.036),
        "noise_oracle.G": estimate(0.034, 0.027, 0.042, view="G"),
    }
    values: dict[str, Any] = {
        "name": name,
        "stage": "confirmation",
        "condition": CONDITION,
        "options": options,
        "forgotten": intents,
        "unit_kind": unit_kind,
        "views": (
            ViewCount(view="F", rows=rows[0], units=deleted),
            ViewCount(view="G", rows=rows[1], units=deleted),
            ViewCount(view="R", rows=2920, units=73),
        ),
        "has_oracle": has_oracle,
        "draws": 5000,
        "seeds": {"F": 1, "G": 2, "R": 3},
        "sources": tuple(
            Source(
                label=model.label,
                role=model.role,
                path=f"probabilities/{index:02d}.parquet",
                sha256=f"{index + 1:064x}",
                max_sum_deviation=3e-8,
            )
            for index, model in enumerate(everything)
        ),
        "noise": floors if noise is None else noise,
        "noise_pairs": {"noise_full": 3, "noise_oracle": 3},
        "intervention_gate": gate,
        "minimum_detectable_gain": {"F": 0.031, "G": 0.052},
        "models": everything,
        "family": (),
        "provenance": {
            "dataset": {
                "name": "banking77",
                "sha256": "ab" * 32,
                "training_rows": 7702,
                "dropped_duplicates": 12,
            },
            "request": {
                "bundle": "01",
                "granularity": "class",
                "salt": "vestige",
                "rows": rows[0],
                "units": list(intents),
                "rows_sha256": "cd" * 32,
                "units_sha256": "ef" * 32,
            },
            "training": {"backbone": "minilm", "epochs": 4, "learning_rate": 1e-4, "seed": 17},
        },
    }
    return Assessment(**{**values, **more})


def comparison(first: str, second: str, view: str = "F") -> MethodComparison:
    return MethodComparison(first=first, second=second, view=view, difference=estimate(-0.11, -0.13, -0.09))
