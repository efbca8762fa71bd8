"""Classes of a causal LM's footprint from its relative shifts, with the published thresholds. No torch.

A shift is in percent, at least 0: how far a curvature of the model moved on one corpus, relative to the
model before. Roles are forget (F), adjacent-retain (A) and generic-retain (G). Ataee and Triantafillou 2026.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal, cast

import numpy as np
from pydantic import Field

from vestige.contracts import Record, Undefined
from vestige.errors import InputError

__all__ = [
    "CorpusShift",
    "FootprintClass",
    "FootprintClassName",
    "FootprintThresholds",
    "adjacency_gap",
    "classify_footprint",
    "footprint_class",
    "globality",
    "no_op_fluency_flag",
    "role_half_width",
    "role_log10_perplexity_ratio",
    "role_shift",
]

FootprintClassName = Literal["no-op", "globally-destructive", "partially-localized", "collateral-dominant"]
NO_ADJACENT = "no adjacent corpus"


class FootprintThresholds(Record):
    """Where the classes change. no_op: percent, every corpus below it. globality: ratio. generic: percent.

    fluency: |log10 perplexity ratio| above which a no-op is flagged.
    """

    no_op: float = Field(1.5, gt=0)
    globality: float = Field(0.75, gt=0)
    generic: float = Field(1.0, ge=0)
    fluency: float = Field(0.1, ge=0)


DEFAULT = FootprintThresholds()


class CorpusShift(Record):
    """The shift on one corpus. value: mean over subsets, percent. half_width: its interval's, or why none."""

    value: float = Field(ge=0)
    half_width: float | Undefined = Undefined(undefined="no interval was given")


class FootprintClass(Record):
    """The class of one run, with what it rests on.

    name: the class. undetermined: why sampling of text alone could change it; empty when it could not.
    forget, adjacent, generic: roles. flags: what to read beside the class. thresholds: those used.
    """

    name: FootprintClassName | Undefined
    undetermined: tuple[str, ...]
    forget: CorpusShift
    adjacent: CorpusShift | Undefined
    generic: CorpusShift
    adjacency_gap: float | Undefined
    adjacency_gap_half_width: float | Undefined
    globality: float | Undefined
    globality_half_width: float | Undefined
    flags: tuple[str, ...]
    thresholds: FootprintThresholds

    def __str__(self) -> str:
        return f"{self.name} (undetermined)" if self.undetermined else str(self.name)


def role_shift(shifts: Iterable[float]) -> float:
    """Shift of a role: the plain mean over its corpora, percent. Raises ValueError without a corpus."""
    values = _some(shifts)
    return float(values.mean())


def role_half_width(half_widths: Iterable[float]) -> float:
    """Half-width of a role's shift over n independent corpora: sqrt(sum h^2) / n, percent."""
    values = _some(half_widths)
    return float(np.sqrt(np.square(values).sum()) / len(values))


def role_log10_perplexity_ratio(log10_ratios: Iterable[float]) -> float:
    """log10 of a role's perplexity ratio: the geometric mean over corpora, so the mean of the logs."""
    return float(_some(log10_ratios).mean())


def adjacency_gap(forget: float, adjacent: float) -> float:
    """AdjGap: shift on the forget role minus that on the adjacent one, percentage points."""
    return forget - adjacent


def globality(forget: float, adjacent: float, generic: float) -> float | Undefined:
    """rho = G / max(F, A), at least 0. Undefined where neither F nor A moved."""
    largest = max(forget, adjacent)
    return generic / largest if largest > 0 else Undefined(undefined="no shift on forget or adjacent text")


def classify_footprint(
    forget: Mapping[str, float],
    adjacent: Mapping[str, float],
    generic: Mapping[str, float],
    *,
    thresholds: FootprintThresholds = DEFAULT,
) -> FootprintClassName | Undefined:
    """The footprint class of shifts in percent, corpus -> shift for each role. In this order:

    `no-op`: every single corpus below 1.5; `globally-destructive`: rho >= 0.75 and G > 1;
    `partially-localized`: A < F; `collateral-dominant`: otherwise. Undefined without an adjacent corpus,
    unless a no-op. Raises InputError for a role without a corpus or a shift that is no number of at least 0.
    """
    _check(forget=forget, adjacent=adjacent, generic=generic)
    if all(value < thresholds.no_op for role in (forget, adjacent, generic) for value in role.values()):
        return "no-op"
    if not adjacent:
        return Undefined(undefined=NO_ADJACENT)
    roles = [role_shift(role.values()) for role in (forget, adjacent, generic)]
    return _moved_class(*roles, thresholds=thresholds)


def footprint_class(
    forget: Mapping[str, CorpusShift],
    adjacent: Mapping[str, CorpusShift],
    generic: Mapping[str, CorpusShift],
    *,
    log10_perplexity_ratios: Mapping[str, float] | None = None,
    thresholds: FootprintThresholds = DEFAULT,
) -> FootprintClass:
    """The class with its gap, globality, marks and flags. Each role: corpus -> shift with half-width.

    log10_perplexity_ratios: corpus -> log10 ratio, of any corpora; only flags a no-op, never decides.
    """
    roles = {"forget": forget, "adjacent": adjacent, "generic": generic}
    values = {name: {c: shift.value for c, shift in role.items()} for name, role in roles.items()}
    name = classify_footprint(**values, thresholds=thresholds)
    f, g = _role(forget), _role(generic)
    a = _role(adjacent) if adjacent else None
    absent = Undefined(undefined=NO_ADJACENT)
    rho = globality(f.value, a.value, g.value) if a else absent
    flags: tuple[str, ...] = ()
    if name == "no-op" and log10_perplexity_ratios:
        flags = no_op_fluency_flag(log10_perplexity_ratios, thresholds=thresholds)
    return FootprintClass(
        name=name,
        undetermined=_undetermined(name, roles, f, a, g, thresholds) if a else (),
        forget=f,
        adjacent=a or absent,
        generic=g,
        adjacency_gap=adjacency_gap(f.value, a.value) if a else absent,
        adjacency_gap_half_width=_combined(f, a) if a else absent,
        globality=rho,
        globality_half_width=_globality_half_width(f, a, g) if a else absent,
        flags=flags,
        thresholds=thresholds,
    )


