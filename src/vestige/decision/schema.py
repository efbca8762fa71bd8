"""Option schemas: options, renderings and candidate sets. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import numpy as np

from vestige.contracts import Floats, Undefined
from vestige.errors import InputError, did_you_mean, first_five, shown
from vestige.seeds import digest, generator

__all__ = [
    "NEIGHBOURS_PER_CLASS",
    "CandidateSet",
    "Option",
    "Rendering",
    "Schema",
    "candidate_set",
    "opaque_codes",
]

Rendering = Literal["semantic", "opaque"]
CandidateSet = Literal["S0", "S1", "S2"]

NEIGHBOURS_PER_CLASS = 2
"""Retained options that S1 and S2 add for each forgotten class."""

_CODE_ALPHABET = "bcdfghjkmnpqrstvwxz23456789"  # no vowels, no look-alikes: a code is never a word
_CODE_LENGTH = 5


@dataclass(frozen=True)
class Option:
    """One option of a schema. id: unique, never read by a model. name, description: what a model may read."""

    id: str
    name: str
    description: str = ""

    def __post_init__(self) -> None:
        for label, value in (("id", self.id), ("name", self.name)):
            if not value.strip():
                raise InputError(
                    f"option {shown(self.id)}",
                    f"a blank {label}",
                    f"a {label} with a visible character",
                    "name it",
                )

    @property
    def text(self) -> str:
        """The semantic text: the name with underscores as spaces, then `: description` where there is one."""
        name = self.name.replace("_", " ").strip() or self.name
        return f"{name}: {self.description}" if self.description.strip() else name


def opaque_codes(count: int, map_seed: int) -> tuple[str, ...]:
    """`count` distinct codes of equal length, drawn from `map_seed` alone; a longer list starts the same."""
    random = generator("opaque option codes", map_seed)
    codes: dict[str, None] = {}
    while len(codes) < count:
        letters = random.integers(0, len(_CODE_ALPHABET), _CODE_LENGTH)
        codes["".join(_CODE_ALPHABET[letter] for letter in letters)] = None
    return tuple(codes)


@dataclass(frozen=True)
class Schema:
    """Ordered candidate options and the rendering that decides which text of them a model reads.

    rendering "semantic": `Option.text`. rendering "opaque": one fixed code for each option, drawn from
    `map_seed` and the option's position in the schema this one was made from, never from its id, name or
    description. `subset` and `permuted` carry the codes with their options. `codes` is filled in; pass it
    only to restore a stored schema.
    """

    options: tuple[Option, ...]
    rendering: Rendering = "semantic"
    map_seed: int | None = None
    codes: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple(self.options))
        object.__setattr__(self, "codes", tuple(self.codes))
        self._check_options()
        if self.rendering not in get_args(Rendering):
            raise InputError(
                "setting 'rendering'",
                shown(str(self.rendering)),
                "'semantic' or 'opaque'",
                did_you_mean(str(self.rendering), get_args(Rendering)),
            )
        if self.rendering == "opaque":
            if self.map_seed is None:
                raise InputError(
                    "setting 'map_seed'",
                    "none",
                    "an integer for the opaque rendering",
                    "set map_seed, e.g. 0",
                )
            if not self.codes:
                object.__setattr__(self, "codes", opaque_codes(len(self.options), self.map_seed))
            if len(set(self.codes)) != len(self.options):
                raise InputError(
                    "opaque codes", f"{len(set(self.codes))} codes", f"{len(self.options)}", "leave them out"
                )
        elif self.map_seed is not None or self.codes:
            raise InputError(
                "setting 'map_seed'",
                f"{self.map_seed} with the semantic rendering",
                "none: only the opaque rendering draws codes",
                "remove map_seed or set rendering to 'opaque'",
            )

    def _check_options(self) -> None:
        if not self.options:
            raise InputError("schema", "no options", "at least one option", "add options")
        counts = Counter(option.id for option in self.options)
        twice = [option_id for option_id, count in counts.items() if count > 1]
        if twice:
            raise InputError(
                "schema", f"option ids more than once: {first_five(twice)}", "unique ids", "remove the copies"
            )
        if self.rendering == "semantic":
            by_text: dict[str, str] = {}
            for option in self.options:
                other = by_text.setdefault(option.text, option.id)
                if other != option.id:
                    raise InputError(
                        f"options {shown(other)} and {shown(option.id)}",
                        f"the same text {shown(option.text)}",
                        "a different name or description for each option",
                        "merge the labels or describe the options",
                    )

    def __len__(self) -> int:
        return len(self.options)

    @property
    def ids(self) -> tuple[str, ...]:
        """Option ids in the schema's order: the columns of every (N, C) array scored under it."""
        return tuple(option.id for option in self.options)

    def texts(self) -> tuple[str, ...]:
        """(C,) what a model reads of each option, in order."""
        return self.codes if self.rendering == "opaque" else self.semantic_texts()

    def semantic_texts(self) -> tuple[str, ...]:
        """(C,) semantic texts whatever the rendering: neighbours of candidate sets come from these."""
        return tuple(option.text for option in self.options)

    def index(self, option_id: str) -> int:
        """The column of an option. Raises InputError with a suggestion."""
        try:
            return self.ids.index(option_id)
        except ValueError:
            raise _unknown(option_id, self.ids) from None

    def indices(self, option_ids: Iterable[str]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """(n,) int64 columns of `option_ids`. Raises InputError with a suggestion."""
        columns = {option_id: column for column, option_id in enumerate(self.ids)}
        found = []
        for option_id in option_ids:
            if option_id not in columns:
                raise _unknown(option_id, self.ids)
            found.append(columns[option_id])
        return np.asarray(found, dtype=np.int64)

    def subset(self, ids: Iterable[str]) -> Schema:
        """The schema of these options only, in this schema's order, codes kept. Raises InputError."""
        wanted = set(ids)
        for option_id in sorted(wanted - set(self.ids)):
            raise _unknown(option_id, self.ids)
        return self.permuted([column for column, option_id in enumerate(self.ids) if option_id in wanted])

    def permuted(self, order: Sequence[int]) -> Schema:
        """The schema with option `order[j]` in column j, codes kept. order: distinct columns of this one."""
        order = [int(column) for column in order]
        if len(set(order)) != len(order) or not all(0 <= column < len(self) for column in order):
            raise ValueError(f"order must hold distinct columns of 0..{len(self) - 1}")
        return Schema(
            tuple(self.options[column] for column in order),
            self.rendering,
            self.map_seed,
            tuple(self.codes[column] for column in order) if self.codes else (),
        )

    @property
    def sha256(self) -> str:
        """Identity: options with their texts in order, rendering, map seed and codes."""
        parts = [part for option in self.options for part in (option.id, option.name, option.description)]
        return digest("schema-1", self.rendering, self.map_seed, len(self.options), *parts, *self.codes)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `Schema.from_dict` restores an equal schema."""
        return {
            "options": [
                {"id": option.id, "name": option.name, "description": option.description}
                for option in self.options
            ],
            "rendering": self.rendering,
            "map_seed": self.map_seed,
            "codes": list(self.codes),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Schema:
        """The schema that `as_dict` described. Raises InputError where a part is missing."""
        try:
            options = tuple(
                Option(str(item["id"]), str(item["name"]), str(item["description"]))
                for item in stored["options"]
            )
            return cls(
                options, cast(Rendering, stored["rendering"]), stored["map_seed"], tuple(stored["codes"])
            )
        except (KeyError, TypeError) as error:
            raise InputError(
                "stored schema",
                f"{type(error).__name__} {error}",
                "options, rendering, map_seed and codes",
                "save again",
            ) from None


def candidate_set(
    kind: CandidateSet,
    schema: Schema,
    forgotten: Iterable[str],
    neighbours_embedding: Floats | None = None,
    seed: int = 0,
) -> tuple[str, ...] | Undefined:
    """Ids of a candidate set in the schema's order; Undefined for S1 and S2 when no class is forgotten.

    S0: all options. S1: the forgotten classes and two retained semantic neighbours of each, all distinct: the
    forgotten classes, sorted by id, take in two rounds their nearest retained option not yet taken (cosine,
    ties by id). S2: the forgotten classes and as many retained distractors drawn from `seed`, none of them
    one of S1's neighbours. |S1| = |S2| = 3 |forgotten|. The schema's order does not change the set.

    neighbours_embedding: (C, d) vectors of `schema.semantic_texts()`, needed for S1 and S2. Raises InputError
    where an id is unknown or too few options are retained. Decision-unlearning specification, section 4; the
    rounds that keep neighbours distinct are ours.
    """
    if kind not in get_args(CandidateSet):
        raise InputError(
            "candidate set", shown(str(kind)), "S0, S1 or S2", did_you_mean(str(kind), get_args(CandidateSet))
        )
    lost = sorted(set(forgotten))
    schema.indices(lost)
    if kind == "S0":
        return schema.ids
    if not lost:
        return Undefined(undefined=f"{kind} needs forgotten classes")
    neighbours = _neighbours(schema, lost, neighbours_embedding)
    chosen = neighbours
    if kind == "S2":
        pool = sorted(set(schema.ids) - set(lost) - set(neighbours))
        if len(pool) < len(neighbours):
            raise _too_few(kind, len(pool), len(neighbours), "retained options that are no neighbour")
        chosen = list(generator("candidate set S2", seed, *lost).choice(pool, len(neighbours), replace=False))
    members = {*lost, *(str(option_id) for option_id in chosen)}
    return tuple(option_id for option_id in schema.ids if option_id in members)


def _neighbours(schema: Schema, lost: list[str], embedding: Floats | None) -> list[str]:
    """Two retained neighbours of each forgotten class, all distinct, in the order they were taken."""
    if embedding is None or embedding.ndim != 2 or len(embedding) != len(schema):
        found = "none" if embedding is None else f"shape {embedding.shape}"
        raise ValueError(f"neighbours_embedding must be ({len(schema)}, d), found {found}")
    retained = sorted(set(schema.ids) - set(lost))
    if len(retained) < NEIGHBOURS_PER_CLASS * len(lost):
        raise _too_few("S1", len(retained), NEIGHBOURS_PER_CLASS * len(lost), "retained options")
    vectors = np.asarray(embedding, dtype=np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(vectors).all() or not (norms > 0).all():
        raise ValueError("neighbours_embedding must be finite with no zero row")
    vectors = vectors / norms
    cosine = vectors[schema.indices(lost)] @ vectors[schema.indices(retained)].T
    nearest = np.argsort(-np.round(cosine, 9), axis=1, kind="stable")
    taken: list[str] = []
    for _ in range(NEIGHBOURS_PER_CLASS):
        for row in nearest:
            taken.append(next(retained[column] for column in row if retained[column] not in taken))
    return taken


def _unknown(option_id: str, known: Sequence[str]) -> InputError:
    return InputError(
        f"option {shown(option_id)}",
        "not in the schema",
        f"one of its {len(known)} ids",
        did_you_mean(option_id, known),
    )


def _too_few(kind: str, found: int, needed: int, what: str) -> InputError:
    return InputError(
        f"candidate set {kind}", f"{found} {what}", f"at least {needed}", "forget fewer classes or use S0"
    )
