"""Deletion requests: which rows go, in units, in bundles drawn by hash order. Hashes identify a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Self, get_args

from pydantic import Field, ValidationError, model_validator

from vestige.contracts import Record
from vestige.data.assemble import text_key
from vestige.data.intents import IntentData
from vestige.deletion.bundles import DEVELOPMENT_BUNDLE, BundlePlan, hash_order, hash_units, plan_bundles
from vestige.deletion.clusters import Clustering, parent_of
from vestige.errors import InputError, did_you_mean, first_five, shown
from vestige.seeds import digest

__all__ = [
    "DEVELOPMENT_BUNDLE",
    "BundlePlan",
    "DeletionRequest",
    "GateException",
    "Granularity",
    "association_request",
    "check_granularity",
    "class_request",
    "custom_request",
    "example_request",
    "hash_order",
    "hash_units",
    "plan_bundles",
    "request_from_json",
    "tuning_rows",
]

Granularity = Literal["class", "association", "example", "custom"]

NO_GATE = "example deletion has no acquisition gate: rows are drawn whatever the full model knows of them"

_NOT_PREDICATES = ("text", "gold", "split")


class GateException(Record):
    """A unit of a request that failed the acquisition gate at a later seed; it stays in the request."""

    seed: int
    unit: str
    accuracy: float | None
    mean_gold_probability: float | None
    reason: str


class DeletionRequest(Record):
    """Rows to delete, with everything needed to say where they came from.

    bundle: a label only. salt, seed: of the hash order and of the model that decided eligibility. column:
    of a custom predicate, "" otherwise. units: as named (class, association) or sorted. unit_of: row id ->
    unit. forgotten: the options of a class deletion, else empty. clusters_sha256: of the clustering that an
    association's units come from, else "". exceptions: later failures of the acquisition gate. notes: what a
    reader should know, no texts, no ids.
    The hashes are checked against the contents whenever a record is made or read.
    """

    format: Literal["vestige-request-1"] = "vestige-request-1"
    dataset: str
    data_sha256: str
    bundle: str = Field(min_length=1)
    granularity: Granularity
    purpose: str = Field(min_length=1)
    salt: str
    seed: int
    column: str = ""
    units: tuple[str, ...] = Field(min_length=1)
    unit_of: dict[str, str] = Field(min_length=1)
    forgotten: tuple[str, ...] = ()
    clusters_sha256: str = ""
    exceptions: tuple[GateException, ...] = ()
    notes: tuple[str, ...] = ()
    units_sha256: str = ""
    rows_sha256: str = ""
    sha256: str = ""

    @model_validator(mode="before")
    @classmethod
    def _fill_hashes(cls, values: object) -> object:
        if not isinstance(values, dict) or not {"units", "unit_of", "granularity"} <= set(values):
            return values
        units, rows = hash_units(values["units"]), digest(*sorted(values["unit_of"]))
        computed = {
            "units_sha256": units,
            "rows_sha256": rows,
            "sha256": digest("request-1", values["granularity"], units, rows),
        }
        for name, value in computed.items():
            if values.get(name) not in (None, "", value):
                raise ValueError(f"{name} does not match the units and row ids")
        return {**values, **computed}

    @model_validator(mode="after")
    def _check_units(self) -> Self:
        if len(set(self.units)) != len(self.units) or set(self.unit_of.values()) != set(self.units):
            raise ValueError("units must be distinct and be exactly the units of the rows")
        return self

    @property
    def row_ids(self) -> tuple[str, ...]:
        """The deleted training rows, sorted."""
        return tuple(sorted(self.unit_of))

    @property
    def parents(self) -> tuple[str, ...]:
        """Options that candidate sets are built around: the classes, or an association's parents, each once.

        Empty for example and custom deletion. They count for candidate sets only: forgotten mass is of
        `forgotten`.
        """
        if self.granularity == "association":
            return tuple(dict.fromkeys(parent_of(unit) for unit in self.units))
        return self.forgotten

    @property
    def unit_kind(self) -> str:
        """What a unit is, for reports: "class", "association", "row" or the column's name."""
        return self.granularity if self.granularity in ("class", "association") else self.column or "row"

    def with_exceptions(self, exceptions: Iterable[GateException]) -> DeletionRequest:
        """The same request with further exceptions; its identity is unchanged."""
        return self.model_copy(update={"exceptions": (*self.exceptions, *exceptions)})


