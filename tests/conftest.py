"""Shared fixtures. `VESTIGE_SHARED` names the folder with the public data sets and the published tables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).resolve().parents[1]


def shared_folder() -> Path:
    """The folder named by VESTIGE_SHARED, default `../shared` beside the repository."""
    return Path(os.environ.get("VESTIGE_SHARED", ROOT.parent / "shared")).resolve()


def _need(path: Path, what: str) -> Path:
    if not path.exists():
        pytest.skip(f"{what} not found at {path}: set VESTIGE_SHARED to the folder that holds it")
    return path


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data, or a skip with its reason."""
    return _need(shared_folder(), "shared data")


@pytest.fixture(scope="session")
def paper(shared: Path) -> Path:
    """The folder of the papers' tables, or a skip."""
    return _need(shared / "paper", "the published tables")


@pytest.fixture(scope="session")
def shared_data(shared: Path) -> Path:
    """The folder of the real data sets, or a skip."""
    return _need(shared / "data", "the real data sets")
