"""Candidate sets of a study: which options each set offers, kept in the run folder. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vestige.contracts import Undefined
from vestige.decision.schema import candidate_set
from vestige.errors import InputError, first_five
from vestige.seeds import digest

if TYPE_CHECKING:
    import pandas as pd

    from vestige.contracts import Floats
    from vestige.decision.schema import CandidateSet
    from vestige.deletion.requests import DeletionRequest
    from vestige.study.cells import Setting
    from vestige.study.deletions import Deletions
    from vestige.study.store import Store

__all__ = ["ALL_OPTIONS", "EVERYTHING", "Offer", "offered_rows", "offers", "suffix"]

ALL_OPTIONS = "S0"
SEED = 0
"""Of the distractors of S2 [ours]: one draw for all models and renderings."""


@dataclass(frozen=True)
class Offer:
    """A candidate set. options: ids on offer in the schema's order; None: all of them."""

    name: str = ALL_OPTIONS
    options: tuple[str, ...] | None = None

    @property
    def identity(self) -> str | dict[str, Any]:
        """What the identity of a prediction says of it."""
        return self.name if self.options is None else {"set": self.name, "options": list(self.options)}


EVERYTHING = Offer()
"""S0."""


def suffix(name: str) -> str:
    """Of file names: nothing for all options, else `-S1`."""
    return "" if name == ALL_OPTIONS else f"-{name}"


def offers(setting: Setting, store: Store, deletions: Deletions) -> dict[str, tuple[Offer, ...]]:
    """By bundle the offers of the plan's candidate sets, written to candidates/<bundle>.json.

    Memberships come from the semantic texts by the frozen sentence encoder whatever the rendering and the
    model: they are equal wherever options and request are. Raises InputError for a set that the request does
    not define.
    """
    wanted = setting.plan.offered_sets
    if wanted == (ALL_OPTIONS,):
        return {bundle: (Offer(),) for bundle in deletions.requests}
    vectors = setting.backend.embed(setting.schema.semantic_texts())
    found = {}
    for bundle, request in deletions.requests.items():
        lost = lost_classes(request)
        mine = []
        for name in wanted:
            members = _members(setting, name, lost, vectors, bundle)
            if isinstance(members, Undefined):
                raise InputError(
                    f"candidate set {name} of bundle {bundle}",
                    f"a {request.granularity} deletion, which forgets no option",
                    "class or association deletion",
                    "leave it out of candidates",
                )
            mine.append(Offer() if name == ALL_OPTIONS else Offer(name, members))
        store.write_json(
            f"candidates/{bundle}.json",
            {
                "encoder": setting.backend.encoder(),
                "seed": SEED,
                "schema": digest(*setting.schema.semantic_texts()),
                "forgotten": sorted(lost),
                "sets": {item.name: list(item.options or setting.schema.ids) for item in mine},
            },
        )
        found[bundle] = tuple(mine)
    return found


def _members(
    setting: Setting, name: str, lost: tuple[str, ...], vectors: Floats, bundle: str
) -> tuple[str, ...] | Undefined:
    """Ids of a set in the schema's order. Raises InputError: an own set without a forgotten option."""
    own = setting.plan.own_sets.get(name)
    if own is None:
        kind: CandidateSet = name  # type: ignore[assignment]
        return candidate_set(kind, setting.schema, lost, vectors, SEED)
    members = setting.schema.subset(own).ids
    if missing := sorted(set(lost) - set(members)):
        raise InputError(
            f"candidate set {name} of bundle {bundle}",
            f"no forgotten option {first_five(missing)}",
            "every forgotten option on offer: nothing is masked",
            "add it to the set",
        )
    if len(members) <= len(lost):
        raise InputError(
            f"candidate set {name} of bundle {bundle}",
            "forgotten options alone",
            "at least one retained option",
            "add some",
        )
    return members


def lost_classes(request: DeletionRequest) -> tuple[str, ...]:
    """Options that count as forgotten in a candidate set: the classes, or the parents of associations."""
    return tuple(request.forgotten or request.parents)


def offered_rows(setting: Setting, table: pd.DataFrame, offer: Offer) -> pd.DataFrame:
    """The rows of a view table whose gold is on offer: F and G whole, of R what can be answered."""
    if offer.options is None:
        return table
    held = set(offer.options)
    kept = table[[setting.gold[row] in held for row in table["row_id"]]]
    return kept.reset_index(drop=True)


def refuse_undefined(candidates: Sequence[str], granularity: str, subject: str) -> None:
    """Raise InputError for candidate sets that the deletion cannot define, before anything is trained."""
    if ALL_OPTIONS not in candidates:
        raise InputError(subject, "no S0", "S0 among them", "add S0: feasibility is judged on all options")
    others = [name for name in candidates if name != ALL_OPTIONS]
    if others and granularity not in ("class", "association"):
        raise InputError(
            subject,
            f"{', '.join(others)} with {granularity} deletion, which forgets no option",
            "S0 alone",
            "remove them, or delete classes or associations",
        )
