"""The page: one HTML file with everything in it, no network, no script, no deleted text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.contracts import Assessment, Destination, ModelAssessment
from vestige.errors import InputError
from vestige.files import write_text
from vestige.report.answers import (
    bounded_cell,
    conditions_of,
    evidence_table,
    margin_lines,
    published_tag,
    unit_table,
    verdict_chip,
)
from vestige.report.caveats import SCOPE, caveats, shared_caveats
from vestige.report.consistency import contradictions
from vestige.report.figures import Panel, distance_panels, mass_panels, reliability_panel
from vestige.report.measures import change, first_full, measure, remaining, unlearned_models, view_count
from vestige.report.recovered import Recovered
from vestige.report.sections import Chip, Section
from vestige.report.sentence import MADE_BEFORE, told
from vestige.report.tables import (
    EMPTY,
    Cell,
    Table,
    cell,
    comparison_table,
    decision_text,
    definitions,
    measurement_tables,
    noise_table,
    published_table,
    reliability_table,
)
from vestige.report.words import count, plain, short, styled, view_words

if TYPE_CHECKING:
    from jinja2 import Environment

    from vestige.report.paper import Paper

__all__ = ["environment", "installed_version", "render", "write_report"]

_TEMPLATES = Path(__file__).parent / "templates"
_OPEN_VERDICTS = 3
_OPEN_PANELS = 6
_SMALLEST_FLOW = 0.01
MOST_PARTS = 16
"""Of more records than this, the page shows the overview, tables and figures, and no part of their own."""
_OVERVIEW = (
    "memory left F",
    "memory left G",
    "distance left F",
    "distance left G",
    "retained accuracy, points",
)


def write_report(
    assessments: Sequence[Assessment],
    path: Path,
    *,
    title: str = "",
    paper: Paper | None = None,
    recoveries: Sequence[Recovered] = (),
    together: Sequence[Section] = (),
) -> Path:
    """Write the page for these records to `path` and return it. The same records give the same bytes.

    title: heading, default the name of the only record. paper: numbered tables and figures of the same
    folder, a section of the page. recoveries: of each record's models, or none at all. together: sections
    on what seeds and bundles say together. Raises InputError for nothing to show or a place that cannot be
    written to.
    """
    page = render(assessments, title=title, paper=paper, recoveries=recoveries, together=together)
    write_text(path, page)
    return path


def render(
    assessments: Sequence[Assessment],
    *,
    title: str = "",
    paper: Paper | None = None,
    recoveries: Sequence[Recovered] = (),
    together: Sequence[Section] = (),
) -> str:
    """The page as text. Raises InputError without a record and without anything in `paper`."""
    paper = paper if paper is not None and paper.present else None
    if not assessments and paper is None:
        raise InputError("report", "no assessment", "at least one", "compare models or run a study first")
    heading = title or (assessments[0].name if len(assessments) == 1 else "What unlearning left behind")
    shown_parts = len(assessments) <= MOST_PARTS
    parts = [
        _Part(assessment, f"a{position}", 2 if len(assessments) == 1 else 3, recovered)
        for position, (assessment, recovered) in enumerate(
            zip(assessments, recoveries or [{}] * len(assessments), strict=True), start=1
        )
    ]
    page = environment().get_template("report.html.j2")
    return page.render(
        overview_columns=_OVERVIEW,
        title=short(heading, 120),
        parts=parts,
        many=len(parts) != 1,
        shown_parts=shown_parts,
        paper=paper,
        together=together,
        shared=shared_caveats(assessments),
        scope=SCOPE,
        measures=definitions(assessments),
        version=installed_version(),
    )


@dataclass(frozen=True)
class _Part:
    """One record as the template reads it. Everything is text, a table or an inline drawing."""

    assessment: Assessment
    id: str
    level: int
    recoveries: Recovered

    @property
    def name(self) -> str:
        return short(self.assessment.name, 90)

    @property
    def facts(self) -> list[tuple[str, str]]:
        item = self.assessment
        deleted = view_count(item, "F")
        fulls, oracles = (sum(source.role == role for source in item.sources) for role in ("full", "oracle"))
        facts = [("deleted training rows", count(deleted.rows) if deleted else "none given")]
        if not any(model.verdict for model in item.models):
            facts.insert(0, ("rule", MADE_BEFORE))
        if item.forgotten:
            facts.append(("deleted options", f"{count(len(item.forgotten))} of {count(item.options)}"))
        else:
            facts.append(("options", count(item.options)))
        facts += [
            ("full models", count(fulls)),
            ("retrained models", count(oracles) if item.has_oracle else "none given"),
            ("stage", plain(item.stage).replace("_", " ")),
            ("conditional on", short(item.condition, 90)),
        ]
        return facts

    @cached_property
    def verdicts(self) -> list[dict[str, Any]]:
        models = list(unlearned_models(self.assessment))
        return [
            {
                "label": short(model.label),
                "control": model.control,
                "chip": _chip(model),
                "published": published_tag(model) if model.verdict is not None else "",
                "told": told(self.assessment, model.label, self.recoveries.get(model.label)),
                "folded": len(models) > _OPEN_VERDICTS,
                "open": position == 0,
            }
            for position, model in enumerate(models)
        ]

    @cached_property
    def overview(self) -> list[dict[str, Any]]:
        return [
            {"item": item, "cells": _overview(self.assessment, model)}
            for item, model in zip(self.verdicts, unlearned_models(self.assessment), strict=True)
        ]

    @cached_property
    def judged(self) -> list[ModelAssessment]:
        """Models with a verdict; none in a record made before there were any."""
        return [model for model in unlearned_models(self.assessment) if model.evidence is not None]

    @cached_property
    def table(self) -> Table:
        return evidence_table(self.assessment) if self.judged else published_table(self.assessment)

    @cached_property
    def published(self) -> Table | None:
        """What the published rule reads, beside the verdicts."""
        return published_table(self.assessment) if self.judged else None

    @cached_property
    def margins(self) -> list[str]:
        """What counts as small. The same for every model of a record."""
        return margin_lines(self.judged[0].evidence) if self.judged and self.judged[0].evidence else []

    @cached_property
    def conditions(self) -> list[dict[str, Any]]:
        """Of each model beside retrained ones: the conditions of equivalence and its worst parts."""
        return [
            {
                "label": short(model.label),
                "conditions": conditions_of(model.evidence),
                "units": unit_table(model),
            }
            for model in self.judged
            if model.evidence is not None and model.evidence.conditions
        ]

    @cached_property
    def distances(self) -> list[Panel]:
        draw = distance_panels if self.assessment.has_oracle else mass_panels
        return list(draw(self.assessment, f"{self.id}-distance"))

    def marks(self, mark: str) -> bool:
        """Whether a distance panel contains this mark."""
        return any(mark in panel.marks for panel in self.distances)

    @property
    def noise(self) -> Table:
        return noise_table(self.assessment)

    @cached_property
    def destinations(self) -> list[dict[str, Any]]:
        oracle = next(
            (item for item in self.assessment.models if item.role == "oracle" and item.destinations), None
        )
        blocks: list[dict[str, Any]] = []
        for model in unlearned_models(self.assessment):
            if model.destinations:
                blocks.append(
                    {
                        "number": len(blocks) + 1,
                        "label": short(model.label),
                        "tables": [_destination(item, oracle) for item in model.destinations],
                        "retrained": oracle is not None,
                    }
                )
        if not blocks and oracle is not None:
            tables = [_destination(item, None) for item in oracle.destinations]
            blocks.append({"number": 1, "label": short(oracle.label), "tables": tables, "retrained": False})
        return blocks

    @cached_property
    def reliability(self) -> list[dict[str, Any]]:
        full = first_full(self.assessment)
        tested = list(unlearned_models(self.assessment))
        models = [*tested, *([full] if full else [])]
        models += [model for model in self.assessment.models if model.role == "oracle"][:1]
        found = []
        for position, model in enumerate(item for item in models if item.reliability):
            ece = cell(measure(model, "ece", "R"), "number")
            found.append(
                {
                    "label": short(model.label),
                    "role": {"full": "full model", "oracle": "retrained"}.get(model.role, ""),
                    "ece": str(ece),
                    "panel": reliability_panel(model, full, f"{self.id}-reliability-{position}"),
                    "table": reliability_table(model),
                    "extra": position >= _OPEN_PANELS or (model.role != "unlearned" and bool(tested)),
                }
            )
        return found

    @property
    def comparisons(self) -> Table:
        return comparison_table(self.assessment)

    @property
    def measurements(self) -> tuple[Table, ...]:
        return measurement_tables(self.assessment)

    @property
    def views(self) -> list[tuple[str, str, str, str]]:
        kind = self.assessment.unit_kind
        return [
            (item.view, view_words(item.view, kind), count(item.rows), count(item.units))
            for item in self.assessment.views
        ]

    @property
    def forgotten(self) -> list[str]:
        return [short(item) for item in self.assessment.forgotten]

    @property
    def unit_kind(self) -> str:
        return {"class": "intents"}.get(self.assessment.unit_kind, plain(self.assessment.unit_kind))

    @property
    def provenance(self) -> list[tuple[str, Any]]:
        return _entries(self.assessment.provenance, class_units=self.assessment.unit_kind == "class")

    @property
    def sources(self) -> list[tuple[str, str, str, str, str]]:
        roles = {"full": "full model", "oracle": "retrained", "unlearned": "unlearned"}
        return [
            (
                short(item.label),
                roles[item.role],
                short(item.path, 80),
                item.sha256,
                styled(item.max_sum_deviation, "small"),
            )
            for item in self.assessment.sources
        ]

    @cached_property
    def caveats(self) -> tuple[str, ...]:
        return caveats(self.assessment, self.recoveries)

    @cached_property
    def contradictions(self) -> tuple[str, ...]:
        return tuple(short(line, 400) for line in contradictions(self.assessment))

    @property
    def no_oracle(self) -> bool:
        return not self.assessment.has_oracle

    @property
    def gate(self) -> str:
        return plain(self.assessment.intervention_gate)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.assessment.to_json().encode()).hexdigest()

    @property
    def format(self) -> str:
        return self.assessment.format


def _chip(model: ModelAssessment) -> Chip:
    """The verdict; of a record made before there were any, the published rule's answer without a colour."""
    if model.verdict is None:
        return Chip(text=decision_text(model), kind="none", glyph="", before="published rule")
    return verdict_chip(model.headline)


