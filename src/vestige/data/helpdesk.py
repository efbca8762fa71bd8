"""The embedded data set: what customers write to the helpdesk of a made-up maker of home devices."""

from __future__ import annotations

from vestige.data.assemble import assemble
from vestige.data.helpdesk_grammar import load_grammar, utterances
from vestige.data.intents import DATASETS, Dataset, IntentData
from vestige.decision.schema import Option

__all__ = ["helpdesk"]

NAME = "helpdesk"


def helpdesk(row_share: float = 1.0) -> IntentData:
    """18 intents in 4 domains with near neighbours, 90 utterances each; the same rows everywhere.

    Further columns: customer_id ("1" to "48"), domain, template (the sentence pattern; 52 % of the evaluation
    rows come from patterns that no training row uses). row_share: share of each intent's training rows kept.
    """
    import pandas as pd

    grammar = load_grammar()
    rows = utterances()
    frame = pd.DataFrame(
        {
            "row_id": [f"{NAME}-{number:04d}" for number in range(1, len(rows) + 1)],
            "text": [row.text for row in rows],
            "gold": [row.intent for row in rows],
            "split": [row.split for row in rows],
            "customer_id": [row.customer_id for row in rows],
            "domain": [row.domain for row in rows],
            "template": [row.template for row in rows],
        }
    )
    options = tuple(Option(intent.id, intent.name, intent.description) for intent in grammar.intents)
    return assemble(
        NAME, frame, options=options, row_share=row_share, files={"helpdesk.yaml": grammar.sha256}
    )


DATASETS.register(
    Dataset(
        name=NAME,
        title="Helpdesk of a made-up maker of home devices",
        source="embedded: written for vestige, generated from a grammar",
        licence="Apache-2.0",
        settings=frozenset({"row_share"}),
        load=lambda spec: helpdesk(row_share=spec.row_share),
    )
)
