"""TOFU's rows scored by a tiny model against a slow definition, on odd rows and on the real files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.tiny_lm import save_tiny_llama, tiny_llama, tiny_tokenizer
from torch import nn

from vestige.behaviour.kept import Kept
from vestige.behaviour.records import TofuSettings
from vestige.behaviour.run import _adjacency_gap, read_footprint
from vestige.behaviour.tofu import read_tofu, row_scores, tofu_scores
from vestige.behaviour.writing import written_answers
from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.models.causal_lm import LanguageModel, language_model, load_language_model
from vestige.models.loading import quiet_loading

QUIET = TofuSettings(max_new_tokens=0)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return language_model(tiny_llama(layers=1), tiny_tokenizer(), label="base")


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def slow(model: LanguageModel, question: str, answer: str) -> float:
    """P^(1/n) of the answer's words and the end token, one row at a time in float64."""
    ids = [
        1,
        *model.tokenizer(f"Question: {question} Answer: {answer}", add_special_tokens=False)["input_ids"],
        2,
    ]
    count = len(answer.split()) + 1
    logs = torch.log_softmax(model.model(input_ids=torch.tensor([ids])).logits[0].double(), -1)
    nll = -sum(float(logs[t - 1, ids[t]]) for t in range(len(ids) - count, len(ids)))
    return math.exp(-nll / count)


def test_rows_against_the_slow_definition(model: LanguageModel, tmp_path: Path) -> None:
    rows = [
        {
            "question": "lost card",
            "answer": "top up please",
            "paraphrased_answer": "please top up",
            "perturbed_answer": ["refund", "cash fee rate"],
        },
        {"question": "exchange rate", "answer": "fee", "perturbed_answer": ["", "cash"]},
        {"question": "cash", "answer": "pin", "perturbed_answer": [" "]},
        {"question": "cash", "answer": " ", "perturbed_answer": ["pin"]},
    ]
    file = read_tofu(write(tmp_path / "t.jsonl", rows), "forget")
    assert (len(file.rows), file.empty) == (3, 1)
    found, truncated = row_scores(model, file, QUIET, kept=Kept(None))
    assert truncated == 0
    wrong = [slow(model, "lost card", text) for text in ("refund", "cash fee rate")]
    assert found[0].probability == pytest.approx(slow(model, "lost card", "top up please"), rel=1e-5)
    assert found[0].ratio == pytest.approx(
        sum(wrong) / 2 / slow(model, "lost card", "please top up"), rel=1e-5
    )
    # The empty wrong answer has no probability; the one that is left has.
    assert found[1].ratio == pytest.approx(
        slow(model, "exchange rate", "cash") / slow(model, "exchange rate", "fee"), rel=1e-5
    )
    assert found[2].ratio == Undefined(undefined="no perturbed answers")
    scores = tofu_scores(file, found, draws=100, seed=1)
    assert scores.left_out == {"truth_ratio": 1, "truth": 1, "rouge": 3}
    assert "max_new_tokens 0" in str(scores.rouge)
    assert scores.intervals["probability"].low <= float(str(scores.probability))
    among, _ = row_scores(model, replace(file, name="world_facts"), QUIET, kept=Kept(None))
    right = slow(model, "lost card", "top up please")
    assert among[0].probability == pytest.approx(right / (right + sum(wrong)), rel=1e-5)
    assert isinstance(among[2].probability, Undefined)


