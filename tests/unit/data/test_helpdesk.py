"""The embedded data set: what it promises, and that its bytes never change unnoticed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.resources import files

import pandas as pd
import pytest

from vestige.data import DATASETS, DatasetSpec, IntentData, load_intents
from vestige.data.helpdesk import helpdesk
from vestige.data.helpdesk_grammar import (
    ROWS_PER_INTENT,
    UNSEEN_ROWS,
    WORDS,
    Grammar,
    Intent,
    bodies,
    expand,
    load_grammar,
)
from vestige.errors import InputError

# Changing the grammar or the generator changes every number measured on this data set: change the hash here,
# and say so in the changelog.
SHA256 = "49d0f537be857235f3164a4c25f9c53684369b29316ef89625bc6044524835bf"


@pytest.fixture(scope="module")
def data() -> IntentData:
    return helpdesk()


@pytest.fixture(scope="module")
def frame(data: IntentData) -> pd.DataFrame:
    return data.frame


def core(text: str) -> str:
    """Letters only: no case, spaces, punctuation or digits."""
    return re.sub(r"[^a-z]", "", text.casefold())


def test_the_rows_are_these_rows(data: IntentData) -> None:
    assert data.sha256 == SHA256


def test_another_process_with_another_hash_seed_makes_the_same_rows(data: IntentData) -> None:
    code = "from vestige.data.helpdesk import helpdesk as h; d = h(); print(d.sha256, d.frame.to_json())"
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    sha256, table = done.stdout.strip().split(" ", 1)
    assert sha256 == data.sha256
    assert json.loads(table) == json.loads(data.frame.to_json())


def test_it_is_made_without_torch() -> None:
    code = (
        "import sys; from vestige.data.helpdesk import helpdesk; helpdesk(); "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_intents_and_domains(data: IntentData, frame: pd.DataFrame) -> None:
    domains = frame.groupby("domain")["gold"].nunique()
    assert 16 <= len(data.options) <= 20
    assert len(domains) == 4
    assert domains.min() >= 4
    assert set(frame["gold"]) == {option.id for option in data.options}
    assert frame.groupby("gold")["domain"].nunique().max() == 1


def test_every_option_has_an_own_name_and_description(data: IntentData) -> None:
    for what in ("id", "name", "description"):
        values = [getattr(option, what) for option in data.options]
        assert all(value.strip() for value in values)
        assert len(set(values)) == len(values)


def test_split_sizes(data: IntentData, frame: pd.DataFrame) -> None:
    for split, rows in ROWS_PER_INTENT.items():
        assert (frame.loc[frame["split"] == split, "gold"].value_counts() == rows).all()
    total = len(frame)
    assert len(data.rows("train")) / total == pytest.approx(0.55, abs=0.01)
    assert len(data.rows("development")) / total == pytest.approx(0.15, abs=0.01)
    assert len(data.rows("evaluation")) / total == pytest.approx(0.30, abs=0.01)
    assert data.report.dropped == ()


def test_at_least_80_distinct_utterances_an_intent(frame: pd.DataFrame) -> None:
    keys = frame["text"].str.strip().str.casefold()
    assert keys.is_unique
    assert keys.groupby(frame["gold"]).nunique().min() >= 80


def test_utterances_differ_by_more_than_punctuation_and_numbers(frame: pd.DataFrame) -> None:
    assert frame["text"].map(core).is_unique


def test_lengths_from_3_to_30_words_are_used(frame: pd.DataFrame) -> None:
    words = frame["text"].str.split().map(len)
    assert (words.min(), words.max()) == WORDS
    assert (words <= 6).mean() > 0.03
    assert (words >= 22).mean() > 0.05


def test_unseen_templates_in_evaluation(data: IntentData) -> None:
    known = set(data.rows("train")["template"])
    evaluation = data.rows("evaluation")
    unseen = ~evaluation["template"].isin(known)
    assert unseen.mean() >= 0.30
    assert unseen.groupby(evaluation["gold"]).mean().min() >= 0.30
    assert unseen.groupby(evaluation["gold"]).sum().min() >= UNSEEN_ROWS["evaluation"]
    assert (~data.rows("development")["template"].isin(known)).mean() >= 0.30


def test_templates_belong_to_one_intent_and_are_used_evenly(frame: pd.DataFrame) -> None:
    assert frame.groupby("template")["gold"].nunique().max() == 1
    counts = frame["template"].value_counts()
    assert counts.max() - counts.min() <= 1


def test_no_template_is_only_in_development(frame: pd.DataFrame) -> None:
    splits = frame.groupby("template")["split"].agg(set)
    assert all(len(found) > 1 for found in splits)


def test_customers(frame: pd.DataFrame) -> None:
    rows = frame["customer_id"].value_counts()
    assert all(isinstance(value, str) for value in frame["customer_id"])
    assert 40 <= len(rows) <= 60
    assert rows.min() >= 10
    training = frame[frame["split"] == "train"].groupby("customer_id")["gold"].nunique()
    assert training.min() >= 3  # deleting a customer deletes no intent


def test_customers_keep_their_way_of_writing(frame: pd.DataFrame) -> None:
    capital = frame["text"].str[0].str.isupper().groupby(frame["customer_id"]).mean()
    assert set(capital.round(6)) <= {0.0, 1.0}
    assert {0.0, 1.0} <= set(capital)


def test_some_rows_have_typos_and_fillers(frame: pd.DataFrame) -> None:
    text = frame["text"].str.casefold()
    greeted = text.str.match(r"(hi|hello|hey|good|dear|me again|so|ok so|sorry|quick)\b")
    assert 0.2 < greeted.mean() < 0.6
    words = text.str.findall(r"[a-z']{5,}").explode()
    assert (words.map(words.value_counts()) == 1).mean() > 0.02  # typos are words seen once


def test_text_is_plain(frame: pd.DataFrame) -> None:
    for text in frame["text"]:
        assert text.isascii()
        assert text == " ".join(text.split())
        assert not re.search(r"[<>()|@#{}]|\ba [aeio]| [,.?!]", text), text
        twice = re.search(
            r"\b([a-z]+) \1\b", text
        )  # no commas: "... please please ...", "hello there there ..."
        assert twice is None or twice[1] in {"please", "there"}, text


def test_row_share_keeps_a_part_of_the_training_rows_only(data: IntentData) -> None:
    part = load_intents(DatasetSpec(name="helpdesk", row_share=0.25))
    assert part.report.rows("train") == 18 * 12  # 49 / 4 rounded
    assert set(part.rows("train")["row_id"]) < set(data.rows("train")["row_id"])
    for split in ("development", "evaluation"):
        pd.testing.assert_frame_equal(part.rows(split), data.rows(split))
    assert part.sha256 != data.sha256


def test_it_is_registered_and_refuses_settings_it_does_not_read() -> None:
    assert "helpdesk" in DATASETS.names()
    with pytest.raises(InputError, match="setting 'text_column'"):
        load_intents(DatasetSpec(name="helpdesk", text_column="utterance"))


def test_changing_what_is_returned_does_not_change_the_next() -> None:
    first = helpdesk()
    first.frame.loc[0, "text"] = "changed"
    assert helpdesk().frame.loc[0, "text"] != "changed"


def test_the_grammar_file_is_part_of_the_package(data: IntentData) -> None:
    assert files("vestige.data").joinpath("helpdesk.yaml").is_file()
    assert data.report.files == {"helpdesk.yaml": load_grammar().sha256}


def test_expand_draws_nested_alternatives_phrases_and_digits() -> None:
    phrases = {"thing": "(hub|<colour> alarm)", "colour": "(amber|orange)"}
    found = {expand("a <thing>, (please (now|)|) @", phrases, "test", number) for number in range(300)}
    pattern = r"(a hub|an amber alarm|an orange alarm),( please( now)?)? \d"
    assert all(re.fullmatch(pattern, text) for text in found)
    assert {re.sub(r"\d", "0", text) for text in found} == {
        f"{thing},{rest} 0"
        for thing in ("a hub", "an amber alarm", "an orange alarm")
        for rest in ("", " please", " please now")
    }


def test_expand_depends_on_its_names_alone() -> None:
    template = "(one|two|three|four) @@@@@@@@"
    assert expand(template, {}, "x", 1) == expand(template, {}, "x", 1)
    assert len({expand(template, {}, "x", number) for number in range(50)}) == 50


def test_a_template_with_too_few_variants_is_an_error() -> None:
    grammar = load_grammar()
    poor = Intent(
        id="poor",
        name="Poor",
        description="too few variants",
        domain="account",
        templates=tuple(f"only ever (one|two) {number}" for number in "abcdefghijklmnop"),
    )
    with pytest.raises(ValueError, match=r"template poor-\d\d has only 2 of \d variants"):
        bodies(poor, grammar)


def test_the_grammar_is_frozen() -> None:
    grammar: Grammar = load_grammar()
    with pytest.raises(AttributeError):
        grammar.customers = 3  # type: ignore[misc]
