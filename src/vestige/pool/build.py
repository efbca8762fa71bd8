"""Making a pool: training its models, mixing weights, training some again. Needs torch; resumes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats
from vestige.errors import InputError
from vestige.files import (
    atomic_path,
    drop_unfinished,
    refuse_overwriting,
    stored_record,
    writable_folder,
    write_text,
)
from vestige.locks import LOCK, alone_in_out
from vestige.pool.contents import (
    ANCHOR,
    CURVES,
    LANGUAGE,
    POOL,
    ROWS,
    PoolRecord,
    PoolSettings,
    Rows,
    deletion_of,
    language_path,
    model_path,
)
from vestige.seeds import generator
from vestige.study.pool import Reporter

if TYPE_CHECKING:
    from vestige.data.intents import IntentData
    from vestige.pool.towers import Weights

__all__ = ["build_pool", "make", "read_weights"]

_SECONDS = {"towers": 0.6, "anchor": 45.0, "weights": 0.05, "relearned": 1.5, "language": 35.0}
"""About how long each kind of work takes, for the estimate of the time left."""


MODELS = {"language": 9}
"""Kind of work -> models that it trains, where there are several."""


@dataclass(frozen=True)
class Task:
    """One file to make.

    kind: of work, as in `_SECONDS`. share: of the deleted rows kept, or of the full model in a mixture.
    """

    kind: str
    deletion: str
    role: str
    seed: int
    share: float = 0.0

    def path(self, folder: Path) -> Path:
        """The file."""
        if self.kind == "language":
            return language_path(folder, self.seed)
        if self.kind == "relearned":
            return folder / CURVES / self.deletion / f"{self.seed:02d}.npz"
        return model_path(folder, self.deletion, self.role, self.seed)


@alone_in_out("pool", "folder")
def build_pool(folder: Path, settings: PoolSettings, report: Reporter, *, jobs: int = 1) -> PoolRecord:
    """Make the pool in `folder`, or what is missing of it. Raises InputError: a folder with another
    pool or other files, or one where another process is at work."""
    from vestige import __version__
    from vestige.data.helpdesk import helpdesk
    from vestige.study.protocol import DEFAULT_BACKEND, load_backend

    writable_folder(folder)
    data, backend = helpdesk(), load_backend(DEFAULT_BACKEND)
    first, second = _tasks(settings)
    record = PoolRecord(
        settings=settings,
        data=data.sha256,
        encoder=backend.encoder(),
        version=__version__,
        models=sum(MODELS.get(task.kind, 1) for task in first),
    )
    unfinished = folder / f"{POOL}.unfinished"
    for path in (folder / POOL, unfinished):
        if path.exists():
            old = stored_record(path, PoolRecord)
            odd = [
                name
                for name in ("settings", "data", "encoder")
                if old is None or getattr(old, name) != getattr(record, name)
            ]
            refuse_overwriting(path, "a pool made otherwise", odd)
    if not any(path for path in folder.iterdir() if not path.name.startswith(LOCK)):
        write_text(unfinished, record.to_json() + "\n")
    elif not unfinished.exists() and not (folder / POOL).exists():
        raise InputError(
            str(folder), "a folder with other files", "an empty folder or a pool", "give another --out"
        )
    drop_unfinished(folder)
    if not (folder / ROWS).exists():
        report.stage("sentence vectors")
        with atomic_path(folder / ROWS) as path:
            np.savez(path, **_rows(data, backend.embed).arrays())
    for tasks in (first, second):
        _work(folder, tasks, report, jobs)
    write_text(folder / POOL, record.to_json() + "\n")
    unfinished.unlink(missing_ok=True)
    return record


def _rows(data: IntentData, embed: Callable[[Sequence[str]], Floats]) -> Rows:
    options = tuple(option.id for option in data.options)
    frames = {split: data.rows(split) for split in ("train", "evaluation")}
    return Rows(
        options=options,
        vectors={split: embed(frame["text"].tolist()) for split, frame in frames.items()},
        gold={
            split: np.array([options.index(gold) for gold in frame["gold"]])
            for split, frame in frames.items()
        },
        customer={split: frame["customer_id"].to_numpy().astype(np.intp) for split, frame in frames.items()},
        names=embed([option.name for option in data.options]),
        descriptions=embed([option.description or option.name for option in data.options]),
    )


def _tasks(settings: PoolSettings) -> tuple[list[Task], list[Task]]:
    """Models to train, the longest first; and what is made from them."""
    first = [Task("language", LANGUAGE, "", world) for world in range(settings.worlds)]
    first += _anchors(settings.anchors)
    first += [Task("towers", "all", "full", seed) for seed in range(settings.fulls)]
    first += [Task("towers", "all", "random", seed) for seed in range(settings.fulls)]
    second = []
    for key in settings.deletions:
        first += [Task("towers", key, "oracle", seed) for seed in range(settings.oracles)]
        for share in settings.kept:
            first += [
                Task("towers", key, f"kept{share * 100:02.0f}", seed, share)
                for seed in range(settings.kept_seeds)
            ]
        for share in settings.mixed:
            second += [
                Task("weights", key, f"weights{share * 100:02.0f}", seed, share)
                for seed in range(min(settings.fulls, settings.oracles))
            ]
        if key.startswith("intents"):
            second += [
                Task("relearned", key, "", seed) for seed in range(min(settings.relearned, settings.oracles))
            ]
    return first, second


def _anchors(count: int) -> Iterator[Task]:
    for number in range(count // 2):
        yield Task("anchor", ANCHOR, "oracle", number)
    for number in range(count // 4):
        yield Task("anchor", ANCHOR, "full", number)
    for number in range(count - count // 2 - count // 4):
        yield Task("anchor", ANCHOR, "kept50", number, 0.5)


def _work(folder: Path, tasks: Sequence[Task], report: Reporter, jobs: int) -> None:
    waiting = [task for task in tasks if not task.path(folder).exists()]
    report.total += sum(_SECONDS[task.kind] for task in waiting)
    if not waiting:
        return
    report.stage(
        "mixing and relearning"
        if waiting[0].kind in ("weights", "relearned")
        else f"{sum(MODELS.get(task.kind, 1) for task in waiting)} models"
    )
    if jobs == 1:
        for task in waiting:
            make(folder, task)
            report.advance(_SECONDS[task.kind])
        return
    # Workers keep one thread each: two threads in one are slower than one as soon as anything else runs.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_one_thread) as team:
        running: dict[Future[None], Task] = {team.submit(make, folder, task): task for task in waiting}
        try:
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                    report.advance(_SECONDS[running.pop(future).kind])
        except BaseException:
            team.shutdown(wait=False, cancel_futures=True)
            raise


def _one_thread() -> None:
    import torch

    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


@lru_cache(maxsize=1)
def _stored_rows(folder: Path) -> Rows:
    return Rows.read(folder / ROWS)


def make(folder: Path, task: Task) -> None:
    """Make a task's file. A kill leaves none."""
    from vestige.pool import towers

    rows = _stored_rows(folder)
    if task.kind == "language":
        from vestige.pool.language import trained_world

        arrays = trained_world(task.seed)
    elif task.kind == "anchor":
        from vestige.pool.anchor import anchor_outputs

        arrays = anchor_outputs(task.role, task.seed, _training_rows(rows, task), folder / "work")
    elif task.kind == "relearned":
        from vestige.pool.relearning import relearned

        arrays = relearned(folder, rows, task.deletion, task.seed)
    else:
        if task.kind == "weights":
            pair = [
                read_weights(folder, *where)
                for where in (("all", "full", task.seed), (task.deletion, "oracle", task.seed))
            ]
            weights = towers.mixed(pair[0], pair[1], task.share)
        elif task.role == "random":
            weights = towers.fresh(task.seed)
        else:
            used = _training_rows(rows, task)
            weights = towers.trained(
                rows.vectors["train"][used], rows.gold["train"][used], rows.names, seed=_seed(task)
            )
        arrays = {
            split: towers.log_probabilities(weights, rows.vectors[split], rows.names).astype(np.float32)
            for split in ("train", "evaluation")
        }
        if task.role in ("full", "oracle"):
            for split in ("train", "evaluation"):
                told = towers.log_probabilities(weights, rows.vectors[split], rows.descriptions)
                arrays[f"described_{split}"] = told.astype(np.float32)
            arrays |= {f"weights_{name}": value for name, value in weights.items()}
    path = task.path(folder)
    with atomic_path(path) as temporary:
        np.savez(temporary, **arrays)


def _seed(task: Task) -> int:
    """Full and retrained models of one number share their start, as in a study; partial retrainings have
    starts of their own."""
    return task.seed if task.role in ("full", "oracle") else 1000 + task.seed


def _training_rows(rows: Rows, task: Task) -> NDArray[np.intp]:
    """(n,) positions of the training rows that a model sees."""
    everything = np.arange(len(rows.gold["train"]))
    if task.role == "full":
        return everything
    deletion = deletion_of(task.deletion, rows)
    gone = everything[deletion.deleted]
    random = generator("pool", "kept", task.deletion, task.role, task.seed)
    kept = (
        random.choice(gone, max(1, round(task.share * len(gone))), replace=False) if task.share else gone[:0]
    )
    return np.sort(np.concatenate([everything[~deletion.deleted], kept]))


def read_weights(folder: Path, deletion: str, role: str, seed: int) -> Weights:
    """The weights of a full or retrained model of the pool."""
    with np.load(model_path(folder, deletion, role, seed)) as stored:
        return {
            name.removeprefix("weights_"): stored[name]
            for name in stored.files
            if name.startswith("weights_")
        }
