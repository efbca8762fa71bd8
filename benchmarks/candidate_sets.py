"""How much scores depend on the candidate set: slicing stored probabilities against scoring anew.

For every full model and oracle of a run folder: mean base-2 Jensen-Shannon divergence between the full-schema
distribution, sliced to S2 and renormalised, and a new forward pass under S2. Over all rows, and over
those whose gold option is offered. S2 is the forgotten options and as many random retained ones as S1 has
neighbours. A model that scored options one by one would give 0 here.

    python benchmarks/candidate_sets.py RUN_FOLDER [--data PATH] [--threads 1]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from common import report
from vestige.data.intents import load_intents
from vestige.decision.schema import candidate_set
from vestige.deletion.requests import request_from_json
from vestige.metrics.oracle import js2
from vestige.models.backbones import torch_threads
from vestige.models.decision import load_decision_model
from vestige.models.embeddings import sentence_encoder
from vestige.study.plan import Plan


def main() -> None:
    """Measure every full model and oracle and print a JSON line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bundle", default="01")
    options = parser.parse_args()
    plan = Plan.model_validate_json((options.run / "plan.json").read_text(encoding="utf-8"))
    change = {"path": str(options.data)} if options.data else {}
    data = load_intents(plan.dataset.model_copy(update=change))
    schema = data.schema()
    source = options.run / "requests" / f"{options.bundle}.json"
    request = request_from_json(source.read_text(encoding="utf-8"), str(source))
    views = pd.read_csv(options.run / "views" / f"{options.bundle}-evaluation.csv", dtype=str)
    rows = views.merge(data.frame, on="row_id")
    vectors = sentence_encoder().embed(schema.semantic_texts())
    offered = candidate_set("S2", schema, request.forgotten, vectors, seed=0)
    assert isinstance(offered, tuple)
    columns = [schema.index(name) for name in offered]
    for record_file in sorted((options.run / "nodes").glob("*/record.json")):
        record = json.loads(record_file.read_text(encoding="utf-8"))
        if record["kind"] not in ("full", "oracle") or "bundle 00" in record["label"]:
            continue
        with torch_threads(options.threads):
            model = load_decision_model(record_file.parent / "model")
            texts = rows["text"].tolist()
            sliced = model.predict(texts, schema)[:, columns]
            sliced /= sliced.sum(1, keepdims=True)
            anew = model.predict(texts, schema.subset(offered))
        distance = js2(sliced, anew)
        view = rows["view"].to_numpy()
        held = rows["gold"].isin(offered).to_numpy()
        report(
            "candidate_sets",
            {
                "model": record["label"],
                "options": f"{len(schema.ids)} to {len(offered)}",
                "rows": len(texts),
                "mean_js": round(float(distance.mean()), 4),
                "mean_js_gold_offered": round(float(distance[held].mean()), 4),
                **{f"mean_js_{v}": round(float(distance[view == v].mean()), 4) for v in "FGR"},
                "changed_choices": int((np.argmax(sliced, 1) != np.argmax(anew, 1)).sum()),
                "aim": 0.005,
            },
        )


if __name__ == "__main__":
    main()
