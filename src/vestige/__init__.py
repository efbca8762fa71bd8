"""vestige measures what machine unlearning leaves behind.

`compare` gives the verdict on models' probabilities, `footprint` what moved inside a language model,
`behaviour` what it still answers, `relearn` what comes back; their records have `.to_frame()`, `.to_json()`
and a notebook display. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.contracts import Assessment, Undefined
    from vestige.decision.predictions import Predictions, predictions_from_arrays, read_predictions
    from vestige.errors import InputError, VestigeError
    from vestige.language_study.relearn import relearn
    from vestige.study.compare import compare
    from vestige.unlearning.run import finetune, unlearn

__version__ = "0.1.0"

_WHERE = {
    "Assessment": "vestige.contracts",
    "InputError": "vestige.errors",
    "Predictions": "vestige.decision.predictions",
    "Undefined": "vestige.contracts",
    "VestigeError": "vestige.errors",
    "behaviour": "vestige",
    "compare": "vestige.study.compare",
    "finetune": "vestige.unlearning.run",
    "footprint": "vestige",
    "predictions_from_arrays": "vestige.decision.predictions",
    "read_predictions": "vestige.decision.predictions",
    "relearn": "vestige.language_study.relearn",
    "unlearn": "vestige.unlearning.run",
}

__all__ = [
    "Assessment",
    "InputError",
    "Predictions",
    "Undefined",
    "VestigeError",
    "__version__",
    "behaviour",
    "compare",
    "finetune",
    "footprint",
    "predictions_from_arrays",
    "read_predictions",
    "relearn",
    "unlearn",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'vestige' has no attribute '{name}'")
    import importlib

    if name in ("behaviour", "footprint"):  # packages that can be called
        return importlib.import_module(f"vestige.{name}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
