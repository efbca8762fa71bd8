"""Typed registries: one registered object a file, discovery by package and by entry points."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Generic, Protocol, TypeVar

from vestige.errors import InputError, did_you_mean

__all__ = ["Named", "Registry"]


class Named(Protocol):
    """What a registry holds."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


class Registry(Generic[T]):
    """Objects of one kind by name.

    The modules of `package` are imported at the first look-up; each registers its objects. Other
    distributions add theirs through the entry-point group of the same name as the package.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._objects: dict[str, T] = {}
        self._discovered = False

    def register(self, item: T) -> T:
        """Add `item`; returns it. Raises ValueError when another object has the name."""
        if self._objects.get(item.name, item) is not item:
            raise ValueError(f"two {self.kind}s are named '{item.name}'")
        self._objects[item.name] = item
        return item

    def get(self, name: str) -> T:
        """The object of exactly this name. Raises InputError with a suggestion."""
        self._discover()
        try:
            return self._objects[name]
        except KeyError:
            raise InputError(
                f"{self.kind} '{name}'",
                "no such name",
                f"a registered {self.kind}",
                did_you_mean(name, self._objects),
            ) from None

    def names(self) -> list[str]:
        """All names, sorted."""
        self._discover()
        return sorted(self._objects)

    def __iter__(self) -> Iterator[T]:
        self._discover()
        return iter([self._objects[name] for name in sorted(self._objects)])

    def __len__(self) -> int:
        self._discover()
        return len(self._objects)

    def _discover(self) -> None:
        if self._discovered:
            return
        self._discovered = True
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self.package}.{module.name}")
        for entry in entry_points(group=self.package):
            self.register(entry.load())
