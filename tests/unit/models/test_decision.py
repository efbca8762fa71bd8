"""The decision model: equivariance, dependence on the candidate set, batching, saving."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny import WORDS, save_tiny_bert, tiny_rows, tiny_schema

from vestige.decision.schema import Option, Schema
from vestige.errors import InputError
from vestige.models.backbones import load_backbone
from vestige.models.decision import ModelSettings, SchemaModel, build_decision_model, load_decision_model
from vestige.models.reading import length_groups
from vestige.training.loop import TaskSettings, TrainRows, train_task

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("bert"), dropout=0.0)


@pytest.fixture(scope="module")
def trained(folder: Path) -> SchemaModel:
    model = build_decision_model(ModelSettings(backbone=str(folder), lora_rank=4), seed=3)
    ids, texts, gold = tiny_rows(160)
    train_task(
        model,
        TrainRows(ids, texts, gold),
        tiny_schema(),
        TaskSettings(epochs=8, batch_size=16, learning_rate=3e-3),
        seed=3,
    )
    return model


def test_training_learns_the_task(trained: SchemaModel) -> None:
    schema = tiny_schema()
    _, texts, gold = tiny_rows(120, seed=9)
    hits = np.array(schema.ids)[trained.predict(texts, schema).argmax(1)] == np.array(gold)
    assert hits.mean() > 0.4  # chance is 1/6, standard error 0.03


def test_probabilities_are_distributions(trained: SchemaModel) -> None:
    probs = trained.predict(tiny_rows(20)[1], tiny_schema())
    assert probs.dtype == np.float64
    assert probs.min() > 0
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-12)


def test_permuting_options_permutes_columns(trained: SchemaModel) -> None:
    schema, texts = tiny_schema(), tiny_rows(30)[1]
    order = [4, 2, 0, 5, 1, 3]
    permuted = Schema(tuple(schema.options[i] for i in order))
    error = np.abs(trained.predict(texts, permuted) - trained.predict(texts, schema)[:, order]).max()
    assert error < 1e-5  # float32 sums in another order


def test_a_smaller_candidate_set_is_not_a_slice(trained: SchemaModel) -> None:
    schema, texts = tiny_schema(), tiny_rows(60)[1]
    keep = [0, 2, 5]
    sliced = trained.predict(texts, schema)[:, keep]
    sliced /= sliced.sum(1, keepdims=True)
    rescored = trained.predict(texts, Schema(tuple(schema.options[i] for i in keep)))
    assert np.abs(rescored - sliced).max() > 1e-4


def test_an_unseen_option_is_scored_from_its_text(trained: SchemaModel) -> None:
    schema, texts = tiny_schema(), tiny_rows(10)[1]
    near = Schema((*schema.options, Option(id="new", name="stolen card")))
    far = Schema((*schema.options, Option(id="new", name="travel country")))
    assert trained.predict(texts, near).shape == (10, 7)
    assert np.abs(trained.predict(texts, near) - trained.predict(texts, far)).max() > 1e-4


def test_padding_and_batch_composition_change_nothing(trained: SchemaModel) -> None:
    schema, texts = tiny_schema(), tiny_rows(40)[1]
    together = trained.predict(texts, schema)
    alone = np.concatenate([trained.predict([text], schema) for text in texts])
    assert np.abs(together - alone).max() < 1e-5  # float32 kernels differ by batch shape
    trained.tokenizer.padding_side = "left"
    try:
        assert np.array_equal(trained.predict(texts, schema), together)
    finally:
        trained.tokenizer.padding_side = "right"


def test_predict_restores_the_training_mode(trained: SchemaModel) -> None:
    trained.train()
    trained.backbone.eval()
    trained.predict(["card"], tiny_schema())
    assert trained.training
    assert not trained.backbone.training
    trained.eval()


def test_no_rows_give_an_empty_table(trained: SchemaModel) -> None:
    assert trained.predict([], tiny_schema()).shape == (0, 6)


def test_saving_and_loading_keeps_every_bit(trained: SchemaModel, tmp_path: Path) -> None:
    texts = tiny_rows(50)[1]
    before = trained.predict(texts, tiny_schema())
    trained.save(tmp_path / "m")
    assert {path.suffix for path in (tmp_path / "m").rglob("*") if path.is_file()} <= {
        ".safetensors",
        ".json",
    }
    assert np.array_equal(load_decision_model(tmp_path / "m").predict(texts, tiny_schema()), before)
    # The library keeps names in sets: written as they come, equal models would differ in this file's hash.
    path = tmp_path / "m" / "adapter" / "adapter_config.json"
    names = json.loads(path.read_text())["target_modules"]
    assert names == sorted(names)
    assert len(names) > 1


def test_a_folder_with_its_backbone_stands_alone(trained: SchemaModel, tmp_path: Path) -> None:
    trained.save(tmp_path / "m", include_backbone=True)
    text = json.loads((tmp_path / "m" / "model.json").read_text())
    text["settings"]["backbone"] = "/nowhere"
    (tmp_path / "m" / "model.json").write_text(json.dumps(text))
    texts = tiny_rows(20)[1]
    loaded = load_decision_model(tmp_path / "m")
    assert np.array_equal(loaded.predict(texts, tiny_schema()), trained.predict(texts, tiny_schema()))


def test_a_changed_backbone_is_refused(trained: SchemaModel, tmp_path: Path) -> None:
    trained.save(tmp_path / "m")
    text = json.loads((tmp_path / "m" / "model.json").read_text())
    text["backbone"]["sha256"] = "0" * 64
    (tmp_path / "m" / "model.json").write_text(json.dumps(text))
    with pytest.raises(InputError, match="install the same version"):
        load_decision_model(tmp_path / "m")


@pytest.mark.parametrize("broken", ["model.json", "head.safetensors", "adapter/adapter_model.safetensors"])
def test_a_damaged_folder_is_one_line(trained: SchemaModel, tmp_path: Path, broken: str) -> None:
    trained.save(tmp_path / "m")
    path = tmp_path / "m" / broken
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError) as caught:
        load_decision_model(tmp_path / "m")
    assert "\n" not in str(caught.value)


def test_same_seed_same_start_and_nothing_global_moves(folder: Path) -> None:
    settings = ModelSettings(backbone=str(folder), lora_rank=4)
    state = torch.get_rng_state()
    first, second, third = (build_decision_model(settings, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    same = [torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)]
    assert all(same)
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), third.parameters(), strict=True))


def test_only_adapters_and_head_are_trainable(folder: Path) -> None:
    model = build_decision_model(ModelSettings(backbone=str(folder)), seed=1)
    assert all("lora_" in name or name.startswith("head.") for name in model.trainable_state())


def test_odd_option_texts_are_read(trained: SchemaModel) -> None:
    odd = ["a/b", "a,b", "a\nb", "🙂", "__", "x" * 10_000, "<script>alert(1)</script>", " ".join(WORDS)]
    schema = Schema(tuple(Option(id=text, name=text) for text in odd))
    probs = trained.predict(["lost card"], schema)
    assert probs.shape == (1, 8)
    np.testing.assert_allclose(probs.sum(1), 1)


@pytest.mark.parametrize(("name", "part"), [("no-such-model", "no such wheel"), ("", "no such wheel")])
def test_an_unknown_backbone_is_one_line(name: str, part: str) -> None:
    with pytest.raises(InputError, match=part):
        load_backbone(name)


def test_a_folder_without_a_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json"):
        load_backbone(str(tmp_path))


def test_an_unknown_reader_is_refused_with_a_suggestion(folder: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'encoder'"):
        build_decision_model(ModelSettings(backbone=str(folder), reader="encodr"), seed=0)


def test_length_groups_hold_every_row_once_and_waste_little() -> None:
    lengths = [3, 50, 4, 4, 5, 48, 3, 7, 30]
    groups = length_groups(lengths)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        real = sum(lengths[i] for i in group)
        assert max(lengths[i] for i in group) * len(group) <= real / 0.85 + 1e-9
