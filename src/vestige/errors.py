"""The exception tree. Every error a user can cause says subject, found, needed and remedy in one line."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = [
    "EXIT_BAD_INPUT",
    "EXIT_CHECK_FAILED",
    "EXIT_INTERRUPTED",
    "CheckFailed",
    "Diverged",
    "InputError",
    "Interrupted",
    "MissingDependency",
    "VestigeError",
    "closest",
    "did_you_mean",
    "first_five",
    "one_line",
    "refused_of",
    "shown",
    "suggestion",
    "system_refusal",
]

EXIT_CHECK_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class VestigeError(Exception):
    """Root of every error raised on purpose."""

    exit_code: int = EXIT_BAD_INPUT


class InputError(VestigeError):
    """Bad input. `str(error)` is one line: `subject: found; needed ...; remedy`.

    subject: the file, row, field or setting at fault. found: what was there. needed: what is accepted.
    remedy: what the user can do about it. Newlines and control characters in any part are escaped, so
    that the message always stays one line.
    """

    def __init__(self, subject: str, found: str, needed: str, remedy: str) -> None:
        self.subject, self.found, self.needed, self.remedy = (
            one_line(part) for part in (subject, found, needed, remedy)
        )
        super().__init__(f"{self.subject}: found {self.found}; needed {self.needed}; {self.remedy}")


@contextmanager
def refused_of(subject: str) -> Iterator[None]:
    """Bad input that is found inside is told as one of `subject`: `subject, what it was: found ...`."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{subject}, {error.subject}", error.found, error.needed, error.remedy) from None


def system_refusal(error: OSError, subject: str) -> InputError:
    """What the operating system refused, as one line. subject: of the message where no file is named."""
    named = str(error.filename or subject)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "free some space and run the same command again: what is finished is kept"
        return InputError(named, "a full disk", "room to write", remedy)
    if error.errno in (errno.ENOMEM, errno.EMFILE, errno.ENFILE):
        remedy = "close other programs, or give fewer --jobs"
        return InputError(named, error.strerror or str(error), "memory and open files to spare", remedy)
    return InputError(named, error.strerror or str(error), "access and room", "check both")


class MissingDependency(InputError):
    """An optional package is not installed. install: the command, where the extra alone does not bring it."""

    def __init__(self, package: str, extra: str, purpose: str, *, install: str = "") -> None:
        super().__init__(
            purpose,
            f"no package '{package}'",
            f"the extra '{extra}'",
            "install it with: " + (install or f"pip install 'vestige[{extra}]'"),
        )


class Diverged(VestigeError):
    """A loss or gradient became NaN or infinite. The last good state was kept.

    step: 1-based optimiser step. row_ids: rows of the offending batch. kept: where the last good state lies.
    """

    exit_code = EXIT_CHECK_FAILED

    def __init__(self, what: str, step: int, row_ids: Iterable[str], learning_rate: float, kept: str) -> None:
        self.step = step
        self.row_ids = tuple(row_ids)
        self.learning_rate = learning_rate
        self.kept = kept
        rows = first_five(self.row_ids)
        super().__init__(
            one_line(
                f"{what} at step {step} (learning rate {learning_rate:.3g}, rows {rows}); "
                f"needed a finite number; {kept}; lower the learning rate or check these rows"
            )
        )


class CheckFailed(VestigeError):
    """A stated threshold or an audit check failed."""

    exit_code = EXIT_CHECK_FAILED


class Interrupted(VestigeError):
    """The user stopped the work; the message says what was kept."""

    exit_code = EXIT_INTERRUPTED


def one_line(text: str) -> str:
    """`text` with line ends, control and other unprintable characters written as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shown(text: str, limit: int = 60) -> str:
    """`text` quoted for a message: control characters escaped, cut to `limit` characters with its length."""
    line = one_line(str(text))
    return f"'{line}'" if len(line) <= limit else f"'{line[:limit]}…' ({len(line)} characters)"


def first_five(items: Iterable[object]) -> str:
    """The first five items, quoted, and how many more there are."""
    values = [shown(str(item)) for item in items]
    more = len(values) - 5
    return ", ".join(values[:5]) + (f" and {more} more" if more > 0 else "")


def closest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that is most like `name`, or None when none is close."""
    import difflib

    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return close[0] if close else None


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """`did you mean 'x'?` when one of `known` is close to `name`, else None.

    Where the two look alike on a page, it says by which characters they differ.
    """
    options = list(known)
    twin = next((other for other in options if other != name and _form(other) == _form(name)), None)
    if twin is not None:
        return (
            f"{shown(twin)} is there in another Unicode form (composed and decomposed letters): write both "
            "alike, in form NFC"
        )
    close = closest(name, options)
    if close is None:
        return None
    return f"did you mean {shown(close)}?{_unlike(name, close)}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What `suggestion` says, else the list of what is known."""
    options = sorted(known)
    return suggestion(name, options) or f"known: {', '.join(options)}"


def _form(text: str) -> str:
    """The text with every letter composed: equal for texts that differ in their Unicode form alone."""
    import unicodedata

    return unicodedata.normalize("NFC", text)


def _unlike(name: str, other: str) -> str:
    """Which characters differ, where all of them are outside ASCII on one side and may look the same."""
    if len(name) != len(other):
        return ""
    differ = [(place, a, b) for place, (a, b) in enumerate(zip(name, other, strict=True), start=1) if a != b]
    if not differ or any(a.isascii() and b.isascii() for _, a, b in differ):
        return ""
    place, a, b = differ[0]
    return f" Its character {place} is U+{ord(b):04X}, here it is U+{ord(a):04X}"
