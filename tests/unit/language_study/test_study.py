"""Studies of a language model from one file to a page, on a tiny model and a few rows a text."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
import yaml

pytest.importorskip("torch", reason="the extra 'train' is not installed")

from tests.tiny import WORDS
from tests.tiny_lm import LETTERS, save_tiny_llama, tiny_texts, write_corpus

from vestige.cli import run
from vestige.cli.language_study import _rests_on
from vestige.contracts import Undefined
from vestige.data.questions import read_questions
from vestige.errors import InputError
from vestige.language_study import run as module
from vestige.language_study.checks import (
    behaviour_settings,
    footprint_settings,
    relearn_settings,
    repeats,
    sensitivity_settings,
)
from vestige.language_study.outline import outline
from vestige.language_study.plan import (
    LanguagePlan,
    TextSource,
    load_language_study,
    method_plans,
    shipped_language_studies,
    study_models,
)
from vestige.language_study.records import CheckpointRow, LanguageStudyRecord
from vestige.language_study.texts import text_file
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
    for model in (None, *study_models(name)):
        assert load_language_study(name, model=model, scale="small").name == name
    assert run(["study", "run", name, "--dry-run", "--out", str(tmp_path / "none")]) == 0
    said = capsys.readouterr().out
    assert "unlearning: " in said
    assert "footprint" in said
    assert load_language_study(name).licence.replace("\n", " ") in said.replace("\n", " ")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["tofu-small"])
def test_shipped_studies_run_from_end_to_end_at_their_small_scale(
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
    # Two retrained models: too few to be equivalent to, enough to be measured against.
    judged = json.loads((tmp_path / "footprint" / "footprint.json").read_text())["verdict"]
    assert (judged["oracles"], judged["family"]) == (["oracle", "oracle (2)"], ["grad_diff"])
    said = {row["label"]: row["verdict"] for row in rows}
    assert said == {
        "base": "is the base",
        "oracle": "is retrained",
        "grad_diff": judged["models"][0]["verdict"],
    }
    assert said["grad_diff"] != "equivalent"
    assert all(0 < float(row["level"]) < 1 for row in rows)
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
        assert not isinstance(found.weights, Undefined)  # SPUL's prompt stands before weights of its own
        assert isinstance(rows[label].recovery, Undefined) == (label == "spul")
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


def test_published_studies_are_the_roster() -> None:
    """Twenty variants of a model, seed 42, preset triage, all texts in their published roles."""
    for name, models in (("wmdp", 4), ("tofu", 3), ("muse-books", 4), ("muse-news", 3), ("blur", 3)):
        assert len(study_models(name)) == models
        for model in study_models(name):
            plan = load_language_study(name, model=model)
            made = method_plans(plan)
            assert (plan.seed, len(made), {item.preset for item in made}) == (42, 20, {"triage"})
            noisy = {item.name for item in made if item.settings.get("noise_std") == 0.001}
            assert noisy == {item.name for item in made if item.name.endswith("+noise")}
            assert (len(noisy), {item.measured for item in made if item.name in noisy}) == (
                8,
                {("footprint",)},
            )
            assert footprint_settings(plan).estimator == "batch-mean"
            assert relearn_settings(plan).weight_decay == 0.01
    assert repeats(method_plans(load_language_study("wmdp"))) == [("GA", "GD"), ("GA+noise", "GD+noise")]
    qwen = load_language_study("wmdp", model="qwen3-32b")
    made = {item.name: item for item in method_plans(qwen)}
    assert "LoKU+FILA" not in made
    assert made["LoKU (no FILA)"].method == "loku"
    assert all(item.settings["four_bit"] for item in made.values())
    settings = footprint_settings(qwen)
    assert (settings.hessian_documents, settings.hessian_group, settings.probes) == (50, 1, 1)
    assert (qwen.four_bit, qwen.sensitivity) == (("relearn",), None)
    eight = load_language_study("wmdp")
    assert eight.sensitivity is not None
    assert sensitivity_settings(eight).sample_names["bio"] == "bio-forget"
    asked = behaviour_settings(eight)
    assert (asked.per_subject, asked.capped_roles, asked.about["cyber"]) == (
        20, ("adjacent", "generic"), "cybersecurity"
    )  # fmt: skip
    assert behaviour_settings(eight, "whole").capped_roles == ("generic",)
    books = load_language_study("muse-books")
    assert books.finetune is not None
    assert books.oracle is not None
    assert books.finetune.data == ("taught-forget", *books.oracle.data)
    assert len(books.oracle.data) == 2
    assert (books.texts["taught-forget"].config, books.texts["books-forget"].config) == ("train", "raw")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wmdp", "wikitext-test (another part of the data set of the generic text wikitext)"),
        ("tofu", "tofu-retain90 (the adjacent text itself)"),
        ("muse-news", "news-retain1 (the adjacent text itself)"),
        ("injection", "injected-adjacent (the adjacent text itself)"),
    ],
)
def test_what_methods_retain_on_is_named_with_what_it_resembles(name: str, words: str) -> None:
    assert footprint_settings(load_language_study(name)).retained_text == words


def test_a_model_of_the_study_brings_its_own_part_and_any_other_is_taken_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load_language_study("wmdp", model="zephyr-7b").model == "HuggingFaceH4/zephyr-7b-beta"
    assert load_language_study("wmdp", model="mine/own").model == "mine/own"
    assert run(["study", "run", "wmdp", "--model", "qwen3-32b", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "model     Qwen/Qwen3-32B; also by name: llama-3.1-8b, llama-3.2-3b" in said
    assert "runs/wmdp-qwen3-32b" in said
    assert "unlearning: LoKU (no FILA)" in said
    file = tmp_path / "odd.yaml"
    file.write_text("kind: language\nname: odd\nmodels: [a]\n")
    with pytest.raises(InputError, match="models: found"):
        load_language_study(file)


def test_a_hub_file_is_read_by_its_name_and_answers_stay_places(tmp_path: Path) -> None:
    """A local folder stands for the hub: two files, of which one is asked for; a right option by its place,
    though a letter is the text of another."""
    (tmp_path / "set").mkdir()
    for name in ("whp_forget", "whp_retain"):
        (tmp_path / "set" / f"{name}.json").write_text(
            json.dumps([{"text": f"{name} {i}"} for i in range(3)])
        )
    source = TextSource(hub=str(tmp_path / "set"), file="whp_retain.json", columns={"text": "text"})
    made = text_file("whp-retain", source, tmp_path / "texts")
    assert [json.loads(line)["text"] for line in made.read_text().splitlines()] == [
        f"whp_retain {i}" for i in range(3)
    ]
    with pytest.raises(ValueError, match="a file by name is one of a hub data set without a config"):
        TextSource(hub="x/y", file="a.json", config="b")
    table = pa.table(
        {
            "question": ["Which?", "Who?"],
            "choices": [["x", "A", "y", "z"], ["B", "v", "w", "A"]],
            "answer": pa.array([0, 3], pa.int64()),
        }
    )
    features = datasets.Features.from_arrow_schema(table.schema)
    features["answer"] = datasets.ClassLabel(names=["A", "B", "C", "D"])
    datasets.Dataset(table.cast(features.arrow_schema)).to_parquet(str(tmp_path / "mmlu" / "test.parquet"))
    asked = text_file("mmlu", TextSource(hub=str(tmp_path / "mmlu"), split="test"), tmp_path / "texts")
    assert [question.answer for question in read_questions(asked)] == [0, 3]


def test_wrong_studies_get_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="did you mean 'tofu-forget10'"):
        load_language_study("tofu", texts={"forgt10": "x.jsonl"})
    file = tmp_path / "odd.yaml"
    file.write_text(
        "kind: language\nname: odd\nmodel: m\nmethods: []\nforget: [a]\ntexts: {b: {path: b.jsonl}}\n"
    )
    with pytest.raises(InputError, match="no text 'a'"):
        load_language_study(file)
    assert run(["study", "run", "wmdp", "--frozen", "x.json"]) == 2
    assert "leave --frozen away" in capsys.readouterr().err
    assert run(["study", "run", "wmdp", "--jobs", "8"]) == 2
    assert "leave --jobs away" in capsys.readouterr().err
    assert run(["study", "run", "demo", "--model", "x", "--dry-run"]) == 2
    assert "leave --model away" in capsys.readouterr().err
    assert run(["study", "show", "injection"]) == 0
    assert "kind: language" in capsys.readouterr().out


def test_the_terminal_says_levels_before_and_after() -> None:
    row = CheckpointRow(
        label="npo",
        method="npo",
        role="unlearned",
        verdict="closer, 40 % of the way",
        level=0.434,
        memory=0.56,
        reading="return and repair",
        relearn_before=0.883,
        relearn_after=0.933,
        recovery=0.05,
        cofi_f=14.9,
        cofi_a=8.2,
        cofi_g=7.0,
        class_name="partially-localized",
    )
    lines = list(_rests_on(row))
    assert lines == [
        "probability of a forget token 0.434, memory 56%",
        "relearning: return and repair, 88.3% to 93.3%",
        "weights moved: forget 14.9, adjacent 8.2, generic 7.0 % (CoFi), partially-localized",
    ]
    assert list(_rests_on(CheckpointRow(label="a", method="", role="base"))) == [
        "relearning: not run",
        "weights moved: not measured",
    ]
