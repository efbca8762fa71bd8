"""Behaviour and relearning on the footprint's page, from made records; correlations of folders."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests import footprints as made

from vestige.attacks.relearn_reading import read_together
from vestige.attacks.relearn_records import (
    EARLIER_RULE,
    CheckpointRelearning,
    RelearnRecord,
    RelearnSettings,
    RelearnText,
    RoleChange,
    ScoreChange,
    reading_of,
)
from vestige.behaviour.records import (
    BehaviourRecord,
    BehaviourSettings,
    CheckpointBehaviour,
    Loss,
    QuestionSet,
    RoleAccuracy,
    RoleHeadroom,
    TripartiteLoss,
)
from vestige.cli import run
from vestige.contracts import Estimate, Interval, Undefined
from vestige.report.footprint.joined import beside, correlation_rows, joined_rows
from vestige.report.footprint.reader import read_footprint

LABELS = {
    "RMU": (7.0, 48.0, 0.27),
    "NPO": (6.1, 29.0, 0.16),
    "GA": (30.0, 55.0, 0.0),
    "ATU": (0.1, 0.1, 0.003),
}


def interval(value: float, half: float = 0.02) -> Interval:
    return Interval(
        low=value - half, high=value + half, kind="bootstrap", draws=5000, seed=1, condition="one run"
    )


def items(level: float) -> tuple[float, ...]:
    """200 answers, the first ones right."""
    return (1.0,) * round(200 * level) + (0.0,) * (200 - round(200 * level))


def relearned(
    label: str, role: Any, before: float, change: float, generic: float = 0.0
) -> CheckpointRelearning:
    roles = tuple(
        RoleChange(role=name, before=first, after=first + by, change=by, low=by - 0.01, high=by + 0.01)
        for name, first, by in (
            ("forget", before, change),
            ("adjacent", 0.6, 0.02),
            ("generic", 0.5, generic),
        )
    )
    scores = tuple(
        ScoreChange(
            name=item.role,
            role=item.role,
            kind="accuracy",
            items=200,
            before=item.before,
            after=item.after,
            change=Estimate(value=item.change, row=interval(item.change), rows=200),
            before_items=items(item.before),
            after_items=items(item.after),
            chance=0.25,
        )
        for item in roles
    )
    return CheckpointRelearning(
        label=label,
        role=role,
        model=made.model(label),
        scores=scores,
        roles=roles,
        reading=reading_of(roles[0], roles[2]),
        steps=125,
        losses=(3.0, 2.0),
    )


def attack() -> RelearnRecord:
    checkpoints = [relearned("base", "base", 0.7, 0.0)]
    checkpoints += [
        relearned(label, "unlearned", 0.65 - 0.3 * (recovery > 0.1), recovery, 0.2 if label == "GA" else 0.0)
        for label, (_, _, recovery) in LABELS.items()
    ]
    checkpoints.append(relearned("oracle", "oracle", 0.3, 0.1))
    return RelearnRecord(
        name="r",
        settings=RelearnSettings(),
        steps=125,
        rule="against the retrained model",
        checkpoints=read_together(checkpoints),
        budget_sha256="ab" * 32,
        texts=(
            RelearnText(
                name="bio",
                role="forget",
                path="b",
                sha256="x",
                documents=90,
                held_out=45,
                trained=50,
                scored=45,
            ),
        ),
        draws=5000,
        condition="one attack a checkpoint",
        caveats=("another budget may",),
    )


def asked() -> BehaviourRecord:
    def roles(f: float) -> tuple[RoleAccuracy, ...]:
        return tuple(
            RoleAccuracy(
                role=role,
                accuracy=value,
                interval=interval(value),
                topics={"bio": value},
                subjects=1,
                questions=100,
            )
            for role, value in (("forget", f), ("adjacent", 0.7), ("generic", 0.6))
        )

    def loss(value: float) -> Loss:
        return Loss(value=value, interval=interval(value, 2.0))

    checkpoints = tuple(
        CheckpointBehaviour(
            label=label,
            role="unlearned",
            model=made.model(label),
            subjects=(),
            roles=roles(0.7 - 0.7 * lost / 100),
            loss=TripartiteLoss(
                delta_f=loss(lost),
                delta_a=loss(5.0),
                delta_g=loss(1.0),
                b_gap=loss(lost - 5.0),
                adjacency_gap=1.0,
                relation="same sign",
            ),
            tofu=Undefined(undefined="no TOFU files"),
        )
        for label, (_, lost, _) in LABELS.items()
    )
    return BehaviourRecord(
        name="b",
        settings=BehaviourSettings(),
        base=made.model("base"),
        question_sets=(
            QuestionSet(
                role="forget",
                topic="bio",
                subject="bio",
                path="b",
                sha256="x",
                content="x",
                questions=100,
                file_questions=100,
                chance=0.25,
            ),
        ),
        tofu_sets=(),
        base_subjects=(),
        base_roles=roles(0.7),
        headroom=(),
        base_tofu=Undefined(undefined="no TOFU files"),
        checkpoints=checkpoints,
        condition="one run each",
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A footprint of four checkpoints with questions beside it and the attack in a folder of its own."""
    root = tmp_path_factory.mktemp("beside")
    shifts = made.record(
        *[
            made.checkpoint(
                label,
                {
                    "bio": moved,
                    "cyber": moved,
                    "near": 0.9 * moved,
                    "far": 0.9 * moved if label == "GA" else 0.1,
                },
            )
            for label, (moved, _, _) in LABELS.items()
        ]
    )
    (root / "footprint.json").write_text(shifts.to_json())
    (root / "behaviour.json").write_text(asked().to_json())
    (root / "relearn").mkdir()
    (root / "relearn" / "relearn.json").write_text(attack().to_json())
    return root


