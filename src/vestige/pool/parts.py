"""The pieces that scoring is done in: each asks one question of one comparison, in any process."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import numpy as np

from vestige.errors import MissingDependency
from vestige.pool import coverage
from vestige.pool.answers import Answers, AtEdge, Passed, name_of
from vestige.pool.command import Command
from vestige.pool.contents import ANCHOR, LANGUAGE, VIEWS, Outputs, Pool
from vestige.pool.edges import SIZES, at_edges, power_of_least_gain
from vestige.pool.families import FAMILIES
from vestige.pool.judging import judged
from vestige.pool.others import OTHERS, SEVERAL, klom, says_nothing, several_seeds
from vestige.pool.panels import Panel, mix, panels
from vestige.pool.records import ScoreSettings
from vestige.pool.returns import readings
from vestige.pool.words import families_of, probed, say_all

__all__ = ["Part", "parts_of", "work"]

SECONDS = {
    "words": 2.0,
    "edges": 2.0,
    "these models": 0.7,
    "made worlds": 12.0,
    "returns": 0.3,
    "others": 2.5,
    "orders": 15.0,
    "language": 9.0,
}
"""Kind of part -> about how long it takes one core."""
TURNS = 3
"""Pairs of a world of language models that are held out in turn."""
APART = 4
"""Methods of eight seeds are asked in one comparison of so many: they share most of their models."""
PORTION = 10
"""Repeats of a made world in one part."""


@dataclass(frozen=True)
class Part:
    """One piece of scoring. number: of the panel, the oracle or the portion."""

    kind: str
    deletion: str
    oracles: int
    number: int

    @property
    def name(self) -> str:
        """What its answers are kept under."""
        return f"{self.kind.replace(' ', '-')}-{self.deletion}-{self.oracles}-{self.number:02d}"

    @property
    def seconds(self) -> float:
        """About how long it takes."""
        return SECONDS[self.kind]


def parts_of(pool: Pool, settings: ScoreSettings) -> list[Part]:
    """All parts, the long ones first, so that processes end together; but before all what asks another
    command, which may fail."""
    found = list(_parts(pool, settings))
    return sorted(found, key=lambda part: (not settings.command or part.kind != "others", -part.seconds))


def _parts(pool: Pool, settings: ScoreSettings) -> Iterator[Part]:
    towers: list[str] = list(pool.settings.deletions)
    large = [key for key in towers if key in ("intents6", "customers8")] or towers[:1]
    asked = settings.asked
    for key in large:
        for portion in range(-(-settings.replicates // PORTION)):
            yield Part("made worlds", key, 0, portion)
    for key in towers[:1]:
        yield Part("orders", key, 3, 0)
    turns = pool.settings.worlds * TURNS
    for number in range(turns if settings.panels is None else min(turns, settings.panels)):
        yield Part("language", LANGUAGE, 5, number)
    for key in pool.deletions:
        for m in settings.oracles:
            for number in range(_count(pool, key, m, settings)):
                yield Part("words", key, m, number)
        for number in range(_count(pool, key, asked, settings)):
            yield Part("others", key, asked, number)
    for key in towers:
        for number in range(_count(pool, key, asked, settings)):
            if key.startswith("intents"):
                yield Part("edges", key, asked, number)
            if key in large:
                yield Part("these models", key, asked, number)
        if key.startswith("intents"):
            for number in range(min(pool.settings.relearned, _count(pool, key, 1, settings))):
                yield Part("returns", key, 0, number)


def _count(pool: Pool, key: str, oracles: int, settings: ScoreSettings) -> int:
    """Panels of a deletion with so many oracles."""
    there = len(pool.role(key, "oracle"))
    if there < oracles + 1:
        return 0
    return there if settings.panels is None else min(there, settings.panels)


@lru_cache(maxsize=1)
def _opened(folder: Path) -> Pool:
    return Pool(folder)


def work(folder: Path, settings: ScoreSettings, part: Part) -> Answers:
    """Do one part of the pool in `folder`."""
    pool = _opened(folder)
    key, number, draws = part.deletion, part.number, settings.draws
    if part.kind == "made worlds":
        repeats = min(PORTION, settings.replicates)
        held = [
            *coverage.other_trainings(pool, key, repeats, number),
            *coverage.calibration(pool, key, 5 * repeats, number),
            *coverage.noise_floors(pool, key, 3 * repeats, number),
            *coverage.units(5 * repeats, key, number),
        ]
        return Answers(held=tuple(held))
    if part.kind == "returns":
        return Answers(returned=tuple(readings(pool, key, number, draws=draws)))
    if part.kind == "language":
        try:
            from vestige.pool.language import said_of_language
        except ImportError as error:
            raise MissingDependency(error.name or "torch", "train", "vestige pool score") from None
        world, turn = divmod(number, TURNS)
        return Answers(said=tuple(said_of_language(folder, world, turn, draws=draws)))
    panel = next(islice(panels(pool, key, part.oracles), number, None))
    match part.kind:
        case "words":
            said = say_all(panel, draws=draws)
            return Answers(said=(*said, *(probed(panel, draws=draws) if key != ANCHOR else ())))
        case "edges":
            return Answers(edges=tuple(_edges(panel, draws)))
        case "these models":
            every = [coverage.these_models(panel, size) for size in coverage.ROWS]
            return Answers(held=tuple(item for items in every for item in items))
        case "others":
            return Answers(others=tuple(_others(panel, settings)))
        case _:
            orders, flips = _flips(panel)
            return Answers(orders=orders, flips=flips)


def _edges(panel: Panel, draws: int) -> Iterator[AtEdge]:
    for size in SIZES:
        yield from at_edges(panel, size, draws=draws)
        for even in (True, False):
            one = power_of_least_gain(panel, size, even=even, draws=draws)
            if one is not None:
                yield one


def _others(panel: Panel, settings: ScoreSettings) -> Iterator[Passed]:
    """Every metric on every family; KLoM and our verdict on eight seeds; another command."""

    def passed(metric: str, family: str, cluster: Hashable, said: bool | None, seeds: int = 1) -> Passed:
        return Passed(
            metric=metric,
            family=family,
            deletion=panel.deletion.key,
            seeds=seeds,
            cluster=name_of(cluster),
            passed=said,
        )

    tested = {name: made for name, made in families_of(panel).items() if len(made.seeds) == 1}
    if settings.command:
        words = Command(settings.command).words(panel, {name: made.seeds[0] for name, made in tested.items()})
        for name, word in words.items():
            yield passed(settings.command, name, tested[name].cluster, word in Command.PASSED)
    for name, made in tested.items():
        for metric, passes in OTHERS.items():
            said = None if says_nothing(panel, metric) else passes(panel, made.seeds[0])
            yield passed(metric, name, made.cluster, said)
    if len(panel.all_oracles) < 2 * SEVERAL or panel.held % APART:
        return
    # KLoM needs eight seeds and eight oracles: another panel of the same held-out model.
    eight = next(islice(panels(panel.pool, panel.deletion.key, SEVERAL), panel.held, None))
    groups: dict[str, list[Outputs]] = {}
    for family in FAMILIES:
        if family.several and (seeds := several_seeds(eight, family)) is not None:
            groups[family.name] = seeds
    found = judged(eight.deletion, eight.fulls, eight.oracles, groups, draws=settings.draws)
    for name, seeds in groups.items():
        yield passed("verdict: equivalent", name, panel.held, found[name][0] == "equivalent", SEVERAL)
        yield passed("KLoM", name, panel.held, klom(eight, seeds), SEVERAL)


def _flips(panel: Panel) -> tuple[int, int]:
    """Orders of models tried through `vestige.compare`, and those in which any number changed."""
    from vestige.study.compare import compare

    deletion, options = panel.deletion, panel.pool.rows.options
    views = [view for view in VIEWS for _ in range(deletion.rows(view))]
    rows = {
        "row_id": [f"{number:05d}" for number in range(len(views))],
        "view": views,
        "unit": [str(unit) for view in VIEWS for unit in deletion.units[view]],
        "gold": [options[column] for view in VIEWS for column in deletion.gold[view]],
    }

    def table(model: Outputs) -> Any:
        return np.concatenate([model[view] for view in VIEWS])

    tested = {
        "mixture": table(mix(panel.fulls[0], panel.oracles[0], 0.3)),
        "retrained": [table(panel.retrained), table(panel.all_oracles[panel.others[0]])],
    }

    def numbers(fulls: Sequence[Outputs], oracles: Sequence[Outputs]) -> list[str]:
        found = compare(
            full=[table(model) for model in fulls],
            oracle=[table(model) for model in oracles],
            unlearned=tested,
            forget=[options[column] for column in deletion.forgotten],
            rows=rows,
            options=options,
            draws=100,
        )
        return [model.to_json() for model in found.models if model.role == "unlearned"]

    orders = [
        (fulls, oracles)
        for oracles in permutations(panel.oracles)
        for fulls in (panel.fulls, panel.fulls[::-1])
    ]
    first = numbers(*orders[0])
    return len(orders) - 1, sum(numbers(*order) != first for order in orders[1:])