def check_granularity(name: str) -> Granularity:
    """`name` as a granularity. Raises InputError that lists those supported."""
    supported: tuple[Granularity, ...] = get_args(Granularity)
    for known in supported:
        if name == known:
            return known
    listed = f"{', '.join(supported[:-1])} or {supported[-1]}"
    raise InputError("granularity", shown(name), listed, did_you_mean(name, supported))


def class_request(
    data: IntentData, units: Sequence[str], *, bundle: str, purpose: str, salt: str = "", seed: int
) -> DeletionRequest:
    """All training rows of the options `units`. Raises InputError.

    An unknown option, the same one twice, the out-of-scope option, an option without training rows, every
    option: each is refused.
    """
    ids = [option.id for option in data.options]
    if not units:
        raise InputError(f"bundle {bundle}", "no options to delete", "at least one", "name one")
    for unit in units:
        if unit not in ids:
            raise InputError(
                f"option {shown(unit)}",
                "not in the schema",
                f"one of the {len(ids)} options of '{data.name}'",
                did_you_mean(unit, ids) if len(ids) <= 200 else "check the id",
            )
        if list(units).count(unit) > 1:
            raise InputError(f"option {shown(unit)}", "named twice", "each option once", "remove one")
        if unit == data.out_of_scope:
            raise InputError(
                f"option {shown(unit)}",
                "the out-of-scope option",
                "an intent: out-of-scope rows are never deleted",
                "choose another option",
            )
    train = data.rows("train")
    rows = train[train["gold"].isin(list(units))]
    if empty := sorted(set(units) - set(rows["gold"].tolist())):
        raise InputError(
            f"class deletion of {first_five(empty)}",
            "no training rows",
            "at least one training row of each class",
            "choose classes that were trained",
        )
    if len(rows) == len(train):
        raise _nothing_left(f"bundle {bundle}", len(rows))
    return DeletionRequest(
        dataset=data.name,
        data_sha256=data.sha256,
        bundle=bundle,
        granularity="class",
        purpose=purpose,
        salt=salt,
        seed=seed,
        units=tuple(units),
        unit_of=dict(zip(rows["row_id"].tolist(), rows["gold"].tolist(), strict=True)),
        forgotten=tuple(units),
        notes=_notes(data, set(rows["row_id"].tolist()), lost_by_intent=set(units)),
    )


def association_request(
    data: IntentData,
    units: Sequence[str],
    clustering: Clustering,
    *,
    bundle: str,
    purpose: str,
    salt: str = "",
    seed: int,
    size: int | None = None,
) -> DeletionRequest:
    """The training rows of the clusters `units`; the other clusters of their parents stay.

    size: how many a bundle should have, noted where there are fewer. Raises InputError for an unknown
    cluster, one twice, two of one parent, and a clustering of other data.
    """
    place = f"bundle {bundle}"
    if clustering.data_sha256 != data.sha256:
        raise InputError(
            place,
            "clusters of other data",
            f"clusters of '{data.name}'",
            "cluster the same data, split alike",
        )
    known = [cluster.unit for cluster in clustering.clusters]
    for unit in units:
        if unit not in known:
            raise InputError(
                f"cluster {shown(unit)}", "no such cluster", "parent#j", did_you_mean(unit, known)
            )
    if not units:
        raise InputError(place, "no clusters to delete", "at least one", "name one")
    parents = Counter(parent_of(unit) for unit in units)
    if twice := [parent for parent, count in parents.items() if count > 1]:
        raise InputError(
            place, f"two clusters of {shown(twice[0])}", "one cluster of each intent", "remove one of them"
        )
    unit_of = {row: unit for unit in units for row in clustering.of(unit).train}
    notes = list(_notes(data, set(unit_of), lost_by_intent=set()))
    if size is not None and len(units) < size:
        notes.append(f"bundle {bundle} has {len(units)} sub-intents instead of {size}: no more were eligible")
    return DeletionRequest(
        dataset=data.name,
        data_sha256=data.sha256,
        bundle=bundle,
        granularity="association",
        purpose=purpose,
        salt=salt,
        seed=seed,
        units=tuple(units),
        unit_of=unit_of,
        clusters_sha256=clustering.sha256,
        notes=tuple(notes),
    )


