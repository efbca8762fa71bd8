"""The command line: exit codes, one-line errors, and nothing imported that the verb does not need."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests import tables

from vestige.cli import run
from vestige.cli.app import VERBS
from vestige.contracts import Assessment

HEAVY = ("torch", "transformers", "pandas", "scipy", "matplotlib", "pyarrow", "numpy", "pydantic", "jinja2")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Files of a full model, an unlearned one and two retrained ones, in four formats and orders."""
    generator = np.random.default_rng(0)
    kinds = {
        "full": ("full", 1, "jsonl"),
        "npo": ("unlearned", 2, "csv"),
        "retrained": ("oracle", 3, "parquet"),
        "again": ("oracle", 4, "npz"),
    }
    return {
        name: tables.write(
            tables.shuffled(tables.table(kind, seed), generator), tmp_path / f"{name}.{suffix}"
        )
        for name, (kind, seed, suffix) in kinds.items()
    }


def command(files: dict[str, Path], *more: str, oracle: bool = True, forget: bool = True) -> list[str]:
    given = ["compare", "--full", str(files["full"]), "--unlearned", str(files["npo"]), "--draws", "60"]
    given += ["--oracle", str(files["retrained"]), "--oracle", str(files["again"])] if oracle else []
    for option in tables.FORGOTTEN if forget else ():
        given += ["--forget", option]
    return [*given, *more]


def error_of(capsys: pytest.CaptureFixture[str], arguments: Sequence[str], code: int = 2) -> str:
    """The one line on standard error of a command that fails with `code`."""
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_compare_prints_the_verdict(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(files)) == 0
    text = capsys.readouterr().out
    assert text.startswith("npo: undetermined (published rule: accepted)\nIt is not settled whether “npo” is")
    assert "Published rule: accepted." in text
    assert "On 16 deleted training rows and 12 unseen rows of the 2 deleted intents" in text
    assert "row bootstrap, 60 draws" in text
    assert "Equivalence to retraining cannot be judged" in text


def test_compare_without_an_oracle_says_what_it_cannot(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(files, oracle=False)) == 0
    text = capsys.readouterr().out
    assert text.startswith("npo: undetermined (published rule: no decision)")
    assert "cannot be said: no retrained model was given." in text.replace("\n", " ")
    assert "- lost, card (14 rows) lost 0." in text
    assert "elsewhere" in text


def test_json_is_the_record_and_nothing_else(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(files, "--json", "--name", "mine", "--condition", "training seed 1")) == 0
    found = Assessment.model_validate_json(capsys.readouterr().out)
    assert found.name == "mine"
    assert found.condition == "training seed 1"
    assert found.forgotten == tables.FORGOTTEN
    assert found.model_named("npo").decision == "accepted"


def test_out_holds_the_record_and_the_report(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "out"
    assert run(command(files, "--out", str(out))) == 0
    assert sorted(path.name for path in out.iterdir()) == ["assessment.json", "report.html"]
    record = Assessment.model_validate_json((out / "assessment.json").read_text("utf-8"))
    assert record.has_oracle
    assert (out / "report.html").read_text("utf-8").startswith("<!")
    assert f"Report: {out / 'report.html'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("condition", "oracle", "code"),
    [
        ("infeasible", True, 0),
        ("no-benefit", True, 0),
        ("not-accepted", True, 0),
        ("not-equivalent", True, 1),
        ("infeasible", False, 0),
        ("not-accepted", False, 1),
        ("no-benefit", False, 1),
    ],
)
def test_fail_on_sets_the_exit_code(
    condition: str, oracle: bool, code: int, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(files, "--fail-on", condition, oracle=oracle)) == code
    captured = capsys.readouterr()
    assert captured.out
    assert captured.err.count("\n") == code
    if code:
        assert f"'npo' is {condition.replace('-', ' ')}" in captured.err