def _overview(assessment: Assessment, model: ModelAssessment) -> list[Cell]:
    """What one model's line of the overview shows; of records without a verdict what they have of it."""
    found = model.evidence
    if found is None:
        distances = [cell(remaining(model, view), "number") for view in ("F", "G")]
        nothing = Cell(text=EMPTY)
        return [nothing, nothing, *distances, cell(change(assessment, model, "accuracy"), "points")]
    if not found.views:
        none = Cell(text="undefined: no retrained model", undefined=True)
        deleted = [none, *[Cell(text=EMPTY)] * 3]
    else:
        sides = {view.view: view for view in found.views}
        deleted = [bounded_cell(side.memory, "percent") for side in sides.values()]
        deleted += [bounded_cell(side.distance, "number") for side in sides.values()]
    return [*deleted, bounded_cell(found.retained.change, "points")]


def _destination(item: Destination, oracle: ModelAssessment | None) -> dict[str, Any]:
    """One forgotten option as the template shows it.

    entries: (option, gain, bar, the oracle's gain, its mark), bar and mark as shares of the widest. Options
    that gained less than 0.01 in both models are part of the last entry, all other options.
    """
    other = next((d for d in oracle.destinations if d.forgotten == item.forgotten), None) if oracle else None
    ours, theirs = dict(item.to), dict(other.to) if other else {}
    options = [
        option
        for option in dict.fromkeys([*ours, *theirs])
        if max(ours.get(option, 0.0), theirs.get(option, 0.0)) >= _SMALLEST_FLOW
    ]
    flows = [(short(option, 40), ours.get(option), theirs.get(option)) for option in options]
    rest = item.moved - sum(gain for _, gain, _ in flows if gain is not None)
    their_rest = other.moved - sum(gain for _, _, gain in flows if gain is not None) if other else None
    flows.append(("all other options", rest, their_rest))
    most = max([1e-12, *(value for _, *pair in flows for value in pair if value is not None)])
    return {
        "forgotten": short(item.forgotten, 40),
        "rows": count(item.rows),
        "moved": styled(item.moved, "number"),
        "theirs": styled(other.moved, "number") if other else "",
        "entries": [
            (name, _flow(gain), _share(gain, most) or "0", _flow(mark), _share(mark, most))
            for name, gain, mark in flows
        ],
        "compared": other is not None,
    }


