"""What footprint figures are drawn from: plain rows, taken from records or from a published table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vestige.contracts import Undefined
from vestige.footprint.records import CheckpointFootprint, CorpusFootprint, FootprintRecord, Shift
from vestige.metrics.footprint import FootprintClass

__all__ = [
    "CLASSES",
    "CheckpointRow",
    "RegimeRow",
    "ShiftRow",
    "checkpoint_rows",
    "class_word",
    "shift_rows",
    "variant_of",
]

CLASSES = ("no-op", "partially-localized", "collateral-dominant", "globally-destructive")
"""The published classes in the order of figures; whatever else stands in `class_name` comes after them."""
_WORDS = {
    "no-op": "no-op",
    "partially-localized": "localized",
    "collateral-dominant": "collateral",
    "globally-destructive": "destructive",
}
_NOISE = re.compile(r"\s*[+ _-]\s*(noise|noised|rna)$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class ShiftRow:
    """A checkpoint on a corpus. cofi, chess: percent; log10_ppl: log10 of the perplexity ratio; None where
    undefined. group: what was measured on, the same for everything that compares."""

    group: str
    model: str
    method: str
    noise: bool
    corpus: str
    role: str
    class_name: str
    cofi: float | None = None
    chess: float | None = None
    log10_ppl: float | None = None

    @property
    def label(self) -> str:
        """The method, and whether it is its noise variant."""
        return f"{self.method} +noise" if self.noise else self.method


@dataclass(frozen=True, kw_only=True)
class CheckpointRow:
    """A checkpoint with its class and its shifts by role, percent, each with the half-width of its interval.

    class_name: a published class, or why there is none. undetermined: sampling of text could change it.
    """

    group: str
    model: str
    method: str
    noise: bool
    class_name: str
    undetermined: bool = False
    forget: float | None = None
    adjacent: float | None = None
    generic: float | None = None
    forget_half: float | None = None
    adjacent_half: float | None = None
    oracle: bool = False

    @property
    def label(self) -> str:
        """The method, and whether it is its noise variant."""
        return f"{self.method} +noise" if self.noise else self.method


@dataclass(frozen=True, kw_only=True)
class RegimeRow:
    """A relearning attack on a checkpoint. cofi_forget: percent, of the checkpoint attacked. before, after:
    score on forget text, in [0, 1]; recovery: after minus before. score: what that is."""

    checkpoint: str
    class_name: str
    cofi_forget: float
    recovery: float
    before: float
    after: float
    score: Literal["accuracy", "token probability"] = "accuracy"


def class_word(name: str) -> str:
    """A class in one word, `undefined` where there is none."""
    return _WORDS.get(name, "undefined")


def variant_of(label: str) -> tuple[str, bool]:
    """(method, whether it is a noise variant) of a checkpoint's label: `RMU+noise` and `RMU RNA` are variants
    of `RMU`."""
    method = _NOISE.sub("", label)
    return (method, True) if method and method != label else (label, False)


def checkpoint_rows(records: Sequence[FootprintRecord]) -> list[CheckpointRow]:
    """One row a checkpoint, oracles too."""
    return [_checkpoint_row(record, checkpoint) for record in records for checkpoint in record.checkpoints]


def _checkpoint_row(record: FootprintRecord, checkpoint: CheckpointFootprint) -> CheckpointRow:
    method, noise = variant_of(checkpoint.label)
    roles = {role.role: role.fisher for role in checkpoint.roles}
    absent = Shift(value=Undefined(undefined=""), half_width=Undefined(undefined=""))
    forget, adjacent, generic = (roles.get(role, absent) for role in ("forget", "adjacent", "generic"))
    published = checkpoint.published
    return CheckpointRow(
        group=_group(record),
        model=record.base.label,
        method=method,
        noise=noise,
        class_name=_class_name(checkpoint),
        undetermined=isinstance(published, FootprintClass) and bool(published.undetermined),
        forget=_value(forget.value),
        adjacent=_value(adjacent.value),
        generic=_value(generic.value),
        forget_half=_value(forget.half_width),
        adjacent_half=_value(adjacent.half_width),
        oracle=checkpoint.role == "oracle",
    )


def shift_rows(records: Sequence[FootprintRecord]) -> list[ShiftRow]:
    """One row a checkpoint and corpus."""
    return [
        _shift_row(record, checkpoint, corpus)
        for record in records
        for checkpoint in record.checkpoints
        for corpus in checkpoint.corpora
    ]


def _shift_row(record: FootprintRecord, checkpoint: CheckpointFootprint, corpus: CorpusFootprint) -> ShiftRow:
    method, noise = variant_of(checkpoint.label)
    ratio = corpus.perplexity
    return ShiftRow(
        group=_group(record),
        model=record.base.label,
        method=method,
        noise=noise,
        corpus=corpus.corpus,
        role=corpus.role,
        class_name=_class_name(checkpoint),
        cofi=_value(corpus.fisher.value),
        chess=_value(corpus.hessian.value),
        log10_ppl=None if isinstance(ratio, Undefined) else _value(ratio.log10_ratio.value),
    )


def _group(record: FootprintRecord) -> str:
    """What shifts have to share to stand in one figure: corpora and everything that changes a number."""
    settings = record.settings
    names = ", ".join(corpus.name for corpus in record.corpora)
    parts = [names, settings.estimator]
    if settings.subspace != "both":
        parts.append(f"{settings.subspace} alone")
    if settings.scale == "linear":
        parts.append("linear scale")
    if settings.quick:
        parts.append("quick")
    return "; ".join(parts)


def _class_name(checkpoint: CheckpointFootprint) -> str:
    published = checkpoint.published
    return str(published if isinstance(published, Undefined) else published.name)


def _value(value: float | Undefined) -> float | None:
    return None if isinstance(value, Undefined) else value
