"""What every verb shares at the terminal: exit codes, one-line errors, progress with the time left."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from vestige.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, VestigeError, one_line, system_refusal

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["EXIT_BUG", "Progress", "duration", "error_line", "guarded", "output", "paragraph"]

EXIT_BUG = 70
"""Exit code of an error that is ours: the traceback is printed."""

RATE_WINDOW_SECONDS = 120.0
RATE_NEEDS_SECONDS = 5.0


def guarded(work: Callable[[], Any]) -> int:
    """Run `work` and return the exit code: the only place that maps exceptions to codes.

    0 done (or the integer that `work` returns); the error's own code for a VestigeError (1 or 2); 2 for wrong
    options and for what the operating system refuses; 130 for an interrupt; 70 with a traceback for a bug.
    """
    try:
        result = work()
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except VestigeError as error:
        error_line(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        error_line("interrupted; nothing was kept of the step that was running")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`vestige ... | head`): no error, and nothing more to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        error_line(str(system_refusal(error, "the operating system")))
        return EXIT_BAD_INPUT
    except MemoryError:
        error_line("found too little memory; needed room for the tables; give fewer rows, models or draws")
        return EXIT_BAD_INPUT
    except Exception as error:
        # click's exceptions, recognised by what they carry: typer has its own copy of click in some versions.
        code = getattr(error, "exit_code", None)
        if hasattr(error, "format_message"):
            usage_error(error)
            return EXIT_BAD_INPUT
        if code is not None:
            return int(code)
        if type(error).__name__ == "Abort":
            return EXIT_INTERRUPTED
        traceback.print_exc()
        error_line("this is a bug in vestige; please report it with the lines above")
        return EXIT_BUG


def usage_error(error: Any) -> None:
    """Print a wrong command line in one line, with where its help is."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "vestige"
    message = " ".join(str(error.format_message()).split()).rstrip(".") or "Missing command"
    error_line(f"{message}; see {path} --help")


def error_line(message: str) -> None:
    """Print `error: message` as one line on standard error."""
    print(f"error: {one_line(message)}", file=sys.stderr, flush=True)  # noqa: T201 - the terminal is this module's work


def output(*, file: IO[str] | None = None) -> Console:
    """A rich console that prints text as it is: no markup, no highlighting of numbers, no emoji codes."""
    from rich.console import Console

    return Console(file=file or sys.stdout, markup=False, highlight=False, emoji=False)


def paragraph(console: Console, text: str) -> None:
    """Print prose: wrapped on a terminal, one line elsewhere, so that it can be searched."""
    console.print(text, soft_wrap=not console.is_terminal)


def duration(seconds: float) -> str:
    """Seconds in words: `8 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Progress:
    """Progress of long work with an estimate of the time left.

    total: work in any unit that takes about the same time each (steps, tokens, seconds of an estimate); it
    may change while running. A bar on a terminal; elsewhere plain lines, one when a stage begins and at most
    one every `every` seconds. Use as a context manager.
    """

    def __init__(
        self,
        total: float,
        *,
        every: float = 10.0,
        stream: IO[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total = total
        self.done = 0.0
        self._stream = stream or sys.stderr
        self._every = every
        self._clock = clock
        self._text = ""
        self._spoke = -float("inf")
        self._marks: deque[tuple[float, float]] = deque()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if self._stream.isatty():
            self._open_bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def stage(self, text: str) -> None:
        """Name what is being done now."""
        self._text = one_line(text)
        if self._bar is not None:
            self._bar.update(self._task, description=self._text, total=self.total)
        else:
            self._line()

    def advance(self, amount: float = 1.0) -> None:
        """Count `amount` more of the total as done."""
        self.done = min(self.done + amount, self.total)
        self._mark()
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, total=self.total)
        elif self._clock() - self._spoke >= self._every:
            self._line()

    def say(self, text: str) -> None:
        """Print a line that stays, above the bar where there is one."""
        if self._bar is not None:
            self._bar.console.print(one_line(text), markup=False, highlight=False)
        else:
            print(one_line(text), file=self._stream, flush=True)

    def left(self) -> float | None:
        """Estimated seconds left at the rate of the last two minutes; None before there is a rate.

        Counted from the first `advance`, so that neither start-up nor work taken over from an interrupted run
        distorts it.
        """
        if not self._marks:
            return None
        then, done = self._marks[0]
        elapsed = self._clock() - then
        if elapsed < RATE_NEEDS_SECONDS or self.done <= done:
            return None
        return elapsed / (self.done - done) * (self.total - self.done)

    def _mark(self) -> None:
        now = self._clock()
        if not self._marks or now - self._marks[-1][0] >= 1:
            self._marks.append((now, self.done))
        while len(self._marks) > 1 and now - self._marks[1][0] >= RATE_WINDOW_SECONDS:
            self._marks.popleft()

    def _line(self) -> None:
        self._spoke = self._clock()
        share = self.done / self.total if self.total > 0 else 1.0
        left = self.left()
        end = f", about {duration(left)} left" if left is not None else ""
        print(f"[{share:4.0%}] {self._text}{end}", file=self._stream, flush=True)

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=Console(file=self._stream),
        )
        self._task = self._bar.add_task(self._text, total=self.total)
        self._bar.start()
