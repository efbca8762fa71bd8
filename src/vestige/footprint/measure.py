"""One model on one subset: Fisher, Hessian and perplexity through the cache, and their comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vestige.data.corpora import Sample, TokenSequence, truncated
from vestige.footprint.cache import VERSION, Cache, sample_digest
from vestige.footprint.fisher import Fisher, fisher_diagonal, per_batch_limit
from vestige.footprint.hessian import hessian_diagonal
from vestige.footprint.passes import weights_of
from vestige.footprint.perplexity import Perplexity, perplexity
from vestige.footprint.records import FootprintSettings
from vestige.footprint.shifts import Sums, floor_share, module_sums
from vestige.footprint.world import World
from vestige.models.causal_lm import LanguageModel
from vestige.models.projections import target_parameters
from vestige.seeds import digest

__all__ = ["Comparison", "Meter", "Subset", "subsets_of"]


@dataclass(frozen=True)
class Subset:
    """One seeded subset of one corpus. short: what the Hessian is measured on; texts: what perplexity is."""

    corpus: str
    number: int
    units: tuple[TokenSequence, ...]
    short: tuple[TokenSequence, ...] = ()
    texts: tuple[str | tuple[int, ...], ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of all units."""
        return sum(len(unit.ids) for unit in self.units)


def subsets_of(corpus: str, sample: Sample, *, hessian_length: int) -> list[Subset]:
    """The sample's subsets with what of each is measured how."""
    return [
        Subset(
            corpus,
            k,
            units,
            short=sample.short[k] if sample.short else truncated(units, hessian_length),
            texts=sample.texts[k] if sample.texts else tuple(unit.own for unit in units),
        )
        for k, units in enumerate(sample.subsets)
    ]


@dataclass(frozen=True)
class Comparison:
    """Two models on one subset. log, linear: Fisher sums by weight; floor: shares (base, after); traces,
    losses: (base, after) by unit."""

    log: dict[str, Sums]
    linear: dict[str, Sums]
    floor: tuple[float, float]
    traces: tuple[list[float], list[float]]
    losses: tuple[list[float], list[float]]


