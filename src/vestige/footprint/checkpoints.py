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
    "opener",
    "resolvable",
]

ModelSource = str | Path | LanguageModel
ModelSources = Sequence[ModelSource] | Mapping[str, ModelSource] | ModelSource


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
    """A model to compare with the base; opened when its turn comes."""

    label: str
    role: CheckpointRole
    open: Callable[[], LanguageModel]


def checkpoints_of(
    unlearned: ModelSources,
    oracle: ModelSource | None,
    base: LanguageModel,
    opened: Opened,
) -> list[Checkpoint]:
    """The unlearned models and the oracle. opened(source, label, base, role) loads one."""

    def made(label: str, role: CheckpointRole, source: ModelSource) -> Checkpoint:
        return Checkpoint(label, role, lambda: opened(source, label, base, role))

    found = [made(label, "unlearned", source) for label, source in listed(unlearned).items()]
    if oracle is not None:
        label = "oracle" if all(item.label != "oracle" for item in found) else "oracle (retrained)"
        found.append(made(label, "oracle", oracle))
    return found


def listed(models: ModelSources, *, option: str = "--unlearned") -> dict[str, ModelSource]:
    """Label -> model; labels are folder names, numbered where they repeat."""
    if isinstance(models, Mapping):
        return dict(models)
    given = [models] if isinstance(models, str | Path | LanguageModel) else list(models)
    if not given:
        raise InputError(option, "no model", "at least one", f"give {option} DIR")
    found: dict[str, ModelSource] = {}
    for model in given:
        own = model.record.label if isinstance(model, LanguageModel) else Path(str(model)).name or str(model)
        label, number = own, 2
        while label in found:
            label, number = f"{own} ({number})", number + 1
        found[label] = model
    return found


def resolvable(*models: ModelSource) -> None:
    """Raise InputError for a name that is no model, before anything is loaded."""
    for model in models:
        if not isinstance(model, LanguageModel) and not is_adapter(str(model)):
            resolve_backbone(str(model))
