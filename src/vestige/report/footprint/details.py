"""Tables behind a footprint: modules, documents, corpora, calibration, the adjacent corpus. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vestige.contracts import Interval, Undefined
from vestige.footprint.judgements import Adjacency, CalibratedClass
from vestige.footprint.records import CorpusFootprint, FootprintRecord, ModuleShift
from vestige.report.footprint.drawn import percent
from vestige.report.footprint.tables import lost_cell, text_cell
from vestige.report.tables import EMPTY, Cell, Column, Row, Table
from vestige.report.words import count, plain, probability, short, styled

__all__ = [
    "adjacency_table",
    "calibration_entries",
    "calibration_table",
    "corpora_table",
    "documents_table",
    "layers_table",
    "modules_table",
]

MOST_MODULES = 15


def _number(value: float | Undefined | None, text: str) -> Cell:
    return (
        Cell(text=EMPTY)
        if value is None
        else lost_cell(value)
        if isinstance(value, Undefined)
        else Cell(text=text)
    )


def modules_table(corpus: CorpusFootprint, label: str) -> Table:
    """The most shifted weight matrices on a corpus."""
    return Table(
        key="modules",
        caption=f"{short(label)} on {corpus.corpus}: most shifted of {count(len(corpus.modules))} matrices",
        head="matrix",
        columns=_MOVED,
        rows=tuple(_moved(module) for module in corpus.modules[:MOST_MODULES]),
    )


def layers_table(corpus: CorpusFootprint, label: str) -> Table:
    """Projections, then layers, on a corpus."""
    rows = [_moved(module) for module in corpus.projections]
    rows += [_moved(module, f"layer {module.name}") for module in corpus.layers]
    return Table(
        key="layers",
        caption=f"{short(label)} on {corpus.corpus}: projections and layers",
        head="part",
        columns=_MOVED,
        rows=tuple(rows),
    )


_MOVED = (
    Column(key="shift", title="own shift", detail="percent"),
    Column(key="share", title="share of the squared shift"),
    Column(key="parameters", title="weights"),
)


def _moved(module: ModuleShift, name: str = "") -> Row:
    share = module.share
    return Row(
        label=name or module.name,
        cells=(
            _number(module.shift, "" if isinstance(module.shift, Undefined) else percent(module.shift)),
            _number(share, "" if isinstance(share, Undefined) else styled(share, "share")),
            Cell(text=count(module.parameters)),
        ),
    )


def documents_table(corpus: CorpusFootprint, label: str, texts: dict[tuple[str, str], str] | None) -> Table:
    """The documents whose Fisher trace moved most. texts: (corpus, id) -> beginning, where they are shown."""
    columns = [
        Column(key="shift", title="Fisher trace", detail="change, percent"),
        Column(key="loss_base", title="loss", detail="base"),
        Column(key="loss_after", title="loss", detail="after"),
        Column(key="units", title="units"),
    ]
    if texts is not None:
        columns.append(Column(key="text", title="text", detail="its beginning", numeric=False))
    rows = []
    for item in corpus.documents:
        change = item.shift
        cells = [
            _number(change, "" if isinstance(change, Undefined) else _change(change)),
            Cell(text=styled(item.loss_base, "number")),
            Cell(text=styled(item.loss_after, "number")),
            Cell(text=count(item.units)),
        ]
        if texts is not None:
            cells.append(text_cell(texts.get((corpus.corpus, item.document), "not found")))
        rows.append(Row(label=f"document {item.document}", cells=tuple(cells)))
    return Table(
        key="documents",
        caption=f"{short(label)} on {corpus.corpus}: most shifted documents",
        head="document",
        columns=tuple(columns),
        rows=tuple(rows),
    )


def _change(value: float) -> str:
    return f"{value:+,.1f}" if abs(value) < 1000 else f"{value:+,.0f}"


def corpora_table(record: FootprintRecord) -> Table:
    """What was sampled of each corpus. No text."""
    rows = []
    for corpus in record.corpora:
        lengths = corpus.lengths
        rows.append(
            Row(
                label=corpus.name,
                tag=corpus.role if corpus.role != corpus.name else "",
                cells=(
                    Cell(text=count(corpus.documents)),
                    Cell(text=count(corpus.windowed)),
                    text_cell(_range(corpus.units)),
                    text_cell(_range(corpus.tokens)),
                    text_cell("all the same" if corpus.coincide else styled(corpus.overlap, "percent")),
                    text_cell(f"{lengths[0]}, {lengths[2]}, {lengths[-1]}" if len(lengths) >= 5 else EMPTY),
                    text_cell(f"{corpus.empty} empty, {corpus.one_token} of one token"),
                ),
            )
        )
    return Table(
        key="corpora",
        caption="Text that was measured on",
        head="corpus",
        columns=(
            Column(key="documents", title="documents"),
            Column(key="windowed", title="cut to windows"),
            Column(key="units", title="units", detail="of each subset"),
            Column(key="tokens", title="tokens", detail="of each subset"),
            Column(key="overlap", title="overlap", detail="of two subsets"),
            Column(key="lengths", title="tokens of a unit", detail="least, median, most"),
            Column(key="left_out", title="left out", numeric=False),
        ),
        rows=tuple(rows),
    )


def _range(values: Sequence[int]) -> str:
    unique = sorted(set(values))
    return count(unique[0]) if len(unique) == 1 else f"{count(unique[0])}–{count(unique[-1])}"


def calibration_table(calibrated: CalibratedClass, label: str) -> Table:
    """The calibrated class's numbers, a row a corpus."""
    rows = []
    for corpus in calibrated.corpora:
        copies, references = sorted(corpus.copies), sorted(corpus.references)
        bounds = corpus.interval
        rows.append(
            Row(
                label=corpus.corpus,
                tag=corpus.role if corpus.role != corpus.corpus else "",
                cells=(
                    Cell(
                        text=f"× {percent(corpus.fold)}",
                        row=f"[{bounds.low:.3g}, {bounds.high:.3g}]" if isinstance(bounds, Interval) else "",
                        note="" if isinstance(bounds, Interval) or bounds is None else plain(bounds),
                    ),
                    Cell(text=f"{corpus.s:.3g}"),
                    text_cell(_middle(copies)),
                    text_cell(_middle(references)),
                    Cell(text=f"{corpus.e:.3g}"),
                ),
            )
        )
    intervals = [corpus.interval for corpus in calibrated.corpora if isinstance(corpus.interval, Interval)]
    return Table(
        key="calibration",
        caption=f"{short(label)}: Fisher values against 8-bit copies and undirected changes of the same size",
        head="corpus",
        columns=(
            Column(key="fold", title="fold change", detail="exp(s); interval of s"),
            Column(key="s", title="s", detail="RMS log ratio"),
            Column(
                key="copies", title="8-bit copies", detail=f"median, most of {calibrated.settings.copies}"
            ),
            Column(
                key="references",
                title="undirected changes",
                detail=f"median, most of {calibrated.settings.references}",
            ),
            Column(key="e", title="e", detail="s / median"),
        ),
        rows=tuple(rows),
        notes=tuple(
            dict.fromkeys(
                f"{item.kind}, {item.level:.0%}, {item.draws:,} draws, seed {item.seed}, {item.condition}"
                for item in intervals
            )
        ),
    )


