"""Tables 1 to 3, S1 and S2 of the decision benchmark, from a ledger; `paper_tables` gives all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vestige.report import paper_audit
from vestige.report import paper_tables_supplement as supplement
from vestige.report.paper_figures.geometry import matched_rows
from vestige.report.paper_index import EXPERIMENTS, TABLES
from vestige.report.paper_panel import Head, PaperTable, csv_of, panel, paper_table, text, valued
from vestige.report.tables import Cell, Column, Row, Table
from vestige.study.ledger import Ledger
from vestige.study.ledger_main import pooled_gain
from vestige.study.ledger_rows import (
    ClincRow,
    DisplacementRow,
    LedgerRow,
    MainTable2Row,
    MainTable3Row,
    MethodRow,
    RecoveryRow,
    RegistryRow,
    SchemaRow,
)

__all__ = ["paper_tables"]

MOST_NAMED = 6
"""So many values of a column are named in a table's coverage; more are counted."""


def paper_tables(ledger: Ledger, numbers: Sequence[str] | None = None) -> list[PaperTable]:
    """The tables of these numbers (default all), also those that the folder holds nothing of."""
    return [_MAKERS[number](ledger) for number in (TABLES if numbers is None else numbers)]


def design(ledger: Ledger) -> PaperTable:
    """Table 1: a row an experiment of the benchmark, with what it covers and what it is for."""
    header = ("experiment", "coverage", "role")
    lines = []
    for name, role, rows in _experiments(ledger):
        if rows:
            lines.append((name, _coverage(rows), role))
    table = _plain("design", "Experiments", header, lines)
    return paper_table(
        "1",
        files={"table-1": (header, tuple(lines))},
        panels=[table],
        rows=[row for _, _, rows in _experiments(ledger) for row in rows],
    )


def _experiments(ledger: Ledger) -> list[tuple[str, str, list[LedgerRow]]]:
    """(name, role, rows) of every experiment, in the benchmark's order; other studies come last, by name."""
    found: dict[str, list[LedgerRow]] = {name: [] for name in EXPERIMENTS}
    roles = {name: role for name, (role, _) in EXPERIMENTS.items()}
    of_study = {study: name for name, (_, studies) in EXPERIMENTS.items() for study in studies}
    for row in ledger.of(MethodRow):
        name = of_study.get(row.experiment or "") or _by_stage(row)
        roles.setdefault(name, row.stage.replace("_", " "))
        found.setdefault(name, []).append(row)
    found["granularity"] += ledger.of(DisplacementRow)
    found["candidate sets"] += [row for row in ledger.of(SchemaRow) if row.view == "f"]
    found["matched suppression"] += [
        row for row in matched_rows(ledger) if row.view == "fg" and (row.matching or row.imported)
    ]
    found["recovery"] += ledger.of(RecoveryRow)
    return [(name, roles[name], rows) for name, rows in found.items()]


def _by_stage(row: MethodRow) -> str:
    """The experiment of a row of an own study, which is its name, or of a published one, by what it is."""
    if row.experiment is not None:
        return row.experiment
    if row.labels == "opaque":
        return "labels"
    if row.dataset == "clinc150":
        return "matched suppression" if row.stage == "exploratory" else "data-set transfer"
    return {"screening": "model transfer", "exploratory": "exploratory"}.get(row.stage, "methods")


def _coverage(rows: Sequence[LedgerRow]) -> str:
    """`2 data sets, 3 models, seeds 17, 42, ...; 12 evaluations`: what the rows have columns for."""

    def values(column: str) -> list[str]:
        texts = {str(value) for row in rows if (value := getattr(row, column, None)) not in (None, "")}
        return sorted(texts, key=lambda text: (len(text), text))

    parts = [", ".join(values("dataset"))]
    models = values("model")
    parts.append(models[0] if len(models) == 1 else f"{len(models)} models" if models else "")
    parts += [
        f"{column.replace('_', ' ')} {', '.join(values(column))}"
        if len(values(column)) <= MOST_NAMED
        else f"{len(values(column))} values of {column.replace('_', ' ')}"
        for column in ("granularity", "labels", "seed", "bundle", "schema_", "k", "adapt_seed")
        if values(column)
    ]
    methods = values("method")
    if methods:
        parts.append(", ".join(methods) if len(methods) <= MOST_NAMED else f"{len(methods)} methods")
    return "; ".join([*(part for part in parts if part), f"{len(rows)} rows"])


