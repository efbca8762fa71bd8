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
from tests.tiny_lm import tiny_llama, tiny_tokenizer

from vestige.data.corpora import TokenSequence
from vestige.footprint.fisher import fisher_diagonal
from vestige.footprint.sensitivity import sensitivity
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
        samples=samples,
        roles=roles,
        sizes=(2, 4, 200),
        probes=(1, 2, 3),
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


def test_columns_are_the_published_ones(paper: Path) -> None:
    from vestige.footprint.judgements import SensitivityTable

    with (paper / "triage_sensitivity.csv").open(encoding="utf-8", newline="") as file:
        header = next(csv.reader(file))
    assert header == ["source_table", *SensitivityTable(rows=()).to_csv().strip().split(",")]
