"""Known answers: does the footprint, as it is computed here, say what must be so?

On every seed a tiny model is trained on generated text and two adapters teach it fictitious facts (F, A).
Cases against that model: itself; a change of rank 1 in one matrix; F's adapter taken away, which is exact
unlearning; weight noise above and below 8-bit storage; weights drawn anew; an estimator broken on purpose.
Settings are fixed here, the same for every seed, so that a result can be compared with the stored one. They
were chosen on seeds above 100, after earlier settings had been run on seeds 1 to 5; the stored result is of
seeds 21 to 40, which had not been run before the settings were fixed.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

import vestige
from vestige.contracts import Record, Undefined
from vestige.data.corpora import Role, TokenSequence
from vestige.files import write_text
from vestige.footprint.calibration import Change as WeightChange
from vestige.footprint.calibration import FisherOf, calibrate, changed_weights, random_change
from vestige.footprint.fictitious import (
    Facts,
    documents,
    everyday_sentences,
    fictitious_facts,
    vocabulary,
)
from vestige.footprint.fisher import Fisher, fisher_diagonal
from vestige.footprint.hessian import hessian_diagonal
from vestige.footprint.injection import Injection, inject
from vestige.footprint.judgements import (
    CalibrationSettings,
    InjectionGates,
    InjectionSettings,
    SelfTest,
    SelfTestCase,
)
from vestige.footprint.perplexity import log10_perplexity_ratio, perplexity
from vestige.footprint.shifts import module_sums, relative_shift
from vestige.footprint.tiny import TinySettings, encoded, train_tiny
from vestige.language import FitSettings
from vestige.metrics.footprint import classify_footprint
from vestige.models.causal_lm import LanguageModel, language_model
from vestige.models.projections import place, target_parameters
from vestige.seeds import digest, stable_seed

__all__ = ["SHORT", "SelfTestSettings", "broken_estimator", "selftest", "standard_estimator", "tiny_base"]

ROLES: dict[str, Role] = {"F": "forget", "A": "adjacent", "G": "generic"}
ANY_MOVED = ("undirected", "localized", "collateral", "undetermined")


class SelfTestSettings(Record):
    """What the self-test does. needed: seeds out of all on which a case must come out as expected.

    background: people whose facts the base knows. everyday: sentences it was trained on;
    kept: those of them that the adapters see too. texts: of each corpus that is measured. rank_one, noise,
    faint: the change's norm over that of the matrix. cases: those to run.
    """

    seeds: tuple[int, ...] = tuple(range(21, 41))
    needed: int = Field(18, ge=1)
    background: int = 24
    everyday: int = 240
    kept: int = 80
    texts: int = 12
    rank_one: float = 0.2
    noise: float = 0.05
    faint: float = 0.001
    cases: tuple[str, ...] = ("null", "rank-1", "removal", "noise", "faint noise", "destroyed", "broken")
    tiny: TinySettings = TinySettings(layers=1)
    injection: InjectionSettings = InjectionSettings(
        fit=FitSettings(epochs=36, batch_size=32, learning_rate=1e-2), replay=True
    )
    calibration: CalibrationSettings = CalibrationSettings(coordinates=2**10, draws=100)


SHORT = SelfTestSettings(seeds=(1, 2), needed=2, cases=("null", "rank-1", "removal", "broken"))
"""A short form with the same model and settings, for a quick check."""

EXPECTED: dict[str, tuple[str, ...]] = {
    "null": ("zero",),
    "rank-1": ANY_MOVED,
    "removal": ("localized",),
    "noise": ("undirected",),
    "faint noise": ("no-op",),
    "destroyed": ("undirected",),
    "broken": ("found out",),
}
"""Case -> outcomes that are right."""


def standard_estimator(
    model: nn.Module, sequences: Sequence[TokenSequence], coordinates: dict[str, Tensor] | None = None
) -> Fisher:
    """The Fisher diagonal of all projections, per sequence, token means."""
    return fisher_diagonal(model, target_parameters(model), sequences, coordinates=coordinates)


def broken_estimator(working: FisherOf) -> FisherOf:
    """An estimator that answers every model with what it found for the first one on the same text."""
    first: dict[str, Fisher] = {}

    def fisher(
        model: nn.Module, sequences: Sequence[TokenSequence], coordinates: dict[str, Tensor] | None = None
    ) -> Fisher:
        key = digest(*[unit.ids for unit in sequences], coordinates is None)
        if key not in first:
            first[key] = working(model, sequences, coordinates)
        return first[key]

    return fisher


def selftest(
    settings: SelfTestSettings | None = None,
    *,
    out: Path | None = None,
    fisher: FisherOf = standard_estimator,
    progress: Callable[[str, float], None] = lambda text, share: None,
) -> SelfTest:
    """Run every case on every seed and count.

    out: a folder; what each seed gave lies in `seed-<n>.json` there and is read instead of computed again
    where the settings are the same, and the whole in `selftest.json`. fisher: the estimator that is tested.
    progress(what, share done). A seed on which the injection did not take counts as no hit, and is shown.
    """
    settings = settings or SelfTestSettings()
    started = time.monotonic()
    key = digest(settings.model_dump_json(exclude={"seeds", "needed"}), vestige.__version__)
    found: list[SelfTestCase] = []
    gates: dict[int, InjectionGates] = {}
    seconds = 0.0
    for number, seed in enumerate(settings.seeds):
        share = number / len(settings.seeds)
        path = None if out is None else out / f"seed-{seed:02d}.json"
        stored = _read(path, key)
        if stored is None:
            begun = time.monotonic()

            def tell(text: str, seed: int = seed, share: float = share) -> None:
                progress(f"seed {seed}: {text}", share)

            own, gate = _one_seed(settings, seed, fisher, tell)
            stored = {
                "key": key,
                "seconds": time.monotonic() - begun,
                "gates": gate.model_dump(),
                "cases": [case.model_dump() for case in own],
            }
            if path is not None:
                write_text(path, json.dumps(stored, indent=1) + "\n")
        seconds += stored["seconds"]
        found += [SelfTestCase.model_validate(case) for case in stored["cases"]]
        gates[seed] = InjectionGates.model_validate(stored["gates"])
    hits = {name: sum(case.hit for case in found if case.case == name) for name in settings.cases}
    result = SelfTest(
        version=vestige.__version__,
        seeds=settings.seeds,
        needed=settings.needed,
        hits=hits,
        undefined={
            name: sum(case.outcome.startswith("undefined") for case in found if case.case == name)
            for name in settings.cases
        },
        passes=all(count >= settings.needed for count in hits.values()),
        cases=tuple(found),
        gates=gates,
        settings=json.loads(settings.model_dump_json()),
        seconds=seconds if out is not None else time.monotonic() - started,
    )
    if out is not None:
        write_text(out / "selftest.json", result.to_json() + "\n")
    return result


def _read(path: Path | None, key: str) -> dict[str, Any] | None:
    if path is None or not path.exists():
        return None
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return stored if stored.get("key") == key else None


@dataclass(frozen=True)
class _Bench:
    """One seed's model and texts. base_fisher: by the estimator under test."""

    settings: SelfTestSettings
    seed: int
    injection: Injection
    start: LanguageModel
    samples: Mapping[str, tuple[TokenSequence, ...]]
    fisher: FisherOf
    base_fisher: Mapping[str, dict[str, Tensor]]
    folder: Path