def example_request(
    data: IntentData, row_ids: Iterable[str], *, bundle: str, purpose: str, salt: str = "", seed: int
) -> DeletionRequest:
    """Training rows drawn without regard to what they say, each its own unit.

    Raises InputError for an unknown row, a row twice, one outside the training split or of the out-of-scope
    option, and when no row or every row would go.
    """
    made = custom_request(
        data,
        row_ids=row_ids,
        bundle=bundle,
        purpose=purpose,
        salt=salt,
        seed=seed,
        subject=f"bundle {bundle}",
    )
    return DeletionRequest.model_validate(
        {
            **made.model_dump(exclude={"units_sha256", "rows_sha256", "sha256"}),
            "granularity": "example",
            "notes": (*made.notes, NO_GATE),
        }
    )


def custom_request(
    data: IntentData,
    *,
    where: str | Sequence[str] | None = None,
    row_ids: Iterable[str] | None = None,
    bundle: str = "custom",
    purpose: str,
    salt: str = "",
    seed: int,
    subject: str = "custom deletion",
) -> DeletionRequest:
    """Given training rows, or those that a predicate `column=value` picks; several name one column.

    Unit: the column's value, or the row itself for given rows. Exactly one of `where` and `row_ids`. Raises
    InputError for an unknown column or row, a row twice, one outside the training split, one of the
    out-of-scope option, and when no row or every row would go.
    """
    if (where is None) == (row_ids is None):
        raise InputError(
            subject,
            "both a predicate and row ids" if where is not None else "neither a predicate nor row ids",
            "exactly one",
            "give where (column=value) or row_ids",
        )
    if where is not None:
        column, unit_of = _matching(data, (where,) if isinstance(where, str) else tuple(where))
    else:
        column, unit_of = (
            "",
            {row_id: row_id for row_id in _given(data, list(() if row_ids is None else row_ids), subject)},
        )
    train = data.rows("train")
    beyond = train[train["row_id"].isin(list(unit_of)) & (train["gold"] == data.out_of_scope)]
    if len(beyond):
        raise InputError(
            subject,
            f"{len(beyond)} rows of the out-of-scope option",
            "rows of intents: out-of-scope rows are never deleted",
            "leave them out, or load the data without out_of_scope: it is then an option like any other",
        )
    if len(unit_of) == len(train):
        raise _nothing_left(subject, len(train))
    return DeletionRequest(
        dataset=data.name,
        data_sha256=data.sha256,
        bundle=bundle,
        granularity="custom",
        purpose=purpose,
        salt=salt,
        seed=seed,
        column=column,
        units=tuple(sorted(set(unit_of.values()))),
        unit_of=unit_of,
        notes=_notes(data, set(unit_of), lost_by_intent=set()),
    )


def tuning_rows(request: DeletionRequest, share: float = 0.3) -> tuple[str, ...]:
    """The hash-chosen `share` of a request's rows that tuning may read where there is no bundle 00, sorted.

    They must then be left out of the reported F. At least one row, never all; rounded half up. Raises
    InputError for a request of one row. Decision-unlearning specification, section 7.
    """
    ordered = hash_order(request.row_ids, "tuning")
    if len(ordered) < 2:
        raise InputError(
            f"bundle {request.bundle}",
            "one deleted row",
            "at least two to tune on a part",
            "use default settings",
        )
    return tuple(sorted(ordered[: min(max(1, int(share * len(ordered) + 0.5)), len(ordered) - 1)]))


