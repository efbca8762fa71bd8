"""Verdicts on the models of a comparison: from prediction tables to word, evidence and sentence. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vestige.contracts import Evidence, Margins, ModelAssessment, Undefined, Verdict, View, ViewCount
from vestige.decision.predictions import Predictions
from vestige.metrics.accuracy import correct
from vestige.verdict.evidence import Retained, Side
from vestige.verdict.quantities import at_temperature, view_table
from vestige.verdict.rule import gather, say, with_levels, with_probes
from vestige.verdict.sentence import sentence

__all__ = ["TEMPERATURES", "Group", "Judged", "verdicts_of", "with_verdicts"]

TEMPERATURES = (0.5, 2.0, 5.0)
"""Softmax temperatures of the probe of that name."""
DELETED_VIEWS: tuple[View, ...] = ("F", "G")


@dataclass(frozen=True)
class Group:
    """The models of a comparison, aligned. unlearned: label -> the tables of its training seeds.

    Models of a role are put in the order of their hashes, so that no number depends on how they were given.
    """

    fulls: Sequence[Predictions]
    oracles: Sequence[Predictions]
    unlearned: Mapping[str, Sequence[Predictions]]

    def __post_init__(self) -> None:
        for name in ("fulls", "oracles"):
            object.__setattr__(self, name, sorted(getattr(self, name), key=lambda table: table.sha256))
        seeds = {
            label: sorted(tables, key=lambda table: table.sha256) for label, tables in self.unlearned.items()
        }
        object.__setattr__(self, "unlearned", seeds)

    @property
    def in_order(self) -> list[Predictions]:
        """Every table, at the place that it has in a `ViewTable`."""
        return [*self.fulls, *self.oracles, *(table for seeds in self.unlearned.values() for table in seeds)]

    def side(self, view: View, draws: int, temperature: float = 1.0) -> Side:
        """One view of all models, each at this softmax temperature."""

        def p(table: Predictions) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
            here = table.of_view(view).p
            return here if temperature == 1.0 else at_temperature(here, temperature)

        return Side(
            view=view,
            table=view_table(
                fulls=[p(table) for table in self.fulls],
                oracles=[p(table) for table in self.oracles],
                unlearned={label: [p(table) for table in seeds] for label, seeds in self.unlearned.items()},
                units=np.asarray(self.fulls[0].of_view(view).unit, dtype=np.str_),
            ),
            draws=draws,
        )


@dataclass(frozen=True)
class Judged:
    """A verdict on one model or method. p: one-sided, of no gain, corrected within the family."""

    verdict: Verdict
    evidence: Evidence
    p: float | Undefined
    sentence: str


def verdicts_of(
    group: Group,
    *,
    forgotten: Sequence[str],
    family: Sequence[str],
    margins: Margins,
    draws: int,
    unit_kind: str,
    counts: Mapping[View, ViewCount],
    probes: Mapping[str, Group],
    temperatures: Sequence[float] = (),
) -> dict[str, Judged]:
    """Label -> verdict with evidence and sentence, of every model under test.

    family: labels whose p-values Holm corrects together. counts: rows and units of F and G. probes: name ->
    the same models asked in another way, on F and G. temperatures: further probes, made of the group's own
    probabilities.
    """
    sides = {view: group.side(view, draws) for view in (*DELETED_VIEWS, "R")}
    models = sides["R"].table.models
    asked = {
        **{name: [made.side(view, draws) for view in DELETED_VIEWS] for name, made in probes.items()},
        **{
            f"temperature {temperature:g}": [group.side(view, draws, temperature) for view in DELETED_VIEWS]
            for temperature in temperatures
        },
    }
    rest = [table.of_view("R") for table in group.in_order]
    retained = Retained(
        side=sides["R"],
        right=np.array([correct(table.p, table.gold_index) for table in rest]),
        confidence=np.array([table.p.max(axis=1) for table in rest]),
    )
    gold = {view: [_gold_probability(table, view) for table in group.in_order] for view in DELETED_VIEWS}
    names = {option: option for option in forgotten}
    evidences: dict[str, Evidence] = {}
    for label, places in models.unlearned.items():
        made = gather([sides[view] for view in DELETED_VIEWS], retained, places, margins, names)
        made = with_levels(made, gold, models, places)
        evidences[label] = with_probes(made, asked, label) if group.oracles else made
    return {
        label: Judged(word, found, p, sentence(word, found, label=label, counts=counts, unit_kind=unit_kind))
        for label, (word, found, p) in say(evidences, family).items()
    }


def with_verdicts(models: Sequence[ModelAssessment], found: Mapping[str, Judged]) -> list[ModelAssessment]:
    """The models with word, evidence and sentence added to those under test."""
    done = []
    for model in models:
        if model.role == "unlearned":
            own = found[model.label]
            update = {
                "verdict": own.verdict,
                "evidence": own.evidence,
                "verdict_p": own.p,
                "sentence": own.sentence,
            }
            model = model.model_copy(update=update)
        done.append(model)
    return done


def _gold_probability(table: Predictions, view: View) -> float:
    here = table.of_view(view)
    return float(here.p[np.arange(len(here)), here.gold_index].mean())
