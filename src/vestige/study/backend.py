"""The backend that trains real models: schema readers with LoRA, on torch."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vestige.contracts import Floats, MethodSettings, Objective, Record, UnlearnSettings
from vestige.decision.schema import Schema
from vestige.errors import InputError, MissingDependency, did_you_mean, shown
from vestige.methods import METHODS
from vestige.seeds import stable_seed
from vestige.study.plan import checked
from vestige.study.protocol import OnEpoch, Progress, Rows, Score, Start
from vestige.study.steps import STEPS, write_steps
from vestige.training.adaptation import AdaptSettings

__all__ = ["TorchBackend"]

CHECKPOINTS = "checkpoints"
MODEL = "model"
ENCODER = "minilm"
_PACKAGES = ("vestige", "torch", "transformers", "peft", "tokenizers", "numpy")


class TorchBackend:
    """See `vestige.study.protocol.Backend`. Torch is imported when it is needed."""

    def __init__(self) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            import torch
        except ImportError:
            raise MissingDependency("torch", "train", "training") from None
        self._torch = torch

    def model_settings(self, raw: Mapping[str, Any]) -> Record:
        from vestige.models.backbones import resolve_backbone
        from vestige.models.decision import ModelSettings
        from vestige.models.readers import READERS

        found = checked(ModelSettings, raw, "model")
        if found.reader not in READERS:
            raise InputError(
                "model: reader",
                shown(found.reader),
                f"one of {', '.join(READERS)}",
                did_you_mean(found.reader, READERS),
            )
        resolve_backbone(found.backbone)
        return found

    def task_settings(self, raw: Mapping[str, Any]) -> Record:
        from vestige.training.loop import TaskSettings

        return checked(TaskSettings, raw, "training")

    def start(self, model: Record) -> Start:
        from vestige.models.decision import ModelSettings
        from vestige.models.start import classifier_labels, is_local

        assert isinstance(model, ModelSettings)
        labels = classifier_labels(model.backbone, model.revision)
        return Start(model.backbone, is_local(model.backbone), labels)

    def objective(self, name: str) -> Objective:
        found = METHODS.get(name)
        if "decision" not in found.models:
            known = [item.name for item in METHODS if "decision" in item.models]
            raise InputError(
                f"method '{name}'",
                "a method for language models alone",
                "one for decision models",
                f"known: {', '.join(known)}",
            )
        return found

    def refuse(self, model: Record, objective: Objective) -> None:
        from vestige.models.decision import ModelSettings
        from vestige.training.hidden import unmoved

        assert isinstance(model, ModelSettings)
        if objective.hidden is None or model.lora_layers is None:
            return
        blocks = _blocks(model.backbone)
        if blocks is None:
            return
        block = objective.hidden(objective.settings()).block(blocks)
        if block < blocks - model.lora_layers:
            found = f"adapters in the last {model.lora_layers} of {blocks} blocks alone"
            raise unmoved(block, found)

    def identity(self, model: Record) -> dict[str, Any]:
        from vestige.models.decision import ModelSettings

        assert isinstance(model, ModelSettings)
        return {
            "name": "torch",
            "backbone": _pretrained(model.backbone, model.revision),
            "packages": _versions(),
        }

    def environment(self) -> dict[str, Any]:
        return {
            "packages": _versions(),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "system": platform.system(),
            "threads": self._torch.get_num_threads(),
            "device": "cpu",
        }

    def set_threads(self, threads: int) -> None:
        self._torch.set_num_threads(threads)

    def build(self, *, schema: Schema, model: Record, seed: int, folder: Path) -> dict[str, Any]:
        from vestige.models.decision import ModelSettings, build_decision_model

        assert isinstance(model, ModelSettings)
        built = build_decision_model(model, seed=seed)
        # A fresh model answers by its backbone's own similarity, alike at every seed: that is no random one.
        random = self._torch.Generator().manual_seed(stable_seed("random model", seed))
        drawn = 0
        with self._torch.no_grad():
            for _, weight in sorted(built.named_parameters()):
                if weight.requires_grad and weight.dim() > 1:
                    values = self._torch.randn(weight.shape, generator=random) / weight.shape[-1] ** 0.5
                    weight.copy_(values.to(weight))
                    drawn += weight.numel()
        shutil.rmtree(folder / MODEL, ignore_errors=True)
        built.save(folder / MODEL)
        return {"drawn_parameters": drawn}

    def train(
        self,
        *,
        rows: Rows,
        schema: Schema,
        model: Record,
        settings: Record,
        seed: int,
        folder: Path,
        progress: Progress,
    ) -> dict[str, Any]:
        from vestige.models.decision import ModelSettings, build_decision_model
        from vestige.training.loop import Hooks, TaskSettings, TrainRows, train_task

        assert isinstance(model, ModelSettings)
        assert isinstance(settings, TaskSettings)
        built = build_decision_model(model, seed=seed)
        record, log = train_task(
            built,
            TrainRows(rows.row_ids, rows.texts, rows.gold),
            schema,
            settings,
            seed=seed,
            folder=folder / CHECKPOINTS,
            hooks=Hooks(progress=lambda step, steps, loss: progress(step, steps)),
        )
        return self._kept(built, record, log, folder)

    def unlearn(
        self,
        *,
        start: Path,
        method: str,
        settings: MethodSettings,
        forget: Rows,
        retain: Rows,
        schema: Schema,
        seed: int,
        folder: Path,
        progress: Progress,
        on_epoch: OnEpoch | None = None,
        keep: bool = True,
    ) -> dict[str, Any]:
        from vestige.models.decision import load_decision_model
        from vestige.training.loop import Hooks, TrainRows, unlearn

        model = load_decision_model(start)
        objective = self.objective(method)
        if objective.post_hoc is not None:
            return self._post_hoc(model, objective, settings, folder)
        assert isinstance(settings, UnlearnSettings)
        before = {name: value.detach().clone() for name, value in model.trainable_state().items()}

        def update() -> float:
            now = model.trainable_state()
            moved = [(value.detach() - before[name]).norm() for name, value in now.items()]
            return float(self._torch.stack(moved).norm())

        def ended(epoch: int) -> bool:
            return on_epoch is not None and not on_epoch(
                epoch, lambda texts: model.predict(texts, schema), update()
            )

        record, log = unlearn(
            model,
            objective,
            settings,
            forget=TrainRows(forget.row_ids, forget.texts, forget.gold),
            retain=TrainRows(retain.row_ids, retain.texts, retain.gold),
            schema=schema,
            seed=seed,
            folder=folder / CHECKPOINTS,
            hooks=Hooks(progress=lambda step, steps, loss: progress(step, steps), on_epoch=ended),
        )
        return self._kept(model if keep else None, record, log, folder)

    def adapt(
        self,
        *,
        start: Path,
        rows: Rows,
        schema: Schema,
        settings: AdaptSettings,
        seed: int,
        on_update: Callable[[int, Score], None],
        progress: Progress,
    ) -> dict[str, Any]:
        from vestige.models.decision import load_decision_model
        from vestige.training.adapt import adapt
        from vestige.training.loop import Hooks, TrainRows

        model = load_decision_model(start)
        record, _ = adapt(
            model,
            TrainRows(rows.row_ids, rows.texts, rows.gold),
            schema,
            settings,
            seed=seed,
            on_update=lambda update: on_update(update, lambda texts: model.predict(texts, schema)),
            hooks=Hooks(progress=lambda step, steps, loss: progress(step, steps)),
        )
        return record.model_dump(mode="json")

    def fresh_heads(
        self,
        *,
        start: Path,
        rows: Rows,
        schema: Schema,
        settings: Record,
        initialisations: Sequence[int],
        texts: Sequence[str],
        progress: Progress,
    ) -> list[tuple[dict[str, Any], Floats]]:
        from vestige.models.decision import load_decision_model
        from vestige.training.adapt import FrozenReader, train_fresh_head
        from vestige.training.loop import Hooks, TaskSettings, TrainRows

        assert isinstance(settings, TaskSettings)
        reader = FrozenReader(load_decision_model(start), schema)
        found = []
        for place, number in enumerate(initialisations):

            def tell(step: int, steps: int, loss: float, place: int = place) -> None:
                progress(place * steps + step, len(initialisations) * steps)

            head = train_fresh_head(
                reader,
                TrainRows(rows.row_ids, rows.texts, rows.gold),
                schema,
                settings,
                initialisation=number,
                texts=texts,
                hooks=Hooks(progress=tell),
            )
            record = head.record.model_dump(mode="json")
            found.append(({**record, "initial_sha256": head.initial_sha256}, head.probs))
        return found

    def predict(self, *, model: Path, texts: Sequence[str], schema: Schema, progress: Progress) -> Floats:
        from vestige.models.decision import load_decision_model

        found = load_decision_model(model).predict(texts, schema)
        progress(len(texts), len(texts))
        return found

    def embed(self, texts: Sequence[str]) -> Floats:
        from vestige.models.embeddings import sentence_encoder

        return sentence_encoder(ENCODER).embed(texts)

    def encoder(self) -> str:
        return f"{ENCODER} {_pretrained(ENCODER, None)}"

    def _post_hoc(
        self, model: Any, objective: Objective, settings: MethodSettings, folder: Path
    ) -> dict[str, Any]:
        """Apply a method that trains nothing and save the model."""
        from vestige.training.loop import weights_sha256

        assert objective.post_hoc is not None
        objective.post_hoc(model, settings)
        shutil.rmtree(folder / MODEL, ignore_errors=True)
        model.save(folder / MODEL)
        return {
            "kind": "post hoc",
            "steps": 0,
            "weights_sha256": weights_sha256(model.trainable_state()),
            "temperature": model.temperature,
        }

    def _kept(
        self, model: Any, record: Record, log: Sequence[Mapping[str, Any]], folder: Path
    ) -> dict[str, Any]:
        """Save the model and the log, then drop the checkpoints."""
        shutil.rmtree(folder / MODEL, ignore_errors=True)
        if model is not None:
            model.save(folder / MODEL)
        write_steps(log, folder / STEPS)
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        return record.model_dump(mode="json")


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _blocks(name: str) -> int | None:
    """How many blocks a backbone on this machine has; None for a hub id, which may not be here yet."""
    from vestige.models.backbones import resolve_backbone
    from vestige.models.loading import read_config

    kind, location = resolve_backbone(name)
    folder = Path(location)
    if kind == "hub" or not (folder / "config.json").is_file():
        return None
    config = read_config(location, subject=f"backbone '{name}'")
    return int(config.get_text_config().num_hidden_layers)


def _pretrained(name: str, revision: str | None) -> str:
    """The hash of a local backbone's files, or the commit of a hub one."""
    from vestige.models.backbones import content_hash, resolve_backbone

    kind, location = resolve_backbone(name)
    if kind != "hub":
        return content_hash(location)
    from vestige.models.hub import answering_hub
    from vestige.models.loading import hub_commit

    with answering_hub():
        return str(hub_commit(location, revision) or revision)
