"""`unlearn` and `finetune`: text and a model in, one finished checkpoint folder out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vestige.data.corpora import Corpus, Role, read_corpus
from vestige.data.language_rows import LanguageRows, blocks, language_rows
from vestige.errors import InputError
from vestige.language import ReadingSettings
from vestige.models.causal_lm import LanguageModel, load_language_model
from vestige.models.checkpoints import save_trained
from vestige.models.devices import chosen_device
from vestige.models.positions import refuse_unreadable
from vestige.seeds import digest, generator
from vestige.training.language import fit_rows
from vestige.training.session import Session, Topic, attach_lora, begin, trainable, unlearn_language
from vestige.training.steps import Hooks
from vestige.unlearning.folder import WORK, finished, making, write_log
from vestige.unlearning.records import CheckpointRecord, TextRecord
from vestige.unlearning.settings import (
    TOPIC_SETTINGS,
    FinetuneSettings,
    check_topics,
    chosen,
    language_method,
    settings_of,
)

if TYPE_CHECKING:
    from torch import nn

    from vestige.training.record import TrainingRecord

__all__ = ["finetune", "unlearn"]

Paths = str | Path | Mapping[str, str | Path]
Progress = Callable[[int, int, float], None]


def unlearn(
    *,
    model: str | LanguageModel,
    method: str,
    forget: Paths,
    out: str | Path,
    retain: Paths | None = None,
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    seed: int = 17,
    concepts: Mapping[str, str] | None = None,
    keywords: Mapping[str, tuple[str, ...]] | None = None,
    whole: bool = False,
    device: str = "cpu",
    progress: Progress = lambda step, steps, loss: None,
) -> CheckpointRecord:
    """Unlearn text from a causal language model and write one checkpoint into the folder `out`.

    forget, retain: a file, or topic -> file; one retain file without a topic serves all topics. settings: of
    the method, over those of the preset. concepts, keywords: by topic, for methods that need them. whole:
    save merged weights instead of an adapter. A finished folder of the same identity is not made again, a
    run that was stopped goes on. Raises InputError, Diverged, Interrupted.
    """
    objective = language_method(method)
    use = objective.language
    assert use is not None
    made = settings_of(objective, preset, settings or {})
    published = getattr(made, "reload", "whole") == "published"
    if published and whole:
        raise InputError(
            "setting 'reload'", "published, with whole weights asked for", "one of them", "set reload=whole"
        )
    folder = Path(out)
    loaded = _loaded(model, device, four_bit=made.four_bit)
    named = _named(forget, "forget")
    kept = _kept(retain, named)
    texts: list[TextRecord] = []
    topics: dict[str, Topic] = {}
    check_topics("--concept", concepts or {}, named)
    check_topics("--keywords", keywords or {}, named)
    for key in TOPIC_SETTINGS:
        check_topics(f"setting '{key}'", (settings or {}).get(key) or {}, named)
    for name, path in named.items():
        rows = _rows(path, "forget", loaded, name, made.length(name), made)
        keep, development = LanguageRows(rows=()), None
        texts.append(_text_record(rows, name, "forget"))
        if name in kept:
            every = _rows(kept[name], "generic", loaded, name, made.length(name), made)
            every = every.cut(made.retain_length)
            keep, development = _held_out(every, made, seed, name)
            held = len(development) if development is not None else 0
            texts.append(_text_record(every, name, "retain").model_copy(update={"development": held}))
        topics[name] = Topic(
            rows, keep, development, (concepts or {}).get(name, ""), tuple((keywords or {}).get(name, ()))
        )
    refusals: tuple[str, ...] = ()
    if source := getattr(made, "refusals", None):
        corpus = read_corpus(source, name="refusals", role="generic")
        refusals = tuple(document.text for document in corpus.documents)
        texts.append(
            TextRecord(
                topic="",
                role="refusals",
                path=corpus.path,
                sha256=corpus.sha256,
                rows=len(refusals),
                empty=corpus.empty,
            )
        )
    identity = digest(
        "unlearn",
        method,
        made.to_json(),
        seed,
        whole,
        loaded.record.sha256,
        *[(t.topic, t.role, t.sha256) for t in texts],
        *[(name, topic.concept, topic.keywords) for name, topic in topics.items()],
    )
    with making(folder, identity) as done:
        if done is not None:
            return done
        session = begin(
            loaded.model.to(getattr(torch, made.dtype)),
            loaded.tokenizer,
            objective,
            made,
            topics,
            seed=seed,
            identity=loaded.record.sha256,
            refusals=refusals,
        )
        training, log = unlearn_language(session, folder=folder / WORK, hooks=Hooks(progress=progress))
        if published:
            session.notes.append(
                "saved as published, the trained part alone: put on the base as it was before, it is not the "
                "model that was trained; reload=whole saves that one"
            )
        return _finished(
            session.model,
            loaded,
            folder,
            training,
            log,
            whole=whole or (use.saves_whole and not published),
            session=session,
            record={
                "kind": "unlearned",
                "method": method,
                "title": objective.title,
                "preset": preset,
                "settings": made.model_dump(mode="json"),
                "seed": seed,
                "texts": tuple(texts),
                "identity": identity,
            },
        )


def finetune(
    *,
    model: str | LanguageModel,
    data: str | Path,
    out: str | Path,
    settings: Mapping[str, Any] | None = None,
    seed: int = 17,
    whole: bool = False,
    device: str = "cpu",
    progress: Progress = lambda step, steps, loss: None,
) -> CheckpointRecord:
    """Train a causal language model on a file of text and write one checkpoint into the folder `out`.

    Questions and answers, and conversations: the loss is on answers alone. Otherwise as `unlearn`.
    """
    made = chosen(FinetuneSettings, {}, settings or {})
    folder = Path(out)
    if made.four_bit and made.lora is None:
        raise InputError(
            "setting 'four_bit'", "all weights trained", "adapters over 4-bit weights", "give lora a rank"
        )
    loaded = _loaded(model, device, four_bit=made.four_bit)
    if made.blocks:
        corpus = read_corpus(data, name=Path(data).stem, role="generic")
        rows = blocks(corpus, loaded.tokenizer, length=made.max_length)
    else:
        rows = _rows(data, "generic", loaded, "", made.max_length, made)
    text = _text_record(rows, "", "data")
    identity = digest("finetune", made.to_json(), seed, whole, loaded.record.sha256, text.sha256)
    with making(folder, identity) as done:
        if done is not None:
            return done
        trained: nn.Module = loaded.model.to(getattr(torch, made.master))
        if made.lora is not None:
            trained = attach_lora(trained.requires_grad_(False), made.lora, seed=seed)
        else:
            trained.requires_grad_(True)
        training, log = fit_rows(
            trained,
            rows.rows,
            made,
            seed=seed,
            folder=folder / WORK,
            hooks=Hooks(progress=progress),
            state=trainable(trained),
            identity=identity,
        )
        return _finished(
            trained,
            loaded,
            folder,
            training,
            log,
            whole=whole,
            session=None,
            record={
                "kind": "fine-tuned",
                "method": "",
                "title": "fine-tuning",
                "preset": "default",
                "settings": made.model_dump(mode="json"),
                "seed": seed,
                "texts": (text,),
                "identity": identity,
            },
        )


def _loaded(model: str | LanguageModel, device: str, *, four_bit: bool = False) -> LanguageModel:
    """The model to train. One in memory is copied: the caller's own never changes."""
    device = chosen_device(device)
    if isinstance(model, str):
        found = load_language_model(model, device=device, four_bit=four_bit)
    else:
        import copy

        found = replace(model, model=copy.deepcopy(model.model).float().to(device))
    if found.record.adapter == "prompt encoder":
        raise InputError(
            f"model '{found.record.label}'",
            "a prompt encoder",
            "a model with weights of its own",
            "train its base",
        )
    return found


