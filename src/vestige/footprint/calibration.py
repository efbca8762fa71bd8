"""What a checkpoint's shift is measured against **[ours]**: 8-bit copies, random changes of its size.

A random change has the singular values of the checkpoint's change of each matrix, and other singular vectors.

Only sums are kept: one number a corpus for each copy and reference, never their weights or Fisher diagonals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from vestige.contracts import Floats, Interval, Undefined
from vestige.data.corpora import Role, TokenSequence
from vestige.files import write_text
from vestige.footprint.cache import VERSION, sealed, unsealed
from vestige.footprint.fisher import Fisher
from vestige.footprint.judgements import CalibratedClass, CalibrationSettings, CorpusCalibration
from vestige.footprint.world import World
from vestige.metrics.footprint_calibrated import CalibratedRule, calibrated_rule, direction
from vestige.models.causal_lm import LanguageModel
from vestige.models.projections import Subspace, target_parameters
from vestige.seeds import digest, generator, stable_seed

__all__ = [
    "Change",
    "FisherOf",
    "calibrate",
    "changed_weights",
    "changes",
    "eight_bit",
    "exact_median",
    "random_change",
    "rms_log_ratio",
]

FisherOf = Callable[[nn.Module, Sequence[TokenSequence], "dict[str, Tensor] | None"], Fisher]
NO_CHANGE = "the checkpoint changes no weights"
ENERGY = 1e-6
"""The share of a change's squared norm that truncation may cost at most."""


@dataclass(frozen=True)
class Change:
    """A weight's change by its singular values (r,), largest first; shape (rows, columns), a vector has one
    column. full_rank: r is as large as it can be."""

    singular_values: Tensor
    shape: tuple[int, int]

    @property
    def full_rank(self) -> bool:
        return len(self.singular_values) == min(self.shape)


def calibrate(
    *,
    base: LanguageModel,
    after: LanguageModel,
    subspace: Subspace,
    samples: Mapping[str, Sequence[TokenSequence]],
    roles: Mapping[str, Role],
    fisher: FisherOf,
    base_fisher: Mapping[str, Mapping[str, Tensor]],
    after_fisher: Mapping[str, Mapping[str, Tensor]],
    settings: CalibrationSettings,
    progress: Callable[[str, float], None] = lambda text, share: None,
    cache: Path | None = None,
    world: World | None = None,
) -> CalibratedClass | Undefined:
    """The calibrated class of `after` against `base`, with ranks, intervals and seeds.

    samples: corpus -> the sequences both Fisher diagonals were measured on. fisher(model, sequences,
    coordinates): the same estimator. base_fisher, after_fisher: corpus -> diagonal of T, read when needed.
    cache: a folder for what was measured so far; its file is named by everything that changes a number.
    progress(what, share done). The base's weights are changed in place meanwhile and restored bit by bit.
    Undefined without weight changes, and where the estimator does not see the copies.
    """
    world = world or World()
    found = changes(base.model, after.model) if after.weight_change else {}
    if not found:
        return Undefined(undefined=NO_CHANGE)
    targets = target_parameters(base.model, subspace)
    f0 = {corpus: exact_median(base_fisher[corpus]) for corpus in samples}
    empty = [corpus for corpus, value in f0.items() if value <= 0]
    if empty:
        return Undefined(undefined=f"more than half of the base's Fisher diagonal is 0 on {empty[0]}")
    own = {c: rms_log_ratio(base_fisher[c], after_fisher[c], f0[c]) for c in samples}
    texts = [digest(c, *[unit.ids for unit in units], f0[c].hex()) for c, units in samples.items()]
    key = ("calibration 1", base.record.sha256, subspace, *texts, settings.seed)
    shifts = [own[c].hex() for c in samples]
    copies = _Measured.open(cache, "copies", world, *key)
    references = _Measured.open(cache, "references", world, *key, after.record.sha256, *shifts)

    def measured() -> dict[str, float]:
        return {
            c: rms_log_ratio(base_fisher[c], fisher(base.model, units, None).values, f0[c])
            for c, units in samples.items()
        }

    total = settings.copies + settings.references
    for number in range(len(copies.values), settings.copies):
        progress(f"8-bit copy {number + 1} of {settings.copies}", number / total)
        weights = {
            name: eight_bit(weight.data, settings.seed, number, name) for name, weight in targets.items()
        }
        with changed_weights(base.model, weights):
            copies.add(measured())
    if min(max(copy[c] for copy in copies.values) for c in samples) <= 0:
        return Undefined(undefined="the estimator does not see that the base was rounded to 8 bits")
    parameters = dict(base.model.named_parameters())
    for number in range(len(references.values), settings.references):
        done = settings.copies + number
        progress(f"reference change {number + 1} of {settings.references}", done / total)
        weights = {
            name: random_change(parameters[name].data, change, settings.seed, number, name)
            for name, change in found.items()
        }
        with changed_weights(base.model, weights):
            references.add(measured())
    noise, others = copies.values[: settings.copies], references.values[: settings.references]
    rule = calibrated_rule(own, noise, others, roles)
    progress("document bootstrap", 1.0)
    draws = {
        c: _bootstrap(base, after, targets, c, units, f0[c], fisher, settings) for c, units in samples.items()
    }
    return _record(rule, own, f0, roles, noise, others, draws, found, settings)


