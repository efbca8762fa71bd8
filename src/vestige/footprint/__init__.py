"""The internal footprint of unlearning in causal language models on forget, adjacent and generic text.

Records are torch-free; everything that loads a model is imported where it is used.
"""

from __future__ import annotations

from vestige.footprint.records import FootprintRecord, FootprintSettings

__all__ = ["FootprintRecord", "FootprintSettings"]
