"""Tables and figures of footprints as files: CSV in full precision, LaTeX for papers, SVG. No texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.contracts import Bounded, Interval, Undefined
from vestige.csv_text import csv_text
from vestige.files import write_text
from vestige.footprint.judgements import CalibratedClass
from vestige.footprint.records import CheckpointFootprint, FootprintRecord, Shift
from vestige.footprint.verdict_records import VerdictRecord
from vestige.metrics.footprint import FootprintClass
from vestige.report.drawing import Panel, standalone
from vestige.report.export import to_tex
from vestige.report.footprint.page import overview
from vestige.report.footprint.published import Measured, PublishedTable, published_tables
from vestige.report.footprint.rows import checkpoint_rows
from vestige.report.footprint.sections import Extras, footprint_sections
from vestige.report.footprint.tables import checkpoint_table, noise_variants, role_table
from vestige.report.sections import Block, Drawings, Fold, Section
from vestige.report.tables import Cell, Column, Row, Table

__all__ = ["write_footprint_figures", "write_footprint_tables"]

_KEYS = ("footprint", "base", "checkpoint", "checkpoint_role")
_SHIFTS = ("cofi", "chess", "chess_floor", "log10_ppl_ratio", "cofi_linear")


def write_footprint_tables(
    records: Sequence[FootprintRecord],
    folder: Path,
    formats: Sequence[str],
    measured: Sequence[Measured] = (),
) -> list[Path]:
    """Write the tables in these formats, `csv` and `tex`, and return their paths.

    measured: the records with what lies beside them. Where one is of a study or measured as published,
    tables in the form of the published ones are written too, into `published/`, with an index of which has
    rows.
    """
    written: list[Path] = []

    def write(name: str, text: str) -> None:
        write_text(folder / name, text)
        written.append(folder / name)

    if "csv" in formats:
        judged = any(isinstance(record.verdict, VerdictRecord) for record in records)
        verdicts = (("verdicts", _verdict_lines(records)), ("levels", _level_lines(records)))
        for name, rows in (
            *(verdicts if judged else ()),
            ("shifts", _shift_lines(records)),
            ("classes", _class_lines(records)),
            ("modules", _module_lines(records)),
            ("documents", _document_lines(records)),
        ):
            header, *lines = rows
            write(f"{name}.csv", csv_text(header, lines))
    as_published = any(item.study is not None or item.shifts.settings.preset == "triage" for item in measured)
    tables_of = published_tables(measured) if as_published else []
    if "csv" in formats and tables_of:
        for table_of in tables_of:
            if table_of.rows:
                write(f"published/{table_of.name}.csv", csv_text(table_of.header, table_of.rows))
        index = [
            [
                f"{item.name}.csv" if item.rows else "",
                item.title,
                ", ".join(item.numbers),
                len(item.rows),
                item.missing,
            ]
            for item in tables_of
        ]
        write("published/index.csv", csv_text(["file", "title", "tables", "rows", "missing"], index))
    if "tex" in formats and tables_of:
        text = "\n".join(to_tex(_of_published(item), long=True) for item in tables_of if item.rows)
        write("published/published.tex", text)
    if "tex" in formats:
        tables = [table for record in records for table in (checkpoint_table(record), role_table(record))]
        variants = noise_variants(checkpoint_rows(records))
        write(
            "footprints.tex",
            "\n".join(to_tex(table) for table in [*tables, *([variants] if variants else [])]),
        )
    return written


def _of_published(table: PublishedTable) -> Table:
    """A published table's rows as a table of text, numbers in three digits."""

    def short_number(text: str) -> str:
        try:
            return text if text.lstrip("-").isdecimal() else f"{float(text):.3g}"
        except ValueError:
            return text

    return Table(
        key=table.name,
        caption=f"{table.title[0].upper()}{table.title[1:]}",
        head=table.header[0],
        columns=tuple(Column(key=name, title=name.replace("_", " ")) for name in table.header[1:]),
        rows=tuple(
            Row(label=row[0], cells=tuple(Cell(text=short_number(text)) for text in row[1:]))
            for row in table.rows
        ),
    )