def no_op_fluency_flag(
    log10_ratios: Mapping[str, float], *, thresholds: FootprintThresholds = DEFAULT
) -> tuple[str, ...]:
    """One line a corpus on which |log10 perplexity ratio| exceeds 0.1: fluency moved, the footprint not."""
    return tuple(
        f"fluency moved on {corpus} although the footprint did not: log10 perplexity ratio {ratio:+.2f}"
        for corpus, ratio in log10_ratios.items()
        if abs(ratio) > thresholds.fluency
    )


def _moved_class(f: float, a: float, g: float, *, thresholds: FootprintThresholds) -> FootprintClassName:
    rho = globality(f, a, g)
    # Without any shift on F and A, a shift on G is as global as can be.
    if (isinstance(rho, Undefined) or rho >= thresholds.globality) and g > thresholds.generic:
        return "globally-destructive"
    return "partially-localized" if a < f else "collateral-dominant"


def _undetermined(
    name: FootprintClassName | Undefined,
    roles: Mapping[str, Mapping[str, CorpusShift]],
    f: CorpusShift,
    a: CorpusShift,
    g: CorpusShift,
    thresholds: FootprintThresholds,
) -> tuple[str, ...]:
    """Each threshold that decides this class and lies inside an interval, as a line.

    1.5 decides where a corpus above it is what keeps a run from being a no-op, or all are below. 0.75 and 1
    decide together: one of them that fails for certain settles it. The gap decides among the rest.
    """
    corpora = {corpus: shift for role in roles.values() for corpus, shift in role.items()}
    near = [corpus for corpus, shift in corpora.items() if _covers(shift, thresholds.no_op)]
    above = [corpus for corpus, shift in corpora.items() if shift.value >= thresholds.no_op]
    lines = []
    if near and set(above) <= set(near):
        lines.append(f"the interval on {', '.join(near)} covers the no-op threshold {thresholds.no_op:g} %")
    if name == "no-op":
        return tuple(lines)
    rho = globality(f.value, a.value, g.value)
    rho_half = _globality_half_width(f, a, g)
    if not isinstance(rho, Undefined) and not isinstance(rho_half, Undefined):
        ratio = CorpusShift(value=rho, half_width=rho_half)
        near_rho = _covers(ratio, thresholds.globality)
        near_generic = _covers(g, thresholds.generic)
        global_enough = rho >= thresholds.globality or near_rho
        moved_enough = g.value > thresholds.generic or near_generic
        if near_rho and moved_enough:
            lines.append(f"the interval of globality covers {thresholds.globality:g}")
        if near_generic and global_enough:
            lines.append(f"the interval on generic text covers {thresholds.generic:g} %")
    both = _combined(f, a)
    gap = adjacency_gap(f.value, a.value)
    if name != "globally-destructive" and not isinstance(both, Undefined) and abs(gap) <= both:
        lines.append(f"the adjacency gap {gap:+.2f} +- {both:.2f} covers 0")
    return tuple(lines)


def _covers(shift: CorpusShift, threshold: float) -> bool:
    half = shift.half_width
    return not isinstance(half, Undefined) and abs(shift.value - threshold) <= half


def _combined(f: CorpusShift, a: CorpusShift) -> float | Undefined:
    """Half-width of AdjGap: hypot(h_F, h_A)."""
    for half in (f.half_width, a.half_width):
        if isinstance(half, Undefined):
            return half
    return math.hypot(cast(float, f.half_width), cast(float, a.half_width))


def _globality_half_width(f: CorpusShift, a: CorpusShift, g: CorpusShift) -> float | Undefined:
    """First-order half-width of rho = G / M, M the larger of F and A: hypot(h_G, rho h_M) / M."""
    rho = globality(f.value, a.value, g.value)
    if isinstance(rho, Undefined):
        return rho
    larger = max(f, a, key=lambda shift: shift.value)
    for half in (g.half_width, larger.half_width):
        if isinstance(half, Undefined):
            return half
    return math.hypot(cast(float, g.half_width), rho * cast(float, larger.half_width)) / larger.value


def _role(corpora: Mapping[str, CorpusShift]) -> CorpusShift:
    halves = [shift.half_width for shift in corpora.values()]
    missing = next((half for half in halves if isinstance(half, Undefined)), None)
    return CorpusShift(
        value=role_shift(shift.value for shift in corpora.values()),
        half_width=missing if missing is not None else role_half_width(cast("list[float]", halves)),
    )


def _some(values: Iterable[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    array = np.fromiter(values, dtype=np.float64)
    if not len(array):
        raise ValueError("a role needs at least one corpus")
    return array


def _check(**roles: Mapping[str, float]) -> None:
    for name, corpora in roles.items():
        if not corpora and name != "adjacent":
            raise InputError(
                f"{name} shifts", "no corpus", "at least one", f"measure a {name} corpus before classifying"
            )
        for corpus, value in corpora.items():
            if not math.isfinite(value) or value < 0:
                raise InputError(
                    f"shift on {name} corpus '{corpus}'",
                    f"{value}",
                    "percent, finite and at least 0",
                    "leave out a corpus whose shift is undefined and say so",
                )