def test_written_answers_need_no_padding_and_no_generate(model: LanguageModel) -> None:
    questions = ["cash", "lost card pin code please top up", "refund fee"]
    together = written_answers(model, questions, max_new_tokens=5)
    assert together == [written_answers(model, [q], max_new_tokens=5)[0] for q in questions]
    assert any(together)

    class Bare(nn.Module):
        """What a prompt encoder offers: a forward pass alone."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner, self.config = inner, inner.config

        def forward(self, **inputs: Any) -> Any:
            return self.inner(**inputs)

        def get_input_embeddings(self) -> Any:
            return self.inner.get_input_embeddings()

    bare = LanguageModel(Bare(model.model), model.tokenizer, model.record)
    assert written_answers(bare, questions, max_new_tokens=5) == together


@pytest.mark.parametrize(
    "beside",
    [{"no_repeat_ngram_size": 1}, {"min_new_tokens": 5}, {"bad_words_ids": [[5]]}, {"max_time": 1e-9}],
    ids=lambda value: next(iter(value)),
)
def test_settings_beside_the_weights_change_no_answer(beside: dict[str, Any], tmp_path: Path) -> None:
    """A model that writes the tokens 5 and 6 in turn: each of these would change that."""
    folder = save_tiny_llama(tmp_path / "model", layers=1)
    plain = load_language_model(str(folder))
    with torch.no_grad():  # the last token alone decides
        embeddings, head = plain.model.model.embed_tokens.weight, plain.model.lm_head.weight
        embeddings.normal_(generator=torch.Generator().manual_seed(1))
        for layer in plain.model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        head.zero_()
        for token in range(len(embeddings)):
            head[{5: 6, 6: 5}.get(token, 5)] += 10 * embeddings[token]
    with quiet_loading():
        plain.model.save_pretrained(str(folder))
    wanted = written_answers(plain, ["cash", "lost card"], max_new_tokens=6)
    assert all(len(set(text.split())) == 2 and len(text.split()) == 6 for text in wanted)
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | beside))
    found = load_language_model(str(folder))
    assert written_answers(found, ["cash", "lost card"], max_new_tokens=6) == wanted
    assert found.model.generation_config.to_dict().items() >= beside.items()  # kept for who generates with it


def test_bad_sets(tmp_path: Path) -> None:
    good = write(tmp_path / "good.jsonl", [{"question": "q", "answer": "a"}])
    with pytest.raises(InputError, match="did you mean 'real_authors'"):
        read_tofu(good, "real_author")
    for rows, expected in (
        ([{"question": "q", "answer": ""}], "1 rows without an answer"),
        ([{"question": "q", "answer": "a", "perturbed_answer": "b"}], "line 1, field 'perturbed_answer'"),
        ([{"question": "q"}], "a column 'answer'"),
    ):
        with pytest.raises(InputError, match=expected):
            read_tofu(write(tmp_path / "bad.jsonl", rows), "forget")


@pytest.mark.shared
def test_the_published_files(model: LanguageModel, shared_data: Path) -> None:
    if not (shared_data / "tofu").is_dir():
        pytest.skip(f"no TOFU files in {shared_data}")
    names = {
        "forget": ("forget10_perturbed", 400),
        "retain": ("retain_perturbed", 400),
        "real_authors": ("real_authors_perturbed", 100),
        "world_facts": ("world_facts_perturbed", 117),
    }
    for name, (stem, count) in names.items():
        file = read_tofu(shared_data / "tofu" / f"{stem}.jsonl", name)
        assert (len(file.rows), file.empty) == (count, 0)
        assert all(len(row.perturbed) >= 2 for row in file.rows)
        some = replace(file, rows=file.rows[:2])
        for scores in row_scores(
            model, some, TofuSettings(max_new_tokens=0, max_length=128), kept=Kept(None)
        )[0]:
            assert isinstance(scores.probability, float)
            assert isinstance(scores.ratio, float)
            assert 0 < scores.probability < 1


def test_the_footprint_is_matched_by_weights(tmp_path: Path) -> None:
    def named(sha: str) -> Any:
        return SimpleNamespace(record=SimpleNamespace(sha256=sha, label=sha))

    kept = SimpleNamespace(
        label="x", model=SimpleNamespace(sha256="after"), published=SimpleNamespace(adjacency_gap=1.5)
    )
    record: Any = SimpleNamespace(base=SimpleNamespace(sha256="base"), checkpoints=(kept,))
    assert _adjacency_gap(record, "any", named("base"), named("after")) == 1.5
    assert "another base" in str(_adjacency_gap(record, "x", named("other"), named("after")))
    assert "no checkpoint with the weights" in str(_adjacency_gap(record, "x", named("base"), named("b")))
    (tmp_path / "footprint.json").write_text("{}")
    with pytest.raises(InputError, match="no record of a footprint"):
        read_footprint(tmp_path)
