"""From models and texts to a footprint's record: the base measured once, every checkpoint against it."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import vestige
from vestige.contracts import Undefined
from vestige.data.corpora import Corpus, Sample
from vestige.errors import InputError, refused_of
from vestige.files import writable_folder, write_text
from vestige.footprint.assemble import checkpoint_footprint, corpus_footprint, standing_caveats, untested
from vestige.footprint.cache import Cache, StoredDiagonals
from vestige.footprint.checkpoints import (
    Checkpoint,
    ModelSources,
    Quiet,
    Watcher,
    checkpoints_of,
    listed,
    opener,
    oracles_of,
    resolvable,
)
from vestige.footprint.costs import Estimate, estimate
from vestige.footprint.fisher import layer_chunks
from vestige.footprint.folder import RECORD, refuse_other
from vestige.footprint.judgements import Adjacency, CalibratedClass, CalibrationSettings
from vestige.footprint.judging import Judging, bases_of, judging_of, named, unseen_corpora
from vestige.footprint.measure import Comparison, Meter, Subset, subsets_of
from vestige.footprint.outputs import DISK_BYTES
from vestige.footprint.passes import weights_of
from vestige.footprint.perplexity import Perplexity
from vestige.footprint.records import (
    CheckpointFootprint,
    CorpusFootprint,
    CostRecord,
    FootprintRecord,
    FootprintSettings,
)
from vestige.footprint.shifts import Sums
from vestige.footprint.texts import (
    Source,
    corpora_of,
    corpus_records,
    document_units,
    first_of_roles,
    samples_of,
    warnings_of,
)
from vestige.footprint.verdict_records import VerdictRecord
from vestige.footprint.world import World
from vestige.locks import alone_in_out
from vestige.models.causal_lm import LanguageModel, check_comparable
from vestige.models.devices import chosen_device
from vestige.models.lm_record import LanguageModelRecord
from vestige.models.positions import refuse_unreadable
from vestige.models.projections import layer_modules, target_parameters
from vestige.seeds import stable_seed
from vestige.unlearning.folder import retained_by

__all__ = ["Quiet", "Watcher", "footprint"]


@alone_in_out("footprint")
def footprint(
    *,
    base: ModelSources,
    unlearned: ModelSources,
    forget: Mapping[str, Source] | Source,
    generic: Mapping[str, Source] | Source,
    adjacent: Mapping[str, Source] | Source | None = None,
    oracle: ModelSources | None = None,
    unseen: Mapping[str, Source] | Source | None = None,
    settings: FootprintSettings | None = None,
    out: str | Path | None = None,
    cache: str | Path | None = None,
    name: str = "footprint",
    device: str | None = None,
    revision: str | None = None,
    four_bit: bool = False,
    base_accuracy: str | None = None,
    batch_tokens: int = 1024,
    checkpointing: bool = False,
    max_bytes: int | None = None,
    disk_bytes: int = DISK_BYTES,
    family: Sequence[str] = (),
    world: World | None = None,
    watcher: Watcher | None = None,
) -> FootprintRecord:
    """The footprint of unlearned checkpoints on forget, adjacent and generic text, and the verdict on them.

    base, unlearned, oracle: folders, adapter folders, wheels, GGUF files, hub ids, or `LanguageModel`s;
    several unlearned ones as a list or label -> model, or label -> training seeds. Shifts are from the first
    base; further ones, and several oracles, tell the verdict what trainings differ by. forget, adjacent,
    generic: name -> file or `Corpus`, or one of them; unseen: texts like those to be forgotten, or
    paraphrases, that no model was trained on. unlearned may be {}: then the base and the adjacent corpus
    alone are looked at. out: folder for footprint.json. cache: folder for diagonals (default: `cache` in
    out, else a temporary one); the same call again takes from it what is there. family: labels that the
    verdict's correction runs over. batch_tokens, checkpointing, max_bytes, disk_bytes: memory and time
    alone. Raises InputError in one line.
    """
    settings = settings or FootprintSettings()
    world, watcher = world or World(), watcher or Quiet()
    started = time.monotonic()
    corpora = corpora_of(named(forget, "forget"), named(adjacent, "adjacent"), named(generic, "generic"))
    others = unseen_corpora(named(unseen, "unseen"), corpora)
    bases = bases_of(base)
    device = chosen_device(device)
    if base_accuracy is not None:
        from vestige.footprint.adjacency import stated_accuracy

        stated_accuracy(base_accuracy)
    if out is not None:
        writable_folder(Path(out))
    resolvable(*bases.values(), *listed(unlearned).values(), *oracles_of(oracle).values())

    opened = opener(dtype=settings.dtype, revision=revision, device=device, four_bit=four_bit)
    watcher.stage("reading the models")
    first = opened(next(iter(bases.values())), None, None)
    if first.record.adapter == "prompt encoder":
        raise InputError(
            "--base", "a prompt encoder", "a model with weights of its own", "name the base model"
        )
    checkpoints = checkpoints_of(unlearned, oracle, first, opened)
    kept, found = _checked(first, checkpoints, settings)
    targets = target_parameters(first.model, settings.subspace)
    samples = samples_of(corpora, first.tokenizer, settings)
    before = max((record.virtual_tokens for record in found), default=0)
    for corpus_name, sample in samples.items():
        refuse_unreadable(
            first.model,
            (unit.ids for part in (*sample.subsets, *sample.short) for unit in part),
            subject=f"corpus '{corpus_name}', a unit",
            remedy="lower --max-length",
            before=before,
        )
    records = corpus_records(corpora, samples, settings)
    if out is not None:
        refuse_other(
            Path(out),
            settings=settings,
            base=first.record,
            corpora=records,
            checkpoints=found,
            unseen={corpus.name: corpus.sha256 for corpus in others.values()},
        )
    judging = (
        judging_of(
            first=first,
            bases=bases,
            opened=opened,
            checkpoints=checkpoints,
            records=found,
            corpora=corpora,
            unseen=others,
            settings=settings.verdict,
            max_length=settings.max_length,
            text=settings.text,
            seed=settings.seed,
            device=device,
            batch_tokens=batch_tokens,
            disk_bytes=disk_bytes,
            world=world,
        )
        if settings.verdict is not None and any(item.role == "unlearned" for item in checkpoints)
        else None
    )
    chunks = len(world.from_lead(layer_chunks(targets, max_bytes)))
    parts = {n: subsets_of(n, s, hessian_length=settings.hessian_length) for n, s in samples.items()}
    expected = estimate(
        settings,
        lengths={n: [[len(u.ids) for u in part.units] for part in own] for n, own in parts.items()},
        short={n: [[len(u.ids) for u in part.short] for part in own] for n, own in parts.items()},
        checkpoints=len(checkpoints),
        weight_changes=sum(kept.values()),
        parameters=sum(value.numel() for value in targets.values()),
        chunks=chunks,
        wide=settings.dtype == "float64",
        judged=judging.tokens if judging is not None else 0,
    )
    with _folder(cache, out) as folder:
        run = _Run(
            settings=settings,
            meter=Meter(
                settings=settings,
                cache=Cache(folder, world),
                world=world,
                batch_tokens=batch_tokens,
                checkpointing=checkpointing,
                max_bytes=max_bytes,
                advance=lambda kind, tokens: watcher.advance(expected.weights[kind] * tokens / world.size),
            ),
            base=first,
            corpora=corpora,
            samples=samples,
            subsets=parts,
            watcher=watcher,
            folder=folder,
        )
        warnings = warnings_of(corpora)
        for line in (*warnings, *(f"{record.name}: {note}" for record in records for note in record.notes)):
            watcher.say(f"note: {line}")
        pilot = run.pilot()
        watcher.total = expected.work
        watcher.say(expected.line(expected.seconds(pilot, world.size)))
        if chunks > 1:
            watcher.say(
                f"the sums do not fit into free memory at once: {chunks} chunks of layers, as many passes"
            )
        verdict = run.verdict(judging, family)
        run.measure_base(alone=not checkpoints)
        measured = [run.measure(checkpoint, kept[checkpoint.label]) for checkpoint in checkpoints]
        record = FootprintRecord(
            name=name,
            settings=settings,
            base=first.record,
            parameters=sum(value.numel() for value in targets.values()),
            layers=len(layer_modules(first.model)),
            corpora=records,
            checkpoints=tuple(measured),
            adjacency=run.adjacency(base_accuracy),
            verdict=verdict,
            cost=_cost(run, expected, device, time.monotonic() - started),
            caveats=(*warnings, *standing_caveats(settings, records, measured)),
            not_tested=untested(settings, corpora, measured, has_oracle=oracle is not None),
            condition=(
                f"{settings.subsets} seeded subsets of text (seed {settings.seed}), one training run of each "
                "model: sampling of text alone, no training variance"
            ),
            provenance={
                "vestige": vestige.__version__,
                "torch": torch.__version__,
                "seed": settings.seed,
            },
        )
    if out is not None and world.leads:
        write_text(Path(out) / RECORD, record.to_json() + "\n")
    return record


@dataclass
class _Run:
    """What all parts of one run read, and what was measured of the base."""

    settings: FootprintSettings
    meter: Meter
    base: LanguageModel
    corpora: Mapping[str, Corpus]
    samples: Mapping[str, Sample]
    subsets: Mapping[str, list[Subset]]
    watcher: Watcher
    folder: Path

    def __post_init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.floors: dict[str, list[Sums]] = {}
        self.perplexities: dict[str, list[Perplexity]] = {}

    def pilot(self) -> float:
        """Tokens forward and backward per second, from one short batch."""
        units = sorted(next(iter(self.samples.values())).subsets[0], key=lambda unit: len(unit.ids))
        some = units[len(units) // 2 :][:2]
        alone = Meter(self.settings, self.meter.cache, World(), self.meter.batch_tokens)
        with refused_of(f"model '{self.base.record.label}'"):
            alone.fisher_now(self.base.model, some[:1])  # the first pass of a process is slow
            begin = time.monotonic()
            alone.fisher_now(self.base.model, some)
        return sum(len(unit.ids) for unit in some) / max(time.monotonic() - begin, 1e-6)

    def verdict(self, judging: Judging | None, family: Sequence[str]) -> VerdictRecord | Undefined:
        """What every model gives the texts, and the verdict on the unlearned ones."""
        if judging is None:
            left_out = self.settings.verdict is None
            return Undefined(undefined="left out: --no-verdict" if left_out else "no unlearned model")
        judging.reading.cache, judging.reading.folder = self.meter.cache, self.folder
        judging.reading.advance = lambda tokens: self.meter.advance("verdict", tokens)
        self.watcher.stage("verdict: every model on every text")
        with self._timed("verdict"):
            return judging.judge(family=family)

    def measure_base(self, *, alone: bool) -> None:
        """Everything of the base, into the cache; its own Hessian floor. alone: nothing is compared with
        it, so that its perplexity is enough."""
        with self._timed("base"):
            for name, subsets in self.subsets.items():
                self.watcher.stage(f"base on {name}")
                with refused_of(f"model '{self.base.record.label}'"):
                    for subset in subsets if not alone else ():
                        self.meter.fisher(self.base, subset)
                    self.floors[name] = [
                        self._hessian_floor(subset)
                        for subset in subsets
                        if self.settings.probes and not alone
                    ]
                    self.perplexities[name] = [
                        self.meter.perplexity(self.base, subset)
                        for subset in subsets
                        if self.settings.perplexity_tokens
                    ]

    def _hessian_floor(self, subset: Subset) -> Sums:
        seed = self.settings.seed
        for probes in (seed, seed + 1):
            self.meter.hessian(self.base, subset, seed=probes)
        return self.meter.hessian_sums(self.base, self.base, subset, (seed, seed + 1), again=True)

    def measure(self, checkpoint: Checkpoint, measured: bool) -> CheckpointFootprint:
        """One checkpoint on every corpus. measured: whether it has a shift, or its weights are the base's."""
        after = checkpoint.open()
        parts: list[CorpusFootprint] = []
        seed = self.settings.seed
        shared = self.settings.probe_seeds == "shared"
        seeds = (seed, seed if shared else stable_seed(seed, "probes of a model", checkpoint.label))
        with self._timed(checkpoint.label):
            for name, subsets in self.subsets.items():
                self.watcher.stage(f"{checkpoint.label} on {name}")
                comparisons: list[Comparison] = []
                hessians: list[Sums] = []
                with refused_of(f"model '{checkpoint.label}'"):
                    for subset in subsets:
                        if measured:
                            keep = self.settings.calibrate and subset.number == 0
                            comparisons.append(self.meter.compare(self.base, after, subset, keep=keep))
                        if measured and self.settings.probes:
                            hessians.append(self.meter.hessian_sums(self.base, after, subset, seeds))
                    perplexities = [
                        self.meter.perplexity(after, subset)
                        for subset in subsets
                        if self.settings.perplexity_tokens
                    ]
                parts.append(
                    corpus_footprint(
                        self.corpora[name],
                        self.samples[name],
                        comparisons=comparisons,
                        hessians=hessians,
                        floors=self.floors[name],
                        perplexities=(self.perplexities[name], perplexities),
                        settings=self.settings,
                    )
                )
        return checkpoint_footprint(
            label=checkpoint.label,
            role=checkpoint.role,
            model=after.record,
            corpora=parts,
            settings=self.settings,
            calibrated=self._calibrated(checkpoint, after) if after.weight_change else None,
            probe_seeds=seeds if measured and self.settings.probes else (),
            retained=retained_by(
                after.record.location,
                {corpus.sha256: (corpus.name, corpus.role) for corpus in self.corpora.values()},
            ),
        )

    def _calibrated(self, checkpoint: Checkpoint, after: LanguageModel) -> CalibratedClass | Undefined:
        s = self.settings
        if not s.calibrate:
            return Undefined(undefined="not computed: give --calibrate")
        if after.record.adapter == "prompt encoder":
            return Undefined(undefined="not computed: a reference change has no prompt in front, as this has")
        from vestige.footprint.calibration import calibrate

        first = {name: subsets[0] for name, subsets in self.subsets.items()}
        tokens = sum(subset.tokens for subset in first.values())
        done = 0.0

        def advance(text: str, share: float) -> None:
            nonlocal done
            self.watcher.stage(f"{checkpoint.label}: {text}")
            self.meter.advance(
                "calibration", (share - done) * tokens * (s.noise_copies + s.reference_changes)
            )
            done = share

        with self._timed(f"{checkpoint.label}, calibration"):
            return calibrate(
                base=self.base,
                after=after,
                subspace=s.subspace,
                samples={name: subset.units for name, subset in first.items()},
                roles={name: corpus.role for name, corpus in self.corpora.items()},
                fisher=self.meter.fisher_now,
                base_fisher=self._stored(self.base),
                after_fisher=self._stored(after),
                settings=CalibrationSettings(
                    copies=s.noise_copies, references=s.reference_changes, seed=s.seed
                ),
                progress=advance,
                world=self.meter.world,
                cache=self.folder,
            )

    def adjacency(self, base_accuracy: str | None) -> Adjacency | Undefined:
        """Whether the adjacent corpus is one, by its texts and the base."""
        if not any(corpus.role == "adjacent" for corpus in self.corpora.values()):
            return Undefined(undefined="no adjacent corpus")
        from vestige.footprint.adjacency import adjacency

        self.watcher.stage("adjacent corpus")
        first = self.settings.adjacency_texts == "first"
        chosen = first_of_roles(self.corpora) if first else self.corpora
        with self._timed("adjacency"):
            return adjacency(
                corpora=chosen,
                base_fisher=self._of_documents(chosen) if first else self._stored(self.base),
                base_log10_ppl={
                    name: math.fsum(part.log10 for part in found) / len(found)
                    for name, found in self.perplexities.items()
                    if found
                },
                model=self.base,
                base_accuracy=base_accuracy,
                statement=self.settings.statement or None,
                published=first,
                documents=self.settings.units,
            )

    def _of_documents(self, corpora: Mapping[str, Corpus]) -> StoredDiagonals:
        """The base's Fisher diagonals on the published sample of whole documents, cut on the right."""

        def read(subset: Subset) -> Callable[[], Any]:
            return lambda: self.meter.fisher(self.base, subset)

        return StoredDiagonals(
            {
                name: read(Subset(name, 0, document_units(corpus, self.base.tokenizer, self.settings)))
                for name, corpus in corpora.items()
            }
        )

    def _stored(self, model: LanguageModel) -> StoredDiagonals:
        def read(subset: Subset) -> Callable[[], Any]:
            return lambda: self.meter.fisher(model, subset, again=True)

        return StoredDiagonals({name: read(subsets[0]) for name, subsets in self.subsets.items()})

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self.seconds[part] = round(time.monotonic() - begin, 3)


