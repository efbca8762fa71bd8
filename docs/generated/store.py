"""Takes from a run folder the records that tables are made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from generated.base import RECORDS
from vestige.behaviour.records import BehaviourRecord
from vestige.contracts import Undefined
from vestige.csv_text import csv_text
from vestige.files import read_record
from vestige.footprint.records import FootprintRecord
from vestige.language_study.records import LanguageStudyRecord
from vestige.report.footprint.attached import extras_of
from vestige.report.footprint.export import write_footprint_figures
from vestige.report.footprint.joined import beside
from vestige.report.footprint.reader import read_footprint
from vestige.study.store import run_folders


def node_facts(runs: Sequence[Path]) -> dict[str, str]:
    """Seconds by kind of work, as the nodes' own records say; a part that several arms share counts once."""
    records = {
        path.parent.name: json.loads(path.read_text(encoding="utf-8"))
        for run in runs
        for path in sorted((run / "nodes").glob("*/record.json"))
    }
    spent: dict[str, list[float]] = {}
    for record in records.values():
        spent.setdefault(record["kind"], []).append(record["seconds"])
    return {
        f"{kind}: number, minutes each, minutes in all": (
            f"{len(seconds)}, {min(seconds) / 60:.1f} to {max(seconds) / 60:.1f}, {sum(seconds) / 60:.0f}"
        )
        for kind, seconds in sorted(spent.items())
    }


def make_facts(run: Path, commands: Sequence[str]) -> dict[str, str]:
    """Rows, seeds, settings, minutes, machine and commands of a run folder."""
    runs = list(run_folders(run).values())
    data = json.loads((runs[0] / "data.json").read_text(encoding="utf-8"))
    plan = json.loads((runs[0] / "plan.json").read_text(encoding="utf-8"))
    history = json.loads((runs[0] / "history.json").read_text(encoding="utf-8"))
    environment = history[-1]["environment"]
    plan = plan.get("plan", plan)
    return {
        "commands": "; ".join(f"`{command}`" for command in commands),
        "data": f"{data['name']}, {len(data['options'])} options, sha256 {data['sha256'][:12]}",
        "rows": ", ".join(f"{item['split']} {item['rows']}" for item in data["report"]["splits"]),
        "dropped": "; ".join(f"{item['rows']}: {item['reason']}" for item in data["report"]["dropped"])
        or "none",
        **({"arms": ", ".join(run_folders(run))} if len(runs) > 1 else {}),
        **({"scale": plan["scale"]} if plan.get("scale") else {}),
        "seeds": "; ".join(dict.fromkeys(seeds_of(run) for run in runs)),
        "training": ", ".join(f"{key} {value}" for key, value in plan.get("training", {}).items()),
        **node_facts(runs),
        "machine": f"{environment['machine']}, {environment['device']}, one thread a worker, busy with other "
        "work at the same time: the minutes are no measure of speed",
        "versions": ", ".join(f"{key} {value}" for key, value in environment["packages"].items()),
    }


def seeds_of(run: Path) -> str:
    """Which seeds a run folder has models of."""
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    return (
        f"evaluated {plan.get('seeds', [17])}, further full models {plan.get('noise_seeds', [])}, "
        f"further oracles {plan.get('oracle_seeds', [])}"
    )


def placeless(value: Any) -> Any:
    """`value` with absolute paths cut to their last part: where something lay is no result."""
    if isinstance(value, dict):
        return {key: placeless(item) for key, item in value.items()}
    if isinstance(value, list):
        return [placeless(item) for item in value]
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


def kept(run: Path) -> list[Path]:
    """What tables are made of: records and settings, never row ids, probabilities or models."""
    names = ("plan.json", "data.json", "gates.json", "evaluations.json", "tuning.json", "frozen.json")
    patterns = ("assessments/*.json", "candidates/*.json", "recovery/*.json", "summaries/*.json")
    return [run / name for name in names] + [path for item in patterns for path in sorted(run.glob(item))]


MODULES = 10
"""Most shifted matrices of each text that a stored footprint keeps."""
MEASURED = ("footprint", "behaviour", "relearn")
"""Stages that measure all checkpoints at once."""
DRAWN = ("classes-", "shifts-")
STUDY_DRAWN = ("answers-", "classes-", "shifts-1", "returns-1")
"""Beginnings of the files whose drawings are kept, of a footprint and of a language study."""


