"""The calibrated class **[ours]**: a change against 8-bit copies and against random changes alike. No torch.

s(C) is the RMS log-ratio of the Fisher diagonal on corpus C. Ranks against copies and references give p
values without any assumption on how s is distributed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vestige.contracts import Undefined

__all__ = [
    "CalibratedRule",
    "Direction",
    "calibrated_rule",
    "directions",
    "explain_disagreement",
    "moved",
    "rank_p",
]

SIGNIFICANCE = 0.05
CalibratedName = Literal["no-op", "undirected", "localized", "collateral", "undetermined"]


@dataclass(frozen=True)
class Direction:
    """e: corpus -> s over the references' median; roles: role -> geometric mean over its corpora.

    h = log(e(G) / max(e(F), e(A))), low where generic text moved less than a random change would move it;
    g = log(e(F) / e(A)), above 0 where forget text moved more. None without an adjacent corpus.
    """

    e: dict[str, float]
    roles: dict[str, float]
    h: float | None
    g: float | None


@dataclass(frozen=True)
class CalibratedRule:
    """name and what decided: see `calibrated_rule`. medians: corpus -> s over checkpoint
    and references. g_p is None where h is not low or there is no g."""

    name: CalibratedName | Undefined
    moved: float
    moved_p: float
    direction: Direction
    medians: dict[str, float]
    h_p: float | None
    g_p: float | None


def rank_p(value: float, others: Sequence[float], side: Literal["low", "high", "both"]) -> float:
    """Rank p value among exchangeable others: (1 + #{at least as extreme}) / (n + 1), in (0, 1]."""
    array = np.asarray(others, dtype=np.float64)
    low = (1 + int((array <= value).sum())) / (len(array) + 1)
    high = (1 + int((array >= value).sum())) / (len(array) + 1)
    return {"low": low, "high": high, "both": min(1.0, 2 * min(low, high))}[side]


def moved(s: Mapping[str, float], copies: Sequence[Mapping[str, float]]) -> tuple[float, float]:
    """(statistic, rank p). Statistic: the largest over corpora of s(C) over the copies' median of it.

    Raises ValueError for copies that all leave a corpus unchanged.
    """
    medians = _medians(copies)
    if min(medians.values()) <= 0:
        raise ValueError("the copies do not move the Fisher diagonal")
    statistic = max(s[corpus] / medians[corpus] for corpus in s)
    others = [max(copy[corpus] / medians[corpus] for corpus in s) for copy in copies]
    return statistic, rank_p(statistic, others, "high")


def directions(runs: Sequence[Mapping[str, float]], roles: Mapping[str, str]) -> list[Direction]:
    """The direction of the checkpoint (first) and of every reference, against the medians over all of them.

    runs: corpus -> s. roles: corpus -> forget, adjacent or generic.
    """
    medians = _medians(runs)
    return [direction(run, medians, roles) for run in runs]


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {corpus: float(np.median([run[corpus] for run in runs])) for corpus in runs[0]}


def direction(run: Mapping[str, float], medians: Mapping[str, float], roles: Mapping[str, str]) -> Direction:
    """The direction of one run against given medians, which are above 0."""
    e = {corpus: run[corpus] / medians[corpus] for corpus in roles}
    logs = {
        role: float(np.mean([math.log(max(e[c], 1e-300)) for c in roles if roles[c] == role]))
        for role in dict.fromkeys(roles.values())
    }
    own = [logs[role] for role in ("forget", "adjacent") if role in logs]
    return Direction(
        e=e,
        roles={role: math.exp(value) for role, value in logs.items()},
        h=logs["generic"] - max(own) if own and "generic" in logs else None,
        g=logs["forget"] - logs["adjacent"] if "adjacent" in logs and "forget" in logs else None,
    )


def calibrated_rule(
    s: Mapping[str, float],
    copies: Sequence[Mapping[str, float]],
    references: Sequence[Mapping[str, float]],
    roles: Mapping[str, str],
) -> CalibratedRule:
    """`no-op` if not above all copies; `undirected` if h is not low (rank p above 0.05); `localized` or
    `collateral` by the sign of g where its two-sided p is at most 0.05; else `undetermined`.

    g is asked only after h, so that the sequence as a whole errs in at most 5 %. Without an adjacent corpus,
    what g would decide is Undefined.
    """
    statistic, p = moved(s, copies)
    found = directions([s, *references], roles)
    own, others = found[0], found[1:]
    h_p = None if own.h is None else rank_p(own.h, [other.h or 0.0 for other in others], "low")
    name: CalibratedName | Undefined
    g_p = None
    if p > 1 / (len(copies) + 1):
        name = "no-op"
    elif h_p is None:
        name = Undefined(undefined="no generic corpus")
    elif h_p > SIGNIFICANCE:
        name = "undirected"
    elif own.g is None:
        name = Undefined(undefined="no adjacent corpus")
    else:
        g_p = rank_p(own.g, [other.g or 0.0 for other in others], "both")
        name = "undetermined" if g_p > SIGNIFICANCE else "localized" if own.g > 0 else "collateral"
    return CalibratedRule(name, statistic, p, own, _medians([s, *references]), h_p, g_p)


def explain_disagreement(paper: str, calibrated: str) -> str:
    """One line on why the published class and the calibrated one differ; empty where they agree."""
    same = {
        "no-op": "no-op",
        "globally-destructive": "undirected",
        "partially-localized": "localized",
        "collateral-dominant": "collateral",
    }
    if same.get(paper) == calibrated or paper.startswith("undefined") or calibrated.startswith("undefined"):
        return ""
    if paper == "no-op":
        return (
            "most of the Fisher diagonal lies below the published floor, which hides changes there: it moved "
            f"more than 8-bit storage does, and is {calibrated} against random changes of the same size"
        )
    if calibrated == "no-op":
        return "the published threshold is exceeded, but storing the base in 8 bits moves it as much"
    if calibrated == "undirected":
        return (
            f"the published rule sees a direction ({paper}), but random changes of the same size in the same "
            "layers spare generic text as much"
        )
    if calibrated == "undetermined":
        return (
            f"the published rule compares forget with adjacent text directly ({paper}); random changes of "
            "the same size differ between the two as much"
        )
    if paper == "globally-destructive":
        return (
            "generic text moved by much, yet less than random changes of the same size would move it: "
            f"{calibrated}"
        )
    return (
        "the published rule compares shifts as they are, the calibrated one against what random changes of "
        "the same size do to each corpus: one of the corpora is easier to move"
    )
