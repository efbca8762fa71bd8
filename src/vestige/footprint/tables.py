"""A footprint as lines for the terminal, as a data frame and as a small HTML table. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from vestige.contracts import Undefined
from vestige.footprint.judgements import CalibratedClass
from vestige.footprint.levels import (
    Measure,
    level_words,
    oracle_class,
    text_measures,
    verdict_word,
    verdict_words,
)
from vestige.footprint.records import (
    CheckpointFootprint,
    CorpusFootprint,
    FootprintRecord,
    Shift,
)
from vestige.metrics.footprint import FootprintClass

__all__ = [
    "NOT_TESTED",
    "answers",
    "class_text",
    "corpus_rows",
    "footprint_frame",
    "footprint_html",
    "headline",
    "summary_lines",
    "told",
]

HEADER = ("checkpoint", "corpus", "role", "CoFi %", "CHess %", "(floor)", "log10 PPL ratio", "below floor")


NOT_TESTED = "not tested"


def answers(
    record: FootprintRecord,
    checkpoint: CheckpointFootprint,
    *,
    measures: Sequence[Measure] = (),
    behaves: str = "",
    returns: str = "",
) -> tuple[tuple[str, str], ...]:
    """(question, answer) of what a reader asks first about a checkpoint: what it still knows and what comes
    back before where its weights moved.

    measures: levels of all models; those of the record's texts where none are given. behaves, returns: from
    records of questions and of relearning, where there are any.
    """
    known = level_words(record, checkpoint.label, measures or text_measures(record.verdict))
    verdict = verdict_words(record, checkpoint)
    return (
        *((("verdict", verdict),) if verdict else ()),
        ("still known?", known or NOT_TESTED),
        ("returns?", returns or NOT_TESTED),
        ("behaves?", behaves or _behaves(checkpoint)),
        ("moved?", _moved(checkpoint)),
        ("where?", _where(record, checkpoint)),
    )


def headline(record: FootprintRecord, checkpoint: CheckpointFootprint) -> str:
    """Verdict, levels, what returns, what moved and what was not tested, of one checkpoint in one line."""
    first, *others = told(record, checkpoint)
    return f"{'; '.join([first.removesuffix('.'), *others])}; {NOT_TESTED}: {', '.join(record.not_tested)}"


def told(record: FootprintRecord, checkpoint: CheckpointFootprint) -> list[str]:
    """What a checkpoint's answers say, a line each; the first begins with its label and its verdict."""
    word = verdict_word(record, checkpoint)
    begin = f"{word}: " if word else "no verdict, "
    lines = [
        f"{begin}{text.removeprefix('none: ')}" if question == "verdict" else f"{question} {text}"
        for question, text in answers(record, checkpoint)
    ]
    return [f"{checkpoint.label}: {lines[0]}", *lines[1:]]


def _moved(checkpoint: CheckpointFootprint) -> str:
    if isinstance(checkpoint.published, Undefined) and not checkpoint.corpora[0].fisher.per_subset:
        return str(checkpoint.published)
    largest = max(checkpoint.corpora, key=lambda corpus: _number(corpus.fisher.value))
    text = f"CoFi up to {shift_text(largest.fisher)} % ({largest.corpus})"
    calibrated = checkpoint.calibrated
    if isinstance(calibrated, CalibratedClass):
        word = "more" if calibrated.moved_p <= 0.05 else "not more"
        text += f", {word} than 8-bit storage does"
    return text


def _where(record: FootprintRecord, checkpoint: CheckpointFootprint) -> str:
    calibrated = checkpoint.calibrated
    text = class_text(checkpoint)
    if isinstance(calibrated, CalibratedClass):
        text += f", calibrated: {calibrated.name}"
    retrained = oracle_class(record, checkpoint)
    return f"{text}; {retrained}" if retrained else text


def _behaves(checkpoint: CheckpointFootprint) -> str:
    known = [
        (corpus.corpus, corpus.perplexity.log10_ratio)
        for corpus in checkpoint.corpora
        if not isinstance(corpus.perplexity, Undefined)
    ]
    if not known:
        return "not tested"
    worst = max(known, key=lambda pair: abs(_number(pair[1].value)))
    exponent = _number(worst[1].value)
    ratio = f"{10**exponent:.3g}" if abs(exponent) < 300 else f"10^{exponent:.4g}"
    return f"perplexity changes most on {worst[0]}, x {ratio}; questions not tested"


def class_text(checkpoint: CheckpointFootprint) -> str:
    """The published class with its label and marks."""
    found = checkpoint.published
    if isinstance(found, Undefined):
        return str(found)
    return str(found) if isinstance(found.name, Undefined) else f"{found} ({checkpoint.estimator_label})"


def summary_lines(record: FootprintRecord) -> Iterator[str]:
    """What the terminal says under the table: classes, their marks, disagreements, adjacency, cost."""
    for checkpoint in record.checkpoints:
        retrained = oracle_class(record, checkpoint)
        beside = f"; {retrained}" if retrained else ""
        yield f"{checkpoint.label}: {class_text(checkpoint)}{beside}"
        if isinstance(checkpoint.published, FootprintClass):
            gap = checkpoint.published.adjacency_gap
            rho = checkpoint.published.globality
            said = _plain(gap) if isinstance(gap, Undefined) else signed_text(gap)
            yield f"  adjacency gap {said}, globality {_plain(rho)}"
            for line in (*checkpoint.published.undetermined, *checkpoint.published.flags):
                yield f"  {line}"
        calibrated = checkpoint.calibrated
        if isinstance(calibrated, CalibratedClass):
            yield f"  calibrated class: {calibrated.name} (moved p {calibrated.moved_p:.3g})"
        elif record.settings.calibrate:
            yield f"  calibrated class: {calibrated}"
        if checkpoint.disagreement:
            yield f"  {checkpoint.disagreement}"
        yield from _places(checkpoint)
    if isinstance(record.adjacency, Undefined):
        yield f"Adjacent corpus: {record.adjacency}"
    else:
        yield from (f"Adjacent corpus: {line}" for line in record.adjacency.lines)


