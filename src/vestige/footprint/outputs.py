"""Tables over models from their next-token distributions, read chunk by chunk: never a whole corpus's logits.

At every compared position each model's logits become probabilities in float64. Divergences and inner products
of two models, and how far any distribution could be along the way from the bases to retraining, are averaged
over a document's positions. References (bases and retrained models) of a chunk stay while the models under
test pass by one at a time, so that memory does not grow with their number.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vestige.contracts import Floats
from vestige.footprint.cache import Cache
from vestige.footprint.fisher import free_bytes, per_batch_limit
from vestige.footprint.passes import batches, logits_of, measured, padded, scored, token_losses
from vestige.footprint.world import World
from vestige.models.causal_lm import LanguageModel
from vestige.models.finite import refuse_no_numbers
from vestige.seeds import digest

__all__ = ["DISK_BYTES", "HELD_BYTES", "Outputs", "Reading", "Row", "Shelf", "fit_together", "read_outputs"]

VERSION = "1"
"""Raised when stored tables of this version would not be what the code computes now."""
HELD_BYTES = 512 * 2**20
"""Logits of a chunk that are kept in memory where all models fit there together."""
DISK_BYTES = 8 * 2**30
"""Logits of a chunk that are kept on disk where they do not."""
_SLICE_BYTES = 128 * 2**20
"""Probabilities that are worked on at once."""
_SHARE_OF_FREE = 0.5


@dataclass(frozen=True)
class Row:
    """One document, or a window of one. positions: the places of `ids`, from 1 on and increasing, whose
    distribution is compared; every id but the first is scored. unit: what it belongs to, "" for nothing."""

    ids: tuple[int, ...]
    document: str
    unit: str
    positions: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Outputs:
    """Rows under references (bases first, then retrained models) and models under test, in this order: M of
    them, m of them references.

    js, inner (M, M, N): NaN between two models under test. reach (2, N). log_p, p (M, N): means over a
    document's predicted tokens of log p and of p. As `vestige.verdict.quantities.ViewTable` says.
    """

    js: Floats
    inner: Floats
    reach: Floats
    log_p: Floats
    p: Floats


@dataclass
class Shelf:
    """Opens models, and keeps them open as long as all of them fit into memory together.

    open: one function a model. bytes_: of its weights. held: whether all stay.
    """

    open: Sequence[Callable[[], LanguageModel]]
    held: bool
    _kept: dict[int, LanguageModel] = field(default_factory=dict)

    def model(self, place: int) -> LanguageModel:
        """The model at this place."""
        if place in self._kept:
            return self._kept[place]
        found = self.open[place]()
        if self.held:
            self._kept[place] = found
        return found


def fit_together(bytes_: Sequence[int], device: torch.device) -> bool:
    """Whether models of these sizes may lie in memory together: half of what is free."""
    return sum(bytes_) <= _SHARE_OF_FREE * free_bytes(device)


@dataclass(kw_only=True)
class Reading:
    """How outputs are read.

    shelf, digests: the models, references first, bases before retrained ones, and digests of their weights.
    vocabulary: V. device: where tables are computed, in float64. disk_bytes: see `DISK_BYTES`. folder: for
    what is kept on disk. advance(tokens): what one model has read. chunks: the most that a corpus took.
    """

    shelf: Shelf
    digests: Sequence[str]
    references: int
    bases: int
    vocabulary: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    batch_tokens: int = 1024
    disk_bytes: int = DISK_BYTES
    folder: Path | None = None
    cache: Cache | None = None
    world: World = field(default_factory=World)
    advance: Callable[[float], None] = lambda tokens: None
    chunks: int = 1

    @property
    def joint(self) -> bool:
        """Whether there is a retrained model to compare with."""
        return self.references > self.bases


def read_outputs(reading: Reading, rows: Sequence[Row]) -> Outputs:
    """The tables of these rows; of what the cache has, nothing is read again.

    Raises InputError for a model whose logits are no numbers.
    """
    keys = _keys(reading, rows)
    cache = reading.cache
    stored = reading.world.from_lead([cache is not None and cache.has("outputs", key) for key in keys])
    tokens = float(sum(len(row.ids) for row in rows))
    missing = [i for i, there in enumerate(stored[1:]) if not there or not stored[0]]
    found: dict[int, dict[str, Any]] = {}
    if missing or not stored[0]:
        reading.advance(tokens * (len(keys) - 1 - len(missing)))
        found = _parts(reading, rows, [reading.references + i for i in missing])
    else:
        reading.advance(tokens * len(reading.digests))

    def part(number: int) -> Any:
        return (
            found[number] if cache is None else cache.result("outputs", keys[number], lambda: found[number])
        )

    return _together([part(number) for number in range(len(keys))], reading, len(rows))


def _keys(reading: Reading, rows: Sequence[Row]) -> list[str]:
    """Of the references together, then of each model under test against them."""
    text = digest(*(f"{','.join(map(str, row.ids))};{','.join(map(str, row.positions))}" for row in rows))
    references = [
        "outputs", VERSION, text, reading.bases, reading.batch_tokens, *reading.digests[: reading.references]
    ]  # fmt: skip
    return [
        digest(*references),
        *(digest(*references, "tested", own) for own in reading.digests[reading.references :]),
    ]


def _together(parts: Sequence[Any], reading: Reading, n: int) -> Outputs:
    """One set of tables from those of the references and of each model under test."""
    m, count = reading.references, len(reading.digests)
    js, inner = (np.full((count, count, n), np.nan) for _ in range(2))
    log_p, p = np.empty((count, n)), np.empty((count, n))
    first, *others = [{name: np.array(value) for name, value in part.items()} for part in parts]
    js[:m, :m], inner[:m, :m] = first["js"], first["inner"]
    log_p[:m], p[:m] = first["log_p"], first["p"]
    for place, other in enumerate(others, start=m):
        js[place, reading.bases : m] = js[reading.bases : m, place] = other["js"][reading.bases :]
        inner[place, :m] = inner[:m, place] = other["inner"]
        js[place, place] = 0.0
        log_p[place], p[place] = other["log_p"], other["p"]
    return Outputs(js, inner, first["reach"], log_p, p)


def _parts(reading: Reading, rows: Sequence[Row], tested: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Number of a key -> its tables as lists, whole on every process."""
    own = reading.world.share(range(len(rows)))
    m = reading.references
    tables = {0: _empty(m, len(own)), **{place - m + 1: _empty_row(m, len(own)) for place in tested}}
    done = 0
    chunks = list(_chunked(reading, [rows[i] for i in own]))
    reading.chunks = max(reading.chunks, len(chunks))
    for chunk in chunks:
        here = slice(done, done + len(chunk))
        done += len(chunk)
        with _kept(reading, sum(len(row.positions) for row in chunk)) as room:
            references = []
            for place in range(m):
                store = room()
                log_p, p = _read(reading, place, chunk, store)
                tables[0]["log_p"][place, here], tables[0]["p"][place, here] = log_p, p
                references.append(store)
            if reading.joint:
                for name, value in _references(references, chunk, reading).items():
                    tables[0][name][..., here] = value
            store = room()
            for place in tested:
                table = tables[place - m + 1]
                table["log_p"][here], table["p"][here] = _read(reading, place, chunk, store)
                if reading.joint:
                    for name, value in _against(store, references, chunk, reading).items():
                        table[name][:, here] = value
    return {
        number: {name: _whole(reading.world, value, len(rows)) for name, value in table.items()}
        for number, table in tables.items()
    }


