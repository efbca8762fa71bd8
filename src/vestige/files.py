"""Writing whole files or none, reading records, and one-line errors for what is refused or does not fit."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vestige.errors import InputError, shown
from vestige.readers import json_value, text_of_file

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "atomic_path",
    "drop_unfinished",
    "is_path",
    "read_record",
    "reading",
    "refuse_overwriting",
    "stored_record",
    "writable_folder",
    "write_bytes",
    "write_text",
    "writing",
]

Made = TypeVar("Made", bound="BaseModel")

UNFINISHED = ".vestige-"
"""How the names of files begin that are being written; a kill may leave one."""


@contextmanager
def reading(path: Path, needed: str = "a readable file") -> Iterator[None]:
    """Turn the operating system's refusals to read `path` into InputError."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(str(path), "no such file", needed, "check the path") from None
    except IsADirectoryError:
        raise InputError(str(path), "a folder", needed, "name a file inside it") from None
    except OSError as error:
        raise InputError(str(path), _reason(error), needed, "check the path and its permissions") from None


def read_record(path: Path, kind: type[Made], remedy: str) -> Made:
    """The record in a JSON file. kind: has a field `format`. remedy: how a file is made that can be read.

    Raises InputError naming the file, and the field where one is wrong.
    """
    from pydantic import ValidationError

    form = kind.model_fields["format"].default
    try:
        text = text_of_file(path)
    except InputError as error:
        needed = "a JSON file in UTF-8"
        raise InputError(error.subject, error.found, needed, remedy or error.remedy) from None
    json_value(text, str(path), f"a record of the format {form}", remedy or "restore the file")
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{path}, {shown(where)}" if where else str(path),
            "no such field"
            if first["type"] == "missing"
            else f"{shown(str(first['input']), 40)} ({first['msg'].removeprefix('Value error, ')})",
            f"a record of the format {form}",
            "write it again with the version of vestige that reads it",
        ) from None


def stored_record(path: Path, kind: type[Made]) -> Made | None:
    """The record in a JSON file; None where there is no file, or none that can be read."""
    try:
        return read_record(path, kind, "") if path.is_file() else None
    except InputError:
        return None


def refuse_overwriting(path: Path, what: str, odd: Sequence[str], remedy: str = "") -> None:
    """Raise InputError when there is something odd: what of the record at `path` would be lost, by name.

    what: whose record it is. remedy: what helps beside another --out.
    """
    if not odd:
        return
    listed = ", ".join(odd[:3]) + (f" and {len(odd) - 3} more" if len(odd) > 3 else "")
    raise InputError(
        str(path),
        f"{what}; what differs: {listed}",
        "a folder of its own for each",
        "give another --out" + (f"; {remedy}" if remedy else ""),
    )


def is_path(text: str) -> bool:
    """Whether a file or folder of this name exists. False, too, for text that no path can be."""
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # too long a name, or a zero byte
        return False


def writable_folder(path: Path) -> Path:
    """Make the folder if need be and try a write in it, before any long work. Raises InputError."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(b"vestige")
    return path


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it replaces `path` when the block ends well.

    An exception, a kill or a full disk leaves the old file as it was. Raises InputError for what the
    operating system refuses.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED, suffix=path.suffix)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            _sync(temporary)
            temporary.chmod(0o666 & ~_umask())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def drop_unfinished(folder: Path) -> None:
    """Remove what killed writers left below a folder. Nothing else may be writing there."""
    for path in folder.rglob(f"{UNFINISHED}*"):
        if path.is_file():
            path.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write the whole file or leave the old one. Raises InputError."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write the whole file in UTF-8 with the line ends as given, or leave the old one. Raises InputError."""
    write_bytes(path, text.encode())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn refusals to write to `path` into InputError: the operating system's, and those of the library for
    tensors, which has an error of its own for them."""
    try:
        yield
    except Exception as found:
        error = _refusal(found)
        if error is None:
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                str(path), "a full disk", "room to write", "free some space or name another --out"
            ) from None
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise InputError(
                str(path),
                f"no permission to write ({_reason(error)})",
                "a writable folder",
                "name another --out",
            ) from None
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            raise InputError(
                str(path), "a file where a folder is needed", "a folder", "name another --out"
            ) from None
        raise InputError(str(path), _reason(error), "a writable folder", "name another --out") from None


def _refusal(error: Exception) -> OSError | None:
    """The operating system's refusal, as it is or inside a SafetensorError; None for another error."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error (\d+)\)", str(error))
    if number is None or type(error).__name__ != "SafetensorError":
        return None
    return OSError(int(number[1]), os.strerror(int(number[1])))


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
