"""Recovery in a study: known answers, shared draws, what is refused, and interrupted runs."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bag_of_words import SPEC, BagOfWords

from vestige.attacks.records import SEEN, SWAP, UNSEEN, RecoveryRecord
from vestige.cli.app import run
from vestige.contracts import Interval, Undefined
from vestige.errors import InputError
from vestige.metrics.recovery import horizon_weights, recovery_contrasts
from vestige.study.attack import attack_folder, folders_with
from vestige.study.plan import Plan
from vestige.study.pool import Silent
from vestige.study.recovery import recovery_name, stored_plan, targets
from vestige.study.recovery_measure import CHECKPOINTS, Curves, curves_of, measured, reading_of
from vestige.study.recovery_plan import RecoveryPlan
from vestige.study.recovery_work import RecoverWork, read_parquet
from vestige.study.runner import Execution, run_study
from vestige.study.store import Store

T = (0, 1, 5, 10, 25)
PAIRS = ((1, 0), (1, 1), (5, 0), (5, 1))
NAME = "recovery/01-s17-simnpo"


@pytest.fixture(scope="module")
def recovered_once(
    tmp_path_factory: pytest.TempPathFactory, make_plan: Callable[..., Plan], execution: Execution
) -> Path:
    """A study of two methods with recovery, its name in its plan. Copy it before a change."""
    root = tmp_path_factory.mktemp("studies") / "recovered"
    run_study(recovery_plan(make_plan), root, execution=execution)
    return root


def recovery_plan(make_plan: Callable[..., Plan], **changes: Any) -> Plan:
    return make_plan(
        noise_seeds=[],
        oracle_seeds=[],
        draws=100,
        methods=[{"method": "simnpo", "settings": {"epochs": 4, "learning_rate": 2e-4}}],
        recovery={"budgets": [1, 5], "learning_rate": 2e-4, "fresh_heads": 2, **changes},
    )


@pytest.fixture
def recovered(recovered_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recovered_once, tmp_path / "recovered"))


def read(root: Path, name: str = NAME) -> RecoveryRecord:
    return RecoveryRecord.model_validate_json((root / f"{name}.json").read_bytes())


def made_up(
    seed: int, rows: int = 24, units: int = 4, *, spread: float = 0.3
) -> tuple[Curves, dict[Any, np.ndarray]]:
    """Rising curves of full, unlearned and oracle for every setting."""
    rng = np.random.default_rng(seed)
    p = {
        (pair, name): np.sort(rng.random((rows, len(T))) * spread + 0.1, axis=1)
        for pair in PAIRS
        for name in CHECKPOINTS
    }
    index = tuple(f"{i % units:03d}" for i in range(rows))
    ids = tuple(f"r{i:03d}" for i in range(rows))
    correct = {key: (value > 0.3).astype(float) for key, value in p.items()}
    return Curves(ids, index, p, correct, dict.fromkeys(PAIRS, np.ones(rows, dtype=bool))), p


def measure(curves: dict[Any, Curves], **changes: Any) -> Any:
    exposed = {name: dict.fromkeys(PAIRS, 4) for name in (UNSEEN, SEEN, SWAP)}
    given: dict[str, Any] = {"draws": 200, "condition": "training seed 17", "missing": {}}
    return measured(curves, T, PAIRS, exposed, **(given | changes))


def test_the_oracle_as_the_unlearned_model_gains_nothing_anywhere() -> None:
    populations = {}
    for seed, name in enumerate((UNSEEN, SEEN, SWAP)):
        item, _ = made_up(seed)
        for pair in PAIRS:
            item.p[pair, "unlearned"] = item.p[pair, "oracle"]
        populations[name] = item
    found = measure(populations)
    assert len(found.settings) == 12
    assert len(found.pooled) == 3
    own = ("rise", "start_level")  # the model's own way, not a contrast of the two
    estimates = [
        value
        for item in (*found.settings, *found.pooled)
        for name, value in item.contrasts.items()
        if name not in own
    ]
    estimates += [item.difference for item in found.controls]
    assert len(estimates) == 15 * 5 + 2 * 7  # four settings, two budgets, pooled
    assert reading_of(found.pooled) == "learned anew"  # the oracle's own weights, whatever they are called
    for item in estimates:
        assert item.value == 0
        assert (item.row.low, item.row.high, item.unit.low, item.unit.high) == (0, 0, 0, 0)
    assert all(item.identity_residual == 0 for item in found.settings)


def world(seed: int, unlearned: tuple[float, float], swap: tuple[float, float] = (0.02, 0.8)) -> Any:
    """Rows with their own difficulty; the retrained model rises from .29 to .60, to .8 on swapped labels."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, own, oracle in ((UNSEEN, unlearned, (0.29, 0.60)), (SWAP, swap, (0.02, 0.8))):
        rows = 60
        hard = 0.6 * rng.normal(size=rows)
        p = {}
        for pair in PAIRS:
            for checkpoint, (start, end) in (("full", own), ("unlearned", own), ("oracle", oracle)):
                levels = np.interp(T, (0, T[-1]), (start, end))
                logits = np.log(levels / (1 - levels)) + hard[:, None] + 0.3 * rng.normal(size=(rows, len(T)))
                p[pair, checkpoint] = 1 / (1 + np.exp(-logits))
        ids = tuple(f"r{i:03d}" for i in range(rows))
        index = tuple(f"{i % 4:03d}" for i in range(rows))
        correct = {key: (value > 0.5).astype(float) for key, value in p.items()}
        made[name] = Curves(ids, index, p, correct, dict.fromkeys(PAIRS, np.ones(len(ids), dtype=bool)))
    return measure(made)


