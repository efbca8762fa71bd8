"""What relearning is called, of checkpoints whose truth is known: scores of items made from plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vestige.attacks.relearn_reading import read_together, role_changes
from vestige.attacks.relearn_records import (
    AgainstOracle,
    CheckpointRelearning,
    RelearnRecord,
    RelearnSettings,
    ScoreChange,
    reading_of,
)
from vestige.contracts import Floats, Undefined
from vestige.models.lm_record import LanguageModelRecord
from vestige.statistics import bootstrap_rows, estimate, mean_of

N = 80
Made = dict[str, tuple[Floats, Floats]]
"""Role -> scores of its items before and after the attack."""


def checkpoint(label: str, role: Any, made: Made) -> CheckpointRelearning:
    scores = []
    for place, (name, (before, after)) in enumerate(made.items()):
        moved = bootstrap_rows({"": mean_of(after - before)}, seed=place, draws=200)[""]
        scores.append(
            ScoreChange(
                name=name,
                role=name,  # type: ignore[arg-type]
                kind="token probability",
                items=len(before),
                before=float(before.mean()),
                after=float(after.mean()),
                change=estimate(moved, condition="made"),
                before_items=tuple(before),
                after_items=tuple(after),
            )
        )
    roles = tuple(role_changes(scores, ("forget", "adjacent", "generic")))
    model = LanguageModelRecord(
        label=label,
        location="",
        kind="memory",
        sha256="ab" * 32,
        architecture="none",
        parameters=1,
        vocabulary=1,
        dtype="float32",
        adds_bos=False,
    )
    by_role = {item.role: item for item in roles}
    return CheckpointRelearning(
        label=label,
        role=role,
        model=model,
        scores=tuple(scores),
        roles=roles,
        reading=reading_of(by_role.get("forget"), by_role.get("generic")),
    )


class World:
    """Items with their own difficulty; levels are shares; every training adds its own noise to each item."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.hard = {name: 0.6 * self.random.normal(size=N) for name in ("forget", "generic")}

    def scores(self, name: str, level: float) -> Floats:
        logit = np.log(level / (1 - level)) + self.hard[name] + 0.3 * self.random.normal(size=N)
        return np.asarray(1 / (1 + np.exp(-logit)))

    def made(self, forget: tuple[float, float], generic: tuple[float, float] = (0.6, 0.6)) -> Made:
        return {
            name: (self.scores(name, levels[0]), self.scores(name, levels[1]))
            for name, levels in (("forget", forget), ("generic", generic))
        }


KNOWN: dict[str, tuple[tuple[float, float], tuple[float, float], str]] = {
    "suppressed": ((0.25, 0.85), (0.6, 0.6), "return"),
    "suppressed, and damaged": ((0.25, 0.85), (0.45, 0.6), "return and repair"),
    "half suppressed": ((0.50, 0.85), (0.6, 0.6), "return"),
    "never unlearned": ((0.85, 0.88), (0.6, 0.6), "still there"),
    "another retraining": ((0.29, 0.60), (0.6, 0.6), "learned anew"),
    "another retraining, a little higher": ((0.28, 0.635), (0.6, 0.6), "learned anew"),
    "some left, and a little higher": ((0.45, 0.65), (0.6, 0.6), "return"),
    "broken, without memory": ((0.20, 0.60), (0.05, 0.6), "repair"),
    "broken, with memory as far gone as the rest": ((0.30, 0.75), (0.05, 0.6), "repair"),
    "suppressed for good": ((0.10, 0.10), (0.6, 0.6), "no return"),
}
"""Levels on forget and generic text before and after; the retrained model goes from .29 to .60."""


def attacked(world: World, forget: Any, generic: Any) -> tuple[CheckpointRelearning, CheckpointRelearning]:
    oracle = checkpoint("oracle", "oracle", world.made((0.29, 0.60)))
    own = checkpoint("own", "unlearned", world.made(forget, generic))
    first, second = read_together([own, oracle])
    return first, second


