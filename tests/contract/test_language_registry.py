"""What holds for every registered method that trains causal language models."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny import save_tiny_bert
from tests.tiny_lm import save_tiny_llama, tiny_llama, tiny_texts, tiny_tokenizer

from vestige.data.corpora import read_corpus
from vestige.data.language_rows import LanguageRow, LanguageRows, language_rows
from vestige.errors import Diverged, InputError
from vestige.language import SequenceBatch
from vestige.methods import METHODS
from vestige.models.causal_lm import load_language_model
from vestige.models.checkpoints import save_trained
from vestige.training.sequences import SequenceScorer, still
from vestige.training.session import Session, Topic, begin, trainable, unlearn_language
from vestige.training.steps import weights_sha256

pytestmark = pytest.mark.train

NAMES = [method.name for method in METHODS if method.language is not None]
STEERED = ["adaptive_rmu", "rmu", "rsv"]
LOWERING = ["grad_ascent", "grad_diff", "grad_diff_kl", "npo", "simnpo", "dpo", "loku", "loku_fila", "spul"]
SMALL: dict[str, dict[str, Any]] = {
    "atu": {"align_steps": 6, "threshold": -0.9},
    "spul": {"tune_steps": 2, "virtual_tokens": 3, "encoder_hidden": 8},
    "loku_fila": {"importance_batches": 2},
}
COMMON: dict[str, Any] = {
    "batch_size": 3,
    "epochs": 1,
    "max_steps": 2,
    "warmup_steps": 0,
    "learning_rate": 1e-3,
    "select": "last",
    "lora": {"rank": 4, "alpha": 8.0, "dropout": 0.05},
}
TOKENIZER = tiny_tokenizer()


def rows_of(folder: Path, name: str, topic: str, seed: int) -> LanguageRows:
    """Texts of unequal lengths, one with a real end token inside, and questions whose answers end in one."""
    texts = tiny_texts(4, seed=seed, longest=14)
    texts[1] = f"{texts[1]} </s> {texts[0]}"
    lines: list[Mapping[str, str]] = [{"text": text} for text in texts]
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    plain = language_rows(read_corpus(path, name=name, role="forget"), TOKENIZER, topic=topic)
    questions = folder / f"{name}-questions.jsonl"
    asked = tiny_texts(4, seed=seed + 50, longest=8)
    pairs = [{"question": a, "answer": b} for a, b in zip(asked[:2], asked[2:], strict=True)]
    questions.write_text("".join(json.dumps(line) + "\n" for line in pairs))
    answered = language_rows(read_corpus(questions, name=name, role="forget"), TOKENIZER, topic=topic)
    moved = tuple(
        dataclasses.replace(row, id=f"q{row.id}", document=row.document + len(plain.documents))
        for row in answered
    )
    return dataclasses.replace(plain, rows=plain.rows + moved, documents=plain.documents + answered.documents)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Session]:
    """A session of a method over a new tiny model; the seed is 3."""
    folder = tmp_path_factory.mktemp("rows")
    encoder = str(save_tiny_bert(folder / "bert", dropout=0.0))
    topic = Topic(
        forget=rows_of(folder, "forget", "bank", 0),
        retain=rows_of(folder, "retain", "bank", 9),
        concept="lost card",
        keywords=("card", "pin"),
    )

    def session(name: str, *, dtype: str = "float32", changes: Any = None, **settings: Any) -> Session:
        method = METHODS.get(name)
        assert method.language is not None
        own = {"encoder": encoder} if name == "atu" else {}
        chosen = method.language.settings.model_validate({**COMMON, **SMALL.get(name, {}), **own, **settings})
        changed = dataclasses.replace(topic, **(changes or {}))
        model = tiny_llama(layers=3, dtype=dtype)
        return begin(model, TOKENIZER, method, chosen, {"bank": changed}, seed=3)

    return session


def prepare(session: Session) -> Session:
    use = session.objective.language
    assert use is not None
    if use.prepare is not None:
        use.prepare(session)
    return session


def scorer_of(session: Session, side: str = "right") -> SequenceScorer:
    """The session's scorer with steering vectors and refusals as the loop makes them."""
    from vestige.training import session as module

    scorer = session.scorer()
    scorer.side = side  # type: ignore[assignment]
    forget = list(session.topics["bank"].forget)
    plan = module.plan_topics({"bank": range(len(forget))}, {}, session.settings, seed=session.seed)
    module._read_reference(session, scorer, plan, forget, session.needs())
    return scorer


def shifted(session: Session) -> None:
    """Move every trainable parameter, so that theta is not the reference."""
    for name, value in sorted(trainable(session.model).items()):
        random = torch.Generator().manual_seed(len(name))
        value.data += 0.05 * torch.randn(value.shape, generator=random)


