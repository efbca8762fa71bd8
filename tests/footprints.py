"""Records of footprints made from plain numbers, for tests of reports."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vestige.contracts import Interval, Margins, Undefined, View, ViewCount
from vestige.footprint.judgements import (
    Adjacency,
    CalibratedClass,
    CalibrationSettings,
    CorpusCalibration,
    Headroom,
    Lengths,
    Overlap,
)
from vestige.footprint.records import (
    CheckpointFootprint,
    CorpusFootprint,
    CorpusRecord,
    CostRecord,
    DocumentShift,
    FloorShare,
    FootprintRecord,
    FootprintSettings,
    ModuleShift,
    PerplexityShift,
    RoleFootprint,
    Shift,
)
from vestige.footprint.verdict_records import (
    JudgedModel,
    ModelLevels,
    TextLevel,
    VerdictRecord,
    VerdictSettings,
)
from vestige.metrics.footprint import CorpusShift, footprint_class
from vestige.models.lm_record import LanguageModelRecord
from vestige.verdict.evidence import Retained, Side
from vestige.verdict.quantities import ViewTable, view_table
from vestige.verdict.rule import gather, say
from vestige.verdict.sentence import sentence

ROLES: dict[str, str] = {"bio": "forget", "cyber": "forget", "near": "adjacent", "far": "generic"}
PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")
PAPER_ROLES = {"forget": "forget", "adjacent": "adjacent", "generic": "generic"}


def shift(value: float | str, half: float | str = 0.1) -> Shift:
    """A shift; text in place of a number is why there is none."""
    made = [Undefined(undefined=item) if isinstance(item, str) else item for item in (value, half)]
    return Shift(value=made[0], half_width=made[1])


def model(label: str, **changes: Any) -> LanguageModelRecord:
    known: dict[str, Any] = {
        "label": label,
        "location": f"models/{label}",
        "kind": "folder",
        "sha256": "ab" * 32,
        "architecture": "LlamaForCausalLM",
        "parameters": 1_000_000,
        "vocabulary": 1000,
        "dtype": "float32",
        "adds_bos": True,
    }
    return LanguageModelRecord(**{**known, **changes})


def modules(size: float, layers: int = 4) -> tuple[ModuleShift, ...]:
    """Every matrix of a few layers, the middle ones most shifted; shares add up to 1."""
    weights = {
        (layer, projection): size * (1 + place) / (1 + abs(layer - layers / 2))
        for layer in range(layers)
        for place, projection in enumerate(PROJECTIONS)
    }
    total = sum(value**2 for value in weights.values()) or 1.0
    made = [
        ModuleShift(
            name=f"model.layers.{layer}.{projection}_proj.weight",
            layer=layer,
            projection=projection,
            parameters=4096,
            shift=value,
            share=value**2 / total,
        )
        for (layer, projection), value in weights.items()
    ]
    return tuple(sorted(made, key=lambda item: -item.shift))


def corpus(name: str, role: str, cofi: Shift, **changes: Any) -> CorpusFootprint:
    size = cofi.value if isinstance(cofi.value, float) else 0.0
    matrices = modules(size)
    known: dict[str, Any] = {
        "corpus": name,
        "role": role,
        "fisher": cofi,
        "fisher_linear": shift(40.0, 3.0),
        "floor_share": FloorShare(base=0.997, after=0.981),
        "hessian": shift(30.0, 1.5),
        "hessian_floor": shift(21.0, 0.4),
        "perplexity": PerplexityShift(
            log10_base=1.2, log10_after=1.5, log10_ratio=shift(0.3, 0.02), tokens=(900,) * 3
        ),
        "layers": tuple(
            m.model_copy(update={"name": str(m.layer)}) for m in matrices if m.projection == "down"
        ),
        "projections": tuple(m.model_copy(update={"name": m.projection}) for m in matrices if m.layer == 2),
        "modules": matrices,
        "documents": (
            DocumentShift(
                document="d7",
                units=2,
                shift=210.0,
                trace_base=1.0,
                trace_after=3.1,
                loss_base=2.5,
                loss_after=4.0,
            ),
        ),
    }
    return CorpusFootprint(**{**known, **changes})


def checkpoint(
    label: str,
    values: Mapping[str, float | str] | None = None,
    *,
    roles: Mapping[str, str] = ROLES,
    half: float | Mapping[str, float] = 0.1,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    **rest: Any,
) -> CheckpointFootprint:
    """A checkpoint from its CoFi by corpus; class and roles follow from them."""
    values = values or {"bio": 6.0, "cyber": 8.0, "near": 5.0, "far": 0.3}
    halves = half if isinstance(half, Mapping) else dict.fromkeys(values, half)
    parts = [
        corpus(
            name,
            roles[name],
            shift(value, halves[name] if isinstance(value, float) else value),
            **(changes or {}).get(name, {}),
        )
        for name, value in values.items()
    ]
    known = {name: value for name, value in values.items() if isinstance(value, float)}
    by_role: dict[str, dict[str, CorpusShift]] = {"forget": {}, "adjacent": {}, "generic": {}}
    for name, value in known.items():
        by_role[roles[name]][name] = CorpusShift(value=value, half_width=halves[name])
    published: Any = (
        footprint_class(by_role["forget"], by_role["adjacent"], by_role["generic"])
        if len(known) == len(values)
        else next(part.fisher.value for part in parts if isinstance(part.fisher.value, Undefined))
    )
    aggregates = [
        RoleFootprint(
            role=role,
            corpora=tuple(found),
            fisher=shift(sum(s.value for s in found.values()) / len(found), 0.1),
            hessian=shift(30.0, 1.0),
            log10_ppl_ratio=shift(0.3, 0.02),
        )
        for role, found in by_role.items()
        if found
    ]
    given: dict[str, Any] = {
        "label": label,
        "role": "unlearned",
        "model": model(label),
        "corpora": tuple(parts),
        "roles": tuple(aggregates),
        "published": published,
        "estimator_label": "paper thresholds, per-sequence estimator",
        "calibrated": Undefined(undefined="not computed: give --calibrate"),
    }
    return CheckpointFootprint(**{**given, **rest})


def calibrated(name: str = "localized") -> CalibratedClass:
    interval = Interval(
        low=0.8, high=1.1, kind="document bootstrap, percentile", draws=1000, seed=17, condition="one model"
    )
    parts = tuple(
        CorpusCalibration(
            corpus=corpus_name,
            role=role,
            s=0.9,
            fold=2.46,
            f0=1e-8,
            copies=(0.1, 0.12, 0.11),
            references=(0.5, 0.6, 0.7),
            e=1.5,
            s_sampled=0.9,
            interval=interval,
        )
        for corpus_name, role in ROLES.items()
    )
    return CalibratedClass(
        name=name,
        moved=8.2,
        moved_p=0.05,
        e_forget=1.5,
        e_adjacent=1.2,
        e_generic=0.7,
        h=-0.7,
        h_p=0.025,
        h_interval=interval,
        g=0.2,
        g_p=0.05,
        g_interval=interval,
        corpora=parts,
        changed=28,
        full_rank=0,
        settings=CalibrationSettings(),
        notes=(),
    )


def adjacency() -> Adjacency:
    return Adjacency(
        encoder="minilm",
        sim_f_a=0.41,
        sim_f_g=0.05,
        sim_a_g=0.06,
        ratio=6.8,
        passes=True,
        overlaps=(
            Overlap(
                k=1000,
                forget_adjacent=0.62,
                forget_generic=0.31,
                adjacent_generic=0.3,
                margin=0.31,
                caution=False,
            ),
            Overlap(
                k=10_000,
                forget_adjacent=0.3,
                forget_generic=0.35,
                adjacent_generic=0.3,
                margin=-0.05,
                caution=True,
            ),
        ),
        headroom=Headroom(
            kind="accuracy",
            value=0.7,
            chance=0.25,
            questions=40,
            p=0.001,
            passes=True,
            said="70 % of 40 questions",
        ),
        statement="virology textbooks against pathogen papers",
        lengths=tuple(
            Lengths(corpus=n, role=r, documents=50, lower=80, median=120, upper=300) for n, r in ROLES.items()
        ),
        lines=("caution: among the 10,000 largest Fisher entries forget and adjacent text share no more",),
    )


def record(*checkpoints: CheckpointFootprint, **changes: Any) -> FootprintRecord:
    """A record of these checkpoints, by default one of the class partially-localized."""
    chosen = checkpoints or (checkpoint("RMU"),)
    corpora = tuple(
        CorpusRecord(
            name=part.corpus,
            role=part.role,
            path=f"data/{part.corpus}.jsonl",
            sha256="cd" * 32,
            documents=400,
            empty=1,
            one_token=0,
            windowed=3,
            units=(200,) * 3,
            tokens=(51_000, 50_400, 50_900),
            overlap=0.0,
            coincide=False,
            lengths=(12, 90, 180, 400, 1024),
        )
        for part in chosen[0].corpora
    )
    known: dict[str, Any] = {
        "name": "footprint",
        "settings": FootprintSettings(),
        "base": model("Llama-3.1-8B"),
        "parameters": 114_688,
        "layers": 4,
        "corpora": corpora,
        "checkpoints": chosen,
        "adjacency": adjacency(),
        "cost": CostRecord(
            passes_planned=900,
            passes_run=880,
            passes_cached=20,
            tokens=400_000,
            gigabytes_planned=1.5,
            seconds={"base": 12.5},
            processes=1,
            chunks=1,
            device="cpu",
        ),
        "caveats": ("A class belongs to this run, not to a method", "A no-op is ambiguous"),
        "not_tested": ("answers to questions about the removed content", "recovery by relearning"),
        "condition": "3 seeded subsets of text, one training run of each model",
        "provenance": {"vestige": "0.1.0", "seed": 17},
    }
    return FootprintRecord(**{**known, **changes})


def published_records(folder: Path, benchmark: str = "wmdp") -> list[FootprintRecord]:
    """The published tables of one benchmark as records, one a base model: shifts, classes, perplexities."""

    def rows(name: str) -> list[dict[str, str]]:
        with (folder / f"triage_{name}.csv").open(newline="") as file:
            return [row for row in csv.DictReader(file) if row.get("benchmark", benchmark) == benchmark]

    ratios = {_key(row): float(row["log10_ppl_ratio"]) for row in rows("ppl") if row["log10_ppl_ratio"]}
    shifts: dict[str, dict[str, list[dict[str, str]]]] = {}
    for row in rows("cofi"):
        label = row["method"] + ("+noise" if row["noise"] == "True" else "")
        shifts.setdefault(row["model"], {}).setdefault(label, []).append(row)
    return [
        record(
            *(_published_checkpoint(label, lines, ratios) for label, lines in methods.items()),
            name=f"{benchmark} {base}",
            base=model(base),
            adjacency=Undefined(undefined="not published"),
        )
        for base, methods in shifts.items()
    ]


def _key(row: Mapping[str, str]) -> tuple[str, ...]:
    return (row["model"], row["method"], row["noise"], row["corpus"])


def _published_checkpoint(
    label: str, lines: Sequence[Mapping[str, str]], ratios: Mapping[tuple[str, ...], float]
) -> CheckpointFootprint:
    changes: dict[str, dict[str, Any]] = {}
    for row in lines:
        ratio = ratios.get(_key(row))
        changes[row["corpus"]] = {
            "hessian": shift(float(row["chess"]), float(row["chess_ci"] or 0.0))
            if row["chess"]
            else shift("not printed", "not printed"),
            "hessian_floor": shift("not published", "not published"),
            "fisher_linear": shift("not published", "not published"),
            "floor_share": Undefined(undefined="not published"),
            "perplexity": Undefined(undefined="not printed")
            if ratio is None
            else PerplexityShift(
                log10_base=1.0,
                log10_after=1.0 + ratio,
                log10_ratio=shift(ratio, "not published"),
                tokens=(50_000,) * 3,
            ),
            "layers": (),
            "projections": (),
            "modules": (),
            "documents": (),
        }
    return checkpoint(
        label,
        {row["corpus"]: float(row["cofi"]) for row in lines},
        roles={row["corpus"]: row["role"] for row in lines},
        half={row["corpus"]: float(row["cofi_ci"] or 0.0) for row in lines},
        changes=changes,
        estimator_label="published thresholds and estimator",
    )


def verdict_record(
    forget: Mapping[str, float], *, loss: Mapping[str, float] | None = None, oracles: int = 3
) -> VerdictRecord:
    """A verdict on models over two options that give the forget text's own one these probabilities.

    forget: label -> probability; `base` and `oracle` are among them. loss: nats a token on generic text.
    """
    losses = {**dict.fromkeys(forget, 2.0), **(loss or {})}
    tested = [label for label in forget if label not in ("base", "oracle")]
    rows = np.random.default_rng(0).normal(0, 0.02, 400)

    def outputs(label: str, seed: int) -> Any:
        first = np.clip(forget[label] + rows + np.random.default_rng(seed).normal(0, 0.01, 400), 0.001, 0.999)
        return np.stack([first, 1 - first], axis=1)

    def table(same: bool) -> ViewTable:
        def given(label: str, seed: int) -> Any:
            return outputs("base" if same else label, seed)

        return view_table(
            fulls=[given("base", 1)],
            oracles=[given("oracle", 10 + seed) for seed in range(oracles)],
            unlearned={label: [given(label, 20 + place)] for place, label in enumerate(tested)},
            units=np.array([""] * 400),
        )

    forgotten, kept = table(False), table(True)
    order = ["base", *["oracle"] * oracles, *tested]
    nats = np.array([np.full(400, losses[label]) + rows for label in order])
    retained = Retained(Side("R", kept, 500), loss=nats, name="generic text")
    sides = [Side("F", forgotten, 500)] if oracles else []
    evidences = {
        label: gather(sides, retained, places, Margins(), {})
        for label, places in forgotten.models.unlearned.items()
    }
    counts: dict[View, ViewCount] = {"F": ViewCount(view="F", rows=400, units=0)}

    def levels(label: str, role: Any) -> ModelLevels:
        value = forget["oracle" if role == "oracle" else label]
        ends = {"kind": "t over documents", "draws": 0, "seed": 0, "condition": "one model"}
        return ModelLevels(
            label=label,
            role=role,
            sha256="ab" * 32,
            texts=(
                TextLevel(
                    corpus="bio",
                    role="forget",
                    documents=400,
                    probability=value,
                    interval=Interval(low=value - 0.01, high=value + 0.01, **ends),
                    loss=1.0,
                    change=value - forget["base"],
                    change_interval=Interval(
                        low=value - forget["base"] - 0.01, high=value - forget["base"] + 0.01, **ends
                    ),
                ),
                TextLevel(
                    corpus="far",
                    role="generic",
                    documents=400,
                    probability=0.1,
                    interval=Undefined(undefined="one document"),
                    loss=losses["oracle" if role == "oracle" else label],
                    change=0.0,
                    change_interval=Undefined(undefined="one document"),
                ),
            ),
        )

    names = ["oracle" if place == 0 else f"oracle ({place + 1})" for place in range(oracles)]
    return VerdictRecord(
        settings=VerdictSettings(),
        compared=f"Compared: {len(tested)} unlearned models with the base “base” and {oracles} models "
        "retrained without the forget text, on 400 forget, 400 generic documents.",
        bases=("base",),
        oracles=tuple(names),
        texts=(),
        levels=(
            levels("base", "base"),
            *(levels(label, "unlearned") for label in tested),
            *(levels(name, "oracle") for name in names),
        ),
        models=tuple(
            JudgedModel(
                label=label,
                checkpoints=(label,),
                verdict=word,
                evidence=evidence,
                p=p,
                sentence=sentence(word, evidence, label=label, counts=counts, unit_kind="text"),
            )
            for label, (word, evidence, p) in say(evidences, ()).items()
        ),
    )
