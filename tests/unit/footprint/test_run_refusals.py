"""What a footprint refuses in one line, what it keeps, and that nothing measured is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tests.tiny_lm import save_tiny_llama, tiny_llama, tiny_texts, tiny_tokenizer, write_corpus

from vestige.cli.footprint import labelled
from vestige.errors import InputError
from vestige.footprint import FootprintRecord, FootprintSettings
from vestige.footprint.cache import sealed, unsealed
from vestige.footprint.run import footprint
from vestige.footprint.shifts import module_sums
from vestige.footprint.texts import named_paths
from vestige.footprint.verdict_records import VerdictRecord

SMALL: dict[str, Any] = {"units": 3, "subsets": 2, "probes": 1, "perplexity_tokens": 40}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """base, moved and moved-too (every projection changed), three corpora, out (a finished run of moved)."""
    folder = tmp_path_factory.mktemp("refusals")
    save_tiny_llama(folder / "base")
    for place, name in enumerate(("moved", "moved-too"), start=1):
        changed = tiny_llama()
        with torch.no_grad():
            for key, value in changed.named_parameters():
                if key.endswith("proj.weight"):
                    value.add_(0.02 * place * torch.ones_like(value))
        changed.save_pretrained(str(folder / name))
        tiny_tokenizer().save_pretrained(str(folder / name))
    for seed, name in enumerate(("near", "far", "removed")):
        write_corpus(folder / f"{name}.jsonl", tiny_texts(8, seed=seed))
    measure(folder, folder / "out")
    return folder


def measure(work: Path, out: Path, **changes: Any) -> FootprintRecord:
    given: dict[str, Any] = {
        "base": str(work / "base"),
        "unlearned": str(work / "moved"),
        "forget": work / "removed.jsonl",
        "generic": work / "far.jsonl",
        "settings": FootprintSettings(**SMALL),
        "out": out,
    }
    return footprint(**{**given, **changes})


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def other_numbers(path: Path) -> None:
    """The same names and shapes, finite values, with the notes that the file had."""
    if path.suffix == ".json":
        stored = json.loads(path.read_text())
        path.write_text(json.dumps({**stored, "value": [1.0, 2.0, 3]}))
        return
    with safe_open(str(path), framework="pt") as stored:
        notes = stored.metadata()
    save_file({name: value * 2 for name, value in load_file(str(path)).items()}, str(path), metadata=notes)


def other_content(path: Path) -> None:
    path.write_text("{}") if path.suffix == ".json" else save_file({"a": torch.ones(3)}, str(path))


@pytest.mark.parametrize("damage", [cut, other_numbers, other_content], ids=lambda found: found.__name__)
@pytest.mark.parametrize("kind", ["fisher", "comparison", "perplexity"])
def test_a_cache_file_that_was_changed_is_named_not_read(
    work: Path, tmp_path: Path, kind: str, damage: Any
) -> None:
    out = tmp_path / "out"
    shutil.copytree(work / "out", out)
    if kind in ("fisher", "hessian"):  # what was made from them would be read instead
        for path in [*(out / "cache").glob("comparison-*"), *(out / "cache").glob("curvature-*")]:
            path.unlink()
    for path in (out / "cache").glob(f"{kind}-*"):
        damage(path)
    with pytest.raises(InputError, match="a damaged cache file"):
        measure(work, out)
    for path in (out / "cache").glob(f"{kind}-*"):
        path.unlink()
    record = FootprintRecord.model_validate_json((work / "out" / "footprint.json").read_text())
    assert measure(work, out).checkpoints == record.checkpoints


def test_a_sealed_value_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    value = {"b": [0.1, 1e-300, 3], "a": {"x": None}}
    path.write_text(sealed(value))
    assert unsealed(path) == value
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match="a damaged cache file"):
        unsealed(path)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"settings": FootprintSettings(**{**SMALL, "units": 2})}, "units"),
        ({"generic": "near.jsonl"}, "texts"),
        ({"unlearned": "moved-too"}, "checkpoint 'moved'"),
        ({"base": "moved-too"}, "base"),
        ({"unseen": "near.jsonl"}, "unseen texts"),
        ({"settings": FootprintSettings(**SMALL, verdict=None)}, "verdict"),
    ],
    ids=["settings", "texts", "checkpoint", "base", "unseen", "verdict"],
)
def test_the_record_of_another_comparison_is_not_overwritten(
    work: Path, changes: dict[str, Any], named: str
) -> None:
    before = (work / "out" / "footprint.json").read_bytes()
    given = {key: str(work / value) if isinstance(value, str) else value for key, value in changes.items()}
    with pytest.raises(InputError, match=f"another comparison; what differs: .*{named}"):
        measure(work, work / "out", **given)
    assert (work / "out" / "footprint.json").read_bytes() == before


def test_a_verdict_goes_into_the_folder_of_a_footprint_without_one(work: Path, tmp_path: Path) -> None:
    """Left out, or of a record made before there was one; every model's part is read once."""
    out = tmp_path / "out"
    settings = FootprintSettings(**{**SMALL, "probes": 0})
    oracle = [str(work / "base"), str(work / "moved-too")]
    without = measure(work, out, oracle=oracle, settings=settings.model_copy(update={"verdict": None}))
    assert str(without.verdict) == "undefined: left out: --no-verdict"
    assert any("--no-verdict was given" in line for line in without.not_tested)
    assert [item.label for item in without.checkpoints] == ["moved", "oracle", "oracle (2)"]
    old = json.loads((out / "footprint.json").read_text())
    del old["verdict"], old["settings"]["verdict"]
    (out / "footprint.json").write_text(json.dumps(old))
    found = measure(work, out, oracle=oracle, settings=settings)
    assert isinstance(found.verdict, VerdictRecord)
    assert found.verdict.oracles == ("oracle", "oracle (2)")
    assert [text.role for text in found.verdict.texts] == ["forget", "generic"]
    assert found.verdict.models[0].evidence.seeds == {"full": 1, "oracle": 2, "unlearned": 1}
    assert found.checkpoints == without.checkpoints
    kept = set((out / "cache").glob("outputs-*"))
    again = measure(work, out, oracle=oracle, unlearned={"moved": str(work / "moved")}, settings=settings)
    assert again.verdict == found.verdict
    assert set((out / "cache").glob("outputs-*")) == kept


