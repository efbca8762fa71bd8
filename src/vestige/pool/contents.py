"""What is in a pool: its rows, its deletions, its models. Reading needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from vestige.contracts import Floats, Record, View
from vestige.errors import InputError
from vestige.files import read_record, reading
from vestige.seeds import generator

__all__ = [
    "ANCHOR",
    "CURVES",
    "DELETIONS",
    "LANGUAGE",
    "POOL",
    "SMALL",
    "Deletion",
    "Outputs",
    "Pool",
    "PoolRecord",
    "PoolSettings",
    "Rows",
    "deletion_of",
    "language_path",
    "model_path",
]

POOL = "pool.json"
ROWS = "rows.npz"
CURVES = "relearned"
ANCHOR = "anchor"
LANGUAGE = "language"
VIEWS: tuple[View, ...] = ("F", "G", "R")
Outputs = Mapping[View, Floats]
"""One model's probabilities on each view, (N, C) float64."""

DELETIONS: Mapping[str, str] = {
    "intents2": "two intents",
    "intents6": "six intents",
    "customers8": "eight customers",
    "rows5": "5 % of the rows",
    ANCHOR: "two intents, LoRA models",
    LANGUAGE: "language models with injected facts",
}
"""Deletions by key. `anchor` is `intents2` with the demonstration's own model and trainer."""


class PoolSettings(Record):
    """How many models of each kind, for each deletion; full models serve all of them.

    kept: shares of the deleted rows that the partial retrainings keep, kept_seeds of each. mixed: shares of
    the full model in mixtures of weights. deletions: keys. relearned: oracles that go through relearning, of
    deletions of intents. anchors: LoRA models of the demonstration, none or
    eight: half of them retrained, a quarter full, a quarter trained with half of the deleted rows. worlds: of
    language models with injected facts, nine each.
    """

    fulls: int = Field(8, ge=2)
    oracles: int = Field(24, ge=4)
    kept: tuple[float, ...] = (0.05, 0.10, 0.25, 0.50)
    kept_seeds: int = Field(8, ge=1)
    mixed: tuple[float, ...] = (0.1, 0.2, 0.5)
    deletions: tuple[Literal["intents2", "intents6", "customers8", "rows5"], ...] = (
        "intents2",
        "intents6",
        "customers8",
        "rows5",
    )
    relearned: int = Field(24, ge=0)
    anchors: Literal[0, 8] = 8
    worlds: int = Field(4, ge=0)


SMALL = PoolSettings(
    fulls=3,
    oracles=10,
    kept=(0.10, 0.25),
    kept_seeds=2,
    mixed=(0.5,),
    relearned=4,
    deletions=("intents6",),
    anchors=0,
    worlds=0,
)
"""A pool for a first look and for tests: half a minute."""


class PoolRecord(Record):
    """`pool.json`: what the folder holds and what it was made with."""

    format: Literal["vestige-pool-1"] = "vestige-pool-1"
    settings: PoolSettings
    data: str
    """Hash of the embedded data."""
    encoder: str
    version: str
    models: int
    """Trained models of every kind together."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of the embedded data as arrays. Suffix `train` or `evaluation`.

    vectors (N, d), gold (N,) columns, customer (N,) numbers. names, descriptions (C, d): vectors of the
    options.
    """

    options: tuple[str, ...]
    vectors: Mapping[str, Floats]
    gold: Mapping[str, NDArray[np.intp]]
    customer: Mapping[str, NDArray[np.intp]]
    names: Floats
    descriptions: Floats

    @classmethod
    def read(cls, path: Path) -> Rows:
        """From `rows.npz`. Raises InputError."""
        with reading(path, "a pool"), np.load(path) as stored:
            splits = ("train", "evaluation")
            return cls(
                options=tuple(stored["options"].tolist()),
                vectors={split: stored[f"vectors_{split}"] for split in splits},
                gold={split: stored[f"gold_{split}"] for split in splits},
                customer={split: stored[f"customer_{split}"] for split in splits},
                names=stored["names"],
                descriptions=stored["descriptions"],
            )

    def arrays(self) -> dict[str, Any]:
        """What `read` reads."""
        found: dict[str, Any] = {
            "options": np.array(self.options),
            "names": self.names,
            "descriptions": self.descriptions,
        }
        for split in self.gold:
            found[f"vectors_{split}"] = self.vectors[split]
            found[f"gold_{split}"] = self.gold[split]
            found[f"customer_{split}"] = self.customer[split]
        return found

    @cached_property
    def nearest(self) -> NDArray[np.intp]:
        """(evaluation rows,): the training row with the most similar text."""
        return np.asarray((self.vectors["evaluation"] @ self.vectors["train"].T).argmax(axis=1))


