"""Tables of stored footprints of language models."""

from __future__ import annotations

import statistics
from collections import Counter
from functools import cache

from generated.base import RECORDS, table
from vestige.footprint.judgements import SelfTest


@cache
def known_answers() -> SelfTest:
    """The stored self-test of the footprint."""
    path = RECORDS / "footprint-selftest" / "selftest.json"
    return SelfTest.model_validate_json(path.read_text(encoding="utf-8"))


def selftest_rates() -> str:
    """One row a case: what it is, hits, the outcomes, and what the published rule says of the same models."""
    found = known_answers()
    total = len(found.seeds)
    rows = []
    for name, hits in found.hits.items():
        own = [item for item in found.cases if item.case == name]
        expected = own[0].expected
        outcomes, paper = (
            ", ".join(f"{value} {n}" for value, n in Counter(values).most_common())
            for values in ([item.outcome for item in own], [item.paper for item in own])
        )
        shifts = [
            f"{statistics.median(values):.2f}"
            if (values := [v for item in own if (v := item.measured.get(f"cofi_{c}")) is not None])
            else "-"
            for c in ("F", "A", "G")
        ]
        wanted = "any but no-op" if len(expected) > 1 else f"`{expected[0]}`"
        rows.append((name, wanted, f"{hits} of {total}", outcomes, " / ".join(shifts), paper))
    header = ("case", "expected", "as expected", "found", "CoFi F / A / G %, medians", "published rule")
    seeds = f"Seeds {', '.join(map(str, found.seeds))}; {found.needed} of {total} are needed in every case."
    return f"{table(header, rows)}\n\n{seeds}"


def selftest_gates() -> str:
    """One row a gate of the injection: what is needed, and the accuracies over the seeds."""
    gates = known_answers().gates.values()
    rows = []
    for model in ("base", "oracle", "injected"):
        for group in ("f", "a"):
            values = sorted(getattr(gate, f"{model}_{group}") for gate in gates)
            learned = model == "injected" or (model, group) == ("oracle", "a")
            needed = "above 0.90" if learned else f"up to {next(iter(gates)).chance_bound:.2f}"
            span = f"{values[0]:.2f} / {statistics.median(values):.2f} / {values[-1]:.2f}"
            rows.append((model, group.upper(), needed, span))
    return table(("model", "facts", "needed", "accuracy, least / median / largest"), rows)
