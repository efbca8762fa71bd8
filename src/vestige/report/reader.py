"""Find and read assessment records in a folder: a run, a comparison, or a sweep with arms."""

from __future__ import annotations

import re
from pathlib import Path

from vestige.contracts import Assessment
from vestige.files import read_record
from vestige.study.folder_kinds import refused
from vestige.study.store import SWEEP, run_folders

__all__ = ["assessment_files", "has_assessments", "read_assessment", "read_assessments"]

_REMEDY = "make one with: vestige compare ... --out DIR, or vestige study run STUDY.yaml --out DIR"


def assessment_files(folder: Path) -> list[Path]:
    """The records of `folder`: `assessment.json` and `assessments/*.json`, in natural order; of a sweep, arm
    by arm.

    `folder` may also be one record. Raises InputError when there is none.
    """
    if folder.is_file():
        return [folder]
    files = [path for part in _parts(folder) for path in _files(part)]
    if not files:
        lacks = "no assessment.json and no assessments/*.json"
        needed = "a folder that a run, a comparison or a footprint wrote"
        raise refused(folder, lacks, needed, _REMEDY, verb="vestige report")
    return files


def has_assessments(folder: Path) -> bool:
    """Whether there is any record: a study that was only tuned has none."""
    return folder.is_file() or any(_files(part) for part in _parts(folder))


def _parts(folder: Path) -> list[Path]:
    """The folder itself, or the arms of a sweep that have begun."""
    return list(run_folders(folder).values()) if (folder / SWEEP).is_file() else [folder]


def _files(folder: Path) -> list[Path]:
    single = folder / "assessment.json"
    files = [single] if single.is_file() else []
    return files + sorted((folder / "assessments").glob("*.json"), key=_natural)


def read_assessment(path: Path) -> Assessment:
    """One record. Raises InputError naming the file, and the field where one is wrong."""
    return read_record(path, Assessment, _REMEDY)


def read_assessments(folder: Path) -> list[Assessment]:
    """All records of a folder, in the order of `assessment_files`."""
    return [read_assessment(path) for path in assessment_files(folder)]


def _natural(path: Path) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part[0] in "0123456789" else (-1, part)
        for part in re.split(r"([0-9]+)", path.stem)
        if part
    ]
