"""Working through nodes in the order of their needs, in this process or in several."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from vestige.errors import Diverged, Interrupted, VestigeError
from vestige.study.cells import Node, Setting, prepare
from vestige.study.plan import Plan
from vestige.study.protocol import load_backend
from vestige.study.store import Store
from vestige.study.work import execute

__all__ = ["Failure", "Reporter", "Silent", "WorkerError", "work_through"]

_GRACE_SECONDS = 30.0


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


def work_through(
    nodes: Sequence[Node],
    store: Store,
    setting: Setting,
    *,
    report: Reporter,
    jobs: int = 1,
    threads: int | None = None,
    backend: str = "",
) -> list[Failure]:
    """Make every node that is not there yet, each after what it needs; returns those that diverged.

    jobs: processes, each with `threads` (default 1) torch threads. A node listed twice is made once. Raises
    the first error that is not a divergence, after the running nodes were stopped; what is finished is kept.
    """
    waiting: dict[str, Node] = {}
    for node in nodes:
        if node.key not in waiting and store.node(node.kind, node.key).record() is None:
            waiting[node.key] = node
    for node in nodes:
        if node.key not in waiting:
            store.adopt(store.node(node.kind, node.key))
    if not waiting:
        return []
    if jobs <= 1:
        return _alone(waiting, store, setting, report)
    return _together(waiting, store, setting.plan, report, jobs, threads or 1, backend)


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


def _alone(waiting: dict[str, Node], store: Store, setting: Setting, report: Reporter) -> list[Failure]:
    failures: list[Failure] = []
    while (node := _ready(waiting, set())) is not None:
        report.stage(node.label)
        meter = _Meter(node, report)
        try:
            execute(node, setting, store.root, meter.at)
        except Diverged as error:
            failures.append(Failure(node.key, node.label, str(error)))
            report.say(f"{node.label}: {error}")
            _drop_dependents(waiting, node.key)
            continue
        store.adopt(store.node(node.kind, node.key))
        meter.end()
        waiting.pop(node.key)
    return failures


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


def _together(
    waiting: dict[str, Node],
    store: Store,
    plan: Plan,
    report: Reporter,
    jobs: int,
    threads: int,
    backend: str,
) -> list[Failure]:
    context = multiprocessing.get_context("spawn")
    failures: list[Failure] = []
    workers: list[_Worker] = []
    try:
        for _ in range(min(jobs, len(waiting))):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, plan, backend, str(store.root), threads))
            process.start()
            theirs.close()
            workers.append(_Worker(process, ours))
        while waiting:
            busy = {worker.node.key for worker in workers if worker.node is not None}
            for worker in workers:
                if worker.node is None and (node := _ready(waiting, busy)) is not None:
                    report.stage(node.label)
                    worker.node, worker.meter = node, _Meter(node, report)
                    worker.pipe.send(node)
                    busy.add(node.key)
            active = {worker.pipe: worker for worker in workers if worker.node is not None}
            for pipe in wait(list(active)):
                _hear(active[pipe], waiting, store, report, failures)  # type: ignore[index]
    except BaseException:
        _stop(workers)
        raise
    for worker in workers:
        worker.pipe.close()
        worker.process.join()
    return failures


def _hear(
    worker: _Worker, waiting: dict[str, Node], store: Store, report: Reporter, failures: list[Failure]
) -> None:
    """Take one message of a worker."""
    node, meter = worker.node, worker.meter
    assert node is not None
    assert meter is not None
    try:
        kind, *rest = worker.pipe.recv()
    except EOFError:
        worker.process.join(_GRACE_SECONDS)
        code = worker.process.exitcode
        why = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        raise WorkerError(
            f"{node.label}: found its process gone ({why}); needed it to finish; "
            "run again, with fewer --jobs if memory was short"
        ) from None
    if kind == "progress":
        meter.at(*rest)
        return
    worker.node = worker.meter = None
    if kind == "done":
        store.adopt(store.node(node.kind, node.key))
        meter.end()
        waiting.pop(node.key)
    elif kind == "diverged":
        failures.append(Failure(node.key, node.label, rest[0]))
        report.say(f"{node.label}: {rest[0]}")
        _drop_dependents(waiting, node.key)
    elif kind == "interrupted":
        raise Interrupted(rest[0])
    else:
        raise WorkerError(*rest)


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
        with suppress(BrokenPipeError):
            pipe.send(message)


def _throttled(pipe: Connection, every: float = 0.25) -> Callable[[int, int], None]:
    import time

    told = [-float("inf")]

    def tell(done: int, total: int) -> None:
        if threading.current_thread() is threading.main_thread() and time.monotonic() - told[0] >= every:
            told[0] = time.monotonic()
            try:
                pipe.send(("progress", done, total))
            except BrokenPipeError:
                raise Interrupted("the run that started this process has ended") from None

    return tell
