"""Sequences of a language model: masks, losses against hand computation, padding, noise, end tokens."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny_lm import tiny_llama, tiny_tokenizer

from vestige.data.chat import chat_text, turn_spans
from vestige.data.corpora import Corpus, Document
from vestige.data.language_rows import (
    REFUSALS,
    LanguageRow,
    LanguageRows,
    blocks,
    language_rows,
    refusal_rows,
)
from vestige.errors import InputError
from vestige.language import PUBLISHED_READING, LanguageSettings, ReadingSettings, SequenceBatch
from vestige.methods import METHODS
from vestige.training.losses import kl_from_reference, nll
from vestige.training.sequences import SequenceScorer
from vestige.training.session import plan_topics

pytestmark = pytest.mark.train

CHAT = (
    "{% for m in messages %}{{ '<s> ' if loop.first else '' }}{{ m['role'] }} : {{ m['content'] }} </s> "
    "{% endfor %}{% if add_generation_prompt %}assistant : {% endif %}"
)


def rows_of(*documents: Document, chat: str | None = None, **options: object) -> LanguageRows:
    corpus = Corpus(name="text", role="forget", documents=documents)
    return language_rows(corpus, tiny_tokenizer(chat_template=chat), **options)  # type: ignore[arg-type]


def words(row: LanguageRow, *, labelled: bool) -> str:
    tokens = tiny_tokenizer().convert_ids_to_tokens(list(row.ids))
    return " ".join(t for t, mark in zip(tokens, row.labels, strict=True) if mark or not labelled)


QA = Document("q", "", question="what is my pin", answer="the new code")


def test_only_the_answer_and_its_end_are_predicted() -> None:
    row = rows_of(Document("q", "", question="is my card lost", answer="lost card"))[0]
    assert words(row, labelled=False) == "<s> Question : is my card lost Answer : lost card </s>"
    assert words(row, labelled=True) == "lost card </s>"
    cut = rows_of(Document("q", "", question="is my card lost", answer="lost card"), max_length=10)
    assert words(cut[0], labelled=True) == "lost"
    assert cut.truncated == 1
    with pytest.raises(InputError, match=r"no tokens to predict within 5 \(0 empty rows, 1 cut off\)"):
        rows_of(Document("q", "", question="is my card lost", answer="lost card"), max_length=5)


def test_empty_answers_are_left_out_and_counted() -> None:
    rows = rows_of(
        Document("1", "", question="pin", answer=" "), Document("2", "", question="pin", answer="code")
    )
    assert (len(rows), rows.empty) == (1, 1)


def test_a_conversation_has_one_beginning_token_and_predicts_the_assistant_alone() -> None:
    turns = (("user", "pin"), ("assistant", "new code"), ("user", "card"), ("assistant", "lost"))
    row = rows_of(Document("m", "x", messages=turns), chat=CHAT)[0]
    assert row.ids.count(1) == 1
    assert words(row, labelled=True) == "new code </s> lost </s>"
    pair = rows_of(
        Document("q", "", question="pin", answer="new code"), chat=CHAT, reading=ReadingSettings(text="chat")
    )[0]
    assert (pair.ids.count(1), words(pair, labelled=True)) == (1, "new code </s>")
    with pytest.raises(InputError, match="chat template"):
        rows_of(Document("m", "x", messages=turns))


LAST_IN_FULL = (
    "{% for m in messages %}{{ m['role'] if loop.last else '' }} {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant : {% endif %}"
)
"""Renders a turn otherwise when another follows."""


def test_an_answer_is_found_behind_a_prompt_that_says_the_same() -> None:
    turns = (("user", "card pin"), ("assistant", "card"), ("user", "pin card"), ("assistant", "pin"))
    row = rows_of(Document("m", "x", messages=turns), chat=LAST_IN_FULL)[0]
    marked = [i for i, label in enumerate(row.labels) if label]
    text = tiny_tokenizer().convert_ids_to_tokens(list(row.ids))
    assert [text[i] for i in marked[:1]] == ["card"]
    assert text[: marked[0]].count("card") == 1  # the user's comes first
    assert text[marked[-1]] == "pin"
    assert text[: marked[-1]].count("pin") == 2


PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if loop.last and m['role'] == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m['content'] | trim }}</s>\n{% endfor %}" + PROMPT
)
ENDED_ONCE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}\n{% endfor %}</s>" + PROMPT
)
THOUGHTS_CUT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{{ m['content'] if loop.last else m['content'].split('</think>')[-1] }}</s>\n{% endfor %}" + PROMPT
)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (THINKING, ["a</s>", "<think>\n\n</think>\n\nstart</s>"]),
        (ENDED_ONCE, ["a", "start"]),
        (THOUGHTS_CUT, ["a </s>", "start</s>"]),
    ],
    ids=["thinks in the last turn", "ends once", "cuts thoughts"],
)
def test_what_is_predicted_is_what_the_assistant_says(template: str, said: list[str]) -> None:
    """Not its words where they stand by chance, in a mark of the template or in a user's turn."""
    turns = (("user", "a start"), ("assistant", " a "), ("user", "start a"), ("assistant", "start"))
    tokenizer, document = tiny_tokenizer(chat_template=template), Document("m", "x", messages=turns)
    text = chat_text(tokenizer, document, subject="x")
    found = [text[low:high].strip() for low, high in turn_spans(tokenizer, document, text, "x")]
    assert found == said
    assert text.index("\n", text.index("assistant")) < turn_spans(tokenizer, document, text, "x")[0][0]


