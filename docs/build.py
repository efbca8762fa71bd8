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
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from generated import decisions, footprints, known, languages, registries, simulated
from generated.base import DOCS, RECORDS
from generated.store import store


def parts() -> dict[str, Callable[[], str]]:
    """Name of each generated part -> what makes it."""
    made: dict[str, Callable[[], str]] = {
        "methods": registries.methods,
        "language methods": registries.language_methods,
        "attacks": registries.attacks,
        "metrics": registries.metrics,
        "seed metrics": registries.seed_metrics,
        "acceptance rates": simulated.acceptance_rates,
        "shift rates": simulated.shift_rates,
        "pool": known.pool,
        "footprint self-test": footprints.selftest_rates,
        "footprint self-test gates": footprints.selftest_gates,
    }
    for study in sorted(path.parent.name for path in RECORDS.glob("*/facts.json")):
        made[f"facts {study}"] = partial(decisions.listing, study)
        if (RECORDS / study / "figures").is_dir():
            made[f"figures {study}"] = partial(footprints.figures, study)
        if (RECORDS / study / "footprint.json").is_file():
            made[f"shifts {study}"] = partial(footprints.footprint_shifts, study)
            made[f"classes {study}"] = partial(footprints.footprint_classes, study)
        if (RECORDS / study / "table.csv").is_file():
            made[f"known facts {study}"] = partial(languages.known_facts, study)
            made[f"way {study}"] = partial(languages.way, study)
            if (RECORDS / study / "tofu.csv").is_file():
                made[f"tofu {study}"] = partial(languages.tofu, study)
        if not (RECORDS / study / "sweep.json").is_file() and not (RECORDS / study / "assessments").is_dir():
            continue
        made[f"displacement {study}"] = partial(decisions.displacement, study)
        if decisions.recoveries(study):
            made[f"recovery {study}"] = partial(decisions.recovery_pooled, study)
            made[f"fresh heads {study}"] = partial(decisions.fresh_heads, study)
        for number in decisions.numbered(study):
            made[f"table {number.lower()} {study}"] = partial(decisions.paper, study, number)
        for name, part in (
            ("noise", decisions.noise),
            ("verdicts", decisions.verdicts),
            ("fidelity", decisions.fidelity),
            ("utility", decisions.utility),
        ):
            made[f"{name} {study}"] = partial(part, study)
        if (RECORDS / study / "tuning.json").is_file():
            made[f"tuning {study}"] = partial(decisions.chosen, study)
    return made


def filled(text: str) -> str:
    """`text` with every generated part made anew. Raises KeyError for an unknown part."""
    known = parts()

    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- {name} -->\n{known[name]()}\n<!-- /{name} -->"

    return re.sub(r"<!-- ([a-z0-9 -]+) -->\n.*?<!-- /\1 -->", fill, text, flags=re.DOTALL)


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