def test_a_further_checkpoint_or_sentence_goes_into_the_same_folder(work: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(work / "out", out)
    found = measure(
        work,
        out,
        unlearned=[str(work / "moved"), str(work / "moved-too")],
        settings=FootprintSettings(**SMALL, retained_text="WikiText"),
    )
    assert [item.label for item in found.checkpoints] == ["moved", "moved-too"]
    assert "variation over training seeds" in found.not_tested
    (out / "footprint.json").write_text("{")
    assert measure(work, out).cost.passes_run == 0


def test_a_broken_model_is_named_in_one_line(work: Path, tmp_path: Path) -> None:
    wild = tiny_llama()
    with torch.no_grad():
        for key, value in wild.named_parameters():
            if key.endswith("proj.weight"):
                value.mul_(1e4)
    wild.save_pretrained(str(tmp_path / "wild"))
    with pytest.raises(InputError, match=r"^model 'wild', .*finite"):
        measure(work, tmp_path / "out", unlearned=str(tmp_path / "wild"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_have_no_shift(value: float) -> None:
    base = {"w": torch.ones(4)}
    after = {"w": torch.tensor([1.0, value, 1.0, 1.0])}
    with pytest.raises(InputError, match=r"weight 'w': found .* not finite"):
        module_sums(base, after)


@pytest.mark.parametrize("extra", [1, -1], ids=["more-layers", "fewer-layers"])
def test_another_number_of_layers_is_refused_before_anything_is_measured(
    tmp_path: Path, work: Path, extra: int
) -> None:
    save_tiny_llama(tmp_path / "deep", layers=2 + extra)
    with pytest.raises(InputError, match="other weights or shapes at"):
        measure(work, tmp_path / "out", unlearned=str(tmp_path / "deep"))
    assert not list((tmp_path / "out").rglob("fisher-*"))


def test_a_subset_of_one_token_is_refused_before_anything_is_measured(tmp_path: Path, work: Path) -> None:
    one = write_corpus(tmp_path / "one.jsonl", ["Question"])
    with pytest.raises(InputError, match=r"one\.jsonl: found a subset of one token"):
        measure(work, tmp_path / "out", forget=one)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ("1.7", "--base-accuracy: found 1.7"),
        ("nan", "--base-accuracy: found nan"),
        ("nowhere.jsonl", "nowhere"),
    ],
)
def test_a_wrong_base_accuracy_is_refused_before_anything_is_measured(
    work: Path, tmp_path: Path, stated: str, message: str
) -> None:
    near = work / "near.jsonl"
    with pytest.raises(InputError, match=message):
        measure(work, tmp_path / "out", adjacent=near, base_accuracy=stated)
    assert not (tmp_path / "out").exists()


def test_labels_that_no_path_can_be_and_values_without_a_label_or_model(tmp_path: Path) -> None:
    long = "L" * 300
    assert labelled([f"{long}=models/a"]) == {long: "models/a"}
    assert labelled([" spaced =models/a", "b/c=models/d"]) == {"spaced": "models/a", "b/c": "models/d"}
    assert named_paths([f"{long}=a.jsonl"], "forget") == {long: "a.jsonl"}
    for value in ("=models/a", "a=", "", " =models/a"):
        with pytest.raises(InputError, match="needed MODEL or LABEL=MODEL"):
            labelled([value])
