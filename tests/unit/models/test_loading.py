"""What is loaded is what was saved, or nothing is: folders of every kind, damaged in every way."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.tiny import OPTIONS, save_tiny_bert, tiny_rows, tiny_schema
from tests.tiny_lm import (
    LETTERS,
    VOCABULARY,
    save_tiny_llama,
    tiny_llama,
    tiny_texts,
    tiny_tokenizer,
    write_corpus,
)
from torch import Tensor, nn

from vestige.cli import run as command
from vestige.errors import InputError
from vestige.models.backbones import load_backbone
from vestige.models.causal_lm import LanguageModel, load_language_model
from vestige.models.classifier import load_sequence_classifier
from vestige.models.decision import ModelSettings, build_decision_model, load_decision_model
from vestige.models.embeddings import SentenceEncoder
from vestige.models.loading import quiet_loading
from vestige.unlearning.run import unlearn

pytestmark = pytest.mark.train

Damage = Callable[[Path], object]
Output = Callable[[Path], Tensor]

TEXTS = tiny_rows(4)[1]
FOUR = ["q_proj", "v_proj", "up_proj", "down_proj"]
TWO = ["q_proj", "o_proj"]
SQUARE: dict[str, Any] = {"target_modules": TWO}
WIDE: dict[str, Any] = {"r": 2, "target_modules": FOUR}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "lora": ("LoraConfig", WIDE),
    "dora": ("LoraConfig", {**WIDE, "use_dora": True}),
    "rslora": ("LoraConfig", {**WIDE, "use_rslora": True}),
    "pissa": ("LoraConfig", {**WIDE, "init_lora_weights": "pissa"}),
    "lora on the output": ("LoraConfig", {"r": 2, "target_modules": ["lm_head", "q_proj"]}),
    "lora on the embeddings": ("LoraConfig", {"r": 2, "target_modules": ["embed_tokens"]}),
    "lora with a trained output": (
        "LoraConfig",
        {"r": 2, "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    ),
    "lora with trained tokens": (
        "LoraConfig",
        {"r": 2, "target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [3, 5]}},
    ),
    "adalora": ("AdaLoraConfig", {"init_r": 4, "target_r": 2, "total_step": 10, "target_modules": FOUR}),
    "loha": ("LoHaConfig", WIDE),
    "lokr": ("LoKrConfig", WIDE),
    "ia3": ("IA3Config", {"target_modules": ["k_proj", "down_proj"], "feedforward_modules": ["down_proj"]}),
    "oft": ("OFTConfig", {"r": 0, "oft_block_size": 4, "target_modules": FOUR}),
    "boft": ("BOFTConfig", {"boft_block_size": 4, "target_modules": FOUR}),
    "hra": ("HRAConfig", WIDE),
    "vera": ("VeraConfig", {"r": 4, **SQUARE}),
    "vera without projections": ("VeraConfig", {"r": 4, "save_projection": False, **SQUARE}),
    "fourierft": ("FourierFTConfig", {"n_frequency": 20, "target_modules": FOUR}),
    "layer norm": ("LNTuningConfig", {"target_modules": ["input_layernorm"]}),
    "miss": ("MissConfig", WIDE),
    "shira": ("ShiraConfig", WIDE),
    "c3a": ("C3AConfig", {"block_size": 8, **SQUARE}),
    "randlora": ("RandLoraConfig", {"r": 4, **SQUARE}),
    "vblora": ("VBLoRAConfig", {"r": 2, "num_vectors": 16, "vector_length": 8, **SQUARE}),
    "trained tokens": (
        "TrainableTokensConfig",
        {"token_indices": [3, 5], "target_modules": ["embed_tokens"]},
    ),
    "p-tuning": ("PromptEncoderConfig", {"num_virtual_tokens": 3, "encoder_hidden_size": 8}),
    "prompt": ("PromptTuningConfig", {"num_virtual_tokens": 3}),
    "prefix": ("PrefixTuningConfig", {"num_virtual_tokens": 3}),
}
"""Adapters of peft, by the configuration that makes them."""


def tied_llama() -> nn.Module:
    config = tiny_llama().config
    config.tie_word_embeddings = True
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made: nn.Module = transformers.LlamaForCausalLM(config)
    return made.eval()


def saved(model: Any, folder: Path, **how: Any) -> Path:
    with quiet_loading():
        model.save_pretrained(str(folder), **how)
        tiny_tokenizer().save_pretrained(str(folder))
    return folder


def adapted(base: nn.Module, kind: str) -> Any:
    """A peft model of this kind whose trainable weights are away from where they begin."""
    name, settings = KINDS[kind]
    if not hasattr(peft, name):
        pytest.skip(f"{name} is not in the installed peft")
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        config = getattr(peft, name)(task_type="CAUSAL_LM", **settings)
        model: Any = peft.get_peft_model(base, config)
        for value in model.parameters():
            if value.requires_grad:
                value.data.add_(0.3 * torch.randn_like(value))
    return model.eval()


def save_adapter(model: Any, folder: Path) -> Path:
    with warnings.catch_warnings():  # peft's, about what it does with embeddings
        warnings.simplefilter("ignore")
        model.save_pretrained(str(folder))
    (folder / "README.md").unlink()
    return folder


def token_ids() -> Tensor:
    found: Tensor = tiny_tokenizer()(TEXTS[0], return_tensors="pt")["input_ids"]
    return found


def logits(model: Any) -> Tensor:
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ids = token_ids()
        found: Tensor = model(input_ids=ids, use_cache=False).logits[:, -ids.shape[1] :]
    return found


def language(folder: Path, base: LanguageModel | None = None) -> Tensor:
    found = load_language_model(str(folder), base=base)
    assert found.tokenizer(TEXTS[0])["input_ids"] == token_ids()[0].tolist()
    return logits(found.model)


def classified(folder: Path) -> Tensor:
    return torch.from_numpy(load_sequence_classifier(folder).predict(TEXTS, tiny_schema()))


def embedded(folder: Path) -> Tensor:
    return torch.from_numpy(SentenceEncoder(load_backbone(str(folder))).embed(TEXTS))


def decided(folder: Path) -> Tensor:
    return torch.from_numpy(load_decision_model(folder).predict(TEXTS, tiny_schema()))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("base"))


def _decision(folder: Path, *, inside: bool) -> Path:
    backbone = save_tiny_bert(folder.with_name(f"{folder.name}-backbone"))
    model = build_decision_model(ModelSettings(backbone=str(backbone), lora_rank=2), seed=1)
    model.save(folder, include_backbone=inside)
    return folder


def _unlearned(folder: Path, method: str, **settings: Any) -> Path:
    start = save_tiny_llama(folder.with_name(f"{folder.name}-base"))
    text = write_corpus(folder.with_name(f"{folder.name}.jsonl"), tiny_texts(4))
    few = {"select": "last", "max_steps": 1, "learning_rate": 1e-2, **settings}
    unlearn(model=str(start), method=method, forget=text, retain=text, out=folder, settings=few)
    return folder


def _gpt2(folder: Path) -> Path:
    config = transformers.GPT2Config(
        vocab_size=len(VOCABULARY), n_embd=16, n_layer=1, n_head=2, n_positions=64
    )
    return saved(transformers.GPT2LMHeadModel(config), folder)


SPUL = {"tune_steps": 2, "tune_rate": 1e-2, "virtual_tokens": 2, "encoder_hidden": 4}
MODELS: dict[str, tuple[Callable[[Path], Path], Output]] = {
    "whole": (save_tiny_llama, language),
    "tied": (lambda folder: saved(tied_llama(), folder), language),
    "sharded": (lambda folder: saved(tiny_llama(), folder, max_shard_size="40KB"), language),
    "gpt2": (_gpt2, language),
    "classifier": (lambda folder: save_tiny_bert(folder, labels=sorted(OPTIONS)), classified),
    "encoder": (save_tiny_bert, embedded),
    "decision model": (lambda folder: _decision(folder, inside=False), decided),
    "decision model with its backbone": (lambda folder: _decision(folder, inside=True), decided),
    "unlearned adapter": (lambda folder: _unlearned(folder, "grad_diff"), language),
    "unlearned prompt": (lambda folder: _unlearned(folder, "spul", **SPUL), language),
}
"""Models of ours and of plain transformers: how one is made, and what it computes."""


def edited(file: Path, change: Callable[[dict[str, Tensor]], Mapping[str, Tensor]]) -> None:
    made = {name: value.contiguous().clone() for name, value in change(load_file(file)).items()}
    save_file(made, str(file), metadata={"format": "pt"})


def renamed(file: Path, change: Callable[[str], str]) -> None:
    edited(file, lambda stored: {change(name): value for name, value in stored.items()})


def without(file: Path, part: str) -> None:
    edited(file, lambda stored: {name: value for name, value in stored.items() if part not in name})


def cut(file: Path, share: float) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: int(share * len(data))])


def config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def index(folder: Path, text: str) -> None:
    """In place of the weights, unless they were put into shards."""
    (folder / "model.safetensors").unlink(missing_ok=True)
    (folder / "model.safetensors.index.json").write_text(text)


def shards_beside(file: Path) -> None:
    """Another model's shards and index beside the file."""
    other = {name: torch.zeros_like(value) for name, value in load_file(file).items()}
    shard = "model-00001-of-00001.safetensors"
    save_file(other, str(file.parent / shard), metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(other, shard)}
    (file.parent / "model.safetensors.index.json").write_text(json.dumps(index))


