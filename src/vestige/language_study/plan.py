"""A study of one causal language model as typed YAML: texts, model, methods, what is measured. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError, field_validator, model_validator

from vestige.contracts import Record
from vestige.errors import InputError, did_you_mean, shown
from vestige.language_study.checks import check_plan
from vestige.methods import METHODS
from vestige.readers import yaml_mapping
from vestige.study.source import source_text
from vestige.wording import needed, refuse_misread

__all__ = [
    "InjectionPlan",
    "LanguagePlan",
    "MethodPlan",
    "SensitivityPlan",
    "TextSource",
    "TrainPlan",
    "base_label",
    "language_source",
    "load_language_study",
    "method_plans",
    "shipped_language_studies",
    "study_models",
]

Stage = Literal["footprint", "behaviour", "relearn"]
STAGES: tuple[Stage, ...] = get_args(Stage)


class TextSource(Record):
    """Where a text or question file comes from: a file, or a hub data set. file: one data file of that set,
    by name, where its card does not say what is in it. rows: the first of them, from `start`. columns: new
    name -> the hub's."""

    path: str | None = None
    hub: str | None = None
    config: str | None = None
    file: str | None = None
    split: str = "train"
    revision: str | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    start: int = Field(0, ge=0)
    rows: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _one_place(self) -> TextSource:
        if (self.path is None) == (self.hub is None):
            given = "both path and hub" if self.path is not None else "neither path nor hub"
            raise ValueError(f"{given}; needed one of them")
        if self.file is not None and (self.hub is None or self.config is not None):
            raise ValueError("a file by name is one of a hub data set without a config")
        return self


class TrainPlan(Record):
    """Fine-tuning. data: names of texts, one after another. settings: of `vestige finetune`. seeds: trainings
    with seeds of their own, the first the study's; all of them enter the verdict."""

    data: tuple[str, ...]
    seeds: int = Field(1, ge=1, le=50)
    settings: dict[str, Any] = Field(default_factory=dict)


class MethodPlan(Record):
    """A method. label: its name where it runs more than once. preset: "" for the study's. settings: over the
    preset's and the study's. measured: by which stages its checkpoint is measured."""

    method: str
    label: str = ""
    preset: str = ""
    settings: dict[str, Any] = Field(default_factory=dict)
    measured: tuple[Stage, ...] = STAGES

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        """A method's name alone stands for it with its defaults."""
        return {"method": value} if isinstance(value, str) else value

    @property
    def name(self) -> str:
        """The label, or the method's name."""
        return self.label or self.method


class BehaviourPlan(Record):
    """questions: `role:topic` -> text. tofu: set -> text. settings: of `vestige behaviour`. also: name ->
    settings over these, under which the questions are asked once more, into `behaviour-NAME`."""

    questions: dict[str, str] = Field(default_factory=dict)
    tofu: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    also: dict[str, dict[str, Any]] = Field(default_factory=dict)


class SensitivityPlan(Record):
    """The footprint's sensitivity. methods: labels; texts: of which the first forget text is the Hessian's.
    settings: of `vestige footprint sensitivity`."""

    methods: tuple[str, ...]
    texts: tuple[str, ...]
    settings: dict[str, Any] = Field(default_factory=dict)


class InjectionPlan(Record):
    """Known facts put into the model. settings: of `vestige.footprint.injection`; generic: everyday texts.
    oracles: retrained models, the exact one and others of other training seeds."""

    settings: dict[str, Any] = Field(default_factory=dict)
    generic: int = Field(120, ge=2)
    oracles: int = Field(1, ge=1, le=50)


