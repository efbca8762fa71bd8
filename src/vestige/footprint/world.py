"""Several processes on one measurement: who takes what, and one sum over all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

__all__ = ["World", "launched"]

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process among `size`. Alone (the default) nothing is sent anywhere."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """This process's items: every size-th from its rank on. Shares may be unequal or empty."""
        return list(items[self.rank :: self.size])

    def total(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """The sum of each tensor over all processes, in place, by one all-reduce of their values end to end.

        Names, order, shapes and dtype must be the same everywhere.
        """
        if self.size > 1 and sums:
            import torch.distributed as dist

            flat = torch.cat([value.reshape(-1) for value in sums.values()])
            dist.all_reduce(flat)
            sizes = [value.numel() for value in sums.values()]
            for value, part in zip(sums.values(), torch.split(flat, sizes), strict=True):
                value.copy_(part.view_as(value))
        return sums

    def together(self, own: Sequence[T], total: int) -> list[T]:
        """What `share` split, put together again in the first order, on every process."""
        if self.size == 1:
            return list(own)
        import torch.distributed as dist

        parts: list[list[T]] = [[] for _ in range(self.size)]
        dist.all_gather_object(parts, list(own))
        return [parts[i % self.size][i // self.size] for i in range(total)]

    def from_lead(self, value: T) -> T:
        """The leading process's value, on every process."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box)
        return box[0]


@contextmanager
def launched() -> Iterator[World]:
    """The world `accelerate launch` or torchrun set up, joined inside and left after; else one process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    import torch.distributed as dist

    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if gpu else "gloo")
    try:
        yield World(rank=dist.get_rank(), size=dist.get_world_size())
    finally:
        dist.destroy_process_group()
