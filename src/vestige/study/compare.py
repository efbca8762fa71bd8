"""Own predictions: from paths, frames or arrays to an assessment. What `vestige compare` runs. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from vestige.contracts import Assessment, Margins
from vestige.decision.output_filters import OutputFilter, output_filter
from vestige.decision.prediction_files import refuse_top_k
from vestige.decision.predictions import (
    Predictions,
    align,
    read_seeds,
    seeds_from,
    seeds_from_arrays,
)
from vestige.errors import InputError, first_five, shown
from vestige.limits import MOST_DRAWS
from vestige.statistics.bootstrap import DRAWS
from vestige.study.assess import AssessSettings, assess
from vestige.study.caveats import top_k
from vestige.study.plan import checked

__all__ = ["CONDITION", "Tables", "compare", "load_tables", "unit_kind"]

CONDITION = "the compared models"
SAME_MODEL = 1e-5
"""Largest difference of two exports of one model's probabilities: single precision, or six decimals."""


@dataclass(frozen=True)
class Tables:
    """The models of a comparison. unlearned: label -> the tables of its training seeds."""

    full: list[Predictions]
    unlearned: dict[str, list[Predictions]]
    oracle: list[Predictions]


Table = Any
"""A path, Predictions, a data frame, a mapping of arrays, or an (N, C) array beside `rows` and `options`."""


def compare(
    *,
    full: Table | Sequence[Table],
    unlearned: Table | Sequence[Table] | Mapping[str, Table | Sequence[Table]],
    oracle: Table | Sequence[Table] | None = None,
    forget: str | Sequence[str] | None = (),
    name: str = "comparison",
    draws: int = DRAWS,
    margins: Margins | Mapping[str, float] | None = None,
    unit: str | None = None,
    condition: str = CONDITION,
    rows: Any = None,
    options: Sequence[str] | None = None,
    sources: Mapping[str, str] | None = None,
    filtered: bool = False,
) -> Assessment:
    """The verdict on unlearned models from probabilities alone.

    full, unlearned, oracle: one or several tables each: a path (JSONL, CSV, Parquet, .npz), a data frame or a
    mapping of arrays with row_id, view, unit, gold and `p:<option>`, or (N, C) arrays that share `rows` (a
    frame or mapping with row_id, view, unit, gold) and `options` (C,). With a column `seed` a table stands
    for several training seeds, every row once for each. All full models and oracles enter the verdict alike;
    the published rule compares one pair of them. unlearned may map labels to tables, or to several tables:
    training seeds of one method. forget: the deleted options, none where rows and not options were deleted.
    margins: what the verdict counts as small, set before looking, as a record or as names with values, for
    example {"memory": 0.05}. unit: what a unit is; default "class" where units are the gold options, else
    "unit". condition: what the published rule's intervals are conditional on, for example "training seed
    17". filtered: judge a table although it is a full model's own with the columns of some options
    multiplied, which is refused otherwise: no model was changed. Raises InputError in one line for
    everything that is wrong with the tables.

    Example: `vestige.compare(full="full.csv", unlearned="npo.csv", oracle="oracle.csv", forget=["refund"])`
    """
    _check_settings(forget, draws, name=name, unit=unit or "", condition=condition)
    small = margins if isinstance(margins, Margins) else checked(Margins, margins or {}, "margins")
    tables = load_tables(full=full, unlearned=unlearned, oracle=oracle, rows=rows, options=options)
    # The published rule compares one pair of models; which one must not depend on the order they came in.
    fulls, oracles = (sorted(group, key=lambda table: table.sha256) for group in (tables.full, tables.oracle))
    forgotten = [forget] if isinstance(forget, str) else list(() if forget is None else forget)
    for table in (*fulls[:1], *oracles[:1]):
        k = top_k(table)
        if k is not None:
            refuse_top_k(
                table.path or table.label, f"exactly {k} of {len(table.options)} options above 0 in every row"
            )
    for seeds in (fulls, oracles, *tables.unlearned.values()):
        _refuse_copies(seeds)
    tested = [table for seeds in tables.unlearned.values() for table in seeds]
    filters = [*_filters(fulls, tested), *_filters(fulls, oracles)]
    if filters and not filtered:
        raise filters[0].refusal()
    return assess(
        name=name,
        fulls=fulls,
        unlearned=tables.unlearned,
        oracles=oracles,
        forgotten=forgotten,
        settings=AssessSettings(
            draws=int(draws),
            unit_kind=unit or unit_kind(fulls[0]),
            exceptions=tuple(found.sentence() for found in filters),
            margins=small,
        ),
        condition=condition,
        family=list(tables.unlearned),
        provenance=dict(sources or {}),
    )


