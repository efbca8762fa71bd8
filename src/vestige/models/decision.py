"""The decision model: backbone + LoRA + head, reading an utterance and a schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from vestige.contracts import Floats, Record
from vestige.errors import InputError
from vestige.files import write_text, writing
from vestige.models.adapters import order_config
from vestige.models.backbones import Backbone, BackboneRecord, content_hash, load_backbone, quiet_loading
from vestige.models.finite import refuse_no_numbers
from vestige.models.head import DecisionHead
from vestige.models.loading import fill, put_adapter
from vestige.models.lora_targets import adapted_layers
from vestige.models.readers import READERS, make_reader
from vestige.models.trainable import TrainableModule, evaluation, seeded

if TYPE_CHECKING:
    from vestige.decision.schema import Schema

__all__ = ["ModelSettings", "SchemaModel", "build_decision_model", "load_decision_model"]

FORMAT = "vestige-decision-model-1"


class ModelSettings(Record):
    """What is trained: a backbone with LoRA on every linear layer of its blocks, and a decision head.

    reader: `encoder` for encoders, `in_context` for causal language models. dtype: of the frozen backbone;
    adapters, head and scores are float32. lora_layers: only the last so many blocks get adapters (None: all);
    nothing below them is differentiated. dropout: of the backbone while training (None: as its configuration
    says). max_tokens: utterances and option texts are cut there. head_width: of the interaction network.
    """

    backbone: str = "minilm"
    revision: str | None = None
    reader: str = "encoder"
    dtype: Literal["float32", "bfloat16"] = "float32"
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"] = "sdpa"
    lora_layers: int | None = Field(None, ge=1)
    lora_rank: int = Field(16, ge=1)
    lora_alpha: int = Field(32, ge=1)
    lora_dropout: float = Field(0.0, ge=0, lt=1)
    dropout: float | None = Field(0.0, ge=0, lt=1)
    head_width: int = Field(64, ge=1)
    max_tokens: int = Field(128, ge=4)


class SchemaModel(TrainableModule):
    """`p(option | utterance; schema)` from texts alone. Build it with `build_decision_model`."""

    def __init__(self, settings: ModelSettings, backbone: Backbone) -> None:
        super().__init__()
        self.settings = settings
        self.record = backbone.record
        self.tokenizer = backbone.tokenizer
        self.backbone = backbone.model
        self.head = DecisionHead(backbone.record.hidden_size, settings.head_width)
        self.reader = make_reader(settings.reader, backbone, settings.max_tokens)
        self.temperature = 1.0
        """Logits are divided by it; saved with the settings."""

    def tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, as the reader wants them."""
        return self.reader.tokenise(texts)

    def logits(self, utterance_ids: Sequence[Sequence[int]], schema: Schema) -> Tensor:
        """(n,) id lists -> (n, C) logits with gradient; the schema is read once for the batch."""
        return self._scores(utterance_ids, self.reader.options(self.tokenise(schema.texts())))

    def _scores(self, utterance_ids: Sequence[Sequence[int]], options: Any) -> Tensor:
        reading = self.reader.read(utterance_ids, options)
        out: Tensor = self.head(reading.utterances, reading.options) / self.temperature
        return out

    def hidden(
        self, utterance_ids: Sequence[Sequence[int]], schema: Schema, block: int
    ) -> tuple[Tensor, Tensor]:
        """See `TrainableModule.hidden`; the options' own states are not in it."""
        return self.reader.states(utterance_ids, self.tokenise(schema.texts()), block)

    def predict(self, texts: Sequence[str], schema: Schema, *, batch_rows: int = 256) -> Floats:
        """(N,) texts -> (N, C) float64 probabilities, columns in the schema's order.

        The schema is read once; rows are scored in order of length. Evaluation mode, restored after. Raises
        InputError where a logit is no number.
        """
        ids = self.tokenise(texts) if len(texts) else []
        order = sorted(range(len(ids)), key=lambda i: (len(ids[i]), ids[i]))
        probs = torch.zeros(len(ids), len(schema.ids), dtype=torch.float64)
        with evaluation(self):
            options = self.reader.options(self.tokenise(schema.texts()))
            for start in range(0, len(order), batch_rows):
                rows = order[start : start + batch_rows]
                logits = self._scores([ids[i] for i in rows], options).double().cpu()
                refuse_no_numbers(logits, f"decision model on '{self.record.name}', logits")
                probs[rows] = torch.softmax(logits, dim=-1)
        values: Floats = probs.numpy()
        return values

    def save(self, folder: str | Path, *, include_backbone: bool | None = None) -> None:
        """Write adapter, head and settings, safetensors only.

        include_backbone: also write the pretrained weights, so that the folder stands alone. None: only for
        a backbone built in memory; others are found again by name and checked by hash.
        """
        from safetensors.torch import save_file

        target = Path(folder)
        inside = include_backbone or (include_backbone is None and self.record.kind == "memory")
        with writing(target), quiet_loading():
            target.mkdir(parents=True, exist_ok=True)
            self.backbone.save_pretrained(str(target / "adapter"), save_embedding_layers=False)  # type: ignore[operator]
            (target / "adapter" / "README.md").unlink(missing_ok=True)
            order_config(target / "adapter")
            head = {name: value.detach().contiguous() for name, value in self.head.state_dict().items()}
            save_file(head, str(target / "head.safetensors"))
            if inside:
                self._save_backbone(target / "backbone")
        text = {
            "format": FORMAT,
            "settings": self.settings.model_dump(),
            "backbone": self.record.model_dump(),
            "inside": content_hash(target / "backbone") if inside else None,
            "temperature": self.temperature,
            "reading": self.reader.path,
        }
        write_text(target / "model.json", json.dumps(text, indent=2, sort_keys=True) + "\n")

    def _save_backbone(self, folder: Path) -> None:
        """Base weights under their original names: LoRA wrappers are stripped by name."""
        from peft import PeftModel

        assert isinstance(self.backbone, PeftModel)
        base = self.backbone.get_base_model()
        state = {
            name.replace(".base_layer", ""): value.detach().contiguous()
            for name, value in base.state_dict().items()
            if ".lora_" not in name
        }
        with quiet_loading():
            base.save_pretrained(str(folder), state_dict=state, safe_serialization=True)
            self.tokenizer.save_pretrained(str(folder))