def changes(base: nn.Module, after: nn.Module) -> dict[str, Change]:
    """The singular values of every weight's change, by the base's names; empty where nothing changed.

    Truncated at numerical rank: what rounding in the weights' own dtype and in the decomposition amounts to,
    and never more than a millionth of the squared norm.
    """
    now = dict(after.named_parameters())
    found = {}
    for name, weight in base.named_parameters():
        other = now[name].data.to(weight.device)
        if weight.is_floating_point() and not torch.equal(weight.data, other):
            wide = torch.float64 if weight.dtype == torch.float64 else torch.float32
            delta = _matrix(other.to(wide) - weight.data.to(wide))
            size = max(float(value.to(wide).square().mean().sqrt()) for value in (weight.data, other))
            rounding = torch.finfo(weight.dtype).eps * size
            found[name] = Change(_singular_values(delta, rounding, name), (delta.shape[0], delta.shape[1]))
    return found


def _matrix(value: Tensor) -> Tensor:
    return value.reshape(-1, 1) if value.ndim < 2 else value.reshape(value.shape[0], -1)


def _singular_values(delta: Tensor, rounding: float, name: str) -> Tensor:
    """Singular values of (m, n) above rounding. rounding: RMS error of an entry.

    A sketch of rank 96 first (Halko et al. 2011): where it holds all but ENERGY / 100 of the squared norm its
    values are taken, otherwise all are computed.
    """
    m, n = delta.shape
    norm = float(delta.double().square().sum())
    values = None
    if min(m, n) > 256:
        rng = torch.Generator(delta.device).manual_seed(stable_seed("sketch", name))
        frame = torch.linalg.qr(
            delta @ torch.randn(n, 96, generator=rng, device=delta.device, dtype=delta.dtype)
        ).Q
        small = torch.linalg.svdvals(frame.T @ delta)
        if norm - float(small.double().square().sum()) <= ENERGY / 100 * norm:
            values = small
    if values is None:
        values = torch.linalg.svdvals(delta)
    tail = values.double().square().flip(0).cumsum(0).flip(0)  # energy from each value on
    own = max(m, n) * torch.finfo(delta.dtype).eps * float(values[0])  # of the decomposition itself
    noise = max(rounding * (math.sqrt(m) + math.sqrt(n)), own)
    keep = (values > noise) | (tail > ENERGY * norm)
    kept: Tensor = values[: int(keep.nonzero().max()) + 1]
    return kept


def random_change(weight: Tensor, change: Change, *key: object) -> Tensor:
    """The weight plus a matrix of these singular values with Haar-distributed singular vectors.

    The same for the same key on the same kind of device. Returned in the weight's dtype and shape.
    """
    wide = torch.float64 if weight.dtype == torch.float64 else torch.float32
    rng = torch.Generator(weight.device).manual_seed(stable_seed("reference", *key))
    left, right = (
        _haar(side, len(change.singular_values), rng, weight.device, wide) for side in change.shape
    )
    delta = (left * change.singular_values.to(weight.device, wide)) @ right.T
    return (weight.to(wide) + delta.reshape(weight.shape)).to(weight.dtype)