def request_from_json(text: str, subject: str) -> DeletionRequest:
    """A stored request, its hashes checked. subject: the file's name. Raises InputError."""
    try:
        return DeletionRequest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{subject}: {where}" if where else subject,
            first["msg"],
            "a deletion request as it was written",
            "restore the file",
        ) from None


def _matching(data: IntentData, predicates: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Column, and row id -> value, of the training rows that one of the predicates picks."""
    pairs = []
    for predicate in predicates:
        column, equals, value = (part.strip() for part in predicate.partition("="))
        if not (column and equals and value):
            raise InputError(
                "custom deletion",
                f"predicate {shown(predicate)}",
                "column=value",
                "for example customer_id=17",
            )
        pairs.append((column, value))
    columns = {column for column, _ in pairs}
    if len(columns) != 1:
        raise InputError(
            "custom deletion",
            f"predicates on columns {first_five(sorted(columns)) or 'none'}",
            "predicates on one column",
            "make one request for each column",
        )
    column = columns.pop()
    known = [name for name in data.frame.columns if name not in _NOT_PREDICATES]
    if column not in known:
        raise InputError(
            "custom deletion",
            f"column {shown(column)}" + (" (use class deletion)" if column == "gold" else ""),
            f"a further column of '{data.name}'",
            did_you_mean(column, known),
        )
    train = data.rows("train")
    cells = train[column].str.strip()
    for _, value in pairs:
        if not (cells == value).any():
            raise InputError(
                f"custom deletion, {shown(f'{column}={value}')}",
                f"no training row among {len(train)}",
                "at least one",
                "check the value: cells are compared as text",
            )
    chosen = cells.isin([value for _, value in pairs])
    return column, dict(zip(train.loc[chosen, "row_id"].tolist(), cells[chosen].tolist(), strict=True))


def _given(data: IntentData, row_ids: list[str], subject: str) -> list[str]:
    """Row ids checked: known, trained, each once."""
    if not row_ids:
        raise InputError(subject, "no row ids", "at least one", "name rows")
    if len(set(row_ids)) != len(row_ids):
        twice = sorted(row_id for row_id, count in Counter(row_ids).items() if count > 1)
        raise InputError(
            subject, f"row ids more than once: {first_five(twice)}", "each once", "remove copies"
        )
    split: Mapping[str, str] = dict(zip(data.frame["row_id"], data.frame["split"], strict=True))
    for row_id in row_ids:
        if row_id in data.dropped:
            raise InputError(
                f"{subject}, row {shown(row_id)}",
                f"a row left out of the data: {data.dropped[row_id]}",
                "training rows",
                "take it off the list: no model is trained on it",
            )
        if row_id not in split:
            raise InputError(
                f"{subject}, row {shown(row_id)}", "no such row", f"row ids of '{data.name}'", "check the id"
            )
        if split[row_id] != "train":
            raise InputError(
                f"{subject}, row {shown(row_id)}",
                f"a row of the {split[row_id]} split",
                "training rows",
                "take it off the list: no model is trained on it",
            )
    return row_ids


def _notes(data: IntentData, deleted: set[str], lost_by_intent: set[str]) -> tuple[str, ...]:
    """Copies of deleted texts that stay in training, and options that lose all rows without being named."""
    train = data.rows("train")
    gone = train["row_id"].isin(list(deleted))
    keys = train["text"].map(text_key)
    staying = set(keys[~gone])
    copies = int(keys[gone].isin(list(staying)).sum())
    lost = set(train.loc[gone, "gold"]) - set(train.loc[~gone, "gold"]) - lost_by_intent
    notes = []
    if copies:
        notes.append(f"{copies} deleted rows have a copy of their text that stays in training")
    if lost:
        notes.append(f"{len(lost)} options lose all their training rows")
    return tuple(notes)


def _nothing_left(subject: str, rows: int) -> InputError:
    return InputError(
        subject,
        f"all {rows} training rows deleted",
        "rows that stay",
        "delete fewer, or retrain from nothing",
    )
