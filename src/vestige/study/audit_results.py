"""Checks of assessments: the whole record, with every number recomputed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np

from vestige.contracts import Margins
from vestige.study import audit_evidence, audit_verdicts, plan_audit, words_audit
from vestige.study import audit_numbers as numbers
from vestige.study.audit_compare import (
    TOLERANCE,
    UNDEFINED,
    Later,
    Near,
    Otherwise,
    Place,
    Said,
    agree,
    number,
    shown,
    text,
)
from vestige.study.audit_estimates import estimate
from vestige.study.audit_folder import Finding, Folder
from vestige.study.audit_numbers import SEEDS, UNIT_OFFSET, Resampled
from vestige.study.audit_provenance import caveats_of, probed_of, provenance_of
from vestige.study.audit_subjects import (
    NEW,
    Key,
    Recomputed,
    Subject,
    intervention_of,
    recomputed,
    sources_of,
    subjects,
)

__all__ = ["TOLERANCE", "decisions", "intervals", "records", "values", "verdicts"]

_Z = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
UTILITY = ("delta_accuracy", "delta_ece")
DESTINATIONS = 5
Asked = dict[str, tuple[audit_verdicts.Request, audit_verdicts.Models]]
"""F and G of all models asked in another way, and the tables of the model under test."""


# The whole record.


def values(folder: Folder) -> Finding:
    """Every value of every model, noise floor and comparison."""
    found = _part(folder, "distances", "values")
    unknown = sorted({name for item in _compared(folder).values() for name in item.unknown})
    found.unchecked += [f"'{name}' is a metric that the audit does not know" for name in unknown]
    return found


def intervals(folder: Folder) -> Finding:
    """Every interval from its own draws and seed."""
    return _part(folder, "intervals", "intervals")


def decisions(folder: Folder) -> Finding:
    """p-values, Holm's correction and the decision of every model under test."""
    return _part(folder, "decisions", "conditions")


def verdicts(folder: Folder) -> Finding:
    """Evidence, word, corrected p and sentence of every verdict, from probabilities."""
    found = _part(folder, "verdicts", "entries")
    for stem, subject in subjects(folder).items():
        if subject.before and subject.oracles:
            found.noted.append(f"{stem}: made before verdicts existed, judged by the published rule alone")
    return found


def records(folder: Folder) -> Finding:
    """What else an assessment says: counts, caveats, where its models came from."""
    return _part(folder, "records", "entries")


@dataclass
class _Difference:
    """What is wrong with one assessment, by check; how many leaves each check saw; what another version
    did otherwise; metrics that the audit does not know."""

    wrong: dict[str, list[str]]
    counts: dict[str, int]
    other: Otherwise
    unknown: list[str]


def _compared(folder: Folder) -> dict[str, _Difference]:
    return {
        stem: folder.once(("compared", stem), partial(_difference, folder, subject))
        for stem, subject in subjects(folder).items()
    }


def _part(folder: Folder, check: str, what: str) -> Finding:
    found = folder.finding(what)
    for stem, item in _compared(folder).items():
        found.count += item.counts.get(check, 0)
        found.failed += [f"{stem}: {line}" for line in item.wrong.get(check, [])]
        if check == "records":
            found.noted += item.other.lines(stem)
    return found


def _check_of(place: Place) -> str:
    """Which check a place of an assessment belongs to."""
    if place[0] in ("noise", "comparisons"):
        return "intervals" if "row" in place or "unit" in place else "distances"
    if place[0] == "noise_over_seeds":
        return "intervals"
    if place[0] in ("family", "sources"):
        return "decisions" if place[0] == "family" else "records"
    if place[0] != "models" or len(place) < 3:
        return "records" if place[0] != "models" else "decisions"
    part = place[2]
    if part == "metrics":
        inside = len(place) > 4 and place[4] in ("row", "unit")
        return "intervals" if inside else "distances"
    if part in ("reliability", "destinations"):
        return "distances"
    if part in ("decision", "p_value", "utility", "equivalent", "equivalence", "control"):
        return "decisions"
    return "verdicts" if part in NEW else "records"


