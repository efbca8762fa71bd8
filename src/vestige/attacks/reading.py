"""When an attack brought a memory back: the rule that decision and language models share."""

from __future__ import annotations

from typing import Literal

__all__ = ["BEYOND", "LEAST", "LevelReading", "beyond_retraining", "level_reading"]

LevelReading = Literal["return", "still there", "learned anew", "no return"]
"""Against the retrained model under the same attack. return: it rose, to a level shown above the retrained
model's. still there: it is above, and did not have to rise or was there before. learned anew: it rose, and
is not shown above. no return: neither."""

LEAST = 0.01
"""A difference of a score below this, in its own unit (a share), counts as none."""
BEYOND = 0.05
"""How far above one retrained model another may end; between light models that .03 (standard deviation)."""


def beyond_retraining(after: float, start: float) -> bool:
    """Whether a model differs from a retrained one by more than another training seed does.

    after, start: its level after and before the attack, each less the retrained model's at the same time.
    Only one retrained model is at hand; without this, one retraining in eight would be a return beside
    another, for rows show differences that are the training seed's.
    """
    return max(after, start) >= BEYOND


def level_reading(*, rose: bool, above: bool, above_before: bool, elsewhere: bool) -> LevelReading:
    """What a checkpoint's level after an attack says.

    rose: its own rise is shown. above: its level after the attack is shown above the retrained model's, on
    the same rows under the same budget, and `beyond_retraining`. above_before: its level before the attack
    was already shown above what the retrained model reaches by it. elsewhere: it is above by as much where
    there is nothing to remember, which needs no memory. A function of scores alone, so that the same weights
    read the same under every name.
    """
    if not above or elsewhere:
        return "learned anew" if rose else "no return"
    return "still there" if above_before or not rose else "return"
