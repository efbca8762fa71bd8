"""Unlearning a language model: peak memory against GradAscent's, time per step against plain fine-tuning.

Each method runs in a process of its own on the same rows with LoRA. Its peak resident memory is compared with
GradAscent's, and the median seconds of a step with the forward and backward pass of plain fine-tuning on as
many sequences as the method's terms differentiate, in the same process.

    python benchmarks/lm_unlearning.py [--model smollm2] [--steps 6] [--length 128] [--methods npo,simnpo]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import median, report

METHODS = ("grad_ascent", "grad_diff", "grad_diff_kl", "npo", "simnpo", "dpo")


def peak_mb() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def tiny_folder(folder: Path) -> str:
    """A small random Llama and a word tokenizer, for a machine without a model."""
    from vestige.footprint.tiny import TinySettings, tiny_model, word_tokenizer

    words = [f"w{i}" for i in range(8000)]
    tokenizer = word_tokenizer(words)
    settings = TinySettings(hidden=256, layers=4, feed_forward=512)
    tiny_model(len(tokenizer), settings, seed=0).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return str(folder)


def measured(model: str, method: str, steps: int, length: int, batch: int) -> dict[str, Any]:
    """One method in this process."""
    import torch

    from vestige.data.language_rows import LanguageRow, LanguageRows
    from vestige.methods import METHODS as REGISTERED
    from vestige.models.causal_lm import load_language_model
    from vestige.seeds import generator
    from vestige.training.losses import nll
    from vestige.training.sequences import SequenceScorer
    from vestige.training.session import Topic, begin, unlearn_language

    loaded = load_language_model(model)
    rng = generator(0, "benchmark")
    vocabulary = loaded.record.vocabulary

    def rows(n: int, topic: str = "t") -> LanguageRows:
        labels = (False, *(True,) * (length - 1))
        drawn = rng.integers(5, vocabulary, size=(n, length))
        made = [LanguageRow(str(i), tuple(int(t) for t in drawn[i]), labels, topic, i) for i in range(n)]
        from vestige.data.corpora import Document

        return LanguageRows(rows=tuple(made), documents=tuple(Document(str(i), "w1 w2") for i in range(n)))

    use = REGISTERED.get(method).language
    settings = use.settings(epochs=1, batch_size=batch, select="last", warmup_steps=0)
    topic = Topic(rows(batch * steps), rows(batch * steps))
    session = begin(loaded.model, loaded.tokenizer, REGISTERED.get(method), settings, {"t": topic}, seed=0)
    start = peak_mb()
    _, log = unlearn_language(session)
    peak = peak_mb()
    sequences = batch * (1 + ("retain" in session.needs()) + ("refusal" in session.needs()["forget"]))
    plain = []
    session.model.train()
    scorer = SequenceScorer(session.model)
    chunks = [topic.forget.rows[at : at + batch] for at in range(0, sequences, batch)]
    for _ in range(steps):
        began = time.perf_counter()
        for chunk in chunks:
            nll(scorer.batch(chunk).token_log_probs).backward()
        plain.append(time.perf_counter() - began)
    return {
        "method": method,
        "seconds_per_step": median([entry["seconds"] for entry in log]),
        "plain_seconds": median(plain),
        "start_mb": start,
        "peak_mb": peak,
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    """Measure every method in a process of its own and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="name or folder; none: a small random model")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.model, options.one, options.steps, options.length, options.batch)))
        return
    names = ["grad_ascent", *(name for name in options.methods.split(",") if name != "grad_ascent")]
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or tiny_folder(Path(folder))
        found = {}
        for name in names:
            shape = [
                "--steps",
                str(options.steps),
                "--length",
                str(options.length),
                "--batch",
                str(options.batch),
            ]
            command = [sys.executable, __file__, "--model", model, "--one", name, *shape]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[name] = json.loads(done.stdout.strip().splitlines()[-1])
    ascent = found["grad_ascent"]["peak_mb"]
    report(
        "lm_unlearning",
        {
            "model": options.model or "random Llama, 4 blocks of 256",
            "steps": options.steps,
            "length": options.length,
            "batch": options.batch,
            "grad_ascent_peak_mb": round(ascent, 1),
            "memory_ratio": {name: round(item["peak_mb"] / ascent, 3) for name, item in found.items()},
            "time_ratio": {
                name: round(item["seconds_per_step"] / item["plain_seconds"], 3)
                for name, item in found.items()
            },
            "aim": "memory_ratio of npo at most 1.15",
        },
    )


if __name__ == "__main__":
    main()
