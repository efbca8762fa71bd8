"""Where study files come from: shipped ones, files, and a safe reading of their YAML."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from vestige.errors import InputError, did_you_mean, shown
from vestige.files import reading

__all__ = ["read_yaml", "shipped_studies", "source_text"]


class _Loader(yaml.SafeLoader):
    """YAML's safe subset without aliases or repeated keys; `1e-4` is a number."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "an alias ('*name')", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a list or mapping as a key", key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key '{key.value}' twice in one mapping", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            if isinstance(node, yaml.ScalarNode):
                node.value.encode()  # half a surrogate pair can be escaped, and not be written again
            made = super().construct_object(node, deep)
        except ValueError:
            raise yaml.constructor.ConstructorError(
                None, None, "a date, number or text that does not exist", node.start_mark
            ) from None
        if isinstance(made, float) and not math.isfinite(made):
            raise yaml.constructor.ConstructorError(
                None, None, "a number that is not finite", node.start_mark
            )
        return made


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def read_yaml(text: str, subject: str) -> dict[str, Any]:
    """The mapping in YAML text: plain values, each key once, no aliases. Raises InputError, one line."""
    try:
        raw = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{subject}, line {mark.line + 1}" if mark is not None else subject
        problem = getattr(error, "problem", None) or "text that is not YAML"
        found = str(problem).removeprefix("but ").removeprefix("found ")
        raise InputError(place, found, "plain YAML, each key once", "correct the line") from None
    except RecursionError:
        raise InputError(
            subject, "lists or mappings nested too deep", "plain YAML, each key once", "correct the file"
        ) from None
    if not isinstance(raw, dict):
        raise InputError(
            subject, "no mapping at the top", "a study file", "start from `vestige study show demo`"
        )
    return raw


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
    with reading(path, "a study file"):
        data = path.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            str(path), f"byte {error.start} that is not UTF-8", "UTF-8 text", "save it as UTF-8"
        ) from None
    return text, str(path), path.parent
