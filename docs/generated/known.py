"""The tables of the known-answer pool, from its stored score."""

from __future__ import annotations

from generated.base import RECORDS
from vestige.pool.records import PoolScore
from vestige.pool.tables import markdown


def pool() -> str:
    """Every table, as `vestige pool score --out` writes them."""
    text = (RECORDS / "pool" / "score.json").read_text(encoding="utf-8")
    return markdown(PoolScore.model_validate_json(text))
