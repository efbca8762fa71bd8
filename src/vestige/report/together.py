"""What a study's seeds and bundles say together: a section of its page, lines of the terminal. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vestige.contracts import Interval, Record, SeedEstimate, Undefined
from vestige.files import read_record
from vestige.metrics import SEED_METRICS
from vestige.report.answers import bounded_cell, verdict_chip
from vestige.report.sections import Answers, Block, Bullets, Data, Fold, Prose, Section
from vestige.report.sentence import parted
from vestige.report.tables import EMPTY, Cell, Column, Row, Table
from vestige.report.words import Style, count, counted, interval_text, listed, plain, styled
from vestige.study.store import SWEEP, run_folders
from vestige.study.summary_records import (
    MethodReplication,
    MethodSeeds,
    MethodVerdict,
    ReplicatedView,
    ReplicationSummary,
    SeedSummary,
    VerdictSummary,
)

__all__ = ["together_lines", "together_sections"]

_OPEN = 6
"""More verdicts than this are folded."""
_REMEDY = "run the study again: finished parts are kept and summarised anew"
_EARLIER = "not computed: a run of an earlier version"
Made = TypeVar("Made", bound=Record)


@dataclass(frozen=True)
class _Run:
    """The summaries of a run; arm: its name in a sweep, else empty."""

    arm: str
    replication: ReplicationSummary | None
    seeds: SeedSummary | None
    verdicts: VerdictSummary | None


def together_sections(folder: Path) -> tuple[Section, ...]:
    """The section on seeds and bundles, or none where a folder holds no summaries. Raises InputError."""
    blocks: list[Block] = []
    for run in _runs(folder):
        own = [*_judged(run), *_replicated(run), *_metrics(run)]
        if own and run.arm:
            blocks.append(Fold(f"Arm {run.arm}", own, open=True))
        else:
            blocks += own
    if not blocks:
        return ()
    said = (
        "The same deleted units recur at every training seed, so seeds and units are crossed: the interval "
        "over both counts a unit once, however many seeds there are. The nested bootstrap is the published "
        "rule. One training run says nothing of another."
    )
    return (Section("together", "Over seeds and bundles", "Seeds and bundles", (Prose(said), *blocks)),)


def together_lines(folder: Path) -> Iterator[str]:
    """Lines: the verdict on each method from all its seeds, then what seeds and bundles say together."""
    for run in _runs(folder):
        for item in run.verdicts.methods if run.verdicts else ():
            where = f"Arm {run.arm}: " if run.arm else ""
            yield (
                f"{where}{plain(item.label)} on bundle {item.bundle}, {_training_seeds(item)}: "
                f"{item.evidence.headline(item.verdict)}. {plain(item.sentence)}"
            )
        for method in _several(run):
            where = f"Arm {run.arm}: " if run.arm else ""
            gains = ", ".join(
                f"{view.view} {styled(view.estimate, 'signed')} {_crossed(view).strip()}".strip()
                for view in method.views
            )
            yield (
                f"{where}{method.label} over {_grid(method)}: {_said(method.crossed)}; mean gain {gains} "
                f"(over seeds and units, crossed); published rule: {plain(method.decision)}."
            )


def _runs(folder: Path) -> Iterator[_Run]:
    root = folder.parent if folder.is_file() else folder
    runs = run_folders(root) if (root / SWEEP).is_file() else {"": root}
    for arm, path in runs.items():
        yield _Run(
            arm,
            _found(path / "summaries" / "replication.json", ReplicationSummary),
            _found(path / "summaries" / "seeds.json", SeedSummary),
            _found(path / "summaries" / "verdicts.json", VerdictSummary),
        )


def _found(path: Path, kind: type[Made]) -> Made | None:
    return read_record(path, kind, _REMEDY) if path.is_file() else None


def _training_seeds(item: MethodVerdict) -> str:
    return f"training seeds {listed([str(seed) for seed in item.seeds])}"


def _judged(run: _Run) -> Iterator[Block]:
    """The verdict on each method from all its training seeds of a bundle."""
    methods = run.verdicts.methods if run.verdicts else ()
    if not methods:
        return
    yield Prose(
        "Verdicts on methods: all training seeds of a bundle together, so that intervals are about other "
        "trainings, too. The verdicts on single models stand under each request."
    )
    for item in methods:
        answer, rest = parted(plain(item.sentence))
        yield Answers(
            label=item.label,
            tag=f"bundle {item.bundle}, {_training_seeds(item)}{', control' if item.control else ''}",
            chips=(verdict_chip(item.evidence.headline(item.verdict)),),
            answers=(("Verdict", answer), ("Rests on", rest)),
            folded=len(methods) > _OPEN,
        )
    yield Data(_judged_table(methods))


def _judged_table(methods: Sequence[MethodVerdict]) -> Table:
    """Levels, memory, distance and harm of each method, with both kinds of interval."""
    rows = []
    for item in methods:
        sides = {view.view: view for view in item.evidence.views}
        cells = []
        for of in ("memory", "distance"):
            style: Style = "percent" if of == "memory" else "number"
            for view in ("F", "G"):
                side = sides.get(view)
                cells.append(Cell(text=EMPTY) if side is None else bounded_cell(getattr(side, of), style))
        cells.append(bounded_cell(item.evidence.retained.change, "points"))
        rows.append(Row(label=item.label, tag=f"bundle {item.bundle}", cells=tuple(cells)))
    return Table(
        key="method-verdicts",
        caption="What the verdicts on methods rest on",
        head="method",
        columns=(
            *(Column(key=f"memory-{view}", title="memory left", view=view) for view in ("F", "G")),
            *(Column(key=f"distance-{view}", title="distance left", view=view) for view in ("F", "G")),
            Column(key="accuracy", title="retained accuracy", detail="change in points"),
        ),
        rows=tuple(rows),
        notes=("rows: these models, other rows like these", "trainings: other trainings, too"),
        notes_are="95 % intervals",
    )


def _several(run: _Run) -> Sequence[MethodReplication]:
    """Methods of more than one cell."""
    if run.replication is None:
        return ()
    return [item for item in run.replication.methods if len(item.seeds) * len(item.bundles) > 1]


def _grid(item: MethodReplication) -> str:
    seeds = counted(len(item.seeds), "training seed", "training seeds")
    return f"{seeds} and {counted(len(item.bundles), 'bundle', 'bundles')}"


def _said(decision: object) -> str:
    return _EARLIER if decision is None else plain(decision)


def _crossed(view: ReplicatedView) -> str:
    return interval_text(view.crossed, "signed")


def _replicated(run: _Run) -> Iterator[Block]:
    methods = _several(run)
    if not methods or run.replication is None:
        return
    rows = []
    for item in methods:
        for place, view in enumerate(item.views):
            words = (_word(item.crossed), _word(item.decision)) if place == 0 else (Cell(text=EMPTY),) * 2
            rows.append(
                Row(
                    label=item.label,
                    tag=f"{view.view}{', control' if item.control else ''}",
                    cells=(
                        Cell(text=styled(view.estimate, "signed")),
                        _ends(view.crossed),
                        _ends(view.interval),
                        *words,
                    ),
                )
            )
    table = Table(
        key="replication",
        caption="Mean gain over seeds and bundles",
        head="method",
        columns=(
            Column(key="gain", title="gain", detail="mean over seeds, bundles, units"),
            Column(key="crossed", title="over seeds and units", detail="crossed, 95 %"),
            Column(key="nested", title="published", detail="nested bootstrap, 95 %"),
            Column(key="decision", title="replicates?", detail="crossed", numeric=False),
            Column(key="published", title="published rule", numeric=False),
        ),
        rows=tuple(rows),
        notes=(
            "crossed: t interval over training seeds and units",
            f"published: {count(run.replication.draws)} draws",
            plain(run.replication.condition),
        ),
    )
    yield Data(table)
    lines = [
        f"{item.label}: {what} {listed(list(cells))}"
        for item in methods
        for what, cells in (("infeasible at", item.infeasible), ("missing:", item.missing))
        if cells
    ]
    if lines:
        yield Bullets([plain(line) for line in lines])


def _ends(interval: Interval | Undefined | None) -> Cell:
    if interval is None:
        return Cell(text=_EARLIER, undefined=True)
    if isinstance(interval, Undefined):
        return Cell(text=plain(interval), undefined=True)
    return Cell(text=interval_text(interval, "signed"))


def _word(decision: str | Undefined | None) -> Cell:
    return Cell(text=_said(decision), undefined=not isinstance(decision, str))


def _metrics(run: _Run) -> Iterator[Block]:
    """Metrics that read several seeds or views; what is undefined is said once."""
    if run.seeds is None:
        return
    bundles = {item.bundle for item in run.seeds.methods}
    rows: list[Row] = []
    lacking: dict[tuple[str, str], None] = {}
    for item in run.seeds.methods:
        for name, found in item.metrics.items():
            if isinstance(found.value, Undefined):
                lacking[name, str(found.value)] = None
                continue
            rows.append(_metric(name, item, found, bundle=len(bundles) > 1))
    blocks: list[Block] = []
    if rows:
        table = Table(
            key="seed-metrics",
            caption="Metrics over several seeds or views",
            head="metric",
            columns=(
                Column(key="value", title="value"),
                Column(key="chance", title="by chance", detail="where nothing is to be found"),
                Column(key="power", title="power", detail="half a standard deviation"),
                Column(key="note", title="how to read it", numeric=False),
            ),
            rows=tuple(rows),
        )
        blocks.append(Data(table))
    if lacking:
        blocks.append(Bullets([plain(f"{_title(name)}: {why}") for name, why in lacking]))
    if blocks:
        yield Fold("Membership, ToW, ZRF, KLoM and U-LiRA", blocks)


def _metric(name: str, item: MethodSeeds, found: SeedEstimate, *, bundle: bool) -> Row:
    assert isinstance(found.value, float)
    where = f"{item.label}, bundle {item.bundle}" if bundle else item.label
    return Row(
        label=_title(name),
        detail=plain(where),
        tag="control" if item.control else "",
        cells=(
            Cell(text=styled(found.value, "number")),
            Cell(text=interval_text(found.chance, "number") or EMPTY),
            Cell(text=EMPTY if found.power is None else styled(found.power, "percent")),
            Cell(text=plain(found.note) or EMPTY),
        ),
    )


def _title(name: str) -> str:
    return SEED_METRICS.get(name).title if name in SEED_METRICS.names() else name
