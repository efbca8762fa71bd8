"""What a model cannot read is refused before anything is measured; no number is no wrong answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import transformers
from tests.tiny import save_tiny_bert, tiny_schema
from tests.tiny_lm import LETTERS, VOCABULARY, save_tiny_llama, tiny_texts, tiny_tokenizer, write_corpus

from vestige.behaviour import BehaviourSettings
from vestige.behaviour.harness import harness_answers
from vestige.behaviour.run import behaviour
from vestige.cli import run
from vestige.data.questions import read_questions
from vestige.errors import InputError
from vestige.models.causal_lm import language_model, load_language_model
from vestige.models.decision import ModelSettings, build_decision_model
from vestige.models.loading import quiet_loading
from vestige.models.positions import positions, refuse_unreadable

pytestmark = pytest.mark.train

WORDS = len(VOCABULARY) + len(LETTERS)
ROOM = 32


def short(folder: Path, kind: str) -> Path:
    """A model of 32 positions: GPT-2 has a table of them, a Llama would go on turning."""
    if kind == "gpt2":
        config: Any = transformers.GPT2Config(
            vocab_size=WORDS, n_embd=16, n_layer=1, n_head=2, n_positions=ROOM, pad_token_id=2
        )
        model: Any = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            vocab_size=WORDS,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=ROOM,
        )
        model = transformers.LlamaForCausalLM(config)
    with quiet_loading():
        model.save_pretrained(str(folder))
        tiny_tokenizer(extra=LETTERS).save_pretrained(str(folder))
    return folder


def questions(path: Path, words: int) -> Path:
    row = {"question": " ".join(["card"] * words), "options": ["top", "up"], "answer": 0}
    path.write_text(json.dumps(row) + "\n")
    return path


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("verb", ["footprint", "behaviour", "unlearn", "finetune", "relearn"])
def test_text_beyond_the_positions_is_one_line(
    verb: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(short(tmp_path / "model", kind))
    text = str(write_corpus(tmp_path / "text.jsonl", [" ".join(["card pin"] * 30), *tiny_texts(3)]))
    asked = str(questions(tmp_path / "asked.jsonl", 60))
    both = ("--base", model, "--unlearned" if verb == "footprint" else "--model", model)
    arguments = {
        "footprint": ("footprint", *both, "--forget", text, "--generic", text),
        "behaviour": ("behaviour", *both, "--questions", f"forget={asked}"),
        "unlearn": ("unlearn", "--model", model, "--method", "grad_ascent", "--forget", text),
        "finetune": ("finetune", "--model", model, "--data", text),
        "relearn": ("attack", "relearn", *both, "--forget", text),
    }[verb]
    assert run([*arguments, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"needed at most {ROOM}, the positions of the model" in error


def test_how_many_positions_there_are() -> None:
    def of(config: Any) -> int | None:
        return positions(SimpleNamespace(config=config))  # type: ignore[arg-type]

    assert of(transformers.BertConfig(max_position_embeddings=64)) == 64
    assert of(transformers.RobertaConfig(max_position_embeddings=66, pad_token_id=1)) == 64
    assert of(transformers.BloomConfig()) is None
    stretched = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "rope_theta": 1e4,
    }
    assert of(transformers.LlamaConfig(max_position_embeddings=32, rope_parameters=stretched)) == 128
    prompted = SimpleNamespace(config=transformers.LlamaConfig(max_position_embeddings=32), virtual_tokens=5)
    assert positions(prompted) == 27  # type: ignore[arg-type]


def test_a_token_without_an_embedding_is_refused(tmp_path: Path) -> None:
    model = load_language_model(str(save_tiny_llama(tmp_path))).model
    refuse_unreadable(model, [[1, len(VOCABULARY) - 1]], subject="a text")
    with pytest.raises(
        InputError, match=f"found the token {len(VOCABULARY)}; needed tokens that the model has"
    ):
        refuse_unreadable(model, [[1, len(VOCABULARY)]], subject="a text")


@pytest.mark.parametrize("reader", ["encoder", "in_context"])
def test_a_decision_model_refuses_what_its_backbone_cannot_read(reader: str, tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path) if reader == "encoder" else short(tmp_path, "gpt2")
    model = build_decision_model(ModelSettings(backbone=str(folder), reader=reader, lora_rank=2), seed=1)
    with pytest.raises(InputError, match=r"the positions of the model; lower|the options: found"):
        model.predict(["card " * 70], tiny_schema())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and one with the same weights whose logits overflow: finite weights, no numbers."""
    root = tmp_path_factory.mktemp("models")
    base = save_tiny_llama(root / "base", extra=LETTERS)
    broken: Any = load_language_model(str(base)).model
    broken.model.norm.weight.data.mul_(1e20)
    broken.lm_head.weight.data.mul_(1e20)
    with quiet_loading():
        broken.save_pretrained(str(root / "broken"))
    return base, root / "broken"


