"""Study files: what is accepted, and the one-line error for what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from vestige.errors import InputError
from vestige.models.panel import panel
from vestige.study.plan import parse_plan
from vestige.study.source import shipped_studies
from vestige.study.sweep import load_study

SMALL = "name: a\ndataset: helpdesk\n"


@pytest.mark.parametrize(
    ("text", "subject", "found", "remedy"),
    [
        (SMALL + "seedz: [1]\n", "plan.yaml", "unknown key 'seedz'", "did you mean 'seeds'?"),
        (
            SMALL + "deletion: {granulrity: class}\n",
            "plan.yaml: deletion",
            "unknown key 'granulrity'",
            "did you mean 'granularity'?",
        ),
        (
            "name: a\ndataset: {name: files, paht: x}\n",
            "plan.yaml: dataset",
            "unknown key 'paht'",
            "did you mean 'path'?",
        ),
        (
            SMALL + "methods: [{method: simnpo, setings: {}}]\n",
            "plan.yaml: methods[0]",
            "unknown key 'setings'",
            "did you mean 'settings'?",
        ),
        (
            SMALL + "tuning: {epoch: 3}\n",
            "plan.yaml: tuning",
            "unknown key 'epoch'",
            "did you mean 'epochs'?",
        ),
        (SMALL + "seeds: [1]\nseeds: [2]\n", "plan.yaml, line 4", "key 'seeds' twice", "correct the line"),
        (SMALL + "seeds: &a [1]\nnoise_seeds: *a\n", "plan.yaml, line 4", "an alias", "correct the line"),
        (SMALL + "seeds: [1\n", "plan.yaml, line", "expected", "correct the line"),
        (
            SMALL + "seeds: !!python/object/apply:os.getcwd []\n",
            "plan.yaml, line 3",
            "tag",
            "correct the line",
        ),
        ("- a\n", "plan.yaml", "no mapping", "vestige study show demo"),
        ("dataset: helpdesk\n", "plan.yaml", "no key 'name'", "add it"),
        (SMALL + "seeds: []\n", "plan.yaml: seeds", "an empty list", "[17]"),
        (SMALL + "seeds: [1, 1]\n", "plan.yaml: seeds", "'1' twice", "remove the repetition"),
        (SMALL + "seeds: [-1]\n", "plan.yaml: seeds", "a negative or huge seed", "correct it"),
        (SMALL + "primary_seed: -3\n", "plan.yaml: primary_seed", "-3", "correct it"),
        (SMALL + "cells: []\n", "plan.yaml: cells", "an empty list", "remove the key"),
        (SMALL + "cells: [{bundles: ['02']}]\n", "plan.yaml: cells[0]: bundles", "'02'", "known: 01"),
        (SMALL + "cells: [{seeds: [42]}]\n", "plan.yaml: cells[0]: seeds", "'42'", "known: 17"),
        (SMALL + "cells: [{}, {seeds: [17]}]\n", "plan.yaml: cells", "'01-s17' twice", "remove"),
        (
            SMALL + "seeds: [17, 42]\ncells: [{seeds: [17]}]\n",
            "plan.yaml: seeds",
            "'42', in no cell",
            "add a cell or remove it",
        ),
        (
            SMALL + "methods: [{method: npo, bundles: ['02']}]\n",
            "plan.yaml: methods[0]: bundles",
            "'02'",
            "known: 01",
        ),
        (
            SMALL + "methods: [{method: npo, frozen: true, frozen_by: a}]\n",
            "plan.yaml: methods[0]",
            "frozen and frozen_by",
            "remove one",
        ),
        (
            SMALL + "methods: [{method: npo, matched: 0.6}]\n",
            "plan.yaml: methods[0]: matched",
            "0.6",
            "name the study that matched",
        ),
        (
            SMALL + "methods: [{method: npo, lengths: 5}]\n",
            "plan.yaml: methods[0]: lengths",
            "5",
            "set stage: exploratory",
        ),
        (SMALL + "stage: pilott\n", "plan.yaml: stage", "pilott", "did you mean 'pilot'?"),
        (SMALL + "draws: 3\n", "plan.yaml: draws", "3", "correct the value"),
        (SMALL + "rendering: opaque\n", "plan.yaml: map_seed", "none", "map_seed: 0"),
        (SMALL + "map_seed: 0\n", "plan.yaml: map_seed", "0", "remove it"),
        (SMALL + "deletion: {bundles: ['00']}\n", "plan.yaml: deletion: bundles", "bundle 00", "study tune"),
        (SMALL + "deletion: {bundles: [a]}\n", "plan.yaml: deletion: bundles", "'a'", "correct it"),
        (SMALL + "deletion: {bundles: [1], reserved: ['01']}\n", "plan.yaml: deletion", "bundle 01", "one"),
        (SMALL + "deletion: {where: a=1}\n", "plan.yaml: deletion: where", "a value", "set it, or remove"),
        (SMALL + "deletion: {granularity: custom}\n", "plan.yaml: deletion", "neither", "name the rows once"),
        (
            SMALL + "deletion: {granularity: custom, row_ids: []}\n",
            "plan.yaml: deletion: row_ids",
            "an empty list",
            "add row ids",
        ),
        (
            SMALL + "deletion: {granularity: row}\n",
            "deletion: granularity",
            "'row'",
            "known: association, class",
        ),
        (
            SMALL + "deletion: {granularity: asociation}\n",
            "deletion: granularity",
            "'asociation'",
            "did you mean 'association'?",
        ),
        (
            SMALL + "deletion: {granularity: example, share: 0.7}\n",
            "plan.yaml: deletion: share",
            "0.7",
            "correct the value",
        ),
        (SMALL + "deletion: {granularity: example, share: 0}\n", "deletion: share", "0", "correct"),
        (SMALL + "deletion: {share: 0.1}\n", "plan.yaml: deletion: share", "0.1", "remove the key"),
        (
            SMALL + "deletion: {granularity: example, units_per_bundle: 5}\n",
            "plan.yaml: deletion: units_per_bundle",
            "5",
            "set share",
        ),
        (
            SMALL + "deletion: {granularity: association, g_rows: [a]}\n",
            "plan.yaml: deletion: g_rows",
            "rows",
            "remove the key",
        ),
        (
            SMALL + "deletion: {granularity: association, bundles: ['02'], reserved: ['02']}\n",
            "plan.yaml: deletion",
            "bundle 02 in bundles and in reserved",
            "remove it from one",
        ),
        (SMALL + "methods: simnpo\n", "plan.yaml: methods", "'simnpo'", "on a line"),
        (
            SMALL + "methods: [{method: simnpo, frozen: true, settings: {epochs: 2}}]\n",
            "plan.yaml: methods[0]",
            "settings beside frozen",
            "remove the settings",
        ),
        (
            SMALL + "methods: [{method: simnpo, label: x}, {method: npo, label: x}]\n",
            "methods, labels",
            "'x' twice",
            "remove the repetition",
        ),
        (SMALL + "methods: [{method: simnpo, label: a/b}]\n", "methods[0]: label", "'a/b'", "choose another"),
        (SMALL + "methods: [{method: simnpo, label: 'a\\b'}]\n", "label", "a\\b", "choose another"),
        (SMALL + "draws: 1000000000000\n", "draws", "1000000000000", "correct the value"),
        (SMALL + "seeds: [10000000000000000000]\n", "seeds[0]", "2^63 or more", "correct the value"),
        (
            SMALL + "stage: confirmation\nmethods: [{method: simnpo, settings: {epochs: 2}}]\n",
            "plan.yaml: methods[0]",
            "not frozen",
            "vestige study tune",
        ),
    ],
)
def test_bad_plan_is_one_line(text: str, subject: str, found: str, remedy: str) -> None:
    with pytest.raises(InputError) as error:
        parse_plan(text, "plan.yaml")
    assert subject in error.value.subject
    assert found in error.value.found
    assert remedy in error.value.remedy
    assert "\n" not in str(error.value)


def test_numbers_and_labels_as_people_write_them() -> None:
    plan = parse_plan(
        SMALL
        + "deletion: {bundles: [1, '02'], reserved: [10]}\n"
        + "methods: [simnpo, {method: npo, settings: {learning_rate: 1e-4}}]\n",
        "plan.yaml",
    )
    assert plan.deletion.bundles == ("01", "02")
    assert plan.deletion.reserved == ("10",)
    assert plan.methods[0].method == "simnpo"
    assert plan.methods[1].settings == {"learning_rate": 1e-4}


def test_cells_name_what_is_evaluated_and_in_which_stage() -> None:
    text = (
        SMALL
        + "stage: replication\nseeds: [17, 42]\nnoise_seeds: [99]\noracle_seeds: [5]\n"
        + "deletion: {bundles: ['01', '02', '03']}\n"
        + "cells:\n- {bundles: ['01', '02'], seeds: [17]}\n"
        + "- {bundles: ['03'], seeds: [42], stage: control}\n"
        + "methods: [grad_ascent, {method: npo, bundles: ['01']}]\n"
    )
    plan = parse_plan(text, "p")
    assert [(cell.bundle, cell.seed, cell.stage) for cell in plan.planned] == [
        ("01", 17, "replication"),
        ("02", 17, "replication"),
        ("03", 42, "control"),
    ]
    assert plan.stages == {"replication", "control"}
    assert (plan.full_seeds_of("03"), plan.oracle_seeds_of("01")) == ((42, 99), (17, 5))
    assert [entry.at("02", 17) for entry in plan.methods] == [True, False]
    whole = parse_plan(SMALL + "seeds: [17, 42]\n", "p")
    assert [(cell.bundle, cell.seed, cell.stage) for cell in whole.planned] == [
        ("01", 17, "pilot"),
        ("01", 42, "pilot"),
    ]


def test_seeds_of_fulls_and_oracles_keep_evaluated_ones_first() -> None:
    plan = parse_plan(SMALL + "seeds: [5, 3]\nnoise_seeds: [1, 3]\noracle_seeds: [9]\nprimary_seed: 3\n", "p")
    assert plan.full_seeds == plan.full_seeds_of("01") == (5, 3, 1)
    assert plan.oracle_seeds_of("01") == (5, 3, 9)
    assert plan.primary == 3


def test_shipped_studies_parse() -> None:
    shipped = shipped_studies()
    assert {"demo", "banking77-class"} <= set(shipped)
    for name in shipped:
        for scale in (None, "small"):
            study = load_study(name, scale=scale)
            assert study.name == name
            assert study.text == shipped[name]
            assert {plan.scale for plan in study.arms.values()} == {scale or ""}


def test_shipped_studies_name_backbones_of_the_panel() -> None:
    known = {item.hub_id for item in panel()} | {"minilm", "smollm2"}
    named = [
        str(plan.model["backbone"])
        for name in shipped_studies()
        for plan in load_study(name).arms.values()
        if "backbone" in plan.model
    ]
    assert set(named) <= known
    granular = load_study("granularity").arms.values()
    assert {str(plan.model["backbone"]) for plan in granular} == {item.hub_id for item in panel()}
    assert len(granular) == 60


def test_paths_are_taken_from_the_study_file(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "s.yaml").write_text("name: a\ndataset: {name: files, path: rows}\n", encoding="utf-8")
    plan = load_study(tmp_path / "s.yaml").plan
    assert plan.dataset.path == str(tmp_path / "rows")
    assert plan.dataset.model_fields_set == {"name", "path"}


def test_unknown_study_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'demo'"):
        load_study("demmo")
    with pytest.raises(InputError, match="no such file"):
        load_study(tmp_path / "gone.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(InputError, match="not UTF-8"):
        load_study(tmp_path / "latin.yaml")


def test_yaml_nested_too_deep_is_one_line() -> None:
    with pytest.raises(InputError, match=r"s\.yaml: found lists or mappings nested too deep"):
        parse_plan("[" * 5000, "s.yaml")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("? [a, b]\n: c", "line 2: found a list or mapping as a key"),
        (
            "methods: [{method: simnpo, settings: {learning_rate: .nan}}]",
            "line 2: found a number that is not finite",
        ),
        ("draws: -.inf", "line 2: found a number that is not finite"),
        ("x: 2024-13-45", "line 2: found a date, number or text that does not exist"),
        ("x: " + "1" * 5000, "line 2: found a date, number or text that does not exist"),
        ('x: "\\ud800"', "line 2: found a date, number or text that does not exist"),
    ],
)
def test_yaml_that_no_value_can_be_made_of_is_one_line(line: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_plan(f"name: a\n{line}\n", "s.yaml")


@pytest.mark.parametrize("label", ["000", "001", "1", "1000"])
def test_one_bundle_has_one_label(label: str) -> None:
    with pytest.raises(InputError, match="labels such as '01'"):
        parse_plan(f"name: a\ndataset: demo\ndeletion: {{bundles: ['{label}']}}\n", "s.yaml")


@pytest.mark.parametrize("name", [".", "..", "\U0001d7d9" * 60])
def test_a_study_is_named_as_a_folder_can_be(name: str) -> None:
    with pytest.raises(InputError, match="1 to 80 characters"):
        parse_plan(f"name: '{name}'\ndataset: demo\n", "s.yaml")
