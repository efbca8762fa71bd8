"""The page of footprints: one HTML file from their records, no model, no network, no text unless asked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vestige.errors import InputError
from vestige.files import write_text
from vestige.footprint.records import FootprintRecord
from vestige.report.footprint.heat import class_grid, heat_maps
from vestige.report.footprint.levels import verdicts_table
from vestige.report.footprint.rows import CheckpointRow, checkpoint_rows, shift_rows
from vestige.report.footprint.scatter import MARGINAL, localisation
from vestige.report.footprint.sections import Extras, footprint_sections
from vestige.report.footprint.tables import class_table, noise_variants
from vestige.report.html import environment, installed_version
from vestige.report.sections import Block, Bullets, Data, Drawings, Entries, Fold, Prose, Section
from vestige.report.words import count, counted, short

__all__ = ["MOST_PARTS", "render_footprints", "write_footprint_report"]

MOST_PARTS = 16
"""Of more records than this, the page shows the overview alone."""

_WORDS = (
    (
        "equivalent",
        "the model lies where retrained models lie, within margins set before: distance and memory on forget "
        "and unseen text, distance and harm on the rest, no part that keeps more",
    ),
    ("closer", "closer to the retrained models than the base is, by how much stands beside it"),
    ("not closer", "a gain of a stated size would have shown, and none did, or it moved away"),
    ("damaged", "the loss a token rose by more than the margin on adjacent or on generic text"),
    ("undetermined", "nothing of these is shown; what is missing is said"),
    (
        "memory",
        "how much of what tells the base from retraining is left in the next-token distributions: 0 % for a "
        "retrained model, 100 % for the base, 20 % for a mixture with 20 % of the base",
    ),
    ("probability of a token", "mean over documents of exp(mean log-probability of a predicted token)"),
    (
        "CoFi",
        "shift of the diagonal empirical Fisher over the measured weights: 100 |V − V′| / |V|, "
        "V = log(F + 1e-5)",
    ),
    ("CHess", "the same of the Hessian diagonal, estimated from random probes"),
    ("noise floor", "CHess between two probe seeds of the unchanged base"),
    ("forget, adjacent, generic", "text to be forgotten; text of the same domain to be kept; other text"),
    ("adjacency gap", "CoFi on forget minus CoFi on adjacent text"),
    ("globality", "CoFi on generic text over the larger of the other two"),
    (
        "no-op",
        "by default every corpus below 1.5 %: shallow training that is easily undone, or nothing removed",
    ),
    ("globally-destructive", "globality at least 0.75, and more than 1 % on generic text"),
    ("partially-localized", "none of these, and adjacent text moved less than forget text"),
    ("collateral-dominant", "none of these, and adjacent text moved at least as much"),
    ("undetermined class", "an interval covers the threshold that decides"),
    (
        "calibrated class",
        "no-op, undirected, localized, collateral or undetermined: against 8-bit copies and random "
        "changes of the same size",
    ),
    (
        "below floor",
        "share of weights with a Fisher value below 1e-5, where the published scale is nearly flat",
    ),
)
_SCOPE = (
    "No evidence of removal: nobody knows where knowledge sits in a model, and Fisher scores tell models "
    "that know from models that do not less well than asking or patching them does.",
    "No statement about a method: a class belongs to one run, and two runs of one objective can differ. A "
    "method needs at least three training seeds.",
    "No privacy guarantee, and no claim that what was removed cannot be extracted.",
    "The licences of the models and texts apply.",
)


@dataclass(frozen=True)
class _Part:
    id: str
    name: str
    facts: list[tuple[str, str]]
    sections: list[Section]


def write_footprint_report(
    records: Sequence[FootprintRecord], path: Path, *, title: str = "", extras: Sequence[Extras] = ()
) -> Path:
    """Write the page for these records to `path` and return it. Raises InputError without a record."""
    write_text(path, render_footprints(records, title=title, extras=extras))
    return path


def render_footprints(
    records: Sequence[FootprintRecord], *, title: str = "", extras: Sequence[Extras] = ()
) -> str:
    """The page as text; the same records give the same page. extras: one a record, or none. Raises InputError
    without a record."""
    if not records:
        raise InputError("report", "no footprint", "at least one", "run vestige footprint first")
    one = len(records) == 1
    beside = list(extras) or [Extras()] * len(records)
    name = title or (records[0].name if one else "What unlearning moved")
    if one:
        first, parts = footprint_sections(records[0], beside[0], key="f1"), []
    else:
        first = overview(records)
        parts = [
            _Part(
                f"f{place}",
                short(f"{record.name}: {record.base.label}", 90),
                _facts(record),
                footprint_sections(record, beside[place - 1], key=f"f{place}"),
            )
            for place, record in enumerate(records, start=1)
            if len(records) <= MOST_PARTS
        ]
    return environment().get_template("sections.html.j2").render(
        title=short(name, 120),
        heading=short(name, 120),
        kicker="Footprint report",
        facts=_facts(records[0]) if one else [],
        first=first,
        parts=parts,
        last=_last(records),
        version=installed_version(),
    )  # fmt: skip


def _facts(record: FootprintRecord) -> list[tuple[str, str]]:
    by_role = []
    for role in ("forget", "adjacent", "generic"):
        names = [corpus.name for corpus in record.corpora if corpus.role == role]
        by_role.append((f"{role} text", short(", ".join(names), 60) if names else "none given"))
    return [
        ("base", short(record.base.label)),
        ("checkpoints", count(len(record.checkpoints))),
        ("measured weights", f"{count(record.parameters)} in {counted(record.layers, 'layer', 'layers')}"),
        *by_role,
        ("sample", _sample(record)),
    ]


def _sample(record: FootprintRecord) -> str:
    settings = record.settings
    text = f"{settings.subsets} subsets of {settings.units}, at most {settings.max_length} tokens"
    return f"quick: {text}" if settings.quick else text


def overview(records: Sequence[FootprintRecord]) -> list[Section]:
    """What several records say together: classes, grids, noise variants, scatters, a set a group."""
    rows = checkpoint_rows(records)
    shifts = shift_rows(records)
    groups: dict[str, list[CheckpointRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    verdicts = verdicts_table(records)
    blocks: list[Block] = [*([Data(verdicts)] if verdicts is not None else ()), Data(class_table(rows))]
    if len(groups) > 1:
        blocks.append(Prose("Shifts compare only within one set of texts and one estimator.", note=True))
    figures: list[Block] = []
    for place, (group, members) in enumerate(groups.items(), start=1):
        caption = f"Classes on {short(group, 60)}"
        grid = class_grid(members, key=f"grid-{place}", caption=caption)
        scatter = localisation(members, key=f"scatter-{place}", caption=f"Shifts on {short(group, 60)}")
        figures.append(Drawings([panel for panel in (grid, scatter) if panel is not None]))
    figures.append(Prose(f"{MARGINAL} “?”: undetermined. 2/3: two of three runs have this class.", note=True))
    sections = [
        Section("overview", "Overview", "Overview", blocks),
        Section("grid", "Classes over models and methods", "Class grid", figures),
    ]
    table = noise_variants(rows)
    sections.append(
        Section(
            "noise",
            "Base against noise variant",
            "Noise variants",
            [Data(table)]
            if table
            else [
                Prose(
                    "No checkpoint has a noise variant here: label them NAME and NAME+noise on the same base "
                    "and texts."
                )
            ],
        )
    )
    maps: list[Block] = []
    for place, (group, model) in enumerate(dict.fromkeys((row.group, row.model) for row in shifts), start=1):
        panels = heat_maps(
            [row for row in shifts if (row.group, row.model) == (group, model)], key=f"heat-{place}"
        )
        if panels:
            maps.append(Fold(f"{model}: {short(group, 60)}", [Drawings(panels)], open=place == 1))
    if maps:
        sections.append(Section("maps", "Shifts of every checkpoint", "Heat maps", maps))
    return sections


def _last(records: Sequence[FootprintRecord]) -> list[Section]:
    hashes = [
        (record.name, ("hash", hashlib.sha256(record.to_json().encode()).hexdigest())) for record in records
    ]
    return [
        Section("scope", "What this report does not say", "", [Bullets(_SCOPE)]),
        Section(
            "words",
            "How to read it",
            "",
            [
                Fold("Words and rules", [Entries(_WORDS)]),
                Fold("Records and their hashes", [Entries(hashes)]),
            ],
        ),
    ]
