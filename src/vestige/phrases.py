"""Names, counts and lists in words: what every sentence is put together from."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "LABEL_LIMIT",
    "characters",
    "count",
    "counted",
    "cut",
    "listed",
    "number_word",
    "plain",
    "short",
    "way_words",
]

LABEL_LIMIT = 48
"""Labels longer than this many characters are cut in the middle and their length is stated."""

_JOINERS = "\u200c\u200d"
_WORDS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


def plain(text: object) -> str:
    """`text` on one line: control and direction-changing characters become visible escapes, emoji stay."""
    return "".join(
        char if char.isprintable() or char in _JOINERS else char.encode("unicode_escape").decode()
        for char in str(text)
    )


def short(text: object, limit: int = LABEL_LIMIT) -> str:
    """`text` on one line, at most about `limit` characters: the middle is cut and the full length stated."""
    line = plain(text)
    return line if len(line) <= limit else f"{cut(text, limit)} ({characters(str(text))})"


def cut(text: object, limit: int) -> str:
    """`text` on one line, its middle cut so that at most `limit` characters and an ellipsis stay."""
    line = plain(text)
    tail = limit // 3
    return line if len(line) <= limit else f"{line[: limit - tail]}…{line[-tail:]}"


def characters(text: str) -> str:
    """How long `text` is: `10,000 characters`."""
    return counted(len(text), "character", "characters")


def count(value: int) -> str:
    """An integer with thousands separated: `5,000`."""
    return f"{value:,}"


def counted(value: int, singular: str, plural: str) -> str:
    """A count with its noun: `1 row`, `1,234 rows`."""
    return f"{count(value)} {singular if value == 1 else plural}"


def number_word(value: int) -> str:
    """Numbers to twelve in words, larger ones in digits: `three`, `15`."""
    return _WORDS[value] if 0 <= value < len(_WORDS) else count(value)


def listed(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def way_words(share: float) -> str:
    """How far a model went, as a share of how far a retrained model goes: `9 % of the way`.

    Empty where it is no share of a way: at 0 and below.
    """
    if share <= 0:
        return ""
    if share < 0.01:
        return "less than 1 % of the way"
    return "the whole way by distance" if share >= 0.995 else f"{share * 100:.0f} % of the way"
