"""What a Fisher pass costs: ratios against plain training passes and other ways, in one run.

    python benchmarks/fisher.py [--layers 8] [--width 256] [--sequences 16] [--length 256] [--repeats 3]

Plain: forward and backward with gradients of the same weights on the same batches. One at a time: a backward
pass a sequence, squares added. vmap: torch.func gradients of a batch. opacus where it is installed. Hessian:
one exact probe, and each further one, against plain. Checkpoints: base and first one over the second. Linear:
least squares of seconds on layers, tokens and checkpoints. Processes: torchrun on this machine, gloo.

Times are CPU seconds of this process, so that what else the machine does matters little; one thread by
default; everything that is compared is measured in turn, and ratios are medians over turns. Two processes
are told in wall time too, which means something on idle cores only: see the load printed with it. Peak
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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from common import median, report
from vestige.data.corpora import TokenSequence
from vestige.footprint.cache import Cache
from vestige.footprint.fisher import fisher_diagonal
from vestige.footprint.hessian import hessian_diagonal
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
    """opacus' per-sample gradients. Its hooks work in training mode only; the model has no dropout."""
    from opacus import GradSampleModule

    targets = target_parameters(model)
    for value in model.parameters():
        value.requires_grad_(False)
    for value in targets.values():
        value.requires_grad_()
    wrapped = GradSampleModule(model, strict=False, loss_reduction="sum")
    wrapped.train()
    for group in batches(units):
        ids, mask = padded([units[i] for i in group])
        sequence_losses(logits_of(wrapped, ids, mask), ids, mask, "mean").sum().backward()
        for value in targets.values():
            value.grad_sample.square().sum(0)
            value.grad_sample = value.grad = None
    wrapped.to_standard_module().eval()


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


