"""Fills the generated parts of the documentation from the registries and from stored records.

    python docs/build.py            rewrite the pages
    python docs/build.py --check    exit 1 when a page is not what the records give

A generated part stands between `<!-- NAME -->` and `<!-- /NAME -->`. Records of measured studies lie in
docs/results/STUDY/: assessments and tuning.json copied from a run folder, and facts.json (rows, seconds,
machine, commands) made from its records, all by `--from`:

    python docs/build.py --from runs/banking77-class
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from vestige.attacks import ATTACKS
from vestige.attacks.records import RecoveryRecord
from vestige.contracts import Assessment, Estimate, Interval, Undefined
from vestige.footprint.judgements import SelfTest
from vestige.methods import METHODS
from vestige.metrics import METRICS, SEED_METRICS
from vestige.report.paper import read_paper
from vestige.report.paper_panel import PaperTable
from vestige.statistics import EQUIVALENCE_MARGIN
from vestige.study.store import run_folders

DOCS = Path(__file__).resolve().parent
RECORDS = DOCS / "results"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def methods() -> str:
    """One row a registered method."""
    header = ("name", "method", "models", "loss", "role", "source", "deviations")
    rows = [
        (
            f"`{item.name}`",
            item.title,
            ", ".join(item.models),
            f"`{item.formula}`",
            item.role,
            item.source,
            item.deviations,
        )
        for item in METHODS
    ]
    return table(header, rows)


def language_methods() -> str:
    """One row a method that trains causal language models, with what preset `triage` sets."""
    header = ("name", "method", "loss", "preset `triage`", "source", "deviations")
    rows = [
        (
            f"`{item.name}`",
            item.title,
            f"`{item.formula}`",
            ", ".join(
                f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in use.triage.items()
            ),
            item.source,
            item.deviations,
        )
        for item in METHODS
        if (use := item.language) is not None
    ]
    return table(header, rows)


def attacks() -> str:
    """One row a registered attack."""
    header = ("name", "attack", "what it answers", "what it does not show", "source")
    rows = [(f"`{item.name}`", item.title, item.question, item.shows_not, item.source) for item in ATTACKS]
    return table(header, rows)


def metrics() -> str:
    """One row a registered metric."""
    header = ("name", "views", "definition", "better", "source")
    rows = [
        (f"`{item.name}`", " ".join(item.views), item.definition, item.direction or "-", item.source)
        for item in METRICS
    ]
    return table(header, rows)


def seed_metrics() -> str:
    """One row a registered metric over several seeds or views."""
    header = ("name", "views", "models", "definition", "better", "source")
    rows = [
        (
            f"`{item.name}`",
            " ".join(item.views),
            f"{', '.join(item.needs)}: {item.least_seeds} or more seeds",
            item.definition,
            item.direction or "-",
            item.source,
        )
        for item in SEED_METRICS
    ]
    return table(header, rows)


def shown(item: Estimate | None, digits: int = 3, *, percent: bool = False) -> str:
    """A value with its row interval."""
    if item is None:
        return "-"
    if isinstance(item.value, Undefined):
        return str(item.value)
    scale = 100 if percent else 1
    text = f"{scale * item.value:.{digits}f}"
    if item.row is not None and not isinstance(item.row, Undefined):
        text += f" [{scale * item.row.low:.{digits}f}, {scale * item.row.high:.{digits}f}]"
    return text + (" (unstable)" if item.unstable else "")


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
    """Distance to the oracle of every model of a study, with the decision."""
    header = ("model", "view", "oracle distance", "gain", "progress", "suppression", "decision")
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


def simulations() -> dict[str, Any]:
    """The stored results of benchmarks/simulations.py."""
    loaded: dict[str, Any] = json.loads((RECORDS / "simulations.json").read_text(encoding="utf-8"))
    return loaded


@cache
def known_answers() -> SelfTest:
    """The stored self-test of the footprint."""
    path = RECORDS / "footprint-selftest" / "selftest.json"
    return SelfTest.model_validate_json(path.read_text(encoding="utf-8"))


def selftest_rates() -> str:
    """One row a case: what it is, hits, the outcomes, and what the published rule says of the same models."""
    found = known_answers()
    total = len(found.seeds)
    rows = []
    for name, hits in found.hits.items():
        own = [item for item in found.cases if item.case == name]
        expected = own[0].expected
        outcomes, paper = (
            ", ".join(f"{value} {n}" for value, n in Counter(values).most_common())
            for values in ([item.outcome for item in own], [item.paper for item in own])
        )
        shifts = [
            f"{statistics.median(values):.2f}"
            if (values := [v for item in own if (v := item.measured.get(f"cofi_{c}")) is not None])
            else "-"
            for c in ("F", "A", "G")
        ]
        wanted = "any but no-op" if len(expected) > 1 else f"`{expected[0]}`"
        rows.append((name, wanted, f"{hits} of {total}", outcomes, " / ".join(shifts), paper))
    header = ("case", "expected", "as expected", "found", "CoFi F / A / G %, medians", "published rule")
    seeds = f"Seeds {', '.join(map(str, found.seeds))}; {found.needed} of {total} are needed in every case."
    return f"{table(header, rows)}\n\n{seeds}"


def selftest_gates() -> str:
    """One row a gate of the injection: what is needed, and the accuracies over the seeds."""
    gates = known_answers().gates.values()
    rows = []
    for model in ("base", "oracle", "injected"):
        for group in ("f", "a"):
            values = sorted(getattr(gate, f"{model}_{group}") for gate in gates)
            learned = model == "injected" or (model, group) == ("oracle", "a")
            needed = "above 0.90" if learned else f"up to {next(iter(gates)).chance_bound:.2f}"
            span = f"{values[0]:.2f} / {statistics.median(values):.2f} / {values[-1]:.2f}"
            rows.append((model, group.upper(), needed, span))
    return table(("model", "facts", "needed", "accuracy, least / median / largest"), rows)


def percentage(share: dict[str, float]) -> str:
    """`2.5 +- 0.3`: a share and its standard error in percent."""
    return f"{100 * share['share']:.1f} ± {100 * share['error']:.1f}"


def by_rows(items: Sequence[dict[str, Any]]) -> list[str]:
    """One cell a number of rows, in order."""
    return [percentage(item) for item in sorted(items, key=lambda item: item["rows"])]


def acceptance_rates() -> str:
    """Accepted although F has no gain, in percent."""
    found = simulations()["acceptance"]
    rows = sorted({item["rows"] for item in found})
    cases = dict.fromkeys(item["case"] for item in found)
    return table(
        ("gains of G", *(f"accepted %, n = {n}" for n in rows)),
        [(case, *by_rows([item for item in found if item["case"] == case])) for case in cases],
    )


def equivalence_rates() -> str:
    """Called equivalent, in percent."""
    found = simulations()["equivalence"]
    rows = sorted({item["rows"] for item in found})
    keys = dict.fromkeys((item["deviation"], item["excess"]) for item in found)
    return table(
        (
            "deviation a row",
            "true excess on F",
            "what the share is",
            *(f"equivalent %, n = {n}" for n in rows),
        ),
        [
            (
                f"{deviation:g}",
                f"{excess:g}",
                "power" if excess < EQUIVALENCE_MARGIN else "size",
                *by_rows([i for i in found if (i["deviation"], i["excess"]) == (deviation, excess)]),
            )
            for deviation, excess in keys
        ],
    )


def shift_rates() -> str:
    """A shift of 0.3 standard deviations: passed by a Kolmogorov-Smirnov test, and called equivalent."""
    header = ("spread of logits", "n", "true excess", "KS: `forgotten` %", "equivalent %")
    rows = [
        (
            f"{item['spread']:g}",
            str(item["rows"]),
            f"{item['excess']:.3f}",
            percentage(item["ks"]),
            percentage(item["equivalence"]),
        )
        for item in sorted(simulations()["shift"], key=lambda item: (item["spread"], item["rows"]))
    ]
    return table(header, rows)


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


def parts() -> dict[str, Callable[[], str]]:
    """Name of each generated part -> what makes it."""
    made: dict[str, Callable[[], str]] = {
        "methods": methods,
        "language methods": language_methods,
        "attacks": attacks,
        "metrics": metrics,
        "seed metrics": seed_metrics,
        "acceptance rates": acceptance_rates,
        "equivalence rates": equivalence_rates,
        "shift rates": shift_rates,
        "footprint self-test": selftest_rates,
        "footprint self-test gates": selftest_gates,
    }
    for study in sorted(path.parent.name for path in RECORDS.glob("*/facts.json")):
        made[f"displacement {study}"] = partial(displacement, study)
        if recoveries(study):
            made[f"recovery {study}"] = partial(recovery_pooled, study)
            made[f"fresh heads {study}"] = partial(fresh_heads, study)
        for number in numbered(study):
            made[f"table {number.lower()} {study}"] = partial(paper, study, number)
        for name, part in (
            ("facts", listing),
            ("noise", noise),
            ("fidelity", fidelity),
            ("utility", utility),
        ):
            made[f"{name} {study}"] = partial(part, study)
        if (RECORDS / study / "tuning.json").is_file():
            made[f"tuning {study}"] = partial(chosen, study)
    return made


def filled(text: str) -> str:
    """`text` with every generated part made anew. Raises KeyError for an unknown part."""
    known = parts()

    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- {name} -->\n{known[name]()}\n<!-- /{name} -->"

    return re.sub(r"<!-- ([a-z0-9 -]+) -->\n.*?<!-- /\1 -->", fill, text, flags=re.DOTALL)


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


def store(run: Path, commands: Sequence[str]) -> None:
    """Copy what the tables need from a run folder. Texts, row ids and places are in none of it."""
    target = RECORDS / run.name
    records = [found for folder in run_folders(run).values() for found in kept(folder)]
    for path in [run / "sweep.json", *records]:
        if path.is_file():
            copy = target / path.relative_to(run)
            copy.parent.mkdir(parents=True, exist_ok=True)
            value = placeless(json.loads(path.read_text(encoding="utf-8")))
            copy.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = json.dumps(make_facts(run, commands), indent=1) + "\n"
    (target / "facts.json").write_text(text, encoding="utf-8")


def main() -> int:
    """Rewrite or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--from", dest="source", type=Path, help="a run folder to take records from")
    parser.add_argument("--command", action="append", default=[], help="a command that made it; repeatable")
    options = parser.parse_args()
    if options.source:
        store(options.source, options.command)
    stale = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        made = filled(text)
        if made != text:
            stale.append(page.name)
            if not options.check:
                page.write_text(made, encoding="utf-8")
    if options.check and stale:
        print(f"not what the records give: {', '.join(stale)}; run: python docs/build.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
