"""Metrics of an unlearned model. Importing this package imports neither torch nor any single metric.

`METRICS` holds every registered metric by name; `vestige.metrics.oracle_distance` and the other functions
named in `__all__` load their module at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vestige.contracts import Metric
from vestige.registry import Registry

METRICS: Registry[Metric] = Registry("metric", "vestige.metrics")

_WHERE = {
    "js2": "oracle",
    "oracle_distance": "oracle",
    "renormalise": "oracle",
}

if TYPE_CHECKING:
    from vestige.metrics.oracle import js2, oracle_distance, renormalise

__all__ = [
    "METRICS",
    "js2",
    "oracle_distance",
    "renormalise",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'vestige.metrics' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"vestige.metrics.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
