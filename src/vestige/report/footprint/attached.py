"""Behaviour and relearning as parts of the footprint's page: answers, tables, one picture of all three."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from vestige.attacks.relearn_records import (
    EARLIER_RULE,
    AgainstOracle,
    CheckpointRelearning,
    RelearnRecord,
    RoleChange,
)
from vestige.behaviour.records import (
    BehaviourRecord,
    CheckpointBehaviour,
    Loss,
    RoleAccuracy,
    TofuRecord,
)
from vestige.behaviour.stated import guess_words, guessed_roles, stated_loss
from vestige.behaviour.tables import TOFU_HEADER, summary_lines, tofu_rows
from vestige.contracts import Interval, Undefined
from vestige.data.corpora import Role
from vestige.footprint.levels import BASE, Level, Measure
from vestige.footprint.records import CheckpointFootprint, FootprintRecord
from vestige.footprint.tables import of_role
from vestige.language_study.correlations import (
    CorrelationRecord,
    CorrelationRow,
    correlation_record,
    counted,
    text_of,
)
from vestige.report.footprint.joined import Beside, correlation_rows, joined_row
from vestige.report.footprint.rows import RegimeRow
from vestige.report.footprint.sections import Extras
from vestige.report.footprint.tables import lost_cell, text_cell
from vestige.report.footprint.way import WayRow, way
from vestige.report.sections import Block, Bullets, Data, Entries, Fold
from vestige.report.tables import EMPTY, Cell, Column, Row, Table
from vestige.report.words import count, plain

__all__ = ["QUESTIONS", "extras_of"]

ROLES: tuple[Role, ...] = ("forget", "adjacent", "generic")
QUESTIONS = "answers to questions about the removed content"
_RELEARNING = "recovery by relearning"
LEAST_CORRELATED = 3


def extras_of(
    record: FootprintRecord, found: Beside, *, key: str, texts: dict[tuple[str, str], str] | None = None
) -> Extras:
    """What the records beside a footprint add to its page. key: begins the ids of drawings."""
    asked = {item.label: found.asked(item) for item in record.checkpoints}
    attacked = {item.label: found.attacked(item) for item in record.checkpoints}
    tested = set()
    if found.behaviour is not None:
        tested.add(QUESTIONS)
    if any(item is not None and item.failed is None for item in attacked.values()):
        tested.add(_RELEARNING)
    return Extras(
        levels=tuple(_levels(record, found)),
        behaves={
            label: _behaves(item, found.behaviour)
            for label, item in asked.items()
            if item is not None and found.behaviour is not None
        },
        returns={
            label: _returns(item, found.relearning)
            for label, item in attacked.items()
            if item is not None and found.relearning is not None
        },
        glance={item.label: tuple(_glance(item, found)) for item in record.checkpoints},
        regimes=list(_regimes(record, attacked)),
        behaviour=_behaviour(found.behaviour, record, found) if found.behaviour is not None else (),
        relearning=_relearning(found.relearning, record, found) if found.relearning is not None else (),
        way=way(list(_way(record, found)), key=f"{key}-way"),
        tested=frozenset(tested),
        texts=texts,
    )


def _levels(record: FootprintRecord, found: Beside) -> Iterator[Measure]:
    """What the questions and the attack say of every model, most telling first."""
    behaviour, attack = found.behaviour, found.relearning
    if behaviour is not None:
        asked = [(item.label, own) for item in record.checkpoints if (own := found.asked(item)) is not None]
        for metric, name, title in (
            ("probability", "answer probability (TOFU)", "TOFU answers"),
            ("rouge", "ROUGE-L recall (TOFU)", "TOFU ROUGE-L"),
        ):
            scores = [(BASE, behaviour.base_tofu), *((label, own.tofu) for label, own in asked)]
            tofu = {label: level for label, own in scores if (level := _tofu_level(own, metric)) is not None}
            if tofu:
                yield Measure(key=f"tofu-{metric}", name=name, title=title, detail="forget set", levels=tofu)
        right = {
            label: Level(value=item.accuracy, low=item.interval.low, high=item.interval.high)
            for label, own in [(BASE, behaviour.base_roles), *((label, own.roles) for label, own in asked)]
            for item in own
            if item.role == "forget"
        }
        if right:
            yield Measure(
                key="questions",
                name="answers to forget questions",
                title="forget questions",
                detail="accuracy",
                levels=right,
                unit="percent",
            )
    if attack is not None:
        attacked = [(BASE, item) for item in attack.checkpoints if item.role == "base"]
        attacked += [
            (item.label, known) for item in record.checkpoints if (known := found.attacked(item)) is not None
        ]
        changes = [(label, item.change("forget")) for label, item in attacked if item.failed is None]
        levels = {
            label: Level(value=change.before, after=change.after)
            for label, change in changes
            if change is not None
        }
        if levels:
            yield Measure(
                key="relearned",
                name="forget score",
                title="relearning",
                detail="forget score, before to after",
                levels=levels,
                about="attack",
                unit="percent",
            )


def _tofu_level(record: TofuRecord | Undefined, metric: str) -> Level | None:
    """A score on TOFU's forget set."""
    if isinstance(record, Undefined):
        return None
    scores = next((item for item in record.sets if item.name == "forget"), None)
    value = None if scores is None else getattr(scores, metric)
    if scores is None or not isinstance(value, float):
        return None
    ends = scores.intervals.get(metric)
    return Level(value=value, low=ends.low, high=ends.high) if ends is not None else Level(value=value)


