"""A checkpoint's folder while it is made: one identity, resumable, marked until it is complete."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vestige.errors import InputError
from vestige.files import atomic_path, writable_folder, write_text
from vestige.models.checkpoints import UNFINISHED
from vestige.unlearning.records import CheckpointRecord

__all__ = ["WORK", "finished", "making", "open_folder", "read_record", "write_log"]

WORK = "training"
NAMES = {"unlearned": "unlearn.json", "fine-tuned": "finetune.json"}


def read_record(folder: Path) -> CheckpointRecord | None:
    """The record of a finished checkpoint, None where there is none."""
    for name in NAMES.values():
        if (folder / name).is_file() and not (folder / UNFINISHED).exists():
            try:
                return CheckpointRecord.model_validate_json((folder / name).read_text(encoding="utf-8"))
            except ValueError:
                raise InputError(
                    str(folder / name), "a damaged record", "a record of vestige", "name another folder"
                ) from None
    return None


def open_folder(folder: Path, identity: str) -> CheckpointRecord | None:
    """The finished record of this identity, or None with the folder marked unfinished.

    Raises InputError for a folder that holds anything else: a checkpoint is never overwritten.
    """
    if (done := read_record(folder)) is not None:
        if done.identity == identity:
            return done
        raise _other(folder, f"the checkpoint of {done.title} with other settings, text, model or seed")
    mark = folder / UNFINISHED
    if mark.is_file():
        try:
            found = json.loads(mark.read_text(encoding="utf-8")).get("identity")
        except ValueError:
            found = None
        if found != identity:
            raise _other(folder, "an unfinished run with other settings, text, model or seed")
        return None
    if folder.is_dir() and any(folder.iterdir()):
        raise _other(folder, "other files")
    writable_folder(folder)
    write_text(mark, json.dumps({"identity": identity}))
    return None


@contextmanager
def making(folder: Path) -> Iterator[None]:
    """Inside, bad input that is found before the first step leaves no mark behind."""
    try:
        yield
    except InputError:
        if not (folder / WORK).exists():
            (folder / UNFINISHED).unlink(missing_ok=True)
        raise


def finished(folder: Path, record: CheckpointRecord) -> None:
    """Write the record and take the mark away: from here on the checkpoint loads."""
    write_text(folder / NAMES[record.kind], record.to_json())
    shutil.rmtree(folder / WORK, ignore_errors=True)
    (folder / UNFINISHED).unlink()


def write_log(folder: Path, log: list[dict[str, Any]]) -> None:
    """Write the log of all steps."""
    import pandas as pd

    with atomic_path(folder / "steps.parquet") as path:
        pd.DataFrame(log).to_parquet(path, index=False)


def _other(folder: Path, what: str) -> InputError:
    return InputError(str(folder), what, "an empty folder or this very run", "name another --out")
