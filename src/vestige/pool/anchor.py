"""The pool's anchor: models of the demonstration itself, LoRA on a pretrained encoder. Needs torch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats
from vestige.data.helpdesk import helpdesk
from vestige.decision.schema import Schema
from vestige.seeds import stable_seed
from vestige.study.protocol import DEFAULT_BACKEND, Rows, load_backend
from vestige.study.sweep import load_study
from vestige.study.work import MODEL

__all__ = ["anchor_outputs"]


def anchor_outputs(role: str, seed: int, used: NDArray[np.intp], work: Path) -> dict[str, Any]:
    """Log-probabilities of all rows, by split, of a model trained as the demonstration trains its own.

    used: positions of the training rows that it sees. work: a folder for checkpoints; an interrupted training
    goes on from there, and nothing is left in it afterwards.
    """
    plan = load_study("demo").plan
    backend = load_backend(DEFAULT_BACKEND)
    backend.set_threads(1)
    data = helpdesk()
    schema = Schema(data.options)
    frame = data.rows("train").iloc[used]
    folder = work / f"{role}-{seed:02d}"
    folder.mkdir(parents=True, exist_ok=True)
    backend.train(
        rows=Rows(tuple(frame["row_id"]), tuple(frame["text"]), tuple(frame["gold"])),
        schema=schema,
        model=backend.model_settings(plan.model),
        settings=backend.task_settings(plan.training),
        seed=stable_seed("pool", "anchor", role, seed) % 2**31,
        folder=folder,
        progress=lambda done, total: None,
    )
    found = {}
    for split in ("train", "evaluation"):
        probabilities: Floats = backend.predict(
            model=folder / MODEL,
            texts=data.rows(split)["text"].tolist(),
            schema=schema,
            progress=lambda done, total: None,
        )
        found[split] = np.log(np.maximum(probabilities, 1e-12)).astype(np.float32)
    shutil.rmtree(folder)
    return found
