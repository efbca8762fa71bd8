"""Is the adjacent corpus valid: by hand, on real sentences, and against the published table."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny_lm import LETTERS, tiny_llama, tiny_tokenizer

from vestige.contracts import Undefined
from vestige.data.corpora import Corpus, Document
from vestige.data.questions import letter_questions, read_questions
from vestige.errors import InputError
from vestige.footprint.adjacency import adjacency, largest
from vestige.footprint.judgements import Adjacency, Headroom
from vestige.footprint.questions import answer
from vestige.metrics.adjacency import mean_cosine, overlap, semantic_check, similarity_ratio
from vestige.models.causal_lm import language_model

TEXTS: dict[str, list[str]] = {
    "forget": [
        "My credit card was stolen and I need to block it.",
        "I lost my debit card yesterday, please freeze it.",
    ],
    "adjacent": [
        "My card payment was declined at the shop.",
        "How do I change the PIN of my bank card?",
    ],
    "generic": [
        "The cathedral was built in the twelfth century.",
        "Whales migrate north in spring.",
        "She won the tennis match.",
    ],
}


def corpora(order: dict[str, str] | None = None) -> dict[str, Corpus]:
    """order: role -> whose texts it has."""
    texts = {role: TEXTS[(order or {}).get(role, role)] for role in TEXTS}
    return {
        f"c-{role}": Corpus(
            name=f"c-{role}",
            role=role,  # type: ignore[arg-type]
            documents=tuple(Document(str(i), text) for i, text in enumerate(own)),
        )
        for role, own in texts.items()
    }


def test_published_passes_ratios_and_margins(paper: Path) -> None:
    with (paper / "triage_adjacency.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    semantic = [row for row in rows if row["sim_f_a"]]
    for row in semantic:
        f_a, a_g = float(row["sim_f_a"]), float(row["sim_a_g"])
        assert semantic_check(f_a, a_g) == (row["passes"] == "True")
        found = similarity_ratio(f_a, a_g)
        # Four printed digits of sim(A, G), one of the ratio.
        assert found == pytest.approx(float(row["ratio"]), abs=0.05 + f_a * 0.00005 / a_g**2 + 1e-9)
    assert len(semantic) == 4
    margins = [float(row[f"margin_k1e{e}"]) for row in rows if row["margin_k1e3"] for e in (3, 4, 5)]
    assert sum(margin <= 0 for margin in margins) == 4


def test_mean_cosine_is_the_mean_over_all_pairs() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(7, 5)), rng.normal(size=(4, 5))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    slow = np.mean([a @ b for a in first for b in second])
    assert mean_cosine(first, second) == pytest.approx(slow, abs=1e-12)
    assert isinstance(similarity_ratio(0.2, -0.01), Undefined)


def test_largest_entries_of_a_mean_over_all_weights() -> None:
    rng = torch.Generator().manual_seed(0)
    diagonals = [{name: torch.rand(6, 7, generator=rng) for name in "xyz"} for _ in range(2)]
    flat = torch.cat([torch.stack([d[name].flatten() for d in diagonals]).mean(0) for name in "xyz"])
    for k in (1, 5, 50, 126):
        assert largest(diagonals, k).tolist() == flat.argsort(descending=True)[:k].tolist()
    assert overlap(np.array([1, 2, 3, 4]), np.array([4, 3, 9, 8])) == 0.5


def fishers(seed: int) -> dict[str, dict[str, torch.Tensor]]:
    rng = torch.Generator().manual_seed(seed)
    base = torch.rand(60, 60, generator=rng)
    other = torch.rand(60, 60, generator=rng)
    return {"c-forget": {"w": base}, "c-adjacent": {"w": base * 1.01}, "c-generic": {"w": other}}


def test_real_sentences_pass_and_exchanged_ones_do_not() -> None:
    kept = {"base_fisher": fishers(1), "base_log10_ppl": {"c-adjacent": 1.2}}
    found = adjacency(corpora=corpora(), statement="cards stolen against other card matters", **kept)  # type: ignore[arg-type]
    assert isinstance(found, Adjacency)
    assert found.passes
    assert found.lines == ()
    assert found.sim_f_a > found.sim_f_g
    assert found.statement == "cards stolen against other card matters"
    assert isinstance(found.overlaps, tuple)
    assert [item.k for item in found.overlaps] == [1000]
    assert found.overlaps[0].forget_adjacent == 1
    assert isinstance(found.headroom, Headroom)
    assert found.headroom.passes
    assert [(row.role, row.documents) for row in found.lengths] == [
        ("forget", 2),
        ("adjacent", 2),
        ("generic", 3),
    ]
    swapped = adjacency(
        corpora=corpora({"adjacent": "generic", "generic": "adjacent"}),
        base_fisher={
            name: fishers(1)[other]
            for name, other in (
                ("c-forget", "c-forget"),
                ("c-adjacent", "c-generic"),
                ("c-generic", "c-adjacent"),
            )
        },
        base_log10_ppl={},
    )
    assert isinstance(swapped, Adjacency)
    # Equal sets exchanged: sim(A, G) is the same, sim(F, A) is now the smaller one.
    assert swapped.sim_a_g == pytest.approx(found.sim_a_g)
    assert swapped.overlaps[0].caution  # type: ignore[index]
    assert any("caution" in line for line in swapped.lines)
    assert isinstance(swapped.headroom, Undefined)
    assert isinstance(swapped.statement, Undefined)


def test_an_adjacent_corpus_of_generic_text_must_be_rebuilt() -> None:
    found = adjacency(corpora=corpora({"adjacent": "generic"}), base_fisher={}, base_log10_ppl={})
    assert isinstance(found, Adjacency)
    assert not found.passes
    assert "rebuild" in found.lines[0]
    assert isinstance(found.overlaps, Undefined)


def test_missing_roles_and_bad_accuracies() -> None:
    two = {name: corpus for name, corpus in corpora().items() if corpus.role != "adjacent"}
    assert adjacency(corpora=two, base_fisher={}, base_log10_ppl={}) == Undefined(
        undefined="no adjacent corpus"
    )
    low = adjacency(corpora=corpora(), base_fisher={}, base_log10_ppl={}, base_accuracy="0.2")
    assert isinstance(low, Adjacency)
    assert "no headroom" in low.lines[0]
    with pytest.raises(InputError, match="give shares"):
        adjacency(corpora=corpora(), base_fisher={}, base_log10_ppl={}, base_accuracy="55")


def ask(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_questions_are_answered_by_log_likelihood(tmp_path: Path) -> None:
    rows = [
        {"question": "card pin", "options": ["lost", "stolen", "fee"], "answer": 1},
        {"question": "top up", "options": ["cash", "refund"], "answer": "A"},
        {"question": "rate", "options": ["cash", "refund"], "answer": "refund"},
    ]
    path = ask(tmp_path / "q.jsonl", rows)
    questions = read_questions(path)
    assert [question.answer for question in questions] == [1, 0, 1]
    assert questions[0].options == ("A", "B", "C")
    assert questions[0].prompt.endswith("C. fee\nAnswer:")
    model = language_model(tiny_llama(layers=1, extra=LETTERS), tiny_tokenizer(extra=LETTERS), label="base")

    class Cloze:
        prompt, options, answer = "lost card", ("fee cash", "pin code", "please"), 0

    found = answer(model.model, model.tokenizer, [Cloze()])
    slow = []
    for option in Cloze.options:
        ids = torch.tensor([model.tokenizer(f"{Cloze.prompt} {option}")["input_ids"]])
        logs = torch.log_softmax(model.model(input_ids=ids).logits[0].double(), -1)
        slow.append(sum(float(logs[t - 1, ids[0, t]].detach()) for t in range(3, ids.shape[1])))
    assert found.correct == (max(slow) == slow[0],)
    assert found.chance == pytest.approx(1 / 3)
    read = adjacency(
        corpora=corpora(), base_fisher={}, base_log10_ppl={}, base_accuracy=str(path), model=model
    )
    assert isinstance(read, Adjacency)
    assert isinstance(read.headroom, Headroom)
    assert read.headroom.questions == 3
    assert len(letter_questions([("q", ["x", "y"], 0)])) == 1


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    path = ask(tmp_path / "q.jsonl", [{"question": "a", "options": ["x", "y"], "answer": "Z"}])
    with pytest.raises(InputError, match="line 1, answer"):
        read_questions(path)
    path = ask(tmp_path / "q.jsonl", [{"question": "a", "options": "x", "answer": "x"}])
    with pytest.raises(InputError, match="line 1, field 'options'"):
        read_questions(path)
