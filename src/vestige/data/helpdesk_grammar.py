"""Utterances of the embedded data set: grammar, writing habits and splits.

Every draw is a hash of names (`vestige.seeds.digest`), so the rows are the same on every machine, Python and
NumPy version.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import zip_longest
from typing import TypeVar

import yaml

from vestige.seeds import digest

__all__ = [
    "ROWS_PER_INTENT",
    "UNSEEN_ROWS",
    "UNSEEN_TEMPLATES",
    "WORDS",
    "Grammar",
    "Intent",
    "Utterance",
    "bodies",
    "expand",
    "load_grammar",
    "utterances",
]

ROWS_PER_INTENT = {"train": 49, "development": 14, "evaluation": 27}
"""Rows of one intent by split: 54, 16 and 30 %."""

UNSEEN_TEMPLATES = 4
"""Templates of each intent that no training row uses."""

UNSEEN_ROWS = {"development": 6, "evaluation": 14}
"""Rows of one intent from those templates: 52 % of its evaluation rows."""

WORDS = (3, 30)
"""Fewest and most words of an utterance."""

_HABITS = ("careful", "plain", "lower", "hasty")
_TYPO_PERCENT = (0, 5, 20, 45)
_MISSPELT = {
    "account": "acount",
    "address": "adress",
    "arrived": "arived",
    "battery": "batery",
    "cancel": "cancle",
    "charged": "chraged",
    "delivered": "deliverd",
    "delivery": "delivary",
    "firmware": "firmwear",
    "invoice": "invoce",
    "locked": "loked",
    "parcel": "parcell",
    "password": "pasword",
    "payment": "payement",
    "receipt": "reciept",
    "received": "recieved",
    "refund": "refnud",
    "subscription": "subscribtion",
    "thermostat": "termostat",
    "tracking": "traking",
    "verification": "verfication",
    "wrong": "worng",
}

_NAMES = r"\b(monday|friday|saturday|march|april|june|september|october|november|brindlemoor)\b"

T = TypeVar("T")


@dataclass(frozen=True)
class Intent:
    """One intent of the grammar. templates: in the grammar's order; their ids are `{id}-{position:02d}`."""

    id: str
    name: str
    description: str
    domain: str
    templates: tuple[str, ...]


@dataclass(frozen=True)
class Grammar:
    """The parsed grammar file."""

    intents: tuple[Intent, ...]
    phrases: Mapping[str, str]
    openers: tuple[str, ...]
    contexts: tuple[str, ...]
    closers: tuple[str, ...]
    customers: int
    sha256: str


@dataclass(frozen=True)
class Utterance:
    """One row: who wrote what about which intent, from which template, in which split."""

    text: str
    intent: str
    domain: str
    template: str
    customer_id: str
    split: str


