"""The texts of a language study as files: local ones as they are, hub data and parts as JSONL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.data.files import file_sha256
from vestige.errors import InputError, MissingDependency, did_you_mean
from vestige.files import reading, write_text
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
            lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
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
    try:
        import datasets
    except ImportError:
        raise MissingDependency("datasets", "train", f"text '{name}' of the hub") from None
    try:
        stored = datasets.load_dataset(
            source.hub, source.config, split=source.split, revision=source.revision
        )
    except Exception as error:  # the hub client raises many unrelated types; each means: it cannot be had
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise InputError(
            f"text '{name}', hub data set '{source.hub}'",
            f"{type(error).__name__}: {reason[:200]}",
            "a data set that can be reached",
            f"accept its terms and log in, or give a local copy: --text {name}=FILE",
        ) from None
    for new, own in source.columns.items():
        if own not in stored.column_names:
            raise InputError(
                f"text '{name}', columns.{new}",
                f"'{own}'",
                "a column of it",
                did_you_mean(own, stored.column_names),
            )
    for row in stored:
        yield {new: row[own] for new, own in source.columns.items()} if source.columns else dict(row)


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
        own = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        if path.suffix.lower() == ".txt":
            own = [json.dumps({"text": line}, ensure_ascii=False) for line in own]
        lines += [_row(line, str(path)) for line in own]
    write_text(made, "".join(f"{line}\n" for line in lines))
    return made


def _row(line: str, subject: str) -> str:
    """A row with its text alone: rows of several files have to have the same columns."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(subject, f"a line that is not JSON ({error.msg})", "JSONL", "repair it") from None
    kept = {key: row[key] for key in ("question", "answer", "text") if key in row}
    return json.dumps(kept or row, ensure_ascii=False)