def _difference(folder: Folder, subject: Subject) -> _Difference:
    stored = folder.assessments[subject.stem]
    made = recomputed(folder, subject)
    expected = _expected(folder, subject, made, stored)
    unknown = _strange(expected, stored)
    found = _Difference({}, {}, Otherwise(), unknown)
    tally = folder.finding("")
    for part, value in expected.items():
        whole = isinstance(value, list) and part in ("models", "comparisons")
        pieces: Iterator[tuple[Place, Any, Any]]
        if whole and isinstance(stored.get(part), list) and len(stored[part]) == len(value):
            pieces = (
                ((part, at), one, other)
                for at, (one, other) in enumerate(zip(value, stored[part], strict=True))
            )
        else:
            pieces = iter([((part,), value, stored.get(part, _MISSING))])
        for place, one, other in pieces:
            _enter(place, one, other, tally, found)
    for part in stored:
        if part not in expected:
            found.wrong.setdefault("records", []).append(f"{part} is nothing that a run writes")
    return found


_MISSING = object()


def _enter(place: Place, expected: Any, stored: Any, tally: Finding, found: _Difference) -> None:
    """Compare a part, piece by piece, so that each check counts what it saw."""
    if stored is _MISSING:
        if isinstance(expected, Later) and tally.earlier:
            found.other.lacking.append(shown(place))
        else:
            found.wrong.setdefault(_check_of(place), []).append(f"{shown(place)} is missing")
        return
    inner = expected.value if isinstance(expected, Later) else expected
    if (
        isinstance(inner, Mapping)
        and isinstance(stored, dict)
        and place[0] in ("models", "noise", "comparisons")
        and len(place) < 6
    ):
        for key, value in inner.items():
            _enter((*place, key), value, stored.get(key, _MISSING), tally, found)
        for key in stored.keys() - inner.keys():
            if not (
                len(place) == 3 and place[2] == "metrics" and str(key).rsplit(".", 1)[0] in found.unknown
            ):
                found.wrong.setdefault(_check_of((*place, key)), []).append(
                    f"{shown((*place, key))} is nothing that a run writes"
                )
        return
    before = tally.count
    check = _check_of(place)
    for inside, line in agree(inner, stored, tally, place, found.other):
        found.wrong.setdefault(_check_of(inside), []).append(f"{shown(inside)} {line}")
    found.counts[check] = found.counts.get(check, 0) + tally.count - before


def _strange(expected: Mapping[str, Any], stored: Any) -> list[str]:
    """Names of metrics with a number that the audit does not know: another distribution may register one."""
    known = {name.rsplit(".", 1)[0] for model in expected["models"] for name in model["metrics"]}
    known |= {"excess_distance"}
    given = {
        name.rsplit(".", 1)[0]
        for model in stored["models"]
        for name, estimate in model["metrics"].items()
        if isinstance(estimate, dict) and isinstance(estimate.get("value"), float | int)
    }
    return sorted(given - known)


