"""A small data set and plans on it, for whole studies in a second."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from vestige.seeds import generator
from vestige.study.plan import Plan, parse_plan

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
