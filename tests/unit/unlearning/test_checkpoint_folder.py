"""The folder of a checkpoint under kills, two processes, full weights, and options that change nothing."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import pandas as pd
import torch
from tests.tiny_lm import save_tiny_llama, tiny_texts, write_corpus

import vestige
from vestige.cli import run as command
from vestige.data.corpora import TokenSequence
from vestige.errors import Diverged, InputError, Interrupted
from vestige.footprint import FootprintSettings
from vestige.footprint.fisher import fisher_diagonal
from vestige.footprint.passes import measured
from vestige.footprint.run import footprint
from vestige.models.causal_lm import check_comparable, load_language_model
from vestige.models.projections import target_parameters
from vestige.training import steps
from vestige.unlearning.folder import made_by, making, retained_by

pytestmark = pytest.mark.train

SETTINGS: dict[str, Any] = {"epochs": 2, "learning_rate": 1e-3, "batch_size": 2, "warmup_steps": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("work")
    save_tiny_llama(root / "base", layers=1)
    write_corpus(root / "forget.jsonl", tiny_texts(6, seed=1, longest=8))
    write_corpus(root / "retain.jsonl", tiny_texts(12, seed=2, longest=8))
    return root


def make(folder: Path, out: Path, **options: Any) -> Any:
    given: dict[str, Any] = {
        "model": str(folder / "base"),
        "method": "grad_diff_kl",
        "forget": {"a": folder / "forget.jsonl"},
        "retain": folder / "retain.jsonl",
        "settings": SETTINGS,
    }
    return vestige.unlearn(**{**given, **options, "out": out})


def arguments(folder: Path, out: Path, method: str, *more: str) -> list[str]:
    names = {"--model": folder / "base", "--forget": f"a={folder / 'forget.jsonl'}", "--out": out}
    names["--retain"] = folder / "retain.jsonl"
    flat = [str(part) for pair in names.items() for part in pair]
    return ["unlearn", "--method", method, *flat, *more]


def test_a_resumed_run_of_all_weights_keeps_the_reference_of_the_start(folder: Path, tmp_path: Path) -> None:
    """The divergence is from the weights before the first step, not from those of the step resumed at."""
    settings = {**SETTINGS, "lora": None, "learning_rate": 1e-2, "select": "last"}
    make(folder, tmp_path / "whole", settings=settings)

    def press(step: int, steps: int, loss: float) -> None:
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="step 3 of 6"):
        make(folder, tmp_path / "stopped", settings=settings, progress=press)
    make(folder, tmp_path / "stopped", settings=settings)
    logs = [pd.read_parquet(tmp_path / name / "steps.parquet") for name in ("whole", "stopped")]
    assert (logs[0]["retain_loss"].iloc[3:] > 0).all()
    assert logs[1]["retain_loss"].tolist() == logs[0]["retain_loss"].tolist()
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "stopped")]
    assert weights[0] == weights[1]


def test_one_process_works_in_a_folder(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    out = tmp_path / "un"
    with (
        making(out, "another's"),
        pytest.raises(InputError, match="another run at work in this folder; needed one run at a time"),
    ):
        make(folder, out)


def test_what_a_kill_leaves_is_cleared(folder: Path, tmp_path: Path) -> None:
    """A killed process leaves its lock, and half a file under a temporary name: neither is in the way."""
    out = tmp_path / "un"
    out.mkdir()
    (out / ".vestige.lock").touch()
    (out / ".vestige-half.json").write_text('{"ident')
    method = make(folder, out).method
    assert (made_by(str(out)), made_by(str(folder / "base")), made_by("hub/name")) == (method, "", "")
    sha256 = hashlib.sha256((folder / "retain.jsonl").read_bytes()).hexdigest()
    known = {sha256: ("near", "adjacent")}
    assert retained_by(str(out), known) == ("retain.jsonl (measured here as adjacent text 'near')",)
    assert retained_by(str(out), {}) == ("retain.jsonl (none of the measured files)",)
    assert retained_by(str(folder / "base"), known) == ()
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]


def test_a_phase_before_the_loop_goes_on_where_it_was_stopped(folder: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "tune_steps": 4, "virtual_tokens": 2, "encoder_hidden": 4, "select": "last"}
    out, whole = tmp_path / "stopped", tmp_path / "whole"
    made = make(folder, whole, method="spul", settings=settings)
    real = steps._step

    def stopped(job: Any, position: int, *rest: Any) -> dict[str, Any]:
        found = real(job, position, *rest)
        if position == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "_step", stopped)
        with pytest.raises(Interrupted, match="after step 2 of 4: the state after step 2 was kept"):
            make(folder, out, method="spul", settings=settings)
    taken: list[int] = []

    def noted(job: Any, position: int, *rest: Any) -> dict[str, Any]:
        taken.append(position)
        return real(job, position, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "_step", noted)
        again = make(folder, out, method="spul", settings=settings)
    assert taken[:3] == [2, 3, 0]
    assert again.phases == made.phases
    assert again.training.weights_sha256 == made.training.weights_sha256


def test_a_rate_beyond_the_type_of_the_weights_diverges(folder: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "learning_rate": 1e38, "lora.rank": 2}
    with pytest.raises(Diverged, match=r"too large for the type of the weights at step 1 .*was kept in"):
        make(folder, tmp_path / "un", settings=settings)


def test_the_adapter_s_configuration_has_one_order(folder: Path, tmp_path: Path) -> None:
    make(folder, tmp_path / "un", settings={**SETTINGS, "max_steps": 1})
    names = json.loads((tmp_path / "un" / "adapter_config.json").read_text())["target_modules"]
    assert names == sorted(names)
    assert len(names) == 7


def test_a_last_update_that_breaks_the_model_is_no_checkpoint(folder: Path, tmp_path: Path) -> None:
    """One step at an absurd rate: the update is finite, what the model then computes is not."""
    settings = {**SETTINGS, "learning_rate": 1e12, "max_steps": 1}
    with pytest.raises(Diverged, match="the loss after the last update is not a finite number at step 1"):
        make(folder, tmp_path / "un", method="grad_diff", settings=settings)
    assert (tmp_path / "un" / "training" / "checkpoint-00000000").is_dir()


def test_an_adapter_is_put_on_the_weights_it_was_trained_on(folder: Path, tmp_path: Path) -> None:
    """A base of other weights is not taken for its own; an adapter's adapter finds its own base again."""
    make(folder, tmp_path / "first", settings={**SETTINGS, "learning_rate": 1e-2})
    make(folder, tmp_path / "second", model=str(tmp_path / "first"))
    base = load_language_model(str(folder / "base"))
    alone, beside = (load_language_model(str(tmp_path / "second"), base=given) for given in (None, base))
    assert beside.record.sha256 == alone.record.sha256
    narrow = load_language_model(str(folder / "base"), dtype="bfloat16")
    assert load_language_model(str(tmp_path / "first"), base=narrow).record.base == "base"
    save_tiny_llama(tmp_path / "moved", layers=1)
    make(folder, tmp_path / "un", model=str(tmp_path / "moved"))
    save_tiny_llama(tmp_path / "moved", layers=1, seed=9)
    with pytest.raises(InputError, match="another model at"):
        load_language_model(str(tmp_path / "un"), base=load_language_model(str(tmp_path / "moved")))


