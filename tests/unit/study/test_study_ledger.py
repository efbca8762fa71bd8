"""The ledger and the numbered tables of a made sweep: rows against records, what is missing, imports."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from vestige.errors import InputError
from vestige.report.paper_index import FIGURES, TABLES, chosen
from vestige.report.paper_tables import paper_tables
from vestige.study.ledger import Ledger, read_ledger
from vestige.study.ledger_rows import (
    ArchitectureRow,
    ComputeRow,
    DisplacementRow,
    LabelRow,
    LedgerRow,
    MainTable2Row,
    MethodRow,
    OptimisationRow,
    RegistryRow,
    SchemaRow,
    StepRow,
    SuppressionRow,
    TuningRow,
)
from vestige.study.plan import Plan
from vestige.study.runner import Execution
from vestige.study.steps import STEPS, write_steps
from vestige.study.sweep import load_study, run_all
from vestige.study.tune import tune_study


@pytest.fixture(scope="module")
def sweep(intents: Path, execution: Execution, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Semantic and opaque labels, and a second model, under three candidate sets."""
    folder = tmp_path_factory.mktemp("sweep")
    raw = {
        "name": "sides",
        "stage": "screening",
        "dataset": {"name": "files", "path": str(intents)},
        "candidates": ["S0", "S1"],
        "deletion": {"units_per_bundle": 2, "bundles": ["01"]},
        "seeds": [17],
        "draws": 100,
        "methods": [{"method": "simnpo", "settings": {"epochs": 2, "learning_rate": 2e-4}}],
        "arms": {
            "semantic": {},
            "opaque": {"rendering": "opaque", "map_seed": 0},
            "wide": {"model": {"scale": 2.0}},
        },
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(raw, sort_keys=False), encoding="utf-8")
    run_all(load_study(folder / "study.yaml"), folder / "run", execution=execution)
    return folder / "run"


@pytest.fixture(scope="module")
def ledger(sweep: Path) -> Ledger:
    return read_ledger(sweep)


def record(sweep: Path, arm: str, name: str = "01-s17") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((sweep / "arms" / arm / f"assessments/{name}.json").read_text("utf-8"))
    return found


def metric(found: dict[str, Any], key: str, label: str = "SimNPO") -> dict[str, Any]:
    model = next(item for item in found["models"] if item["label"] == label)
    value: dict[str, Any] = model["metrics"][key]
    return value


def test_method_rows_hold_the_records_numbers(sweep: Path, ledger: Ledger) -> None:
    rows = ledger.of(MethodRow)
    assert [row.origin for row in rows] == [
        f"{arm}/assessments/01-s17.json" for arm in ("semantic", "opaque", "wide")
    ]
    row, found = rows[0], record(sweep, "semantic")
    gain = metric(found, "gain.F")
    assert row.gain_f == gain["value"]
    assert (row.gain_f_lo, row.gain_f_hi) == (gain["row"]["low"], gain["row"]["high"])
    assert (row.gain_f_unit_lo, row.gain_f_unit_hi) == (gain["unit"]["low"], gain["unit"]["high"])
    assert row.delta_acc_pp == pytest.approx(100 * metric(found, "delta_accuracy.R")["value"])
    assert (row.bundle, row.seed, row.stage, row.labels) == ("b01", 17, "screening", "semantic")
    assert row.text("gain_f") == f"{gain['value']:.3f}"
    assert (row.rows_f, row.units) == (40, 2)


def test_displacements_count_a_full_model_and_oracle_once(ledger: Ledger) -> None:
    rows = ledger.of(DisplacementRow)
    assert len(rows) == 3
    assert all(row.granularity == "class" and row.d0_f and row.d0_f > 0.1 for row in rows)


def test_label_pairs_are_of_one_request_seed_and_model(sweep: Path, ledger: Ledger) -> None:
    semantic, opaque = ledger.of(LabelRow)
    assert (semantic.labels, opaque.labels) == ("semantic", "opaque")
    assert semantic.model == opaque.model == "scale 1.0"
    assert opaque.opaque_acquisition == "pass"
    assert opaque.min_class_acc_semantic is not None
    assert semantic.min_class_acc_opaque is None
    mass = metric(record(sweep, "opaque"), "forgotten_mass.F", "oracle")["value"]
    assert opaque.text("oracle_mass_f") == f"{mass:.3e}"


def test_candidate_sets_are_rows_of_their_own_records(sweep: Path, ledger: Ledger) -> None:
    rows = ledger.of(SchemaRow)
    assert [row.schema_ for row in rows if row.view == "f"] == ["S0", "S1"] * 3
    found = next(row for row in rows if row.schema_ == "S1" and row.origin.startswith("wide"))
    assert found.options == 6
    assert found.progress == metric(record(sweep, "wide", "01-s17-S1"), "progress.F")["value"]


def test_architectures_are_the_models_of_one_method(ledger: Ledger) -> None:
    rows = ledger.of(ArchitectureRow)
    assert [row.model_key for row in rows] == ["scale 1.0", "scale 2.0"]
    assert all(row.diff_progress_f is None for row in rows)


