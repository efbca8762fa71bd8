"""A behaviour record as rows, sentences, a data frame and a notebook table. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from vestige.behaviour.records import (
    BehaviourRecord,
    CheckpointBehaviour,
    Loss,
    RoleAccuracy,
    TofuRecord,
    TofuScores,
    TripartiteLoss,
)
from vestige.behaviour.stated import guess_words, stated_loss
from vestige.contracts import Interval, Undefined
from vestige.metrics.tofu import ForgetQuality

__all__ = [
    "HEADER",
    "TOFU_HEADER",
    "behaviour_frame",
    "behaviour_html",
    "headline",
    "summary_lines",
    "tofu_rows",
    "tripartite_rows",
]

HEADER = (
    "model",
    "forget %",
    "adjacent %",
    "generic %",
    "Δ forget %",
    "Δ adjacent %",
    "Δ generic %",
    "B-Gap",
)
TOFU_HEADER = ("model", "set", "probability", "ROUGE-L recall", "truth ratio", "utility", "forget quality p")


def tripartite_rows(record: BehaviourRecord) -> list[tuple[str, ...]]:
    """A row a model: accuracy on each role, relative losses and B-Gap, each with its interval, or undefined
    where the base guesses."""
    rows: list[tuple[str, ...]] = [
        (f"{record.base.label} (base)", *_accuracies(record.base_roles), "", "", "", "")
    ]
    for checkpoint in record.checkpoints:
        loss = stated_loss(record, checkpoint)
        losses = (loss.delta_f, loss.delta_a, loss.delta_g, loss.b_gap)
        rows.append(
            (_name(checkpoint), *_accuracies(checkpoint.roles), *(_loss_text(value) for value in losses))
        )
    return rows


def tofu_rows(record: BehaviourRecord) -> list[tuple[str, ...]]:
    """A row a model and TOFU set; utility and forget quality on a model's first row."""
    models: list[tuple[str, TofuRecord | Undefined]] = [(f"{record.base.label} (base)", record.base_tofu)]
    models += [(_name(checkpoint), checkpoint.tofu) for checkpoint in record.checkpoints]
    rows = []
    for label, tofu in models:
        if isinstance(tofu, Undefined):
            continue
        quality = tofu.forget_quality
        p = quality if isinstance(quality, Undefined) else quality.p
        for k, scores in enumerate(tofu.sets):
            rows.append(
                (
                    label,
                    scores.name,
                    *(_score(scores, metric) for metric in ("probability", "rouge", "truth_ratio")),
                    *((_number(tofu.utility), _number(p)) if k == 0 else ("", "")),
                )
            )
    return rows


def headline(record: BehaviourRecord, checkpoint: CheckpointBehaviour) -> str:
    """One sentence: what the checkpoint lost on forget and adjacent questions, with intervals; where the base
    guesses the forget questions, both accuracies instead."""
    loss = stated_loss(record, checkpoint)
    guess = guess_words(record, checkpoint)
    if (
        guess is None
        and isinstance(loss.delta_f.value, Undefined)
        and isinstance(loss.delta_a.value, Undefined)
    ):
        return f"{_name(checkpoint)}: losses undefined ({loss.delta_f.value.undefined})."
    parts = (
        (loss.delta_f, "% of the base's accuracy on forget questions"),
        (loss.delta_a, "% on adjacent ones"),
    )
    words = [f"{_loss_text(part)} {of}" for part, of in parts if not isinstance(part.value, Undefined)]
    if guess is not None:
        return f"{_name(checkpoint)}: {guess}{f'; lost {words[0]}' if words else ''}."
    gap = loss.b_gap
    if not isinstance(gap.value, Undefined):
        words.append(f"B-Gap {_loss_text(gap)} points")
    else:
        words.append(f"B-Gap {gap.value}")
    return f"{_name(checkpoint)}: lost {', '.join(words)}."


def summary_lines(record: BehaviourRecord) -> list[str]:
    """What the table cannot say: headroom, relation with the footprint, tests and their power."""
    lines = [entry.said for entry in record.headroom]
    for checkpoint in record.checkpoints:
        lines += _relation_lines(checkpoint, stated_loss(record, checkpoint))
        if not isinstance(checkpoint.tofu, Undefined):
            lines += _quality_lines(_name(checkpoint), checkpoint.tofu)
    return lines


