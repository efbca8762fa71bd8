"""Is the adjacent corpus valid: near the forgotten text in meaning and in the model, known to the base?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from vestige.contracts import Undefined
from vestige.data.corpora import Corpus, Role
from vestige.data.questions import read_questions
from vestige.errors import InputError
from vestige.footprint.judgements import Adjacency, Headroom, Lengths, Overlap
from vestige.footprint.questions import answer
from vestige.footprint.texts import sampled_documents
from vestige.metrics.adjacency import mean_cosine, overlap, semantic_check, similarity_ratio
from vestige.models.causal_lm import LanguageModel
from vestige.models.embeddings import sentence_encoder
from vestige.seeds import generator

__all__ = ["TOP_K", "adjacency", "largest", "stated_accuracy"]

TOP_K = (1_000, 10_000, 100_000)
MOST_DOCUMENTS = 2000
PIECES, PUBLISHED_PIECES = 128, 256
"""Word pieces of a document that the encoder reads."""
NO_STATEMENT = "nobody stated that the adjacent scope shares nothing with the forget scope"


def adjacency(
    *,
    corpora: Mapping[str, Corpus],
    base_fisher: Mapping[str, Mapping[str, Tensor]],
    base_log10_ppl: Mapping[str, float],
    model: LanguageModel | None = None,
    base_accuracy: str | None = None,
    statement: str | None = None,
    encoder: str = "minilm",
    top_k: Sequence[int] = TOP_K,
    seed: int = 17,
    published: bool = False,
    documents: int = 200,
) -> Adjacency | Undefined:
    """The checks of the adjacent role against the other two, every role's corpora pooled.

    base_fisher: corpus -> Fisher diagonal of the model the shift starts from; empty: no model-side check.
    base_log10_ppl: corpus -> log10 perplexity of the base. base_accuracy: the base's accuracy on adjacent
    questions as a number, or a file of questions that `model` answers. statement: the user's word that the
    scopes are disjoint. More than 2,000 documents a role are sampled by `seed`; published: instead
    `documents` of each corpus by the published sample, of which the encoder reads 256 word pieces.
    Undefined without any of the three roles.
    """
    present = {corpus.role for corpus in corpora.values()}
    missing = [role for role in ("forget", "adjacent", "generic") if role not in present]
    if missing:
        return Undefined(undefined=f"no {missing[0]} corpus")
    embedder = sentence_encoder(encoder, max_tokens=PUBLISHED_PIECES if published else PIECES)
    rows = {
        role: embedder.embed(_texts(corpora, role, seed, documents if published else None))
        for role in ("forget", "adjacent", "generic")
    }
    sim_f_a = mean_cosine(rows["forget"], rows["adjacent"])
    sim_f_g = mean_cosine(rows["forget"], rows["generic"])
    sim_a_g = mean_cosine(rows["adjacent"], rows["generic"])
    passes = semantic_check(sim_f_a, sim_a_g)
    overlaps = _overlaps(corpora, base_fisher, top_k)
    headroom = _headroom(corpora, base_log10_ppl, model, base_accuracy)
    lines = []
    if not passes:
        lines.append(
            "rebuild the adjacent corpus: its texts are no closer to the forget texts "
            f"(cosine {sim_f_a:.3f}) than to generic text ({sim_a_g:.3f})"
        )
    if isinstance(headroom, Headroom) and not headroom.passes:
        lines.append(f"no headroom on the adjacent corpus: {headroom.said}")
    if isinstance(overlaps, tuple):
        lines += [
            f"caution: among the {found.k:,} largest Fisher entries, forget and adjacent text share no more "
            f"({found.forget_adjacent:.3f}) than forget and generic text ({found.forget_generic:.3f})"
            for found in overlaps
            if found.caution
        ]
    return Adjacency(
        encoder=embedder.record.name,
        sim_f_a=sim_f_a,
        sim_f_g=sim_f_g,
        sim_a_g=sim_a_g,
        ratio=similarity_ratio(sim_f_a, sim_a_g),
        passes=passes,
        overlaps=overlaps,
        headroom=headroom,
        statement=statement if statement else Undefined(undefined=NO_STATEMENT),
        lengths=tuple(_lengths(corpus) for corpus in corpora.values()),
        lines=tuple(lines),
    )


def _texts(corpora: Mapping[str, Corpus], role: Role, seed: int, published: int | None) -> list[str]:
    texts = [
        document.text
        for corpus in corpora.values()
        if corpus.role == role
        for document in (corpus.documents if published is None else sampled_documents(corpus, published))
    ]
    if len(texts) <= MOST_DOCUMENTS:
        return texts
    chosen = generator(seed, "embedded", role).choice(len(texts), MOST_DOCUMENTS, replace=False)
    return [texts[i] for i in sorted(chosen)]


def _overlaps(
    corpora: Mapping[str, Corpus], base_fisher: Mapping[str, Mapping[str, Tensor]], top_k: Sequence[int]
) -> tuple[Overlap, ...] | Undefined:
    measured = [name for name in corpora if name in base_fisher]
    if {corpora[name].role for name in measured} != {"forget", "adjacent", "generic"}:
        return Undefined(undefined="no Fisher diagonal of the base for all three roles")
    size = sum(value.numel() for value in base_fisher[measured[0]].values())
    asked = [k for k in top_k if k < size]
    if not asked:
        return Undefined(undefined=f"the model has only {size} measured weights")
    indices = {
        role: largest([base_fisher[name] for name in measured if corpora[name].role == role], max(asked))
        for role in ("forget", "adjacent", "generic")
    }
    found = []
    for k in asked:
        f, a, g = (indices[role][:k] for role in ("forget", "adjacent", "generic"))
        margin = overlap(f, a) - overlap(f, g)
        found.append(
            Overlap(
                k=k,
                forget_adjacent=overlap(f, a),
                forget_generic=overlap(f, g),
                adjacent_generic=overlap(a, g),
                margin=margin,
                caution=margin <= 0,
            )
        )
    return tuple(found)


def largest(diagonals: Sequence[Mapping[str, Tensor]], k: int) -> NDArray[np.int64]:
    """Positions, over all weights end to end, of the k largest entries of the diagonals' mean, falling."""
    best = torch.empty(0)
    places = torch.empty(0, dtype=torch.int64)
    start = 0
    for name in diagonals[0]:
        mean = torch.stack([diagonal[name].flatten() for diagonal in diagonals]).mean(0)
        top = torch.topk(mean, min(k, len(mean)))
        best = torch.cat([best.to(top.values), top.values])
        places = torch.cat([places.to(top.indices.device), top.indices + start])
        keep = torch.topk(best, min(k, len(best)))
        best, places = keep.values, places[keep.indices]
        start += len(mean)
    found: NDArray[np.int64] = places.cpu().numpy()
    return found


