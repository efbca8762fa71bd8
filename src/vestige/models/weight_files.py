"""Which files of a model folder hold its weights, and what their headers say. No torch at import.

A folder holds one set of weights, or is refused: of two sets a library would read one without a word.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from math import prod
from pathlib import Path

from vestige.errors import InputError, first_five

__all__ = ["ADAPTER_CONFIG", "ADAPTER_WEIGHTS", "StoredTensor", "adapter_file", "header", "whole_model"]

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
_OTHERS = (
    (re.compile(r"pytorch_model.*\.bin(\.index\.json)?"), "weights as a pickle"),
    (re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors"), "weights of a distributed training"),
    (re.compile(r"adapter_(config\.json|model\..+)"), "an adapter"),
)
"""Files that transformers reads in place of, or puts on, the weights beside them."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as a file's header states it."""

    shape: tuple[int, ...]
    file: Path

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


def header(file: Path, *, remedy: str = "copy or make it again") -> dict[str, StoredTensor]:
    """Name -> tensor of a safetensors file. Raises InputError: not there, cut short, not of this format."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="np") as stored:
            return {
                name: StoredTensor(tuple(stored.get_slice(name).get_shape()), file)
                for name in stored.keys()  # noqa: SIM118 - a safetensors handle is no mapping
            }
    except (OSError, SafetensorError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]
        raise InputError(str(file), reason, "a whole safetensors file", remedy) from None


def whole_model(folder: Path, subject: str) -> dict[str, StoredTensor]:
    """Every stored tensor of a folder with a whole model.

    subject: what an error names. Raises InputError: no safetensors, two sets of weights or an adapter beside
    them, shards and index that differ, a damaged file.
    """
    names = sorted(path.name for path in folder.iterdir())
    shards = [name for name in names if _SHARD.fullmatch(name)]
    listed = _indexed(folder, subject) if INDEX in names else {}
    for pattern, kind in _OTHERS:
        found = [name for name in names if pattern.fullmatch(name)]
        if found and (SINGLE in names or listed):
            raise _two_sets(subject, f"{kind} ({first_five(found)}) beside the model's own")
        if found:
            raise InputError(
                subject,
                f"{kind} ({first_five(found)}) and no {SINGLE}",
                "a whole model in safetensors",
                "load it once with transformers and save it with save_pretrained",
            )
    if SINGLE in names:
        if listed or shards:
            raise _two_sets(subject, f"both {SINGLE} and {INDEX if listed else first_five(shards)}")
        return header(folder / SINGLE)
    if not listed:
        what = f"shards without {INDEX}" if shards else f"neither {SINGLE} nor {INDEX}"
        raise InputError(
            subject, what, "a model in safetensors", "name the folder that its weights were saved in"
        )
    if stray := sorted(set(shards) - set(listed.values())):
        raise _two_sets(subject, f"{first_five(stray)}, which {INDEX} does not name")
    return _shards(folder, listed, subject)


def _indexed(folder: Path, subject: str) -> dict[str, str]:
    """Tensor -> file, as the index has it."""
    try:
        found = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        if found and all(isinstance(file, str) and Path(file).name == file for file in found.values()):
            return dict(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise InputError(
        subject,
        f"a damaged {INDEX}",
        "which file each tensor is in",
        "copy the folder again, or save it again",
    )


def _shards(folder: Path, listed: dict[str, str], subject: str) -> dict[str, StoredTensor]:
    stored: dict[str, StoredTensor] = {}
    for file in sorted(set(listed.values())):
        own = header(folder / file)
        odd = sorted(own.keys() ^ {name for name, where in listed.items() if where == file})
        if odd:
            raise InputError(
                subject,
                f"{INDEX} and {file} that differ in {first_five(odd)}",
                "an index and shards of one save",
                "copy the folder again, or save it again",
            )
        stored.update(own)
    return stored


def _two_sets(subject: str, found: str) -> InputError:
    return InputError(
        subject,
        f"two sets of weights: {found}",
        "one set, so that it is known which is measured",
        "move the files that are not meant into another folder",
    )


def adapter_file(folder: Path, subject: str) -> Path:
    """The weights of an adapter folder. Raises InputError: none in safetensors, or two sets."""
    names = sorted(path.name for path in folder.iterdir())
    weights = [name for name in names if name.startswith("adapter_model.")]
    others = [name for name in ("config.json", SINGLE, INDEX) if name in names]
    others += [name for name in weights if name != ADAPTER_WEIGHTS]
    if ADAPTER_WEIGHTS in names:
        if others:
            raise _two_sets(subject, f"an adapter and {first_five(others)}")
        return folder / ADAPTER_WEIGHTS
    raise InputError(
        subject,
        f"an adapter's configuration and {first_five(others) if others else 'no weights'}",
        f"its weights in {ADAPTER_WEIGHTS}",
        "load it once with peft and save it with save_pretrained",
    )
