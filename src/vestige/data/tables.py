"""The data set "files": any CSV, JSONL or Parquet table, or a folder of them, with text and label columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from vestige.data.assemble import assemble
from vestige.data.descriptions import described, read_descriptions
from vestige.data.files import file_sha256
from vestige.data.intents import DATASETS, Dataset, DatasetSpec, IntentData, Split
from vestige.errors import InputError, first_five
from vestige.readers import TABLE_SUFFIXES, Table, read_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FILES", "labelled_rows", "load_files"]

_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "development": ("development", "dev", "validation", "valid", "val"),
    "evaluation": ("evaluation", "eval", "test"),
}
_OWN = ("row_id", "text", "gold", "split")


def labelled_rows(
    table: Table,
    *,
    split: Split,
    text_column: str,
    label_column: str,
    row_id_column: str | None = None,
) -> pd.DataFrame:
    """String columns row_id, text, gold, split and the table's other columns but lists. Labels are stripped.

    Row ids come from `row_id_column`, else from a column `row_id`, else they are `{split}-{row number}` from
    0 with five digits, the split being the source's: a row held out later keeps its id. Another column called
    text, gold or split is renamed `source_...`. Raises InputError for a missing column, and for a text, label
    or row id that is a list, an object or bytes.
    """
    needed = [text_column, label_column, *([row_id_column] if row_id_column is not None else [])]
    table.need(*needed)
    if len(set(needed)) != len(needed):
        raise InputError(
            table.subject, f"column {first_five(needed)} named twice", "different columns", "name another"
        )
    if row_id_column is None and "row_id" in table:
        row_id_column = "row_id"
    own = (text_column, label_column, row_id_column)
    rest = table.frame().drop(columns=[name for name in own if name is not None], errors="ignore")
    rows = rest.rename(columns={name: f"source_{name}" for name in _OWN if name in rest.columns})
    rows.insert(0, "text", table.texts(text_column))
    rows.insert(1, "gold", [label.strip() for label in table.texts(label_column)])
    rows.insert(2, "split", split)
    rows.insert(
        0,
        "row_id",
        table.texts(row_id_column)
        if row_id_column is not None
        else [f"{split}-{row:05d}" for row in range(table.rows)],
    )
    return rows.astype(str)


def load_files(spec: DatasetSpec) -> IntentData:
    """Rows of tables on disk. One table: split by its column `split`, where it has one, else by hash.

    A folder: its tables named train, development (dev, validation, val) and evaluation (test). Splits without
    a table are held out of the training rows by hash. Raises InputError.
    """
    import pandas as pd

    tables = _tables(spec)
    parts = []
    for split, path in tables.items():
        rows = labelled_rows(
            read_table(path, encoding=spec.encoding, delimiter=spec.delimiter, setting="encoding"),
            split=split,
            text_column=spec.text_column,
            label_column=spec.label_column,
            row_id_column=spec.row_id_column,
        )
        if len(tables) == 1 and "source_split" in rows.columns:
            rows["split"] = rows.pop("source_split")
        parts.append(rows)
    files = {path.name: file_sha256(path) for path in tables.values()}
    options = None
    if spec.descriptions is not None:
        found = read_descriptions(spec.descriptions)
        options = described(list(found), found, str(spec.descriptions))
        files[Path(spec.descriptions).name] = file_sha256(spec.descriptions)
    return assemble(
        Path(spec.path or tables["train"]).stem,
        pd.concat(parts, ignore_index=True).fillna(""),
        options=options,
        out_of_scope=spec.out_of_scope,
        development_share=spec.development_share,
        evaluation_share=spec.evaluation_share,
        row_share=spec.row_share,
        files=files,
    )


def _tables(spec: DatasetSpec) -> dict[Split, Path]:
    """The table of each split; training always there."""
    named = {split: value for split in get_args(Split) if (value := getattr(spec, split)) is not None}
    if spec.path is None and "train" not in named:
        raise InputError("data set 'files'", "neither path nor train", "a folder or a table", "set path")
    base = Path(spec.path) if spec.path is not None else Path()
    if spec.path is not None and not base.exists():
        raise InputError(str(base), "no such file or folder", "a folder or a table", "correct path")
    if base.is_file():
        if named:
            raise InputError(
                f"data set 'files', setting '{next(iter(named))}'",
                f"a file name while path is the table {base.name}",
                "path as a folder, or path alone",
                f"set path to {base.parent}",
            )
        return {"train": base}
    if named:
        if "train" not in named:
            raise InputError("data set 'files'", "no train", "the table of training rows", "set train")
        return {split: base / value for split, value in named.items()}
    found = {split: _find(base, split) for split in get_args(Split)}
    if found["train"] is None:
        names = sorted(path.name for path in base.iterdir())
        raise InputError(
            str(base),
            f"no training table among {first_five(names) or 'no files'}",
            f"a table named train with one of the suffixes {', '.join(TABLE_SUFFIXES)}",
            "rename it, or name the tables with train, development and evaluation",
        )
    return {split: path for split, path in found.items() if path is not None}


def _find(folder: Path, split: Split) -> Path | None:
    """The one table of `folder` that carries a name of this split."""
    found = sorted(
        path
        for path in folder.iterdir()
        if path.stem.lower() in _NAMES[split] and path.suffix.lower() in TABLE_SUFFIXES
    )
    if len(found) > 1:
        names: Sequence[str] = [path.name for path in found]
        raise InputError(
            str(folder),
            f"{len(found)} tables for {split}: {first_five(names)}",
            "one",
            f"name it with {split}",
        )
    return found[0] if found else None


FILES = DATASETS.register(
    Dataset(
        name="files",
        title="Any CSV, JSONL or Parquet with text and label columns",
        source="yours",
        licence="yours",
        settings=frozenset(
            {
                "path",
                "text_column",
                "label_column",
                "row_id_column",
                "train",
                "development",
                "evaluation",
                "development_share",
                "evaluation_share",
                "row_share",
                "descriptions",
                "out_of_scope",
                "encoding",
                "delimiter",
            }
        ),
        load=load_files,
    )
)