def store_footprint(run: Path, commands: Sequence[str], target: Path) -> None:
    """Copy a footprint without documents and most matrices, and its main drawings."""
    text = (run / "footprint.json").read_text(encoding="utf-8")
    record = FootprintRecord.model_validate_json(text)
    keep_drawings(write_footprint_figures([record], target / "figures"), DRAWN)
    value = placeless(json.loads(text))
    for checkpoint in value["checkpoints"]:
        for corpus in checkpoint["corpora"]:
            corpus["documents"] = []
            corpus["modules"] = corpus["modules"][:MODULES]
    dumped = json.dumps(value, indent=1, ensure_ascii=False)
    (target / "footprint.json").write_text(dumped + "\n", encoding="utf-8")
    settings, cost = record.settings, record.cost
    facts = {
        "commands": "; ".join(f"`{command}`" for command in commands),
        "base": f"{record.base.label}, {record.parameters:,} measured weights in {record.layers} layers",
        "texts": "; ".join(
            f"{item.name} ({item.role}): {item.documents} documents, {sum(item.units)} units, "
            f"{sum(item.tokens)} tokens"
            for item in record.corpora
        ),
        "sample": f"{settings.subsets} subsets of {settings.units} units, at most {settings.max_length} "
        f"tokens, seed {settings.seed}, {settings.dtype}",
        "Hessian": f"{settings.probes} probes, {settings.hessian_length} tokens",
        "passes": f"{cost.passes_run:,} of one sequence forward and backward",
        "minutes": ", ".join(f"{part} {seconds / 60:.1f}" for part, seconds in cost.seconds.items()),
        "machine": f"{cost.device}, one thread, other work beside it: the minutes are no measure of speed",
    }
    (target / "facts.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def shown_score(value: float | Undefined, digits: int = 3) -> str:
    """A number for a table; a dash where it is undefined."""
    return "-" if isinstance(value, Undefined) else f"{value:.{digits}f}"


def tofu_rows(record: BehaviourRecord) -> list[list[str]]:
    """Header and a row a model: TOFU's scores of each set, utility, forget quality."""
    measured = {"base": record.base_tofu, **{item.label: item.tofu for item in record.checkpoints}}
    rows = [["model"]]
    for label, found in measured.items():
        if isinstance(found, Undefined):
            continue
        cells = [label]
        for scores in found.sets:
            if len(rows) == 1:
                rows[0].append(f"{scores.name.replace('_', ' ')}: p / ROUGE-L / truth ratio")
            values = (scores.probability, scores.rouge, scores.truth_ratio)
            cells.append(" / ".join(shown_score(value, 2) for value in values))
        quality = found.forget_quality
        told = "-"
        if not isinstance(quality, Undefined):
            told = f"{quality.p:.2g} (n {quality.unlearned}, power {shown_score(quality.power, 2)})"
        rows.append([*cells, shown_score(found.utility), told])
    rows[0] += ["model utility", "forget quality p"]
    return rows


def store_language_study(run: Path, commands: Sequence[str], target: Path) -> None:
    """Copy a language study's table, TOFU's scores and the main drawings of its page."""
    study = read_record(run / "language-study.json", LanguageStudyRecord, "run the study again")
    target.mkdir(parents=True, exist_ok=True)
    (target / "table.csv").write_text((run / "table.csv").read_text(encoding="utf-8"), encoding="utf-8")
    asked = run / "behaviour" / "behaviour.json"
    if asked.is_file():
        rows = tofu_rows(read_record(asked, BehaviourRecord, "run the study again"))
        if len(rows) > 1:
            (target / "tofu.csv").write_text(csv_text(rows[0], rows[1:]), encoding="utf-8")
    path = run / "footprint" / "footprint.json"
    shifts = read_footprint(path)
    extras = extras_of(shifts, beside(path), key="f1")
    keep_drawings(write_footprint_figures([shifts], target / "figures", [extras]), STUDY_DRAWN)
    settings = shifts.settings
    facts = {
        "commands": "; ".join(f"`{command}`" for command in commands),
        "study": study.about,
        "base": f"{shifts.parameters:,} measured weights in {shifts.layers} layers",
        "footprint": f"{settings.subsets} subsets of {settings.units} units, at most {settings.max_length} "
        f"tokens, seed {settings.seed}",
        "minutes": ", ".join(
            f"{name} {seconds / 60:.1f}"
            for name, seconds in (
                *((f"training {row.label}", row.seconds) for row in study.rows),
                *((item.name, item.seconds) for item in study.stages if item.name in MEASURED),
            )
        ),
        "machine": f"{shifts.cost.device}, other work beside it: the minutes are no measure of speed",
    }
    (target / "facts.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def keep_drawings(written: Sequence[Path], kinds: tuple[str, ...]) -> None:
    """Of the written drawings and their index, keep those of these sections."""
    *drawings, index = written
    for path in drawings:
        if not path.name.startswith(kinds):
            path.unlink()
    lines = index.read_text(encoding="utf-8").splitlines()
    index.write_text("\n".join(x for x in lines if x.startswith(("file", *kinds))) + "\n", encoding="utf-8")


def store(run: Path, commands: Sequence[str]) -> None:
    """Copy what the tables need from a run folder. Texts, row ids and places are in none of it."""
    target = RECORDS / run.name
    if (run / "language-study.json").is_file():
        store_language_study(run, commands, target)
        return
    if (run / "footprint.json").is_file():
        store_footprint(run, commands, target)
        return
    records = [found for folder in run_folders(run).values() for found in kept(folder)]
    for path in [run / "sweep.json", *records]:
        if path.is_file():
            copy = target / path.relative_to(run)
            copy.parent.mkdir(parents=True, exist_ok=True)
            value = placeless(json.loads(path.read_text(encoding="utf-8")))
            copy.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = json.dumps(make_facts(run, commands), indent=1) + "\n"
    (target / "facts.json").write_text(text, encoding="utf-8")