def write_footprint_figures(
    records: Sequence[FootprintRecord], folder: Path, extras: Sequence[Extras] = ()
) -> list[Path]:
    """Write every drawing of the page as a file of its own, and index.csv: file, caption, what it shows.

    Files are named by section and place in it, with `f1-`, `f2-`, ... before them for each of several
    footprints. extras: one a record, or none. Returns the paths.
    """
    beside = list(extras) or [Extras()] * len(records)
    several = len(records) > 1
    found: list[tuple[str, Panel]] = []
    if several:
        found += _panels(overview(records), "")
    for place, (record, extra) in enumerate(zip(records, beside, strict=True), start=1):
        before = f"f{place}-" if several else ""
        found += _panels(footprint_sections(record, extra, key=f"f{place}"), before)
    for name, panel in found:
        write_text(folder / name, standalone(panel))
    index = csv_text(
        ["file", "caption", "alternative"],
        [[name, panel.caption, panel.alternative] for name, panel in found],
    )
    write_text(folder / "index.csv", index)
    return [*(folder / name for name, _ in found), folder / "index.csv"]


def _panels(sections: Sequence[Section], before: str) -> list[tuple[str, Panel]]:
    """File name and drawing, in the order of the page."""
    return [
        (f"{before}{section.key}-{place}.svg", panel)
        for section in sections
        for place, panel in enumerate(_drawn(section.blocks), start=1)
    ]


def _drawn(blocks: Sequence[Block]) -> Iterator[Panel]:
    for block in blocks:
        if isinstance(block, Drawings):
            yield from block.panels
        elif isinstance(block, Fold):
            yield from _drawn(block.blocks)


def _keys(record: FootprintRecord, checkpoint: CheckpointFootprint) -> list[str]:
    return [record.name, record.base.label, checkpoint.label, checkpoint.role]


def _verdict_lines(records: Sequence[FootprintRecord]) -> Iterator[list[str]]:
    """`verdicts.csv`: a line an unlearned model and view; a model without a retrained one has one line."""
    quantities = ("displacement", "distance", "excess", "memory", "gain")
    header = ["footprint", "base", "model", "seeds", "verdict", "view", "documents"]
    for name in quantities:
        header += [name, f"{name}_low", f"{name}_high"]
    yield [*header, "spread", "progress", "ceiling", "p", "harm", "loss_change", "sentence"]
    for record in records:
        verdict = record.verdict
        for model in verdict.models if isinstance(verdict, VerdictRecord) else ():
            evidence = model.evidence
            start = [record.name, record.base.label, model.label, str(len(model.checkpoints))]
            start.append(str(model.verdict))
            kept = evidence.retained
            end = [*_numbers(model.p), kept.harm, *_numbers(kept.change.value), model.sentence]
            for view in evidence.views:
                line = [view.view, str(view.rows)]
                for name in quantities:
                    found: Bounded = getattr(view, name)
                    line += [*_numbers(found.value), *_interval(found.these_models)]
                yield [*start, *line, *_numbers(view.spread, view.progress, view.ceiling), *end]
            if not evidence.views:
                yield [*start, *[""] * (2 + 3 * len(quantities) + 3), *end]


def _interval(ends: Interval | Undefined) -> list[str]:
    return ["", ""] if isinstance(ends, Undefined) else [repr(ends.low), repr(ends.high)]


def _level_lines(records: Sequence[FootprintRecord]) -> Iterator[list[str]]:
    """`levels.csv`: a line a model and corpus."""
    header = ["footprint", "base", "model", "model_role", "corpus", "role", "documents", "probability"]
    yield [*header, "probability_low", "probability_high", "loss", "change", "change_low", "change_high"]
    for record in records:
        verdict = record.verdict
        for item in verdict.levels if isinstance(verdict, VerdictRecord) else ():
            for text in item.texts:
                line = [record.name, record.base.label, item.label, item.role, text.corpus, text.role]
                line += [str(text.documents), repr(text.probability), *_interval(text.interval)]
                line += [repr(text.loss), repr(text.change), *_interval(text.change_interval)]
                yield line


