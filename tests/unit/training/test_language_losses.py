"""Losses of the methods for language models against hand computation on three tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny_lm import tiny_tokenizer

from vestige.errors import InputError
from vestige.language import SequenceBatch
from vestige.methods import METHODS
from vestige.methods.atu import closed_share, warn
from vestige.methods.atu import forget_term as gate
from vestige.methods.obliviate import forget_term as muted_kl
from vestige.methods.obliviate import kept as obliviate_kept
from vestige.methods.obliviate import sensitive_tokens
from vestige.methods.preference import pull, say_unbounded
from vestige.methods.rsv import normal_direction
from vestige.training import losses
from vestige.training.low_rank import relative_importance, squared_gradients, weighted_split

P = [[0.5, 0.25, 0.25], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]]
REF = [[0.25, 0.5, 0.25], [0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]
LEVELS = (0.5, -1.0, 2.0)
"""What is added to each position's logits: a softmax does not see it, a mean squared difference does."""


def three_tokens(**changes: Any) -> SequenceBatch:
    """Two sequences, of two tokens and of one, over a vocabulary of three. gold: 0, 1 and 1."""
    log_p = torch.tensor(P, dtype=torch.float64).log()
    log_ref = torch.tensor(REF, dtype=torch.float64).log()
    levels = torch.tensor(LEVELS, dtype=torch.float64)[:, None]
    values: dict[str, Any] = {
        "log_probs": log_p,
        "gold": torch.tensor([0, 1, 1]),
        "ref_log_probs": log_ref,
        "lengths": torch.tensor([2, 1]),
        "rows": torch.tensor([0, 0, 1]),
        "logits": log_p + levels,
        "ref_logits": log_ref,
        "ref_target": torch.tensor([(math.log(0.25) * 2) / 2, math.log(0.25)], dtype=torch.float64),
        "topic": "bank",
    }
    return SequenceBatch(**values | changes)


def terms(name: str) -> tuple[Any, Any]:
    method = METHODS.get(name)
    assert method.language is not None
    return method.language.forget or method.forget, method.language.retain or method.retain


def settings(name: str, **changes: Any) -> Any:
    use = METHODS.get(name).language
    assert use is not None
    return use.settings(**changes)


LIKELIHOOD = ((math.log(0.5) + math.log(0.2)) / 2 + math.log(0.8)) / 2


def test_gradient_methods_weigh_sequences_alike_whatever_their_length() -> None:
    for name in ("grad_ascent", "grad_diff"):
        forget, _ = terms(name)
        assert forget(three_tokens(), settings(name)).item() == pytest.approx(LIKELIHOOD)
    retain = terms("grad_diff")[1](three_tokens(), settings("grad_diff"))
    assert retain.item() == pytest.approx(-LIKELIHOOD)
    summed = three_tokens(reduction="sum")
    for name in ("grad_diff", "npo", "simnpo"):  # what is kept is a token mean, whatever the forget term sums
        assert terms(name)[1](summed, settings(name)).item() == pytest.approx(-LIKELIHOOD)
    assert terms("grad_ascent")[0](summed, settings("grad_ascent")).item() == pytest.approx(
        (math.log(0.5) + math.log(0.2) + math.log(0.8)) / 2
    )


def test_kl_is_the_mean_over_real_positions() -> None:
    expected = [sum(r * math.log(r / p) for p, r in zip(one, ref, strict=True)) for one, ref in zip(P, REF)]  # noqa: B905
    found = terms("grad_diff_kl")[1](three_tokens(), settings("grad_diff_kl"))
    assert found.item() == pytest.approx(sum(expected) / 3)


def test_npo_by_hand() -> None:
    beta = 2.0
    theta = [(math.log(0.5) + math.log(0.2)) / 2, math.log(0.8)]
    ref = [math.log(0.25), math.log(0.25)]
    expected = sum(math.log(1 + math.exp(beta * (t - r))) for t, r in zip(theta, ref, strict=True)) / beta
    found = terms("npo")[0](three_tokens(), settings("npo", beta=beta))
    assert found.item() == pytest.approx(expected)


