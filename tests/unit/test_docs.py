"""The documentation's tables are what the registries and the stored records give."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_generated_parts_are_current(page: str, build: ModuleType) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert build.filled(text) == text


def test_a_changed_number_would_be_seen(build: ModuleType) -> None:
    text = (ROOT / "docs" / "definitions.md").read_text(encoding="utf-8")
    assert build.filled(text.replace("`grad_ascent`", "`grad_descent`")) == text


def test_every_generated_part_is_closed(build: ModuleType) -> None:
    for page in (ROOT / "docs").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        opened = re.findall(r"<!-- ([a-z0-9 -]+) -->", text)
        assert opened == re.findall(r"<!-- /([a-z0-9 -]+) -->", text)
        assert set(opened) <= set(build.parts())


def test_links_between_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
