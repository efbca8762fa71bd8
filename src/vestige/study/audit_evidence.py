"""The whole record of evidence that a verdict has to rest on: the audit's own numbers with what says of them.

The numbers come from `audit_verdicts`; here they get the kinds, conditions, counts and seeds that a record
gives beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vestige.study import audit_verdicts
from vestige.study.audit_compare import UNDEFINED, Later, Near, Words
from vestige.study.words_audit import Speaker

__all__ = ["judged"]

ROWS = "Dirichlet-weighted rows with one worst-case row"
SEEDS = "rows as before, training seeds by jackknife with t quantiles, joined in squares"
NEWCOMBE = "Newcombe's interval of a paired difference, averaged over pairs of models"
CALIBRATION = "score interval of the debiased squared error in 10 equal-mass bins, root taken"
THESE = "these models, other rows like these"
ONE = "against one retraining"
RULE = "vestige-verdict-1"


def judged(
    evidences: Mapping[str, Mapping[str, Any]],
    requests: Mapping[str, audit_verdicts.Request],
    models: Mapping[str, Mapping[str, audit_verdicts.Models]],
    margins: Mapping[str, Any],
    family: Sequence[str],
    speaker: Speaker,
) -> dict[str, dict[str, Any]]:
    """Label -> verdict, evidence, sentence and corrected p as a record has to have them.

    evidences: as `audit_verdicts.expected_evidence` gives them. requests: by view; models: label -> view ->
    tables of its training seeds. family: labels that Holm corrects together. speaker: says the words.
    """
    words = audit_verdicts.expected_words(
        {label: {**item, "margins": margins} for label, item in evidences.items()}, list(family)
    )
    found = {}
    for label, evidence in evidences.items():
        word, p = words[label]
        said = speaker.of(label, evidence)
        found[label] = {
            "verdict": Later(word),
            "evidence": Later(
                _whole(
                    evidence,
                    {**margins, "loss": Later(margins["loss"])},
                    {name: len(set(request.units) - {""}) for name, request in requests.items()},
                    {name: _levels(requests[name], models[label][name]) for name in ("F", "G")},
                    texts=said.conditions,
                    missing=said.missing,
                )
            ),
            "sentence": Later(Words(said.sentence)),
            "verdict_p": Later(value(p)),
        }
    return found


def _levels(request: audit_verdicts.Request, models: audit_verdicts.Models) -> dict[str, float]:
    """Mean probability of the right answer, by role."""
    rows = np.arange(len(request.gold))
    groups = {"full": request.fulls, "oracle": request.oracles, "unlearned": models}
    return {
        role: float(np.mean([table[rows, request.gold].mean() for table in tables]))
        for role, tables in groups.items()
        if tables
    }


def _whole(
    made: Mapping[str, Any],
    margins: Mapping[str, Any],
    units: Mapping[str, int],
    levels: Mapping[str, Mapping[str, float]],
    *,
    texts: Sequence[Any],
    missing: Any,
) -> dict[str, Any]:
    """The record of evidence. units: view -> how many there are; levels: view -> role -> mean probability of
    the right answer. texts, missing: what conditions and the list of what is missing say."""
    seeds, draws = made["seeds"], made["draws"]
    sides = [_side(view, seeds, draws, units, levels) for view in made["views"]]
    # Without a retrained model there is nothing to judge, and the rest of the record is empty.
    judged = bool(made["views"])
    return {
        "rule": RULE,
        "margins": margins,
        "seeds": seeds,
        "draws": draws,
        "views": sides,
        "retained": _retained(made["retained"], seeds, draws),
        "other_retained": Later([]),
        "units": [_unit(item) for item in made["units"]] if judged else [],
        "units_judged": made["units_judged"] if judged else 0,
        "worst_rows": [
            {**_unit(item), "name": "the tenth of the rows that keeps most"} for item in made["worst_rows"]
        ]
        if judged
        else [],
        "conditions": [
            {"name": name, "holds": holds, "text": Words(told)}
            for (name, holds), told in zip(made.get("holds", []), texts, strict=True)
        ],
        "missing": Words(missing),
        "away": made["away"] if judged else [],
        "overshoot": made["overshoot"] if judged else [],
        "nothing_to_undo": made["nothing_to_undo"] if judged else [],
        "share": value(made["share"]) if judged else UNDEFINED,
        "probes": Later([_probe(item, seeds, draws) for item in made.get("probes", [])]),
    }


def value(found: Any) -> Any:
    """A value of the audit's own arithmetic as a record has to have it."""
    if isinstance(found, str) and found == audit_verdicts.UNDEFINED:
        return UNDEFINED
    if isinstance(found, float):
        return Near(found, audit_verdicts.ROUNDING * max(1.0, abs(found)))
    return found


