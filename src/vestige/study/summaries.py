"""What a study's seeds and bundles say together, from finished probabilities and assessments. No torch.

DIR/summaries/replication.json   gains over seeds x bundles, leave-one-out, paired differences
DIR/summaries/pooled.json        units pooled over bundles
DIR/summaries/seeds.json         metrics that need several seeds or views
DIR/summaries/verdicts.json      verdicts on methods from all their training seeds of a bundle
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import (
    Assessment,
    Estimate,
    Floats,
    ModelAssessment,
    RowTerms,
    SeedModels,
    Undefined,
    View,
    ViewTables,
)
from vestige.decision.predictions import Predictions, align
from vestige.metrics import SEED_METRICS
from vestige.metrics.oracle import js2, progress_terms
from vestige.seeds import digest
from vestige.statistics.bootstrap import (
    ROW_SEEDS,
    UNIT_SEED_OFFSET,
    bootstrap_rows,
    bootstrap_units,
    estimate,
)
from vestige.statistics.hierarchical import Cell as UnitCell
from vestige.statistics.hierarchical import replication, unit_means
from vestige.statistics.pooled import pooled_units
from vestige.statistics.terms import difference, mean_of, value_of
from vestige.study.cells import Node, Setting
from vestige.study.evaluate import Cell
from vestige.study.judge import is_feasible
from vestige.study.method_verdicts import method_verdicts
from vestige.study.store import Store, canonical
from vestige.study.summary_records import (
    CellGain,
    MethodPooled,
    MethodReplication,
    MethodSeeds,
    MethodVerdict,
    PairedDifference,
    PooledSummary,
    PooledView,
    ReplicatedView,
    ReplicationSummary,
    SeedSummary,
    Summary,
    VerdictSummary,
)
from vestige.study.work import load_node_predictions

__all__ = ["POOLED", "REPLICATION", "SEEDS", "VERDICTS", "summarise"]

REPLICATION, POOLED, SEEDS, VERDICTS = (
    f"summaries/{name}.json" for name in ("replication", "pooled", "seeds", "verdicts")
)
WRITTEN = (REPLICATION, POOLED, SEEDS, VERDICTS)
VIEWS: tuple[View, ...] = ("F", "G", "R")
DELETED: tuple[View, ...] = ("F", "G")
RULES = 3
"""Raised when a summary says more, or otherwise, of the same inputs: finished folders then summarise anew."""
CONTROL = Undefined(undefined="a control: its gains are shown and not judged")
OTHER_ROWS = "other rows: no paired interval"


@dataclass(frozen=True)
class Frame:
    """What every summary says of itself: see `Summary`."""

    inputs: str
    draws: int
    condition: str


@dataclass(frozen=True, eq=False)
class Gains:
    """One method at one seed and bundle on one view: distances to the oracle before and after, (N,)."""

    start: Floats
    distance: Floats
    units: NDArray[np.str_]

    @property
    def gain(self) -> Floats:
        """Per-row gain, (N,)."""
        return self.start - self.distance

    @property
    def progress(self) -> RowTerms:
        """Progress as a statistic."""
        return progress_terms(self.start, self.distance)


Key = tuple[str, int, str, View]
"""Label, seed, bundle, view."""


def summarise(
    setting: Setting, store: Store, cells: Sequence[Cell], assessments: Mapping[str, Assessment]
) -> None:
    """Write the summaries of a run, unless those that are there were made from the same inputs.

    cells: as planned; those under another candidate set than all options are left out. assessments: by path
    in the folder. A cell whose nodes or assessment are missing is named and left out. Without an unlearned
    model nothing is written, and old summaries are removed.
    """
    whole = [cell for cell in cells if cell.offer.options is None]
    models = _models(whole, assessments)
    if not models:
        for name in WRITTEN:
            store.drop(name)
        return
    inputs = _inputs(store, whole, assessments, setting.plan.draws)
    if all(_made_from(store, name, inputs) for name in WRITTEN):
        return
    gains: dict[Key, Gains] = {}
    seeds: list[MethodSeeds] = []
    verdicts: list[MethodVerdict] = []
    for bundle in sorted({cell.bundle for cell in whole}):
        group = [cell for cell in whole if cell.bundle == bundle]
        tables = _tables(store, group)
        gains |= _gains(group, tables)
        seeds += _seed_metrics(group, tables, models)
        verdicts += method_verdicts(
            group,
            tables,
            models,
            assessments,
            store,
            draws=setting.plan.draws,
            margins=setting.plan.margins,
            temperature="temperature" in setting.plan.probes,
        )
    frame = Frame(inputs, setting.plan.draws, _condition(whole))
    common = dataclasses.asdict(frame)
    written: dict[str, Summary] = {
        REPLICATION: ReplicationSummary(
            **common,
            methods=tuple(_replication(model, gains, whole, assessments, frame) for model in models.values()),
            differences=tuple(_differences(models, gains, whole, frame.draws)),
        ),
        POOLED: PooledSummary(
            **common, methods=tuple(_pooled(model, gains, frame) for model in models.values())
        ),
        SEEDS: SeedSummary(**common, methods=tuple(seeds)),
        VERDICTS: VerdictSummary(**common, methods=tuple(verdicts)),
    }
    for name, summary in written.items():
        store.write(name, (summary.to_json() + "\n").encode())


def _made_from(store: Store, name: str, inputs: str) -> bool:
    return store.intact(name) and bool(store.json(name).get("inputs") == inputs)


def _models(cells: Sequence[Cell], assessments: Mapping[str, Assessment]) -> dict[str, ModelAssessment]:
    """Label -> an assessment of that method against an oracle, in the plan's order."""
    found: dict[str, ModelAssessment] = {}
    for label in dict.fromkeys(label for cell in cells for label in cell.unlearned):
        for cell in cells:
            made = _assessed(cell, label, assessments)
            if made is not None:
                found.setdefault(label, made)
    return found


