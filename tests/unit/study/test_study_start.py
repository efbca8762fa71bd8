"""Retraining that starts from weights which saw the deleted rows: refused where known, said elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bag_of_words import BagOfWords

from conftest import INTENTS
from vestige.contracts import Record
from vestige.errors import InputError
from vestige.study.outline import outline
from vestige.study.protocol import Start
from vestige.study.runner import Execution, run_study
from vestige.study.tune import tune_study

Make = Callable[..., Any]


class StartingBackend(BagOfWords):
    """Says of its weights what a test wants said."""

    says = Start("models/mine")

    def start(self, model: Record) -> Start:
        return self.says


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def say(**known: Any) -> None:
        monkeypatch.setattr(StartingBackend, "says", Start("models/mine", local=True, **known))

    for module in ("runner", "outline", "tune"):
        monkeypatch.setattr(
            f"vestige.study.{module}.load_backend", lambda spec: StartingBackend(), raising=False
        )
    return say


OWN = tuple(INTENTS)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (OWN, "a classifier of 10 of the data set's 10 options"),
        (tuple(name.upper() for name in OWN[:6]), "a classifier of 6 of the data set's 10 options"),
        (tuple(f"LABEL_{place}" for place in range(10)), "a classifier with 10 labels without names"),
    ],
)
def test_a_classifier_of_these_options_is_no_start(
    labels: tuple[str, ...], told: str, says: Callable[..., None], make_plan: Make, tmp_path: Path
) -> None:
    says(labels=labels)
    for call in (run_study, tune_study, outline):
        with pytest.raises(InputError, match=f"found models/mine, {told}: its weights saw"):
            call(make_plan(), tmp_path / "run", execution=Execution())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "labels",
    [(), ("positive", "negative"), OWN[:4], ("LABEL_0", "LABEL_1"), tuple(f"LABEL_{i}" for i in range(9))],
)
def test_other_folders_run_and_every_page_says_what_cannot_be_known(
    labels: tuple[str, ...], says: Callable[..., None], make_plan: Make, tmp_path: Path
) -> None:
    says(labels=labels)
    made = run_study(make_plan(), tmp_path / "run", execution=Execution())
    for assessment in made.assessments.values():
        assert any("started from the local folder models/mine" in line for line in assessment.caveats)


def test_asked_for_it_runs_and_every_page_says_so(
    says: Callable[..., None], make_plan: Make, tmp_path: Path
) -> None:
    says(labels=OWN)
    made = run_study(make_plan(seen_start=True), tmp_path / "run", execution=Execution())
    (line,) = [line for line in made.assessments["assessments/01-s17.json"].caveats if "models/mine" in line]
    assert "the retrained models know the deleted rows from there too" in line


def test_published_weights_are_not_spoken_of(make_plan: Make, tmp_path: Path) -> None:
    made = run_study(make_plan(), tmp_path / "run", execution=Execution(backend="bag_of_words:BagOfWords"))
    assert not [line for item in made.assessments.values() for line in item.caveats if "started from" in line]


@pytest.mark.train
def test_what_a_folder_says_of_its_weights(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra 'train' is not installed")
    from tests.tiny import save_tiny_bert

    from vestige.study.backend import TorchBackend

    backend = TorchBackend()
    save_tiny_bert(tmp_path / "bare")
    save_tiny_bert(tmp_path / "classifier", labels=["b", "a", "c"])
    for name, labels in (("bare", ()), ("classifier", ("b", "a", "c"))):
        folder = str(tmp_path / name)
        assert backend.start(backend.model_settings({"backbone": folder})) == Start(folder, True, labels)
    assert backend.start(backend.model_settings({"backbone": "owner/no-such-model"})).labels == ()
