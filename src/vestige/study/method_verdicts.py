"""The verdict on a method from all its training seeds of one request. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vestige.contracts import Assessment, Margins, ModelAssessment
from vestige.decision.predictions import Predictions
from vestige.study.cells import Node
from vestige.study.evaluate import Cell
from vestige.study.store import Store
from vestige.study.summary_records import MethodVerdict
from vestige.study.verdicts import TEMPERATURES, Group, verdicts_of
from vestige.study.work import load_node_predictions

__all__ = ["method_verdicts"]

Seeds = Mapping[str, Mapping[int, Node]]
"""Label -> training seed -> probabilities."""


def method_verdicts(
    cells: Sequence[Cell],
    tables: Mapping[str, Predictions],
    models: Mapping[str, ModelAssessment],
    assessments: Mapping[str, Assessment],
    store: Store,
    *,
    draws: int,
    margins: Margins,
    temperature: bool,
) -> list[MethodVerdict]:
    """Verdicts on the methods that one bundle's cells evaluate at two training seeds or more.

    tables: by key of their node. models: label -> one of its assessments. The models of all cells enter
    alike; Holm's correction runs over the family of these cells' assessments.
    """
    cells = [cell for cell in cells if _against_oracle(assessments.get(cell.assessment))]
    records = [assessments[cell.assessment] for cell in cells]
    fulls = _each({seed: node for cell in cells for seed, node in cell.fulls}, tables)
    oracles = _each({seed: node for cell in cells for seed, node in cell.oracles}, tables)
    seeds: dict[str, dict[int, Node]] = {
        label: {
            cell.seed: cell.unlearned[label]
            for cell in cells
            if label in cell.unlearned and cell.unlearned[label].key in tables
        }
        for label in models
    }
    several = {label: found for label, found in seeds.items() if len(found) > 1}
    if not records or not several or not fulls:
        return []
    record = records[0]
    group = Group(
        fulls,
        oracles,
        {label: [tables[node.key] for node in found.values()] for label, found in several.items()},
    )
    found = verdicts_of(
        group,
        forgotten=record.forgotten,
        family=[
            label
            for label in dict.fromkeys(item for one in records for item in one.family)
            if label in several
        ],
        margins=margins,
        draws=draws,
        unit_kind=record.unit_kind,
        counts={item.view: item for item in record.views if item.view != "R"},
        probes=_probes(cells, several, store),
        temperatures=TEMPERATURES if temperature else (),
    )
    return [
        MethodVerdict(
            label=label,
            method=models[label].method,
            control=models[label].control,
            bundle=cells[0].bundle,
            seeds=tuple(sorted(several[label])),
            verdict=word.verdict,
            evidence=word.evidence,
            verdict_p=word.p,
            sentence=word.sentence,
        )
        for label, word in found.items()
    ]


def _against_oracle(record: Assessment | None) -> bool:
    return record is not None and record.has_oracle


def _each(nodes: Mapping[int, Node], tables: Mapping[str, Predictions]) -> list[Predictions]:
    return [tables[node.key] for _, node in sorted(nodes.items()) if node.key in tables]


def _probes(cells: Sequence[Cell], several: Seeds, store: Store) -> dict[str, Group]:
    """By probe, the same models asked in that way; left out where one of them was not scored."""
    found = {}
    for name in dict.fromkeys(name for cell in cells for name in cell.probes):
        of_cell = {cell.seed: cell.probes[name] for cell in cells if name in cell.probes}
        fulls = {seed: node for probe in of_cell.values() for seed, node in probe.fulls.items()}
        oracles = {seed: node for probe in of_cell.values() for seed, node in probe.oracles.items()}
        unlearned = {
            label: [of_cell[seed].unlearned[label] for seed in seeds if seed in of_cell]
            for label, seeds in several.items()
        }
        every = [
            *fulls.values(),
            *oracles.values(),
            *(node for nodes in unlearned.values() for node in nodes),
        ]
        if all(store.node(node.kind, node.key).record() is not None for node in every):
            found[name] = Group(
                [_load(store, node) for node in fulls.values()],
                [_load(store, node) for node in oracles.values()],
                {label: [_load(store, node) for node in nodes] for label, nodes in unlearned.items()},
            )
    return found


def _load(store: Store, node: Node) -> Predictions:
    return load_node_predictions(store.root, node.key, node.label)
