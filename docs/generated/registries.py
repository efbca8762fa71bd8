"""Tables of what is registered: methods, attacks, metrics."""

from __future__ import annotations

from generated.base import table
from vestige.attacks import ATTACKS
from vestige.methods import METHODS
from vestige.metrics import METRICS, SEED_METRICS


def methods() -> str:
    """One row a registered method."""
    header = ("name", "method", "models", "loss", "role", "source", "deviations")
    rows = [
        (
            f"`{item.name}`",
            item.title,
            ", ".join(item.models),
            f"`{item.formula}`",
            item.role,
            item.source,
            item.deviations,
        )
        for item in METHODS
    ]
    return table(header, rows)


def language_methods() -> str:
    """One row a method that trains causal language models, with what preset `triage` sets."""
    header = ("name", "method", "loss", "preset `triage`", "source", "deviations")
    rows = [
        (
            f"`{item.name}`",
            item.title,
            f"`{item.formula}`",
            ", ".join(
                f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in use.triage.items()
            ),
            item.source,
            item.deviations,
        )
        for item in METHODS
        if (use := item.language) is not None
    ]
    return table(header, rows)


def attacks() -> str:
    """One row a registered attack."""
    header = ("name", "attack", "what it answers", "what it does not show", "source")
    rows = [(f"`{item.name}`", item.title, item.question, item.shows_not, item.source) for item in ATTACKS]
    return table(header, rows)


def metrics() -> str:
    """One row a registered metric."""
    header = ("name", "views", "definition", "better", "source")
    rows = [
        (f"`{item.name}`", " ".join(item.views), item.definition, item.direction or "-", item.source)
        for item in METRICS
    ]
    return table(header, rows)


def seed_metrics() -> str:
    """One row a registered metric over several seeds or views."""
    header = ("name", "views", "models", "definition", "better", "source")
    rows = [
        (
            f"`{item.name}`",
            " ".join(item.views),
            f"{', '.join(item.needs)}: {item.least_seeds} or more seeds",
            item.definition,
            item.direction or "-",
            item.source,
        )
        for item in SEED_METRICS
    ]
    return table(header, rows)
