"""ROUGE-L recall: the published number for Latin letters, and one with a meaning for other scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vestige.contracts import Undefined
from vestige.metrics.rouge import RougeTokens, beyond_latin, rouge_l_recall

pytest.importorskip("rouge_score")


def test_a_known_answer() -> None:
    """The cat sat on the mat / the cat on a mat: longest common subsequence the cat on mat, 4 of 6."""
    recall = rouge_l_recall()
    assert recall("The cat sat on the mat", "the cat on a mat") == pytest.approx(4 / 6)
    assert recall("The cat", "it was the old cat.") == 1
    assert recall("The cat", "") == recall("The cat", " \n") == 0
    for reference in ("", " . ", "é"):
        assert recall(reference, "anything") == Undefined(undefined="a reference answer without a word")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Москва — столица России.", ["москва", "столица", "россии"]),
        ("北京是首都。", ["北", "京", "是", "首", "都"]),
        ("東京タワーへ行く", list("東京タワーへ行く")),
        ("서울은 수도이다", ["서울은", "수도이다"]),
        ("กรุงเทพ", ["ก", "รุ", "ง", "เ", "ท", "พ"]),
        ("नई दिल्ली", ["नई", "दिल्ली"]),
        ("مدينة نيويورك", ["مدينة", "نيويورك"]),
        ("می‌روم", ["میروم"]),
        ("Αθήνα 2004", ["αθήνα", "2004"]),
        ("born in 北京 (Beijing)", ["born", "in", "北", "京", "beij"]),
        ("ＡＢＣ １２", ["abc", "12"]),
    ],
)
def test_tokens_of_other_scripts(text: str, tokens: list[str]) -> None:
    assert RougeTokens().tokenize(text) == tokens
    assert beyond_latin(text)
    recall = rouge_l_recall()
    assert recall(text, text) == 1.0
    assert recall(text, "nothing of it") == 0.0


def test_half_an_answer_in_another_script() -> None:
    recall = rouge_l_recall()
    assert recall("Столица России — Москва", "Москва — столица Франции") == pytest.approx(1 / 3)
    assert recall("北京是首都", "北京不是首都") == 1.0
    assert recall("北京是首都", "东京是首都") == pytest.approx(4 / 5)


LATIN = [
    "The quick brown foxes aren't running; 3.5 km away!",
    "Jaime Vásquez, née Müller, wrote “Ångström’s Café” in São Paulo.",
    "nai\u0308ve cafe\u0301 ﬁne ½ x² µm ª",
    "Hsiao Yun-Hwa\u2019s 2nd novel\u200b is well-known",
    "ĐẶNG Thị İstanbul ſtrange",
]


def test_latin_text_has_exactly_the_published_tokens() -> None:
    from rouge_score import tokenizers

    published = tokenizers.DefaultTokenizer(use_stemmer=True)
    for text in LATIN:
        assert RougeTokens().tokenize(text) == published.tokenize(text), text
        assert not beyond_latin(text)


@pytest.mark.shared
def test_every_published_answer_of_tofu_keeps_its_number(shared_data: Path) -> None:
    from rouge_score import tokenizers

    published, ours = tokenizers.DefaultTokenizer(use_stemmer=True), RougeTokens()
    files = sorted((shared_data / "tofu").glob("*.jsonl")) + sorted((shared_data / "tofu").glob("*.json"))
    answers = [
        json.loads(line)["answer"]
        for path in files
        for line in path.read_text(encoding="utf-8").split("\n")[:200]
        if line.strip()
    ]
    assert answers
    for answer in answers:
        assert ours.tokenize(answer) == published.tokenize(answer)