def _expected(folder: Folder, subject: Subject, made: Recomputed, stored: Any) -> dict[str, Any]:
    view = made.views["F"]
    seeds = {**SEEDS, **{f"unit {name}": SEEDS[name] + UNIT_OFFSET for name in ("F", "G")}}
    models = _models(folder, subject, made, stored)
    least: dict[str, Any] = {}
    for name in ("F", "G"):
        gains = [
            made.row[label, "gain", name] for label in subject.unlearned if (label, "gain", name) in made.row
        ]
        sizes = [_detectable(gain) for gain in gains]
        nothing = not sizes or any(math.isnan(size) for size in sizes)
        least[name] = UNDEFINED if nothing else Near(max(sizes), 1e-9)
    cell = subject.cell
    study = " / ".join(part for part in (folder.planned.name, folder.planned.arm) if part)
    under = "" if subject.offer == "S0" else f", candidate set {subject.offer}"
    return {
        "format": "vestige-assessment-1",
        "name": f"{study}, bundle {subject.bundle}, seed {subject.seed}{under}" if cell else text,
        "stage": cell.stage if cell else text,
        "condition": subject.condition,
        "options": len(view.options),
        "candidates": Later(subject.offer),
        "forgotten": list(subject.forgotten),
        "unit_kind": subject.unit_kind,
        "views": [
            {"view": name, "rows": len(item.units), "units": len(set(item.units) - {""})}
            for name, item in made.views.items()
        ],
        "has_oracle": bool(subject.oracles),
        "draws": subject.draws,
        "seeds": seeds,
        "sources": sources_of(folder, subject),
        "noise": _noise(subject, made),
        "noise_pairs": {
            "noise_full": math.comb(len(subject.fulls), 2),
            "noise_oracle": math.comb(len(subject.oracles), 2),
        },
        "noise_over_seeds": Later(_over_seeds(subject, made)),
        "intervention_gate": intervention_of(subject, made),
        "minimum_detectable_gain": least,
        "models": models,
        "comparisons": [
            {
                "first": one,
                "second": other,
                "view": name,
                "difference": _estimate(subject, made, (one, f"against {other}", name)),
            }
            for name in ("F", "G")
            for one, other in combinations(subject.unlearned, 2)
            if (one, f"against {other}", name) in made.row
        ],
        "family": [label for label in _family(folder, subject, stored) if label in subject.unlearned],
        "caveats": caveats_of(folder, subject, stored),
        "provenance": provenance_of(folder, subject, made, stored),
    }


def _family(folder: Folder, subject: Subject, stored: Any) -> Sequence[str]:
    if subject.cell is None:
        found: list[str] = stored["family"]
        return found
    return plan_audit.family_of(folder, subject.cell.configured, subject.cell.stage)


def _estimate(subject: Subject, made: Recomputed, key: Key, *, unstable: bool = False) -> dict[str, Any]:
    both = key[2] == "FG"
    seed = SEEDS["F"] if both else SEEDS[key[2]]
    return estimate(
        made.row[key],
        made.unit.get(key),
        seeds=(seed, seed + UNIT_OFFSET),
        draws=subject.draws,
        condition=subject.condition,
        apart=(SEEDS["F"], SEEDS["G"]) if both else None,
        unstable=unstable,
    )


def _bare(value: Any, rows: Any) -> dict[str, Any]:
    """A number without intervals."""
    nothing = {"row": None, "unit": None, "units": None, "unstable": False, "note": ""}
    return {"value": value, "rows": rows, **nothing}


def _noise(subject: Subject, made: Recomputed) -> dict[str, Any]:
    found = {}
    for name in SEEDS:
        for role in ("full", "oracle"):
            key = ("", f"noise_{role}", name)
            there = key in made.row
            found[f"noise_{role}.{name}"] = _estimate(subject, made, key) if there else _bare(UNDEFINED, None)
    return found


def _over_seeds(subject: Subject, made: Recomputed) -> dict[str, Any]:
    """Intervals of the noise floors over training seeds."""
    found: dict[str, Any] = {}
    for name, view in made.views.items():
        for role, group in (("full", subject.fulls), ("oracle", subject.oracles)):
            ends = view.floor_over_seeds(role)
            found[f"noise_{role}.{name}"] = (
                UNDEFINED
                if ends is None
                else {
                    "low": Near(ends[0]),
                    "high": Near(ends[1]),
                    "kind": f"t interval over {len(group)} training seeds, jackknife of the logarithm",
                    "level": 0.95,
                    "draws": 0,
                    "seed": 0,
                    "condition": "these rows",
                }
            )
    return found


def _detectable(gain: Resampled) -> float:
    return _Z * float(gain.draws.std(ddof=1)) if gain.n > 1 and len(gain.draws) > 1 else math.nan


