"""Making one cell of a study anew, elsewhere, and comparing it with what is stored."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.contracts import Record
from vestige.deletion.requests import request_from_json
from vestige.errors import InputError, did_you_mean
from vestige.study.candidates import ALL_OPTIONS, EVERYTHING, Offer
from vestige.study.cells import (
    Node,
    Setting,
    configurations,
    full_node,
    oracle_node,
    predictions_node,
    prepare,
    unlearned_node,
)
from vestige.study.deletions import read_table
from vestige.study.plan import Plan
from vestige.study.pool import Reporter, Silent
from vestige.study.protocol import load_backend
from vestige.study.runner import Execution, cost, frozen_records, team
from vestige.study.store import NodeRecord, Store
from vestige.study.work import load_node_predictions

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["VerifiedPart", "VerifyReport", "verify_cell"]


class VerifiedPart(Record):
    """One model or table of probabilities, stored against made anew. note: how it differs, or a limit."""

    label: str
    kind: str
    same: bool
    note: str = ""


class VerifyReport(Record):
    """One cell made anew. same: every part has the same bytes of weights or probabilities."""

    format: str = "vestige-verify-1"
    cell: str
    parts: tuple[VerifiedPart, ...]

    @property
    def same(self) -> bool:
        """Whether no part differs."""
        return all(part.same for part in self.parts)


def verify_cell(
    root: str | Path,
    cell: str,
    *,
    method: str | None = None,
    execution: Execution | None = None,
    report: Reporter | None = None,
) -> VerifyReport:
    """Train, unlearn and score one cell again in a temporary folder.

    cell: bundle and seed, `01-s17`. method: one label; None: all. Raises InputError: no such cell, data or
    settings that no longer give the stored identities.
    """
    execution = execution or Execution()
    report = report or Silent()
    store = Store.reading(root)
    setting = prepare(store.read("plan.json", Plan), load_backend(execution.backend))
    nodes = list(_nodes(setting, store, cell, method))
    stored: dict[str, NodeRecord] = {}
    for node in nodes:
        record = store.node(node.kind, node.key).record()
        if record is None:
            raise InputError(
                f"{root}, cell {cell}",
                f"no stored {node.kind} of the identity that its plan gives now ({node.label})",
                "the data, backbone and package versions that it was made with",
                "verify where it was made, or run the study to the end first",
            )
        stored[node.key] = record
    with tempfile.TemporaryDirectory(prefix="vestige-verify-") as folder, Store.writing(folder) as fresh:
        report.total = cost(nodes)
        with team(fresh, setting, execution, report) as workers:
            failures = {item.key: item.reason for item in workers.work_through(nodes)}
        parts = [_compared(node, stored[node.key], store, fresh, failures.get(node.key)) for node in nodes]
    return VerifyReport(cell=cell, parts=tuple(parts))


def _nodes(setting: Setting, store: Store, cell: str, method: str | None) -> Iterator[Node]:
    """Models of a cell, then their probabilities under every candidate set."""
    bundle, _, number = cell.partition("-s")
    known = [f"{item.bundle}-s{item.seed}" for item in setting.plan.planned]
    if cell not in known:
        raise InputError(
            f"cell '{cell}'", "no such cell", f"one of {', '.join(known)}", did_you_mean(cell, known)
        )
    if not store.has(f"requests/{bundle}.json"):
        raise InputError(
            f"{store.root}, cell {cell}",
            f"no requests/{bundle}.json",
            "a cell that was run",
            "run the study to the end first",
        )
    name = f"requests/{bundle}.json"
    request = request_from_json(store.path(name).read_text(encoding="utf-8"), str(store.path(name)))
    configured = configurations(setting, frozen_records(store, setting.plan))
    used = configured.at(bundle, int(number))
    labels = [item.label for item in used]
    if method is not None and method not in labels:
        raise InputError(
            f"method '{method}'", "no such label", "a label of the study", did_you_mean(method, labels)
        )
    seed = int(number)
    models = [
        full_node(setting, seed),
        oracle_node(setting, request, seed),
        *(unlearned_node(setting, request, seed, item) for item in used if method in (None, item.label)),
    ]
    yield from models
    table = read_table(store.path(f"views/{bundle}-evaluation.csv").read_text(encoding="utf-8"))
    for offer in _offers(store, setting, bundle):
        for model in models:
            yield predictions_node(setting, model, table, "evaluation", bundle, offer)


def _offers(store: Store, setting: Setting, bundle: str) -> Iterator[Offer]:
    for name in setting.plan.offered_sets:
        if name == ALL_OPTIONS:
            yield EVERYTHING
        else:
            yield Offer(name, tuple(store.json(f"candidates/{bundle}.json")["sets"][name]))


def _compared(node: Node, old: NodeRecord, store: Store, fresh: Store, failure: str | None) -> VerifiedPart:
    new = fresh.node(node.kind, node.key).record()
    if new is None:
        return VerifiedPart(
            label=node.label, kind=node.kind, same=False, note=failure or "it could not be made"
        )
    field = "sha256" if node.kind == "predictions" else "weights_sha256"
    if field not in old.result:
        same = {name: sha for name, sha in old.files.items() if name.startswith("model/")} == {
            name: sha for name, sha in new.files.items() if name.startswith("model/")
        }
    else:
        same = old.result[field] == new.result.get(field)
    note = ""
    if not same and node.kind == "predictions":
        p, q = (load_node_predictions(place.root, node.key, node.label).p for place in (store, fresh))
        note = f"probabilities differ by at most {abs(p - q).max():.3g}"
    elif not same:
        note = "other weights"
    if old.environment != new.environment:
        note = f"{note}; another environment than it was made in" if note else "made in another environment"
    return VerifiedPart(label=node.label, kind=node.kind, same=same, note=note)
