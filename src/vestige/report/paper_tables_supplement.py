"""Tables S3 to S11 of the decision benchmark, from a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median

from vestige.report.consistency import row_contradiction
from vestige.report.paper_figures.geometry import matched_rows
from vestige.report.paper_panel import Head, PaperTable, csv_of, interval, panel, paper_table, text, valued
from vestige.report.tables import EMPTY, Cell
from vestige.study.ledger import Ledger
from vestige.study.ledger_rows import (
    ArchitectureRow,
    ClincRow,
    ComputeRow,
    LabelRow,
    LedgerRow,
    MethodRow,
    OptimisationRow,
    RecoveryRow,
    SchemaRow,
    SuppressionRow,
)

__all__ = [
    "architectures",
    "clinc",
    "compute",
    "configurations",
    "labels",
    "optimisation",
    "recovery",
    "schemas",
    "suppression",
]

CONTRADICTS = "contradicts its own numbers"


def _texts(*pairs: tuple[str, str] | tuple[str, str, str], numeric: bool = True) -> list[Head]:
    """Heads that show a column each: (title, column) or (title, view, column)."""
    heads = []
    for pair in pairs:
        title, view, column = pair if len(pair) == 3 else (pair[0], "", pair[1])
        heads.append(Head(title=title, view=view, cell=partial(text, column=column), numeric=numeric))
    return heads


def _bounded(title: str, view: str, column: str, tail: str = "") -> Head:
    """A value with the interval in its `_lo` and `_hi` columns."""
    return Head(
        title=title,
        view=view,
        cell=lambda row: valued(row, column, f"{column}{tail}_lo", f"{column}{tail}_hi"),
    )


def _only_bounds(title: str, view: str, column: str) -> Head:
    return Head(
        title=title,
        view=view,
        cell=lambda row: Cell(text=interval(row, f"{column}_lo", f"{column}_hi") or EMPTY),
    )


def _statuses(rows: Sequence[MethodRow | ArchitectureRow | ClincRow]) -> str:
    """`3 accepted, 1 infeasible`."""
    counts: dict[str, int] = {}
    for row in rows:
        name = "undefined" if row.status.startswith("undefined") else row.status
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))


def configurations(ledger: Ledger) -> PaperTable:
    """Table S3, a fidelity and a utility panel."""
    rows = ledger.of(MethodRow)
    wrong = {id(row) for row in rows if row_contradiction(row)}
    whose = _texts(
        ("data", "dataset"),
        ("labels", "labels"),
        ("seed", "seed"),
        ("bundle", "bundle"),
        ("method", "method"),
        ("stage", "stage"),
        numeric=False,
    )
    fidelity = [
        *whose,
        *_texts(("D0", "F", "d0_f"), ("D0", "G", "d0_g")),
        _bounded("gain", "F", "gain_f"),
        _only_bounds("gain over units", "F", "gain_f_unit"),
        _bounded("gain", "G", "gain_g"),
        _only_bounds("gain over units", "G", "gain_g_unit"),
        *_texts(("progress", "F", "progress_f"), ("progress", "G", "progress_g")),
    ]
    utility = [
        *whose,
        *_texts(("decision", "status"), numeric=False),
        *_texts(
            ("accuracy change, points", "delta_acc_pp"),
            ("ECE", "ece"),
            ("ECE change", "delta_ece"),
            ("rows", "F", "rows_f"),
            ("rows", "G", "rows_g"),
            ("units", "units"),
        ),
    ]

    def tag(row: MethodRow) -> str:
        return CONTRADICTS if id(row) in wrong else ""

    panels = [
        panel(f"s3-{key}", caption, "model", lambda row: f"{row.id}. {row.model}", heads, rows, tag=tag)
        for key, caption, heads in (("fidelity", "Fidelity", fidelity), ("utility", "Utility", utility))
    ]
    notes = [f"Decisions: {_statuses(rows)}."] if rows else []
    if wrong:
        notes.append(f"{len(wrong)} row(s) contradict their own numbers and are marked.")
    return paper_table(
        "S3", files={"table-s3": csv_of(MethodRow, rows)}, panels=panels, notes=notes, rows=rows
    )


def architectures(ledger: Ledger) -> PaperTable:
    """Table S4."""
    rows = ledger.of(ArchitectureRow)
    heads = [
        *_texts(("seed", "seed"), ("bundle", "bundle"), ("stage", "stage"), numeric=False),
        _bounded("progress", "F", "progress_f"),
        _only_bounds("over classes", "F", "progress_f_class"),
        _bounded("progress", "G", "progress_g"),
        *_texts(
            ("difference", "F", "diff_progress_f"),
            ("difference", "G", "diff_progress_g"),
            ("accuracy change, points", "delta_acc_pp"),
        ),
        *_texts(("decision", "status"), numeric=False),
    ]
    notes = [screening_summary(rows)] if rows else []
    return paper_table(
        "S4",
        files={"table-s4": csv_of(ArchitectureRow, rows)},
        panels=[panel("s4", "Architectures", "model", lambda row: row.model, heads, rows)],
        notes=[note for note in notes if note],
        rows=rows,
    )


def screening_summary(rows: Sequence[ArchitectureRow]) -> str:
    """How many backbones' first runs were accepted, and the median progress on F of all of them."""
    first = [row for row in rows if row.stage in ("screening", "confirmation")]
    known = [row.progress_f for row in first if row.progress_f is not None]
    if not known:
        return ""
    accepted = sum(row.status == "accepted" for row in first)
    return (
        f"First runs: {accepted} of {len(first)} accepted, median progress on F {median(known):.2f}; "
        "the backbones were chosen on purpose, so this is no rate."
    )