def test_a_turn_that_the_template_rewrites_is_refused() -> None:
    turns = (("user", "a"), ("assistant", "<think>b</think>a"), ("user", "a"), ("assistant", "a"))
    with pytest.raises(InputError, match="leaves an assistant's turn out or rewrites it"):
        rows_of(Document("m", "x", messages=turns), chat=THOUGHTS_CUT)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{% for i in range(10**9) %}x{% endfor %}", "refuses"),
        (
            "{% for i in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}",
            "not done after 0.2",
        ),
        ("{{ messages[7]['content'] }}", "refuses"),
        ("{{ messages + 1 }}", "TypeError"),
    ],
)
def test_a_template_that_fails_or_does_not_end_is_one_line(
    template: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vestige.data.chat.PATIENCE", 0.2)
    with pytest.raises(InputError, match=message) as caught:
        rows_of(Document("m", "x", messages=(("user", "a"), ("assistant", "a"))), chat=template)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", r"row m: found turns that the .* \(roles must alt"),
        ("{% for m in messages %}{{ m['content'] ", r"row m: found turns that the chat template refuses"),
        ("{{ messages[0]['content'] }}", r"row m: found a chat template that leaves an assistant's turn out"),
    ],
)
def test_a_template_that_does_not_render_the_turns(template: str, message: str) -> None:
    turns = (("user", "card pin"), ("assistant", "lost card"))
    with pytest.raises(InputError, match=message):
        rows_of(Document("m", "x", messages=turns), chat=template)