def _refuse_copies(seeds: Sequence[Predictions]) -> None:
    """Refuse one model's outputs twice among the training seeds of a role: copies say nothing of another run.

    Three copies of one oracle would stand for three retrainings that do not differ at all; so would three
    exports of it that round otherwise.
    """
    for first, second in combinations(align(seeds), 2):
        apart = float(np.abs(first.p - second.p).max())
        if apart <= SAME_MODEL:
            raise InputError(
                second.path or second.label,
                f"the same probabilities on every row as {shown(first.path or first.label)}"
                + (f", to {SAME_MODEL:.5f}" if apart else ""),
                "a training run of its own for each file of one role or method",
                "give each model once",
            )


@dataclass(frozen=True)
class _Filtered:
    """A table that is a full model's own output behind a filter."""

    table: Predictions
    full: Predictions
    found: OutputFilter

    def refusal(self) -> InputError:
        """Why it is refused by default."""
        return InputError(
            self.table.path or self.table.label,
            f"the probabilities of {shown(self.full.label)} with {self._what()} on {self.found.rows} rows, "
            "and nothing else changed",
            "what another model gives",
            "export the model's own softmax, without a filter on its outputs; "
            "to judge the filter: --filtered",
        )

    def sentence(self) -> str:
        """What has to be said beside its result."""
        return (
            f"{shown(self.table.label)} has the probabilities of {shown(self.full.label)} with "
            f"{self._what()}: a filter on outputs. No model was changed, and without the filter everything "
            "is there as before."
        )

    def _what(self) -> str:
        names = self.found.factors
        factors = sorted({f"{factor:.3g}" for factor in names.values()})
        by = factors[0] if len(factors) == 1 else f"{factors[0]} to {factors[-1]}"
        return f"{len(names)} option(s) ({first_five(names)}) multiplied by {by}"


def _filters(fulls: Sequence[Predictions], tested: Sequence[Predictions]) -> list[_Filtered]:
    """Tables that are a full model's own behind a filter."""
    found = []
    for table in align([*fulls, *tested])[len(fulls) :]:
        for full in fulls:
            made = output_filter(full, table)
            if made is not None:
                found.append(_Filtered(table, full, made))
                break
    return found


def _check_settings(forget: Any, draws: Any, **texts: Any) -> None:
    """What the command line checks by its types. Raises InputError."""
    whole = isinstance(draws, (int, np.integer)) and not isinstance(draws, bool)
    if not whole or not 1 <= draws <= MOST_DRAWS:
        needed = f"a whole number from 1 to {MOST_DRAWS:,}"
        raise InputError("draws", shown(repr(draws)), needed, f"the default is {DRAWS:,}")
    if forget is not None and not isinstance(forget, Iterable):
        raise InputError("forget", shown(repr(forget)), "names of options", 'for example ["refund"]')
    for key, value in texts.items():
        if not isinstance(value, str):
            raise InputError(key, shown(repr(value)), "text", "leave it out for the default")