def in_turn(works: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """CPU seconds of every work, `repeats` times, one after the other so that a slow minute hits all."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            taken[name].append(seconds(work))
    return taken


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Median over turns of the quotient."""
    return round(median([a / b for a, b in zip(over, under, strict=True)]), 3)


def line(amounts: Sequence[float], measured: Sequence[float]) -> dict[str, Any]:
    """Least squares of seconds on amounts. Intercept and largest residual: shares of the largest fit."""
    x, y = np.asarray(amounts, float), np.asarray(measured, float)
    slope, intercept = np.polyfit(x, y, 1)
    fitted = slope * x + intercept
    return {
        "amounts": [float(value) for value in x],
        "seconds": [round(float(value), 3) for value in y],
        "slope": float(f"{slope:.3g}"),
        "intercept_share": round(float(intercept / fitted.max()), 3),
        "largest_residual_share": round(float(np.abs(y - fitted).max() / fitted.max()), 3),
    }


def shape(arguments: argparse.Namespace) -> list[str]:
    """The options that say what is measured, for a process of its own."""
    names = ("layers", "width", "sequences", "length", "repeats")
    return [part for name in names for part in (f"--{name}", str(getattr(arguments, name)))]


def peak(way: str, arguments: argparse.Namespace) -> float:
    """Peak memory of a process of its own, in GB, above that of the model and the texts."""
    command = [sys.executable, __file__, "--memory-of", way, *shape(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["gb"])


def memory(way: str, arguments: argparse.Namespace) -> None:
    """Print the peak of this process above what it held before."""
    model, units = build(arguments.layers, arguments.width), texts(arguments.sequences, arguments.length)
    plain(model, units[:1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    WAYS[way](model, units)
    print(json.dumps({"gb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6}))


def against_plain(arguments: argparse.Namespace, ways: Sequence[str]) -> dict[str, Any]:
    """Seconds of every way of the Fisher diagonal and their ratio to plain training passes."""
    model, units = build(arguments.layers, arguments.width), texts(arguments.sequences, arguments.length)
    works = {way: partial(WAYS[way], model, units) for way in dict.fromkeys(["plain", *ways])}
    for way in works:
        WAYS[way](model, units[:2])
    taken = in_turn(works, arguments.repeats)
    return {
        "tokens": sum(len(unit.ids) for unit in units),
        "parameters": sum(value.numel() for value in target_parameters(model).values()),
        "seconds": {way: round(median(values), 3) for way, values in taken.items()},
        "over_plain": {way: ratio(values, taken["plain"]) for way, values in taken.items()},
        "over_ours": {way: ratio(values, taken["ours"]) for way, values in taken.items() if "ours" in taken},
    }


def probes(arguments: argparse.Namespace) -> dict[str, float]:
    """One exact Hessian probe, and each further one of four, over forward and backward of the same tokens.

    Of a quarter of the sequences, at least two: a probe costs several passes.
    """
    model = build(arguments.layers, arguments.width)
    units = texts(max(2, arguments.sequences // 4), arguments.length)

    def hessian(count: int, chosen: Sequence[TokenSequence]) -> None:
        hessian_diagonal(
            model, target_parameters(model), chosen, probes=count, seed=17, corpus="a", subset=0,
            batch_tokens=1024,
        )  # fmt: skip

    hessian(1, units[:2])
    plain(model, units[:2])
    taken = in_turn(
        {
            "plain": lambda: plain(model, units),
            "one": lambda: hessian(1, units),
            "four": lambda: hessian(4, units),
        },
        arguments.repeats,
    )
    further = [(four - one) / 3 for four, one in zip(taken["four"], taken["one"], strict=True)]
    return {
        "one_over_plain": ratio(taken["one"], taken["plain"]),
        "further_over_plain": ratio(further, taken["plain"]),
        "four_over_plain": ratio(taken["four"], taken["plain"]),
    }


class NoTokenizer:
    """Stands where a tokenizer is asked for its kind alone."""

    bos_token_id = None

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [3]}


def checkpoints(arguments: argparse.Namespace, count: int = 4) -> dict[str, Any]:
    """Base and first checkpoint over the second, sequences that were passed, and seconds on checkpoints."""
    units = tuple(texts(arguments.sequences, arguments.length))

    def checkpoint(number: int) -> LanguageModel:
        model = build(arguments.layers, arguments.width)
        with torch.no_grad():
            next(iter(target_parameters(model).values())).add_(0.01 * number)
        return language_model(model, NoTokenizer(), label=str(number))

    models = [checkpoint(number) for number in range(count + 1)]
    turns: list[list[float]] = []
    passes: list[int] = []
    for _ in range(arguments.repeats):
        with tempfile.TemporaryDirectory() as folder:
            meter = Meter(FootprintSettings(), Cache(Path(folder), World()), World())
            subset = Subset("a", 0, units)
            own, passes = [], []
            for after in models[1:]:
                own.append(seconds(partial(meter.compare, models[0], after, subset, keep=False)))
                passes.append(meter.passes)
            turns.append(own)
    middle = [median([own[k] for own in turns]) for k in range(count)]
    return {
        "first_over_second": ratio([own[0] for own in turns], [own[1] for own in turns]),
        "sequences_passed": passes,
        "linear": line(range(1, count + 1), list(np.cumsum(middle))),
    }


def linear(arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds of a Fisher pass on layers and on tokens, up to those asked for."""
    steps = [1, 2, 3, 4]
    units = texts(arguments.sequences, arguments.length)
    depths = sorted({max(1, arguments.layers * step // 4) for step in steps})
    models = {depth: build(depth, arguments.width) for depth in depths}
    parts = [units[: max(1, len(units) * step // 4)] for step in steps]
    deepest = models[depths[-1]]
    works: dict[str, Callable[[], object]] = {
        f"layers {depth}": partial(ours, model, units) for depth, model in models.items()
    }
    works |= {f"part {k}": partial(ours, deepest, part) for k, part in enumerate(parts)}
    ours(deepest, units[:2])
    taken = {name: median(values) for name, values in in_turn(works, arguments.repeats).items()}
    return {
        "layers": line(depths, [taken[f"layers {depth}"] for depth in depths]),
        "tokens": line(
            [sum(len(unit.ids) for unit in part) for part in parts],
            [taken[f"part {k}"] for k in range(len(parts))],
        ),
    }


def processes(arguments: argparse.Namespace) -> dict[str, Any]:
    """One process over two, each of one thread: wall seconds of the pass, CPU seconds of the busiest."""
    taken: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    for turn in range(arguments.repeats):
        for count, found in taken.items():
            command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(count)]
            command += ["--master_port", str(29519 + 2 * turn + count), __file__, "--worker"]
            done = subprocess.run(
                [*command, *shape(arguments)],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found.append(json.loads(done.stdout.splitlines()[-1]))
    return {
        f"{kind}_one_over_two": ratio([one[kind] for one in taken[1]], [two[kind] for two in taken[2]])
        for kind in ("wall", "cpu")
    } | {"load_1min": round(os.getloadavg()[0], 2)}


def work_as_one_of_several(arguments: argparse.Namespace) -> None:
    """Print the seconds of the slowest process, start-up left out."""
    torch.set_num_threads(1)
    model = build(arguments.layers, arguments.width)
    units = texts(arguments.sequences, arguments.length)
    targets = target_parameters(model)
    with launched() as world:
        fisher_diagonal(model, targets, units[: world.size], world=world)
        world.from_lead(0)
        begin = time.monotonic()
        cpu = seconds(lambda: fisher_diagonal(model, targets, units, world=world))
        everyone = world.together([(time.monotonic() - begin, cpu)], world.size)
        if world.leads:
            wall, busiest = (max(values) for values in zip(*everyone, strict=True))
            print(json.dumps({"wall": wall, "cpu": busiest}))


PARTS = ("ways", "memory", "hessian", "checkpoints", "linear", "processes")


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}; default all")
    parser.add_argument("--memory-of", choices=list(WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work_as_one_of_several(arguments)
        return
    torch.set_num_threads(arguments.threads)
    if arguments.memory_of:
        memory(arguments.memory_of, arguments)
        return
    parts = arguments.parts.split(",")
    ways = [way for way in WAYS if way in arguments.ways.split(",")]
    size = build(arguments.layers, arguments.width)
    result: dict[str, Any] = {
        **{name: getattr(arguments, name) for name in ("layers", "width", "sequences", "length", "repeats")},
        "all_parameters": sum(value.numel() for value in size.parameters()),
        "threads": torch.get_num_threads(),
        "load_before": round(os.getloadavg()[0], 2),
    }
    if "ways" in parts:
        result |= against_plain(arguments, ways)
    if "memory" in parts:
        result["peak_gb"] = {way: round(peak(way, arguments), 3) for way in ways}
    for name, measure in (
        ("hessian", probes),
        ("checkpoints", checkpoints),
        ("linear", linear),
        ("processes", processes),
    ):
        if name in parts:
            result[name] = measure(arguments)
    report("fisher", result)


if __name__ == "__main__":
    main()
