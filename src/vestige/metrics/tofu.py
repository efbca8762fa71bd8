"""TOFU's metrics as formulas on numbers: probability, truth ratio, utility, forget quality. No torch.

Maini et al. 2024. What does not exist for a row is Undefined; means leave such rows out and count them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vestige.contracts import Record, Undefined
from vestige.seeds import generator

__all__ = [
    "UTILITY_PARTS",
    "ForgetQuality",
    "answer_probability",
    "choice_probability",
    "forget_quality",
    "harmonic_mean",
    "ks_power",
    "model_utility",
    "rouge_l_recall",
    "truth_ratio",
    "truth_score",
]

UTILITY_SETS = ("retain", "real_authors", "world_facts")
UTILITY_METRICS = ("probability", "rouge", "truth")
UTILITY_PARTS = tuple(f"{name} {metric}" for name in UTILITY_SETS for metric in UTILITY_METRICS)
"""The nine numbers whose harmonic mean is the model utility."""

LEVEL = 0.05
LARGEST = 1e300
"""Of a truth ratio."""
NO_TOKENS = Undefined(undefined="an answer without tokens")


class ForgetQuality(Record):
    """Two-sample Kolmogorov-Smirnov test of the unlearned model's truth ratios against the oracle's.

    p: in [0, 1]; large says that the test does not tell them apart, not that they are equal. statistic: the
    largest distance between the two distribution functions. unlearned, oracle: rows of each. power: share of
    `draws` resamples of these sizes in which the test at `level` tells the base from the oracle: what it
    would have seen had nothing been unlearned.
    """

    p: float
    statistic: float
    unlearned: int
    oracle: int
    level: float
    power: float | Undefined
    draws: int
    seed: int
    condition: str = "truth ratios of the questions given, one training run of each model"


def answer_probability(nll: float, tokens: int) -> float | Undefined:
    """P(a | q)^(1/|a|) = exp(-nll / tokens), in [0, 1]. nll: summed over the answer's tokens, nats.

    Undefined without tokens: an empty answer is neither certain nor impossible; and for an nll that is NaN.
    """
    if tokens < 1:
        return NO_TOKENS
    if math.isnan(nll):
        return Undefined(undefined="the model gives no log-likelihood (NaN)")
    return math.exp(-nll / tokens)


def choice_probability(right: float, others: Sequence[float]) -> float | Undefined:
    """right / (right + sum others), in [0, 1]: the answer's share among the choices.

    right, others: length-normalised probabilities. Undefined without others, or where all are 0.
    """
    total = right + math.fsum(others)
    if not others:
        return Undefined(undefined="no other choices")
    return right / total if total > 0 else Undefined(undefined="every choice has probability 0")


def truth_ratio(right: float, perturbed: Sequence[float], *, mean: str = "arithmetic") -> float | Undefined:
    """Mean of the perturbed answers' probabilities over the (paraphrased) right answer's, at least 0.

    Length-normalised probabilities. mean: `arithmetic`, as the paper writes it, or `geometric`, as its code
    computes it. Above 1: wrong answers are the likelier. Undefined without perturbed answers, for a right
    answer of probability 0, and above 1e300, where means of ratios leave the range of numbers.
    """
    if not perturbed:
        return Undefined(undefined="no perturbed answers")
    if mean == "arithmetic":
        wrong = math.fsum(perturbed) / len(perturbed)
    elif min(perturbed) <= 0:
        wrong = 0.0
    else:
        wrong = math.exp(math.fsum(math.log(value) for value in perturbed) / len(perturbed))
    if right <= 0 or wrong > LARGEST * right:
        return Undefined(undefined="the right answer has probability 0")
    return wrong / right


def truth_score(ratio: float) -> float:
    """max(0, 1 - R), in [0, 1]: how far the right answer is ahead; part of the model utility."""
    return max(0.0, 1.0 - ratio)


def rouge_l_recall(
    reference: str, generated: str, *, scorer: Callable[[str, str], float]
) -> float | Undefined:
    """Share of the reference's tokens in the longest common subsequence, in [0, 1]; 0 for empty generations.

    scorer(reference, generated): recall by a library. Undefined for a reference without a letter or digit.
    """
    if not any(char.isalnum() for char in reference):
        return Undefined(undefined="a reference answer without a word")
    return scorer(reference, generated) if generated.strip() else 0.0


def harmonic_mean(values: Sequence[float]) -> float | Undefined:
    """n / sum(1 / v), 0 where one value is 0. Values at least 0. Undefined without values."""
    if not values:
        return Undefined(undefined="no values")
    if min(values) < 0:
        raise ValueError("a harmonic mean needs values of at least 0")
    return 0.0 if min(values) == 0 else len(values) / math.fsum(1 / value for value in values)


def model_utility(parts: Mapping[str, float | Undefined]) -> float | Undefined:
    """Harmonic mean of the nine parts of `UTILITY_PARTS`, in [0, 1]. Undefined where one is missing."""
    values: list[float] = []
    for name in UTILITY_PARTS:
        value = parts.get(name, Undefined(undefined="not given"))
        if isinstance(value, Undefined):
            return Undefined(undefined=f"{name}: {value.undefined}")
        values.append(value)
    return harmonic_mean(values)


def forget_quality(
    unlearned: Sequence[float],
    oracle: Sequence[float],
    base: Sequence[float] = (),
    *,
    draws: int = 200,
    seed: int,
) -> ForgetQuality | Undefined:
    """The test with its sizes and power. unlearned, oracle, base: truth ratios of the forget questions.

    Undefined where the unlearned or the oracle has fewer than two.
    """
    if min(len(unlearned), len(oracle)) < 2:
        return Undefined(undefined=f"{len(unlearned)} and {len(oracle)} truth ratios: too few for a test")
    from scipy import stats

    found = stats.ks_2samp(np.asarray(unlearned), np.asarray(oracle))
    power: float | Undefined = Undefined(undefined="no truth ratios of the base")
    if len(base) >= 2:
        power = ks_power(base, oracle, sizes=(len(unlearned), len(oracle)), draws=draws, seed=seed)
    return ForgetQuality(
        p=float(found.pvalue),
        statistic=float(found.statistic),
        unlearned=len(unlearned),
        oracle=len(oracle),
        level=LEVEL,
        power=power,
        draws=draws,
        seed=seed,
    )


def ks_power(
    first: Sequence[float], second: Sequence[float], *, sizes: tuple[int, int], draws: int, seed: int
) -> float:
    """Share of resamples (with replacement, of these sizes) in which the test at 5 % rejects, in [0, 1]."""
    from scipy import stats

    rng = generator(seed, "forget quality power")
    a, b = np.asarray(first), np.asarray(second)
    rejected = 0
    for _ in range(draws):
        one, two = rng.choice(a, sizes[0]), rng.choice(b, sizes[1])
        rejected += bool(stats.ks_2samp(one, two, method="asymp").pvalue < LEVEL)
    return rejected / draws