def test_the_page_shows_what_behaves_and_what_returns(folder: Path, tmp_path: Path) -> None:
    assert run(["report", str(folder), "--out", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text().replace("\u00a0", " ")
    assert "lost 48.0" in page
    # RMU .35 to .62 against .30 to .40; GA and ATU stay at .65, where they were before.
    assert (
        "it came back, above what a retrained model learns anew: 35.0 to 62.0 % on forget text, the" in page
    )
    assert "difference after the attack +22.0 [+16.0, +28.0] points" in page
    assert page.count("it was never gone: already above what the retrained model reaches by the attack") == 2
    assert "Moved, behaves, returns" in page
    assert "Before and after relearning" in page
    assert EARLIER_RULE not in page
    assert "globally-destructive" in page
    assert "45 of 90 documents held out" in page
    assert "Not run: no relearning attack" not in page
    assert "<script" not in page


def test_every_folded_checkpoint_says_all_at_a_glance(folder: Path, tmp_path: Path) -> None:
    shifts = read_footprint(folder / "footprint.json")
    moved = {"bio": 20.0, "cyber": 18.0, "near": 9.0, "far": 0.1}
    oracle = made.checkpoint("fresh", moved, role="oracle")
    (tmp_path / "footprint.json").write_text(
        shifts.model_copy(update={"checkpoints": (*shifts.checkpoints, oracle)}).to_json()
    )
    (tmp_path / "behaviour.json").write_text(asked().to_json())
    record = attack()
    others = [item for item in record.checkpoints if item.role != "oracle"]
    relearning = record.model_copy(
        update={"checkpoints": read_together([*others, relearned("fresh", "oracle", 0.3, 0.1)])}
    )
    (tmp_path / "relearn.json").write_text(relearning.to_json())
    assert run(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text().replace("\u00a0", " ")
    lines = dict(
        re.findall(r'<summary><span class="name">.*?>?(\w+)</.*?class="glance">(.*?)</span></summary>', page)
    )
    assert lines["RMU"] == (
        "forget questions 36.4 %, base 70.0 % · 35.0 to 62.0 % after relearning · weights moved 7.00 % on "
        "forget text"
    )
    assert lines["fresh"] == "30.0 to 40.0 % after relearning · weights moved 19.0 % on forget text"
    assert set(lines) == {*LABELS, "fresh"}
    picture = re.search(
        r"fresh \(partially-localized, retrained\): moved 19.0 %, lost – %, relearned \+10.0", page
    )
    assert picture is not None
    assert "fresh" not in {row.checkpoint for row in joined_rows([tmp_path])}


def test_without_records_it_is_said_in_words(folder: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "footprint.json").write_text((folder / "footprint.json").read_text())
    assert run(["report", str(alone)]) == 0
    page = (alone / "report.html").read_text()
    assert "Not run: no relearning attack" in page
    assert "no questions were asked" in page


def test_a_record_of_other_weights_is_not_joined(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "footprint.json").write_text((folder / "footprint.json").read_text())
    other = json.loads((folder / "relearn" / "relearn.json").read_text())
    for checkpoint in other["checkpoints"]:
        checkpoint["model"]["sha256"] = "cd" * 32
    (tmp_path / "relearn.json").write_text(json.dumps(other))
    assert run(["report", str(tmp_path)]) == 0
    assert "it came back" not in (tmp_path / "report.html").read_text()


def test_a_broken_record_is_named(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "footprint.json").write_text((folder / "footprint.json").read_text())
    (tmp_path / "relearn.json").write_text('{"format": "vestige-relearn-1"}')
    assert run(["report", str(tmp_path)]) == 2
    assert "relearn.json" in capsys.readouterr().err


def test_correlations_of_a_folder_and_of_a_table(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["attack", "correlate", str(folder), "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "CoFi on forget text with recovery, all checkpoints (4 checkpoints)" in said
    assert "without globally-destructive ones (3 checkpoints)" in said
    assert "which checkpoints share a method is not known" in said
    assert "no interval" in said
    rows = list(csv.DictReader((tmp_path / "correlations.csv").read_text().splitlines()))
    assert {"cofi-recovery", "cofi-loss", "gaps"} <= {row["key"] for row in rows}
    table = tmp_path / "table.csv"
    lines = [f"{i},{i // 2},{i // 2}.5,{(i // 2) ** 2},x" for i in range(12)]
    table.write_text("\n".join(["checkpoint,method,cofi_f,recovery,class", *lines]) + "\n")
    assert run(["attack", "correlate", "--table", str(table), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["correlations"][0]
    assert (found["pair"]["n"], found["pair"]["checkpoints"]) == (6, 12)
    assert found["pair"]["spearman"]["permutation_p"] == pytest.approx(2 / 720)
    assert found["pair"]["spearman"]["value"] == pytest.approx(1.0)
    assert found["pair"]["pearson"]["interval"]["kind"] == "BCa bootstrap over methods"
    assert run(["attack", "correlate"]) == 2
    assert run(["attack", "correlate", "--table", str(tmp_path / "correlations.csv")]) == 2


def test_no_loss_is_said_where_the_base_guesses(folder: Path, tmp_path: Path) -> None:
    rooms = tuple(
        RoleHeadroom(
            role=role,
            accuracy=accuracy,
            chance=0.25,
            value=accuracy - 0.25,
            interval=interval(accuracy - 0.25),
            passes=passes,
            said=f"{role}: a loss of knowledge is {'defined' if passes else 'undefined'} here",
        )
        for role, accuracy, passes in (("forget", 0.16, False), ("adjacent", 0.7, True))
    )
    (tmp_path / "footprint.json").write_text((folder / "footprint.json").read_text())
    (tmp_path / "behaviour.json").write_text(asked().model_copy(update={"headroom": rooms}).to_json())
    assert run(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("not shown to know more than a guess, and a loss is undefined") == len(LABELS)
    assert "lost 48.0" not in page
    assert page.count("the base guesses") == 3 * len(LABELS)  # a glance and two cells
    assert "forget: a loss of knowledge is undefined here" in page
    assert page.count("+5.0") == len(LABELS)
    rows = correlation_rows(read_footprint(tmp_path / "footprint.json"), beside(tmp_path))
    assert [(row.delta_f, row.b_gap) for row in rows] == [(None, None)] * len(LABELS)
    assert all(row.delta_f is not None for row in joined_rows([folder]))


def test_an_attack_that_teaches_the_retrained_model_nothing_cannot_tell(folder: Path, tmp_path: Path) -> None:
    record = attack()
    oracle = relearned("retrained", "oracle", 0.25, 0.0)
    others = [item for item in record.checkpoints if item.role != "oracle" and item.label != "ATU"]
    (tmp_path / "footprint.json").write_text((folder / "footprint.json").read_text())
    checkpoints = read_together([*others, relearned("ATU", "unlearned", 0.25, 0.003), oracle])
    (tmp_path / "relearn.json").write_text(record.model_copy(update={"checkpoints": checkpoints}).to_json())
    assert run(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "the attack taught the retrained model nothing, so it shows little" in page
    assert "not in this footprint" in page


def test_a_record_of_the_earlier_rule_says_so(folder: Path, tmp_path: Path) -> None:
    """Own changes were read as a return; items and levels against the retrained model were not kept."""
    (tmp_path / "footprint.json").write_text((folder / "footprint.json").read_text())
    old = json.loads(attack().to_json())
    del old["rule"]
    for item in old["checkpoints"]:
        del item["against_oracle"]
        item["reading"] = "return" if item["roles"][0]["change"] > 0.05 else "no return"
        for score in item["scores"]:
            del score["before_items"], score["after_items"]
    (tmp_path / "relearn.json").write_text(json.dumps(old))
    assert run(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text().replace("\u00a0", " ")
    assert "read by an earlier rule" in page
    assert "it came back: 35.0 to 62.0 % on forget text, the retrained model 30.0 to 40.0 %" in page
    assert "difference after the attack" not in page
    assert "learned anew" in page


def test_rows_of_other_weights_under_a_label_are_marked(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "footprint.json").write_text((folder / "footprint.json").read_text())
    other = json.loads((folder / "behaviour.json").read_text())
    other["checkpoints"][0]["model"]["sha256"] = "cd" * 32
    (tmp_path / "behaviour.json").write_text(json.dumps(other))
    assert run(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("other weights than the footprint") == 1
