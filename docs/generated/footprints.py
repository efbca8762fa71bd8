"""Tables of stored footprints of language models."""

from __future__ import annotations

import csv
import math
import statistics
from collections import Counter
from functools import cache

from generated.base import RECORDS, table
from vestige.contracts import Interval, Undefined
from vestige.footprint.judgements import CalibratedClass, SelfTest
from vestige.footprint.records import FootprintRecord, Shift
from vestige.metrics.footprint import FootprintClass


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


@cache
def footprint(study: str) -> FootprintRecord:
    """A stored footprint."""
    path = RECORDS / study / "footprint.json"
    return FootprintRecord.model_validate_json(path.read_text(encoding="utf-8"))


def moved(shift: Shift, digits: int = 2) -> str:
    """A shift with its half-width."""
    if isinstance(shift.value, Undefined):
        return str(shift.value)
    half = "" if isinstance(shift.half_width, Undefined) else f" ± {shift.half_width:.{digits}f}"
    return f"{shift.value:.{digits}f}{half}"


def footprint_shifts(study: str) -> str:
    """One row a checkpoint and text: both diagonals, the floor, perplexity, the calibrated fold change."""
    rows = []
    for checkpoint in footprint(study).checkpoints:
        calibrated = checkpoint.calibrated
        folds = {}
        if isinstance(calibrated, CalibratedClass):
            for item in calibrated.corpora:
                folds[item.corpus] = f"{item.fold:.3f}"
                if isinstance(item.interval, Interval):
                    low, high = (math.exp(value) for value in (item.interval.low, item.interval.high))
                    folds[item.corpus] += f" [{low:.3f}, {high:.3f}]"
        for corpus in checkpoint.corpora:
            share = corpus.floor_share
            lost = corpus.perplexity
            below = "-"
            if not isinstance(share, Undefined):
                below = f"{100 * share.base:.2f} / {100 * share.after:.2f}"
            rows.append(
                (
                    checkpoint.label,
                    f"{corpus.corpus} ({corpus.role})",
                    moved(corpus.fisher),
                    moved(corpus.fisher_linear, 1),
                    below,
                    f"{moved(corpus.hessian, 1)} ({moved(corpus.hessian_floor, 1)})",
                    str(lost) if isinstance(lost, Undefined) else moved(lost.log10_ratio, 3),
                    folds.get(corpus.corpus, "-"),
                )
            )
    header = (
        "checkpoint",
        "text",
        "CoFi %",
        "linear scale %",
        "below floor %, base / after",
        "CHess % (floor)",
        "log10 PPL ratio",
        "fold change",
    )
    return table(header, rows)


def footprint_classes(study: str) -> str:
    """One row a checkpoint: both classes and what they rest on."""
    rows = []
    for checkpoint in footprint(study).checkpoints:
        published, calibrated = checkpoint.published, checkpoint.calibrated
        first = str(published)
        if isinstance(published, FootprintClass):
            first = str(published.name) + (", undetermined" if published.undetermined else "")
        if isinstance(calibrated, CalibratedClass):
            ranks = [f"{calibrated.moved_p:.3f}"]
            ranks += [
                "-" if isinstance(p, Undefined) else f"{value:+.2f} ({p:.3f})"
                for value, p in ((calibrated.h, calibrated.h_p), (calibrated.g, calibrated.g_p))
            ]
            rows.append(
                (checkpoint.label, first, str(calibrated.name), *ranks, checkpoint.disagreement or "-")
            )
        else:
            rows.append((checkpoint.label, first, str(calibrated), "-", "-", "-", "-"))
    header = (
        "checkpoint",
        "published class",
        "calibrated class",
        "moved, p",
        "h (p)",
        "g (p)",
        "where they differ",
    )
    return table(header, rows)


def figures(study: str) -> str:
    """The stored drawings of a study, with their captions."""
    lines = (RECORDS / study / "figures" / "index.csv").read_text(encoding="utf-8").splitlines()
    return "\n\n".join(
        f"![{item['alternative']}](results/{study}/figures/{item['file']})\n\n*{item['caption']}*"
        for item in csv.DictReader(lines)
    )
