"""Relative shifts of a diagonal between two models, per weight, layer, projection and role.

`shift = 100 |V(base) - V(after)| / |V(base)|`, Euclidean norms over the measured weights,
V = log(|F| + floor) or F itself. Sums are float64; two equal diagonals shift by exactly 0. Ataee and
Triantafillou 2026.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from scipy import stats
from torch import Tensor

from vestige.contracts import Undefined
from vestige.errors import InputError
from vestige.footprint.records import DocumentShift, ModuleShift, Shift
from vestige.metrics.footprint import role_half_width, role_shift
from vestige.models.projections import place

__all__ = [
    "Scale",
    "Sums",
    "document_shifts",
    "floor_share",
    "grouped",
    "half_width",
    "interval",
    "log10_of_mean",
    "module_shifts",
    "module_sums",
    "relative_shift",
    "role_interval",
]

Scale = Literal["log", "linear"]
FLOOR = 1e-5


@dataclass(frozen=True)
class Sums:
    """Over some weights: base = sum V^2, change = sum (V - V')^2, float64; how many weights."""

    base: float
    change: float
    parameters: int

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.base + other.base, self.change + other.change, self.parameters + other.parameters)

    @property
    def shift(self) -> float | Undefined:
        """Percent, at least 0. 0 where nothing changed; undefined where only the base is 0."""
        if self.change == 0:
            return 0.0
        return (
            100 * math.sqrt(self.change / self.base) if self.base > 0 else Undefined(undefined="base of zero")
        )


def module_sums(
    base: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    *,
    scale: Scale = "log",
    floor: float = FLOOR,
    half: Collection[Literal["base", "after"]] = (),
) -> dict[str, Sums]:
    """The sums of each weight, by name. half: whose transformed values are rounded to float16 first, as in
    the published cache. Raises InputError when names or shapes differ, and for values that are not
    finite."""
    if base.keys() != after.keys():
        odd = sorted(base.keys() ^ after.keys())[0]
        raise InputError(
            f"weight '{odd}'",
            "measured in one model only",
            "the same weights in both",
            "compare one architecture",
        )
    found = {}
    for name, before in base.items():
        now = after[name]
        if before.shape != now.shape:
            raise InputError(
                f"weight '{name}'",
                f"shape {tuple(now.shape)}",
                f"{tuple(before.shape)} as in the base",
                "compare models of one architecture",
            )
        found[name] = _sums(before, now, scale, floor, half)
        if not math.isfinite(found[name].change):
            raise InputError(
                f"weight '{name}'",
                "squared gradients or curvatures that are not finite",
                "finite ones",
                "measure in float64, or leave this model out: it is broken or its numbers are too large",
            )
    return found


def _sums(before: Tensor, now: Tensor, scale: Scale, floor: float, half: Collection[str]) -> Sums:
    base = change = 0.0
    for one, two in zip(*(torch.split(value.reshape(-1), 1 << 20) for value in (before, now)), strict=True):
        v, w = (_transformed(part, scale, floor) for part in (one, two))
        v, w = (x.half().double() if name in half else x for name, x in (("base", v), ("after", w)))
        base += float(torch.dot(v, v))
        difference = v - w
        change += float(torch.dot(difference, difference))
    return Sums(base, change, before.numel())


def _transformed(values: Tensor, scale: Scale, floor: float) -> Tensor:
    wide = values.double()
    return wide if scale == "linear" else torch.log(wide.abs() + floor)


def relative_shift(
    base: Mapping[str, Tensor], after: Mapping[str, Tensor], *, scale: Scale = "log", floor: float = FLOOR
) -> float:
    """The shift over all weights, percent, at least 0. Raises InputError for a base of zero everywhere."""
    total = _total(module_sums(base, after, scale=scale, floor=floor).values())
    if isinstance(total.shift, Undefined):
        raise InputError(
            "relative shift", "a base of zero", "a base that has a scale", "check the base model"
        )
    return total.shift


def _total(sums: Iterable[Sums]) -> Sums:
    total = Sums(0.0, 0.0, 0)
    for part in sums:
        total += part
    return total


def floor_share(values: Mapping[str, Tensor], floor: float = FLOOR) -> float:
    """Share of the weights whose value lies below the floor, in [0, 1]."""
    below = sum(int((value.abs() < floor).sum()) for value in values.values())
    return below / sum(value.numel() for value in values.values())


def half_width(values: Sequence[float], level: float = 0.95) -> float | Undefined:
    """t-based half-width of the mean: 4.303 s / sqrt 3 for three values at 95 %. Undefined for one value."""
    n = len(values)
    if n < 2:
        return Undefined(undefined="one subset")
    if len(set(values)) == 1:
        return 0.0
    mean = math.fsum(values) / n
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    return float(stats.t.ppf((1 + level) / 2, n - 1)) * deviation / math.sqrt(n)


