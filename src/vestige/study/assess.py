"""From aligned prediction tables to the assessment: every metric, interval, test and decision. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from vestige.contracts import (
    Assessment,
    Estimate,
    Margins,
    MethodComparison,
    ModelAssessment,
    Record,
    Undefined,
    View,
    ViewCount,
)
from vestige.decision.predictions import Predictions, align
from vestige.deletion.gates import intervention_gate
from vestige.errors import InputError, first_five, shown
from vestige.limits import MOST_DRAWS
from vestige.metrics.noise import NoiseFloor
from vestige.statistics.bootstrap import (
    DRAWS,
    ROW_SEEDS,
    UNIT_SEED_OFFSET,
    BootstrapResult,
    estimate,
    minimum_detectable,
)
from vestige.statistics.multiplicity import holm
from vestige.study.caveats import caveats
from vestige.study.judge import DELETED_VIEWS, NO_ORACLE, VIEWS, WITHIN_NOISE, estimated, is_feasible, judge
from vestige.study.measure import BOTH_VIEWS, Measured, ModelRows, Role, ViewRows, measure_both, measure_view
from vestige.study.verdicts import TEMPERATURES, Group, verdicts_of, with_verdicts

__all__ = ["NO_ORACLE", "WITHIN_NOISE", "AssessSettings", "assess", "is_feasible"]


Compared = tuple[str, str, Sequence[Predictions]]
"""Label, role and the tables of a model's training seeds."""


class AssessSettings(Record):
    """How to assess. draws: B of every bootstrap. unit_kind: what a unit is ("class", "association", "row", a
    column's name). exceptions: gate exceptions to state, one sentence each. margins: what counts as small
    in the verdict, set before results are seen. probes: further ways of asking that need no model.
    candidates: the candidate set; utility: under another set than S0, by label, `delta_accuracy` and
    `delta_ece` under S0, which feasibility is always judged on.
    """

    draws: int = Field(DRAWS, ge=1, le=MOST_DRAWS)
    unit_kind: str = "class"
    exceptions: tuple[str, ...] = ()
    candidates: str = "S0"
    margins: Margins = Field(default_factory=Margins)
    probes: tuple[Literal["temperature"], ...] = ()
    utility: dict[str, dict[str, float | Undefined]] = Field(default_factory=dict)


def assess(
    *,
    name: str,
    fulls: Sequence[Predictions],
    unlearned: Mapping[str, Predictions | Sequence[Predictions]],
    oracles: Sequence[Predictions] = (),
    forgotten: Sequence[str] = (),
    settings: AssessSettings | None = None,
    condition: str,
    stage: str = "own predictions",
    methods: Mapping[str, tuple[str, bool]] | None = None,
    family: Sequence[str] = (),
    provenance: Mapping[str, Any] | None = None,
    probes: Mapping[str, Group] | None = None,
) -> Assessment:
    """Assess unlearned models against a full model and, where given, an oracle.

    fulls, oracles: all of them enter the verdict alike, whatever their order. The published rule compares one
    pair, the first full model with the first oracle, and takes the others for its noise floors. unlearned:
    tables by label, one or one for each training seed. forgotten: names of the deleted options, none for
    custom deletions. condition: what every interval is conditional on. methods: label -> (method, whether it
    is a control). family: labels whose p-values Holm corrects together. provenance: hashes, counts and
    settings; never texts. probes: name -> the same models on F and G, asked in another way (options under
    other names, say). Raises InputError: tables that do not align, an empty view, a forgotten option without
    rows, an unknown label.
    """
    settings = settings or AssessSettings()
    methods = methods or {}
    forgotten = tuple(sorted(set(forgotten)))
    tested = {
        label: [given] if isinstance(given, Predictions) else sorted(given, key=lambda table: table.sha256)
        for label, given in unlearned.items()
    }
    tables = _checked(fulls, tested, oracles, forgotten, family)
    models: list[Compared] = [(fulls[0].label, "full", fulls[:1])]
    models += [(label, "unlearned", seeds) for label, seeds in tested.items()]
    models += [(oracles[0].label, "oracle", oracles[:1])] if oracles else []
    rows = {view: _view_rows(view, fulls, oracles, models, forgotten) for view in VIEWS}
    measured: dict[str, Measured] = {view: measure_view(rows[view], draws=settings.draws) for view in VIEWS}
    measured[BOTH_VIEWS] = measure_both(rows["F"], rows["G"], draws=settings.draws)

    floors = _floors(rows)
    start = {view: measured[view].row.get((0, "displacement")) for view in DELETED_VIEWS}
    gate = _gate(start, rows)
    judged = [
        judge(
            label,
            role,
            place,
            table=seeds[0],
            rows=rows,
            measured=measured,
            forgotten=forgotten,
            condition=condition,
            gate=gate,
            method=methods.get(label, ("", False)),
            utility=settings.utility.get(label, {}) if role == "unlearned" else {},
        )
        for place, (label, role, seeds) in enumerate(models)
    ]
    found = verdicts_of(
        Group(fulls, oracles, tested),
        forgotten=forgotten,
        family=family,
        margins=settings.margins,
        draws=settings.draws,
        unit_kind=settings.unit_kind,
        counts={view: _count(fulls[0], view) for view in DELETED_VIEWS},
        probes=probes or {},
        temperatures=TEMPERATURES if "temperature" in settings.probes else (),
    )
    judged = with_verdicts(judged, found)
    assessment = Assessment(
        name=name,
        stage=stage,
        condition=condition,
        options=len(fulls[0].options),
        candidates=settings.candidates,
        forgotten=forgotten,
        unit_kind=settings.unit_kind,
        views=tuple(_count(fulls[0], view) for view in VIEWS),
        has_oracle=bool(oracles),
        draws=settings.draws,
        seeds={
            **ROW_SEEDS,
            **{f"unit {view}": ROW_SEEDS[view] + UNIT_SEED_OFFSET for view in DELETED_VIEWS},
        },
        sources=tuple(
            table.source(role)
            for role, group in (("full", fulls), ("unlearned", _labelled(tested)), ("oracle", oracles))
            for table in group
        ),
        noise=_noise(floors, measured, condition),
        noise_pairs={
            "noise_full": rows["F"].noise_full.pairs,
            "noise_oracle": rows["F"].noise_oracle.pairs,
        },
        noise_over_seeds={key: floor.over_seeds("these rows") for key, floor in floors.items()},
        intervention_gate=gate,
        minimum_detectable_gain=_minimum_detectable(measured, models),
        models=tuple(_corrected(judged, family)),
        comparisons=tuple(_comparisons(measured, models, condition)),
        family=tuple(family),
        provenance=dict(provenance or {}),
    )
    return assessment.model_copy(
        update={"caveats": caveats(assessment, tables, exceptions=settings.exceptions)}
    )