def _empty(m: int, n: int) -> dict[str, Floats]:
    return {
        "js": np.zeros((m, m, n)),
        "inner": np.zeros((m, m, n)),
        "reach": np.zeros((2, n)),
        "log_p": np.zeros((m, n)),
        "p": np.zeros((m, n)),
    }


def _empty_row(m: int, n: int) -> dict[str, Floats]:
    return {"js": np.zeros((m, n)), "inner": np.zeros((m, n)), "log_p": np.zeros(n), "p": np.zeros(n)}


def _whole(world: World, value: Floats, n: int) -> Any:
    """The rows of all processes, as lists."""
    by_row = world.together(list(np.moveaxis(value, -1, 0)), n)
    return np.moveaxis(np.array(by_row), 0, -1).tolist()


def _chunked(reading: Reading, rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Runs of rows whose logits of all references and one model under test fit into the bytes there are."""
    budget = HELD_BYTES if reading.shelf.held else reading.disk_bytes
    most = max(1, budget // (4 * reading.vocabulary * (reading.references + 1)))
    chunk: list[Row] = []
    used = 0
    for row in rows:
        size = len(row.positions) if reading.joint else 0
        if chunk and used + size > most:
            yield chunk
            chunk, used = [], 0
        chunk.append(row)
        used += size
    if chunk:
        yield chunk


@contextmanager
def _kept(reading: Reading, positions: int) -> Iterator[Callable[[], Any]]:
    """Makes stores (P, V) of float32 logits: in memory on the models' device, or in files that go away."""
    shape = (positions if reading.joint else 0, reading.vocabulary)
    if reading.shelf.held:
        yield lambda: torch.empty(shape, dtype=torch.float32, device=reading.device)
        return
    with tempfile.TemporaryDirectory(prefix="outputs-", dir=reading.folder) as folder:
        number = iter(range(1_000_000))

        def room() -> Any:
            if not math.prod(shape):
                return torch.empty(shape, dtype=torch.float32)
            file = Path(folder) / f"{next(number)}.f32"
            return torch.from_numpy(np.memmap(file, dtype=np.float32, mode="w+", shape=shape))

        yield room


def _read(reading: Reading, place: int, rows: Sequence[Row], store: Tensor) -> tuple[Floats, Floats]:
    """One model on a chunk: its logits at the compared positions into `store`, its means of log p and p."""
    loaded = reading.shelf.model(place)
    model = loaded.model
    device = next(model.parameters()).device
    starts = np.concatenate([[0], np.cumsum([len(row.positions) for row in rows])]).tolist()
    log_p, p = np.empty(len(rows)), np.empty(len(rows))
    with measured(model), torch.inference_mode():
        for group in batches(rows, batch_tokens=reading.batch_tokens, batch_size=per_batch_limit(model)):
            ids, mask = padded([rows[i] for i in group], device=device)
            logits = logits_of(model, ids, mask)
            losses = token_losses(logits, ids, mask)
            counted = scored(mask)
            refuse_no_numbers(losses[counted], f"model '{loaded.record.label}': log-probabilities")
            for line, i in enumerate(group):
                own = losses[line][counted[line]].double()
                log_p[i], p[i] = -float(own.mean()), float(torch.exp(-own).mean())
                if reading.joint:
                    at = torch.tensor(rows[i].positions, device=device) - 1
                    store[starts[i] : starts[i + 1]] = logits[line, at].float().to(store.device)
            reading.advance(float(sum(len(rows[i].ids) for i in group)))
    return log_p, p


def _slices(stores: Sequence[Tensor]) -> Iterator[slice]:
    positions, vocabulary = stores[0].shape
    size = max(1, _SLICE_BYTES // (8 * vocabulary * (len(stores) + 1)))
    yield from (slice(start, min(start + size, positions)) for start in range(0, positions, size))


def _probabilities(store: Tensor, here: slice, device: torch.device) -> tuple[Tensor, Tensor]:
    """(p, V) float64 and the entropy of each position in bits."""
    found = torch.softmax(store[here].to(device).double(), dim=-1)
    return found, -torch.special.xlogy(found, found).sum(-1) / math.log(2)


def _divergence(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> Tensor:
    """Base-2 Jensen-Shannon divergence at each position, by entropies: H of the mean less the mean H."""
    total = first[0] + second[0]
    # The mean is half of the total, so that its entropy is 1 - sum(total log2 total) / 2.
    mixed = 1.0 - torch.special.xlogy(total, total).sum(-1) / (2 * math.log(2))
    found: Tensor = (mixed - (first[1] + second[1]) / 2).clamp(0.0, 1.0)
    return found


@dataclass(frozen=True)
class _Means:
    """Adds values at positions up to means over the rows that own them."""

    rows: Sequence[Row]

    def __post_init__(self) -> None:
        counts = torch.tensor([len(row.positions) for row in self.rows])
        object.__setattr__(self, "counts", counts.double())
        object.__setattr__(self, "owners", torch.repeat_interleave(counts))

    counts: Tensor = field(init=False)
    owners: Tensor = field(init=False)

    def add(self, table: Tensor, here: slice, values: Tensor) -> None:
        """values (..., p) into table (..., n)."""
        table.index_add_(-1, self.owners[here], values.cpu())

    def of(self, table: Tensor) -> Floats:
        """The means of what was added."""
        return np.asarray((table / self.counts).numpy(), dtype=np.float64)


def _references(stores: Sequence[Tensor], rows: Sequence[Row], reading: Reading) -> dict[str, Floats]:
    """Tables of the references among themselves, means over each row's positions."""
    m, n, bases = len(stores), len(rows), reading.bases
    js, inner = (torch.zeros((m, m, n), dtype=torch.float64) for _ in range(2))
    reach = torch.zeros((2, n), dtype=torch.float64)
    means = _Means(rows)
    for here in _slices(stores):
        each = [_probabilities(store, here, reading.device) for store in stores]
        for a in range(m):
            for b in range(a + 1):
                means.add(inner[a, b], here, (each[a][0] * each[b][0]).sum(-1))
                if a != b:
                    means.add(js[a, b], here, _divergence(each[a], each[b]))
        start = torch.stack([p for p, _ in each[:bases]]).mean(0)
        way = torch.stack([p for p, _ in each[bases:]]).mean(0) - start
        along = (start * way).sum(-1)
        means.add(reach, here, torch.stack([way.amin(-1) - along, way.amax(-1) - along]))
    for table in (js, inner):
        for a in range(m):
            for b in range(a):
                table[b, a] = table[a, b]
    return {"js": means.of(js), "inner": means.of(inner), "reach": means.of(reach)}


def _against(
    store: Tensor, references: Sequence[Tensor], rows: Sequence[Row], reading: Reading
) -> dict[str, Floats]:
    """One model under test against the references; of its divergences those from retrained models alone are
    ever read."""
    m, n = len(references), len(rows)
    js, inner = (torch.zeros((m, n), dtype=torch.float64) for _ in range(2))
    means = _Means(rows)
    for here in _slices(references):
        own = _probabilities(store, here, reading.device)
        for place, reference in enumerate(references):
            other = _probabilities(reference, here, reading.device)
            means.add(inner[place], here, (own[0] * other[0]).sum(-1))
            if place >= reading.bases:
                means.add(js[place], here, _divergence(own, other))
    return {"js": means.of(js), "inner": means.of(inner)}
