"""The tables of a scored pool, as text: for the terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vestige.errors import InputError
from vestige.files import write_text
from vestige.pool.contents import ANCHOR, DELETIONS, LANGUAGE
from vestige.pool.rates import Rate
from vestige.pool.records import Aim, EdgeRow, PoolScore, WordRow
from vestige.readers import text_of_file

__all__ = ["PoolTable", "markdown", "pool_tables", "write_tables"]

MARKS = ("<!-- pool -->", "<!-- /pool -->")
"""Between these a page has the tables."""
VERDICT = "verdict: equivalent"
WORDS = ("equivalent", "closer", "not closer", "damaged", "undetermined")


@dataclass(frozen=True)
class PoolTable:
    """name: stable and short; caption: what it says; header and rows of text."""

    name: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def pool_tables(score: PoolScore) -> Iterator[PoolTable]:
    """Every table, the aims first."""
    yield PoolTable(
        "aims",
        "What the verdict is to keep; percent with 95 % intervals over trained models",
        ("rate", "is", "aim", "", "models"),
        (
            *(_aim(aim) for aim in score.aims),
            ("orders of models that change a number", f"{score.flips} of {score.orders}", "none", "", ""),
        ),
    )
    yield _brief(score)
    yield _words(score, "all", "Words about every kind of model, all deletions of light models together")
    for key in (*score.pool.settings.deletions, ANCHOR, LANGUAGE):
        table = _words(score, key, f"Words: {DELETIONS[key]}")
        if table.rows:
            yield table
    yield PoolTable(
        "edges",
        "Models exactly at a margin, and gains of the smallest size printed, on rows drawn anew",
        ("where it lies", "said", *(f"{size} rows" for size in _sizes(score.edges))),
        tuple(_by_size(score.edges)),
    )
    yield PoolTable(
        "coverage",
        "Intervals that hold the truth, in percent; those printed by the published rule are labelled as such",
        ("interval", "of", "seeds", "rows or units", "holds", "undefined"),
        tuple(
            (
                row.kind + (" (published rule)" if row.published else ""),
                row.quantity,
                row.seeds,
                str(row.size),
                percent(row.rate),
                str(row.undefined) if row.undefined else "",
            )
            for row in score.coverage
        ),
    )
    readings = sorted({reading for row in score.returns for reading in row.readings})
    yield PoolTable(
        "returns",
        "Readings of relearning beside an oracle under the same attack",
        ("model", *readings, "`return` %"),
        tuple(
            (row.about, *(str(row.readings.get(name, "")) for name in readings), percent(row.returned))
            for row in score.returns
        ),
    )
    yield from _others(score)


def write_tables(score: PoolScore, path: Path) -> None:
    """Write every table as Markdown: between the marks of a page that has them, else as the whole file.

    Raises InputError for a page with one mark alone, and for what the operating system refuses.
    """
    text = text_of_file(path, "Markdown") if path.exists() else "\n".join(MARKS)
    if [text.count(mark) for mark in MARKS] != [1, 1] or text.index(MARKS[0]) > text.index(MARKS[1]):
        raise InputError(
            str(path),
            "a file without a place for the tables",
            f"one line {MARKS[0]} and after it one line {MARKS[1]}, or no file",
            "add them, or give another --out",
        )
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    write_text(path, f"{before}{MARKS[0]}\n{markdown(score)}\n{MARKS[1]}{after}")


def markdown(score: PoolScore) -> str:
    """Every table of a score, each under its caption, with what was scored first."""
    s, pool = score.settings, score.pool
    asked = "all" if s.panels is None else str(s.panels)
    lines = [
        f"Made by `vestige pool score` {score.version} (rule `{score.rule}`) of {pool.models} trained "
        f"models, with {s.draws} draws of every bound, {asked} comparisons of each deletion and "
        f"{s.replicates} repetitions of every simulated world.",
    ]
    for table in pool_tables(score):
        if table.name == "brief":
            continue
        lines += ["", f"**{table.caption}**", "", _line(table.header), _line(["---"] * len(table.header))]
        lines += [_line(row) for row in table.rows]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _aim(aim: Aim) -> tuple[str, ...]:
    sign = "at most" if aim.must == "most" else "at least"
    reported = (aim.must, aim.limit) in (("most", 1.0), ("least", 0.0))
    verdict = "" if reported else "met" if aim.met else "missed" if aim.broken else "not settled"
    goal = "reported" if reported else f"{sign} {aim.limit:.0%}".replace("%", " %")
    return (aim.name, percent(aim.rate), goal, verdict, str(aim.rate.clusters))


def percent(rate: Rate | None) -> str:
    """`12 [8, 17]`, in percent; one digit after the point below 10 and above 90."""
    if rate is None:
        return ""
    return f"{_digits(rate.value)} [{_digits(rate.low)}, {_digits(rate.high)}]"


def _digits(value: float) -> str:
    return f"{100 * value:.1f}" if value < 0.0995 or 0.9005 < value < 0.9995 else f"{100 * value:.0f}"


def _words(score: PoolScore, deletion: str, caption: str) -> PoolTable:
    rows = [row for row in score.words if row.deletion == deletion]
    counts = sorted({row.oracles for row in rows})
    middle = counts[len(counts) // 2] if counts else 0
    lines: list[tuple[str, ...]] = []
    for family in dict.fromkeys(row.family for row in rows):
        by_count = {row.oracles: row for row in rows if row.family == family}
        first = next(iter(by_count.values()))
        lines.append(
            (
                family,
                _memory(first),
                *(percent(by_count[m].equivalent) if m in by_count else "" for m in counts),
                *_shares(by_count.get(middle)),
            )
        )
    header = (
        "model under test",
        "memory %",
        *(f"equivalent, {m} oracles" for m in counts),
        *(f"{word}, {middle}" for word in WORDS[1:]),
    )
    return PoolTable(f"words {deletion}", caption, header, tuple(lines))


def _brief(score: PoolScore) -> PoolTable:
    """The words at the middle number of oracles alone: narrow enough for a terminal."""
    asked = score.settings.asked
    rows = [row for row in score.words if (row.deletion, row.oracles) == ("all", asked)]
    lines = tuple(
        (row.family, *(percent(rate) for rate in (row.equivalent, row.closer, row.damaged))) for row in rows
    )
    caption = f"What is said of each kind of model, in percent, {asked} oracles"
    return PoolTable("brief", caption, ("model under test", "equivalent", "closer", "damaged"), lines)


def _memory(row: WordRow) -> str:
    if row.memory is None or row.truth in ("elsewhere", "harmed"):
        return ""
    return f"{100 * row.memory:.0f}"


def _shares(row: WordRow | None) -> Iterator[str]:
    total = sum(row.words.values()) if row is not None else 0
    for word in WORDS[1:]:
        yield f"{100 * row.words.get(word, 0) / total:.0f}" if row is not None and total else ""


def _sizes(edges: Sequence[EdgeRow]) -> list[int]:
    return sorted({row.size for row in edges})


def _by_size(edges: Sequence[EdgeRow]) -> Iterator[tuple[str, ...]]:
    sizes = _sizes(edges)
    for edge in dict.fromkeys(row.edge for row in edges):
        found = {row.size: row for row in edges if row.edge == edge}
        word = next(iter(found.values())).word
        yield (edge, word, *(percent(found[size].rate) if size in found else "" for size in sizes))


def _others(score: PoolScore) -> Iterator[PoolTable]:
    """Other metrics beside the verdict, by deletion; one training seed under test, then eight."""
    asked = score.settings.asked
    said = {(row.deletion, row.family): row.equivalent for row in score.words if row.oracles == asked}
    for seeds, caption in (
        (1, f"one training run under test, {asked} oracles"),
        (8, "eight training seeds under test, eight oracles"),
    ):
        for deletion in ("all", *score.pool.settings.deletions):
            rows = [row for row in score.others if (row.seeds, row.deletion) == (seeds, deletion)]
            cells = {(row.metric, row.family): row.passed for row in rows}
            if seeds == 1:
                cells |= {(VERDICT, row.family): said.get((deletion, row.family)) for row in rows}
            metrics = dict.fromkeys([VERDICT, *(row.metric for row in rows)])
            lines = tuple(
                (family, *(share(cells.get((metric, family))) for metric in metrics))
                for family in dict.fromkeys(row.family for row in rows)
            )
            if lines:
                where = "all deletions" if deletion == "all" else DELETIONS[deletion]
                yield PoolTable(
                    f"others {seeds} {deletion}",
                    f"How often each metric passes a model, in percent: {where}; {caption}",
                    ("model under test", *metrics),
                    lines,
                )


def share(rate: Rate | None) -> str:
    """The rate alone, in percent."""
    return "" if rate is None else f"{100 * rate.value:.0f}"