def _named(given: Paths, role: str) -> dict[str, str]:
    """Topic -> file; a file alone is named by its stem."""
    found = (
        {str(name): str(path) for name, path in given.items()}
        if isinstance(given, Mapping)
        else {Path(given).stem: str(given)}
    )
    if not found:
        raise InputError(f"--{role}", "no file", "at least one", f"give --{role} FILE")
    return found


def _kept(retain: Paths | None, topics: Mapping[str, str]) -> dict[str, str]:
    """Topic -> retain file; a file without a topic serves all."""
    if retain is None:
        return {}
    if not isinstance(retain, Mapping):
        return dict.fromkeys(topics, str(retain))
    check_topics("--retain", retain, topics)
    return {name: str(path) for name, path in retain.items()}


def _rows(
    path: str | Path, role: Role, model: LanguageModel, topic: str, max_length: int, reading: ReadingSettings
) -> LanguageRows:
    corpus: Corpus = read_corpus(path, name=topic or Path(path).stem, role=role)
    rows = language_rows(corpus, model.tokenizer, topic=topic, max_length=max_length, reading=reading)
    ids = (row.ids for row in rows)
    refuse_unreadable(model.model, ids, subject=f"{path}, a row", remedy="lower --max-length")
    return rows


def _held_out(
    rows: LanguageRows, settings: Any, seed: int, topic: str
) -> tuple[LanguageRows, LanguageRows | None]:
    """(rows to train on, rows held out): whole documents, at most a fifth of the rows; none where the last
    state is kept, or where there are too few documents."""
    if settings.select != "development":
        return rows, None
    documents = sorted({row.document for row in rows})
    room = min(settings.development_rows, len(rows) // 5)
    order = [documents[int(i)] for i in generator(seed, "held out", topic).permutation(len(documents))]
    sizes: dict[int, int] = {}
    for row in rows:
        sizes[row.document] = sizes.get(row.document, 0) + 1
    held: set[int] = set()
    for document in order:
        if sizes[document] <= room:
            held.add(document)
            room -= sizes[document]
    kept = [i for i, row in enumerate(rows) if row.document not in held]
    out = [i for i, row in enumerate(rows) if row.document in held]
    return rows.only(kept), rows.only(out) if out else None


def _text_record(rows: LanguageRows, topic: str, role: Any) -> TextRecord:
    return TextRecord(
        topic=topic,
        role=role,
        path=rows.path,
        sha256=rows.sha256,
        rows=len(rows),
        empty=rows.empty,
        short=rows.short,
        truncated=rows.truncated,
        windowed=rows.windowed,
        notes=rows.notes,
    )


def _finished(
    trained: nn.Module,
    loaded: LanguageModel,
    folder: Path,
    training: TrainingRecord,
    log: list[dict[str, Any]],
    *,
    whole: bool,
    session: Session | None,
    record: dict[str, Any],
) -> CheckpointRecord:
    """Save, and take the mark of the unfinished away last."""
    from vestige import __version__

    adapter = not whole and hasattr(getattr(trained, "prompted", trained), "peft_config")
    files = save_trained(trained, loaded.tokenizer, folder, base=loaded.record, whole=whole)
    write_log(folder, log)
    made = CheckpointRecord(
        **record,
        model=loaded.record,
        training=training,
        saved="adapter" if adapter else "whole",
        files=files,
        folder=str(folder),
        notes=tuple(session.notes) if session is not None else (),
        phases=tuple(session.phases) if session is not None else (),
        version=__version__,
    )
    finished(folder, made)
    return made
