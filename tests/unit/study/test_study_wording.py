"""Wrong values in study files: each is one line that names the file, the key and what is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bag_of_words import BagOfWords

from vestige.errors import InputError
from vestige.study.cells import prepare
from vestige.study.plan import parse_plan

BASE = "name: x\ndataset: helpdesk\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('seeds: "17"', "my.yaml: seeds: found '17'; needed a list"),
        ("seeds: [true]", "my.yaml: seeds[0]: found true; needed a number"),
        ("seeds: [1, a]", "my.yaml: seeds[1]: found 'a'; needed a whole number"),
        ("seeds: [1.5]", "my.yaml: seeds[0]: found '1.5'; needed a whole number"),
        ("draws: true", "needed a number of at least 100"),
        ("draws: 5", "my.yaml: draws: found '5'; needed a number of at least 100"),
        ("seed_metrics: maybe", "my.yaml: seed_metrics: found 'maybe'; needed true or false"),
        ("model: 3", "my.yaml: model: found '3'; needed a mapping of keys"),
        ("tuning: {epochs: 0}", "my.yaml: tuning: epochs: found '0'; needed a number of at least 1"),
        ("deletion: {units_per_bundle: true}", "my.yaml: deletion: units_per_bundle: found true"),
        ("rendering: semantik", "needed one of 'semantic' or 'opaque'; did you mean 'semantic'?"),
    ],
)
def test_wrong_types_in_words(line: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_plan(f"{BASE}{line}\n", "my.yaml")
    assert message in str(caught.value)
    assert "input should be" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("training: {epochs: 0}", "my.yaml: training: epochs: found '0'; needed a number of at least 1"),
        (
            "training: {learning_rate: 0}",
            "my.yaml: training: learning_rate: found '0'; needed a number above 0",
        ),
        ("training: {epochs: true}", "my.yaml: training: epochs: found true; needed a number"),
        (
            "model: {scal: 1}",
            "my.yaml: model: found unknown key 'scal'; needed a known key; did you mean",
        ),
        ("methods: [simnpop]", "my.yaml: method 'simnpop'"),
    ],
)
def test_settings_of_the_backend_name_the_file(line: str, message: str) -> None:
    plan = parse_plan(f"{BASE}{line}\n", "my.yaml")
    with pytest.raises(InputError) as caught:
        prepare(plan, BagOfWords())
    assert message in str(caught.value)


def test_a_method_s_settings_name_the_file(
    make_plan: Callable[..., Any], tmp_path: Path, execution: Any
) -> None:
    from vestige.study.runner import run_study

    plan = make_plan(methods=[{"method": "simnpo", "settings": {"beta": -1}}])
    with pytest.raises(InputError, match=r"small\.yaml: methods\[0\] \(simnpo\): settings: beta: found '-1'"):
        run_study(plan, tmp_path / "run", execution=execution)
    assert plan.model_copy(update={"name": "other"}).source == "small.yaml"
    assert "_source" not in plan.model_dump()
