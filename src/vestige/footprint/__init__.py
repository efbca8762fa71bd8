"""The internal footprint of unlearning in causal language models on forget, adjacent and generic text.

Records are torch-free; everything that loads a model is imported where it is used. The package itself can be
called, as `vestige.footprint(...)`: that is `vestige.footprint.run.footprint`.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from vestige.footprint.records import FootprintRecord, FootprintSettings

__all__ = ["FootprintRecord", "FootprintSettings"]


class _Package(types.ModuleType):
    """A package with the name of the verb it holds."""

    def __call__(self, **arguments: Any) -> FootprintRecord:
        """`vestige.footprint.run.footprint` with these arguments."""
        from vestige.footprint.run import footprint

        return footprint(**arguments)


sys.modules[__name__].__class__ = _Package
