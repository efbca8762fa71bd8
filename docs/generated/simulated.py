"""Tables of the stored results of benchmarks/simulations.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from generated.base import RECORDS, percentage, table


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


def shift_rates() -> str:
    """A shift of 0.3 standard deviations: how often a Kolmogorov-Smirnov test passes it."""
    header = ("spread of logits", "n", "true excess", "KS: `forgotten` %")
    rows = [
        (
            f"{item['spread']:g}",
            str(item["rows"]),
            f"{item['excess']:.3f}",
            percentage(item["ks"]),
        )
        for item in sorted(simulations()["shift"], key=lambda item: (item["spread"], item["rows"]))
    ]
    return table(header, rows)