def _assessed(cell: Cell, label: str, assessments: Mapping[str, Assessment]) -> ModelAssessment | None:
    record = assessments.get(cell.assessment)
    if record is None or not record.has_oracle:
        return None
    return next(
        (model for model in record.models if model.label == label and model.role == "unlearned"), None
    )


def _inputs(store: Store, cells: Sequence[Cell], assessments: Mapping[str, Assessment], draws: int) -> str:
    """Hash of everything that the summaries depend on."""
    found: list[object] = [RULES, draws, sorted(SEED_METRICS.names())]
    for cell in cells:
        record = assessments.get(cell.assessment)
        nodes = [*_named(cell.fulls), *_named(cell.oracles), *_named(cell.randoms), *cell.unlearned.items()]
        found.append(
            [
                cell.stem,
                [[str(name), node.key] for name, node in nodes if _there(store, node)],
                "" if record is None else record.provenance.get("inputs", ""),
            ]
        )
    return digest(canonical(found))


def _named(nodes: Sequence[tuple[int, Node]]) -> list[tuple[str, Node]]:
    return [(str(seed), node) for seed, node in nodes]


def _there(store: Store, node: Node) -> bool:
    return store.node(node.kind, node.key).record() is not None


def _condition(cells: Sequence[Cell]) -> str:
    seeds = sorted({cell.seed for cell in cells})
    bundles = sorted({cell.bundle for cell in cells})
    return f"training seeds {', '.join(map(str, seeds))}; bundles {', '.join(bundles)}"


def _tables(store: Store, cells: Sequence[Cell]) -> dict[str, Predictions]:
    """Node key -> probabilities of every finished node of a bundle's cells, all on the same rows."""
    nodes: dict[str, Node] = {}
    for cell in cells:
        for _, node in (*cell.fulls, *cell.oracles, *cell.randoms):
            nodes[node.key] = node
        nodes |= {node.key: node for node in cell.unlearned.values()}
    present = [node for node in nodes.values() if _there(store, node)]
    tables = align([load_node_predictions(store.root, node.key, node.label) for node in present])
    return {node.key: table for node, table in zip(present, tables, strict=True)}


def _gains(cells: Sequence[Cell], tables: Mapping[str, Predictions]) -> dict[Key, Gains]:
    """Gains of every method and view where the full model, the oracle and the unlearned model are there."""
    found: dict[Key, Gains] = {}
    for cell in cells:
        full, oracle = dict(cell.fulls).get(cell.seed), dict(cell.oracles).get(cell.seed)
        if full is None or oracle is None or full.key not in tables or oracle.key not in tables:
            continue
        start = js2(tables[full.key].p, tables[oracle.key].p)
        for label, node in cell.unlearned.items():
            if node.key not in tables:
                continue
            table = tables[node.key]
            distance = js2(table.p, tables[oracle.key].p)
            for view in DELETED:
                rows = table.view == view
                units = table.unit[rows].astype(np.str_)
                found[label, cell.seed, cell.bundle, view] = Gains(start[rows], distance[rows], units)
    return found


