"""What other metrics of the field say of the same models, each by its usual reading.

A metric with a retrained model's value to compare with passes a model that is no worse than the worst of the
oracles at hand. One with a chance band passes inside it; a test passes where it rejects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as with_fields
from statistics import NormalDist

import numpy as np

from vestige.contracts import Interval, SeedModels, Undefined
from vestige.metrics import SEED_METRICS
from vestige.metrics.accuracy import correct
from vestige.metrics.calibration import calibration_terms
from vestige.metrics.several.zero_retrain import zero_retrain_forgetting
from vestige.pool.contents import ANCHOR, Outputs
from vestige.pool.families import DELETED_VIEWS, Family
from vestige.pool.panels import Panel
from vestige.statistics.bootstrap import ROW_SEEDS, bootstrap_rows
from vestige.statistics.decision_rules import decide
from vestige.statistics.terms import mean_of, value_of
from vestige.verdict.quantities import view_table

__all__ = ["OTHERS", "SEVERAL", "klom", "says_nothing", "several_seeds"]

KERNEL_LEVEL = 0.05
SEVERAL = 8
"""Seeds of a method that KLoM reads."""

Passes = Callable[[Panel, Outputs], bool | None]


def _no_worse(value: Callable[[Panel, Outputs, Sequence[Outputs]], float], *, larger: bool = False) -> Passes:
    """Whether a model is no worse than the worst oracle, each oracle judged against the rest."""

    def passes(panel: Panel, model: Outputs) -> bool:
        oracles = panel.oracles
        own = [value(panel, oracle, [o for o in oracles if o is not oracle]) for oracle in oracles]
        found = value(panel, model, oracles)
        return found >= min(own) if larger else found <= max(own)

    return passes


def _forget_accuracy(panel: Panel, model: Outputs, oracles: Sequence[Outputs]) -> float:
    return float(correct(model["F"], panel.deletion.gold["F"]).mean())


def _activation_distance(panel: Panel, model: Outputs, oracles: Sequence[Outputs]) -> float:
    return float(np.mean([np.linalg.norm(model["F"] - oracle["F"], axis=1).mean() for oracle in oracles]))


def _zrf(panel: Panel, model: Outputs, oracles: Sequence[Outputs]) -> float:
    random = panel.pool.role(panel.deletion.key, "random")[panel.held % panel.pool.settings.fulls]
    return zero_retrain_forgetting(model, random)


def _membership(panel: Panel, model: Outputs) -> bool | None:
    metric = SEED_METRICS.get("membership_auc")
    found = metric.compute(SeedModels(gold=panel.deletion.gold, unlearned={0: model}, oracle={}))
    if isinstance(found.value, Undefined) or not isinstance(found.chance, Interval):
        return None
    return found.value <= found.chance.high


def _kernel(panel: Panel, model: Outputs) -> bool:
    """Shown to be nearer to the first oracle than the first full model is, on F and on G.

    Maximum mean discrepancy with a Gaussian kernel of median width, unbiased, of two pairs of samples; its
    difference is asymptotically normal, with the variance of a U-statistic (Bounliphone et al. 2016). Rows
    are paired here.
    """
    z = NormalDist().inv_cdf(1 - KERNEL_LEVEL)
    for view in DELETED_VIEWS:
        u, o, f = model[view], panel.oracles[0][view], panel.fulls[0][view]
        n = len(u)
        everything = np.concatenate([u, o, f])
        lengths = (everything**2).sum(axis=1)
        squares = np.maximum(lengths[:, None] + lengths - 2 * everything @ everything.T, 0.0)
        width = float(np.median(squares[np.triu_indices(len(everything), 1)])) or 1.0
        k = np.exp(-squares / width)
        uu, ff = k[:n, :n], k[2 * n :, 2 * n :]
        uo, fo = k[:n, n : 2 * n], k[2 * n :, n : 2 * n]
        h = uu - uo - uo.T - ff + fo + fo.T
        np.fill_diagonal(h, 0.0)
        rows = h.sum(axis=1) / (n - 1)
        error = 2 * float(rows.std(ddof=1)) / np.sqrt(n)
        if not float(rows.mean()) < -z * error:
            return False
    return True


def _accepted(panel: Panel, model: Outputs) -> bool:
    """The published rule, of the first full model and the first oracle."""
    full, oracle = panel.fulls[0], panel.oracles[0]
    ends = []
    for view in DELETED_VIEWS:
        table = view_table(
            fulls=[full[view]], oracles=[oracle[view]], unlearned={"": [model[view]]}, units=np.array([])
        )
        gains = table.gain(table.models.unlearned[""])
        found = bootstrap_rows({"": mean_of(gains)}, draws=2000, seed=ROW_SEEDS[view])[""]
        ends += [found.estimate, found.low]
    gold = panel.deletion.gold["R"]

    def level(outputs: Outputs) -> tuple[float, float]:
        error = value_of(calibration_terms(outputs["R"], gold))
        assert isinstance(error, float)
        return float(correct(outputs["R"], gold).mean()), error

    (accuracy, error), (before, error_before) = level(model), level(full)
    gain_f, low_f, gain_g, low_g = ends
    return decide(gain_f, low_f, gain_g, low_g, accuracy - before, error - error_before) == "accepted"


OTHERS: Mapping[str, Passes] = {
    "published rule: accepted": _accepted,
    "forget accuracy": _no_worse(_forget_accuracy),
    "membership AUC": _membership,
    "ZRF": _no_worse(_zrf, larger=True),
    "activation distance": _no_worse(_activation_distance),
    "relative kernel test": _kernel,
}
"""Name -> whether it passes a model, None where it says nothing."""


def several_seeds(panel: Panel, family: Family) -> list[Outputs] | None:
    """Eight training seeds of one family, each made from another retrained model; None without."""
    places = [panel.held, *panel.others][:SEVERAL]
    made = [family.make(with_fields(panel, held=place)) for place in places]
    found = [one for one in made if one is not None]
    if len(found) < SEVERAL or len({one.cluster for one in found}) < SEVERAL:
        return None
    return [one.seeds[0] for one in found]


def klom(panel: Panel, seeds: Sequence[Outputs]) -> bool | None:
    """Whether KLoM of these seeds and the panel's oracles lies inside its chance band."""
    found = SEED_METRICS.get("klom").compute(
        SeedModels(
            gold=panel.deletion.gold,
            unlearned=dict(enumerate(seeds)),
            oracle=dict(enumerate(panel.oracles)),
        )
    )
    if isinstance(found.value, Undefined) or not isinstance(found.chance, Interval):
        return None
    return found.value <= found.chance.high


def says_nothing(panel: Panel, name: str) -> bool:
    """Whether a metric lacks what it needs in this deletion: the anchor has no random models."""
    return name == "ZRF" and panel.deletion.key == ANCHOR