def test_suppression_over_both_views_and_each(sweep: Path, ledger: Ledger) -> None:
    rows = ledger.of(SuppressionRow)
    assert [row.view for row in rows[:3]] == ["fg", "f", "g"]
    found = record(sweep, "semantic")
    assert rows[0].s == metric(found, "suppression.FG")["value"]
    assert rows[1].residual_only == metric(found, "residual_only_distance.F")["value"]
    errors = [metric(found, f"identity_error.{view}")["value"] for view in ("F", "G")]
    assert rows[0].identity_error == max(errors)


def test_work_that_arms_share_is_counted_once(sweep: Path, ledger: Ledger) -> None:
    nodes = {}
    for path in sweep.glob("arms/*/nodes/*/record.json"):
        node = json.loads(path.read_text("utf-8"))
        nodes[node["key"]] = node["seconds"]
    rows = ledger.of(ComputeRow)
    assert sum(row.gpu_hours_logged for row in rows) == pytest.approx(sum(nodes.values()) / 3600)
    assert {row.stage for row in rows} == {"reference", "screening"}
    registered = {(row.labels, row.stage): row.evaluations for row in ledger.of(RegistryRow)}
    # Scoring under another candidate set is no evaluation of its own. Full model and oracle count with their
    # study under codes, which are that study's alone.
    assert registered == {
        ("semantic", "screening"): 2,
        ("semantic", "reference"): 4,
        ("opaque", "screening"): 3,
    }
    assert sum(row.evaluations for row in rows) == sum(registered.values())


def test_what_was_not_run_is_named_and_not_shown_empty(ledger: Ledger) -> None:
    tables = {table.number: table for table in paper_tables(ledger)}
    assert {number for number, table in tables.items() if not table.present} == {"2", "3", "S7", "S9", "S10"}
    assert tables["S9"].entry.made_by == "vestige study run recovery"
    assert "Nothing was matched here" in tables["S8"].caption


def test_the_audit_record_has_its_items_for_every_arm(sweep: Path, ledger: Ledger) -> None:
    (table,) = paper_tables(ledger, ["S12"])
    ((header, rows),) = table.files.values()
    assert header == ("run", "item", "status", "finding")
    items = {row[1]: row for row in rows if row[0] == "semantic"}
    assert items["reconciliation"][2:] == ("passed", "2 registered, 2 assessed")
    assert items["reserved"][2] == "passed"
    assert items["file collisions"][2] == "passed"
    assert {
        "acquisition", "privacy audit", "coverage", "reserved", "excluded models", "reconciliation",
        "file collisions", "reporting", "reruns", "selection notes", "records",
    } <= set(items)  # fmt: skip
    assert items["acquisition"][3].startswith("10 of 10 units passed at the primary seed 17")
    assert {row[0] for row in rows} == {"semantic", "opaque", "wide"}


def test_a_missing_record_shows_in_the_audit_record(sweep: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(sweep / "arms/wide", tmp_path / "wide"))
    (copy / "assessments/01-s17-S1.json").unlink()
    (table,) = paper_tables(read_ledger(copy), ["S12"])
    ((_, rows),) = table.files.values()
    status = {row[1]: (row[2], row[3]) for row in rows}
    assert status["reconciliation"] == ("noted", "2 registered, 1 assessed; 1 registered and not assessed")
    assert status["coverage"][0] != "passed"


def test_tuning_candidates_are_rows(
    make_plan: Callable[..., Plan], execution: Execution, tmp_path: Path
) -> None:
    plan = make_plan(
        tuning={"epochs": 2, "grid": {"simnpo": {"beta": [2.5], "retain_weight": [1.0]}}},
        methods=["simnpo"],
    )
    tuning = tune_study(plan, tmp_path / "tuned", execution=execution)
    rows = read_ledger(tmp_path / "tuned").of(TuningRow)
    assert len(rows) == tuning.methods[0].candidates
    chosen_rows = [row for row in rows if row.chosen]
    assert [row.objective for row in chosen_rows] == [tuning.methods[0].chosen.objective]  # type: ignore[union-attr]


def imported(folder: Path, kind: str, text: str) -> Path:
    (folder / "imported").mkdir(parents=True, exist_ok=True)
    (folder / "imported" / f"{kind}.csv").write_text(text, encoding="utf-8")
    return folder


REGISTRY = "dataset,labels,stage,evaluations\n"


