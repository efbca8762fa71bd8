"""Without torch: comparing files, writing the report and listing work, and say so where they cannot."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
from tests import tables

BLOCKED = ("torch", "transformers", "peft", "accelerate", "safetensors", "datasets")
BLOCK = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)
sys.meta_path.insert(0, Blocked())
"""


def run(*commands: list[str]) -> subprocess.CompletedProcess[str]:
    """Run commands in one process that cannot import torch; the exit code is the largest of theirs."""
    script = BLOCK + textwrap.dedent(
        f"""
        from vestige.cli import run
        codes = [run(arguments) for arguments in {list(commands)!r}]
        assert not [name for name in {BLOCKED!r} if name in sys.modules]
        sys.exit(max(codes))
        """
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_compare_and_its_report_need_no_torch(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    arguments = ["compare", "--draws", "50", "--out", str(tmp_path / "out"), "--forget", tables.FORGOTTEN[0]]
    arguments += ["--forget", tables.FORGOTTEN[1]]
    for option, kind, seed in (
        ("--full", "full", 1),
        ("--full", "full", 2),
        ("--unlearned", "unlearned", 1),
        ("--oracle", "oracle", 1),
        ("--oracle", "oracle", 2),
    ):
        columns = tables.shuffled(tables.table(kind, seed), generator)
        arguments += [option, str(tables.write(columns, tmp_path / f"{kind}{seed}.jsonl"))]
    found = run(arguments)
    assert found.returncode == 0, found.stderr
    assert "(published rule: accepted)" in found.stdout
    assert (tmp_path / "out" / "report.html").stat().st_size > 5000


def test_lists_need_no_torch() -> None:
    found = run(*(["list", kind] for kind in ("metrics", "methods", "datasets", "models")))
    assert found.returncode == 0, found.stderr
    for name in ("oracle_distance", "simnpo", "helpdesk", "minilm"):
        assert f"\n{name} " in found.stdout
