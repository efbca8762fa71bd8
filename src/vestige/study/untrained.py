"""Nodes of models with random trainable weights, never trained: what ZRF compares with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vestige.study.cells import Node

if TYPE_CHECKING:
    from vestige.study.cells import Setting
    from vestige.study.jobs import Job

__all__ = ["BuildWork", "random_node"]


@dataclass(frozen=True)
class BuildWork:
    """Build a model, draw its trainable weights at random for a seed, and save it."""

    seed: int

    def do(self, job: Job) -> tuple[dict[str, Any], int]:
        """See `vestige.study.jobs.Work`."""
        setting = job.setting
        made = setting.backend.build(
            schema=setting.schema, model=setting.model, seed=self.seed, folder=job.folder
        )
        return {**made, "train_rows": 0}, 0


def random_node(setting: Setting, seed: int) -> Node:
    """The random model of a seed. The task settings are no part of its identity."""
    identity = {name: value for name, value in setting.base.items() if name != "training"}
    return Node(
        kind="random",
        label=f"random model, seed {seed}",
        identity={**identity, "seed": seed},
        work=BuildWork(seed),
    )
