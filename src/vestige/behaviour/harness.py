"""The same questions through lm-evaluation-harness: its model class, task form and `acc`; local files alone.

Imported only where it is asked for: the extra `lm-eval`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from vestige.data.questions import LetterQuestion
from vestige.errors import InputError, MissingDependency
from vestige.footprint.questions import Answers, option_tokens, right_is_best
from vestige.models.causal_lm import LanguageModel
from vestige.models.finite import refuse_no_numbers
from vestige.models.positions import refuse_unreadable

__all__ = ["harness_answers", "harness_task"]


def harness_task(name: str, file: Path) -> dict[str, Any]:
    """A zero-shot multiple-choice task of the harness over a local JSONL with prompt, letters and right.

    Fields name columns, so that no text of a question is read as a template.
    """
    return {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(file)}, "cache_dir": str(file.parent / "cache")},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "prompt",
        "doc_to_choice": "letters",
        "doc_to_target": "right",
        "target_delimiter": " ",
        "num_fewshot": 0,
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1.0},
    }


def harness_answers(
    model: LanguageModel,
    questions: Sequence[LetterQuestion],
    *,
    name: str,
    batch_size: int = 8,
    bos: bool = False,
    ties: Literal["wrong", "first"] = "wrong",
) -> Answers:
    """The questions as a task of the harness, judged by its log-likelihoods. bos: with the tokenizer's
    beginning token, where it adds one; the harness itself puts none. ties: lost, or to the option that
    stands first, which is the harness's own rule.

    Raises MissingDependency without the package, InputError for a prompt encoder, which the harness cannot
    run, and for an answer of another form than documented.
    """
    try:
        import lm_eval
        from lm_eval.models.huggingface import HFLM
    except ImportError as error:
        raise MissingDependency(error.name or "lm-eval", "lm-eval", "engine lm-eval") from None
    if model.record.adapter == "prompt encoder":
        raise InputError(
            f"model '{model.record.label}'",
            "a prompt encoder",
            "weights that lm-evaluation-harness can run",
            "leave --engine away",
        )
    for question in questions:  # the harness would cut what is too long, on the left
        refuse_unreadable(
            model.model,
            (item.ids for item in option_tokens(model.tokenizer, question, where=f"row {question.row}")),
            subject=f"row {question.row}, a question with an option",
            remedy="leave the question out",
        )
    with tempfile.TemporaryDirectory(prefix="vestige-lm-eval-") as folder:
        file = Path(folder) / "questions.jsonl"
        file.write_text(
            "".join(
                json.dumps({"prompt": q.prompt, "letters": list(q.options), "right": q.answer}) + "\n"
                for q in questions
            ),
            encoding="utf-8",
        )
        task = f"vestige_{''.join(char if char.isalnum() else '_' for char in name)}"
        found = lm_eval.simple_evaluate(
            model=HFLM(
                pretrained=model.model,
                tokenizer=model.tokenizer,
                batch_size=batch_size,
                add_bos_token=bos and model.record.adds_bos,
            ),
            tasks=[harness_task(task, file)],
            num_fewshot=0,
            bootstrap_iters=0,
            log_samples=True,
            random_seed=None,  # the harness would seed globals
            numpy_random_seed=None,
            torch_random_seed=None,
            fewshot_random_seed=None,
        )
    samples = _samples(found, task, len(questions))
    losses = tuple(tuple(-float(response[0]) for response in sample["filtered_resps"]) for sample in samples)
    for question, own in zip(questions, losses, strict=True):
        refuse_no_numbers(torch.tensor(own), f"question {question.row}, log-likelihood of an option")
    greedy = tuple(
        bool(sample["filtered_resps"][q.answer][1]) for sample, q in zip(samples, questions, strict=True)
    )
    return Answers(
        # Not the harness's own "acc", which always takes the first of equal options.
        correct=tuple(right_is_best(own, q.answer, ties) for own, q in zip(losses, questions, strict=True)),
        greedy=greedy,
        chance=sum(1 / len(q.options) for q in questions) / len(questions),
        losses=losses,
    )


def _samples(found: Any, task: str, expected: int) -> list[dict[str, Any]]:
    """The harness's samples in the order of the questions."""
    samples = (found or {}).get("samples", {}).get(task, [])
    ordered = sorted(samples, key=lambda sample: int(sample["doc_id"]))
    if [int(sample["doc_id"]) for sample in ordered] != list(range(expected)):
        raise InputError(
            "lm-evaluation-harness",
            f"{len(ordered)} answers",
            f"one for each of {expected} questions",
            "install the version that this package names",
        )
    return ordered