def _middle(ordered: Sequence[float]) -> str:
    return f"{ordered[len(ordered) // 2]:.3g}, {ordered[-1]:.3g}" if ordered else EMPTY


def calibration_entries(found: CalibratedClass, measured: int) -> Iterator[tuple[str, str]]:
    """The two questions of the calibrated class with their p values. measured: weights of T."""
    yield (
        "moved?",
        f"largest s is {found.moved:.3g} times the median 8-bit copy's, rank p {probability(found.moved_p)}",
    )
    if isinstance(found.h, Undefined):
        yield "everywhere alike?", plain(found.h)
    else:
        yield "everywhere alike? h", _tested(found.h, found.h_p, found.h_interval)
    if isinstance(found.g, Undefined):
        yield "forget or adjacent?", plain(found.g)
    else:
        yield "forget or adjacent? g", _tested(found.g, found.g_p, found.g_interval)
    yield "matrices changed", f"{found.changed}, of full rank {found.full_rank}"
    yield (
        "seed",
        f"{found.settings.seed}; document bootstrap: {count(found.settings.draws)} draws on "
        f"{count(min(found.settings.coordinates, measured))} of {count(measured)} weights",
    )


def _tested(value: float, p: float | Undefined, interval: Interval | Undefined) -> str:
    text = f"{value:+.3f}"
    if isinstance(interval, Interval):
        text += f" [{interval.low:.3f}, {interval.high:.3f}]"
    text = text.replace("-", "−")
    return f"{text}, " + (f"p {plain(p)}" if isinstance(p, Undefined) else f"rank p {probability(p)}")


def adjacency_table(found: Adjacency) -> Table | None:
    """Overlaps of the largest Fisher entries. None where they are undefined."""
    if isinstance(found.overlaps, Undefined):
        return None
    return Table(
        key="adjacency",
        caption="Largest Fisher entries of the base that two roles share",
        head="of the largest",
        columns=(
            Column(key="fa", title="forget, adjacent"),
            Column(key="fg", title="forget, generic"),
            Column(key="ag", title="adjacent, generic"),
            Column(key="margin", title="margin", detail="first − second"),
            Column(key="caution", title="reading", numeric=False),
        ),
        rows=tuple(
            Row(
                label=count(item.k),
                cells=(
                    Cell(text=styled(item.forget_adjacent, "share")),
                    Cell(text=styled(item.forget_generic, "share")),
                    Cell(text=styled(item.adjacent_generic, "share")),
                    Cell(text=styled(item.margin, "points") + " points"),
                    text_cell("caution: not above 0" if item.caution else "adjacent is nearer"),
                ),
            )
            for item in found.overlaps
        ),
    )
