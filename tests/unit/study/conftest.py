"""A small data set and plans on it, for whole studies in a second."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from bag_of_words import SPEC
from themes import write_themes

from vestige.seeds import generator
from vestige.study.freeze import freeze_study
from vestige.study.plan import Plan, parse_plan
from vestige.study.runner import Execution, StudyResult, run_study
from vestige.study.tune import tune_study

INTENTS = (
    "refund",
    "card",
    "login",
    "invoice",
    "delivery",
    "limit",
    "address",
    "cancel",
    "transfer",
    "voucher",
)
COMMON = ("please", "my", "the", "about", "help", "with", "can", "you", "question", "today")


def write_intents(folder: Path) -> Path:
    """Three CSV files: 10 intents, 20 / 9 / 9 rows each, two neighbours share a word, one customer a row."""
    folder.mkdir(parents=True, exist_ok=True)
    random = generator("tests", "intents")
    for split, count in (("train", 20), ("development", 9), ("evaluation", 9)):
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(["text", "label", "customer_id"])
            for place, intent in enumerate(INTENTS):
                for number in range(count):
                    own = [f"{intent}{k}" for k in random.choice(6, 2, replace=False)]
                    shared = f"topic{place // 2}"
                    filler = list(random.choice(COMMON, 3, replace=False))
                    text = " ".join([*filler, *own, shared, f"{split[0]}{place}x{number}"])
                    out.writerow([text, intent, str(random.integers(0, 15))])
    return folder


@pytest.fixture(scope="session")
def intents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_intents(tmp_path_factory.mktemp("data") / "intents")


@pytest.fixture(scope="session")
def make_plan(intents: Path) -> Callable[..., Plan]:
    """A plan on the small data set; keyword arguments replace top-level keys."""

    def make(**changes: Any) -> Plan:
        raw: dict[str, Any] = {
            "name": "small",
            "dataset": {"name": "files", "path": str(intents)},
            "deletion": {"units_per_bundle": 2, "bundles": ["01"], "reserved": ["03"]},
            "seeds": [17],
            "noise_seeds": [42],
            "oracle_seeds": [42],
            "methods": [
                {"method": "simnpo", "settings": {"epochs": 4, "learning_rate": 2e-4}},
                {"method": "grad_ascent", "settings": {"epochs": 4}},
                "uniformization",
            ],
            "tuning": {"epochs": 4, "grid": {"simnpo": {"beta": [2.5], "retain_weight": [1.0]}}},
            "draws": 200,
        }
        raw.update(changes)
        return parse_plan(yaml.safe_dump(raw), "small.yaml")

    return make


@pytest.fixture(scope="session")
def execution() -> Execution:
    """One job on the small backend."""
    return Execution(backend=SPEC)


@pytest.fixture(scope="session")
def confirmed_once(
    tmp_path_factory: pytest.TempPathFactory, make_plan: Callable[..., Plan], execution: Execution
) -> Path:
    """A study tuned, frozen and run: two bundles, two seeds, three oracles. Copy it with `confirmed`."""
    root = tmp_path_factory.mktemp("studies") / "confirmed"
    plan = make_plan(
        stage="confirmation",
        deletion={"units_per_bundle": 2, "bundles": ["01", "02"], "reserved": ["03"]},
        seeds=[17, 42],
        noise_seeds=[],
        oracle_seeds=[7],
        draws=100,
        methods=[{"method": name, "frozen": True} for name in ("simnpo", "grad_ascent", "uniformization")],
    )
    tune_study(plan, root, text="name: small\n", execution=execution)
    freeze_study(root)
    run_study(plan, root, text="name: small\n", execution=execution)
    return root


@pytest.fixture
def confirmed(confirmed_once: Path, tmp_path: Path) -> Path:
    """A copy of the confirmed study to damage."""
    return Path(shutil.copytree(confirmed_once, tmp_path / "confirmed"))


@pytest.fixture(scope="session")
def small_once(
    tmp_path_factory: pytest.TempPathFactory, make_plan: Callable[..., Plan], execution: Execution
) -> StudyResult:
    """The default plan, run. Not to be changed: copy it with `small`."""
    return run_study(make_plan(), tmp_path_factory.mktemp("studies") / "small", execution=execution)


@pytest.fixture
def small(small_once: StudyResult, tmp_path: Path) -> Path:
    """A copy of the finished default study."""
    return Path(shutil.copytree(small_once.root, tmp_path / "run"))


@pytest.fixture(scope="session")
def themes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_themes(tmp_path_factory.mktemp("themes") / "data")


@pytest.fixture(scope="session")
def make_themed(themes: Path) -> Callable[..., Plan]:
    def made(**changes: Any) -> Plan:
        raw: dict[str, Any] = {
            "name": "themes",
            "dataset": {"name": "files", "path": str(themes)},
            "deletion": {"granularity": "association", "units_per_bundle": 2, "reserved": ["02"]},
            "seeds": [17],
            "noise_seeds": [42],
            "methods": [{"method": "grad_ascent", "settings": {"epochs": 2}}],
            "tuning": {"epochs": 2, "grid": {"grad_ascent": {"learning_rate": [1e-4]}}},
            "draws": 100,
        }
        raw.update(changes)
        return parse_plan(yaml.safe_dump(raw), "themes.yaml")

    return made


@pytest.fixture(scope="session")
def association_once(
    tmp_path_factory: pytest.TempPathFactory, make_themed: Callable[..., Plan], execution: Execution
) -> Path:
    """Tuned on bundle 00, frozen, run on bundle 01 at two seeds."""
    root = tmp_path_factory.mktemp("studies") / "association"
    plan = make_themed(seeds=[17, 42], noise_seeds=[], methods=[{"method": "grad_ascent", "frozen": True}])
    tune_study(plan, root, execution=execution)
    freeze_study(root)
    run_study(plan, root, execution=execution)
    return root


@pytest.fixture
def association(association_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(association_once, tmp_path / "association"))


@pytest.fixture(scope="session")
def example_once(
    tmp_path_factory: pytest.TempPathFactory, make_themed: Callable[..., Plan], execution: Execution
) -> Path:
    root = tmp_path_factory.mktemp("studies") / "example"
    run_study(
        make_themed(deletion={"granularity": "example", "share": 0.1, "reserved": ["03"]}),
        root,
        execution=execution,
    )
    return root


@pytest.fixture
def example(example_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(example_once, tmp_path / "example"))
