"""Fills `exit` and `line` of the table of bad inputs from what the commands say now."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path

from tests.bad_inputs.harness import TABLE, cases, matches, run_case, said, write_good

OTHERS = (
    (r"(broken JSON|Parquet file|\.npz file|broken CSV|cannot be read) \(.*?\);", r"\1 (…);"),
    (r"(Invalid value for '[^']*': ).*(; see )", r"\1…\2"),
    (r"\(Possible options: .*\)", "(…)"),
    (r"found \w+Error: .*?; needed", "found …; needed"),
    (r"(known|known keys): [^;]{60,}$", r"\1: …"),
    (r"needed one of [^;]{60,};", "needed one of …;"),
    (r"(constructor for the tag|expected ',' or) .*?;", r"\1 …;"),
    (r"x{100,}", "…"),
)
"""Words of other libraries, and lists that grow: they change without this program saying another thing."""


def main() -> None:
    """Run every case and write the table; cases that are not refused are named."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    made = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_good(root / "good")
        for number, case in enumerate(cases()):
            folder = root / str(number)
            outcome = run_case(case, folder)
            line = said(outcome, folder)
            if not matches(line, case.get("line", "")):
                for pattern, put in OTHERS:
                    line = re.sub(pattern, put, line)
                case["line"] = line
            case["exit"] = outcome.exit
            if outcome.exit != 2:
                sys.stderr.write(f"exit {outcome.exit}: {case['verb']}: {case['what']}\n")
            made.append(case)
    text = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in made)
    TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