def _plain(
    key: str, caption: str, header: Sequence[str], lines: Sequence[Sequence[str]], numeric: Sequence[str] = ()
) -> Table:
    """A table of text cells."""
    return Table(
        key=key,
        caption=caption,
        head=header[0].replace("_", " "),
        columns=tuple(
            Column(key=name, title=name.replace("_", " "), numeric=name in numeric) for name in header[1:]
        ),
        rows=tuple(
            Row(label=line[0].replace("_", " "), cells=tuple(Cell(text=item) for item in line[1:]))
            for line in lines
        ),
    )


def method_comparison(ledger: Ledger) -> PaperTable:
    """Table 2."""
    rows = ledger.of(MainTable2Row)
    first = [row for row in rows if row.phase == 1]
    second = [row for row in rows if row.phase == 2]

    def gains(row: MainTable2Row, view: str) -> Cell:
        return valued(row, f"gain_{view}", f"gain_{view}_lo", f"gain_{view}_hi")

    common = [
        Head(title="seeds", cell=lambda row: text(row, "seeds"), numeric=False),
        Head(title="bundles", cell=lambda row: text(row, "bundles"), numeric=False),
    ]
    gain = [
        Head(title="gain", view="F", cell=lambda row: gains(row, "f")),
        Head(title="gain", view="G", cell=lambda row: gains(row, "g")),
    ]
    one = [
        *common,
        Head(title="D0", view="F", cell=lambda row: text(row, "d0_f")),
        Head(title="D0", view="G", cell=lambda row: text(row, "d0_g")),
        *gain,
        Head(title="progress", view="F", cell=lambda row: text(row, "progress_f")),
        Head(title="progress", view="G", cell=lambda row: text(row, "progress_g")),
        *([Head(title="p, Holm", cell=lambda row: text(row, "p_holm"))] if _any(first, "p_holm") else []),
        Head(title="decision", cell=lambda row: text(row, "decision"), numeric=False),
    ]
    two = [*common, *gain, Head(title="decision", cell=lambda row: text(row, "decision"), numeric=False)]
    panels = []
    if first:
        panels.append(panel("t2-1", "Phase 1: confirmation", "method", lambda row: row.method, one, first))
    if second:
        panels.append(panel("t2-2", "Phase 2: replication", "method", lambda row: row.method, two, second))
    notes = [] if second or not first else [f"Phase 2 not run: {TABLES['2'].made_by}."]
    return paper_table(
        "2", files={"table-2": csv_of(MainTable2Row, rows)}, panels=panels, notes=notes, rows=rows
    )


def _any(rows: Sequence[MainTable2Row], column: str) -> bool:
    return any(row.text(column) for row in rows)


def clinc_summary(ledger: Ledger) -> PaperTable:
    """Table 3."""
    rows = ledger.of(MainTable3Row)
    heads = [
        Head(title="labels", cell=lambda row: text(row, "labels"), numeric=False),
        Head(title="gain", view="F", cell=lambda row: valued(row, "gain_f", "gain_f_lo", "gain_f_hi")),
        Head(title="gain", view="G", cell=lambda row: valued(row, "gain_g", "gain_g_lo", "gain_g_hi")),
        Head(title="progress", view="F", cell=lambda row: text(row, "progress_f")),
        Head(title="progress", view="G", cell=lambda row: text(row, "progress_g")),
    ]
    table = panel("t3", "CLINC150", "configuration", lambda row: row.configuration, heads, rows)
    notes = []
    means = [pooled_gain(ledger.of(ClincRow), view) for view in ("f", "g")]
    if rows and means[0] is not None and means[1] is not None:
        notes.append(
            "Mean over bundles of the seed-averaged gains of Table S7's confirmed and replicated rows: "
            f"F {means[0]:.3f}, G {means[1]:.3f}."
        )
    return paper_table(
        "3", files={"table-3": csv_of(MainTable3Row, rows)}, panels=[table], notes=notes, rows=rows
    )


def registry(ledger: Ledger) -> PaperTable:
    """Table S1."""
    rows = ledger.of(RegistryRow)
    heads = [
        Head(title="labels", cell=lambda row: text(row, "labels"), numeric=False),
        Head(title="stage", cell=lambda row: Cell(text=row.stage.replace("_", " ")), numeric=False),
        Head(title="evaluations", cell=lambda row: text(row, "evaluations")),
    ]
    table = panel("s1", "Evaluations in the registry", "data set", lambda row: row.dataset, heads, rows)
    notes = [f"{sum(row.evaluations for row in rows)} evaluations in all."] if rows else []
    return paper_table(
        "S1", files={"table-s1": csv_of(RegistryRow, rows)}, panels=[table], notes=notes, rows=rows
    )


PAPER, OURS = "Wu and Lim 2026", "ours, where the paper is silent"


