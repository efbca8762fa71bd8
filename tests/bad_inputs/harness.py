"""Runs one bad input of the table `cases.jsonl` through the command line, in this process.

A case is a JSON object: `what` (in words), `verb`, `input` (file name -> content), `more` (arguments put at
the end of the verb's usual ones; a first `!` means: instead of them), `plan` (keys of a study file changed),
`exit` and `line`, what is printed to standard error. In `line`, `…` stands for any text: another library's
words, or what depends on the machine.

A file's content is a text, or one of
    {"hex": bytes}, {"repeat": [text, times]}, {"link": target}, {"pipe": true},
    {"columns": {name: cells}}      a table in the format of the file's suffix
    {"lines": [objects]}            JSON Lines
    {"good": name, ...}             a good prediction table in which something is changed: `set` (columns),
                                    `drop`, `rename`, `cells` ([column, row, cell]), `binary` (columns),
                                    `rows` (how many), `text` (bytes replaced), `codec`, `gzip`, `keep`

`python -m tests.bad_inputs.write` fills `exit` and `line` from what commands say now; read the difference.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TABLE = Path(__file__).with_name("cases.jsonl")
SECONDS = 20
"""A case that takes longer hangs."""
OPTIONS = ("refund", "card", "login")
VIEWS = ["F"] * 6 + ["G"] * 4 + ["R"] * 8
GOLD = ["refund"] * 10 + ["card", "login"] * 4
TRAINING = frozenset(
    {"study", "data", "finetune", "unlearn", "footprint", "behaviour", "relearn", "sensitivity"}
)
"""Verbs that need torch before they look at their input."""


class HangError(Exception):
    """A case that did not end in time."""


@dataclass(frozen=True)
class Outcome:
    """What a command left."""

    exit: int
    out: str
    err: str


def matches(line: str, wanted: str) -> bool:
    """Whether a printed line is the wanted one; `…` in it stands for any text."""
    return re.fullmatch(".*".join(re.escape(part) for part in wanted.split("…")), line) is not None


def said(outcome: Outcome, folder: Path) -> str:
    """The line of an outcome: the last on standard error, without `error: ` and where the files lie.

    Lines before it may say how far the work has come, and nothing else.
    """
    *before, last = outcome.err.splitlines() or [""]
    odd = [line for line in before if not line.startswith("[")]
    if odd:
        raise AssertionError(f"more than one line: {outcome.err}")
    return (
        last.removeprefix("error: ").replace(f"{folder.parent}/", "DIR/").replace(f"DIR/{folder.name}/", "")
    )


def cases() -> list[dict[str, Any]]:
    """The table, in its order."""
    return [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]


def good_tables() -> dict[str, dict[str, list[Any]]]:
    """Columns of a full, an unlearned and a retrained model over three options."""
    found = {}
    for name, push in (("full", 3.0), ("unlearned", 1.0), ("oracle", 0.2)):
        rng = np.random.default_rng(len(name))
        z = rng.normal(size=(len(GOLD), len(OPTIONS)))
        for row, (view, gold) in enumerate(zip(VIEWS, GOLD, strict=True)):
            z[row, OPTIONS.index(gold)] += push if view != "R" else 3.0
        p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        found[name] = {
            "row_id": [f"r{row}" for row in range(len(GOLD))],
            "view": VIEWS,
            "unit": GOLD,
            "gold": GOLD,
            **{f"p:{option}": p[:, column].tolist() for column, option in enumerate(OPTIONS)},
        }
    return found


def write_table(path: Path, columns: Mapping[str, list[Any]]) -> None:
    """Columns as CSV, JSONL, Parquet or npz, by the suffix, without the product's writers."""
    names = list(columns)
    rows = list(zip(*columns.values(), strict=True))
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({name: pa.array(cells) for name, cells in columns.items()}), path)
    elif path.suffix == ".npz":
        np.savez(path, **{name: np.array(cells) for name, cells in columns.items()})
    elif path.suffix == ".jsonl":
        text = ""
        for row in rows:
            record: dict[str, Any] = {}
            for name, cell in zip(names, row, strict=True):
                if name.startswith("p:"):
                    record.setdefault("p", {})[name[2:]] = cell
                else:
                    record[name] = cell
            text += json.dumps(record) + "\n"
        path.write_text(text, encoding="utf-8")
    else:
        import csv

        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(names)
            writer.writerows(rows)


