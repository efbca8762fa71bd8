"""The audit of recovery: a sound folder passes; each check fails when what it checks is damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_study_audit import edit, fails, reseal

from vestige.study import audit_recovery_values
from vestige.study.audit import audit_study
from vestige.study.plan import Plan
from vestige.study.recovery_work import CURVES, HEADS, parquet, read_parquet
from vestige.study.runner import Execution, run_study
from vestige.study.store import file_sha256, pretty

RECORD = "recovery/01-s17-simnpo.json"
TABLE = "recovery/01-s17-simnpo.parquet"
Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def sound(
    tmp_path_factory: pytest.TempPathFactory, make_plan: Callable[..., Plan], execution: Execution
) -> Path:
    root = tmp_path_factory.mktemp("studies") / "sound"
    plan = make_plan(
        noise_seeds=[],
        oracle_seeds=[],
        draws=100,
        methods=[{"method": "simnpo", "settings": {"epochs": 4, "learning_rate": 2e-4}}],
        recovery={"budgets": [1, 5], "learning_rate": 2e-4, "fresh_heads": 2, "adapt_seeds": [0]},
    )
    run_study(plan, root, execution=execution)
    return root


@pytest.fixture
def damaged(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "run"))


def node_of(root: Path, what: str = "forgotten", k: int = 5, kind: str = "recovery") -> Path:
    """The first node of a kind."""
    for path in sorted((root / "nodes").glob(f"{kind}-*/record.json")):
        identity = json.loads(path.read_text())["identity"]
        if kind != "recovery" or (identity["population_set"], identity["k"]) == (what, k):
            return path
    raise AssertionError((what, k, kind))


def identity_of(what: str, k: int, change: Callable[[dict[str, Any]], None]) -> Damage:
    """Change the identity of every node of a population set and budget, so that they still agree."""

    def damage(root: Path) -> None:
        for path in sorted((root / "nodes").glob("recovery-*/record.json")):
            value = json.loads(path.read_text())
            if (value["identity"]["population_set"], value["identity"]["k"]) == (what, k):
                change(value["identity"])
                path.write_text(pretty(value))

    return damage


def record(change: Callable[[dict[str, Any]], None]) -> Damage:
    return lambda root: edit(root, RECORD, change)


def table(name: str, change: Callable[[pd.DataFrame], pd.DataFrame], **which: Any) -> Damage:
    def damage(root: Path) -> None:
        path = node_of(root, **which).parent / name
        path.write_bytes(parquet(change(read_parquet(path))))

    return damage


def combined(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Damage:
    """Change the table of curves and enter its new hash."""

    def damage(root: Path) -> None:
        (root / TABLE).write_bytes(parquet(change(read_parquet(root / TABLE))))
        edit(root, RECORD, lambda value: value.update(curves_sha256=file_sha256(root / TABLE)))

    return damage


def one_row_each(frame: pd.DataFrame, column: str, value: Any) -> pd.DataFrame:
    frame.loc[frame.index[0], column] = value
    return frame


def everywhere(root: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame], what: str) -> None:
    for path in sorted((root / "nodes").glob(f"recovery-*/{name}")):
        identity = json.loads((path.parent / "record.json").read_text())["identity"]
        if identity["population_set"] == what:
            path.write_bytes(parquet(change(read_parquet(path))))


def expose_a_scored_row(root: Path) -> None:
    """A row of G is put among the exposed ones, under its own class, wherever k is 5."""
    g = read_parquet(node_of(root).parent / CURVES)
    row, unit = g.loc[g["population"] == "unseen", ["row_id", "unit"]].iloc[0]

    def change(identity: dict[str, Any]) -> None:
        place = next(i for i, item in enumerate(identity["exposed"]) if item[1] == unit)
        identity["exposed"][place] = [row, unit]

    identity_of("forgotten", 5, change)(root)


def setting(value: dict[str, Any], population: str = "unseen") -> dict[str, Any]:
    return next(item for item in value["settings"] if item["population"] == population)


def swap(value: list[Any], one: int, other: int) -> None:
    value[one], value[other] = value[other], value[one]


ROWS: dict[str, Damage] = {
    "an exposed row is scored": expose_a_scored_row,
    "a budget is not inside the next": identity_of(
        "forgotten", 1, lambda identity: identity["exposed"].__setitem__(0, ["elsewhere", "login"])
    ),
    "a checkpoint saw other rows": lambda root: edit(
        root,
        str(node_of(root).relative_to(root)),
        lambda value: swap(value["identity"]["exposed"], 0, 1),
    ),
    "a deleted row under another label": identity_of(
        "forgotten", 5, lambda identity: identity["exposed"][0].__setitem__(1, identity["exposed"][-1][1])
    ),
    "fewer rows than the budget": identity_of("forgotten", 5, lambda identity: identity["exposed"].pop()),
    "a pair under another label": identity_of(
        "label-swap", 5, lambda identity: identity["exposed"][0].__setitem__(1, identity["exposed"][-1][1])
    ),
    "label-swap rows of another class": identity_of(
        "label-swap", 5, lambda identity: identity["exposed"][0].__setitem__(0, "no such row")
    ),
    "a class in two pairs": record(
        lambda value: value["exposure"]["pairs"][0].update(target=value["exposure"]["pairs"][1]["source"])
    ),
    "pairs out of hash order": record(lambda value: swap(value["exposure"]["pairs"], 0, 1)),
    "a forgotten class in a pair": record(
        lambda value: value["exposure"]["pairs"][0].update(source=value["exposure"]["units"][0])
    ),
    "a pair too few": record(lambda value: value["exposure"]["pairs"].pop()),
    "a seen row of one setting less": table(
        CURVES, lambda frame: frame[frame["row_id"] != _first(frame, "seen")], k=1
    ),
    "units out of order": record(lambda value: value["exposure"]["units"].reverse()),
    "another model than was evaluated": record(
        lambda value: value["nodes"].update(unlearned=value["nodes"]["full"])
    ),
    "a part is missing": lambda root: shutil.rmtree(node_of(root).parent),
    "another request": record(lambda value: value["request"].update(rows_sha256="0" * 64)),
    "a seen row less": lambda root: everywhere(
        root, CURVES, lambda frame: frame[frame["row_id"] != _first(frame, "seen")], "forgotten"
    ),
    "an unseen row less": lambda root: everywhere(
        root, CURVES, lambda frame: frame[frame["row_id"] != _first(frame, "unseen")], "forgotten"
    ),
    "a label-swap row less": lambda root: everywhere(
        root, CURVES, lambda frame: frame[frame["row_id"] != _first(frame, "label swap")], "label-swap"
    ),
    "a planned record is missing": lambda root: [(root / name).unlink() for name in (RECORD, TABLE)],  # type: ignore[return-value]
    "a table of no record": lambda root: (root / RECORD).unlink(),
}


def _first(frame: pd.DataFrame, population: str) -> str:
    return str(frame.loc[frame["population"] == population, "row_id"].min())


VALUES: dict[str, Damage] = {
    "another table of curves": lambda root: (root / TABLE).write_bytes(
        parquet(one_row_each(read_parquet(root / TABLE), "p_gold", 0.5))
    ),
    "curves that no adaptation gave": combined(lambda frame: one_row_each(frame, "p_gold", 0.5)),
    "an adaptation's table": table(CURVES, lambda frame: one_row_each(frame, "p_gold", 0.5)),
    "a curve": record(
        lambda value: setting(value)["curves"]["full"]["gold_probability"].__setitem__(1, 0.123)
    ),
    "an accuracy": record(lambda value: setting(value)["curves"]["oracle"]["accuracy"].__setitem__(4, 0.123)),
    "an area": record(lambda value: setting(value)["curves"]["oracle"].update(area=0.5)),
    "a headroom": record(lambda value: setting(value)["curves"]["oracle"].update(headroom=0.5)),
    "a threshold": record(
        lambda value: setting(value)["curves"]["oracle"]["reached"][1].update(update=5, censored=False)
    ),
    "an identity residual": record(lambda value: setting(value).update(identity_residual=0.1)),
    **{
        f"the value of {name}": record(
            lambda value, name=name: setting(value)["contrasts"][name].update(value=0.123)  # type: ignore[misc]
        )
        for name in ("g_abs", "g_adj", "g_headroom", "g_row_headroom", "level", "start_level", "rise")
    },
    "a row interval": record(lambda value: setting(value)["contrasts"]["g_adj"]["row"].update(low=-0.9)),
    "a unit interval": record(
        lambda value: setting(value, "seen")["contrasts"]["g_abs"]["unit"].update(high=0.9)
    ),
    "unit draws of another seed": record(
        lambda value: setting(value, "seen")["contrasts"]["g_abs"]["unit"].update(seed=101)
    ),
    "a pooled value": record(lambda value: value["pooled"][0]["contrasts"]["g_headroom"].update(value=0.123)),
    "a pooled interval": record(
        lambda value: value["pooled"][2]["contrasts"]["g_adj"]["row"].update(high=0.9)
    ),
    "an interval of levels": record(
        lambda value: value["pooled"][0]["contrasts"]["level"]["row"].update(low=-0.9)
    ),
    "the reading": record(
        lambda value: value.update(reading="return" if value["reading"] != "return" else "no return")
    ),
    "a reading without a reason": record(lambda value: value.update(reading={"undefined": "no reason"})),
    "specificity": record(lambda value: value["controls"][0]["difference"].update(value=0.123)),
    "exposure at a budget": record(lambda value: value["controls"].pop(-2)),
    "the interval of exposure": record(
        lambda value: value["controls"][-1]["difference"]["unit"].update(low=-0.9)
    ),
    "an undefined control": record(
        lambda value: value["controls"][0].update(difference={"undefined": "no reason"})
    ),
    "a setting less": record(lambda value: value["settings"].pop()),
    "a fresh head's value": record(
        lambda value: value["fresh_heads"][0]["metrics"]["accuracy.R"].update(value=0.123)
    ),
    "a fresh head's interval": record(
        lambda value: value["fresh_heads"][0]["metrics"]["accuracy.R"]["row"].update(low=0.123)
    ),
    "a wrong count of seen rows": record(
        lambda value: value["exposure"].update(seen=value["exposure"]["seen"] - 1)
    ),
    "a recorded overlap": record(lambda value: value["exposure"].update(exposed_in_unseen=1)),
    "another learning rate": record(lambda value: value["plan"].update(learning_rate=1.0)),
    "a fresh head's start": record(lambda value: value["fresh_heads"][0].update(initial_sha256="0" * 64)),
    "a fresh head less": record(lambda value: value["fresh_heads"].pop()),
    "a start of its own for one checkpoint": lambda root: edit(
        root,
        str(node_of(root, kind="fresh-head").relative_to(root)),
        lambda value: value["result"]["heads"][0].update(initial_sha256="0" * 64),
    ),
    "heads trained on deleted rows": lambda root: edit(
        root,
        str(node_of(root, kind="fresh-head").relative_to(root)),
        lambda value: value["result"].update(train_rows=200),
    ),
    "a fresh head's row less": table(HEADS, lambda frame: frame.iloc[1:], kind="fresh-head"),
}


def test_a_sound_folder_passes(sound: Path) -> None:
    report = audit_study(sound)
    assert report.passed
    for name in ("recovery-rows", "recovery-values"):
        check = report.check(name)
        assert check.status == "passed"
        assert int(check.detail.rsplit("(", 1)[1].split()[0]) > 50


def test_a_record_of_an_earlier_version_is_not_called_wrong(damaged: Path) -> None:
    def change(value: Any) -> None:
        del value["reading"]
        for item in (*value["settings"], *value["pooled"]):
            for name in ("level", "start_level", "rise"):
                del item["contrasts"][name]

    record(change)(damaged)
    edit(damaged, "history.json", lambda value: [item.pop("records") for item in value])
    check = audit_study(damaged).check("recovery-values")
    assert check.status == "not checked"
    assert any("before levels were read" in line for line in check.findings)


@pytest.mark.parametrize("what", ROWS)
def test_damaged_rows_fail(what: str, damaged: Path) -> None:
    ROWS[what](damaged)
    reseal(damaged)
    assert fails(damaged, "recovery-rows")


@pytest.mark.parametrize("what", VALUES)
def test_damaged_values_fail(what: str, damaged: Path) -> None:
    VALUES[what](damaged)
    reseal(damaged)
    assert fails(damaged, "recovery-values")


def test_the_audit_shares_no_metric_code() -> None:
    source = Path(audit_recovery_values.__file__).read_text(encoding="utf-8")
    for name in ("vestige.metrics", "vestige.statistics", "vestige.attacks", "recovery_measure"):
        assert name not in source