def labels(ledger: Ledger) -> PaperTable:
    """Table S5."""
    rows = ledger.of(LabelRow)
    heads = [
        *_texts(("bundle", "bundle"), ("seed", "seed"), ("labels", "labels"), numeric=False),
        *_texts(
            ("full accuracy", "F", "full_acc_f"),
            ("full accuracy", "G", "full_acc_g"),
            ("oracle accuracy", "F", "oracle_acc_f"),
            ("oracle accuracy", "G", "oracle_acc_g"),
            ("oracle mass", "F", "oracle_mass_f"),
            ("oracle mass", "G", "oracle_mass_g"),
            ("D0", "F", "d0_f"),
            ("D0", "G", "d0_g"),
            ("progress", "F", "progress_f"),
            ("progress", "G", "progress_g"),
        ),
        *_texts(("acquisition", "opaque_acquisition"), numeric=False),
        *_texts(
            ("least class accuracy, opaque", "min_class_acc_opaque"),
            ("semantic", "min_class_acc_semantic"),
            ("least gold probability, opaque", "min_gold_p_opaque"),
        ),
    ]
    return paper_table(
        "S5",
        files={"table-s5": csv_of(LabelRow, rows)},
        panels=[panel("s5", "Label pairs", "data set", lambda row: row.dataset, heads, rows)],
        rows=rows,
    )


def schemas(ledger: Ledger) -> PaperTable:
    """Table S6."""
    rows = ledger.of(SchemaRow)
    heads = [
        *_texts(
            ("data", "dataset"),
            ("labels", "labels"),
            ("bundle", "bundle"),
            ("method", "method"),
            ("set", "schema"),
            ("made of", "schema_kind"),
            numeric=False,
        ),
        *_texts(("options", "options"), ("D0", "d0")),
        *_texts(("view", "view"), numeric=False),
        Head(title="progress", cell=lambda row: valued(row, "progress", "progress_lo", "progress_hi")),
        _only_bounds("over classes", "", "progress_class"),
        *_texts(("oracle accuracy", "oracle_acc")),
    ]
    return paper_table(
        "S6",
        files={"table-s6": csv_of(SchemaRow, rows)},
        panels=[panel("s6", "Candidate sets", "model", lambda row: row.model, heads, rows)],
        rows=rows,
    )


