"""The columns that a prediction file has, as they are, unchecked and in the file's order; and the writer.

Formats: JSONL rows `{"row_id", "view", "unit", "gold", "p": {option: probability}}`; CSV, Parquet and .npz
with row_id, view, unit, gold and one column (array) `p:<option>` each; .npz also with one matrix `p` (N, C)
and `options` (C,) in place of these columns. A further column `seed` makes the file hold a model of several
training seeds, every row once for each. What a cell means is said in `vestige.readers`.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from vestige.contracts import Floats
from vestige.errors import InputError, first_five, shown
from vestige.files import atomic_path
from vestige.readers import JSONL_SUFFIXES, Cell, Table, file_bytes
from vestige.readers.bytes_and_text import refuse_other_kind
from vestige.readers.csv_files import other_delimiter, read_csv
from vestige.readers.json_files import read_jsonl, regular_rows
from vestige.readers.parquet_files import read_parquet
from vestige.readers.table import described

__all__ = ["FIXED", "OPTION_PREFIX", "SEED", "RawTable", "read_raw", "refuse_top_k", "write_raw"]

OPTION_PREFIX = "p:"
MATRIX, OPTIONS = "p", "options"
"""Arrays of an .npz that holds all probabilities in one."""
FIXED = ("row_id", "view", "unit", "gold")
SEED = "seed"
"""The column of training seeds, where a file holds several."""
FORMATS = ".jsonl, .csv, .parquet or .npz"
_EXAMPLE = '{"row_id": ..., "view": ..., "unit": ..., "gold": ..., "p": {...}}'
_BROKEN_ARCHIVE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, MemoryError),
    *(ValueError, TypeError, AttributeError, KeyError, RuntimeError),
)
"""What zipfile, zlib and NumPy raise for an archive that is damaged."""


@dataclass(frozen=True, kw_only=True)
class RawTable:
    """Columns as a file has them. p: (N, C) float64, NaN where a cell is empty. seeds: None without them."""

    row_ids: list[Any]
    view: list[Any]
    unit: list[Any]
    gold: list[Any]
    options: list[Any]
    p: Floats
    seeds: list[Any] | None = None


def read_raw(path: Path) -> RawTable:
    """The columns of a prediction file, by its suffix. Raises InputError."""
    suffix = path.suffix.lower()
    if suffix not in (*JSONL_SUFFIXES, ".csv", ".parquet", ".npz"):
        raise InputError(
            str(path),
            f"suffix {shown(path.suffix)}",
            f"a {FORMATS} file",
            "convert it to one of these formats",
        )
    data = file_bytes(path, f"a {FORMATS} file")
    if not data:
        raise InputError(str(path), "an empty file", "prediction rows", "check that the export was complete")
    if suffix == ".npz":
        return _read_npz(path, data)
    if suffix in JSONL_SUFFIXES:
        return _read_jsonl(path, data)
    table = read_parquet(str(path), data) if suffix == ".parquet" else _read_csv(path, data)
    return _from_columns(table, _checked_columns(path, table.names))


def write_raw(table: RawTable, path: Path) -> None:
    """Write a Parquet file, whole or not at all. Raises InputError when the folder or disk refuses."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {
        "row_id": pa.array(table.row_ids, pa.string()),
        "view": pa.array(table.view, pa.string()),
        "unit": pa.array(table.unit, pa.string()),
        "gold": pa.array(table.gold, pa.string()),
    }
    for column, option in enumerate(table.options):
        columns[OPTION_PREFIX + option] = pa.array(np.ascontiguousarray(table.p[:, column]))
    with atomic_path(path) as temporary:
        pq.write_table(pa.table(columns), temporary)


def refuse_top_k(subject: str, found: str) -> NoReturn:
    """Raise the refusal of outputs that name only the best options."""
    raise InputError(
        subject,
        found,
        "the probability of every option in every row (top-1 labels or top-k lists are not enough: distance "
        "to a retrained model, calibration and where probability went need the whole distribution)",
        "export the softmax over all options: one column p:<option> each, all of them under 'p' in JSONL, "
        "or in .npz a matrix 'p' with an array 'options'",
    )


def _from_columns(table: Table, options: list[str]) -> RawTable:
    """From a table that has a column `p:<option>` each."""
    p = np.empty((table.rows, len(options)), dtype=np.float64)
    for column, option in enumerate(options):
        p[:, column] = table.numbers(OPTION_PREFIX + option)
    return RawTable(
        row_ids=table.texts("row_id"),
        view=table.texts("view"),
        unit=table.texts("unit"),
        gold=table.texts("gold"),
        options=options,
        p=p,
        seeds=_seeds(table),
    )


