"""What the training of causal language models shares: settings, batches of sequences, what a method asks for.

Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from vestige.contracts import Floats, LossBatch, MethodSettings, Record, Term

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "TRIAGE",
    "FitSettings",
    "LanguageSettings",
    "LanguageUse",
    "LoraSettings",
    "Need",
    "ReadingSettings",
    "SequenceBatch",
    "language_block",
]

Need = Literal[
    "scores", "logits", "hidden", "ref_target", "ref_scores", "ref_logits", "ref_hidden", "refusal"
]
"""What a loss term of a language model reads: see `SequenceBatch`."""


@dataclass(frozen=True)
class SequenceBatch(LossBatch):
    """A batch of token sequences of one topic, scored by a language model.

    log_probs (P, V), ref_log_probs (P, V), logits (P, V), ref_logits (P, V): at the P real predicted
    positions alone, one sequence after another; gold (P,): their tokens; rows (P,): the sequence of each.
    lengths (n,): predicted positions of each sequence. ref_target (n,): the reference's `target_log_probs`.
    hidden_mask: True at all real tokens, predicted or not. preferred: the answers that are to take these
    rows' place, row by row. What the method does not ask for is None, and log_probs then (P, 0).
    """

    rows: Tensor | None = None
    logits: Tensor | None = None
    ref_logits: Tensor | None = None
    ref_target: Tensor | None = None
    preferred: SequenceBatch | None = None
    topic: str = ""
    reduction: Literal["mean", "sum"] = "mean"

    @property
    def token_log_probs(self) -> Tensor:
        """log p of each predicted token, (P,), at most 0."""
        return self.log_probs.gather(1, self.gold[:, None])[:, 0]

    @property
    def summed_log_probs(self) -> Tensor:
        """log p of each sequence: the sum over its predicted tokens, (n,), at most 0."""
        assert self.lengths is not None
        assert self.rows is not None
        tokens = self.token_log_probs
        return tokens.new_zeros(len(self.lengths)).index_add(0, self.rows, tokens)

    @property
    def target_log_probs(self) -> Tensor:
        """log p of each sequence, (n,): token mean, or sum by `reduction`."""
        return self.summed_log_probs if self.reduction == "sum" else self.mean_log_probs

    @property
    def mean_log_probs(self) -> Tensor:
        """log p of each sequence a predicted token, (n,), at most 0, whatever `reduction` says."""
        assert self.lengths is not None
        return self.summed_log_probs / self.lengths

    @property
    def ref_target_log_probs(self) -> Tensor:
        """log p_ref of each sequence, (n,). Raises ValueError without a reference."""
        if self.ref_target is None:
            raise ValueError("this loss needs the reference model's log-probabilities")
        return self.ref_target


class ReadingSettings(Record):
    """How a file of text becomes token sequences.

    text: as it is, or through the tokenizer's chat template. scored: which tokens are predicted where there
    are questions and answers: the answer's, those from the word `Answer:` on, or all. end_token: whether the
    end token follows an answer and is predicted. windows: of a document that is too long, `whole` puts every
    token into one window; `cut` slices it at the longest length and lets the beginning token, where there is
    one, take the place of a slice's last token, as the published code does.
    """

    text: Literal["plain", "chat"] = "plain"
    scored: Literal["answer", "answer line", "all"] = "answer"
    end_token: bool = True
    windows: Literal["whole", "cut"] = "whole"


PUBLISHED_READING: Mapping[str, Any] = {"scored": "all", "end_token": False, "windows": "cut"}
"""How preset `triage` reads text wherever it trains on it."""


class FitSettings(Record):
    """AdamW, gradient clipping, a linear warm-up over `warmup_share` of the steps, then linear decay or none.

    learning_rate: per step. batch_size: sequences. max_grad_norm: None clips nothing. max_steps: stop there,
    the schedule is made for it. warmup_from_zero: the warm-up's steps are rounded down and the first one has
    a rate of 0, as in transformers' schedules; else they are rounded up and the first has a rate above 0.
    decay_vectors: whether weight decay pulls on biases and norms too.
    """

    epochs: int = Field(8, ge=1)
    batch_size: int = Field(1, ge=1)
    learning_rate: float = Field(2e-4, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    warmup_share: float = Field(0.03, ge=0, lt=1)
    warmup_from_zero: bool = False
    decay: bool = True
    decay_vectors: bool = True
    max_grad_norm: float | None = Field(1.0, gt=0)
    max_steps: int | None = Field(None, ge=1)


class LoraSettings(Record):
    """Adapters on the attention and feed-forward projections of every block. dropout: of their input."""

    rank: int = Field(16, ge=1)
    alpha: float = Field(32.0, gt=0)
    dropout: float = Field(0.05, ge=0, lt=1)


class LanguageSettings(MethodSettings, ReadingSettings):
    """Settings of every method that trains a causal language model; text as `ReadingSettings` says.

    An epoch takes the topics in turn and ends after topics x batches of the smallest topic; there are at
    most `max_steps` steps. retain_weight: of every topic that `topic_weights` does not name. batch_size:
    sequences of each term. max_grad_norm: None clips nothing. shuffle: else file order. max_length: tokens;
    longer documents are windowed, longer answers cut on the right; topic_lengths: topic -> its own
    max_length. retain_length: retain sequences are cut on the right to it. dtype: of the weights that stay;
    adapters are float32. four_bit: those weights are stored in 4 bits and dequantised. reduction: log p of
    a sequence in the forget term; retain terms are token means always. noise_std: of gaussian noise on the
    hooked block of the reference, in the retain term. lora: None trains all weights. select: "last" keeps
    the last state, "development" the epoch with the highest loss on forget rows among those whose loss on
    `development_rows` held-out retain rows a topic rose by at most `tolerance` nats a token. layer: the
    hooked block, from 0; None: the method's rule.
    """

    learning_rate: float = Field(1e-4, gt=0)
    retain_weight: float = Field(1.0, ge=0)
    topic_weights: dict[str, float] = Field(default_factory=dict)
    batch_size: int = Field(4, ge=1)
    epochs: int = Field(5, ge=1)
    max_steps: int = Field(500, ge=1)
    warmup_steps: int = Field(5, ge=0)
    weight_decay: float = Field(0.01, ge=0)
    max_grad_norm: float | None = Field(1.0, gt=0)
    shuffle: bool = True
    max_length: int = Field(512, ge=2)
    topic_lengths: dict[str, int] = Field(default_factory=dict)
    retain_length: int | None = Field(None, ge=2)
    dtype: Literal["float32", "bfloat16"] = "float32"
    four_bit: bool = False
    reduction: Literal["mean", "sum"] = "mean"
    noise_std: float = Field(0.0, ge=0)
    lora: LoraSettings | None = LoraSettings()
    select: Literal["last", "development"] = "development"
    tolerance: float = Field(0.1, ge=0)
    development_rows: int = Field(32, ge=1)
    layer: int | None = Field(None, ge=0)

    def weight(self, topic: str) -> float:
        """The retain weight of a topic."""
        return self.topic_weights.get(topic, self.retain_weight)

    def length(self, topic: str) -> int:
        """The longest sequence of a topic, in tokens."""
        return self.topic_lengths.get(topic, self.max_length)


TRIAGE: Mapping[str, Any] = {
    "batch_size": 4,
    "epochs": 1,
    "max_steps": 500,
    "warmup_steps": 0,
    "weight_decay": 0.01,
    "max_grad_norm": None,
    "shuffle": False,
    "max_length": 512,
    "topic_lengths": {"cyber": 768},
    "dtype": "bfloat16",
    **PUBLISHED_READING,
    "lora": {"rank": 16, "alpha": 32.0, "dropout": 0.05},
    "select": "last",
}
"""Preset `triage` of every method: one pass in file order, constant rate, no clipping, last state; bfloat16
weights; all of a text is scored, questions too."""


def language_block(blocks: int) -> int:
    """The hooked block of a language model, counted from 0: 7, or floor(L/4) of fewer than 16 blocks."""
    return 7 if blocks >= 16 else blocks // 4


@dataclass(frozen=True, kw_only=True)
class LanguageUse:
    """How an objective trains a causal language model.

    settings: their defaults are preset `default`. needs(settings): what each term reads; a term that is
    left out is not part of the loss. forget, retain: in place of the objective's own terms. triage: preset
    `triage`, on top of `TRIAGE`. block: number of blocks -> the hooked one. steer(settings, generator,
    width d, mean token norm of the reference on the topic's first batch) -> the topic's fixed vector (d,).
    prepare(session): phases before the loop, see `vestige.training.session`; it may set the session's
    terms. conclude(session, log): after the loop, for notes. saves_whole: the base's weights change beside
    the adapters. weighted: False adds the retain term as it is, the method weighs its parts itself. reads:
    what of a topic the method needs beside text.
    """

    settings: type[LanguageSettings]
    needs: Callable[[Any], Mapping[Term, frozenset[Need]]]
    forget: Callable[[Any, Any], Tensor] | None = None
    retain: Callable[[Any, Any], Tensor] | None = None
    triage: Mapping[str, Any] = field(default_factory=dict)
    block: Callable[[int], int] = language_block
    steer: Callable[[Any, np.random.Generator, int, float], Floats] | None = None
    prepare: Callable[[Any], None] | None = None
    conclude: Callable[[Any, Sequence[Mapping[str, Any]]], None] | None = None
    saves_whole: bool = False
    weighted: bool = True
    reads: frozenset[Literal["concept", "keywords"]] = frozenset()