def behaviour_frame(record: BehaviourRecord) -> Any:
    """A pandas DataFrame, a row a model and subject: model, role of the model, role, topic, subject, correct,
    questions, accuracy, low, high, lost, gained."""
    import pandas as pd

    rows = []
    for label, kind, subjects in _models(record):
        for entry in subjects:
            rows.append(
                {
                    "model": label,
                    "model_role": kind,
                    "role": entry.role,
                    "topic": entry.topic,
                    "subject": entry.subject,
                    "correct": entry.correct,
                    "questions": entry.questions,
                    "accuracy": entry.accuracy,
                    "low": entry.interval.low,
                    "high": entry.interval.high,
                    "lost": entry.lost,
                    "gained": entry.gained,
                }
            )
    return pd.DataFrame(rows)


def behaviour_html(record: BehaviourRecord) -> str:
    """The tables, the sentences and the caveats. Everything is escaped."""
    parts = [f"<p><strong>{escape(record.name)}</strong></p>"]
    for header, rows in ((HEADER, tripartite_rows(record)), (TOFU_HEADER, tofu_rows(record))):
        if (header is HEADER and not record.question_sets) or not rows:
            continue
        head = "".join(f"<th>{escape(text)}</th>" for text in header)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    lines = "".join(f"<li>{escape(line)}</li>" for line in summary_lines(record))
    caveats = "".join(f"<li>{escape(line)}</li>" for line in record.caveats)
    parts.append(f"<ul>{lines}</ul><details><summary>Caveats</summary><ul>{caveats}</ul></details>")
    return "".join(parts)


def _models(record: BehaviourRecord) -> Iterator[tuple[str, str, Any]]:
    yield record.base.label, "base", record.base_subjects
    for checkpoint in record.checkpoints:
        yield checkpoint.label, checkpoint.role, checkpoint.subjects


def _relation_lines(checkpoint: CheckpointBehaviour, loss: TripartiteLoss) -> Iterator[str]:
    if isinstance(loss.adjacency_gap, Undefined) or isinstance(loss.relation, Undefined):
        return
    yield (
        f"{_name(checkpoint)}: AdjGap {loss.adjacency_gap:+.2f} and B-Gap {_number(loss.b_gap.value, 1)} "
        f"points: {loss.relation}"
    )


def _quality_lines(label: str, tofu: TofuRecord) -> Iterator[str]:
    quality = tofu.forget_quality
    if isinstance(quality, Undefined):
        return
    power = (
        f"power unknown ({quality.power.undefined})"
        if isinstance(quality.power, Undefined)
        else f"it would have told the base from the oracle in {quality.power:.0%} of resamples"
    )
    yield (
        f"{label}: forget quality p {quality.p:.3g} (Kolmogorov-Smirnov D {quality.statistic:.3f}, "
        f"n {quality.unlearned} and {quality.oracle}; {power}). {_quality_reading(quality)}"
    )


def _quality_reading(quality: ForgetQuality) -> str:
    """What the p may be read as."""
    if quality.reading is None or quality.memory is None:
        return "A large p is not a proof of equality."
    if quality.reading == "told apart":
        return "It is told apart from the oracle."
    keeps = f"a model that keeps {quality.memory:.0%} of the memory"
    if quality.memory_power is None or isinstance(quality.memory_power, Undefined):
        return f"Undetermined: how often it would tell {keeps} from the oracle is not known."
    seen = f"{keeps} would be told apart {quality.memory_power:.0%} of the time at this n"
    if quality.reading == "undetermined":
        return f"Undetermined: {seen}, so a large p shows nothing."
    return f"Not told apart from the oracle; {seen}. Less memory may be there unseen."


def _name(checkpoint: CheckpointBehaviour) -> str:
    return f"{checkpoint.label} (oracle)" if checkpoint.role == "oracle" else checkpoint.label


def _accuracies(roles: tuple[RoleAccuracy, ...]) -> tuple[str, str, str]:
    found = {entry.role: f"{100 * entry.accuracy:.1f}{_bounds(entry.interval, 100)}" for entry in roles}
    return found.get("forget", "none"), found.get("adjacent", "none"), found.get("generic", "none")


def _loss_text(loss: Loss) -> str:
    if isinstance(loss.value, Undefined):
        return str(loss.value)
    return f"{loss.value:.1f}{_bounds(loss.interval)}"


def _bounds(interval: Interval | Undefined, times: float = 1) -> str:
    if isinstance(interval, Undefined):
        return ""
    return f" [{times * interval.low:.1f}, {times * interval.high:.1f}]"


def _score(scores: TofuScores, metric: str) -> str:
    value: float | Undefined = getattr(scores, metric)
    interval = scores.intervals.get(metric)
    bounds = f" [{interval.low:.3f}, {interval.high:.3f}]" if interval is not None else ""
    return f"{_number(value)}{bounds}"


def _number(value: float | Undefined, digits: int = 3) -> str:
    return str(value) if isinstance(value, Undefined) else f"{value:.{digits}f}"
