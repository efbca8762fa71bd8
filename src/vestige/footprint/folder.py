"""Whether an output folder may take a footprint: nothing that another comparison measured is overwritten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vestige.files import refuse_overwriting, stored_record
from vestige.footprint.records import CorpusRecord, FootprintRecord, FootprintSettings
from vestige.footprint.verdict_records import VerdictRecord
from vestige.models.lm_record import LanguageModelRecord

__all__ = ["RECORD", "refuse_other"]

RECORD = "footprint.json"
_WORDS = {"retained_text", "statement", "quick"}
"""Settings that say something and measure nothing."""


def refuse_other(
    folder: Path,
    *,
    settings: FootprintSettings,
    base: LanguageModelRecord,
    corpora: Sequence[CorpusRecord],
    checkpoints: Sequence[LanguageModelRecord],
    unseen: Mapping[str, str],
) -> None:
    """Raise InputError when the folder's record holds what this comparison would not measure again: other
    settings, another base, other texts, or a checkpoint that is not among these. A record that cannot be read
    is none. unseen: name -> sha256 of unseen texts."""
    old = stored_record(folder / RECORD, FootprintRecord)
    if old is not None:
        refuse_overwriting(
            folder / RECORD,
            "the footprint of another comparison",
            list(_lost(old, settings, base, corpora, checkpoints, unseen)),
            "--cache with one folder for both keeps what is measured",
        )


def _lost(
    old: FootprintRecord,
    settings: FootprintSettings,
    base: LanguageModelRecord,
    corpora: Sequence[CorpusRecord],
    checkpoints: Sequence[LanguageModelRecord],
    unseen: Mapping[str, str],
) -> Iterator[str]:
    """What of the old record this comparison does not hold."""
    now, was = settings.model_dump(), old.settings.model_dump()
    for name in was:
        # What was not computed before, or not by records that knew no verdict, may be added.
        more = (name == "calibrate" and now[name]) or (name == "verdict" and not _judged(old))
        if name not in _WORDS and not more and now[name] != was[name]:
            yield name.replace("_", " ")
    if old.base.sha256 != base.sha256:
        yield "base"
    if _texts(old.corpora) != _texts(corpora):
        yield "texts"
    if _judged(old) and _unseen(old) != {(name, "unseen", sha256) for name, sha256 in unseen.items()}:
        yield "unseen texts"
    known = {model.sha256 for model in checkpoints}
    yield from (f"checkpoint '{item.label}'" for item in old.checkpoints if item.model.sha256 not in known)


def _judged(old: FootprintRecord) -> bool:
    return isinstance(old.verdict, VerdictRecord)


def _unseen(old: FootprintRecord) -> set[tuple[str, str, str]]:
    texts = old.verdict.texts if isinstance(old.verdict, VerdictRecord) else ()
    return {(text.name, text.role, text.sha256) for text in texts if text.role == "unseen"}


def _texts(corpora: Sequence[CorpusRecord]) -> set[tuple[str, str, str]]:
    return {(corpus.name, corpus.role, corpus.sha256) for corpus in corpora}
