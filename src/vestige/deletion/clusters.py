"""Sub-intents: k-means clusters of each intent's training rows, and the rows of other splits beside them.

Sentence vectors are given; nothing here loads a model. Decision-unlearning specification, section 3; the way
of clustering is ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vestige.contracts import Floats, Record
from vestige.data.intents import IntentData
from vestige.deletion.bundles import hash_order
from vestige.errors import InputError
from vestige.seeds import digest

__all__ = [
    "CLUSTERS",
    "CLUSTER_SEED",
    "LEAST_DEVELOPMENT_ROWS",
    "LEAST_TRAINING_ROWS",
    "STARTS",
    "Cluster",
    "Clustering",
    "Embed",
    "cluster_intents",
    "kmeans",
    "one_per_parent",
    "parent_of",
    "unit_vectors",
]

CLUSTERS = 3
"""k inside each intent."""
STARTS = 10
CLUSTER_SEED = 0
LEAST_TRAINING_ROWS = 15
LEAST_DEVELOPMENT_ROWS = 8
_MOST_ROUNDS = 300

Embed = Callable[[Sequence[str]], Floats]
"""(n,) texts -> (n, d) vectors; they need not be normalised."""

Labels = NDArray[np.int64]


class Cluster(Record):
    """One sub-intent. unit: `parent#j`, j from 0 by the smallest id of its training rows.

    train, development, evaluation: its row ids, sorted; the training rows made it, the others lie nearest to
    its centroid, the mean of the training rows' unit vectors. centroid_sha256: of that mean's float64 bytes,
    little-endian, the vectors added in order of row id.
    """

    unit: str
    train: tuple[str, ...]
    development: tuple[str, ...]
    evaluation: tuple[str, ...]
    centroid_sha256: str

    @property
    def parent(self) -> str:
        """The intent it is a part of."""
        return parent_of(self.unit)

    @property
    def too_small(self) -> str:
        """Why it has too few rows to be deleted and measured, "" when it has enough."""
        needed = (
            ("training", self.train, LEAST_TRAINING_ROWS),
            ("development", self.development, LEAST_DEVELOPMENT_ROWS),
        )
        return ", ".join(
            f"{len(rows)} {name} rows < {least}" for name, rows, least in needed if len(rows) < least
        )


class Clustering(Record):
    """The clusters of every intent of a data set. encoder: name and hash of what made the vectors.

    left_out: intents that were not clustered, with the reason.
    """

    format: Literal["vestige-clusters-1"] = "vestige-clusters-1"
    data_sha256: str
    encoder: str
    clusters_per_intent: int = CLUSTERS
    starts: int = STARTS
    seed: int = CLUSTER_SEED
    least_training_rows: int = LEAST_TRAINING_ROWS
    least_development_rows: int = LEAST_DEVELOPMENT_ROWS
    clusters: tuple[Cluster, ...]
    left_out: dict[str, str]

    @cached_property
    def sha256(self) -> str:
        """Hash of everything in the record, as JSON with sorted keys and no blanks."""
        value = self.model_dump(mode="json")
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return digest("clusters-1", text)

    def of(self, unit: str) -> Cluster:
        """The cluster of this name. Raises KeyError."""
        for cluster in self.clusters:
            if cluster.unit == unit:
                return cluster
        raise KeyError(unit)

    def units(self, split: Literal["train", "development", "evaluation"]) -> dict[str, str]:
        """Row id -> cluster of the rows of a split; rows of intents left out are missing."""
        return {row: cluster.unit for cluster in self.clusters for row in getattr(cluster, split)}


def parent_of(unit: str) -> str:
    """The intent of a cluster's name: `card#2` -> `card`."""
    return unit.rpartition("#")[0]


def one_per_parent(units: Sequence[str], salt: str) -> tuple[str, ...]:
    """Of each intent the cluster that is first in hash order, in hash order.

    The specification asks for one cluster an intent; that it is the first in hash order is ours.
    """
    kept: dict[str, str] = {}
    for unit in hash_order(units, salt):
        kept.setdefault(parent_of(unit), unit)
    return tuple(kept.values())


def unit_vectors(vectors: Floats) -> Floats:
    """(n, d) -> (n, d) float64, each row over its length. Raises ValueError for a zero or NaN row."""
    given = np.asarray(vectors, dtype=np.float64)
    if given.ndim != 2 or not np.isfinite(given).all():
        raise ValueError(f"embed must give (n, d) finite vectors, found shape {given.shape}")
    norms = np.linalg.norm(given, axis=1, keepdims=True)
    if not (norms > 0).all():
        raise ValueError("embed must give no zero vector")
    return np.asarray(given / norms)


