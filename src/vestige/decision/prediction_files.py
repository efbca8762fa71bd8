"""Readers and the writer of prediction files: bytes to raw columns, unchecked and in file order.

Formats: JSONL rows `{"row_id", "view", "unit", "gold", "p": {option: probability}}`; CSV, Parquet and .npz
with row_id, view, unit, gold and one column (array) `p:<option>` each; .npz also with one matrix `p` (N, C)
and `options` (C,) in place of these columns.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from vestige.contracts import Floats
from vestige.errors import InputError, first_five, shown
from vestige.files import atomic_path, reading

__all__ = ["FIXED", "OPTION_PREFIX", "RawTable", "read_raw", "refuse_top_k", "write_raw"]

OPTION_PREFIX = "p:"
MATRIX, OPTIONS = "p", "options"
"""Arrays of an .npz that holds all probabilities in one."""
FIXED = ("row_id", "view", "unit", "gold")
FORMATS = ".jsonl, .csv, .parquet or .npz"
_BROKEN_ARCHIVE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, MemoryError),
    *(ValueError, TypeError, AttributeError, KeyError, RuntimeError),
)
"""What zipfile, zlib and NumPy raise for an archive that is damaged."""


@dataclass(frozen=True, kw_only=True)
class RawTable:
    """Columns as a file has them. p: (N, C) float64, NaN where a cell is empty."""

    row_ids: list[Any]
    view: list[Any]
    unit: list[Any]
    gold: list[Any]
    options: list[Any]
    p: Floats


def read_raw(path: Path) -> RawTable:
    """The columns of a prediction file, by its suffix. Raises InputError."""
    readers = {
        ".jsonl": _read_jsonl,
        ".ndjson": _read_jsonl,
        ".csv": _read_csv,
        ".parquet": _read_parquet,
        ".npz": _read_npz,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            str(path),
            f"suffix {shown(path.suffix)}",
            f"a {FORMATS} file",
            "convert it to one of these formats",
        )
    with reading(path, f"a {FORMATS} file"):
        data = path.read_bytes()
    if not data:
        raise InputError(str(path), "an empty file", "prediction rows", "check that the export was complete")
    return reader(path, data)


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


def _read_jsonl(path: Path, data: bytes) -> RawTable:
    text = _decoded(path, data)
    return _read_jsonl_regular(data.removeprefix(b"\xef\xbb\xbf")) or _read_jsonl_any(path, text)


def _read_jsonl_regular(data: bytes) -> RawTable | None:
    """Arrow's reader, for files in which every row has the same options and nothing is odd; else None.

    None is no verdict: the reader by lines then reads the same file, or says what is wrong with it.
    """
    import pyarrow as pa
    import pyarrow.json as pj

    try:
        first = json.loads(data[: data.index(b"\n") if b"\n" in data else len(data)])
        options = list(first["p"])
        fields = [pa.field(name, pa.string()) for name in FIXED]
        schema = pa.schema([*fields, pa.field("p", pa.struct([(name, pa.float64()) for name in options]))])
        table = pj.read_json(
            io.BytesIO(data),
            read_options=pj.ReadOptions(block_size=max(1 << 22, min(len(data), 1 << 28))),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer"),
        )
    except (pa.ArrowException, ValueError, KeyError, TypeError, RecursionError):
        return None
    nested = table.column("p").combine_chunks()
    names = [nested.type.field(place).name for place in range(nested.type.num_fields)]
    columns = nested.flatten()
    fixed = [table.column(name) for name in FIXED]
    if not options or names != options or any(column.null_count for column in (nested, *columns, *fixed)):
        return None
    row_ids, view, unit, gold = (column.to_pylist() for column in fixed)
    p = np.stack([_numbers(column) for column in columns], axis=1)
    return RawTable(row_ids=row_ids, view=view, unit=unit, gold=gold, options=options, p=p)


def _read_jsonl_any(path: Path, text: str) -> RawTable:
    rows: list[tuple[Any, Any, Any, Any]] = []
    given: list[dict[str, Any]] = []
    for number, record in _json_lines(path, text):
        probabilities = record.get("p")
        if not isinstance(probabilities, dict):
            what = "no field 'p'" if "p" not in record else f"'p' of type {type(probabilities).__name__}"
            refuse_top_k(f"{path}, line {number}", what)
        missing = [field for field in FIXED if field not in record]
        if missing:
            raise InputError(
                f"{path}, line {number}",
                f"no field {first_five(missing)}",
                "fields row_id, view, unit, gold and p",
                "add what is missing",
            )
        rows.append((record["row_id"], record["view"], record["unit"], record["gold"]))
        given.append(probabilities)
    options = list(dict.fromkeys(option for probabilities in given for option in probabilities))
    _refuse_ragged(path, rows, given, options)
    try:
        p = np.array([[row[option] for option in options] for row in given], dtype=np.float64)
    except (TypeError, ValueError):
        _name_bad_json_number(path, rows, given)
    if p.ndim > 2:
        _name_bad_json_number(path, rows, given)
    row_ids, view, unit, gold = (
        (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    )
    return RawTable(row_ids=row_ids, view=view, unit=unit, gold=gold, options=options, p=p)


def _json_lines(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=_unique)
        except _RepeatedKeyError as error:
            raise InputError(
                f"{path}, line {number}",
                f"{shown(str(error))} twice in one object",
                "each name once",
                "remove one",
            ) from None
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{path}, line {number}",
                f"broken JSON ({shown(str(error), 100)})",
                "one JSON object a line",
                "check that the file is complete",
            ) from None
        if not isinstance(record, dict):
            raise InputError(
                f"{path}, line {number}",
                f"a JSON {type(record).__name__}",
                "one JSON object a line",
                'write {"row_id": ..., "view": ..., "unit": ..., "gold": ..., "p": {...}}',
            )
        yield number, record


class _RepeatedKeyError(Exception):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedKeyError(next(name for name in names if names.count(name) > 1))
    return record


def _refuse_ragged(
    path: Path, rows: list[tuple[Any, Any, Any, Any]], given: list[dict[str, Any]], options: list[str]
) -> None:
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
            f"{len(odd)} row(s) with other options than most: {first_five(rows[index][0] for index in odd)}; "
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
        f"{len(lacking)} row(s) without some option: {first_five(rows[index][0] for index in lacking)}; "
        f"options: {first_five(absent)}",
        "the same options in every row",
        "export the full distribution over all options",
    )


def _name_bad_json_number(
    path: Path, rows: list[tuple[Any, Any, Any, Any]], given: list[dict[str, Any]]
) -> NoReturn:
    for row, probabilities in zip(rows, given, strict=True):
        for option, value in probabilities.items():
            if not isinstance(value, (int, float)):
                raise InputError(
                    str(path),
                    f"probability {shown(json.dumps(value))} of {shown(option)}, row {shown(str(row[0]))}",
                    "a number",
                    "write every probability as a JSON number",
                )
    raise InputError(str(path), "probabilities that are no numbers", "numbers", "check the export")


def _read_csv(path: Path, data: bytes) -> RawTable:
    import pyarrow as pa
    import pyarrow.csv as pc

    text = _decoded(path, data)
    try:
        header = next(csv.reader(io.StringIO(text, newline="")))
    except (csv.Error, StopIteration) as error:
        raise InputError(str(path), f"no header ({error})", "a header line", "check the file") from None
    _refuse_other_delimiter(path, header)
    options = _checked_columns(path, header)
    types = {name: pa.string() for name in FIXED} | {OPTION_PREFIX + name: pa.float64() for name in options}
    try:
        table = pc.read_csv(
            io.BytesIO(data),
            # One block: a quoted line end or a long header must not straddle two.
            read_options=pc.ReadOptions(block_size=min(len(data) + 1, 2**30)),
            parse_options=pc.ParseOptions(newlines_in_values=True),
            convert_options=pc.ConvertOptions(column_types=types, include_columns=list(types)),
        )
    except pa.ArrowInvalid as error:
        raise InputError(
            str(path),
            f"a CSV that cannot be read ({shown(str(error), 160)})",
            "one number a p: cell and the header's number of cells a line",
            "check that line",
        ) from None
    return _from_arrow(path, table, options)


def _refuse_other_delimiter(path: Path, header: Sequence[str]) -> None:
    """Raise InputError for a header whose columns are parted by something else than commas."""
    for mark, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if mark in header[0] and "row_id" in [part.strip('" ') for part in header[0].split(mark)]:
            raise InputError(
                str(path),
                f"columns parted by {name}",
                "columns parted by commas, numbers with a decimal point",
                f"save it with commas: pandas.read_csv(..., sep={mark!r}).to_csv(..., index=False)",
            )


def _read_parquet(path: Path, data: bytes) -> RawTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        options = _checked_columns(path, file.schema_arrow.names)
        table = file.read(columns=None)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            str(path),
            f"a broken or truncated Parquet file ({shown(str(error), 100)})",
            "a complete Parquet file",
            "write or copy it again",
        ) from None
    return _from_arrow(path, table, options)


def _from_arrow(path: Path, table: Any, options: list[str]) -> RawTable:
    import pyarrow as pa

    p = np.empty((table.num_rows, len(options)), dtype=np.float64)
    for column, option in enumerate(options):
        values = table.column(OPTION_PREFIX + option)
        try:
            p[:, column] = _numbers(values.cast(pa.float64()).combine_chunks())
        except (pa.ArrowException, TypeError, ValueError):
            raise InputError(
                str(path),
                f"column {shown(OPTION_PREFIX + option)} of type {values.type}",
                "numbers",
                "export numbers",
            ) from None
    try:
        fixed = {name: table.column(name).to_pylist() for name in FIXED}
    except UnicodeDecodeError as error:
        raise InputError(
            str(path),
            f"text that is not UTF-8 ({shown(str(error), 100)})",
            "text in UTF-8 in row_id, view, unit and gold",
            "write the file again from decoded text",
        ) from None
    return RawTable(
        row_ids=fixed["row_id"],
        view=fixed["view"],
        unit=fixed["unit"],
        gold=fixed["gold"],
        options=options,
        p=p,
    )


def _numbers(array: Any) -> Floats:
    """An Arrow array of float64 as NumPy, NaN for null. Not `to_numpy`, which imports pandas."""
    if not len(array):
        return np.empty(0)
    values: Floats = np.asarray(
        np.from_dlpack(array.fill_null(float("nan")) if array.null_count else array), dtype=np.float64
    )
    return values


def _read_npz(path: Path, data: bytes) -> RawTable:
    if not data.startswith(b"PK"):
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
            arrays = {name: np.asarray(archive[name]) for name in FIXED}
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


def _decoded(path: Path, data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[1:4:2] == b"\0\0" or data[0:3:2] == b"\0\0":
        raise InputError(
            str(path),
            "text in UTF-16",
            "text in UTF-8",
            f"convert it: iconv -f utf-16 -t utf-8 {path.name} > utf8-{path.name}",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}",
            f"byte 0x{data[error.start]:02x}, which is not UTF-8 (cp1252 or Latin-1?)",
            "text in UTF-8",
            f"convert it: iconv -f cp1252 -t utf-8 {path.name} > utf8-{path.name}",
        ) from None
