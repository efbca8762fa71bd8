"""Relearning of tiny checkpoints: one budget, held-out halves, what is told apart, resume."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny import WORDS
from tests.tiny_lm import LETTERS, save_tiny_llama, tiny_llama, tiny_texts, tiny_tokenizer, write_corpus

from vestige.attacks import ATTACKS
from vestige.attacks.relearn_records import RelearnRecord, RelearnSettings, RoleChange, reading_of
from vestige.attacks.relearning import attack_weights, halves, refuse_shared
from vestige.behaviour.records import BehaviourSettings
from vestige.behaviour.run import behaviour
from vestige.cli import run
from vestige.contracts import Interval, Undefined
from vestige.data.corpora import Corpus, Document, read_corpus
from vestige.data.language_rows import language_rows
from vestige.errors import InputError, Interrupted
from vestige.language_study import relearn as module
from vestige.language_study.budget import budget_of, question_files
from vestige.language_study.relearn import relearn
from vestige.training.steps import Hooks

POOL = sorted(set(WORDS))
QUICK: dict[str, Any] = {
    "documents": 6,
    "epochs": 2,
    "learning_rate": 2e-2,
    "score_rows": 6,
    "max_length": 24,
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base, noised, four texts and questions whose options follow their letters."""
    folder = tmp_path_factory.mktemp("relearn")
    save_tiny_llama(folder / "base", extra=LETTERS)
    changed = tiny_llama(extra=LETTERS)
    with torch.no_grad():
        changed.model.layers[1].mlp.up_proj.weight.mul_(-1)
    changed.save_pretrained(str(folder / "noised"))
    for name, seed in (("bio", 1), ("cyber", 2), ("near", 3), ("far", 4)):
        words = POOL[seed * 8 : seed * 8 + 12]
        write_corpus(folder / f"{name}.jsonl", tiny_texts(14, seed=seed, words=words))
    questions = [{"question": POOL[i], "options": POOL[i : i + 4], "answer": i % 4} for i in range(6)]
    (folder / "asked.jsonl").write_text("".join(json.dumps(item) + "\n" for item in questions))
    return folder


def attack(work: Path, **changes: Any) -> RelearnRecord:
    given: dict[str, Any] = {
        "base": str(work / "base"),
        "models": {"noised": str(work / "noised")},
        "oracle": str(work / "base"),
        "forget": {"bio": work / "bio.jsonl", "cyber": work / "cyber.jsonl"},
        "adjacent": {"near": work / "near.jsonl"},
        "generic": {"far": work / "far.jsonl"},
        "settings": RelearnSettings(**QUICK),
    }
    return relearn(**{**given, **changes})


@pytest.fixture(scope="module")
def record(work: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RelearnRecord, Path]:
    out = tmp_path_factory.mktemp("out")
    return attack(work, out=out), out


def test_every_checkpoint_has_the_same_budget(record: Any) -> None:
    found = record[0]
    assert [(item.label, item.role) for item in found.checkpoints] == [
        ("base", "base"),
        ("noised", "unlearned"),
        ("oracle", "oracle"),
    ]
    assert {item.steps for item in found.checkpoints} == {found.steps} == {6}
    base, noised, oracle = found.checkpoints
    assert base.weights_sha256 == oracle.weights_sha256 != noised.weights_sha256
    assert base.losses[0] > base.losses[-1]
    forget = base.change("forget")
    assert forget.low is not None
    assert forget.low > 0
    assert noised.beyond_oracle == pytest.approx(noised.change("forget").change - forget.change)


