"""What a study's file says of grids, as the settings that tuning tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vestige.contracts import Objective
from vestige.errors import InputError, did_you_mean
from vestige.study.plan import Plan, checked
from vestige.study.tuning_rules import grid_points

__all__ = ["tried_settings"]


def tried_settings(
    plan: Plan, objective: Objective
) -> tuple[dict[str, tuple[Any, ...]], tuple[dict[str, Any], ...]]:
    """(values of each field, settings of each point) of a method: its own grid with the plan's on top.

    Raises InputError for a field that the method does not have, a field without values, values that the
    settings do not take, and epochs in a grid.
    """
    place = f"{plan.source}: tuning.grid.{objective.name}"
    own: Mapping[str, Sequence[Any]] = plan.tuning.grid.get(objective.name, {})
    for field, values in own.items():
        if field not in objective.settings.model_fields:
            raise InputError(
                place,
                f"unknown setting '{field}'",
                f"a setting of {objective.title}",
                did_you_mean(field, objective.settings.model_fields),
            )
        if field == "epochs" or not values:
            raise InputError(
                f"{place}.{field}",
                "epochs in a grid" if field == "epochs" else "an empty list",
                "at least one value of another setting",
                "every epoch up to tuning.epochs is a candidate already",
            )
    raw = {**objective.grid, **own}
    more = {} if objective.post_hoc else {"epochs": plan.tuning.epochs}
    points = tuple(
        checked(objective.settings, {**point, **more}, place).model_dump(mode="json")
        for point in grid_points(raw)
    )
    # Values as the settings understand them: "1e-4" in a file is the number.
    grid = {field: tuple(dict.fromkeys(point[field] for point in points)) for field in sorted(raw)}
    return grid, points
