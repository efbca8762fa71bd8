"""Attacks on an unlearned model. Each is one registered object; modules load when the registry is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vestige.contracts import Record
from vestige.registry import Registry

__all__ = ["ATTACKS", "Attack"]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A registered attack. question: what it answers; shows_not: what must not be read from it.

    settings: its settings with their defaults. verb: the command that runs it on a run folder.
    """

    name: str
    title: str
    question: str
    shows_not: str
    source: str
    models: tuple[Literal["decision", "causal-lm"], ...]
    settings: type[Record]
    verb: str


ATTACKS: Registry[Attack] = Registry("attack", "vestige.attacks")
