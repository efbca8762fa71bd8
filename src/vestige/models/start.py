"""What a backbone's configuration says of how its weights were trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vestige.errors import InputError
from vestige.models.backbones import resolve_backbone
from vestige.readers import read_json

__all__ = ["classifier_labels", "is_local"]

HEAD = "ForSequenceClassification"


def is_local(name: str) -> bool:
    """Whether a backbone is a folder or file of the user's, neither a hub id nor in a wheel."""
    return resolve_backbone(name)[0] in ("folder", "file")


def classifier_labels(name: str, revision: str | None) -> tuple[str, ...]:
    """The labels of a backbone that was saved as a sequence classifier, in order; none for another model, and
    where the hub cannot be asked."""
    kind, location = resolve_backbone(name)
    if kind == "hub":
        config = _hub_config(location, revision)
    else:
        path = Path(location) / "config.json"
        config = read_json(path) if path.is_file() else {}
    architectures = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(architectures, list) or not any(str(item).endswith(HEAD) for item in architectures):
        return ()
    names = config.get("id2label")
    if not isinstance(names, dict):
        return ()
    try:
        return tuple(str(names[key]) for key in sorted(names, key=int))
    except ValueError:
        return ()


def _hub_config(location: str, revision: str | None) -> dict[str, Any]:
    from vestige.models.hub import answering_hub
    from vestige.models.loading import read_config

    try:
        with answering_hub():
            found: dict[str, Any] = read_config(
                location, subject=f"backbone '{location}'", revision=revision
            ).to_dict()
    except InputError:
        return {}
    return found