@pytest.mark.parametrize(
    ("unlearned", "swap", "reading"),
    [
        ((0.25, 0.85), (0.02, 0.8), "return"),
        ((0.64, 0.92), (0.02, 0.8), "still there"),
        ((0.85, 0.85), (0.02, 0.8), "still there"),
        ((0.29, 0.60), (0.02, 0.8), "learned anew"),
        ((0.29, 0.68), (0.02, 0.95), "learned anew"),
        ((0.28, 0.635), (0.02, 0.8), "learned anew"),
        ((0.45, 0.635), (0.02, 0.8), "return"),
        ((0.10, 0.10), (0.02, 0.8), "no return"),
    ],
    ids=[
        "suppressed",
        "half unlearned",
        "never unlearned",
        "retrained",
        "learns all faster",
        "another seed",
        "some left",
        "gone",
    ],
)
def test_recovery_is_read_by_levels_beside_the_retrained_model(
    unlearned: tuple[float, float], swap: tuple[float, float], reading: str
) -> None:
    found = [reading_of(world(seed, unlearned, swap).pooled) for seed in range(5)]
    assert found.count(reading) >= 4, found


def test_another_retraining_hardly_ever_returns() -> None:
    found = [reading_of(world(50 + seed, (0.29, 0.60)).pooled) for seed in range(40)]
    assert found.count("return") <= 2


def test_few_or_no_unseen_rows_have_no_reading() -> None:
    item, _ = made_up(0, rows=8)
    assert "8 unseen rows, needed 10" in str(reading_of(measure({UNSEEN: item}).pooled))
    assert "no unseen rows" in str(reading_of(measure({SEEN: item}).pooled))


def test_draws_are_shared_by_settings_and_by_checkpoints() -> None:
    item, p = made_up(0)
    for pair in PAIRS:
        for name in CHECKPOINTS:
            item.p[pair, name] = p[PAIRS[0], name]
    found = measure({UNSEEN: item})
    intervals = {
        (value.contrasts["g_adj"].row.low, value.contrasts["g_adj"].unit.high)
        for value in (*found.settings, *found.pooled)
    }
    assert len(intervals) == 1


def test_unit_draws_are_shared_by_populations_and_row_draws_are_not() -> None:
    """Where unit i has the same advantage in both populations, no draw of units tells them apart."""
    first, _ = made_up(0, rows=8)
    advantage = np.array([0.1, 0.3, 0.2, 0.4])
    for pair in PAIRS:
        base = np.full((8, len(T)), 0.1)
        first.p[pair, "oracle"] = base
        first.p[pair, "unlearned"] = base.copy()
        first.p[pair, "unlearned"][:, 1:] += np.tile(advantage, 2)[:, None]
    names = [f"{unit}-{k}" for unit in "abcd" for k in range(3)]
    second = Curves(
        tuple(names),
        tuple(f"{'abcd'.index(name[0]):03d}" for name in names),
        {key: np.repeat(value[:4], 3, axis=0) for key, value in first.p.items()},
        {key: np.repeat(value[:4], 3, axis=0) for key, value in first.correct.items()},
        dict.fromkeys(PAIRS, np.ones(12, dtype=bool)),
    )
    found = measure({UNSEEN: first, SWAP: second})
    for item in found.controls:
        if item.name == "specificity":
            assert item.difference.value == pytest.approx(0, abs=1e-15)
            assert item.difference.unit.high - item.difference.unit.low == pytest.approx(0, abs=1e-14)
            assert item.difference.row.high - item.difference.row.low > 0.05