@pytest.mark.parametrize("name", KNOWN)
def test_a_checkpoint_is_read_against_the_retrained_model(name: str) -> None:
    forget, generic, reading = KNOWN[name]
    found = [attacked(World(seed), forget, generic)[0].reading for seed in range(6)]
    assert found.count(reading) >= 5, found


def test_another_retraining_is_hardly_ever_a_return() -> None:
    """The old reading, a rise of its own, calls every retraining a return."""
    worlds = [attacked(World(100 + seed), (0.29, 0.60), (0.6, 0.6))[0] for seed in range(60)]
    assert np.mean([str(item.reading).startswith("return") for item in worlds]) <= 0.05
    old = [reading_of(item.change("forget"), item.change("generic")) for item in worlds]
    assert all(str(reading).startswith("return") for reading in old)


def test_a_gain_smaller_than_the_retrained_model_s_does_not_hide_a_level_above_it() -> None:
    """.64 to .92 against .29 to .88: it gained less, and stands above."""
    world = World(5)
    oracle = checkpoint("oracle", "oracle", world.made((0.29, 0.88)))
    own, oracle = read_together([checkpoint("own", "unlearned", world.made((0.64, 0.94))), oracle])
    assert own.reading == "return"
    assert isinstance(own.beyond_oracle, float)
    assert own.beyond_oracle < -0.2
    record = RelearnRecord(
        name="made",
        rule="against the retrained model",
        settings=RelearnSettings(),
        steps=1,
        texts=(),
        checkpoints=(own, oracle),
        budget_sha256="",
        draws=5000,
        condition="",
    )
    said = record.sentence(own)
    levels = [100 * value for item in (own, oracle) for value in _levels(item)]
    assert "{:.1f} to {:.1f} % on forget text, the retrained model {:.1f} to {:.1f} %".format(*levels) in said
    assert "difference after the attack +" in said


def _levels(item: CheckpointRelearning) -> tuple[float, float]:
    change = item.change("forget")
    assert change is not None
    return change.before, change.after


def test_without_a_retrained_model_memory_and_learning_anew_cannot_be_parted() -> None:
    world = World(6)
    made = checkpoint("own", "unlearned", world.made((0.25, 0.85)))
    failed = checkpoint("oracle", "oracle", world.made((0.29, 0.60))).model_copy(
        update={"failed": Undefined(undefined="diverged")}
    )
    for others in ([], [failed]):
        (own, *_) = read_together([made, *others])
        assert own.reading == "came back"
        assert own.against_oracle is None
    record = RelearnRecord(
        name="made",
        rule="against the retrained model",
        settings=RelearnSettings(),
        steps=1,
        texts=(),
        checkpoints=(own,),
        budget_sha256="",
        draws=5000,
        condition="",
    )
    assert (
        "a retrained model was not attacked, so what is memory and what is learning anew cannot be parted"
        in (record.sentence(own))
    )


def test_a_model_that_is_better_everywhere_needs_no_memory_for_it() -> None:
    world = World(7)
    oracle = checkpoint("oracle", "oracle", world.made((0.29, 0.60)))
    own, _ = read_together([checkpoint("own", "unlearned", world.made((0.35, 0.70), (0.8, 0.8))), oracle])
    assert own.reading == "learned anew"


def test_too_few_items_or_none_kept_say_so() -> None:
    world = World(8)
    few = {name: (a[:6], b[:6]) for name, (a, b) in world.made((0.25, 0.85)).items()}
    own, oracle = read_together([checkpoint("own", "unlearned", few), checkpoint("oracle", "oracle", few)])
    assert isinstance(own.reading, Undefined)
    assert "6 items, needed 10" in own.reading.undefined
    assert own.reading == oracle.reading
    stripped = [
        item.model_copy(
            update={
                "scores": tuple(
                    score.model_copy(update={"before_items": (), "after_items": ()}) for score in item.scores
                )
            }
        )
        for item in attacked(world, (0.25, 0.85), (0.6, 0.6))
    ]
    own, _ = read_together(stripped)
    assert not isinstance(own.against_oracle, AgainstOracle)
    assert "not kept" in str(own.reading)
