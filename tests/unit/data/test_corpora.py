"""Corpora: what is read, what is refused in one line, and how units are sampled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vestige.data.corpora import (
    Corpus,
    Document,
    draw_sample,
    length_matched,
    read_corpus,
    shared_documents,
    truncated,
)
from vestige.errors import InputError


class Letters:
    """A tokenizer of characters: `a` is 10, ...; adds token 1 before a text when `bos`."""

    bos_token_id = 1
    eos_token_id = 2
    bos_token = "<"
    chat_template: str | None = None

    def __init__(self, *, bos: bool = True, template: str = "") -> None:
        self.adds = bos
        self.template = template
        self.chat_template = template or None

    def __call__(self, text: str, add_special_tokens: bool = True, verbose: bool = True) -> Any:
        ids = [{"<": 1, ">": 2}.get(char, ord(char)) for char in text]
        return {"input_ids": [1, *ids] if self.adds and add_special_tokens else ids}

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join({1: "<", 2: ">"}.get(i, chr(i)) for i in ids)

    def apply_chat_template(
        self, turns: list[dict[str, str]], tokenize: bool, add_generation_prompt: bool
    ) -> str:
        return self.template + "".join(f"[{turn['role']}]{turn['content']}" for turn in turns)


def corpus(texts: list[str], name: str = "c") -> Corpus:
    documents = tuple(Document(str(i), text) for i, text in enumerate(texts))
    return Corpus(name=name, role="forget", documents=documents)


def several(n: int, length: int = 5) -> list[str]:
    return [f"{i:03d}" + "x" * (length - 3) for i in range(n)]


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_formats(tmp_path: Path) -> None:
    import pandas as pd

    rows = [{"text": "one"}, {"text": " "}, {"text": "two"}]
    jsonl = write(tmp_path / "a.jsonl", rows)
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    pd.DataFrame(rows).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.txt").write_text("one\n \ntwo\n")
    for path in (jsonl, tmp_path / "a.csv", tmp_path / "a.parquet", tmp_path / "a.txt"):
        found = read_corpus(path, name="a", role="forget")
        assert [document.text for document in found.documents] == ["one", "two"]
        assert found.empty == 1
        assert len(found.sha256) == 64


def test_questions_and_answers_become_one_text(tmp_path: Path) -> None:
    path = write(tmp_path / "qa.jsonl", [{"question": "Who?", "answer": "Nobody."}])
    document = read_corpus(path, name="qa", role="forget").documents[0]
    assert document.text == "Question: Who?\nAnswer: Nobody."
    assert (document.question, document.answer) == ("Who?", "Nobody.")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", "an empty file"),
        ("a.txt", b"", "an empty file"),
        ("a.txt", b"good\nb\xff\xfed\n", "line 2.*byte 0xff, which is not UTF-8.*convert it"),
        ("a.jsonl", b'{"text": "\xff"}\n', "a.jsonl, line 1.*UTF-8"),
        ("a.jsonl", b'{"words": "x"}\n', "columns 'words'.*question and answer.*name the text column"),
        ("a.txt", b" \n\t\n", "2 documents, all empty"),
        ("a.docx", b"x", r"suffix '\.docx'"),
    ],
)
def test_bad_files_get_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        read_corpus(tmp_path / name, name="a", role="forget")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("column", "answers"), [("choices", [2, 0, 1]), ("options", ["C", "A", "b"])], ids=["position", "letter"]
)
def test_multiple_choice_questions_are_no_text(tmp_path: Path, column: str, answers: list[Any]) -> None:
    path = tmp_path / "mc.jsonl"

    def write(answers: list[Any], **more: str) -> None:
        rows = [
            {"question": f"Who is {n}?", column: ["Ada", "Bob", "Cy"], "answer": answer, **more}
            for n, answer in enumerate(answers)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    write(answers)
    for role in ("forget", "generic"):
        with pytest.raises(
            InputError, match=r"multiple-choice questions.*; write a file of question"
        ) as error:
            read_corpus(path, name="mc", role=role)
        assert "\n" not in str(error.value)
    write(["Ada", "Bob", "Cy"])
    assert [document.answer for document in read_corpus(path, name="mc", role="forget").documents] == [
        "Ada",
        "Bob",
        "Cy",
    ]
    write(answers, text="A passage.")
    assert read_corpus(path, name="mc", role="forget").documents[0].text == "A passage."


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for name in ("a.txt", "a.jsonl"):
        with pytest.raises(InputError, match="no such file"):
            read_corpus(tmp_path / name, name="a", role="forget")


def test_subsets_are_disjoint_when_there_are_enough_documents() -> None:
    sample = draw_sample(corpus(several(30)), Letters(), units=10, subsets=3, max_length=20)
    drawn = [unit.document_id for subset in sample.subsets for unit in subset]
    assert len(set(drawn)) == 30
    assert sample.overlap == 0
    assert not sample.coincide


def test_overlap_is_the_share_of_common_tokens() -> None:
    sample = draw_sample(corpus(several(400)), Letters(), units=200, subsets=3, max_length=20)
    assert sample.overlap == pytest.approx(0.5, abs=0.06)
    first, second = ({unit.document_id for unit in subset} for subset in sample.subsets[:2])
    assert len(first) == 200
    assert first != second


def test_subsets_of_few_short_documents_coincide() -> None:
    sample = draw_sample(corpus(several(3)), Letters(), units=200, subsets=3, max_length=20)
    assert [len(subset) for subset in sample.subsets] == [3, 3, 3]
    assert sample.coincide


def test_long_documents_are_cycled_with_new_windows() -> None:
    texts = ["".join(chr(100 + i % 50) for i in range(1000)), *several(2)]
    sample = draw_sample(corpus(texts), Letters(), units=20, subsets=2, max_length=50)
    assert [len(subset) for subset in sample.subsets] == [20, 20]
    assert sample.windowed == 1
    windows = [unit for unit in sample.subsets[0] if unit.document_id == "0"]
    assert len(windows) == 18
    assert len({unit.start for unit in windows}) > 10
    for unit in windows:
        assert len(unit.ids) == 50
        assert unit.ids[0] == 1
        assert unit.ids[1:] == tuple(ord(char) for char in texts[0][unit.start : unit.start + 49])
        assert unit.own == unit.ids[1:]
    assert 0 < sample.overlap < 1


def test_samples_depend_on_the_seed_and_the_corpus_alone() -> None:
    texts = several(50)
    one = draw_sample(corpus(texts), Letters(), units=10, max_length=20)
    assert one.subsets == draw_sample(corpus(texts), Letters(), units=10, max_length=20).subsets
    assert one.subsets != draw_sample(corpus(texts), Letters(), units=10, max_length=20, seed=18).subsets


def test_documents_of_one_token_are_skipped_and_counted() -> None:
    sample = draw_sample(corpus(["a", "bc", "d"]), Letters(bos=False), units=5, max_length=20)
    assert (sample.documents, sample.one_token) == (1, 2)
    with_bos = draw_sample(corpus(["a", "bc"]), Letters(), units=5, max_length=20)
    assert (with_bos.documents, with_bos.one_token) == (2, 0)
    with pytest.raises(InputError, match="2 documents, none of two tokens"):
        draw_sample(corpus(["a", "b"]), Letters(bos=False), units=5, max_length=20)


def test_without_a_beginning_token_windows_are_all_text() -> None:
    sample = draw_sample(corpus(["abcdefghij"]), Letters(bos=False), units=3, subsets=1, max_length=4)
    assert all(len(unit.ids) == 4 and 1 not in unit.ids for unit in sample.subsets[0])


def test_a_beginning_token_written_twice_is_made_one() -> None:
    sample = draw_sample(corpus(["<<abc"]), Letters(), units=1, subsets=1, max_length=20)
    assert sample.subsets[0][0].ids == (1, 97, 98, 99)
    assert sample.notes == ("2 beginning tokens at the start of a text were made one",)
    once = draw_sample(corpus(["<abc"]), Letters(), units=1, subsets=1, max_length=20)
    assert once.subsets[0][0].ids == (1, 97, 98, 99)


def test_a_chat_template_that_adds_one_more_beginning_token() -> None:
    documents = (Document("0", "Question: q\nAnswer: a", "q", "a"),)
    chats = Corpus(name="c", role="forget", documents=documents)
    for template, bos in (("<", True), ("<", False), ("", True)):
        tokenizer = Letters(bos=bos, template=template or " ")
        sample = draw_sample(chats, tokenizer, units=1, subsets=1, max_length=50, text_format="chat")
        ids = sample.subsets[0][0].ids
        assert ids.count(1) == 1
        assert ids[0] == 1
        assert tokenizer.decode(list(ids[1:])).strip() == "[user]q[assistant]a"
        assert bool(sample.notes) == (template == "<" and bos)
    with pytest.raises(InputError, match="a tokenizer without a chat template"):
        draw_sample(chats, Letters(), text_format="chat")


def test_end_tokens_in_the_text_stay() -> None:
    sample = draw_sample(corpus(["a>b>"]), Letters(), units=1, subsets=1, max_length=20)
    assert sample.subsets[0][0].ids == (1, 97, 2, 98, 2)


def test_cutting_on_the_right() -> None:
    units = draw_sample(corpus(["abcdef"]), Letters(), units=1, subsets=1, max_length=20).subsets[0]
    assert truncated(units, 3)[0].ids == (1, 97, 98)
    assert truncated(units, 30) == units


def test_matched_lengths_are_the_same_in_every_corpus() -> None:
    long, short = several(40, 30), several(40, 10)
    samples = {
        name: draw_sample(corpus(texts, name), Letters(), units=10, max_length=50)
        for name, texts in (("long", long), ("short", [text[: 4 + i % 7] for i, text in enumerate(short)]))
    }
    matched = length_matched(samples)
    for one, two in zip(matched["long"].subsets, matched["short"].subsets, strict=True):
        assert sorted(len(unit.ids) for unit in one) == sorted(len(unit.ids) for unit in two)
    assert matched["long"].lengths == matched["short"].lengths


def test_shared_documents() -> None:
    assert shared_documents(corpus(["a b", "c"]), corpus([" a  b\n", "d"])) == 1


def test_tofu(shared_data: Path) -> None:
    found = read_corpus(shared_data / "tofu" / "forget10.jsonl", name="tofu", role="forget")
    assert len(found.documents) == 400
    sample = draw_sample(found, Letters(), units=200, max_length=1024)
    assert sample.overlap == pytest.approx(0.5, abs=0.05)
