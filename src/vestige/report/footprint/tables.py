"""Tables of a footprint: classes, shifts, roles, several records side by side. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from vestige.contracts import Undefined
from vestige.footprint.judgements import CalibratedClass
from vestige.footprint.records import (
    CheckpointFootprint,
    CorpusFootprint,
    FootprintRecord,
    RoleFootprint,
    Shift,
)
from vestige.footprint.tables import signed_text
from vestige.report.footprint.drawn import percent
from vestige.report.footprint.rows import CheckpointRow
from vestige.report.tables import EMPTY, Cell, Column, Row, Table
from vestige.report.words import plain, short, styled

__all__ = [
    "checkpoint_table",
    "class_cells",
    "class_table",
    "interval_words",
    "lost_cell",
    "noise_variants",
    "role_table",
    "shift_cell",
    "shift_table",
    "text_cell",
]


def text_cell(text: str) -> Cell:
    return Cell(text=plain(text))


def lost_cell(why: Undefined) -> Cell:
    return Cell(text=plain(why), undefined=True)


def shift_cell(shift: Shift, *, signed: bool = False) -> Cell:
    """Value and half-width; the reason where there is no value, and where there is no interval."""
    value, half = shift.value, shift.half_width
    if isinstance(value, Undefined):
        return lost_cell(value)
    text = signed_text(value) if signed else percent(value)
    if isinstance(half, Undefined):
        return Cell(text=text, note=f"no interval: {plain(half.undefined)}")
    return Cell(text=f"{text} ± {percent(half)}")


def _gap(value: float | Undefined, half: float | Undefined, *, signed: bool) -> Cell:
    return shift_cell(Shift(value=value, half_width=half), signed=signed)


def checkpoint_table(record: FootprintRecord) -> Table:
    """Checkpoints by what their class rests on: roles, gap, globality, both classes."""
    rows = []
    for checkpoint in record.checkpoints:
        roles = {role.role: role.fisher for role in checkpoint.roles}
        absent = Shift(
            value=Undefined(undefined="no corpus of this role"),
            half_width=Undefined(undefined="no corpus of this role"),
        )
        published = checkpoint.published
        cells = [*class_cells(checkpoint)]
        cells += [shift_cell(roles.get(role, absent)) for role in ("forget", "adjacent", "generic")]
        if isinstance(published, Undefined):
            cells += [lost_cell(published), lost_cell(published)]
        else:
            cells.append(_gap(published.adjacency_gap, published.adjacency_gap_half_width, signed=True))
            cells.append(_gap(published.globality, published.globality_half_width, signed=False))
        rows.append(_row(checkpoint, cells))
    return Table(
        key="classes",
        caption="Classes and what they rest on",
        head="checkpoint",
        columns=(
            Column(key="published", title="published class", numeric=False),
            Column(key="calibrated", title="calibrated class", numeric=False),
            Column(key="forget", title="CoFi forget", detail="percent"),
            Column(key="adjacent", title="CoFi adjacent", detail="percent"),
            Column(key="generic", title="CoFi generic", detail="percent"),
            Column(key="gap", title="adjacency gap", detail="forget − adjacent"),
            Column(key="globality", title="globality", detail="generic / larger of the two"),
        ),
        rows=tuple(rows),
        notes_are="± half-widths",
        notes=(interval_words(record), "of the gap: square root of the sum of both squares"),
    )


def class_cells(checkpoint: CheckpointFootprint) -> tuple[Cell, Cell]:
    """The published and the calibrated class."""
    published, calibrated = checkpoint.published, checkpoint.calibrated
    if isinstance(published, Undefined):
        first = lost_cell(published)
    elif isinstance(published.name, Undefined):
        first = lost_cell(published.name)
    else:
        notes = [
            *(["undetermined"] if published.undetermined else []),
            *(["flagged"] if published.flags else []),
        ]
        first = Cell(text=published.name, note=", ".join(notes))
    if isinstance(calibrated, Undefined):
        told = calibrated.undefined.startswith("not computed")
        return first, text_cell("not computed") if told else lost_cell(calibrated)
    if isinstance(calibrated.name, Undefined):
        return first, lost_cell(calibrated.name)
    return first, Cell(text=calibrated.name)


def calibrated_text(calibrated: CalibratedClass | Undefined) -> str:
    """The calibrated class in words."""
    return plain(calibrated if isinstance(calibrated, Undefined) else calibrated.name)


def interval_words(record: FootprintRecord) -> str:
    """What the half-widths are: kind, subsets, seed, condition."""
    settings = record.settings
    words = f"t-based, 95 %, over {settings.subsets} subsets of {settings.units} units, seed {settings.seed}"
    words += "; text drawn anew, models fixed: no training variance"
    overlaps = [corpus for corpus in record.corpora if corpus.overlap > 0 and not corpus.coincide]
    if overlaps:
        words += (
            f"; too short on {', '.join(plain(corpus.name) for corpus in overlaps)}, whose subsets overlap"
        )
    return words


def shift_table(record: FootprintRecord, checkpoint: CheckpointFootprint, *, noted: bool = True) -> Table:
    """One checkpoint: corpora and roles by everything measured on them. noted: what its intervals are."""
    overlapping = {corpus.name for corpus in record.corpora if corpus.overlap > 0 and not corpus.coincide}
    rows = [_corpus_row(corpus, corpus.corpus in overlapping) for corpus in checkpoint.corpora]
    rows += [_role_row(role) for role in checkpoint.roles if len(role.corpora) > 1]
    return Table(
        key="shifts",
        caption=f"{short(checkpoint.label)}: shifts by corpus",
        head="corpus",
        columns=(
            Column(key="cofi", title="CoFi", detail="Fisher, percent"),
            Column(key="chess", title="CHess", detail="Hessian, percent"),
            Column(key="chess_floor", title="its noise floor", detail="two probe seeds, base"),
            Column(key="ppl", title="log10 PPL ratio", detail="after / base"),
            Column(key="below", title="below floor", detail=f"of {record.settings.floor:g}: base, after"),
            Column(key="linear", title="linear scale", detail="percent, no thresholds"),
        ),
        rows=tuple(rows),
        notes_are="± half-widths",
        notes=(
            interval_words(record),
            "of a role: square root of the sum of squares over its corpora, by their number",
        )
        if noted
        else (),
    )


def _corpus_row(corpus: CorpusFootprint, too_short: bool) -> Row:
    share, ratio = corpus.floor_share, corpus.perplexity
    below = (
        lost_cell(share)
        if isinstance(share, Undefined)
        else Cell(text=f"{styled(share.base, 'share')}, {styled(share.after, 'share')}")
    )
    cells = (
        shift_cell(corpus.fisher),
        shift_cell(corpus.hessian),
        shift_cell(corpus.hessian_floor),
        lost_cell(ratio) if isinstance(ratio, Undefined) else shift_cell(ratio.log10_ratio, signed=True),
        below,
        shift_cell(corpus.fisher_linear),
    )
    return Row(
        label=corpus.corpus,
        tag=corpus.role if corpus.role != corpus.corpus else "",
        detail="intervals too short: subsets overlap" if too_short else "",
        cells=cells,
    )


def _role_row(role: RoleFootprint) -> Row:
    blank = Cell(text=EMPTY)
    return Row(
        label=role.role,
        tag="mean",
        role="full",
        detail=f"over {len(role.corpora)} corpora",
        cells=(
            shift_cell(role.fisher),
            shift_cell(role.hessian),
            blank,
            shift_cell(role.log10_ppl_ratio, signed=True),
            blank,
            blank,
        ),
    )


def role_table(record: FootprintRecord) -> Table:
    """Checkpoints by role, without what a class rests on: for LaTeX."""
    rows = []
    for checkpoint in record.checkpoints:
        cells = [text_cell(str(cell)) for cell in class_cells(checkpoint)[:1]]
        roles = {role.role: role for role in checkpoint.roles}
        for name in ("forget", "adjacent", "generic"):
            role = roles.get(name)
            if role is None:
                cells += [Cell(text=EMPTY)] * 3
            else:
                cells += [shift_cell(role.fisher), shift_cell(role.hessian)]
                cells.append(shift_cell(role.log10_ppl_ratio, signed=True))
        rows.append(_row(checkpoint, cells))
    columns = [Column(key="class", title="class", numeric=False)]
    for letter, name in (("F", "forget"), ("A", "adjacent"), ("G", "generic")):
        columns += [
            Column(key=f"{kind}_{name}", title=title, view=letter)
            for kind, title in (("cofi", "CoFi %"), ("chess", "CHess %"), ("ppl", "log10 PPL ratio"))
        ]
    return Table(
        key="roles",
        caption=f"{record.name}: shifts by role",
        head="checkpoint",
        columns=tuple(columns),
        rows=tuple(rows),
        notes_are="Half-widths",
        notes=(interval_words(record),),
    )


def _row(checkpoint: CheckpointFootprint, cells: Sequence[Cell]) -> Row:
    tag = "retrained" if checkpoint.role == "oracle" else ""
    return Row(label=checkpoint.label, tag=tag, role=checkpoint.role, cells=tuple(cells))


def class_table(rows: Sequence[CheckpointRow]) -> Table:
    """Checkpoints of several records: group, base model, class and shifts."""
    return Table(
        key="overview",
        caption="Classes, a row a checkpoint",
        head="checkpoint",
        columns=(
            Column(key="model", title="base model", numeric=False),
            Column(key="class", title="published class", numeric=False),
            Column(key="forget", title="CoFi forget", detail="percent"),
            Column(key="adjacent", title="CoFi adjacent", detail="percent"),
            Column(key="generic", title="CoFi generic", detail="percent"),
            Column(key="group", title="measured on", numeric=False),
        ),
        rows=tuple(
            Row(
                label=row.label,
                tag="retrained" if row.oracle else "",
                role="oracle" if row.oracle else "unlearned",
                cells=(
                    text_cell(row.model),
                    Cell(text=row.class_name, note="undetermined" if row.undetermined else ""),
                    Cell(text=percent(row.forget)),
                    Cell(text=percent(row.adjacent)),
                    Cell(text=percent(row.generic)),
                    text_cell(row.group),
                ),
            )
            for row in rows
        ),
    )


def noise_variants(rows: Sequence[CheckpointRow]) -> Table | None:
    """Base against noise-augmented variant of the same method on the same model: classes and shifts on forget
    text. None where no method has both."""
    found: dict[tuple[str, str, str], dict[bool, CheckpointRow]] = {}
    for row in rows:
        if not row.oracle:
            found.setdefault((row.group, row.model, row.method), {}).setdefault(row.noise, row)
    pairs = {key: pair for key, pair in found.items() if len(pair) == 2}
    if not pairs:
        return None
    lines = []
    for (_, model, method), pair in pairs.items():
        base, noise = pair[False], pair[True]
        same = base.class_name == noise.class_name
        lines.append(
            Row(
                label=method,
                detail=model,
                cells=(
                    text_cell(base.class_name),
                    text_cell(noise.class_name),
                    text_cell("same" if same else "changes"),
                    Cell(text=percent(base.forget)),
                    Cell(text=percent(noise.forget)),
                    Cell(text=percent(base.adjacent)),
                    Cell(text=percent(noise.adjacent)),
                ),
            )
        )
    alike = sum(pair[False].class_name == pair[True].class_name for pair in pairs.values())
    return Table(
        key="noise-variants",
        caption=f"Base against noise variant: the same class in {alike} of {len(pairs)}",
        head="method",
        columns=(
            Column(key="base", title="class", detail="base", numeric=False),
            Column(key="noise", title="class", detail="noise variant", numeric=False),
            Column(key="same", title="class", detail="compared", numeric=False),
            Column(key="forget", title="CoFi forget", detail="base, %"),
            Column(key="forget_noise", title="CoFi forget", detail="noise variant, %"),
            Column(key="adjacent", title="CoFi adjacent", detail="base, %"),
            Column(key="adjacent_noise", title="CoFi adjacent", detail="noise variant, %"),
        ),
        rows=tuple(lines),
    )