def _one_seed(
    settings: SelfTestSettings, seed: int, fisher: FisherOf, tell: Callable[[str], None]
) -> tuple[list[SelfTestCase], InjectionGates]:
    tell("training a tiny model")
    injection, tokenizer = _taught(settings, seed, tell)
    start = language_model(injection.injected, tokenizer, label="injected")
    samples = _samples(settings, seed, injection, tokenizer)
    with tempfile.TemporaryDirectory(prefix="vestige-selftest-") as folder:
        bench = _Bench(
            settings=settings,
            seed=seed,
            injection=injection,
            start=start,
            samples=samples,
            fisher=fisher,
            base_fisher={c: fisher(start.model, units, None).values for c, units in samples.items()},
            folder=Path(folder),
        )
        cases = []
        for name in settings.cases:
            tell(name)
            cases.append(CASES[name](bench))
    return cases, injection.gates


def tiny_base(settings: SelfTestSettings, seed: int) -> tuple[Any, Any, Facts, list[str]]:
    """(model, tokenizer, facts to inject, everyday texts to keep): a tiny model that has met every name, in
    sentences without any of the facts."""
    facts = fictitious_facts(seed, entities=settings.injection.entities, background=settings.background)
    people = [*facts.background, *facts.forget, *facts.adjacent]
    texts = documents(facts.background, seed) * 2 + everyday_sentences(settings.everyday, seed, "base")
    for text, person in zip(everyday_sentences(3 * len(people), seed, "mentions"), people * 3, strict=True):
        texts.append(" ".join([person.name, *text.split()[3:]]))
    base, tokenizer = train_tiny(texts, vocabulary(), settings.tiny, seed=seed)
    return base, tokenizer, facts, everyday_sentences(settings.everyday, seed, "base")[: settings.kept]


