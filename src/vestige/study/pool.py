"""Working through nodes in the order of their needs, in this process or in several."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from vestige.errors import Diverged, Interrupted, VestigeError, system_refusal
from vestige.study.cells import Node, Setting, prepare
from vestige.study.plan import Plan
from vestige.study.protocol import load_backend
from vestige.study.store import Store
from vestige.study.work import execute

__all__ = ["Failure", "Reporter", "Silent", "Team", "WorkerError"]

_GRACE_SECONDS = 30.0
EXIT_BUG = 70


class Reporter(Protocol):
    """Where progress goes. `total` and `advance` count training rows, or work as long as one."""

    total: float

    def stage(self, text: str) -> None: ...
    def advance(self, amount: float = 1.0) -> None: ...
    def say(self, text: str) -> None: ...


@dataclass
class Silent:
    """A reporter that keeps what it was told."""

    total: float = 0.0
    done: float = 0.0
    lines: list[str] = field(default_factory=list)

    def stage(self, text: str) -> None:
        self.lines.append(text)

    def advance(self, amount: float = 1.0) -> None:
        self.done += amount

    def say(self, text: str) -> None:
        self.lines.append(text)


class WorkerError(VestigeError):
    """An error that another process met, with its message and exit code."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Failure:
    """A node that could not be made, and why; nodes that need it were left out."""

    key: str
    label: str
    reason: str


class Team:
    """Works through nodes, in this process or with worker processes that live as long as the team.

    Use as a context manager. jobs: processes, each with `threads` (default 1) threads; 1: this process alone.
    """

    def __init__(
        self,
        store: Store,
        setting: Setting,
        *,
        report: Reporter,
        jobs: int = 1,
        threads: int | None = None,
        backend: str = "",
    ) -> None:
        self._store = store
        self._setting = setting
        self._report = report
        self._jobs = jobs
        self._threads = threads or 1
        self._backend = backend
        self._workers: list[_Worker] = []
        self._waiting: dict[str, Node] = {}
        self._failures: list[Failure] = []

    def __enter__(self) -> Team:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            _stop(self._workers)
            return
        for worker in self._workers:
            worker.pipe.close()
            worker.process.join()

    def work_through(self, nodes: Sequence[Node], *, until: Sequence[Node] | None = None) -> list[Failure]:
        """Make every node that is not there yet, each after what it needs; returns those that diverged.

        A node listed twice is made once; one that another folder of the store's sources has is taken from
        there. until: come back as soon as these are made; worker processes go on with the others, which a
        later call waits for. Raises the first error that is not a divergence; leaving the team's block then
        stops the running nodes; what is finished is kept.
        """
        for node in nodes:
            place = self._store.node(node.kind, node.key)
            if place.record() is not None or self._store.borrow(place):
                self._store.adopt(place)
            else:
                self._waiting.setdefault(node.key, node)
        wanted = None if until is None else {node.key for node in until}
        if self._jobs <= 1:
            self._alone(wanted)
        else:
            self._together(wanted)
        failures, self._failures = self._failures, []
        return failures

    def _open(self, wanted: set[str] | None) -> bool:
        """Whether something is still to wait for."""
        return bool(self._waiting if wanted is None else wanted & set(self._waiting))

    def _alone(self, wanted: set[str] | None) -> None:
        while self._open(wanted) and (node := _ready(self._waiting, set())) is not None:
            self._report.stage(node.label)
            meter = _Meter(node, self._report)
            try:
                execute(node, self._setting, self._store.root, meter.at)
            except Diverged as error:
                self._failed(node, str(error))
                continue
            self._finished(node, meter)

    def _together(self, wanted: set[str] | None) -> None:
        for _ in range(len(self._workers), min(self._jobs, len(self._waiting))):
            self._workers.append(self._start())
        while self._open(wanted):
            busy = {worker.node.key for worker in self._workers if worker.node is not None}
            for worker in self._workers:
                if worker.node is None and (node := _ready(self._waiting, busy)) is not None:
                    self._report.stage(node.label)
                    worker.node, worker.meter = node, _Meter(node, self._report)
                    try:
                        worker.pipe.send(node)
                    except OSError:  # it was ended while it had nothing to do
                        raise _gone(worker, node) from None
                    busy.add(node.key)
            active = {worker.pipe: worker for worker in self._workers if worker.node is not None}
            for pipe in wait(list(active)):
                self._hear(active[pipe])  # type: ignore[index]

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        given = (theirs, self._setting.plan, self._backend, str(self._store.root), self._threads)
        process = context.Process(target=_serve, args=given)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _hear(self, worker: _Worker) -> None:
        """Take one message of a worker."""
        node, meter = worker.node, worker.meter
        assert node is not None
        assert meter is not None
        try:
            kind, *rest = worker.pipe.recv()
        except (EOFError, OSError):  # OSError: ended with its work still unread in the pipe
            raise _gone(worker, node) from None
        if kind == "progress":
            meter.at(*rest)
            return
        worker.node = worker.meter = None
        if kind == "done":
            self._finished(node, meter)
        elif kind == "diverged":
            self._failed(node, rest[0])
        elif kind == "interrupted":
            raise Interrupted(rest[0])
        else:
            raise WorkerError(*rest)

    def _finished(self, node: Node, meter: _Meter) -> None:
        self._store.adopt(self._store.node(node.kind, node.key))
        meter.end()
        self._waiting.pop(node.key)

    def _failed(self, node: Node, reason: str) -> None:
        self._failures.append(Failure(node.key, node.label, reason))
        self._report.say(f"{node.label}: {reason}")
        _drop_dependents(self._waiting, node.key)