def _places(checkpoint: CheckpointFootprint) -> Iterator[str]:
    """The most shifted layer and weight on the first forget corpus."""
    corpus = next(
        (corpus for corpus in checkpoint.corpora if corpus.role == "forget" and corpus.modules), None
    )
    if corpus is None or not any(_number(module.shift) > 0 for module in corpus.modules):
        return
    layer = max(corpus.layers, key=lambda found: _number(found.shift))
    module = corpus.modules[0]
    yield (
        f"  most shifted on {corpus.corpus}: layer {layer.name} ({_plain(layer.shift)} %, "
        f"{_number(layer.share):.0%} of the squared shift), {module.name} ({_plain(module.shift)} %)"
    )


def corpus_rows(record: FootprintRecord) -> Iterator[tuple[str, ...]]:
    """One row a checkpoint and corpus, as `HEADER`."""
    for checkpoint in record.checkpoints:
        for corpus in checkpoint.corpora:
            yield (checkpoint.label, corpus.corpus, corpus.role, *_cells(corpus))


def _cells(corpus: CorpusFootprint) -> tuple[str, ...]:
    share = corpus.floor_share
    ratio = corpus.perplexity
    return (
        shift_text(corpus.fisher),
        shift_text(corpus.hessian),
        shift_text(corpus.hessian_floor),
        "–" if isinstance(ratio, Undefined) else ratio_text(ratio.log10_ratio),
        "–" if isinstance(share, Undefined) else f"{share.base:.1%} / {share.after:.1%}",
    )


def shift_text(shift: Shift) -> str:
    """Value and half-width, a dash where there is none."""
    if isinstance(shift.value, Undefined):
        return "–"
    half = "" if isinstance(shift.half_width, Undefined) else f" ± {shift.half_width:.2g}"
    return f"{shift.value:.3g}{half}"


def ratio_text(shift: Shift) -> str:
    """A log10 ratio with its half-width, two decimals, a dash where there is none."""
    if isinstance(shift.value, Undefined):
        return "–"
    half = "" if isinstance(shift.half_width, Undefined) else f" ± {shift.half_width:.2f}"
    return signed_text(shift.value) + half


def signed_text(value: float, digits: int = 2) -> str:
    """Decimals with their sign, none before zero: `+0.25`, `-0.31`, `0.00`."""
    text = f"{value:+.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text


def of_role(corpus: str, role: str) -> str:
    """A corpus with its role, once where both have one name: `bio (forget)`, `forget`."""
    return corpus if corpus == role else f"{corpus} ({role})"


def _number(value: float | Undefined) -> float:
    return -1.0 if isinstance(value, Undefined) else value


def _plain(value: float | Undefined) -> str:
    return str(value) if isinstance(value, Undefined) else f"{value:.3g}"


def footprint_frame(record: FootprintRecord) -> Any:
    """A pandas DataFrame, a row a checkpoint and corpus: shifts, half-widths, classes; NaN: undefined."""
    import pandas as pd

    rows = []
    for checkpoint in record.checkpoints:
        published = checkpoint.published
        calibrated = checkpoint.calibrated
        for corpus in checkpoint.corpora:
            ratio = corpus.perplexity
            rows.append(
                {
                    "checkpoint": checkpoint.label,
                    "checkpoint_role": checkpoint.role,
                    "corpus": corpus.corpus,
                    "role": corpus.role,
                    **_pair("cofi", corpus.fisher),
                    **_pair("cofi_linear", corpus.fisher_linear),
                    **_pair("chess", corpus.hessian),
                    **_pair("chess_floor", corpus.hessian_floor),
                    **_pair("log10_ppl_ratio", None if isinstance(ratio, Undefined) else ratio.log10_ratio),
                    "class": str(published.name if isinstance(published, FootprintClass) else published),
                    "calibrated": str(
                        calibrated.name if isinstance(calibrated, CalibratedClass) else calibrated
                    ),
                }
            )
    return pd.DataFrame(rows)


def _pair(name: str, shift: Shift | None) -> dict[str, float]:
    nan = float("nan")
    value = nan if shift is None or isinstance(shift.value, Undefined) else shift.value
    half = nan if shift is None or isinstance(shift.half_width, Undefined) else shift.half_width
    return {name: value, f"{name}_half_width": half}


def footprint_html(record: FootprintRecord) -> str:
    """The table of shifts, the classes and the caveats. Everything is escaped."""
    head = "".join(f"<th>{escape(text)}</th>" for text in HEADER)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in corpus_rows(record)
    )
    lines = "".join(f"<li>{escape(line)}</li>" for line in summary_lines(record))
    caveats = "".join(f"<li>{escape(caveat)}</li>" for caveat in record.caveats)
    return (
        f"<p><strong>{escape(record.name)}</strong></p><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table><ul>{lines}</ul>"
        f"<details><summary>Caveats</summary><ul>{caveats}</ul></details>"
    )
