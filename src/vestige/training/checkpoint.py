"""Checkpoints that survive kill -9: written beside, then renamed; safetensors and JSON only."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vestige.files import writing

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]

TENSORS = WEIGHTS, MOMENTS = "weights.safetensors", "moments.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """step: optimiser steps done. weights and moments by parameter name. log: one record a step."""

    step: int
    identity: str
    weights: dict[str, Tensor]
    moments: dict[str, Tensor]
    log: list[dict[str, Any]]


def moments_of(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> dict[str, Tensor]:
    """AdamW's state flattened: `name|exp_avg` and so on. names: id(parameter) -> name."""
    flat: dict[str, Tensor] = {}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            flat[f"{names[id(parameter)]}|{key}"] = torch.as_tensor(value).detach().clone().contiguous()
    return flat


def restore_moments(optimizer: torch.optim.Optimizer, names: dict[int, str], flat: dict[str, Tensor]) -> None:
    """The reverse of `moments_of`."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            prefix = f"{names[id(parameter)]}|"
            state = {key[len(prefix) :]: value for key, value in flat.items() if key.startswith(prefix)}
            if state:
                optimizer.state[parameter] = state


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write `folder/checkpoint-<step>` completely, then drop older ones. Raises InputError: a full disk."""
    with writing(folder):
        _save(folder, checkpoint)


def _save(folder: Path, checkpoint: Checkpoint) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"checkpoint-{checkpoint.step:08d}"
    partial = folder / f"partial-{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    save_file(
        {k: v.detach().contiguous() for k, v in checkpoint.weights.items()},
        str(partial / WEIGHTS),
    )
    save_file(checkpoint.moments, str(partial / MOMENTS))
    state = {
        "step": checkpoint.step,
        "identity": checkpoint.identity,
        "log": checkpoint.log,
        "files": {name: _sha256(partial / name) for name in TENSORS},
    }
    (partial / "state.json").write_text(json.dumps(state), encoding="utf-8")
    for path in partial.iterdir():
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
    if target.exists():
        shutil.rmtree(target)
    partial.rename(target)
    for other in folder.glob("checkpoint-*"):
        if other != target:
            shutil.rmtree(other, ignore_errors=True)


def load_checkpoint(folder: Path, identity: str) -> Checkpoint | None:
    """The newest complete checkpoint of this identity, or None. Another identity's is never used, nor one
    whose tensors are no longer what was written."""
    for path in sorted(folder.glob("checkpoint-*"), reverse=True):
        try:
            state = json.loads((path / "state.json").read_text(encoding="utf-8"))
            if state["identity"] != identity or state["files"] != {n: _sha256(path / n) for n in TENSORS}:
                continue
            weights, moments = (load_file(str(path / name)) for name in TENSORS)
            return Checkpoint(state["step"], identity, weights, moments, state["log"])
        except (OSError, ValueError, LookupError, TypeError, SafetensorError):
            continue
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
