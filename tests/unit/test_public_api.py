"""The public surface is what `__all__` names, and loads lazily."""

from __future__ import annotations

import subprocess
import sys

import pytest

import vestige

EXPORTED = {
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
}


def test_the_package_exports_exactly_this() -> None:
    assert set(vestige.__all__) == EXPORTED
    assert set(dir(vestige)) == EXPORTED
    for name in EXPORTED:
        assert getattr(vestige, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = vestige.nonsense


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ("numpy", "pandas", "torch", "pydantic")
    code = f"import sys, vestige; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