def kmeans(
    points: Floats,
    k: int = CLUSTERS,
    *,
    starts: int = STARTS,
    seed: int = CLUSTER_SEED,
    subject: str = "rows",
) -> Labels:
    """(n, d) points -> (n,) labels in [0, k): Lloyd's rounds from k-means++ seeds, best of `starts`.

    All starts draw from `default_rng(seed)` in turn; the lowest sum of squared distances wins, the earliest
    in a tie. Each returned label is that of the nearest mean, and no cluster is empty. Raises InputError for
    fewer than k distinct points. Arthur and Vassilvitskii 2007.
    """
    distinct = len({point.tobytes() for point in points})
    if distinct < k:
        raise InputError(
            subject,
            f"{distinct} distinct training text{'' if distinct == 1 else 's'}",
            f"at least {k}, one for each cluster",
            "leave this intent whole, or add rows",
        )
    rng = np.random.default_rng(seed)
    best: tuple[float, Labels] | None = None
    for _ in range(starts):
        labels = _lloyd(points, _plus_plus(points, k, rng))
        if labels is None:
            continue
        inertia = float(((points - _means(points, labels, k)[labels]) ** 2).sum())
        if best is None or inertia < best[0] - 1e-12:
            best = inertia, labels
    if best is None:
        raise InputError(
            subject, f"no k-means solution with {k} clusters", "clusters that keep rows", "leave it whole"
        )
    return best[1]


def cluster_intents(data: IntentData, embed: Embed, encoder: str) -> Clustering:
    """Cluster every intent but the out-of-scope option. embed: called once, with the distinct texts.

    Intents with fewer distinct training texts than clusters are left out, with the reason.
    """
    frame = data.frame[data.frame["gold"] != data.out_of_scope]
    texts = sorted(set(frame["text"].tolist()))
    vectors = unit_vectors(embed(texts))
    place = {text: row for row, text in enumerate(texts)}
    found: list[Cluster] = []
    left_out: dict[str, str] = {}
    for option in data.options:
        if option.id == data.out_of_scope:
            continue
        own = frame[frame["gold"] == option.id].sort_values("row_id")
        rows = {
            split: own.loc[own["split"] == split, ["row_id", "text"]]
            for split in ("train", "development", "evaluation")
        }
        points = {split: vectors[[place[text] for text in part["text"]]] for split, part in rows.items()}
        ids = {split: part["row_id"].tolist() for split, part in rows.items()}
        try:
            found += _clusters(option.id, ids, points)
        except InputError as error:
            left_out[option.id] = error.found
    return Clustering(data_sha256=data.sha256, encoder=encoder, clusters=tuple(found), left_out=left_out)


def _clusters(parent: str, ids: dict[str, list[str]], points: dict[str, Floats]) -> list[Cluster]:
    """The clusters of one intent. ids, points: by split, rows sorted by id. Raises InputError."""
    train = points["train"]
    labels = kmeans(train, subject=f"intent '{parent}'")
    order = list(dict.fromkeys(labels.tolist()))
    means = _means(train, labels, CLUSTERS)[order]
    member = {"train": np.array([order.index(label) for label in labels], dtype=np.int64)}
    member |= {split: _nearest(points[split], means) for split in ("development", "evaluation")}
    return [
        Cluster(
            unit=f"{parent}#{j}",
            centroid_sha256=digest(np.ascontiguousarray(means[j]).astype("<f8").tobytes()),
            **{
                split: tuple(row for row, of in zip(ids[split], member[split], strict=True) if of == j)
                for split in member
            },
        )
        for j in range(CLUSTERS)
    ]


def _plus_plus(points: Floats, k: int, rng: np.random.Generator) -> Floats:
    """(k, d) seeds: the first uniformly, each next with chance in proportion to its squared distance."""
    seeds = [points[rng.integers(len(points))]]
    for _ in range(k - 1):
        nearest = np.min([((points - seed) ** 2).sum(axis=1) for seed in seeds], axis=0)
        seeds.append(points[rng.choice(len(points), p=nearest / nearest.sum())])
    return np.array(seeds)


def _lloyd(points: Floats, means: Floats) -> Labels | None:
    """Labels at the fixed point, None where a cluster runs empty or the rounds do not settle."""
    k = len(means)
    labels = _nearest(points, means)
    for _ in range(_MOST_ROUNDS):
        if len(np.unique(labels)) < k:
            return None
        again = _nearest(points, _means(points, labels, k))
        if (again == labels).all():
            return labels
        labels = again
    return None


def _means(points: Floats, labels: Labels, k: int) -> Floats:
    """(k, d) means of the clusters, rows added in their order."""
    return np.array([points[labels == j].mean(axis=0) for j in range(k)])


def _nearest(points: Floats, means: Floats) -> Labels:
    """(n,) label of the mean at the least squared distance, rounded to 12 decimals, ties to the lowest."""
    squared = ((points[:, None, :] - means[None]) ** 2).sum(axis=2)
    return np.asarray(np.round(squared, 12).argmin(axis=1), dtype=np.int64)
