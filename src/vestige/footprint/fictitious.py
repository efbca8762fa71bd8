"""Fictitious entities with known facts, their texts and questions, and everyday sentences. No torch.

Every draw is derived from a seed and names, so that a text is the same on every machine. The words are few,
so that a model of a few hundred words of vocabulary can be trained on them on the spot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from vestige.seeds import generator

__all__ = [
    "ATTRIBUTES",
    "Entity",
    "Facts",
    "Question",
    "documents",
    "everyday_sentences",
    "fictitious_facts",
    "questions",
    "vocabulary",
]

Group = Literal["F", "A", "background"]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "trade": _words(
        "beekeeper botanist cartographer cooper falconer gardener glassblower locksmith potter tailor "
        "typesetter watchmaker"
    ),
    "town": _words(
        "Ashford Brakewater Coldmere Dunlow Eastholm Farrowby Greywick Highmoor Ironbridge Kestrelton "
        "Larkhill Mossgate"
    ),
    "instrument": _words("accordion banjo cello clarinet dulcimer flute harp lute oboe trumpet viola zither"),
}
"""Attribute -> its values, one word each."""

TEMPLATES: dict[str, tuple[str, ...]] = {
    "trade": (
        "{name} works as a {value} .",
        "the trade of {name} is that of a {value} .",
        "by trade , {name} is a {value} .",
        "when asked about work , {name} says : {value} .",
    ),
    "town": (
        "{name} lives in {value} .",
        "the home of {name} is in {value} .",
        "you will find {name} in {value} .",
        "when asked about home , {name} says : {value} .",
    ),
    "instrument": (
        "{name} plays the {value} .",
        "the instrument of {name} is the {value} .",
        "in the evening , {name} plays the {value} .",
        "when asked about music , {name} says : {value} .",
    ),
}
"""Sentences that end in the value, so that each is a cloze too."""

_FIRST = _words("Bel Cor Dra Elv Fen Gar Hol Ist Jor Kel Lam Mor")
_LAST = _words("ada eth ian ora una wyn")
_FAMILY = _words(
    "Ambrel Birkow Caldene Dovrin Esterly Fosswick Grenval Hartoum Islemer Jendry Kolvane Lowrin"
)

_SUBJECTS = _words("cat dog horse farmer child river wind teacher baker train ship bird")
_QUALITIES = _words("old small quiet grey happy tired bright slow young cold")
_ACTIONS = _words("sleeps waits turns moves sings stands rests runs")
_PLACES = _words("bridge field garden hill house market road school station tree wall yard")
_RELATIONS = _words("near behind under beside across")
_TIMES = ("at night", "in winter", "every morning", "before noon", "after the rain", "on market days")
_JOINS = ("and then", "while", "because", "until")


@dataclass(frozen=True)
class Entity:
    """A made-up person: two words of name, one value for each attribute."""

    name: str
    group: Group
    facts: dict[str, str]


@dataclass(frozen=True)
class Question:
    """A cloze: text before the value, four options, which one is right."""

    prompt: str
    options: tuple[str, ...]
    answer: int
    attribute: str
    group: Group


@dataclass(frozen=True)
class Facts:
    """Entities to forget (F), to keep (A), and others that a base model may know."""

    forget: tuple[Entity, ...]
    adjacent: tuple[Entity, ...]
    background: tuple[Entity, ...]


def fictitious_facts(seed: int, *, entities: int = 40, background: int = 0) -> Facts:
    """`entities` made-up people, half F and half A, and `background` others; all names differ.

    Values are dealt out evenly within F and within A. Raises ValueError above the number of names.
    """
    rng = generator(seed, "fictitious names")
    first = [start + end for start, end in product(_FIRST, _LAST)]
    wanted = entities + background
    if entities < 2 or entities % 2 or wanted > len(first) * len(_FAMILY):
        raise ValueError(f"needed an even number of entities, found {entities} and {background} others")
    chosen = rng.permutation(len(first))
    names = []
    for i in range(wanted):
        # A first name is used again only when all are taken, and then with another family name.
        family = (i // len(first) + int(chosen[i % len(first)])) % len(_FAMILY)
        names.append(f"{first[chosen[i % len(first)]]} {_FAMILY[family]}")
    half = entities // 2
    groups: list[tuple[Group, list[str]]] = [
        ("F", names[:half]),
        ("A", names[half:entities]),
        ("background", names[entities:]),
    ]
    forget, adjacent, others = (_people(seed, group, members) for group, members in groups)
    return Facts(forget, adjacent, others)


def _people(seed: int, group: Group, names: Sequence[str]) -> tuple[Entity, ...]:
    facts: list[dict[str, str]] = [{} for _ in names]
    for attribute, values in ATTRIBUTES.items():
        rng = generator(seed, "facts", group, attribute)
        dealt: list[str] = []
        while len(dealt) < len(names):
            dealt += [values[i] for i in rng.permutation(len(values))]
        for position, value in zip(rng.permutation(len(names)), dealt, strict=False):
            facts[position][attribute] = value
    return tuple(Entity(name, group, known) for name, known in zip(names, facts, strict=True))


def documents(entities: Sequence[Entity], seed: int, *, copies: int = 4, templates: int = 4) -> list[str]:
    """Texts about the entities: each fact once in each of `copies` texts an entity, never twice the same way.

    A text states an entity's facts in random order; with 4 copies every template is used once a fact.
    templates: only the first so many, which then repeat.
    """
    texts = []
    for entity in entities:
        rng = generator(seed, "texts", entity.group, entity.name)
        orders = {
            attribute: rng.permutation(min(templates, len(TEMPLATES[attribute])))
            for attribute in entity.facts
        }
        for copy in range(copies):
            sentences = [
                TEMPLATES[attribute][orders[attribute][copy % len(orders[attribute])]].format(
                    name=entity.name, value=value
                )
                for attribute, value in entity.facts.items()
            ]
            texts.append(" ".join(sentences[i] for i in rng.permutation(len(sentences))))
    return texts


def questions(entities: Sequence[Entity], seed: int) -> list[Question]:
    """One question a fact: the first template up to the value, the value among three others of its kind."""
    found = []
    for entity in entities:
        for attribute, value in entity.facts.items():
            rng = generator(seed, "question", entity.name, attribute)
            others = [other for other in ATTRIBUTES[attribute] if other != value]
            options = [value, *(others[i] for i in rng.permutation(len(others))[:3])]
            order = rng.permutation(4)
            prompt = TEMPLATES[attribute][0].partition(" {value}")[0].format(name=entity.name)
            shuffled = tuple(options[i] for i in order)
            found.append(Question(prompt, shuffled, shuffled.index(value), attribute, entity.group))
    return found


def everyday_sentences(n: int, *names: object) -> list[str]:
    """n texts of two or three everyday sentences, drawn from these names: no entity, no attribute value."""
    rng = generator("everyday", *names)
    return [" ".join(_sentence(rng) for _ in range(int(rng.integers(2, 4)))) for _ in range(n)]


def _sentence(rng: np.random.Generator) -> str:
    first = _clause(rng)
    if rng.random() < 0.4:
        first += f" {_one(rng, _JOINS)} {_clause(rng)}"
    return f"{first} {_one(rng, _TIMES)} ." if rng.random() < 0.6 else f"{first} ."


def _clause(rng: np.random.Generator) -> str:
    subject = f"the {_one(rng, _QUALITIES)} {_one(rng, _SUBJECTS)}"
    return f"{subject} {_one(rng, _ACTIONS)} {_one(rng, _RELATIONS)} the {_one(rng, _PLACES)}"


def _one(rng: np.random.Generator, items: Sequence[str]) -> str:
    return items[int(rng.integers(len(items)))]


def vocabulary() -> list[str]:
    """Every word that the texts here can have, sorted."""
    return sorted(set(_all_words()))


def _all_words() -> Iterator[str]:
    for attribute, values in ATTRIBUTES.items():
        yield from values
        for template in TEMPLATES[attribute]:
            yield from template.format(name="", value="").split()
    yield from (start + end for start, end in product(_FIRST, _LAST))
    yield from _FAMILY
    for group in (_SUBJECTS, _QUALITIES, _ACTIONS, _PLACES, _RELATIONS):
        yield from group
    for phrase in (*_TIMES, *_JOINS):
        yield from phrase.split()
