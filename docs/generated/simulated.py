"""Tables of the stored results of benchmarks/simulations.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from generated.base import RECORDS, percentage, table
from vestige.statistics import EQUIVALENCE_MARGIN


def simulations() -> dict[str, Any]:
    """The stored results of benchmarks/simulations.py."""
    loaded: dict[str, Any] = json.loads((RECORDS / "simulations.json").read_text(encoding="utf-8"))
    return loaded


def by_rows(items: Sequence[dict[str, Any]]) -> list[str]:
    """One cell a number of rows, in order."""
    return [percentage(item) for item in sorted(items, key=lambda item: item["rows"])]


def acceptance_rates() -> str:
    """Accepted although F has no gain, in percent."""
    found = simulations()["acceptance"]
    rows = sorted({item["rows"] for item in found})
    cases = dict.fromkeys(item["case"] for item in found)
    return table(
        ("gains of G", *(f"accepted %, n = {n}" for n in rows)),
        [(case, *by_rows([item for item in found if item["case"] == case])) for case in cases],
    )


def equivalence_rates() -> str:
    """Called equivalent, in percent."""
    found = simulations()["equivalence"]
    rows = sorted({item["rows"] for item in found})
    keys = dict.fromkeys((item["deviation"], item["excess"]) for item in found)
    return table(
        (
            "deviation a row",
            "true excess on F",
            "what the share is",
            *(f"equivalent %, n = {n}" for n in rows),
        ),
        [
            (
                f"{deviation:g}",
                f"{excess:g}",
                "power" if excess < EQUIVALENCE_MARGIN else "size",
                *by_rows([i for i in found if (i["deviation"], i["excess"]) == (deviation, excess)]),
            )
            for deviation, excess in keys
        ],
    )


def shift_rates() -> str:
    """A shift of 0.3 standard deviations: passed by a Kolmogorov-Smirnov test, and called equivalent."""
    header = ("spread of logits", "n", "true excess", "KS: `forgotten` %", "equivalent %")
    rows = [
        (
            f"{item['spread']:g}",
            str(item["rows"]),
            f"{item['excess']:.3f}",
            percentage(item["ks"]),
            percentage(item["equivalence"]),
        )
        for item in sorted(simulations()["shift"], key=lambda item: (item["spread"], item["rows"]))
    ]
    return table(header, rows)
