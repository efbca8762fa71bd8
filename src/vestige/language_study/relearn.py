"""From models and texts to the record of relearning: every checkpoint scored, attacked, scored again."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ValidationError
from torch import nn

import vestige
from vestige.attacks.relearn_reading import ROLE_SEEDS, read_together, role_changes
from vestige.attacks.relearn_records import (
    RECORD,
    CheckpointRelearning,
    RelearnRecord,
    RelearnSettings,
    ScoreChange,
    reading_of,
)
from vestige.attacks.relearning import attack_weights, budget_sha256, token_log_probs
from vestige.contracts import Undefined
from vestige.errors import Diverged, InputError, refused_of
from vestige.files import refuse_overwriting, stored_record, writable_folder, write_text
from vestige.footprint.checkpoints import opener
from vestige.footprint.questions import answer
from vestige.footprint.run import Quiet, Watcher
from vestige.language_study.budget import (
    ROLES,
    Budget,
    QuestionFile,
    Scored,
    Source,
    budget_of,
    question_files,
    read_texts,
)
from vestige.locks import alone_in_out
from vestige.models.causal_lm import LanguageModel, check_comparable
from vestige.models.devices import chosen_device
from vestige.models.positions import refuse_unreadable
from vestige.seeds import digest
from vestige.statistics import DRAWS, bootstrap_rows, estimate, mean_of
from vestige.training.steps import Hooks

__all__ = ["relearn"]

Part = Literal["base", "unlearned", "oracle"]


@alone_in_out("relearn")
def relearn(
    *,
    base: str | Path | LanguageModel,
    models: Mapping[str, str | Path | LanguageModel],
    forget: Mapping[str, Source],
    adjacent: Mapping[str, Source] | None = None,
    generic: Mapping[str, Source] | None = None,
    oracle: str | Path | LanguageModel | None = None,
    questions: Mapping[str, str | Path] | Sequence[QuestionFile] | None = None,
    settings: RelearnSettings | None = None,
    out: str | Path | None = None,
    name: str = "relearning",
    device: str | None = None,
    four_bit: bool = False,
    watcher: Watcher | None = None,
) -> RelearnRecord:
    """Relearning of the base, every model and the oracle on the same forgotten text; writes relearn.json.

    models: label -> model or adapter on the base. forget, adjacent, generic: name -> file or corpus.
    questions: name of a corpus, role or role:name -> file. out: finished checkpoints are kept there, and the
    same call goes on where it was interrupted. Raises InputError in one line.
    """
    settings, watcher = settings or RelearnSettings(), watcher or Quiet()
    device = chosen_device(device)
    if not forget:
        raise InputError("--forget", "no text", "at least one file", "give --forget NAME=FILE")
    if not models and oracle is None:
        raise InputError("--model", "no model", "at least one", "give --model LABEL=DIR")
    texts = read_texts({"forget": forget, "adjacent": adjacent or {}, "generic": generic or {}})
    asked = (
        question_files(questions, {corpus.name: corpus.role for corpus in texts}, asking=settings.asking)
        if isinstance(questions, Mapping)
        else list(questions or ())
    )
    folder = writable_folder(Path(out)) if out is not None else None
    watcher.stage("reading the base")
    load = opener(dtype=settings.dtype, revision=None, device=device, four_bit=four_bit)
    first = load(base, "base", None)
    if first.record.adapter == "prompt encoder":
        raise InputError("--base", "a prompt encoder", "a model with weights of its own", "name the base")
    budget = budget_of(texts, asked, first.tokenizer, settings)
    for rows in (budget.rows, *(item.rows for item in budget.scored)):
        refuse_unreadable(
            first.model, (row.ids for row in rows), subject="a row of the texts", remedy="lower --max-length"
        )
    steps = min(settings.max_steps, settings.epochs * math.ceil(len(budget.rows) / settings.batch_size))

    def other(source: str | Path | LanguageModel, label: str) -> LanguageModel:
        model = load(source, label, first, "oracle" if source is oracle else "unlearned")
        if model is not source:
            check_comparable(first, model)
        return model

    parts: list[tuple[str, Part, Callable[[], LanguageModel]]] = [("base", "base", lambda: first)]
    parts += [(label, "unlearned", partial(other, source, label)) for label, source in models.items()]
    if oracle is not None:
        parts.append(("oracle", "oracle", partial(other, oracle, "oracle")))
    if len({label for label, _, _ in parts}) < len(parts):
        raise InputError(
            "--model", "a label twice", "one label a model", "write LABEL=MODEL; base and oracle are taken"
        )
    if folder is not None:
        _refuse_other(folder / RECORD, budget, settings, [label for label, _, _ in parts])
    watcher.total = float(steps * len(parts))
    watcher.say(f"{len(parts)} checkpoints, {steps} steps each on {len(budget.rows)} sequences")
    found = []
    for label, part, opened in parts:
        watcher.stage(f"relearning: {label}")
        model = opened()
        with refused_of(f"model '{label}'"):
            found.append(_checkpoint(label, part, model, first, budget, settings, steps, folder, watcher))
    record = RelearnRecord(
        name=name,
        settings=settings,
        steps=steps,
        texts=tuple(budget.texts),
        rule="against the retrained model",
        checkpoints=read_together(found),
        budget_sha256=budget_sha256(budget.rows, settings),
        draws=DRAWS,
        condition=(
            f"one attack a checkpoint, seed {settings.seed}; intervals: bootstrap over questions or "
            "sequences, no training variance"
        ),
        caveats=tuple(_caveats(budget, found)),
        provenance={"vestige": vestige.__version__, "torch": torch.__version__, "device": device},
    )
    if folder is not None:
        write_text(folder / RECORD, record.to_json() + "\n")
    return record


def _refuse_other(path: Path, budget: Budget, settings: RelearnSettings, labels: Sequence[str]) -> None:
    """Raise InputError when the record at `path` holds attacks that this call would not make again."""
    old = stored_record(path, RelearnRecord)
    if old is None:
        return
    odd = ["budget"] if old.budget_sha256 != budget_sha256(budget.rows, settings) else []
    scored = {(item.name, item.role, item.sha256, item.questions_sha256) for item in budget.texts}
    odd += [
        f"text '{item.name}'"
        for item in old.texts
        if (item.name, item.role, item.sha256, item.questions_sha256) not in scored
    ]
    odd += [f"checkpoint '{item.label}'" for item in old.checkpoints if item.label not in labels]
    refuse_overwriting(path, "another attack", odd)


def _checkpoint(
    label: str,
    part: Part,
    model: LanguageModel,
    base: LanguageModel,
    budget: Budget,
    settings: RelearnSettings,
    steps: int,
    folder: Path | None,
    watcher: Watcher,
) -> CheckpointRelearning:
    key = digest(
        "relearned checkpoint with its items",
        label,
        part,
        model.record.sha256,
        model.record.virtual_tokens,
        budget_sha256(budget.rows, settings),
        *[
            value
            for item in budget.scored
            for value in (
                item.name,
                item.role,
                [row.ids for row in item.rows],
                [(question.prompt, question.options, question.answer) for question in item.questions],
            )
        ],
    )[:16]
    kept = folder / "checkpoints" / f"{key}.json" if folder is not None else None
    if kept is not None and (found := _stored(kept)) is not None:
        watcher.advance(float(steps))
        return found
    if model.record.adapter == "prompt encoder":
        watcher.advance(float(steps))
        what = "another model" if model.weight_change else "the base"
        return CheckpointRelearning(
            label=label,
            role=part,
            model=model.record,
            reading=Undefined(undefined="not attacked"),
            failed=Undefined(undefined=f"a prompt encoder: without its prompt it is {what}"),
        )
    began = time.monotonic()
    work = _copied(model)
    before = _values(work, model.tokenizer, budget, settings)
    training = folder / "training" / key if folder is not None else None
    hooks = Hooks(progress=lambda step, of, loss: watcher.advance(1.0))
    try:
        adapted, trained, log = attack_weights(
            work, budget.rows, settings, folder=training, hooks=hooks, identity=model.record.sha256
        )
    except Diverged as error:
        return CheckpointRelearning(
            label=label,
            role=part,
            model=model.record,
            reading=Undefined(undefined="the attack diverged"),
            failed=Undefined(undefined=str(error)),
        )
    after = _values(adapted, model.tokenizer, budget, settings)
    scores = tuple(
        _change(item, first, second) for item, first, second in zip(budget.scored, before, after, strict=True)
    )
    roles = tuple(role_changes(scores, ROLES))
    by_role = {item.role: item for item in roles}
    record = CheckpointRelearning(
        label=label,
        role=part,
        model=model.record,
        scores=scores,
        roles=roles,
        reading=reading_of(by_role.get("forget"), by_role.get("generic")),
        steps=trained.steps,
        rows_seen=trained.rows_seen,
        losses=tuple(_epoch_losses(log)),
        weights_sha256=trained.weights_sha256,
        seconds=round(time.monotonic() - began, 3),
    )
    if kept is not None:
        write_text(kept, record.to_json() + "\n")
        if training is not None:
            shutil.rmtree(training, ignore_errors=True)
    return record


def _copied(model: LanguageModel) -> nn.Module:
    """The checkpoint's weights to be trained: a copy, so that the model itself stays."""
    import copy

    return copy.deepcopy(model.model)


