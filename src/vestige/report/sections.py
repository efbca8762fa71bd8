"""A page as sections of blocks: what a template shows without knowing what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vestige.report.drawing import Panel
from vestige.report.tables import Table

__all__ = [
    "Answers",
    "Block",
    "Bullets",
    "Chip",
    "Data",
    "Drawings",
    "Entries",
    "Fold",
    "Prose",
    "Section",
]

ChipKind = Literal["equivalent", "closer", "damaged", "none"]
"""Of verdicts. The colour of success belongs to `equivalent` alone."""


@dataclass(frozen=True, kw_only=True)
class Chip:
    """A word in a coloured frame. glyph: the same as a sign. before: what it is, in front of it."""

    text: str
    kind: ChipKind
    glyph: str
    before: str = ""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What comes first about one model: its name, chips, and short answers to questions.

    folded: inside a fold. glance: short facts that a fold shows unopened. tag: what stands behind the name.
    """

    label: str
    chips: tuple[Chip, ...]
    answers: tuple[tuple[str, str], ...]
    tag: str = ""
    folded: bool = False
    glance: tuple[str, ...] = ()
    block: str = "answers"


@dataclass(frozen=True)
class Prose:
    """A paragraph; note: in small letters."""

    text: str
    note: bool = False
    block: str = "prose"


@dataclass(frozen=True)
class Bullets:
    """Lines of a list."""

    items: Sequence[str]
    block: str = "bullets"


@dataclass(frozen=True)
class Data:
    """A table. compact: no wider than its content."""

    table: Table
    compact: bool = False
    block: str = "data"


@dataclass(frozen=True)
class Drawings:
    """Panels side by side where there is room."""

    panels: Sequence[Panel]
    block: str = "drawings"


@dataclass(frozen=True)
class Entries:
    """Names with values: text, `("hash", text)`, or nested entries."""

    items: Sequence[tuple[str, Any]]
    block: str = "entries"


@dataclass(frozen=True)
class Fold:
    """Blocks behind a line that opens them."""

    summary: str
    blocks: Sequence[Block]
    open: bool = False
    block: str = "fold"


Block = Answers | Prose | Bullets | Data | Drawings | Entries | Fold


@dataclass(frozen=True)
class Section:
    """A section. key: its place in links. short: its words in the list of sections, empty: not listed."""

    key: str
    title: str
    short: str
    blocks: Sequence[Block]
