"""From single answers to rates with intervals, and to the aims that they meet or miss."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from vestige.pool.answers import Answers, AtEdge, Held, Passed, Returned, Said
from vestige.pool.contents import ANCHOR, DELETIONS, LANGUAGE, Pool
from vestige.pool.edges import EDGES, NO_GAIN
from vestige.pool.rates import Rate, clustered
from vestige.pool.records import Aim, CoverageRow, EdgeRow, OtherRow, ReturnRow, WordRow
from vestige.pool.relearning import CASES
from vestige.verdict.evidence import BOTH_VIEWS_POWER

__all__ = ["aims", "coverage_rows", "edge_rows", "other_rows", "return_rows", "word_rows"]

APART = (ANCHOR, LANGUAGE)
"""Models that are no light models, and are not counted with them."""
AWAY = 0.1
"""Excess over the oracles' own spread, by all models of the pool, from which a model does not lie there."""
ENOUGH_ROWS = 150
"""Rows of each view from which exact retraining is to be recognised."""
COVERED = 0.92
"""Of a printed 95 % interval."""
FALSE = 0.05
RECOGNISED = {5: 0.75, 8: 0.90}
"""Oracles -> how often exact retraining is to be called equivalent, with ENOUGH_ROWS rows a view."""
RETURNED = ("return", "return and repair")
NOT_RETURNED = ("oracle", "oracle and noise", "broken")
"""Cases of which `return` is false: whatever came back was learned anew."""


def word_rows(said: Sequence[Said]) -> Iterator[WordRow]:
    groups: dict[tuple[str, str, int], list[Said]] = defaultdict(list)
    for item in said:
        groups[item.family, item.deletion, item.oracles].append(item)
        if item.deletion not in APART:
            groups[item.family, "all", item.oracles].append(item)
    for (name, deletion, oracles), items in groups.items():
        known = [item.left for item in items if item.left is not None]
        yield WordRow(
            family=name,
            truth=items[0].truth,
            deletion=deletion,
            oracles=oracles,
            memory=float(np.mean(known)) if known else None,
            words=dict(Counter(item.word for item in items)),
            equivalent=_rate(items, "equivalent"),
            closer=_rate(items, "closer"),
            damaged=_rate(items, "damaged"),
        )


def _rate(items: Iterable[Said], word: str) -> Rate:
    found = _said(items, word)
    assert found is not None
    return found


def aims(pool: Pool, found: Answers) -> Iterator[Aim]:
    """Every rate that the verdict is to keep."""
    yield from _word_aims(pool, found.said)
    yield from _edge_aims(found.edges)
    for cases, about in (
        (NOT_RETURNED, "`return` where nothing came back"),
        (("other retraining",), "`return` of another retraining than the one it is held against"),
    ):
        items = [item for item in found.returned if item.case in cases]
        yield from _aim(about, _returned(items), most=FALSE)
    for kind in dict.fromkeys(item.kind for item in found.held if not item.published):
        yield from _aim(
            f"coverage: {kind}", _covered([item for item in found.held if item.kind == kind]), least=COVERED
        )


def _word_aims(pool: Pool, every: Sequence[Said]) -> Iterator[Aim]:
    """Rates of words. Light models and language models apart; the anchor's few models tell of harm alone."""
    towers = [item for item in every if item.deletion not in APART]
    language = [item for item in every if item.deletion == LANGUAGE]
    for models, of in ((towers, ""), (language, "language models, ")):
        yield from _equivalent_aims(models, of)
    for oracles in sorted({item.oracles for item in towers}):
        for key in pool.settings.deletions:
            deletion = pool.deletion(key)
            if min(deletion.rows("F"), deletion.rows("G")) >= ENOUGH_ROWS:
                least = RECOGNISED.get(oracles, 0.0)
                yield from _recognised(towers, key, oracles, least)
    for oracles in sorted({item.oracles for item in language}):
        yield from _recognised(language, LANGUAGE, oracles, RECOGNISED.get(oracles, 0.0))
    exact = [item for item in every if item.truth == "retrained"]
    yield from _aim("`damaged` of exact retraining", _said(exact, "damaged"), most=FALSE)
    others = [item for item in every if item.truth not in ("harmed", "retrained")]
    name = "`damaged` of other models that keep their answers on R"
    yield from _aim(name, _said(others, "damaged"), most=FALSE)
    nothing = [item for item in every if item.truth == "full"]
    yield from _aim("`closer` where nothing was done", _said(nothing, "closer"), most=FALSE)