def write_input(path: Path, content: Any) -> None:
    """One file of a case."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_bytes(content.encode("utf-8", "surrogatepass"))
    elif "link" in content:
        path.symlink_to(content["link"])
    elif "pipe" in content:
        os.mkfifo(path)
    elif "hex" in content:
        path.write_bytes(bytes.fromhex(content["hex"]))
    elif "repeat" in content:
        text, times = content["repeat"]
        path.write_text(text * times, encoding="utf-8")
    elif "lines" in content:
        path.write_text("".join(json.dumps(line) + "\n" for line in content["lines"]), encoding="utf-8")
    elif "columns" in content:
        write_table(path, content["columns"])
    else:
        _write_changed(path, content)


def _write_changed(path: Path, content: Mapping[str, Any]) -> None:
    """A good table with something changed."""
    columns = dict(good_tables()[content["good"]])
    columns |= {
        name: cells if isinstance(cells, list) else [cells] * len(GOLD)
        for name, cells in content.get("set", {}).items()
    }
    for name in content.get("drop", []):
        del columns[name]
    columns = {content.get("rename", {}).get(name, name): cells for name, cells in columns.items()}
    for change in content.get("cells", []):
        name, row, cell = change
        columns[name] = [cell if place == row else own for place, own in enumerate(columns[name])]
    if "binary" in content:
        columns = {
            name: [cell.encode() for cell in cells] if name in content["binary"] else cells
            for name, cells in columns.items()
        }
    if "rows" in content:
        columns = {name: cells[: content["rows"]] for name, cells in columns.items()}
    write_table(path, columns)
    data = path.read_bytes()
    for old, new in content.get("text", {}).items():
        data = data.replace(old.encode(), new.encode("utf-8", "surrogatepass"))
    if "codec" in content:
        data = data.decode().encode(content["codec"])
    if content.get("gzip"):
        data = gzip.compress(data, mtime=0)
    if "keep" in content:
        data = data[: int(len(data) * content["keep"])]
    path.write_bytes(data)


STUDY = {
    "name": "bad",
    "dataset": {"name": "files", "path": "data"},
    "deletion": {"units_per_bundle": 2, "bundles": ["01"], "reserved": []},
    "methods": ["simnpo"],
}
INTENTS = ("refund", "card", "login", "invoice", "delivery", "limit")
WORDS = "please my the about help with can you question today".split()  # noqa: SIM905


def write_good(folder: Path) -> None:
    """What cases leave as it is: tables, a data set, texts, questions, and with torch a tiny model."""
    folder.mkdir()
    for name, columns in good_tables().items():
        write_table(folder / f"{name}.csv", columns)
    for split, count in (("train", 8), ("development", 3), ("evaluation", 3)):
        rows = [
            (f"{WORDS[i % 10]} {intent} {split} {i}", intent, str(i % 4))
            for intent in INTENTS
            for i in range(count)
        ]
        columns = dict(zip(("text", "label", "customer_id"), map(list, zip(*rows, strict=True)), strict=True))
        (folder / "data").mkdir(exist_ok=True)
        write_table(folder / "data" / f"{split}.csv", columns)
    texts = [f"my card is lost {word} and i need a new card" for word in WORDS]
    for name in ("forget", "adjacent", "generic"):
        lines = [{"text": f"{text} {name}"} for text in texts]
        write_input(folder / f"{name}.jsonl", {"lines": lines})
    question = {"question": "which card", "options": ["lost", "new"], "answer": 0}
    write_input(folder / "questions.jsonl", {"lines": [question, {**question, "question": "which fee"}]})
    try:
        from tests.tiny_lm import LETTERS, save_tiny_llama

        save_tiny_llama(folder / "model", extra=LETTERS)
    except ImportError:
        pass


def arguments(case: Mapping[str, Any]) -> list[str]:
    """The command line of a case. Files that it does not bring are the good ones."""
    more = list(case.get("more", []))
    if more[:1] == ["!"]:
        return more[1:]
    return [*_USUAL[case["verb"]](case), *more]


def _file(case: Mapping[str, Any], stem: str, suffix: str) -> str:
    own = next((name for name in case.get("input", {}) if Path(name).stem == stem), None)
    return own if own is not None else f"../good/{stem}{suffix}"


def _compare(case: Mapping[str, Any]) -> list[str]:
    given = [f"--{name}={_file(case, name, '.csv')}" for name in ("full", "unlearned", "oracle")]
    return ["compare", *given, "--draws", "20"]


def _texts(case: Mapping[str, Any], *roles: str) -> list[str]:
    return [part for role in roles for part in (f"--{role}", _file(case, role, ".jsonl"))]


MODEL = "../good/model"
_USUAL = {
    "compare": _compare,
    "study": lambda case: ["study", "run", "study.yaml", "--dry-run", "--out", "out"],
    "data": lambda case: ["study", "run", "study.yaml", "--dry-run", "--out", "out"],
    "finetune": lambda case: [
        "finetune",
        "--model",
        MODEL,
        "--data",
        _file(case, "forget", ".jsonl"),
        "--out",
        "out",
    ],
    "unlearn": lambda case: [
        *("unlearn", "--model", MODEL, "--method", "grad_diff", "--out", "out"),
        *("--retain", _file(case, "adjacent", ".jsonl")),
        *_texts(case, "forget"),
    ],
    "footprint": lambda case: [
        *(
            "footprint",
            "--base",
            MODEL,
            "--unlearned",
            MODEL,
            "--out",
            "out",
            "--units",
            "2",
            "--probes",
            "0",
        ),
        *_texts(case, "forget", "adjacent", "generic"),
    ],
    "sensitivity": lambda case: [
        *("footprint", "sensitivity", "--base", MODEL, "--unlearned", MODEL, "--out", "out"),
        *_texts(case, "forget", "generic"),
    ],
    "behaviour": lambda case: [
        *("behaviour", "--base", MODEL, "--model", MODEL, "--out", "out"),
        *("--questions", f"forget={_file(case, 'questions', '.jsonl')}"),
    ],
    "tofu": lambda case: [
        *("behaviour", "--base", MODEL, "--model", MODEL, "--out", "out"),
        *("--tofu", f"forget={_file(case, 'tofu', '.jsonl')}"),
    ],
    "relearn": lambda case: [
        *("attack", "relearn", "--base", MODEL, "--model", MODEL, "--out", "out"),
        *_texts(case, "forget"),
    ],
    "correlate": lambda case: ["attack", "correlate", "--table", _file(case, "table", ".csv")],
    "report": lambda case: ["report", "folder"],
    "folder": lambda case: [],
    "other": lambda case: [],
}


def run_case(case: Mapping[str, Any], folder: Path) -> Outcome:
    """Write the case's files into `folder`, beside `../good`, and run its command there."""
    from vestige.cli import run

    folder.mkdir()
    if case["verb"] in ("study", "data") and "study.yaml" not in case.get("input", {}):
        (folder / "study.yaml").write_text(json.dumps(STUDY | case.get("plan", {})), encoding="utf-8")
    if case["verb"] == "study":
        (folder / "data").symlink_to("../good/data")
    for name, content in case.get("input", {}).items():
        write_input(folder / name, content)
    out, err = io.StringIO(), io.StringIO()
    with _inside(folder), _in_time(), redirect_stdout(out), redirect_stderr(err):
        code = run(arguments(case))
    return Outcome(code, out.getvalue(), err.getvalue())


class _NoInput(io.StringIO):
    """Standard input that nobody may ask."""

    def read(self, *_: Any) -> str:
        raise AssertionError("the command asked for input")

    readline = read  # type: ignore[assignment]


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before, stdin = Path.cwd(), sys.stdin
    os.chdir(folder)
    sys.stdin = _NoInput()
    try:
        yield
    finally:
        os.chdir(before)
        sys.stdin = stdin


@contextmanager
def _in_time() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise HangError(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
