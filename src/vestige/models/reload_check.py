"""The reload check: each architecture family loads, trains, saves, reloads and scores bit for bit alike."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vestige.contracts import Record
from vestige.decision.schema import Option, Schema
from vestige.errors import InputError, did_you_mean
from vestige.models.backbones import load_backbone, quiet_loading
from vestige.models.decision import ModelSettings, SchemaModel, build_decision_model, load_decision_model
from vestige.models.lora_targets import adapted_names
from vestige.models.reading import Path as ReadingPath
from vestige.models.trainable import evaluation, seeded

__all__ = ["FAMILIES", "Family", "ReloadCheck", "reload_check"]

ATTENTION = ("self_attn.k_proj", "self_attn.o_proj", "self_attn.q_proj", "self_attn.v_proj")
GATED = ("mlp.down_proj", "mlp.gate_proj", "mlp.up_proj")
DENSE = ("mlp.down_proj", "mlp.up_proj")
BERT = (
    *("attention.output.dense", "attention.self.key", "attention.self.query", "attention.self.value"),
    *("intermediate.dense", "output.dense"),
)
_MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_chunk_size": 16}


@dataclass(frozen=True)
class Family:
    """An architecture family of transformers. config: its class there; sizes: what it needs beside `TINY`;
    adapted: the dense layers of its blocks that LoRA goes on, by name."""

    config: str
    adapted: tuple[str, ...]
    sizes: dict[str, Any] = field(default_factory=dict)
    reader: str = "in_context"


TINY: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.2,  # wide enough that random blocks tell words apart
}

FAMILIES: dict[str, Family] = {
    "qwen2": Family("Qwen2Config", (*GATED, *ATTENTION)),
    "qwen3": Family("Qwen3Config", (*GATED, *ATTENTION)),
    "qwen3.5": Family(
        "Qwen3_5TextConfig",
        (
            *("linear_attn.in_proj_a", "linear_attn.in_proj_b", "linear_attn.in_proj_qkv"),
            *("linear_attn.in_proj_z", "linear_attn.out_proj", *GATED, *ATTENTION),
        ),
        {
            "layer_types": ["linear_attention", "full_attention"],
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
        },
    ),
    "llama": Family("LlamaConfig", (*GATED, *ATTENTION)),
    "apertus": Family("ApertusConfig", (*DENSE, *ATTENTION)),
    "olmo3": Family("Olmo3Config", (*GATED, *ATTENTION), {"sliding_window": 16}),
    "gemma4": Family(
        "Gemma4TextConfig",
        (*GATED, "per_layer_input_gate", "per_layer_projection", *ATTENTION),
        {
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "sliding_window": 16,
            "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 64,
            "global_head_dim": 8,
        },
    ),
    "granite4": Family(
        "GraniteMoeHybridConfig",
        (*ATTENTION, "shared_mlp.input_linear", "shared_mlp.output_linear"),
        {
            "layer_types": ["attention", "attention"],
            "num_local_experts": 0,
            "shared_intermediate_size": 64,
            "mamba_n_heads": 8,
        },
    ),
    "granite4-hybrid": Family(
        "GraniteMoeHybridConfig",
        ("mamba.in_proj", *ATTENTION, "shared_mlp.input_linear", "shared_mlp.output_linear"),
        {
            "layer_types": ["mamba", "attention"],
            "num_local_experts": 0,
            "shared_intermediate_size": 64,
            **_MAMBA,
        },
    ),
    "falcon-h1": Family(
        "FalconH1Config",
        (
            *("feed_forward.down_proj", "feed_forward.gate_proj", "feed_forward.up_proj"),
            *("mamba.in_proj", *ATTENTION),
        ),
        {"mamba_d_ssm": 64, **_MAMBA},
    ),
    "lfm2": Family(
        "Lfm2Config",
        (
            *("conv.in_proj", "conv.out_proj", "feed_forward.w1", "feed_forward.w2", "feed_forward.w3"),
            *("self_attn.k_proj", "self_attn.out_proj", "self_attn.q_proj", "self_attn.v_proj"),
        ),
        {"layer_types": ["conv", "full_attention"], "block_ff_dim": 64, "block_auto_adjust_ff_dim": False},
    ),
    "ministral3": Family("Ministral3Config", (*GATED, *ATTENTION)),
    "nemotron": Family("NemotronConfig", (*DENSE, *ATTENTION)),
    "nemotron-h": Family(
        "NemotronHConfig",
        (
            *("mixer.down_proj", "mixer.in_proj", "mixer.k_proj", "mixer.o_proj", "mixer.q_proj"),
            *("mixer.up_proj", "mixer.v_proj"),
        ),
        {
            "num_hidden_layers": 3,
            "layers_block_type": ["mamba", "attention", "mlp"],
            "mamba_num_heads": 8,
            "mamba_head_dim": 8,
            "ssm_state_size": 8,
            "n_groups": 2,
            "chunk_size": 16,
            "expand": 2,
        },
    ),
    "phi3": Family(
        "Phi3Config", ("mlp.down_proj", "mlp.gate_up_proj", "self_attn.o_proj", "self_attn.qkv_proj")
    ),
    "smollm3": Family("SmolLM3Config", (*GATED, *ATTENTION)),
    "bert": Family("BertConfig", BERT, reader="encoder"),
    "roberta": Family("RobertaConfig", BERT, reader="encoder"),
    "modernbert": Family("ModernBertConfig", ("attn.Wo", "attn.Wqkv", "mlp.Wi", "mlp.Wo"), reader="encoder"),
}

_WORDS = """
lost stolen card top up failed exchange rate wrong change pin code raise limit verify identity please help why
my is the a not how do i can where when new old
""".split()  # noqa: SIM905
_OPTIONS = ("lost stolen card", "top up failed", "exchange rate wrong", "change pin code", "raise limit")
_TEXTS = (
    "my card is lost",
    "why is the exchange rate wrong today please help",
    "raise limit",
    "where do i change my old pin code",
    "top up not done",
    "stolen card",
)


class ReloadCheck(Record):
    """What the check of one family found. available: the installed transformers has the family; all else is
    empty where it has not. equal: probabilities of the reloaded model equal the saved one's bit for bit;
    cached_error: largest difference of probabilities between the shared prefix and full sequences (None where
    there is one way only). trained: share of the adapters' and head's tensors that moved."""

    family: str
    available: bool
    architecture: str = ""
    reading: ReadingPath | None = None
    adapted: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    trained: float = 0.0
    loss: float | None = None
    equal: bool = False
    cached_error: float | None = None
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Reloaded alike, on the right layers, and all of them moved."""
        return self.available and self.equal and self.adapted == self.expected and self.trained == 1.0


