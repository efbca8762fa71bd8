"""Scoring a pool: every part worked, its answers kept until all are there, then rates with intervals."""

from __future__ import annotations

import hashlib
import multiprocessing
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from operator import add
from pathlib import Path

from vestige.contracts import VERDICT_RULE
from vestige.errors import InputError
from vestige.files import stored_record, write_text
from vestige.locks import alone_in_out
from vestige.pool.answers import Answers
from vestige.pool.command import Command
from vestige.pool.contents import Pool
from vestige.pool.parts import Part, parts_of, work
from vestige.pool.records import PoolScore, ScoreSettings
from vestige.pool.summary import aims, coverage_rows, edge_rows, other_rows, return_rows, word_rows
from vestige.study.pool import Reporter

__all__ = ["SCORE", "score_pool"]

SCORE = "score.json"
KEPT = "scored"
"""Where answers lie while a score is unfinished."""


@alone_in_out("pool", "folder")
def score_pool(folder: Path, settings: ScoreSettings, report: Reporter, *, jobs: int = 1) -> PoolScore:
    """Score the pool in `folder`, and write the score there.

    The same call goes on where one was interrupted. Raises InputError: no finished pool, fewer oracles in it
    than a comparison is to have, a command that fails.
    """
    from vestige import __version__

    pool = Pool(folder)
    most = pool.settings.oracles - 1
    if max(settings.oracles) > most:
        raise InputError(
            "--oracles",
            f"{max(settings.oracles)} retrained models a comparison",
            f"at most {most}, as one of the pool's {most + 1} is held out",
            "give fewer, or build a larger pool",
        )
    if settings.command:
        Command(settings.command)
    parts = parts_of(pool, settings)
    kept = folder / KEPT / _digest(__version__, pool, settings)
    found: dict[Part, Answers] = {}
    for part in parts:
        answers = stored_record(kept / f"{part.name}.json", Answers)
        if answers is not None:
            found[part] = answers
    waiting = [part for part in parts if part not in found]
    report.total += sum(part.seconds for part in waiting)
    report.stage(f"{len(waiting)} of {len(parts)} parts")
    for part, answers in zip(waiting, _worked(folder, settings, waiting, jobs), strict=True):
        write_text(kept / f"{part.name}.json", answers.to_json(indent=None) + "\n")
        found[part] = answers
        report.advance(part.seconds)
    every = reduce(add, (found[part] for part in parts), Answers())
    score = PoolScore(
        version=__version__,
        rule=VERDICT_RULE,
        pool=pool.record,
        settings=settings,
        words=tuple(word_rows(every.said)),
        aims=tuple(aims(pool, every)),
        edges=tuple(edge_rows(every.edges)),
        coverage=tuple(coverage_rows(every.held)),
        returns=tuple(return_rows(every.returned)),
        others=tuple(other_rows(every.others)),
        orders=every.orders,
        flips=every.flips,
    )
    write_text(folder / SCORE, score.to_json() + "\n")
    shutil.rmtree(folder / KEPT, ignore_errors=True)
    return score


def _digest(version: str, pool: Pool, settings: ScoreSettings) -> str:
    """What an answer depends on beside its part. How many panels are asked is not in it."""
    alone = settings.model_copy(update={"panels": None})
    text = "\n".join([version, VERDICT_RULE, pool.record.to_json(), alone.to_json()])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _worked(folder: Path, settings: ScoreSettings, parts: Sequence[Part], jobs: int) -> Iterator[Answers]:
    if jobs == 1:
        for part in parts:
            yield work(folder, settings, part)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as team:
        futures = [team.submit(work, folder, settings, part) for part in parts]
        try:
            for future in futures:
                yield future.result()
        except BaseException:
            team.shutdown(wait=False, cancel_futures=True)
            raise
