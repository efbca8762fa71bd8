"""The footprint's class rule, roles and behaviour gap against the published tables, within their rounding."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path

import pytest

from vestige.metrics import behaviour_gap, classify_footprint, gap_relation
from vestige.metrics.footprint import role_half_width, role_log10_perplexity_ratio, role_shift

Row = dict[str, str]
Key = tuple[str, str, str, str]
# Printed numbers are half a last digit off at most; 1e-9 for binary fractions of such halves.
EXACT = 1e-9


def rows(paper: Path, name: str) -> list[Row]:
    with (paper / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def last_place(printed: str) -> float:
    """One unit of the last printed digit: half for the number, half for those it is made of."""
    return 10.0 ** -len(printed.partition(".")[2])


def by_run(table: list[Row]) -> dict[Key, dict[str, dict[str, Row]]]:
    """(benchmark, model, method, noise) -> role -> corpus -> row."""
    found: dict[Key, dict[str, dict[str, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in table:
        key = (row["benchmark"], row["model"], row["method"], row["noise"])
        found[key][row["role"]][row["corpus"]] = row
    return found


def test_every_published_class(paper: Path) -> None:
    runs = by_run(rows(paper, "triage_cofi.csv"))
    table = rows(paper, "triage_classes.csv")
    wrong = {}
    for row in table:
        key = (row["benchmark"], row["model"], row["method"], row["noise"])
        shifts = {
            role: {corpus: float(entry["cofi"]) for corpus, entry in corpora.items()}
            for role, corpora in runs[key].items()
        }
        found = classify_footprint(shifts["forget"], shifts["adjacent"], shifts["generic"])
        if found != row["class"]:
            wrong[key] = (found, row["class"])
    assert wrong == {}
    assert len(table) == len(runs) == 140
    assert len({row["class"] for row in table}) == 4


@pytest.mark.parametrize("quantity", ["cofi", "chess"])
def test_roles_and_their_half_widths(paper: Path, quantity: str) -> None:
    """Both the roles and what they are made of are rounded: off by one unit of the last digit at most."""
    runs = by_run(rows(paper, "triage_cofi.csv"))
    table = rows(paper, "triage_aggregates.csv")
    for row in table:
        run = runs[row["benchmark"], row["model"], row["method"], "False"]
        for role, letter in (("forget", "f"), ("adjacent", "a"), ("generic", "g")):
            entries = run[role].values()
            shift = role_shift(float(entry[quantity]) for entry in entries)
            half = role_half_width(float(entry[f"{quantity}_ci"]) for entry in entries)
            for found, printed in (
                (shift, row[f"{quantity}_{letter}"]),
                (half, row[f"{quantity}_{letter}_ci"]),
            ):
                assert found == pytest.approx(float(printed), abs=last_place(printed) + EXACT), row
    assert len(table) == 48


def test_perplexity_ratios_are_geometric_means(paper: Path) -> None:
    runs = by_run(rows(paper, "triage_ppl.csv"))
    powers = 0
    for row in rows(paper, "triage_aggregates.csv"):
        run = runs[row["benchmark"], row["model"], row["method"], "False"]
        for role, letter in (("forget", "f"), ("adjacent", "a"), ("generic", "g")):
            log10 = role_log10_perplexity_ratio(float(e["log10_ppl_ratio"]) for e in run[role].values())
            printed = row[f"ppl_ratio_{letter}"]
            if printed.startswith("10^"):
                # Whole powers; the corpora's logs have two digits.
                assert log10 == pytest.approx(float(printed[3:]), abs=0.5 + 0.005 + EXACT), row
                powers += 1
            else:
                # Roles of a single corpus show that a log10 of 0.05 (a ratio of 1.12) is printed as 1.0.
                assert log10 == pytest.approx(math.log10(float(printed)), abs=0.05 + 0.005 + EXACT), row
    assert powers > 10


def test_behaviour_gaps_and_their_relations(paper: Path) -> None:
    """Accuracies have three digits: a relative loss is off by 100 * 0.001 / base and a printed half digit."""
    accuracies = {(row["model"], row["method"]): row for row in rows(paper, "triage_behaviour.csv")}
    table = rows(paper, "triage_bgap.csv")
    for row in table:
        base = accuracies[row["model"], "base"]
        gap = behaviour_gap(base, accuracies[row["model"], row["method"]])
        assert not any(not isinstance(value, float) for value in (gap.delta_f, gap.delta_a, gap.b_gap))
        assert gap.delta_f == pytest.approx(float(row["delta_f"]), abs=0.05 + 0.2)
        assert gap.delta_a == pytest.approx(float(row["delta_a"]), abs=0.05 + 0.2)
        assert gap.b_gap == pytest.approx(float(row["b_gap"]), abs=0.05 + 0.4)
        assert gap_relation(float(row["adj_gap"]), float(row["b_gap"])) == row["relation"]
    assert len(table) == 12
