"""How verdicts are shown: chips, the table of what decides, conditions, units, margins, and older records."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from tests.assessments import assessment, judged, unlearned
from tests.evidence import CONDITIONS, bounded, equivalent, evidence, retained, view

from vestige.contracts import Assessment, Condition, Margins, ProbeEvidence, Undefined, UnitEvidence, Verdict
from vestige.csv_text import csv_text
from vestige.report.answers import (
    conditions_of,
    evidence_table,
    margin_lines,
    published_tag,
    unit_table,
    verdict_chip,
)
from vestige.report.consistency import contradictions
from vestige.report.export import LONG_COLUMNS, long_rows, verdict_rows
from vestige.report.html import environment, render
from vestige.report.tables import EMPTY

HARMED = evidence(retained=retained((-0.14, -0.162, -0.119), harm="damaged"))


def several() -> Assessment:
    """Verdicts of four kinds; the third model has three training seeds."""
    seeds = evidence(
        [view("F", several=True), view("G", distance=0.27, several=True)],
        seeds={"full": 2, "oracle": 3, "unlearned": 3},
    )
    away = evidence([view("F"), view("G", distance=0.9)])
    return assessment(
        judged("as retrained", "equivalent", equivalent()),
        judged("broken", "damaged", HARMED, decision="infeasible", accuracy=-0.14),
        judged("three seeds", "closer", seeds),
        judged("away", "not closer", away),
    )


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        ("equivalent", "equivalent"),
        ("closer", "closer"),
        ("not closer", "none"),
        ("damaged", "damaged"),
        ("undetermined", "none"),
    ],
)
def test_the_colour_of_success_belongs_to_equivalent_alone(verdict: Verdict, kind: str) -> None:
    chip = verdict_chip(evidence().headline(verdict))
    assert chip.kind == kind
    assert chip.text == ("closer, 58 % of the way" if verdict == "closer" else verdict)
    css = str(environment().globals["css"])
    colour = {"equivalent": "good", "closer": "warn", "damaged": "bad"}.get(kind, "muted")
    assert re.search(rf"\.chip-{kind}\b[^}}]*color: var\(--{colour}\)", css)
    assert len(re.findall(r"color: var\(--good\)", css)) == 1


def test_the_published_rule_is_named_as_such() -> None:
    assert published_tag(judged()) == "published rule: accepted"
    none = judged(decision=Undefined(undefined="no retrained model"))
    assert published_tag(none) == "published rule: no decision"


def test_the_table_goes_from_the_full_model_to_retraining_levels_first() -> None:
    table = evidence_table(several())
    assert table.header() == [
        "measure",
        "full model",
        "as retrained",
        "broken",
        "three seeds",
        "away",
        "retrained",
    ]
    assert [column.detail for column in table.columns][:3] == [
        "2 training seeds",
        "1 training seed",
        "1 training seed",
    ]
    rows = {row.label: [str(cell) for cell in row.cells] for row in table.rows}
    labels = list(rows)
    assert labels[:5] == [
        "verdict",
        "published rule",
        "other trainings",
        "P(right answer), F",
        "P(right answer), G",
    ]
    assert rows["verdict"][1:5] == ["equivalent", "damaged", "closer, 58 % of the way", "not closer"]
    assert rows["published rule"][1:5] == ["accepted", "infeasible", "accepted", "accepted"]
    assert rows["P(right answer), F"] == ["0.900", *["0.300"] * 4, "0.100"]
    assert rows["distance to retraining, F"][2] == "0.280 (2.8 × retraining’s own; rows [0.250, 0.310])"
    assert rows["distance to retraining, F"][3] == (
        "0.280 (2.8 × retraining’s own; rows [0.250, 0.310]; trainings [0.220, 0.340])"
    )
    assert rows["distance to retraining, F"][5] == "0.100 (two retrainings)"
    assert rows["share of the way, F"][2:6:3] == ["58 % (68 % of the ceiling)", "85 % (the ceiling)"]
    assert rows["memory left, F"][:3:2] == ["100 %", "25 % (10 % allowed; rows [19, 32])"]
    assert rows["beyond retraining’s own, F"][2] == "+0.180 (0.050 allowed; rows [+0.150, +0.210])"
    assert rows["retained accuracy, R"] == ["92.0 %", "91.7 %", "78.0 %", "91.7 %", "91.7 %", "91.9 %"]
    assert rows["its change in points"][2] == "-14.0 (2 fewer allowed; rows [-16.2, -11.9])"
    assert rows["its change in points"][5] == "-0.1"
    assert rows["E2: as near as they"][1:3] == ["holds", "does not hold"]
    assert rows["E5: in every part"][1:3] == ["holds", "not settled"]
    assert rows["other trainings"][1:5] == [
        "not known: one training run",
        "not known: one training run",
        "under each number",
        "not known: one training run",
    ]
    assert any(
        note == "trainings: one training run of the unlearned model: how another would come out is not known"
        for note in table.notes
    )
    assert any(
        note.startswith("rows: 95 % interval, these models, other rows like these (") for note in table.notes
    )
    assert any(
        note.startswith("trainings: 95 % interval, other trainings and other rows (") for note in table.notes
    )
    assert sum(note.startswith("rows: ") for note in table.notes) == 1


def test_without_a_retrained_model_the_table_shows_what_is_left() -> None:
    alone = evidence([], seeds={"full": 1, "oracle": 0, "unlearned": 1}, conditions=())
    record = assessment(judged(verdict="undetermined", found=alone), has_oracle=False, noise={})
    table = evidence_table(record)
    assert table.header() == ["measure", "full model", "simnpo"]
    rows = {row.label: [str(cell) for cell in row.cells] for row in table.rows}
    assert rows["probability on the deleted options, F"] == [
        "0.960 (rows [0.950, 0.970] (percentile))",
        "0.310 (rows [0.280, 0.340] (percentile))",
    ]
    assert "memory left, F" not in rows
    assert "p of no gain" not in rows


def test_conditions_are_asked_as_questions_once() -> None:
    found = conditions_of(evidence())
    assert [item.name for item in found] == ["E1", "E2", "E3", "E4", "E5"]
    assert found[0].question.endswith("so that it is known what two of them differ by?")
    assert found[0].found == ("3 retrained models, at least 3 needed",)
    holds = ["holds", "does not hold", "does not hold", "holds", "not settled"]
    assert [item.holds for item in found] == holds
    both = evidence(conditions=(CONDITIONS[1], CONDITIONS[1].model_copy(update={"holds": True})))
    (one,) = conditions_of(both)
    assert (len(one.found), one.holds) == (2, "does not hold")


def test_the_worst_parts_are_listed_with_what_is_allowed() -> None:
    table = unit_table(judged())
    assert [[row.label, *(str(cell) for cell in row.cells)] for row in table.rows] == [
        ["card_arrival", "F", "49", "41 %", "33 %"],
        ["unit 2", "F", "49", "12 %", "4 %"],
    ]
    assert table.notes == ("4 parts judged, 20 % allowed in each",)
    few = Undefined(undefined="fewer than three retrained models")
    none = UnitEvidence(view="F", name="card_arrival", rows=49, memory=few, lower=few)
    unknown = unit_table(judged(found=evidence(units=(none,), units_judged=0)))
    assert unknown.rows == ()
    assert unknown.notes == ("none could be judged, fewer than three retrained models",)


def test_margins_are_printed_with_what_they_admit() -> None:
    lines = margin_lines(evidence(margins=Margins(memory=0.2, excess=0.07)))
    assert lines[0].startswith("Distance beyond what two retrainings differ by, on F and G: 0.070;")
    assert lines[1].endswith("20 %; in one part of what was deleted 40 %.")
    assert lines[-1].startswith(
        "A model exactly at this margin may still give the right answer a mean probability of 0.26 on"
    )
    assert "0.05 or half of what two retrainings differ by" in margin_lines(evidence())[0]


def test_the_page_leads_with_the_verdicts() -> None:
    page = render([several()])
    text = re.sub(r"<[^>]+>", "", page)
    first = text.index("closer, 58 % of the way")
    assert first < text.index("The numbers that decide")
    for model in several().models:
        if model.verdict:
            answer = model.sentence.split(". ")[0]
            assert answer in text.replace("\u00a0", " ").replace("−", "-")
    assert "What the published rule says" in text
    assert "published rule: infeasible" in text
    assert "made before verdicts existed" not in text


def test_an_older_record_says_by_which_rule_it_was_judged() -> None:
    old = assessment(unlearned(equivalent=True, equivalence=None))
    page = re.sub(r"<[^>]+>", "", render([old]))
    assert "“simnpo” was judged by the published rule: its record is older than verdicts." in page
    assert "shown to be equivalent" not in page
    assert "chip-equivalent" not in render([old]).split("</style>")[1]
    assert "judged by the published rule" in render([old, several()])


def test_a_verdict_that_does_not_follow_from_its_evidence_is_a_contradiction() -> None:
    assert contradictions(several()) == ()
    (line,) = contradictions(assessment(judged(verdict="equivalent", found=HARMED)))
    assert "verdict 'equivalent', but its evidence gives 'damaged'" in line


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"distance": bounded(0.14, 0.12, 0.16)}, "gain on F is 0.3800 in its evidence"),
        ({"spread": 0.2}, "excess on F is 0.1800 in its evidence, distance minus what retrainings differ by"),
        ({"progress": 0.9}, "progress on F is 0.9000 in its evidence, gain over displacement is 0.5758"),
    ],
)
def test_evidence_whose_numbers_do_not_add_up_is_a_contradiction(change: dict[str, Any], said: str) -> None:
    sides = (view("F").model_copy(update=change), view("G"))
    (line,) = contradictions(assessment(judged(found=evidence(sides))))
    assert said in line


def test_a_condition_under_which_nothing_was_judged_does_not_read_as_one_that_held() -> None:
    def held(units: int, *probes: bool | None) -> list[str]:
        conditions = (
            Condition(name="E5", holds=True, text="..."),
            Condition(name="probes", holds=False not in probes, text="..."),
        )
        asked = tuple(ProbeEvidence(name=str(i), memory={}, holds=found) for i, found in enumerate(probes))
        return [
            item.holds
            for item in conditions_of(evidence(conditions=conditions, probes=asked, units_judged=units))
        ]

    assert held(0, None, None) == ["nothing could be judged", "not settled"]
    assert held(2, None, True) == ["holds", "holds where settled"]
    assert held(2, True, True) == ["holds", "holds"]
    assert held(2, None, False) == ["holds", "does not hold"]


def test_where_no_memory_is_known_the_table_has_no_ends_for_it() -> None:
    sides = (view("F", memory=None, visible=Undefined(undefined="too few rows")), view("G"))
    table = evidence_table(assessment(judged(found=evidence(sides))))
    rows = {row.label: [str(cell) for cell in row.cells] for row in table.rows}
    assert rows["memory left, F"][::2] == [EMPTY, EMPTY]
    assert rows["memory left, G"][::2] == ["100 %", "0 %"]
    assert any(note.startswith("share of the way: ") for note in table.notes)


def test_exported_tables_carry_verdicts() -> None:
    header, *rows = csv.reader(io.StringIO(csv_text(*_split(verdict_rows([several()])))))
    found = {row[2]: dict(zip(header, row, strict=True)) for row in rows}
    assert found["three seeds"]["verdict"] == "closer"
    assert float(found["three seeds"]["memory_F_high"]) == 0.32
    assert found["three seeds"]["training_seeds"] == "3"
    assert found["broken"]["decision"] == "infeasible"
    assert float(found["broken"]["accuracy_change_R"]) == -0.14
    assert found["full-17"]["verdict"] == found["full-17"]["memory_F"] == ""
    header, *rows = csv.reader(io.StringIO(csv_text(LONG_COLUMNS, long_rows([several()]))))
    lines = [dict(zip(header, row, strict=True)) for row in rows]
    memory = next(
        line
        for line in lines
        if (line["model"], line["metric"], line["view"]) == ("three seeds", "evidence.memory", "F")
    )
    assert memory["verdict"] == "closer, 58 % of the way"
    assert (float(memory["row_low"]), float(memory["trainings_low"])) == (
        0.19,
        bounded(0.25, 0.19, 0.32, several=True).other_trainings.low,
    )  # type: ignore[union-attr]


def _split(rows: object) -> tuple[list[str], list[list[str]]]:
    header, *rest = rows  # type: ignore[misc]
    return header, rest
