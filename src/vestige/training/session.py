"""Unlearning and fine-tuning of causal language models through the one loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from vestige.data.language_rows import REFUSALS, LanguageRow, LanguageRows, refusal_rows
from vestige.errors import InputError
from vestige.language import LanguageSettings, LoraSettings, Need, SequenceBatch
from vestige.models.backbones import quiet_loading
from vestige.models.blocks import blocks_of
from vestige.models.projections import lora_targets
from vestige.models.trainable import seeded
from vestige.seeds import digest, generator, stable_seed
from vestige.training.batches import StepPlan
from vestige.training.hidden import with_weights
from vestige.training.selection import Selection
from vestige.training.sequences import SequenceScorer
from vestige.training.steps import Hooks, Job, Part, TrainingRecord, constant, run_job, weights_sha256

if TYPE_CHECKING:
    from vestige.contracts import Objective, Term

__all__ = ["Session", "Topic", "attach_lora", "begin", "plan_topics", "trainable", "unlearn_language"]

LossTerm = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class Topic:
    """What one topic brings. development: retain rows that are never trained on."""

    forget: LanguageRows
    retain: LanguageRows
    development: LanguageRows | None = None
    concept: str = ""
    keywords: tuple[str, ...] = ()


@dataclass
class Session:
    """Everything a method trains with; `LanguageUse.prepare` may change it before the loop begins.

    model: what is trained, its trainable parameters asking for gradients. reference: inside it, the model
    computes as the reference. forget, retain: the terms. folder: where a run that is killed finds itself
    again. refusals: answers that decline, none for our own. notes and phases go into the record.
    """

    model: nn.Module
    tokenizer: Any
    objective: Objective
    settings: Any
    topics: Mapping[str, Topic]
    seed: int
    reference: Callable[[], AbstractContextManager[Any]]
    forget: LossTerm | None
    retain: LossTerm | None
    identity: str = ""
    folder: Path | None = None
    refusals: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    phases: list[dict[str, Any]] = field(default_factory=list)

    @property
    def block(self) -> int:
        """The hooked block: the setting `layer`, or the method's rule. Raises InputError."""
        count = len(blocks_of(self.model))
        layer: int | None = self.settings.layer
        assert self.objective.language is not None
        if layer is not None and layer >= count:
            raise InputError(
                "setting 'layer'", str(layer), f"0 to {count - 1}", "name a block that the model has"
            )
        return self.objective.language.block(count) if layer is None else layer

    def scorer(self) -> SequenceScorer:
        """A scorer of the session's model as it now is."""
        reads_hidden = any(need.endswith("hidden") for needs in self.needs().values() for need in needs)
        pad = getattr(self.tokenizer, "pad_token_id", None)
        return SequenceScorer(
            self.model,
            reference=self.reference,
            block=self.block if reads_hidden or self.settings.noise_std > 0 else 0,
            noise_std=self.settings.noise_std,
            reduction=self.settings.reduction,
            seed=self.seed,
            pad_id=int(pad) if pad is not None and pad < _rows(self.model) else 0,
        )

    def needs(self) -> Mapping[Term, frozenset[Need]]:
        """What each term reads under these settings."""
        assert self.objective.language is not None
        return self.objective.language.needs(self.settings)


def _rows(model: Any) -> int:
    """How many tokens the model has embeddings for."""
    return int(model.get_input_embeddings().weight.shape[0])


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that ask for a gradient, by name; live references."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def attach_lora(model: nn.Module, settings: LoraSettings, *, seed: int) -> Any:
    """A peft model over `model`, whose layers it replaces in place, with adapters drawn from the seed."""
    from peft import LoraConfig, get_peft_model

    alpha = int(settings.alpha) if float(settings.alpha).is_integer() else settings.alpha
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=alpha,  # a whole number where it is one, as peft writes it
        lora_dropout=settings.dropout,
        target_modules=lora_targets(model),
        task_type="CAUSAL_LM",
    )
    with quiet_loading(), seeded(stable_seed(seed, "adapter weights")):
        return get_peft_model(model, config)


