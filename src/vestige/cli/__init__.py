"""The command line: one module a verb, loaded when the verb is used. Exit codes: `vestige.cli.console`."""

from __future__ import annotations

from vestige.cli.app import main, run

__all__ = ["main", "run"]
