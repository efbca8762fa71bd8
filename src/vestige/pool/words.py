"""The word that the product says of every family, panel by panel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vestige.contracts import View
from vestige.pool.answers import Said, name_of
from vestige.pool.contents import Outputs
from vestige.pool.families import DELETED_VIEWS, FAMILIES, Family, Made
from vestige.pool.judging import evidence_of, judged, sides_of
from vestige.pool.panels import Panel
from vestige.verdict.quantities import view_table
from vestige.verdict.rule import judge_model, with_probes

__all__ = ["PROBED", "families_of", "probed", "say_all", "truths"]

PROBED = {
    False: "a wrapper, right under the options' names alone",
    True: "a wrapper, asked by description too",
}
"""The full model behind a wrapper that gives a retrained model's outputs under the options' names."""


def families_of(panel: Panel, families: Sequence[Family] = FAMILIES) -> dict[str, Made]:
    """The families that this panel has."""
    made = {family.name: family.make(panel) for family in families}
    return {name: model for name, model in made.items() if model is not None}


@dataclass(frozen=True)
class Truth:
    """What all models of the pool show of one model, by view."""

    memory: dict[View, float]
    excess: dict[View, float]
    visible: dict[View, bool]


def truths(panel: Panel, tested: dict[str, Made]) -> dict[str, Truth]:
    """Memory and excess of every model against all oracles of the pool but the panel's retrained one.

    A view is visible where the full models exceed the oracles' spread by a half of it.
    """
    oracles = [model for place, model in enumerate(panel.all_oracles) if place != panel.held]
    found = {name: Truth({}, {}, {}) for name in tested}
    for view in DELETED_VIEWS:
        table = view_table(
            fulls=[model[view] for model in panel.all_fulls],
            oracles=[model[view] for model in oracles],
            unlearned={name: [model[view] for model in made.seeds] for name, made in tested.items()},
            units=np.asarray(panel.deletion.units[view]),
        )
        moved = float(table.excess(table.models.fulls).mean()) > float(table.spread().mean()) / 2
        for name, places in table.models.unlearned.items():
            if not np.isnan(memory := table.memory(places)):
                found[name].memory[view] = memory
            found[name].excess[view] = float(table.excess(places).mean())
            found[name].visible[view] = moved
    return found


def say_all(panel: Panel, *, draws: int, families: Sequence[Family] = FAMILIES) -> list[Said]:
    """The verdict on each family in one panel."""
    tested = families_of(panel, families)
    truth = truths(panel, tested)
    models = {name: made.seeds for name, made in tested.items()}
    found = judged(panel.deletion, panel.fulls, panel.oracles, models, draws=draws)
    known = {family.name: family for family in families}
    return [
        Said(
            deletion=panel.deletion.key,
            oracles=len(panel.oracle_places),
            family=name,
            truth=known[name].truth,
            cluster=name_of(made.cluster),
            word=found[name][0],
            memory=truth[name].memory,
            excess=truth[name].excess,
            visible=truth[name].visible,
            nominal=known[name].memory,
        )
        for name, made in tested.items()
    ]


def probed(panel: Panel, *, draws: int) -> Iterator[Said]:
    """The words about the wrapper and about a retrained model, each without and with the probe that asks for
    the options by their descriptions."""
    key = panel.deletion.key
    fulls, oracles = (panel.pool.described(key, role) for role in ("full", "oracle"))
    named = {"wrapper": panel.retrained, "retrained": panel.retrained}
    told = {"wrapper": fulls[panel.full_places[0]], "retrained": oracles[panel.held]}
    evidences = evidence_of(
        panel.deletion,
        panel.fulls,
        panel.oracles,
        {name: [model] for name, model in named.items()},
        draws=draws,
    )
    asked: dict[str, list[Outputs]] = {name: [model] for name, model in told.items()}
    sides, _ = sides_of(
        panel.deletion,
        [fulls[place] for place in panel.full_places],
        [oracles[place] for place in panel.oracle_places],
        asked,
        draws=draws,
    )
    for name, evidence in evidences.items():
        both = with_probes(evidence, {"descriptions": sides}, name)
        for probe, shown in ((False, evidence), (True, both)):
            label = PROBED[probe] if name == "wrapper" else f"retrained{', asked by description too' * probe}"
            yield Said(
                deletion=key,
                oracles=len(panel.oracle_places),
                family=label,
                truth="hidden" if name == "wrapper" else "retrained",
                cluster=name_of(panel.held),
                word=judge_model(shown)[0],
                memory={},
                excess={},
                visible={},
                nominal=1.0 if name == "wrapper" else 0.0,
            )