class LanguagePlan(Record):
    """A study. forget, adjacent, generic: names of texts; a forget text's name is its topic. unseen: texts
    like those to be forgotten, or paraphrases, that nothing is trained on; the verdict reads them.

    retain: the text all methods retain on, or topic -> text. model: what everything starts from. finetune:
    makes the base from it; oracle: the model that never saw the forget texts, from the same start. preset:
    of every method, the footprint, behaviour and relearning, where they name none. methods: a list, label
    -> method (null takes one away), or `all` for every method of language models; method_settings: over the
    preset's of each. footprint, relearn: settings; null leaves it out. four_bit: stages that store models
    in 4 bits. licence, hazard: said before anything is fetched.

    A study's file may also have `models`: name -> what is other for that model, at least `model`; its own
    `model` then names one of them.
    """

    kind: Literal["language"]
    name: str = Field(min_length=1)
    about: str = ""
    licence: str = ""
    hazard: str = ""
    model: str
    preset: Literal["default", "triage"] = "default"
    seed: int = 17
    texts: dict[str, TextSource] = Field(default_factory=dict)
    injection: InjectionPlan | None = None
    forget: tuple[str, ...] = ()
    adjacent: tuple[str, ...] = ()
    generic: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    retain: str | dict[str, str] | None = None
    finetune: TrainPlan | None = None
    oracle: TrainPlan | None = None
    methods: tuple[MethodPlan, ...] | Literal["all"]
    method_settings: dict[str, Any] = Field(default_factory=dict)
    concepts: dict[str, str] = Field(default_factory=dict)
    keywords: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    footprint: dict[str, Any] | None = Field(default_factory=dict)
    behaviour: BehaviourPlan | None = None
    relearn: dict[str, Any] | None = Field(default_factory=dict)
    sensitivity: SensitivityPlan | None = None
    four_bit: tuple[Literal["footprint", "relearn"], ...] = ()

    @field_validator("methods", mode="before")
    @classmethod
    def _by_label(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return [{"label": label, **dict(item)} for label, item in given.items() if item is not None]

    @model_validator(mode="after")
    def _consistent(self) -> LanguagePlan:
        if (self.injection is None) == (not self.forget):
            given = "forget texts beside an injection" if self.forget else "no forget text and no injection"
            raise ValueError(f"{given}; needed forget texts, or an injection that brings them")
        for name in self.named_texts():
            if name not in self.texts:
                hint = did_you_mean(name, self.texts)
                raise ValueError(f"no text '{name}' ({hint}); needed a name under texts")
        labels = [method.name for method in method_plans(self)]
        if len(set(labels)) < len(labels):
            raise ValueError("a method twice; needed a label of its own for each")
        if self.injection is not None and (self.oracle is not None or self.finetune is not None):
            raise ValueError("an oracle or fine-tuning beside an injection; needed the injection's own alone")
        return self

    def named_texts(self) -> tuple[str, ...]:
        """Every text the plan speaks of, once."""
        found = [*self.forget, *self.adjacent, *self.generic, *self.unseen]
        found += [self.retain] if isinstance(self.retain, str) else list((self.retain or {}).values())
        for part in (self.finetune, self.oracle):
            found += part.data if part is not None else ()
        if self.behaviour is not None:
            found += [*self.behaviour.questions.values(), *self.behaviour.tofu.values()]
        inside = ("injected-forget", "injected-adjacent", "everyday") if self.injection is not None else ()
        return tuple(name for name in dict.fromkeys(found) if name not in inside)


def method_plans(plan: LanguagePlan) -> list[MethodPlan]:
    """The study's methods with their whole settings; of `all`, every method that trains language models."""
    listed = (
        [MethodPlan(method=method.name) for method in METHODS if method.language is not None]
        if plan.methods == "all"
        else plan.methods
    )
    return [
        item.model_copy(
            update={
                "preset": item.preset or plan.preset,
                "settings": {**plan.method_settings, **item.settings},
            }
        )
        for item in listed
    ]


def base_label(plan: LanguagePlan) -> str:
    """What the base is called: the model's name, and what was done to it before unlearning."""
    name = Path(plan.model).name or plan.model
    if plan.injection is not None:
        return f"{name} with injected facts"
    return f"{name}, fine-tuned" if plan.finetune is not None else name


def shipped_language_studies() -> dict[str, str]:
    """Name -> YAML text of every language study that comes with the package."""
    folder = files("vestige.language_study") / "shipped"
    found = sorted(
        (item for item in folder.iterdir() if item.name.endswith(".yaml")), key=lambda item: item.name
    )
    return {item.name.removesuffix(".yaml"): item.read_text(encoding="utf-8") for item in found}


def language_source(source: str | Path) -> tuple[str, str, Path | None] | None:
    """(text, subject, folder) of a study with `kind: language`, by file or shipped name; None for others."""
    name, path = str(source), Path(source)
    shipped = shipped_language_studies()
    if name in shipped and not path.is_file():
        return shipped[name], name, None
    if not path.is_file():
        return None
    text, subject, folder = source_text(source)
    return (text, subject, folder) if yaml_mapping(text, subject).get("kind") == "language" else None


def load_language_study(
    source: str | Path,
    *,
    texts: Mapping[str, str] | None = None,
    model: str | None = None,
    scale: str | None = None,
) -> LanguagePlan:
    """The plan of a file or shipped name. texts: name -> local file in place of the plan's source. model: a
    name of the file's `models`, or any other model. scale: "small" merges the file's
    `scales: {small: ...}`. Raises InputError."""
    found = language_source(source)
    if found is None:
        raise InputError(
            f"study '{source}'",
            "no study of a language model",
            "a file with kind: language, or a shipped name",
            did_you_mean(str(source), shipped_language_studies()),
        )
    text, subject, folder = found
    raw = yaml_mapping(text, subject)
    models, scales = (_named_parts(raw, key, subject) for key in ("models", "scales"))
    named = raw.get("model") if model is None else model
    if isinstance(named, str) and named in models:
        raw = _merged(raw, models[named])
    elif named is not None:
        raw["model"] = named
    if scale is not None:
        if scale not in scales:
            raise InputError(
                f"{subject}: scales", f"no '{scale}'", "a scale of the file", did_you_mean(scale, scales)
            )
        raw = _merged(raw, scales[scale])
    for name, path in (texts or {}).items():
        known = raw.get("texts") or {}
        known = known if isinstance(known, dict) else {}
        if name not in known:
            raise InputError("--text", f"the name '{name}'", "a text of the study", did_you_mean(name, known))
        own = known[name] if isinstance(known[name], dict) else {}
        known[name] = {"path": str(path), **{key: own[key] for key in ("start", "rows") if key in own}}
        raw["texts"] = known
    try:
        plan = LanguagePlan.model_validate(raw)
    except ValidationError as error:
        raise _refusal(error, subject) from None
    refuse_misread(raw, plan, subject)
    check_plan(plan, method_plans(plan), subject)
    return plan if folder is None else _placed(plan, folder, set(texts or {}), model is not None)


def study_models(source: str | Path) -> tuple[str, ...]:
    """The names of a study's `models`, the one it takes by itself first; () without any."""
    found = language_source(source)
    raw = {} if found is None else yaml_mapping(found[0], found[1])
    names = tuple(_named_parts(raw, "models", str(source)))
    return tuple(sorted(names, key=lambda name: name != raw.get("model")))


def _named_parts(raw: dict[str, Any], key: str, subject: str) -> dict[str, dict[str, Any]]:
    """Name -> what of the study is other under it; taken out of `raw`. Raises InputError."""
    found = raw.pop(key, None) or {}
    if not isinstance(found, dict) or not all(isinstance(part, dict) for part in found.values()):
        raise InputError(
            f"{subject}: {key}", shown(str(found)), "mappings", f"write {key}: {{name: {{...}}}}"
        )
    return found


def _refusal(error: ValidationError, subject: str) -> InputError:
    """The refusal of a file that is no plan: its first fault in words."""
    first = error.errors(include_url=False)[0]
    # Parts such as `tuple[MethodPlan, ...]` name the branch of a choice, not a place in the file.
    parts = [part for part in first["loc"] if not (isinstance(part, str) and part.endswith(("]", "']")))]
    where = ".".join(str(part) for part in parts)
    place = f"{subject}: {where}" if where else subject
    if first["type"] == "missing":
        return InputError(place, "nothing", "a value", "add the key")
    if first["type"] == "extra_forbidden":
        owner = LanguagePlan if len(parts) == 1 else None
        hint = did_you_mean(str(parts[-1]), owner.model_fields) if owner else "remove it"
        return InputError(place, "an unknown key", "a known key", hint)
    if first["type"] == "value_error":
        said = str(first["msg"]).removeprefix("Value error, ")
        found, _, asked = said.rpartition("needed ")
        return InputError(
            place, found.rstrip("; ") or shown(str(first["input"]), 40), asked or said, "correct the file"
        )
    return InputError(place, shown(repr(first["input"]), 40), needed(first), "correct the value")


def _placed(plan: LanguagePlan, folder: Path, given: set[str], own_model: bool) -> LanguagePlan:
    """Relative paths of a file are meant from the file's folder."""

    def place(path: str) -> str:
        return path if Path(path).is_absolute() else str(folder / path)

    texts = {
        name: source
        if source.path is None or name in given
        else source.model_copy(update={"path": place(source.path)})
        for name, source in plan.texts.items()
    }
    model = plan.model if own_model or not plan.model.startswith(".") else place(plan.model)
    return plan.model_copy(update={"texts": texts, "model": model})


def _merged(first: dict[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """`second` over `first`, mapping by mapping."""
    made = dict(first)
    for key, value in second.items():
        own = made.get(key)
        made[key] = _merged(own, value) if isinstance(own, dict) and isinstance(value, dict) else value
    return made