def test_imported_rows_stand_behind_measured_ones_and_are_marked(sweep: Path, tmp_path: Path) -> None:
    other = imported(tmp_path, "registry", REGISTRY + "banking77,semantic,pilot,15\n")
    ledger = read_ledger(sweep, other)
    rows = ledger.of(RegistryRow)
    assert [row.imported for row in rows] == [False] * (len(rows) - 1) + [True]
    (table,) = paper_tables(ledger, ["S1"])
    assert [row.label for row in table.panels[0].rows][-1] == "banking77 (imported)"
    assert f"1 of {len(rows)} rows are imported" in table.caption


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("registri", "a\n", "did you mean 'registry'?"),
        ("registry", "dataset,labels,stages,evaluations\n", "column 'stages'"),
        ("registry", "dataset,labels,stage\n", "no column 'evaluations'"),
        ("registry", REGISTRY + "banking77,semantic,pilot\n", "line 2: found 3 fields"),
        ("registry", REGISTRY + "banking77,semantic,pilot,many\n", "line 2, column 'evaluations'"),
    ],
)
def test_wrong_imports_are_one_line(tmp_path: Path, kind: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")) as raised:
        read_ledger(imported(tmp_path, kind, text))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"seed\n\xff\n", "line 2: found byte 0xff, which is not UTF-8"),
        (b"seed,seed\n1,2\n", "columns named twice: 'seed'"),
        (b"", "no header line"),
        (b'seed\n"' + b"1" * 200_000 + b"\n", "line 2: found broken CSV"),
    ],
)
def test_imports_that_are_no_table_are_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "imported").mkdir()
    (tmp_path / "imported/methods.csv").write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_ledger(tmp_path)


def test_a_folder_without_anything_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no records and no imported"):
        read_ledger(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        read_ledger(tmp_path / "none")


def test_signed_zeros_and_missing_numbers_are_printed_as_they_are() -> None:
    row = RegistryRow(dataset="a", labels="b", stage="c", evaluations=1, printed={})
    assert isinstance(row, LedgerRow)
    method = MethodRow.model_construct(printed={}, gain_f=-0.0002, gain_g=None, progress_f=-0.001)
    assert (method.text("gain_f"), method.text("gain_g"), method.text("progress_f")) == (
        "-0.000",
        "",
        "-0.00",
    )


def test_numbers_of_tables_and_figures_are_chosen_or_refused() -> None:
    assert chosen("s3, 5", list(TABLES)) == ["S3"]
    assert chosen("s3, 5", list(FIGURES)) == ["5", "S3"]
    assert chosen(None, ["1"]) == ["1"]
    with pytest.raises(InputError, match="did you mean"):
        chosen("S31", list(TABLES))


def test_every_study_named_by_a_table_or_figure_is_shipped() -> None:
    from vestige.study.source import shipped_studies

    named = {study for entry in (*TABLES.values(), *FIGURES.values()) for study in entry.studies}
    assert named <= set(shipped_studies())


def test_the_guide_lists_which_study_makes_what() -> None:
    from vestige.report.paper_index import studies_of
    from vestige.study.source import shipped_studies

    guide = (Path(__file__).parents[3] / "docs/studies.md").read_text(encoding="utf-8")
    for study in shipped_studies():
        tables, figures = studies_of(study)
        if tables or figures:
            line = f"| `{study}` | {', '.join(tables) or '–'} | {', '.join(figures) or '–'} |"
            assert line in guide


def test_step_logs_give_optimisation_rows_and_traces(sweep: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(sweep / "arms/semantic", tmp_path / "semantic"))
    (node,) = copy.glob("nodes/unlearned-*")
    log = [
        {
            "step": step, "epoch": 1, "rows": 16, "tokens": 100, "loss": 1.0, "forget_loss": float(step),
            "retain_loss": 0.5, "gradient_norm": 2.0 * step, "update_norm": 0.1 * step,
            "learning_rate": 1e-4, "seconds": 0.1,
        }
        for step in range(1, 31)
    ]  # fmt: skip
    write_steps(log, node / STEPS)
    ledger = read_ledger(copy)
    (row,) = ledger.of(OptimisationRow)
    assert (row.forget_loss_first10, row.forget_loss_last10) == (5.5, 25.5)
    assert (row.grad_norm_first10, row.grad_norm_last10) == (11.0, 51.0)
    assert (row.update_norm_last, row.steps) == (pytest.approx(3.0), 30)
    found = record(sweep, "semantic")
    assert row.progress_f == metric(found, "progress.F")["value"]
    assert row.full_margin == metric(found, "margin.F", "full")["value"]
    traces = ledger.of(StepRow)
    assert [item.forget_loss for item in traces] == [float(step) for step in range(1, 31)]


def test_replications_are_those_of_the_summaries(confirmed_once: Path) -> None:
    rows = read_ledger(confirmed_once).of(MainTable2Row)
    first = [row for row in rows if row.phase == 1]
    assert {(row.seeds, row.bundles) for row in first} == {
        (seed, bundle) for seed in ("17", "42") for bundle in ("b01", "b02")
    }
    assert all(row.p_holm is not None for row in first if row.method != "Uniformization")
    summary = json.loads((confirmed_once / "summaries/replication.json").read_text("utf-8"))
    methods = {item["label"]: item for item in summary["methods"] if not item["control"]}
    second = {row.method: row for row in rows if row.phase == 2}
    assert set(second) == set(methods)
    for label, row in second.items():
        views = {item["view"]: item for item in methods[label]["views"]}
        assert row.gain_f == views["F"]["estimate"]
        assert row.gain_g_lo == views["G"]["interval"]["low"]
        assert row.decision.lower() == methods[label]["decision"]
        assert (row.seeds, row.bundles) == ("17;42", "b01;b02")
