"""Stable seeds and generators derived from names. Nothing here touches global state."""

from __future__ import annotations

import hashlib

import numpy as np

__all__ = ["digest", "generator", "stable_seed"]


def digest(*parts: object) -> str:
    """sha256 in hexadecimal over the parts, each with its length before it, so that no two lists collide."""
    state = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        state.update(f"{len(data)}:".encode())
        state.update(data)
    return state.hexdigest()


def stable_seed(*parts: object) -> int:
    """An integer in [0, 2**63) that depends on the parts alone, on every machine and Python run."""
    return int(digest(*parts)[:16], 16) >> 1


def generator(*parts: object) -> np.random.Generator:
    """A NumPy generator seeded from names: `generator(17, "bootstrap", "F")`."""
    return np.random.default_rng(stable_seed(*parts))
