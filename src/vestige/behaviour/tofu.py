"""TOFU's sets read and scored: probabilities of given answers, written answers, truth ratios."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vestige.behaviour.kept import Kept, model_digest
from vestige.behaviour.records import (
    BehaviourSettings,
    TofuRecord,
    TofuScores,
    TofuSet,
    TofuSetName,
    TofuSettings,
    tofu_set_name,
)
from vestige.behaviour.writing import written_answers
from vestige.contracts import Interval, Undefined
from vestige.data.corpora import Corpus, Document
from vestige.data.files import file_sha256
from vestige.data.language_rows import language_rows
from vestige.errors import InputError, shown
from vestige.footprint.passes import batches, logits_of, measured, padded, token_losses
from vestige.metrics.rouge import beyond_latin, rouge_l_recall
from vestige.metrics.tofu import (
    ForgetQuality,
    answer_probability,
    choice_probability,
    forget_quality,
    model_utility,
    truth_ratio,
    truth_score,
)
from vestige.models.causal_lm import LanguageModel
from vestige.models.finite import refuse_no_numbers
from vestige.models.positions import refuse_unreadable
from vestige.readers import read_table
from vestige.seeds import digest
from vestige.statistics import bootstrap_rows, mean_of

__all__ = [
    "NO_ROUGE",
    "RowScores",
    "TofuRow",
    "read_tofu",
    "row_scores",
    "tofu_record",
    "tofu_scores",
    "tofu_set",
]

CHOICES: tuple[TofuSetName, ...] = ("real_authors", "world_facts")
"""Sets in which a probability is the answer's share among the choices."""
NO_ROUGE = "the package rouge-score is not installed: pip install 'vestige[tofu]'"


@dataclass(frozen=True)
class TofuRow:
    """A question with its answer, the answer in other words ("" without one) and wrong answers."""

    question: str
    answer: str
    paraphrased: str
    perturbed: tuple[str, ...]


@dataclass(frozen=True)
class RowScores:
    """One row. probability: of the answer, or among the choices. ratio: truth ratio."""

    probability: float | Undefined
    rouge: float | Undefined
    ratio: float | Undefined


@dataclass(frozen=True)
class TofuFile:
    """A set as it was read. empty: rows whose answer has no visible character; they are left out."""

    name: TofuSetName
    path: str
    sha256: str
    rows: tuple[TofuRow, ...]
    empty: int


def read_tofu(path: str | Path, name: str) -> TofuFile:
    """JSONL with question, answer, and optionally paraphrased_answer and perturbed_answer (a list).

    Raises InputError: an unknown set, wrong answers that are no list of texts, no row with an answer.
    """
    known = tofu_set_name(name)
    path = Path(path)
    table = read_table(path, columns=("question", "answer"))
    nothing = [""] * table.rows
    paraphrased = table.texts("paraphrased_answer") if "paraphrased_answer" in table else nothing
    perturbed = table.lists("perturbed_answer") if "perturbed_answer" in table else [None] * table.rows
    rows, empty = [], 0
    for number, (question, answer) in enumerate(
        zip(table.texts("question"), table.texts("answer"), strict=True)
    ):
        wrong = _texts(perturbed[number], table.where(number, "perturbed_answer"))
        if not answer.strip():
            empty += 1
            continue
        rows.append(TofuRow(question, answer, paraphrased[number], wrong))
    if not rows:
        raise InputError(str(path), f"{empty} rows without an answer", "at least one with", "check the file")
    return TofuFile(known, str(path), file_sha256(path), tuple(rows), empty)


def tofu_set(file: TofuFile, truncated: int) -> TofuSet:
    """What was read, as a record without texts."""
    return TofuSet(
        name=file.name,
        path=file.path,
        sha256=file.sha256,
        rows=len(file.rows),
        empty=file.empty,
        truncated=truncated,
        perturbed=any(row.perturbed for row in file.rows),
    )


