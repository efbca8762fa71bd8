"""The published sample of a corpus: whose documents, which windows, what of each is read."""

from __future__ import annotations

import hashlib
import random

import pytest
from tests.unit.data.test_corpora import Letters, corpus

from vestige.data.corpora import Corpus, Document
from vestige.data.published_sample import published_sample
from vestige.errors import InputError


def named(name: str, texts: list[str]) -> Corpus:
    return Corpus(
        name=name, role="forget", documents=tuple(Document(str(i), text) for i, text in enumerate(texts))
    )


def test_documents_are_those_of_the_published_seed_in_their_order() -> None:
    """Python's sample of 5 of 40, seeded by the first eight hex digits of the md5 of `bio-forget|sub1`."""
    texts = ["abcd"[: 2 + i % 3] for i in range(40)]
    found = published_sample(named("bio", texts), Letters(), units=5, subsets=2, name="bio-forget")
    for k, units in enumerate(found.subsets):
        seed = int(hashlib.md5(f"bio-forget|sub{k}".encode()).hexdigest()[:8], 16)
        expected = sorted(random.Random(seed).sample(range(40), 5))
        assert [int(unit.document_id) for unit in units] == expected
        assert found.texts[k] == tuple(texts[i] for i in expected)
    assert found.subsets[0] != published_sample(named("bio", texts), Letters(), units=5).subsets[0]
    own = published_sample(
        named("bio", texts), Letters(), units=5, subsets=1, name="bio-forget", short_documents=3
    )
    seed = int(hashlib.md5(b"bio-forget|sub0|chess").hexdigest()[:8], 16)
    chosen = sorted(random.Random(seed).sample(range(40), 3))
    assert [int(unit.document_id) for unit in own.short[0]] == chosen


def test_the_first_windows_are_measured_and_perplexity_reads_all_documents() -> None:
    """Two documents of 25 letters, windows of 10: three each, the first four are measured."""
    letters = "abcdefghijklmnopqrstuvwxy"
    found = published_sample(
        corpus([letters, letters.upper()]), Letters(), units=4, subsets=3, max_length=10, short_length=5
    )
    (units, *others) = found.subsets
    assert [(unit.document_id, unit.start) for unit in units] == [("0", 0), ("0", 10), ("0", 20), ("1", 0)]
    tokenizer = Letters()
    ids = tokenizer(letters, add_special_tokens=False)["input_ids"]
    bos = tokenizer.bos_token_id
    # The beginning token takes the place of a full slice's last one: token 9 is in no window.
    assert [unit.ids for unit in units[:3]] == [
        (bos, *ids[0:9]),
        (bos, *ids[10:19]),
        (bos, *ids[20:25]),
    ]
    assert [len(unit.ids) for unit in found.short[0]] == [5, 5, 5, 5]
    assert found.texts[0] == (letters, letters.upper())
    assert found.coincide
    assert all(other == units for other in others)
    assert found.windowed == 2
    rest = published_sample(corpus([letters] * 9), Letters(), units=4, subsets=1, max_length=10)
    assert rest.notes == (
        "published sample: the first 4 windows of each subset's 4 documents reach 2 to 2 of them",
    )


def test_what_cannot_be_predicted_is_left_out() -> None:
    found = published_sample(corpus(["a", "bc"]), Letters(bos=False), units=4, subsets=1)
    assert [unit.document_id for unit in found.subsets[0]] == ["1"]
    with pytest.raises(InputError, match="none of two tokens"):
        published_sample(corpus(["a", "b"]), Letters(bos=False))
