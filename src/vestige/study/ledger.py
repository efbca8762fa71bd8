"""The ledger of run folders: every number that a table or figure shows, as typed rows. No torch.

    ledger = read_ledger("runs/method-replication")
    ledger.of(MethodRow)          # measured rows, then imported ones

A folder is a run, a sweep with arms, or a folder with `imported/<kind>.csv` alone. Rows are read from
records; nothing is computed from models. Evaluations of one checkpoint are rows of their own and are never
counted as independent trainings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from vestige.errors import InputError
from vestige.study import ledger_measured as measured_rows
from vestige.study import ledger_recovery as recovery
from vestige.study import ledger_work as work
from vestige.study.folder_kinds import refused
from vestige.study.ledger_import import FOLDER, read_imported
from vestige.study.ledger_main import main_table2_rows, main_table3_rows
from vestige.study.ledger_rows import KINDS, LedgerRow
from vestige.study.ledger_run import Run
from vestige.study.store import SWEEP, run_folders

__all__ = ["Ledger", "read_ledger"]

T = TypeVar("T", bound=LedgerRow)


@dataclass(frozen=True)
class Ledger:
    """Rows of some run folders. runs: every run and arm read; folders: as they were named."""

    folders: tuple[Path, ...]
    runs: tuple[Run, ...]
    imported: dict[str, list[LedgerRow]]
    _memo: dict[str, tuple[LedgerRow, ...]] = field(default_factory=dict)

    @cached_property
    def measured(self) -> list[measured_rows.Measured]:
        """Every assessment of every run."""
        return measured_rows.measured(self.runs)

    @cached_property
    def recoveries(self) -> list[Any]:
        """Every recovery record with its run."""
        return recovery.recoveries(self.runs)

    def of(self, kind: type[T]) -> tuple[T, ...]:
        """Rows of a kind: measured ones first, then those imported."""
        if kind.KIND not in self._memo:
            made = _MAKERS[kind.KIND](self)
            given = self.imported.get(kind.KIND, [])
            self._memo[kind.KIND] = (*made, *given)
        return cast("tuple[T, ...]", self._memo[kind.KIND])

    @cached_property
    def summaries(self) -> dict[str, list[tuple[Run, Any]]]:
        """Name of a summary -> the runs that have it, with its contents."""
        found: dict[str, list[tuple[Run, Any]]] = {}
        for run in self.runs:
            for path in sorted(run.root.glob("summaries/*.json")):
                found.setdefault(path.stem, []).append((run, run.json(f"summaries/{path.name}")))
        return found


_MAKERS: dict[str, Callable[[Ledger], Sequence[LedgerRow]]] = {
    "methods": lambda one: measured_rows.method_rows(one.measured),
    "architectures": lambda one: measured_rows.architecture_rows(one.measured),
    "clinc": lambda one: measured_rows.clinc_rows(one.measured),
    "labels": lambda one: measured_rows.label_rows(one.measured),
    "schemas": lambda one: measured_rows.schema_rows(one.measured),
    "suppression": lambda one: measured_rows.suppression_rows(one.measured),
    "recovery": lambda one: recovery.recovery_rows(one.recoveries),
    "curves": lambda one: recovery.curve_rows(one.recoveries),
    "controls": lambda one: recovery.control_rows(one.recoveries),
    "fresh_heads": lambda one: recovery.fresh_head_rows(one.recoveries),
    "optimisation": lambda one: work.optimisation_rows(one.measured),
    "steps": lambda one: work.step_rows(one.measured),
    "tuning": lambda one: work.tuning_rows(one.runs),
    "compute": lambda one: work.compute_rows(one.runs),
    "registry": lambda one: work.registry_rows(one.runs),
    "displacements": lambda one: measured_rows.displacement_rows(one.measured),
    "main_table2": lambda one: main_table2_rows(one.measured, one.summaries),
    "main_table3": lambda one: main_table3_rows(one.measured, one.summaries),
}
assert set(_MAKERS) == set(KINDS)


def read_ledger(*folders: str | Path) -> Ledger:
    """Read run folders, sweeps and folders of imported tables.

    Raises InputError for a folder that is none of them, a damaged record, or a kind imported twice.
    """
    runs: list[Run] = []
    imported: dict[str, list[LedgerRow]] = {}
    for name in folders:
        root = Path(name)
        found = _runs(root)
        tables = read_imported(root)
        if not found and not tables:
            needed = "a folder that a study or `compare --out` wrote"
            raise refused(root, f"no records and no {FOLDER}/*.csv", needed, "name that folder")
        runs += found
        for kind, rows in tables.items():
            if kind in imported:
                raise InputError(
                    str(root / FOLDER), f"'{kind}' in another folder too", "one file of a kind", "keep one"
                )
            imported[kind] = rows
    return Ledger(tuple(map(Path, folders)), tuple(runs), imported)


def _runs(root: Path) -> list[Run]:
    """The run in a folder, or the arms of a sweep that have begun."""
    if (root / SWEEP).is_file():
        return [Run(path, arm=arm) for arm, path in run_folders(root).items()]
    return [Run(root)] if _is_run(root) else []


def _is_run(root: Path) -> bool:
    return (
        (root / "plan.json").is_file()
        or (root / "assessment.json").is_file()
        or any(root.glob("assessments/*.json"))
    )
