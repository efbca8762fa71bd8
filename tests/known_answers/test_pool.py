"""A reduced pool of known answers: trained models, judged by the product's own functions.

It fails where a false rate is shown to be above 5 %, or an interval shown to hold less often than 90 %; the
whole pool and its table are `docs/pool.md`. Texts are read as bags of words here, in place of a sentence
encoder, which would take longer than everything else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from vestige.cli.pool import app
from vestige.errors import InputError
from vestige.locks import alone_in
from vestige.pool import coverage
from vestige.pool import score as score_module
from vestige.pool.answers import Answers
from vestige.pool.build import build_pool
from vestige.pool.contents import Pool, PoolSettings
from vestige.pool.families import FAMILIES
from vestige.pool.panels import panels
from vestige.pool.parts import Part, parts_of
from vestige.pool.records import PoolScore, ScoreSettings
from vestige.pool.score import score_pool
from vestige.pool.summary import aims, coverage_rows
from vestige.pool.words import say_all
from vestige.seeds import stable_seed
from vestige.study import protocol
from vestige.study.pool import Silent

pytestmark = pytest.mark.train

REDUCED = PoolSettings(
    fulls=3,
    oracles=7,
    kept=(0.25,),
    kept_seeds=2,
    mixed=(0.5,),
    deletions=("intents6",),
    relearned=1,
    anchors=0,
    worlds=0,
)
ASKED = (
    "retrained",
    "25 % of F kept",
    "20 % full, mean oracle",
    "30 % full, first oracle",
    "50 % full in weights",
    "20 % of rows as before",
    "one unit as before",
    "suppressed",
    "base rates on F and G",
    "F of a retrained model, G as before",
    "R destroyed",
    "another full model",
)
QUICK = ScoreSettings(oracles=(5,), panels=1, draws=100, replicates=1)


def bags_of_words(texts: Sequence[str]) -> Any:
    """(N, 384) vectors of length 1: every word has a direction of its own."""
    found = []
    for text in texts:
        words = [np.random.default_rng(stable_seed("word", word)) for word in text.lower().split()]
        found.append(sum(random.standard_normal(384) for random in words))
    return np.array([vector / np.linalg.norm(vector) for vector in found])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = Path(tmp_path_factory.mktemp("pool") / "pool")
    encoder = SimpleNamespace(encoder=lambda: "bags of words", embed=bags_of_words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "load_backend", lambda name: encoder)
        record = build_pool(out, REDUCED, Silent())
        assert record.models == 3 + 3 + 7 + 2
        made = {path: path.stat().st_mtime_ns for path in out.rglob("*.npz")}
        build_pool(out, REDUCED, Silent())
        assert {path: path.stat().st_mtime_ns for path in out.rglob("*.npz")} == made
        with pytest.raises(InputError, match="a pool made otherwise; what differs: settings"):
            build_pool(out, REDUCED.model_copy(update={"fulls": 4}), Silent())
    return out


def test_the_word_is_seldom_false(folder: Path) -> None:
    pool = Pool(folder)
    families = [family for family in FAMILIES if family.name in ASKED]
    said = [
        word for panel in panels(pool, "intents6", 5) for word in say_all(panel, draws=200, families=families)
    ]
    assert {item.family for item in said} == set(ASKED)
    found = {aim.name: aim for aim in aims(pool, Answers(said=tuple(said)))}
    assert [name for name, aim in found.items() if aim.broken] == []
    assert found["`equivalent`: 20 % memory or more"].rate.count >= 40
    assert found["exact retraining `equivalent`, 5 oracles, six intents"].rate.value >= 0.5
    for item in said:
        if item.family == "R destroyed":
            assert item.word == "damaged"
        if item.family == "25 % of F kept":
            assert item.left > 0.2


def test_intervals_hold_the_truth(folder: Path) -> None:
    pool = Pool(folder)
    held = [
        *(item for panel in panels(pool, "intents6", 5) for item in coverage.these_models(panel, 40)),
        *coverage.other_trainings(pool, "intents6", 2, 0),
        *coverage.noise_floors(pool, "intents6", 10, 0),
        *coverage.calibration(pool, "intents6", 10, 0),
        *coverage.units(20, "intents6", 0),
    ]
    # Cells of a few repetitions fail by chance: sizes and numbers of seeds are taken together.
    together = [item.model_copy(update={"size": 0, "seeds": ""}) for item in held]
    rows = [row for row in coverage_rows(together) if not row.published]
    assert {row.kind for row in rows} >= {"these models", "other trainings", "t over units"}
    short = [row for row in rows if row.rate is not None and row.rate.high < 0.9]
    assert short == []


COMMAND = """
import json, pathlib, sys
import pyarrow.parquet as parquet
folder = pathlib.Path(sys.argv[1])
about = json.loads((folder / "panel.json").read_text())
rows = [parquet.read_table(folder / name).num_rows for name in about["full"] + about["oracle"]]
assert len(about["oracle"]) == 5 and len(set(rows)) == 1 and len(about["forget"]) == 6
print(json.dumps({name: "pass" for name in about["unlearned"]}))
"""


def test_the_command_scores_goes_on_and_writes_the_tables(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "always.py"
    script.write_text(COMMAND)
    command = f"{sys.executable} {script}"
    page = tmp_path / "pool.md"
    page.write_text("Before.\n<!-- pool -->\nold\n<!-- /pool -->\nAfter.\n")
    given = ["score", str(folder), "--oracles", "5", "--panels", "1", "--draws", "100", "--replicates", "1"]
    result = CliRunner().invoke(app, [*given, "--with", command, "--out", str(page)])
    assert result.exit_code == 0, result.output
    assert "equivalent" in result.stdout
    score = PoolScore.model_validate_json((folder / "score.json").read_text())
    assert (score.flips, score.orders) == (0, 11)
    assert not (folder / "scored").exists()
    passed = {
        row.family: row.passed for row in score.others if (row.metric, row.deletion) == (command, "all")
    }
    assert all(rate is not None and rate.value == 1.0 for rate in passed.values())
    assert len(passed) > 30
    text = page.read_text()
    assert text.startswith("Before.\n<!-- pool -->\nMade by")
    assert text.endswith("<!-- /pool -->\nAfter.\n")
    assert "| another full model | 100 |" in text
    assert "relative kernel test" in text


def test_an_interrupted_score_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def stopped(folder: Path, settings: ScoreSettings, part: Part) -> Answers:
        if len(asked) == 3:
            raise KeyboardInterrupt
        asked.append(part.name)
        return Answers(orders=1)

    monkeypatch.setattr(score_module, "work", stopped)
    with pytest.raises(KeyboardInterrupt):
        score_pool(folder, QUICK, Silent())
    kept = [path.stem for path in (folder / "scored").rglob("*.json")]
    assert sorted(kept) == sorted(asked)
    asked.clear()
    parts = parts_of(Pool(folder), QUICK)
    monkeypatch.setattr(score_module, "work", lambda *given: asked.append(given[2].name) or Answers(orders=1))
    assert score_pool(folder, QUICK, Silent()).orders == len(parts)
    assert sorted(asked + kept) == sorted(part.name for part in parts)


def test_bad_input_has_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="vestige pool build"):
        score_pool(tmp_path, QUICK, Silent())
    (tmp_path / "other.txt").write_text("")
    with pytest.raises(InputError, match="a folder with other files"):
        build_pool(tmp_path, REDUCED, Silent())
    with pytest.raises(InputError, match="at most 6, as one of the pool's 7 is held out"):
        score_pool(folder, QUICK.model_copy(update={"oracles": (7,)}), Silent())
    with alone_in(folder, ".lock-pool"), pytest.raises(InputError, match="another run at work"):
        score_pool(folder, QUICK, Silent())
    failing = QUICK.model_copy(update={"command": f"{sys.executable} -c 'import sys; sys.exit(3)'"})
    with pytest.raises(InputError, match="exit code 3"):
        score_pool(folder, failing, Silent())
