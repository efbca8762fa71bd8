"""What a language study's file can get wrong, found before anything is fetched or trained. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.attacks.relearn_records import RelearnSettings
from vestige.behaviour.partition import check_keys
from vestige.behaviour.records import BehaviourSettings, tofu_set_name
from vestige.data.question_settings import AskingSettings
from vestige.errors import InputError, did_you_mean, refused_of
from vestige.footprint.judgements import InjectionSettings, SensitivitySettings
from vestige.footprint.records import FootprintSettings
from vestige.language_study.texts import refuse_uncut, refuse_unjoinable
from vestige.unlearning.settings import (
    TOPIC_SETTINGS,
    FinetuneSettings,
    check_topics,
    chosen,
    language_method,
    settings_of,
)

if TYPE_CHECKING:
    from vestige.language_study.plan import LanguagePlan, MethodPlan, SensitivityPlan

__all__ = [
    "TINY",
    "behaviour_settings",
    "check_plan",
    "footprint_settings",
    "forget_names",
    "relearn_settings",
    "repeats",
    "retain_of",
    "retained_words",
    "sensitivity_settings",
]

TINY = "tiny"
"""A model's name that stands for a tiny one, built and trained on the spot."""
_LABELS = ("base", "oracle")
_OPTION = re.compile(r"--(?=[a-z])")


def check_plan(plan: LanguagePlan, methods: list[MethodPlan], subject: str) -> None:
    """Raise InputError for what would stop the study later: settings and names that a stage refuses, and
    what a stage needs that the plan does not give. methods: of the plan. subject: begins the message."""
    try:
        _check_texts(plan)
        _check_training(plan)
        _check_methods(plan, methods)
        _check_measures(plan, methods)
    except InputError as error:
        parts = (error.subject, error.found, error.needed, error.remedy)
        first, *others = (_OPTION.sub("", part) for part in parts)
        raise InputError(f"{subject}: {first}", *others) from None


def forget_names(plan: LanguagePlan) -> tuple[str, ...]:
    """The forget texts' names, which are the topics."""
    return plan.forget or ("injected-forget",)


def retain_of(plan: LanguagePlan) -> str | dict[str, str] | None:
    """The text that all topics retain on, or topic -> text; of an injection, its adjacent text by default."""
    if plan.retain is None and plan.injection is not None:
        return "injected-adjacent"
    return plan.retain


def footprint_settings(plan: LanguagePlan) -> FootprintSettings:
    """The footprint's settings. Raises InputError."""
    start = {**_start(plan), "retained_text": retained_words(plan)}
    with refused_of("footprint"):
        return chosen(FootprintSettings, start, plan.footprint or {})


def _start(plan: LanguagePlan) -> dict[str, object]:
    return {"seed": plan.seed, "preset": plan.preset}


def behaviour_settings(plan: LanguagePlan, also: str = "") -> BehaviourSettings:
    """The settings of asking. also: once more, as the part of this name says. Raises InputError."""
    own = dict(plan.behaviour.settings) if plan.behaviour is not None else {}
    if also and plan.behaviour is not None:
        own |= plan.behaviour.also[also]
    with refused_of(f"behaviour, also {also}" if also else "behaviour"):
        return chosen(BehaviourSettings, _start(plan), own)


def sensitivity_settings(plan: LanguagePlan) -> SensitivitySettings:
    """The settings of the sensitivity; its texts have the footprint's published names. Raises InputError."""
    own = plan.sensitivity.settings if plan.sensitivity is not None else {}
    names = footprint_settings(plan).sample_names
    with refused_of("sensitivity"):
        return chosen(SensitivitySettings, {"preset": plan.preset, "sample_names": names}, own)