def _labelled(tested: Mapping[str, Sequence[Predictions]]) -> list[Predictions]:
    """Every table under its model's label; several seeds are told apart by a number."""
    return [
        table.named(label if len(seeds) == 1 else f"{label} (seed {number} of {len(seeds)})")
        for label, seeds in tested.items()
        for number, table in enumerate(seeds, start=1)
    ]


def _checked(
    fulls: Sequence[Predictions],
    unlearned: Mapping[str, Sequence[Predictions]],
    oracles: Sequence[Predictions],
    forgotten: Sequence[str],
    family: Sequence[str],
) -> list[Predictions]:
    """All tables, aligned. Raises InputError."""
    if not fulls:
        raise InputError("comparison", "no full model", "at least one", "give the model before unlearning")
    tables = align([*fulls, *_labelled(unlearned), *oracles])
    labels = [fulls[0].label, *unlearned, *(oracle.label for oracle in oracles[:1])]
    repeated = sorted({label for label in labels if labels.count(label) > 1})
    if repeated:
        raise InputError(
            "comparison",
            f"label {first_five(repeated)} on two models",
            "one label a model",
            "rename one of them",
        )
    unknown = [label for label in family if label not in unlearned]
    if unknown:
        raise InputError(
            "family",
            f"{first_five(unknown)}",
            "labels of the compared unlearned models",
            "compare them together",
        )
    first = fulls[0]
    for view in VIEWS:
        if not (first.view == view).any():
            raise InputError(
                first.path or first.label,
                f"an empty view {view}",
                "rows in each of F, G and R",
                "add deleted training rows (F), unseen rows of the deleted units (G), all other rows (R)",
            )
    _check_forgotten(first, forgotten)
    return tables


def _check_forgotten(first: Predictions, forgotten: Sequence[str]) -> None:
    if not forgotten:
        return
    first.mask(forgotten)
    if len(forgotten) >= len(first.options):
        raise InputError(
            first.path or first.label,
            "every option forgotten",
            "at least one retained option",
            "check --forget",
        )
    for view in DELETED_VIEWS:
        gold = first.gold[first.view == view]
        absent = sorted(set(forgotten) - set(gold))
        if absent:
            raise InputError(
                first.path or first.label,
                f"no {view} rows of forgotten option {first_five(absent)}",
                "F and G rows of each forgotten option",
                "check the option's spelling and the view column",
            )
        others = sorted(set(gold) - set(forgotten))
        if others:
            raise InputError(
                first.path or first.label,
                f"{view} rows of option {first_five(others)}, not named as forgotten",
                "F and G rows of forgotten options only",
                f"add it to --forget, or move its rows to R (for example {shown(others[0])})",
            )


