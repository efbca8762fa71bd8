"""From models and files to a behaviour record: the base asked once, every checkpoint paired with it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

import vestige
from vestige.behaviour.accuracy import (
    CONDITION,
    Paired,
    headroom,
    role_accuracies,
    subject_accuracies,
    tripartite_loss,
)
from vestige.behaviour.asking import correct_answers
from vestige.behaviour.kept import Kept
from vestige.behaviour.partition import (
    Files,
    Subject,
    partition_warnings,
    question_sets,
    read_partition,
)
from vestige.behaviour.records import (
    RECORD,
    BehaviourRecord,
    BehaviourSettings,
    CheckpointBehaviour,
    TofuRecord,
    TofuSet,
)
from vestige.behaviour.tofu import RowScores, TofuFile, read_tofu, row_scores, tofu_record, tofu_set
from vestige.contracts import Undefined
from vestige.errors import InputError, first_five, refused_of
from vestige.files import refuse_overwriting, stored_record, writable_folder, write_text
from vestige.footprint.checkpoints import (
    Checkpoint,
    ModelSource,
    ModelSources,
    Quiet,
    Watcher,
    checkpoints_of,
    listed,
    opener,
    resolvable,
)
from vestige.footprint.records import FootprintRecord
from vestige.locks import alone_in_out
from vestige.models.causal_lm import LanguageModel, check_comparable
from vestige.models.devices import chosen_device
from vestige.readers import read_json

__all__ = ["behaviour", "read_footprint"]


@alone_in_out("behaviour")
def behaviour(
    *,
    base: ModelSource,
    models: ModelSources,
    questions: Mapping[str, Files] | None = None,
    tofu: Mapping[str, str | Path] | None = None,
    oracle: ModelSource | None = None,
    footprint: FootprintRecord | str | Path | None = None,
    settings: BehaviourSettings | None = None,
    out: str | Path | None = None,
    cache: str | Path | None = None,
    name: str = "behaviour",
    device: str | None = None,
    revision: str | None = None,
    batch_tokens: int = 8192,
    watcher: Watcher | None = None,
) -> BehaviourRecord:
    """What unlearned checkpoints still answer on forget, adjacent and generic questions, and on TOFU.

    base, models, oracle: as in `vestige.footprint`. questions: `ROLE[:TOPIC[/SUBJECT]]` or `mmlu` -> file,
    folder or several. tofu: forget, retain, real_authors, world_facts -> file. footprint: the record of the
    same checkpoints, for the relation of its gap with B-Gap. out: folder for behaviour.json. cache: folder
    for answers (default: `cache` in out); the same call again takes from it what is there. Raises InputError
    in one line.
    """
    settings = settings or BehaviourSettings()
    watcher = watcher or Quiet()
    if not questions and not tofu:
        raise InputError(
            "--questions", "no file", "questions or TOFU files", "give --questions forget:NAME=FILE"
        )
    subjects = read_partition(questions or {}, asking=settings)
    files = [read_tofu(path, name) for name, path in (tofu or {}).items()]
    prints = read_footprint(footprint) if footprint is not None else None
    if out is not None:
        writable_folder(Path(out))
    folder = Path(cache) if cache is not None else Path(out) / "cache" if out is not None else None
    resolvable(base, *listed(models, option="--model").values(), *([oracle] if oracle is not None else []))
    device = chosen_device(device)

    opened = opener(dtype=settings.dtype, revision=revision, device=device)
    watcher.stage("reading the models")
    first = opened(base, None, None)
    checkpoints = checkpoints_of(models, oracle, first, opened)
    if out is not None:
        _refuse_other(Path(out) / RECORD, settings, first, checkpoints, subjects, files)
    run = _Run(
        settings=settings,
        subjects=subjects,
        files=files,
        kept=Kept(writable_folder(folder) if folder is not None else None),
        watcher=watcher,
        batch_tokens=batch_tokens,
    )
    work = sum(len(q.options) for s in subjects for q in s.questions) + sum(len(f.rows) for f in files)
    watcher.total = float(work * (1 + len(checkpoints)))
    base_right, base_tofu = run.ask(first, "base")
    before = [Paired(s, right, right) for s, right in zip(subjects, base_right, strict=True)]
    measured: list[tuple[Checkpoint, LanguageModel, list[Paired], dict[str, list[RowScores]]]] = []
    for checkpoint in checkpoints:
        model = checkpoint.open()
        check_comparable(first, model)
        right, rows = run.ask(model, checkpoint.label)
        pairs = [Paired(s, b, a) for s, b, a in zip(subjects, base_right, right, strict=True)]
        # The weights are let go before the next checkpoint is read.
        measured.append((checkpoint, _only_record(model), pairs, rows))
    oracle_rows = next((rows for item, _, _, rows in measured if item.role == "oracle"), None)
    draws = {"draws": settings.draws, "seed": settings.seed}
    rooms = headroom(before, **draws)
    found = tuple(
        CheckpointBehaviour(
            label=checkpoint.label,
            role=checkpoint.role,
            model=model.record,
            subjects=subject_accuracies(pairs),
            roles=role_accuracies(pairs, **draws),
            loss=tripartite_loss(
                pairs, adjacency_gap=_adjacency_gap(prints, checkpoint.label, first, model), **draws
            ),
            tofu=run.tofu_of(rows, base_tofu, oracle_rows if checkpoint.role != "oracle" else None),
            notes=model.record.notes,
        )
        for checkpoint, model, pairs, rows in measured
    )
    warnings = partition_warnings(subjects, questions or {})
    record = BehaviourRecord(
        name=name,
        settings=settings,
        base=first.record,
        question_sets=question_sets(subjects),
        tofu_sets=tuple(run.tofu_sets.values()),
        base_subjects=subject_accuracies(before),
        base_roles=role_accuracies(before, **draws),
        headroom=rooms,
        base_tofu=run.tofu_of(base_tofu, {}, oracle_rows),
        checkpoints=found,
        seconds=run.seconds,
        from_cache=run.kept.hits,
        caveats=(
            *warnings,
            *_caveats(record_tofu=bool(files), subjects=subjects, settings=settings),
        ),
        not_tested=_untested(subjects, files, has_oracle=oracle is not None),
        condition=CONDITION,
        provenance={"vestige": vestige.__version__, "torch": torch.__version__, "device": device},
    )
    if out is not None:
        write_text(Path(out) / RECORD, record.to_json() + "\n")
    return record


def _refuse_other(
    path: Path,
    settings: BehaviourSettings,
    base: LanguageModel,
    checkpoints: Sequence[Checkpoint],
    subjects: Sequence[Subject],
    files: Sequence[TofuFile],
) -> None:
    """Raise InputError when the record at `path` holds answers that this call would not ask for again."""
    old = stored_record(path, BehaviourRecord)
    if old is None:
        return
    was, now = old.settings.model_dump(), settings.model_dump()
    odd = [name.replace("_", " ") for name in was if was[name] != now[name]]
    odd += ["base"] if old.base.sha256 != base.record.sha256 else []
    sets = {(item.role, item.topic, item.subject, item.content) for item in question_sets(subjects)}
    odd += [
        f"questions {item.topic}/{item.subject}"
        for item in old.question_sets
        if (item.role, item.topic, item.subject, item.content) not in sets
    ]
    tofu = {(file.name, file.sha256) for file in files}
    odd += [f"TOFU's {item.name}" for item in old.tofu_sets if (item.name, item.sha256) not in tofu]
    labels = {item.label for item in checkpoints}
    odd += [f"checkpoint '{item.label}'" for item in old.checkpoints if item.label not in labels]
    refuse_overwriting(path, "answers to other questions or of other models", odd)


@dataclass
class _Run:
    """What all models are asked, and how far it is."""

    settings: BehaviourSettings
    subjects: Sequence[Subject]
    files: Sequence[TofuFile]
    kept: Kept
    watcher: Watcher
    batch_tokens: int
    tofu_sets: dict[str, TofuSet] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def ask(
        self, model: LanguageModel, label: str
    ) -> tuple[list[tuple[bool, ...]], dict[str, list[RowScores]]]:
        """Right answers of each subject, and rows' scores of each TOFU set."""
        with self._timed(label), refused_of(f"model '{label}'"):
            right = [self._subject(model, label, subject) for subject in self.subjects]
            rows: dict[str, list[RowScores]] = {
                file.name: self._tofu(model, label, file) for file in self.files
            }
        return right, rows

    def _subject(self, model: LanguageModel, label: str, subject: Subject) -> tuple[bool, ...]:
        self.watcher.stage(f"{label}: {subject.role} questions, {subject.name}")
        seen = 0

        def advance(options: int) -> None:
            nonlocal seen
            seen += options
            self.watcher.advance(options)

        right = correct_answers(
            model, subject, self.settings, kept=self.kept, batch_tokens=self.batch_tokens, advance=advance
        )
        self.watcher.advance(sum(len(question.options) for question in subject.questions) - seen)
        return right

    def _tofu(self, model: LanguageModel, label: str, file: TofuFile) -> list[RowScores]:
        self.watcher.stage(f"{label}: TOFU {file.name}")
        rows, truncated = row_scores(
            model,
            file,
            self.settings.tofu,
            kept=self.kept,
            batch_tokens=self.batch_tokens,
            advance=self.watcher.advance,
        )
        self.tofu_sets.setdefault(file.name, tofu_set(file, truncated))
        return rows

    def tofu_of(
        self,
        rows: Mapping[str, Sequence[RowScores]],
        base: Mapping[str, Sequence[RowScores]],
        oracle: Mapping[str, Sequence[RowScores]] | None,
    ) -> TofuRecord | Undefined:
        """One model's scores on all sets, or why there are none."""
        if not self.files:
            return Undefined(undefined="no TOFU files")
        return tofu_record(self.files, rows, base=base, oracle=oracle, settings=self.settings)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self.seconds[part] = round(time.monotonic() - begin, 3)


