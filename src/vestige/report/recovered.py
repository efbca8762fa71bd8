"""What recovery found of the models of an assessment: their records, and one sentence. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from vestige.attacks.records import UNSEEN, PooledRecovery, RecoveryRecord
from vestige.contracts import Estimate, Interval, Undefined
from vestige.report.words import conditions, counted, estimate_text, listed, plain
from vestige.study.ledger_run import Run

__all__ = ["NOT_TESTED", "Recovered", "pooled_unseen", "recovered", "recovery_sentence"]

NOT_TESTED = "Recovery by fine-tuning was not tested."

Recovered = Mapping[str, RecoveryRecord]
"""Label of an unlearned model -> its recovery."""


def recovered(files: Sequence[Path]) -> list[Recovered]:
    """The recoveries beside each of these assessment files, of the very checkpoints that were assessed.

    Records of fresh heads alone are none. Raises InputError for a damaged record.
    """
    from vestige.study.ledger_recovery import recoveries  # imports pandas, which a comparison does without

    runs: dict[Path, tuple[Run, list[RecoveryRecord]]] = {}
    found = []
    for file in files:
        root = file.parent.parent if file.parent.name == "assessments" else file.parent
        if root not in runs:
            run = Run(root)
            runs[root] = run, [record for _, record in recoveries([run]) if pooled_unseen(record)]
        found.append(_of_file(*runs[root], file.relative_to(root).as_posix()))
    return found


def _of_file(run: Run, records: Sequence[RecoveryRecord], file: str) -> Recovered:
    found = {}
    for entry in run.entries if records else ():
        nodes = {role: entry["identity"].get(role) for role in ("full", "unlearned", "oracle")}
        if entry.get("assessment") == file:
            mine = next((record for record in records if record.nodes == nodes), None)
            if mine is not None:
                found[entry["label"]] = mine
    return found


def pooled_unseen(record: RecoveryRecord) -> PooledRecovery | None:
    """The contrasts on unseen rows over all settings; None where nothing was fine-tuned."""
    return next((item for item in record.pooled if item.population == UNSEEN), None)


def recovery_sentence(record: RecoveryRecord | None) -> str:
    """What fine-tuning brought back beyond what it brings back of the retrained model, or that it was not
    tested."""
    pooled = pooled_unseen(record) if record is not None else None
    if record is None or pooled is None:
        return NOT_TESTED
    contrast = pooled.contrasts["g_adj"]
    budgets = [str(k) for k in record.plan.get("budgets", ())]
    rows = "row" if budgets == ["1"] else "rows"
    tested = (
        f"Recovery by fine-tuning on {listed(budgets)} deleted {rows} an intent, "
        f"{counted(record.updates[-1], 'update', 'updates')}"
    )
    if isinstance(contrast.value, Undefined):
        return f"{tested}: the adjusted contrast with the retrained model is {plain(contrast.value)}."
    return (
        f"{tested}: {_direction(contrast)} (adjusted contrast {estimate_text(contrast, 'signed')}; "
        f"{conditions(contrast.row)})."
    )


def _direction(contrast: Estimate) -> str:
    bounds = contrast.row if isinstance(contrast.row, Interval) else None
    if bounds is None or bounds.low <= 0 <= bounds.high:
        return (
            "what it gained of gold probability on unseen rows is not told apart from what the retrained "
            "model gained"
        )
    more = "more" if bounds.low > 0 else "less"
    return f"it gained {more} gold probability on unseen rows than the retrained model did"