def _models(folder: Folder, subject: Subject, made: Recomputed, stored: Any) -> list[dict[str, Any]]:
    told = {model["label"]: model for model in stored["models"] if model["role"] == "unlearned"}
    judged = _judged(folder, subject, made, stored, told)
    roles = [(subject.fulls[0][0], "full"), *((label, "unlearned") for label in subject.unlearned)]
    roles += [(subject.oracles[0][0], "oracle")] if subject.oracles else []
    return [
        {
            "label": label,
            "role": role,
            **dict(zip(("method", "control"), subject.methods.get(label, ("", False)), strict=True)),
            "metrics": _metrics(subject, made, label, role),
            **_decided(folder, subject, made, stored, label, role),
            **judged.get(label, {name: Later(empty) for name, empty in _UNJUDGED.items()}),
            "destinations": _destinations(subject, made, label) if role != "full" else [],
            "reliability": _reliability(made, label),
        }
        for label, role in roles
    ]


_UNJUDGED = {"verdict": None, "evidence": None, "sentence": "", "verdict_p": None, "seeds": 1}


def _metrics(subject: Subject, made: Recomputed, label: str, role: str) -> dict[str, Any]:
    found = {}
    start = subject.fulls[0][0]
    for own, metric, name in made.row:
        if own != label or metric.startswith("against "):
            continue
        noise = made.row.get(("", "noise_full", name))
        unstable = metric == "progress" and _unstable(made.row[start, "displacement", name].value, noise)
        found[f"{metric}.{name}"] = _estimate(subject, made, (label, metric, name), unstable=unstable)
    if role != "unlearned" or not subject.oracles:
        return found
    for name in ("F", "G"):
        view = made.views[name]
        p = next(p for other, _, p in view.models if other == label)
        assert view.oracle is not None
        error, still = numbers.identity_error(view.full, view.oracle, p)
        gain = made.row[label, "gain", name]
        found[f"identity_error.{name}"] = _bare(Near(error, TOLERANCE), len(view.full))
        found[f"zero_displacement_rows.{name}"] = _bare(float(still), len(view.full))
        least = _detectable(gain)
        found[f"minimum_detectable_gain.{name}"] = _bare(
            UNDEFINED if math.isnan(least) else Near(least, 1e-9), gain.n
        )
    return found


def _unstable(displacement: float, noise: Resampled | None) -> bool:
    return displacement < 0.05 if noise is None else displacement <= 2 * noise.value


def _reliability(made: Recomputed, label: str) -> list[dict[str, Any]]:
    r = made.views["R"]
    p = next(p for other, _, p in r.models if other == label)
    top, hit = p.max(axis=1), numbers.right(p, r.gold)
    place = numbers.bins_of(top)
    found = []
    for index in range(numbers.BINS):
        inside = place == index
        means = [Near(float(side[inside].mean())) if inside.any() else UNDEFINED for side in (top, hit)]
        found.append(
            {
                "low": Near(index / numbers.BINS),
                "high": Near((index + 1) / numbers.BINS),
                "rows": int(inside.sum()),
                "confidence": means[0],
                "accuracy": means[1],
            }
        )
    return found


def _destinations(subject: Subject, made: Recomputed, label: str) -> list[dict[str, Any]]:
    """Where the probability of each forgotten option went, of the rows whose right answer it was."""
    sides = [made.views[name] for name in ("F", "G")]
    names = sides[0].options
    tables = [next(p for other, _, p in side.models if other == label) for side in sides]
    found = []
    for option in subject.forgotten:
        own = names.index(option)
        mine = [side.gold == own for side in sides]
        rows = int(sum(int(item.sum()) for item in mine))
        if not rows:
            continue
        change = sum(
            (p[item] - side.full[item]).sum(axis=0) for p, side, item in zip(tables, sides, mine, strict=True)
        )
        change = np.asarray(change) / rows
        moved = -float(change[own])
        change[own] = 0.0
        order = sorted(range(len(names)), key=lambda column: (-change[column], names[column]))[:DESTINATIONS]
        to: list[tuple[str, Near]] = [
            (names[column], Near(float(change[column]))) for column in order if change[column] > 0
        ]
        gone = sum(item[1].value for item in to)
        found.append(
            {
                "forgotten": option,
                "rows": rows,
                "moved": Near(moved),
                "to": to,
                "elsewhere": Near(moved - gone, 10 * TOLERANCE),
            }
        )
    return found


