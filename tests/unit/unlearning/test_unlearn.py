"""`unlearn` and `finetune`: folders, presets, resuming, and bad input in one line."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny_lm import save_tiny_llama, tiny_texts

import vestige
from vestige.cli import run as command
from vestige.errors import Diverged, InputError, Interrupted
from vestige.methods import METHODS
from vestige.models.causal_lm import load_language_model
from vestige.unlearning.settings import parsed, settings_of

pytestmark = pytest.mark.train

SHARED = Path(os.environ.get("VESTIGE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
FAST: dict[str, Any] = {"epochs": 1, "learning_rate": 1e-3, "batch_size": 4, "lora.rank": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model, pairs to forget and to keep, and plain text."""
    root = tmp_path_factory.mktemp("work")
    save_tiny_llama(root / "base", layers=1)
    texts = tiny_texts(40, seed=1, longest=9)

    def write(name: str, lines: list[dict[str, str]]) -> None:
        (root / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    pairs = [{"question": q, "answer": a} for q, a in zip(texts[:20], texts[20:], strict=True)]
    write("forget.jsonl", [*pairs[:7], {"question": "pin", "answer": " "}])
    write("retain.jsonl", pairs[8:])
    write("plain.jsonl", [{"text": text} for text in texts[:8]])
    return root


def make(folder: Path, out: Path, **options: Any) -> Any:
    given: dict[str, Any] = {
        "model": str(folder / "base"),
        "method": "grad_diff",
        "forget": {"a": folder / "forget.jsonl", "b": folder / "plain.jsonl"},
        "retain": folder / "retain.jsonl",
        "settings": FAST,
    }
    return vestige.unlearn(**{**given, **options, "out": out})


def weights(out: Path) -> bytes:
    return (out / "adapter_model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def done(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("done") / "un"
    make(folder, out)
    return out


def test_the_folder_holds_a_checkpoint_its_record_and_its_log(folder: Path, done: Path) -> None:
    import pandas as pd

    record = make(folder, done)  # finished: read, not made again
    assert not (done / "unfinished.json").exists()
    assert not (done / "training").exists()
    assert [(t.topic, t.role, t.rows, t.empty) for t in record.texts] == [
        ("a", "forget", 7, 1),
        ("a", "retain", 12, 0),
        ("b", "forget", 8, 0),
        ("b", "retain", 12, 0),
    ]
    assert record.texts[1].path == str(folder / "retain.jsonl")
    assert len(record.texts[1].sha256) == 64
    assert record.texts[1].development == 2
    assert any("kept epoch 1 of 1" in note for note in record.notes)
    log = pd.read_parquet(done / "steps.parquet")
    wanted = {
        "forget_loss",
        "retain_loss",
        "gradient_norm",
        "update_norm",
        "seconds",
        "learning_rate",
        "topic",
    }
    assert wanted <= set(log.columns)
    assert len(log) == record.training.steps == 4


def test_a_run_that_unlearned_nothing_warns_in_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["unlearn", "--model", str(folder / "base"), "--method", "grad_diff", "--epochs", "1"]
    given += ["--forget", str(folder / "forget.jsonl"), "--retain", str(folder / "retain.jsonl")]
    said = re.compile(r"^the forget loss hardly moved \(\d\.\d{3} to \d\.\d{3}\): raise the ", re.MULTILINE)
    assert command([*given, "--learning-rate", "1e-9", "--out", str(tmp_path / "slow")]) == 0
    assert len(said.findall(capsys.readouterr().out)) == 1
    record = json.loads((tmp_path / "slow" / "unlearn.json").read_text())
    assert any(said.match(note) for note in record["notes"])
    assert command([*given, "--learning-rate", "0.05", "--out", str(tmp_path / "fast")]) == 0
    assert "the forget loss" not in capsys.readouterr().out


def test_another_configuration_never_overwrites(folder: Path, done: Path, tmp_path: Path) -> None:
    before = weights(done)
    with pytest.raises(InputError, match="with other settings, text, model or seed"):
        make(folder, done, settings={**FAST, "retain": "kl", "noise_std": 0.001})
    assert weights(done) == before
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="other files"):
        make(folder, tmp_path)


def test_a_run_that_was_stopped_goes_on_and_ends_in_the_same_bytes(
    folder: Path, done: Path, tmp_path: Path
) -> None:
    def press(step: int, steps: int, loss: float) -> None:
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "un"
    with pytest.raises(Interrupted, match="the state after step 2 was kept"):
        make(folder, out, progress=press)
    with pytest.raises(InputError, match="unfinished checkpoint"):
        load_language_model(str(out))
    with pytest.raises(InputError, match="an unfinished run with other settings"):
        make(folder, out, seed=18)
    seen: list[int] = []
    record = make(folder, out, progress=lambda step, steps, loss: seen.append(step))
    assert seen == [3, 4]
    assert record.training.resumed_at == (2,)
    assert weights(out) == weights(done)


def test_an_interrupted_save_leaves_nothing_that_loads(
    folder: Path, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vestige.unlearning import run as module

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "un"
    monkeypatch.setattr(module, "write_log", full)
    with pytest.raises(OSError, match="No space"):
        make(folder, out)
    with pytest.raises(InputError, match="unfinished checkpoint"):
        load_language_model(str(out))
    monkeypatch.undo()
    make(folder, out)
    assert weights(out) == weights(done)


def test_a_rate_that_diverges_stops_and_keeps_the_last_good_state(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Diverged, match=r"learning rate 1e\+3[0-9].*was kept in") as caught:
        make(folder, tmp_path / "un", settings={**FAST, "learning_rate": 1e30, "warmup_steps": 0})
    kept = list((tmp_path / "un" / "training").glob("checkpoint-*"))
    assert [path.name for path in kept] == [f"checkpoint-{caught.value.step - 1:08d}"]


def test_an_adapter_whose_base_is_missing_or_changed(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "base", tmp_path / "base")
    make(folder, tmp_path / "un", model=str(tmp_path / "base"), forget=folder / "plain.jsonl")
    assert load_language_model(str(tmp_path / "un")).record.adapter == "lora"
    shutil.rmtree(tmp_path / "base")
    with pytest.raises(
        InputError, match=r"an adapter whose base cannot be loaded .*give the base with --base"
    ):
        load_language_model(str(tmp_path / "un"))
    save_tiny_llama(tmp_path / "base", layers=1, seed=9)
    with pytest.raises(InputError, match="another model at"):
        load_language_model(str(tmp_path / "un"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "simnpoo"}, r"did you mean 'simnpo'\?"),
        ({"method": "uniformization"}, "a method for decision models alone"),
        ({"preset": "triag"}, r"did you mean 'triage'\?"),
        ({"settings": {"betta": 1}, "method": "npo"}, r"setting 'betta'.*did you mean 'beta'"),
        ({"settings": {"learning_rate": "fast"}}, "setting 'learning_rate': found 'fast'"),
        ({"retain": None}, "topic 'a': found no retain rows.*give --retain a=FILE"),
        ({"retain": {"a": "{retain}"}}, "topic 'b': found no retain rows"),
        ({"retain": {"aa": "{retain}"}}, r"topic 'aa'.*did you mean 'a'|topic 'aa'.*known"),
        ({"settings": {**FAST, "max_length": 3}}, "no tokens to predict within 3"),
        (
            {"settings": {**FAST, "retain": "kl", "noise_std": 0.1, "layer": 4}},
            "setting 'layer': found 4; needed 0 to 0",
        ),
        ({"model": "no-such"}, "no such wheel, folder or file"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    options: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    if isinstance(options.get("retain"), dict):
        options = {**options, "retain": dict.fromkeys(options["retain"], folder / "retain.jsonl")}
    with pytest.raises(InputError, match=message) as caught:
        make(folder, tmp_path / "un", **options)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "un").glob("*")) if (tmp_path / "un").exists() else True


def test_finetune_learns_answers_and_reloads(folder: Path, tmp_path: Path, capsys: Any) -> None:
    arguments = ["finetune", "--model", str(folder / "base"), "--data", str(folder / "forget.jsonl")]
    arguments += ["--out", str(tmp_path / "ft"), "--epochs", "3", "--learning-rate", "1e-2", "--json"]
    assert command(arguments) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["kind"], record["saved"]) == ("fine-tuned", "whole")
    assert record["settings"]["lora"] is None
    first = load_language_model(str(folder / "base")).model.state_dict()
    second = load_language_model(str(tmp_path / "ft")).model.state_dict()
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_the_command_line_names_topics_weights_and_settings(
    folder: Path, tmp_path: Path, capsys: Any
) -> None:
    arguments = [
        "unlearn",
        "--model",
        str(folder / "base"),
        "--method",
        "simnpo",
        "--out",
        str(tmp_path / "un"),
    ]
    arguments += ["--forget", f"a={folder / 'forget.jsonl'}", "--forget", f"b={folder / 'plain.jsonl'}"]
    arguments += ["--retain", str(folder / "retain.jsonl"), "--preset", "triage", "--set", "gamma=0.5"]
    arguments += ["--retain-weight", "b=3", "--max-steps", "2", "--set", "lora.rank=2", "--json"]
    assert command(arguments) == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert (settings["gamma"], settings["beta"], settings["retain"]) == (0.5, 0.1, "kl")
    assert (settings["retain_weight"], settings["topic_weights"]) == (50.0, {"b": 3.0})
    assert settings["lora"] == {"rank": 2, "alpha": 32.0, "dropout": 0.05}
    assert (settings["select"], settings["max_grad_norm"]) == ("last", None)


