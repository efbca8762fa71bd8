"""Records of the verdict on language models: levels of every model on every text, a word each. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vestige.contracts import VERDICT_RULE, Evidence, Interval, Margins, Record, Undefined, Verdict, View
from vestige.limits import MOST_DRAWS

__all__ = [
    "JudgedModel",
    "JudgedText",
    "LevelRole",
    "ModelLevels",
    "TextLevel",
    "TextRole",
    "VerdictRecord",
    "VerdictSettings",
]

LevelRole = Literal["base", "unlearned", "oracle"]
TextRole = Literal["forget", "unseen", "adjacent", "generic"]
"""forget: F; unseen: G, texts like those to be forgotten, or paraphrases, that no model was trained on;
adjacent and generic: R."""


class VerdictSettings(Record):
    """documents: of each corpus, drawn where it has more. positions: of a document at which models are
    compared, drawn where it has more; its loss is that of all. draws: of bounds over documents."""

    documents: int = Field(400, ge=1)
    positions: int = Field(128, ge=1)
    draws: int = Field(5000, ge=100, le=MOST_DRAWS)
    margins: Margins = Margins()


class TextLevel(Record):
    """One model on one corpus.

    probability: mean over documents of exp(mean log p of a predicted token), in [0, 1]. loss: nats a token,
    mean over documents. change: the probability minus the mean of the bases', on the same documents; its
    interval says whether it is shown. Intervals: 95 %, t over documents.
    """

    corpus: str
    role: TextRole
    documents: int
    probability: float
    interval: Interval | Undefined
    loss: float
    change: float
    change_interval: Interval | Undefined


class ModelLevels(Record):
    """What one model gives the texts. sha256: of its weights."""

    label: str
    role: LevelRole
    sha256: str
    texts: tuple[TextLevel, ...]

    def level(self, role: TextRole) -> float | None:
        """Probability on a role: the plain mean over its corpora; None without one."""
        found = [text.probability for text in self.texts if text.role == role]
        return sum(found) / len(found) if found else None


class JudgedText(Record):
    """A corpus as it was judged.

    available: documents of at least two tokens. documents: rows of the verdict, windows where a document is
    longer than `max_length`. positions: compared, of all rows together. units: parts judged each for itself.
    """

    name: str
    role: TextRole
    view: View
    path: str
    sha256: str
    available: int
    documents: int
    positions: int
    units: int


class JudgedModel(Record):
    """The verdict on one unlearned model. checkpoints: its training seeds. p: one-sided, of no gain,
    corrected within the family. sentence: the verdict in words."""

    label: str
    checkpoints: tuple[str, ...]
    verdict: Verdict | Undefined
    evidence: Evidence
    p: float | Undefined
    sentence: str


class VerdictRecord(Record):
    """The verdict's part of a footprint. compared: what was compared with what, the first line of all.

    bases, oracles: their labels. held: all models lay in memory together; else the outputs of chunks of
    documents were kept on disk in turn, `chunks` of them.
    """

    rule: str = VERDICT_RULE
    settings: VerdictSettings
    compared: str
    bases: tuple[str, ...]
    oracles: tuple[str, ...]
    texts: tuple[JudgedText, ...]
    levels: tuple[ModelLevels, ...]
    models: tuple[JudgedModel, ...]
    family: tuple[str, ...] = ()
    held: bool = True
    chunks: int = 1

    def model(self, checkpoint: str) -> JudgedModel | None:
        """The verdict on the model that this checkpoint is a seed of."""
        return next((item for item in self.models if checkpoint in item.checkpoints), None)

    def level(self, label: str) -> ModelLevels | None:
        """The levels of the model of this label."""
        return next((item for item in self.levels if item.label == label), None)