def _stored(path: Path) -> CheckpointRelearning | None:
    try:
        return CheckpointRelearning.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, ValueError):
        return None


def _values(model: nn.Module, tokenizer: Any, budget: Budget, settings: RelearnSettings) -> list[list[float]]:
    """For each scored item: correctness of each question, or mean log p of each sequence."""
    asked = [question for item in budget.scored for question in item.questions]
    asking = settings.asking
    right = iter(
        answer(model, tokenizer, asked, bos=asking.bos == "tokenizer", ties=asking.ties).correct
        if asked
        else ()
    )
    return [
        [float(next(right)) for _ in item.questions] if item.questions else token_log_probs(model, item.rows)
        for item in budget.scored
    ]


def _change(item: Scored, before: Sequence[float], after: Sequence[float]) -> ScoreChange:
    asked = bool(item.questions)
    first, second = ([value if asked else math.exp(value) for value in values] for values in (before, after))
    moved = mean_of([b - a for a, b in zip(first, second, strict=True)])
    result = bootstrap_rows({"change": moved}, seed=ROLE_SEEDS[item.role])["change"]
    return ScoreChange(
        name=item.name,
        topic=item.topic,
        role=item.role,
        kind="accuracy" if asked else "token probability",
        items=len(first),
        before=_mean(first),
        after=_mean(second),
        change=estimate(result, condition="one attack of one checkpoint"),
        chance=_mean([1 / len(question.options) for question in item.questions]) if asked else None,
        before_items=tuple(first),
        after_items=tuple(second),
        log_before=None if asked else _mean(before),
        log_after=None if asked else _mean(after),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _epoch_losses(log: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    for epoch in dict.fromkeys(entry["epoch"] for entry in log):
        yield _mean([float(entry["loss"]) for entry in log if entry["epoch"] == epoch])


def _caveats(budget: Budget, found: Sequence[CheckpointRelearning]) -> Iterator[str]:
    yield "a checkpoint that does not return under this budget may return under another"
    if any(item.role == "oracle" and item.failed is None for item in found):
        yield "one retrained model was attacked: the level of another may lie above or below it"
    yield from budget.caveats
    kinds = {item.role: item.questions != () for item in budget.scored}
    if len({kinds[role] for role in kinds}) > 1:
        yield "accuracy of some roles, token probability of others: their changes are not in one unit"
    yield from (f"{item.label}: {item.failed.undefined}" for item in found if item.failed is not None)
