"""The words that follow from numbers: conditions, what is missing, sentences and caveats, said again.

A sentence is no arithmetic: the audit recomputes every number with its own, and then has the product's own
sentences made of the recorded evidence, so that no other sentence can stand beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vestige.attacks.records import SETTINGS_CAVEAT
from vestige.contracts import Assessment, Evidence, Undefined, UnitEvidence
from vestige.decision.predictions import Predictions
from vestige.study.audit_compare import text, texts
from vestige.study.audit_numbers import Table
from vestige.study.caveats import Circumstances, caveats, notices
from vestige.study.recovery import CAVEATS
from vestige.verdict.rule import conditions_of, judge_model
from vestige.verdict.sentence import sentence

__all__ = ["RECOVERY", "SETTINGS", "Circumstances", "Said", "Speaker", "caveats_of", "notices"]

UNDEFINED = Undefined(undefined="")
RECOVERY = CAVEATS
"""Caveats of every recovery record."""
SETTINGS = SETTINGS_CAVEAT
"""Caveat of what is pooled over settings of a recovery."""


@dataclass(frozen=True)
class Said:
    """Texts of the conditions, what is missing and the sentence of one verdict."""

    conditions: Sequence[Any]
    missing: Any
    sentence: Any


@dataclass(frozen=True)
class Speaker:
    """Says the words of the verdicts in one record again. assessment: the record that counts rows and names
    the kind of unit; models: label -> the entry of each model under test."""

    assessment: Mapping[str, Any]
    models: Mapping[str, Any]

    def of(self, label: str, expected: Mapping[str, Any]) -> Said:
        """What the recorded evidence on a model says; the form alone where no sentence can be made of it,
        whose numbers then say where it is wrong. expected: the audit's own evidence."""
        held = len(expected.get("holds", []))
        if label in self.models:
            try:
                said = _said(self.models[label], self.assessment, expected.get("judged", []))
            except (ValueError, KeyError, TypeError, AttributeError, AssertionError):
                pass
            else:
                if len(said.conditions) == held:
                    return said
        return Said([text] * held, texts, text)


def _said(
    model: Mapping[str, Any], assessment: Mapping[str, Any], units: Sequence[Mapping[str, Any]]
) -> Said:
    """units: every unit, as the audit's own arithmetic has it; the record lists five."""
    evidence = Evidence.model_validate(model["evidence"])
    judged = [
        UnitEvidence(
            view=item["view"],
            name=item["name"],
            rows=item["rows"],
            memory=item["memory"] if isinstance(item["memory"], float) else UNDEFINED,
            lower=item["lower"] if isinstance(item["lower"], float) else UNDEFINED,
        )
        for item in units
    ]
    found = conditions_of(evidence, judged)
    p = model["verdict_p"]
    bare = evidence.model_copy(update={"missing": evidence.missing if not evidence.views else ()})
    bare = bare.model_copy(update={"conditions": found})
    word, whole = judge_model(bare, gain_p=p if isinstance(p, float) else UNDEFINED)
    record = Assessment.model_validate(assessment)
    told = sentence(
        word,
        whole,
        label=model["label"],
        counts={item.view: item for item in record.views if item.view != "R"},
        unit_kind=record.unit_kind,
    )
    return Said([item.text for item in found], list(whole.missing), told)


def caveats_of(
    assessment: Mapping[str, Any], tables: Mapping[str, Table], exceptions: Sequence[str]
) -> tuple[str, ...]:
    """The caveats that an assessment has to carry. tables: by label, the full model first."""
    record = Assessment.model_validate(assessment)
    return caveats(
        record, [_predictions(label, table) for label, table in tables.items()], exceptions=exceptions
    )


def _predictions(label: str, table: Table) -> Predictions:
    row_ids, view, unit, gold = (
        np.array(values, dtype=object) for values in (table.row_ids, table.view, table.unit, table.gold)
    )
    return Predictions(
        label=label,
        row_ids=row_ids,
        view=view,
        unit=unit,
        gold=gold,
        options=tuple(table.options),
        p=table.p,
        max_sum_deviation=table.off,
    )
