"""Soft prompts: a fine-tuned model whose weights stay, with an encoder of virtual tokens before the text."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn

from vestige.errors import InputError
from vestige.models.adapters import PromptedLM, merged
from vestige.models.backbones import quiet_loading
from vestige.models.trainable import seeded
from vestige.seeds import stable_seed

if TYPE_CHECKING:
    from vestige.contracts import Objective
    from vestige.training.session import Session

__all__ = ["prompted", "tune_and_prompt"]


def prompted(model: nn.Module, *, virtual_tokens: int, hidden: int, seed: int) -> PromptedLM:
    """A P-tuning encoder before `model`, whose weights ask for no gradient; drawn from the seed."""
    from peft import PromptEncoderConfig, get_peft_model

    model.requires_grad_(False)
    config = PromptEncoderConfig(
        task_type="CAUSAL_LM", num_virtual_tokens=virtual_tokens, encoder_hidden_size=hidden
    )
    with quiet_loading(), seeded(stable_seed(seed, "prompt encoder")):
        return PromptedLM(get_peft_model(model, config))


def tune_and_prompt(session: Session, tuning: Objective) -> None:
    """The session's adapters trained with `tuning` for `tune_steps` and merged; then a prompt to train.

    Inside the session's reference, the merged model computes without the prompt. Raises InputError without
    adapters and for a prompt that leaves the model no positions for the text, Diverged.
    """
    from vestige.training.session import unlearn_language

    settings: Any = session.settings
    _check(session)
    batches = min(math.ceil(len(topic.forget) / settings.batch_size) for topic in session.topics.values())
    first = settings.model_copy(
        update={
            "learning_rate": settings.tune_rate,
            "retain_weight": 1.0,
            "topic_weights": {},
            "max_steps": min(settings.tune_steps, settings.max_steps)
            if settings.tune_once
            else settings.tune_steps,
            "epochs": 1
            if settings.tune_once
            else math.ceil(settings.tune_steps / (batches * len(session.topics))),
            "warmup_steps": 0,
            "select": "last",
            "noise_std": 0.0,
        }
    )
    assert tuning.language is not None
    inner = replace(
        session, objective=tuning, settings=first, forget=tuning.forget, retain=tuning.retain, notes=[]
    )
    place = session.folder / "tuning" if session.folder is not None else None
    record, log = unlearn_language(inner, folder=place)
    session.phases.append(
        {
            "phase": "fine-tuning on both sets",
            "steps": record.steps,
            "first_loss": log[0]["loss"],
            "last_loss": log[-1]["loss"],
            "weights_sha256": record.weights_sha256,
        }
    )
    applied = merged(session.model)
    front = prompted(
        applied.model,
        virtual_tokens=settings.virtual_tokens,
        hidden=settings.encoder_hidden,
        seed=session.seed,
    )
    session.model = front
    session.reference = front.unprompted


def _check(session: Session) -> None:
    settings: Any = session.settings
    if settings.lora is None:
        raise InputError(
            "setting lora",
            "no adapters",
            "adapters for SPUL's fine-tuning, which are then merged",
            "give lora a rank",
        )
    config: Any = session.model.config
    room = getattr(config.get_text_config(), "max_position_embeddings", None)
    rows = [row for topic in session.topics.values() for row in (*topic.forget, *topic.retain)]
    longest = max(len(row.ids) for row in rows)
    if room is not None and settings.virtual_tokens + longest > room:
        raise InputError(
            "setting virtual_tokens",
            f"{settings.virtual_tokens} before sequences of {longest} tokens",
            f"at most {room} positions in all, as many as the model has",
            "lower virtual_tokens or max_length",
        )
