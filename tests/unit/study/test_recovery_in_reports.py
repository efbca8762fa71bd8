"""What a page says of recovery before and after `vestige attack recover`."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from bag_of_words import SPEC

from vestige.attacks.records import SETTINGS_CAVEAT, RecoveryRecord
from vestige.cli.app import run
from vestige.contracts import Estimate, Undefined
from vestige.report.recovered import NOT_TESTED, pooled_unseen, recovery_sentence
from vestige.report.words import estimate_text
from vestige.study.plan import Plan
from vestige.study.runner import Execution, StudyResult, run_study


@pytest.fixture(scope="module")
def attacked_once(
    small_once: StudyResult, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], str]:
    """A finished study after the attack on one of its methods; what its page said before."""
    root = Path(shutil.copytree(small_once.root, tmp_path_factory.mktemp("attacked") / "run"))
    assert run(["report", str(root)]) == 0
    before = words(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vestige.study.runner.DEFAULT_BACKEND", SPEC)
        patch.setattr(Execution, "__init__", _with_backend(Execution.__init__))
        options = ["--budgets", "1,2", "--learning-rate", "2e-4", "--method", "SimNPO", "--no-controls"]
        assert run(["attack", "recover", str(root), *options]) == 0
    return root, json.loads((root / "recovery/01-s17-simnpo.json").read_text("utf-8")), before


@pytest.fixture
def attacked(attacked_once: tuple[Path, dict[str, Any], str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(attacked_once[0], tmp_path / "attacked"))


def _with_backend(original: Callable[..., None]) -> Callable[..., None]:
    def init(self: Execution, **kwargs: Any) -> None:
        original(self, **({"backend": SPEC} | kwargs))

    return init


def words(root: Path) -> str:
    """The page's text."""
    text = re.sub(r"<[^>]*>", "", (root / "report.html").read_text("utf-8"))
    return re.sub(r"\s+", " ", html.unescape(text)).replace("\u2212", "-")