def clinc(ledger: Ledger) -> PaperTable:
    """Table S7."""
    rows = ledger.of(ClincRow)
    heads = [
        *_texts(
            ("seed", "seed"), ("bundle", "bundle"), ("run", "run_label"), ("stage", "stage"), numeric=False
        ),
        *_texts(("D0", "F", "d0_f")),
        _bounded("gain", "F", "gain_f"),
        _only_bounds("over intents", "F", "gain_f_intent"),
        _bounded("gain", "G", "gain_g"),
        _only_bounds("over intents", "G", "gain_g_intent"),
        *_texts(
            ("progress", "F", "progress_f"),
            ("progress", "G", "progress_g"),
            ("accuracy change, points", "delta_acc_pp"),
        ),
        *_texts(("decision", "status"), numeric=False),
    ]
    notes = [f"Decisions: {_statuses(rows)}."] if rows else []
    return paper_table(
        "S7",
        files={"table-s7": csv_of(ClincRow, rows)},
        panels=[panel("s7", "CLINC150", "model", lambda row: f"{row.id}. {row.model}", heads, rows)],
        notes=notes,
        rows=rows,
    )


def suppression(ledger: Ledger) -> PaperTable:
    """Table S8: what runs with matched settings evaluate, else every configuration."""
    rows = matched_rows(ledger)
    heads = [
        *_texts(("data", "dataset"), ("view", "view"), numeric=False),
        *_texts(("development s", "dev_s")),
        _bounded("held-out s", "", "s"),
        _only_bounds("over classes", "", "s_class"),
        _bounded("aligned a", "", "aligned_a"),
        _bounded("residual", "", "residual"),
        *_texts(("progress", "F", "progress_f")),
        *_texts(("feasible", "feasible"), numeric=False),
        *_texts(("identity error", "identity_error"), ("zero rows", "zero_rows")),
    ]
    notes = []
    if rows and not any(row.matching or row.imported for row in rows):
        notes.append("Nothing was matched here.")
    if any(row.view == "fg" and row.s is not None and row.aligned_a is None for row in rows):
        notes.append("Measured geometry is of each view; only suppression is of F and G together.")
    missed = sorted({row.run for row in rows if row.unmatched})
    if missed:
        notes.append(f"Unmatched, more than 0.1 from the target: {', '.join(missed)}.")
    if any(row.matching for row in rows):
        notes += _absent(ledger, {row.run for row in rows if row.matching})
    return paper_table(
        "S8",
        files={"table-s8": csv_of(SuppressionRow, rows)},
        panels=[panel("s8", "Suppression and geometry", "run", _suppression_label, heads, rows)],
        notes=notes,
        rows=rows,
    )


def _absent(ledger: Ledger, shown: set[str]) -> list[str]:
    """Methods that a record of matched settings lists and that are not shown, with what was found of them."""
    found: dict[str, str] = {}
    for run in ledger.runs:
        for record in run.frozen:
            for item in record["methods"] if record.get("match") is not None else ():
                gap = item.get("gap")
                why = item.get("note") or (f"{gap:.2f} from the target" if gap is not None else "")
                if item["label"] not in shown:
                    found.setdefault(item["label"], why)
    if not found:
        return []
    named = ", ".join(f"{label} ({why})" if why else label for label, why in sorted(found.items()))
    return [f"Not shown, though it was tuned: {named}."]


def _suppression_label(row: SuppressionRow) -> str:
    more = [part for part in (row.model, row.bundle, f"seed {row.seed}" if row.seed else None) if part]
    return f"{row.run} ({', '.join(more)})" if more else row.run