class _Draws:
    """A stream of integers that depends on its names alone."""

    def __init__(self, *names: object) -> None:
        self._names = names
        self._block = 0
        self._left = 0
        self._value = 0

    def below(self, count: int) -> int:
        """An integer in [0, count), count at most 2**32."""
        if self._left < 64:
            self._value = int(digest("helpdesk", *self._names, self._block), 16)
            self._block += 1
            self._left = 256
        self._value, drawn = divmod(self._value, count)
        self._left -= count.bit_length()
        return drawn

    def one_of(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def percent(self, chance: int) -> bool:
        """True in `chance` of 100 draws."""
        return self.below(100) < chance


@cache
def load_grammar() -> Grammar:
    """The grammar that comes with the package."""
    raw = (files("vestige.data") / "helpdesk.yaml").read_bytes()
    tree = yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return Grammar(
        intents=tuple(
            Intent(
                id=intent["id"],
                name=intent["name"],
                description=intent["description"],
                domain=domain["id"],
                templates=tuple(intent["templates"]),
            )
            for domain in tree["domains"]
            for intent in domain["intents"]
        ),
        phrases=tree["phrases"],
        openers=tuple(tree["openers"]),
        contexts=tuple(tree["contexts"]),
        closers=tuple(tree["closers"]),
        customers=int(tree["customers"]),
        sha256=hashlib.sha256(raw).hexdigest(),
    )


def expand(template: str, phrases: Mapping[str, str], *names: object) -> str:
    """One sentence of `template`, drawn by the hash of `names`.

    Phrases are inserted, alternatives and digits drawn, "a" becomes "an" before a vowel. Raises KeyError for
    an unknown phrase.
    """
    return _expand(template, phrases, _Draws(*names))


def _expand(template: str, phrases: Mapping[str, str], draws: _Draws) -> str:
    text = template
    while "<" in text:
        text = re.sub(r"<(\w+)>", lambda match: phrases[match[1]], text)
    while "(" in text:
        text = re.sub(r"\(([^()]*)\)", lambda match: draws.one_of(match[1].split("|")), text)
    text = re.sub("@", lambda _: str(draws.below(10)), text)
    text = re.sub(r"\ba (?=[aeio])", "an ", text)
    return re.sub(r" +([,.?!])", r"\1", re.sub(r"\s+", " ", text)).strip()


@cache
def utterances() -> tuple[Utterance, ...]:
    """All rows, intents in the grammar's order; no two with the same letters in the same order.

    Raises ValueError when the grammar cannot make that many.
    """
    grammar = load_grammar()
    rows: list[Utterance] = []
    seen: set[str] = set()
    for intent in grammar.intents:
        pairs = bodies(intent, grammar)
        splits = _splits(intent, [template for template, _ in pairs])
        for number, ((template, body), split) in enumerate(zip(pairs, splits, strict=True)):
            for attempt in range(100):
                draws = _Draws(intent.id, number, attempt)
                customer = _customer(intent.domain, grammar, draws)
                text = _written(_framed(body, grammar, draws), customer, draws)
                letters = re.sub(r"[^a-z]", "", text.casefold())
                if letters not in seen and WORDS[0] <= len(text.split()) <= WORDS[1]:
                    break
            else:
                raise ValueError(f"no new utterance of {WORDS[0]} to {WORDS[1]} words from '{body}'")
            seen.add(letters)
            rows.append(Utterance(text, intent.id, intent.domain, template, str(customer), split))
    return tuple(rows)


def bodies(intent: Intent, grammar: Grammar) -> list[tuple[str, str]]:
    """(template id, sentence) pairs of an intent, as many of each template, distinct even without digits.

    Raises ValueError for a template with too few variants.
    """
    total = sum(ROWS_PER_INTENT.values())
    unseen = _unseen(intent)
    wanted = dict.fromkeys(unseen, sum(UNSEEN_ROWS.values()) // len(unseen))
    others = [template for template in _template_ids(intent) if template not in wanted]
    share, extra = divmod(total - sum(wanted.values()), len(others))
    wanted |= {template: share + (position < extra) for position, template in enumerate(others)}
    pairs: list[tuple[str, str]] = []
    seen: set[str] = set()
    for template, text in zip(_template_ids(intent), intent.templates, strict=True):
        found = 0
        for attempt in range(200):
            body = expand(text, grammar.phrases, template, attempt)
            key = re.sub(r"\W+|\d", "", body)
            if key not in seen and len(body.split()) >= WORDS[0] - 1:
                seen.add(key)
                pairs.append((template, body))
                found += 1
            if found == wanted[template]:
                break
        else:
            raise ValueError(f"template {template} has only {found} of {wanted[template]} variants")
    return pairs


def _template_ids(intent: Intent) -> list[str]:
    return [f"{intent.id}-{position:02d}" for position in range(len(intent.templates))]


def _unseen(intent: Intent) -> list[str]:
    return _hashed(_template_ids(intent))[:UNSEEN_TEMPLATES]


def _hashed(items: Iterable[T], *names: object) -> list[T]:
    return sorted(items, key=lambda item: digest("helpdesk", "order", *names, item))


def _splits(intent: Intent, templates: Sequence[str]) -> list[str]:
    """The split of each row. Every template gives rows to each of its splits as evenly as their sizes allow:
    the rows are dealt out in rounds, one of each template, all in hash order, held-out splits first.
    """
    unseen = set(_unseen(intent))
    assigned: dict[int, str] = {}
    for kind in (True, False):
        members: dict[str, list[int]] = defaultdict(list)
        for position, template in enumerate(templates):
            if (template in unseen) is kind:
                members[template].append(position)
        rounds = zip_longest(*(_hashed(members[template], template) for template in _hashed(members)))
        dealt = [position for turn in rounds for position in turn if position is not None]
        pool = [
            split
            for split, rows in sorted(ROWS_PER_INTENT.items())
            for _ in range(UNSEEN_ROWS.get(split, 0) if kind else rows - UNSEEN_ROWS.get(split, 0))
        ]
        assigned |= dict(zip(dealt, pool, strict=True))
    return [assigned[position] for position in range(len(templates))]


def _customer(domain: str, grammar: Grammar, draws: _Draws) -> int:
    """A customer number from 1; most rows of a customer are about one domain."""
    domains = sorted({intent.domain for intent in grammar.intents})
    if draws.percent(60):
        group = draws.below(grammar.customers // len(domains))
        return group * len(domains) + domains.index(domain) + 1
    return draws.below(grammar.customers) + 1


def _framed(body: str, grammar: Grammar, draws: _Draws) -> str:
    """The sentence with a greeting, a context sentence and a closing, each in some of the rows."""
    stop = "" if body[-1] in ".?!" else "?" if re.search(r"\b(can|could) you\b", body) else "."
    parts = [body + stop]
    if draws.percent(25):
        context = _expand(draws.one_of(grammar.contexts), grammar.phrases, draws)
        parts.insert(draws.below(2), context)
    if draws.percent(35):
        parts.append(_expand(draws.one_of(grammar.closers), grammar.phrases, draws))
    if draws.percent(35):
        parts[0] = f"{draws.one_of(grammar.openers)} {parts[0]}"
    return " ".join(parts)


def _written(text: str, customer: int, draws: _Draws) -> str:
    """The text as this customer types it: capitals, punctuation, typos."""
    who = _Draws("customer", customer)
    habit, typos = who.one_of(_HABITS), who.one_of(_TYPO_PERCENT)
    if draws.percent(typos):
        text = _mistyped(text, draws)
        if draws.percent(30):
            text = _mistyped(text, draws)
    if habit == "hasty":
        return re.sub(r"(?<!\d)[.,](?!\d)|[!']", "", text).replace("BR-", "br")
    if habit == "lower":
        return text.removesuffix(".").replace("!", "")
    text = re.sub(r"\bi\b", "I", text)
    text = re.sub(r"(^|[.?!] )(\w)", lambda match: match[1] + match[2].upper(), text)
    text = re.sub(_NAMES, lambda match: match[0].capitalize(), text)
    text = re.sub(r"\b(in|from|for|of) may\b", r"\1 May", text)
    return text if habit == "careful" else text.removesuffix(".")


def _mistyped(text: str, draws: _Draws) -> str:
    """One word of at least five letters misspelt, with letters swapped, one left out or one doubled."""
    words = text.split(" ")
    places = [i for i, word in enumerate(words) if re.fullmatch(r"[a-z]{5,}[,.?!]?", word)]
    if not places:
        return text
    known = [i for i in places if words[i].strip(",.?!") in _MISSPELT]
    place = draws.one_of(known if known and draws.percent(60) else places)
    word = words[place].strip(",.?!")
    tail = words[place][len(word) :]
    cut = 1 + draws.below(len(word) - 2)
    kind = draws.below(3)
    if word in _MISSPELT and draws.percent(60):
        word = _MISSPELT[word]
    elif kind == 0:
        word = word[:cut] + word[cut + 1] + word[cut] + word[cut + 2 :]
    elif kind == 1:
        word = word[:cut] + word[cut + 1 :]
    else:
        word = word[:cut] + word[cut] + word[cut:]
    words[place] = word + tail
    return " ".join(words)
