"""Studies of a language model from one file to a page, on a tiny model and a few rows a text."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("torch", reason="the extra 'train' is not installed")

from tests.tiny import WORDS
from tests.tiny_lm import LETTERS, save_tiny_llama, tiny_texts, write_corpus

from vestige.cli import run
from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.language_study import run as module
from vestige.language_study.outline import outline
from vestige.language_study.plan import LanguagePlan, load_language_study, shipped_language_studies
from vestige.language_study.records import LanguageStudyRecord
from vestige.methods import METHODS

POOL = sorted(set(WORDS))
STUDIES = sorted(shipped_language_studies())


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model; about 20 rows of questions with answers, plain text, choices, and TOFU's columns."""
    folder = tmp_path_factory.mktemp("study")
    save_tiny_llama(folder / "model", extra=LETTERS)
    for place in range(6):
        words = POOL[place * 7 : place * 7 + 25]
        write_corpus(folder / f"text-{place}.jsonl", tiny_texts(20, seed=place, words=words))
        questions = tiny_texts(20, seed=place + 30, words=words, longest=6)
        answers = tiny_texts(20, seed=place + 60, words=words, longest=6)
        rows = [
            {
                "question": question, "answer": answer, "paraphrased_answer": answer,
                "perturbed_answer": tiny_texts(3, seed=i + 90, words=words, longest=6),
            }
            for i, (question, answer) in enumerate(zip(questions, answers, strict=True))
        ]  # fmt: skip
        (folder / f"tofu-{place}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    subjects = ["virology", "college_biology", "computer_security", *(f"other_{i}" for i in range(54))]
    for name, own in (("asked", ["x"]), ("mmlu", subjects)):
        asked = [
            {
                "question": POOL[(i * 3 + k) % len(POOL)],
                "choices": [POOL[(i + j) % len(POOL)] for j in range(4)],
                "answer": k % 4,
                "subject": one,
            }
            for i, one in enumerate(own)
            for k in range(6 if name == "asked" else 1)
        ]
        for row in asked:
            if name == "asked":
                del row["subject"]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    return folder


def stand_ins(work: Path, plan: LanguagePlan) -> list[str]:
    """`--text NAME=FILE` for every text of a plan: what it is asked for decides the kind."""
    tofu = set(plan.behaviour.tofu.values()) if plan.behaviour else set()
    asked = set(plan.behaviour.questions.values()) if plan.behaviour else set()
    pairs = plan.name.startswith("tofu")
    found: list[str] = []
    for place, name in enumerate(plan.texts):
        if name in asked:
            file = "mmlu" if name == "mmlu" else "asked"
        elif name in tofu or (pairs and name in (*plan.forget, *plan.adjacent)):
            file = f"tofu-{place % 6}"
        else:
            file = f"text-{place % 6}"
        found += ["--text", f"{name}={work / file}.jsonl"]
    return found


@pytest.mark.parametrize("name", STUDIES)
def test_shipped_studies_parse_and_say_what_they_would_do(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert load_language_study(name).name == name
    assert load_language_study(name, scale="small").name == name
    assert run(["study", "run", name, "--dry-run", "--out", str(tmp_path / "none")]) == 0
    said = capsys.readouterr().out
    assert "unlearning: " in said
    assert "footprint" in said
    assert load_language_study(name).licence.replace("\n", " ") in said.replace("\n", " ")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", [name for name in STUDIES if name != "injection"])
def test_shipped_studies_run_from_end_to_end_on_stand_ins(
    name: str, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = load_language_study(name, scale="small")
    arguments = [
        "study",
        "run",
        name,
        "--scale",
        "small",
        "--model",
        str(work / "model"),
        "--out",
        str(tmp_path),
    ]
    assert run([*arguments, *stand_ins(work, plan)]) == 0, capsys.readouterr().err
    record = LanguageStudyRecord.model_validate_json((tmp_path / "language-study.json").read_text())
    assert [stage.name for stage in record.stages] == [item["name"] for item in outline(plan, tmp_path)]
    labels = [row.label for row in record.rows]
    assert labels[0] == "base"
    assert ("oracle" in labels) == (plan.oracle is not None)
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [row["label"] for row in rows] == labels
    for row in record.rows:
        assert not isinstance(row.recovery, Undefined)
        if row.role != "base":
            assert not isinstance(row.cofi_f, Undefined)
    page = (tmp_path / "report.html").read_text()
    assert "Before and after relearning" in page
    assert ("no questions were asked" in page) == (plan.behaviour is None)


def test_a_study_that_is_done_trains_nothing_again(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = load_language_study("tofu-small", scale="small")
    arguments = ["study", "run", "tofu-small", "--scale", "small", "--model", str(work / "model")]
    arguments += ["--out", str(tmp_path), *stand_ins(work, plan)]
    assert run(arguments) == 0
    first = (tmp_path / "table.csv").read_text()

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("measured again")

    for name in ("footprint", "relearn"):
        monkeypatch.setattr(module, name, refuse)
    capsys.readouterr()
    assert run([*arguments, "--json"]) == 0
    record = LanguageStudyRecord.model_validate_json(capsys.readouterr().out)
    assert all(stage.taken for stage in record.stages)
    assert (tmp_path / "table.csv").read_text() == first
    assert run([*arguments, "--dry-run"]) == 0
    assert "to do" not in capsys.readouterr().out
    # Another text in the same folder: what is measured on it is measured again, no model is trained.
    monkeypatch.undo()
    (tmp_path / "other.jsonl").write_text((work / "text-5.jsonl").read_text())
    assert run([*arguments, "--text", f"generic={tmp_path / 'other.jsonl'}", "--json"]) == 0
    record = LanguageStudyRecord.model_validate_json(capsys.readouterr().out)
    assert [stage.name for stage in record.stages if not stage.taken] == ["footprint", "behaviour", "relearn"]
    assert (tmp_path / "table.csv").read_text() != first


METHODS_OF_EVERY_KIND = ("grad_diff", "rmu", "spul", "obliviate")
"""Of a term, of hidden states, with a phase before and a prompt, with keywords of the study."""


def known_facts(folder: Path) -> Path:
    """The shipped study of known facts at its small scale with four of its methods, a few steps each."""
    study = yaml.safe_load(shipped_language_studies()["injection"])
    small = study["scales"]["small"]
    small["methods"] = [item for item in small["methods"] if item["method"] in METHODS_OF_EVERY_KIND]
    for item in small["methods"]:
        item["settings"] |= {"max_steps": 10} | ({"tune_steps": 4} if item["method"] == "spul" else {})
    small["footprint"] |= {"units": 4, "subsets": 2, "calibrate": False}
    small["relearn"] |= {"documents": 4, "score_rows": 6}
    path = folder / "injection.yaml"
    path.write_text(yaml.safe_dump(study))
    return path


def test_the_known_facts_are_learned_and_every_method_is_measured_against_the_exact_oracle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, out = known_facts(tmp_path), tmp_path / "run"
    assert run(["study", "run", str(study), "--scale", "small", "--out", str(out)]) == 0
    record = LanguageStudyRecord.model_validate_json((out / "language-study.json").read_text())
    assert record.gates is not None
    assert record.gates.took
    rows = {row.label: row for row in record.rows}
    assert set(rows) == {"base", "oracle", *METHODS_OF_EVERY_KIND}
    base, oracle = rows["base"].injected, rows["oracle"].injected
    assert base is not None
    assert oracle is not None
    assert oracle.distance_f == oracle.distance_a == oracle.distance_g == oracle.weights == 0
    assert base.weights == 1
    assert base.distance_f > base.distance_g > 0
    assert (base.accuracy_f, oracle.accuracy_f) == (record.gates.injected_f, record.gates.oracle_f)
    for label in METHODS_OF_EVERY_KIND:
        found = rows[label].injected
        assert found is not None
        assert 0 < found.distance_f <= 1
        prompt = label == "spul"
        assert isinstance(found.weights, Undefined) == prompt
        assert isinstance(rows[label].recovery, Undefined) == prompt
    page = (out / "report.html").read_text().replace("\u00a0", " ")
    assert "Against the exact oracle" in page
    asked = rows["rmu"].injected
    assert asked is not None
    assert f"answers {100 * asked.accuracy_f:.1f} % of the facts to forget" in page
    assert "answers to questions about the removed content" not in page
    assert "distance_f" in (out / "table.csv").read_text().splitlines()[0]


def test_known_facts_name_every_method_of_language_models_at_both_scales() -> None:
    registered = {method.name for method in METHODS if method.language is not None}
    for scale in (None, "small"):
        plan = load_language_study("injection", scale=scale)
        assert {item.method for item in module.method_plans(plan)} == registered


def test_wrong_studies_get_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="did you mean 'forget10'"):
        load_language_study("tofu", texts={"forgt10": "x.jsonl"})
    file = tmp_path / "odd.yaml"
    file.write_text(
        "kind: language\nname: odd\nmodel: m\nmethods: []\nforget: [a]\ntexts: {b: {path: b.jsonl}}\n"
    )
    with pytest.raises(InputError, match="no text 'a'"):
        load_language_study(file)
    assert run(["study", "run", "wmdp", "--frozen", "x.json"]) == 2
    assert "leave --frozen away" in capsys.readouterr().err
    assert run(["study", "run", "demo", "--model", "x", "--dry-run"]) == 2
    assert "leave --model away" in capsys.readouterr().err
    assert run(["study", "show", "injection"]) == 0
    assert "kind: language" in capsys.readouterr().out
