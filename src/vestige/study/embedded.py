"""Sentence vectors of every row, made once a run folder, and the clusters made from them. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vestige.contracts import Floats
from vestige.deletion.clusters import Clustering, Embed, cluster_intents, unit_vectors
from vestige.errors import InputError
from vestige.seeds import digest
from vestige.study.cells import Node, Setting
from vestige.study.jobs import Job
from vestige.study.store import Store

__all__ = ["CLUSTERS", "VECTORS", "EmbedWork", "clusters_of", "embeddings_node", "stored_embed", "vectors_of"]

VECTORS = "vectors.parquet"
"""Columns row_id (sorted) and vector (float32, length 1) of every row of the data set, all splits."""
CLUSTERS = "clusters.json"
_CHUNK = 1024
_COST = 0.2


@dataclass(frozen=True)
class EmbedWork:
    """Embed the text of every row with the frozen sentence encoder."""

    def do(self, job: Job) -> tuple[dict[str, Any], int]:
        """Write `vectors.parquet`. Equal texts get equal vectors."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        texts = sorted(set(job.setting.texts.values()), key=lambda text: (len(text), text))
        parts = []
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            parts.append(unit_vectors(job.setting.backend.embed(chunk)).astype(np.float32))
            job.progress(start + len(chunk), len(texts))
        vectors = np.concatenate(parts)
        place = {text: row for row, text in enumerate(texts)}
        row_ids = sorted(job.setting.texts)
        ordered = np.ascontiguousarray(vectors[[place[job.setting.texts[row]] for row in row_ids]])
        width = ordered.shape[1]
        column = pa.FixedSizeListArray.from_arrays(pa.array(ordered.ravel()), width)
        table = pa.table({"row_id": pa.array(row_ids, pa.string()), "vector": column})
        pq.write_table(table, job.folder / VECTORS, compression="zstd")
        return {"rows": len(row_ids), "texts": len(texts), "width": width}, len(row_ids)


def embeddings_node(setting: Setting) -> Node:
    """The vectors of a data set: they depend on its texts and on the encoder, not on the model under test."""
    row_ids = sorted(setting.texts)
    return Node(
        kind="embeddings",
        label="sentence vectors of every row",
        identity={
            "data": setting.data.sha256,
            "encoder": setting.backend.encoder(),
            "rows": digest(*row_ids),
        },
        work=EmbedWork(),
        cost=len(row_ids) * _COST,
    )


def vectors_of(path: Path) -> dict[str, Floats]:
    """Row id -> (d,) float64 unit vector, from a `vectors.parquet`. Raises InputError: another file."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    if table.column_names != ["row_id", "vector"]:
        raise InputError(
            str(path), f"columns {', '.join(table.column_names)}", "row_id and vector", "run the study again"
        )
    flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    vectors = flat.reshape(table.num_rows, -1).astype(np.float64)
    return dict(zip(table["row_id"].to_pylist(), vectors, strict=True))


def stored_embed(setting: Setting, store: Store) -> Embed:
    """Texts of the data -> their stored vectors. The node must be finished; its file is hashed first."""
    node = embeddings_node(setting)
    place = store.node(node.kind, node.key)
    place.verified()
    by_row = vectors_of(place.path / VECTORS)
    by_text = {setting.texts[row]: vector for row, vector in by_row.items()}

    def embed(texts: Sequence[str]) -> Floats:
        return np.array([by_text[text] for text in texts])

    return embed


def clusters_of(setting: Setting, store: Store) -> Clustering:
    """The sub-intents of the data set, kept in clusters.json; they never change afterwards.

    Those of a source of parts are taken where data and encoder are equal. Raises InputError when the folder
    holds other clusters.
    """
    wanted = setting.data.sha256, str(embeddings_node(setting).identity["encoder"])
    if store.has(CLUSTERS):
        kept = store.read(CLUSTERS, Clustering)
        if (kept.data_sha256, kept.encoder) == wanted:
            return kept
    for place in map(Store, store.sources):
        if place.intact(CLUSTERS):
            made = place.read(CLUSTERS, Clustering)
            if (made.data_sha256, made.encoder) == wanted:
                break
    else:
        made = cluster_intents(setting.data, stored_embed(setting, store), wanted[1])
    store.write_once(CLUSTERS, made.model_dump(mode="json"), "clustering")
    return made
