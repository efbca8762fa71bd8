"""Numbered tables and figures on the page and as files; sweeps; records that contradict themselves."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.assessments import assessment, estimate, unlearned

from vestige.cli import run
from vestige.report.consistency import contradictions
from vestige.report.html import MOST_PARTS, render
from vestige.report.paper import Paper, read_paper, write_paper
from vestige.report.reader import read_assessments
from vestige.study.ledger_rows import (
    ArchitectureRow,
    ControlRow,
    CurveRow,
    DisplacementRow,
    FreshHeadRow,
    LedgerRow,
    RecoveryRow,
    StepRow,
    SuppressionRow,
    TuningRow,
)


def rows_of(kind: type[LedgerRow], lines: list[dict[str, object]]) -> str:
    """CSV text of rows: missing columns stay empty."""
    columns = [*kind.columns(), *(kind.column(name) for name in kind.OWN)]
    text = [",".join(columns)]
    text += [",".join(str(line.get(column, "")) for column in columns) for line in lines]
    return "\n".join(text) + "\n"


def displacements() -> list[dict[str, object]]:
    values = {"example": 0.004, "association": 0.2, "class": 0.5}
    return [
        {
            "model": model, "dataset": "banking77", "labels": "semantic", "granularity": name,
            "bundle": "b01", "seed": 17, "d0_f": value * scale, "d0_f_lo": value * scale * 0.9,
            "d0_f_hi": value * scale * 1.1,
            "d0_g": value * scale * 0.8, "acc_full": 0.93, "acc_oracle": 0.92, "noise_f": 0.003,
            "noise_g": 0.006,
        }
        for model, scale in (("one", 1.0), ("two", 0.8), ("three", 1.3))
        for name, value in values.items()
    ]  # fmt: skip


def architectures() -> list[dict[str, object]]:
    common = {"delta_acc_pp": 0.1, "status": "accepted", "progress_f_lo": 0.1, "progress_f_hi": 0.6}
    first = {"seed": 17, "bundle": "b01", "stage": "screening", **common}
    later = {"stage": "replication", "diff_progress_f": -0.2, "diff_progress_g": -0.1, **common}
    return [
        {"model": "One-1B", "model_key": "one", "progress_f": 0.5, "progress_g": 0.4, **first},
        {"model": "Two-2B", "model_key": "two", "progress_f": 0.3, "progress_g": 0.4, **first},
        {"model": "One-1B", "model_key": "one", "progress_f": 0.3, "seed": 42, "bundle": "b01", **later},
        {"model": "One-1B", "model_key": "one", "progress_f": 0.6, "seed": 17, "bundle": "b02", **later},
    ]


def recovery_files() -> dict[str, str]:
    curves = [
        {"model": "one", "population": "unseen", "k": k, "adapt_seed": 0, "checkpoint": name, "t": t,
         "p_gold": min(1, start + 0.02 * t), "accuracy": min(1, start + 0.03 * t)}
        for k in (1, 5)
        for name, start in (("unlearned", 0.3), ("oracle", 0.2), ("full", 0.9))
        for t in (0, 1, 5)
    ]  # fmt: skip
    contrasts = [
        {"id": k, "model": "one", "k": k, "adapt_seed": 0, "g_abs": 0.1 * k, "g_adj": 0.02, "g_h": 0.03}
        for k in (1, 5)
    ]
    controls = [
        {"model": "one", "quantity": name, "value": value, "lo": value - 0.02, "hi": value + 0.02}
        for name, value in (
            ("g_adj unseen", 0.05), ("g_adj seen", 0.06), ("g_adj label swap", 0.01), ("specificity", 0.04),
            ("exposure", 0.01), ("g_abs unseen", 0.1), ("g_headroom unseen", 0.1),
        )
    ]  # fmt: skip
    heads = [
        {"model": "one", "checkpoint": name, "initialisation": number, "forgotten_accuracy": 0.2,
         "gold_p": 0.1, "retained_accuracy": 0.9}
        for name in ("full", "oracle", "unlearned")
        for number in (0, 1)
    ]  # fmt: skip
    return {
        "curves": rows_of(CurveRow, curves),
        "recovery": rows_of(RecoveryRow, contrasts),
        "controls": rows_of(ControlRow, controls),
        "fresh_heads": rows_of(FreshHeadRow, heads),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Imported rows of every kind that published tables lack, and some of those they have."""
    root = tmp_path_factory.mktemp("paper")
    (root / "imported").mkdir()
    tuning = [
        {"dataset": "banking77", "model": "one", "method": "SimNPO", "learning_rate": rate, "beta": "2.5",
         "retain_weight": "1", "epoch": epoch, "od_f": 0.2, "od_g": 0.1, "objective": 0.3 + 0.1 * epoch,
         "feasible": epoch < 3, "chosen": epoch == 1 and rate == "3e-05"}
        for rate in ("3e-05", "1e-04")
        for epoch in (1, 2, 3)
    ]  # fmt: skip
    suppression = [
        {"id": place, "dataset": "banking77", "run": run, "view": view, "dev_s": 0.6, "s": 0.7, "s_lo": 0.6,
         "s_hi": 0.8, "aligned_a": 0.5, "residual": 0.3, "residual_only": 0.1, "magnitude_only": 0.2,
         "squared_error": 0.3, "progress_f": 0.4, "identity_error": "1.1e-15"}
        for place, (run, view) in enumerate(product(("npo", "simnpo"), ("fg", "f", "g")))
    ]  # fmt: skip
    steps = [
        {"model": "one", "seed": 42, "bundle": "b01", "method": "SimNPO", "stage": "exploratory",
         "step": step, "forget_loss": 1 / step}
        for step in range(1, 6)
    ]  # fmt: skip
    files = {
        "displacements": rows_of(DisplacementRow, displacements()),
        "architectures": rows_of(ArchitectureRow, architectures()),
        "tuning": rows_of(TuningRow, tuning),
        "suppression": rows_of(SuppressionRow, suppression),
        "steps": rows_of(StepRow, steps),
        **recovery_files(),
    }
    for kind, text in files.items():
        (root / "imported" / f"{kind}.csv").write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def paper(folder: Path) -> Paper:
    return read_paper([folder])


