"""A comparison of probabilities, reported: the record's own numbers reach the words, the tables and the "
"page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vestige
from vestige.contracts import Assessment
from vestige.report.answers import evidence_table
from vestige.report.html import render
from vestige.report.sentence import told
from vestige.report.tables import published_table

OPTIONS = [f"option {number}" for number in range(8)]
SIZES = {"F": 60, "G": 40, "R": 120}


def rows() -> dict[str, list[str]]:
    view = [name for name, size in SIZES.items() for _ in range(size)]
    gold = [
        OPTIONS[number % 2] if name != "R" else OPTIONS[2 + number % 6] for number, name in enumerate(view)
    ]
    return {
        "row_id": [f"{number:03d}" for number in range(len(view))],
        "view": view,
        "unit": gold,
        "gold": gold,
    }


def model(deleted: float, retained: float, seed: int) -> Any:
    """(220, 8) probabilities; the right option's logit is raised by `deleted` on F and G, `retained` on R."""
    table = rows()
    logits = np.random.default_rng(0).normal(0, 1, (220, 8))
    logits += np.random.default_rng(seed).normal(0, 0.1, logits.shape)
    strength = np.where(np.array(table["view"]) == "R", retained, deleted)
    logits[np.arange(220), [OPTIONS.index(name) for name in table["gold"]]] += strength
    powers = np.exp(logits)
    return powers / powers.sum(axis=1, keepdims=True)


def compare(**more: Any) -> Assessment:
    given: dict[str, Any] = {
        "full": [model(5, 5, 1), model(5, 5, 2)],
        "unlearned": {"close": model(2, 5, 3), "broken": model(-3, 0, 4), "unchanged": model(5, 5, 1)},
        "oracle": [model(0, 5, 5), model(0, 5, 6), model(0, 5, 7)],
        "forget": OPTIONS[:2],
        "rows": rows(),
        "options": OPTIONS,
        "draws": 200,
        "condition": "training seed 17",
    }
    return vestige.compare(**{**given, **more})


@pytest.fixture(scope="module")
def record() -> Assessment:
    return compare()


def test_each_verdict_has_its_words(record: Assessment) -> None:
    close = told(record, "close")
    assert record.model_named("close").headline.startswith("closer, ")
    assert close.answer.startswith("“close” is closer to retraining than the full model, ")
    assert "n 60 deleted training rows and 40 unseen rows of the 2 deleted intents" in close.rest
    assert "(row bootstrap, 200 draws, conditional on training seed 17)" in close.published
    assert "Published rule: accepted." in close.published
    broken = told(record, "broken")
    assert broken.answer.startswith("“broken” is damaged: accuracy on 120 retained rows fell by ")
    assert "Published rule: infeasible: retained accuracy fell by more than the 2 points allowed" in (
        broken.published
    )
    unchanged = told(record, "unchanged")
    assert unchanged.answer == (
        "It is not settled whether “unchanged” is closer to retraining than the full model."
    )
    assert "Published rule: no benefit." in unchanged.published


def test_the_table_shows_the_records_numbers(record: Assessment) -> None:
    close = record.model_named("close")
    line = next(line for line in published_table(record).text_rows() if line[0] == "close")
    assert line[1] == "accepted"
    assert line[2].startswith(f"{close.metrics['progress.F'].value * 100:.0f} %")  # type: ignore[operator]
    assert line[4].startswith(f"{close.metrics['oracle_distance.F'].value:.3f} [")
    assert close.evidence is not None
    memory = close.evidence.view("F").memory
    table = evidence_table(record)
    place = [column.key for column in table.columns].index("close")
    cells = {row.label: row.cells[place] for row in table.rows}
    assert cells["verdict"].text == close.headline
    assert cells["published rule"].text == "accepted"
    assert cells["memory left, F"].text == f"{memory.value * 100:.0f} %"  # type: ignore[operator]
    assert cells["memory left, F"].lines[0] == "10 % allowed"
    assert cells["other trainings"].text == "not known: one training run"


def test_the_page_carries_every_caveat_of_the_record(record: Assessment) -> None:
    from html import unescape

    page = unescape(render([record])).replace("\u00a0", " ").replace("−", "-")
    assert len(record.caveats) >= 4
    for caveat in record.caveats:
        assert caveat in page


def test_without_an_oracle_or_a_floor_the_page_says_so() -> None:
    alone = render([compare(oracle=None, full=model(5, 5, 1), unlearned=model(2, 5, 3))])
    assert "no retrained model was given" in alone
    assert "Probability left on what was deleted" in alone
    single = compare(oracle=model(0, 5, 5), full=model(5, 5, 1), unlearned={"close": model(2, 5, 3)})
    found = told(single, "close")
    assert "it takes at least three retrained models, and there is one." in found.rest
    assert "Gate not run: what two full trainings differ by is not known." in found.published


def test_deletion_by_customer_names_no_customer() -> None:
    table = rows()
    table["unit"] = ["customer-4711" if name != "R" else "" for name in table["view"]]
    table["gold"] = [OPTIONS[number % 8] for number in range(220)]
    found = compare(rows=table, forget=[], unit="customer_id")
    page = render([found])
    assert "customer-4711" not in page
    assert "Rows were deleted by customer_id" in page
