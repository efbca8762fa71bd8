"""Table S12: the audit record of run folders, from the audit's own checks that need no recomputation."""

from __future__ import annotations

from collections.abc import Iterator

from vestige.report.consistency import contradictions
from vestige.report.paper_panel import CsvFile, PaperTable, paper_table
from vestige.report.tables import Cell, Column, Row, Table
from vestige.report.words import counted, listed
from vestige.study.audit import CHECKS, Check, run_check
from vestige.study.audit_folder import Folder
from vestige.study.ledger import Ledger
from vestige.study.ledger_run import Run

__all__ = ["audit_record"]

HEADER = ("run", "item", "status", "finding")
Line = tuple[str, str, str, str]
SHOWN = 3
"""Findings of a check that the table prints; the audit itself prints all."""


def audit_record(ledger: Ledger) -> PaperTable:
    """Table S12. Folders that are no runs (imported tables, comparisons) have no audit record."""
    lines = [
        (run.arm or run.name, *line)
        for run in ledger.runs
        if (run.root / "plan.json").is_file()
        for line in _lines(run)
    ]
    table = Table(
        key="s12",
        caption="Audit record",
        head="run",
        columns=tuple(Column(key=name, title=name, numeric=False) for name in HEADER[1:]),
        rows=tuple(Row(label=line[0], cells=tuple(Cell(text=item) for item in line[1:])) for line in lines),
    )
    files: dict[str, CsvFile] = {"table-s12": (HEADER, tuple(lines))}
    notes = ["Distances and intervals are recomputed by `vestige study audit`, not for this table."]
    return paper_table("S12", files=files, panels=[table], notes=notes if lines else [])


def _lines(run: Run) -> Iterator[tuple[str, str, str]]:
    folder = Folder(run.root)
    checks = {name: (detail, check) for name, detail, check in CHECKS}

    def done(name: str) -> Check:
        return run_check(folder, name, *checks[name])

    yield _acquisition(run)
    yield "privacy audit", "not checked", "none was run: nothing here tests what an attacker could learn"
    yield _line("coverage", done("coverage"), "everything planned is there")
    yield _line("reserved", done("reserved"), "nothing of a reserved bundle appears")
    yield _excluded(run)
    yield _reconciliation(run)
    yield _line("file collisions", done("keys"), "no key and no label occurs twice")
    yield _reporting(run)
    yield _line("reruns", done("history"), "one sitting, one plan, one environment")
    yield _line("exposure", done("exposure"), "deleted, unseen and retained rows are apart")
    yield _line(
        "order of freezing", done("freeze"), "settings were frozen before any evaluation, or none had to be"
    )
    yield _selection(run)
    yield _records(run)


def _line(item: str, check: Check, well: str) -> tuple[str, str, str]:
    findings = [*check.findings[:SHOWN]]
    more = len(check.findings) - len(findings)
    if more > 0:
        findings.append(f"and {more} more")
    return item, check.status, "; ".join(findings) or well


def _acquisition(run: Run) -> tuple[str, str, str]:
    gates = run.json("gates.json")
    if not gates:
        return "acquisition", "not checked", "no acquisition gate in this folder"
    primary = str(gates.get("primary_seed"))
    classes = gates.get("acquisition", {}).get(primary, {}).get("classes", [])
    passed = sum(bool(item.get("passed")) for item in classes)
    exceptions = {bundle: len(found) for bundle, found in gates.get("exceptions", {}).items() if found}
    text = f"{passed} of {counted(len(classes), 'unit', 'units')} passed at the primary seed {primary}"
    if exceptions:
        later = listed([f"{count} in bundle {bundle}" for bundle, count in sorted(exceptions.items())])
        return "acquisition", "noted", f"{text}; failed at a later seed and kept: {later}"
    return "acquisition", "passed", f"{text}; no exception at a later seed"


def _excluded(run: Run) -> tuple[str, str, str]:
    """Models that the study names as left out, and parts that could not be made."""
    named = [f"{name}: {reason}" for name, reason in dict(run.plan.get("excluded") or {}).items()]
    failures = run.json("failures.json", [])
    named += [f"{item['label']}: {item['reason']}" for item in failures[:SHOWN]]
    named += [f"and {len(failures) - SHOWN} more"] if len(failures) > SHOWN else []
    return "excluded models", "noted" if named else "passed", "; ".join(named) or "none"


def _reporting(run: Run) -> tuple[str, str, str]:
    """Records whose numbers contradict each other."""
    wrong = [line for record in run.assessments.values() for line in contradictions(record)]
    if not wrong:
        return "reporting", "passed", "every record's decision follows from its numbers"
    more = [f"and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
    return "reporting", "failed", "; ".join([*wrong[:SHOWN], *more])


def _records(run: Run) -> tuple[str, str, str]:
    """How many records of each kind there are."""
    recoveries = len(list(run.root.glob("recovery/*.json")))
    parts = [
        counted(len(run.assessments), "assessment", "assessments"),
        counted(len(run.nodes), "finished part", "finished parts"),
        *([counted(recoveries, "recovery record", "recovery records")] if recoveries else []),
    ]
    return "records", "passed", f"{listed(parts)}, each with its hashes"


def _reconciliation(run: Run) -> tuple[str, str, str]:
    """Registry against assessments: every registered evaluation assessed once, and nothing else."""
    registered = {entry["key"] for entry in run.entries}
    assessed: list[str] = []
    for record in run.assessments.values():
        assessed += map(str, dict(record.provenance.get("evaluations") or {}).values())
    strangers, missing = set(assessed) - registered, registered - set(assessed)
    twice = len(assessed) - len(set(assessed))
    text = f"{len(registered)} registered, {len(set(assessed))} assessed"
    if strangers or twice:
        return "reconciliation", "failed", f"{text}; {len(strangers)} not registered, {twice} assessed twice"
    if missing:
        return "reconciliation", "noted", f"{text}; {len(missing)} registered and not assessed"
    return "reconciliation", "passed", text


def _selection(run: Run) -> tuple[str, str, str]:
    """What was chosen, how, and what a reader should know of it."""
    notes = []
    notes += [
        f"{label}: {item['why']}"
        for label, item in dict(run.json("left_out.json", {}).get("infeasible") or {}).items()
    ]
    tuning = run.json("tuning.json")
    for method in tuning["methods"] if tuning else ():
        if method["settings"] is None:
            notes.append(f"{method['title']}: no feasible candidate of {method['candidates']}")
        elif method["edges"]:
            notes.append(f"{method['title']}: chosen at the edge of the grid ({', '.join(method['edges'])})")
    if tuning and not tuning.get("equal_budgets", True):
        notes.append("tuning budgets differ between methods")
    stage = str(run.plan.get("stage") or "pilot")
    if stage == "exploratory":
        notes.append("exploratory: chosen after results were seen, or not fixed before")
    if stage == "pilot":
        notes.append("pilot: default settings")
    if not notes:
        return "selection notes", "passed", "no note"
    return "selection notes", "noted", "; ".join(notes)
