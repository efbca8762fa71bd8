"""Tables 1 to 3, S1 and S2 of the decision benchmark, from a ledger; `paper_tables` gives all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vestige.report import paper_audit
from vestige.report import paper_tables_supplement as supplement
from vestige.report.paper_index import TABLES
from vestige.report.paper_panel import Head, PaperTable, csv_of, panel, paper_table, text, valued
from vestige.report.tables import Cell, Column, Row, Table
from vestige.study.ledger import Ledger
from vestige.study.ledger_main import pooled_gain
from vestige.study.ledger_rows import (
    ClincRow,
    MainTable2Row,
    MainTable3Row,
    MethodRow,
    RegistryRow,
)

__all__ = ["paper_tables"]


def paper_tables(ledger: Ledger, numbers: Sequence[str] | None = None) -> list[PaperTable]:
    """The tables of these numbers (default all), also those that the folder holds nothing of."""
    return [_MAKERS[number](ledger) for number in (TABLES if numbers is None else numbers)]


def design(ledger: Ledger) -> PaperTable:
    """Table 1: what was evaluated, grouped."""
    rows = ledger.of(MethodRow)
    groups: dict[tuple[str, ...], list[MethodRow]] = {}
    for row in rows:
        kind = row.granularity or (f"{row.units} units" if row.units is not None else "")
        groups.setdefault((row.stage, row.dataset, row.labels, kind), []).append(row)
    header = (
        "stage",
        "dataset",
        "labels",
        "deletion",
        "models",
        "methods",
        "seeds",
        "bundles",
        "evaluations",
    )
    lines = []
    for (stage, dataset, labels, kind), group in sorted(groups.items()):
        methods = list(dict.fromkeys(row.method for row in group))
        seeds = sorted({row.seed for row in group})
        bundles = sorted({row.bundle for row in group})
        lines.append(
            (
                stage,
                dataset,
                labels,
                kind,
                str(len({row.model for row in group})),
                ", ".join(methods),
                ", ".join(map(str, seeds)),
                ", ".join(bundles),
                str(len(group)),
            )
        )
    table = _plain("design", "Evaluations", header, lines, numeric=("models", "evaluations"))
    return paper_table("1", files={"table-1": (header, tuple(lines))}, panels=[table], rows=rows)


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


def definitions(ledger: Ledger) -> PaperTable:
    """Table S2: from the registry of metrics and the constants that the code decides with."""
    from vestige.deletion.gates import LEAST_ACCURACY, LEAST_GOLD_PROBABILITY, NOISE_FACTOR
    from vestige.metrics import METRICS
    from vestige.statistics.bootstrap import DRAWS, ROW_SEEDS, UNIT_SEED_OFFSET
    from vestige.statistics.equivalence import EQUIVALENCE_MARGIN, MIN_ORACLES

    metrics = [
        (item.title, item.definition, ", ".join(item.views), item.direction or "neither")
        for item in sorted(METRICS, key=lambda item: item.title)
    ]
    gates = [
        ("acquisition, class", f"accuracy at least {LEAST_ACCURACY:g} and mean gold probability at least "
         f"{LEAST_GOLD_PROBABILITY:g} of the full model on development rows at the primary seed"),
        ("intervention", f"displacement above {NOISE_FACTOR:g} times the noise of full models on F and G"),
        ("feasible", "retained accuracy not more than 2 points below, calibration error not more than 0.02 "
         "above the full model's, under all options"),
        ("accepted", "feasible, gains on F and G above 0 with lower 95 % row bounds above 0"),
        ("positive, unconfirmed", "feasible, gains on F and G above 0"),
        ("equivalent", f"upper 95 % bound of the distance beyond noise at most {EQUIVALENCE_MARGIN:g} "
         f"on F and G, at least {MIN_ORACLES} oracles"),
    ]  # fmt: skip
    seeds = ", ".join(f"{seed} ({view})" for view, seed in ROW_SEEDS.items())
    units = [
        ("row", f"rows drawn anew, {DRAWS} draws, seeds {seeds}", "decides"),
        ("unit", f"whole units drawn anew, seeds + {UNIT_SEED_OFFSET}; summed gains over summed rows",
         "sensitivity"),
        ("hierarchical", "seeds, bundles inside, units inside; mean of means", "replication"),
        ("pooled", "intents over bundles, seed-averaged; also bundle, then intent", "CLINC150"),
    ]  # fmt: skip
    files = {
        "table-s2-definitions": (("quantity", "definition", "views", "better"), tuple(metrics)),
        "table-s2-gates": (("gate", "rule"), tuple(gates)),
        "table-s2-uncertainty": (("interval", "what is drawn", "use"), tuple(units)),
    }
    titles = ("Definitions", "Gates and decisions", "Uncertainty units")
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