def test_a_population_that_is_not_there_leaves_its_contrast_undefined() -> None:
    item, _ = made_up(0)
    found = measure({UNSEEN: item}, missing={SEEN: "no row is left"})
    told = {item.name: str(item.difference) for item in found.controls}
    assert told["exposure"] == "undefined: no population 'seen': no row is left"
    assert told["specificity"].startswith("undefined: no population 'label swap'")


def test_a_setting_uses_its_own_rows_of_one_draw() -> None:
    """Contrasts and draws are those of the scored rows alone, whatever stands at the others."""
    item, _ = made_up(0)
    on = np.arange(24) % 3 > 0
    item.scored[1, 0] = on
    for name in CHECKPOINTS:
        item.p[(1, 0), name][~on] = 0.0
    whole, _ = made_up(1)
    found = measure({SEEN: item, UNSEEN: whole})
    first = next(one for one in found.settings if (one.population, one.k, one.adapt_seed) == (SEEN, 1, 0))
    assert first.rows == on.sum()
    u, o = (item.p[(1, 0), name][on] for name in ("unlearned", "oracle"))
    known = recovery_contrasts(T, u, o)
    assert first.contrasts["g_abs"].value == pytest.approx(known.g_abs, abs=1e-12)
    assert first.contrasts["g_headroom"].value == pytest.approx(known.g_headroom, abs=1e-12)
    counts = np.random.default_rng(1).integers(0, 24, (200, 24))
    area = (item.p[(1, 0), "unlearned"] - item.p[(1, 0), "oracle"]) @ horizon_weights(T)
    drawn = [area[rows[on[rows]]].mean() for rows in counts]
    bounds = np.quantile(drawn, [0.025, 0.975])
    row = first.contrasts["g_abs"].row
    assert (row.low, row.high) == pytest.approx(tuple(bounds), abs=1e-12)
    exposure = {(one.k, one.adapt_seed): one.difference for one in found.controls if one.name == "exposure"}
    each = [exposure[pair].value for pair in PAIRS]
    assert exposure[1, None].value == pytest.approx(np.mean(each[:2]))
    assert exposure[None, None].value == pytest.approx(np.mean(each))


def test_curves_need_the_same_rows_of_every_checkpoint(recovered_once: Path) -> None:
    record = read(recovered_once)
    table = read_parquet(recovered_once / record.curves)
    units = {UNSEEN: record.exposure.units, SEEN: record.exposure.units}
    units[SWAP] = tuple(pair.unit for pair in record.exposure.pairs)
    drawn_from = {
        name: dict(zip(part["row_id"], part["unit"], strict=True))
        for name, part in table.groupby("population")
    }
    whole = curves_of(table, units, drawn_from)
    assert len(whole[UNSEEN].rows) == record.exposure.unseen
    assert {pair: int(on.sum()) for pair, on in whole[SEEN].scored.items()} == {
        (k, seed): 40 - 2 * k for k, seed in PAIRS
    }
    lost = (table["checkpoint"] == "full") & (table["k"] == 5) & (table["row_id"] == whole[UNSEEN].rows[0])
    with pytest.raises(ValueError, match="other rows"):
        curves_of(table[~lost], units, drawn_from)


