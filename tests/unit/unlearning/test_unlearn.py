"""`unlearn` and `finetune`: folders, presets, resuming, and bad input in one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pandas
import pytest
import safetensors

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny_lm import save_tiny_llama, tiny_texts

import vestige
from vestige.cli import run as command
from vestige.errors import Diverged, InputError, Interrupted
from vestige.models.causal_lm import load_language_model
from vestige.unlearning.settings import parsed

pytestmark = pytest.mark.train

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


PUBLISHED: dict[str, Any] = {"max_steps": 2, "lora.rank": 2, "learning_rate": 1e-2, "dtype": "float32"}


def test_loku_fila_reloads_as_published_with_what_its_base_had_lost(folder: Path, tmp_path: Path) -> None:
    """Saved as an adapter alone, evaluation adds it to the base as it was: trained + s B0 A0, of LoRA's
    rank."""
    made = {}
    for reload in ("whole", "published"):
        record = make(
            folder,
            tmp_path / reload,
            method="loku_fila",
            preset="triage",
            settings={**PUBLISHED, "reload": reload},
        )
        assert (record.saved, any("saved as published" in note for note in record.notes)) == (
            ("whole", False) if reload == "whole" else ("adapter", True)
        )
        made[reload] = load_language_model(str(tmp_path / reload)).model.state_dict()
    name = "model.layers.0.mlp.up_proj.weight"
    values = torch.linalg.svdvals((made["published"][name] - made["whole"][name]).double())
    assert values[1] > 1e-3
    assert values[2] < 1e-5 * values[0]
    with pytest.raises(InputError, match="published, with whole weights asked for"):
        make(folder, tmp_path / "x", method="loku_fila", preset="triage", settings=PUBLISHED, whole=True)


def test_spul_reloads_as_published_before_the_model_that_was_never_tuned(
    folder: Path, tmp_path: Path
) -> None:
    settings = {**PUBLISHED, "virtual_tokens": 2, "encoder_hidden": 8}
    record = make(folder, tmp_path / "un", method="spul", preset="triage", settings=settings)
    assert (record.saved, record.phases[0]["steps"]) == ("adapter", 2)
    assert not (tmp_path / "un" / "base").exists()
    base = load_language_model(str(folder / "base"))
    found: Any = load_language_model(str(tmp_path / "un"))
    assert found.record.virtual_tokens == 2
    own = dict(found.model.prompted.get_base_model().named_parameters())
    for name, value in base.model.named_parameters():
        assert torch.equal(own[name], value)


def test_phase_one_of_spul_takes_one_pass_as_published_or_as_many_as_asked(
    folder: Path, tmp_path: Path
) -> None:
    """Two topics, two batches of four of the smaller one: four steps of a pass."""
    settings = {**PUBLISHED, "virtual_tokens": 2, "encoder_hidden": 8, "tune_steps": 6, "max_steps": 9}
    for once, steps in ((True, 4), (False, 6)):
        record = make(
            folder, tmp_path / str(once), method="spul", preset="triage",
            settings={**settings, "tune_once": once},
        )  # fmt: skip
        assert record.phases[0]["steps"] == steps


def test_a_topic_without_keywords_has_no_forget_term_where_that_is_asked_for(
    folder: Path, tmp_path: Path
) -> None:
    settings = {**PUBLISHED, "no_keywords": "zero"}
    record = make(folder, tmp_path / "un", method="obliviate", preset="triage", settings=settings)
    assert [note for note in record.notes if "its forget term is zero" in note] == [
        f"topic '{name}' has no sensitive tokens: its forget term is zero" for name in ("a", "b")
    ]
    log = pandas.read_parquet(tmp_path / "un" / "steps.parquet")
    assert log["forget_loss"].tolist() == pytest.approx([0, 0], abs=1e-6)


def test_refusals_of_a_file_are_part_of_what_a_checkpoint_is(folder: Path, tmp_path: Path) -> None:
    """In bfloat16, as published: the adapters stay float32, and the base that they name is the one given."""
    (tmp_path / "idk.jsonl").write_text('{"text": "my card"}\n{"text": "my pin"}\n')
    settings = {"max_steps": 2, "lora.rank": 2, "refusals": str(tmp_path / "idk.jsonl")}
    record = make(folder, tmp_path / "un", method="dpo", preset="triage", settings=settings)
    assert [(text.role, text.rows) for text in record.texts if text.role == "refusals"] == [("refusals", 2)]
    other = make(
        folder, tmp_path / "own", method="dpo", preset="triage", settings={**settings, "refusals": None}
    )
    assert other.identity != record.identity
    assert other.training.weights_sha256 != record.training.weights_sha256
    with safetensors.safe_open(str(tmp_path / "un" / "adapter_model.safetensors"), framework="pt") as stored:
        assert {stored.get_tensor(name).dtype for name in stored.keys()} == {torch.float32}  # noqa: SIM118
    load_language_model(str(tmp_path / "un"))


def test_blocks_are_taught_whole_in_the_type_that_is_asked_for(folder: Path, tmp_path: Path) -> None:
    settings = {"blocks": True, "max_length": 8, "batch_size": 4, "epochs": 1, "master": "bfloat16"}
    settings |= {"decay": False, "warmup_share": 0.0, "weight_decay": 0.0, "max_grad_norm": None}
    data = folder / "plain.jsonl"
    record = vestige.finetune(
        model=str(folder / "base"),
        data=data,
        out=tmp_path / "ft",
        settings={**settings, "learning_rate": 1e-2},
    )
    (text,) = record.texts
    assert text.rows >= 4
    assert "fill no block" in text.notes[0]
    with safetensors.safe_open(str(tmp_path / "ft" / "model.safetensors"), framework="pt") as stored:
        assert {stored.get_tensor(name).dtype for name in stored.keys()} == {torch.bfloat16}  # noqa: SIM118
    with pytest.raises(InputError, match="all weights trained; needed adapters over 4-bit weights"):
        vestige.finetune(
            model=str(folder / "base"), data=data, out=tmp_path / "four", settings={"four_bit": True}
        )
