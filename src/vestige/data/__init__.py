"""Data sets of utterances and their options. No torch."""

from vestige.data.assemble import assemble
from vestige.data.intents import DATASETS, DataReport, Dataset, DatasetSpec, IntentData, Split, load_intents

__all__ = [
    "DATASETS",
    "DataReport",
    "Dataset",
    "DatasetSpec",
    "IntentData",
    "Split",
    "assemble",
    "load_intents",
]
