"""The checkpoints of one comparison: named, found before anything is loaded, opened when their turn comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vestige.errors import InputError
from vestige.footprint.records import CheckpointRole
from vestige.models.adapters import is_adapter
from vestige.models.backbones import resolve_backbone
from vestige.models.causal_lm import LanguageModel, load_language_model
from vestige.models.lm_record import MeasuringDtype

__all__ = [
    "Checkpoint",
    "ModelSource",
    "ModelSources",
    "Quiet",
    "Watcher",
    "checkpoints_of",
    "listed",
    "methods_of",
    "opener",
    "oracles_of",
    "resolvable",
]

ModelSource = str | Path | LanguageModel
ModelSources = (
    Sequence[ModelSource]
    | Mapping[str, ModelSource]
    | Mapping[str, Sequence[ModelSource]]
    | Mapping[str, ModelSource | Sequence[ModelSource]]
    | ModelSource
)


class Watcher(Protocol):
    """Who is told how far the work is. `vestige.cli.console.Progress` is one."""

    total: float

    def stage(self, text: str) -> None: ...
    def advance(self, amount: float = 1.0) -> None: ...
    def say(self, text: str) -> None: ...


class Quiet:
    """Says nothing."""

    total = 0.0

    def stage(self, text: str) -> None:
        """Nothing."""

    def advance(self, amount: float = 1.0) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""


class Opened(Protocol):
    """Loads a model of a comparison. on: the base that an adapter is put on; None: the base itself."""

    def __call__(
        self, source: ModelSource, label: str | None, on: LanguageModel | None, role: CheckpointRole = ...
    ) -> LanguageModel: ...


def opener(*, dtype: MeasuringDtype, revision: str | None, device: str, four_bit: bool = False) -> Opened:
    """What opens a comparison's models alike. revision: of the base alone; four_bit: not of adapters.

    An unlearned adapter that was made from another model than the base is refused; a retrained one is put on
    what it was made from, which never saw what the base has seen.
    """

    def opened(
        source: ModelSource, label: str | None, on: LanguageModel | None, role: CheckpointRole = "unlearned"
    ) -> LanguageModel:
        if isinstance(source, LanguageModel):
            return source
        return load_language_model(
            str(source),
            dtype=dtype,
            revision=revision if on is None else None,
            base=on,
            made_from_base=role == "unlearned",
            label=label,
            device=device,
            four_bit=four_bit and not is_adapter(str(source)),
        )

    return opened


@dataclass(frozen=True)
class Checkpoint:
    """A model to compare with the base; opened when its turn comes.

    method: what it is a training seed of. in_memory: it is there already, so that opening it takes nothing.
    """

    label: str
    role: CheckpointRole
    open: Callable[[], LanguageModel]
    method: str = ""
    in_memory: bool = False


def checkpoints_of(
    unlearned: ModelSources,
    oracle: ModelSources | None,
    base: LanguageModel,
    opened: Opened,
) -> list[Checkpoint]:
    """The unlearned models and the oracles. opened(source, label, base, role) loads one."""

    def made(label: str, role: CheckpointRole, source: ModelSource, method: str) -> Checkpoint:
        here = isinstance(source, LanguageModel)
        return Checkpoint(label, role, lambda: opened(source, label, base, role), method, here)

    found = [
        made(label, "unlearned", source, method)
        for method, seeds in methods_of(unlearned).items()
        for label, source in seeds.items()
    ]
    taken = {item.label for item in found}
    for name, source in oracles_of(oracle).items():
        label = name if name not in taken else f"{name} (retrained)"
        found.append(made(label, "oracle", source, label))
    return found


def methods_of(models: ModelSources, *, option: str = "--unlearned") -> dict[str, dict[str, ModelSource]]:
    """Method -> label -> model. Without names a method is a folder's name, numbered where it repeats; a
    mapping's value may be several training seeds of one method, labelled `NAME`, `NAME (2)`, ..."""
    if isinstance(models, Mapping):
        return {method: _seeds(method, given, option) for method, given in models.items()}
    given = _several(models)
    if not given:
        raise InputError(option, "no model", "at least one", f"give {option} DIR")
    found: dict[str, ModelSource] = {}
    for model in given:
        own = model.record.label if isinstance(model, LanguageModel) else Path(str(model)).name or str(model)
        label, number = own, 2
        while label in found:
            label, number = f"{own} ({number})", number + 1
        found[label] = model
    return {label: {label: model} for label, model in found.items()}


def oracles_of(models: ModelSources | None) -> dict[str, ModelSource]:
    """Label -> retrained model: `oracle`, `oracle (2)`, ... where they have no names."""
    if models is None:
        return {}
    named = models if isinstance(models, Mapping) else {"oracle": _several(models)}
    return {
        label: source
        for name, given in named.items()
        for label, source in _seeds(name, given, "--oracle").items()
    }


def listed(models: ModelSources, *, option: str = "--unlearned") -> dict[str, ModelSource]:
    """Label -> model, as `methods_of` labels them."""
    return {
        label: source
        for seeds in methods_of(models, option=option).values()
        for label, source in seeds.items()
    }


def _several(given: ModelSource | Sequence[ModelSource]) -> list[ModelSource]:
    return [given] if isinstance(given, str | Path | LanguageModel) else list(given)


def _seeds(name: str, given: ModelSource | Sequence[ModelSource], option: str) -> dict[str, ModelSource]:
    sources = _several(given)
    if not sources:
        raise InputError(f"{option} {name}", "no model", "at least one", f"give {option} DIR")
    return {
        name if number == 1 else f"{name} ({number})": source
        for number, source in enumerate(sources, start=1)
    }


def resolvable(*models: ModelSource) -> None:
    """Raise InputError for a name that is no model, before anything is loaded."""
    for model in models:
        if not isinstance(model, LanguageModel) and not is_adapter(str(model)):
            resolve_backbone(str(model))
