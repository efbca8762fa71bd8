"""BANKING77: 77 intents of one bank's customers (Casanueva et al. 2020)."""

from __future__ import annotations

from typing import cast

from vestige.data.assemble import assemble
from vestige.data.descriptions import described, read_descriptions
from vestige.data.files import file_sha256
from vestige.data.intents import DATASETS, Dataset, DatasetSpec, IntentData, Split
from vestige.data.locations import dataset_folder
from vestige.data.tables import labelled_rows
from vestige.decision.schema import Option
from vestige.errors import InputError
from vestige.readers import read_json, read_table

__all__ = ["BANKING77", "load_banking77"]

_HUB = "PolyAI/banking77"


def load_banking77(spec: DatasetSpec) -> IntentData:
    """train.csv and test.csv (columns text, category); categories.json beside them, if there, is the schema.

    No development split is published: `development_share` of each intent's training rows is held out by a
    stable hash of the text (ours). Options are sorted by id. Raises InputError.
    """
    import pandas as pd

    folder = dataset_folder("banking77", spec.path, "train.csv", _HUB)
    files = {name: folder / name for name in ("train.csv", "test.csv")}
    sources: tuple[tuple[str, Split], ...] = (("train.csv", "train"), ("test.csv", "evaluation"))
    parts = [
        labelled_rows(
            read_table(files[name]),
            split=split,
            text_column="text",
            label_column="category",
        )
        for name, split in sources
    ]
    categories = folder / "categories.json"
    ids = sorted(set(parts[0]["gold"].tolist()))
    if categories.is_file():
        files["categories.json"] = categories
        listed = read_json(categories)
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise InputError(str(categories), "another value", "a list of intent names", "restore the file")
        ids = sorted(set(cast(list[str], listed)))
    options = tuple(Option(option_id, option_id) for option_id in ids)
    hashes = {name: file_sha256(path) for name, path in files.items()}
    if spec.descriptions is not None:
        options = described(ids, read_descriptions(spec.descriptions), spec.descriptions)
        hashes["descriptions"] = file_sha256(spec.descriptions)
    return assemble(
        "banking77",
        pd.concat(parts, ignore_index=True),
        options=options,
        development_share=spec.development_share,
        row_share=spec.row_share,
        files=hashes,
    )


BANKING77 = DATASETS.register(
    Dataset(
        name="banking77",
        title="BANKING77: 77 intents of bank customers",
        source="Casanueva et al. 2020, Efficient Intent Detection with Dual Sentence Encoders",
        licence="CC BY 4.0",
        settings=frozenset({"path", "development_share", "row_share", "descriptions"}),
        load=load_banking77,
    )
)