def another_beside(file: Path, name: str) -> None:
    other = {key: torch.zeros_like(value) for key, value in load_file(file).items()}
    torch.save(other, file.parent / name) if name.endswith(".bin") else save_file(
        other, str(file.parent / name), metadata={"format": "pt"}
    )


def damages(folder: Path, tensors: int) -> Iterator[tuple[str, Damage]]:
    """Every file dropped, renamed and cut; some tensors of every file dropped, renamed, cut and shadowed;
    other weights put beside those that are meant. Which tensors: by a hash of their names."""

    def at(file: str, do: Callable[[Path], object]) -> Damage:
        return lambda root: do(root / file)

    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".json", ".safetensors")):
        file = str(path.relative_to(folder))
        yield f"{file} dropped", at(file, Path.unlink)
        yield f"{file} renamed", at(file, lambda found: found.rename(found.with_name(f"old-{found.name}")))
        yield f"{file} cut", at(file, lambda found: cut(found, 0.9))
        if path.suffix != ".safetensors":
            continue
        names = sorted(load_file(path), key=lambda name: zlib.crc32(name.encode()))
        for name in names[:tensors]:
            last = name.rsplit(".", 1)[0]
            changes: dict[str, Callable[[dict[str, Tensor]], Mapping[str, Tensor]]] = {
                "dropped": lambda s, n=name: {k: v for k, v in s.items() if k != n},
                "renamed": lambda s, n=name: {f"module.{k}" if k == n else k: v for k, v in s.items()},
                "cut": lambda s, n=name: {k: v[:-1] if k == n and v.dim() else v for k, v in s.items()},
                "emptied": lambda s, n=name: {k: v[:0] if k == n and v.dim() else v for k, v in s.items()},
                "shadowed": lambda s, n=name, o=last: {**s, f"{o}.base_layer.weight": torch.ones_like(s[n])},
            }
            for what, change in changes.items():
                if what in ("cut", "emptied") and not load_file(path)[name].dim():
                    continue
                yield f"{name} {what}", at(file, lambda found, change=change: edited(found, change))
        if path.name == "model.safetensors":
            yield f"{file} beside shards", at(file, shards_beside)
            for name in (
                *("pytorch_model.bin", "adapter_model.safetensors", "model.fp16.safetensors"),
                "shard-00000-model-00001-of-00001.safetensors",
            ):
                yield f"{file} beside {name}", at(file, lambda found, name=name: another_beside(found, name))
        if path.name == "adapter_model.safetensors":
            yield f"{file} beside .bin", at(file, lambda found: another_beside(found, "adapter_model.bin"))


