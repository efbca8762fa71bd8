"""How shifts depend on the size of the sample, the number of probes and the part of the model measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from vestige.contracts import Undefined
from vestige.data.corpora import Corpus, Role, TokenSequence, draw_sample, truncated
from vestige.data.published_sample import published_documents, published_sample
from vestige.errors import InputError, refused_of
from vestige.footprint.fisher import fisher_diagonal
from vestige.footprint.hessian import hessian_diagonal
from vestige.footprint.judgements import SensitivityRow, SensitivitySettings, SensitivityTable
from vestige.footprint.shifts import Sums, module_sums
from vestige.footprint.texts import cut_units
from vestige.footprint.world import World
from vestige.metrics.footprint import adjacency_gap, role_shift
from vestige.models.causal_lm import LanguageModel
from vestige.models.projections import Subspace, target_parameters

__all__ = ["Samples", "samples_for", "sensitivity"]

_SUBSPACES: dict[Subspace, tuple[Literal["attn", "ffn", "both"], str]] = {
    "attention": ("attn", "attn"),
    "ffn": ("ffn", "FFN"),
    "both": ("both", "both"),
}


@dataclass(frozen=True)
class Samples:
    """Sequences of one corpus. units: what is varied, smaller samples being its first ones. long, short:
    what a footprint measures Fisher and Hessian on; empty where nothing is divided by it."""

    role: Role
    units: tuple[TokenSequence, ...]
    long: tuple[TokenSequence, ...] = ()
    short: tuple[TokenSequence, ...] = ()


def samples_for(
    corpora: Mapping[str, Corpus], base: LanguageModel, settings: SensitivitySettings
) -> dict[str, Samples]:
    """The samples of each corpus by these settings. Raises InputError as sampling does."""
    most = max(settings.sizes)
    found = {}
    for name, corpus in corpora.items():
        label = settings.sample_names.get(name, name)
        if settings.sampling == "published":
            documents = published_documents(corpus, most, label)
            units = cut_units(corpus, documents, base.tokenizer, settings.max_length)
        else:
            units = draw_sample(
                corpus,
                base.tokenizer,
                units=most,
                subsets=1,
                max_length=settings.max_length,
                seed=settings.seed,
            ).subsets[0]
        if settings.divided_by == "own sample":
            found[name] = Samples(corpus.role, units)
            continue
        main = published_sample(
            corpus,
            base.tokenizer,
            units=most,
            subsets=1,
            short_length=settings.hessian_length,
            name=label,
        )
        found[name] = Samples(corpus.role, units, main.subsets[0], main.short[0])
    return found


def sensitivity(
    *,
    base: LanguageModel,
    checkpoints: Mapping[str, LanguageModel],
    samples: Mapping[str, Samples],
    settings: SensitivitySettings | None = None,
    hessian_corpora: Sequence[str] | None = None,
    name: str = "",
    world: World | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> SensitivityTable:
    """One value for each method, corpus and setting, one factor varied at a time, as the published table.

    samples: corpus -> what is measured on, see `samples_for`. Sizes above what a corpus has are left out
    and said. The Hessian is measured on `hessian_corpora` (default: the first forget corpus), over sizes
    with the middle number of probes, and over probes and parts of the model with the largest sample.
    class_margin: CoFi on the forget role minus that on the adjacent one. Values of different parts of the
    model do not compare.
    """
    settings = settings or SensitivitySettings()
    for method, after in checkpoints.items():
        if not after.weight_change:
            raise InputError(
                f"model '{method}'",
                "an adapter that changes no weights (a prompt encoder)",
                "a checkpoint whose weights differ from the base's",
                "leave it out: it has no footprint",
            )
    meter = _Meter(base, settings, world or World(), progress)
    whole = min(max(settings.sizes), min(len(own.units) for own in samples.values()))
    usable = [n for n in settings.sizes if n < whole] + [whole]
    notes = [
        f"sample size {n} left out: a corpus has only {whole} units" for n in settings.sizes if n > whole
    ]
    forget = [c for c, own in samples.items() if own.role == "forget"]
    chosen = list(forget[:1] if hessian_corpora is None else hessian_corpora)
    rows: list[SensitivityRow] = []

    def add(
        quantity: Literal["cofi", "chess", "class_margin"],
        method: str,
        corpus: str,
        factor: Literal["sample_size", "probe_count", "subspace"],
        setting: str,
        n: int,
        k: int | None,
        part: Literal["attn", "ffn", "both"],
        value: float,
    ) -> None:
        rows.append(
            SensitivityRow(
                quantity=quantity,
                method=method,
                corpus=corpus,
                factor=factor,
                setting=setting,
                n=n,
                probes_k=k,
                subspace=part,
                value=value,
            )
        )

    shifts: dict[tuple[str, str, int, Subspace], float] = {}
    for corpus, own in samples.items():
        main = meter.fisher(base, own.long) if own.long else None
        for n in usable:
            progress(f"Fisher on {corpus}: {n} units")
            before = meter.fisher(base, own.units[:n])
            for method, after in checkpoints.items():
                now = meter.fisher(after, own.units[:n])
                for subspace in _SUBSPACES:
                    if n == whole or subspace == "both":
                        shifts[method, corpus, n, subspace] = meter.shift(before, now, main, subspace)
    cofi: list[tuple[Literal["sample_size", "subspace"], str, int, Subspace]] = [
        *(("sample_size", str(n), n, "both") for n in usable),
        *(("subspace", _SUBSPACES[subspace][1], whole, subspace) for subspace in _SUBSPACES),
    ]
    roles = {corpus: own.role for corpus, own in samples.items()}
    for factor, setting, n, subspace in cofi:
        part = _SUBSPACES[subspace][0]
        for method in checkpoints:
            for corpus in samples:
                value = shifts[method, corpus, n, subspace]
                add("cofi", method, corpus, factor, setting, n, None, part, value)
            margin = _margin({c: shifts[method, c, n, subspace] for c in samples}, roles)
            if margin is not None:
                add("class_margin", method, "", factor, setting, n, None, part, margin)
    probes = settings.probes
    middle, most = sorted(probes)[len(probes) // 2], max(probes)
    asked: list[tuple[Literal["sample_size", "probe_count", "subspace"], str, int, int, Subspace]] = [
        *(("sample_size", str(n), n, middle, "both") for n in usable),
        *(("probe_count", str(k), whole, k, "both") for k in probes),
        *(("subspace", _SUBSPACES[subspace][1], whole, most, subspace) for subspace in _SUBSPACES),
    ]
    known: dict[tuple[str, str, int, int, Subspace], float] = {}
    for corpus in chosen:
        own = samples[corpus]
        curved = meter.hessian(base, corpus, own.short, middle, "both") if own.short else None
        for varied, setting, n, k, subspace in asked:
            units = truncated(own.units[:n], settings.hessian_length)
            missing = [m for m in checkpoints if (m, corpus, n, k, subspace) not in known]
            if missing:
                first = meter.hessian(base, corpus, units, k, subspace)
                for method in missing:
                    last = meter.hessian(checkpoints[method], corpus, units, k, subspace)
                    known[method, corpus, n, k, subspace] = meter.shift(first, last, curved, subspace)
            for method in checkpoints:
                value = known[method, corpus, n, k, subspace]
                add("chess", method, corpus, varied, setting, n, k, _SUBSPACES[subspace][0], value)
    notes.append("values of different subspaces do not compare with each other")
    return SensitivityTable(name=name, settings=settings, rows=tuple(rows), notes=tuple(notes))


@dataclass
class _Meter:
    """Diagonals and their shifts by one set of settings."""

    base: LanguageModel
    settings: SensitivitySettings
    world: World
    progress: Callable[[str], None]

    def fisher(self, model: LanguageModel, units: Sequence[TokenSequence]) -> dict[str, Tensor]:
        """The Fisher diagonal of all measured weights."""
        with refused_of(f"model '{model.record.label}'"):
            return fisher_diagonal(
                model.model,
                target_parameters(model.model),
                units,
                reduction=self.settings.reduction,
                estimator=self.settings.estimator,
                world=self.world,
            ).values

    def hessian(
        self, model: LanguageModel, corpus: str, units: Sequence[TokenSequence], k: int, subspace: Subspace
    ) -> dict[str, Tensor]:
        """The Hessian diagonal of a part of the model, from probes that every model shares."""
        s = self.settings
        self.progress(
            f"Hessian of {model.record.label}, {corpus}: {len(units)} units, {k} probes, {subspace}"
        )
        with refused_of(f"model '{model.record.label}'"):
            return hessian_diagonal(
                model.model,
                target_parameters(model.model, subspace),
                units,
                probes=k,
                method=s.hessian,
                seed=s.seed,
                corpus=corpus,
                subset=0,
                reduction=s.reduction,
                step_dtype=getattr(torch, s.dtype) if s.step_dtype == "measured" else None,
                world=self.world,
            )

    def shift(
        self,
        before: Mapping[str, Tensor],
        now: Mapping[str, Tensor],
        main: Mapping[str, Tensor] | None,
        subspace: Subspace,
    ) -> float:
        """Percent: the change over a part of the model, by the base's norm there. main: the base's diagonal
        on a footprint's own sample, which is divided by instead. Raises InputError for a base of zero."""
        names = self._names(self.base.model, subspace)
        half: tuple[Literal["base", "after"], ...] = (
            ("base", "after") if self.settings.stored == "float16" else ()
        )

        def total(one: Mapping[str, Tensor], two: Mapping[str, Tensor]) -> Sums:
            pair = [{name: each[name] for name in names} for each in (one, two)]
            return sum(module_sums(*pair, half=half).values(), Sums(0.0, 0.0, 0))

        moved = total(before, now)
        base = moved.base if main is None else total(main, main).base
        value = Sums(base, moved.change, moved.parameters).shift
        if isinstance(value, Undefined) or not math.isfinite(value):
            raise InputError("shift", "a base of zero", "a base that has a scale", "check the base model")
        return value

    @staticmethod
    def _names(model: nn.Module, subspace: Subspace) -> list[str]:
        return list(target_parameters(model, subspace))


def _margin(shifts: Mapping[str, float], roles: Mapping[str, Role]) -> float | None:
    """CoFi of the forget role minus that of the adjacent one; None without an adjacent corpus."""
    by_role = {role: [shifts[c] for c in shifts if roles[c] == role] for role in ("forget", "adjacent")}
    if not all(by_role.values()):
        return None
    return adjacency_gap(role_shift(by_role["forget"]), role_shift(by_role["adjacent"]))
