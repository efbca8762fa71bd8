"""What `vestige pool score` prints and stores."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vestige.contracts import Record
from vestige.pool.contents import PoolRecord
from vestige.pool.rates import Rate

__all__ = [
    "Aim",
    "CoverageRow",
    "EdgeRow",
    "OtherRow",
    "PoolScore",
    "ReturnRow",
    "ScoreSettings",
    "WordRow",
]


class ScoreSettings(Record):
    """How a pool is scored.

    draws: of every bound. oracles: how many a comparison is given; at the middle number other metrics are
    asked. panels: of each deletion, None: one a retrained model. replicates: of every made world. command:
    another scoring command, or "".
    """

    draws: int = Field(1000, ge=100)
    oracles: tuple[int, ...] = (3, 5, 8)
    panels: int | None = None
    replicates: int = Field(60, ge=1)
    command: str = ""

    @property
    def asked(self) -> int:
        """Oracles of the comparisons in which anything but words is asked."""
        return self.oracles[len(self.oracles) // 2]


class WordRow(Record):
    """Words about one family, deletion and number of oracles. deletion: its key, or "all".

    memory: mean over panels of what the pool's own models show of it on F and on G, or what it was made with;
    None: not known.
    words: verdict -> how often. equivalent, closer, damaged: with intervals over trained models.
    """

    family: str
    truth: str
    deletion: str
    oracles: int
    memory: float | None
    words: dict[str, int]
    equivalent: Rate
    closer: Rate
    damaged: Rate


class Aim(Record):
    """A rate that the verdict is to keep. limit: at most, or at least, this. must: "most" or "least".

    met: the interval lies on the right side; broken: on the wrong side; neither: too few trained models.
    """

    name: str
    rate: Rate
    limit: float
    must: Literal["most", "least"]

    @property
    def met(self) -> bool:
        """Shown: the whole interval on the right side."""
        return self.rate.high <= self.limit if self.must == "most" else self.rate.low >= self.limit

    @property
    def broken(self) -> bool:
        """Shown to fail: the whole interval on the wrong side."""
        return self.rate.low > self.limit if self.must == "most" else self.rate.high < self.limit


class CoverageRow(Record):
    """How often one kind of interval held the truth. undefined: how often there was none; rate: else."""

    kind: str
    quantity: str
    size: int
    seeds: str
    rate: Rate | None
    undefined: int
    published: bool


class EdgeRow(Record):
    """How often a word was said of models exactly at a margin, or a gain of the least size confirmed."""

    edge: str
    word: str
    size: int
    rate: Rate


class ReturnRow(Record):
    """Readings of relearning of one case. returned: `return` or `return and repair`."""

    case: str
    about: str
    readings: dict[str, int]
    returned: Rate


class OtherRow(Record):
    """How often a metric of the field, or another command, passes a family. nothing: how often it is silent.

    deletion: its key, or "all". seeds: training seeds of the model under test.
    """

    metric: str
    family: str
    deletion: str
    seeds: int
    passed: Rate | None
    nothing: int


class PoolScore(Record):
    """`score.json`. flips: numbers of a comparison that changed when its models were given in another order,
    of `orders` orders tried."""

    format: Literal["vestige-pool-score-1"] = "vestige-pool-score-1"
    version: str
    rule: str
    pool: PoolRecord
    settings: ScoreSettings
    words: tuple[WordRow, ...]
    aims: tuple[Aim, ...]
    edges: tuple[EdgeRow, ...]
    coverage: tuple[CoverageRow, ...]
    returns: tuple[ReturnRow, ...]
    others: tuple[OtherRow, ...]
    orders: int
    flips: int
