"""How shifts depend on the size of the sample, the number of probes and the part of the model measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from torch import Tensor, nn

from vestige.data.corpora import Role, TokenSequence, truncated
from vestige.errors import InputError, refused_of
from vestige.footprint.fisher import Estimator, fisher_diagonal
from vestige.footprint.hessian import HessianMethod, hessian_diagonal
from vestige.footprint.judgements import SensitivityRow, SensitivityTable
from vestige.footprint.passes import Reduction
from vestige.footprint.shifts import relative_shift
from vestige.footprint.world import World
from vestige.metrics.footprint import adjacency_gap, role_shift
from vestige.models.causal_lm import LanguageModel
from vestige.models.projections import Subspace, target_parameters

__all__ = ["PROBES", "SIZES", "sensitivity"]

SIZES = (52, 100, 200)
PROBES = (2, 4, 8)
_SUBSPACES: dict[Subspace, tuple[Literal["attn", "ffn", "both"], str]] = {
    "attention": ("attn", "attn"),
    "ffn": ("ffn", "FFN"),
    "both": ("both", "both"),
}


def sensitivity(
    *,
    base: LanguageModel,
    checkpoints: Mapping[str, LanguageModel],
    samples: Mapping[str, Sequence[TokenSequence]],
    roles: Mapping[str, Role],
    sizes: Sequence[int] = SIZES,
    probes: Sequence[int] = PROBES,
    hessian_corpora: Sequence[str] | None = None,
    hessian_length: int = 512,
    hessian_method: HessianMethod = "hvp",
    reduction: Reduction = "mean",
    estimator: Estimator = "per-sequence",
    seed: int = 17,
    world: World | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> SensitivityTable:
    """One value for each method, corpus and setting, one factor varied at a time, as the published table.

    samples: corpus -> sequences of one subset; a smaller sample is its first ones, so samples are nested.
    Sizes above what a corpus has are left out and said. probes: Hessian probes; the Hessian is measured on
    `hessian_corpora` (default: the first forget corpus), over sizes with the middle number of probes, and
    over probes and subspaces with the largest sample. class_margin: CoFi on the forget role minus that on the
    adjacent one. Values of different subspaces do not compare.
    """
    for method, after in checkpoints.items():
        if not after.weight_change:
            raise InputError(
                f"model '{method}'",
                "an adapter that changes no weights (a prompt encoder)",
                "a checkpoint whose weights differ from the base's",
                "leave it out: it has no footprint",
            )
    world = world or World()
    whole = min(max(sizes), min(len(units) for units in samples.values()))
    usable = [n for n in sizes if n < whole] + [whole]
    notes = [f"sample size {n} left out: a corpus has only {whole} units" for n in sizes if n > whole]
    forget = [c for c in samples if roles[c] == "forget"]
    chosen = list(forget[:1] if hessian_corpora is None else hessian_corpora)
    rows: list[SensitivityRow] = []

    def fisher(model: nn.Module, corpus: str, n: int) -> dict[str, Tensor]:
        return fisher_diagonal(
            model,
            target_parameters(model),
            samples[corpus][:n],
            reduction=reduction,
            estimator=estimator,
            world=world,
        ).values

    def chess(model: LanguageModel, corpus: str, n: int, k: int, subspace: Subspace) -> dict[str, Tensor]:
        progress(f"Hessian of {model.record.label}, {corpus}: {n} units, {k} probes, {subspace}")
        return hessian_diagonal(
            model.model,
            target_parameters(model.model, subspace),
            truncated(samples[corpus][:n], hessian_length),
            probes=k,
            method=hessian_method,
            seed=seed,
            corpus=corpus,
            subset=0,
            reduction=reduction,
            world=world,
        )

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

    part_names = {subspace: set(target_parameters(base.model, subspace)) for subspace in _SUBSPACES}
    shifts: dict[tuple[str, str, int, Subspace], float] = {}
    for corpus in samples:
        for n in usable:
            progress(f"Fisher on {corpus}: {n} units")
            with refused_of(f"model '{base.record.label}'"):
                before = fisher(base.model, corpus, n)
            for method, after in checkpoints.items():
                with refused_of(f"model '{method}'"):
                    now = fisher(after.model, corpus, n)
                for subspace, names in part_names.items():
                    if n == whole or subspace == "both":
                        pair = [{name: each[name] for name in names} for each in (before, now)]
                        shifts[method, corpus, n, subspace] = relative_shift(*pair)
    settings: list[tuple[Literal["sample_size", "subspace"], str, int, Subspace]] = [
        *(("sample_size", str(n), n, "both") for n in usable),
        *(("subspace", _SUBSPACES[subspace][1], whole, subspace) for subspace in _SUBSPACES),
    ]
    for factor, setting, n, subspace in settings:
        part = _SUBSPACES[subspace][0]
        for method in checkpoints:
            for corpus in samples:
                value = shifts[method, corpus, n, subspace]
                add("cofi", method, corpus, factor, setting, n, None, part, value)
            margin = _margin({c: shifts[method, c, n, subspace] for c in samples}, roles)
            if margin is not None:
                add("class_margin", method, "", factor, setting, n, None, part, margin)
    middle, most = sorted(probes)[len(probes) // 2], max(probes)
    asked: list[tuple[Literal["sample_size", "probe_count", "subspace"], str, int, int, Subspace]] = [
        *(("sample_size", str(n), n, middle, "both") for n in usable),
        *(("probe_count", str(k), whole, k, "both") for k in probes),
        *(("subspace", _SUBSPACES[subspace][1], whole, most, subspace) for subspace in _SUBSPACES),
    ]
    known: dict[tuple[str, str, int, int, Subspace], float] = {}
    for corpus in chosen:
        for varied, setting, n, k, subspace in asked:
            missing = [m for m in checkpoints if (m, corpus, n, k, subspace) not in known]
            if missing:
                first = chess(base, corpus, n, k, subspace)
                for method in missing:
                    known[method, corpus, n, k, subspace] = relative_shift(
                        first, chess(checkpoints[method], corpus, n, k, subspace)
                    )
            for method in checkpoints:
                value = known[method, corpus, n, k, subspace]
                add("chess", method, corpus, varied, setting, n, k, _SUBSPACES[subspace][0], value)
    notes.append("values of different subspaces do not compare with each other")
    return SensitivityTable(rows=tuple(rows), notes=tuple(notes))


def _margin(shifts: Mapping[str, float], roles: Mapping[str, Role]) -> float | None:
    """CoFi of the forget role minus that of the adjacent one; None without an adjacent corpus."""
    by_role = {role: [shifts[c] for c in shifts if roles[c] == role] for role in ("forget", "adjacent")}
    if not all(by_role.values()):
        return None
    return adjacency_gap(role_shift(by_role["forget"]), role_shift(by_role["adjacent"]))
