"""Every shipped study whole, from its texts to its tables, on a tiny random model; real text where it is
there."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("torch", reason="the extra 'train' is not installed")

from tests.conftest import shared_folder
from tests.tiny import WORDS
from tests.tiny_lm import save_byte_llama, tiny_texts, write_corpus

from vestige.cli import run
from vestige.language_study.outline import outline
from vestige.language_study.plan import LanguagePlan, load_language_study, shipped_language_studies
from vestige.language_study.records import LanguageStudyRecord

BASE_METHODS = {
    "GA", "GD", "NPO", "SimNPO", "DPO", "RMU", "Adaptive-RMU", "RSV", "ATU", "SPUL", "Obliviate", "LoKU+FILA"
}  # fmt: skip
NOISY = {"GA", "GD", "NPO", "SimNPO", "DPO", "RMU", "Adaptive-RMU", "RSV"}
ROSTER: dict[str, dict[str, int]] = {
    # Tables 1, 2, 3, 5 to 10, 14, 17, 36, 38 to 41: rows of one model.
    "wmdp": {
        "aggregates": 12, "bgap": 12, "hyperparameters": 20, "adjacency": 1, "cofi": 20 * 5, "ppl": 20 * 5,
        "classes": 20, "behaviour": 13, "conventional": 13, "relearn": 11, "partition_counts": 13 * 5,
        "sensitivity": (2 + 3) * 3 * 2 + (2 + 3) * 3 + (2 + 2 + 3) * 3, "discrepancy": 3,
    },
    # Tables 8, 9, 18, 21, 22; 8, 9, 23, 27, 29; 8, 9, 30, 33, 35.
    "tofu": {"adjacency": 1, "cofi": 20 * 3, "ppl": 20 * 3, "classes": 20, "relearn": 11},
    "muse-books": {"adjacency": 1, "cofi": 20 * 4, "ppl": 20 * 4, "classes": 20, "relearn": 11},
    "muse-news": {"adjacency": 1, "cofi": 20 * 4, "ppl": 20 * 4, "classes": 20, "relearn": 11},
    "blur": {"adjacency": 1, "cofi": 20 * 5, "ppl": 20 * 5, "classes": 20, "relearn": 11},
}  # fmt: skip
NUMBERS = {
    "wmdp": {
        "aggregates": "1", "bgap": "2", "regimes": "3", "sensitivity": "5, 6, 7", "adjacency": "8, 9",
        "cofi": "10", "ppl": "14", "classes": "17", "behaviour": "36", "conventional": "38",
        "relearn": "39, 40", "partition_counts": "41",
    },
    "tofu": {"adjacency": "8, 9", "cofi": "18", "ppl": "21", "classes": "22"},
    "muse-books": {"adjacency": "8, 9", "cofi": "23", "ppl": "27", "classes": "29"},
    "muse-news": {"adjacency": "8, 9", "cofi": "30", "ppl": "33", "classes": "35"},
}  # fmt: skip
TOFU = {
    "full": "retain90", "tofu-forget10": "forget10", "tofu-retain90": "retain90",
    "forget-perturbed": "forget10_perturbed", "retain-perturbed": "retain_perturbed",
    "real-authors": "real_authors_perturbed", "world-facts": "world_facts_perturbed",
}  # fmt: skip


def rows_of(path: Path, n: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[:n]]


def pairs(name: str, seed: int) -> list[dict[str, Any]]:
    """Rows of TOFU's columns: its own where the shared data are there."""
    path = shared_folder() / "data" / "tofu" / f"{name}.jsonl"
    if path.is_file():
        return rows_of(path, 12)
    texts = tiny_texts(48, seed=seed, longest=6)
    return [
        {
            "question": texts[i], "answer": texts[i + 1], "paraphrased_answer": texts[i + 1],
            "perturbed_answer": texts[i + 2 : i + 4],
        }
        for i in range(0, 48, 4)
    ]  # fmt: skip


def sentences() -> list[str]:
    path = shared_folder() / "data" / "wiki-sentences" / "sentences.txt"
    if path.is_file():
        return [" ".join(line.split()[:12]) for line in path.read_text(encoding="utf-8").splitlines()[:300]]
    return tiny_texts(300, seed=9, longest=12)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that carries a published one's name, texts, questions, and TOFU's rows."""
    folder = tmp_path_factory.mktemp("published")
    lines = sentences()
    save_byte_llama(folder / "Llama-3.1-8B", [*lines, *WORDS], vocabulary=500)
    for place in range(8):
        own = lines[place * 30 : place * 30 + 30]
        write_corpus(
            folder / f"text-{place}.jsonl", [f"{a} {b}" for a, b in zip(own[::2], own[1::2], strict=True)]
        )
    for seed, name in enumerate(dict.fromkeys(TOFU.values())):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs(name, seed)))
    options = sorted({word for line in lines for word in line.split() if word.isalpha()})

    def asked(n: int, subject: str | None) -> str:
        """One of them prints an option twice, as nine of MMLU's do."""
        rows = []
        for i in range(n):
            choices = options[i : i + 4] if i else [options[0], options[1], options[1], options[2]]
            rows.append({"question": lines[i], "choices": choices, "answer": i % 4})
            rows[-1] |= {} if subject is None else {"subject": subject}
        return "".join(json.dumps(row) + "\n" for row in rows)

    (folder / "asked.jsonl").write_text(asked(5, None))
    subjects = ["virology", "college_biology", "computer_security", *(f"other_{i}" for i in range(54))]
    (folder / "mmlu.jsonl").write_text(
        "".join(asked(3 if i < 3 else 1, name) for i, name in enumerate(subjects))
    )
    return folder