def test_long_text_is_read_in_windows_that_hold_every_token_once() -> None:
    text = " ".join(["card", "lost", "pin"] * 7)
    rows = rows_of(Document("t", text), max_length=6)
    body = [token for row in rows for token in row.ids[1:]]
    assert all(len(row.ids) <= 6 and row.ids[0] == 1 and not row.labels[0] for row in rows)
    assert body == tiny_tokenizer()(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize(
    ("reading", "predicted"),
    [
        ({}, "lost card </s>"),
        ({"end_token": False}, "lost card"),
        ({"scored": "answer line", "end_token": False}, "Answer : lost card"),
        (PUBLISHED_READING, "Question : is my card lost Answer : lost card"),
    ],
)
def test_what_of_a_question_and_its_answer_is_predicted(reading: dict[str, Any], predicted: str) -> None:
    document = Document("q", "", question="is my card lost", answer="lost card")
    row = rows_of(document, reading=ReadingSettings(**reading))[0]
    assert words(row, labelled=True) == predicted


def test_published_windows_lose_the_token_that_the_beginning_one_displaces() -> None:
    """A document of 20 tokens in slices of 6 (6, 6, 6, 2): each full one is read to its fifth token."""
    text = " ".join(["card", "lost", "pin", "code", "my"] * 4)
    ids = tiny_tokenizer()(text, add_special_tokens=False)["input_ids"]
    cut = ReadingSettings(windows="cut")
    rows = rows_of(Document("t", text), max_length=6, reading=cut)
    assert [row.ids for row in rows] == [
        (1, *ids[0:5]), (1, *ids[6:11]), (1, *ids[12:17]), (1, *ids[18:20])
    ]  # fmt: skip
    fits = rows_of(Document("t", " ".join(text.split()[:6])), max_length=6, reading=cut)
    assert [row.ids for row in fits] == [(1, *ids[:5])]


def test_blocks_join_documents_with_end_tokens_and_drop_the_rest() -> None:
    corpus = Corpus(
        name="t", role="forget", documents=(Document("1", "card lost pin"), Document("2", "my code is new"))
    )
    tokenizer = tiny_tokenizer()
    one, two = (tokenizer(d.text, add_special_tokens=False)["input_ids"] for d in corpus.documents)
    found = blocks(corpus, tokenizer, length=4)
    assert [row.ids for row in found] == [(*one, 2), tuple(two)]
    assert {row.labels for row in found} == {(False, True, True, True)}
    assert found.notes == ("the last 1 tokens fill no block and were dropped",)
    with pytest.raises(InputError, match="found 9 tokens; needed at least one block of 16"):
        blocks(corpus, tokenizer, length=16)


def test_published_refusals_are_the_first_of_the_list_in_every_batch() -> None:
    rows = rows_of(QA, Document("t", "card lost"), QA, QA, QA)
    own = ("my card", "my pin", "my code")
    made = refusal_rows(rows, tiny_tokenizer(), seed=3, refusals=own, first=2, alone=True)
    assert [words(row, labelled=False) for row in made] == [f"<s> {own[k]}" for k in (0, 1, 0, 1, 0)]


def test_refusals_keep_the_prompt_and_depend_on_row_and_seed_alone() -> None:
    both = rows_of(QA, Document("t", "card lost"))
    made = refusal_rows(both, tiny_tokenizer(), seed=3)
    assert made == refusal_rows(both, tiny_tokenizer(), seed=3)
    assert made[1:] == refusal_rows(both.only([1]), tiny_tokenizer(), seed=3)
    start = both[0].labels.index(True)
    assert made[0].ids[:start] == both[0].ids[:start]
    assert all(made[1].labels[1:])
    assert len({refusal_rows(both, tiny_tokenizer(), seed=s)[1].ids for s in range(8)}) > 1
    assert len(set(REFUSALS)) == len(REFUSALS)


def hand_made(
    probabilities: list[list[float]], gold: list[int], lengths: list[int], **more: object
) -> SequenceBatch:
    owners = [i for i, n in enumerate(lengths) for _ in range(n)]
    return SequenceBatch(
        log_probs=torch.tensor(probabilities, dtype=torch.float64).log(),
        gold=torch.tensor(gold),
        lengths=torch.tensor(lengths),
        rows=torch.tensor(owners),
        **more,  # type: ignore[arg-type]
    )


P = [[0.5, 0.25, 0.25], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]]


def test_losses_by_hand_on_three_tokens() -> None:
    """Two sequences: of one token with p 0.5, and of two with p 0.6 and 0.8."""
    first, second = math.log(0.5), (math.log(0.6) + math.log(0.8)) / 2
    ref = torch.tensor([-1.0, -0.5], dtype=torch.float64)
    batch = hand_made(P, [0, 2, 1], [1, 2], ref_target=ref)
    assert nll(batch.target_log_probs).item() == pytest.approx(-(first + second) / 2)
    summed = hand_made(P, [0, 2, 1], [1, 2], reduction="sum")
    assert nll(summed.target_log_probs).item() == pytest.approx(-(first + 2 * second) / 2)

    def preference(margin: float) -> float:
        return -20 * math.log(1 / (1 + math.exp(-margin)))

    def value(name: str, given: SequenceBatch) -> float:
        use = METHODS.get(name).language
        assert use is not None
        term = use.forget or METHODS.get(name).forget
        assert term is not None
        return float(term(given, use.settings()))

    npo = (preference(-0.1 * (first + 1.0)) + preference(-0.1 * (second + 0.5))) / 2
    assert value("npo", batch) == pytest.approx(npo)
    simnpo = (preference(-0.1 * first) + preference(-0.1 * second)) / 2
    assert value("simnpo", batch) == pytest.approx(simnpo)
    assert value("simnpo", summed) == pytest.approx(simnpo)  # its length is its own
    # One sigmoid of the token mean over the whole batch, as in preset triage: three tokens, lengths 1 and 2.
    triage = METHODS.get("npo").language.settings(sigmoid="batch")  # type: ignore[union-attr]
    forget = METHODS.get("npo").forget
    assert forget is not None
    assert float(forget(batch, triage)) == pytest.approx(
        preference(-0.1 * ((first + 1.0) + 2 * (second + 0.5)) / 3)
    )
    better = hand_made(P, [1, 0, 0], [2, 1], ref_target=torch.tensor([-2.0, -2.0], dtype=torch.float64))
    gains = [(math.log(0.25) + math.log(0.2)) / 2 + 2.0, math.log(0.1) + 2.0]
    dpo = preference(0.1 * (gains[0] - first - 1.0)) + preference(0.1 * (gains[1] - second - 0.5))
    preferred = hand_made(P, [0, 2, 1], [1, 2], ref_target=ref, preferred=better)
    assert value("dpo", preferred) == pytest.approx(dpo / 2)
    margin = (2 * gains[0] + gains[1]) / 3 - ((first + 1.0) + 2 * (second + 0.5)) / 3
    dpo_forget = METHODS.get("dpo").forget
    assert dpo_forget is not None
    assert float(dpo_forget(preferred, triage)) == pytest.approx(preference(0.1 * margin))
    q = torch.tensor([[0.4, 0.4, 0.2]] * 3, dtype=torch.float64)
    kl = sum(a * math.log(a / b) for row in P for a, b in zip([0.4, 0.4, 0.2], row, strict=True)) / 3
    assert kl_from_reference(batch.log_probs, q.log()).item() == pytest.approx(kl)