def test_settings_are_read_as_yaml() -> None:
    assert parsed(["a=1", "b=null", "c=x=y"]) == {"a": 1, "b": None, "c": "x=y"}
    with pytest.raises(InputError, match="key=value"):
        parsed(["beta"])


@pytest.mark.shared
def test_preset_triage_is_the_published_table() -> None:
    path = SHARED / "paper" / "triage_hyperparameters.csv"
    if not path.is_file():
        pytest.skip(f"no {path}: set VESTIGE_SHARED")
    names = {
        "GA": "grad_ascent",
        "GD": "grad_diff",
        "NPO": "npo",
        "SimNPO": "simnpo",
        "DPO": "dpo",
    }
    with path.open() as handle:
        published = {row["method"]: row for row in csv.DictReader(handle)}
    for label, name in names.items():
        made: Any = settings_of(METHODS.get(name), "triage", {})
        row = published[label]
        assert made.learning_rate == float(row["lr"])
        assert made.retain_weight == float(row["alpha_retain_weight"])
        assert made.retain == row["retain_loss"].lower()
        if row["beta"]:
            assert made.beta == float(row["beta"])
        assert (made.lora.rank, made.lora.alpha, made.lora.dropout, made.batch_size) == (16, 32.0, 0.05, 4)
        assert (made.max_steps, made.length("bio"), made.length("cyber")) == (500, 512, 768)
