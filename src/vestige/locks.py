"""Locks of folders, given back when the process ends however it ends.

A lock is an empty file that a process holds with `flock`. Where the file is taken away at the end, whoever
waited for it holds a file that is no longer there, beside another process that made it anew: so every taker
looks whether the file that it locked still has its name, and tries again where it has not.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from vestige.errors import InputError
from vestige.files import writable_folder

try:
    import fcntl
except ImportError:  # Windows: nothing is held, two runs at once are the user's risk
    fcntl = None  # type: ignore[assignment]

__all__ = ["LOCK", "alone_in", "alone_in_out", "held", "holding"]

P = ParamSpec("P")
R = TypeVar("R")

LOCK = ".lock"
"""Of a run folder; it stays there."""
_PATIENCE = 0.5
"""Seconds in which another process that only looks whether the lock is held will have looked."""


@contextmanager
def holding(path: Path, *, wait: bool = True, keep: bool = False) -> Iterator[None]:
    """Hold the lock `path`; no other process does so inside.

    wait: for whoever has it; else BlockingIOError. keep: leave the empty file there at the end. Raises
    OSError where the file cannot be made.
    """
    with _taken(path, wait=wait):
        try:
            yield
        finally:
            if not keep:
                path.unlink(missing_ok=True)


@contextmanager
def alone_in(folder: Path, name: str = LOCK, *, keep: bool = True) -> Iterator[None]:
    """Exclusive use of a folder among those that ask for the same `name` there.

    keep: leave the lock's empty file in the folder. Raises InputError where another process is at work.
    """
    try:
        with holding(folder / name, wait=False, keep=keep):
            yield
    except BlockingIOError:
        raise InputError(
            str(folder),
            "another run at work in this folder",
            "one run at a time",
            "wait for it, or name another --out",
        ) from None


def alone_in_out(verb: str, parameter: str = "out") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """For functions that write into the folder `parameter`, where one is given: two calls at once with the
    same folder would write over each other, so the second raises InputError.

    verb: what the folder is held for; others may work there. Of several processes of one call (`world`) the
    first holds it.
    """

    def decorated(made: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(made)

        @wraps(made)
        def alone(*args: P.args, **kwargs: P.kwargs) -> R:
            given = signature.bind(*args, **kwargs).arguments
            out, world = given.get(parameter), given.get("world")
            if out is None or (world is not None and not world.leads):
                return made(*args, **kwargs)
            folder = Path(out)
            new = not folder.exists()
            try:
                with alone_in(writable_folder(folder), f".lock-{verb}", keep=False):
                    return made(*args, **kwargs)
            except BaseException:
                if new:
                    with suppress(OSError):  # something is in it: it stays
                        folder.rmdir()
                raise

        return alone

    return decorated


def held(folder: Path, name: str = LOCK) -> bool:
    """Whether a process holds the folder now. Nothing is written: the folder may be read-only."""
    path = folder / name
    if fcntl is None or not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _taken(path: Path, *, wait: bool) -> IO[str]:
    """The file at `path`, open and locked. Raises BlockingIOError when it is taken and `wait` is false."""
    until = time.monotonic() + _PATIENCE
    while True:
        file = path.open("a")
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _named(path, file):
                return file
        except BlockingIOError:
            if time.monotonic() >= until:
                file.close()
                raise
            time.sleep(_PATIENCE / 10)
        except BaseException:
            file.close()
            raise
        file.close()


def _named(path: Path, file: IO[str]) -> bool:
    """Whether the open file is the one that has the name now."""
    if fcntl is None:
        return True
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
