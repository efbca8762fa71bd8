"""Prediction tables: one model's probabilities over named options for named rows, in canonical order.

Rows are sorted by row_id and options by name when a table is made, so that no later number can depend on the
order of a file. Models are aligned by those names, never by position.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.contracts import Floats, Source, View
from vestige.decision.prediction_checks import (
    SUM_TOLERANCE,
    Objects,
    check_fields,
    check_options,
    check_probabilities,
    objects,
    refuse_repeated,
    texts,
)
from vestige.decision.prediction_files import (
    FIXED,
    OPTION_PREFIX,
    SEED,
    RawTable,
    read_raw,
    refuse_top_k,
    write_raw,
)
from vestige.errors import InputError, first_five, shown, suggestion
from vestige.seeds import digest

__all__ = [
    "SUM_TOLERANCE",
    "Predictions",
    "align",
    "predictions_from",
    "predictions_from_arrays",
    "read_predictions",
    "read_seeds",
    "seeds_from",
    "seeds_from_arrays",
    "write_predictions",
]


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictions:
    """One model's probabilities in canonical order.

    row_ids, view, unit, gold: (N,) object arrays of str, sorted by row_id, which is unique. options: (C,)
    names, sorted. p: (N, C) float64 in [0, 1], rows sum to 1. max_sum_deviation: the largest distance of a
    row's sum from 1 as it was given. path: the file, or "". sha256: of rows, options and p in this order.
    """

    label: str
    row_ids: Objects
    view: Objects
    unit: Objects
    gold: Objects
    options: tuple[str, ...]
    p: Floats
    max_sum_deviation: float
    path: str = ""

    def __len__(self) -> int:
        return len(self.row_ids)

    @cached_property
    def sha256(self) -> str:
        """Hash of everything in the table but its label and path: the same whatever order the file had."""
        names = [self.options, *(list(column) for column in (self.row_ids, self.view, self.unit, self.gold))]
        return digest(json.dumps(names), self.p.astype("<f8").tobytes())

    @cached_property
    def gold_index(self) -> NDArray[np.intp]:
        """(N,) column of each row's gold option."""
        column = {name: index for index, name in enumerate(self.options)}
        return np.array([column[name] for name in self.gold], dtype=np.intp)

    def mask(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """(C,) True at the named options. Raises InputError for a name that is not an option."""
        missing = [name for name in names if name not in self.options]
        if missing:
            raise InputError(
                self.path or self.label,
                f"no option {first_five(missing)}",
                "names of options in the file",
                f"the file's options begin {first_five(self.options)}",
            )
        chosen = set(names)
        return np.array([option in chosen for option in self.options], dtype=np.bool_)

    def of_view(self, view: View) -> Predictions:
        """The rows of one view, order kept. The view may be empty."""
        return self.take(self.view == view)

    def take(self, rows: NDArray[Any]) -> Predictions:
        """The rows of a boolean (N,) mask or of increasing positions."""
        return replace(
            self,
            row_ids=self.row_ids[rows],
            view=self.view[rows],
            unit=self.unit[rows],
            gold=self.gold[rows],
            p=np.ascontiguousarray(self.p[rows]),
        )

    def named(self, label: str) -> Predictions:
        """The same table under another label."""
        return replace(self, label=label)

    def source(self, role: Any) -> Source:
        """Where these probabilities came from, for a record. role: "full", "oracle" or "unlearned"."""
        return Source(
            label=self.label,
            role=role,
            path=self.path,
            sha256=self.sha256,
            max_sum_deviation=self.max_sum_deviation,
        )

    def to_frame(self) -> Any:
        """A pandas DataFrame with columns row_id, view, unit, gold and `p:<option>`."""
        import pandas as pd

        fixed = pd.DataFrame(
            {"row_id": self.row_ids, "view": self.view, "unit": self.unit, "gold": self.gold}, dtype=str
        )
        table = pd.DataFrame(self.p, columns=[OPTION_PREFIX + name for name in self.options])
        return pd.concat([fixed, table], axis=1)


def read_predictions(path: str | Path, label: str | None = None) -> Predictions:
    """The table in a .jsonl, .csv, .parquet or .npz file. label: default the file's stem.

    Raises InputError naming the file and the first five rows or options at fault: unreadable or truncated
    files, duplicate row ids or options, a view other than F, G, R, gold outside the options, probabilities
    that are missing, negative, NaN or off 1 in sum by more than 1e-3, top-1 and top-k outputs.
    """
    path = Path(path)
    return _only(read_seeds(path, label), str(path))


def read_seeds(path: str | Path, label: str | None = None) -> list[Predictions]:
    """The tables of a file, one for each training seed of its column `seed`, in the order of their names; one
    without such a column. Raises InputError as `read_predictions` does, and for a file in which rows do not
    recur at each seed.
    """
    path = Path(path)
    return _built(read_raw(path), path.stem if label is None else label, str(path))


def write_predictions(predictions: Predictions, path: str | Path) -> None:
    """Write Parquet that reads back to the same bytes of p. The file appears whole or not at all."""
    write_raw(
        RawTable(
            row_ids=list(predictions.row_ids),
            view=list(predictions.view),
            unit=list(predictions.unit),
            gold=list(predictions.gold),
            options=list(predictions.options),
            p=predictions.p,
        ),
        Path(path),
    )


def predictions_from(table: Any, *, label: str) -> Predictions:
    """From a data frame, or a mapping of arrays, with row_id, view, unit, gold and `p:<option>` columns.

    Raises InputError as read_predictions does.
    """
    return _only(seeds_from(table, label=label), label)


def seeds_from(table: Any, *, label: str) -> list[Predictions]:
    """As `predictions_from`, one table for each training seed of a column `seed`, as `read_seeds` does."""
    if not hasattr(table, "keys"):
        raise InputError(
            label,
            f"an object of type {type(table).__name__}",
            "a data frame, a mapping of arrays or a path",
            "pass columns row_id, view, unit, gold and p:<option>",
        )
    names = [str(name) for name in table.keys()]  # noqa: SIM118 - a frame iterates over columns by keys()
    missing = [name for name in FIXED if name not in names]
    options = [name.removeprefix(OPTION_PREFIX) for name in names if name.startswith(OPTION_PREFIX)]
    if not options:
        refuse_top_k(label, f"no column '{OPTION_PREFIX}<option>'")
    if missing:
        raise InputError(
            label,
            f"no column {first_five(missing)}",
            "columns row_id, view, unit and gold",
            "add what is missing",
        )
    repeated = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if repeated:
        raise InputError(
            label, f"column {first_five(sorted(repeated))} twice", "each column once", "rename or remove one"
        )
    columns = [_column(table[OPTION_PREFIX + name], name, label) for name in options]
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise InputError(
            label,
            f"columns of {', '.join(str(length) for length in sorted(lengths)[:5])} rows",
            "as many rows in every column",
            "check the arrays",
        )
    return seeds_from_arrays(np.stack(columns, axis=1), rows=table, options=options, label=label)


def seeds_from_arrays(p: ArrayLike, *, rows: Any, options: Sequence[str], label: str) -> list[Predictions]:
    """As `predictions_from_arrays`, one table for each training seed. rows: a frame or mapping with row_id,
    view, unit, gold and, where there are several seeds, `seed`."""
    raw = _raw(
        p,
        {name: list(rows[name]) for name in (*FIXED, *((SEED,) if SEED in rows else ()))},
        options,
        label,
    )
    return _built(raw, label, "")


def predictions_from_arrays(
    p: ArrayLike,
    *,
    row_ids: Sequence[Any],
    view: Sequence[Any],
    unit: Sequence[Any],
    gold: Sequence[Any],
    options: Sequence[str],
    label: str,
    path: str = "",
) -> Predictions:
    """From arrays in any order. p: (N, C), rows sum to 1 within 1e-3; the others (N,), options (C,).

    gold holds option names. Raises InputError as read_predictions does.
    """
    fields = {"row_id": list(row_ids), "view": list(view), "unit": list(unit), "gold": list(gold)}
    return _build(_raw(p, fields, options, path or label), label, path)


def _raw(p: ArrayLike, fields: Mapping[str, list[Any]], options: Sequence[str], subject: str) -> RawTable:
    matrix = _floats(p, subject)
    lengths = {name: len(values) for name, values in fields.items()}
    shape = (len(fields["row_id"]), len(options))
    if matrix.shape != shape or len(set(lengths.values())) > 1:
        raise InputError(
            subject,
            f"p of shape {matrix.shape} with {len(options)} options and lengths {lengths}",
            f"p of shape (rows, options) and one {', '.join(list(fields)[:-1])} and {list(fields)[-1]} a row",
            "check the arrays",
        )
    return RawTable(
        row_ids=fields["row_id"],
        view=fields["view"],
        unit=fields["unit"],
        gold=fields["gold"],
        options=list(options),
        p=matrix,
        seeds=fields.get(SEED),
    )


def _only(tables: Sequence[Predictions], subject: str) -> Predictions:
    """The table of a source that has to hold one model. Raises InputError."""
    if len(tables) > 1:
        raise InputError(
            subject,
            f"{len(tables)} training seeds in column '{SEED}'",
            "one model",
            "leave the rows of one seed, or give it where seeds of a method are taken",
        )
    return tables[0]


def _floats(values: Any, subject: str, what: str = "probabilities") -> Floats:
    """`values` as float64. Raises InputError for true and false, text, complex numbers and ragged lists."""
    try:
        given = np.asarray(values)
        odd = given.dtype.kind not in "fiuO" or (given.dtype == object and _any_odd(given))
        if not odd:
            return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(subject, f"{what} that are no numbers", "numbers", "export numbers")


def _any_odd(values: NDArray[Any]) -> bool:
    """Whether something in an array of objects is text, or true or false, which Python counts as 1 and 0."""
    return any(isinstance(value, (str, bytes, bool, np.bool_)) for value in values.ravel())


def _column(values: Any, option: str, label: str) -> Floats:
    column = _floats(values, label, f"probabilities of {shown(option)}")
    if column.ndim != 1:
        raise InputError(
            label,
            f"probabilities of {shown(option)} of shape {column.shape}",
            "one a row",
            "check the columns",
        )
    return column


def align(tables: Sequence[Predictions]) -> list[Predictions]:
    """Check that all tables have the rows, options, views, units and gold of the first.

    Raises InputError that names the first five missing rows or options, or rows that disagree. Tables are in
    canonical order already, so aligned tables agree position by position.
    """
    if not tables:
        return []
    first = tables[0]
    for other in tables[1:]:
        _same_names("option", first.options, other.options, first, other)
        _same_names("row", first.row_ids, other.row_ids, first, other)
        for field in ("view", "gold", "unit"):
            mine, theirs = getattr(first, field), getattr(other, field)
            differ = np.flatnonzero(mine != theirs)
            if len(differ):
                at = differ[0]
                raise InputError(
                    other.path or other.label,
                    f"another {field} than {shown(first.path or first.label)} on {len(differ)} row(s): "
                    f"{first_five(first.row_ids[differ])} ({shown(theirs[at])} against {shown(mine[at])})",
                    f"the same {field} for a row in every file",
                    "score every model on the same table of rows",
                )
    return list(tables)


def _same_names(
    kind: str,
    mine: Sequence[str] | Objects,
    theirs: Sequence[str] | Objects,
    first: Predictions,
    other: Predictions,
) -> None:
    if len(mine) == len(theirs) and all(a == b for a, b in zip(mine, theirs, strict=True)):
        return
    known, given = set(mine), set(theirs)
    absent = [name for name in mine if name not in given]
    extra = [name for name in theirs if name not in known]
    lacking, having, names = (other, first, absent) if absent else (first, other, extra)
    like = suggestion(str(absent[0]), map(str, extra)) if absent and extra else None
    raise InputError(
        lacking.path or lacking.label,
        f"{len(names)} {kind}(s) missing that {shown(having.path or having.label)} has: {first_five(names)}",
        f"the same {kind}s in every file",
        f"for {shown(str(absent[0]))}: {like}"
        if like
        else f"score every model on the same {'options' if kind == 'option' else 'rows'}",
    )


def _built(raw: RawTable, label: str, path: str) -> list[Predictions]:
    """One table for each training seed, each validated for itself."""
    if raw.seeds is None:
        return [_build(raw, label, path)]
    subject = path or label
    seeds = texts(raw.seeds, SEED, subject)
    if "" in seeds:
        raise InputError(
            subject,
            f"no {SEED} on {seeds.count('')} row(s), the first is number {seeds.index('') + 1}",
            f"a {SEED} in every row, or no such column",
            "fill it in, or remove the column",
        )
    names = sorted(set(seeds))
    if len(names) == 1:
        return [_build(raw, label, path)]
    rows = texts(raw.row_ids, "row_id", subject)
    if len(set(rows)) == len(rows):
        raise InputError(
            subject,
            f"{len(names)} values in column '{SEED}' and no row_id that recurs",
            "every row once for each training seed",
            "add the rows of the other seeds, or rename the column where it is no training seed",
        )
    found = []
    for name in names:
        here = [place for place, seed in enumerate(seeds) if seed == name]
        part = RawTable(
            row_ids=[rows[place] for place in here],
            view=[raw.view[place] for place in here],
            unit=[raw.unit[place] for place in here],
            gold=[raw.gold[place] for place in here],
            options=raw.options,
            p=np.asarray(raw.p)[here],
        )
        found.append(_build(part, f"{label} (seed {name})", f"{path} (seed {name})" if path else ""))
    return found


def _build(raw: RawTable, label: str, path: str) -> Predictions:
    """Validate, sort and renormalise."""
    subject = path or label
    if not raw.row_ids:
        raise InputError(subject, "no rows", "at least one row", "check that the export was complete")
    row_ids = texts(raw.row_ids, "row_id", subject)
    view, unit, gold = (
        texts(values, field, subject, row_ids)
        for field, values in (
            ("view", raw.view),
            ("unit", raw.unit),
            ("gold", raw.gold),
        )
    )
    options = texts(raw.options, "option", subject)
    check_options(options, subject)
    if "" in row_ids:
        raise InputError(
            subject,
            f"{row_ids.count('')} row(s) without a row_id, the first is number {row_ids.index('') + 1}",
            "a row_id in every row",
            "name every row: models are matched by row_id",
        )
    refuse_repeated(row_ids, "row_id", subject)
    check_fields(row_ids, view, unit, gold, set(options), subject)

    rows = sorted(range(len(row_ids)), key=row_ids.__getitem__)
    columns = sorted(range(len(options)), key=options.__getitem__)
    ids = objects(row_ids)[rows]
    p = np.ascontiguousarray(np.asarray(raw.p, dtype=np.float64)[np.ix_(rows, columns)])
    deviation = check_probabilities(p, ids, tuple(options[column] for column in columns), subject)
    sums = p.sum(axis=1)
    # A sum within the rounding of adding C numbers is already 1: leaving it makes renormalising idempotent.
    off = np.abs(sums - 1.0) > len(options) * np.finfo(np.float64).eps
    p[off] /= sums[off, None]
    p.setflags(write=False)
    return Predictions(
        label=label,
        row_ids=ids,
        view=objects(view)[rows],
        unit=objects(unit)[rows],
        gold=objects(gold)[rows],
        options=tuple(options[column] for column in columns),
        p=p,
        max_sum_deviation=deviation,
        path=path,
    )