def _equivalent_aims(said: Sequence[Said], of: str) -> Iterator[Aim]:
    """How often a model that is not retrained is called equivalent. of: what the models are, and a comma."""
    kept = [item for item in said if item.truth in ("memory", "full") and any(item.visible.values())]
    away = [item for item in said if item.truth == "elsewhere" and max(item.excess.values()) > AWAY]
    harmed = [item for item in said if item.truth == "harmed"]
    for items, about, most in (
        (_between(kept, 0.2, math.inf), "20 % memory or more", FALSE),
        # At and below the margin of 10 % the rate is no false one; it is reported, with nothing to keep.
        (_between(kept, 0.1, 0.2), "10 to 20 % memory", 1.0),
        (_between(kept, 0.05, 0.1), "5 to 10 % memory", 1.0),
        (away, "no place where retraining lies", FALSE),
        (harmed, "harm on R", FALSE),
    ):
        yield from _aim(f"`equivalent`: {of}{about}", _said(items, "equivalent"), most=most)


def _recognised(said: Sequence[Said], key: str, oracles: int, least: float) -> Iterator[Aim]:
    exact = [i for i in said if (i.family, i.oracles, i.deletion) == ("retrained", oracles, key)]
    name = f"exact retraining `equivalent`, {oracles} oracles, {DELETIONS[key]}"
    yield from _aim(name, _said(exact, "equivalent"), least=least)


def _edge_aims(edges: Sequence[AtEdge]) -> Iterator[Aim]:
    def rate(edge: str) -> Rate | None:
        return clustered(((e.deletion, e.cluster), e.said) for e in edges if e.edge == edge)

    yield from _aim("`closer` without a gain on G", rate(NO_GAIN), most=FALSE)
    for edge in dict.fromkeys(item.edge for item in edges if item.edge not in EDGES):
        yield from _aim(f"confirmed: {edge}", rate(edge), least=BOTH_VIEWS_POWER)


def _aim(name: str, rate: Rate | None, *, most: float | None = None, least: float = 0.0) -> Iterator[Aim]:
    """The aim, where there is anything to count."""
    if rate is not None and most is not None:
        yield Aim(name=name, rate=rate, limit=most, must="most")
    elif rate is not None:
        yield Aim(name=name, rate=rate, limit=least, must="least")


def _between(items: Iterable[Said], least: float, most: float) -> list[Said]:
    return [item for item in items if item.left is not None and least <= item.left < most]


def _said(items: Iterable[Said], word: str) -> Rate | None:
    return clustered(((item.deletion, item.cluster), item.word == word) for item in items)


def _returned(items: Iterable[Returned]) -> Rate | None:
    return clustered(((item.deletion, item.number), item.reading in RETURNED) for item in items)


def _covered(items: Sequence[Held]) -> Rate | None:
    return clustered(((i.deletion, i.cluster), i.holds) for i in items if i.holds is not None)


def coverage_rows(held: Sequence[Held]) -> Iterator[CoverageRow]:
    groups: dict[tuple[str, str, int, str, bool], list[Held]] = defaultdict(list)
    for item in held:
        groups[item.kind, item.quantity, item.size, item.seeds, item.published].append(item)
    for (kind, quantity, size, seeds, published), items in sorted(groups.items()):
        yield CoverageRow(
            kind=kind,
            quantity=quantity,
            size=size,
            seeds=seeds,
            rate=_covered(items),
            undefined=sum(item.holds is None for item in items),
            published=published,
        )


def edge_rows(edges: Sequence[AtEdge]) -> Iterator[EdgeRow]:
    groups: dict[tuple[str, int], list[AtEdge]] = defaultdict(list)
    for item in edges:
        groups[item.edge, item.size].append(item)
    for (edge, size), items in sorted(groups.items()):
        rate = clustered(((item.deletion, item.cluster), item.said) for item in items)
        assert rate is not None
        yield EdgeRow(edge=edge, word=EDGES.get(edge, "confirmed"), size=size, rate=rate)


def return_rows(returned: Sequence[Returned]) -> Iterator[ReturnRow]:
    for case, about in CASES.items():
        items = [item for item in returned if item.case == case]
        rate = _returned(items)
        if rate is not None:
            counts = dict(Counter(item.reading for item in items))
            yield ReturnRow(case=case, about=about, readings=counts, returned=rate)


def other_rows(passed: Sequence[Passed]) -> Iterator[OtherRow]:
    groups: dict[tuple[str, str, str, int], list[Passed]] = defaultdict(list)
    for item in passed:
        for deletion in (item.deletion, "all"):
            groups[item.metric, item.family, deletion, item.seeds].append(item)
    for (metric, family, deletion, seeds), items in groups.items():
        yield OtherRow(
            metric=metric,
            family=family,
            deletion=deletion,
            seeds=seeds,
            passed=clustered(
                ((item.deletion, item.cluster), item.passed) for item in items if item.passed is not None
            ),
            nothing=sum(item.passed is None for item in items),
        )