@dataclass(frozen=True, eq=False)
class Deletion:
    """What was deleted. deleted: mask of the training rows; like: mask of the evaluation rows that are G.

    units: view -> (N,) names; gold: view -> (N,) columns; forgotten: columns of deleted options, or none.
    """

    key: str
    deleted: NDArray[np.bool_]
    like: NDArray[np.bool_]
    units: Mapping[View, NDArray[np.str_]]
    gold: Mapping[View, NDArray[np.intp]]
    forgotten: tuple[int, ...]

    def rows(self, view: View) -> int:
        """Rows of the view."""
        return len(self.gold[view])

    def parts(self, train: Floats, evaluation: Floats) -> dict[View, Floats]:
        """The views of arrays over all training and all evaluation rows."""
        return {"F": train[self.deleted], "G": evaluation[self.like], "R": evaluation[~self.like]}


def deletion_of(key: str, rows: Rows) -> Deletion:
    """The rows that a deletion of this key takes."""
    gold, customer = rows.gold, rows.customer
    names = np.array(rows.options)
    forgotten: tuple[int, ...] = ()
    if key in ("intents2", ANCHOR, "intents6"):
        forgotten = (3, 4) if key != "intents6" else tuple(range(0, len(rows.options), 3))
        deleted, like = (np.isin(gold[split], forgotten) for split in ("train", "evaluation"))
        unit = {split: names[gold[split]] for split in gold}
    elif key == "customers8":
        deleted, like = (customer[split] <= 8 for split in ("train", "evaluation"))
        unit = {split: np.char.add("customer ", customer[split].astype(np.str_)) for split in gold}
    else:
        # Rows of G are those whose nearest training row was deleted; they form a unit with it.
        random = generator("pool", "deleted rows")
        deleted = np.zeros(len(gold["train"]), dtype=bool)
        deleted[random.choice(len(deleted), round(0.05 * len(deleted)), replace=False)] = True
        like = deleted[rows.nearest]
        numbers = {"train": np.arange(len(deleted)), "evaluation": rows.nearest}
        unit = {split: np.char.add("row ", numbers[split].astype(np.str_)) for split in gold}
    golds: dict[View, NDArray[np.intp]] = {
        "F": gold["train"][deleted],
        "G": gold["evaluation"][like],
        "R": gold["evaluation"][~like],
    }
    units: dict[View, NDArray[np.str_]] = {
        "F": unit["train"][deleted],
        "G": unit["evaluation"][like],
        "R": names[golds["R"]],
    }
    return Deletion(key, deleted, like, units, golds, forgotten)


def model_path(folder: Path, deletion: str, role: str, seed: int) -> Path:
    """Where a model's outputs are kept. deletion: its key; full and random models belong to none: "all"."""
    return folder / "models" / deletion / f"{role}-{seed:02d}.npz"


def language_path(folder: Path, world: int) -> Path:
    """Where the weights of a world of language models are kept."""
    return folder / LANGUAGE / f"{world:02d}.npz"


class Pool:
    """A finished pool. Raises InputError where the folder is none, or not finished."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = read_record(folder / POOL, PoolRecord, "make one: vestige pool build --out DIR")
        self.rows = Rows.read(folder / ROWS)
        self.settings = self.record.settings
        self._read = lru_cache(maxsize=None)(self._outputs)

    @property
    def deletions(self) -> list[str]:
        """Keys of its deletions, the anchor last where there is one."""
        return [*self.settings.deletions, *([ANCHOR] if self.settings.anchors else [])]

    def deletion(self, key: str) -> Deletion:
        """The rows of one of them."""
        return deletion_of(key, self.rows)

    def has(self, deletion: str, role: str) -> bool:
        """Whether there are models of this role."""
        return any(self._folder(deletion, role).glob(f"{role}-*.npz"))

    def role(self, deletion: str, role: str) -> list[Outputs]:
        """All models of a role, in order of seeds: `full`, `oracle`, `random`, `kept05`, `weights10`."""
        return self._read(deletion, role, "")

    def described(self, deletion: str, role: str) -> list[Outputs]:
        """The same models asked with the options' descriptions in place of their names: `full`, `oracle`."""
        return self._read(deletion, role, "described_")

    def _folder(self, deletion: str, role: str) -> Path:
        of_all = role in ("full", "random") and deletion != ANCHOR
        return self.folder / "models" / ("all" if of_all else deletion)

    def _outputs(self, deletion: str, role: str, prefix: str) -> list[Outputs]:
        here = self._folder(deletion, role)
        where = self.deletion(deletion)
        found: list[Outputs] = []
        for path in sorted(here.glob(f"{role}-*.npz")):
            with reading(path, "a model of the pool"), np.load(path) as stored:
                both = [
                    np.exp(stored[f"{prefix}{split}"].astype(np.float64)) for split in ("train", "evaluation")
                ]
            found.append(where.parts(*(p / p.sum(axis=1, keepdims=True) for p in both)))
        if not found:
            raise InputError(str(here), f"no model of the role '{role}'", "a finished pool", "build it again")
        return found
