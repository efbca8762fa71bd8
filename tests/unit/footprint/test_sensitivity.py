"""The sensitivity table: the published form, one factor at a time, values as measured apart."""

from __future__ import annotations

import copy
import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny_lm import save_tiny_llama, tiny_llama, tiny_texts, tiny_tokenizer, write_corpus

from vestige.cli import run
from vestige.contracts import Undefined
from vestige.data.corpora import Corpus, Document, TokenSequence
from vestige.footprint.fisher import fisher_diagonal
from vestige.footprint.judgements import SensitivitySettings
from vestige.footprint.records import FootprintRecord
from vestige.footprint.sensitivity import Samples, samples_for, sensitivity
from vestige.footprint.shifts import relative_shift
from vestige.models.causal_lm import language_model
from vestige.models.projections import target_parameters


def test_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    base = language_model(tiny_llama(layers=1), tiny_tokenizer(), label="base")
    changed = copy.deepcopy(base.model)
    with torch.no_grad():
        for weight in target_parameters(changed).values():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    after = language_model(changed, tiny_tokenizer(), label="after")
    samples = {
        corpus: [
            TokenSequence((1, *(int(i) for i in rng.integers(3, 40, 6))), str(i), 0, "") for i in range(6)
        ]
        for corpus in ("bio-forget", "bio-retain")
    }
    roles: Any = {"bio-forget": "forget", "bio-retain": "adjacent"}
    found = sensitivity(
        base=base,
        checkpoints={"NPO": after},
        samples={name: Samples(roles[name], tuple(units)) for name, units in samples.items()},
        settings=SensitivitySettings(sizes=(2, 4, 200), probes=(1, 2, 3)),
    )
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    kinds = [(row["quantity"], row["factor"]) for row in rows]
    # Two corpora and a margin: three sizes and three subspaces; CHess on the forget corpus: nine settings.
    assert kinds.count(("cofi", "sample_size")) == kinds.count(("cofi", "subspace")) == 6
    assert kinds.count(("class_margin", "sample_size")) == kinds.count(("class_margin", "subspace")) == 3
    assert [kinds.count(("chess", f)) for f in ("sample_size", "probe_count", "subspace")] == [3, 3, 3]
    assert any("200 left out" in note for note in found.notes)

    def value(**keys: str) -> float:
        (row,) = [row for row in rows if all(row[k] == v for k, v in keys.items())]
        return float(row["value"])

    ffn = [
        fisher_diagonal(m, target_parameters(m, "ffn"), samples["bio-retain"]).values
        for m in (base.model, changed)
    ]
    assert value(quantity="cofi", corpus="bio-retain", setting="FFN") == pytest.approx(
        relative_shift(*ffn), rel=1e-6
    )
    gap = value(quantity="cofi", corpus="bio-forget", setting="4") - value(
        quantity="cofi", corpus="bio-retain", setting="4"
    )
    assert value(quantity="class_margin", setting="4") == pytest.approx(gap)
    same = [row["value"] for row in rows if row["quantity"] == "chess" and row["n"] == "6"]
    # n = 6 with two probes is asked for as a size and as a probe count; with three as a count and a subspace.
    assert len(same) - len(set(same)) == 2


def test_the_published_ablation_divides_by_the_footprint_s_own_base(tmp_path: Path) -> None:
    """Three corpora of documents longer than a unit: cut at 8 tokens, not windowed; one value by hand."""
    base = language_model(tiny_llama(layers=1), tiny_tokenizer(), label="base", dtype="bfloat16")
    changed = tiny_llama(layers=1)
    with torch.no_grad():
        for weight in target_parameters(changed).values():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    after = language_model(changed, tiny_tokenizer(), label="after", dtype="bfloat16")
    corpora = {
        f"bio-{role}": Corpus(
            name=f"bio-{role}",
            role="forget" if role == "forget" else "adjacent",
            documents=tuple(Document(str(i), text) for i, text in enumerate(tiny_texts(9, seed=seed))),
        )
        for seed, role in enumerate(("forget", "retain"))
    }
    settings = SensitivitySettings(
        preset="triage", sizes=(2, 4), probes=(1, 2), max_length=8, hessian_length=6
    )
    assert (settings.seed, settings.stored, settings.dtype) == (1234, "float16", "bfloat16")
    samples = samples_for(corpora, base, settings)
    own = samples["bio-forget"]
    assert len(own.units) == 4
    assert max(len(unit.ids) for unit in own.units) == 8
    assert {unit.start for unit in own.units} == {0}
    assert max(len(unit.ids) for unit in own.long) > 8
    found = sensitivity(base=base, checkpoints={"NPO": after}, samples=samples, settings=settings)

    def logs(model: Any, units: Any, subspace: Any) -> torch.Tensor:
        values = fisher_diagonal(
            model.model, target_parameters(model.model), units, estimator="batch-mean", batch_mean_size=4
        ).values
        names = target_parameters(model.model, subspace)
        return torch.cat([(values[name].double() + 1e-5).log().half().double().flatten() for name in names])

    for part, subspace in (("attn", "attention"), ("both", "both")):
        moved = (logs(base, own.units, subspace) - logs(after, own.units, subspace)).norm()
        expected = 100 * moved / logs(base, own.long, subspace).norm()
        (value,) = {
            row.value
            for row in found.rows
            if (row.quantity, row.corpus, row.factor, row.subspace)
            == ("cofi", "bio-forget", "subspace", part)
        }
        assert value == pytest.approx(float(expected), rel=1e-9)
    assert len([row for row in found.rows if row.quantity == "chess"]) == 2 + 2 + 3
    assert {row.corpus for row in found.rows if row.quantity == "chess"} == {"bio-forget"}
    assert all(row.value > 0 for row in found.rows if row.quantity == "chess")