def _checked(
    base: LanguageModel, checkpoints: Sequence[Checkpoint], settings: FootprintSettings
) -> tuple[dict[str, bool], list[LanguageModelRecord]]:
    """Open each checkpoint once, so that one that does not fit is refused before the long work: whether it
    has a shift, by label, and its record."""
    found: dict[str, bool] = {}
    records = []
    for checkpoint in checkpoints:
        model = checkpoint.open()
        check_comparable(base, model)
        if model.record.dtype != base.record.dtype:
            raise InputError(
                f"model '{checkpoint.label}'",
                f"dtype {model.record.dtype}",
                f"{base.record.dtype}, as the base",
                "measure both in one dtype",
            )
        measured = model.weight_change or settings.prompts == "in context"
        if measured:
            target_parameters(weights_of(model.model), settings.subspace)
        found[checkpoint.label] = measured
        records.append(model.record)
    return found, records


@contextmanager
def _folder(cache: str | Path | None, out: str | Path | None) -> Iterator[Path]:
    if cache is not None or out is not None:
        yield writable_folder(Path(cache) if cache is not None else Path(str(out)) / "cache")
        return
    with tempfile.TemporaryDirectory(prefix="vestige-footprint-") as folder:
        yield Path(folder)


def _cost(run: _Run, expected: Estimate, device: str, seconds: float) -> CostRecord:
    return CostRecord(
        passes_planned=expected.passes,
        passes_run=run.meter.passes,
        passes_cached=run.meter.cached,
        tokens=run.meter.tokens,
        gigabytes_planned=expected.gigabytes,
        seconds={**run.seconds, "all": round(seconds, 3)},
        processes=run.meter.world.size,
        chunks=run.meter.chunks,
        device=device,
    )
