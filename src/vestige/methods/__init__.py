"""Unlearning methods. Each is one registered object; the modules are imported when the registry is asked."""

from __future__ import annotations

from vestige.contracts import Objective
from vestige.registry import Registry

__all__ = ["METHODS"]

METHODS: Registry[Objective] = Registry("method", "vestige.methods")
