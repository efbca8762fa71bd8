"""What limits a result: caveats of one record, of several read together, and the scope of every report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from vestige.contracts import Assessment
from vestige.report.measures import unlearned_models
from vestige.report.recovered import NOT_TESTED, Recovered, pooled_unseen
from vestige.report.sentence import stage_words
from vestige.report.words import listed, number_word, plain, short

__all__ = ["SCOPE", "caveats", "shared_caveats"]

SCOPE = (
    "Erasure from pretraining is not measured: nothing here says what the base model knew before training.",
    "This is no privacy guarantee, and no claim that deleted records cannot be extracted.",
    "Geometry describes where probabilities moved; it makes no causal claim.",
    "Closer to retraining, or accepted by the published rule, is not equivalent to it: both say that "
    "something was undone, and neither that enough was.",
    "Screening results are not corrected for the number of models tried, and their count is no success rate.",
    "The licences of the data and of the base models apply to what was trained on them.",
)
"""Lines that every report carries."""


def caveats(assessment: Assessment, recoveries: Recovered = MappingProxyType({})) -> tuple[str, ...]:
    """Every caveat of a record, one line each: its own, its stage's, of recovery, and what was not tested.

    recoveries: of the record's unlearned models that were attacked.
    """
    found = [plain(item) for item in assessment.caveats]
    stage = stage_words(assessment.stage)
    return tuple(dict.fromkeys([*found, *([stage] if stage else []), *_recovery(assessment, recoveries)]))


def _recovery(assessment: Assessment, recoveries: Recovered) -> list[str]:
    """Which models were not fine-tuned again, and what pooled settings of those that were are not."""
    if not recoveries:
        return [NOT_TESTED]
    pooled = [item.caveat for record in recoveries.values() if (item := pooled_unseen(record))]
    left = [
        f"“{short(model.label)}”" for model in unlearned_models(assessment) if model.label not in recoveries
    ]
    if not left:
        return pooled
    return [*pooled, f"{NOT_TESTED.removesuffix('.')} of {listed(left)}."]


def shared_caveats(assessments: Sequence[Assessment]) -> tuple[str, ...]:
    """Caveats of reading several records side by side: one label for different rows, models in common."""
    if len(assessments) < 2:
        return ()
    found = []
    requests: dict[str, set[str]] = {}
    for assessment in assessments:
        bundle, identity = _request(assessment)
        if bundle and identity:
            requests.setdefault(bundle, set()).add(identity)
    for bundle, identities in requests.items():
        if len(identities) > 1:
            found.append(
                f"“{short(bundle)}” names {number_word(len(identities))} different sets of deleted rows in "
                "this report: compare records of one request by its hash, not by this label."
            )
    hashes = [source.sha256 for item in assessments for source in item.sources if source.role != "unlearned"]
    if len(set(hashes)) < len(hashes):
        found.append("Some records share models and are not independent of each other.")
    return tuple(found)


def _request(assessment: Assessment) -> tuple[str, str]:
    """Label and hash of the record's deletion request, empty where it has none."""
    request = assessment.provenance.get("request")
    if not isinstance(request, Mapping):
        return "", ""
    return str(request.get("bundle", "")), str(request.get("rows_sha256", ""))