def test_loku_by_hand() -> None:
    # 1 + p(y) - the largest other: 1.25, 0.6 and 1.7; the first two are one sequence
    forget, retain = terms("loku")
    assert forget(three_tokens(), settings("loku")).item() == pytest.approx((0.925 + 1.7) / 2)
    assert retain(three_tokens(), settings("loku")).item() == pytest.approx(-LIKELIHOOD)
    assert terms("loku_fila")[0] is forget


def test_the_hinge_stays_finite_where_a_token_is_certain() -> None:
    logits = torch.tensor([[800.0, 0.0, -5.0]], requires_grad=True)
    value = losses.inverted_hinge(
        logits.log_softmax(-1), torch.tensor([0]), torch.tensor([0]), torch.tensor([1])
    )
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.item() == pytest.approx(2.0)
    assert torch.isfinite(gradient).all()


def test_obliviate_by_hand() -> None:
    expected = 0.0
    for p, level in zip(P, LEVELS, strict=True):
        logits = [math.log(x) + level for x in p]
        logits[1] = 0.0
        total = sum(map(math.exp, logits))
        q = [math.exp(x) / total for x in logits]
        expected += sum(a * math.log(a / b) for a, b in zip(q, p, strict=True)) / 3
    batch = three_tokens()
    assert muted_kl(batch, settings("obliviate"), torch.tensor([1])).item() == pytest.approx(expected)
    squares = [
        (math.log(a) + level - math.log(b)) ** 2
        for p, ref, level in zip(P, REF, LEVELS, strict=True)
        for a, b in zip(p, ref, strict=True)
    ]
    # the reference's likeliest tokens are 1, 2 and 0
    entropy = -(math.log(0.25) + math.log(0.6) + math.log(0.1)) / 3
    found = terms("obliviate")[1](batch, settings("obliviate", lambda_1=0.2, lambda_2=0.7))
    assert found.item() == pytest.approx(0.2 * sum(squares) / 9 + 0.7 * entropy)
    without = -(math.log(0.25) + math.log(0.1)) / 2  # the second position's likeliest token is the end token
    skipped = obliviate_kept(batch, settings("obliviate"), [2])
    assert skipped.item() == pytest.approx(0.2 * sum(squares) / 9 + 0.7 * without)
    none = muted_kl(batch, settings("obliviate"), torch.tensor([], dtype=torch.long))
    assert none.item() == pytest.approx(0, abs=1e-12)


def test_the_muted_target_takes_no_gradient() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5]], requires_grad=True)
    losses.kl_to_muted(logits.log_softmax(-1), logits, torch.tensor([1])).backward()
    q = torch.tensor([1.0, 0.0, 0.5]).softmax(-1)
    torch.testing.assert_close(logits.grad, (logits.softmax(-1) - q).detach()[:1])


def test_spul_by_hand() -> None:
    forget, retain = terms("spul")
    batch = three_tokens()
    assert forget(batch, settings("spul")).item() == pytest.approx(LIKELIHOOD)
    apart = [sum(p * math.log(p / r) for p, r in zip(one, ref, strict=True)) for one, ref in zip(P, REF)]  # noqa: B905
    chosen = settings("spul", retain_weight=3.0, beta=0.5, topic_weights={"other": 9.0})
    assert retain(batch, chosen).item() == pytest.approx(-3 * LIKELIHOOD + 0.5 * sum(apart) / 3)
    chosen = settings("spul", retain_weight=3.0, beta=0.5, topic_weights={"bank": 0.0})
    assert retain(batch, chosen).item() == pytest.approx(0.5 * sum(apart) / 3)
    reverse = [sum(r * math.log(r / p) for p, r in zip(one, ref, strict=True)) for one, ref in zip(P, REF)]  # noqa: B905
    published = settings("spul", retain_weight=0.0, beta=0.5, divergence="frozen to prompted")
    assert retain(batch, published).item() == pytest.approx(0.5 * sum(reverse) / 3)


