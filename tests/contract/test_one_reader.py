"""CSV, JSON Lines, Parquet and YAML of users are read in one place each; what else reads one is listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "vestige"
PARSERS = {
    r"csv\.(reader|DictReader)\(|\bpd\.read_csv|pyarrow\.csv": {
        "readers/csv_files.py",
        "study/audit_folder.py",  # the audit's arithmetic is its own
    },
    r"yaml\.(safe_)?load|YAML\(": {
        "readers/yaml_files.py",
        "models/panel.py",  # of this package
        "data/helpdesk_grammar.py",
    },
    r"ParquetFile\(|pq\.read_|pd\.read_parquet": {
        "readers/parquet_files.py",
        "data/hub_tables.py",  # lists of names in a schema
        "study/steps.py",  # logs and vectors of a run, which is hashed
        "study/embedded.py",
        "study/audit_numbers.py",
        "study/audit_units.py",
    },
    r"load_dataset\b|pd\.read_json|pd\.read_excel|pickle\.load|np\.load\(.*allow_pickle=True": set(),
}


@pytest.mark.parametrize("parser", PARSERS)
def test_nothing_else_reads_such_a_file(parser: str) -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(re.search(parser, line.split("#")[0]) for line in path.read_text("utf-8").splitlines())
    }
    assert found == PARSERS[parser]
