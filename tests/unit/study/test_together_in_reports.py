"""What a page and the terminal say of seeds and bundles together."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vestige.cli.app import run
from vestige.report.together import together_lines, together_sections
from vestige.study.plan import Plan
from vestige.study.runner import Execution


def words(page: Path) -> str:
    text = re.sub(r"<[^>]*>", " ", page.read_text("utf-8"))
    return re.sub(r"\s+", " ", html.unescape(text)).replace("\u2212", "-").replace("\u00a0", " ")


def test_the_page_shows_crossed_intervals_beside_the_published_rule(
    confirmed_once: Path, tmp_path: Path
) -> None:
    assert run(["report", str(confirmed_once), "--out", str(tmp_path)]) == 0
    page = words(tmp_path / "report.html")
    stored = json.loads((confirmed_once / "summaries/replication.json").read_text("utf-8"))
    assert "Over seeds and bundles" in page
    for method in stored["methods"]:
        for view in method["views"]:
            for bounds in (view["crossed"], view["interval"]):
                assert f"[{bounds['low']:+.3f}, {bounds['high']:+.3f}]" in page
        for cells in method["infeasible"]:
            assert cells in page
    seeds = json.loads((confirmed_once / "summaries/seeds.json").read_text("utf-8"))
    membership = seeds["methods"][0]["metrics"]["membership_auc"]
    assert f"{membership['value']:.3f}" in page
    assert f"[0.500, {membership['chance']['high']:.3f}]" in page
    assert "KLoM: undefined: KLoM needs at least 8 unlearned models" in page
    verdicts = json.loads((confirmed_once / "summaries/verdicts.json").read_text("utf-8"))["methods"]
    for item in verdicts:
        assert item["sentence"] in page.replace(" Rests on ", " ")
    lines = list(together_lines(confirmed_once))
    assert lines[0].startswith(f"SimNPO on bundle 01, training seeds 17 and 42: {verdicts[0]['verdict']}")
    assert verdicts[0]["sentence"] in lines[0]
    lines = lines[len(verdicts) :]
    assert len(lines) == len(stored["methods"])
    assert lines[0].startswith(
        f"SimNPO over 2 training seeds and 2 bundles: {stored['methods'][0]['crossed']};"
    )
    assert f"published rule: {stored['methods'][0]['decision']}." in lines[0]


def test_summaries_of_an_earlier_version_are_read(confirmed_once: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(confirmed_once, tmp_path / "run"))
    path = root / "summaries/replication.json"
    stored: Any = json.loads(path.read_text("utf-8"))
    for method in stored["methods"]:
        del method["crossed"]
        for view in method["views"]:
            del view["crossed"]
    path.write_text(json.dumps(stored))
    assert run(["report", str(root), "--out", str(tmp_path)]) == 0
    assert "not computed: a run of an earlier version" in words(tmp_path / "report.html")
    (root / "summaries/verdicts.json").unlink()
    assert "not computed: a run of an earlier version" in next(iter(together_lines(root)))
    path.write_text("{}")
    assert run(["report", str(root), "--out", str(tmp_path)]) == 2


def test_one_seed_and_bundle_says_nothing_together(
    small_once: Any, tmp_path: Path, make_plan: Callable[..., Plan], execution: Execution
) -> None:
    assert list(together_lines(small_once.root)) == []
    (section,) = together_sections(small_once.root)
    assert [block.block for block in section.blocks] == ["prose", "fold"]
    assert together_sections(tmp_path) == ()


@pytest.mark.parametrize("decision", ["one training run: how another would come out is not known"])
def test_two_bundles_of_one_seed_are_no_replication(
    confirmed_once: Path, tmp_path: Path, decision: str
) -> None:
    root = Path(shutil.copytree(confirmed_once, tmp_path / "run"))
    path = root / "summaries/replication.json"
    stored: Any = json.loads(path.read_text("utf-8"))
    for method in stored["methods"]:
        method["seeds"] = method["seeds"][:1]
        method["crossed"] = {"undefined": decision}
    path.write_text(json.dumps(stored))
    lines = "\n".join(together_lines(root))
    assert f"over 1 training seed and 2 bundles: undefined: {decision};" in lines
