"""Questions and TOFU asked of tiny models: the record, what is kept, the command line, bad input."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.tiny import WORDS
from tests.tiny_lm import LETTERS, save_tiny_llama, tiny_llama, tiny_tokenizer

import vestige
from vestige.behaviour.records import BehaviourRecord, BehaviourSettings, TofuSettings
from vestige.behaviour.run import behaviour
from vestige.behaviour.tables import summary_lines, tripartite_rows
from vestige.cli import run
from vestige.contracts import Interval, Undefined
from vestige.data.questions import read_questions
from vestige.errors import InputError
from vestige.footprint.questions import answer
from vestige.models.causal_lm import LanguageModel, language_model

SETTINGS = BehaviourSettings(draws=400, tofu=TofuSettings(max_new_tokens=4, power_draws=50))
SECRET = "stolen"


def model(seed: int = 0, label: str = "base") -> LanguageModel:
    return language_model(
        tiny_llama(layers=1, seed=seed, extra=LETTERS), tiny_tokenizer(extra=LETTERS), label=label
    )


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def ask(path: Path, n: int, *, seed: int = 0, subject: str | None = None) -> Path:
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        options = rng.sample(sorted(set(WORDS)), 4)
        row = {"question": " ".join(rng.choices(WORDS, k=5)), "options": options, "answer": rng.randrange(4)}
        rows.append(row | ({"subject": subject} if subject else {}))
    return write(path, rows)


def tofu(path: Path, n: int = 6, *, seed: int = 0) -> Path:
    rng = random.Random(seed)

    def words(k: int) -> str:
        return " ".join(rng.choices(WORDS, k=k))

    return write(
        path,
        [
            {
                "question": words(4),
                "answer": words(3),
                "paraphrased_answer": words(3),
                "perturbed_answer": [words(3), words(2)],
            }
            for _ in range(n)
        ],
    )


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("questions")
    return {
        "forget:bio": ask(folder / "bio.jsonl", 12, seed=1),
        "forget:cyber": ask(folder / "cyber.jsonl", 10, seed=2),
        "adjacent:bio": [ask(folder / "virology.jsonl", 8, seed=3), ask(folder / "biology.jsonl", 9, seed=4)],
        "adjacent:cyber": ask(folder / "security.jsonl", 7, seed=5),
        "generic": ask(folder / "generic.jsonl", 10, seed=6),
    }


def test_the_record_is_whole_and_its_numbers_follow_from_the_answers(
    sources: dict[str, Any], tmp_path: Path
) -> None:
    base, after = model(), model(3, "changed")
    record = vestige.behaviour(
        base=base, models={"changed": after, "same": base}, questions=sources, settings=SETTINGS, out=tmp_path
    )
    assert isinstance(record, BehaviourRecord)
    text = (tmp_path / "behaviour.json").read_text()
    assert BehaviourRecord.model_validate_json(text) == record
    assert SECRET not in text
    changed, same = record.checkpoints
    for part in (same.loss.delta_f, same.loss.delta_a, same.loss.delta_g, same.loss.b_gap):
        assert part.value == 0
        assert isinstance(part.interval, Interval)
        assert (part.interval.low, part.interval.high) == (0, 0)
    right = {}
    for key, files in sources.items():
        for path in files if isinstance(files, list) else [files]:
            right[path.stem] = [
                answer(m.model, m.tokenizer, read_questions(path)).accuracy for m in (base, after)
            ]
            assert key
    f = [(right["bio"][k] + right["cyber"][k]) / 2 for k in (0, 1)]
    a = [((right["virology"][k] + right["biology"][k]) / 2 + right["security"][k]) / 2 for k in (0, 1)]
    assert changed.loss.delta_f.value == pytest.approx(100 * (f[0] - f[1]) / f[0])
    assert changed.loss.b_gap.value == pytest.approx(100 * (f[0] - f[1]) / f[0] - 100 * (a[0] - a[1]) / a[0])
    roles = {entry.role: entry for entry in changed.roles}
    assert roles["adjacent"].accuracy == pytest.approx(a[1])
    assert roles["adjacent"].topics["bio"] == pytest.approx((right["virology"][1] + right["biology"][1]) / 2)
    interval = changed.loss.b_gap.interval
    assert isinstance(interval, Interval)
    assert (interval.draws, interval.seed) == (400, 17)
    assert "paired question bootstrap" in interval.kind
    assert interval.low <= changed.loss.b_gap.value <= interval.high
    for before, entry in zip(record.base_subjects, changed.subjects, strict=True):
        assert entry.correct - before.correct == entry.gained - entry.lost
        assert entry.interval.low < entry.accuracy + 1e-9
    assert [entry.role for entry in record.headroom] == ["forget", "adjacent", "generic"]
    assert all(entry.chance == 0.25 for entry in record.headroom)
    assert isinstance(changed.loss.relation, Undefined)
    assert len(tripartite_rows(record)) == 3
    assert len(record.to_frame()) == 3 * 6
    assert "B-Gap" in record._repr_html_()
    assert any("guessing gives 25.0%" in line for line in summary_lines(record))


def test_the_same_call_again_takes_what_is_there(
    sources: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, after = model(), model(3, "changed")
    only = {"forget": sources["forget:bio"], "adjacent": sources["adjacent:cyber"]}

    def measured(out: Path = tmp_path) -> BehaviourRecord:
        cache = tmp_path / "cache"
        return behaviour(base=base, models=[after], questions=only, settings=SETTINGS, out=out, cache=cache)

    first = measured()
    assert first.from_cache == 0
    import vestige.behaviour.asking as asking

    monkeypatch.setattr(asking, "answer", None)  # would fail if anything were asked again
    second = measured()
    assert second.from_cache == 4
    assert second.checkpoints == first.checkpoints
    monkeypatch.undo()
    # Another model, or one changed question, is asked.
    with torch.no_grad():
        next(iter(after.model.parameters())).add_(0.5)
    other = language_model(after.model, after.tokenizer, label="changed")
    third = behaviour(base=base, models=[other], questions=only, settings=SETTINGS, out=tmp_path)
    assert third.from_cache == 2
    rows = [json.loads(line) for line in sources["forget:bio"].read_text().splitlines()]
    rows[0]["answer"] = (rows[0]["answer"] + 1) % 4
    only["forget"] = write(tmp_path / "bio.jsonl", rows)
    kept = (tmp_path / "behaviour.json").read_text()
    with pytest.raises(InputError, match=r"behaviour\.json: found answers .* differs: questions all/bio"):
        measured()
    assert (tmp_path / "behaviour.json").read_text() == kept
    assert measured(tmp_path / "other").from_cache == 2


def test_tofu_with_and_without_an_oracle(tmp_path: Path) -> None:
    sets = {name: tofu(tmp_path / f"{name}.jsonl", seed=k) for k, name in enumerate(("forget", "retain"))}
    sets |= {
        name: tofu(tmp_path / f"{name}.jsonl", seed=k + 5)
        for k, name in enumerate(("real_authors", "world_facts"))
    }
    pytest.importorskip("rouge_score")
    record = behaviour(
        base=model(), models=[model(3, "changed")], oracle=model(4, "gold"), tofu=sets, settings=SETTINGS
    )
    changed, oracle = record.checkpoints
    assert oracle.role == "oracle"
    assert not isinstance(changed.tofu, Undefined)
    quality = changed.tofu.forget_quality
    assert not isinstance(quality, Undefined)
    assert (quality.unlearned, quality.oracle) == (6, 6)
    assert isinstance(quality.power, float)
    assert isinstance(quality.memory_power, float)
    assert quality.reading in ("told apart", "undetermined")  # six rows cannot show a quarter of the memory
    said = " ".join(summary_lines(record))
    assert "is told apart from the oracle" in said or "Undetermined: a model that keeps 25%" in said
    earlier = quality.model_copy(update={"memory": None, "memory_power": None, "reading": None})
    old = changed.model_copy(update={"tofu": changed.tofu.model_copy(update={"forget_quality": earlier})})
    assert "not a proof" in " ".join(summary_lines(record.model_copy(update={"checkpoints": (old,)})))
    assert isinstance(changed.tofu.utility, float)
    scores = {entry.name: entry for entry in changed.tofu.sets}
    for entry in scores.values():
        for value in (entry.probability, entry.rouge, entry.truth):
            assert isinstance(value, float)
            assert 0 <= value <= 1
    nine = [
        value
        for name in ("retain", "real_authors", "world_facts")
        for value in (scores[name].probability, scores[name].rouge, scores[name].truth)
    ]
    expected = 0.0 if 0.0 in nine else 9 / sum(1 / value for value in nine)  # type: ignore[operator]
    assert changed.tofu.utility == pytest.approx(expected)
    assert not isinstance(oracle.tofu, Undefined)
    assert isinstance(oracle.tofu.forget_quality, Undefined)
    again = behaviour(base=model(), models=[model(3, "changed")], tofu=sets, settings=SETTINGS)
    assert not isinstance(again.checkpoints[0].tofu, Undefined)
    assert isinstance(again.checkpoints[0].tofu.forget_quality, Undefined)
    assert any("no oracle" in line for line in again.not_tested)


def test_the_command_line(
    sources: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = save_tiny_llama(tmp_path / "base", layers=1, extra=LETTERS)
    after = save_tiny_llama(tmp_path / "after", layers=1, seed=3, extra=LETTERS)
    command = ["behaviour", "--base", str(base), "--model", f"mine={after}", "--draws", "200"]
    command += ["--questions", f"forget:bio={sources['forget:bio']}"]
    command += ["--questions", f"adjacent={sources['adjacent:cyber']}", "--out", str(tmp_path / "out")]
    assert run(command) == 0
    printed = capsys.readouterr()
    assert "mine: lost" in printed.out
    assert "paired bootstrap of 200 draws" in printed.out
    assert "Not tested: generic questions" in printed.out
    assert "base: forget questions" in printed.err
    assert run([*command, "--json"]) == 0
    record = BehaviourRecord.model_validate_json(capsys.readouterr().out)
    assert record.from_cache == 4
    assert [entry.label for entry in record.checkpoints] == ["mine"]


BAD: dict[str, tuple[dict[str, Any] | bytes, str]] = {
    "answer not among the options": (
        {"question": "q", "options": ["x", "y"], "answer": "z z"},
        "line 1, answer: found 'z z'; needed one of the 2 options",
    ),
    "position out of range": (
        {"question": "q", "options": ["x", "y"], "answer": 2},
        "line 1, answer: found '2'",
    ),
    "an option without text": (
        {"question": "q", "options": ["x", " "], "answer": 0},
        "line 1, options: found option 2 without text",
    ),
    "no question": ({"question": " ", "options": ["x", "y"], "answer": 0}, "line 1, question: found no text"),
    "no options": ({"question": "q", "answer": 0}, "needed a column 'options'"),
    "empty file": (b"", "found no rows"),
    "not UTF-8": (b'{"question": "caf\xe9", "options": ["x", "y"], "answer": 0}\n', "which is not UTF-8"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_questions_file_is_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, expected = BAD[case]
    path = tmp_path / "q.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode() + b"\n")
    code = run(["behaviour", "--base", "nowhere", "--model", "b", "--questions", f"forget={path}"])
    lines = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert len(lines) == 1
    assert str(path) in lines[0]
    assert expected in lines[0]


def test_partitions_that_do_not_fit_are_refused(sources: dict[str, Any]) -> None:
    bio, cyber = sources["forget:bio"], sources["forget:cyber"]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"forget:bio": bio, "adjacent:cyber": cyber}, "needed those of the forget questions: 'bio'"),
        ({"forgot:bio": bio}, "did you mean 'forget'"),
        ({"forget:": bio}, "an empty topic"),
        ({"forget:bio": [bio, bio]}, "the subject 'bio' in"),
        ({}, "give --questions"),
    ]
    for questions, expected in cases:
        with pytest.raises(InputError, match=expected):
            behaviour(base="b", models=["m"], questions=questions)


def test_options_that_a_tokenizer_cannot_read(sources: dict[str, Any]) -> None:
    class Cloze:
        prompt, options, answer = "card", ("fee", "\u200b"), 0

    letters = model()
    with pytest.raises(InputError, match="no tokens of its own"):
        answer(letters.model, _without_marks(), [Cloze()])
    plain = language_model(tiny_llama(layers=1), tiny_tokenizer(), label="no letters")
    with pytest.raises(InputError, match="options 'A' and 'B': found the same tokens"):
        behaviour(base=plain, models=[plain], questions={"forget": sources["forget:bio"]}, settings=SETTINGS)


def _without_marks() -> Any:
    """A tokenizer that reads nothing in a zero-width mark."""
    from tokenizers.normalizers import Replace

    made = tiny_tokenizer(extra=LETTERS)
    made.backend_tokenizer.normalizer = Replace("\u200b", " ")
    return made


def test_a_model_without_a_tokenizer(
    sources: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from vestige.models.backbones import quiet_loading

    with quiet_loading():
        tiny_llama(layers=1).save_pretrained(str(tmp_path / "bare"))
    questions = ["--questions", f"forget={sources['forget:bio']}"]
    code = run(["behaviour", "--base", str(tmp_path / "bare"), "--model", str(tmp_path / "bare"), *questions])
    lines = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert lines[-1].startswith("error: ")
    assert "tokenizer" in lines[-1]
