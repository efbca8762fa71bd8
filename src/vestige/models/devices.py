"""Which device a model is put on."""

from __future__ import annotations

import torch

from vestige.errors import InputError, shown

__all__ = ["chosen_device"]


def chosen_device(name: str | None) -> str:
    """The device of this name; None: a GPU where there is one. Raises InputError where none can be used."""
    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name).cpu()
    except (RuntimeError, AssertionError, NotImplementedError):
        here = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        here += ["mps"] if torch.backends.mps.is_available() else []
        known = ", ".join(["cpu", *here])
        raise InputError(
            "--device", f"{shown(name)}, which is not here", known, "name one of these"
        ) from None
    return name