def test_figures_are_drawn_of_what_is_there(paper: Paper) -> None:
    letters = {figure.number: [letter for letter, _ in figure.lettered] for figure in paper.figures}
    assert letters["1"] == ["a", "b", "c"]
    assert letters["3"] == ["a", "b"]
    assert letters["5"] == ["a", "b", "c", "d"]
    assert letters["S8"] == [""]
    assert len(letters["S9"]) == 6
    assert len(letters["S11"]) == 4
    assert letters["S13"] == ["a", "b", "c"]
    assert letters["2"] == letters["S4"] == letters["S7"] == letters["S14"] == []


def test_a_panel_that_was_not_run_is_named_with_its_study(paper: Paper) -> None:
    figure = next(item for item in paper.figures if item.number == "S12")
    assert figure.not_run == ("exposure audit", "start probabilities")
    assert "Not run: exposure audit and start probabilities (vestige study run recovery)." in figure.caption
    studies = dict(paper.missing)["Figure 2. Labels and candidate sets"]
    assert studies.startswith("vestige study run labels or labels-clinc or candidates")


def test_drawings_are_named_have_text_and_no_number_that_is_not_one(paper: Paper) -> None:
    seen: set[str] = set()
    for figure in paper.figures:
        for _, panel in figure.lettered:
            root = ElementTree.fromstring(panel.svg)
            title, description = root[0], root[1]
            assert (title.tag, title.text) == ("title", panel.caption)
            assert description.text == panel.alternative
            assert len(panel.alternative) > 20
            assert not re.search(r"\bnan\b", panel.svg)
            ids = re.findall(r'\bid="([^"]+)"', panel.svg)
            assert not seen & set(ids)
            seen |= set(ids)


def test_a_figures_text_alternative_states_its_values(paper: Paper) -> None:
    panels = {figure.number: dict(figure.lettered) for figure in paper.figures}
    assert "class: median 0.500" in panels["1"]["b"].alternative
    assert "One-1B seed 42: 0.5 to 0.3" in panels["3"]["b"].alternative
    assert "Two-2B F 0.3 G 0.4" in panels["3"]["a"].alternative
    assert "one adjusted +0.050 over 2 settings" in panels["5"]["b"].alternative
    assert "label swap +0.010" in panels["5"]["c"].alternative
    assert "6 candidates, 4 feasible; best 0.400 at epoch 1" in panels["S8"][""].alternative


def test_captions_carry_their_caveats_and_say_what_is_imported(paper: Paper) -> None:
    captions = {figure.number: figure.caption for figure in paper.figures}
    assert "not a success rate" in captions["3"]
    assert "Fresh heads do not show extraction" in captions["5"]
    assert "starts near zero probability" in captions["5"]
    assert "Holds imported rows" in captions["5"]
    assert "Holds imported rows" not in captions["S7"]
    tables = {table.number: table.caption for table in paper.tables}
    assert "not independent trainings" in tables["S9"]
    assert "uncorrected" in tables["S4"]


def test_the_page_holds_them_and_lists_what_was_not_run(paper: Paper) -> None:
    page = render([], title="Published", paper=paper)
    assert "Figure 5. Recovery" in page
    assert "Table S9. Recovery by fine-tuning" in page
    assert "Not run:" in page
    assert "<script" not in page
    assert not re.search(r"""(src|href)=["'](https?:)?//""", page)
    assert page.count("var(--series-1)") > 10