def _behaves(item: CheckpointBehaviour, behaviour: BehaviourRecord) -> str:
    """What was lost; where the base guessed, both accuracies and that a loss is undefined."""
    guess, loss = guess_words(behaviour, item), stated_loss(behaviour, item)
    if guess is not None:
        return guess
    if isinstance(loss.delta_f.value, Undefined):
        return plain(loss.delta_f.value)
    text = f"lost {_loss(loss.delta_f)} of its forget accuracy"
    if isinstance(loss.delta_a.value, float):
        text += f", {_loss(loss.delta_a)} of the adjacent"
    return text


def _beside(label: str, role: str, known: dict[str, bool]) -> str:
    """A row's tag: the kind of model, and whether the footprint is of it. known: label -> same weights."""
    kind = {"base": "base", "oracle": "retrained"}.get(role, "")
    if role == "base" or known.get(label):
        return kind
    odd = "not in this footprint" if label not in known else "other weights than the footprint's"
    return f"{kind}, {odd}" if kind else odd


def _loss(item: Loss) -> str:
    if isinstance(item.value, Undefined):
        return plain(item.value)
    ends = item.interval
    said = f" [{ends.low:.1f}, {ends.high:.1f}]" if isinstance(ends, Interval) else ""
    return f"{item.value:.1f} %{said}"


def _returns(item: CheckpointRelearning, attack: RelearnRecord) -> str:
    """What came back: levels before and after, beside the retrained model's."""
    return plain(attack.sentence(item))


def _glance(checkpoint: CheckpointFootprint, found: Beside) -> Iterator[str]:
    """What behaves and what returns, a few words each, where it was tested."""
    lost, attacked = found.lost(checkpoint), found.attacked(checkpoint)
    if lost is not None and isinstance(lost.delta_f.value, Undefined):
        yield f"loss {plain(lost.delta_f.value)}"
    if attacked is None:
        return
    change = attacked.change("forget")
    if attacked.failed is not None:
        yield f"relearning {plain(attacked.failed)}"
    elif change is not None:
        yield f"{100 * change.before:.1f} to {100 * change.after:.1f} % after relearning"


def _points(change: RoleChange) -> str:
    said = f"{100 * change.change:+.1f}"
    if isinstance(change.low, Undefined) or isinstance(change.high, Undefined):
        return said
    return f"{said} [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"


def _regimes(
    record: FootprintRecord, attacked: dict[str, CheckpointRelearning | None]
) -> Iterator[RegimeRow]:
    for checkpoint in record.checkpoints:
        item = attacked[checkpoint.label]
        change = item.change("forget") if item is not None else None
        shift = next((role.fisher.value for role in checkpoint.roles if role.role == "forget"), None)
        if item is None or change is None or not isinstance(shift, float):
            continue
        yield RegimeRow(
            checkpoint=checkpoint.label,
            class_name=_class(checkpoint),
            cofi_forget=shift,
            recovery=change.change,
            before=change.before,
            after=change.after,
            score=_score(item),
        )


