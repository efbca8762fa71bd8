"""What models still know, as levels side by side: base, unlearned, retrained. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from vestige.contracts import Interval, Undefined
from vestige.footprint.records import CheckpointFootprint, FootprintRecord
from vestige.footprint.verdict_records import JudgedModel, ModelLevels, TextRole, VerdictRecord

__all__ = [
    "BASE",
    "Level",
    "Measure",
    "level_glance",
    "level_words",
    "oracle_class",
    "text_measures",
    "verdict_word",
    "verdict_words",
    "way_words",
]

BASE = ""
"""Key of the base among a measure's levels: records beside a footprint may call it otherwise."""
ALIKE = 0.02
"""Levels that differ by less are alike: a share of such a way says nothing."""
NOTHING = 0.02
"""A smaller share of the way is called nothing done."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """value: a share in [0, 1], or nats. low, high: of its interval. after: the same after an attack.
    changed: whether a difference from the base is shown, None where it was not asked."""

    value: float
    low: float | None = None
    high: float | None = None
    after: float | None = None
    changed: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One thing that was measured of every model. name: in sentences. about: what of; `attack`: the forget
    text before and after one.

    title, detail: of its column. levels: label -> level, the base under `BASE`. unit: how values are written.
    """

    key: str
    name: str
    title: str
    detail: str
    levels: Mapping[str, Level] = field(default_factory=dict)
    about: Literal["forget", "unseen", "rest", "attack"] = "forget"
    unit: Literal["share", "percent", "nats"] = "share"

    def text(self, value: float) -> str:
        """A value as it is written."""
        if self.unit == "percent":
            return f"{100 * value:.1f} %"
        return f"{value:.3f}"


def text_measures(verdict: VerdictRecord | Undefined | None) -> list[Measure]:
    """What every model gives the texts; nothing in records without it."""
    if not isinstance(verdict, VerdictRecord):
        return []
    found = []
    roles: tuple[tuple[TextRole, Literal["forget", "unseen"]], ...] = (
        ("forget", "forget"),
        ("unseen", "unseen"),
    )
    for role, about in roles:
        levels = {_key(item, verdict): _probability(item, role) for item in verdict.levels}
        known = {label: level for label, level in levels.items() if level is not None}
        if known:
            found.append(
                Measure(
                    key=f"text-{role}",
                    name=f"probability of the {role} text",
                    title=f"{role} text",
                    detail="probability of a token",
                    levels=known,
                    about=about,
                )
            )
    rest: tuple[TextRole, ...] = ("adjacent", "generic")
    for role in rest:
        losses = {
            _key(item, verdict): [text.loss for text in item.texts if text.role == role]
            for item in verdict.levels
        }
        if any(losses.values()):
            found.append(
                Measure(
                    key=f"loss-{role}",
                    name=f"loss on {role} text",
                    title=f"{role} text",
                    detail="loss, nats a token",
                    levels={
                        label: Level(value=sum(values) / len(values))
                        for label, values in losses.items()
                        if values
                    },
                    about="rest",
                    unit="nats",
                )
            )
    return found


def _key(item: ModelLevels, verdict: VerdictRecord) -> str:
    return BASE if item.role == "base" and item.label == verdict.bases[0] else item.label


def _probability(item: ModelLevels, role: TextRole) -> Level | None:
    texts = [text for text in item.texts if text.role == role]
    value = item.level(role)
    if value is None:
        return None
    changed: bool | None = None
    if item.role != "base":
        ends = [text.change_interval for text in texts]
        changed = any(isinstance(end, Interval) and not end.low <= 0 <= end.high for end in ends)
    interval = texts[0].interval if len(texts) == 1 else None
    if isinstance(interval, Interval):
        return Level(value=value, low=interval.low, high=interval.high, changed=changed)
    return Level(value=value, changed=changed)


def level_words(record: FootprintRecord, label: str, measures: Sequence[Measure]) -> str:
    """What a model still knows of the forget text: its levels beside those of base and retrained models."""
    oracles = [item.label for item in record.checkpoints if item.role == "oracle"]
    found = []
    for measure in measures:
        own, base = measure.levels.get(label), measure.levels.get(BASE)
        if measure.about != "forget" or own is None or base is None:
            continue
        retrained = [measure.levels[name].value for name in oracles if name in measure.levels]
        oracle = sum(retrained) / len(retrained) if retrained and label not in oracles else None
        beside = f"base {measure.text(base.value)}"
        if oracle is not None:
            beside += f", retrained {measure.text(oracle)}"
        said = f"{measure.name} {measure.text(own.value)} ({beside})"
        way = way_words(own, base.value, oracle) if label not in oracles else ""
        found.append(f"{said}: {way}" if way else said)
    return "; ".join(found)


def level_glance(record: FootprintRecord, label: str, measures: Sequence[Measure]) -> str:
    """The most telling level in a few words: `facts to forget 96.7 %, base 100.0 %, retrained 30.0 %`."""
    oracles = [item.label for item in record.checkpoints if item.role == "oracle"]
    for measure in measures:
        own, base = measure.levels.get(label), measure.levels.get(BASE)
        if measure.about != "forget" or own is None or base is None:
            continue
        said = f"{measure.title} {measure.text(own.value)}, base {measure.text(base.value)}"
        retrained = [measure.levels[name].value for name in oracles if name in measure.levels]
        if retrained and label not in oracles:
            said += f", retrained {measure.text(sum(retrained) / len(retrained))}"
        return said
    return ""


def way_words(own: Level, base: float, oracle: float | None) -> str:
    """How much of the way from the base's level to retraining's a model went; "" where that is not known."""
    if own.changed is False or own.value == base:
        return "as the base, nothing done that shows here"
    if oracle is None:
        return ""
    if abs(base - oracle) < ALIKE:
        return "base and retrained are alike here"
    share = (base - own.value) / (base - oracle)
    if share < 0:
        return "further from retraining than the base"
    if share < NOTHING:
        return "next to nothing done"
    if share > 1 + NOTHING:
        return "below retraining" if base > oracle else "above retraining"
    return f"{100 * share:.0f} % of the way to retraining"


def oracle_class(record: FootprintRecord, checkpoint: CheckpointFootprint) -> str:
    """What retraining itself is called, where it was measured: no class is a failure by itself."""
    if checkpoint.role == "oracle":
        return ""
    names = []
    for item in record.checkpoints:
        if item.role == "oracle" and not isinstance(item.published, Undefined):
            names.append(str(item.published.name))
    found = list(dict.fromkeys(names))
    return f"retraining itself is called {' and '.join(found)} here" if found else ""


def verdict_word(record: FootprintRecord, checkpoint: CheckpointFootprint) -> str:
    """The verdict in a word or a few, "" where there is none."""
    found = _judged(record, checkpoint)
    if found is None or isinstance(found.verdict, Undefined):
        return ""
    return found.evidence.headline(found.verdict)


def verdict_words(record: FootprintRecord, checkpoint: CheckpointFootprint) -> str:
    """The verdict on a checkpoint in sentences, or why there is none."""
    if checkpoint.role == "oracle":
        return ""
    if record.verdict is None:
        return "none: this record was made before language models were judged; measure again"
    if isinstance(record.verdict, Undefined):
        return f"none: {record.verdict.undefined}"
    found = _judged(record, checkpoint)
    return "none: not among the models judged" if found is None else found.sentence


def _judged(record: FootprintRecord, checkpoint: CheckpointFootprint) -> JudgedModel | None:
    return record.verdict.model(checkpoint.label) if isinstance(record.verdict, VerdictRecord) else None