def sentences(root: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What `vestige report --json` says of each model, and writes the page."""
    assert run(["report", str(root), "--html", "--json"]) == 0
    return {item["model"]: item["sentence"] for item in json.loads(capsys.readouterr().out)["verdicts"]}


def test_before_an_attack_recovery_was_not_tested(
    attacked_once: tuple[Path, dict[str, Any], str], small_once: StudyResult
) -> None:
    before = attacked_once[2]
    # Each of three verdicts says it, and the caveats once.
    assert before.count(NOT_TESTED) == 4
    assert "Recovery by fine-tuning on" not in before
    assert not list(small_once.root.glob("recovery/*"))


def test_after_the_attack_the_verdict_says_what_it_found(
    attacked: Path, attacked_once: tuple[Path, dict[str, Any], str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = sentences(attacked, capsys)
    record = RecoveryRecord.model_validate(attacked_once[1])
    pooled = pooled_unseen(record)
    assert pooled is not None
    contrast = pooled.contrasts["g_adj"]
    assert f"published adjusted contrast {estimate_text(contrast, 'signed')}" in said["SimNPO"]
    assert said["SimNPO"].endswith(recovery_sentence(record))
    assert NOT_TESTED not in said["SimNPO"]
    assert said["GradAscent"].endswith(NOT_TESTED)
    page = words(attacked)
    assert recovery_sentence(record) in page
    assert "Recovery by fine-tuning was not tested of “GradAscent” and “Uniformization”." in page
    assert SETTINGS_CAVEAT in page


def test_study_run_says_what_there_is_of_recovery(
    small: Path,
    attacked: Path,
    make_plan: Callable[..., Plan],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "vestige.cli.study._execution",
        lambda jobs, threads, reuse=None: Execution(jobs=jobs, threads=threads, backend=SPEC),
    )
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(make_plan().model_dump(mode="json", exclude_unset=True)), "utf-8")
    # Everything is done already: the same command prints the verdicts again.
    assert run(["study", "run", str(path), "--out", str(small)]) == 0
    before = capsys.readouterr().out
    assert before.count(NOT_TESTED) == 3
    assert "Recovery by fine-tuning on" not in before
    assert run(["study", "run", str(path), "--out", str(attacked)]) == 0
    after = capsys.readouterr().out
    assert after.count(NOT_TESTED) == 2
    assert after.count("Recovery by fine-tuning on 1 and 2 deleted rows an intent, 25 updates: ") == 1
    assert "Recovery by fine-tuning on 1 and 2 deleted rows an intent, 25 updates: " in words(attacked)


def test_when_every_model_was_attacked_the_caveat_is_gone(
    make_plan: Callable[..., Plan],
    tmp_path: Path,
    execution: Execution,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = make_plan(
        noise_seeds=[],
        oracle_seeds=[],
        draws=100,
        candidates=["S0", "S1"],
        methods=[{"method": "simnpo", "settings": {"epochs": 2, "learning_rate": 2e-4}}],
        recovery={"budgets": [1], "adapt_seeds": [0], "learning_rate": 2e-4, "controls": False},
    )
    run_study(plan, tmp_path / "run", execution=execution)
    said = sentences(tmp_path / "run", capsys)
    page = words(tmp_path / "run")
    assert "was not tested" not in page
    # The assessment under another candidate set is of the same checkpoint.
    assert page.count("Recovery by fine-tuning on 1 deleted row an intent, 25 updates: ") == 2
    assert "Recovery by fine-tuning on 1 deleted row an intent, 25 updates: " in said["SimNPO"]


def test_a_record_of_another_checkpoint_is_not_taken(
    attacked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = attacked / "recovery/01-s17-simnpo.json"
    record = json.loads(path.read_text("utf-8"))
    record["nodes"]["unlearned"] = "0" * 64
    path.write_text(json.dumps(record), encoding="utf-8")
    assert sentences(attacked, capsys)["SimNPO"].endswith(NOT_TESTED)


def test_fresh_heads_alone_are_no_recovery(attacked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = attacked / "recovery/01-s17-simnpo.json"
    record = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**record, "settings": [], "pooled": []}), encoding="utf-8")
    assert sentences(attacked, capsys)["SimNPO"].endswith(NOT_TESTED)
    assert words(attacked).count(NOT_TESTED) == 4


@pytest.mark.parametrize(
    ("reading", "words_of_it"),
    [
        ("return", "it came back, above what the retrained model learns anew; "),
        ("still there", "it was never gone: already above what the retrained model reaches by it; "),
        ("learned anew", "what came back is not shown to be more than the retrained model learns anew; "),
        ("no return", "nothing is shown to have come back; "),
        (Undefined(undefined="8 unseen rows, needed 10"), "undefined: 8 unseen rows, needed 10 (published"),
        (None, "without an interval of them"),
    ],
)
def test_the_sentence_gives_levels_whatever_the_reading(
    attacked_once: tuple[Path, dict[str, Any], str], reading: Any, words_of_it: str
) -> None:
    """Also of a record made before levels were compared: they are in its curves."""
    record = RecoveryRecord.model_validate(attacked_once[1])
    said = recovery_sentence(record.model_copy(update={"reading": reading}))
    assert said.startswith("Recovery by fine-tuning on 1 and 2 deleted rows an intent, 25 updates: ")
    assert words_of_it in said
    for checkpoint, words_before in (("unlearned", "went from"), ("oracle", "the retrained model's from")):
        curves = [item.curves[checkpoint].gold_probability for item in record.settings]
        start, end = (sum(curve[place] for curve in curves) / len(curves) for place in (0, -1))
        assert f"{words_before} {start:.2f} to {end:.2f}" in said


def test_an_undefined_published_contrast_does_not_silence_the_levels(
    attacked_once: tuple[Path, dict[str, Any], str],
) -> None:
    record = RecoveryRecord.model_validate(attacked_once[1])
    none = Estimate(value=Undefined(undefined="one row"))
    pooled = record.pooled[0].model_copy(update={"contrasts": {**record.pooled[0].contrasts, "g_adj": none}})
    said = recovery_sentence(record.model_copy(update={"pooled": (pooled,)}))
    assert "published adjusted contrast undefined: one row" in said
    assert "gold probability on unseen rows went from" in said


@pytest.mark.parametrize("fault", ["half of it", "another table"])
def test_curves_that_cannot_be_read_are_one_line(
    fault: str, attacked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = attacked / "recovery/01-s17-simnpo.parquet"
    data = path.read_bytes()
    if fault == "half of it":
        path.write_bytes(data[: len(data) // 2])
    else:
        pq.write_table(pa.table({"a": [1]}), path)
    assert run(["report", str(attacked), "--figures", "svg"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line
    assert ("truncated Parquet" if fault == "half of it" else "a column 'population'") in line
