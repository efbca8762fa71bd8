"""GGUF files become ordinary model folders, once, in the user's cache: reading one takes up to a minute."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from vestige.errors import InputError
from vestige.files import writing
from vestige.models.backbones import content_hash
from vestige.models.loading import quiet_loading, read_model, read_tokenizer

__all__ = ["cache_folder", "converted"]


def cache_folder() -> Path:
    """VESTIGE_CACHE, else `vestige` in XDG_CACHE_HOME, else ~/.cache/vestige."""
    if chosen := os.environ.get("VESTIGE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vestige"


def converted(file: Path) -> Path:
    """A folder with the file's weights dequantised to float32, its configuration and its tokenizer.

    Kept under the file's hash and the version of transformers that read it; takes 4 bytes a weight. Raises
    InputError when the cache cannot be written or transformers cannot read the file.
    """
    import transformers

    folder = cache_folder() / "gguf" / f"{content_hash(file)[:16]}-{transformers.__version__}"
    if (folder / "config.json").is_file():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise InputError(
            f"cache folder {folder.parent}",
            error.strerror or "no folder that can be written",
            f"room for the dequantised weights of {file.name}",
            "set VESTIGE_CACHE to a folder of yours",
        ) from None
    try:
        _convert(file, made)
        try:
            made.rename(folder)
        except OSError:  # another process was faster
            if not (folder / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def _convert(file: Path, folder: Path) -> None:
    import torch
    import transformers

    source, subject = str(file.parent), f"model file '{file}'"
    options: dict[str, Any] = {"gguf_file": file.name}
    with quiet_loading(), contextlib.redirect_stderr(io.StringIO()):
        tokenizer = read_tokenizer(source, subject=subject, **options)
        if hasattr(transformers, "GgufConfig"):  # else blocks may be kept where a kernel can read them
            options["quantization_config"] = transformers.GgufConfig(dequantize=True)
        model: Any = read_model("causal-lm", source, subject=subject, dtype=torch.float32, **options)
        _forget_quantisation(model)
        with writing(folder):
            tokenizer.save_pretrained(str(folder))
            model.save_pretrained(str(folder), safe_serialization=True)


def _forget_quantisation(model: Any) -> None:
    """Drop the quantisation fields of a dequantised model: with them transformers refuses to save it."""
    for owner, names in (
        (model, ("hf_quantizer", "quantization_method")),
        (model.config, ("quantization_config",)),
    ):
        for name in names:
            if name in vars(owner):
                delattr(owner, name)
