"""From right and wrong answers to accuracies, losses and their intervals. No torch.

Resampling n questions with replacement and counting what base and model answer is one multinomial draw over
the four cells of their table, so that the bootstrap costs the same for 40 questions as for 2,000.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from vestige.behaviour.partition import ROLES, Subject
from vestige.behaviour.records import (
    Loss,
    RoleAccuracy,
    RoleHeadroom,
    SubjectAccuracy,
    TripartiteLoss,
)
from vestige.contracts import Floats, Interval, Undefined
from vestige.data.corpora import Role
from vestige.metrics.behaviour import behaviour_gap, gap_relation, relative_loss
from vestige.seeds import generator
from vestige.statistics import LEVEL

__all__ = [
    "CONDITION",
    "Paired",
    "headroom",
    "role_accuracies",
    "subject_accuracies",
    "tripartite_loss",
    "wilson",
]

CONDITION = "sampling of questions within each subject; one training run of each model"
ROLE_KIND = "percentile, question bootstrap within subjects"
PAIRED_KIND = "percentile, paired question bootstrap within subjects"


@dataclass(frozen=True)
class Paired:
    """One subject's answers of the base and of a model, aligned by question."""

    subject: Subject
    base: tuple[bool, ...]
    after: tuple[bool, ...]

    @property
    def cells(self) -> tuple[int, int, int, int]:
        """Questions that both answer, only the base (lost), only the model (gained), neither."""
        pairs = list(zip(self.base, self.after, strict=True))
        return (
            pairs.count((True, True)),
            pairs.count((True, False)),
            pairs.count((False, True)),
            pairs.count((False, False)),
        )

    def draws(self, draws: int, seed: int) -> tuple[Floats, Floats]:
        """Accuracies (draws,) of base and model on the same resampled questions."""
        cells = np.asarray(self.cells, dtype=np.float64)
        rng = generator(seed, "question bootstrap", *self.subject.key)
        counts = rng.multinomial(len(self.base), cells / cells.sum(), size=draws) / len(self.base)
        return counts[:, 0] + counts[:, 1], counts[:, 0] + counts[:, 2]


def wilson(correct: int, questions: int) -> Interval:
    """Wilson's score interval of a share at 95 %; no draws. questions at least 1."""
    found = stats.binomtest(correct, questions).proportion_ci(LEVEL, method="wilson")
    return Interval(
        low=float(found.low),
        high=float(found.high),
        kind="Wilson score",
        level=LEVEL,
        draws=0,
        seed=0,
        condition="sampling of questions; one training run of the model",
    )


def subject_accuracies(pairs: Sequence[Paired]) -> tuple[SubjectAccuracy, ...]:
    """The model's accuracy on each subject with what it lost and gained against the base."""
    found = []
    for pair in pairs:
        _, lost, gained, _ = pair.cells
        right, n = sum(pair.after), len(pair.after)
        role, topic, name = pair.subject.key
        found.append(
            SubjectAccuracy(
                role=role,
                topic=topic,
                subject=name,
                correct=right,
                questions=n,
                accuracy=right / n,
                interval=wilson(right, n),
                lost=lost,
                gained=gained,
            )
        )
    return tuple(found)


def role_accuracies(pairs: Sequence[Paired], *, draws: int, seed: int) -> tuple[RoleAccuracy, ...]:
    """The model's accuracy on each role that has questions."""
    found = []
    for role, own in _by_role(pairs).items():
        topics = _topic_means([(pair, float(np.mean(pair.after))) for pair in own])
        low, high = _bounds(_role_draws(own, draws, seed)[1])
        found.append(
            RoleAccuracy(
                role=role,
                accuracy=float(np.mean(list(topics.values()))),
                interval=_interval(low, high, ROLE_KIND, draws, seed),
                topics=topics,
                subjects=len(own),
                questions=sum(len(pair.after) for pair in own),
            )
        )
    return tuple(found)


def headroom(base: Sequence[Paired], *, draws: int, seed: int) -> tuple[RoleHeadroom, ...]:
    """Accuracy above chance of the base (paired with itself) on each role: what it can lose."""
    found = []
    for entry in role_accuracies(base, draws=draws, seed=seed):
        own = _by_role(base)[entry.role]
        chances = _topic_means([(pair, pair.subject.chance) for pair in own])
        chance = float(np.mean(list(chances.values())))
        low, high = entry.interval.low - chance, entry.interval.high - chance
        passes = low > 0
        verdict = (
            "it has something to lose"
            if passes
            else "not shown to know more than a guess: a loss of knowledge is undefined here"
        )
        said = f"{entry.role}: the base answers {entry.accuracy:.1%}, guessing gives {chance:.1%}; {verdict}"
        found.append(
            RoleHeadroom(
                role=entry.role,
                accuracy=entry.accuracy,
                chance=chance,
                value=entry.accuracy - chance,
                interval=_interval(low, high, ROLE_KIND, draws, seed),
                passes=passes,
                said=said,
            )
        )
    return tuple(found)