def test_published_values_of_a_part_are_divided_by_the_base_of_that_part(paper: Path) -> None:
    """Logarithms are all about -11.5, so that squared norms go with counts of weights: with each part's own
    base, `both^2 = share attn^2 + (1 - share) FFN^2`, share the attention's of Llama-3.1-8B; with the whole
    model's base the squares of the parts would add up to it."""
    attention, feed_forward = 2 * 4096 * 4096 + 2 * 4096 * 1024, 3 * 4096 * 14336
    share = attention / (attention + feed_forward)
    with (paper / "triage_sensitivity.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            row for row in csv.DictReader(file) if (row["quantity"], row["factor"]) == ("cofi", "subspace")
        ]
    values: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        values.setdefault((row["method"], row["corpus"]), {})[row["subspace"]] = float(row["value"])
    compared = 0
    for (method, _), parts in values.items():
        both = share * parts["attn"] ** 2 + (1 - share) * parts["ffn"] ** 2
        if method != "ATU":  # a no-op, at the floor of what is stored
            assert both**0.5 == pytest.approx(parts["both"], rel=0.005)
            assert (parts["attn"] ** 2 + parts["ffn"] ** 2) ** 0.5 > 1.5 * parts["both"]
            compared += 1
    assert compared == 4


def test_the_two_verbs_of_the_published_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables 5 to 7 from checkpoints, tables 8 and 9 from a base alone."""
    save_tiny_llama(tmp_path / "base", layers=1)
    changed = tiny_llama(layers=1)
    with torch.no_grad():
        changed.model.layers[0].mlp.up_proj.weight.mul_(1.5)
    changed.save_pretrained(str(tmp_path / "un"))
    for seed, name in enumerate(("bio", "near", "wiki")):
        write_corpus(tmp_path / f"{name}.jsonl", tiny_texts(6, seed=seed))
    files = [
        value
        for role, name in (("forget", "bio"), ("adjacent", "near"))
        for value in (f"--{role}", f"{name}={tmp_path / name}.jsonl")
    ]
    models = ["--base", str(tmp_path / "base"), "--preset", "triage", "--units", "4"]
    line = ["footprint", "sensitivity", *models, *files, "--unlearned", f"NPO={tmp_path / 'un'}"]
    assert run([*line, "--out", str(tmp_path / "s")]) == 0
    rows = list(csv.DictReader((tmp_path / "s" / "sensitivity.csv").read_text().splitlines()))
    assert {row["setting"] for row in rows if row["factor"] == "sample_size"} == {"4"}
    assert [row["probes_k"] for row in rows if row["factor"] == "probe_count"] == ["2", "4", "8"]
    capsys.readouterr()
    line = ["footprint", "adjacency", *models, *files, "--generic", f"wiki={tmp_path / 'wiki.jsonl'}"]
    assert run([*line, "--out", str(tmp_path / "a")]) == 0
    assert "mean cosine forget-adjacent" in capsys.readouterr().out
    record = FootprintRecord.model_validate_json((tmp_path / "a" / "footprint.json").read_text())
    assert (record.checkpoints, record.settings.preset) == ((), "triage")
    assert not isinstance(record.adjacency, Undefined)
    assert record.cost.passes_run == 3 * 4  # the base's Fisher diagonal on four documents of each corpus


def test_columns_are_the_published_ones(paper: Path) -> None:
    from vestige.footprint.judgements import SensitivityTable

    with (paper / "triage_sensitivity.csv").open(encoding="utf-8", newline="") as file:
        header = next(csv.reader(file))
    assert header == ["source_table", *SensitivityTable(rows=()).to_csv().strip().split(",")]
