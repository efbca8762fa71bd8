"""Which names are asked of the Hugging Face hub, and whether it answers.

The hub is asked once before its client is used, which would try for minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vestige.errors import InputError, closest

__all__ = ["answering_hub", "is_path", "missing_path"]

PATIENCE = 5.0
"""Seconds that the hub has to answer."""
SILENCE = 60.0
"""Seconds after which a hub that did not answer is asked again."""

_silent_since: float | None = None


def is_path(name: str) -> bool:
    """Whether `name` can only be a local path: it begins with `.`, `~` or `/`, has more than one slash, or
    its first part is a local folder. A hub id is `owner/model`."""
    first, *rest = name.split("/")
    return name.startswith((".", "~", "/")) or len(rest) > 1 or (bool(rest) and Path(first).is_dir())


def missing_path(name: str, subject: str) -> InputError:
    """The refusal of a path where no model lies, with the folder beside it that is most like it."""
    path = Path(name)
    folders = (
        [entry.name for entry in path.parent.iterdir() if entry.is_dir()] if path.parent.is_dir() else []
    )
    like = closest(path.name, folders)
    return InputError(
        subject,
        "a file" if path.is_file() else "no such folder",
        "a model folder, a .gguf file, or a hub id such as owner/model",
        f"did you mean '{path.parent / like}'?" if like is not None else "check the path",
    )


@contextmanager
def answering_hub() -> Iterator[None]:
    """Inside, a hub that does not answer counts as offline: only its local cache is read, and what is not
    there is refused at once. Nothing changes where it answers, or where HF_HUB_OFFLINE is set."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or _answers(constants.ENDPOINT):
        yield
        return
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = False


def _answers(endpoint: str) -> bool:
    """Any answer will do, a refusal too. Through the client's own session, which knows of proxies."""
    global _silent_since
    if _silent_since is not None and time.monotonic() - _silent_since < SILENCE:
        return False
    from huggingface_hub import get_session

    try:
        get_session().head(endpoint, timeout=PATIENCE)
    except Exception:  # the session raises its own types, which change between versions of the client
        _silent_since = time.monotonic()
        return False
    _silent_since = None
    return True