def test_a_study_leaves_curves_controls_and_heads(recovered_once: Path) -> None:
    record = read(recovered_once)
    counts = record.exposure
    assert (counts.exposed_in_unseen, counts.exposed_in_seen, counts.swap_exposed_in_evaluated) == (0, 0, 0)
    assert counts.nested
    assert counts.deleted == 40
    scored = read_parquet(recovered_once / record.curves)
    assert counts.seen == scored.loc[scored["population"] == SEEN, "row_id"].nunique()
    assert counts.deleted - counts.exposed < counts.seen  # what one setting exposes, another scores
    assert {(item.k, item.rows) for item in record.settings if item.population == SEEN} == {(1, 38), (5, 30)}
    assert counts.unseen == 18
    assert [item.population for item in record.pooled] == [UNSEEN, SEEN, SWAP]
    assert len(record.settings) == 3 * 4
    table = read_parquet(recovered_once / record.curves)
    assert list(table.columns) == [
        "population", "k", "adapt_seed", "checkpoint", "t", "row_id", "unit", "p_gold", "correct",
    ]  # fmt: skip
    assert hashlib.sha256((recovered_once / record.curves).read_bytes()).hexdigest() == record.curves_sha256
    for item in record.settings:
        assert item.units == 2
        assert item.exposed == item.k * 2
        for name in CHECKPOINTS:
            part = table[
                (table["population"] == item.population)
                & (table["k"] == item.k)
                & (table["adapt_seed"] == item.adapt_seed)
                & (table["checkpoint"] == name)
            ]
            means = part.groupby("t")["p_gold"].mean()
            np.testing.assert_allclose(means, item.curves[name].gold_probability, atol=1e-12)
        assert item.contrasts["g_adj"].row.condition.endswith(f"adaptation seed {item.adapt_seed}")
    # A toy's oracle has no idea of the classes, and more rows teach it more.
    first, more = (record.setting(UNSEEN, k, 0).curves["oracle"] for k in (1, 5))
    assert first.start < 0.1 < more.gold_probability[-1]
    assert more.area > first.area
    # The label swap starts near zero.
    assert record.setting(SWAP, 5, 0).curves["full"].start < 0.1
    starts = {(item.initialisation, item.initial_sha256) for item in record.fresh_heads}
    assert len(record.fresh_heads) == 6
    assert len(starts) == 2
    assert {item.trained_rows for item in record.fresh_heads} == {160}
    assert any("not replications" in text for text in record.caveats)
    texts = (recovered_once / f"{NAME}.json").read_text()
    assert "topic" not in texts  # no row's text, and no row's id
    assert not any(row in texts for row in set(table["row_id"]))


def test_full_and_oracle_are_adapted_once_for_all_methods(
    make_plan: Callable[..., Plan], recovered: Path, execution: Execution
) -> None:
    before = {path.name for path in (recovered / "nodes").glob("recovery-*")}
    assert len(before) == 3 * 2 * 4
    methods = [
        {"method": "simnpo", "settings": {"epochs": 4, "learning_rate": 2e-4}},
        {"method": "grad_ascent", "settings": {"epochs": 4}},
    ]
    plan = make_plan(
        noise_seeds=[],
        oracle_seeds=[],
        draws=100,
        methods=methods,
        recovery={"budgets": [1, 5], "learning_rate": 2e-4, "fresh_heads": 2},
    )
    first = (recovered / f"{NAME}.json").read_bytes()
    result = run_study(plan, recovered, execution=execution)
    after = {path.name for path in (recovered / "nodes").glob("recovery-*")}
    assert before < after
    assert len(after) == 4 * 2 * 4
    assert set(result.recoveries) == {NAME, "recovery/01-s17-gradascent"}
    assert (recovered / f"{NAME}.json").read_bytes() == first


class Stopped(RuntimeError):
    pass


class Stopping(BagOfWords):
    """Breaks off at the seventh adaptation, as a kill would between two evaluations."""

    calls = 0

    def adapt(self, **kwargs: Any) -> dict[str, Any]:
        Stopping.calls += 1
        if Stopping.calls == 7:
            kwargs["on_update"](0, lambda texts: np.full((len(texts), 10), 0.1))
            raise Stopped
        return super().adapt(**kwargs)


def test_an_interrupted_recovery_resumes_and_ends_in_the_same_bytes(
    make_plan: Callable[..., Plan], recovered_once: Path, tmp_path: Path, execution: Execution
) -> None:
    plan, root = recovery_plan(make_plan), tmp_path / "run"
    Stopping.calls = 0
    with pytest.raises(Stopped):
        run_study(plan, root, execution=Execution(backend=f"{__name__}:Stopping"))
    kept = {path: path.stat().st_mtime_ns for path in (root / "nodes").glob("recovery-*/record.json")}
    assert len(kept) == 6
    assert not list(root.glob("recovery/*"))
    progress = Silent()
    run_study(plan, root, execution=execution, report=progress)
    assert progress.done == pytest.approx(progress.total)
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
    for name in (f"{NAME}.json", f"{NAME}.parquet"):
        assert (root / name).read_bytes() == (recovered_once / name).read_bytes()