def recovery(ledger: Ledger) -> PaperTable:
    """Table S9: contrasts, then areas and thresholds."""
    rows = ledger.of(RecoveryRow)
    setting = _texts(("k", "k"), ("adaptation seed", "adapt_seed"))
    contrasts = [
        *setting,
        *_texts(("start, unlearned", "p0_u"), ("start, oracle", "p0_o")),
        _bounded("absolute", "", "g_abs"),
        _bounded("adjusted", "", "g_adj"),
        _only_bounds("adjusted over classes", "", "g_adj_class"),
        _bounded("headroom", "", "g_h"),
        *_texts(("identity residual", "identity_residual")),
    ]
    areas = [
        *setting,
        *_texts(
            ("area, unlearned", "a_abs_u"),
            ("area, oracle", "a_abs_o"),
            ("adjusted, unlearned", "a_adj_u"),
            ("adjusted, oracle", "a_adj_o"),
        ),
        *(
            Head(title=f"updates to {level}, {who}", cell=partial(_threshold, column=column))
            for level, who, column in (
                ("0.5", "unlearned", "t50_u"),
                ("0.5", "oracle", "t50_o"),
                ("0.8", "unlearned", "t80_u"),
                ("0.8", "oracle", "t80_o"),
            )
        ),
    ]
    panels = [
        panel(f"s9-{key}", caption, "model", _recovery_label, heads, rows)
        for key, caption, heads in (
            ("contrasts", "Contrasts", contrasts),
            ("areas", "Areas and thresholds", areas),
        )
    ]
    return paper_table("S9", files={"table-s9": csv_of(RecoveryRow, rows)}, panels=panels, rows=rows)


def _recovery_label(row: RecoveryRow) -> str:
    return f"{row.model}, {row.method}" if row.method else row.model


def _threshold(row: LedgerRow, column: str) -> Cell:
    if row.text(f"{column}_censored") == "True":
        return Cell(text="not reached")
    return text(row, column)


def optimisation(ledger: Ledger) -> PaperTable:
    """Table S10."""
    rows = ledger.of(OptimisationRow)
    heads = _texts(
        ("seed", "seed"),
        ("progress", "F", "progress_f"),
        ("suppression", "F", "s_f"),
        ("full: gold probability", "full_gold_p"),
        ("full: confidence", "full_confidence"),
        ("full: margin", "full_margin"),
        ("oracle accuracy", "oracle_acc"),
        ("forget loss, first", "forget_loss_first10"),
        ("forget loss, last", "forget_loss_last10"),
        ("retain loss, first", "retain_loss_first10"),
        ("retain loss, last", "retain_loss_last10"),
        ("gradient norm, first", "grad_norm_first10"),
        ("gradient norm, last", "grad_norm_last10"),
    )
    if any(row.method for row in rows):
        heads = [*_texts(("bundle", "bundle"), ("method", "method"), numeric=False), *heads]
    return paper_table(
        "S10",
        files={"table-s10": csv_of(OptimisationRow, rows)},
        panels=[panel("s10", "Optimisation", "model", lambda row: row.model, heads, rows)],
        rows=rows,
    )


def compute(ledger: Ledger) -> PaperTable:
    """Table S11."""
    rows = ledger.of(ComputeRow)
    heads = [
        Head(title="stage", cell=lambda row: Cell(text=row.stage.replace("_", " ")), numeric=False),
        *_texts(("evaluations", "evaluations"), ("device hours", "gpu_hours_logged"), ("models", "models")),
    ]
    if any(row.device for row in rows):
        heads += _texts(("device", "device"), numeric=False)
    notes = []
    if rows:
        notes.append(
            f"{sum(row.gpu_hours_logged for row in rows):,.1f} logged hours and "
            f"{sum(row.evaluations for row in rows):,} evaluations and candidates in all."
        )
    return paper_table(
        "S11",
        files={"table-s11": csv_of(ComputeRow, rows)},
        panels=[
            panel(
                "s11", "Device hours", "experiment", lambda row: row.experiment.replace("_", " "), heads, rows
            )
        ],
        notes=notes,
        rows=rows,
    )