def _taught(settings: SelfTestSettings, seed: int, tell: Callable[[str], None]) -> tuple[Injection, Any]:
    """The tiny model with both adapters, and its tokenizer."""
    base, tokenizer, facts, keep = tiny_base(settings, seed)
    found = inject(base, tokenizer, settings.injection, seed=seed, facts=facts, keep=keep, progress=tell)
    return found, tokenizer


def _samples(
    settings: SelfTestSettings, seed: int, injection: Injection, tokenizer: Any
) -> dict[str, tuple[TokenSequence, ...]]:
    copies = settings.injection.copies
    texts = {
        "F": injection.texts_f[::copies][: settings.texts],
        "A": injection.texts_a[::copies][: settings.texts],
        "G": everyday_sentences(settings.texts, seed, "measured"),
    }
    return {
        corpus: tuple(
            TokenSequence(tuple(ids), str(i), 0, text)
            for i, (ids, text) in enumerate(zip(encoded(tokenizer, own), own, strict=True))
        )
        for corpus, own in texts.items()
    }


def _null(bench: _Bench) -> SelfTestCase:
    """The model against itself: every quantity is exactly 0, and there is no calibrated class."""
    same = language_model(bench.injection.injected, bench.start.tokenizer, label="same")
    shifts = _shifts(bench, same)
    units = bench.samples["F"][:8]
    diagonals = [
        hessian_diagonal(
            model.model,
            target_parameters(model.model),
            units,
            probes=1,
            seed=bench.seed,
            corpus="F",
            subset=0,
        )
        for model in (bench.start, same)
    ]
    texts = [unit.own for unit in units]
    perplexities = [
        [perplexity(m.model, m.tokenizer, texts, window=64, stride=32)] for m in (bench.start, same)
    ]
    measured = {
        **shifts,
        "chess_F": relative_shift(*diagonals),
        "log10_ppl_ratio_F": log10_perplexity_ratio(*perplexities),
    }
    calibrated = _calibrated(bench, same)
    zero = all(value == 0 for value in measured.values()) and isinstance(calibrated, Undefined)
    return _case(bench, "null", "zero" if zero else "not zero", shifts, measured)


def _rank_one(bench: _Bench) -> SelfTestCase:
    targets = target_parameters(bench.start.model)
    names = sorted(targets)
    name = names[stable_seed(bench.seed, "rank 1") % len(names)]
    weight = targets[name].data
    size = bench.settings.rank_one * torch.linalg.vector_norm(weight)
    change = WeightChange(size[None], (weight.shape[0], weight.shape[1]))
    return _changed(bench, "rank-1", {name: random_change(weight, change, bench.seed, "rank 1")})


def _noise(case: str, relative: Callable[[SelfTestSettings], float]) -> Callable[[_Bench], SelfTestCase]:
    def run(bench: _Bench) -> SelfTestCase:
        rng = torch.Generator().manual_seed(stable_seed(bench.seed, case))
        targets = target_parameters(bench.start.model)
        size = relative(bench.settings)
        weights = {
            name: weight.data
            + size * weight.data.square().mean().sqrt() * torch.randn(weight.shape, generator=rng)
            for name, weight in targets.items()
        }
        return _changed(bench, case, weights)

    return run


def _destroyed(bench: _Bench) -> SelfTestCase:
    """Every measured weight drawn anew, Gaussian with its matrix's own RMS."""
    rng = torch.Generator().manual_seed(stable_seed(bench.seed, "destroyed"))
    targets = target_parameters(bench.start.model)
    weights = {
        name: weight.data.square().mean().sqrt() * torch.randn(weight.shape, generator=rng)
        for name, weight in targets.items()
    }
    return _changed(bench, "destroyed", weights)


