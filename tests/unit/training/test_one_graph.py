"""Terms of a step are differentiated one after another: no method holds two terms' graphs at once."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny_lm import tiny_llama, tiny_tokenizer
from torch import Tensor

from vestige.data.language_rows import LanguageRow, LanguageRows
from vestige.methods import METHODS
from vestige.training.session import Topic, begin, unlearn_language

LENGTH = 12


class _Held:
    """A tensor that a graph keeps for its backward pass, counted while it lives."""

    def __init__(self, value: Tensor, count: dict[str, int]) -> None:
        self.value, self._count, self._bytes = value, count, value.numel() * value.element_size()
        count["now"] += self._bytes
        count["peak"] = max(count["peak"], count["now"])

    def __del__(self) -> None:
        self._count["now"] -= self._bytes


def rows(first: int) -> LanguageRows:
    labels = (False, *(True,) * (LENGTH - 1))
    made = [
        LanguageRow(str(i), tuple(4 + (first + i + k) % 20 for k in range(LENGTH)), labels, "t", i)
        for i in range(8)
    ]
    return LanguageRows(rows=tuple(made))


def peak_of_graphs(method: str) -> int:
    """The most bytes that graphs held at one time over three steps."""
    objective = METHODS.get(method)
    assert objective.language is not None
    settings = objective.language.settings(batch_size=4, max_steps=3, select="last")
    topic = Topic(rows(0), rows(3))
    session = begin(tiny_llama(), tiny_tokenizer(), objective, settings, {"t": topic}, seed=3)
    count = {"now": 0, "peak": 0}
    with torch.autograd.graph.saved_tensors_hooks(lambda value: _Held(value, count), lambda held: held.value):
        unlearn_language(session)
    assert count["now"] == 0
    return count["peak"]


@pytest.mark.parametrize("method", ["grad_diff", "grad_diff_kl", "npo", "simnpo"])
def test_a_second_term_needs_hardly_more_memory_than_gradient_ascent_alone(method: str) -> None:
    alone = peak_of_graphs("grad_ascent")
    assert alone > 0
    assert peak_of_graphs(method) <= 1.15 * alone
