"""What relearning may be called, against the retrained model under the same attack. No torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from scipy.special import stdtrit

from vestige.attacks.reading import beyond_retraining, level_reading
from vestige.attacks.relearn_records import (
    AgainstOracle,
    CheckpointRelearning,
    LevelDifference,
    Reading,
    RoleChange,
    ScoreChange,
    reading_of,
    rose,
)
from vestige.contracts import Interval, Undefined
from vestige.data.corpora import Role
from vestige.statistics import ROW_SEEDS, bootstrap_rows, mean_of

__all__ = ["ROLE_SEEDS", "against", "read_together", "role_changes"]

ROLE_SEEDS: Mapping[Role, int] = {
    "forget": ROW_SEEDS["F"],
    "adjacent": ROW_SEEDS["G"],
    "generic": ROW_SEEDS["R"],
}
LEAST_ITEMS = 10
LEVEL = 0.95
NOT_COMPARED = "no retrained model went through this attack"


def read_together(found: Sequence[CheckpointRelearning]) -> tuple[CheckpointRelearning, ...]:
    """Every checkpoint, the oracle itself among them, read by one rule against the oracle's levels.

    The rule looks at scores alone, never at a checkpoint's role or name, so that the same weights given twice
    read the same. Where no oracle came through the attack, a rise is `came back`: memory and learning anew
    cannot be parted.
    """
    oracle = next((item for item in found if item.role == "oracle" and item.failed is None), None)
    return tuple(_read(item, oracle) for item in found)


def _read(item: CheckpointRelearning, oracle: CheckpointRelearning | None) -> CheckpointRelearning:
    if item.failed is not None:
        return item.model_copy(
            update={"beyond_oracle": item.failed if oracle is not None else item.beyond_oracle}
        )
    forget, generic = item.change("forget"), item.change("generic")
    if oracle is None:
        return item.model_copy(update={"reading": _alone(reading_of(forget, generic))})
    compared = against(item, oracle)
    own, theirs = item.change("forget"), oracle.change("forget")
    beyond = (
        own.change - theirs.change
        if own is not None and theirs is not None
        else Undefined(undefined="no forget text was scored")
    )
    reading = compared if isinstance(compared, Undefined) else _reading(item, oracle, compared)
    return item.model_copy(update={"against_oracle": compared, "beyond_oracle": beyond, "reading": reading})


def _alone(reading: Reading | Undefined) -> Reading | Undefined:
    """A change that has nothing to be compared with."""
    if reading == "return":
        return "came back"
    return "came back and repair" if reading == "return and repair" else reading


def _reading(
    item: CheckpointRelearning, oracle: CheckpointRelearning, compared: AgainstOracle
) -> Reading | Undefined:
    forget, generic = item.change("forget"), item.change("generic")
    theirs = oracle.change("forget")
    assert forget is not None
    assert theirs is not None
    if isinstance(compared.after.low, Undefined):
        return Undefined(undefined=f"not told apart from the retrained model: {compared.after.low.undefined}")
    said = level_reading(
        rose=rose(forget),
        above=_above(compared.after)
        and beyond_retraining(compared.after.change, forget.before - theirs.before),
        above_before=_above(compared.start),
        elsewhere=_better_everywhere(compared),
    )
    if said == "still there" or generic is None or not rose(generic):
        return said
    if generic.change >= forget.change:
        return "repair"
    return "return and repair" if said == "return" else said


def _above(item: LevelDifference) -> bool:
    return not isinstance(item.low, Undefined) and rose(item)


def _better_everywhere(compared: AgainstOracle) -> bool:
    """Whether a model that is better than the oracle on generic text by as much needs no memory for it."""
    generic = compared.generic
    return generic is not None and _above(generic) and generic.change >= compared.after.change


def against(item: CheckpointRelearning, oracle: CheckpointRelearning) -> AgainstOracle | Undefined:
    """Levels on the same items under the same budget, the checkpoint's less the oracle's, with intervals.

    Undefined where no forget text was scored or the scores were kept without their items.
    """
    after = _level(item, oracle, "forget", lambda score: score.after_items)
    start = _level(item, oracle, "forget", lambda score: score.before_items)
    if after is None or start is None:
        return Undefined(undefined="the scores of single items were not kept")
    return AgainstOracle(
        after=after, start=start, generic=_level(item, oracle, "generic", lambda score: score.after_items)
    )


def _level(
    item: CheckpointRelearning,
    oracle: CheckpointRelearning,
    role: Role,
    read: Callable[[ScoreChange], Sequence[float]],
) -> LevelDifference | None:
    """What `read` takes of the checkpoint less the oracle's level after the attack, over a role's scores."""
    own, theirs = _of_role(item.scores, role), _of_role(oracle.scores, role)
    named = {score.name: score for score in theirs}
    if not own or set(named) != {score.name for score in own}:
        return None
    parts = []
    for score in own:
        first, second = read(score), named[score.name].after_items
        if not first or len(first) != len(second):
            return None
        parts.append(_paired(np.subtract(first, second), role))
    value, low, high = _over_topics(own, parts)
    return LevelDifference(change=value, low=low, high=high, items=sum(score.items for score in own))


def _paired(differences: np.ndarray, role: Role) -> tuple[float, float | Undefined, float | Undefined]:
    """Mean of paired differences with the wider of bootstrap's and Student's 95 % bounds on either side."""
    n, mean = len(differences), float(np.mean(differences))
    if n < LEAST_ITEMS:
        few = Undefined(undefined=f"{n} items, needed {LEAST_ITEMS} for an interval")
        return mean, few, few
    found = bootstrap_rows({"": mean_of(differences)}, seed=ROLE_SEEDS[role])[""]
    row = found.interval("")
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2) * np.std(differences, ddof=1) / math.sqrt(n))
    if isinstance(row, Undefined):
        return mean, mean - half, mean + half
    return mean, min(row.low, mean - half), max(row.high, mean + half)


def role_changes(scores: Sequence[ScoreChange], roles: Sequence[Role]) -> Iterator[RoleChange]:
    """Subjects are averaged in their topic, topics in their role; of a role with questions the questions
    alone."""
    for role in roles:
        own = _of_role(scores, role)
        if not own:
            continue
        parts: list[tuple[float, float | Undefined, float | Undefined]] = []
        for item in own:
            row = item.change.row
            none = Undefined(undefined="no interval of one of its topics")
            ends = (row.low, row.high) if isinstance(row, Interval) else (none, none)
            parts.append((item.after - item.before, *ends))
        value, low, high = _over_topics(own, parts)
        shares = _shares(own)
        yield RoleChange(
            role=role,
            before=_sum(shares, (item.before for item in own)),
            after=_sum(shares, (item.after for item in own)),
            change=value,
            low=low,
            high=high,
        )


def _of_role(scores: Sequence[ScoreChange], role: Role) -> list[ScoreChange]:
    own = [item for item in scores if item.role == role]
    return [item for item in own if item.kind == "accuracy"] or own


def _shares(own: Sequence[ScoreChange]) -> list[float]:
    """Each score's share of its role: equal topics, equal subjects in a topic."""
    sizes = Counter(item.topic or item.name for item in own)
    return [1 / (len(sizes) * sizes[item.topic or item.name]) for item in own]


def _sum(shares: Sequence[float], values: Iterable[float]) -> float:
    return math.fsum(share * value for share, value in zip(shares, values, strict=True))


def _over_topics(
    own: Sequence[ScoreChange], parts: Sequence[tuple[float, float | Undefined, float | Undefined]]
) -> tuple[float, float | Undefined, float | Undefined]:
    """(value, low, high) of a role from those of its scores; one score keeps its own bounds."""
    shares = _shares(own)
    value = _sum(shares, (part[0] for part in parts))
    if len(parts) == 1:
        return value, *parts[0][1:]
    halves = []
    for share, (_, low, high) in zip(shares, parts, strict=True):
        if isinstance(low, Undefined) or isinstance(high, Undefined):
            none = Undefined(undefined="no interval of one of its topics")
            return value, none, none
        halves.append(share * (high - low) / 2)
    half = math.sqrt(math.fsum(item**2 for item in halves))
    return value, value - half, value + half