def _ready(waiting: dict[str, Node], busy: set[str]) -> Node | None:
    for key, node in waiting.items():
        if key not in busy and not any(need in waiting for need in node.needs):
            return node
    return None


def _drop_dependents(waiting: dict[str, Node], key: str) -> None:
    gone = [key]
    while gone:
        lost = gone.pop()
        waiting.pop(lost, None)
        gone += [other for other, node in waiting.items() if lost in node.needs]


class _Meter:
    """Turns a node's own progress into the reporter's unit."""

    def __init__(self, node: Node, report: Reporter) -> None:
        self._node, self._report, self._told = node, report, 0.0

    def at(self, done: int, total: int) -> None:
        reached = self._node.cost * min(1.0, done / max(1, total))
        if reached > self._told:
            self._report.advance(reached - self._told)
            self._told = reached

    def end(self) -> None:
        self.at(1, 1)


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    node: Node | None = None
    meter: _Meter | None = None


def _gone(worker: _Worker, node: Node) -> WorkerError:
    """The error for a process that ended without a word."""
    worker.process.join(_GRACE_SECONDS)
    code = worker.process.exitcode
    if code is not None and code < 0:
        why = f"its process ended by {_signal_name(-code)}"
    else:
        why = f"its process gone (exit code {code})" if code is not None else "no answer from its process"
    remedy = "run the same command again"
    if code == -signal.SIGKILL:  # what the kernel sends when memory runs out
        remedy += ", with fewer --jobs if memory was short"
    return WorkerError(f"{node.label}: found {why}; needed it to finish; {remedy}: what is done is kept")


def _signal_name(number: int) -> str:
    """`SIGKILL (signal 9)`."""
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"


def _stop(workers: Sequence[_Worker]) -> None:
    """Ask each process to end (it keeps a checkpoint), then make sure that it does."""
    for worker in workers:
        if worker.process.is_alive():
            worker.process.terminate()
    for worker in workers:
        worker.process.join(_GRACE_SECONDS)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        worker.pipe.close()


def _serve(pipe: Connection, plan: Plan, backend: str, root: str, threads: int) -> None:
    """A worker process: nodes in, outcomes out, until the pipe closes."""
    # Ctrl-C reaches every process of a terminal's group: the first process alone decides, and ends this one
    # by SIGTERM, which lets training write a checkpoint.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    setting: Setting | None = None
    while True:
        try:
            node: Node = pipe.recv()
        except EOFError:
            return
        try:
            if setting is None:
                made = load_backend(backend)
                made.set_threads(threads)
                setting = prepare(plan, made)
            execute(node, setting, Path(root), _throttled(pipe))
            message: tuple[Any, ...] = ("done",)
        except Diverged as error:
            message = ("diverged", str(error))
        except Interrupted as error:
            message = ("interrupted", str(error))
        except VestigeError as error:
            message = ("error", str(error), error.exit_code)
        except KeyboardInterrupt:
            return
        except OSError as error:
            refusal = system_refusal(error, "a file of the run folder")
            message = ("error", f"{node.label}: {refusal}", refusal.exit_code)
        except Exception as error:
            traceback.print_exc()
            message = ("error", f"{node.label}: {error!r}; this is a bug in vestige", EXIT_BUG)
        with suppress(BrokenPipeError):
            pipe.send(message)


def _throttled(pipe: Connection, every: float = 0.25) -> Callable[[int, int], None]:
    told = [-float("inf")]

    def tell(done: int, total: int) -> None:
        if threading.current_thread() is threading.main_thread() and time.monotonic() - told[0] >= every:
            told[0] = time.monotonic()
            try:
                pipe.send(("progress", done, total))
            except BrokenPipeError:
                raise Interrupted("the run that started this process has ended") from None

    return tell
