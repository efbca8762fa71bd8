"""What a model answered, on disk: keyed by weights, tokenizer and content, so that a run can go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vestige.errors import InputError
from vestige.files import write_text
from vestige.models.causal_lm import LanguageModel
from vestige.seeds import digest

__all__ = ["Kept", "model_digest"]


@dataclass
class Kept:
    """A folder of finished parts, or none. hits: how many were taken from it."""

    folder: Path | None
    hits: int = 0

    def result(self, kind: str, key: str, compute: Callable[[], Any]) -> Any:
        """The stored JSON value of this kind and key, else a new one, stored. Raises InputError: damaged."""
        path = self.folder / f"{kind}-{key[:32]}.json" if self.folder is not None else None
        if path is not None and path.is_file():
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                raise InputError(
                    str(path), "a damaged file", "what this program wrote", "delete it; it is made anew"
                ) from None
            self.hits += 1
            return found
        found = compute()
        if path is not None:
            write_text(path, json.dumps(found))
        return found


def model_digest(model: LanguageModel) -> str:
    """sha256 over everything of a model that changes an answer: weights, dtype, configuration, tokenizer."""
    config: Any = model.model.config
    return digest(
        "model", model.record.sha256, model.record.dtype, config.to_json_string(), _reading(model.tokenizer)
    )


def _reading(tokenizer: Any) -> str:
    """A fast tokenizer as JSON without its padding and truncation, which calls switch on and off."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return digest("vocabulary", *sorted(tokenizer.get_vocab().items()))
    stored = json.loads(backend.to_str())
    stored.update(padding=None, truncation=None)
    return digest("tokenizer", json.dumps(stored, sort_keys=True), tokenizer.bos_token_id)