def test_fail_on_knows_its_values(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'infeasible'?" in error_of(capsys, command(files, "--fail-on", "infeasable"))


def test_forgotten_options_come_from_commas_and_files(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`lost, card` is an option and no list; `plain,__dunder__` is a list; a file takes any text."""
    given = command(files, "--json", forget=False)
    assert run([*given, "--forget", "lost, card,top/up"]) == 2
    assert "no option 'lost', 'card'" in capsys.readouterr().err
    path = tmp_path / "forget.jsonl"
    path.write_text("\n".join(json.dumps(option) for option in tables.FORGOTTEN) + "\n\n")
    assert run([*given, "--forget-file", str(path)]) == 0
    assert Assessment.model_validate_json(capsys.readouterr().out).forgotten == tables.FORGOTTEN
    path.write_text("lost, card\n")
    assert f"{path}, line 1: found 'lost, card'; needed one JSON string" in error_of(
        capsys, [*given, "--forget-file", str(path)]
    )


def test_forgetting_nothing_in_words_is_refused(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = command(files, forget=False)
    for empty in ("", ",", " "):
        assert "--forget: found no option" in error_of(capsys, [*given, "--forget", empty])
    path = tmp_path / "forget.jsonl"
    path.write_text("\n")
    assert f"{path}: found no option" in error_of(capsys, [*given, "--forget-file", str(path)])
    path.write_text("[" * 100_000)
    assert f"{path}, line 1" in error_of(capsys, [*given, "--forget-file", str(path)])


def test_forget_splits_at_commas(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    from vestige.cli.compare import forgotten_options

    options = ("a", "b", "a,b", "c")
    assert forgotten_options(["a,b", "b, c"], None, options) == ["a,b", "b", "c"]
    assert forgotten_options(["a,c", "a"], None, options) == ["a", "c"]
    assert "did you mean 'plain'?" in error_of(capsys, command(files, "--forget", "plian"))


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["cmpare"], "did you mean 'compare'?"),
        (["compare"], "Missing option '--full'; see vestige compare --help"),
        (["compare", "--ful", "x"], "see vestige compare --help"),
        (["compare", "--full", "x.csv", "--unlearned", "y.csv"], "x.csv: found no such file"),
        (["compare", "--full", "x", "--unlearned", "y", "--draws", "0"], "--draws"),
        (["list", "metricks"], "did you mean 'metrics'?"),
        (["study"], "error: Missing command; see vestige study --help"),
        (["--nonsense"], "see vestige --help"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert part in error_of(capsys, arguments)


def test_bad_rows_are_one_line(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    columns = tables.shuffled(tables.table("unlearned", 2), np.random.default_rng(0))
    for name in columns:
        columns[name] = columns[name][:-3]
    tables.write(columns, files["npo"])
    line = error_of(capsys, command(files))
    assert f"{files['npo']}: found 3 row(s) missing that '" in line


def fail_with(code: int) -> object:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.mark.parametrize(
    ("code", "part"),
    [
        (errno.EROFS, "no permission to write (Read-only file system)"),
        (errno.EACCES, "no permission to write"),
    ],
)
def test_a_folder_that_cannot_be_written_is_found_before_the_work(
    code: int,
    part: str,
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", fail_with(code))
    monkeypatch.setattr("vestige.study.compare.load_tables", fail_with(errno.EIO))
    line = error_of(capsys, command(files, "--out", str(tmp_path / "out")))
    assert part in line
    assert "name another --out" in line


def test_a_full_disk_is_one_line_and_leaves_the_old_record(
    files: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "assessment.json").write_text("old")
    monkeypatch.setattr("os.fsync", fail_with(errno.ENOSPC))
    assert run(command(files, "--out", str(out))) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith("npo: ")
    assert captured.err.startswith(
        f"error: {out / 'assessment.json'}: found a full disk; needed room to write"
    )
    assert captured.err.count("\n") == 1
    assert [path.name for path in out.iterdir()] == ["assessment.json"]
    assert (out / "assessment.json").read_text() == "old"


def test_an_interrupt_is_130(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vestige.study.compare.assess", interrupt)
    assert "interrupted" in error_of(capsys, command(files), code=130)


def test_a_bug_is_not_bad_input(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("vestige.study.compare.assess", fail)
    assert run(command(files)) == 70
    error = capsys.readouterr().err
    assert "ZeroDivisionError: ours" in error
    assert "bug in vestige" in error


def test_a_closed_pipe_is_no_error() -> None:
    code = "import sys; from vestige.cli import run; sys.exit(run(['list', 'metrics']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_help_lists_every_verb_without_loading_any() -> None:
    script = f"""
    import sys
    from vestige.cli import run
    assert run(["--help"]) == 0
    print([name for name in {HEAVY!r} if name in sys.modules])
    print([name for name in sys.modules if name.startswith("vestige.cli.")])
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    ).stdout
    for verb in VERBS:
        assert verb in found
    loaded, modules = found.strip().splitlines()[-2:]
    assert loaded == "[]"
    assert sorted(eval(modules)) == ["vestige.cli.app", "vestige.cli.console"]


def test_no_arguments_are_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "Usage" in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("vestige 0.")


def test_list_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list"]) == 0
    kinds = capsys.readouterr().out
    for kind in ("methods", "metrics", "attacks", "models", "datasets"):
        assert kind in kinds
        assert run(["list", kind]) == 0
        assert capsys.readouterr().out
    assert run(["list", "metrics", "--json"]) == 0
    names = [item["name"] for item in json.loads(capsys.readouterr().out)]
    assert {"gain", "oracle_distance", "suppression"} <= set(names)
    assert run(["list", "methods", "--json"]) == 0
    assert "simnpo" in [item["name"] for item in json.loads(capsys.readouterr().out)]


WILD = [
    "a/b",
    "a,b",
    "a\nb",
    "😀",
    "__",
    "x" * 10_000,
    "<script>alert(1)</script>",
    "[red]",
    "plain one",
    "two",
]


def test_any_label_goes_through_to_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Slash, comma, line end, emoji, underscores, 10,000 characters, HTML and markup as forgotten options."""
    generator = np.random.default_rng(0)
    forgotten = WILD[:8]
    view = ["F"] * 16 + ["G"] * 16 + ["R"] * 8
    gold = [*forgotten * 4, *WILD[8:] * 4]
    paths = {}
    for name, push in (("full", 4.0), ("npo", 1.0), ("oracle", 0.0)):
        logits = generator.normal(size=(40, 10))
        logits[np.arange(40), [WILD.index(option) for option in gold]] += np.where(
            np.array(view) == "R", 4.0, push
        )
        columns: dict[str, object] = {
            "row_id": [f"{place}\n<b>" for place in range(40)],
            "view": view,
            "unit": gold,
            "gold": gold,
        }
        p = tables.softmax(logits)
        columns |= {f"p:{option}": p[:, place] for place, option in enumerate(WILD)}
        paths[name] = tables.write(columns, tmp_path / f"{len(paths)}.csv")
    (tmp_path / "forget.txt").write_text("\n".join(json.dumps(option) for option in forgotten))
    arguments = ["compare", "--full", str(paths["full"]), "--unlearned", str(paths["npo"])]
    arguments += ["--oracle", str(paths["oracle"]), "--forget-file", str(tmp_path / "forget.txt")]
    assert run([*arguments, "--draws", "20", "--name", "<u>name</u>", "--out", str(tmp_path / "out")]) == 0
    assert "1: undetermined" in capsys.readouterr().out
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    for text in ("<script>alert", "<u>name", "x" * 200):
        assert text not in page
    assert "&lt;u&gt;name" in page
    record = Assessment.model_validate_json((tmp_path / "out" / "assessment.json").read_text("utf-8"))
    assert set(record.forgotten) == set(forgotten)
    assert run([*arguments[:-4], "--forget-file", str(tmp_path / "forget.txt"), "--draws", "20"]) == 0
    text = capsys.readouterr().out
    assert "a\\nb (4 rows) lost" in text
    assert "(10,000 characters)" in text