def terms(session: Session) -> dict[str, Any]:
    both = {"forget": session.forget, "retain": session.retain}
    return {name: both[name] for name in session.needs()}


def rows(session: Session, term: str) -> list[LanguageRow]:
    return list(getattr(session.topics["bank"], term))[:6]


def cut(batch: SequenceBatch, i: int) -> SequenceBatch:
    """One sequence of a batch."""
    assert batch.rows is not None
    at = batch.rows == i
    values = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
    by_position = ("log_probs", "gold", "ref_log_probs", "logits", "ref_logits")
    by_row = ("lengths", "hidden", "ref_hidden", "hidden_mask", "ref_target")
    for name, value in values.items():
        if value is not None and name in by_position:
            values[name] = value[at] if len(value) else value
        elif value is not None and name in by_row:
            values[name] = value[i : i + 1]
    values["rows"] = torch.zeros(int(at.sum()), dtype=torch.long)
    if batch.preferred is not None:
        values["preferred"] = cut(batch.preferred, i)
    return SequenceBatch(**values)


@pytest.fixture(scope="module")
def ended(made: Callable[..., Session]) -> dict[str, tuple[Session, dict[str, Any]]]:
    """Every method after three steps: (session, what was seen)."""
    found = {}
    for name in NAMES:
        session = prepare(made(name))
        before = {key: value.detach().clone() for key, value in session.model.named_parameters()}
        batch = rows(session, "forget")
        with session.reference(), still(session.model):
            reference = session.scorer().batch(batch).log_probs.clone()
            start = session.scorer().batch(batch).target_log_probs.mean().item()
        record, log = unlearn_language(session, prepared=True)
        found[name] = (
            session,
            {"before": before, "reference": reference, "start": start, "record": record, "log": log},
        )
    return found


@pytest.mark.parametrize("name", NAMES)
def test_terms_are_finite_with_finite_gradients(name: str, made: Callable[..., Session]) -> None:
    session = prepare(made(name))
    shifted(session)
    scorer = scorer_of(session)
    state = list(trainable(session.model).values())
    for term, loss in terms(session).items():
        batch = scorer.batch(rows(session, term), session.needs()[term], topic="bank", term=term)  # type: ignore[arg-type, index]
        value = loss(batch, session.settings)
        assert value.shape == ()
        assert value.dtype == torch.float32
        found = [g for g in torch.autograd.grad(value, state, allow_unused=True) if g is not None]
        assert all(torch.isfinite(gradient).all() for gradient in found)
        assert sum(float(gradient.abs().sum()) for gradient in found) > 0


@pytest.mark.parametrize("name", [*STEERED, "atu", "loku_fila", "obliviate", "spul"])
def test_a_model_in_half_precision_is_scored_in_full(name: str, made: Callable[..., Session]) -> None:
    """No square, exponential or sum over positions is made of 16-bit numbers."""
    session = prepare(made(name, dtype="bfloat16"))
    scorer = scorer_of(session)
    for term, loss in terms(session).items():
        batch = scorer.batch(rows(session, term), session.needs()[term], topic="bank", term=term)  # type: ignore[arg-type, index]
        value = loss(batch, session.settings)
        assert value.dtype == torch.float32
        assert torch.isfinite(value)


@pytest.mark.parametrize("name", NAMES)
def test_padding_side_and_batch_composition_change_no_loss(name: str, made: Callable[..., Session]) -> None:
    session = prepare(made(name))
    shifted(session)
    session.model.eval()
    right, left = scorer_of(session), scorer_of(session, "left")
    for term, loss in terms(session).items():
        chosen, needs = rows(session, term), session.needs()[term]  # type: ignore[index]
        batches = [
            scorer.batch(chosen, needs, topic="bank", term=term)  # type: ignore[arg-type]
            for scorer in (right, left)
        ]
        values = [loss(batch, session.settings) for batch in batches]
        torch.testing.assert_close(values[0], values[1], atol=2e-5, rtol=2e-5)
        for i in (0, 1, 4):
            alone = right.batch([chosen[i]], needs, topic="bank", term=term)  # type: ignore[arg-type]
            expected = loss(alone, session.settings)
            for batch in batches:
                found = loss(cut(batch, i), session.settings)
                torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_only_trainable_parameters_move_and_the_reference_never(
    name: str, ended: dict[str, tuple[Session, dict[str, Any]]]
) -> None:
    session, seen = ended[name]
    moved = 0
    for key, value in session.model.named_parameters():
        if value.requires_grad:
            moved += not torch.equal(value, seen["before"][key])
        else:
            assert torch.equal(value, seen["before"][key]), key
    assert moved > 0
    with session.reference(), still(session.model):
        after = session.scorer().batch(rows(session, "forget")).log_probs
    assert torch.equal(after, seen["reference"])
    assert seen["record"].weights_sha256 == weights_sha256(trainable(session.model))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_bytes(
    name: str, made: Callable[..., Session], ended: dict[str, tuple[Session, dict[str, Any]]]
) -> None:
    record, _ = unlearn_language(made(name))
    assert record.weights_sha256 == ended[name][1]["record"].weights_sha256


