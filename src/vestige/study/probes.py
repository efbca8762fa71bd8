"""Asking finished models in other ways: options under codes, or under other texts. No torch.

A model that lies where retraining lies only under the names it was trained with has not forgotten; it was
taught not to say a name. Every model of a cell is asked alike, so memory keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from vestige.decision.schema import Option, Schema
from vestige.errors import InputError, first_five
from vestige.study.cells import Node, Setting, predictions_node

__all__ = ["SCHEMA_PROBES", "ProbeNodes", "SchemaProbe", "probe_schema", "probe_table", "probed"]

SchemaProbe = Literal["renaming", "paraphrase"]
SCHEMA_PROBES: tuple[SchemaProbe, ...] = ("renaming", "paraphrase")
"""Probes that need new forward passes; `temperature` is made of the probabilities that are there."""
MAP_SEED = 7919
"""Of the codes of the renaming probe: another than a study's own map is likely to have."""


@dataclass(frozen=True)
class ProbeNodes:
    """Probabilities of a cell's models asked in another way: by training seed, and by label."""

    fulls: Mapping[int, Node]
    oracles: Mapping[int, Node]
    unlearned: Mapping[str, Node] = field(default_factory=dict)


def probe_schema(setting: Setting, probe: SchemaProbe) -> Schema:
    """The study's options as the probe shows them.

    renaming: one fixed code for each option. paraphrase: the plan's `synonyms`, else the option's description
    alone, else its name alone where the model reads more than that. Raises InputError for options that have
    no other text.
    """
    shown = setting.schema
    if probe == "renaming":
        seed = MAP_SEED if setting.plan.map_seed != MAP_SEED else MAP_SEED + 1
        return Schema(shown.options, "opaque", seed)
    options, without = [], []
    for option in shown.options:
        other = setting.plan.synonyms.get(option.id) or option.description
        if not other.strip() or Option(option.id, other).text == option.text:
            without.append(option.id)
            continue
        options.append(Option(option.id, other))
    if without:
        raise InputError(
            f"{setting.plan.source}: probes: paraphrase",
            f"no other text for option {first_five(without)}",
            "a description of every option, or synonyms",
            "add synonyms: {option: other words}, or leave the probe out",
        )
    return Schema(tuple(options))


def probe_table(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that a probe asks: F and G of a view table. Harm is judged as the model is used."""
    return table[table["view"] != "R"].reset_index(drop=True)


def probed(setting: Setting, model: Node, table: pd.DataFrame, bundle: str, probe: SchemaProbe) -> Node:
    """The probabilities of a model on F and G under a probe."""
    return predictions_node(
        setting, model, probe_table(table), "probe", bundle, asked=(probe, probe_schema(setting, probe))
    )
