"""What a Fisher pass costs: ratios against plain training passes and other ways, in one run.

    python benchmarks/fisher.py [--layers 8] [--width 256] [--sequences 32] [--length 256] [--repeats 3]

Plain: forward and backward with gradients of the same weights on the same batches. One at a time: a backward
pass a sequence, squares added. vmap: torch.func gradients of a batch. opacus where it is installed. Times are
CPU seconds of this process, so that what else the machine does matters little; one thread by default. Peak
memory: of a process of its own for each way, less that of loading the model.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from common import median, report
from vestige.data.corpora import TokenSequence
from vestige.footprint.cache import Cache
from vestige.footprint.fisher import fisher_diagonal
from vestige.footprint.measure import Meter, Subset
from vestige.footprint.passes import batches, logits_of, padded, sequence_losses
from vestige.footprint.records import FootprintSettings
from vestige.footprint.world import World, launched
from vestige.models.causal_lm import LanguageModel, language_model
from vestige.models.projections import target_parameters
from vestige.seeds import generator


def build(layers: int, width: int) -> Any:
    """A Llama with random weights, 8,192 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=width,
        intermediate_size=8 * width // 3,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        max_position_embeddings=4096,
    )
    return LlamaForCausalLM(config).eval()


def texts(count: int, length: int) -> list[TokenSequence]:
    """Random ids of length to 0.6 length tokens."""
    rng = generator(17, "fisher benchmark")
    sizes = rng.integers(int(0.6 * length), length + 1, count)
    return [
        TokenSequence(tuple(int(i) for i in rng.integers(3, 8192, size)), str(k), 0, "")
        for k, size in enumerate(sizes)
    ]


def plain(model: nn.Module, units: Sequence[TokenSequence]) -> None:
    """Forward and backward with weight gradients, as in training."""
    targets = target_parameters(model)
    for value in model.parameters():
        value.requires_grad_(False)
    for value in targets.values():
        value.requires_grad_()
    for group in batches(units):
        ids, mask = padded([units[i] for i in group])
        sequence_losses(logits_of(model, ids, mask), ids, mask, "mean").sum().backward()
        for value in targets.values():
            value.grad = None
            value.requires_grad_()


def ours(model: nn.Module, units: Sequence[TokenSequence]) -> None:
    """One Fisher pass."""
    fisher_diagonal(model, target_parameters(model), units)


def one_at_a_time(model: nn.Module, units: Sequence[TokenSequence]) -> None:
    """A backward pass a sequence."""
    targets = target_parameters(model)
    total = {name: torch.zeros_like(value) for name, value in targets.items()}
    for value in targets.values():
        value.requires_grad_()
    for unit in units:
        ids, mask = padded([unit])
        sequence_losses(logits_of(model, ids, mask), ids, mask, "mean").sum().backward()
        for name, value in targets.items():
            total[name].addcmul_(value.grad, value.grad)
            value.grad = None


def vmapped(model: nn.Module, units: Sequence[TokenSequence]) -> None:
    """torch.func: gradients of a batch at once, then their squares. Sequences padded to one length."""
    weights = {name: value.detach() for name, value in model.named_parameters()}
    chosen = {name: weights[name] for name in target_parameters(model)}

    def loss(part: dict[str, Tensor], row: Tensor, kept: Tensor) -> Tensor:
        arguments = {"input_ids": row[None], "use_cache": False}
        logits = torch.func.functional_call(model, {**weights, **part}, kwargs=arguments).logits
        return sequence_losses(logits, row[None], kept[None], "mean").sum()

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    total = {name: torch.zeros_like(value) for name, value in chosen.items()}
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        for group in batches(units):
            ids, mask = padded([units[i] for i in group])
            for name, value in gradients(chosen, ids, mask).items():
                total[name] += value.square().sum(0)


def with_opacus(model: nn.Module, units: Sequence[TokenSequence]) -> None:
    """opacus' per-sample gradients."""
    from opacus import GradSampleModule

    targets = target_parameters(model)
    for value in model.parameters():
        value.requires_grad_(False)
    for value in targets.values():
        value.requires_grad_()
    wrapped = GradSampleModule(model, strict=False, loss_reduction="sum")
    for group in batches(units):
        ids, mask = padded([units[i] for i in group])
        sequence_losses(logits_of(wrapped, ids, mask), ids, mask, "mean").sum().backward()
        for value in targets.values():
            value.grad_sample.square().sum(0)
            value.grad_sample = value.grad = None
    wrapped.to_standard_module()