@pytest.mark.parametrize("name", NAMES)
def test_the_start_is_the_model_itself(name: str, ended: dict[str, tuple[Session, dict[str, Any]]]) -> None:
    """Adapters and rewritten weights together begin at the model given; SPUL at its fine-tuned one."""
    session, seen = ended[name]
    plain = SequenceScorer(tiny_llama(layers=3)).batch(rows(session, "forget")).log_probs
    if name == "spul":
        assert (plain - seen["reference"]).abs().max() > 1e-6
    else:
        torch.testing.assert_close(seen["reference"], plain, atol=2e-5, rtol=2e-5)


def test_every_promise_is_tested() -> None:
    assert sorted([*LOWERING, *STEERED, "atu", "obliviate"]) == NAMES


@pytest.mark.parametrize("name", LOWERING)
def test_steps_lower_the_forgotten_probability(name: str, made: Callable[..., Session]) -> None:
    session = prepare(made(name, max_steps=8, epochs=4, retain_weight=0.1))
    batch = rows(session, "forget")

    def likelihood() -> float:
        with still(session.model):
            return session.scorer().batch(batch).target_log_probs.mean().item()

    before = likelihood()
    unlearn_language(session, prepared=True)
    assert likelihood() < before


@pytest.mark.parametrize("name", [*STEERED, "atu", "obliviate"])
def test_steps_move_the_model_toward_the_target(name: str, made: Callable[..., Session]) -> None:
    session = prepare(made(name, max_steps=8, epochs=4, retain_weight=0.1, learning_rate=5e-3))
    scorer = scorer_of(session)
    needs = session.needs()["forget"]

    def loss() -> float:
        assert session.forget is not None
        with still(session.model):
            batch = scorer.batch(rows(session, "forget"), needs, topic="bank", term="forget")
            return session.forget(batch, session.settings).item()

    before = loss()
    unlearn_language(session, prepared=True)
    assert loss() < before


@pytest.mark.parametrize("name", NAMES)
def test_nan_stops_with_step_rows_and_rate_and_keeps_the_last_good_state(
    name: str, made: Callable[..., Session], tmp_path: Path
) -> None:
    session = prepare(made(name))
    forget = session.forget
    assert forget is not None
    calls = itertools.count(1)

    def poisoned(batch: SequenceBatch, settings: Any) -> torch.Tensor:
        return forget(batch, settings) * (float("nan") if next(calls) == 2 else 1.0)

    session.forget = poisoned
    with pytest.raises(Diverged, match="the state after step 1 was kept") as caught:
        unlearn_language(session, folder=tmp_path, prepared=True)
    assert caught.value.step == 2
    known = {row.id for row in (*session.topics["bank"].forget, *session.topics["bank"].retain)}
    assert set(caught.value.row_ids) <= known
    assert caught.value.learning_rate == pytest.approx(1e-3)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-00000001"]


def configurations() -> list[tuple[str, float]]:
    """Every method, and its noise variants at two levels where a retain term reads the reference."""
    found = []
    for name in NAMES:
        use = METHODS.get(name).language
        assert use is not None
        reads = use.needs(use.settings()).get("retain", frozenset())
        noisy = bool(reads & {"ref_scores", "ref_logits", "ref_hidden"})
        found += [(name, std) for std in ((0.0, 0.001, 0.1) if noisy else (0.0,))]
    return found


def test_no_two_configurations_agree_in_forget_and_retain_loss_and_start(
    made: Callable[..., Session],
) -> None:
    seen: dict[tuple[str, float], tuple[Any, ...]] = {}
    for name, noise in configurations():
        session = prepare(made(name, noise_std=noise))
        start = weights_sha256(dict(session.model.named_parameters()))
        shifted(session)
        session.model.eval()
        scorer = scorer_of(session)
        values: list[float | None] = []
        for term in ("forget", "retain"):
            if term not in session.needs():
                values.append(None)
                continue
            batch = scorer.batch(rows(session, term), session.needs()[term], topic="bank", term=term)  # type: ignore[arg-type, index]
            values.append(terms(session)[term](batch, session.settings).item())
        seen[name, noise] = (*values, start)
    for first, second in itertools.combinations(seen, 2):
        assert seen[first] != seen[second], (first, second)
        if first[0] == second[0]:  # noise is in the retain term alone
            assert seen[first][0] == seen[second][0]
            assert seen[first][1] != seen[second][1]


