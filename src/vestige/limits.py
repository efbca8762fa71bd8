"""Largest numbers that settings and options may have."""

from __future__ import annotations

__all__ = ["LARGEST", "MOST_DRAWS"]

MOST_DRAWS = 1_000_000
"""Of any resampling. More change no bound of an interval and do not fit into memory."""
LARGEST = 2**63
"""Whole numbers stay below it: generators, hashes and array sizes take no larger ones."""