@dataclass
class Meter:
    """Measures models with one set of settings. passes: sequences that went forward and backward; cached:
    sequences whose result was on disk. advance(kind, tokens): what was done."""

    settings: FootprintSettings
    cache: Cache
    world: World
    batch_tokens: int = 1024
    checkpointing: bool = False
    max_bytes: int | None = None
    advance: Callable[[str, float], None] = lambda kind, tokens: None
    passes: int = 0
    cached: int = 0
    tokens: int = 0
    chunks: int = 1
    _names: dict[str, str] = field(default_factory=dict)

    def fisher_now(
        self,
        model: nn.Module,
        units: Sequence[TokenSequence],
        coordinates: dict[str, Tensor] | None = None,
        progress: Callable[[int], None] = lambda tokens: None,
    ) -> Fisher:
        """The Fisher diagonal by these settings, computed."""
        s = self.settings
        found = fisher_diagonal(
            model,
            target_parameters(weights_of(model), s.subspace),
            units,
            reduction=s.reduction,
            estimator=s.estimator,
            batch_size=per_batch_limit(model),
            batch_tokens=self.batch_tokens,
            batch_mean_size=s.batch_mean_size,
            world=self.world,
            coordinates=coordinates,
            checkpointing=self.checkpointing,
            max_bytes=self.max_bytes,
            progress=progress,
        )
        self.passes += len(units) * found.chunks
        self.tokens += sum(len(unit.ids) for unit in units) * found.chunks
        self.chunks = max(self.chunks, found.chunks)
        return found

    def fisher(
        self, model: LanguageModel, subset: Subset, *, keep: bool = True, again: bool = False
    ) -> Fisher:
        """The Fisher diagonal, from the cache where it is there. again: it was counted before."""
        key = self._fisher_key(model, subset)
        self._count(not again and self.cache.has("fisher", key), subset, "fisher")

        def compute() -> Fisher:
            return self.fisher_now(model.model, subset.units, progress=lambda n: self.advance("fisher", n))

        return self.cache.fisher(key, compute, keep=keep)

    def compare(self, base: LanguageModel, after: LanguageModel, subset: Subset, *, keep: bool) -> Comparison:
        """Fisher sums of the two models on a subset; of what is on disk already, nothing is computed."""
        s = self.settings
        keys = [self._fisher_key(model, subset) for model in (base, after)]
        key = digest("comparison", VERSION, *keys, s.floor, s.stored_base)
        if self.cache.has("comparison", key):
            self._count(True, subset, "fisher")
        found = self.cache.result("comparison", key, lambda: self._compared(base, after, subset, keep))
        return Comparison(
            log={name: Sums(*sums) for name, sums in found["log"].items()},
            linear={name: Sums(*sums) for name, sums in found["linear"].items()},
            floor=(found["floor"][0], found["floor"][1]),
            traces=(found["traces"][0], found["traces"][1]),
            losses=(found["losses"][0], found["losses"][1]),
        )

    def _compared(self, base: LanguageModel, after: LanguageModel, subset: Subset, keep: bool) -> Any:
        before = self.fisher(base, subset, again=True)
        now = self.fisher(after, subset, keep=keep)
        floor = self.settings.floor
        half: tuple[Literal["base"], ...] = ("base",) if self.settings.stored_base == "float16" else ()

        def sums(scale: Any) -> Any:
            found = module_sums(
                before.values,
                now.values,
                scale=scale,
                floor=floor,
                half=half if scale == "log" else (),
            )
            return {name: [part.base, part.change, part.parameters] for name, part in found.items()}

        return {
            "log": sums("log"),
            "linear": sums("linear"),
            "floor": [floor_share(values.values, floor) for values in (before, now)],
            "traces": [values.traces.tolist() for values in (before, now)],
            "losses": [values.losses.tolist() for values in (before, now)],
        }

    def hessian(
        self, model: LanguageModel, subset: Subset, *, seed: int, keep: bool = True, again: bool = False
    ) -> dict[str, Tensor]:
        """The Hessian diagonal from this seed's probes, from the cache where it is there."""
        key = self._hessian_key(model, subset, seed)
        self._count(not again and self.cache.has("hessian", key), subset, "hessian")

        def compute() -> dict[str, Tensor]:
            s = self.settings
            units = subset.short
            found = hessian_diagonal(
                model.model,
                target_parameters(weights_of(model.model), s.subspace),
                units,
                probes=s.probes,
                method=s.hessian,
                group_size=s.hessian_group,
                seed=seed,
                corpus=subset.corpus,
                subset=subset.number,
                reduction=s.reduction,
                batch_tokens=self.batch_tokens,
                step_dtype=getattr(torch, s.dtype) if s.step_dtype == "measured" else None,
                world=self.world,
            )
            self.passes += len(units) * s.probes
            self.advance("hessian", sum(len(unit.ids) for unit in units))
            return found

        return self.cache.diagonal("hessian", key, compute, keep=keep)

    def hessian_sums(
        self,
        base: LanguageModel,
        after: LanguageModel,
        subset: Subset,
        seeds: tuple[int, int],
        *,
        again: bool = False,
    ) -> Sums:
        """Sums over all weights of the log-scale Hessian shift between two models or two probe seeds."""
        keys = [
            self._hessian_key(model, subset, seed) for model, seed in zip((base, after), seeds, strict=True)
        ]
        stored = self.settings.stored_base if not again else "as measured"
        key = digest("curvature", VERSION, *keys, self.settings.floor, stored)

        def compute() -> list[float]:
            before = self.hessian(base, subset, seed=seeds[0], again=True)
            now = self.hessian(after, subset, seed=seeds[1], keep=False, again=again)
            half: tuple[Literal["base"], ...] = ("base",) if stored == "float16" else ()
            parts = module_sums(before, now, scale="log", floor=self.settings.floor, half=half).values()
            total = sum(parts, Sums(0.0, 0.0, 0))
            return [total.base, total.change, total.parameters]

        if not again and self.cache.has("curvature", key):
            self._count(True, subset, "hessian")
        base_sum, change, count = self.cache.result("curvature", key, compute)
        return Sums(base_sum, change, count)

    def perplexity(self, model: LanguageModel, subset: Subset) -> Perplexity:
        """Perplexity of the subset's texts joined, from the cache where it is there."""
        s = self.settings
        texts = subset.texts
        key = digest(
            "perplexity",
            VERSION,
            model.record.sha256,
            digest(*texts),
            s.perplexity_tokens,
            s.perplexity_window,
            s.perplexity_stride,
        )

        def compute() -> list[float]:
            found = perplexity(
                model.model,
                model.tokenizer,
                texts,
                max_tokens=s.perplexity_tokens,
                window=s.perplexity_window,
                stride=s.perplexity_stride,
            )
            return [found.nll, found.tokens]

        nll, tokens = self.cache.result("perplexity", key, compute)
        self.advance("perplexity", tokens)
        return Perplexity(nll=nll, tokens=int(tokens))

    def _count(self, cached: bool, subset: Subset, kind: str) -> None:
        if cached:
            units = subset.short if kind == "hessian" else subset.units
            self.cached += len(units)
            self.advance(kind, sum(len(unit.ids) for unit in units))

    def _targets(self, model: LanguageModel) -> str:
        """Digest of the measured weights' names and shapes."""
        if model.record.sha256 not in self._names:
            targets = target_parameters(weights_of(model.model), self.settings.subspace)
            self._names[model.record.sha256] = digest(
                *(f"{name}{tuple(value.shape)}" for name, value in targets.items())
            )
        return self._names[model.record.sha256]

    def _fisher_key(self, model: LanguageModel, subset: Subset) -> str:
        s = self.settings
        estimator = s.estimator if s.estimator == "per-sequence" else f"batch-mean {s.batch_mean_size}"
        return digest(
            "fisher",
            VERSION,
            model.record.sha256,
            sample_digest(subset.units),
            s.reduction,
            estimator,
            s.dtype,
            self._targets(model),
            self.batch_tokens,
        )

    def _hessian_key(self, model: LanguageModel, subset: Subset, seed: int) -> str:
        s = self.settings
        return digest(
            "hessian",
            VERSION,
            model.record.sha256,
            sample_digest(subset.short),
            s.reduction,
            s.dtype,
            self._targets(model),
            (s.probes, s.hessian, s.hessian_group, s.step_dtype, seed, subset.corpus, subset.number),
        )
