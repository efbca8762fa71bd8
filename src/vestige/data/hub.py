"""The data set "hub": any data set of the Hugging Face hub with text and label columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from vestige.data.assemble import assemble
from vestige.data.descriptions import described, read_descriptions
from vestige.data.files import as_text, file_sha256, need_columns
from vestige.data.intents import DATASETS, Dataset, DatasetSpec, IntentData, Split
from vestige.data.tables import labelled_rows
from vestige.errors import InputError, MissingDependency, first_five

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["HUB", "load_hub"]

_DEFAULTS: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "development": ("validation", "dev", "development", "val"),
    "evaluation": ("test", "evaluation"),
}


def load_hub(spec: DatasetSpec) -> IntentData:
    """A data set by hub id, through `datasets`. Integer labels become their names where the hub has them.

    train, development, evaluation name its splits (default: train, validation, test); those it lacks are held
    out of the training rows by hash. No code of the hub is run. Raises InputError in one line when it cannot
    be had (offline, unknown, gated, another layout) and MissingDependency without `datasets`.
    """
    import pandas as pd

    if spec.hub_id is None:
        raise InputError("data set 'hub'", "no hub_id", "a hub id such as 'clinc/clinc_oos'", "set hub_id")
    stored = _fetch(spec, spec.hub_id)
    parts = []
    for split, source in _splits(spec, spec.hub_id, list(stored)).items():
        parts.append(
            labelled_rows(
                f"hub data set '{spec.hub_id}', split '{source}'",
                _table(spec, source, stored[source]),
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


def _fetch(spec: DatasetSpec, hub_id: str) -> Any:
    """The hub's splits by name."""
    try:
        import datasets
    except ImportError:
        raise MissingDependency("datasets", "train", f"hub data set '{hub_id}'") from None
    try:
        return datasets.load_dataset(hub_id, spec.hub_config, revision=spec.revision)
    except Exception as error:  # the hub client raises many unrelated types; each means: it cannot be had
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise InputError(
            f"hub data set '{hub_id}'",
            f"{type(error).__name__}: {reason[:300]}",
            "a data set that can be reached and read without running its code",
            "check the id and the connection, or download it and use the data set 'files'",
        ) from error


def _splits(spec: DatasetSpec, hub_id: str, found: list[str]) -> dict[Split, str]:
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


def _table(spec: DatasetSpec, source: str, stored: Any) -> pd.DataFrame:
    """One split as a table of strings."""
    import pandas as pd

    need_columns(
        f"hub data set '{spec.hub_id}', split '{source}'",
        list(stored.column_names),
        [spec.text_column, spec.label_column],
    )
    names: list[str] | None = getattr(stored.features[spec.label_column], "names", None)
    columns = {
        column: [
            names[value]
            if names and column == spec.label_column and isinstance(value, int)
            else as_text(value)
            for value in stored[column]
        ]
        for column in stored.column_names
    }
    return pd.DataFrame(columns).astype(str)


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
