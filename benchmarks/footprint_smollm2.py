"""The footprint on a real model: SmolLM2-135M as it is, with weight noise, after gradient ascent on TOFU.

Makes the checkpoints below OUT (those that are there are kept), then prints the command that measures them.

    python benchmarks/footprint_smollm2.py OUT --tofu FOLDER [--rate 3e-4] [--threads 1]

FOLDER holds forget10.jsonl. Noise: gaussian, 2 % of each target matrix's standard deviation. Ascent: LoRA of
rank 16 on the seven projections, batches of 4 rows, 8 and 24 steps.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from common import report
from vestige.models.backbones import torch_threads
from vestige.models.causal_lm import load_language_model
from vestige.models.projections import target_parameters
from vestige.seeds import generator
from vestige.unlearning.run import unlearn

NOISE = 0.02
STEPS = (8, 24)


def noised(folder: Path) -> None:
    """The base with noise on every target matrix, saved whole."""
    base = load_language_model("smollm2")
    for name, weight in target_parameters(base.model).items():
        draw = generator("benchmark", "weight noise", name).standard_normal(tuple(weight.shape))
        with torch.no_grad():
            weight += NOISE * weight.std() * torch.from_numpy(draw).to(weight.dtype)
    for field in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(base.model.config, field):
            delattr(base.model.config, field)
    base.model.save_pretrained(str(folder))
    base.tokenizer.save_pretrained(str(folder))


def main() -> None:
    """Make what is missing and say how to measure it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tofu", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    with torch_threads(options.threads):
        if not (options.out / "noise" / "config.json").is_file():
            noised(options.out / "noise")
        for steps in STEPS:
            record = unlearn(
                model="smollm2",
                method="grad_ascent",
                forget=options.tofu / "forget10.jsonl",
                out=options.out / f"ascent-{steps}",
                settings={
                    "max_steps": steps,
                    "batch_size": 4,
                    "learning_rate": options.rate,
                    "warmup_steps": 0,
                },
            )
            report("footprint_smollm2", {"checkpoint": f"ascent-{steps}", "record": str(record)[:300]})
    found = " ".join(
        f"--unlearned {name}={options.out / name}" for name in ("noise", "ascent-8", "ascent-24")
    )
    print(
        f"vestige footprint --base smollm2 --unlearned untouched=smollm2 {found} --forget tofu=FORGET10 "
        "--adjacent RETAIN90 --generic SENTENCES --quick --units 8 --calibrate --out DIR"
    )


if __name__ == "__main__":
    main()