def _shift_lines(records: Sequence[FootprintRecord]) -> Iterator[list[str]]:
    """`shifts.csv`: a line a checkpoint and corpus. An empty number stands beside its reason."""
    header = [*_KEYS, "corpus", "role"]
    for name in _SHIFTS:
        header += [name, f"{name}_half_width", f"{name}_undefined"]
    yield [*header, "below_floor_base", "below_floor_after"]
    for record in records:
        for checkpoint in record.checkpoints:
            for corpus in checkpoint.corpora:
                ratio = corpus.perplexity
                lost = (
                    Shift(value=ratio, half_width=ratio)
                    if isinstance(ratio, Undefined)
                    else ratio.log10_ratio
                )
                line = [*_keys(record, checkpoint), corpus.corpus, corpus.role]
                for shift in (
                    corpus.fisher,
                    corpus.hessian,
                    corpus.hessian_floor,
                    lost,
                    corpus.fisher_linear,
                ):
                    line += [*_numbers(shift.value, shift.half_width), _why(shift.value, shift.half_width)]
                share = corpus.floor_share
                known = None if isinstance(share, Undefined) else share
                yield [*line, *(["", ""] if known is None else [repr(known.base), repr(known.after)])]


def _class_lines(records: Sequence[FootprintRecord]) -> Iterator[list[str]]:
    """`classes.csv`: a line a checkpoint."""
    yield [
        *_KEYS, "class", "undetermined", "flags", "estimator", "adjacency_gap", "adjacency_gap_half_width",
        "globality", "globality_half_width", "calibrated_class", "moved_p", "h", "h_p", "g", "g_p",
        "disagreement",
    ]  # fmt: skip
    for record in records:
        for checkpoint in record.checkpoints:
            published, calibrated = checkpoint.published, checkpoint.calibrated
            line = _keys(record, checkpoint)
            if isinstance(published, FootprintClass):
                line += [str(published.name), "; ".join(published.undetermined), "; ".join(published.flags)]
                line.append(checkpoint.estimator_label)
                line += _numbers(published.adjacency_gap, published.adjacency_gap_half_width)
                line += _numbers(published.globality, published.globality_half_width)
            else:
                line += [str(published), "", "", checkpoint.estimator_label, "", "", "", ""]
            if isinstance(calibrated, CalibratedClass):
                line += [str(calibrated.name), repr(calibrated.moved_p)]
                line += _numbers(calibrated.h, calibrated.h_p, calibrated.g, calibrated.g_p)
            else:
                line += [str(calibrated), "", "", "", "", ""]
            yield [*line, checkpoint.disagreement]


def _module_lines(records: Sequence[FootprintRecord]) -> Iterator[list[str]]:
    """`modules.csv`: a line a weight matrix, checkpoint and corpus."""
    yield [*_KEYS, "corpus", "matrix", "layer", "projection", "parameters", "shift", "share"]
    for record in records:
        for checkpoint in record.checkpoints:
            for corpus in checkpoint.corpora:
                for module in corpus.modules:
                    place = ["" if module.layer is None else str(module.layer), module.projection or ""]
                    line = [*_keys(record, checkpoint), corpus.corpus, module.name, *place]
                    yield [*line, str(module.parameters), *_numbers(module.shift, module.share)]


def _document_lines(records: Sequence[FootprintRecord]) -> Iterator[list[str]]:
    """`documents.csv`: a line a most shifted document, by its id."""
    yield [
        *_KEYS, "corpus", "document", "units", "trace_shift", "trace_base", "trace_after",
        "loss_base", "loss_after",
    ]  # fmt: skip
    for record in records:
        for checkpoint in record.checkpoints:
            for corpus in checkpoint.corpora:
                for item in corpus.documents:
                    line = [*_keys(record, checkpoint), corpus.corpus, item.document, str(item.units)]
                    line += _numbers(item.shift, item.trace_base, item.trace_after)
                    yield [*line, *_numbers(item.loss_base, item.loss_after)]


def _numbers(*values: float | Undefined) -> list[str]:
    return ["" if isinstance(value, Undefined) else repr(value) for value in values]


def _why(*values: float | Undefined) -> str:
    return next((value.undefined for value in values if isinstance(value, Undefined)), "")