def refused_or_equal(folder: Path, output: Output, scratch: Path, *, tensors: int) -> set[str]:
    """Damages the folder in every way; asserts that each copy is refused in one line or computes the same.
    Returns what was refused."""
    wanted, refused = output(folder), set()
    for number, (what, damage) in enumerate(damages(folder, tensors)):
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(folder, scratch)
        damage(scratch)
        torch.manual_seed(number)  # what is drawn at random would differ
        try:
            found = output(scratch)
        except InputError as error:
            refused |= {what} if "\n" not in str(error) else set()
        else:
            assert torch.equal(found, wanted), what
    return refused


@pytest.mark.parametrize("name", list(MODELS))
def test_a_damaged_model_is_refused_or_computes_the_same(name: str, tmp_path: Path) -> None:
    make, output = MODELS[name]
    refused = refused_or_equal(make(tmp_path / "model"), output, tmp_path / "damaged", tensors=1)
    assert {what.split()[-1] for what in refused} >= {"dropped", "renamed", "cut", "emptied", "shadowed"}


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_damaged_adapter_is_refused_or_computes_the_same(kind: str, base: Path, tmp_path: Path) -> None:
    model = adapted(tiny_llama(), kind)
    save_adapter(model, tmp_path / "adapter")
    on = load_language_model(str(base))
    torch.testing.assert_close(language(tmp_path / "adapter", on), logits(model), atol=1e-4, rtol=1e-4)
    refused = refused_or_equal(
        tmp_path / "adapter", lambda folder: language(folder, on), tmp_path / "damaged", tensors=1
    )
    assert {what.split()[-1] for what in refused} >= {"dropped", "renamed", "cut", "emptied", "shadowed"}


