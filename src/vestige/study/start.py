"""The weights that every training of a study starts from, and whether they may have seen the deleted rows.

Retraining without some rows is only retraining if it starts from weights that never saw them. A classifier
that was fine-tuned on all rows and is then named as the backbone knows them at the start, so that the
"retrained" model does too: its distance to the full model is next to nothing, and there seems to be nothing
to undo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vestige.errors import InputError

if TYPE_CHECKING:
    from vestige.study.cells import Setting
    from vestige.study.protocol import Start

__all__ = ["refuse_seen_start", "start_sentences"]

LEAST_SHARE = 0.5
"""A classifier of at least this share of the data set's options was trained on this task."""
LEAST_UNNAMED = 5
"""As many labels without names as there are options are no accident from here on."""


def refuse_seen_start(setting: Setting) -> None:
    """Raise InputError where the backbone is known to have been trained on the data set's own labels.

    Not where the plan says `seen_start: true`.
    """
    found = setting.start
    told = _trained_here(setting, found)
    if told and not setting.plan.seen_start:
        raise InputError(
            f"{setting.plan.source}: model: backbone",
            f"{found.name}, {told}: its weights saw the rows that are to be deleted",
            "weights that never saw them, so that retraining is retraining",
            "name the pretrained model that it was made from; with seen_start: true it runs and every page "
            "says so",
        )


def start_sentences(setting: Setting) -> list[str]:
    """What every page has to say of the start, in sentences; none for published weights."""
    found = setting.start
    told = _trained_here(setting, found)
    if told:
        return [
            f"Every training started from {found.name}, {told}: the retrained models know the deleted rows "
            "from there too, so their distance says nothing about what was deleted."
        ]
    if found.local:
        return [
            f"Every training started from the local folder {found.name}: if its weights were ever trained on "
            "the deleted rows, the retrained models know them too, and nothing here can show it."
        ]
    return []


def _trained_here(setting: Setting, start: Start) -> str:
    """How the weights are known to have been trained on this task, "" where they are not."""
    if not start.labels:
        return ""
    options = setting.data.options
    if all(label.upper() == f"LABEL_{place}" for place, label in enumerate(start.labels)):
        same = len(start.labels) == len(options) >= LEAST_UNNAMED
        return f"a classifier with {len(options)} labels without names" if same else ""
    known = {_folded(label) for label in start.labels}
    shared = sum(_folded(option.id) in known or _folded(option.name) in known for option in options)
    if shared < LEAST_SHARE * len(options):
        return ""
    return f"a classifier of {shared} of the data set's {len(options)} options"


def _folded(label: str) -> str:
    return " ".join(label.replace("_", " ").replace("-", " ").casefold().split())
