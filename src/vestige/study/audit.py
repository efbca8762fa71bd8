"""The audit of a run folder: what it claims, recomputed and checked by code that shares no metric with it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from vestige.contracts import Record
from vestige.errors import InputError, one_line
from vestige.study import (
    audit_candidates,
    audit_files,
    audit_methods,
    audit_parts,
    audit_recovery,
    audit_recovery_values,
    audit_requests,
    audit_results,
    audit_seeds,
    audit_summaries,
    audit_tables,
    audit_tuning,
    audit_units,
    plan_audit,
)
from vestige.study.audit_folder import Finding, Folder
from vestige.study.audit_limits import limits_of
from vestige.study.store import Store, now

__all__ = ["CHECKS", "AuditReport", "Check", "CheckEntry", "audit_study", "run_check"]

Status = Literal["passed", "failed", "noted", "not checked", "nothing to check"]


class Check(Record):
    """One check.

    findings: what does not hold (failed), what a reader should know (noted), or why it could not be checked.
    """

    name: str
    status: Status
    detail: str
    findings: tuple[str, ...] = ()


class AuditReport(Record):
    """Every check of a folder. tolerance: of recomputed values and bounds, for the order of additions."""

    format: str = "vestige-audit-1"
    time: str
    tolerance: float
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.status != "failed" for check in self.checks)

    def check(self, name: str) -> Check:
        """The check of this name. Raises KeyError."""
        for item in self.checks:
            if item.name == name:
                return item
        raise KeyError(name)


CheckEntry = tuple[str, str, Callable[[Folder], Finding]]
"""Name, what is checked, and how."""

CHECKS: tuple[CheckEntry, ...] = (
    ("files", "every file has the hash that was written down, and no file is a stranger", audit_files.files),
    ("keys", "keys follow from identities; no key and no label occurs twice", audit_parts.keys),
    ("plan", "the plan is what the study file says", plan_audit.study_file),
    (
        "parts",
        "finished parts say what follows from their identities and step logs, and the plan asks for each",
        audit_parts.parts,
    ),
    (
        "requests",
        "requests hash to their names, bundles are disjoint and in hash order",
        audit_requests.requests,
    ),
    ("reserved", "nothing of a reserved bundle was requested, trained or evaluated", audit_requests.reserved),
    ("exposure", "oracles and views keep deleted, unseen and retained rows apart", audit_requests.exposure),
    ("data", "requests, views and trained rows follow from the data set", audit_requests.data),
    (
        "units",
        "rows of F and G carry their units; clusters and nearest rows follow from sentence vectors",
        audit_units.units,
    ),
    (
        "candidates",
        "candidate sets offer what was forgotten; S2 is what its seed draws",
        audit_candidates.candidates,
    ),
    ("coverage", "everything planned is there, and what is listed was planned", plan_audit.coverage),
    ("freeze", "settings were frozen after tuning and before any evaluation", audit_tuning.freeze),
    ("tuning", "chosen settings follow from the recorded candidates", audit_tuning.tuning),
    (
        "probabilities",
        "tables are complete, aligned and those that were assessed",
        audit_tables.probabilities,
    ),
    (
        "gates",
        "eligibility, later failures and the intervention gate follow from probabilities",
        audit_tables.gates,
    ),
    ("distances", "every value is recomputed from probabilities", audit_results.values),
    ("intervals", "every interval is recomputed from its draws and seed", audit_results.intervals),
    (
        "decisions",
        "p-values, Holm's correction and decisions of the published rule follow",
        audit_results.decisions,
    ),
    ("verdicts", "evidence, bounds and words of verdicts are recomputed", audit_results.verdicts),
    (
        "method-verdicts",
        "verdicts on methods from all their training seeds are recomputed",
        audit_methods.method_verdicts,
    ),
    (
        "records",
        "counts, caveats, sources and provenance of assessments follow from the folder",
        audit_results.records,
    ),
    (
        "replication",
        "nested and pooled gains, leave-one-out, differences and the replication rule are recomputed",
        audit_summaries.replication,
    ),
    (
        "seed-metrics",
        "metrics over several seeds and their chance bands are recomputed",
        audit_seeds.seed_metrics,
    ),
    (
        "recovery-rows",
        "exposed rows are nested, apart from scored ones and equal for all checkpoints; pairs are distinct",
        audit_recovery.recovery_rows,
    ),
    (
        "recovery-values",
        "recovery curves, contrasts, fresh heads and their intervals are recomputed",
        audit_recovery_values.recovery_values,
    ),
    ("history", "changes of the plan, reruns and mixed environments", audit_files.history),
)


def audit_study(out: str | Path, more: Sequence[CheckEntry] = ()) -> AuditReport:
    """Audit a run folder. Nothing is written. Raises InputError when it is no run folder.

    more: further checks; `vestige.report.pages_audit.audited` audits pages, tables and figures too.
    """
    folder = Folder(Store.reading(out).root)
    checks = [run_check(folder, name, detail, check) for name, detail, check in (*CHECKS, *more)]
    checks.append(_limits(folder))
    return AuditReport(time=now(), tolerance=audit_results.TOLERANCE, checks=tuple(checks))


def run_check(folder: Folder, name: str, detail: str, check: Callable[[Folder], Finding]) -> Check:
    """Run one of CHECKS."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)  # of numbers that a damaged record makes
            found = check(folder)
    except Exception as error:
        # Whatever a record does to a check that reads it, that check has failed and the others go on.
        what = f"{type(error).__name__}: {error}" if not isinstance(error, InputError) else str(error)
        return Check(name=name, status="failed", detail=detail, findings=(one_line(what),))
    status: Status = "passed"
    if found.failed:
        status = "failed"
    elif found.unchecked:
        status = "not checked"
    elif found.noted:
        status = "noted"
    elif found.what and not found.count:
        status = "nothing to check"
    said = f"{detail} ({found.count} {found.what})" if found.what else detail
    findings = map(one_line, (*found.failed, *found.unchecked, *found.noted))
    return Check(name=name, status=status, detail=said, findings=tuple(findings))


def _limits(folder: Folder) -> Check:
    """What no audit of this folder can check."""
    return Check(
        name="limits",
        status="not checked",
        detail="what this folder cannot show",
        findings=tuple(limits_of(folder)),
    )
