"""The page leads with levels: what a model still knows comes before where its weights moved."""

from __future__ import annotations

import csv
import html
import re
from pathlib import Path
from typing import Any

import pytest
import tests.footprints as made

from vestige.behaviour.records import (
    BehaviourRecord,
    BehaviourSettings,
    CheckpointBehaviour,
    Loss,
    TofuRecord,
    TofuScores,
    TripartiteLoss,
)
from vestige.cli import run
from vestige.cli.footprint import print_footprint
from vestige.contracts import Undefined
from vestige.footprint.levels import Level, way_words
from vestige.footprint.records import FootprintRecord
from vestige.footprint.tables import headline
from vestige.report.footprint.page import render_footprints

NONE = Undefined(undefined="not asked")
LOCALIZED = {"bio": 6.0, "cyber": 8.0, "near": 5.0, "far": 0.3}
DESTROYED = {"bio": 6.0, "cyber": 8.0, "near": 7.0, "far": 9.0}


def words(page: str) -> str:
    """The page's text on one line."""
    body = page[page.index("<body>") :]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).replace("\u00a0", " ").split())


def tofu(probability: float) -> TofuRecord:
    scores = TofuScores(name="forget", probability=probability, rouge=NONE, truth_ratio=NONE, truth=NONE)
    return TofuRecord(sets=(scores,), utility=NONE, forget_quality=NONE)


def asked(base: float, models: dict[str, float]) -> BehaviourRecord:
    """Answer probabilities on TOFU's forget set."""
    lost = Loss(value=NONE, interval=NONE)
    return BehaviourRecord(
        name="b",
        settings=BehaviourSettings(),
        base=made.model("base"),
        question_sets=(),
        tofu_sets=(),
        base_subjects=(),
        base_roles=(),
        headroom=(),
        base_tofu=tofu(base),
        checkpoints=tuple(
            CheckpointBehaviour(
                label=label,
                role="oracle" if label == "oracle" else "unlearned",
                model=made.model(label),
                subjects=(),
                roles=(),
                loss=TripartiteLoss(
                    delta_f=lost, delta_a=lost, delta_g=lost, b_gap=lost, adjacency_gap=NONE, relation=NONE
                ),
                tofu=tofu(value),
            )
            for label, value in models.items()
        ),
        condition="one run each",
    )


def shifts(**more: Any) -> FootprintRecord:
    """SimNPO, which barely forgot and whose footprint is localized, and the exact retrained model."""
    return made.record(
        made.checkpoint("SimNPO", LOCALIZED), made.checkpoint("oracle", DESTROYED, role="oracle"), **more
    )


