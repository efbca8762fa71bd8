"""Diagonals and comparisons on disk, keyed by the content they were made from.

A key hashes whatever changes a number: weights, token ids, estimator, reduction, dtype, names of the measured
weights. Tensors are safetensors in the dtype they were summed in, small results JSON. Every file holds the
hash of what was written into it: one that was cut short or changed since is refused, not read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from vestige.data.corpora import TokenSequence
from vestige.errors import InputError
from vestige.files import atomic_path, write_text
from vestige.footprint.fisher import Fisher
from vestige.footprint.world import World
from vestige.models.causal_lm import tensors_digest
from vestige.seeds import digest

__all__ = ["VERSION", "Cache", "StoredDiagonals", "sample_digest", "sealed", "unsealed"]

VERSION = "2"
"""Raised when a stored result of this version would not be what the code computes or reads now."""
_VALUE = "value:"
_HASH = "sha256"


def sample_digest(sequences: Sequence[TokenSequence]) -> str:
    """sha256 over the token ids of the sequences, in order."""
    return digest("sample", *(",".join(map(str, unit.ids)) for unit in sequences))


@dataclass(frozen=True)
class Cache:
    """A folder of results. world: only the leading process writes; the others read what it has written."""

    folder: Path
    world: World

    def fisher(self, key: str, compute: Callable[[], Fisher], *, keep: bool = True) -> Fisher:
        """The stored Fisher of this key, else a new one, stored when `keep`."""
        path = self._path("fisher", key, "safetensors")
        if self._there(path):
            stored = _read(path)
            values = {
                name.removeprefix(_VALUE): value for name, value in stored.items() if name.startswith(_VALUE)
            }
            return Fisher(
                values=values, traces=stored["traces"], losses=stored["losses"], rows=stored["rows"]
            )
        found = compute()
        if keep:
            values = {_VALUE + name: value for name, value in found.values.items()}
            self._write(path, {**values, "traces": found.traces, "losses": found.losses, "rows": found.rows})
        return found

    def diagonal(
        self, kind: str, key: str, compute: Callable[[], dict[str, Tensor]], *, keep: bool = True
    ) -> dict[str, Tensor]:
        """The stored tensors of this kind and key, else new ones, stored when `keep`."""
        path = self._path(kind, key, "safetensors")
        if self._there(path):
            return _read(path)
        found = {name: value.cpu() for name, value in compute().items()}
        if keep:
            self._write(path, found)
        return found

    def result(self, kind: str, key: str, compute: Callable[[], Any]) -> Any:
        """The stored JSON value of this kind and key, else a new one, stored."""
        path = self._path(kind, key, "json")
        if self._there(path):
            return unsealed(path)
        found = compute()
        if self.world.leads:
            write_text(path, sealed(found))
        return found

    def has(self, kind: str, key: str) -> bool:
        """Whether a result of this kind and key is stored."""
        return any(self._path(kind, key, suffix).is_file() for suffix in ("json", "safetensors"))

    def _path(self, kind: str, key: str, suffix: str) -> Path:
        return self.folder / f"{kind}-{key[:32]}.{suffix}"

    def _there(self, path: Path) -> bool:
        return self.world.from_lead(path.is_file())

    def _write(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        if not self.world.leads:
            return
        from safetensors.torch import save_file

        with atomic_path(path) as temporary:
            whole = {name: value.contiguous() for name, value in tensors.items()}
            save_file(whole, str(temporary), metadata={_HASH: tensors_digest(whole.items())})


class StoredDiagonals(Mapping[str, dict[str, Tensor]]):
    """Corpus -> Fisher diagonal, each read from the cache when it is asked for, none kept."""

    def __init__(self, read: Mapping[str, Callable[[], Fisher]]) -> None:
        self._read = dict(read)

    def __getitem__(self, corpus: str) -> dict[str, Tensor]:
        return self._read[corpus]().values

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file. Raises InputError unless they are what was written."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as stored:
            written = (stored.metadata() or {}).get(_HASH)
            found = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError):
        raise _damaged(path) from None
    if written != tensors_digest(found.items()):
        raise _damaged(path)
    return found


def sealed(value: Any) -> str:
    """A JSON value as text with its hash, for `unsealed`."""
    return json.dumps({"value": value, _HASH: digest(json.dumps(value))}) + "\n"


def unsealed(path: Path) -> Any:
    """The value of a file that `sealed` made. Raises InputError unless it is what was written."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored[_HASH] == digest(json.dumps(stored["value"])):
            return stored["value"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise _damaged(path)


def _damaged(path: Path) -> InputError:
    return InputError(
        str(path), "a damaged cache file", "a file this program wrote", "delete it; it is made anew"
    )