def _decided(
    folder: Folder, subject: Subject, made: Recomputed, stored: Any, label: str, role: str
) -> dict[str, Any]:
    """Decision, p-values, equivalence of the earlier rule, and what feasibility was judged on."""
    plain: dict[str, Any] = {"equivalence": None, "equivalent": None, "utility": Later({})}
    if role != "unlearned" or not subject.oracles:
        without = _utility(folder, subject, label) if role == "unlearned" else {}
        return {**plain, "decision": UNDEFINED, "p_value": {}, "utility": Later(without)}
    gains = [made.row[label, "gain", name] for name in ("F", "G")]
    ps: dict[str, Any] = {name: _p(gain) for name, gain in zip(("F", "G"), gains, strict=True)}
    model = next((item for item in stored["models"] if item["label"] == label), None)
    told = model["p_value"] if model is not None and isinstance(model["p_value"], dict) else {}
    single = any(gain.n < 2 for gain in gains)
    both: Any = (
        UNDEFINED if single else Said("the larger of the two", lambda p: p == max(told["F"], told["G"]))
    )
    holm = _holm(stored, _family(folder, subject, stored)).get(label)
    p_value = {**ps, "both": both} | ({} if holm is None else {"holm": Near(holm)})
    near = _utility(folder, subject, label)
    change = [item.value for item in near.values()]
    change = change or [made.row[label, name, "R"].value for name in UTILITY]
    gate = intervention_of(subject, made)
    decision = _decision(gate, gains, change[0], change[1], hides_harm=subject.before)
    if subject.before:
        plain |= _equivalence(subject, made, label)
    return {**plain, "decision": decision, "p_value": p_value, "utility": Later(near)}


def _utility(folder: Folder, subject: Subject, label: str) -> dict[str, Near]:
    """Changes of retained accuracy and calibration under all options, for an assessment of another set."""
    if subject.offer == "S0":
        return {}
    start = subjects(folder)[subject.stem.removesuffix(f"-{subject.offer}")]
    again = recomputed(folder, start)
    return {name: Near(again.row[label, name, "R"].value) for name in UTILITY}


def _p(gain: Resampled) -> Any:
    """One-sided p from resamples centred on the estimate; those on the very edge may fall on either side."""
    if gain.n < 2:
        return UNDEFINED
    least, most = (
        (1 + int((gain.draws - gain.value >= gain.value + margin).sum())) / (len(gain.draws) + 1)
        for margin in (TOLERANCE, -TOLERANCE)
    )
    if least == most:
        return Near(least)
    return Said(f"from {least} to {most}", lambda p: number.holds(p) and least <= p <= most)


def _holm(stored: Any, family: Sequence[str]) -> dict[str, float]:
    """Holm's correction of the recorded p of both views, which were checked before."""
    ps = {
        model["label"]: model["p_value"].get("both")
        for model in stored["models"]
        if model["label"] in set(family) and isinstance(model["p_value"], dict)
    }
    found, largest = {}, 0.0
    ordered = sorted(
        ((label, p) for label, p in ps.items() if isinstance(p, float)), key=lambda item: item[1]
    )
    for place, (label, p) in enumerate(ordered):
        largest = max(largest, min(1.0, p * (len(ordered) - place)))
        found[label] = largest
    return found


def _decision(gate: str, gains: Sequence[Resampled], accuracy: float, ece: float, *, hides_harm: bool) -> str:
    within = gate == "displacement within noise"
    if within and hides_harm:
        return gate
    if accuracy < -0.02 - TOLERANCE or ece > 0.02 + TOLERANCE:
        return "infeasible"
    if min(gain.value for gain in gains) <= 0:
        return "no benefit"
    if within:
        return gate
    sure = all(gain.n > 1 and gain.quantile(0.025) > 0 for gain in gains)
    return "accepted" if sure else "positive, unconfirmed"


