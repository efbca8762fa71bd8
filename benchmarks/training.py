"""Training against the bare backbone's forward and backward on the same tokens without padding.

Ours is a whole step of the loop: reading the schema, scoring, loss, backward, clipping, AdamW, the update's
norm, bucketed batches with what padding they have. The baseline is the pretrained backbone alone, all weights
trainable, forward and backward on the same utterance and option tokens, put end to end and cut into rows of
64, so that nothing is padded and matrices are large; no head, no optimiser. Both are timed in turn, and the
ratio is of tokens a second.

    python benchmarks/training.py [--threads 1] [--rounds 5] [--batch 64]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from common import intent_data, median, report
from vestige.models.backbones import load_backbone, torch_threads
from vestige.models.decision import ModelSettings, build_decision_model
from vestige.training.batches import plan_steps
from vestige.training.loop import TaskSettings, TrainRows, train_task


def bare_step(model: Any, rows: list[list[int]], width: int = 64) -> None:
    """Forward and backward over the rows' tokens, strung together and cut into rows of `width`."""
    tokens = [token for row in rows for token in row]
    model.zero_grad(set_to_none=True)
    whole = len(tokens) // width * width
    parts = [torch.tensor(tokens[:whole]).view(-1, width), torch.tensor(tokens[whole:]).view(1, -1)]
    loss = torch.stack(
        [model(input_ids=part).last_hidden_state.square().mean() for part in parts if part.numel()]
    )
    loss.sum().backward()


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    data = intent_data()
    schema = data.schema()
    rows = data.rows("train").head(options.batch * 6)
    train = TrainRows(rows["row_id"].tolist(), rows["text"].tolist(), rows["gold"].tolist())
    settings = TaskSettings(epochs=1, batch_size=options.batch)
    with torch_threads(options.threads):
        model = build_decision_model(ModelSettings(), seed=0)
        bare = load_backbone("minilm").model.train()
        ids = model.tokenise(train.texts)
        option_ids = model.tokenise(schema.texts())
        plan = plan_steps(
            epochs=1, seed=0, retain_lengths=[len(row) for row in ids], retain_batch=options.batch
        )
        tokens = sum(map(len, ids)) + len(plan) * sum(map(len, option_ids))
        ours, theirs = [], []
        for _ in range(options.rounds + 1):
            began = time.perf_counter()
            train_task(model, train, schema, settings, seed=0)
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            for step in plan:
                bare_step(bare, [ids[i] for i in step.retain] + option_ids)
            theirs.append(time.perf_counter() - began)
    report(
        "training",
        {
            "data": data.name,
            "options": len(schema.ids),
            "rows": len(train),
            "steps": len(plan),
            "tokens": tokens,
            "option_token_share": round(len(plan) * sum(map(len, option_ids)) / tokens, 3),
            "threads": options.threads,
            "ours_tokens_per_s": round(tokens / median(ours[1:])),
            "bare_tokens_per_s": round(tokens / median(theirs[1:])),
            "ratio": round(median([b / a for a, b in zip(ours[1:], theirs[1:], strict=True)]), 3),
            "aim": 0.8,
        },
    )


if __name__ == "__main__":
    main()