def _removal(bench: _Bench) -> SelfTestCase:
    """F's adapter taken away: theta' is the model that never saw F's facts."""
    took = bench.injection.undefined
    if took is not None:
        return _case(bench, "removal", str(took), None, {})
    after = language_model(bench.injection.oracle, bench.start.tokenizer, label="oracle")
    shifts = _shifts(bench, after)
    inside, everything = 0.0, 0.0
    for corpus, units in bench.samples.items():
        own = bench.fisher(after.model, units, None).values
        for name, sums in module_sums(bench.base_fisher[corpus], own).items():
            where = place(name)
            everything += sums.change
            inside += sums.change if where is not None and where.layer in bench.injection.layers else 0.0
    share = inside / everything if everything else 0.0
    return _judged(bench, "removal", after, shifts, {"share_in_adapted_layers": share})


def _broken(bench: _Bench) -> SelfTestCase:
    """The removal again, by an estimator that returns the base's Fisher diagonal for every model.

    Found out: its removal is not what is expected of one, so that a self-test of this estimator fails.
    """
    took = bench.injection.undefined
    if took is not None:
        return _case(bench, "broken", str(took), None, {})
    broken = broken_estimator(bench.fisher)
    seen = {c: broken(bench.start.model, units, None).values for c, units in bench.samples.items()}
    with tempfile.TemporaryDirectory(prefix="vestige-selftest-") as folder:
        wrong = _Bench(
            **{**vars(bench), "fisher": broken, "base_fisher": seen, "folder": Path(folder)},
        )
        found = _removal(wrong)
    outcome = "found out" if not found.hit else "not found out"
    return SelfTestCase(
        case="broken",
        seed=bench.seed,
        expected=EXPECTED["broken"],
        outcome=outcome,
        paper=found.paper,
        hit=outcome in EXPECTED["broken"],
        measured=found.measured,
    )


CASES: dict[str, Callable[[_Bench], SelfTestCase]] = {
    "null": _null,
    "rank-1": _rank_one,
    "removal": _removal,
    "noise": _noise("noise", lambda settings: settings.noise),
    "faint noise": _noise("faint noise", lambda settings: settings.faint),
    "destroyed": _destroyed,
    "broken": _broken,
}


def _changed(bench: _Bench, case: str, weights: Mapping[str, Tensor]) -> SelfTestCase:
    with changed_weights(bench.start.model, weights):
        after = language_model(bench.start.model, bench.start.tokenizer, label=case)
    return _judged(bench, case, after, _shifts(bench, after), {})


def _shifts(bench: _Bench, after: LanguageModel) -> dict[str, float]:
    """CoFi of each corpus, percent."""
    return {
        f"cofi_{corpus}": relative_shift(
            bench.base_fisher[corpus], bench.fisher(after.model, units, None).values
        )
        for corpus, units in bench.samples.items()
    }


def _calibrated(bench: _Bench, after: LanguageModel) -> Any:
    return calibrate(
        base=bench.start,
        after=after,
        subspace="both",
        samples=bench.samples,
        roles=ROLES,
        fisher=bench.fisher,
        base_fisher=bench.base_fisher,
        after_fisher={c: bench.fisher(after.model, units, None).values for c, units in bench.samples.items()},
        settings=bench.settings.calibration.model_copy(update={"seed": bench.seed}),
        cache=bench.folder,
    )


def _judged(
    bench: _Bench, case: str, after: LanguageModel, shifts: dict[str, float], extra: dict[str, float]
) -> SelfTestCase:
    found = _calibrated(bench, after)
    measured: dict[str, float | None] = {**shifts, **extra}
    measured["adjacency_gap"] = shifts["cofi_F"] - shifts["cofi_A"]
    if isinstance(found, Undefined):
        return _case(bench, case, str(found), shifts, measured)
    for name in ("moved", "moved_p", "e_forget", "e_adjacent", "e_generic", "h", "h_p", "g", "g_p"):
        value = getattr(found, name)
        measured[name] = None if isinstance(value, Undefined) else value
    zero = all(value == 0 for value in shifts.values())
    return _case(bench, case, "zero" if zero else str(found.name), shifts, measured)


def _case(
    bench: _Bench,
    case: str,
    outcome: str,
    shifts: Mapping[str, float] | None,
    measured: Mapping[str, float | None],
) -> SelfTestCase:
    paper = "undefined: not measured"
    if shifts is not None:
        corpora = [{c: shifts[f"cofi_{c}"]} for c in ("F", "A", "G")]
        paper = str(classify_footprint(*corpora))
    return SelfTestCase(
        case=case,
        seed=bench.seed,
        expected=EXPECTED[case],
        outcome=outcome,
        paper=paper,
        hit=outcome in EXPECTED[case],
        measured={
            name: value if value is None or math.isfinite(value) else None for name, value in measured.items()
        },
    )
