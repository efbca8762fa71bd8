"""Option names and descriptions from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vestige.decision.schema import Option
from vestige.errors import InputError, did_you_mean, first_five, shown
from vestige.readers import read_json, read_table

__all__ = ["Description", "described", "read_descriptions"]


@dataclass(frozen=True)
class Description:
    """What a file says of one option. name: "" where it names none."""

    name: str
    text: str


def read_descriptions(path: str | Path) -> dict[str, Description]:
    """Descriptions by option id, in the file's order.

    A .json file: an object from id to a description, or to {"name", "description"}. A table: columns id and
    description, and name where options are called otherwise than by their id. Raises InputError.
    """
    path = Path(path)
    if path.suffix.lower() == ".json":
        rows = _from_json(path)
    else:
        table = read_table(path, columns=("id", "description"))
        names = table.texts("name") if "name" in table else [""] * table.rows
        rows = list(zip(table.texts("id"), names, table.texts("description"), strict=True))
    found: dict[str, Description] = {}
    for option_id, name, text in rows:
        if option_id in found:
            raise InputError(str(path), f"id {shown(option_id)} twice", "one description each", "remove one")
        found[option_id] = Description(name, text)
    return found


def described(
    ids: Sequence[str],
    descriptions: Mapping[str, Description],
    subject: str,
    names: Mapping[str, str] | None = None,
) -> tuple[Option, ...]:
    """Options of `ids` in order, each described. names: default names by id. Raises InputError.

    Every id must have a description, and every description an id: a mixture would favour some options.
    """
    if unknown := [option_id for option_id in descriptions if option_id not in set(ids)]:
        raise InputError(
            subject,
            f"{len(unknown)} ids that are no option: {first_five(unknown)}",
            f"the {len(ids)} option ids",
            did_you_mean(unknown[0], ids) if len(ids) <= 200 else "correct or remove them",
        )
    if missing := [option_id for option_id in ids if option_id not in descriptions]:
        raise InputError(
            subject,
            f"no description of {len(missing)} options: {first_five(missing)}",
            "one for every option",
            "add them",
        )
    return tuple(
        Option(
            option_id,
            descriptions[option_id].name or (names or {}).get(option_id, option_id),
            descriptions[option_id].text,
        )
        for option_id in ids
    )


def _from_json(path: Path) -> list[tuple[str, str, str]]:
    stored = read_json(path)
    if not isinstance(stored, dict):
        raise InputError(
            str(path), f"a JSON {type(stored).__name__}", "an object from id to description", "see docs"
        )
    rows = []
    for option_id, value in stored.items():
        parts = value if isinstance(value, dict) else {"description": value}
        if set(parts) - {"name", "description"} or not all(isinstance(part, str) for part in parts.values()):
            raise InputError(
                f"{path}, id {shown(option_id)}",
                "another value",
                'a text, or {"name": ..., "description": ...}',
                "correct it",
            )
        rows.append((option_id, parts.get("name", ""), parts.get("description", "")))
    return rows