END = LanguageRow("end", (1, 5, 2, 7, 2), (False, True, True, True, True))
LONG = LanguageRow("long", (1, 4, 5, 6, 7, 8, 9, 10), (False, False, False, True, True, True, True, True))


def test_padding_and_company_change_no_loss_and_end_tokens_count() -> None:
    """The pad token is the end token; what is padding is said by the mask alone."""
    model = tiny_llama(dtype="float64")
    needs = frozenset({"scores", "hidden"})
    alone = [SequenceScorer(model, pad_id=2).batch([row], needs) for row in (END, LONG)]  # type: ignore[arg-type]
    assert alone[0].lengths is not None
    assert alone[0].lengths.tolist() == [4]
    for side in ("right", "left"):
        for order in ([0, 1], [1, 0]):
            made = SequenceScorer(model, pad_id=2, side=side).batch([(END, LONG)[i] for i in order], needs)  # type: ignore[arg-type]
            for place, i in enumerate(order):
                torch.testing.assert_close(made.target_log_probs[place], alone[i].target_log_probs[0])
                assert made.hidden is not None
                assert made.hidden_mask is not None
                assert alone[i].hidden is not None
                torch.testing.assert_close(
                    made.hidden[place][made.hidden_mask[place]],
                    alone[i].hidden[0],  # type: ignore[index]
                )
            assert int(made.gold.min()) >= 0


def test_noise_is_on_the_reference_of_the_retain_term_alone_and_two_levels_differ() -> None:
    model = tiny_llama()
    wanted = frozenset({"scores", "ref_scores"})

    def gap(std: float, term: str, position: int = 0) -> torch.Tensor:
        made = SequenceScorer(model, noise_std=std, seed=1).batch([END], wanted, term=term, position=position)  # type: ignore[arg-type]
        assert made.ref_log_probs is not None
        return (made.ref_log_probs - made.log_probs).detach()

    assert gap(0.1, "forget").abs().max() == 0
    assert gap(0.1, "retain").abs().max() > 1e-4
    assert torch.equal(gap(0.1, "retain"), gap(0.1, "retain"))
    assert not torch.equal(gap(0.1, "retain"), gap(0.1, "retain", 1))
    assert not torch.equal(gap(0.1, "retain"), gap(0.2, "retain"))


def test_topics_come_in_turn_and_the_smallest_one_ends_the_epoch() -> None:
    settings = LanguageSettings(epochs=1, shuffle=False, batch_size=4)
    forget = {"a": list(range(10)), "b": list(range(10, 15))}
    plan = plan_topics(forget, {"a": [0, 1, 2, 3, 4], "b": [5]}, settings, seed=0)
    assert [step.forget for step in plan] == [(0, 1, 2, 3), (10, 11, 12, 13), (4, 5, 6, 7), (14,)]
    assert [step.retain for step in plan] == [(0, 1, 2, 3), (5,), (4,), (5,)]
    assert [step.last_of_epoch for step in plan] == [False, False, False, True]
    tofu = plan_topics({"t": range(400)}, {}, settings, seed=0)
    assert len(tofu) == 100
    assert len(plan_topics({"t": range(40)}, {}, settings, seed=0)) == 10
    big = {"bio": range(3000), "cyber": range(4000)}
    assert len(plan_topics(big, {}, settings, seed=0)) == 500
