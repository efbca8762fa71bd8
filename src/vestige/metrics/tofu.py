"""TOFU's metrics as formulas on numbers: probability, truth ratio, utility, forget quality. No torch.

Maini et al. 2024. What does not exist for a row is Undefined; means leave such rows out and count them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from vestige.contracts import Floats, Record, Undefined
from vestige.seeds import generator

__all__ = [
    "UTILITY_PARTS",
    "ForgetQuality",
    "answer_probability",
    "choice_probability",
    "forget_quality",
    "harmonic_mean",
    "ks_power",
    "memory_ks_power",
    "model_utility",
    "truth_ratio",
    "truth_score",
]

UTILITY_SETS = ("retain", "real_authors", "world_facts")
UTILITY_METRICS = ("probability", "rouge", "truth")
UTILITY_PARTS = tuple(f"{name} {metric}" for name in UTILITY_SETS for metric in UTILITY_METRICS)
"""The nine numbers whose harmonic mean is the model utility."""

LEVEL = 0.05
MEMORY = 0.25
"""Share of memory that forget quality has to be able to see before a large p is read as a pass."""
CERTAIN = 0.95
"""Power against that memory from which on a pass is said: at most one in twenty such models then passes."""
LARGEST = 1e300
"""Of a truth ratio."""
NO_TOKENS = Undefined(undefined="an answer without tokens")


Reading = Literal["told apart", "not told apart", "undetermined"]


class ForgetQuality(Record):
    """Two-sample Kolmogorov-Smirnov test of the unlearned model's truth ratios against the oracle's.

    p: in [0, 1]; large says that the test does not tell them apart, not that they are equal. statistic: the
    largest distance between the two distribution functions. unlearned, oracle: rows of each. power: share
    of `draws` resamples of these sizes in which the test at `level` tells the base from the oracle: what it
    would have seen had nothing been unlearned. memory_power: the same of a model that keeps `memory`, a
    share of the questions answered as the base answers them and the rest as the oracle does.

    reading: `told apart` below `level`; else `not told apart` where memory_power is at least 0.95, so that
    a model with that memory would hardly have passed; else `undetermined`: the test could not have seen it.
    None in records made before there was one; a p above 0.05 alone was then all that was said.
    """

    p: float
    statistic: float
    unlearned: int
    oracle: int
    level: float
    power: float | Undefined
    draws: int
    seed: int
    memory: float | None = None
    memory_power: float | Undefined | None = None
    reading: Reading | None = None
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
    unlearned: Sequence[float | Undefined],
    oracle: Sequence[float | Undefined],
    base: Sequence[float | Undefined] = (),
    *,
    draws: int = 200,
    seed: int,
) -> ForgetQuality | Undefined:
    """The test with its sizes, power and reading.

    unlearned, oracle, base: truth ratios of the forget questions, in the same order of questions; undefined
    ones are left out. Undefined where the unlearned or the oracle has fewer than two.
    """
    ours, theirs = _defined(unlearned), _defined(oracle)
    if min(len(ours), len(theirs)) < 2:
        return Undefined(undefined=f"{len(ours)} and {len(theirs)} truth ratios: too few for a test")
    from scipy import stats

    found = stats.ks_2samp(ours, theirs)
    power: float | Undefined = Undefined(undefined="no truth ratios of the base")
    memory_power: float | Undefined = power
    sizes = (len(ours), len(theirs))
    before = _defined(base)
    if len(before) >= 2:
        power = ks_power(before, theirs, sizes=sizes, draws=draws, seed=seed)
        memory_power = memory_ks_power(base, oracle, share=MEMORY, sizes=sizes, draws=draws, seed=seed)
    reading: Reading = "told apart"
    if found.pvalue >= LEVEL:
        sees = not isinstance(memory_power, Undefined) and memory_power >= CERTAIN
        reading = "not told apart" if sees else "undetermined"
    return ForgetQuality(
        p=float(found.pvalue),
        statistic=float(found.statistic),
        unlearned=sizes[0],
        oracle=sizes[1],
        level=LEVEL,
        power=power,
        draws=draws,
        seed=seed,
        memory=MEMORY,
        memory_power=memory_power,
        reading=reading,
    )


def _defined(values: Sequence[float | Undefined]) -> Floats:
    return np.array([value for value in values if not isinstance(value, Undefined)], dtype=np.float64)


def ks_power(first: ArrayLike, second: ArrayLike, *, sizes: tuple[int, int], draws: int, seed: int) -> float:
    """Share of resamples (with replacement, of these sizes) in which the test at 5 % rejects, in [0, 1]."""
    rng = generator(seed, "forget quality power")
    a, b = np.asarray(first), np.asarray(second)
    return _rejected((rng.choice(a, sizes[0]), rng.choice(b, sizes[1])) for _ in range(draws)) / draws


def memory_ks_power(
    base: Sequence[float | Undefined],
    oracle: Sequence[float | Undefined],
    *,
    share: float,
    sizes: tuple[int, int],
    draws: int,
    seed: int,
) -> float:
    """How often the test at 5 % would tell from the oracle a model that keeps a share of memory, in [0, 1].

    base, oracle: truth ratios, question by question. share: of the questions, drawn anew each time, that
    the simulated model answers as the base; on the rest it is another retraining. Simulated twice: with
    truth ratios of the rest drawn apart from the oracle's, and question by question equal to them, as two
    retrainings may be; the smaller share of rejections counts, because nobody knows how alike they are.
    """
    before, after = _defined(base), _defined(oracle)
    rng = generator(seed, "forget quality memory")

    def apart() -> tuple[Floats, Floats]:
        kept = rng.random(sizes[0]) < share
        return np.where(kept, rng.choice(before, sizes[0]), rng.choice(after, sizes[0])), rng.choice(
            after, sizes[1]
        )

    power = _rejected(apart() for _ in range(draws)) / draws
    pairs = [
        (float(one), float(other))
        for one, other in zip(base, oracle, strict=False)
        if not isinstance(one, Undefined) and not isinstance(other, Undefined)
    ]
    if len(base) != len(oracle) or len(pairs) < 2:
        return power
    old, new = np.array(pairs).T

    def alike() -> tuple[Floats, Floats]:
        rows = rng.integers(0, len(new), min(sizes))
        kept = rng.random(len(rows)) < share
        return np.where(kept, old[rows], new[rows]), new[rows]

    return min(power, _rejected(alike() for _ in range(draws)) / draws)


def _rejected(samples: Iterable[tuple[Floats, Floats]]) -> int:
    from scipy import stats

    return sum(bool(stats.ks_2samp(one, two, method="asymp").pvalue < LEVEL) for one, two in samples)