def _seeds(table: Table) -> list[str] | None:
    return table.texts(SEED) if SEED in table and table.rows else None


def _read_csv(path: Path, data: bytes) -> Table:
    table = read_csv(str(path), data)
    if found := other_delimiter(table.names, "row_id"):
        mark, name = found
        raise InputError(
            str(path),
            f"columns parted by {name}",
            "columns parted by commas, numbers with a decimal point",
            f"save it with commas: pandas.read_csv(..., sep={mark!r}).to_csv(..., index=False)",
        )
    return table


def _read_jsonl(path: Path, data: bytes) -> RawTable:
    regular = regular_rows(data, FIXED, "p", (SEED,))
    if regular is not None:
        named = [name for name in regular.names if name not in (*FIXED, SEED)]
        options = [name.removeprefix(OPTION_PREFIX) for name in named]
        return _from_columns(regular, options)
    table = read_jsonl(str(path), data, example=_EXAMPLE)
    given = _distributions(table)
    fixed = {name: table.texts(name) if table.rows else [] for name in FIXED}
    rows = fixed["row_id"]
    options = list(dict.fromkeys(option for probabilities in given for option in probabilities))
    _refuse_ragged(path, rows, given, options)
    return RawTable(
        row_ids=rows,
        view=fixed["view"],
        unit=fixed["unit"],
        gold=fixed["gold"],
        options=options,
        p=_matrix(path, rows, given, options),
        seeds=_seeds(table),
    )


def _distributions(table: Table) -> list[dict[str, Any]]:
    """The object `p` of each row. Raises InputError where a row lacks it, or another field."""
    nothing: list[Cell] = [None] * table.rows
    given: list[dict[str, Any]] = []
    for row, cell in enumerate(table.cells("p") if "p" in table else nothing):
        if not isinstance(cell, dict):
            what = "no field 'p'" if cell is None else f"'p' as {described(cell)}"
            refuse_top_k(table.where(row), what)
        given.append(cell)
    for name in FIXED if table.rows else ():
        cells = table.cells(name) if name in table else nothing
        may_be_missing = name == "unit" and name in table
        if None in cells and not may_be_missing:
            raise InputError(
                table.where(cells.index(None)),
                f"no field {shown(name)}",
                "fields row_id, view, unit, gold and p",
                "add what is missing",
            )
    return given


def _matrix(
    path: Path, rows: Sequence[str], given: Sequence[dict[str, Any]], options: Sequence[str]
) -> Floats:
    """(N, C) probabilities; NaN for null. Raises InputError for anything else that is no number."""
    for row, probabilities in zip(rows, given, strict=True):
        for option, value in probabilities.items():
            if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
                raise InputError(
                    str(path),
                    f"probability {shown(_json(value))} of {shown(option)}, row {shown(row)}",
                    "a number",
                    "write every probability as a JSON number",
                )
    try:
        found = np.array([[row[option] for option in options] for row in given], dtype=np.float64)
    except OverflowError:
        raise InputError(
            str(path), "a probability that no float can hold", "numbers in [0, 1]", "check the export"
        ) from None
    return found.reshape(len(rows), len(options))


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _refuse_ragged(path: Path, rows: Sequence[str], given: list[dict[str, Any]], options: list[str]) -> None:
    """Rows that lack an option other rows have."""
    lacking = [index for index, probabilities in enumerate(given) if len(probabilities) < len(options)]
    if not lacking:
        return
    names, count = Counter(frozenset(probabilities) for probabilities in given).most_common(1)[0]
    if len(lacking) == len(given) and 2 * count > len(given):
        # Most rows agree: the others are at fault, and nothing was cut to the best options.
        odd = [index for index, probabilities in enumerate(given) if probabilities.keys() != names]
        differing = dict.fromkeys(option for index in odd for option in given[index].keys() ^ names)
        raise InputError(
            str(path),
            f"{len(odd)} row(s) with other options than most: {first_five(rows[index] for index in odd)}; "
            f"options: {first_five(sorted(differing))}",
            "the same options in every row",
            "check how these options are spelled",
        )
    sizes = {len(probabilities) for probabilities in given}
    if len(lacking) == len(given):
        size = "/".join(str(size) for size in sorted(sizes)[:5])
        refuse_top_k(str(path), f"{size} of {len(options)} options in every row")
    absent = dict.fromkeys(option for index in lacking for option in options if option not in given[index])
    raise InputError(
        str(path),
        f"{len(lacking)} row(s) without some option: {first_five(rows[index] for index in lacking)}; "
        f"options: {first_five(absent)}",
        "the same options in every row",
        "export the full distribution over all options",
    )