def _bounded(
    found: Mapping[str, Any],
    view: str,
    seeds: Mapping[str, int],
    draws: int,
    roles: Sequence[str],
    *,
    kind: str = ROWS,
    note: str = "",
) -> dict[str, Any]:
    """roles: those whose training seeds the quantity depends on, in the order in which they are named."""
    counts = ", ".join(f"{seeds[role]} {role}" for role in roles)
    drawn = (draws, audit_verdicts.SEEDS[view])
    return {
        "value": value(found["value"]),
        "these_models": _interval(
            found["these_models"],
            kind,
            f"{THESE}, {note}" if note else THESE,
            *(drawn if kind == ROWS else (0, 0)),
        ),
        "other_trainings": _interval(
            found["other_trainings"], SEEDS, f"other trainings and other rows; seeds: {counts}", *drawn
        ),
        "lower": value(found["lower"]),
        "upper": value(found["upper"]),
    }


def _interval(ends: Any, kind: str, condition: str, draws: int, seed: int) -> Any:
    if not isinstance(ends, list):
        return UNDEFINED
    return {
        "low": value(ends[0]),
        "high": value(ends[1]),
        "kind": kind,
        "level": 0.95,
        "draws": draws,
        "seed": seed,
        "condition": condition,
    }


def _side(
    view: Mapping[str, Any],
    seeds: Mapping[str, int],
    draws: int,
    units: Mapping[str, int],
    levels: Mapping[str, Mapping[str, float]],
) -> dict[str, Any]:
    name = view["view"]

    def of(key: str, *roles: str, note: str = "") -> dict[str, Any]:
        return _bounded(view[key], name, seeds, draws, roles, note=note)

    return {
        "view": name,
        "rows": view["rows"],
        "units": units[name],
        "distance": of("distance", "oracle", "unlearned"),
        "displacement": of("displacement", "oracle", "full"),
        "spread": value(view["spread"]),
        "excess": of("excess", "oracle", "unlearned"),
        "margin": value(view["margin"]),
        "full_excess": of("full_excess", "oracle", "full"),
        "visible": value(view["visible"]),
        "memory": of("memory", "oracle", "full", "unlearned", note=ONE if seeds["oracle"] == 1 else ""),
        "gain": of("gain", "oracle", "full", "unlearned"),
        "gain_p": value(view["gain_p"]),
        "least_gain": value(view["least_gain"]),
        "progress": value(view["progress"]),
        "ceiling": value(view["ceiling"]),
        "moved_away": value(view["moved_away"]),
        "levels": Later({role: value(level) for role, level in levels[name].items()}),
    }


def _retained(found: Mapping[str, Any], seeds: Mapping[str, int], draws: int) -> dict[str, Any]:
    roles = ("full", "unlearned")
    calibration = found["calibration"]
    return {
        "name": Later(""),
        "rows": found["rows"],
        "measure": Later("accuracy"),
        "model": value(found["model"]),
        "full": value(found["full"]),
        "oracle": value(found["oracle"]),
        "change": _bounded(found["change"], "R", seeds, draws, roles, kind=NEWCOMBE),
        "retraining": value(found["retraining"]),
        "calibration": {
            "bins": 10,
            "model": value(calibration["model"]),
            "full": value(calibration["full"]),
            "change": _bounded(calibration["change"], "R", seeds, draws, roles, kind=CALIBRATION),
        },
        "excess": _bounded(found["excess"], "R", seeds, draws, ("oracle", "unlearned")),
        "harm": found["harm"],
        "harmed_by": found["harmed_by"],
    }


def _unit(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "view": found["view"],
        "name": found.get("name", ""),
        "rows": found["rows"],
        "memory": value(found["memory"]),
        "lower": value(found["lower"]),
    }


def _probe(found: Mapping[str, Any], seeds: Mapping[str, int], draws: int) -> dict[str, Any]:
    note = ONE if seeds["oracle"] == 1 else ""
    return {
        "name": found["name"],
        "memory": {
            view: _bounded(memory, view, seeds, draws, ("oracle", "full", "unlearned"), note=note)
            for view, memory in found["memory"].items()
        },
        "holds": found["holds"],
    }
