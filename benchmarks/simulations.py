"""How often the published rule is wrong, and what a test that does not reject says, by simulation.

    OMP_NUM_THREADS=1 python benchmarks/simulations.py [--repeat 400] [--out docs/results/simulations.json]

Everything is judged by the package's own functions: row bootstrap with the views' own seeds, 5,000 draws.

- `acceptance`: rows whose gains are exchangeable around 0, n rows on F and on G. How often are both gains and
  both lower bounds above 0? `independent`: the views have nothing to do with each other; `shared`: G repeats
  the rows of F; `one view improved`: G gains for certain, F does not, the least favourable case.
- `shift`: the gold logit of an unlearned model is 0.3 standard deviations (between rows) off the oracle's.
  How often does a two-sample Kolmogorov-Smirnov test, whose p above 0.05 is read as "forgotten", pass it? Two
  options, one view; three oracles differ by a tenth of the spread.

Writes one JSON file; docs/build.py makes the tables of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.metrics import js2, noise_floor
from vestige.seeds import generator
from vestige.statistics import (
    DRAWS,
    ROW_SEEDS,
    bootstrap_rows,
    decide,
    mean_of,
)

ROWS = (40, 160, 400)
CASES = ("independent", "shared", "one view improved")
SPREADS = (2.0, 4.0, 8.0)
MORE = 5
"""Acceptance, a rare event, is repeated this many times as often."""
SHIFT = 0.3
CHUNK = 500

Array = NDArray[np.float64]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path("docs/results/simulations.json"))
    options = parser.parse_args()
    result = {
        "repeat": {
            "acceptance": MORE * options.repeat,
            "shift": options.repeat,
        },
        "draws": DRAWS,
        "acceptance": [acceptance(n, case, MORE * options.repeat) for n in ROWS for case in CASES],
        "shift": [shift(n, spread, options.repeat) for n in ROWS for spread in SPREADS],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written: {options.out}", file=sys.stderr)
    return 0


def chunks(repeat: int) -> Iterator[int]:
    """Repetitions in portions that share one matrix of draws."""
    for start in range(0, repeat, CHUNK):
        yield min(CHUNK, repeat - start)


def gains(random: np.random.Generator, repeat: int, n: int) -> Array:
    """Gains exchangeable around 0: before and after are alike, skewed distances in [0, 1]. (repeat, n)."""
    before, after = random.beta(0.8, 2.0, (2, repeat, n))
    return np.asarray(before - after)


def bounds(values: Array, view: str, draws: int) -> list[tuple[float, float]]:
    """(gain, lower row bound) of each repetition. values (repeat, n)."""
    items = {str(place): mean_of(row) for place, row in enumerate(values)}
    found = bootstrap_rows(items, draws=draws, seed=ROW_SEEDS[view])
    return [(found[name].estimate, found[name].low) for name in items]


def acceptance(n: int, case: str, repeat: int, draws: int = DRAWS) -> dict[str, Any]:
    """Share of repetitions that are accepted although F, at least, has no gain."""
    random = generator("simulations", "acceptance", n, case)
    accepted = 0
    for count in chunks(repeat):
        f = gains(random, count, n)
        g = {"independent": gains(random, count, n), "shared": f, "one view improved": np.abs(f) + 0.01}[case]
        for one, other in zip(bounds(f, "F", draws), bounds(g, "G", draws), strict=True):
            accepted += decide(*one, *other, 0.0, 0.0) == "accepted"
    return {"rows": n, "case": case, **share(accepted, repeat)}


def two_options(logit: Array) -> Array:
    """(N,) gold logits -> (N, 2) distributions."""
    p = 1 / (1 + np.exp(-logit))
    return np.stack([p, 1 - p], axis=1)


def shift(n: int, spread: float, repeat: int) -> dict[str, Any]:
    """Share that the Kolmogorov-Smirnov test passes, and the true excess distance to retraining."""
    random = generator("simulations", "shift", n, spread)
    passed, true = 0, []
    for _ in range(repeat):
        row = random.normal(0, spread, n)
        oracles = [two_options(row + 0.1 * spread * random.normal(size=n)) for _ in range(3)]
        unlearned = two_options(row + SHIFT * spread + 0.1 * spread * random.normal(size=n))
        floor = noise_floor(oracles)
        assert isinstance(floor.value, float)
        true.append(float(js2(unlearned, oracles[0]).mean()) - floor.value)
        # Independent samples of n, as where a model's scores are compared as distributions.
        passed += forgotten_by_ks(random.normal(0, 1, n), random.normal(SHIFT, 1, n))
    return {"rows": n, "spread": spread, "excess": float(np.mean(true)), "ks": share(passed, repeat)}


def forgotten_by_ks(first: Array, second: Array) -> bool:
    """Whether a two-sample Kolmogorov-Smirnov test does not reject at 5 %."""
    from scipy.stats import ks_2samp

    return bool(ks_2samp(first, second).pvalue > 0.05)


def share(hits: int, repeat: int) -> dict[str, float]:
    """A share and its standard error."""
    p = hits / repeat
    return {"share": p, "error": float(np.sqrt(max(p * (1 - p), 1 / repeat) / repeat))}


if __name__ == "__main__":
    raise SystemExit(main())
