"""The page: whole, escaped, the same every time, and without what must not be in it."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.assessments import assessment, comparison, estimate, unlearned

from vestige.contracts import Assessment, Undefined
from vestige.errors import InputError
from vestige.report.caveats import SCOPE, shared_caveats
from vestige.report.html import render, write_report
from vestige.report.sentence import sentence

EVIL = "<script>alert(1)</script>\"'&\n🧹/,__"
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags, ids, text and attributes of a page; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                self.ids.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.text).replace("\u00a0", " ").replace("−", "-"))


def many() -> Assessment:
    """A record with every decision, an odd label, a control and comparisons."""
    return assessment(
        unlearned("simnpo"),
        unlearned(EVIL, decision="positive, unconfirmed", g=(0.42, 0.37, 0.47), unstable=True),
        unlearned("gradascent", decision="infeasible", accuracy=-0.1),
        unlearned("npo", decision="no benefit", f=(0.7, 0.68, 0.72)),
        unlearned("x" * 10_000, decision=Undefined(undefined="<i>why</i>")),
        unlearned("temperature", control=True, decision="no benefit"),
        comparisons=(comparison("simnpo", EVIL),),
        caveats=("Gate exception: <b>card</b> failed at seed 42.",),
        family=("simnpo", "npo"),
    )


@pytest.fixture(scope="module")
def text() -> str:
    return render([many()])


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_markup_in_labels_is_text(page: Page) -> None:
    assert "script" not in page.tags
    assert "b" not in page.tags
    assert "<script>alert(1)</script>\"'&\\n🧹/,__" in page.words
    assert "undefined: <i>why</i>" in page.words
    assert "<b>card</b>" in page.words


def test_long_labels_are_cut_and_their_length_is_stated(page: Page) -> None:
    assert "x" * 100 not in page.words
    assert "(10,000 characters)" in page.words


def test_ids_are_unique_and_every_reference_has_its_target(page: Page) -> None:
    assert len(page.ids) == len(set(page.ids))
    known = set(page.ids)
    for _, name, value in page.attributes:
        if name in ("aria-labelledby", "aria-describedby"):
            assert set(value.split()) <= known
        if name in ("href", "xlink:href") and value.startswith("#"):
            assert value[1:] in known
        for target in re.findall(r"url\(#([^)]+)\)", value):
            assert target in known


def test_nothing_is_loaded_from_elsewhere(page: Page, text: str) -> None:
    assert not {"script", "iframe", "object", "embed", "form", "img"} & set(page.tags)
    assert not re.search(r"(?i)\b(?:https?:)?//[a-z0-9]|@import|expression\(|javascript:", text)
    assert re.findall(r"url\((?!#)", text) == []
    assert all(
        value.startswith(("#", "data:,")) for _, name, value in page.attributes if name in ("href", "src")
    )
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]


def test_every_table_and_figure_can_be_read_without_seeing_it(page: Page) -> None:
    assert page.tags.count("caption") == page.tags.count("table")
    cells = [(name, value) for tag, name, value in page.attributes if tag == "th"]
    assert sum(name == "scope" for name, _ in cells) == page.tags.count("th")
    svgs = page.tags.count("svg")
    assert svgs >= 2
    assert page.tags.count("title") == svgs + 1
    assert page.tags.count("desc") == svgs
    assert ("svg", "role", "img") in page.attributes
    scrolls = [value for tag, name, value in page.attributes if name == "class" and value == "scroll"]
    assert len(scrolls) == sum(name == "tabindex" for _, name, _ in page.attributes)


def test_the_page_says_what_the_sentences_say(page: Page) -> None:
    record = many()
    for model in record.models:
        if model.role == "unlearned":
            assert sentence(record, model.label) in page.words
    for line in (*SCOPE, *record.caveats, "Recovery by fine-tuning was not tested."):
        assert line in page.words


def test_every_interval_is_explained(page: Page) -> None:
    for seed in ("seeds 1, 2, 3", "seed 101", "seed 102"):
        assert seed in page.words
    assert "row bootstrap, percentile, 95 % level, 5,000 draws" in page.words
    assert "unit bootstrap, percentile, 95 % level, 5,000 draws" in page.words
    assert "conditional on training seed 17" in page.words


def test_hashes_are_shown_and_texts_and_ids_are_not() -> None:
    record = assessment(
        intents=(),
        unit_kind="customer_id",
        units=2,
        provenance={
            "request": {
                "where": "customer_id=4711",
                "units": ["4711", "4712"],
                "row_ids": ["row-secret-1"],
                "unit_of": {"row-secret-2": "4711"},
                "rows_sha256": "cd" * 32,
                "deleted_rows": 428,
                "examples": {"text": "my card was stolen"},
            },
            "data": {"texts": ["hello there"], "texts_sha256": "ab" * 32},
        },
    )
    text = Page(render([record])).words
    for secret in ("4711", "4712", "row-secret", "my card was stolen", "hello there"):
        assert secret not in text
    for hash_ in ("cd" * 32, "ab" * 32, record.sources[0].sha256):
        assert hash_ in text
    assert "withheld, 2 of them" in text
    assert "deleted rows428" in text.replace(" ", "").replace("deletedrows", "deleted rows")


def test_deleted_intents_are_named(page: Page) -> None:
    assert "Deleted intents: card_arrival, lost_or_stolen_card, pending_top_up, exchange_rate." in page.words


def test_the_gate_is_printed() -> None:
    noise = {"noise_full.F": estimate("a noise floor needs at least two seeds")}
    words = Page(render([assessment(gate="gate not run", noise=noise)])).words
    assert "Intervention gate of the published rule: gate not run." in words
    assert "undefined: a noise floor needs at least two seeds" in words


def test_without_an_oracle_no_distance_is_drawn() -> None:
    none = Undefined(undefined="no retrained model")
    record = assessment(unlearned(decision=none), has_oracle=False, noise={}, gate="gate not run")
    words = Page(render([record])).words
    assert "Fidelity to retraining cannot be assessed" in words
    assert "Probability left on what was deleted" in words
    assert "How far from retraining" not in words


def test_destinations_add_up_and_stand_beside_retraining(page: Page) -> None:
    # 0.774 gave up; 0.387 + 0.155 + 0.077 went to named options, the rest to all others.
    assert "card_arrival gave up 0.774, retraining 0.860, on 147 rows" in page.words
    assert "neighbour_0_00.3870.430" in page.words.replace(" ", "")
    assert "all other options0.1550.172" in page.words.replace(" ", "").replace(
        "allotheroptions", "all other options"
    )


def test_several_records_make_an_overview() -> None:
    other = {"request": {"bundle": "01", "rows_sha256": "11" * 32}}
    records = [assessment(), assessment(unlearned(EVIL), name="bundle 01 elsewhere", provenance=other)]
    page = Page(render(records, title="Study"))
    assert "Overview" in page.words
    assert "“01” names two different sets of deleted rows in this report" in page.words
    assert "Some records share models" in page.words
    assert len(page.ids) == len(set(page.ids))
    assert shared_caveats(records[:1]) == ()


def test_a_record_without_models_under_test_still_makes_a_page() -> None:
    record = assessment()
    kept = tuple(model for model in record.models if model.role != "unlearned")
    words = Page(render([record.model_copy(update={"models": kept}), record])).words
    assert "nothing to judge" in words
    assert "no unlearned model" in words


def test_no_record_is_an_error() -> None:
    with pytest.raises(InputError, match="no assessment"):
        render([])


def test_the_same_record_gives_the_same_bytes(tmp_path: Path) -> None:
    record = assessment(unlearned(EVIL))
    path = write_report([record], tmp_path / "a.html")
    (tmp_path / "record.json").write_text(record.to_json(), encoding="utf-8")
    code = (
        "import sys; from pathlib import Path\n"
        "from vestige.report.html import write_report; from vestige.report.reader import read_assessment\n"
        "write_report([read_assessment(Path(sys.argv[1]))], Path(sys.argv[2]))\n"
        "assert 'torch' not in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    again = tmp_path / "b.html"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "record.json"), str(again)], check=True)
    assert path.read_bytes() == again.read_bytes()
    assert render([record]).encode() == path.read_bytes()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"report\.html"):
        write_report([assessment()], tmp_path / "file" / "report.html")
