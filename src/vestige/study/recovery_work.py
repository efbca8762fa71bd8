"""Nodes of a recovery: one adaptation of one checkpoint, and the fresh heads of one checkpoint."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vestige.attacks.exposure import refuse_overlap
from vestige.contracts import Floats
from vestige.decision.choices import is_right
from vestige.errors import Diverged, InputError
from vestige.files import write_bytes
from vestige.readers import file_bytes
from vestige.readers.parquet_files import read_parquet as parquet_table
from vestige.seeds import digest
from vestige.study.cells import Node, request_identity
from vestige.study.protocol import Rows, Score
from vestige.study.recovery_rows import FORGOTTEN, Evaluated, RecoveryRows
from vestige.study.store import Identity, NodeFolder
from vestige.study.work import MODEL
from vestige.training.adaptation import AdaptSettings

if TYPE_CHECKING:
    from vestige.deletion.requests import DeletionRequest
    from vestige.study.cells import Setting
    from vestige.study.jobs import Job
    from vestige.study.recovery_plan import RecoveryPlan

__all__ = [
    "CURVES",
    "HEADS",
    "FreshHeadWork",
    "RecoverWork",
    "adaptation_cost",
    "fresh_head_cost",
    "fresh_head_node",
    "parquet",
    "read_parquet",
    "recovery_node",
]

CURVES = "curves.parquet"
"""One line a row and evaluation: population, t, row_id, unit, p_gold, correct."""
HEADS = "heads.parquet"
"""One line a row and initialisation: initialisation, view, row_id, unit, p_gold, correct."""
_ADAPTING = 1.4
_SCORING = 0.3


@dataclass(frozen=True)
class RecoverWork:
    """Adapt the model of a node on exposed rows (row id, label) and follow the evaluated rows.

    model: (kind, key). seed: of the order of rows and of dropout.
    """

    model: tuple[str, str]
    seed: int
    exposed: tuple[tuple[str, str], ...]
    evaluated: tuple[Evaluated, ...] = field(repr=False)
    settings: dict[str, Any]

    def do(self, job: Job) -> tuple[dict[str, Any], int]:
        """See `vestige.study.jobs.Work`."""
        setting = job.setting
        refuse_overlap(
            [row for row, _ in self.exposed],
            [row.row_id for row in self.evaluated],
            self.evaluated[0].population,
        )
        settings = AdaptSettings.model_validate(self.settings)
        place = NodeFolder(job.root, *self.model)
        place.verified()
        columns = {option: i for i, option in enumerate(setting.schema.ids)}
        gold = np.array([columns[row.gold] for row in self.evaluated], dtype=np.intp)
        texts = [setting.texts[row.row_id] for row in self.evaluated]
        found: dict[int, tuple[Floats, Any]] = {}

        def on_update(update: int, score: Score) -> None:
            p = score(texts)
            if not np.isfinite(p).all():
                rows = [row for row, _ in self.exposed]
                rate = settings.learning_rate
                raise Diverged("a probability", update, rows, rate, "this adaptation was not kept")
            found[update] = (p[np.arange(len(gold)), gold], is_right(p, gold))

        result = setting.backend.adapt(
            start=place.path / MODEL,
            rows=Rows(
                tuple(row for row, _ in self.exposed),
                tuple(setting.texts[row] for row, _ in self.exposed),
                tuple(label for _, label in self.exposed),
            ),
            schema=setting.schema,
            settings=settings,
            seed=self.seed,
            on_update=on_update,
            progress=job.progress,
        )
        if tuple(sorted(found)) != settings.evaluations:
            raise InputError(
                "backend",
                f"scores at updates {sorted(found)}",
                f"{settings.evaluations}",
                "correct its adapt",
            )
        write_bytes(job.folder / CURVES, parquet(_curve_table(self.evaluated, found)))
        rows = {name: sum(row.population == name for row in self.evaluated) for name in _populations(self)}
        return {**result, "exposed": len(self.exposed), "evaluated": rows}, len(self.exposed)


@dataclass(frozen=True)
class FreshHeadWork:
    """Train new heads on the frozen backbone of a node, and score a view table. model: (kind, key)."""

    model: tuple[str, str]
    initialisations: int
    deleted: tuple[str, ...] = field(repr=False)
    forgotten: tuple[str, ...]
    table: pd.DataFrame = field(repr=False, compare=False)

    def do(self, job: Job) -> tuple[dict[str, Any], int]:
        """See `vestige.study.jobs.Work`."""
        setting = job.setting
        place = NodeFolder(job.root, *self.model)
        place.verified()
        rows = setting.rows(setting.retained(self.deleted))
        if wrong := set(rows.gold) & set(self.forgotten):
            raise InputError(
                "rows of fresh heads", f"rows of '{sorted(wrong)[0]}'", "retained classes alone", "check D_F"
            )
        table = self.table.sort_values("row_id", kind="stable")
        row_ids = [str(row) for row in table["row_id"]]
        columns = {option: i for i, option in enumerate(setting.schema.ids)}
        gold = np.array([columns[setting.gold[row]] for row in row_ids], dtype=np.intp)
        heads = setting.backend.fresh_heads(
            start=place.path / MODEL,
            rows=rows,
            schema=setting.schema,
            settings=setting.task,
            initialisations=range(self.initialisations),
            texts=[setting.texts[row] for row in row_ids],
            progress=job.progress,
        )
        parts = [
            pd.DataFrame(
                {
                    "initialisation": np.full(len(gold), number, dtype=np.int64),
                    "view": [str(view) for view in table["view"]],
                    "row_id": row_ids,
                    "unit": [str(unit) for unit in table["unit"]],
                    "p_gold": p[np.arange(len(gold)), gold],
                    "correct": is_right(p, gold),
                }
            )
            for number, (_, p) in enumerate(heads)
        ]
        write_bytes(job.folder / HEADS, parquet(pd.concat(parts, ignore_index=True)))
        return {"heads": [record for record, _ in heads], "train_rows": len(rows)}, len(rows)


def recovery_node(
    setting: Setting,
    request: DeletionRequest,
    model: tuple[str, str],
    what: str,
    rows: RecoveryRows,
    plan: RecoveryPlan,
    pair: tuple[int, int],
    label: str,
) -> Node:
    """One adaptation. model: (kind, key). what: FORGOTTEN or SWAPPED. pair: budget and adaptation seed."""
    k, seed = pair
    exposed = (rows.exposed if what == FORGOTTEN else rows.swap_exposed)[pair]
    evaluated = rows.evaluated(what, pair)
    settings = plan.settings
    return Node(
        kind="recovery",
        label=f"recovery of {label} on bundle {request.bundle}: {what} rows, k {k}, adaptation seed {seed}",
        identity={
            **_attacked(setting, request, model),
            "population_set": what,
            "k": k,
            "adapt_seed": seed,
            "exposed": [list(item) for item in exposed],
            "evaluated": rows.sha256(evaluated),
            "settings": settings.model_dump(mode="json"),
        },
        work=RecoverWork(model, seed, exposed, evaluated, settings.model_dump(mode="json")),
        needs=(model[1],),
        cost=adaptation_cost(rows, what, plan, pair),
    )


def _attacked(setting: Setting, request: DeletionRequest, model: tuple[str, str]) -> Identity:
    """What every attack on one model depends on."""
    return {
        "data": setting.data.sha256,
        "schema": setting.schema.sha256,
        "backend": setting.backend.identity(setting.model),
        "request": request_identity(request),
        "model": model[1],
    }


def fresh_head_node(
    setting: Setting,
    request: DeletionRequest,
    model: tuple[str, str],
    table: pd.DataFrame,
    initialisations: int,
    label: str,
) -> Node:
    """The fresh heads of one checkpoint, all initialisations on one reading of the texts."""
    stay = setting.retained(request.row_ids)
    ordered = table.sort_values("row_id", kind="stable")
    return Node(
        kind="fresh-head",
        label=f"fresh heads on {label} of bundle {request.bundle}",
        identity={
            **_attacked(setting, request, model),
            "training": setting.task.model_dump(mode="json"),
            "rows": digest(*stay),
            "evaluated": digest(*ordered["row_id"], *ordered["view"], *ordered["unit"]),
            "initialisations": initialisations,
        },
        work=FreshHeadWork(
            model, initialisations, tuple(request.row_ids), tuple(sorted(request.units)), table
        ),
        needs=(model[1],),
        cost=fresh_head_cost(setting, request, len(table)),
    )


def adaptation_cost(rows: RecoveryRows, what: str, plan: RecoveryPlan, pair: tuple[int, int]) -> float:
    """Work of one adaptation in training rows: its updates, and its evaluations."""
    exposed = (rows.exposed if what == FORGOTTEN else rows.swap_exposed)[pair]
    evaluated = rows.evaluated(what, pair)
    passes = plan.settings.updates * min(plan.batch, len(exposed)) * _ADAPTING
    return passes + len(plan.evaluations) * len(evaluated) * _SCORING


def fresh_head_cost(setting: Setting, request: DeletionRequest, scored: int) -> float:
    """Work of one checkpoint's fresh heads in training rows: every text is read once."""
    return (len(setting.train_ids) - len(request.row_ids) + scored) * _SCORING


def parquet(table: pd.DataFrame) -> bytes:
    """A table as Parquet bytes: equal tables give equal bytes under one version of pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(), out)
    return out.getvalue()


def read_parquet(path: Path, columns: Sequence[str] = ()) -> pd.DataFrame:
    """The reverse of `parquet`. columns: that must be there. Raises InputError when the file is not one."""
    table = parquet_table(str(path), file_bytes(path, "a Parquet table that the run wrote"))
    table.need(*columns)
    return pd.DataFrame({name: table.cells(name) for name in table.names})


def _populations(work: RecoverWork) -> Sequence[str]:
    return sorted({row.population for row in work.evaluated})


def _curve_table(rows: Sequence[Evaluated], found: dict[int, tuple[Floats, Any]]) -> pd.DataFrame:
    parts = [
        pd.DataFrame(
            {
                "population": [row.population for row in rows],
                "t": np.full(len(rows), update, dtype=np.int64),
                "row_id": [row.row_id for row in rows],
                "unit": [row.unit for row in rows],
                "p_gold": p,
                "correct": right,
            }
        )
        for update, (p, right) in sorted(found.items())
    ]
    return pd.concat(parts, ignore_index=True)