def repeats(methods: Iterable[MethodPlan]) -> list[tuple[str, ...]]:
    """Labels of methods that have one objective under their settings, such as GradAscent and GradDiff with
    a KL retain term: the same terms and the same settings, no phase or steering of their own."""
    found: dict[tuple[object, str], list[str]] = {}
    for item in methods:
        objective = language_method(item.method)
        use = objective.language
        assert use is not None
        forget = use.forget or objective.forget
        if forget is None or use.prepare is not None or use.steer is not None:
            continue
        made = settings_of(objective, item.preset, item.settings)
        terms = (forget, "retain" in use.needs(made) and "retain" in type(made).model_fields)
        found.setdefault((terms, made.to_json()), []).append(item.name)
    return [tuple(names) for names in found.values() if len(names) > 1]


def retained_words(plan: LanguagePlan) -> str:
    """What the methods retain on, and which measured text that is or comes from."""
    retain = retain_of(plan)
    named = dict.fromkeys([retain] if isinstance(retain, str) else list((retain or {}).values()))
    return "; ".join(f"{name} ({_resembles(plan, name)})" for name in named)


def _resembles(plan: LanguagePlan, name: str) -> str:
    inside = {"injected-forget": "forget", "injected-adjacent": "adjacent", "everyday": "generic"}
    roles = {text: role for role in ("forget", "adjacent", "generic") for text in getattr(plan, role)}
    if plan.injection is not None:
        roles |= inside
    if name in roles:
        return f"the {roles[name]} text itself"
    own = plan.texts[name]
    for text, role in roles.items():
        other = plan.texts.get(text)
        if other is not None and own.hub is not None and (own.hub, own.config) == (other.hub, other.config):
            return f"another part of the data set of the {role} text {text}"
    return "none of the measured texts"


def relearn_settings(plan: LanguagePlan) -> RelearnSettings:
    """The attack's settings; questions are asked as the study's behaviour asks them. Raises InputError."""
    own = behaviour_settings(plan)
    asking = AskingSettings(**{name: getattr(own, name) for name in AskingSettings.model_fields})
    with refused_of("relearn"):
        return chosen(RelearnSettings, {**_start(plan), "asking": asking}, plan.relearn or {})


def _check_texts(plan: LanguagePlan) -> None:
    """Every text in one role, once; rows of files that have lines; everyday text for the footprint."""
    seen: dict[str, str] = {}
    for role, names in (("forget", plan.forget), ("adjacent", plan.adjacent), ("generic", plan.generic)):
        for name in names:
            if name in seen:
                raise InputError(
                    role,
                    f"the text '{name}', which is {seen[name]} text too",
                    "a text once",
                    "leave it out",
                )
            seen[name] = role
    for name in plan.named_texts():
        source = plan.texts[name]
        if source.path is not None and (source.rows is not None or source.start):
            with refused_of(f"texts.{name}"):
                refuse_uncut(Path(source.path))
    if plan.footprint is not None and not plan.generic and plan.injection is None:
        raise InputError("generic", "no text", "one for the footprint", "name one, or write footprint: null")


def _check_training(plan: LanguagePlan) -> None:
    """Fine-tuning, oracle and injection: settings, and texts that can be trained on together."""
    if plan.injection is not None:
        with refused_of("injection"):
            chosen(InjectionSettings, {}, plan.injection.settings)
    elif plan.model == TINY:
        raise InputError("model", "tiny", "a model", "tiny goes with an injection alone")
    for name, part in (("finetune", plan.finetune), ("oracle", plan.oracle)):
        if part is None:
            continue
        with refused_of(name):
            chosen(FinetuneSettings, {}, part.settings)
            if not part.data:
                raise InputError("data", "no text", "at least one", "name texts")
            for text in part.data if len(part.data) > 1 else ():
                source = plan.texts[text]
                if source.path is not None:
                    refuse_unjoinable(Path(source.path))
    trained = [text for part in (plan.finetune, plan.oracle) if part is not None for text in part.data]
    for name in plan.unseen:
        if name in (*trained, *plan.forget, *plan.adjacent, *plan.generic):
            raise InputError(
                "unseen", f"the text '{name}', which has another use", "a text that nothing is trained on",
                "name another, or leave unseen out",
            )  # fmt: skip
    seen = [name for name in plan.forget if plan.oracle is not None and name in plan.oracle.data]
    if seen:
        raise InputError("oracle, data", f"the forget text '{seen[0]}'", "other texts", "leave it out")