def begin(
    model: nn.Module,
    tokenizer: Any,
    objective: Objective,
    settings: LanguageSettings,
    topics: Mapping[str, Topic],
    *,
    seed: int,
    identity: str = "",
    refusals: tuple[str, ...] = (),
) -> Session:
    """A session over `model`, which is given up for it: adapters attached, or all its weights trainable.

    identity: of the model and texts, where the rows alone do not tell. Raises InputError for a method that
    trains no language model, and for a topic without forget or (where they are used) retain rows.
    """
    use = objective.language
    if use is None:
        raise InputError(
            f"method '{objective.name}'",
            "a method for decision models",
            "one that trains causal language models",
            "see vestige list methods",
        )
    if settings.lora is not None:
        model.requires_grad_(False)
        adapted = attach_lora(model, settings.lora, seed=seed)
        reference: Callable[[], AbstractContextManager[Any]] = adapted.disable_adapter
        model = adapted
    else:
        model.requires_grad_(True)
        reference = _frozen_copy(model)
    session = Session(
        model=model,
        tokenizer=tokenizer,
        objective=objective,
        settings=settings,
        topics=topics,
        seed=seed,
        reference=reference,
        forget=use.forget or objective.forget,
        retain=use.retain or objective.retain,
        identity=identity,
        refusals=refusals,
    )
    retains = "retain" in session.needs()
    for name, topic in topics.items():
        if not len(topic.forget):
            raise InputError(f"topic '{name}'", "no forget rows", "at least one", "check its file")
        if retains and not len(topic.retain):
            raise InputError(
                f"topic '{name}'", "no retain rows", "text to be kept", f"give --retain {name}=FILE"
            )
    return session


def _frozen_copy(model: nn.Module) -> Callable[[], AbstractContextManager[Any]]:
    """A reference for fully trained weights: a copy of them, made when it is first used, put in place."""
    start: dict[str, Tensor] = {}

    @contextmanager
    def reference() -> Iterator[None]:
        own = trainable(model)
        if not start:
            start.update({name: value.detach().clone() for name, value in own.items()})
        with with_weights(own, start):
            yield

    return reference


def plan_topics(
    forget: Mapping[str, Sequence[int]], retain: Mapping[str, Sequence[int]], settings: Any, *, seed: int
) -> list[StepPlan]:
    """Steps that take the topics in turn. forget, retain: topic -> positions of its rows.

    An epoch has topics x batches of the smallest topic; retain batches are cycled. Order: the file's, or
    drawn anew for each pass.
    """
    size = settings.batch_size

    def passes(rows: Sequence[int], *names: object) -> list[tuple[int, ...]]:
        order = list(rows)
        if settings.shuffle:
            order = [order[int(i)] for i in generator(seed, *names).permutation(len(order))]
        return [tuple(order[at : at + size]) for at in range(0, len(order), size)]

    turns = min(math.ceil(len(rows) / size) for rows in forget.values())
    queues: dict[str, list[tuple[int, ...]]] = {name: [] for name in retain}
    counts = dict.fromkeys(retain, 0)
    steps: list[StepPlan] = []
    for epoch in range(1, settings.epochs + 1):
        batches = {name: passes(rows, "forget", name, epoch) for name, rows in forget.items()}
        for turn in range(turns):
            for k, name in enumerate(forget):
                extra: tuple[int, ...] = ()
                if retain.get(name):
                    if not queues[name]:
                        counts[name] += 1
                        queues[name] = passes(retain[name], "retain", name, counts[name])
                    extra = queues[name].pop(0)
                last = turn == turns - 1 and k == len(forget) - 1
                steps.append(StepPlan(epoch, batches[name][turn], extra, last))
    steps = steps[: settings.max_steps]
    steps[-1] = replace(steps[-1], last_of_epoch=True)
    return steps


def unlearn_language(
    session: Session, *, folder: Path | None = None, hooks: Hooks | None = None, prepared: bool = False
) -> tuple[TrainingRecord, list[dict[str, Any]]]:
    """Unlearn the topics from the session's model in place; returns the record and one log entry a step.

    prepared: the method's own phases were run already. folder: where a run that is killed finds itself again.
    Raises Diverged, Interrupted, InputError.
    """
    use = session.objective.language
    assert use is not None
    session.folder = folder
    if use.prepare is not None and not prepared:
        use.prepare(session)
    if session.forget is None:
        raise InputError(f"method '{session.objective.name}'", "no loss", "a forget term", "see list methods")
    needs, settings = session.needs(), session.settings
    forget = [row for topic in session.topics.values() for row in topic.forget]
    retain = [row for topic in session.topics.values() for row in topic.retain] if "retain" in needs else []
    plan = plan_topics(_positions(forget), _positions(retain), settings, seed=session.seed)
    scorer = session.scorer()
    _read_reference(session, scorer, plan, forget, needs)
    state = trainable(session.model)
    hooks = hooks or Hooks()
    selection = None
    if settings.select == "development":
        selection = Selection.of(session.topics, scorer, state, settings, seed=session.seed, folder=folder)
        hooks = selection.hooks(hooks)
    job = Job(
        kind="language",
        plan=plan,
        parts=lambda step, position: _parts(session, scorer, forget, retain, step, position),
        learning_rate=settings.learning_rate,
        rate=lambda step: constant(step, len(plan), settings.warmup_steps),
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        identity=_identity(session, state, forget, retain),
        row_ids=lambda step: [forget[i].id for i in step.forget] + [retain[i].id for i in step.retain],
        tokens=lambda step: (
            sum(len(forget[i].ids) for i in step.forget) + sum(len(retain[i].ids) for i in step.retain)
        ),
        forget_rows=len(forget),
        retain_rows=len(retain),
        columns=lambda step: {"topic": forget[step.forget[0]].topic},
    )
    record, log = run_job(session.model, state, job, seed=session.seed, folder=folder, hooks=hooks)
    if selection is not None:
        session.notes.append(selection.restore())
        if (warning := selection.warning()) is not None:
            session.notes.append(warning)
        record = record.model_copy(update={"weights_sha256": weights_sha256(state)})
    if use.conclude is not None:
        use.conclude(session, log)
    return record, log