def _read_npz(path: Path, data: bytes) -> RawTable:
    if not data.startswith(b"PK"):
        refuse_other_kind(str(path), data, "an .npz of plain arrays")
        raise InputError(
            str(path),
            "a file that is no .npz archive",
            "an .npz of plain arrays",
            "write it with numpy.savez",
        )
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            whole = _is_matrix(archive.files)
            if whole:
                _need(path, archive.files, (*FIXED, OPTIONS))
                options = np.asarray(archive[OPTIONS])
                p = [np.asarray(archive[MATRIX])]
            else:
                options = np.array(_checked_columns(path, archive.files), dtype=object)
                p = [np.asarray(archive[OPTION_PREFIX + name]) for name in options]
            named = (*FIXED, SEED) if SEED in archive.files else FIXED
            arrays = {name: np.asarray(archive[name]) for name in named}
    except _BROKEN_ARCHIVE as error:
        pickled = "pickle" in str(error)
        raise InputError(
            str(path),
            "arrays of Python objects" if pickled else f"a broken .npz file ({shown(str(error), 100)})",
            "an .npz of plain arrays",
            "save text as fixed-width str arrays: np.array(names, dtype=str)"
            if pickled
            else "write it again",
        ) from None
    rows = arrays["row_id"].shape
    columns = [] if whole else zip((OPTION_PREFIX + name for name in options), p, strict=True)
    for name, array in [*arrays.items(), *columns]:
        if len(array.shape) != 1 or array.shape != rows:
            raise InputError(
                str(path),
                f"array {shown(name)} of shape {array.shape}",
                "one value a row_id",
                "check its length",
            )
    if whole:
        _check_matrix(path, p[0].shape, rows, options.shape)
    if any(array.dtype.kind not in "fiu" for array in p):
        raise InputError(str(path), "p: arrays that are no numbers", "numbers", "export probabilities")
    fixed = {name: array.tolist() for name, array in arrays.items()}
    return RawTable(
        row_ids=fixed["row_id"],
        view=fixed["view"],
        unit=fixed["unit"],
        gold=fixed["gold"],
        options=options.tolist(),
        p=p[0].astype(np.float64) if whole else np.stack([array.astype(np.float64) for array in p], axis=1),
        seeds=fixed.get(SEED),
    )


def _is_matrix(names: Sequence[str]) -> bool:
    """Whether an archive holds one matrix and no column of an option."""
    return MATRIX in names and not any(name.startswith(OPTION_PREFIX) for name in names)


def _check_matrix(
    path: Path, found: tuple[int, ...], rows: tuple[int, ...], options: tuple[int, ...]
) -> None:
    """Raise InputError where the matrix is not one row a row_id and one column an option."""
    if len(options) != 1:
        raise InputError(
            str(path), f"array '{OPTIONS}' of shape {options}", "one name a column of 'p'", "check the arrays"
        )
    if found != (*rows, *options):
        raise InputError(
            str(path),
            f"array '{MATRIX}' of shape {found} with {rows[0]} row_id values and {options[0]} options",
            f"shape ({rows[0]}, {options[0]}): a row a row_id, a column an option",
            "transpose it" if found == (*options, *rows) else "check the arrays",
        )


def _checked_columns(path: Path, names: Sequence[str]) -> list[str]:
    """The options that columns name, after checking that the fixed columns are there and none twice."""
    options = [name.removeprefix(OPTION_PREFIX) for name in names if name.startswith(OPTION_PREFIX)]
    if not options:
        refuse_top_k(str(path), f"no column '{OPTION_PREFIX}<option>' (columns: {first_five(names)})")
    _need(path, names, FIXED)
    repeated = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if repeated:
        raise InputError(
            str(path),
            f"column {first_five(sorted(repeated))} twice",
            "each column once",
            "rename or remove one",
        )
    return options


def _need(path: Path, names: Sequence[str], needed: Sequence[str]) -> None:
    """Raise InputError for columns (arrays) that are not there."""
    missing = [name for name in needed if name not in names]
    if missing:
        what = "arrays row_id, view, unit, gold, p and options" if OPTIONS in needed else None
        raise InputError(
            str(path),
            f"no {'array' if what else 'column'} {first_five(missing)}",
            what or "columns row_id, view, unit, gold and p:<option>",
            "add what is missing",
        )
