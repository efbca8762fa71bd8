"""Where study files come from: shipped ones, and files."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from vestige.errors import InputError, did_you_mean, shown
from vestige.readers import text_of_file

__all__ = ["shipped_studies", "source_text"]


def shipped_studies() -> dict[str, str]:
    """Name -> YAML text of every study that comes with the package."""
    folder = files("vestige.study") / "shipped"
    found = sorted(
        (item for item in folder.iterdir() if item.name.endswith(".yaml")), key=lambda item: item.name
    )
    return {item.name.removesuffix(".yaml"): item.read_text(encoding="utf-8") for item in found}


def source_text(source: str | Path) -> tuple[str, str, Path | None]:
    """(text, subject for messages, folder) of a study file, or of a shipped study's name: no folder then.

    Raises InputError.
    """
    shipped = shipped_studies()
    name = str(source)
    path = Path(source)
    if name in shipped and not path.is_file():
        return shipped[name], name, None
    if not path.exists() and path.suffix not in (".yaml", ".yml"):
        raise InputError(
            f"study {shown(name)}",
            "no such file",
            "a study file or a shipped study",
            did_you_mean(name, shipped),
        )
    return text_of_file(path, "a study file"), str(path), path.parent
