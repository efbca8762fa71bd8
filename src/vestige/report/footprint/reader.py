"""Find and read footprint records: of one folder, of several, or below a parent folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from vestige.errors import InputError
from vestige.files import read_record
from vestige.footprint.records import FootprintRecord

__all__ = ["footprint_files", "is_footprint", "read_footprint", "read_footprints"]

NAME = "footprint.json"
FORMAT = "vestige-footprint-1"
_REMEDY = "make one with: vestige footprint ... --out DIR"
_STUDY = ("plan.json", "sweep.json", "assessment.json", "assessments", "imported")
_DEPTH = 3
_MOST = 5_000
"""Folders looked into below a parent."""


def is_footprint(folder: Path) -> bool:
    """Whether a path holds footprint records and no study or comparison."""
    if any((folder / name).exists() for name in _STUDY):
        return False
    return bool(footprint_files([folder]))


def footprint_files(folders: Sequence[Path]) -> list[Path]:
    """The records of these folders: `footprint.json` itself, else those up to three folders below, by name.

    A path may also be one record. Files of another format are no records.
    """
    found: list[Path] = []
    for folder in folders:
        if folder.is_file():
            found += [folder] if _format(folder) == FORMAT else []
        elif (folder / NAME).is_file():
            found.append(folder / NAME)
        else:
            found += _below(folder)
    return list(dict.fromkeys(found))


def _below(folder: Path) -> list[Path]:
    found: list[Path] = []
    level, seen = [folder], 0
    for _ in range(_DEPTH):
        inner: list[Path] = []
        for part in level:
            inner += _folders(part)
        seen += len(inner)
        if seen > _MOST:
            break
        found += [path / NAME for path in inner if (path / NAME).is_file()]
        level = [path for path in inner if not (path / NAME).is_file()]
    return found


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []


def _format(path: Path) -> str:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(found.get("format", "")) if isinstance(found, dict) else ""


def read_footprint(path: Path) -> FootprintRecord:
    """One record. Raises InputError naming the file, and the field where one is wrong."""
    return read_record(path, FootprintRecord, _REMEDY)


def read_footprints(folders: Sequence[Path]) -> list[FootprintRecord]:
    """All records of these folders. Raises InputError when there is none, or for a record that is wrong."""
    files = footprint_files(folders)
    if not files:
        raise InputError(str(folders[0]), f"no {NAME}", "at least one", _REMEDY)
    return [read_footprint(path) for path in files]
