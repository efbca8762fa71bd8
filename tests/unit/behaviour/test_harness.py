"""lm-evaluation-harness on local questions: with the package where it is installed, else with a stand-in."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.tiny import WORDS
from tests.tiny_lm import LETTERS, tiny_llama, tiny_tokenizer

from vestige.behaviour.harness import harness_answers
from vestige.data.questions import LetterQuestion, letter_questions
from vestige.errors import InputError, MissingDependency
from vestige.footprint.questions import answer
from vestige.models.causal_lm import LanguageModel, language_model


def model() -> LanguageModel:
    made = tiny_llama(layers=1, extra=LETTERS)
    return language_model(made, tiny_tokenizer(extra=LETTERS), label="base")


def asked(n: int = 6) -> list[LetterQuestion]:
    rng = random.Random(5)
    words = sorted(set(WORDS))
    return letter_questions(
        (" ".join(rng.choices(words, k=4)), rng.sample(words, 4), rng.randrange(4)) for _ in range(n)
    )


class _Model:
    """Takes what the harness's class for transformers models takes."""

    def __init__(self, *, pretrained: Any, tokenizer: Any, batch_size: int, add_bos_token: bool) -> None:
        self.pretrained, self.tokenizer, self.batch_size = pretrained, tokenizer, batch_size
        self.bos = add_bos_token


class _Filled:
    """A question as the harness fills its templates: prompt, delimiter and letter are one text."""

    def __init__(self, row: dict[str, Any], delimiter: str) -> None:
        assert delimiter == " "
        self.prompt, self.options, self.answer = row["prompt"], tuple(row["letters"]), row["right"]


def stand_in(monkeypatch: pytest.MonkeyPatch, *, keep: int | None = None) -> list[dict[str, Any]]:
    """A module with the harness's documented interface, computing from the task's own file and model."""
    seen: list[dict[str, Any]] = []

    def simple_evaluate(*, model: _Model, tasks: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
        (task,) = tasks
        seen.append({"task": task, **rest})
        path = Path(task["dataset_kwargs"]["data_files"]["test"])
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found = answer(
            model.pretrained,
            model.tokenizer,
            [_Filled(row, task["target_delimiter"]) for row in rows],
            bos=model.bos,
        )
        samples = [
            {
                "doc_id": i,
                "acc": float(found.losses[i].index(min(found.losses[i])) == rows[i]["right"]),
                "filtered_resps": [(-loss, False) for loss in found.losses[i]],
            }
            for i in range(len(rows))
        ]
        return {"samples": {task["task"]: samples[::-1][:keep]}}

    package, models, huggingface = (ModuleType(f"lm_eval{end}") for end in ("", ".models", ".models.hf"))
    package.simple_evaluate = simple_evaluate  # type: ignore[attr-defined]
    huggingface.HFLM = _Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lm_eval", package)
    monkeypatch.setitem(sys.modules, "lm_eval.models", models)
    monkeypatch.setitem(sys.modules, "lm_eval.models.huggingface", huggingface)
    return seen


def test_the_task_and_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = stand_in(monkeypatch)
    base, questions = model(), asked()
    for bos in (False, True):
        found = harness_answers(base, questions, name="bio / a", bos=bos)
        own = answer(base.model, base.tokenizer, questions, bos=bos)
        assert found.correct == own.correct
        assert found.losses == own.losses
    assert found.chance == 0.25
    assert answer(base.model, base.tokenizer, questions, bos=False).losses != own.losses
    call = seen[0]
    assert call["num_fewshot"] == 0
    assert call["torch_random_seed"] is None
    assert call["task"]["task"] == "vestige_bio___a"
    assert call["task"]["output_type"] == "multiple_choice"
    assert not Path(call["task"]["dataset_kwargs"]["data_files"]["test"]).exists()


def test_missing_answers_and_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, keep=2)
    with pytest.raises(InputError, match="found 2 answers; needed one for each of 6"):
        harness_answers(model(), asked(), name="bio")
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(MissingDependency, match="vestige\\[lm-eval\\]"):
        harness_answers(model(), asked(), name="bio")


@pytest.mark.filterwarnings("ignore")
def test_the_real_harness_agrees_with_our_own_pass() -> None:
    pytest.importorskip("lm_eval", reason="the extra lm-eval is not installed")
    base, questions = model(), asked()
    for bos in (False, True):
        found = harness_answers(base, questions, name="bio", bos=bos)
        own = answer(base.model, base.tokenizer, questions, bos=bos)
        assert found.correct == own.correct
        for theirs, ours in zip(found.losses, own.losses, strict=True):
            assert theirs == pytest.approx(ours, abs=1e-4)