def log10_of_mean(log10_values: Sequence[float]) -> float:
    """log10 of the arithmetic mean of numbers that are given by their log10: 112 is no overflow."""
    largest = max(log10_values)
    mean = math.fsum(10 ** (value - largest) for value in log10_values) / len(log10_values)
    return largest + math.log10(mean)


def interval(values: Sequence[float], no_interval: str = "") -> Shift:
    """Mean over subsets and half-width. no_interval: why there is none, as when all subsets coincide."""
    return Shift(
        value=math.fsum(values) / len(values),
        half_width=Undefined(undefined=no_interval) if no_interval else half_width(values),
        per_subset=tuple(values),
    )


def role_interval(shifts: Sequence[Shift]) -> Shift:
    """A role over its corpora: plain mean, half-width sqrt(sum h^2) / n. Undefined where a corpus is."""
    values = [shift.value for shift in shifts]
    for value in values:
        if isinstance(value, Undefined):
            return Shift(value=value, half_width=value)
    halves = [shift.half_width for shift in shifts]
    undefined = next((half for half in halves if isinstance(half, Undefined)), None)
    known = [half for half in halves if not isinstance(half, Undefined)]
    return Shift(
        value=role_shift(value for value in values if not isinstance(value, Undefined)),
        half_width=undefined if undefined is not None else role_half_width(known),
    )


def grouped(
    sums: Sequence[Mapping[str, Sums]], by: Literal["layer", "projection", "module"]
) -> tuple[ModuleShift, ...]:
    """Shifts of layers, projections or single weights over subsets: the mean of the subsets' own shifts, and
    the mean share of the whole squared shift. Layers and projections in order, weights most shifted first."""
    keys: dict[str, list[str]] = {}
    for name in sums[0]:
        where = place(name)
        layer, projection = (where.layer, where.projection) if where else (-1, "?")
        key = {"layer": str(layer), "projection": projection, "module": name}[by]
        keys.setdefault(key, []).append(name)
    found = []
    for key, names in keys.items():
        where = place(names[0])
        totals = [_total(subset[name] for name in names) for subset in sums]
        wholes = [_total(subset.values()) for subset in sums]
        found.append(
            ModuleShift(
                name=key,
                layer=where.layer if where and by != "projection" else None,
                projection=where.projection if where and by != "layer" else None,
                parameters=totals[0].parameters,
                shift=_mean([total.shift for total in totals]),
                share=_mean(
                    [
                        total.change / whole.change
                        if whole.change > 0
                        else Undefined(undefined="nothing moved")
                        for total, whole in zip(totals, wholes, strict=True)
                    ]
                ),
            )
        )
    return tuple(sorted(found, key=_most_shifted)) if by == "module" else tuple(found)


def module_shifts(sums: Sequence[Mapping[str, Sums]]) -> dict[str, tuple[ModuleShift, ...]]:
    """`layers`, `projections` and `modules` of a corpus, from the sums of its subsets."""
    return {
        "layers": grouped(sums, "layer"),
        "projections": grouped(sums, "projection"),
        "modules": grouped(sums, "module"),
    }


def _most_shifted(module: ModuleShift) -> tuple[float, str]:
    return (-module.shift if isinstance(module.shift, float) else math.inf, module.name)


def _mean(values: Sequence[float | Undefined]) -> float | Undefined:
    for value in values:
        if isinstance(value, Undefined):
            return value
    return math.fsum(value for value in values if not isinstance(value, Undefined)) / len(values)


def document_shifts(
    documents: Sequence[str],
    base: tuple[Sequence[float], Sequence[float]],
    after: tuple[Sequence[float], Sequence[float]],
    most: int = 20,
    shown: Callable[[str], str] = str,
) -> tuple[DocumentShift, ...]:
    """The documents whose Fisher trace moved most, by absolute log ratio. base, after: (traces, losses), each
    aligned with `documents`, which may name one several times: its units are averaged."""
    rows: dict[str, list[int]] = {}
    for i, name in enumerate(documents):
        rows.setdefault(name, []).append(i)
    found = []
    for name, members in rows.items():
        trace, loss, trace_after, loss_after = (
            math.fsum(values[i] for i in members) / len(members) for values in (*base, *after)
        )
        ratio = trace_after / trace if trace > 0 else math.nan
        size = abs(math.log(ratio)) if ratio > 0 else math.inf
        shift: float | Undefined = (
            100 * (ratio - 1) if math.isfinite(ratio) else Undefined(undefined="base of zero")
        )
        found.append(
            (
                -size,
                DocumentShift(
                    document=shown(name),
                    units=len(members),
                    shift=shift,
                    trace_base=trace,
                    trace_after=trace_after,
                    loss_base=loss,
                    loss_after=loss_after,
                ),
            )
        )
    ranked = sorted(found, key=lambda pair: (pair[0], pair[1].document))
    return tuple(document for _, document in ranked[:most])
