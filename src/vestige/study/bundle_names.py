"""Where one bundle label stands for different rows: eligibility depends on the model. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from vestige.deletion.requests import DeletionRequest, request_from_json
from vestige.study.frozen import Frozen

__all__ = ["differing_bundles", "renamed"]


def differing_bundles(folders: Mapping[str, Path]) -> tuple[str, ...]:
    """A sentence for each bundle label whose requests differ between run folders.

    folders: name to show -> run folder. Results are to be grouped by the request's hash, never by the label.
    Raises InputError for a damaged request.
    """
    found: dict[tuple[str, str, str], dict[str, tuple[DeletionRequest, list[str]]]] = {}
    for name, root in folders.items():
        for path in sorted(Path(root).glob("requests/*.json")):
            request = request_from_json(path.read_text(encoding="utf-8"), str(path))
            key = request.dataset, request.granularity, request.bundle
            found.setdefault(key, {}).setdefault(request.sha256, (request, []))[1].append(name)
    sentences = []
    for (dataset, granularity, bundle), by_hash in sorted(found.items()):
        if len(by_hash) > 1:
            parts = [
                f"{len(request.row_ids):,} rows ({sha[:8]}) in {', '.join(names)}"
                for sha, (request, names) in by_hash.items()
            ]
            sentences.append(
                f"Bundle {bundle} of {dataset}, {granularity} deletion, stands for different rows: "
                f"{'; '.join(parts)}. Compare results by the hash, not by the label."
            )
    return tuple(sentences)


def renamed(request: DeletionRequest, data_sha256: str, records: Iterable[Frozen | None]) -> tuple[str, ...]:
    """What to say of a request whose label stands for other units where its settings were frozen.

    Only records of the same data and granularity are compared.
    """
    for record in records:
        if record is None or record.data != data_sha256:
            continue
        if record.development.get("granularity") != request.granularity:
            continue
        there = record.bundles.get(request.bundle)
        if there not in (None, request.units_sha256):
            return (
                f"Bundle {request.bundle} holds other units here ({request.units_sha256[:8]}) than in the "
                f"study '{record.study}' that settings were frozen in ({str(there)[:8]}): eligibility "
                "depends on the model. Compare results by the hash, not by the label.",
            )
    return ()