def test_a_method_that_barely_forgot_wears_no_colour_and_its_levels_come_first(tmp_path: Path) -> None:
    (tmp_path / "footprint.json").write_text(shifts().to_json())
    behaviour = asked(0.637, {"SimNPO": 0.576, "oracle": 0.002})
    (tmp_path / "behaviour.json").write_text(behaviour.to_json())
    assert run(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    body, text = page[page.index("<body>") :], words(page)
    levels = "answer probability (TOFU) 0.576 (base 0.637, retrained 0.002): 10 % of the way to retraining"
    assert levels in text
    row = re.search(
        r"What each model knows.*?Llama-3.1-8B base 0\.637 SimNPO 0\.576 oracle retrained 0\.002", text
    )
    assert row is not None
    first = text.index("partially-localized")
    assert row.end() < first
    assert text.index(levels) < first
    assert "retraining itself is called globally-destructive here" in text
    assert 'class="chip' not in body
    assert text.startswith("Skip to the verdict Footprint report")
    assert "There is no verdict: this record was made before language models were judged." in text


@pytest.fixture(scope="module")
def judged() -> FootprintRecord:
    """One model of each kind: nothing done, partly done, retrained, broken."""
    levels = {"base": 0.60, "nothing": 0.60, "partly": 0.45, "exact": 0.10, "broken": 0.10, "oracle": 0.10}
    labels = [label for label in levels if label not in ("base", "oracle")]
    return made.record(
        *(made.checkpoint(label, LOCALIZED) for label in labels),
        made.checkpoint("oracle", DESTROYED, role="oracle"),
        base=made.model("base"),
        verdict=made.verdict_record(levels, loss={"broken": 4.0}),
    )


def test_the_colour_of_success_belongs_to_equivalent_alone(judged: FootprintRecord) -> None:
    page = render_footprints([judged])
    chips = re.findall(r'class="chip chip-([\w-]+)"><span aria-hidden="true">.</span> ([^<]+)<', page)
    assert [kind for kind, _ in chips] == ["none", "closer", "equivalent", "damaged"]
    assert [text.partition(",")[0] for _, text in chips] == ["not closer", "closer", "equivalent", "damaged"]
    assert chips[1][1].endswith("% of the way")
    css = page[: page.index("<body>")]
    assert re.findall(r"\.chip-(\w+) \{ color: var\(--good\)", css) == ["equivalent"]


def test_levels_and_verdicts_come_before_the_footprint(judged: FootprintRecord) -> None:
    text = words(render_footprints([judged]))
    places = [
        text.index(part)
        for part in (
            "Compared: 4 unlearned models with the base “base” and 3 models retrained",
            "What each model knows",
            "“nothing”",
            "What the verdicts rest on",
            "Classes and what they rest on",
        )
    ]
    assert places == sorted(places)
    assert (
        "probability of the forget text 0.600 (base 0.600, retrained 0.100): as the base, nothing done"
        in text
    )
    assert "probability of the forget text 0.450 (base 0.600, retrained 0.100): 30 % of the way" in text
    assert "loss, nats a token" in text
    assert "memory" in text


def test_several_records_show_verdicts_before_classes(judged: FootprintRecord) -> None:
    text = words(render_footprints([judged, shifts(name="older")]))
    assert text.index("Verdicts and levels") < text.index("partially-localized")
    assert "equivalent" in text[: text.index("partially-localized")]


def test_the_terminal_says_the_same(judged: FootprintRecord, capsys: pytest.CaptureFixture[str]) -> None:
    line = headline(judged, judged.checkpoints[0])
    assert line.startswith("nothing: not closer: ")
    assert line.index("still known?") < line.index("moved?") < line.index("where?")
    print_footprint(judged)
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("Compared: 4 unlearned models with the base “base”")
    assert said.index("What each model knows") < said.index("partially-localized")


def test_verdicts_and_levels_as_files(judged: FootprintRecord, tmp_path: Path) -> None:
    (tmp_path / "footprint.json").write_text(judged.to_json())
    assert run(["report", str(tmp_path), "--tables", "csv"]) == 0
    verdicts = list(csv.DictReader((tmp_path / "tables" / "verdicts.csv").read_text().splitlines()))
    assert [row["verdict"] for row in verdicts] == ["not closer", "closer", "equivalent", "damaged"]
    assert float(verdicts[0]["memory"]) == pytest.approx(1.0, abs=0.03)
    assert float(verdicts[2]["memory_low"]) < 0 < float(verdicts[2]["memory_high"])
    assert verdicts[3]["sentence"].startswith("“broken” is damaged")
    levels = list(csv.DictReader((tmp_path / "tables" / "levels.csv").read_text().splitlines()))
    assert len(levels) == 2 * 8
    assert {row["model_role"] for row in levels} == {"base", "unlearned", "oracle"}
    assert float(levels[2]["probability"]) == 0.6


@pytest.mark.parametrize(
    ("own", "base", "oracle", "expected"),
    [
        (Level(value=0.576), 0.637, 0.002, "10 % of the way to retraining"),
        (Level(value=0.6), 0.6, 0.1, "as the base, nothing done that shows here"),
        (Level(value=0.55, changed=False), 0.6, 0.1, "as the base, nothing done that shows here"),
        (Level(value=0.595), 0.6, 0.1, "next to nothing done"),
        (Level(value=0.7), 0.6, 0.1, "further from retraining than the base"),
        (Level(value=0.02), 0.6, 0.1, "below retraining"),
        (Level(value=0.4), 0.6, None, ""),
        (Level(value=0.4), 0.6, 0.59, "base and retrained are alike here"),
    ],
)
def test_how_much_of_the_way(own: Level, base: float, oracle: float | None, expected: str) -> None:
    assert way_words(own, base, oracle) == expected
