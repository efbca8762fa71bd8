"""What recovery by relearning goes with, over checkpoints. No torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vestige.contracts import Interval, Record, Undefined
from vestige.csv_text import csv_text
from vestige.errors import InputError, first_five
from vestige.readers import Table, read_table
from vestige.statistics.correlation import UNKNOWN, Correlation, CorrelationPair, correlation

__all__ = [
    "DESTRUCTIVE",
    "KNOWING",
    "CorrelationRecord",
    "CorrelationRow",
    "NamedCorrelation",
    "correlation_record",
    "rows_of_table",
]

DESTRUCTIVE = "globally-destructive"
KNOWING = 0.27
"""Forget accuracy after unlearning above this: a model that still answers better than chance of four."""


@dataclass(frozen=True, kw_only=True)
class CorrelationRow:
    """A checkpoint; None: not measured.

    method: what made it, "" where that is not known. Shifts and losses of accuracy in percent; recovery and
    forget_before, the accuracy on forget questions after unlearning and before any relearning, as shares.
    """

    checkpoint: str
    method: str = ""
    class_name: str = ""
    cofi_f: float | None = None
    cofi_a: float | None = None
    cofi_g: float | None = None
    chess_f: float | None = None
    recovery: float | None = None
    forget_before: float | None = None
    delta_f: float | None = None
    b_gap: float | None = None

    @property
    def adjacency_gap(self) -> float | None:
        """CoFi on forget minus CoFi on adjacent text, points."""
        return None if self.cofi_f is None or self.cofi_a is None else self.cofi_f - self.cofi_a

    @property
    def generic_share(self) -> float | None:
        """CoFi on generic over CoFi on forget text; None where forget text did not move."""
        return (
            None
            if self.cofi_f is None or self.cofi_g is None or self.cofi_f <= 0
            else self.cofi_g / self.cofi_f
        )


class NamedCorrelation(Record):
    """One question. x, y: what was correlated. over: which checkpoints; checkpoints: their labels."""

    key: str
    x: str
    y: str
    over: str
    checkpoints: tuple[str, ...]
    pair: CorrelationPair


class CorrelationRecord(Record):
    """All correlations of a set of checkpoints: `correlations.json`."""

    format: str = "vestige-correlations-1"
    correlations: tuple[NamedCorrelation, ...]
    caveats: tuple[str, ...] = ()

    def named(self, key: str) -> CorrelationPair:
        """The correlation of this key. Raises KeyError."""
        for item in self.correlations:
            if item.key == key:
                return item.pair
        raise KeyError(key)

    def lines(self) -> Iterator[str]:
        """One line a correlation, then the caveats."""
        for item in self.correlations:
            yield (
                f"{item.x} with {item.y}, {item.over} ({counted(item.pair)}): Pearson "
                f"{text_of(item.pair.pearson)}; Spearman {text_of(item.pair.spearman)}"
            )
        yield from (f"- {line}" for line in self.caveats)

    def to_csv(self) -> str:
        """The correlations as CSV text; empty where undefined; left_out: draws without a coefficient."""
        parts = ("value", "p", "permutation_p", "low", "high", "left_out")
        header = ["key", "x", "y", "over", "n", "checkpoints"]
        header += [f"{kind}_{part}" for kind in ("pearson", "spearman") for part in parts]
        rows = []
        for item in self.correlations:
            cells: list[Any] = [item.key, item.x, item.y, item.over, item.pair.n, len(item.checkpoints)]
            for found in (item.pair.pearson, item.pair.spearman):
                interval = found.interval
                ends = (interval.low, interval.high) if isinstance(interval, Interval) else ("", "")
                cells += [
                    "" if value is None or isinstance(value, Undefined) else value
                    for value in (found.value, found.p, found.permutation_p)
                ]
                cells += [*ends, found.left_out]
            rows.append(cells)
        return csv_text(header, rows)


Reader = Callable[[CorrelationRow], float | None]
_PAIRS: tuple[tuple[str, str, Reader, str, Reader], ...] = (
    ("cofi-recovery", "CoFi on forget text", lambda r: r.cofi_f, "recovery", lambda r: r.recovery),
    ("chess-recovery", "CHess on forget text", lambda r: r.chess_f, "recovery", lambda r: r.recovery),
    ("share-recovery", "generic/forget CoFi", lambda r: r.generic_share, "recovery", lambda r: r.recovery),
    ("cofi-loss", "CoFi on forget text", lambda r: r.cofi_f, "loss of forget accuracy", lambda r: r.delta_f),
    ("gaps", "adjacency gap", lambda r: r.adjacency_gap, "B-Gap", lambda r: r.b_gap),
)  # fmt: skip
_SUBSETS: tuple[tuple[str, str, Callable[[CorrelationRow], bool]], ...] = (
    ("all", "all checkpoints", lambda row: True),
    ("not-destructive", "without globally-destructive ones", lambda row: row.class_name != DESTRUCTIVE),
    (
        "knowing",
        f"with forget accuracy above {KNOWING:g} after unlearning",
        lambda row: row.forget_before is not None and row.forget_before > KNOWING,
    ),
)


def _asked_over(key: str, subset: str) -> bool:
    """Whether a pair is correlated over these checkpoints, as published: recovery over all three kinds, the
    loss of accuracy also over those that still knew something."""
    return subset == "all" or key.endswith("recovery") or (key, subset) == ("cofi-loss", "knowing")


def correlation_record(rows: Sequence[CorrelationRow]) -> CorrelationRecord:
    """Every correlation over all checkpoints; those with recovery also without globally-destructive ones;
    those with recovery and that of the shift with the loss also over checkpoints that still knew something.
    A pair that nothing was measured for is left out."""
    found = []
    for key, x, read_x, y, read_y in _PAIRS:
        for subset, over, wanted in _SUBSETS:
            if not _asked_over(key, subset):
                continue
            chosen = [
                (row, first, second)
                for row in rows
                if wanted(row) and (first := read_x(row)) is not None and (second := read_y(row)) is not None
            ]
            if not chosen:
                continue
            name = key if subset == "all" else f"{key}, {subset}"
            found.append(
                NamedCorrelation(
                    key=name,
                    x=x,
                    y=y,
                    over=over,
                    checkpoints=tuple(row.checkpoint for row, _, _ in chosen),
                    pair=correlation(
                        [a for _, a, _ in chosen],
                        [b for _, _, b in chosen],
                        methods=[row.method for row, _, _ in chosen],
                        name=name,
                    ),
                )
            )
    if not found:
        raise InputError(
            "correlations",
            "no checkpoint with two quantities measured",
            "shifts with recoveries or losses of accuracy",
            "run vestige attack relearn or vestige behaviour on the checkpoints of the footprint",
        )
    return CorrelationRecord(correlations=tuple(found), caveats=tuple(_caveats(rows)))


def _caveats(rows: Sequence[CorrelationRow]) -> Iterator[str]:
    if not all(row.method for row in rows):
        yield (
            "which checkpoints share a method is not known of all of them, so there is no p and no interval: "
            "make them with vestige unlearn, or give a table with a column method"
        )
    methods = len({row.method for row in rows if row.method})
    yield (
        f"{len(rows)} checkpoints of one base are few, and those of one method are not independent: they are "
        f"averaged, and n counts methods ({methods} known)"
    )
    if any(row.class_name == DESTRUCTIVE for row in rows):
        yield "destructive checkpoints have nothing that could return: read the line without them"


def counted(pair: CorrelationPair) -> str:
    """How many methods or checkpoints a pair rests on."""
    if pair.checkpoints is None:
        return f"{pair.n} checkpoints, each counted as independent: an earlier rule"
    checkpoints = f"{pair.checkpoints} checkpoints"
    if pair.spearman.p == UNKNOWN:
        return checkpoints
    return f"n = {pair.n} methods, {checkpoints}"


def text_of(item: Correlation) -> str:
    """`0.65 (permutation p 0.031, published p 0.030, BCa [0.02, 0.91])`; with what is undefined, and how many
    draws were left out."""
    if isinstance(item.value, Undefined):
        return str(item.value)
    p, own, ends = item.p, item.permutation_p, item.interval
    parts = []
    if isinstance(own, float):
        parts.append(f"permutation p {own:.3g}")
    if isinstance(p, float):
        parts.append(f"published p {p:.3g}")
    if not parts and isinstance(p, Undefined):
        parts.append(f"no p: {p.undefined}")
    if isinstance(ends, Interval):
        left_out = f", {item.left_out} of {ends.draws} draws without spread left out" if item.left_out else ""
        parts.append(f"BCa [{ends.low:.2f}, {ends.high:.2f}]{left_out}")
    else:
        parts.append(f"no interval: {ends.undefined}")
    return f"{item.value:.3f} ({', '.join(parts)})"


_COLUMNS = ("cofi_f", "cofi_a", "cofi_g", "chess_f", "recovery", "forget_before", "delta_f", "b_gap")


def rows_of_table(path: str | Path) -> list[CorrelationRow]:
    """Checkpoints of a CSV or Parquet table; an empty cell is not measured. Raises InputError."""
    path = Path(path)
    table = read_table(path)
    if "checkpoint" not in table or not set(_COLUMNS) & set(table.names):
        raise InputError(
            str(path),
            f"columns {first_five(table.names)}",
            f"checkpoint and some of {', '.join(_COLUMNS)}",
            "rename the columns",
        )
    measured = {name: _numbers(table, name) for name in _COLUMNS}
    methods, classes = (
        table.texts(name) if name in table else [""] * table.rows for name in ("method", "class")
    )
    return [
        CorrelationRow(
            checkpoint=checkpoint,
            method=methods[row].strip(),
            class_name=classes[row],
            **{name: values[row] for name, values in measured.items()},
        )
        for row, checkpoint in enumerate(table.texts("checkpoint"))
    ]


def _numbers(table: Table, name: str) -> list[float | None]:
    """A column, None where nothing was measured or there is no such column. Raises InputError: infinite."""
    if name not in table:
        return [None] * table.rows
    found: list[float | None] = []
    for row, value in enumerate(table.numbers(name).tolist()):
        if math.isinf(value):
            raise InputError(table.where(row, name), str(value), "a number or nothing", "correct this row")
        found.append(None if math.isnan(value) else value)
    return found