def _quantities() -> list[tuple[str, str, str]]:
    """(quantity, definition, source) of what a table or a decision names, from the constants in use."""
    from vestige.deletion.gates import (
        LEAST_ACCURACY,
        LEAST_ASSOCIATION_ACCURACY,
        LEAST_GOLD_PROBABILITY,
        NOISE_FACTOR,
    )
    from vestige.metrics import METRICS
    from vestige.statistics.bootstrap import DRAWS

    def metric(name: str) -> str:
        return METRICS.get(name).definition

    return [
        ("F", "deleted training rows", PAPER),
        ("G", "unseen evaluation rows of what was deleted", PAPER),
        ("OD", metric("oracle_distance"), PAPER),
        ("D0", metric("displacement"), PAPER),
        ("gain", metric("gain"), PAPER),
        ("P", metric("progress"), PAPER),
        ("feasible", "retained accuracy not more than 2 points below, calibration error not more than 0.02 "
         "above the full model's, under all options", PAPER),
        ("accepted", "feasible, gains on F and G above 0 with lower 95 % row bounds above 0", PAPER),
        ("multiplicity", "the larger of the p on F and on G; Holm over the frozen family of a confirmation, "
         "infeasible candidates included, controls outside", PAPER),
        ("bootstrap", f"{DRAWS:,} paired draws, percentile 95 %; rows decide, units are sensitivity", PAPER),
        ("replication", "seeds, bundles inside, units inside; lower bounds and every leave-one-out above 0",
         PAPER),
        ("noise", "mean distance over pairs of full models of different seeds; the intervention gate asks "
         f"for a displacement above {NOISE_FACTOR:g} times it on F and G", f"{PAPER}; the factor is {OURS}"),
        ("acquisition", f"full model of the primary seed on development rows: class accuracy at least "
         f"{LEAST_ACCURACY:g} and mean gold probability at least {LEAST_GOLD_PROBABILITY:g}; association "
         f"accuracy at least {LEAST_ASSOCIATION_ACCURACY:g}", PAPER),
        ("s", metric("suppression"), PAPER),
        ("projection", f"a: {metric('aligned_coefficient')}; r: what is beside it, "
         f"{metric('relative_residual')}", PAPER),
        ("areas", "trapezoid of the mean gold probability over the updates; absolute, adjusted by each "
         "start, and over the headroom", PAPER),
    ]  # fmt: skip


def definitions(ledger: Ledger) -> PaperTable:
    """Table S2: from the registry of metrics and the constants that the code decides with."""
    from vestige.metrics import METRICS
    from vestige.statistics.bootstrap import DRAWS, ROW_SEEDS, UNIT_SEED_OFFSET

    metrics = [
        (item.title, item.definition, ", ".join(item.views), item.direction or "neither")
        for item in sorted(METRICS, key=lambda item: item.title)
    ]
    seeds = ", ".join(f"{seed} ({view})" for view, seed in ROW_SEEDS.items())
    units = [
        ("row", f"rows drawn anew, {DRAWS} draws, seeds {seeds}", "decides"),
        ("unit", f"whole units drawn anew, seeds + {UNIT_SEED_OFFSET}; summed gains over summed rows",
         "sensitivity"),
        ("hierarchical", "seeds, bundles inside, units inside; mean of means", "replication"),
        ("pooled", "intents over bundles, seed-averaged; also bundle, then intent", "CLINC150"),
    ]  # fmt: skip
    files = {
        "table-s2": (("quantity", "definition", "source"), tuple(_quantities())),
        "table-s2-metrics": (("metric", "definition", "views", "better"), tuple(metrics)),
        "table-s2-uncertainty": (("interval", "what is drawn", "use"), tuple(units)),
    }
    titles = ("Quantities, gates and rules", "Every metric", "Uncertainty units")
    panels = [
        _plain(f"s2-{place}", title, header, lines)
        for place, (title, (header, lines)) in enumerate(zip(titles, files.values(), strict=True))
    ]
    return paper_table("S2", files=files, panels=panels)


_MAKERS: dict[str, Callable[[Ledger], PaperTable]] = {
    "1": design,
    "2": method_comparison,
    "3": clinc_summary,
    "S1": registry,
    "S2": definitions,
    "S3": supplement.configurations,
    "S4": supplement.architectures,
    "S5": supplement.labels,
    "S6": supplement.schemas,
    "S7": supplement.clinc,
    "S8": supplement.suppression,
    "S9": supplement.recovery,
    "S10": supplement.optimisation,
    "S11": supplement.compute,
    "S12": paper_audit.audit_record,
}
