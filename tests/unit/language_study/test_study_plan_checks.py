"""What a language study's file gets wrong is refused when it is read; what its tables say of relearning."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.tiny_lm import save_tiny_llama, tiny_texts, write_corpus

from vestige.attacks.relearn_reading import read_together
from vestige.attacks.relearn_records import (
    CheckpointRelearning,
    RelearnRecord,
    RelearnSettings,
    RoleChange,
    ScoreChange,
    reading_of,
)
from vestige.cli import run
from vestige.cli.relearn import print_relearning
from vestige.contracts import Estimate, Undefined
from vestige.errors import InputError
from vestige.language_study.plan import MethodPlan, base_label, load_language_study, shipped_language_studies
from vestige.language_study.table import study_rows
from vestige.models.lm_record import LanguageModelRecord

NAMES = ("a", "b", "near", "everyday-text", "asked", "more", "table")


def plan(**changes: Any) -> dict[str, Any]:
    """A study of one method that is right, with keys in place of its own; None takes a key away."""
    made: dict[str, Any] = {
        "kind": "language",
        "name": "checked",
        "model": "smollm2",
        "texts": {name: {"path": f"{name}.jsonl"} for name in NAMES},
        "forget": ["a"],
        "adjacent": ["near"],
        "generic": ["everyday-text"],
        "retain": "near",
        "methods": [{"method": "grad_diff"}],
        "relearn": None,
    }
    made |= changes
    return {key: value for key, value in made.items() if value != "absent"}


def study(folder: Path, **changes: Any) -> Path:
    """The plan as a file."""
    path = folder / "odd.yaml"
    path.write_text(yaml.safe_dump(plan(**changes)))
    return path


def method(name: str, **more: Any) -> list[dict[str, Any]]:
    return [{"method": name, **more}]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "question topics do not pair": (
        {"behaviour": {"questions": {"forget:forget": "asked", "adjacent:near": "more"}}},
        "odd.yaml: behaviour, adjacent questions: found topics 'near'; needed those of the forget questions: "
        "'forget'; give both roles the same topics, or one of them none",
    ),
    "question role": (
        {"behaviour": {"questions": {"forgot:a": "asked"}}},
        "odd.yaml: behaviour, questions forgot:a: found the role 'forgot'; needed ROLE[:TOPIC]=FILE; "
        "did you mean 'forget'?",
    ),
    "question topic": ({"behaviour": {"questions": {"forget:": "asked"}}}, "found an empty topic or subject"),
    "question text": (
        {"behaviour": {"questions": {"forget": "askd"}}}, "found no text 'askd' (did you mean 'asked'?)"
    ),
    "nothing asked": ({"behaviour": {"settings": {"draws": 100}}}, "behaviour, questions: found none"),
    "tofu set": (
        {"behaviour": {"tofu": {"real_author": "asked"}}},
        "found the set 'real_author'; needed a set of TOFU; did you mean 'real_authors'?",
    ),
    "behaviour key": (
        {"behaviour": {"questions": {"forget": "asked"}, "settings": {"drws": 100}}},
        "behaviour, setting 'drws': found no such setting; needed a setting; did you mean 'draws'?",
    ),
    "footprint key": ({"footprint": {"unit": 4}}, "footprint, setting 'unit': found no such setting"),
    "footprint value": ({"footprint": {"units": 0}}, "footprint, setting 'units': found '0'"),
    "relearn key": (
        {"relearn": {"learning_rat": 1e-4}},
        "relearn, setting 'learning_rat': found no such setting; needed a setting; did you mean 'learning_",
    ),
    "finetune key": (
        {"finetune": {"data": ["a", "near"], "settings": {"epoch": 1}}},
        "finetune, setting 'epoch': found no such setting; needed a setting; did you mean 'epochs'?",
    ),
    "finetune text": ({"finetune": {"data": ["nea"]}}, "found no text 'nea' (did you mean 'near'?)"),
    "finetune without text": ({"finetune": {"data": []}}, "finetune, data: found no text"),
    "oracle key": (
        {"oracle": {"data": ["near"], "settings": {"lora.rnk": 4}}},
        "oracle, setting 'lora.rnk': found no such setting; needed a setting; did you mean 'rank'?",
    ),
    "oracle on forget text": ({"oracle": {"data": ["near", "a"]}}, "oracle, data: found the forget text 'a'"),
    "texts that cannot be joined": (
        {
            "texts": {**{name: {"path": f"{name}.jsonl"} for name in NAMES}, "b": {"path": "b.md"}},
            "finetune": {"data": ["a", "b"]},
        },
        "b.md: found suffix '.md'; needed JSONL or text files to join",
    ),
    "rows of a table": (
        {
            "texts": {
                **{name: {"path": f"{name}.jsonl"} for name in NAMES}, "near": {"path": "x.csv", "rows": 3}
            }
        },
        "texts.near, x.csv: found rows of a .csv file",
    ),
    "method name": (
        {"methods": method("grad_dif")},
        "method 'grad_dif': found no such name; needed a registered method; did you mean 'grad_diff'?",
    ),
    "method of decision models": ({"methods": method("temperature")}, "found a method for decision models"),
    "method key": (
        {"methods": method("npo", settings={"bta": 0.1})},
        "method 'npo', setting 'bta': found no such setting; needed a setting; did you mean 'beta'?",
    ),
    "method preset": ({"methods": method("npo", preset="triag")}, "did you mean 'triage'?"),
    "method topic": (
        {"methods": method("npo", label="mine", settings={"topic_weights": {"aa": 2.0}})},
        "method 'mine', setting 'topic_weights': found topic 'aa'; needed a topic of forget; ",
    ),
    "no methods": ({"methods": []}, "methods: found none; needed at least one, or all"),
    "label of the base": ({"methods": method("npo", label="base")}, "methods: found the label 'base'"),
    "no concept": (
        {"methods": method("atu")},
        "method 'atu', topic 'a': found no concept text; needed what ATU reads of every topic; "
        "write concepts: {a: ...}",
    ),
    "no keywords": (
        {"methods": method("obliviate"), "keywords": {"a": []}},
        "method 'obliviate', topic 'a': found no keywords; needed what Obliviate reads of every topic; "
        "write keywords: {a: ...}",
    ),
    "no concept for every method": ({"methods": "all", "keywords": {"a": ["w"]}}, "method 'atu', topic 'a'"),
    "concept of no topic": ({"concepts": {"aa": "x"}}, "concepts: found topic 'aa'; needed a topic"),
    "no retain text": (
        {"retain": None}, "method 'grad_diff', topic 'a': found no retain text; needed text that GradDiff"
    ),
    "retain text of one topic": (
        {"forget": ["a", "b"], "retain": {"a": "near"}}, "method 'grad_diff', topic 'b': found no retain text"
    ),
    "retain text of no topic": ({"retain": {"c": "near"}}, "retain: found topic 'c'; needed a topic"),
    "two roles": ({"generic": ["near"]}, "generic: found the text 'near', which is adjacent text too"),
    "no everyday text": ({"generic": []}, "generic: found no text; needed one for the footprint"),
    "tiny without injection": ({"model": "tiny"}, "model: found tiny; needed a model"),
    "sensitivity of no checkpoint": (
        {"sensitivity": {"methods": ["grad_dif"], "texts": ["a"]}},
        "methods: found 'grad_dif'; needed one of the study's methods; did you mean 'grad_diff'?",
    ),
    "sensitivity without forget text": (
        {"sensitivity": {"methods": ["grad_diff"], "texts": ["near"]}},
        "sensitivity: found no checkpoint or no forget text",
    ),
    "asked once more with a wrong key": (
        {"behaviour": {"questions": {"forget": "asked"}, "also": {"whole": {"per_subjct": 3}}}},
        "behaviour, also whole, setting 'per_subjct': found no such setting",
    ),
    "setting of every method": (
        {"method_settings": {"max_step": 3}},
        "method 'grad_diff', setting 'max_step': found no such setting; needed a setting; did you mean",
    ),
    "injection key": (
        {"forget": [], "injection": {"settings": {"entitys": 4}}},
        "injection, setting 'entitys': found no such setting; needed a setting; did you mean 'entities'?",
    ),
    "injection with a base": (
        {"forget": [], "injection": {}, "finetune": {"data": ["near"]}},
        "an oracle or fine-tuning beside an injection",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(WRONG))
def test_a_wrong_study_is_refused_when_it_is_read(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, said = WRONG[case]
    path = study(tmp_path, **changes)
    assert run(["study", "run", str(path), "--dry-run", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.strip().count("\n") == 0
    assert "--" not in error.split("odd.yaml", 1)[1]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"behaviour": {"questions": {"forget:a": "asked", "adjacent:a": "more", "generic": "table"}}},
        {"behaviour": {"questions": {"forget": "asked", "mmlu": "more"}}},
        {"methods": method("grad_ascent"), "retain": None},
        {"methods": method("atu"), "concepts": {"a": "a thing"}},
        {"methods": "all", "concepts": {"a": "a thing"}, "keywords": {"a": ["word"]}},
        {"generic": [], "footprint": None},
        {"forget": ["a", "b"], "retain": {"a": "near", "b": "near"}},
        {"finetune": {"data": ["a", "near"], "settings": {"lora": {"rank": 4}}}},
    ],
    ids=["plain", "paired", "mmlu", "no-retain", "concept", "all", "no-footprint", "by-topic", "finetune"],
)
def test_a_right_study_is_read(changes: dict[str, Any], tmp_path: Path) -> None:
    assert load_language_study(study(tmp_path, **changes)).name == "checked"


def test_a_wrong_scale_gets_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="scales: found "):
        load_language_study(study(tmp_path, scales={"small": 3}), scale="small")
    with pytest.raises(InputError, match="footprint, setting 'unit'"):
        load_language_study(study(tmp_path, scales={"small": {"footprint": {"unit": 3}}}), scale="small")


def test_shipped_studies_are_checked_without_torch() -> None:
    code = (
        "import sys\n"
        "from vestige.language_study.plan import load_language_study, shipped_language_studies\n"
        "names = list(shipped_language_studies())\n"
        "found = [load_language_study(name, scale=scale) for name in names for scale in (None, 'small')]\n"
        "print(len(found), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(2 * len(shipped_language_studies())), "False"]


def test_broken_question_files_are_refused_before_training(tmp_path: Path) -> None:
    module = pytest.importorskip("vestige.language_study.run", reason="the extra 'train' is not installed")
    for name in NAMES:
        (tmp_path / f"{name}.jsonl").write_text('{"text": "one two three"}\n')
    path = study(tmp_path, behaviour={"questions": {"forget": "asked"}}, model=str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"asked\.jsonl"):
        module.run_language_study(load_language_study(path), tmp_path / "out")
    assert not (tmp_path / "out" / "nodes").exists()


def relearned(label: str, role: Any, change: float) -> CheckpointRelearning:
    """A checkpoint whose forget score changed from 0.3 by so much, +- 0.01."""
    moved = RoleChange(
        role="forget", before=0.3, after=0.3 + change, change=change, low=change - 0.01, high=change + 0.01
    )
    before, after = (
        [1.0] * round(100 * level) + [0.0] * round(100 - 100 * level) for level in (0.3, 0.3 + change)
    )
    score = ScoreChange(
        name="a", role="forget", kind="accuracy", items=100, before=0.3, after=0.3 + change,
        change=Estimate(value=change), before_items=tuple(before), after_items=tuple(after),
    )  # fmt: skip
    return CheckpointRelearning(
        label=label,
        role=role,
        scores=(score,),
        model=LanguageModelRecord(
            label=label, location=label, kind="folder", sha256="ab", architecture="X", parameters=1,
            vocabulary=1, dtype="float32", adds_bos=False,
        ),
        roles=(moved,),
        reading=reading_of(moved, None),
    )  # fmt: skip


def attacked(*changes: tuple[str, Any, float]) -> RelearnRecord:
    return RelearnRecord(
        name="x",
        rule="against the retrained model",
        settings=RelearnSettings(),
        steps=1,
        texts=(),
        checkpoints=read_together([relearned(*change) for change in changes]),
        budget_sha256="",
        draws=1,
        condition="",
        provenance={},
    )


WEAK = "no return; the attack taught the retrained model nothing, so it shows little"


@pytest.mark.parametrize(
    ("oracle", "said", "other"),
    [(0.0, WEAK, "return"), (0.2, "no return", "return"), (None, "no return", "came back")],
    ids=["untaught", "taught", "no-oracle"],
)
def test_no_return_beside_an_oracle_that_learned_nothing(
    oracle: float | None, said: str, other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = attacked(
        ("base", "base", 0.0),
        ("npo", "unlearned", 0.0),
        ("dpo", "unlearned", 0.3),
        *([("oracle", "oracle", oracle)] if oracle is not None else []),
    )
    print_relearning(record)
    lines = capsys.readouterr().out.splitlines()
    nothing = "nothing came back under this budget: 30.0 to 30.0 % on forget text"
    assert lines[0].startswith(f"base (base): {nothing}")
    assert lines[1].startswith(f"npo (unlearned): {nothing}")
    assert ("the attack taught the retrained model nothing" in lines[1]) == (said == WEAK)
    assert lines[2].startswith("dpo (unlearned): it came back")
    assert ("cannot be parted" in lines[2]) == (oracle is None)
    if oracle is not None:
        end = 100 * (0.3 + oracle)
        assert (
            f"30.0 to 60.0 % on forget text, the retrained model 30.0 to {end:.1f} %; difference" in lines[2]
        )
    folders = {item.label: str(tmp_path) for item in record.checkpoints}
    rows = {
        row.label: row
        for row in study_rows(tmp_path, folders, [MethodPlan(method="npo")], None, None, record, {})
    }
    assert rows["npo"].reading == said
    assert rows["dpo"].reading == other
    if oracle is None:
        assert rows["npo"].beyond == Undefined(undefined="no oracle was attacked")
    else:
        assert rows["npo"].beyond == pytest.approx(-oracle)
        assert rows["oracle"].beyond == 0


def test_the_base_has_a_readers_name(tmp_path: Path) -> None:
    module = pytest.importorskip("vestige.language_study.run", reason="the extra 'train' is not installed")
    trained = {"data": ["a", "near"]}
    for changes, name in (
        ({"model": "meta-llama/Llama-3.2-3B"}, "Llama-3.2-3B"),
        ({"model": "meta-llama/Llama-3.2-3B", "finetune": trained}, "Llama-3.2-3B, fine-tuned"),
        ({"model": "smollm2", "injection": {}, "forget": []}, "smollm2 with injected facts"),
    ):
        assert base_label(load_language_study(study(tmp_path, **changes))) == name
    save_tiny_llama(tmp_path / "finetune-adbad1c3b54f1860")
    for name in ("a", "near", "everyday-text"):
        write_corpus(tmp_path / f"{name}.jsonl", tiny_texts(8, seed=len(name)))
    changed = {"units": 2, "subsets": 1, "max_length": 12, "probes": 0, "perplexity_tokens": 0}
    read = load_language_study(study(tmp_path, finetune=trained, footprint=changed))
    folder = str(tmp_path / "finetune-adbad1c3b54f1860")
    state = module._Run(plan=read, root=tmp_path / "out", device="cpu", watcher=module.Quiet())
    state.files = {name: tmp_path / f"{name}.jsonl" for name in ("a", "near", "everyday-text")}
    state.folders, state.keys = {"base": folder, "npo": folder}, {"base": "1", "npo": "2"}
    record = module._footprint(state, {"npo": folder})
    assert record.base.label == "smollm2, fine-tuned"
    assert "finetune-adbad1c3b54f1860" not in [record.base.label, *(c.label for c in record.checkpoints)]


def test_a_text_of_the_hub_keeps_what_its_file_says(tmp_path: Path) -> None:
    from vestige.language_study.plan import TextSource
    from vestige.language_study.texts import text_file

    pytest.importorskip("datasets", reason="the extra 'train' is not installed")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub/train.csv").write_text("prompt,reply\n001,true\n1e5,NA\n2026-01-01,\n")
    source = TextSource(hub=str(tmp_path / "hub"), columns={"question": "prompt", "answer": "reply"})
    made = text_file("f", source, tmp_path / "texts").read_text()
    assert [json.loads(line) for line in made.splitlines()] == [
        {"question": "001", "answer": "true"},
        {"question": "1e5", "answer": "NA"},
        {"question": "2026-01-01", "answer": None},
    ]
    with pytest.raises(InputError, match=r"text 'f', hub data set .*: found no split 'tran'"):
        text_file("f", source.model_copy(update={"split": "tran"}), tmp_path / "texts")
    odd = source.model_copy(update={"columns": {"question": "promt"}})
    with pytest.raises(InputError, match=r"text 'f', columns\.question: found 'promt'"):
        text_file("f", odd, tmp_path / "texts")
