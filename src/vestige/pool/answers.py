"""What one part of scoring gives: single answers, each with the trained model that it is about."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

from vestige.contracts import Record, View

__all__ = ["Answers", "AtEdge", "Held", "Passed", "Returned", "Said", "Truth", "name_of"]

Truth = Literal["retrained", "memory", "full", "elsewhere", "harmed", "hidden"]
"""retrained: an exact retraining. memory: a share of the full model is left. full: nothing was done.
elsewhere: no memory, and not where retraining lies. harmed: retrained on F and G, broken on R. hidden: whole
behind what is shown."""


def name_of(cluster: Hashable) -> str:
    """The name under which answers about one trained model, or one made world, are counted together."""
    return " ".join(str(part) for part in cluster) if isinstance(cluster, tuple) else str(cluster)


class Said(Record):
    """One word about one model.

    memory, excess: of the model against all models of the pool, by view, where there is a value. visible:
    whether the pool's own models show that retraining moves the view. nominal: the memory it was made with.
    """

    deletion: str
    oracles: int
    family: str
    truth: Truth
    cluster: str
    word: str
    memory: dict[View, float]
    excess: dict[View, float]
    visible: dict[View, bool]
    nominal: float | None

    @property
    def left(self) -> float | None:
        """Its memory: as made, or the largest on a view that retraining moves. None: not known."""
        if self.nominal is not None:
            return self.nominal
        return max((value for view, value in self.memory.items() if self.visible[view]), default=None)


class AtEdge(Record):
    """Whether the word of an edge was said of a model at it; of the least gain, whether it was confirmed."""

    edge: str
    size: int
    deletion: str
    cluster: str
    said: bool


class Held(Record):
    """Whether one interval held the truth; None: it was undefined.

    kind: what it is about. size: rows, or units. seeds: of oracles, full and unlearned models where they are
    random. cluster: the models or the made world that the repetition belongs to. published: of the published
    rule, which promises nothing here.
    """

    kind: str
    quantity: str
    size: int
    seeds: str
    deletion: str
    cluster: str
    holds: bool | None
    published: bool = False


class Returned(Record):
    """The reading of relearning of one case beside one oracle. number: of the oracle."""

    case: str
    deletion: str
    number: int
    reading: str


class Passed(Record):
    """Whether a metric passed one model, or a method of several seeds; None: it says nothing."""

    metric: str
    family: str
    deletion: str
    seeds: int
    cluster: str
    passed: bool | None


class Answers(Record):
    """What parts gave. flips: of `orders` orders of models, those that changed any number."""

    format: str = "vestige-pool-answers-1"
    said: tuple[Said, ...] = ()
    edges: tuple[AtEdge, ...] = ()
    held: tuple[Held, ...] = ()
    returned: tuple[Returned, ...] = ()
    others: tuple[Passed, ...] = ()
    orders: int = 0
    flips: int = 0

    def __add__(self, other: Answers) -> Answers:
        """Both together."""
        return Answers(
            said=self.said + other.said,
            edges=self.edges + other.edges,
            held=self.held + other.held,
            returned=self.returned + other.returned,
            others=self.others + other.others,
            orders=self.orders + other.orders,
            flips=self.flips + other.flips,
        )