def _haar(size: int, rank: int, rng: torch.Generator, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(size, rank), orthonormal columns, uniformly distributed: QR of a Gaussian with positive diagonal."""
    q, r = torch.linalg.qr(torch.randn(size, rank, generator=rng, device=device, dtype=dtype))
    signed: Tensor = q * torch.where(r.diagonal() < 0, -1.0, 1.0).to(dtype)
    return signed


def eight_bit(weight: Tensor, *key: object) -> Tensor:
    """The weight with each row rounded at random to 255 steps of its largest entry, unbiased.

    A row is a slice along the first axis. Rows of zeros stay. Returned in the weight's dtype.
    """
    wide = torch.float64 if weight.dtype == torch.float64 else torch.float32
    rows = _matrix(weight).to(wide)
    step = rows.abs().amax(1, keepdim=True) / 127
    rng = torch.Generator(weight.device).manual_seed(stable_seed("8-bit", *key))
    lift = torch.rand(rows.shape, generator=rng, device=weight.device, dtype=wide)
    levels = (rows / torch.where(step > 0, step, 1) + lift).floor().clamp(-127, 127)
    return (levels * step).reshape(weight.shape).to(weight.dtype)


@contextmanager
def changed_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """These weights in the model inside; the very same tensors as before afterwards."""
    held = dict(model.named_parameters())
    kept = {name: held[name].data for name in weights}
    try:
        for name, value in weights.items():
            held[name].data = value
        yield
    finally:
        for name, value in kept.items():
            held[name].data = value


def rms_log_ratio(base: Mapping[str, Tensor], after: Mapping[str, Tensor], f0: float) -> float:
    """s: the RMS over T of log((F' + f0) / (F + f0)), at least 0. Sums in float64."""
    squares, count = 0.0, 0
    for name, before in base.items():
        ratio = torch.log((after[name].double() + f0) / (before.double() + f0))
        squares += float(ratio.square().sum())
        count += before.numel()
    return math.sqrt(squares / count)


def exact_median(values: Mapping[str, Tensor]) -> float:
    """The lower median of all entries, which are at least 0, without putting them together.

    The bits of floats of at least 0 are in the order of the floats: 31 (63) halvings find the median's.
    """
    parts = [
        value.contiguous().view(torch.int64 if value.dtype == torch.float64 else torch.int32)
        for value in values.values()
    ]
    wanted = (sum(part.numel() for part in parts) + 1) // 2
    low, high = 0, max(int(part.max()) for part in parts)
    while low < high:
        middle = (low + high) // 2
        if sum(int((part <= middle).sum()) for part in parts) >= wanted:
            high = middle
        else:
            low = middle + 1
    kind = np.float64 if parts[0].dtype == torch.int64 else np.float32
    return float(np.array([low], np.int64 if kind is np.float64 else np.int32).view(kind)[0])


@dataclass
class _Measured:
    """s on every corpus of the copies, or of the references, so far; on disk after every addition.

    The file is named by everything that changes a number, the estimator's settings through f0 and s.
    """

    values: list[dict[str, float]]
    path: Path | None

    @classmethod
    def open(cls, folder: Path | None, kind: str, world: World, *key: object) -> _Measured:
        path = None if folder is None else folder / f"calibration-{kind}-{digest(VERSION, *key)[:16]}.json"
        found: list[dict[str, float]] = []
        if path is not None and world.leads and path.exists():
            found = unsealed(path)
        return cls(world.from_lead(found), path if world.leads else None)

    def add(self, values: dict[str, float]) -> None:
        self.values.append(values)
        if self.path is not None:
            write_text(self.path, sealed(self.values))


def _coordinates(targets: Mapping[str, Tensor], settings: CalibrationSettings) -> dict[str, Tensor]:
    """Flat indices of a seeded sample of T without replacement, sorted, by name."""
    sizes = np.array([weight.numel() for weight in targets.values()])
    count = min(settings.coordinates, int(sizes.sum()))
    rng = generator(settings.seed, "coordinates")
    drawn = np.sort(rng.choice(int(sizes.sum()), count, replace=False, shuffle=False))
    ends = np.cumsum(sizes)
    found = {}
    for name, size, end in zip(targets, sizes, ends, strict=True):
        own = drawn[(drawn >= end - size) & (drawn < end)] - (end - size)
        if len(own):
            found[name] = torch.from_numpy(own)
    return found


def _bootstrap(
    base: LanguageModel,
    after: LanguageModel,
    targets: Mapping[str, Tensor],
    corpus: str,
    units: Sequence[TokenSequence],
    f0: float,
    fisher: FisherOf,
    settings: CalibrationSettings,
) -> tuple[float, Floats]:
    """(s on the sampled coordinates, s in every draw). Documents are drawn whole, for both models alike."""
    chosen = _coordinates(targets, settings)
    names, member = np.unique([unit.document_id for unit in units], return_inverse=True)
    sizes = np.bincount(member, minlength=len(names))
    sums = []
    for model in (base.model, after.model):
        rows = fisher(model, units, chosen).rows
        total = torch.zeros(len(names), rows.shape[1], dtype=torch.float32)
        sums.append(total.index_add_(0, torch.from_numpy(member), rows))
    rng = generator(settings.seed, "documents", corpus)

    def s_of(counts: Floats) -> Floats:
        weights = torch.from_numpy(counts / (counts @ sizes)[:, None]).float()
        before, now = (weights @ total for total in sums)
        return torch.log((now + f0) / (before + f0)).square().mean(1).sqrt().double().numpy()

    draws = []
    for start in range(0, settings.draws, 16):
        size = min(16, settings.draws - start)
        drawn = rng.integers(0, len(names), (size, len(names)))
        draws.append(s_of(np.stack([np.bincount(row, minlength=len(names)) for row in drawn]).astype(float)))
    return float(s_of(np.ones((1, len(names))))[0]), np.concatenate(draws)


def _interval(
    values: Floats, settings: CalibrationSettings, condition: str, documents: int
) -> Interval | Undefined:
    if documents < 2:
        return Undefined(undefined="an interval needs at least two documents")
    low, high = np.quantile(values, [0.025, 0.975])
    return Interval(
        low=float(low),
        high=float(high),
        kind="document bootstrap, percentile",
        draws=settings.draws,
        seed=settings.seed,
        condition=condition,
    )


def _record(
    rule: CalibratedRule,
    own: Mapping[str, float],
    f0: Mapping[str, float],
    roles: Mapping[str, Role],
    copies: Sequence[Mapping[str, float]],
    references: Sequence[Mapping[str, float]],
    draws: Mapping[str, tuple[float, Floats]],
    found: Mapping[str, Change],
    settings: CalibrationSettings,
) -> CalibratedClass:
    held = "one training run; copies, references and f0 held fixed"
    varies = min(float(np.ptp(values)) for _, values in draws.values()) > 0
    documents = 2 if varies else 1
    count = settings.draws if varies else 1
    drawn = [direction({c: draws[c][1][i] for c in own}, rule.medians, roles) for i in range(count)]
    e = rule.direction.roles
    asked = Undefined(undefined="h is not low, so g is not asked")
    absent = Undefined(undefined="no adjacent corpus")
    notes = [
        f"{n} {what} cannot reach p = 0.05: at least {least} are needed"
        for n, what, least in ((settings.copies, "copies", 19), (settings.references, "references", 39))
        if n < least
    ]
    intervals = {c: _interval(draws[c][1], settings, held, documents) for c in own}
    notes += [
        f"the interval of s on {c} lies above s: a draw holds fewer distinct documents, which makes a Fisher "
        "diagonal noisier; read its width, not its place"
        for c, interval in intervals.items()
        if isinstance(interval, Interval) and draws[c][0] < interval.low
    ]
    return CalibratedClass(
        name=rule.name,
        moved=rule.moved,
        moved_p=rule.moved_p,
        e_forget=e["forget"],
        e_adjacent=e.get("adjacent", absent),
        e_generic=e["generic"],
        h=absent if rule.direction.h is None else rule.direction.h,
        h_p=absent if rule.h_p is None else rule.h_p,
        h_interval=_interval(np.array([d.h for d in drawn], float), settings, held, documents),
        g=absent if rule.direction.g is None else rule.direction.g,
        g_p=(absent if rule.direction.g is None else asked) if rule.g_p is None else rule.g_p,
        g_interval=absent
        if rule.direction.g is None
        else _interval(np.array([d.g for d in drawn], float), settings, held, documents),
        corpora=tuple(
            CorpusCalibration(
                corpus=c,
                role=roles[c],
                s=own[c],
                fold=math.exp(own[c]),
                f0=f0[c],
                copies=tuple(copy[c] for copy in copies),
                references=tuple(reference[c] for reference in references),
                e=rule.direction.e[c],
                s_sampled=draws[c][0],
                interval=intervals[c],
            )
            for c in own
        ),
        changed=len(found),
        full_rank=sum(change.full_rank for change in found.values()),
        settings=settings,
        notes=tuple(notes),
    )