@pytest.mark.parametrize("verb", ["footprint", "behaviour", "tofu", "relearn"])
def test_logits_that_are_no_numbers_are_not_counted_as_wrong(
    verb: str, models: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, broken = (str(path) for path in models)
    text = str(write_corpus(tmp_path / "text.jsonl", tiny_texts(6)))
    asked = str(questions(tmp_path / "asked.jsonl", 4))
    rows = tmp_path / "tofu.jsonl"
    rows.write_text(json.dumps({"question": "card", "answer": "pin"}) + "\n")
    both = ("--base", base, "--unlearned" if verb == "footprint" else "--model", broken)
    arguments = {
        "footprint": ("footprint", *both, "--forget", text, "--generic", text, "--quick", "--units", "3"),
        "behaviour": ("behaviour", *both, "--questions", f"forget={asked}"),
        "tofu": ("behaviour", *both, "--tofu", f"forget={rows}"),
        "relearn": ("attack", "relearn", *both, "--forget", text),
    }[verb]
    assert run([*arguments, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "model 'broken'" in error
    assert "that are NaN or infinite" in error or "a loss of nan" in error


def test_what_overflows_in_half_precision_is_refused(models: tuple[Path, Path], tmp_path: Path) -> None:
    model: Any = load_language_model(str(models[0])).model
    model.lm_head.weight.data.mul_(5e4)
    large = language_model(model, tiny_tokenizer(extra=LETTERS), label="large")
    asked = {"forget": questions(tmp_path / "asked.jsonl", 4)}
    assert behaviour(base=large, models={"same": large}, questions=asked).checkpoints
    half = language_model(model, tiny_tokenizer(extra=LETTERS), label="large", dtype="float16")
    with pytest.raises(InputError, match="measure in float32 what overflows in fewer bits"):
        behaviour(
            base=half, models={"same": half}, questions=asked, settings=BehaviourSettings(dtype="float16")
        )


def test_the_harness_s_answers_must_be_numbers(
    models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the harness makes of them: of likelihoods that are NaN it takes the first option's."""

    def evaluate(*, tasks: Any, **_: Any) -> Any:
        sample = {"doc_id": 0, "filtered_resps": [(float("nan"), False), (float("nan"), False)], "acc": 1.0}
        return {"samples": {tasks[0]["task"]: [sample]}}

    inner = ModuleType("lm_eval.models.huggingface")
    inner.HFLM = lambda **_: None  # type: ignore[attr-defined]
    outer = ModuleType("lm_eval")
    outer.simple_evaluate = evaluate  # type: ignore[attr-defined]
    for name, module in (("lm_eval", outer), ("lm_eval.models", ModuleType("lm_eval.models"))):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "lm_eval.models.huggingface", inner)
    asked = read_questions(questions(tmp_path / "asked.jsonl", 4))
    with pytest.raises(InputError, match="2 of 2 values that are NaN or infinite"):
        harness_answers(load_language_model(str(models[0])), asked, name="forget")
