"""Doing one node in a working folder that survives a kill, and timing it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.decision.predictions import Predictions, read_predictions
from vestige.errors import Diverged, InputError
from vestige.files import write_text
from vestige.study.protocol import Progress
from vestige.study.store import NodeFolder, NodeRecord, now

if TYPE_CHECKING:
    from vestige.study.cells import Node, Setting

__all__ = ["EPOCHS", "MODEL", "PREDICTIONS", "execute", "load_node_predictions"]

MODEL = "model"
"""Folder of the saved model inside a node."""
PREDICTIONS = "predictions.parquet"
EPOCHS = "epochs.json"

_NOTE_EVERY = 1.0


def execute(node: Node, setting: Setting, root: Path, progress: Progress | None = None) -> NodeRecord:
    """Do the node's work, or find it done. progress: (rows, rows in all) of this node.

    Every file that is read from other nodes is hashed first. Raises what the backend raises, the working
    folder kept for the next try; Diverged removes it.
    """
    place = NodeFolder(root, node.kind, node.key)
    with place.alone():
        return place.record() or _make(node, setting, root, place, progress)


def _make(
    node: Node, setting: Setting, root: Path, place: NodeFolder, progress: Progress | None
) -> NodeRecord:
    from vestige.study.jobs import Job

    folder = place.begin()
    clock = _Clock(place, node.label, progress)
    with _left_alone(folder):
        try:
            result, rows = node.work.do(Job(setting, root, folder, clock.progress))
        except Diverged:
            place.discard()
            raise
        except BaseException:
            clock.note(force=True)
            raise
    return place.finish(
        label=node.label,
        identity=node.identity,
        needs=node.needs,
        started=clock.started,
        seconds=clock.seconds,
        rows=rows,
        environment=setting.backend.environment(),
        result=result,
        made_for={
            "study": setting.plan.name,
            "arm": setting.plan.arm,
            "stage": node.stage or setting.plan.stage,
        },
    )


@contextmanager
def _left_alone(folder: Path) -> Iterator[None]:
    """Raise InputError where somebody removed the working folder: what was written to it is lost, whatever
    error that led to, and what is there now is not whole."""

    def same() -> bool:
        try:
            return folder.stat().st_ino == mark
        except OSError:
            return False

    mark = folder.stat().st_ino
    error: Exception | None = None
    try:
        yield
    except Diverged:
        raise
    except Exception as found:
        error = found
    if not same():
        shutil.rmtree(folder, ignore_errors=True)
        raise InputError(
            str(folder),
            "removed while work in it was going on",
            "the folder of a run left alone until the run has ended",
            "run the same command again: what is finished is kept",
        ) from None
    if error is not None:
        raise error


def load_node_predictions(root: Path, key: str, label: str) -> Predictions:
    """The probabilities in a finished node, its files hashed first."""
    place = NodeFolder(root, "predictions", key)
    place.verified()
    return read_predictions(place.path / PREDICTIONS, label)


class _Clock:
    """Time and progress of a node, noted in a file so that another process can read how far it is."""

    def __init__(self, place: NodeFolder, label: str, progress: Progress | None) -> None:
        self._place = place
        self._label = label
        self._tell = progress
        self._began = time.monotonic()
        self._noted = -float("inf")
        self._done, self._total = 0, 0
        before = self._earlier()
        self.started = str(before.get("started") or now())
        self._spent = float(before.get("seconds") or 0.0)
        self.note(force=True)

    @property
    def seconds(self) -> float:
        """Seconds of work in this and earlier sittings, as far as noted."""
        return self._spent + time.monotonic() - self._began

    def progress(self, done: int, total: int) -> None:
        self._done, self._total = done, total
        if self._tell is not None:
            self._tell(done, total)
        self.note()

    def note(self, *, force: bool = False) -> None:
        if not force and time.monotonic() - self._noted < _NOTE_EVERY:
            return
        if not self._place.part.parent.is_dir():  # removed: no other process can look for the note
            return
        self._noted = time.monotonic()
        value = {
            "label": self._label,
            "started": self.started,
            "updated": now(),
            "seconds": self.seconds,
            "done": self._done,
            "total": self._total,
        }
        write_text(self._place.progress_file, json.dumps(value) + "\n")

    def _earlier(self) -> dict[str, Any]:
        try:
            value = json.loads(self._place.progress_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}