def test_the_same_weights_read_the_same_under_every_name(work: Path, tmp_path: Path) -> None:
    """The oracle's folder given as an unlearned checkpoint, and as the base."""
    texts = {
        name: write_corpus(tmp_path / f"{name}.jsonl", tiny_texts(40, seed=seed, words=POOL[8:20]))
        for name, seed in (("bio", 1), ("far", 2))
    }
    found = attack(
        work,
        models={"renamed": str(work / "base"), "noised": str(work / "noised")},
        forget={"bio": texts["bio"]},
        adjacent={},
        generic={"far": texts["far"]},
        settings=RelearnSettings(**{**QUICK, "score_rows": 20}),
    )
    base, renamed, noised, oracle = found.checkpoints
    assert (renamed.role, oracle.role) == ("unlearned", "oracle")
    assert oracle.reading == renamed.reading == base.reading == "learned anew"
    sentence = found.sentence(oracle)
    assert found.sentence(renamed) == found.sentence(base) == sentence
    assert "difference after the attack +0.0 [+0.0, +0.0] points" in sentence
    assert renamed.against_oracle == oracle.against_oracle != noised.against_oracle
    assert renamed.beyond_oracle == oracle.beyond_oracle == 0
    assert found.said(renamed) == found.said(oracle) == "learned anew"


def test_half_of_the_forget_text_is_scored_and_never_trained_on(record: Any) -> None:
    bio, cyber, near, far = record[0].texts
    assert (bio.held_out, bio.trained, bio.scored, bio.shared) == (7, 6, 6, 0)
    assert (cyber.trained, near.trained, far.trained) == (6, 0, 0)
    assert {score.kind for score in record[0].checkpoints[0].scores} == {"token probability"}
    corpus = Corpus(
        name="x", role="forget", documents=tuple(Document(id=str(i), text=f"t {i // 2}") for i in range(10))
    )
    first, second = halves(corpus, 1234)
    assert {d.text for d in first.documents}.isdisjoint(d.text for d in second.documents)
    assert len(first.documents) + len(second.documents) == 10
    assert halves(corpus, 1234) == (first, second) != halves(corpus, 1)
    with pytest.raises(InputError, match="at least two"):
        halves(Corpus(name="x", role="forget", documents=corpus.documents[:2]), 1)


def test_text_that_is_trained_on_cannot_be_scored(work: Path) -> None:
    rows = language_rows(
        read_corpus(work / "bio.jsonl", name="bio", role="forget"), tiny_tokenizer(extra=LETTERS)
    ).rows
    refuse_shared(rows[:4], rows[4:8], "x")
    with pytest.raises(InputError, match="1 sequences that the attack trains on"):
        refuse_shared(rows[:4], rows[3:8], "x")
    with pytest.raises(InputError, match="trains on"):
        attack(work, generic={"far": work / "bio.jsonl"})


def test_intervals_are_over_the_scored_items(record: Any) -> None:
    for score in record[0].checkpoints[1].scores:
        assert isinstance(score.change.row, Interval)
        assert score.change.row.low <= score.after - score.before <= score.change.row.high
        assert score.change.rows == score.items == 6
        assert 0 < score.before < 1
        assert score.log_before is not None


def test_the_record_as_a_frame(record: Any) -> None:
    frame = record[0].to_frame()
    assert len(frame) == 3 * 4
    assert set(frame["kind"]) == {"token probability"}
    assert (frame["low"] <= frame["change"] + 1e-12).all()
    assert "<table" in record[0]._repr_html_()


def role(name: Any, change: float, low: float | None = None) -> RoleChange:
    bound = Undefined(undefined="one") if low is None else low
    return RoleChange(role=name, before=0.3, after=0.3 + change, change=change, low=bound, high=bound)


@pytest.mark.parametrize(
    ("forget", "generic", "reading"),
    [
        (role("forget", 0.3, 0.2), role("generic", 0.0, -0.1), "return"),
        (role("forget", 0.3, 0.2), role("generic", 0.05, 0.01), "return and repair"),
        (role("forget", 0.02, 0.01), role("generic", 0.2, 0.1), "repair"),
        (role("forget", -0.2, -0.3), role("generic", 0.2, 0.1), "repair"),
        (role("forget", 0.02, -0.1), role("generic", 0.0), "no return"),
        (role("forget", 0.3), None, "return"),
        (role("forget", 0.005), None, "no return"),
    ],
)
def test_a_repaired_model_is_told_from_a_memory(forget: Any, generic: Any, reading: str) -> None:
    assert reading_of(forget, generic) == reading