@pytest.mark.parametrize("kind", ["lora on the output", "lora on the embeddings", "trained tokens"])
def test_an_adapter_of_a_tied_weight_is_merged_into_one_of_its_places(kind: str, tmp_path: Path) -> None:
    model = adapted(tied_llama(), kind)
    save_adapter(model, tmp_path / "adapter")
    on = load_language_model(str(saved(tied_llama(), tmp_path / "base")))
    found = load_language_model(str(tmp_path / "adapter"), base=on)
    torch.testing.assert_close(logits(found.model), logits(model), atol=1e-4, rtol=1e-4)
    again = saved(found.model, tmp_path / "whole")
    assert torch.equal(language(again), logits(found.model))


def test_merged_weights_that_compute_something_else_are_refused(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_adapter(adapted(tiny_llama(), "lora"), tmp_path)
    monkeypatch.setattr(peft.tuners.lora.Linear, "get_delta_weight", lambda self, name: 0.5)
    with pytest.raises(InputError, match="merged weights that compute something else"):
        load_language_model(str(tmp_path), base=load_language_model(str(base)))


SHARDED = "both model.safetensors and model.safetensors.index.json"
WHOLE: dict[str, tuple[Damage, str]] = {
    "a weight absent": (
        lambda folder: without(folder / "model.safetensors", "layers.1.mlp.down_proj"),
        r"no weights for 'model\.layers\.1\.mlp\.down_proj\.weight'; needed all weights of LlamaForCausalLM",
    ),
    "keys under module.": (
        lambda folder: renamed(folder / "model.safetensors", lambda name: f"module.{name}"),
        r"'lm_head\.weight'.*and 16 more; weights without a place .*whose 'module\.' stands before",
    ),
    "keys under _orig_mod.": (
        lambda folder: renamed(folder / "model.safetensors", lambda name: f"_orig_mod.{name}"),
        r"whose '_orig_mod\.' stands before the names",
    ),
    "keys of an adapted model": (
        lambda folder: renamed(
            folder / "model.safetensors", lambda name: name.replace("proj.", "proj.base_layer.")
        ),
        r"no weights for .*self_attn.*merge the adapter before the model is saved",
    ),
    "an untied model without its output": (
        lambda folder: without(folder / "model.safetensors", "lm_head"),
        r"no weights for 'lm_head\.weight'",
    ),
    "another shape": (
        lambda folder: edited(
            folder / "model.safetensors", lambda s: {**s, "lm_head.weight": torch.ones(3, 32)}
        ),
        r"'lm_head\.weight' of shape \(3, 32\) instead of \(56, 32\)",
    ),
    "a tensor of size 0": (
        lambda folder: edited(
            folder / "model.safetensors", lambda s: {**s, "model.norm.weight": torch.ones(0)}
        ),
        r"'model\.norm\.weight' of shape \(0,\) instead of \(32,\)",
    ),
    "fewer layers in config": (
        lambda folder: config(folder, num_hidden_layers=1),
        r"weights without a place in the model: 'model\.layers\.1\.input_layernorm\.weight'",
    ),
    "more layers in config": (
        lambda folder: config(folder, num_hidden_layers=3),
        r"no weights for 'model\.layers\.2\.input_layernorm\.weight'",
    ),
    "a billion layers": (lambda folder: config(folder, num_hidden_layers=10**9), "with 1000000000 layers"),
    "a billion words": (lambda folder: config(folder, vocab_size=10**9), "a model with 64,0.* weights"),
    "negative width": (lambda folder: config(folder, hidden_size=-32), "found .*negative"),
    "old weights beside new shards": (
        lambda folder: shards_beside(folder / "model.safetensors"),
        f"two sets of weights: {SHARDED}",
    ),
    "old weights beside a new pickle": (
        lambda folder: another_beside(folder / "model.safetensors", "pytorch_model.bin"),
        r"two sets of weights: weights as a pickle \('pytorch_model.bin'\) beside",
    ),
    "only a pickle": (
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        "a pickle.*and no model.safetensors",
    ),
    "an adapter in the folder": (
        lambda folder: (folder / "adapter_model.bin").write_text("x"),
        "two sets of weights: an adapter",
    ),
    "weights named by config": (
        lambda folder: config(folder, transformers_weights="old.safetensors"),
        "names its weights",
    ),
    "cut weights": (
        lambda folder: cut(folder / "model.safetensors", 0.5),
        "model.safetensors: found .*header",
    ),
    "a header beyond the file": (
        lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 7 + b"\x7f{}"),
        "model.safetensors: found .*header",
    ),
    "an empty file": (lambda folder: (folder / "model.safetensors").write_bytes(b""), "model.safetensors"),
    "weights that are a folder": (
        lambda folder: ((folder / "model.safetensors").unlink(), (folder / "model.safetensors").mkdir()),
        "model.safetensors: found ",
    ),
    "config {": (lambda folder: (folder / "config.json").write_text("{"), "no JSON object"),
    "config []": (lambda folder: (folder / "config.json").write_text("[]"), "no JSON object"),
    "config of deep brackets": (
        lambda folder: (folder / "config.json").write_text("[" * 100_000),
        "no JSON object",
    ),
    "config in another encoding": (
        lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe{}"),
        "no JSON object",
    ),
    "config without a type": (lambda folder: (folder / "config.json").write_text("{}"), "model"),
    "config of an unknown type": (lambda folder: config(folder, model_type="no-such"), "no-such"),
    "a type that is a number": (lambda folder: config(folder, model_type=3), "found "),
    "heads that do not divide": (lambda folder: config(folder, num_attention_heads=3), "found "),
    "no heads": (lambda folder: config(folder, num_attention_heads=0), "found "),
    "a width that is a text": (lambda folder: config(folder, hidden_size="wide"), "found "),
    "an unknown activation": (lambda folder: config(folder, hidden_act="no-such"), "found "),
    "quantised in an unknown way": (
        lambda folder: config(folder, quantization_config={"quant_method": "odd"}),
        "quantised with odd|odd",
    ),
    "an index {": (lambda folder: index(folder, "{"), r"a damaged model\.safetensors\.index\.json"),
    "an index without a map": (lambda folder: index(folder, "{}"), "a damaged"),
    "an index into another folder": (
        lambda folder: index(folder, json.dumps({"weight_map": {"a": "../base/model.safetensors"}})),
        "a damaged",
    ),
    "an index of absent shards": (
        lambda folder: index(folder, json.dumps({"weight_map": {"a": "model-00001-of-00001.safetensors"}})),
        r"model-00001-of-00001\.safetensors: found no such file",
    ),
    "an index of other tensors": (
        lambda folder: (
            (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors"),
            index(folder, json.dumps({"weight_map": {"a": "model-00001-of-00001.safetensors"}})),
        ),
        r"index\.json and model-00001-of-00001\.safetensors that differ in 'a', 'lm_head\.weight'",
    ),
    "shards without an index": (
        lambda folder: (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors"),
        r"shards without model\.safetensors\.index\.json",
    ),
    "no tokenizer.json": (lambda folder: (folder / "tokenizer.json").unlink(), "without tokenizer.json"),
    "no tokenizer_config.json": (
        lambda folder: (folder / "tokenizer_config.json").unlink(),
        "without tokenizer_config.json",
    ),
    "tokenizer cut": (lambda folder: cut(folder / "tokenizer.json", 0.5), "its tokenizer: found "),
    "tokenizer {}": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "its tokenizer: found "),
    "tokenizer config []": (
        lambda folder: (folder / "tokenizer_config.json").write_text("[]"),
        "no JSON object",
    ),
    "a tokenizer of more words than the model": (
        lambda folder: tiny_tokenizer(extra=("more", "words")).save_pretrained(str(folder)),
        "ids up to 57 for a model of 56 embeddings",
    ),
}
"""What was done to a folder of plain transformers, and the line."""


@pytest.mark.parametrize("what", list(WHOLE))
def test_a_damaged_folder_is_one_line_that_says_what_is_wrong(what: str, base: Path, tmp_path: Path) -> None:
    damage, message = WHOLE[what]
    shutil.copytree(base, tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(InputError, match=message) as caught:
        load_language_model(str(tmp_path / "model"))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 800


ADAPTER = "adapter_model.safetensors"
ADAPTERS: dict[str, tuple[Damage, str]] = {
    "no tensors": (lambda folder: edited(folder / ADAPTER, lambda s: {}), "no weights for 'base_model"),
    "without the prefix": (
        lambda folder: renamed(folder / ADAPTER, lambda name: name.removeprefix("base_model.model.")),
        "no weights for 'base_model.*in the model: 'model.layers",
    ),
    "one block only": (
        lambda folder: without(folder / ADAPTER, "layers.1."),
        r"no weights for 'base_model\.model\.model\.layers\.1\.",
    ),
    "empty file": (lambda folder: (folder / ADAPTER).write_bytes(b""), "adapter_model"),
    "cut": (lambda folder: cut(folder / ADAPTER, 0.7), "adapter_model.safetensors: found .*header"),
    "another rank": (
        lambda folder: edited(
            folder / ADAPTER, lambda s: {k: v[:1] if "lora_A" in k else v for k, v in s.items()}
        ),
        r"lora_A\.weight' of shape \(1, \d+\) instead of \(2, ",
    ),
    "a pickle": (
        lambda folder: (folder / ADAPTER).rename(folder / "adapter_model.bin"),
        "'adapter_model.bin'; needed its weights in adapter_model.safetensors",
    ),
    "a whole model beside": (
        lambda folder: (folder / "config.json").write_text("{}"),
        "two sets of weights: an adapter and 'config.json'",
    ),
    "record {": (lambda folder: (folder / "adapter_config.json").write_text("{"), "no JSON object"),
    "record []": (lambda folder: (folder / "adapter_config.json").write_text("[]"), "no JSON object"),
    "record {}": (lambda folder: (folder / "adapter_config.json").write_text("{}"), "found "),
    "an unknown kind": (lambda folder: record(folder, peft_type="NO_SUCH"), "found "),
    "an unknown task": (lambda folder: record(folder, task_type="NO_SUCH"), "found "),
    "modules that the base has not": (lambda folder: record(folder, target_modules=["odd"]), "odd"),
    "a rank of a billion": (
        lambda folder: record(folder, r=10**9),
        "r 1000000000 in its record and 1088 numbers in its file",
    ),
    "a program to load": (
        lambda folder: record(folder, megatron_config={"a": 1}, megatron_core="evil"),
        "names a program to load",
    ),
    "a base drawn anew": (
        lambda folder: record(folder, init_lora_weights="pissa_niter_4"),
        "changes its base anew at each load",
    ),
}
"""What was done to a LoRA folder, and the line."""


def record(folder: Path, **changes: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    return save_adapter(adapted(tiny_llama(), "lora"), folder)


@pytest.mark.parametrize("what", list(ADAPTERS))
def test_a_damaged_adapter_is_one_line_that_says_what_is_wrong(
    what: str, base: Path, lora: Path, tmp_path: Path
) -> None:
    damage, message = ADAPTERS[what]
    shutil.copytree(lora, tmp_path / "adapter")
    damage(tmp_path / "adapter")
    with pytest.raises(InputError, match=message) as caught:
        load_language_model(str(tmp_path / "adapter"), base=load_language_model(str(base)))
    assert "\n" not in str(caught.value)


def test_a_bias_without_a_place_in_the_base_is_one_line(base: Path, tmp_path: Path) -> None:
    made = peft.LoraConfig(r=2, target_modules=["q_proj"], lora_bias=True)
    with pytest.warns(match="merging LoRA weights won't be possible"):
        save_adapter(peft.get_peft_model(tiny_llama(), made), tmp_path)
    with pytest.raises(InputError, match="bias") as caught:
        load_language_model(str(tmp_path), base=load_language_model(str(base)))
    assert "\n" not in str(caught.value)


def test_a_classifier_without_its_head_is_refused(tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path, labels=sorted(OPTIONS))
    without(folder / "model.safetensors", "classifier")
    with pytest.raises(InputError, match=r"no weights for 'classifier\.bias', 'classifier\.weight'"):
        load_sequence_classifier(folder)
    with pytest.raises(InputError, match=r"no weights for 'classifier\.bias'"):
        load_sequence_classifier(save_tiny_bert(tmp_path / "encoder"))


def test_an_encoder_under_a_wrapper_s_name_is_refused(tmp_path: Path) -> None:
    folder = _decision(tmp_path / "model", inside=True)
    renamed(folder / "backbone" / "model.safetensors", lambda name: f"module.{name}")
    with pytest.raises(InputError, match="other files than were saved"):
        load_decision_model(folder)
    with pytest.raises(InputError, match=r"whose 'module\.' stands before the names"):
        load_backbone(str(folder / "backbone"))


def test_what_stands_behind_the_hidden_states_may_be_absent_or_left_over(tmp_path: Path) -> None:
    """Poolers and output layers have no part in the hidden states, which are all that is read of a base."""
    whole = save_tiny_bert(tmp_path / "whole")
    wanted = embedded(whole)
    masked = transformers.BertForMaskedLM(transformers.AutoConfig.from_pretrained(str(whole)))
    with quiet_loading():
        masked.save_pretrained(str(tmp_path / "masked"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(whole))
    tokenizer.save_pretrained(str(tmp_path / "masked"))
    own = {f"bert.{name}": value for name, value in load_file(whole / "model.safetensors").items()}
    edited(tmp_path / "masked" / "model.safetensors", lambda s: {k: own.get(k, v) for k, v in s.items()})
    assert not any("pooler" in name for name in load_file(tmp_path / "masked" / "model.safetensors"))
    assert torch.equal(embedded(tmp_path / "masked"), wanted)


@pytest.mark.parametrize(
    "switch",
    [
        {"_attn_implementation": "owner/kernel"},
        {"attn_implementation": "owner/kernel"},
        {"_attn_implementation": "eager"},
        {"return_dict": False},
        {"output_hidden_states": True},
        {"dtype": "float16"},
        {"fusion_config": {"patch_embeddings": True}},
    ],
    ids=str,
)
def test_switches_beside_the_weights_change_nothing(
    switch: dict[str, Any], base: Path, tmp_path: Path
) -> None:
    """A kernel of the hub would be fetched and run; the others change the form or rounding of an answer."""
    shutil.copytree(base, tmp_path / "model")
    config(tmp_path / "model", **switch)
    found: Any = load_language_model(str(tmp_path / "model")).model
    assert found.config._attn_implementation == "sdpa"
    assert torch.equal(logits(found), language(base))


class Asked:
    """A terminal at which nobody may be asked."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"stdin.{name} was used")


@pytest.mark.parametrize("kind", ["evil", "llama"])
def test_code_that_came_with_a_model_is_never_run_nor_asked_about(
    kind: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(base, folder)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Evil: pass\n")
    (folder / "custom_generate").mkdir()
    shutil.copy(folder / "evil.py", folder / "custom_generate" / "generate.py")
    classes = ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForSequenceClassification")
    config(folder, model_type=kind, auto_map=dict.fromkeys(classes, "evil.Evil"))
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer |= {"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    monkeypatch.setattr(sys, "stdin", Asked())
    for load in (load_language_model, load_backbone):
        if kind == "evil":
            with pytest.raises(InputError):
                load(str(folder))
        else:  # a model that transformers knows is built from its own code
            load(str(folder))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("verb", ["footprint", "behaviour", "unlearn", "relearn"])
def test_every_verb_says_so_in_one_line(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, broken = save_tiny_llama(tmp_path / "base", extra=LETTERS), tmp_path / "broken"
    shutil.copytree(base, broken)
    without(broken / "model.safetensors", "layers.1.mlp.down_proj")
    text = write_corpus(tmp_path / "text.jsonl", tiny_texts(4))
    asked = tmp_path / "asked.jsonl"
    asked.write_text(json.dumps({"question": "card", "choices": ["top", "up"], "answer": 0}) + "\n")
    both = ("--base", str(base), "--unlearned" if verb == "footprint" else "--model", str(broken))
    arguments = {
        "footprint": ("footprint", *both, "--forget", str(text), "--generic", str(text)),
        "behaviour": ("behaviour", *both, "--questions", f"forget={asked}"),
        "unlearn": ("unlearn", "--model", str(broken), "--method", "grad_ascent", "--forget", str(text)),
        "relearn": ("attack", "relearn", *both, "--forget", str(text)),
    }[verb]
    assert command([*arguments, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "no weights for 'model.layers.1.mlp.down_proj.weight'" in error