def test_an_unlearned_adapter_of_another_model_is_refused_as_one_of_the_base(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder has the hash of what it was made from. A retrained one may be of another, and says so."""
    save_tiny_llama(tmp_path / "other", layers=1, seed=9)
    make(folder, tmp_path / "first", settings={**SETTINGS, "learning_rate": 1e-2})
    make(folder, tmp_path / "second", model=str(tmp_path / "first"))
    base, other = (load_language_model(str(path)) for path in (folder / "base", tmp_path / "other"))
    for name in ("first", "second"):  # an adapter of an adapter of the base is the base's
        assert load_language_model(str(tmp_path / name), base=base, made_from_base=True).weight_change
        with pytest.raises(InputError, match=r"made from '.*' \(sha256 .*give its own base with --base"):
            load_language_model(str(tmp_path / name), base=other, made_from_base=True)
    found = load_language_model(str(tmp_path / "first"), base=other)
    assert "not on 'other': it was put on its own base" in found.record.notes[0]
    assert found.record.sha256 == load_language_model(str(tmp_path / "first")).record.sha256
    text = str(folder / "forget.jsonl")
    arguments = [*("footprint", "--base", str(tmp_path / "other"), "--unlearned", str(tmp_path / "first"))]
    arguments += ["--forget", text, "--generic", text, "--out", str(tmp_path / "out")]
    assert command(arguments) == 2
    assert "found an adapter that was made from" in capsys.readouterr().err.splitlines()[-1]


def test_a_prompt_brings_the_weights_that_it_was_trained_before(folder: Path, tmp_path: Path) -> None:
    """The prompt of SPUL stands before weights of its own: against the model that it began from they changed,
    against its own they did not. The diagonal is that of the prompted model, by plain autograd."""
    settings = {**SETTINGS, "tune_steps": 4, "tune_rate": 1e-2, "virtual_tokens": 2, "encoder_hidden": 4}
    make(folder, tmp_path / "un", method="spul", settings={**settings, "select": "last"})
    base, own = (load_language_model(str(path)) for path in (folder / "base", tmp_path / "un" / "base"))
    found = load_language_model(str(tmp_path / "un"), base=base)
    assert found.weight_change
    assert "in front of weights of its own" in found.record.notes[0]
    assert not load_language_model(str(tmp_path / "un"), base=own).weight_change
    check_comparable(base, found)
    targets, first = target_parameters(found.model), target_parameters(base.model)
    assert list(targets) == list(first)
    assert any(not torch.equal(value, first[name]) for name, value in targets.items())
    units = [TokenSequence(ids, "", 0, "") for ids in ((1, 5, 9, 13, 4), (1, 7, 8), (1, 4, 6, 9))]
    diagonal = fisher_diagonal(found.model, targets, units).values
    slow = {name: torch.zeros_like(value) for name, value in targets.items()}
    for unit in units:
        with measured(found.model):
            for value in targets.values():
                value.requires_grad_(True)
            logits = found.model.prompted(input_ids=torch.tensor([unit.ids])).logits[0, 2:-1]
            loss = torch.nn.functional.cross_entropy(logits, torch.tensor(unit.ids[1:]))
            gradients = torch.autograd.grad(loss, list(targets.values()))
        for name, gradient in zip(targets, gradients, strict=True):
            slow[name] += gradient.square() / len(units)
    for name, value in slow.items():
        torch.testing.assert_close(diagonal[name], value, rtol=1e-4, atol=1e-9)
    text = write_corpus(tmp_path / "text.jsonl", tiny_texts(6))
    small = FootprintSettings(units=3, subsets=2, probes=1, perplexity_tokens=40)
    moved = footprint(base=base, unlearned=found, forget=text, generic=text, settings=small).checkpoints[0]
    assert moved.corpora[0].fisher.value > 0
    assert moved.corpora[0].hessian.value > 0
    (tmp_path / "un" / "base" / "model.safetensors").unlink()
    (tmp_path / "un" / "base").rename(tmp_path / "gone")
    with pytest.raises(InputError, match=r"whose base cannot be loaded.*copy the whole folder again"):
        load_language_model(str(tmp_path / "un"), base=base)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("grad_diff", {"noise_std": 0.1}, "whose retain term reads no reference.*set retain=kl"),
        ("loku", {"noise_std": 0.1}, "whose retain term reads no reference.*leave it out"),
        ("grad_diff_kl", {"layer": 0}, "setting 'layer': found 0 for GradDiff-KL, which reads no block"),
        ("grad_diff_kl", {"topic_weights": {"b": 2.0}}, "setting 'topic_weights': found topic 'b'"),
        ("grad_diff_kl", {"topic_lengths": {"b": 9}}, "setting 'topic_lengths': found topic 'b'"),
        ("grad_diff_kl", {"learning_rate": -1}, "found '-1'; needed a number above 0"),
    ],
)
def test_a_setting_that_would_change_nothing_is_refused(
    method: str, settings: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        make(folder, tmp_path / "un", method=method, settings={**SETTINGS, **settings})
    assert not (tmp_path / "un").exists()


@pytest.mark.parametrize(
    ("method", "more", "message"),
    [
        ("npo", ("--concept", "cards"), "--concept: found the method 'npo', which reads none; needed atu"),
        ("atu", ("--keywords", "pin"), "--keywords: found the method 'atu', which reads none; needed obliv"),
        ("obliviate", ("--keywords", "b=pin"), "--keywords: found topic 'b'; needed a topic of --forget"),
        ("npo", ("--device", "foo"), "--device: found 'foo', which is not here; needed cpu"),
    ],
)
def test_options_that_a_method_does_not_read(
    method: str, more: tuple[str, ...], message: str, folder: Path, tmp_path: Path, capsys: Any
) -> None:
    assert command(arguments(folder, tmp_path / "un", method, *more)) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(said) == 1
    assert message in said[0]