def quicker(name: str, folder: Path) -> Path:
    """The shipped study with a smaller rehearsal: one subset of two documents, questions in float32."""
    study = yaml.safe_load(shipped_language_studies()[name])
    rehearsal = study["scales"]["rehearsal"]
    rehearsal["footprint"] |= {"units": 2, "subsets": 1, "max_length": 24, "hessian_length": 16}
    rehearsal["footprint"] |= {"perplexity_tokens": 60}
    rehearsal["relearn"] |= {"dtype": "float32", "documents": 2, "score_rows": 2}
    if "behaviour" in rehearsal:
        rehearsal["behaviour"]["settings"] |= {"dtype": "float32"}
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study, sort_keys=False))
    return path


def stand_ins(work: Path, plan: LanguagePlan) -> Iterator[str]:
    asked = set(plan.behaviour.questions.values()) if plan.behaviour else set()
    for place, name in enumerate(plan.texts):
        file = "mmlu" if name == "mmlu" else "asked" if name in asked else TOFU.get(name, f"text-{place % 8}")
        yield from ("--text", f"{name}={work / file}.jsonl")


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", sorted(ROSTER))
def test_a_shipped_study_runs_whole_and_its_tables_have_the_roster_s_rows(
    name: str, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    study = quicker(name, tmp_path)
    plan = load_language_study(study, scale="rehearsal")
    line = ["study", "run", str(study), "--scale", "rehearsal", "--model", str(work / "Llama-3.1-8B")]
    assert run([*line, "--out", str(tmp_path), *stand_ins(work, plan)]) == 0, capsys.readouterr().err
    record = LanguageStudyRecord.model_validate_json((tmp_path / "language-study.json").read_text())
    assert [stage.name for stage in record.stages] == [item["name"] for item in outline(plan, tmp_path)]
    assert any(line.startswith("GA, GD are one objective") for line in record.caveats)
    assert run(["report", str(tmp_path), "--tables", "csv,tex"]) == 0, capsys.readouterr().err
    tables = tmp_path / "tables" / "published"
    index = {row["file"].removesuffix(".csv"): row for row in read(tables / "index.csv")}
    assert {kind: int(index[kind]["rows"]) for kind in ROSTER[name]} == ROSTER[name]
    assert {kind: len(read(tables / f"{kind}.csv")) for kind in ROSTER[name]} == ROSTER[name]
    for kind, number in NUMBERS.get(name, {}).items():
        assert index[kind]["tables"] == number, kind
    classes = read(tables / "classes.csv")
    assert {row["method"] for row in classes if row["noise"] == "False"} == BASE_METHODS
    assert {row["method"] for row in classes if row["noise"] == "True"} == NOISY
    assert {row["method"] for row in read(tables / "relearn.csv")} == BASE_METHODS - {"SPUL"}
    shifts = read(tables / "cofi.csv")
    assert all(
        float(row["cofi"]) >= 0 and float(row["chess"]) > 0 for row in shifts
    )  # SPUL's too, as published
    assert {row["model"] for row in shifts} == {"Llama-3.1-8B"}
    page = (tmp_path / "report.html").read_text()
    assert "was not named" not in page
    assert plan.retain is not None
    assert str(plan.retain) in page
    assert "\\begin{longtable}" in (tables / "published.tex").read_text()
    if name == "wmdp":
        _the_published_rows_of_wmdp(tables, tmp_path, request)


def _the_published_rows_of_wmdp(tables: Path, folder: Path, request: pytest.FixtureRequest) -> None:
    (mmlu,) = {row["mmlu_subjects"] for row in read(tables / "conventional.csv")}
    assert mmlu == "57"
    counts = read(tables / "partition_counts.csv")
    assert {row["whole"] for row in counts} == {"True"}
    assert {(row["subset"], row["total"]) for row in counts} == {
        ("asked", "5"), ("virology", "3"), ("college_biology", "3"), ("computer_security", "3")
    }  # fmt: skip
    behaviour = json.loads((folder / "behaviour" / "behaviour.json").read_text())
    sets = {entry["subject"]: entry for entry in behaviour["question_sets"]}
    assert (sets["asked"]["questions"], sets["virology"]["questions"]) == (5, 2)
    assert sets["computer_security"]["about"] == "computer security"
    assert any("print the text of an option twice" in line for line in behaviour["caveats"])
    shared = shared_folder() / "paper" / "triage_cofi.csv"
    if shared.is_file():  # the published columns and rows of this model, but for their numbers
        published = [row for row in read(shared) if row["source_table"] == "10"]
        names = {
            "bio-F": "bio-forget",
            "cyber-F": "cyber-forget",
            "bio-R": "bio-retain",
            "cyber-R": "cyber-retain",
        }

        def keys(rows: list[dict[str, str]]) -> set[tuple[str, ...]]:
            return {
                (row["method"], row["noise"], names.get(row["corpus"], row["corpus"]), row["role"])
                for row in rows
            }

        own = read(tables / "cofi.csv")
        assert set(published[0]) == set(own[0])
        generic = {key for key in keys(own) if key[3] == "generic"}
        assert {key for key in keys(published) if key[3] != "generic"} == keys(own) - generic
        assert len(generic) == 20
