"""The reader of YAML: plain values, each key once and a text, no aliases, no tags, finite numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from typing import Any

import yaml

from vestige.errors import InputError, shown

__all__ = ["yaml_mapping", "yaml_value"]


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
                raise _refused("a list or mapping as a key", key)
            if not key.tag.endswith(":str"):
                raise _refused(f"the key {key.value or '(nothing)'}, which YAML reads as no text", key)
            if key.value in seen:
                raise _refused(f"key '{key.value}' twice in one mapping", key)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            if isinstance(node, yaml.ScalarNode):
                node.value.encode()  # half a surrogate pair can be escaped, and not be written again
            made = super().construct_object(node, deep)
        except ValueError:
            raise _refused("a date, number or text that does not exist", node) from None
        if isinstance(made, float) and not math.isfinite(made):
            raise _refused("a number that is not finite", node)
        return made


def _refused(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def yaml_value(text: str, subject: str) -> Any:
    """The value in YAML text. subject: the file's name, for messages. Raises InputError, one line."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{subject}, line {mark.line + 1}" if mark is not None else subject
        problem = getattr(error, "problem", None) or "text that is not YAML"
        found = str(problem).removeprefix("but ").removeprefix("found ")
        quoted = "put the key in quotes" if "reads as no text" in found else "correct the line"
        raise InputError(place, found, "plain YAML, each key a text and once", quoted) from None
    except RecursionError:
        raise InputError(
            subject, "lists or mappings nested too deep", "plain YAML", "correct the file"
        ) from None


def yaml_mapping(text: str, subject: str) -> dict[str, Any]:
    """The mapping at the top of YAML text. Raises InputError, one line."""
    raw = yaml_value(text, subject)
    if not isinstance(raw, dict):
        found = "nothing" if raw is None else f"{shown(str(raw))}, no mapping"
        raise InputError(
            subject,
            f"{found} at the top",
            "a study file: keys with values",
            "start from `vestige study show demo`",
        )
    return raw