def _flow(value: float | None) -> str:
    return "–" if value is None else styled(value, "number")


def _share(value: float | None, most: float) -> str:
    return "" if value is None else f"{max(0.0, min(1.0, value / most)):.4f}"


_WITHHELD = re.compile(
    r"(^|_)(texts?|utterances?|predicate|where|row_ids|unit_of|customer\w*|values?|emails?|users?)($|_)"
)
_HASH = re.compile(r"[0-9a-f]{40,64}")
_LONGEST_LIST = 12


def _entries(record: Mapping[str, Any], *, class_units: bool) -> list[tuple[str, Any]]:
    """Provenance as (name, value): text, `("hash", text)` or a nested list. Texts and ids are withheld."""
    return [(_entry_name(key), _entry(str(key), value, class_units)) for key, value in record.items()]


def _entry_name(key: object) -> str:
    return short(key, 60).replace("_", " ")


def _entry(key: str, value: Any, class_units: bool) -> Any:
    collection = isinstance(value, Mapping | list | tuple | set)
    hidden = _WITHHELD.search(key.lower()) is not None or (key == "units" and not class_units)
    if hidden and (collection or isinstance(value, str)) and not _HASH.fullmatch(str(value)):
        return f"withheld, {count(len(value))} of them" if collection else "withheld"
    if isinstance(value, Mapping):
        return _entries(value, class_units=class_units) or "none"
    if isinstance(value, list | tuple | set):
        items = sorted(value, key=str) if isinstance(value, set) else list(value)
        if any(isinstance(item, Mapping | list | tuple) for item in items):
            return [
                (str(number), _entry(key, item, class_units)) for number, item in enumerate(items, start=1)
            ]
        if not items:
            return "none"
        shown = ", ".join(_scalar(item) for item in items[:_LONGEST_LIST])
        more = len(items) - _LONGEST_LIST
        return f"{shown} and {count(more)} more" if more > 0 else shown
    if isinstance(value, str) and _HASH.fullmatch(value):
        return ("hash", value)
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:g}"
    return "not given" if value is None or value == "" else short(value, 160)


def _typographic(text: object) -> str:
    """True minus signs, and spaces that keep a number with its unit or bracket."""
    line = re.sub(r"(?<![\w.\-])-(?=[0-9])", "−", str(text))
    line = re.sub(r"(?<=[0-9]) (?=%|points\b|\[)", "\u00a0", line)
    return re.sub(r"(\[[−0-9.,]+), (?=[−0-9.,]+\])", "\\1,\u00a0", line)


@cache
def environment() -> Environment:
    """Templates of the pages: escaping on, filters `typo`, `shorten` and `drawing`."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["typo"] = _typographic
    environment.filters["shorten"] = short
    environment.filters["drawing"] = lambda panel: Markup(panel.svg)
    environment.globals["css"] = Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8"))
    return environment


def installed_version() -> str:
    """The version that a page names."""
    try:
        return version("vestige")
    except PackageNotFoundError:
        return "unknown"