def _of(gains: Mapping[Key, Gains], label: str, view: View) -> dict[tuple[int, str], Gains]:
    """(seed, bundle) -> gains of a method on a view."""
    return {key[1:3]: item for key, item in gains.items() if (key[0], key[3]) == (label, view)}


def _unit_cells(found: Mapping[tuple[int, str], Gains]) -> list[UnitCell]:
    return [
        UnitCell(str(seed), bundle, unit_means(item.gain, item.units))
        for (seed, bundle), item in sorted(found.items())
    ]


def _replication(
    model: ModelAssessment,
    gains: Mapping[Key, Gains],
    cells: Sequence[Cell],
    assessments: Mapping[str, Assessment],
    frame: Frame,
) -> MethodReplication:
    """The hierarchical statistic and the replication rule for one method."""
    found = {view: _of(gains, model.label, view) for view in DELETED}
    judged = {
        (cell.seed, cell.bundle): made
        for cell in cells
        if (made := _assessed(cell, model.label, assessments)) is not None
    }
    keys = sorted(key for key in found["F"] if key in judged)
    units = {view: _unit_cells({key: found[view][key] for key in keys}) for view in DELETED}
    result = replication(
        units["F"],
        units["G"],
        [is_feasible(judged[key]) is True for key in keys],
        draws=frame.draws,
    )
    sides = {
        "F": (result.f, result.crossed_f, result.left_out_f),
        "G": (result.g, result.crossed_g, result.left_out_g),
    }
    views = []
    for view in DELETED:
        side, crossed, left_out = sides[view]
        enough = len(keys) > 1 or len(units[view][0].unit_gains) > 1
        views.append(
            ReplicatedView(
                view=view,
                estimate=side.estimate,
                interval=side.interval(frame.condition)
                if enough
                else Undefined(undefined="one cell with one unit"),
                crossed=crossed if isinstance(crossed, Undefined) else crossed.interval(frame.condition),
                left_out=left_out,
                cells=tuple(
                    CellGain(
                        seed=seed,
                        bundle=bundle,
                        gain=float(cell.unit_gains.mean()),
                        positive=float((cell.unit_gains > 0).mean()),
                        progress=value_of(found[view][seed, bundle].progress),
                        units=len(cell.unit_gains),
                        rows=len(found[view][seed, bundle].start),
                    )
                    for (seed, bundle), cell in zip(keys, units[view], strict=True)
                ),
            )
        )
    planned = {(cell.seed, cell.bundle) for cell in cells if model.label in cell.unlearned}
    return MethodReplication(
        label=model.label,
        method=model.method,
        control=model.control,
        seeds=tuple(sorted({seed for seed, _ in keys})),
        bundles=tuple(sorted({bundle for _, bundle in keys})),
        decision=CONTROL if model.control else result.decision,
        crossed=CONTROL if model.control else result.crossed,
        views=tuple(views),
        infeasible=result.infeasible,
        missing=tuple(f"seed {seed}, bundle {bundle}" for seed, bundle in sorted(planned - set(keys))),
    )


def _pooled(model: ModelAssessment, gains: Mapping[Key, Gains], frame: Frame) -> MethodPooled:
    views, seeds = [], {}
    for view in DELETED:
        found = _of(gains, model.label, view)
        result = pooled_units(
            _unit_cells(found),
            view=view,
            condition=frame.condition,
            draws=frame.draws,
        )
        seeds = {
            bundle: tuple(sorted(seed for seed, other in found if other == bundle))
            for bundle in result.by_bundle
        }
        views.append(
            PooledView(
                view=view,
                estimate=result.estimate,
                unit=result.unit.interval(frame.condition),
                bundle=result.bundle,
                by_bundle=result.by_bundle,
                units=result.units,
                bundles=result.bundles,
            )
        )
    return MethodPooled(
        label=model.label, method=model.method, control=model.control, seeds=seeds, views=tuple(views)
    )


