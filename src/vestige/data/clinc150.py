"""CLINC150: 150 intents in 10 domains and an out-of-scope option (Larson et al. 2019)."""

from __future__ import annotations

from typing import Any

from vestige.data.assemble import assemble
from vestige.data.descriptions import described, read_descriptions
from vestige.data.files import file_sha256
from vestige.data.intents import DATASETS, Dataset, DatasetSpec, IntentData, Split
from vestige.data.locations import dataset_folder
from vestige.decision.schema import Option
from vestige.errors import InputError
from vestige.readers import read_json

__all__ = ["CLINC150", "OUT_OF_SCOPE", "load_clinc150"]

OUT_OF_SCOPE = "oos"
_NAMES = {OUT_OF_SCOPE: "out_of_scope"}
_PARTS: tuple[tuple[str, Split], ...] = (
    ("train", "train"),
    ("oos_train", "train"),
    ("val", "development"),
    ("oos_val", "development"),
    ("test", "evaluation"),
    ("oos_test", "evaluation"),
)


def load_clinc150(spec: DatasetSpec) -> IntentData:
    """data_full.json; domains.json, where it lies beside it, gives a column `domain` ("" out of scope).

    151 options sorted by id, the out-of-scope option `oos` among them, named `out_of_scope`. Its rows are
    trained like any others. The published splits stand. Raises InputError.
    """
    import pandas as pd

    folder = dataset_folder("clinc150", spec.path, "data_full.json", "clinc/clinc_oos")
    path = folder / "data_full.json"
    stored = read_json(path)
    rows = [row for part, split in _PARTS for row in _rows(str(path), stored, part, split)]
    frame = pd.DataFrame(rows, columns=["row_id", "text", "gold", "split"]).astype(str)
    files = {path.name: file_sha256(path)}
    domains = folder / "domains.json"
    if domains.is_file():
        files[domains.name] = file_sha256(domains)
        frame["domain"] = frame["gold"].map(_domains(str(domains), read_json(domains))).fillna("").astype(str)
    ids = sorted(set(frame["gold"].tolist()))
    options = tuple(Option(option_id, _NAMES.get(option_id, option_id)) for option_id in ids)
    if spec.descriptions is not None:
        options = described(ids, read_descriptions(spec.descriptions), spec.descriptions, _NAMES)
        files["descriptions"] = file_sha256(spec.descriptions)
    return assemble(
        "clinc150",
        frame,
        options=options,
        out_of_scope=OUT_OF_SCOPE,
        row_share=spec.row_share,
        files=files,
    )


def _rows(subject: str, stored: Any, part: str, split: Split) -> list[tuple[str, str, str, str]]:
    pairs = stored.get(part) if isinstance(stored, dict) else None
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(cell, str) for cell in pair)
        for pair in pairs
    ):
        raise InputError(
            f"{subject}, key '{part}'", "another value", "a list of [text, label]", "restore the file"
        )
    return [(f"{part}-{row:05d}", text, label.strip(), split) for row, (text, label) in enumerate(pairs)]


def _domains(subject: str, stored: Any) -> dict[str, str]:
    if not isinstance(stored, dict) or not all(isinstance(labels, list) for labels in stored.values()):
        raise InputError(subject, "another value", "an object from domain to labels", "restore the file")
    return {label: domain for domain, labels in stored.items() for label in labels}


CLINC150 = DATASETS.register(
    Dataset(
        name="clinc150",
        title="CLINC150: 150 intents in 10 domains, and out of scope",
        source="Larson et al. 2019, An Evaluation Dataset for Intent Classification",
        licence="CC BY 3.0",
        settings=frozenset({"path", "row_share", "descriptions"}),
        load=load_clinc150,
    )
)