HIDDEN = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]], [[0.0, 3.0], [7.0, 7.0], [8.0, 8.0]]])
REF_HIDDEN = torch.tensor([[[1.0, 2.0], [0.0, 1.0], [0.0, 0.0]], [[0.0, 1.0], [7.0, 0.0], [0.0, 8.0]]])
MASK = torch.tensor([[True, True, False], [True, False, False]])


def of_states() -> SequenceBatch:
    return three_tokens(
        hidden=HIDDEN, ref_hidden=REF_HIDDEN, hidden_mask=MASK, steer=torch.tensor([1.0, 0.0])
    )


def test_rmu_and_its_adaptive_variant_by_hand() -> None:
    for name in ("rmu", "adaptive_rmu"):
        forget, retain = terms(name)
        # |h - (1, 0)|^2 / 2: 0 and 1, one token of 5
        assert forget(of_states(), settings(name)).item() == pytest.approx((0.5 + 5.0) / 2)
        # |h - h_ref|^2 / 2: 2 and 0, one token of 2
        assert retain(of_states(), settings(name)).item() == pytest.approx((1.0 + 2.0) / 2)


def test_rsv_by_hand() -> None:
    forget, retain = terms("rsv")
    # |h - h_ref - (1, 0)|^2 / 2: (1 + 4) / 2 and 1 / 2, one token of (1 + 4) / 2
    assert forget(of_states(), settings("rsv")).item() == pytest.approx((1.5 + 2.5) / 2)
    assert retain(of_states(), settings("rsv")).item() == pytest.approx((1.0 + 2.0) / 2)


def test_steering_vectors() -> None:
    made = {}
    for name in ("rmu", "adaptive_rmu", "rsv"):
        use = METHODS.get(name).language
        assert use is not None
        assert use.steer is not None
        found = use.steer(use.settings(**use.triage), np.random.default_rng(0), 6, 5.0)
        made[name] = found
    assert np.linalg.norm(made["rmu"]) == pytest.approx(6.5)
    assert np.linalg.norm(made["adaptive_rmu"]) == pytest.approx(3.0 * 5.0)
    assert np.linalg.norm(made["rsv"]) == pytest.approx(10.0)
    assert (made["rmu"] > 0).all()
    assert (made["rsv"] < 0).any()
    drawn = np.random.default_rng(0).standard_normal(6)
    np.testing.assert_allclose(normal_direction(np.random.default_rng(0), 6), drawn / np.linalg.norm(drawn))


def test_atu_by_hand() -> None:
    # mean states (0.5, 0.5) and (0, 3); cosines to (1, 0): 0.7071 and 0
    concept = torch.tensor([1.0, 0.0])
    expected = (math.sqrt(0.5) - 0.5) / 2
    found = gate(of_states(), settings("atu", threshold=0.5), torch.nn.Identity(), concept)
    assert found.item() == pytest.approx(expected)
    assert losses.negative_cosine(losses.pooled(HIDDEN, MASK), concept).item() == pytest.approx(
        -math.sqrt(0.5) / 2
    )


class Noted:
    """What of a session a method's last words read and write."""

    def __init__(self, name: str, **changes: Any) -> None:
        self.settings = settings(name, **changes)
        self.notes: list[str] = []


def test_atu_warns_where_the_gate_stayed_closed() -> None:
    few = [{"forget_loss": 0.0}] * 19 + [{"forget_loss": 0.1}]
    assert closed_share(few) == 0.95
    session = Noted("atu", threshold=0.5)
    warn(session, few)  # type: ignore[arg-type]
    assert session.notes[0].startswith("warning: in 95 % of the steps")
    session = Noted("atu", threshold=0.5)
    warn(session, few[10:])  # type: ignore[arg-type]
    assert session.notes == []


