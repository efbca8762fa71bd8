"""What recovery found of the models of an assessment: their records, and one sentence. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from vestige.attacks.records import UNSEEN, PooledRecovery, RecoveryRecord
from vestige.contracts import Undefined
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
    """Whether fine-tuning brought the deleted back, by levels beside the retrained model's.

    Or that it was not tested.
    """
    pooled = pooled_unseen(record) if record is not None else None
    if record is None or pooled is None:
        return NOT_TESTED
    budgets = [str(k) for k in record.plan.get("budgets", ())]
    rows = "row" if budgets == ["1"] else "rows"
    tested = (
        f"Recovery by fine-tuning on {listed(budgets)} deleted {rows} an intent, "
        f"{counted(record.updates[-1], 'update', 'updates')}"
    )
    own, retrained = (_levels(record, checkpoint) for checkpoint in ("unlearned", "oracle"))
    levels = f"gold probability on unseen rows went from {own}, the retrained model's from {retrained}"
    contrast = pooled.contrasts["g_adj"]
    published = (
        f"published adjusted contrast {plain(contrast.value)}"
        if isinstance(contrast.value, Undefined)
        else f"published adjusted contrast {estimate_text(contrast, 'signed')}"
    )
    level = pooled.contrasts.get("level")
    if level is None or record.reading is None:
        earlier = "made before levels were compared, without an interval of them"
        return f"{tested}: {levels} ({published}); {earlier}."
    if isinstance(record.reading, Undefined):
        return f"{tested}: {levels}; {plain(record.reading)} ({published})."
    return (
        f"{tested}: {_WORDS[record.reading]}; {levels}; difference after it {estimate_text(level, 'signed')} "
        f"({conditions(level.row)}; {published})."
    )


_WORDS = {
    "return": "it came back, above what the retrained model learns anew",
    "still there": "it was never gone: already above what the retrained model reaches by it",
    "learned anew": "what came back is not shown to be more than the retrained model learns anew",
    "no return": "nothing is shown to have come back",
}


def _levels(record: RecoveryRecord, checkpoint: str) -> str:
    """Gold probability before and after, the mean over the settings of the record."""
    curves = [item.curves[checkpoint] for item in record.settings if item.population == UNSEEN]
    start, end = (
        math.fsum(curve.gold_probability[place] for curve in curves) / len(curves) for place in (0, -1)
    )
    return f"{start:.2f} to {end:.2f}"
