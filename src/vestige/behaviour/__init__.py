"""What causal language models still answer, on questions beside the texts of a footprint and on TOFU.

Records are torch-free; everything that loads a model is imported where it is used. The package itself can be
called, as `vestige.behaviour(...)`: that is `vestige.behaviour.run.behaviour`.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from vestige.behaviour.records import BehaviourRecord, BehaviourSettings, TofuSettings

__all__ = ["BehaviourRecord", "BehaviourSettings", "TofuSettings"]


class _Package(types.ModuleType):
    """A package with the name of the verb it holds."""

    def __call__(self, **arguments: Any) -> BehaviourRecord:
        """`vestige.behaviour.run.behaviour` with these arguments."""
        from vestige.behaviour.run import behaviour

        return behaviour(**arguments)


sys.modules[__name__].__class__ = _Package
