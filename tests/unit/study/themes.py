"""Intents of three themes each, and what studies of their parts are asked, for tests of granularities."""

from __future__ import annotations

import csv
from pathlib import Path

from vestige.deletion.requests import DeletionRequest
from vestige.seeds import generator
from vestige.study.audit import audit_study

PARENTS = ("refund", "card", "login", "invoice", "delivery", "limit")
COUNTS = {"train": 20, "development": 10, "evaluation": 6}


def write_themes(folder: Path, parents: tuple[str, ...] = PARENTS) -> Path:
    """Intents of three themes that share no word but fillers: a cluster that goes is a theme forgotten."""
    folder.mkdir(parents=True)
    random = generator("tests", "themes")
    for split, count in COUNTS.items():
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(["text", "label"])
            for parent in parents:
                for theme in range(3):
                    for number in range(count):
                        own = f"{parent}{theme}a {parent}{theme}b {parent}{theme}c"
                        filler = " ".join(random.choice(("please", "my", "the", "help"), 2, replace=False))
                        out.writerow([f"{filler} {own} {split[0]}{parent}{theme}x{number}", parent])
    return folder


def request_of(root: Path, label: str) -> DeletionRequest:
    return DeletionRequest.model_validate_json((root / f"requests/{label}.json").read_text())


def view_rows(root: Path, name: str) -> list[tuple[str, str, str]]:
    with (root / f"views/{name}.csv").open(newline="", encoding="utf-8") as file:
        return [(row[0], row[1], row[2]) for row in csv.reader(file)][1:]


def failed(root: Path) -> dict[str, tuple[str, ...]]:
    return {check.name: check.findings for check in audit_study(root).checks if check.status == "failed"}