def _differences(
    models: Mapping[str, ModelAssessment],
    gains: Mapping[Key, Gains],
    cells: Sequence[Cell],
    draws: int,
) -> Iterator[PairedDifference]:
    """Each method between two seeds on one bundle's rows, and between two bundles at one seed."""
    for view in DELETED:
        for bundle in sorted({cell.bundle for cell in cells}):
            yield from _between_seeds(models, gains, view, bundle, draws)
        for seed in sorted({cell.seed for cell in cells}):
            for label in models:
                here = {key[1]: item for key, item in _of(gains, label, view).items() if key[0] == seed}
                for first, second in combinations(sorted(here), 2):
                    yield PairedDifference(
                        label=label,
                        view=view,
                        across="bundle",
                        within=f"seed {seed}",
                        first=f"bundle {first}",
                        second=f"bundle {second}",
                        gain=_apart(mean_of(here[first].gain), mean_of(here[second].gain)),
                        progress=_apart(here[first].progress, here[second].progress),
                    )


def _between_seeds(
    models: Mapping[str, ModelAssessment], gains: Mapping[Key, Gains], view: View, bundle: str, draws: int
) -> Iterator[PairedDifference]:
    """All pairs of seeds of all methods on one bundle's rows, under the same draws."""
    items: dict[str, RowTerms] = {}
    pairs: list[tuple[str, int, int, str]] = []
    units: NDArray[np.str_] | None = None
    for label in models:
        here = {key[0]: item for key, item in _of(gains, label, view).items() if key[1] == bundle}
        for first, second in combinations(sorted(here), 2):
            units = here[first].units
            name = str(len(pairs))
            pairs.append((label, first, second, name))
            items[f"gain {name}"] = difference(mean_of(here[second].gain), mean_of(here[first].gain))
            items[f"progress {name}"] = difference(here[second].progress, here[first].progress)
    if units is None:
        return
    row = bootstrap_rows(items, draws=draws, seed=ROW_SEEDS[view])
    unit = bootstrap_units(items, units, draws=draws, seed=ROW_SEEDS[view] + UNIT_SEED_OFFSET)
    for label, first, second, name in pairs:
        condition = f"training seeds {first} and {second}, bundle {bundle}"
        gain, progress = (
            estimate(row[f"{what} {name}"], unit[f"{what} {name}"], condition=condition)
            for what in ("gain", "progress")
        )
        yield PairedDifference(
            label=label,
            view=view,
            across="seed",
            within=f"bundle {bundle}",
            first=f"seed {first}",
            second=f"seed {second}",
            gain=gain,
            progress=progress,
        )


def _apart(first: RowTerms, second: RowTerms) -> Estimate:
    """Second minus first of statistics on different rows."""
    one, other = value_of(first), value_of(second)
    for value in (one, other):
        if isinstance(value, Undefined):
            return Estimate(value=value, note=OTHER_ROWS)
    assert isinstance(one, float)
    assert isinstance(other, float)
    return Estimate(value=other - one, note=OTHER_ROWS)


def _seed_metrics(
    cells: Sequence[Cell], tables: Mapping[str, Predictions], models: Mapping[str, ModelAssessment]
) -> list[MethodSeeds]:
    """Every several-seed metric of every method on one bundle."""
    if not tables:
        return []
    first = next(iter(tables.values()))
    gold = {view: first.gold_index[first.view == view] for view in VIEWS}

    def group(nodes: Mapping[int, Node]) -> dict[int, ViewTables]:
        return {
            seed: {view: tables[node.key].of_view(view).p for view in VIEWS}
            for seed, node in sorted(nodes.items())
            if node.key in tables
        }

    fulls, oracles, randoms = (
        group({seed: node for cell in cells for seed, node in getattr(cell, role)})
        for role in ("fulls", "oracles", "randoms")
    )
    found = []
    for label, model in models.items():
        unlearned = group({cell.seed: cell.unlearned[label] for cell in cells if label in cell.unlearned})
        if not unlearned:
            continue
        given = SeedModels(gold=gold, unlearned=unlearned, oracle=oracles, full=fulls, random=randoms)
        found.append(
            MethodSeeds(
                label=label,
                method=model.method,
                control=model.control,
                bundle=cells[0].bundle,
                metrics={metric.name: metric.compute(given) for metric in SEED_METRICS},
            )
        )
    return found
