"""Intent data sets: what a loaded one is, how one is named, and the registry of loaders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import Field

from vestige.contracts import Record
from vestige.decision.schema import Option, Rendering, Schema
from vestige.errors import InputError, did_you_mean, shown
from vestige.registry import Registry

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DATASETS",
    "Conflicts",
    "DataReport",
    "Dataset",
    "DatasetSpec",
    "Drop",
    "IntentData",
    "Split",
    "SplitCount",
    "load_intents",
]

Split = Literal["train", "development", "evaluation"]


class SplitCount(Record):
    """What one split holds. out_of_scope: rows of the out-of-scope option, part of `rows`."""

    split: Split
    rows: int
    options: int
    out_of_scope: int


class Drop(Record):
    """Rows left out, and why. sha256: of their sorted row ids."""

    reason: str
    rows: int
    sha256: str


class Conflicts(Record):
    """Texts (strip, casefold) that carry more than one label in the rows as read; none is dropped for it.

    sha256: one hash for each such text, sorted, of the text stripped and casefolded.
    """

    texts: int
    rows: int
    sha256: tuple[str, ...]


class DataReport(Record):
    """What was read, kept and left out: counts and hashes, never texts.

    read: rows by source split as read. splits: rows as kept. dropped: rows left out, by reason.
    repeated: extra copies of a text that stay within one split. files: sha256 of each file read.
    """

    name: str
    read: dict[str, int]
    splits: tuple[SplitCount, ...]
    dropped: tuple[Drop, ...]
    repeated: dict[str, int]
    conflicting: Conflicts
    files: dict[str, str]
    notes: tuple[str, ...] = ()

    def rows(self, split: Split) -> int:
        """Rows kept in a split."""
        return next(count.rows for count in self.splits if count.split == split)


@dataclass(frozen=True, kw_only=True)
class IntentData:
    """A data set of utterances and their options, split in three.

    frame: string columns row_id (unique), text, gold (an option id) and split ("train", "development",
    "evaluation"), sorted by row_id, and any further columns of the source. options: the schema's options in
    order, the out-of-scope option among them. sha256: of the options and of row_id, text, gold and split of
    every row. dropped: row ids that were read and left out, with the reason.
    """

    name: str
    frame: pd.DataFrame = field(repr=False)
    options: tuple[Option, ...] = field(repr=False)
    report: DataReport = field(repr=False)
    sha256: str
    out_of_scope: str | None = None
    dropped: dict[str, str] = field(default_factory=dict, repr=False)

    def rows(self, split: Split) -> pd.DataFrame:
        """The rows of a split, sorted by row_id, index 0..n-1. Raises InputError for another name."""
        if split not in get_args(Split):
            raise InputError(
                "split",
                shown(str(split)),
                ", ".join(get_args(Split)),
                did_you_mean(str(split), get_args(Split)),
            )
        return self.frame[self.frame["split"] == split].reset_index(drop=True)

    def schema(self, rendering: Rendering = "semantic", map_seed: int | None = None) -> Schema:
        """All options under a rendering."""
        return Schema(self.options, rendering, map_seed)


class DatasetSpec(Record):
    """Which data set, from where, split how. A loader refuses settings that it does not read.

    name: a registered data set: "helpdesk", "banking77", "clinc150", "files", "hub".
    path: its folder, or for "files" a folder or one table. text_column, label_column, row_id_column: columns
    ("files", "hub"); row ids are made from the source split and row number when no column is named.
    train, development, evaluation: file names, or splits of a hub data set. development_share,
    evaluation_share: share of each option's training rows held out where that split is missing.
    row_share: share of each option's training rows kept, chosen by a hash of the text.
    descriptions: a table or JSON file of option descriptions. out_of_scope: the label of rows that belong to
    no intent. encoding, delimiter: of CSV files. hub_id, hub_config, revision: of a hub data set.
    """

    name: str
    path: str | None = None
    text_column: str = "text"
    label_column: str = "label"
    row_id_column: str | None = None
    train: str | None = None
    development: str | None = None
    evaluation: str | None = None
    development_share: float = Field(0.23, gt=0, lt=1)
    evaluation_share: float = Field(0.2, gt=0, lt=1)
    row_share: float = Field(1.0, gt=0, le=1)
    descriptions: str | None = None
    out_of_scope: str | None = None
    encoding: str = "utf-8"
    delimiter: str = ","
    hub_id: str | None = None
    hub_config: str | None = None
    revision: str | None = None


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A registered data set. settings: the fields of DatasetSpec, besides `name`, that `load` reads."""

    name: str
    title: str
    source: str
    licence: str
    settings: frozenset[str]
    load: Callable[[DatasetSpec], IntentData]


DATASETS: Registry[Dataset] = Registry("data set", "vestige.data")
"""Every data set by name; one registered object a file."""


def load_intents(spec: DatasetSpec) -> IntentData:
    """The data set that `spec` names. Raises InputError: unknown name, setting, file, column or label."""
    dataset = DATASETS.get(spec.name)
    unread = sorted(spec.model_fields_set - dataset.settings - {"name"})
    if unread:
        raise InputError(
            f"data set '{dataset.name}'",
            f"setting '{unread[0]}'",
            f"only {', '.join(sorted(dataset.settings)) or 'its name'}",
            "remove the setting or use the data set 'files'",
        )
    return dataset.load(spec)