@pytest.mark.parametrize(
    ("name", "settings", "changes", "message"),
    [
        (
            "rmu",
            {"layer": 3},
            {},
            r"setting 'layer': found 3; needed 0 to 2; name a block that the model has",
        ),
        (
            "atu",
            {},
            {"concept": " "},
            r"topic 'bank': found no concept text; needed .*; give one with --concept",
        ),
        (
            "obliviate",
            {},
            {"keywords": ()},
            r"topic 'bank': found no keywords; needed .*; give them with --key",
        ),
        ("obliviate", {}, {"keywords": ("zebra",)}, r"keywords: found 'zebra', without a token"),
        ("spul", {"lora": None}, {}, r"setting lora: found no adapters; needed adapters for SPUL"),
        (
            "spul",
            {"virtual_tokens": 120},
            {},
            r"setting virtual_tokens: found 120 before sequences of \d+ tokens",
        ),
        ("loku_fila", {"lora": None}, {}, r"setting lora: found no adapters; .* or use the method 'loku'"),
        (
            "loku_fila",
            {"lora": {"rank": 64}},
            {},
            r"setting lora.rank: found 64; needed at most 16, the rank of",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    name: str, settings: dict[str, Any], changes: dict[str, Any], message: str, made: Callable[..., Session]
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        unlearn_language(made(name, changes=changes, **settings))
    assert "\n" not in str(caught.value)


def test_obliviates_tokens_are_said(ended: dict[str, tuple[Session, dict[str, Any]]]) -> None:
    session, _ = ended["obliviate"]
    assert session.notes[0].startswith("sensitive tokens of topic 'bank': card (")


def test_a_gate_that_stays_closed_is_said(made: Callable[..., Session]) -> None:
    session = made("atu", threshold=0.99)
    _, log = unlearn_language(session)
    assert [entry["forget_loss"] for entry in log] == [0.0, 0.0]
    assert session.notes[-1].startswith("warning: in 100 % of the steps no text came closer")


def test_own_phases_are_recorded(ended: dict[str, tuple[Session, dict[str, Any]]]) -> None:
    (aligned,) = ended["atu"][0].phases
    assert aligned["phase"] == "alignment"
    assert aligned["steps"] == 6
    (tuned,) = ended["spul"][0].phases
    assert tuned["steps"] == 2
    assert tuned["first_loss"] > 0


def test_filas_base_loses_what_its_adapters_start_with(made: Callable[..., Session]) -> None:
    plain = dict(tiny_llama(layers=3).named_parameters())
    session = prepare(made("loku_fila"))
    name = "model.layers.1.mlp.up_proj"
    layer = session.model.get_submodule(f"base_model.model.{name}")
    lost = plain[f"{name}.weight"] - layer.base_layer.weight
    assert lost.norm() > 0.01 * plain[f"{name}.weight"].norm()
    product = layer.scaling["default"] * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    torch.testing.assert_close(lost, product, atol=1e-6, rtol=1e-4)


RELOAD = """
import json, sys
from pathlib import Path
from vestige.data.language_rows import LanguageRow
from vestige.models.causal_lm import load_language_model
from vestige.training.sequences import SequenceScorer, still
asked = json.loads(sys.argv[2])
rows = [LanguageRow(str(i), tuple(ids), tuple(labels)) for i, (ids, labels) in enumerate(asked)]
out = {}
for folder in sorted(Path(sys.argv[1]).iterdir()):
    model = load_language_model(str(folder)).model
    with still(model):
        out[folder.name] = SequenceScorer(model).batch(rows).token_log_probs.tolist()
print(json.dumps(out))
"""


def test_a_new_process_reloads_each_from_its_folder_alone(
    tmp_path: Path, ended: dict[str, tuple[Session, dict[str, Any]]]
) -> None:
    """Moved to another place after saving: what is saved whole needs nothing else, an adapter its base."""
    base = load_language_model(str(save_tiny_llama(tmp_path / "base", layers=3)))
    expected = {}
    for name, (session, _) in ended.items():
        use = session.objective.language
        assert use is not None
        with still(session.model):
            batch = session.scorer().batch(rows(session, "forget"))
        expected[name] = batch.token_log_probs
        model = copy.deepcopy(session.model)
        save_trained(model, TOKENIZER, tmp_path / "first" / name, base=base.record, whole=use.saves_whole)
    (tmp_path / "first").rename(tmp_path / "moved")
    asked = [(row.ids, row.labels) for row in rows(ended["spul"][0], "forget")]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RELOAD, str(tmp_path / "moved"), json.dumps(asked)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "src")))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(found) == NAMES
    for name, values in expected.items():
        torch.testing.assert_close(torch.tensor(found[name]), values, atol=2e-5, rtol=2e-5, msg=name)
    assert (tmp_path / "moved/spul/base/model.safetensors").is_file()
    assert not (tmp_path / "moved/loku_fila/adapter_config.json").exists()