def _check_methods(plan: LanguagePlan, methods: list[MethodPlan]) -> None:
    """Names, settings, and what of each topic a method needs."""
    if not methods:
        raise InputError("methods", "none", "at least one, or all", "see vestige list methods")
    topics = dict.fromkeys(forget_names(plan))
    retain = retain_of(plan)
    given: Mapping[str, Mapping[str, object]] = {"concept": plan.concepts, "keywords": plan.keywords}
    for key, named in (("concepts", plan.concepts), ("keywords", plan.keywords)):
        check_topics(key, named, topics)
    if isinstance(retain, dict):
        check_topics("retain", retain, topics)
    kept = topics if isinstance(retain, str) else retain or {}
    for item in methods:
        if item.name in _LABELS:
            raise InputError(
                "methods", f"the label '{item.name}'", f"another than {' and '.join(_LABELS)}", "rename it"
            )
        objective = language_method(item.method)
        use = objective.language
        assert use is not None
        with refused_of(f"method '{item.name}'"):
            made = settings_of(objective, item.preset, item.settings)
            for key in TOPIC_SETTINGS:
                check_topics(f"setting '{key}'", item.settings.get(key) or {}, topics)
        for topic in topics:
            for need in sorted(use.reads):
                spared = need == "keywords" and getattr(made, "no_keywords", "refuse") == "zero"
                if not spared and not _words(given[need].get(topic)):
                    key = "concepts" if need == "concept" else need
                    raise InputError(
                        f"method '{item.name}', topic '{topic}'",
                        f"no {'concept text' if need == 'concept' else need}",
                        f"what {objective.title} reads of every topic",
                        f"write {key}: {{{topic}: ...}}",
                    )
            if "retain" in use.needs(made) and topic not in kept:
                raise InputError(
                    f"method '{item.name}', topic '{topic}'",
                    "no retain text",
                    f"text that {objective.title} keeps",
                    "write retain: TEXT",
                )


def _check_sensitivity(plan: LanguagePlan, part: SensitivityPlan, methods: list[MethodPlan]) -> None:
    """Checkpoints of the study, texts that are measured, a forget text among them."""
    sensitivity_settings(plan)
    labels = [item.name for item in methods]
    measured = [*forget_names(plan), *plan.adjacent, *plan.generic]
    for key, names, known in (("methods", part.methods, labels), ("texts", part.texts, measured)):
        for name in names:
            if name not in known:
                raise InputError(
                    f"sensitivity, {key}", f"'{name}'", f"one of the study's {key}", did_you_mean(name, known)
                )
    if not part.methods or not any(name in forget_names(plan) for name in part.texts):
        raise InputError(
            "sensitivity", "no checkpoint or no forget text", "at least one of each", "name them"
        )


def _words(given: object) -> bool:
    """Whether a concept or keywords say anything."""
    return any(str(word).strip() for word in ([given] if isinstance(given, str) else given or ()))  # type: ignore[attr-defined]


def _check_measures(plan: LanguagePlan, methods: list[MethodPlan]) -> None:
    """Settings of footprint, behaviour and relearning, and what is asked."""
    if plan.footprint is not None:
        footprint_settings(plan)
    if plan.relearn is not None:
        relearn_settings(plan)
    if plan.sensitivity is not None:
        _check_sensitivity(plan, plan.sensitivity, methods)
    if plan.behaviour is None:
        return
    for also in ("", *plan.behaviour.also):
        behaviour_settings(plan, also)
    with refused_of("behaviour"):
        if not plan.behaviour.questions and not plan.behaviour.tofu:
            raise InputError(
                "questions",
                "none",
                "questions or TOFU sets",
                "write questions: {forget: TEXT}",
            )
        check_keys(plan.behaviour.questions)
        for name in plan.behaviour.tofu:
            tofu_set_name(name)
        for name in (*plan.behaviour.questions.values(), *plan.behaviour.tofu.values()):
            if name not in plan.texts:
                raise InputError(
                    "questions", f"the text '{name}'", "one of texts", did_you_mean(name, plan.texts)
                )
