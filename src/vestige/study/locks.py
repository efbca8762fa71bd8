"""Locks of run folders, given back when the process ends however it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from vestige.errors import InputError

__all__ = ["alone_in", "flock", "locked"]


def flock(file: IO[str], *, wait: bool) -> None:
    """Lock an open file until it is closed. Raises BlockingIOError when it is taken and `wait` is false."""
    try:
        import fcntl
    except ImportError:  # not on this system: two runs at once are the user's risk
        return
    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def locked(root: Path) -> bool:
    """Whether a run holds the folder now."""
    path = root / ".lock"
    if not path.is_file():
        return False
    with path.open("a") as file:
        try:
            flock(file, wait=False)
        except BlockingIOError:
            return True
    return False


@contextmanager
def alone_in(root: Path) -> Iterator[None]:
    """Exclusive use of the folder, given back when the process ends however it ends."""
    with (root / ".lock").open("a") as file:
        try:
            flock(file, wait=False)
        except BlockingIOError:
            raise InputError(
                str(root),
                "another run at work in this folder",
                "one run at a time",
                "wait for it, or name another --out",
            ) from None
        yield
