"""Reading and changing a block's output, and taking the hooks off again."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import torch
from tests.tiny_lm import tiny_llama
from torch import Tensor, nn

from vestige.errors import InputError
from vestige.models.blocks import block_output, blocks_of, hooked, output_depends_on

pytestmark = pytest.mark.train

IDS = torch.tensor([[1, 5, 7, 9], [1, 6, 8, 10]])


@pytest.fixture(scope="module")
def llama() -> nn.Module:
    made: nn.Module = tiny_llama(layers=3)
    return made


def test_blocks_are_those_of_the_configuration(llama: nn.Module) -> None:
    blocks = blocks_of(llama)
    assert [type(block).__name__ for block in blocks] == ["LlamaDecoderLayer"] * 3
    assert blocks_of(nn.ModuleDict({"inside": llama})) == blocks
    with pytest.raises(InputError, match="no list of blocks"):
        blocks_of(nn.Linear(2, 2))


@pytest.mark.parametrize("block", [0, 1])
def test_the_output_is_the_hidden_state_after_the_block(llama: nn.Module, block: int) -> None:
    found = block_output(llama, block, input_ids=IDS)
    states = llama(input_ids=IDS, output_hidden_states=True).hidden_states
    torch.testing.assert_close(found, states[block + 1])
    assert found.requires_grad


def test_only_what_lies_below_has_a_part_in_the_output(llama: nn.Module) -> None:
    named = dict(llama.named_parameters())
    below = output_depends_on(block_output(llama, 1, input_ids=IDS), named)
    assert any(".layers.1." in name for name in below)
    assert not any(".layers.2." in name or "lm_head" in name for name in below)


def test_an_output_can_be_changed_and_the_hook_comes_off_after_an_error(llama: nn.Module) -> None:
    block = blocks_of(llama)[1]
    plain = llama(input_ids=IDS).logits
    noise = torch.randn(2, 4, 32, generator=torch.Generator().manual_seed(0))

    def add(hidden: Tensor) -> Tensor:
        return hidden + noise

    with hooked(block, add):
        assert (llama(input_ids=IDS).logits - plain).abs().max() > 1e-3
        shifted = block_output(llama, 1, input_ids=IDS)
    torch.testing.assert_close(shifted - block_output(llama, 1, input_ids=IDS), noise, atol=1e-5, rtol=1e-4)
    with pytest.raises(RuntimeError, match="stop"), hooked(block, add):
        raise RuntimeError("stop")
    assert torch.equal(llama(input_ids=IDS).logits, plain)