def _positions(rows: Sequence[LanguageRow]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        found.setdefault(row.topic, []).append(i)
    return found


def _read_reference(
    session: Session,
    scorer: SequenceScorer,
    plan: Sequence[StepPlan],
    forget: Sequence[LanguageRow],
    needs: Mapping[Term, frozenset[Need]],
) -> None:
    """The reference itself, steering vectors, refusals, and its log p of the rows that the plan uses."""
    settings, use = session.settings, session.objective.language
    assert use is not None
    asked = needs["forget"]
    if any(need.startswith("ref_") for wanted in needs.values() for need in wanted):
        with session.reference():  # a copy of full weights is made of the start, not of a resumed step
            pass
    used = list(dict.fromkeys(forget[i] for step in plan for i in step.forget))
    if use.steer is not None:
        for name in session.topics:
            first = next(step.forget for step in plan if forget[step.forget[0]].topic == name)
            norm, width = scorer.mean_norm([forget[i] for i in first])
            vector = use.steer(settings, generator(session.seed, "steering direction", name), width, norm)
            like = next(session.model.parameters())
            scorer.steer[name] = torch.from_numpy(vector).to(like.device, torch.float32)
    if "refusal" in asked:
        for name, topic in session.topics.items():
            declined = refusal_rows(
                topic.forget,
                session.tokenizer,
                seed=session.seed,
                max_length=settings.length(name),
                reading=settings,
                refusals=session.refusals or REFUSALS,
                first=settings.batch_size if settings.refusal_draw == "first" else None,
                alone=settings.refusal_alone,
            )
            scorer.refusals.update(zip(topic.forget, declined, strict=True))
    if "ref_target" in asked:
        scorer.remember(
            [*used, *(scorer.refusals[row] for row in used if scorer.refusals)], settings.batch_size
        )


def _parts(
    session: Session,
    scorer: SequenceScorer,
    forget: Sequence[LanguageRow],
    retain: Sequence[LanguageRow],
    step: StepPlan,
    position: int,
) -> Iterator[Part]:
    """The forget term, then the retain term: one graph at a time."""
    needs, settings, use = session.needs(), session.settings, session.objective.language
    assert use is not None
    assert session.forget is not None
    topic = forget[step.forget[0]].topic

    def made(term: Literal["forget", "retain"], rows: Sequence[LanguageRow], loss: LossTerm) -> Tensor:
        batch: SequenceBatch = scorer.batch(rows, needs[term], topic=topic, term=term, position=position)
        return loss(batch, settings)

    value = made("forget", [forget[i] for i in step.forget], session.forget)
    yield Part(value, forget=value)
    del value
    if step.retain and session.retain is not None:
        kept = made("retain", [retain[i] for i in step.retain], session.retain)
        yield Part(kept * settings.weight(topic) if use.weighted else kept, retain=kept)


def _identity(
    session: Session, state: dict[str, Tensor], forget: Sequence[LanguageRow], retain: Sequence[LanguageRow]
) -> str:
    rows = [value for row in (*forget, *retain) for value in (row.topic, row.id, row.ids, row.labels)]
    extra = [
        value
        for name, topic in session.topics.items()
        for value in (name, topic.concept, topic.keywords, [row.ids for row in topic.development or ()])
    ]
    return digest(
        "unlearn language",
        session.objective.name,
        session.settings.to_json(),
        session.seed,
        session.identity,
        weights_sha256(state),
        *extra,
        len(forget),
        *rows,
    )