def reload_check(family: str, folder: Path | None = None) -> ReloadCheck:
    """Check one family on a tiny randomly initialised model, on the spot and without a network.

    A backbone folder is written and loaded, LoRA put on it, three steps trained, the model saved and loaded
    again, and both score the same rows. folder: where the files go (None: a temporary one). Raises InputError
    for a name that is no family.
    """
    if family not in FAMILIES:
        raise InputError(f"family '{family}'", "no such family", "a family", did_you_mean(family, FAMILIES))
    import transformers

    if not hasattr(transformers, FAMILIES[family].config):
        return ReloadCheck(family=family, available=False)
    with quiet_loading(), tempfile.TemporaryDirectory() as made:
        return _checked(family, folder or Path(made))


def _checked(family: str, folder: Path) -> ReloadCheck:
    began = time.monotonic()
    found = FAMILIES[family]
    base = write_tiny_backbone(found, folder / "backbone")
    settings = ModelSettings(backbone=str(base), reader=found.reader, lora_rank=2, head_width=4)
    model = build_decision_model(settings, seed=1)
    schema = Schema(tuple(Option(id=name.replace(" ", "_"), name=name) for name in _OPTIONS))
    before = {name: value.detach().clone() for name, value in model.trainable_state().items()}
    loss = _train(model, schema)
    moved = [not torch.equal(value, before[name]) for name, value in model.trainable_state().items()]
    saved = model.predict(_TEXTS, schema)
    model.save(folder / "model")
    again = load_decision_model(folder / "model").predict(_TEXTS, schema)
    return ReloadCheck(
        family=family,
        available=True,
        architecture=model.record.architecture,
        reading=model.reader.path,
        adapted=tuple(adapted_names(load_backbone(str(base)).model)),
        expected=tuple(sorted(found.adapted)),
        trained=sum(moved) / len(moved),
        loss=loss,
        equal=bool(np.array_equal(saved, again)),
        cached_error=_cached_error(model, schema, saved),
        seconds=time.monotonic() - began,
    )


def write_tiny_backbone(family: Family, folder: Path) -> Path:
    """Write a randomly initialised model of the family (seed 0) and a word tokenizer; returns the folder."""
    import transformers
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

    vocabulary = {
        word: i for i, word in enumerate(["[PAD]", "[BOS]", "[EOS]", "[UNK]", "\n", *sorted(set(_WORDS))])
    }
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Split(Regex(r" +"), "removed")
    words.post_processor = processors.TemplateProcessing(
        single="[BOS] $A" if family.reader == "in_context" else "[BOS] $A [EOS]",
        special_tokens=[("[BOS]", 1), ("[EOS]", 2)],
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", bos_token="[BOS]", eos_token="[EOS]", unk_token="[UNK]"
    )
    config = getattr(transformers, family.config)(**{**TINY, **family.sizes})
    with seeded(0), quiet_loading():
        transformers.AutoModel.from_config(config).save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))
    return folder


def _train(model: SchemaModel, schema: Schema) -> float:
    """Three steps of AdamW (the first cannot move LoRA's A: its B starts at 0) -> the last loss."""
    optimizer = torch.optim.AdamW(list(model.trainable_state().values()), lr=1e-2)
    gold = torch.tensor([i % len(schema.ids) for i in range(len(_TEXTS))])
    ids = model.tokenise(_TEXTS)
    model.train()
    for step in range(3):
        optimizer.zero_grad(set_to_none=True)
        with seeded(step):
            loss = torch.nn.functional.nll_loss(model.log_probs(ids, schema), gold)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    return loss.item()


def _cached_error(model: SchemaModel, schema: Schema, cached: Any) -> float | None:
    """Largest difference from reading every row as one full sequence, options included."""
    from vestige.models.in_context import InContextReader, SchemaPrefix

    reader = model.reader
    if not isinstance(reader, InContextReader) or reader.path != "cached prefix":
        return None
    ids = model.tokenise(_TEXTS)
    with evaluation(model):
        prefix = reader.options(model.tokenise(schema.texts()))
        reading = reader.read(ids, SchemaPrefix(prefix.options, prefix.tokens, None))
        full = torch.softmax(model.head(reading.utterances, reading.options).double(), dim=-1).numpy()
    return float(np.abs(full - cached).max())