def _score(item: CheckpointRelearning) -> Literal["accuracy", "token probability"]:
    kinds = {score.kind for score in item.scores if score.role == "forget"}
    return "accuracy" if "accuracy" in kinds else "token probability"


def _class(checkpoint: CheckpointFootprint) -> str:
    published = checkpoint.published
    return str(published if isinstance(published, Undefined) else published.name)


def _behaviour(behaviour: BehaviourRecord, record: FootprintRecord, found: Beside) -> tuple[Block, ...]:
    guessed = guessed_roles(behaviour)
    known = {item.label: found.asked(item) is not None for item in record.checkpoints}
    rows = [
        Row(
            label=behaviour.base.label,
            tag="base",
            cells=(*_accuracies(behaviour.base_roles), *([Cell(text=EMPTY)] * 4)),
        )
    ]
    for item in behaviour.checkpoints:
        loss = stated_loss(behaviour, item)
        rows.append(
            Row(
                label=item.label,
                tag=_beside(item.label, item.role, known),
                cells=(
                    *_accuracies(item.roles),
                    *(_loss_cell(part) for part in (loss.delta_f, loss.delta_a, loss.delta_g, loss.b_gap)),
                ),
            )
        )
    table = Table(
        key="behaviour",
        caption="Answers to questions, and what was lost of them",
        head="model",
        columns=(
            *(Column(key=role, title=role, detail="accuracy, percent") for role in ROLES),
            *(Column(key=f"loss-{role}", title=f"loss {role}", detail="% of the base's") for role in ROLES),
            Column(key="b-gap", title="B-Gap", detail="loss forget − adjacent"),
        ),
        rows=tuple(rows),
        notes=(plain(behaviour.condition),),
    )  # fmt: skip
    blocks: list[Block] = [Data(table)] if behaviour.question_sets else []
    if guessed:
        blocks.append(Bullets([plain(room.said) for room in guessed.values()]))
    tofu = tofu_rows(behaviour)
    if tofu:
        blocks.append(Data(_tofu(tofu)))
    lines = [
        line for line in summary_lines(behaviour) if line not in {room.said for room in guessed.values()}
    ]
    if lines:
        blocks.append(Fold("In words", [Bullets([plain(line) for line in lines])]))
    return tuple(blocks)


def _tofu(rows: Sequence[tuple[str, ...]]) -> Table:
    """TOFU's scores, a row a model and set."""
    return Table(
        key="tofu",
        caption="TOFU",
        head=TOFU_HEADER[0],
        columns=tuple(
            Column(key=f"tofu-{place}", title=title, numeric=place > 0)
            for place, title in enumerate(TOFU_HEADER[1:])
        ),
        rows=tuple(
            Row(label=label, cells=tuple(text_cell(cell) if cell else Cell(text=EMPTY) for cell in cells))
            for label, *cells in rows
        ),
    )


def _accuracies(roles: Sequence[RoleAccuracy]) -> Iterator[Cell]:
    known = {role.role: role for role in roles}
    for name in ROLES:
        item = known.get(name)
        if item is None:
            yield Cell(text=EMPTY)
        else:
            ends = item.interval
            yield Cell(
                text=f"{100 * item.accuracy:.1f}", row=f"[{100 * ends.low:.1f}, {100 * ends.high:.1f}]"
            )


def _loss_cell(item: Loss) -> Cell:
    if isinstance(item.value, Undefined):
        return lost_cell(item.value)
    ends = item.interval
    return Cell(
        text=f"{item.value:+.1f}",
        row=f"[{ends.low:+.1f}, {ends.high:+.1f}]" if isinstance(ends, Interval) else plain(ends),
    )


def _way(record: FootprintRecord, found: Beside) -> Iterator[WayRow]:
    for checkpoint in record.checkpoints:
        row = joined_row(checkpoint, found)
        yield WayRow(
            checkpoint=row.checkpoint,
            class_name=_class(checkpoint),
            moved=row.cofi_f,
            lost=row.delta_f,
            returned=None if row.recovery is None else 100 * row.recovery,
            retrained=checkpoint.role == "oracle",
        )