def _equivalence(subject: Subject, made: Recomputed, label: str) -> dict[str, Any]:
    """Equivalence as it was before verdicts: from the first oracle alone."""
    if len(subject.oracles) < 3:
        return {"equivalence": UNDEFINED, "equivalent": UNDEFINED}
    bounds = [made.row[label, "excess_distance", view].quantile(0.95) for view in ("F", "G")]
    high = Said(
        f"an interval up to {max(bounds)!r}",
        lambda item: isinstance(item, dict) and abs(item["row"]["high"] - max(bounds)) <= TOLERANCE,
    )
    return {"equivalence": high, "equivalent": max(bounds) <= 0.02}


# Verdicts and words.


def _margins(folder: Folder, subject: Subject, stored: Any) -> dict[str, Any]:
    """What the plan counts as small; of an earlier plan, which is not kept, what the record says it was."""
    if subject.cell is not None:
        return folder.planned.margins.model_dump(mode="json")
    told = [model["evidence"]["margins"] for model in stored["models"] if model.get("evidence")]
    return Margins.model_validate(told[0] if told else {}).model_dump(mode="json")


def _judged(
    folder: Folder, subject: Subject, made: Recomputed, stored: Any, told: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Verdict, evidence, sentence and corrected p of every model under test."""
    if subject.before:
        return {}
    margins = _margins(folder, subject, stored)
    evidences = {label: _evidence(folder, subject, made, label, margins) for label in subject.unlearned}
    tables = {
        label: {
            name: [p for other, role, p in view.models if role == "unlearned" and other == label]
            for name, view in made.views.items()
        }
        for label in subject.unlearned
    }
    judged = audit_evidence.judged(
        evidences,
        _requests(folder, subject, made),
        tables,
        margins,
        _family(folder, subject, stored),
        words_audit.Speaker(stored, told),
    )
    return {label: {**item, "seeds": Later(1)} for label, item in judged.items()}


def _requests(folder: Folder, subject: Subject, made: Recomputed) -> dict[str, audit_verdicts.Request]:
    return folder.once(
        ("requests", tuple(subject.fulls), tuple(subject.oracles), subject.draws),
        lambda: {
            name: audit_verdicts.Request(name, view.fulls, view.oracles, view.gold, view.units, subject.draws)
            for name, view in made.views.items()
        },
    )


def _evidence(
    folder: Folder, subject: Subject, made: Recomputed, label: str, margins: Mapping[str, Any]
) -> dict[str, Any]:
    views = _requests(folder, subject, made)
    seeds = {
        name: [p for other, role, p in view.models if role == "unlearned" and other == label]
        for name, view in made.views.items()
    }
    probes = _asked(folder, subject, label, views, seeds)
    key = (
        "evidence",
        subject.unlearned[label],
        tuple(subject.fulls),
        tuple(subject.oracles),
        subject.draws,
        subject.forgotten,
        tuple(probes),
        tuple(margins.items()),
    )
    return folder.once(
        key,
        lambda: audit_verdicts.expected_evidence(views, seeds, margins, set(subject.forgotten), probes),
    )


def _asked(
    folder: Folder,
    subject: Subject,
    label: str,
    views: Mapping[str, audit_verdicts.Request],
    seeds: Mapping[str, audit_verdicts.Models],
) -> dict[str, Asked]:
    """By probe, in the order of the record: all models asked in that way."""
    found: dict[str, Asked] = {}
    for name, sources in probed_of(folder, subject).items():
        tables = {role: [folder.table(path) for path in sources[role]] for role in ("full", "oracle")}
        model = folder.table(sources["unlearned"][label])
        asked: Asked = {}
        for view in ("F", "G"):
            rows = [row for row, own in enumerate(model.view) if own == view]
            asked[view] = (
                dataclasses.replace(
                    views[view],
                    fulls=[table.p[rows] for table in tables["full"]],
                    oracles=[table.p[rows] for table in tables["oracle"]],
                    divergences={},
                ),
                [model.p[rows]],
            )
        found[name] = asked
    if "temperature" in folder.planned.probes and subject.offer == "S0":
        for temperature in (0.5, 2.0, 5.0):
            found[f"temperature {temperature:g}"] = {
                view: audit_verdicts.at_temperature(views[view], seeds[view], temperature)
                for view in ("F", "G")
            }
    return found