def test_npo_says_where_its_bound_never_acted() -> None:
    """At p = p_ref the pull is 1, and so is GradDiff's always; at beta 0.1 it falls to 1/2 at 11 nats a
    token."""

    def npo(loss: float, beta: float) -> float:
        return (2 / beta) * math.log(
            1 + math.exp(-beta * loss)
        )  # the loss after so many nats a token are lost

    assert [pull(npo(lost, 0.1), 0.1) for lost in (0.0, math.log(3) / 0.1)] == pytest.approx([1.0, 0.5])
    for lost, said in ((1.0, True), (5.0, False)):
        session = Noted("npo")
        log = [{"forget_loss": npo(at, session.settings.beta)} for at in (0.0, lost / 2, lost)]
        say_unbounded(session, log)  # type: ignore[arg-type]
        assert [note.endswith("GradDiff; raise beta, or set reduction=sum") for note in session.notes] == (
            [True] if said else []
        )


def test_the_weighted_split_by_hand() -> None:
    weight = torch.tensor([[3.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    importance = relative_importance(
        torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64),
        torch.tensor([[0.5, 1.0], [1.0, 1.0]], dtype=torch.float64),
    )
    assert importance.tolist() == pytest.approx(
        [math.sqrt(1 / 0.50001 + 2 / 1.00001), math.sqrt(1 / 1.00001)]
    )
    importance = torch.tensor([2.0, 1.0], dtype=torch.float64)
    # diag(v) W = diag(6, 1): one singular value of 6, halved by the scaling
    first, second = weighted_split(weight, importance, 1, 2.0)
    assert first.shape == (1, 2)
    assert second.shape == (2, 1)
    sign = float(first[0, 0].sign())
    assert (sign * first).tolist()[0] == pytest.approx([math.sqrt(3), 0])
    assert (sign * second)[:, 0].tolist() == pytest.approx([math.sqrt(3) / 2.00001, 0])
    rest = weight - 2.0 * second @ first
    assert rest[0, 0].item() == pytest.approx(3 - 6 / 2.00001)
    assert rest[1].tolist() == [0.0, 1.0]


def test_importances_are_weighted_by_tokens() -> None:
    weight = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)

    def batch(tokens: int, factor: float) -> SequenceBatch:
        logits = torch.stack([factor * weight, torch.zeros_like(weight)], -1).expand(tokens, 2)
        return SequenceBatch(log_probs=logits.log_softmax(-1), gold=torch.zeros(tokens, dtype=torch.long))

    def gradient(factor: float) -> float:
        return -factor * (1 - 1 / (1 + math.exp(-factor * 0.3)))

    (found,) = squared_gradients([lambda: batch(1, 1.0), lambda: batch(3, 2.0)], [weight])
    expected = (gradient(1.0) ** 2 + 3 * gradient(2.0) ** 2) / 4
    assert found.item() == pytest.approx(expected)


def test_sensitive_tokens() -> None:
    tokenizer = tiny_tokenizer()
    ids = sensitive_tokens("bank", ["card pin", "fee card"], tokenizer)
    assert [tokenizer.convert_ids_to_tokens(i) for i in ids] == ["card", "fee", "pin"]
    start = sensitive_tokens("bank", ["card pin", "fee card"], tokenizer, inside=False)
    assert start == ids  # a tokenizer of whole words has the same tokens after a space
    with pytest.raises(InputError, match=r"topic 'bank': found no keywords; needed .*--keywords"):
        sensitive_tokens("bank", [], tokenizer)
    with pytest.raises(InputError, match=r"keywords: found 'zebra', without a token"):
        sensitive_tokens("bank", ["card", "zebra"], tokenizer)
    with pytest.raises(InputError, match=r"found ' ', without a token"):
        sensitive_tokens("bank", [" "], tokenizer)
