"""Unlearning a language model: peak memory against GradAscent's, time per step against plain fine-tuning.

Each method runs in a process of its own on the same rows with LoRA. Its peak resident memory is compared with
GradAscent's. Its median time of a step is compared with the forward and backward passes of plain fine-tuning
with LoRA over the same sequences that the method's terms differentiate, in the same process right after.
Times are processor time: other work on the machine weighs little. Phases before the loop are left out.

    python benchmarks/lm_unlearning.py [--model smollm2] [--steps 6] [--length 64] [--methods npo,simnpo]
"""

from __future__ import annotations

import argparse
import ctypes
import ctypes.util
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from common import median, report

SHORT_PHASES = {"align_steps": 4, "tune_steps": 2, "importance_batches": 2}
"""Phases before the loop, where a method has any: they are not timed, but their memory counts."""
_M_MMAP_THRESHOLD = -3
"""mallopt's name of the size from which a block is mapped alone."""


def give_back_freed() -> None:
    """Let glibc give freed blocks of 64 KiB and more back at once, so that a peak is of what is in use.

    Else a second pass finds the first one's freed blocks cut up, and the peak grows by what nothing uses.
    """
    libc = ctypes.util.find_library("c")
    mallopt = getattr(ctypes.CDLL(libc), "mallopt", None) if libc else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**16)


def peak_mb() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def random_folder(folder: Path) -> str:
    """A random Llama of 8 million weights and a word tokenizer, for a machine without a model."""
    from vestige.footprint.tiny import TinySettings, tiny_model, word_tokenizer

    words = [f"w{i}" for i in range(8000)]
    tokenizer = word_tokenizer(words)
    settings = TinySettings(hidden=256, layers=6, feed_forward=640)
    model: Any = tiny_model(len(tokenizer), settings, seed=0)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return str(folder)


def drawn_rows(tokenizer: Any, vocabulary: int, n: int, length: int) -> Any:
    """n rows of random tokens, every token but the first predicted."""
    from vestige.data.corpora import Document
    from vestige.data.language_rows import LanguageRow, LanguageRows
    from vestige.seeds import generator

    drawn = generator(0, "benchmark", n).integers(5, vocabulary, size=(n, length))
    labels = (False, *(True,) * (length - 1))
    made = [LanguageRow(str(i), tuple(int(t) for t in drawn[i]), labels, "t", i) for i in range(n)]
    texts = [tokenizer.decode(list(row.ids)) for row in made]
    return LanguageRows(
        rows=tuple(made), documents=tuple(Document(str(i), text) for i, text in enumerate(texts))
    )


def measured(model: str, method: str, steps: int, length: int, batch: int) -> dict[str, Any]:
    """One method in this process."""
    import torch

    from vestige.data.language_rows import refusal_rows
    from vestige.language import LoraSettings
    from vestige.methods import METHODS
    from vestige.models.causal_lm import load_language_model
    from vestige.training.losses import nll
    from vestige.training.sequences import SequenceScorer
    from vestige.training.session import Topic, attach_lora, begin, unlearn_language
    from vestige.training.steps import Hooks

    loaded = load_language_model(model)
    tokenizer, vocabulary = loaded.tokenizer, loaded.record.vocabulary
    objective = METHODS.get(method)
    use = objective.language
    assert use is not None
    phases = {name: value for name, value in SHORT_PHASES.items() if name in use.settings.model_fields}
    settings = use.settings(epochs=1, batch_size=batch, select="last", warmup_steps=0, **phases)
    keyword = tokenizer.decode([vocabulary // 2]).strip() or "w1"
    topic = Topic(
        drawn_rows(tokenizer, vocabulary, batch * steps, length),
        drawn_rows(tokenizer, vocabulary, batch * (steps + 1), length),
        concept="a thing that is to be forgotten",
        keywords=(keyword,),
    )
    session = begin(loaded.model, tokenizer, objective, settings, {"t": topic}, seed=0)
    needs, start = session.needs(), peak_mb()
    ticks: list[float] = []
    hooks = Hooks(progress=lambda step, of, loss: ticks.append(time.process_time()))
    unlearn_language(session, hooks=hooks)
    peak = peak_mb()
    seconds = [after - before for before, after in pairwise(ticks)]
    del session

    plain_model = load_language_model(model).model.requires_grad_(False)
    scorer = SequenceScorer(attach_lora(plain_model, LoraSettings(), seed=0).train())
    terms = [topic.forget.rows[:batch]]
    if "retain" in needs:
        terms.append(topic.retain.rows[:batch])
    if "refusal" in needs["forget"]:
        terms.append(refusal_rows(topic.forget.only(range(batch)), tokenizer, seed=0, max_length=length))
    plain = []
    for _ in range(steps):
        began = time.process_time()
        for rows in terms:
            loss: Any = nll(scorer.batch(rows).token_log_probs)
            loss.backward()
        plain.append(time.process_time() - began)
    return {
        "seconds_per_step": median(seconds),
        "plain_seconds": median(plain),
        "start_mb": start,
        "peak_mb": peak,
        "threads": torch.get_num_threads(),
    }


def _answer(pipe: Connection, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    give_back_freed()
    pipe.send(work(*given))
    pipe.close()


def in_own_process(work: Callable[..., Any], *given: Any) -> Any:
    """What `work` returns in a child of its own, so that its peak is its own.

    The child is forked after the imports; nothing is computed in the parent, so that no thread is lost.
    """
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_answer, args=(theirs, work, given))
    child.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        raise SystemExit(f"{work.__name__}{given}: ended without a result") from None
    finally:
        child.join()


def main() -> None:
    """Measure every method in a process of its own and print one JSON line."""
    import vestige.models.causal_lm  # once, before the children
    import vestige.training.session  # noqa: F401
    from vestige.methods import METHODS

    registered = [method.name for method in METHODS if method.language is not None]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="name or folder; none: a small random model")
    parser.add_argument("--methods", default=",".join(registered))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4)
    options = parser.parse_args()
    names = ["grad_ascent", *(name for name in options.methods.split(",") if name != "grad_ascent")]
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or in_own_process(random_folder, Path(folder))
        shape = (options.steps, options.length, options.batch)
        found = {name: in_own_process(measured, model, name, *shape) for name in names}
    ascent = found["grad_ascent"]["peak_mb"]
    report(
        "lm_unlearning",
        {
            "model": options.model or "random Llama, 6 blocks of 256",
            "steps": options.steps,
            "length": options.length,
            "batch": options.batch,
            "grad_ascent_peak_mb": round(ascent, 1),
            "memory_ratio": {name: round(item["peak_mb"] / ascent, 3) for name, item in found.items()},
            "time_ratio": {
                name: round(item["seconds_per_step"] / item["plain_seconds"], 3)
                for name, item in found.items()
            },
            "seconds_per_step": {name: round(item["seconds_per_step"], 3) for name, item in found.items()},
            "aim": "memory_ratio of npo at most 1.15",
        },
    )


if __name__ == "__main__":
    main()
