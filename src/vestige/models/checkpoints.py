"""Trained language models in a folder from which alone a new process reloads them."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

from torch import nn

from vestige.errors import InputError
from vestige.files import writing
from vestige.models.adapters import PromptedLM, merged, order_config, save_prompted, write_base
from vestige.models.backbones import quiet_loading
from vestige.models.lm_record import LanguageModelRecord

__all__ = ["UNFINISHED", "base_place", "refuse_unfinished", "save_trained"]

UNFINISHED = "unfinished.json"
"""Lies in a folder until everything in it is complete."""

PARTIAL = ".partial"


def base_place(record: LanguageModelRecord) -> str:
    """The name under which another process, in any folder, finds the model of this record."""
    return str(Path(record.location).resolve()) if record.kind in ("folder", "file") else record.location


def refuse_unfinished(name: str) -> None:
    """Raise InputError for a folder whose making was interrupted."""
    if (Path(name) / UNFINISHED).is_file():
        raise InputError(
            f"model '{name}'",
            f"an unfinished checkpoint ({UNFINISHED} lies in it)",
            "one that was finished",
            "run the command that makes it again: it goes on where it stopped",
        )


def save_trained(
    model: nn.Module, tokenizer: Any, folder: Path, *, base: LanguageModelRecord, whole: bool
) -> tuple[str, ...]:
    """Write the trained model and its tokenizer into `folder`; returns the files' names.

    A peft model with LoRA is written as an adapter that names its base, or (`whole`) merged, and is given up
    for that; a prompt encoder with its base beside it (`whole`) or as an adapter that names `base`; any other
    model whole. Written beside, then renamed: a kill leaves no half file under a real name.
    """
    partial = folder / PARTIAL
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    adapted: Any = model.prompted if isinstance(model, PromptedLM) else model
    with writing(folder), quiet_loading(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(model, PromptedLM) and whole:
            save_prompted(model, tokenizer, partial)
        elif hasattr(adapted, "peft_config") and not whole:
            adapted.peft_config["default"].base_model_name_or_path = base_place(base)
            adapted.save_pretrained(str(partial))
            order_config(partial)
            write_base(partial, label=base.label, sha256=base.sha256)
        else:
            plain: Any = merged(adapted).model if hasattr(adapted, "merge_and_unload") else adapted
            plain.save_pretrained(str(partial))
        tokenizer.save_pretrained(str(partial))
    (partial / "README.md").unlink(missing_ok=True)  # peft's empty model card
    names = tuple(sorted(str(path.relative_to(partial)) for path in partial.rglob("*") if path.is_file()))
    for path in sorted(partial.rglob("*")):
        if path.is_file():
            with path.open("rb") as handle:
                os.fsync(handle.fileno())
    for path in sorted(partial.iterdir()):
        target = folder / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.replace(target)
    partial.rmdir()
    return names