def load_tables(
    *,
    full: Table | Sequence[Table],
    unlearned: Table | Sequence[Table] | Mapping[str, Table | Sequence[Table]],
    oracle: Table | Sequence[Table] | None,
    rows: Any = None,
    options: Sequence[str] | None = None,
) -> Tables:
    """The tables of each role under labels that no two of them share. Tables as in `compare`."""
    given: dict[str, list[tuple[str, list[Table]]]] = {
        "full": _named("full", full),
        "unlearned": _named("unlearned", unlearned),
        "oracle": [] if oracle is None else _named("oracle", oracle),
    }
    for role in ("full", "unlearned"):
        if not given[role]:
            raise InputError("comparison", f"no {role} model", "at least one", f"give one with --{role}")
    models = [(role, label, seeds) for role, items in given.items() for label, seeds in items]
    names = iter(_distinct([(role, label, seeds[0]) for role, label, seeds in models]))
    named = [(role, next(names), seeds) for role, _, seeds in models]
    flat = [table for _, _, seeds in named for table in seeds]
    labels = [label for _, label, seeds in named for _ in seeds]

    def read(table: Table, label: str) -> list[Predictions]:
        return _tables(table, label, rows, options)

    # The file readers release the interpreter's lock; the first error in the order given is the one raised.
    with ThreadPoolExecutor(max_workers=4) as pool:
        read_in = iter(list(pool.map(read, flat, labels)))
    found = [(role, label, [table for _ in seeds for table in next(read_in)]) for role, label, seeds in named]
    return Tables(
        full=[table for role, _, seeds in found if role == "full" for table in seeds],
        unlearned={label: seeds for role, label, seeds in found if role == "unlearned"},
        oracle=[table for role, _, seeds in found if role == "oracle" for table in seeds],
    )


def unit_kind(table: Predictions) -> str:
    """`class` where the units of F and G are their gold options, else `unit`."""
    deleted = table.view != "R"
    return "class" if bool((table.unit[deleted] == table.gold[deleted]).all()) else "unit"


def _named(role: str, given: Any) -> list[tuple[str, list[Table]]]:
    """(label, its training seeds' tables) of each; the label is empty where nothing names it."""
    if _is_table(given):
        given = [given]
    if isinstance(given, Mapping):
        named = {
            str(label): [seeds] if _is_table(seeds) or not isinstance(seeds, Sequence) else list(seeds)
            for label, seeds in given.items()
        }
        empty = [label for label, seeds in named.items() if not seeds]
        if empty:
            raise InputError(role, f"no table of {first_five(empty)}", "at least one a label", "leave it out")
        return list(named.items())
    if not isinstance(given, Iterable):
        raise InputError(
            role, f"an object of type {type(given).__name__}", "tables or paths", "see vestige.compare"
        )
    found = []
    for table in given:
        label = table.label if isinstance(table, Predictions) else ""
        found.append((label or (Path(table).stem if isinstance(table, (str, Path)) else role), [table]))
    return found


def _is_table(given: Any) -> bool:
    """One table, not a collection of them."""
    if isinstance(given, (str, Path, Predictions)) or hasattr(given, "columns"):
        return True
    if isinstance(given, Mapping):
        return "row_id" in given
    return isinstance(given, np.ndarray) and given.ndim == 2


def _distinct(items: Sequence[tuple[str, str, Table]]) -> list[str]:
    """Labels that differ: the name alone, else with its folder, else with its role, else with a number."""
    names = [label for _, label, _ in items]
    folders = [
        f"{Path(table).parent.name}/{label}" if isinstance(table, (str, Path)) else label
        for _, label, table in items
    ]
    roles = [label if label == role else f"{role} {label}" for role, label, _ in items]
    count = Counter(names)
    for better in (folders, roles):
        labels = [new if count[name] > 1 else name for name, new in zip(names, better, strict=True)]
        if len(set(labels)) == len(labels):
            return labels
    return _numbered(labels)


def _numbered(labels: Sequence[str]) -> list[str]:
    seen: Counter[str] = Counter()
    found = []
    for label in labels:
        seen[label] += 1
        found.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return found


def _tables(table: Table, label: str, rows: Any, options: Sequence[str] | None) -> list[Predictions]:
    """The tables that one of them stands for: more than one where it has a column of training seeds."""
    if isinstance(table, Predictions):
        return [replace(table, label=label)]
    if isinstance(table, (str, Path)):
        return read_seeds(table, label)
    if isinstance(table, np.ndarray):
        if rows is None or options is None:
            raise InputError(
                label,
                "an array alone",
                "rows= and options= beside it",
                "pass row_id, view, unit, gold and options",
            )
        missing = [field for field in ("row_id", "view", "unit", "gold") if field not in rows]
        if missing:
            raise InputError("rows", f"no {first_five(missing)}", "row_id, view, unit and gold", "add it")
        return seeds_from_arrays(table, rows=rows, options=options, label=label)
    return seeds_from(table, label=label)