def test_files_and_their_index(paper: Paper, tmp_path: Path) -> None:
    written = write_paper(paper, tmp_path, tables=["csv", "tex"], figures=["svg"])
    names = {path.relative_to(tmp_path).as_posix() for path in written}
    assert {"tables/table-s9.csv", "tables/table-s9.tex", "figures/figure-5a.svg", "index.json"} <= names
    index = json.loads((tmp_path / "index.json").read_text(encoding="utf-8"))
    listed = {name for item in index for name in item["files"]}
    assert listed == names - {"index.json", "index.md"}
    lost = next(item for item in index if (item["kind"], item["number"]) == ("figure", "2"))
    assert lost["status"] == "not run"
    assert lost["files"] == []
    drawing = (tmp_path / "figures/figure-5a.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in drawing
    for variable in set(re.findall(r"var\((--[\w-]+)\)", drawing)):
        assert drawing.count(f"{variable}:") == 2, variable
    tex = (tmp_path / "tables/table-s9.tex").read_text(encoding="utf-8")
    assert tex.count(r"\toprule") == 2
    assert r"\label{tab:vestige-s9a}" in tex


def test_the_verb_writes_only_what_is_asked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["report", str(folder), "--tables", "csv", "--figures", "svg", "--only", "S8,s13"]
    assert run([*arguments, "--out", str(out)]) == 0
    names = sorted(path.relative_to(out).as_posix() for path in out.rglob("*.*"))
    assert names == [
        "figures/figure-s13a.svg", "figures/figure-s13b.svg", "figures/figure-s13c.svg",
        "figures/figure-s8.svg", "index.json", "index.md", "tables/table-s8.csv",
    ]  # fmt: skip
    capsys.readouterr()
    assert run(["report", str(folder), "--only", "S99"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert run(["report", str(folder), "--figures", "svgz"]) == 2
    assert "did you mean 'svg'?" in capsys.readouterr().err


def sweep(tmp_path: Path, arms: int) -> Path:
    """A sweep's folder whose arms hold one record each."""
    names = [f"arm {number}" for number in range(arms)]
    (tmp_path / "sweep.json").write_text(json.dumps({"arms": names}), encoding="utf-8")
    for name in names:
        place = tmp_path / "arms" / name
        (place / "assessments").mkdir(parents=True)
        (place / "plan.json").write_text(json.dumps({"name": "study"}), encoding="utf-8")
        record = assessment(name=f"study / {name}, bundle 01, seed 17")
        (place / "assessments/01-s17.json").write_text(record.to_json(), encoding="utf-8")
    return tmp_path


def test_one_page_for_a_sweep(tmp_path: Path) -> None:
    found = read_assessments(sweep(tmp_path, 2))
    assert [item.name for item in found] == [f"study / arm {n}, bundle 01, seed 17" for n in (0, 1)]
    page = render(found, paper=read_paper([tmp_path], "S3,S12"))
    assert page.count('class="part"') == 2
    assert "Table S3. Every configuration" in page


def test_a_page_of_many_records_shows_them_in_the_overview_alone() -> None:
    page = render([assessment(name=f"record {number}") for number in range(MOST_PARTS + 1)])
    assert page.count('class="part"') == 0
    assert f"record {MOST_PARTS}" in page
    assert f"{MOST_PARTS + 1} records" in page


def test_consistent_records_have_no_contradiction() -> None:
    assert contradictions(assessment()) == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"decision": "no benefit"}, "decision 'no benefit', but its numbers give 'accepted'"),
        ({"accuracy": -0.1}, "decision 'accepted', but its numbers give 'infeasible'"),
    ],
)
def test_a_decision_against_its_numbers_is_said_on_the_page(change: dict[str, object], said: str) -> None:
    record = assessment(unlearned(**change))  # type: ignore[arg-type]
    (line,) = contradictions(record)
    assert said in line
    page = render([record])
    assert 'class="contradiction"' in page
    assert "contradicts itself" in page


def test_numbers_that_do_not_add_up_are_found() -> None:
    model = unlearned()
    wrong = model.model_copy(update={"metrics": {**model.metrics, "progress.F": estimate(0.9, 0.8, 1.0)}})
    (line,) = contradictions(assessment(wrong))
    assert "progress on F is 0.9000" in line
    gain = model.model_copy(update={"metrics": {**model.metrics, "gain.F": estimate(0.1, 0.05, 0.2)}})
    assert "gain on F is 0.1000" in contradictions(assessment(gain))[0]
    bounds = estimate(model.metrics["progress.G"].value, 0.9, 0.1)  # type: ignore[arg-type]
    turned = model.model_copy(update={"metrics": {**model.metrics, "progress.G": bounds}})
    assert "lower bound above its upper one" in contradictions(assessment(turned))[0]


def test_the_verb_warns_of_a_contradiction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = assessment(unlearned(decision="no benefit"))
    (tmp_path / "assessment.json").write_text(record.to_json(), encoding="utf-8")
    assert run(["report", str(tmp_path)]) == 0
    error = capsys.readouterr().err
    assert error.startswith("warning: ")
    assert error.count("\n") == 1