def row_scores(
    model: LanguageModel,
    file: TofuFile,
    settings: TofuSettings,
    *,
    kept: Kept,
    batch_tokens: int = 8192,
    advance: Callable[[int], None] = lambda rows: None,
) -> tuple[list[RowScores], int]:
    """Scores of every row and how many answers were cut. Written answers are never stored, their ROUGE is."""

    def measure() -> dict[str, Any]:
        losses, truncated = _answer_losses(model, file, settings, batch_tokens)
        return {"losses": losses, "truncated": truncated, "rouge": _rouge(model, file, settings)}

    has_rouge = importlib.util.find_spec("rouge_score") is not None
    # Answers in other scripts were once worth 0: what was kept of them is not taken.
    scripts = ["every script"] if any(beyond_latin(row.answer) for row in file.rows) else []
    key = digest("tofu", model_digest(model), _content(file), settings.to_json(), has_rouge, *scripts)
    stored = kept.result("tofu", key, measure)
    advance(len(file.rows))
    found = []
    for i, row in enumerate(file.rows):
        own = {name: tuple(value) for name, value in stored["losses"][i].items()}
        recall = stored["rouge"]["recalls"][i] if stored["rouge"]["recalls"] else stored["rouge"]["why"]
        found.append(
            RowScores(
                probability=_probability(own, row, choices=file.name in CHOICES),
                rouge=Undefined(undefined=recall) if isinstance(recall, str) else float(recall),
                ratio=_ratio(own, row, settings),
            )
        )
    return found, int(stored["truncated"])


def tofu_scores(file: TofuFile, rows: Sequence[RowScores], *, draws: int, seed: int) -> TofuScores:
    """Means over the rows on which each metric exists, with intervals, and on how many it does not."""
    columns: dict[str, list[float | Undefined]] = {
        "probability": [row.probability for row in rows],
        "rouge": [row.rouge for row in rows],
        "truth_ratio": [row.ratio for row in rows],
        "truth": [row.ratio if isinstance(row.ratio, Undefined) else truth_score(row.ratio) for row in rows],
    }
    means: dict[str, Any] = {name: _mean(values) for name, values in columns.items()}
    missing = {
        name: sum(isinstance(value, Undefined) for value in values) for name, values in columns.items()
    }
    intervals = {name: _interval(values, draws, seed) for name, values in columns.items()}
    return TofuScores(
        name=file.name,
        **means,
        intervals={
            name: interval for name, interval in intervals.items() if not isinstance(interval, Undefined)
        },
        left_out={name: count for name, count in missing.items() if count},
    )


def _interval(values: Sequence[float | Undefined], draws: int, seed: int) -> Interval | Undefined:
    defined = [value for value in values if not isinstance(value, Undefined)]
    if not defined:
        return Undefined(undefined="no rows")
    found = bootstrap_rows({"mean": mean_of(defined)}, draws=draws, seed=seed)["mean"]
    return found.interval("sampling of questions; one training run of the model")


def _mean(values: Sequence[float | Undefined]) -> float | Undefined:
    defined = [value for value in values if not isinstance(value, Undefined)]
    if defined:
        return math.fsum(defined) / len(defined)
    return next(value for value in values if isinstance(value, Undefined))


def _content(file: TofuFile) -> str:
    parts = (
        part
        for r in file.rows
        for part in (r.question, r.answer, r.paraphrased, len(r.perturbed), *r.perturbed)
    )
    return digest(file.name, *parts)


def _texts(listed: list[Any] | None, where: str) -> tuple[str, ...]:
    for text in listed or ():
        if not isinstance(text, str):
            raise InputError(where, shown(repr(text)), "a list of texts", "correct this row")
    return tuple(listed or ())


def _answer_losses(
    model: LanguageModel, file: TofuFile, settings: TofuSettings, batch_tokens: int
) -> tuple[list[dict[str, tuple[float, int]]], int]:
    """For each row: answer's place ("right", "paraphrased", "0", "1", ...) -> (summed loss in nats, tokens).

    Question and answer are one text, tokenised once; the answer's tokens are found by their characters. The
    end token after an answer counts, as in training. Empty wrong answers have no entry.
    """
    documents = [
        Document(f"{i} {place}", f"Question: {row.question}\nAnswer: {text}", row.question, text)
        for i, row in enumerate(file.rows)
        for place, text in _places(row)
    ]
    corpus = Corpus(name=file.name, role="forget", documents=tuple(documents), path=file.path)
    rows = language_rows(corpus, model.tokenizer, max_length=settings.max_length)
    refuse_unreadable(
        model.model,
        (row.ids for row in rows.rows),
        subject=f"{file.path}, a question with its answer",
        remedy="lower max_length",
    )
    found: list[dict[str, tuple[float, int]]] = [{} for _ in file.rows]
    device = next(model.model.parameters()).device
    with measured(model.model), torch.inference_mode():
        for part in batches(rows.rows, batch_tokens=batch_tokens):
            ids, mask = padded([rows[i] for i in part], device=device)
            losses = token_losses(logits_of(model.model, ids, mask), ids, mask).double().cpu()
            for k, i in enumerate(part):
                labels = torch.tensor(rows[i].labels[1:])
                position, place = rows[i].id.split(" ")
                own = losses[k, : len(labels)][labels]
                refuse_no_numbers(own, f"{file.path}, log-likelihood of an answer")
                found[int(position)][place] = (float(own.sum()), int(labels.sum()))
    return found, rows.truncated


