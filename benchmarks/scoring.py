"""Scoring all options of a schema at once against encoding each (utterance, option) pair.

Ours reads the schema once and each utterance once. The baseline runs the same backbone over every pair as a
cross-encoder would, in batches of like length, without any head. Same utterances, timed in turn.

    python benchmarks/scoring.py [--threads 1] [--rounds 3] [--utterances 32]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from common import intent_data, median, report
from vestige.models.backbones import load_backbone, torch_threads
from vestige.models.decision import ModelSettings, build_decision_model
from vestige.models.reading import pad


def score_pairs(model: Any, tokenizer: Any, texts: list[str], options: tuple[str, ...]) -> None:
    """Encode every pair, in order of length, 256 a batch."""
    pairs = [(text, option) for text in texts for option in options]
    ids = sorted(tokenizer([a for a, _ in pairs], [b for _, b in pairs])["input_ids"], key=len)
    with torch.inference_mode():
        for start in range(0, len(ids), 256):
            tokens, mask = pad(ids[start : start + 256], tokenizer.pad_token_id)
            model(input_ids=tokens, attention_mask=mask)


def main() -> None:
    """Measure and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--utterances", type=int, default=32)
    options = parser.parse_args()
    data = intent_data()
    schema = data.schema()
    texts = data.rows("evaluation")["text"].tolist()[
        :: max(1, data.rows("evaluation").shape[0] // options.utterances)
    ]
    texts = texts[: options.utterances]
    with torch_threads(options.threads):
        model = build_decision_model(ModelSettings(), seed=0)
        bare = load_backbone("minilm")
        ours, pairs = [], []
        for _ in range(options.rounds + 1):
            began = time.perf_counter()
            model.predict(texts, schema)
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            score_pairs(bare.model, bare.tokenizer, texts, schema.texts())
            pairs.append(time.perf_counter() - began)
    report(
        "scoring",
        {
            "data": data.name,
            "options": len(schema.ids),
            "utterances": len(texts),
            "threads": options.threads,
            "ours_s": round(median(ours[1:]), 4),
            "pairs_s": round(median(pairs[1:]), 4),
            "ratio": round(median([b / a for a, b in zip(ours[1:], pairs[1:], strict=True)]), 2),
            "aim": 20,
        },
    )


if __name__ == "__main__":
    main()
