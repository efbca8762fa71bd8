"""The texts of a language study as files: local ones as they are, hub data and parts as JSONL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.data.files import file_sha256
from vestige.data.hub_tables import hub_tables
from vestige.errors import InputError, did_you_mean, refused_of
from vestige.files import reading, write_text
from vestige.readers import json_value, text_of_file
from vestige.seeds import digest

if TYPE_CHECKING:
    from vestige.language_study.plan import TextSource

__all__ = ["joined_text", "refuse_uncut", "refuse_unjoinable", "text_file"]

_LINES = (".jsonl", ".txt", ".md")


def text_file(name: str, source: TextSource, folder: Path) -> Path:
    """The file of a text: its own, or one made in `folder` and kept under what it was made of. Raises
    InputError, MissingDependency."""
    if source.path is not None:
        path = Path(source.path)
        with reading(path, f"the text '{name}'"):
            path.open("rb").close()
        if source.rows is None and source.start == 0:
            return path
        refuse_uncut(path)
        key = digest(file_sha256(path), source.start, source.rows)[:16]
        made = folder / f"{name}-{key}{path.suffix.lower()}"
        if not made.is_file():
            lines = _lines(path)
            write_text(made, "".join(f"{line}\n" for line in _part(lines, source, str(path))))
        return made
    key = digest(source.to_json())[:16]
    made = folder / f"{name}-{key}.jsonl"
    if not made.is_file():
        rows = _part(list(_hub(name, source)), source, f"text '{name}'")
        write_text(made, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return made


def _part(rows: list[Any], source: TextSource, subject: str) -> list[Any]:
    end = None if source.rows is None else source.start + source.rows
    found = rows[source.start : end]
    if not found:
        raise InputError(subject, f"{len(rows)} rows", f"rows from {source.start} on", "lower start")
    return found


def _hub(name: str, source: TextSource) -> Iterable[dict[str, Any]]:
    """Rows of a hub data set; no code of the hub is run."""
    assert source.hub is not None
    with refused_of(f"text '{name}'"):
        what = f"hub data set '{source.hub}'"
        stored = hub_tables(source.hub, source.config, source.revision, what, file=source.file)
        table = stored.table(source.split, places=("answer",))
    for new, own in source.columns.items():
        if own not in table:
            raise InputError(
                f"text '{name}', columns.{new}", f"'{own}'", "a column of it", did_you_mean(own, table.names)
            )
    names = source.columns or {own: own for own in table.names}
    columns = {new: table.cells(own) for new, own in names.items()}
    for row in range(table.rows):
        yield {new: cells[row] for new, cells in columns.items()}


def refuse_uncut(path: Path) -> None:
    """Raise InputError for a file whose rows cannot be told apart by their lines."""
    if path.suffix.lower() not in _LINES:
        raise InputError(
            str(path),
            f"rows of a {path.suffix} file",
            "a JSONL or text file",
            "convert it or leave rows out",
        )


def refuse_unjoinable(path: Path) -> None:
    """Raise InputError for a file that cannot be one of several in one JSONL file."""
    if path.suffix.lower() not in (".jsonl", ".txt"):
        raise InputError(str(path), f"suffix '{path.suffix}'", "JSONL or text files to join", "convert it")


def joined_text(names: Iterable[str], files: Mapping[str, Path], folder: Path) -> Path:
    """One JSONL file of several, one after another. Raises InputError for another format."""
    wanted = list(names)
    if len(wanted) == 1:
        return files[wanted[0]]
    key = digest(*[file_sha256(files[name]) for name in wanted])[:16]
    made = folder / f"{'-'.join(wanted)[:60]}-{key}.jsonl"
    if made.is_file():
        return made
    lines: list[str] = []
    for name in wanted:
        path = files[name]
        refuse_unjoinable(path)
        own = _lines(path)
        if path.suffix.lower() == ".txt":
            own = [json.dumps({"text": line}, ensure_ascii=False) for line in own]
        lines += [_row(line, str(path)) for line in own]
    write_text(made, "".join(f"{line}\n" for line in lines))
    return made


def _lines(path: Path) -> list[str]:
    """The lines of a file that are not blank. Raises InputError."""
    return [line for line in text_of_file(path).split("\n") if line.strip()]


def _row(line: str, subject: str) -> str:
    """A row with its text alone: rows of several files have to have the same columns."""
    row = json_value(line, subject, "one JSON object a line")
    if not isinstance(row, dict):
        raise InputError(subject, f"the line {line[:40]!r}", "one JSON object a line", "repair it")
    kept = {key: row[key] for key in ("question", "answer", "text") if key in row}
    return json.dumps(kept or row, ensure_ascii=False)
