"""The data set "hub": any data set of the Hugging Face hub with text and label columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from vestige.data.assemble import assemble
from vestige.data.descriptions import described, read_descriptions
from vestige.data.files import file_sha256
from vestige.data.hub_tables import hub_tables
from vestige.data.intents import DATASETS, Dataset, DatasetSpec, IntentData, Split
from vestige.data.tables import labelled_rows
from vestige.errors import InputError, first_five

__all__ = ["HUB", "load_hub"]

_DEFAULTS: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "development": ("validation", "dev", "development", "val"),
    "evaluation": ("test", "evaluation"),
}


def load_hub(spec: DatasetSpec) -> IntentData:
    """A data set by hub id. Labels stored as places in a list of names become the names.

    train, development, evaluation name its splits (default: train, validation, test); those it lacks are held
    out of the training rows by hash. No code of the hub is run. Raises InputError in one line when it cannot
    be had (offline, unknown, gated, another layout) and MissingDependency without `datasets`.
    """
    import pandas as pd

    if spec.hub_id is None:
        raise InputError("data set 'hub'", "no hub_id", "a hub id such as 'clinc/clinc_oos'", "set hub_id")
    stored = hub_tables(spec.hub_id, spec.hub_config, spec.revision, f"hub data set '{spec.hub_id}'")
    parts = []
    for split, source in _splits(spec, spec.hub_id, stored.splits).items():
        parts.append(
            labelled_rows(
                stored.table(source),
                split=split,
                text_column=spec.text_column,
                label_column=spec.label_column,
                row_id_column=spec.row_id_column,
            )
        )
    frame = pd.concat(parts, ignore_index=True).fillna("")
    options, files = None, {}
    if spec.descriptions is not None:
        found = read_descriptions(spec.descriptions)
        options = described(list(found), found, spec.descriptions)
        files["descriptions"] = file_sha256(spec.descriptions)
    return assemble(
        spec.hub_id,
        frame,
        options=options,
        out_of_scope=spec.out_of_scope,
        development_share=spec.development_share,
        evaluation_share=spec.evaluation_share,
        row_share=spec.row_share,
        files=files,
    )


def _splits(spec: DatasetSpec, hub_id: str, found: Sequence[str]) -> dict[Split, str]:
    """The source split of each of ours that the hub has."""
    chosen: dict[Split, str] = {}
    for split in get_args(Split):
        named: str | None = getattr(spec, split)
        if named is not None and named not in found:
            raise InputError(
                f"hub data set '{hub_id}', setting '{split}'",
                f"no split '{named}'",
                f"one of {first_five(found)}",
                "name one of its splits",
            )
        source = named or next((name for name in _DEFAULTS[split] if name in found), None)
        if source is not None:
            chosen[split] = source
    if "train" not in chosen:
        raise InputError(
            f"hub data set '{hub_id}'", f"splits {first_five(found)}", "a split of training rows", "set train"
        )
    return chosen


HUB = DATASETS.register(
    Dataset(
        name="hub",
        title="Any data set of the Hugging Face hub with text and label columns",
        source="the hub id",
        licence="as its card says",
        settings=frozenset(
            {
                "hub_id",
                "hub_config",
                "revision",
                "text_column",
                "label_column",
                "row_id_column",
                "train",
                "development",
                "evaluation",
                "development_share",
                "evaluation_share",
                "row_share",
                "descriptions",
                "out_of_scope",
            }
        ),
        load=load_hub,
    )
)