def tripartite_loss(
    pairs: Sequence[Paired], *, draws: int, seed: int, adjacency_gap: float | Undefined
) -> TripartiteLoss:
    """Relative losses of the roles and B-Gap with paired intervals. adjacency_gap: percentage points."""
    roles = _by_role(pairs)
    values: dict[Role, float | Undefined] = {}
    sampled: dict[Role, Floats] = {}
    for role in ROLES:
        own = roles.get(role, [])
        if not own:
            values[role] = Undefined(undefined=f"no {role} questions")
            continue
        base, after = _role_draws(own, draws, seed)
        values[role] = relative_loss(_role_mean(own, of_base=True), _role_mean(own, of_base=False))
        with np.errstate(divide="ignore", invalid="ignore"):
            sampled[role] = np.where(base > 0, 100 * (base - after) / base, np.nan)
    gap = _gap(roles, values)
    both = sampled["forget"] - sampled["adjacent"] if {"forget", "adjacent"} <= sampled.keys() else None
    losses = {role: _loss(values[role], sampled.get(role), draws, seed) for role in ROLES}
    relation = (
        gap
        if isinstance(gap, Undefined)
        else adjacency_gap
        if isinstance(adjacency_gap, Undefined)
        else gap_relation(adjacency_gap, gap)
    )
    return TripartiteLoss(
        delta_f=losses["forget"],
        delta_a=losses["adjacent"],
        delta_g=losses["generic"],
        b_gap=_loss(gap, both, draws, seed),
        adjacency_gap=adjacency_gap,
        relation=relation,
    )


def _gap(roles: Mapping[Role, list[Paired]], values: Mapping[Role, float | Undefined]) -> float | Undefined:
    """B-Gap by the published rule on topics' accuracies."""
    for role in ("forget", "adjacent"):
        if role not in roles:
            return Undefined(undefined=f"no {role} questions")
    records = []
    for of_base in (True, False):
        # Topics may be named on one role alone: the rule averages each role by itself.
        records.append(
            {
                role: _topic_means(
                    [(pair, float(np.mean(pair.base if of_base else pair.after))) for pair in roles[role]]
                )
                for role in ("forget", "adjacent")
            }
        )
    return behaviour_gap(*records).b_gap


def _by_role(pairs: Sequence[Paired]) -> dict[Role, list[Paired]]:
    found: dict[Role, list[Paired]] = {}
    for pair in pairs:
        found.setdefault(pair.subject.role, []).append(pair)
    return found


def _topic_means(values: Sequence[tuple[Paired, float]]) -> dict[str, float]:
    """Topic -> plain mean over its subjects."""
    topics: dict[str, list[float]] = {}
    for pair, value in values:
        topics.setdefault(pair.subject.topic, []).append(value)
    return {topic: float(np.mean(listed)) for topic, listed in topics.items()}


def _role_mean(pairs: Sequence[Paired], *, of_base: bool) -> float:
    values = [(pair, float(np.mean(pair.base if of_base else pair.after))) for pair in pairs]
    return float(np.mean(list(_topic_means(values).values())))


def _role_draws(pairs: Sequence[Paired], draws: int, seed: int) -> tuple[Floats, Floats]:
    """Accuracies (draws,) of a role for base and model: subjects averaged in topics, topics in the role."""
    topics: dict[str, list[tuple[Floats, Floats]]] = {}
    for pair in pairs:
        topics.setdefault(pair.subject.topic, []).append(pair.draws(draws, seed))
    means = [np.mean(np.asarray(listed), axis=0) for listed in topics.values()]
    base, after = np.mean(np.asarray(means), axis=0)
    return base, after


def _loss(value: float | Undefined, sampled: Floats | None, draws: int, seed: int) -> Loss:
    if isinstance(value, Undefined) or sampled is None:
        return Loss(value=value, interval=value if isinstance(value, Undefined) else _NOTHING)
    missing = float(np.isnan(sampled).mean())
    if missing == 1:
        return Loss(value=value, interval=_NOTHING)
    low, high = _bounds(sampled[~np.isnan(sampled)])
    kind = PAIRED_KIND + (f"; {missing:.1%} of the draws undefined" if missing else "")
    return Loss(value=value, interval=_interval(low, high, kind, draws, seed))


_NOTHING = Undefined(undefined="no draw is defined")


def _bounds(values: Floats) -> tuple[float, float]:
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def _interval(low: float, high: float, kind: str, draws: int, seed: int) -> Interval:
    return Interval(low=low, high=high, kind=kind, level=LEVEL, draws=draws, seed=seed, condition=CONDITION)
