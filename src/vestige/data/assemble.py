"""From labelled rows to a data set: splits by hash, duplicates that straddle splits, the report."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast, get_args

from vestige.data.intents import Conflicts, DataReport, Drop, IntentData, Split, SplitCount
from vestige.decision.schema import Option
from vestige.errors import InputError, did_you_mean, first_five, shown
from vestige.seeds import digest

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LONGEST_LABEL", "assemble", "hash_share", "text_key", "text_sha256"]

LONGEST_LABEL = 1000
"""Characters. A longer label is a column taken for labels by mistake; long explanations are descriptions."""

_OUT = "left out"
_PRECEDENCE: tuple[Split, ...] = ("evaluation", "development", "train")


def text_key(text: str) -> str:
    """What makes two texts copies of each other: stripped and casefolded."""
    return text.strip().casefold()


def text_sha256(text: str) -> str:
    """sha256 in hexadecimal of `text_key(text)`."""
    return hashlib.sha256(text_key(text).encode()).hexdigest()


def assemble(
    name: str,
    frame: pd.DataFrame,
    *,
    options: Sequence[Option] | None = None,
    out_of_scope: str | None = None,
    development_share: float | None = None,
    evaluation_share: float | None = None,
    row_share: float = 1.0,
    files: Mapping[str, str] | None = None,
) -> IntentData:
    """A checked data set from rows with string columns row_id, text, gold and split, and any others.

    Where copies of one text (strip, casefold) lie in more than one split, the evaluation copy is kept, then
    the development copy, and the others are left out and reported; copies within one split stay. Then
    `evaluation_share` and `development_share` of every option's training texts are held out when that split
    has no rows (None: the rows must be there): those of the smallest `text_sha256`, copies together, at least
    one left in training. Then `row_share` of each option's training rows is kept by another hash of the text,
    at least one.

    options: the schema; None: the labels of the training rows, sorted. Raises InputError for repeated row
    ids, blank texts or labels, a label outside the options, an option without training rows, an empty split.
    """
    frame = frame.sort_values("row_id", kind="stable").reset_index(drop=True)
    _check_rows(name, frame)
    read = {split: int((frame["split"] == split).sum()) for split in get_args(Split)}
    hashes = [text_sha256(text) for text in frame["text"].tolist()]
    conflicting = _conflicts(frame["gold"].tolist(), hashes)

    dropped: dict[str, str] = {}
    split = frame["split"].tolist()
    _drop_straddling(frame["row_id"].tolist(), hashes, split, dropped)
    for part, share in (("evaluation", evaluation_share), ("development", development_share)):
        if share is not None and part not in split:
            _hold_out(frame["gold"].tolist(), hashes, split, cast(Split, part), share)
    if row_share < 1:
        _keep_share(frame, hashes, split, dropped, row_share)
    frame["split"] = split

    repeated = {part: _repeated(hashes, split, part) for part in get_args(Split)}
    frame = frame[frame["split"] != _OUT].reset_index(drop=True)
    columns = ["row_id", "text", "gold", "split"]
    frame = frame[columns + [column for column in frame.columns if column not in columns]]
    schema = _options(name, frame, options)
    if out_of_scope is not None and out_of_scope not in {option.id for option in schema}:
        raise InputError(
            f"data set '{name}'",
            f"out-of-scope label {shown(out_of_scope)} that no row has",
            "one of the labels",
            did_you_mean(out_of_scope, [option.id for option in schema]),
        )
    report = DataReport(
        name=name,
        read=read,
        splits=tuple(_count(frame, part, out_of_scope) for part in get_args(Split)),
        dropped=_drops(dropped),
        repeated=repeated,
        conflicting=conflicting,
        files=dict(sorted((files or {}).items())),
    )
    return IntentData(
        name=name,
        frame=frame,
        options=schema,
        report=report,
        sha256=_identity(frame, schema, out_of_scope),
        out_of_scope=out_of_scope,
        dropped=dropped,
    )


def hash_share(hashes: Iterable[str], share: float) -> set[str]:
    """The smallest `share` (rounded half up, never all) of the distinct `hashes`."""
    ordered = sorted(set(hashes))
    return set(ordered[: min(int(share * len(ordered) + 0.5), len(ordered) - 1)])


def _check_rows(name: str, frame: pd.DataFrame) -> None:
    subject = f"data set '{name}'"
    counts = Counter(frame["row_id"].tolist())
    if twice := [row_id for row_id, count in counts.items() if count > 1]:
        raise InputError(
            subject, f"row ids more than once: {first_five(twice)}", "unique row ids", "rename or remove rows"
        )
    for column in ("row_id", "text", "gold"):
        blank = [row for row, value in zip(frame["row_id"], frame[column], strict=True) if not value.strip()]
        if blank:
            raise InputError(
                subject,
                f"blank {column} in rows {first_five(blank)}",
                "a visible character in each",
                "fill in or remove these rows",
            )
    long = [
        row for row, gold in zip(frame["row_id"], frame["gold"], strict=True) if len(gold) > LONGEST_LABEL
    ]
    if long:
        raise InputError(
            subject,
            f"labels longer than {LONGEST_LABEL} characters in rows {first_five(long)}",
            "a short label in each row",
            "name the column of labels with label_column, and put explanations in a descriptions file",
        )
    if bad := sorted(set(frame["split"].tolist()) - set(get_args(Split))):
        raise InputError(subject, f"split {shown(bad[0])}", ", ".join(get_args(Split)), "rename the split")


def _conflicts(golds: list[str], hashes: list[str]) -> Conflicts:
    labels: dict[str, set[str]] = defaultdict(set)
    for gold, sha in zip(golds, hashes, strict=True):
        labels[sha].add(gold)
    several = {sha for sha, found in labels.items() if len(found) > 1}
    return Conflicts(
        texts=len(several), rows=sum(sha in several for sha in hashes), sha256=tuple(sorted(several))
    )


def _drop_straddling(
    row_ids: list[str], hashes: list[str], split: list[str], dropped: dict[str, str]
) -> None:
    """Leave out the copies whose text is also in a split of higher precedence."""
    holder: dict[str, str] = {}
    for part in _PRECEDENCE:
        for sha, own in zip(hashes, split, strict=True):
            if own == part:
                holder.setdefault(sha, part)
    for position, (row_id, sha) in enumerate(zip(row_ids, hashes, strict=True)):
        if holder[sha] != split[position]:
            dropped[row_id] = f"{split[position]} copy of a text in {holder[sha]}"
            split[position] = _OUT


def _hold_out(golds: list[str], hashes: list[str], split: list[str], part: Split, share: float) -> None:
    """Move a stratified share of the training texts to `part`; copies of one text move together."""
    first: dict[str, str] = {}
    for gold, sha, own in zip(golds, hashes, split, strict=True):
        if own == "train":
            first.setdefault(sha, gold)
    members: dict[str, list[str]] = defaultdict(list)
    for sha, gold in first.items():
        members[gold].append(sha)
    chosen = set().union(*(hash_share(found, share) for found in members.values()))
    for position, sha in enumerate(hashes):
        if split[position] == "train" and sha in chosen:
            split[position] = part


def _keep_share(
    frame: pd.DataFrame, hashes: list[str], split: list[str], dropped: dict[str, str], share: float
) -> None:
    """Leave out training rows beyond `share` of each option's, by a hash unrelated to the split's."""
    members: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for position, (gold, row_id) in enumerate(zip(frame["gold"], frame["row_id"], strict=True)):
        if split[position] == "train":
            members[gold].append((digest("row share", hashes[position]), row_id, position))
    for rows in members.values():
        for _, row_id, position in sorted(rows)[max(1, int(share * len(rows) + 0.5)) :]:
            dropped[row_id] = "training row beyond row_share"
            split[position] = _OUT


def _options(name: str, frame: pd.DataFrame, options: Sequence[Option] | None) -> tuple[Option, ...]:
    """The options, each with training rows; every label one of them; no split empty."""
    train = frame[frame["split"] == "train"]
    counts = Counter(train["gold"].tolist())
    schema = tuple(options) if options is not None else tuple(Option(gold, gold) for gold in sorted(counts))
    known = [option.id for option in schema]
    outside = frame[~frame["gold"].isin(known)]
    if len(outside):
        row = outside.iloc[0]
        raise InputError(
            f"data set '{name}', row {shown(row['row_id'])}",
            f"label {shown(row['gold'])} outside the schema ({len(outside)} such rows)",
            "a label of the option list" if options is not None else "a label that training rows have",
            did_you_mean(row["gold"], known) if len(known) <= 200 else "correct or remove these rows",
        )
    if empty := [option_id for option_id in known if not counts[option_id]]:
        raise InputError(
            f"data set '{name}'",
            f"no training rows of {len(empty)} options: {first_five(empty)}",
            "at least one training row of each option",
            "add rows or take the options out",
        )
    for part in get_args(Split):
        if not (frame["split"] == part).any():
            raise InputError(
                f"data set '{name}'", f"no {part} rows", "at least one", f"add a file or a share for {part}"
            )
    return schema


def _count(frame: pd.DataFrame, split: Split, out_of_scope: str | None) -> SplitCount:
    gold = frame.loc[frame["split"] == split, "gold"]
    return SplitCount(
        split=split,
        rows=len(gold),
        options=int(gold.nunique()),
        out_of_scope=int((gold == out_of_scope).sum()) if out_of_scope is not None else 0,
    )


def _drops(dropped: Mapping[str, str]) -> tuple[Drop, ...]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for row_id, reason in dropped.items():
        reasons[reason].append(row_id)
    return tuple(
        Drop(reason=reason, rows=len(rows), sha256=digest(*sorted(rows)))
        for reason, rows in sorted(reasons.items())
    )


def _repeated(hashes: list[str], split: list[str], part: str) -> int:
    """Extra copies of a text within one split."""
    own = [sha for sha, found in zip(hashes, split, strict=True) if found == part]
    return len(own) - len(set(own))


def _identity(frame: pd.DataFrame, options: Sequence[Option], out_of_scope: str | None) -> str:
    described = [part for option in options for part in (option.id, option.name, option.description)]
    cells = [
        cell
        for row in zip(*(frame[column] for column in ("row_id", "text", "gold", "split")), strict=True)
        for cell in row
    ]
    return digest("intents-1", out_of_scope, len(options), *described, *cells)
