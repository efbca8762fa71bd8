"""The views F, G and R on which models are compared after a deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from vestige.data.intents import IntentData
from vestige.deletion.clusters import Clustering, Embed, unit_vectors
from vestige.deletion.requests import DeletionRequest
from vestige.errors import InputError, did_you_mean, first_five, shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Embed", "build_views", "nearest_training_rows"]

_BLOCK = 512  # rows compared at once, so that memory stays at 512 x training rows


def build_views(
    data: IntentData,
    request: DeletionRequest,
    *,
    split: Literal["evaluation", "development"] = "evaluation",
    embed: Embed | None = None,
    supplied_g: Iterable[str] | Mapping[str, str] | None = None,
    clusters: Clustering | None = None,
) -> pd.DataFrame:
    """Columns row_id, view ("F", "G", "R") and unit, sorted by view and row_id; each row in one view.

    F: the deleted training rows with their units. G: rows of `split` that the deletion should reach but that
    no model was trained on: class deletion, those of the classes; association, those of the parent that lie
    nearest to a deleted cluster of `clusters`; example and custom deletion, those whose nearest training row
    by the cosine of `embed` is deleted, with its unit; custom deletion also `supplied_g` instead: row ids, or
    row id -> unit. R: all other rows of `split`, out-of-scope rows among them; their unit is their gold
    option. Supplied ids without units take the request's only unit, else their own value of its column where
    that is one of its units, else their own row id. Raises InputError: a request of other data or of other
    clusters, an empty view, neither or both of embed and supplied_g. Decision-unlearning specification,
    section 3.
    """
    import pandas as pd

    if split not in ("evaluation", "development"):
        raise InputError(
            "views",
            f"split {shown(split)}",
            "evaluation or development",
            "F is made of training rows already",
        )
    if request.data_sha256 != data.sha256:
        raise InputError(
            f"bundle {request.bundle}",
            f"a request made on other data ({request.dataset}, {request.data_sha256[:12]})",
            f"the data it was made on; this is {data.name}, {data.sha256[:12]}",
            "load the data with the same settings, or make the request anew",
        )
    rows = data.rows(split)
    if supplied_g is not None and request.granularity != "custom":
        raise InputError(
            "views",
            f"supplied G rows with {request.granularity} deletion",
            "custom deletion",
            "leave supplied_g out",
        )
    if request.granularity == "class":
        chosen = rows[rows["gold"].isin(list(request.units))]
        unseen = dict(zip(chosen["row_id"].tolist(), chosen["gold"].tolist(), strict=True))
    elif request.granularity == "association":
        unseen = _nearest_clusters(request, split, clusters)
    elif (embed is None) == (supplied_g is None):
        raise InputError(
            f"views of {request.granularity} deletion",
            "neither a sentence encoder nor rows for G"
            if embed is None
            else "both an encoder and rows for G",
            "one of them",
            "pass embed, or name the unseen rows with supplied_g",
        )
    elif supplied_g is not None:
        unseen = _supplied(data, request, rows, supplied_g, split)
    else:
        assert embed is not None
        nearest = nearest_training_rows(data, rows, embed)
        unseen = {
            row_id: request.unit_of[near]
            for row_id, gold, near in zip(rows["row_id"], rows["gold"], nearest, strict=True)
            if near in request.unit_of and gold != data.out_of_scope
        }
    rest = rows[~rows["row_id"].isin(list(unseen))]
    views = [
        *((row_id, "F", request.unit_of[row_id]) for row_id in request.row_ids),
        *((row_id, "G", unseen[row_id]) for row_id in sorted(unseen)),
        *((row_id, "R", gold) for row_id, gold in zip(rest["row_id"], rest["gold"], strict=True)),
    ]
    frame = pd.DataFrame(views, columns=["row_id", "view", "unit"]).astype(str)
    _refuse_empty(frame, request, split)
    return frame


def nearest_training_rows(data: IntentData, rows: pd.DataFrame, embed: Embed) -> list[str]:
    """For each of `rows` the id of the training row with the largest cosine, ties to the smallest id.

    Copies of one text share one vector, so that a tie between them is exact.
    """
    train = data.rows("train")
    texts = sorted(set(train["text"].tolist()) | set(rows["text"].tolist()))
    vectors = unit_vectors(embed(texts))
    if len(vectors) != len(texts):
        raise ValueError(f"embed must give ({len(texts)}, d) finite vectors, found shape {vectors.shape}")
    place = {text: row for row, text in enumerate(texts)}
    first: dict[int, str] = {}
    for text, row_id in zip(train["text"], train["row_id"], strict=True):
        first.setdefault(place[text], row_id)  # training rows are sorted by id
    candidates = np.array(list(first), dtype=np.int64)
    ids = list(first.values())
    wanted = vectors[[place[text] for text in rows["text"]]]
    nearest: list[str] = []
    for start in range(0, len(wanted), _BLOCK):
        cosine = np.round(wanted[start : start + _BLOCK] @ vectors[candidates].T, 9)
        nearest += [ids[column] for column in cosine.argmax(axis=1)]
    return nearest


def _nearest_clusters(request: DeletionRequest, split: str, clusters: Clustering | None) -> dict[str, str]:
    """Row id -> deleted cluster of the rows of `split` that lie nearest to it inside its parent."""
    if clusters is None or clusters.sha256 != request.clusters_sha256:
        raise InputError(
            f"views of bundle {request.bundle}",
            "no clusters" if clusters is None else "clusters of another request",
            "the clusters that the request was made from",
            "pass the clustering with it, or make the request anew",
        )
    of = clusters.units("evaluation" if split == "evaluation" else "development")
    deleted = set(request.units)
    return {row: unit for row, unit in of.items() if unit in deleted}


def _supplied(
    data: IntentData,
    request: DeletionRequest,
    rows: pd.DataFrame,
    supplied: Iterable[str] | Mapping[str, str],
    split: str,
) -> dict[str, str]:
    """Row id -> unit of the rows that a user named."""
    units: Mapping[str, str] = supplied if isinstance(supplied, Mapping) else {}
    row_ids = list(supplied)
    known = set(rows["row_id"].tolist())
    if unknown := [row_id for row_id in row_ids if row_id not in known]:
        raise InputError(
            f"supplied G rows {first_five(unknown)}",
            f"no rows of the {split} split",
            f"row ids of the {split} split",
            "correct or remove them",
        )
    if len(set(row_ids)) != len(row_ids):
        raise InputError("supplied G rows", "row ids more than once", "each once", "remove copies")
    if wrong := sorted(set(units.values()) - set(request.units)):
        raise InputError(
            f"supplied G rows, unit {shown(wrong[0])}",
            "no unit of the request",
            f"one of its {len(request.units)} units",
            did_you_mean(wrong[0], request.units) if len(request.units) <= 50 else "correct it",
        )
    chosen = rows[rows["row_id"].isin(row_ids)]
    if (chosen["gold"] == data.out_of_scope).any():
        raise InputError(
            "supplied G rows",
            "out-of-scope rows",
            "rows of intents: out-of-scope rows belong to R",
            "remove them",
        )
    own = chosen[request.column] if request.column in chosen.columns else chosen["row_id"]
    found = dict(units)
    for row_id, value in zip(chosen["row_id"], own, strict=True):
        if len(request.units) == 1:
            found.setdefault(row_id, request.units[0])
        else:
            found.setdefault(row_id, value if value in request.units else row_id)
    return found


def _refuse_empty(frame: pd.DataFrame, request: DeletionRequest, split: str) -> None:
    present = set(frame["view"].tolist())
    for view, remedy in (
        ("G", "name unseen rows with g_rows" if request.granularity == "custom" else f"add {split} rows"),
        ("R", "delete fewer units"),
    ):
        if view not in present:
            raise InputError(
                f"view {view} of bundle {request.bundle}", f"no {split} rows", "at least one", remedy
            )
