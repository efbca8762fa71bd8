"""Loading causal language models: adapters, prompt encoders, dtypes, and what is refused in one line."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import peft
import torch
from tests.tiny_lm import save_tiny_llama, tiny_llama, tiny_tokenizer
from transformers import BloomConfig, BloomForCausalLM

from vestige.errors import InputError, MissingDependency
from vestige.models.causal_lm import (
    check_comparable,
    language_model,
    load_language_model,
    weights_digest,
)
from vestige.models.projections import lora_targets, place, target_modules, target_parameters

IDS = torch.tensor([[1, 5, 9, 13, 4]])


@pytest.fixture(scope="module")
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("base"))


def save_lora(folder: Path, base: Path, *, zero: bool = False, rank: int = 2) -> Path:
    model = load_language_model(str(base)).model
    targets = lora_targets(model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        wrapped = peft.get_peft_model(
            model, peft.LoraConfig(r=rank, lora_alpha=4, target_modules=targets, task_type="CAUSAL_LM")
        )
        if not zero:
            for name, value in wrapped.named_parameters():
                if "lora_B" in name:
                    value.data.normal_(0, 0.3)
    wrapped.save_pretrained(str(folder))
    return folder


def test_a_checkpoint_loads_frozen_in_the_dtype_asked_for(base_folder: Path) -> None:
    found = load_language_model(str(base_folder), dtype="bfloat16")
    assert {value.dtype for value in found.model.parameters()} == {torch.bfloat16}
    assert not any(value.requires_grad for value in found.model.parameters())
    assert not found.model.training
    assert found.record.architecture == "LlamaForCausalLM"
    assert found.record.adds_bos
    assert found.record.sha256 != load_language_model(str(base_folder)).record.sha256


def test_an_architecture_without_sdpa_attends_eagerly(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    config = BloomConfig(vocab_size=len(tokenizer), hidden_size=16, n_layer=1, n_head=2)
    BloomForCausalLM(config).save_pretrained(str(tmp_path))
    tokenizer.save_pretrained(str(tmp_path))
    found = load_language_model(str(tmp_path))
    assert found.model.config._attn_implementation == "eager"
    assert len(target_parameters(found.model)) == 4
    assert torch.isfinite(found.model(input_ids=IDS).logits).all()


def test_an_adapter_is_merged_in_float32_and_the_base_stays_as_it_was(
    base_folder: Path, tmp_path: Path
) -> None:
    base = load_language_model(str(base_folder), dtype="bfloat16")
    before = weights_digest(base.model)
    found = load_language_model(str(save_lora(tmp_path, base_folder)), base=base, dtype="bfloat16")
    assert weights_digest(base.model) == before
    assert (found.record.adapter, found.record.rank, found.record.base) == ("lora", 2, base.record.label)
    wrapped = peft.PeftModel.from_pretrained(load_language_model(str(base_folder)).model, str(tmp_path))
    merged = wrapped.merge_and_unload().to(torch.bfloat16)
    for name, value in merged.named_parameters():
        assert torch.equal(value, found.model.get_parameter(name)), name
    assert list(target_parameters(found.model)) == list(target_parameters(base.model))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_zero_adapter_leaves_every_weight_equal(base_folder: Path, tmp_path: Path, dtype: Any) -> None:
    base = load_language_model(str(base_folder), dtype=dtype)
    found = load_language_model(str(save_lora(tmp_path, base_folder, zero=True)), base=base, dtype=dtype)
    assert all(
        torch.equal(value, found.model.get_parameter(name)) for name, value in base.model.named_parameters()
    )


def test_a_base_inside_an_adapter_is_measured_with_its_own_layers() -> None:
    model = tiny_llama()
    plain = weights_digest(model)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    for name, value in wrapped.named_parameters():
        if "lora_B" in name:
            value.data.fill_(0.1)
    inside = copy.deepcopy(model.state_dict())
    base = language_model(model, tiny_tokenizer(), label="base")
    after = language_model(wrapped, tiny_tokenizer(), label="after", base=base)
    assert weights_digest(base.model) == plain
    assert "own layers were measured" in base.record.notes[0]
    assert weights_digest(after.model) != plain
    assert after.record.adapter == "lora"
    assert all(torch.equal(value, inside[name]) for name, value in model.state_dict().items())


def test_a_prompt_encoder_changes_no_weight_and_its_positions_are_stripped(
    base_folder: Path, tmp_path: Path
) -> None:
    base = load_language_model(str(base_folder))
    config = peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        peft.get_peft_model(copy.deepcopy(base.model), config).save_pretrained(str(tmp_path))
    found = load_language_model(str(tmp_path), base=base)
    assert not found.weight_change
    assert found.record.virtual_tokens == 3
    with torch.inference_mode():
        logits = found.model(input_ids=IDS, use_cache=False).logits
        plain = base.model(input_ids=IDS, use_cache=False).logits
        prompted = found.model.prompted(input_ids=IDS).logits[:, 3:]
    assert logits.shape == plain.shape
    assert torch.equal(logits, prompted)
    assert not torch.allclose(logits, plain)
    check_comparable(base, found)


def test_nan_weights_are_named(tmp_path: Path, base_folder: Path) -> None:
    model = tiny_llama()
    model.model.layers[1].mlp.up_proj.weight.data[0, 0] = float("nan")
    with pytest.raises(InputError, match=r"layers\.1\.mlp\.up_proj\.weight.*1 values that are NaN"):
        language_model(model, tiny_tokenizer(), label="broken")


def test_an_adapter_of_another_base_is_refused(base_folder: Path, tmp_path: Path) -> None:
    other = save_tiny_llama(tmp_path / "other", layers=3)
    adapter = save_lora(tmp_path / "adapter", other)
    base = load_language_model(str(base_folder))
    with pytest.raises(
        InputError, match=r"layers\.2.*LORA adapter on this base.*name the base it was trained on"
    ):
        load_language_model(str(adapter), base=base)
    alone = load_language_model(str(adapter))  # its own base, by the place that the adapter names
    assert len(target_parameters(alone.model)) == 3 * 7


def test_other_architectures_vocabularies_and_tokenizers_are_refused(base_folder: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    base = load_language_model(str(base_folder))
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=base.record.vocabulary, n_embd=16, n_layer=1, n_head=2))
    with pytest.raises(InputError, match="architecture GPT2LMHeadModel"):
        check_comparable(base, language_model(gpt, base.tokenizer, label="gpt"))
    wider = tiny_llama()
    wider.resize_token_embeddings(base.record.vocabulary + 1)
    with pytest.raises(InputError, match="a vocabulary of"):
        check_comparable(base, language_model(wider, base.tokenizer, label="wider"))
    with pytest.raises(InputError, match="tokenizer that reads text otherwise"):
        check_comparable(base, language_model(tiny_llama(), tiny_tokenizer(bos=False), label="no bos"))
    deeper = language_model(tiny_llama(layers=1), base.tokenizer, label="shallow")
    with pytest.raises(InputError, match="other weights or shapes"):
        check_comparable(base, deeper)


def test_a_checkpoint_without_a_tokenizer_uses_the_bases(base_folder: Path, tmp_path: Path) -> None:
    tiny_llama(seed=1).save_pretrained(str(tmp_path))
    base = load_language_model(str(base_folder))
    found = load_language_model(str(tmp_path), base=base)
    assert found.tokenizer is base.tokenizer
    assert "without a tokenizer" in found.record.notes[0]


def test_four_bits_without_bitsandbytes_say_what_to_install(
    base_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "bitsandbytes" else find(name, *rest)
    )
    with pytest.raises(MissingDependency, match="pip install bitsandbytes"):
        load_language_model(str(base_folder), four_bit=True)


@pytest.mark.parametrize(
    ("name", "layer", "projection"),
    [
        ("model.layers.3.self_attn.q_proj.weight", 3, "q"),
        ("gpt_neox.layers.0.attention.query_key_value.weight", 0, "qkv"),
        ("gpt_neox.layers.0.attention.dense.weight", 0, "o"),
        ("gpt_neox.layers.11.mlp.dense_h_to_4h.weight", 11, "up"),
        ("transformer.h.2.attn.c_attn.weight", 2, "qkv"),
        ("transformer.h.2.attn.c_proj.weight", 2, "o"),
        ("transformer.h.2.mlp.c_proj.weight", 2, "down"),
        ("model.layers.1.mlp.gate_up_proj.weight", 1, "gate_up"),
        ("model.decoder.layers.4.fc1.weight", 4, "up"),
    ],
)
def test_places_of_architectures(name: str, layer: int, projection: str) -> None:
    found = place(name)
    assert found is not None
    assert (found.layer, found.projection) == (layer, projection)


def test_other_modules_have_no_place() -> None:
    assert all(place(name) is None for name in ("lm_head.weight", "model.layers.0.input_layernorm.weight"))


def test_no_projection_matched_lists_the_dense_layers() -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.ModuleDict({"strange": torch.nn.Linear(2, 2)})])

    with pytest.raises(InputError, match=r"attention projections: found dense layers 'layers\.strange'"):
        target_modules(Odd())


def test_tied_projections_are_refused() -> None:
    model = tiny_llama()
    model.model.layers[1].mlp.up_proj.weight = model.model.layers[0].mlp.up_proj.weight
    with pytest.raises(InputError, match="the same weight under"):
        target_parameters(model)