def _set_dropout(model: nn.Module, rate: float) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate
            continue
        for name in ("dropout_prob", "attention_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, rate)


def _with_adapters(settings: ModelSettings, backbone: Backbone, adapter: Path | None) -> Backbone:
    from peft import LoraConfig, get_peft_model

    base: Any = backbone.model
    if settings.dropout is not None:
        _set_dropout(base, settings.dropout)
    if adapter is not None:
        wrapped: Any = put_adapter(
            base, str(adapter), subject=str(adapter), remedy="train or copy it again", trainable=True
        )
    else:
        config = LoraConfig(
            r=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            lora_dropout=settings.lora_dropout,
            target_modules=adapted_layers(base, settings.lora_layers),
            bias="none",
        )
        wrapped = get_peft_model(base, config)
    return replace(backbone, model=wrapped)


def build_decision_model(
    settings: ModelSettings, *, seed: int, backbone: Backbone | None = None
) -> SchemaModel:
    """A fresh model: same seed, same bytes. `backbone`: one already built, for example in memory."""
    loaded = backbone or _pretrained(settings, settings.backbone, settings.revision)
    if settings.reader not in READERS:
        make_reader(settings.reader, loaded, settings.max_tokens)
    with seeded(seed), quiet_loading():
        return SchemaModel(settings, _with_adapters(settings, loaded, None))


def _pretrained(settings: ModelSettings, name: str, revision: str | None) -> Backbone:
    return load_backbone(
        name, revision=revision, dtype=settings.dtype, attn_implementation=settings.attn_implementation
    )


def load_decision_model(folder: str | Path) -> SchemaModel:
    """Load what `save` wrote. Raises InputError for a missing file, tensors that are missing or left over, or
    a backbone of other bytes."""
    source = Path(folder)
    try:
        text = json.loads((source / "model.json").read_text(encoding="utf-8"))
        if text.get("format") != FORMAT:
            raise ValueError(f"format {text.get('format')!r}")
        settings = ModelSettings.model_validate(text["settings"])
        record = BackboneRecord.model_validate(text["backbone"])
        temperature, inside = float(text["temperature"]), text["inside"]
        if not 0 < temperature < float("inf"):
            raise ValueError(f"temperature {temperature}")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ValidationError) as error:
        raise InputError(
            str(source / "model.json"),
            f"no {error}" if isinstance(error, LookupError) else str(error).splitlines()[0],
            f"a model folder written by vestige ({FORMAT})",
            "name the folder that holds model.json",
        ) from None
    if inside is not None:
        own = source / "backbone"
        if not own.is_dir() or content_hash(own) != inside:
            raise InputError(
                str(own),
                "other files than were saved" if own.is_dir() else "no such folder",
                "the backbone that the model was saved with",
                "copy the whole model folder again",
            )
        backbone = replace(_pretrained(settings, str(own), None), record=record)
    else:
        backbone = _pretrained(settings, settings.backbone, record.revision)
        if record.sha256 and backbone.record.sha256 != record.sha256:
            raise InputError(
                str(source),
                f"backbone '{settings.backbone}' with hash {backbone.record.sha256[:12]}",
                f"the one it was trained on, {record.sha256[:12]}",
                "install the same version of the backbone",
            )
    with quiet_loading(), seeded(0):
        model = SchemaModel(settings, _with_adapters(settings, backbone, source / "adapter"))
    head = source / "head.safetensors"
    fill(model.head, head, subject=str(head), remedy="train or copy it again")
    model.temperature = temperature
    return model