def _headroom(
    corpora: Mapping[str, Corpus],
    base_log10_ppl: Mapping[str, float],
    model: LanguageModel | None,
    base_accuracy: str | None,
) -> Headroom | Undefined:
    if base_accuracy is not None:
        return _accuracy_headroom(base_accuracy, model)
    found = [base_log10_ppl[c] for c in corpora if corpora[c].role == "adjacent" and c in base_log10_ppl]
    if not found:
        return Undefined(undefined="neither the base's accuracy nor its perplexity on adjacent text is known")
    value = sum(found) / len(found)
    finite = math.isfinite(value)
    return Headroom(
        kind="perplexity",
        value=value if finite else 1e308,
        passes=finite,
        said=f"perplexity of the base {10**value:.3g} on adjacent text"
        if finite and value < 300
        else "the base's perplexity on adjacent text is not finite",
    )


def stated_accuracy(base_accuracy: str) -> float | None:
    """The share in [0, 1] that was stated, None where the text names a file of questions. Raises InputError
    for any other number, and for a file without questions."""
    try:
        value = float(base_accuracy)
    except ValueError:
        read_questions(Path(base_accuracy))
        return None
    if not 0 <= value <= 1:
        raise InputError(
            "--base-accuracy",
            f"{value:g}",
            "a share in [0, 1] or a questions file",
            "give shares, not percent",
        )
    return value


def _accuracy_headroom(base_accuracy: str, model: LanguageModel | None) -> Headroom:
    value = stated_accuracy(base_accuracy)
    if value is None:
        return _answered_headroom(Path(base_accuracy), model)
    chance = 0.25
    return Headroom(
        kind="accuracy",
        value=value,
        chance=chance,
        passes=value > chance,
        said=f"the base answers {value:.1%} of adjacent questions as stated; guessing among four gives 25 %",
    )


def _answered_headroom(path: Path, model: LanguageModel | None) -> Headroom:
    questions = read_questions(path)
    if model is None:
        raise InputError(
            str(path), "questions without a model", "a base model", "give the accuracy as a number"
        )
    answers = answer(model.model, model.tokenizer, questions)
    right = sum(answers.correct)
    p = float(stats.binomtest(right, len(questions), answers.chance, alternative="greater").pvalue)
    return Headroom(
        kind="accuracy",
        value=answers.accuracy,
        chance=answers.chance,
        questions=len(questions),
        p=p,
        passes=answers.accuracy > answers.chance,
        said=f"the base answers {right} of {len(questions)} adjacent questions, guessing gives "
        f"{answers.chance:.1%} (one-sided binomial p {p:.3g})",
    )


def _lengths(corpus: Corpus) -> Lengths:
    words = [len(document.text.split()) for document in corpus.documents]
    lower, median, upper = (float(value) for value in np.percentile(words, [25, 50, 75]))
    return Lengths(
        corpus=corpus.name, role=corpus.role, documents=len(words), lower=lower, median=median, upper=upper
    )
