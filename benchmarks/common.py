"""What the benchmarks share: real rows where they are found, the machine's description, a JSON line."""

from __future__ import annotations

import json
import os
import platform
import statistics
from pathlib import Path
from typing import Any

from vestige.data.intents import DatasetSpec, IntentData, load_intents

__all__ = ["intent_data", "machine", "median", "report", "shared_folder"]


def shared_folder() -> Path:
    """The folder named by VESTIGE_SHARED, default `../shared` beside the repository."""
    return Path(os.environ.get("VESTIGE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def intent_data() -> IntentData:
    """BANKING77 where it is found, else the embedded helpdesk data."""
    folder = shared_folder() / "data" / "banking77"
    if folder.is_dir():
        return load_intents(DatasetSpec(name="banking77", path=str(folder)))
    return load_intents(DatasetSpec(name="helpdesk"))


def machine() -> dict[str, Any]:
    """Cores, load before the run, Python."""
    return {
        "cores": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def median(values: list[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def report(name: str, result: dict[str, Any]) -> None:
    """Print one JSON line."""
    print(json.dumps({"benchmark": name, **result, **machine()}))
