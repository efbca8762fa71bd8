"""A checkpoint's folder while it is made: one identity, resumable, marked until it is complete."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vestige.errors import InputError
from vestige.files import atomic_path, drop_unfinished, writable_folder, write_text
from vestige.locks import alone_in
from vestige.models.checkpoints import UNFINISHED
from vestige.unlearning.records import CheckpointRecord

__all__ = ["WORK", "finished", "made_by", "making", "read_record", "retained_by", "write_log"]

WORK = "training"
LOCK = ".vestige.lock"
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


def made_by(location: str) -> str:
    """The unlearning method that made the checkpoint at this place, "" for any other model or a hub's."""
    record = _unlearned(location)
    return record.method if record is not None else ""


def retained_by(location: str, measured: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
    """The texts that the checkpoint at this place retained on while it unlearned, by file name, each with the
    measured text that it is. measured: sha256 of a file -> (its name, its role). () for any other model."""
    record = _unlearned(location)
    found = []
    for text in record.texts if record is not None else ():
        if text.role == "retain":
            name, role = measured.get(text.sha256, ("", ""))
            same = f"measured here as {role} text '{name}'" if name else "none of the measured files"
            found.append(f"{Path(text.path).name} ({same})")
    return tuple(dict.fromkeys(found))


def _unlearned(location: str) -> CheckpointRecord | None:
    if not location or not (Path(location) / NAMES["unlearned"]).is_file():
        return None
    record = read_record(Path(location))
    return record if record is not None and record.kind == "unlearned" else None


@contextmanager
def making(folder: Path, identity: str) -> Iterator[CheckpointRecord | None]:
    """Inside, the folder is this process's own: None with it marked unfinished, or its finished record.

    Raises InputError for a folder that holds anything else (a checkpoint is never overwritten), and for one
    that another process is working in. Bad input that is found before the first step leaves no mark behind.
    """
    if (done := read_record(folder)) is not None and done.identity == identity:
        yield done
        return
    with alone_in(writable_folder(folder), LOCK, keep=False):
        drop_unfinished(folder)
        done = _opened(folder, identity)
        try:
            yield done
        except InputError:
            if done is None and not (folder / WORK).exists():
                (folder / UNFINISHED).unlink(missing_ok=True)
            raise


def _opened(folder: Path, identity: str) -> CheckpointRecord | None:
    """The finished record of this identity, or None with the folder marked unfinished."""
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
    if any(path.name != LOCK for path in folder.iterdir()):
        raise _other(folder, "other files")
    write_text(mark, json.dumps({"identity": identity}))
    return None


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
