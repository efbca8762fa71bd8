"""A study of one causal language model as typed YAML: texts, model, methods, what is measured. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from vestige.contracts import Record
from vestige.errors import InputError, did_you_mean, shown
from vestige.language_study.checks import check_plan
from vestige.methods import METHODS
from vestige.readers import yaml_mapping
from vestige.study.source import source_text

__all__ = [
    "InjectionPlan",
    "LanguagePlan",
    "MethodPlan",
    "TextSource",
    "TrainPlan",
    "base_label",
    "language_source",
    "load_language_study",
    "method_plans",
    "shipped_language_studies",
]


class TextSource(Record):
    """Where a text or question file comes from: a file, or a hub data set. rows: the first of them, from
    `start`. columns: new name -> the hub's."""

    path: str | None = None
    hub: str | None = None
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    columns: dict[str, str] = Field(default_factory=dict)
    start: int = Field(0, ge=0)
    rows: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _one_place(self) -> TextSource:
        if (self.path is None) == (self.hub is None):
            raise ValueError("needed one of path and hub")
        return self


class TrainPlan(Record):
    """Fine-tuning. data: names of texts, one after another. settings: of `vestige finetune`."""

    data: tuple[str, ...]
    settings: dict[str, Any] = Field(default_factory=dict)


class MethodPlan(Record):
    """A method. label: its name where it runs more than once. settings: over the preset's."""

    method: str
    label: str = ""
    preset: str = "default"
    settings: dict[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """The label, or the method's name."""
        return self.label or self.method


class BehaviourPlan(Record):
    """questions: `role:topic` -> text. tofu: set -> text. settings: of `vestige behaviour`."""

    questions: dict[str, str] = Field(default_factory=dict)
    tofu: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)


class InjectionPlan(Record):
    """Known facts put into the model. settings: of `vestige.footprint.injection`; generic: everyday texts."""

    settings: dict[str, Any] = Field(default_factory=dict)
    generic: int = Field(120, ge=2)


class LanguagePlan(Record):
    """A study. forget, adjacent, generic: names of texts; a forget text's name is its topic.

    retain: the text all methods retain on, or topic -> text. model: what everything starts from. finetune:
    makes the base from it; oracle: the model that never saw the forget texts, from the same start. methods:
    a list, or `all` for every method of language models. footprint, relearn: settings; null leaves it out.
    licence, hazard: said before anything is fetched.
    """

    kind: Literal["language"]
    name: str = Field(min_length=1)
    about: str = ""
    licence: str = ""
    hazard: str = ""
    model: str
    seed: int = 17
    texts: dict[str, TextSource] = Field(default_factory=dict)
    injection: InjectionPlan | None = None
    forget: tuple[str, ...] = ()
    adjacent: tuple[str, ...] = ()
    generic: tuple[str, ...] = ()
    retain: str | dict[str, str] | None = None
    finetune: TrainPlan | None = None
    oracle: TrainPlan | None = None
    methods: tuple[MethodPlan, ...] | Literal["all"]
    concepts: dict[str, str] = Field(default_factory=dict)
    keywords: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    footprint: dict[str, Any] | None = Field(default_factory=dict)
    behaviour: BehaviourPlan | None = None
    relearn: dict[str, Any] | None = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> LanguagePlan:
        if (self.injection is None) == (not self.forget):
            raise ValueError("needed forget texts, or an injection that brings them")
        for name in self.named_texts():
            if name not in self.texts:
                raise ValueError(f"no text '{name}'; {did_you_mean(name, self.texts)}")
        labels = [method.name for method in method_plans(self)]
        if len(set(labels)) < len(labels):
            raise ValueError("a method twice; give each a label")
        if self.injection is not None and (self.oracle is not None or self.finetune is not None):
            raise ValueError("an injection brings its own base and oracle")
        return self

    def named_texts(self) -> tuple[str, ...]:
        """Every text the plan speaks of, once."""
        found = [*self.forget, *self.adjacent, *self.generic]
        found += [self.retain] if isinstance(self.retain, str) else list((self.retain or {}).values())
        for part in (self.finetune, self.oracle):
            found += part.data if part is not None else ()
        if self.behaviour is not None:
            found += [*self.behaviour.questions.values(), *self.behaviour.tofu.values()]
        inside = ("injected-forget", "injected-adjacent", "everyday") if self.injection is not None else ()
        return tuple(name for name in dict.fromkeys(found) if name not in inside)


def method_plans(plan: LanguagePlan) -> list[MethodPlan]:
    """The study's methods; of `all`, every method that trains language models."""
    if plan.methods != "all":
        return list(plan.methods)
    return [MethodPlan(method=method.name) for method in METHODS if method.language is not None]


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
    """The plan of a file or shipped name. texts: name -> local file in place of the plan's source. model: in
    place of the plan's. scale: "small" merges the file's `scales: {small: ...}`. Raises InputError."""
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
    scales = raw.pop("scales", None) or {}
    if scale is not None:
        if not isinstance(scales, dict) or not isinstance(scales.get(scale, {}), dict):
            raise InputError(
                f"{subject}: scales",
                shown(str(scales)),
                "mappings",
                "write scales: {small: {...}}",
            )
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
    if model is not None:
        raw["model"] = model
    try:
        plan = LanguagePlan.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{subject}: {shown(where)}" if where else subject,
            str(first["msg"]).removeprefix("Value error, "),
            "a study of a language model",
            f"known keys: {', '.join(LanguagePlan.model_fields)}",
        ) from None
    check_plan(plan, method_plans(plan), subject)
    return plan if folder is None else _placed(plan, folder, set(texts or {}), model is not None)


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
