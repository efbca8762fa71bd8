"""Another scoring command beside the verdict: what it is given, and how its words are read."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vestige.contracts import Floats
from vestige.decision.predictions import predictions_from_arrays, write_predictions
from vestige.errors import InputError, one_line, shown
from vestige.pool.contents import VIEWS, Outputs
from vestige.pool.panels import Panel

__all__ = ["Command"]


class Command:
    """Another scoring command.

    It is called once a panel with a folder that holds `panel.json` and the models' probabilities,
    `full-1.parquet`, `oracle-1.parquet`, ..., `model-01.parquet`, ... in the format that `vestige compare`
    reads; `panel.json` names the deleted options and the files of each role. It prints one JSON object: file
    name of a model -> its word. `equivalent` and `pass` count as passed.
    """

    PASSED = ("equivalent", "pass")

    def __init__(self, command: str) -> None:
        self.command = command
        self.arguments = shlex.split(command)
        if not self.arguments:
            raise InputError("--with", "an empty command", "a command", "name a program that scores a folder")

    def words(self, panel: Panel, tested: Mapping[str, Outputs]) -> dict[str, str]:
        """Family -> what the command says of its model. Raises InputError for a command that fails."""
        with tempfile.TemporaryDirectory(prefix="vestige-panel-") as name:
            folder = Path(name)
            files = {label: f"model-{number:02d}.parquet" for number, label in enumerate(tested, start=1)}
            roles: dict[str, list[str]] = {"full": [], "oracle": [], "unlearned": list(files.values())}
            for role, models in (("full", panel.fulls), ("oracle", panel.oracles)):
                for number, model in enumerate(models, start=1):
                    roles[role].append(f"{role}-{number}.parquet")
                    _write(panel, model, folder / roles[role][-1])
            for label, file in files.items():
                _write(panel, tested[label], folder / file)
            options = panel.pool.rows.options
            about = {**roles, "forget": [options[column] for column in panel.deletion.forgotten]}
            (folder / "panel.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            said = self._run(folder)
        missing = [file for file in files.values() if not isinstance(said.get(file), str)]
        if missing:
            raise InputError(
                f"--with {shown(self.command)}",
                f"no word about {missing[0]}",
                "a JSON object with a word for every file under `unlearned` of panel.json",
                "print one for each",
            )
        return {label: str(said[file]) for label, file in files.items()}

    def _run(self, folder: Path) -> dict[str, Any]:
        subject = f"--with {shown(self.command)}"
        try:
            done = subprocess.run([*self.arguments, str(folder)], capture_output=True, text=True, check=False)
        except OSError as error:
            raise InputError(subject, error.strerror or "no program", "a program", "check its path") from None
        if done.returncode:
            found = one_line(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message")
            raise InputError(
                subject, f"exit code {done.returncode}: {shown(found)}", "exit code 0", "run it by hand"
            )
        try:
            said = json.loads(done.stdout)
        except json.JSONDecodeError:
            said = None
        if not isinstance(said, dict):
            raise InputError(
                subject, f"{shown(done.stdout)}", "one JSON object on its standard output", "print it"
            )
        return said


def _write(panel: Panel, model: Outputs, path: Path) -> None:
    deletion, options = panel.deletion, panel.pool.rows.options
    views = [view for view in VIEWS for _ in range(deletion.rows(view))]
    gold = np.concatenate([deletion.gold[view] for view in VIEWS])
    probabilities: Floats = np.concatenate([model[view] for view in VIEWS])
    write_predictions(
        predictions_from_arrays(
            probabilities,
            row_ids=[f"{number:05d}" for number in range(len(views))],
            view=views,
            unit=np.concatenate([deletion.units[view] for view in VIEWS]).tolist(),
            gold=[options[column] for column in gold],
            options=list(options),
            label=path.stem,
        ),
        path,
    )
