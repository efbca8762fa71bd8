"""Options, renderings and candidate sets."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.contracts import Undefined
from vestige.decision.schema import Option, Schema, candidate_set, opaque_codes
from vestige.errors import InputError

NAMES = [f"intent_{letter}" for letter in "abcdefghijklmnopqrst"]


def schema(rendering: str = "semantic", map_seed: int | None = None, names: list[str] = NAMES) -> Schema:
    return Schema(tuple(Option(name, name) for name in names), rendering, map_seed)  # type: ignore[arg-type]


def embedding(count: int = len(NAMES), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 8))


def test_semantic_text_is_the_name_with_spaces_and_the_description_after_a_colon() -> None:
    options = (Option("a", "card_not_working"), Option("b", "card_lost", "The card is gone."))
    assert Schema(options).texts() == ("card not working", "card lost: The card is gone.")


def test_a_name_of_underscores_only_keeps_a_text() -> None:
    assert Option("x", "__").text == "__"


def test_opaque_codes_come_from_the_map_seed_and_never_from_names() -> None:
    first = schema("opaque", 3)
    renamed = Schema(tuple(Option(f"other {i}", f"n{i}", "d") for i in range(len(NAMES))), "opaque", 3)
    assert first.texts() == renamed.texts() == opaque_codes(len(NAMES), 3)
    assert first.texts() != schema("opaque", 4).texts()
    assert len(set(first.texts())) == len(NAMES)
    assert first.ids == schema().ids
    assert first.semantic_texts() == schema().texts()
    assert {len(code) for code in first.texts()} == {5}


def test_subset_and_permutation_keep_each_options_code() -> None:
    base = schema("opaque", 1)
    code = dict(zip(base.ids, base.texts(), strict=True))
    part = base.subset([NAMES[7], NAMES[2]])
    assert part.ids == (NAMES[2], NAMES[7])
    assert part.texts() == (code[NAMES[2]], code[NAMES[7]])
    turned = base.permuted(range(len(base) - 1, -1, -1))
    assert turned.ids == tuple(reversed(base.ids))
    assert dict(zip(turned.ids, turned.texts(), strict=True)) == code


def test_stored_schema_is_equal() -> None:
    for one in (schema(), schema("opaque", 9).subset(NAMES[3:6])):
        assert Schema.from_dict(one.as_dict()) == one
        assert Schema.from_dict(one.as_dict()).sha256 == one.sha256


def test_identity_changes_with_everything_a_model_reads() -> None:
    hashes = {
        schema().sha256,
        schema("opaque", 1).sha256,
        schema("opaque", 2).sha256,
        schema().permuted(range(len(NAMES) - 1, -1, -1)).sha256,
        schema(names=NAMES[:-1]).sha256,
        Schema(tuple(Option(name, name, "d") for name in NAMES)).sha256,
    }
    assert len(hashes) == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schema(()), "no options"),
        (lambda: Schema((Option("a", "a"), Option("a", "b"))), "more than once: 'a'"),
        (lambda: Schema((Option("a_b", "a_b"), Option("a b", "a b"))), "the same text 'a b'"),
        (lambda: Option("a", " \n"), "blank name"),
        (lambda: Option("", "a"), "blank id"),
        (lambda: schema("opaque"), "map_seed"),
        (lambda: schema("semantic", 1), "only the opaque rendering"),
        (lambda: schema("opague", 1), "did you mean 'opaque'?"),
        (lambda: schema().index("intent_aa"), "did you mean 'intent_a'?"),
        (lambda: schema().subset(["intent_z9"]), "not in the schema"),
        (lambda: candidate_set("S3", schema(), []), "S0, S1 or S2"),  # type: ignore[arg-type]
        (lambda: candidate_set("S1", schema(), NAMES[:7], embedding()), "13 retained options"),
        (lambda: candidate_set("S2", schema(), NAMES[:5], embedding()), "5 retained options that are no"),
    ],
)
def test_bad_schemas_are_one_line_errors(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "label", ["a/b", "a,b", "line\nbreak", "🎉", "a__b", "<script>x</script>", "x" * 10_000]
)
def test_any_visible_label_is_an_option(label: str) -> None:
    one = Schema((Option(label, label), Option("other", "other")))
    assert one.index(label) == 0
    assert Schema.from_dict(one.as_dict()) == one


def test_s0_is_all_and_needs_no_embedding() -> None:
    assert candidate_set("S0", schema(), [NAMES[0]]) == tuple(NAMES)


def test_s1_takes_the_nearest_retained_options() -> None:
    vectors = np.eye(20)
    for near, base in ((1, 0), (2, 0), (11, 10), (12, 10)):
        vectors[near] += 3 * vectors[base]
    assert candidate_set("S1", schema(), [NAMES[0], NAMES[10]], vectors) == tuple(
        NAMES[i] for i in (0, 1, 2, 10, 11, 12)
    )


def test_shared_neighbours_are_taken_once_in_rounds() -> None:
    # angles on a circle: both forgotten options (0 and 1) have options 2 and 3 nearest
    angles = np.array([0.0, 0.02, 0.03, 0.05, 0.2, 0.3, 2.0, 2.5])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    names = NAMES[:8]
    assert candidate_set("S1", schema(names=names), names[:2], vectors) == tuple(names[:6])


def test_candidate_sets_are_undefined_without_forgotten_classes() -> None:
    for kind in ("S1", "S2"):
        assert isinstance(candidate_set(kind, schema(), [], embedding()), Undefined)


def test_an_embedding_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be \(20, d\)"):
        candidate_set("S1", schema(), [NAMES[0]], embedding(19))


@settings(max_examples=40, deadline=None)
@given(
    st.permutations(range(20)),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True),
    st.integers(0, 1000),
)
def test_candidate_sets_do_not_depend_on_order_and_have_the_stated_sizes(
    order: list[int], lost: list[str], seed: int
) -> None:
    vectors = embedding(seed=seed)
    near = candidate_set("S1", schema(), lost, vectors, seed)
    far = candidate_set("S2", schema(), lost, vectors, seed)
    assert not isinstance(near, Undefined)
    assert not isinstance(far, Undefined)
    assert len(near) == len(far) == 3 * len(lost)
    assert set(near) & set(far) == set(lost)
    turned = schema().permuted(order)
    for kind, members in (("S1", near), ("S2", far)):
        again = candidate_set(kind, turned, lost, vectors[order], seed)  # type: ignore[arg-type]
        assert not isinstance(again, Undefined)
        assert set(again) == set(members)
        assert list(again) == [option_id for option_id in turned.ids if option_id in members]


def test_codes_hold_no_words() -> None:
    assert all(re.fullmatch(r"[bcdfghjkmnpqrstvwxz2-9]{5}", code) for code in opaque_codes(300, 17))
