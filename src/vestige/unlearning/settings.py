"""Presets and settings of methods for language models, from what a user wrote. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError

from vestige.contracts import Objective, Record
from vestige.errors import InputError, did_you_mean, shown
from vestige.language import TRIAGE, FitSettings, LanguageSettings, LoraSettings, ReadingSettings
from vestige.methods import METHODS
from vestige.readers import yaml_value
from vestige.wording import needed, refuse_misread

__all__ = [
    "PRESETS",
    "TOPIC_SETTINGS",
    "FinetuneSettings",
    "check_topics",
    "chosen",
    "language_method",
    "parsed",
    "settings_of",
]

PRESETS = ("default", "triage")
TOPIC_SETTINGS = ("topic_weights", "topic_lengths")
"""Settings of methods by topic."""
R = TypeVar("R", bound=Record)


class FinetuneSettings(FitSettings, ReadingSettings):
    """Teaching a model a text: answers alone where there are questions, all of a plain text; text as
    `ReadingSettings` says.

    lora: None trains all weights. The oracle, a model that never saw the forget text, is made with the same
    settings on the rest. blocks: all documents are joined, an end token after each, and cut into sequences of
    `max_length` tokens; what does not fill one is dropped. master: the type of the weights that are trained
    and of AdamW's moments. four_bit: the frozen weights under adapters are stored in 4 bits.
    """

    epochs: int = Field(5, ge=1)
    batch_size: int = Field(16, ge=1)
    learning_rate: float = Field(2e-5, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    warmup_share: float = Field(0.1, ge=0, lt=1)
    lora: LoraSettings | None = None
    max_length: int = Field(512, ge=2)
    blocks: bool = False
    master: Literal["float32", "bfloat16"] = "float32"
    four_bit: bool = False


def language_method(name: str) -> Objective:
    """The registered method of this name that trains language models. Raises InputError."""
    method = METHODS.get(name)
    if method.language is None:
        known = [item.name for item in METHODS if item.language is not None]
        raise InputError(
            f"method '{name}'",
            "a method for decision models alone",
            "one that trains causal language models",
            f"known: {', '.join(known)}",
        )
    return method


def settings_of(method: Objective, preset: str, values: Mapping[str, Any]) -> LanguageSettings:
    """The method's settings under a preset, with single values in their place. Raises InputError."""
    assert method.language is not None
    if preset not in PRESETS:
        raise InputError(
            "preset", shown(preset), f"one of {', '.join(PRESETS)}", did_you_mean(preset, PRESETS)
        )
    start = {**TRIAGE, **method.language.triage} if preset == "triage" else {}
    made = chosen(method.language.settings, start, values)
    _refuse_unused(method, made, values)
    return made


def _refuse_unused(method: Objective, made: LanguageSettings, values: Mapping[str, Any]) -> None:
    """Settings that would make another configuration and change nothing."""
    assert method.language is not None
    needs = method.language.needs(made)
    if made.noise_std > 0 and not any(need.startswith("ref_") for need in needs.get("retain", ())):
        raise InputError(
            "setting 'noise_std'",
            f"{made.noise_std:g} for {method.title}, whose retain term reads no reference",
            "a retain term that reads one",
            "set retain=kl" if "retain" in type(made).model_fields else "leave it out",
        )
    hooked = made.noise_std > 0 or any(need.endswith("hidden") for part in needs.values() for need in part)
    if values.get("layer") is not None and not hooked:
        raise InputError(
            "setting 'layer'",
            f"{made.layer} for {method.title}, which reads no block",
            "a method that reads hidden states",
            "leave it out",
        )


def chosen(kind: type[R], start: Mapping[str, Any], values: Mapping[str, Any]) -> R:
    """Settings of `kind`: its defaults, `start` over them, `values` over both; `lora.rank` reaches inside."""
    merged: dict[str, Any] = dict(start)
    for key, value in values.items():
        name, dot, inner = key.partition(".")
        known = LoraSettings.model_fields if dot and name == "lora" else kind.model_fields
        wrong = inner if dot and name == "lora" else key
        if wrong not in known:
            raise InputError(
                f"setting {shown(key)}", "no such setting", "a setting", did_you_mean(wrong, known)
            )
        if dot:
            own = merged.get(name, kind.model_fields[name].default)
            own = own.model_dump() if isinstance(own, Record) else (own or {})
            merged[name] = {**own, inner: value}
        else:
            merged[name] = value
    try:
        made = kind(**merged)
        refuse_misread(merged, made, "setting")
        return made
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        if not place:
            said = first["msg"].removeprefix("Value error, ")
            raise InputError("settings", said, "settings that go together", "change one") from None
        raise InputError(
            f"setting '{place}'",
            shown(str(first["input"])),
            needed(first),
            "see the documentation of methods",
        ) from None


def check_topics(subject: str, given: Mapping[str, Any], topics: Mapping[str, Any]) -> None:
    """Raise InputError for a name in `given` that is no topic."""
    for name in given:
        if name not in topics:
            raise InputError(subject, f"topic '{name}'", "a topic of --forget", did_you_mean(name, topics))


def parsed(pairs: list[str]) -> dict[str, Any]:
    """`key=value` texts as values, read as YAML: numbers, true, null, lists, or text. Raises InputError."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, mark, text = pair.partition("=")
        if not mark or not key:
            raise InputError("--set", shown(pair), "key=value", "for example --set beta=0.2")
        if key.strip() in found:
            raise InputError("--set", f"{shown(key.strip())} twice", "each setting once", "leave one out")
        found[key.strip()] = yaml_value(text, f"--set {key.strip()}")
    return found