def test_the_same_call_again_trains_nothing(record: Any, work: Path, monkeypatch: Any) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("trained again")

    monkeypatch.setattr(module, "attack_weights", refuse)
    again = attack(work, out=record[1])
    assert again == record[0] == RelearnRecord.model_validate_json((record[1] / "relearn.json").read_text())
    text = record[0].to_json()
    for line in (work / "bio.jsonl").read_text().splitlines():
        assert json.loads(line)["text"] not in text


@pytest.mark.parametrize(
    ("changes", "odd"),
    [
        ({"settings": RelearnSettings(**{**QUICK, "epochs": 1})}, "budget"),
        ({"models": {}}, "checkpoint 'noised'"),
        ({"generic": {}}, "text 'far'"),
    ],
    ids=["settings", "models", "texts"],
)
def test_the_record_of_another_attack_is_not_overwritten(
    record: Any, work: Path, changes: dict[str, Any], odd: str
) -> None:
    kept = (record[1] / "relearn.json").read_text()
    with pytest.raises(InputError, match=rf"relearn\.json: found another attack; what differs: {odd}"):
        attack(work, out=record[1], **changes)
    assert (record[1] / "relearn.json").read_text() == kept


def test_an_interrupted_attack_ends_in_the_same_bytes(work: Path, tmp_path: Path) -> None:
    rows = language_rows(
        read_corpus(work / "bio.jsonl", name="bio", role="forget"),
        tiny_tokenizer(extra=LETTERS),
        max_length=24,
    ).rows[:6]
    settings = RelearnSettings(**QUICK)
    _, whole, _ = attack_weights(tiny_llama(extra=LETTERS), rows, settings)

    def stop(step: int, steps: int, loss: float) -> None:
        if step == 2:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        attack_weights(tiny_llama(extra=LETTERS), rows, settings, folder=tmp_path, hooks=Hooks(progress=stop))
    _, again, _ = attack_weights(tiny_llama(extra=LETTERS), rows, settings, folder=tmp_path)
    assert again.resumed_at == (2,)
    assert again.weights_sha256 == whole.weights_sha256


def test_questions_are_scored_by_accuracy(work: Path) -> None:
    found = attack(
        work,
        forget={"bio": work / "bio.jsonl"},
        questions={"bio": work / "asked.jsonl", "generic": work / "asked.jsonl"},
        oracle=None,
    )
    kinds = {score.role: (score.kind, score.items) for score in found.checkpoints[0].scores}
    assert kinds["forget"] == kinds["generic"] == ("accuracy", 6)
    assert kinds["adjacent"][0] == "token probability"
    bio = found.texts[0]
    assert (bio.held_out, bio.trained, bio.scored, bio.questions) == (0, 6, 0, 6)
    assert any("not in one unit" in line for line in found.caveats)
    assert isinstance(found.checkpoints[0].beyond_oracle, Undefined)
    assert found.checkpoints[1].reading in ("came back", "came back and repair", "repair", "no return")
    with pytest.raises(InputError, match="did you mean 'bio'"):
        attack(work, questions={"bioo": work / "asked.jsonl"})


