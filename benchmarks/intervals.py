"""How fast intervals are: 20 statistics with row and unit bootstrap against scipy's bootstrap of one.

    python benchmarks/intervals.py [--rows 10000] [--options 150] [--draws 5000] [--repeat 3]

Each part runs in a process of its own, so that its peak memory is its own; all in one run on one machine.

- `metrics`: 20 registered metrics of three models (full, oracle, unlearned) on one view, and their row and
  unit intervals. `intervals_s` is the resampling alone, `seconds` includes the metrics.
- `scipy`: `scipy.stats.bootstrap` of one statistic, progress, over the same rows and draws: percentile,
  paired, vectorized, in batches that keep its memory below 1 GB.
- `compare`: `vestige compare` of the same models as Parquet files, reading included.

Prints one JSON object. `ratio` is scipy's seconds over ours for the resampling (above 1: 20 statistics with
both kinds of interval take less time than scipy takes for one row interval).
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SEED = 1
STATISTICS = 20


def tables(rows: int, options: int) -> dict[str, NDArray[np.float64]]:
    """Three models: the unlearned one lies between the full model and the oracle."""
    rng = np.random.default_rng(0)
    full, oracle, beside = (rng.dirichlet(np.full(options, 0.05), rows) for _ in range(3))
    return {"full": full, "oracle": oracle, "p": 0.4 * full + 0.4 * oracle + 0.2 * beside}


def arrays(rows: int, options: int) -> dict[str, NDArray[np.generic]]:
    """What metrics take, and the unit of each row."""
    gold = np.random.default_rng(1).integers(0, options, rows)
    forgotten = np.arange(options) < max(1, options // 20)
    units = np.array([f"class {column:04d}" for column in gold])
    return {**tables(rows, options), "gold": gold, "forgotten": forgotten, "units": units}


def measure_metrics(rows: int, options: int, draws: int) -> dict[str, float]:
    from vestige.metrics import METRICS
    from vestige.statistics import UNIT_SEED_OFFSET, bootstrap_rows, bootstrap_units

    data = arrays(rows, options)
    chosen = list(METRICS)[:STATISTICS]
    start = time.perf_counter()
    items = {metric.name: metric.compute(**{name: data[name] for name in metric.needs}) for metric in chosen}
    resampling = time.perf_counter()
    row = bootstrap_rows(items, draws=draws, seed=SEED)
    unit = bootstrap_units(items, data["units"], draws=draws, seed=SEED + UNIT_SEED_OFFSET)
    end = time.perf_counter()
    assert len(row) == len(unit) == STATISTICS
    return {"seconds": end - start, "intervals_s": end - resampling}


def measure_scipy(rows: int, options: int, draws: int) -> dict[str, float]:
    from scipy.stats import bootstrap

    from vestige.metrics import oracle_distance, progress_terms
    from vestige.statistics import bootstrap_rows

    data = tables(rows, options)
    full = oracle_distance(data["full"], data["oracle"])
    after = oracle_distance(data["p"], data["oracle"])
    batch = max(1, 30_000_000 // rows)

    def progress(a: NDArray[np.float64], b: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        return 1 - b.mean(axis=axis) / a.mean(axis=axis)

    start = time.perf_counter()
    found = bootstrap(
        (full, after),
        progress,
        n_resamples=draws,
        batch=batch,
        paired=True,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    seconds = time.perf_counter() - start
    ours = bootstrap_rows({"progress": progress_terms(full, after)}, draws=draws, seed=SEED)["progress"]
    np.testing.assert_allclose((ours.low, ours.high), (found.low, found.high), rtol=0, atol=1e-10)
    return {"seconds": seconds}


def measure_compare(rows: int, options: int, draws: int) -> dict[str, float]:
    import pandas as pd

    from vestige.study.compare import compare

    data = arrays(rows, options)
    gold = np.asarray(data["gold"], dtype=np.int64)
    gone = np.asarray(data["forgotten"])[gold]
    view = np.where(gone, np.where(np.arange(rows) % 3 == 0, "G", "F"), "R")
    names = [f"option {column:04d}" for column in range(options)]
    with tempfile.TemporaryDirectory() as folder:
        for label in ("full", "oracle", "p"):
            frame = pd.DataFrame(data[label], columns=[f"p:{name}" for name in names])
            frame.insert(0, "row_id", [f"row {row:06d}" for row in range(rows)])
            frame.insert(1, "view", view)
            frame.insert(2, "unit", np.where(gone, np.array(names)[gold], ""))
            frame.insert(3, "gold", np.array(names)[gold])
            frame.to_parquet(Path(folder, f"{label}.parquet"))
        del data, frame
        start = time.perf_counter()
        result = compare(
            full=Path(folder, "full.parquet"),
            unlearned=Path(folder, "p.parquet"),
            oracle=Path(folder, "oracle.parquet"),
            forget=[names[column] for column in range(max(1, options // 20))],
            draws=draws,
        )
        seconds = time.perf_counter() - start
    assert result.models
    return {"seconds": seconds}


PARTS = {"metrics": measure_metrics, "scipy": measure_scipy, "compare": measure_compare}


def run_part(part: str, arguments: argparse.Namespace) -> dict[str, float]:
    """One part in a new process; its numbers with its peak resident memory in GB."""
    command = [sys.executable, __file__, "--part", part]
    for name in ("rows", "options", "draws"):
        command += [f"--{name}", str(getattr(arguments, name))]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description="Time intervals against scipy.stats.bootstrap.")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--options", type=int, default=150)
    parser.add_argument("--draws", type=int, default=5_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--part", choices=sorted(PARTS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        found = PARTS[arguments.part](arguments.rows, arguments.options, arguments.draws)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
        print(json.dumps({**found, "peak_rss_gb": peak}))
        return
    # Parts alternate, so that a busy minute of the machine hits all of them.
    runs = [{part: run_part(part, arguments) for part in PARTS} for _ in range(arguments.repeat)]
    median = {
        part: {key: statistics.median(run[part][key] for run in runs) for key in runs[0][part]}
        for part in PARTS
    }
    ratios = [run["scipy"]["seconds"] / run["metrics"]["intervals_s"] for run in runs]
    report = {
        "benchmark": "intervals",
        "rows": arguments.rows,
        "options": arguments.options,
        "models": 3,
        "statistics": STATISTICS,
        "draws": {"row": arguments.draws, "unit": arguments.draws},
        "repeat": arguments.repeat,
        "ratio": round(statistics.median(ratios), 3),
        "ratio_each": [round(ratio, 3) for ratio in ratios],
        **{part: {key: round(value, 3) for key, value in median[part].items()} for part in PARTS},
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
