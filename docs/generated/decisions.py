"""Tables of stored studies of decision models."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from generated.base import RECORDS, shown, table
from vestige.attacks.records import RecoveryRecord
from vestige.contracts import Assessment, Bounded, Estimate, Interval, Undefined
from vestige.report.paper import read_paper
from vestige.report.paper_panel import PaperTable
from vestige.study.store import run_folders


def assessments(study: str) -> list[Assessment]:
    """The stored assessments of a study, in order of file name."""
    folder = RECORDS / study / "assessments"
    return [
        Assessment.model_validate_json(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    ]


def arms(study: str) -> dict[str, list[Assessment]]:
    """Arm -> its stored assessments under all options; "" for a study without arms."""
    folder = RECORDS / study
    found = run_folders(folder) if (folder / "sweep.json").is_file() else {"": folder}
    return {
        arm: [
            item
            for path in sorted((place / "assessments").glob("*.json"))
            if (item := Assessment.model_validate_json(path.read_text(encoding="utf-8"))).candidates == "S0"
        ]
        for arm, place in found.items()
    }


def displacement(study: str) -> str:
    """How far retraining moved the full model, arm by arm, beside the noise floor; what the oracle knows."""
    header = (
        "arm",
        "request",
        "rows F / G",
        "units",
        "D0 F",
        "D0 G",
        "noise of full models F / G",
        "gate",
        "full accuracy R %",
        "accuracy of the oracle F / G %",
    )
    rows = []
    for arm, items in arms(study).items():
        for item in items:
            full = next(model for model in item.models if model.role == "full")
            oracle = next(model for model in item.models if model.role == "oracle")
            count = {view.view: view for view in item.views}
            floors = [item.noise.get(f"noise_full.{view}") for view in ("F", "G")]
            request = item.provenance["request"]
            deleted = [
                shown(
                    oracle.metrics.get(f"{'forgotten_accuracy' if item.forgotten else 'accuracy'}.{view}"),
                    1,
                    percent=True,
                )
                for view in ("F", "G")
            ]
            rows.append(
                (
                    arm or item.name,
                    f"bundle {request['bundle']}, seed {item.provenance['seed']}",
                    f"{count['F'].rows} / {count['G'].rows}",
                    str(request["deleted_units"]),
                    shown(full.metrics.get("displacement.F")),
                    shown(full.metrics.get("displacement.G")),
                    " / ".join(shown(floor) for floor in floors),
                    item.intervention_gate,
                    shown(full.metrics.get("accuracy.R"), 1, percent=True),
                    " / ".join(deleted),
                )
            )
    return table(header, rows)


def recoveries(study: str) -> list[RecoveryRecord]:
    """The stored recovery records of a study, in order of place."""
    return [
        RecoveryRecord.model_validate_json(path.read_text(encoding="utf-8"))
        for path in sorted((RECORDS / study).rglob("recovery/*.json"))
    ]


def both_intervals(item: Estimate | Undefined | None) -> str:
    """A value with its row interval, then its unit interval."""
    if isinstance(item, Undefined):
        return str(item)
    if item is None or isinstance(item.value, Undefined) or not isinstance(item.unit, Interval):
        return shown(item)
    return f"{shown(item)}; over classes [{item.unit.low:.3f}, {item.unit.high:.3f}]"


def recovery_pooled(study: str) -> str:
    """Contrasts of each population, pooled over budgets and adaptation seeds, and the direct ones."""
    rows = []
    for record in recoveries(study):
        for item in record.pooled:
            got = item.contrasts
            cells = [both_intervals(got.get(name)) for name in ("g_abs", "g_adj", "g_headroom")]
            rows.append((record.label, item.population, *cells))
        for control in record.controls:
            if control.k is None:
                cells = ["-", both_intervals(control.difference), "-"]
                rows.append((record.label, f"{control.name} (difference)", *cells))
    return table(("model", "rows", "absolute", "adjusted", "headroom"), rows)


def fresh_heads(study: str) -> str:
    """Forgotten accuracy and retained accuracy of new heads on each frozen backbone, least and largest."""
    names = ("forgotten_accuracy.F", "forgotten_accuracy.G", "accuracy.R")
    rows = []
    for record in recoveries(study):
        for checkpoint in dict.fromkeys(item.checkpoint for item in record.fresh_heads):
            own = [item.metrics for item in record.fresh_heads if item.checkpoint == checkpoint]
            spans = []
            for name in names:
                values = [v for item in own if isinstance(v := item[name].value, float)]
                spans.append(f"{100 * min(values):.1f} to {100 * max(values):.1f}" if values else "-")
            label = record.label if checkpoint == "unlearned" else checkpoint
            rows.append((label, str(len(own)), *spans))
    header = ("backbone", "heads", "accuracy F %", "accuracy G %", "accuracy R %")
    return table(header, rows)


def facts(study: str) -> dict[str, Any]:
    """Rows, minutes and the commands of a stored study."""
    loaded: dict[str, Any] = json.loads((RECORDS / study / "facts.json").read_text(encoding="utf-8"))
    return loaded


def fidelity(study: str) -> str:
    """Distance to the oracle of every model of a study, with what the published rule says."""
    header = ("model", "view", "oracle distance", "gain", "progress", "suppression", "published rule")
    rows = []
    for item in assessments(study):
        for model in item.models:
            if model.role == "oracle":
                continue
            for view in ("F", "G"):
                get = model.metrics.get
                cells = [shown(get(f"oracle_distance.{view}"))]
                if model.role == "full":
                    cells += ["0 (no-op)", "0 (no-op)", "0 (no-op)", "-"]
                else:
                    cells += [shown(get(f"{name}.{view}")) for name in ("gain", "progress", "suppression")]
                    cells.append(str(model.decision))
                rows.append((model.label, view, *cells))
    return table(header, rows)


def verdicts(study: str) -> str:
    """The verdict on every model under test, with distance, memory and the change of retained accuracy."""
    header = (
        "model",
        "verdict",
        "published rule",
        "distance F",
        "distance G",
        "memory F %",
        "memory G %",
        "retained accuracy, points",
    )
    rows = []
    for item in assessments(study):
        for model in item.models:
            if model.evidence is None:
                continue
            sides = [model.evidence.view("F"), model.evidence.view("G")]
            rows.append(
                (
                    model.label,
                    model.headline,
                    str(model.decision),
                    *(bounded(side.distance) for side in sides),
                    *(bounded(side.memory, percent=True) for side in sides),
                    bounded(model.evidence.retained.change, percent=True, decimals=1),
                )
            )
    return table(header, rows)


def bounded(item: Bounded, *, percent: bool = False, decimals: int = 0) -> str:
    """A quantity of the evidence with its interval for these models and other rows."""
    if isinstance(item.value, Undefined):
        return str(item.value)
    scale, places = (100, decimals) if percent else (1, 3)

    def text(value: float) -> str:
        return f"{round(value * scale, places) + 0.0:.{places}f}"

    found = text(item.value)
    if isinstance(item.these_models, Interval):
        found += f" [{text(item.these_models.low)}, {text(item.these_models.high)}]"
    return found


def utility(study: str) -> str:
    """Accuracy and calibration of every model of a study."""
    header = (
        "model",
        "accuracy R %",
        "change, points",
        "ECE R",
        "change",
        "accuracy F %",
        "accuracy G %",
    )
    rows = []
    for item in assessments(study):
        for model in item.models:
            get = model.metrics.get
            rows.append(
                (
                    model.label,
                    shown(get("accuracy.R"), 1, percent=True),
                    shown(get("delta_accuracy.R"), 1, percent=True),
                    shown(get("ece.R")),
                    shown(get("delta_ece.R")),
                    shown(get("forgotten_accuracy.F"), 1, percent=True),
                    shown(get("forgotten_accuracy.G"), 1, percent=True),
                )
            )
    return table(header, rows)


def noise(study: str) -> str:
    """Noise floors beside displacement."""
    header = ("view", "rows", "displacement", "noise of full models", "ratio", "noise of oracles", "pairs")
    rows = []
    for item in assessments(study):
        full = next(model for model in item.models if model.role == "full")
        for count in item.views:
            if count.view == "R":
                continue
            d0 = full.metrics[f"oracle_distance.{count.view}"]
            floor = item.noise[f"noise_full.{count.view}"]
            both = not isinstance(d0.value, Undefined) and not isinstance(floor.value, Undefined)
            ratio = f"{d0.value / floor.value:.1f}" if both else "-"  # type: ignore[operator]
            pairs = ", ".join(f"{name} {number}" for name, number in sorted(item.noise_pairs.items()))
            rows.append(
                (
                    count.view,
                    str(count.rows),
                    shown(d0),
                    shown(floor),
                    ratio,
                    shown(item.noise.get(f"noise_oracle.{count.view}")),
                    pairs,
                )
            )
    return table(header, rows)


def chosen(study: str) -> str:
    """The tuned settings of each method and how many candidates were tried."""
    content = json.loads((RECORDS / study / "tuning.json").read_text(encoding="utf-8"))
    header = ("method", "chosen", "OD_F + OD_G", "points", "candidates", "feasible", "on the edge")
    rows = []
    for item in content["methods"]:
        settings = item["settings"] or {}
        names = [*item["grid"], "epochs"]
        found = ", ".join(f"{name} {settings[name]:g}" for name in names if name in settings)
        rows.append(
            (
                item["title"],
                found or "no feasible candidate",
                f"{item['chosen']['objective']:.3f}" if item["chosen"] else "-",
                str(len(item["points"])),
                str(item["candidates"]),
                str(item["feasible_candidates"]),
                ", ".join(item["edges"]) or "no",
            )
        )
    return table(header, rows)


def listing(study: str) -> str:
    """Facts of a stored study as a table: rows, minutes, seeds."""
    return table(("what", "value"), [(key, str(value)) for key, value in facts(study).items()])


@cache
def numbered(study: str) -> dict[str, PaperTable]:
    """Number -> table of a stored study, those that it has rows of."""
    found = read_paper([RECORDS / study])
    return {item.number: item for item in found.shown_tables}


def paper(study: str, number: str) -> str:
    """A numbered table of a stored study, panel by panel, with the notes of its caption."""
    item = numbered(study)[number]
    blocks = []
    for panel in item.panels:
        if panel.rows:
            heading = f"*{panel.caption}*\n\n" if len(item.panels) > 1 and panel.caption else ""
            blocks.append(heading + table(panel.header(), [list(row) for row in panel.text_rows()]))
    return "\n\n".join([*blocks, f"{item.caption}"])
