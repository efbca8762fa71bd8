"""The blocks of a backbone and their outputs: read, or changed, through hooks that are taken off again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vestige.errors import InputError

__all__ = ["block_output", "blocks_of", "hooked", "output_depends_on"]


class _Reached(Exception):
    """The block whose output was asked for has put it out: what lies above is not computed."""


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The backbone's blocks, lowest first: the list of as many modules as its configuration has layers.

    Works on a backbone, with adapters or without, and on anything that holds one. Raises InputError where
    there is no such list (blocks that share their weights).
    """
    from transformers import PretrainedConfig

    configs: list[Any] = [
        module.config
        for module in model.modules()
        if isinstance(getattr(module, "config", None), PretrainedConfig)
    ]
    for config in configs:
        count = getattr(config.get_text_config(), "num_hidden_layers", None)
        for module in model.modules():
            if isinstance(module, nn.ModuleList) and len(module) == count:
                return list(module)
    raise InputError(
        f"backbone {type(model).__name__}",
        "no list of blocks",
        "one module a layer, in order",
        "use a method that reads no hidden states",
    )


@contextmanager
def hooked(block: nn.Module, look: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Inside, `look` sees every output (n, L, d) of `block`; what it returns takes the output's place."""

    def hook(_module: nn.Module, _inputs: object, output: Any) -> Any:
        changed = look(output[0] if isinstance(output, tuple) else output)
        if changed is None:
            return None
        return (changed, *output[1:]) if isinstance(output, tuple) else changed

    handle = block.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def block_output(model: nn.Module, block: int, **inputs: Any) -> Tensor:
    """Output (n, L, d) of the 0-based block for these inputs of the backbone, with gradient.

    Nothing above the block is computed.
    """
    seen: list[Tensor] = []

    def look(hidden: Tensor) -> None:
        seen.append(hidden)
        raise _Reached

    with hooked(blocks_of(model)[block], look):
        try:
            model(**inputs)
        except _Reached:
            return seen[0]
    raise RuntimeError(f"block {block} was not run")


def output_depends_on(output: Tensor, parameters: dict[str, nn.Parameter]) -> set[str]:
    """Names of the parameters that have a part in `output`; its graph is freed."""
    found = torch.autograd.grad(output.sum(), list(parameters.values()), allow_unused=True)
    return {name for name, gradient in zip(parameters, found, strict=True) if gradient is not None}
