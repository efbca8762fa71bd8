"""Drawings: readable in any theme, described in words, whatever the labels are."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from tests.assessments import assessment, bins, estimate, full, unlearned

from vestige.contracts import Undefined
from vestige.report.figures import Panel, distance_panels, mass_panels, reliability_panel


def drawn_text(panel: Panel) -> str:
    root = ElementTree.fromstring(panel.svg)
    return " ".join("".join(element.itertext()) for element in root.iter("text"))


def test_a_panel_a_view_with_its_numbers_in_words() -> None:
    panels = distance_panels(assessment(), "p")
    assert [panel.caption for panel in panels] == [
        "F · deleted training rows",
        "G · unseen rows of the deleted intents",
    ]
    assert panels[0].alternative == (
        "Distance to the retrained model on deleted training rows. Full model 0.610 [0.590, 0.630]; simnpo "
        "0.250 "
        "[0.220, 0.280]. Two retrainings differ by 0.031. Two full trainings differ by 0.004."
    )
    assert panels[0].marks == {"unit", "band"}
    assert "full model 0.61" in drawn_text(panels[0])


def test_an_unknown_floor_is_said_and_not_drawn() -> None:
    panel = distance_panels(assessment(unlearned(units=False), noise={}), "p")[0]
    assert "What two retrainings differ by is not known." in panel.alternative
    assert panel.marks == frozenset()
    assert "var(--band)" not in panel.svg


def test_colours_are_variables_and_ids_carry_the_prefix() -> None:
    for panel in (*distance_panels(assessment(), "p-1"), reliability_panel(unlearned(), full(), "p-1-r")):
        assert not re.search(r"#[0-9a-fA-F]{3,6}\b(?!-)", re.sub(r"(?:url\(|href=\")#", "", panel.svg))
        assert not re.search(r"\b(?:black|white|rgb)\b", panel.svg)
        assert "var(--accent)" in panel.svg
        ids = re.findall(r'\bid="([^"]+)"', panel.svg)
        assert ids
        assert all(name.startswith("p-1") for name in ids)
        assert "<style" not in panel.svg
        assert "xmlns" not in panel.svg


@pytest.mark.parametrize("label", ["$x^2$ & <b>", "🧹 面 \u0627", "a\nb", "x" * 10_000, "$", "\\frac{"])
def test_any_label_is_drawn_as_text(label: str) -> None:
    panel = distance_panels(assessment(unlearned(label)), "p")[0]
    assert label[:3].replace("\n", "\\n")[:3] in drawn_text(panel)
    assert "x" * 60 not in panel.svg


def test_undefined_distances_are_printed() -> None:
    model = unlearned()
    metrics = {**model.metrics, "oracle_distance.F": estimate("no rows")}
    panel = distance_panels(assessment(model.model_copy(update={"metrics": metrics})), "p")[0]
    assert "undefined: no rows" in drawn_text(panel)


def test_a_view_without_displacement_has_no_panel() -> None:
    record = assessment()
    start = record.models[0].model_copy(update={"metrics": {}})
    assert distance_panels(record.model_copy(update={"models": (start, *record.models[1:])}), "p") == ()


def test_without_an_oracle_the_mass_left_is_drawn() -> None:
    panels = mass_panels(assessment(unlearned(), has_oracle=False), "p")
    assert panels[0].alternative == (
        "Mean probability on the deleted options, deleted training rows. Full model 0.960 [0.950, 0.970]; "
        "simnpo "
        "0.310 [0.280, 0.340]."
    )
    assert "none left" in drawn_text(panels[0])


def test_reliability_names_the_bin_that_adds_most() -> None:
    panel = reliability_panel(unlearned(reliability=bins(-0.1)), full(), "p")
    assert panel.alternative.startswith("Accuracy against confidence of simnpo over 2,9")
    assert "The bin that adds most to it, (0.93, 1.00], has 1,606 rows" in panel.alternative


def test_a_reliability_diagram_without_rows_is_empty_not_wrong() -> None:
    none = Undefined(undefined="no rows in this bin")
    empty = tuple(
        item.model_copy(update={"rows": 0, "confidence": none, "accuracy": none}) for item in bins()
    )
    assert "adds most" not in reliability_panel(unlearned(reliability=empty), None, "p").alternative


def test_the_settings_of_matplotlib_are_put_back() -> None:
    before = mpl.rcParams["svg.fonttype"], mpl.rcParams["font.size"]
    distance_panels(assessment(), "p")
    assert (mpl.rcParams["svg.fonttype"], mpl.rcParams["font.size"]) == before
