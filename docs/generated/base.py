"""What every generated part shares: where records lie, tables, values with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vestige.contracts import Estimate, Undefined

DOCS = Path(__file__).resolve().parents[1]
RECORDS = DOCS / "results"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def shown(item: Estimate | None, digits: int = 3, *, percent: bool = False) -> str:
    """A value with its row interval."""
    if item is None:
        return "-"
    if isinstance(item.value, Undefined):
        return str(item.value)
    scale = 100 if percent else 1
    text = f"{scale * item.value:.{digits}f}"
    if item.row is not None and not isinstance(item.row, Undefined):
        text += f" [{scale * item.row.low:.{digits}f}, {scale * item.row.high:.{digits}f}]"
    return text + (" (unstable)" if item.unstable else "")


def percentage(share: dict[str, float]) -> str:
    """`2.5 +- 0.3`: a share and its standard error in percent."""
    return f"{100 * share['share']:.1f} ± {100 * share['error']:.1f}"