def read_footprint(source: FootprintRecord | str | Path) -> FootprintRecord:
    """A footprint's record, or that of its file or folder. Raises InputError: no such file, another form."""
    if isinstance(source, FootprintRecord):
        return source
    path = Path(source)
    path = path / "footprint.json" if path.is_dir() else path
    stored = read_json(path)
    try:
        return FootprintRecord.model_validate(stored)
    except ValueError:
        raise InputError(
            str(path), "no record of a footprint", "footprint.json of vestige footprint", "measure it again"
        ) from None


def _adjacency_gap(
    record: FootprintRecord | None, label: str, base: LanguageModel, model: LanguageModel
) -> float | Undefined:
    """AdjGap of the footprint's checkpoint with these weights on this base."""
    if record is None:
        return Undefined(undefined="no footprint was given")
    if record.base.sha256 != base.record.sha256:
        return Undefined(undefined="the footprint is of another base")
    for checkpoint in record.checkpoints:
        if checkpoint.model.sha256 == model.record.sha256:
            published = checkpoint.published
            return published if isinstance(published, Undefined) else published.adjacency_gap
    labels = first_five(checkpoint.label for checkpoint in record.checkpoints)
    return Undefined(undefined=f"the footprint has no checkpoint with the weights of '{label}': {labels}")


def _only_record(model: LanguageModel) -> LanguageModel:
    return LanguageModel(torch.nn.Module(), None, model.record)


def _caveats(
    *,
    record_tofu: bool,
    subjects: Sequence[Subject],
    settings: BehaviourSettings,
) -> tuple[str, ...]:
    lines = []
    if subjects:
        lines.append(
            "wrong answers do not show that knowledge is gone: it may be suppressed, and other questions, "
            "more examples or retraining may bring it back"
        )
    if subjects and settings.ties == "first":
        lines.append(
            "of two likeliest options the one that stands first was taken for the answer, as published"
        )
    if record_tofu:
        lines.append("forget quality compares with one oracle; a p above 0.05 is not a proof of equality")
    return tuple(lines)


def _untested(subjects: Sequence[Subject], files: Sequence[TofuFile], *, has_oracle: bool) -> tuple[str, ...]:
    roles = {subject.role for subject in subjects}
    lines = [f"{role} questions" for role in ("forget", "adjacent", "generic") if role not in roles]
    if not files:
        lines.append("written answers (TOFU)")
    if not has_oracle:
        lines.append("what retraining would have answered: no oracle was given")
    lines.append("whether relearning or other prompts bring answers back")
    return tuple(lines)
