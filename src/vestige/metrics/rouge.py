"""ROUGE-L recall of a written answer, for every script. No torch.

The published tokens (Lin 2004, as the package rouge-score makes them) are the runs of `a-z` and `0-9` of the
text in lower case, those of more than three letters stemmed by Porter's rules; everything else parts them. A
text in another script has none, so that a verbatim answer in Russian or Chinese would be worth 0. Here the
letters of other scripts are tokens too, as words, or one by one where a script writes no spaces between
words. A text in Latin letters has exactly its published tokens, and so its published number.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import Any

from vestige.contracts import Undefined

__all__ = ["RougeTokens", "beyond_latin", "rouge_l_recall"]

LATIN_BLOCKS_END = 0x370
"""Before it Unicode has Latin letters, phonetic ones, and marks."""
UNSPACED = (
    *("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "BOPOMOFO", "YI "),
    *("THAI", "LAO", "KHMER", "MYANMAR", "TAI ", "NEW TAI", "JAVANESE", "BALINESE"),
)
"""How the names of letters begin whose scripts put no spaces between words."""


@lru_cache(maxsize=4096)
def _kind(char: str) -> str:
    """What a character is for tokens.

    `published`: of the published tokens. `word`, `letter`: of a script with, without spaces between words.
    `mark`: belongs to the letter before it. `joiner`: neither parts nor is read. The empty text: parts.
    """
    if char.isascii():
        return "published" if char.isalnum() else ""
    category = unicodedata.category(char)
    if category.startswith("M"):
        return "mark"
    if category == "Cf":
        return "joiner"
    name = unicodedata.name(char, "")
    if ord(char) < LATIN_BLOCKS_END or name.startswith("LATIN"):
        return ""
    if not (category.startswith("L") or category in ("Nd", "Nl")):
        return ""
    return "letter" if name.startswith(UNSPACED) else "word"


def beyond_latin(text: str) -> bool:
    """Whether a text has letters or digits that the published tokens leave out, Latin ones aside."""
    return any(_kind(char) in ("word", "letter") for char in text.lower())


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of each token of a text in lower case, not yet stemmed."""
    kinds: list[tuple[str, int, str]] = []
    number, before = 0, ""
    for char in text:
        kind = _kind(char)
        if kind in ("mark", "joiner"):
            kind = before if before in ("word", "letter") else ""
            char = char if _kind(char) == "mark" else ""
        elif kind == "letter" or kind != before:
            number += 1
        kinds.append((kind, number, char))
        before = kind
    for (kind, _), chars in groupby(kinds, key=lambda item: item[:2]):
        if kind:
            yield kind, "".join(char for _, _, char in chars)


class RougeTokens:
    """A tokenizer for rouge-score. stem: by Porter's rules, as published for English."""

    def __init__(self, *, stem: bool = True) -> None:
        from rouge_score import tokenizers

        self._published = tokenizers.DefaultTokenizer(use_stemmer=stem)

    def tokenize(self, text: str) -> list[str]:
        """The tokens of a text, in order."""
        found: list[str] = []
        for kind, piece in _pieces(text.lower()):
            if kind == "published":
                found += self._published.tokenize(piece)
            else:
                found.append(unicodedata.normalize("NFKC", piece).casefold())
        return found


def rouge_l_recall() -> Callable[[str, str], float | Undefined]:
    """The function (reference, generated) -> ROUGE-L recall. Needs the package rouge-score.

    Share of the reference's tokens in the longest common subsequence of both, in [0, 1]; 0 for an empty
    generated text. Undefined for a reference without a token.
    """
    from rouge_score.rouge_scorer import RougeScorer

    tokens = RougeTokens()
    scorer: Any = RougeScorer(["rougeL"], tokenizer=tokens)

    def recall(reference: str, generated: str) -> float | Undefined:
        if not tokens.tokenize(reference):
            return Undefined(undefined="a reference answer without a word")
        return float(scorer.score(reference, generated)["rougeL"].recall) if generated.strip() else 0.0

    return recall