def test_nothing_is_done_twice(recovered: Path, execution: Execution) -> None:
    before = {path: path.stat().st_mtime_ns for path in recovered.rglob("*") if path.is_file()}
    records, failures = attack_folder(recovered, "recover", {}, execution=execution)
    assert list(records) == [NAME]
    assert not failures
    changed = {path.name for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert changed <= {"history.json", "manifest.json", ".lock"}


def test_attack_verbs_on_a_finished_folder(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vestige.study.runner.DEFAULT_BACKEND", SPEC)
    monkeypatch.setattr(Execution, "__init__", _with_backend(Execution.__init__))
    options = ["--budgets", "1,2", "--learning-rate", "2e-4", "--method", "SimNPO", "--no-controls"]
    assert run(["attack", "recover", str(small), *options, "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["plan"]["budgets"] == [1, 2]
    assert record["fresh_heads"] == []
    assert {item["population"] for item in record["settings"]} == {UNSEEN}
    assert run(["attack", "fresh-head", str(small), "--initialisations", "1"]) == 0
    said = capsys.readouterr().out
    assert "do not show extraction of records" in said
    merged = read(small)
    assert merged.settings
    assert [item.initialisation for item in merged.fresh_heads] == [0, 0, 0]
    other = read(small, "recovery/01-s17-gradascent")
    assert not other.settings
    assert len(other.fresh_heads) == 3
    store = Store.reading(small)
    assert stored_plan(store, NAME) == RecoveryPlan(
        budgets=(1, 2), learning_rate=2e-4, controls=False, fresh_heads=1
    )
    assert {item.label for item in targets(store)} == {"SimNPO", "GradAscent", "Uniformization"}


def _with_backend(original: Callable[..., None]) -> Callable[..., None]:
    def init(self: Execution, **kwargs: Any) -> None:
        original(self, **({"backend": SPEC} | kwargs))

    return init


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"budgets": (1, 21)}, {}, "found 20 rows to expose; needed 21, the budget per class"),
        ({"budgets": (5, 1)}, {}, "rising numbers of rows"),
        ({"budgets": (0,)}, {}, "rising numbers of rows"),
        ({"evaluations": (1, 5)}, {}, "two or more updates that rise from 0"),
        ({"adapt_seeds": (1, 1)}, {}, "'1' twice"),
        ({"learning_rate": 0.0}, {}, "needed a number above 0"),
        ({}, {"methods": ["SimNP"]}, "did you mean 'SimNPO'"),
        ({}, {"bundles": ["02"]}, "needed bundles of the study"),
        ({}, {"seeds": [5]}, r"needed seeds of the study \(17\)"),
    ],
)
def test_what_cannot_be_recovered_is_one_line(
    recovered_once: Path, execution: Execution, changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    before = set((recovered_once / "nodes").iterdir())
    with pytest.raises(InputError, match=message) as caught:
        attack_folder(recovered_once, "recover", changes, execution=execution, **options)
    assert "\n" not in str(caught.value)
    assert set((recovered_once / "nodes").iterdir()) == before


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_adaptation_that_diverges_is_named_and_not_kept(recovered: Path, execution: Execution) -> None:
    before = (recovered / f"{NAME}.json").read_bytes()
    records, failures = attack_folder(recovered, "recover", {"learning_rate": 1e308}, execution=execution)
    assert not records
    assert failures
    assert all("a probability at step 1" in item.reason for item in failures)
    assert (recovered / f"{NAME}.json").read_bytes() == before


def test_a_record_with_another_plan_is_one_line(recovered: Path, execution: Execution) -> None:
    path = recovered / f"{NAME}.json"
    path.write_bytes(path.read_bytes().replace(b'"budgets"', b'"budgts"'))
    with pytest.raises(InputError, match="unknown key 'budgts'"):
        attack_folder(recovered, "recover", {}, execution=execution)


def test_too_few_retained_classes_are_refused_before_any_oracle_is_trained(
    make_plan: Callable[..., Plan], tmp_path: Path, execution: Execution
) -> None:
    plan = make_plan(
        deletion={"units_per_bundle": 4, "bundles": ["01"]}, noise_seeds=[], recovery={"budgets": [1]}
    )
    with pytest.raises(InputError, match="label-swap control: found 6 retained classes"):
        run_study(plan, tmp_path / "run", execution=execution)
    assert not list((tmp_path / "run/nodes").glob("oracle-*"))


def test_recovery_of_another_than_a_class_deletion_is_refused(
    make_plan: Callable[..., Plan], tmp_path: Path, execution: Execution
) -> None:
    custom = {"granularity": "custom", "where": "customer_id=3"}
    with pytest.raises(InputError, match="needed a class deletion: recovery trains rows of whole"):
        make_plan(deletion=custom, recovery={})
    run_study(make_plan(deletion=custom, noise_seeds=[], oracle_seeds=[]), tmp_path, execution=execution)
    with pytest.raises(InputError, match="found a deletion of granularity 'custom'"):
        attack_folder(tmp_path, "recover", {}, execution=execution)


def test_a_study_without_methods_has_nothing_to_recover(
    make_plan: Callable[..., Plan], tmp_path: Path, execution: Execution
) -> None:
    run_study(make_plan(methods=[], noise_seeds=[], oracle_seeds=[]), tmp_path, execution=execution)
    with pytest.raises(InputError, match="no evaluated unlearned model"):
        attack_folder(tmp_path, "recover", {}, execution=execution)
    with pytest.raises(InputError, match=r"no plan\.json"):
        attack_folder(tmp_path / "nodes", "recover", {}, execution=execution)


def test_work_refuses_rows_that_are_exposed_and_scored(recovered: Path) -> None:
    from vestige.study.recovery_rows import Evaluated

    row = Evaluated(UNSEEN, "a", "refund", "refund")
    work = RecoverWork(("full", "0" * 64), 0, (("a", "refund"),), (row,), {})

    class Given:
        setting = None

    with pytest.raises(InputError, match="found 1 that the adaptation sees, 'a' first"):
        work.do(Given())  # type: ignore[arg-type]


def test_no_seen_row_is_left_when_all_are_exposed(
    make_plan: Callable[..., Plan], recovered: Path, execution: Execution
) -> None:
    changes = {"budgets": (20,), "adapt_seeds": (0,)}
    records, _ = attack_folder(recovered, "recover", changes, execution=execution)
    record = records[NAME]
    assert record.exposure.seen is None
    assert {item.population for item in record.settings} == {UNSEEN, SWAP}
    (missing,) = [item.difference for item in record.controls if item.name == "exposure"]
    assert isinstance(missing, Undefined)
    assert "no deleted row beside the exposed ones" in str(missing)
    assert isinstance(record.pooled[0].contrasts["g_abs"].row, Interval)


def test_names_of_records_stay_apart() -> None:
    from vestige.study.recovery import Target

    one, other = (
        Target("01", 17, label, "grad_diff_kl", False, {}) for label in ("GradDiff-KL", "graddiff kl")
    )
    assert recovery_name(one) == "recovery/01-s17-graddiff-kl"
    assert recovery_name(one, [one, other]) != recovery_name(other, [one, other])
    assert recovery_name(Target("01", 17, "../x y", "m", False, {})) == "recovery/01-s17-x-y"


def test_the_plan_section_reads_bundles_as_numbers(make_plan: Callable[..., Plan]) -> None:
    assert make_plan(recovery={"bundles": [1]}).recovery == RecoveryPlan(bundles=("01",))
    with pytest.raises(InputError, match="did you mean 'budgets'"):
        make_plan(recovery={"budget": [1]})
    assert make_plan(recovery=None).recovery is None


def test_arms_are_attacked_where_they_have_the_method(recovered_once: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        shutil.copytree(recovered_once, tmp_path / "arms" / name)
    entries = tmp_path / "arms/other/evaluations.json"
    entries.write_text(entries.read_text().replace('"SimNPO"', '"GradDiff"'))
    (tmp_path / "sweep.json").write_text(json.dumps({"arms": ["one", "other"]}))
    assert folders_with(tmp_path, ["SimNPO"]) == {"one": (tmp_path / "arms/one", ("SimNPO",))}
    assert set(folders_with(tmp_path, None)) == {"one", "other"}
    assert folders_with(tmp_path, ["SimNPO", "GradDiff"])["other"][1] == ("GradDiff",)
    with pytest.raises(InputError, match="did you mean 'SimNPO'"):
        folders_with(tmp_path, ["SimNP"])


def test_a_reserved_bundle_leaves_no_recovery(recovered: Path) -> None:
    from test_study_audit import fails, reseal

    shutil.copy(recovered / f"{NAME}.json", recovered / "recovery/03-s17-simnpo.json")
    reseal(recovered)
    assert fails(recovered, "reserved")