def _view_rows(
    view: View,
    fulls: Sequence[Predictions],
    oracles: Sequence[Predictions],
    models: Sequence[Compared],
    forgotten: Sequence[str],
) -> ViewRows:
    first = fulls[0]
    here = first.of_view(view)
    order = {unit: f"{place:08d}" for place, unit in enumerate(sorted(set(first.unit)))}
    every = (*fulls, *oracles, *(table for _, _, seeds in models for table in seeds))
    tables = {id(table): table.of_view(view).p for table in every}
    return ViewRows(
        view=view,
        fulls=[tables[id(table)] for table in fulls],
        oracles=[tables[id(table)] for table in oracles],
        gold=here.gold_index,
        forgotten=first.mask(forgotten) if forgotten else None,
        # Ranks, not names: short whatever the names are, and in the same order.
        units=np.array([order[unit] for unit in here.unit], dtype=np.str_),
        models=[
            ModelRows(role=_role(role), seeds=[tables[id(table)] for table in seeds])
            for _, role, seeds in models
        ],
    )


def _role(role: str) -> Role:
    return role  # type: ignore[return-value]


def _count(table: Predictions, view: View) -> ViewCount:
    here = table.view == view
    return ViewCount(view=view, rows=int(here.sum()), units=len({unit for unit in table.unit[here] if unit}))


def _floors(rows: Mapping[View, ViewRows]) -> dict[str, NoiseFloor]:
    """`noise_full.F`, `noise_oracle.G`, ...: what training alone moves."""
    return {
        f"{name}.{view}": floor
        for view in VIEWS
        for name, floor in (
            ("noise_full", rows[view].noise_full),
            ("noise_oracle", rows[view].noise_oracle),
        )
    }


def _noise(
    floors: Mapping[str, NoiseFloor], measured: Mapping[str, Measured], condition: str
) -> dict[str, Estimate]:
    found: dict[str, Estimate] = {}
    for key, floor in floors.items():
        name, _, view = key.partition(".")
        if floor.terms is None:
            reason = floor.value
            if name == "noise_oracle" and not floor.models:
                reason = Undefined(undefined=NO_ORACLE)
            found[key] = Estimate(value=reason)
        else:
            found[key] = estimated(measured[view], (-1, name), condition)
    return found


def _gate(start: Mapping[View, BootstrapResult | None], rows: Mapping[View, ViewRows]) -> str:
    f, g = start["F"], start["G"]
    if f is None or g is None:
        return "gate not run"
    return intervention_gate(f.estimate, g.estimate, rows["F"].noise_full.value, rows["G"].noise_full.value)


def _corrected(judged: Sequence[ModelAssessment], family: Sequence[str]) -> list[ModelAssessment]:
    """Add Holm's p over the family, where its p-values exist."""
    p_values = {model.label: model.p_value.get("both") for model in judged if model.label in set(family)}
    known = {label: p for label, p in p_values.items() if isinstance(p, float)}
    adjusted = holm(known) if known else {}
    return [
        model.model_copy(update={"p_value": {**model.p_value, "holm": adjusted[model.label]}})
        if model.label in adjusted
        else model
        for model in judged
    ]


def _minimum_detectable(
    measured: Mapping[str, Measured], models: Sequence[Compared]
) -> dict[str, float | Undefined]:
    """The largest over the compared models: a gain of this size would be found for each of them."""
    found: dict[str, float | Undefined] = {}
    for view in DELETED_VIEWS:
        values = [
            minimum_detectable(measured[view].row[place, "gain"])
            for place, (_, role, _) in enumerate(models)
            if role == "unlearned" and (place, "gain") in measured[view].row
        ]
        undefined = next((value for value in values if isinstance(value, Undefined)), None)
        if not values:
            found[view] = Undefined(undefined=NO_ORACLE)
        else:
            found[view] = undefined or max(value for value in values if not isinstance(value, Undefined))
    return found


def _comparisons(
    measured: Mapping[str, Measured], models: Sequence[Compared], condition: str
) -> list[MethodComparison]:
    return [
        MethodComparison(
            first=models[first][0],
            second=models[second][0],
            view=view,
            difference=estimate(row, unit, condition=condition),
        )
        for view in DELETED_VIEWS
        for (first, second), (row, unit) in measured[view].differences.items()
    ]