WAYS: dict[str, Callable[[nn.Module, Sequence[TokenSequence]], None]] = {
    "plain": plain,
    "ours": ours,
    "one_at_a_time": one_at_a_time,
    "vmap": vmapped,
    **({"opacus": with_opacus} if importlib.util.find_spec("opacus") else {}),
}


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def peak(way: str, arguments: argparse.Namespace) -> float:
    """Peak memory of a process of its own, in GB, above that of the model and the texts."""
    command = [sys.executable, __file__, "--memory-of", way]
    for name in ("layers", "width", "sequences", "length"):
        command += [f"--{name}", str(getattr(arguments, name))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["gb"])


def second_checkpoint(arguments: argparse.Namespace) -> float:
    """Time of base and first checkpoint together over that of the second."""
    units = tuple(texts(arguments.sequences, arguments.length))

    class NoTokenizer:
        bos_token_id = None

        def __call__(self, text: str) -> dict[str, list[int]]:
            return {"input_ids": [3]}

    def checkpoint(seed: int) -> LanguageModel:
        model = build(arguments.layers, arguments.width)
        torch.manual_seed(seed)
        with torch.no_grad():
            next(iter(target_parameters(model).values())).add_(0.01 * seed)
        return language_model(model, NoTokenizer(), label=str(seed))

    base, first, second = checkpoint(0), checkpoint(1), checkpoint(2)
    with tempfile.TemporaryDirectory() as folder:
        meter = Meter(FootprintSettings(), Cache(Path(folder), World()), World())
        subset = Subset("a", 0, units)

        def against(model: LanguageModel) -> float:
            return seconds(lambda: meter.compare(base, model, subset, keep=False))

        return against(first) / against(second)


def scaling(arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds with layers and tokens doubled, over seconds without."""
    units = texts(arguments.sequences, arguments.length)
    small = build(arguments.layers, arguments.width)
    ours(small, units[:2])
    one = seconds(lambda: ours(small, units))
    deep = build(2 * arguments.layers, arguments.width)
    twice = texts(2 * arguments.sequences, arguments.length)
    return {
        "layers_doubled": seconds(lambda: ours(deep, units)) / one,
        "tokens_doubled": seconds(lambda: ours(small, twice)) / one,
    }


def processes(count: int, arguments: argparse.Namespace) -> float:
    """CPU seconds of the busiest of `count` processes of one thread each, without start-up."""
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29519"}
    command = [sys.executable, __file__, "--worker"]
    for name in ("layers", "width", "sequences", "length"):
        command += [f"--{name}", str(getattr(arguments, name))]
    workers = [
        subprocess.Popen(
            command,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    printed = [worker.communicate()[0] for worker in workers]
    return max(float(json.loads(text.splitlines()[-1])["seconds"]) for text in printed)


def work_as_one_of_several(arguments: argparse.Namespace) -> None:
    """Print the seconds of this process's share."""
    model = build(arguments.layers, arguments.width)
    units = texts(arguments.sequences, arguments.length)
    targets = target_parameters(model)
    with launched() as world:
        fisher_diagonal(model, targets, units[: world.size], world=world)
        print(json.dumps({"seconds": seconds(lambda: fisher_diagonal(model, targets, units, world=world))}))


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--only-times", action="store_true", help="neither memory nor scaling")
    parser.add_argument("--memory-of", choices=list(WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work_as_one_of_several(arguments)
        return
    torch.set_num_threads(arguments.threads)
    model = build(arguments.layers, arguments.width)
    units = texts(arguments.sequences, arguments.length)
    if arguments.memory_of:
        plain(model, units[:1])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        WAYS[arguments.memory_of](model, units)
        print(json.dumps({"gb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6}))
        return
    ways = [way for way in WAYS if way in arguments.ways.split(",")]
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for way in ways:
        WAYS[way](model, units[:2])
    for _ in range(arguments.repeats):
        for way in ways:  # in turn, so that a slow minute of the machine hits all
            taken[way].append(seconds(lambda way=way: WAYS[way](model, units)))  # type: ignore[misc]
    result: dict[str, Any] = {
        "tokens": sum(len(unit.ids) for unit in units),
        "parameters": sum(value.numel() for value in target_parameters(model).values()),
        "threads": torch.get_num_threads(),
        "seconds": {way: round(median(values), 3) for way, values in taken.items()},
    }
    if "plain" in taken:
        result["over_plain"] = {
            way: round(median([a / b for a, b in zip(values, taken["plain"], strict=True)]), 3)
            for way, values in taken.items()
        }
    if not arguments.only_times:
        result["peak_gb"] = {way: round(peak(way, arguments), 3) for way in ways}
        result["first_over_second_checkpoint"] = round(second_checkpoint(arguments), 2)
        result["scaling"] = {name: round(value, 2) for name, value in scaling(arguments).items()}
        alone, both = processes(1, arguments), processes(2, arguments)
        result["one_over_two_processes"] = round(alone / both, 2)
    report("fisher", result)


if __name__ == "__main__":
    main()