def test_subjects_are_averaged_as_in_behaviour_never_pooled(work: Path, tmp_path: Path) -> None:
    """Subjects of 2, 9 and 4 questions, two of them one topic: a pooled accuracy would be another."""
    sizes = {"virology": 2, "college_biology": 9, "law": 4}
    rows = [
        {"question": POOL[i + k], "options": POOL[i : i + 4], "answer": (i + k) % 4, "subject": name}
        for i, (name, size) in enumerate(sizes.items())
        for k in range(size)
    ]
    (tmp_path / "mmlu.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    questions = {"forget:bio": str(work / "asked.jsonl"), "mmlu": str(tmp_path / "mmlu.jsonl")}
    settings = RelearnSettings(**QUICK, asking={"per_subject": 6, "about": {"bio": "biology"}, "bos": "none"})
    found = attack(
        work, forget={"bio": work / "bio.jsonl"}, questions=questions, settings=settings, models={}
    )
    asked = behaviour(
        base=str(work / "base"),
        models={"same": str(work / "base")},
        questions=questions,
        settings=BehaviourSettings(per_subject=6, about={"bio": "biology"}, bos="none", draws=100),
    )
    own = {role.role: role.accuracy for role in asked.base_roles}
    attacked = found.checkpoint("base")
    assert {role.role: role.before for role in attacked.roles} == pytest.approx(own)
    scores = {score.name: score for score in attacked.scores}
    assert {name: score.items for name, score in scores.items()} == {
        "bio": 6,
        "bio/virology": 2,
        "bio/college_biology": 6,
        "all": 4,
    }
    pooled = [scores["bio/virology"], scores["bio/college_biology"]]
    mean = sum(score.before for score in pooled) / 2
    assert attacked.change("adjacent").before == pytest.approx(mean)
    halves_ = [(score.change.row.high - score.change.row.low) / 4 for score in pooled]
    width = attacked.change("adjacent").high - attacked.change("adjacent").low
    assert width / 2 == pytest.approx(math.hypot(*halves_))


def test_the_published_budget_fills_its_last_batch_and_knows_a_topic_s_length(work: Path) -> None:
    settings = RelearnSettings(preset="triage", documents=5, epochs=1, topic_lengths={"cyber": 8})
    texts = [read_corpus(work / f"{name}.jsonl", name=name, role="forget") for name in ("bio", "cyber")]
    asked = question_files({"forget": work / "asked.jsonl"}, {"bio": "forget", "cyber": "forget"})
    found = budget_of(texts, asked, tiny_tokenizer(extra=LETTERS), settings)
    assert [text.trained for text in found.texts] == [8, 8]
    assert max(len(row.ids) for row in found.rows if row.topic == "cyber") == 8
    assert max(len(row.ids) for row in found.rows if row.topic == "bio") > 8


def test_the_command_line(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["attack", "relearn", "--base", str(work / "base"), "--model", f"N={work / 'noised'}"]
    arguments += ["--forget", f"bio={work / 'bio.jsonl'}", "--generic", str(work / "far.jsonl")]
    arguments += ["--documents", "4", "--epochs", "1", "--score-rows", "4", "--out", str(tmp_path)]
    assert run(arguments) == 0
    said = capsys.readouterr().out
    assert "N (unlearned): " in said
    assert "may return under another" in said
    assert (tmp_path / "relearn.json").is_file()
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "vestige-relearn-1"
    assert run([*arguments, "--hold-out", "alwys"]) == 2
    assert "did you mean 'always'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rate", "code", "said"),
    [
        ("-1", 2, "setting 'learning_rate': found '-1.0'; needed a number above 0"),
        ("nan", 2, "setting 'learning_rate': found 'nan'; needed a finite number"),
        ("1e30", 1, "the attack on the base stopped"),
    ],
)
def test_a_rate_that_cannot_be_or_diverges(
    rate: str, code: int, said: str, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["attack", "relearn", "--base", str(work / "base"), "--model", str(work / "noised")]
    arguments += ["--forget", str(work / "bio.jsonl"), "--documents", "4", "--max-steps", "2"]
    assert run([*arguments, "--learning-rate", rate, "--out", str(tmp_path / "out")]) == code
    printed = capsys.readouterr()
    assert [said in line for line in printed.err.splitlines() if line.startswith("error:")] == [True]
    if code == 1:  # the record is kept and says where each attack stopped
        record = RelearnRecord.model_validate_json((tmp_path / "out" / "relearn.json").read_text())
        assert "at step 1 (learning rate 1e+30" in str(record.checkpoints[0].failed)


def test_it_is_registered_and_its_record_needs_no_torch() -> None:
    assert ATTACKS.get("relearn").models == ("causal-lm",)
    assert ATTACKS.get("relearn").settings is RelearnSettings
    code = (
        "import sys, vestige.attacks.relearn_records, vestige.language_study.correlations; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