def _relearning(attack: RelearnRecord, record: FootprintRecord, found: Beside) -> tuple[Block, ...]:
    rows = []
    known = {item.label: found.attacked(item) is not None for item in record.checkpoints}
    for item in attack.checkpoints:
        if item.failed is not None:
            cells: tuple[Cell, ...] = (*([Cell(text=EMPTY)] * 4), lost_cell(item.failed))
        else:
            cells = (
                *(_change_cell(item.change(role)) for role in ROLES),
                _above(item, attack),
                _reading(item, attack),
            )
        rows.append(Row(label=item.label, tag=_beside(item.label, item.role, known), cells=cells))
    table = Table(
        key="relearning",
        caption="Before and after relearning",
        head="checkpoint",
        columns=(
            *(Column(key=role, title=role, detail="before to after, percent") for role in ROLES),
            Column(key="above", title="above retrained", detail="points on forget text, after"),
            Column(key="reading", title="reading", numeric=False),
        ),
        rows=tuple(rows),
        notes=(f"bootstrap, {count(attack.draws)} draws, of the change in points", plain(attack.condition)),
    )
    blocks: list[Block] = [Data(table), Entries(list(_budget(attack)))]
    rows_ = correlation_rows(record, found)
    if sum(row.recovery is not None for row in rows_) >= LEAST_CORRELATED:
        blocks += _correlations(rows_)
    earlier = (EARLIER_RULE,) if attack.rule == "own change" else ()
    blocks.append(Bullets([plain(line) for line in (*earlier, *attack.caveats)]))
    return tuple(blocks)


def _change_cell(change: RoleChange | None) -> Cell:
    if change is None:
        return Cell(text=EMPTY, note="not scored")
    return Cell(text=f"{100 * change.before:.1f} to {100 * change.after:.1f}", row=_points(change))


def _above(item: CheckpointRelearning, attack: RelearnRecord) -> Cell:
    """How far above the retrained model's level after the attack; of earlier records what it gained more."""
    found = item.against_oracle
    if isinstance(found, AgainstOracle):
        after = found.after
        ends = (
            plain(after.low)
            if isinstance(after.low, Undefined) or isinstance(after.high, Undefined)
            else f"[{100 * after.low:+.1f}, {100 * after.high:+.1f}]"
        )
        return Cell(text=f"{100 * after.change:+.1f}", row=ends)
    if found is not None:
        return lost_cell(found)
    value = item.beyond_oracle
    if item.role == "oracle" or attack.rule != "own change":
        return Cell(text=EMPTY)
    if isinstance(value, Undefined):
        return lost_cell(value)
    return Cell(text=f"{100 * value:+.1f}", note="change beyond the retrained model's")


def _reading(item: CheckpointRelearning, attack: RelearnRecord) -> Cell:
    return lost_cell(item.reading) if isinstance(item.reading, Undefined) else text_cell(attack.said(item))


def _budget(attack: RelearnRecord) -> Iterator[tuple[str, str]]:
    s = attack.settings
    yield (
        "budget of every checkpoint",
        f"LoRA of rank {s.rank}, rate {s.learning_rate:g}, {attack.steps} steps of {s.batch_size} sequences",
    )
    for text in attack.texts:
        if text.trained or text.scored:
            held = f", {text.held_out} of {text.documents} documents held out" if text.held_out else ""
            yield (
                of_role(text.name, text.role),
                f"{text.trained} sequences trained on, {text.scored} others scored{held}",
            )


def _correlations(rows: Sequence[CorrelationRow]) -> list[Block]:
    record: CorrelationRecord = correlation_record(rows)
    table = Table(
        key="correlations",
        caption="What it goes with",
        head="pair",
        columns=(
            Column(key="over", title="over", numeric=False),
            Column(key="n", title="n", numeric=False),
            Column(key="pearson", title="Pearson"),
            Column(key="spearman", title="Spearman"),
        ),
        rows=tuple(
            Row(
                label=f"{item.x} with {item.y}",
                cells=(
                    text_cell(item.over),
                    text_cell(counted(item.pair)),
                    *(text_cell(text_of(part)) for part in (item.pair.pearson, item.pair.spearman)),
                ),
            )
            for item in record.correlations
        ),
        notes_are="p",
        notes=(
            "two-sided; permutation: whole methods change places; published: methods as independent pairs "
            "with normal errors; BCa: bootstrap over methods",
        ),
    )
    return [Fold("Correlations over checkpoints", [Data(table), Bullets(list(record.caveats))])]
