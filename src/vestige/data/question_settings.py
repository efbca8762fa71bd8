"""How multiple-choice questions are asked: which of them, under what line, with or without a first token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from vestige.contracts import PresetSettings
from vestige.data.corpora import Role
from vestige.seeds import generator

__all__ = ["AskingSettings", "header_line"]

T = TypeVar("T")


class AskingSettings(PresetSettings):
    """How questions are asked. They stay the same for every model of a comparison.

    per_subject: so many questions of each subject of `capped_roles`, None for all; questions on what was
    forgotten are never cut unless `capped_roles` names them. cap: the first of a subject's, or drawn by the
    seed. about: topic or subject -> what the line above its questions says they are about; MMLU's subjects
    have their own name there. header: `none` leaves that line out everywhere. bos: whether the tokenizer's
    beginning token stands before a prompt where it adds one. ties: of two likeliest options, both are wrong,
    or the first is the answer.

    Preset `triage` asks as the published tables were made: the first 20 questions of each MMLU subject, all
    on what was forgotten, no beginning token, and the first of equals, which in bfloat16 are no rare case.
    """

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "triage": {"per_subject": 20, "bos": "none", "ties": "first"}
    }

    per_subject: int | None = Field(None, ge=1)
    capped_roles: tuple[Role, ...] = ("adjacent", "generic")
    cap: Literal["first", "random"] = "first"
    about: dict[str, str] = Field(default_factory=dict)
    header: Literal["named", "none"] = "named"
    bos: Literal["tokenizer", "none"] = "tokenizer"
    ties: Literal["wrong", "first"] = "wrong"
    seed: int = 17

    def chosen(self, items: Sequence[T], role: Role, *names: str) -> tuple[T, ...]:
        """The questions of one subject that are asked, in the order of the file."""
        most = self.per_subject
        if most is None or role not in self.capped_roles or len(items) <= most:
            return tuple(items)
        if self.cap == "first":
            return tuple(items[:most])
        drawn = generator(self.seed, "questions asked", role, *names).permutation(len(items))[:most]
        return tuple(items[int(i)] for i in sorted(drawn))


def header_line(about: str) -> str:
    """What lm-evaluation-harness writes before the questions of WMDP and MMLU, with the blank line after
    it."""
    return f"The following are multiple choice questions (with answers) about {about}.\n\n"