def _places(row: TofuRow) -> list[tuple[str, str]]:
    places = [("right", row.answer), ("paraphrased", row.paraphrased)]
    places += [(str(k), text) for k, text in enumerate(row.perturbed)]
    return [(place, text) for place, text in places if text.strip()]


def _value(losses: Mapping[str, tuple[float, int]], place: str) -> float | Undefined:
    nll, tokens = losses.get(place, (0.0, 0))
    return answer_probability(nll, tokens)


def _wrong(losses: Mapping[str, tuple[float, int]], row: TofuRow) -> list[float]:
    values = [_value(losses, str(k)) for k in range(len(row.perturbed))]
    return [value for value in values if not isinstance(value, Undefined)]


def _probability(
    losses: Mapping[str, tuple[float, int]], row: TofuRow, *, choices: bool
) -> float | Undefined:
    right = _value(losses, "right")
    if isinstance(right, Undefined) or not choices:
        return right
    return choice_probability(right, _wrong(losses, row))


def _ratio(
    losses: Mapping[str, tuple[float, int]], row: TofuRow, settings: TofuSettings
) -> float | Undefined:
    right = _value(losses, "paraphrased" if row.paraphrased.strip() else "right")
    if isinstance(right, Undefined):
        return right
    return truth_ratio(right, _wrong(losses, row), mean=settings.perturbed_mean)


def _rouge(model: LanguageModel, file: TofuFile, settings: TofuSettings) -> dict[str, Any]:
    """ROUGE-L recall of each row's written answer, or why there is none."""
    if settings.max_new_tokens == 0:
        return {"recalls": [], "why": "no answers were written (max_new_tokens 0)"}
    if importlib.util.find_spec("rouge_score") is None:
        return {"recalls": [], "why": NO_ROUGE}
    recall = rouge_l_recall()
    texts = written_answers(
        model, [row.question for row in file.rows], max_new_tokens=settings.max_new_tokens
    )
    values = [recall(row.answer, text) for row, text in zip(file.rows, texts, strict=True)]
    return {
        "recalls": [value.undefined if isinstance(value, Undefined) else value for value in values],
        "why": "",
    }


def tofu_record(
    files: Sequence[TofuFile],
    rows: Mapping[str, Sequence[RowScores]],
    *,
    base: Mapping[str, Sequence[RowScores]],
    oracle: Mapping[str, Sequence[RowScores]] | None,
    settings: BehaviourSettings,
) -> TofuRecord:
    """One model's scores on all sets, its utility, and its forget quality against the oracle.

    base: the base's rows, for the test's power; oracle: None where there is none to compare with.
    """
    sets = tuple(
        tofu_scores(file, rows[file.name], draws=settings.draws, seed=settings.seed) for file in files
    )
    parts: dict[str, float | Undefined] = {}
    for scores in sets:
        parts |= {
            f"{scores.name} probability": scores.probability,
            f"{scores.name} rouge": scores.rouge,
            f"{scores.name} truth": scores.truth,
        }
    quality: ForgetQuality | Undefined = Undefined(undefined="no oracle to compare with")
    if oracle is not None and "forget" not in oracle:
        quality = Undefined(undefined="no forget set")
    elif oracle is not None:
        quality = forget_quality(
            _ratios(rows["forget"]),
            _ratios(oracle["forget"]),
            _ratios(base.get("forget", ())),
            draws=settings.tofu.power_draws,
            seed=settings.seed,
        )
    return TofuRecord(sets=sets, utility=model_utility(parts), forget_quality=quality)


def _ratios(rows: Sequence[RowScores]) -> list[float | Undefined]:
    return [row.ratio for row in rows]
