"""What each assessment of a folder is of, and its probabilities worked out again."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from vestige.study import audit_numbers as numbers
from vestige.study import plan_audit
from vestige.study.audit_compare import Near
from vestige.study.audit_folder import Folder
from vestige.study.audit_numbers import SEEDS, UNIT_OFFSET, Resampled, Stat, View

__all__ = ["NEW", "Key", "Recomputed", "Subject", "intervention_of", "recomputed", "sources_of", "subjects"]


NEW = ("verdict", "evidence", "sentence", "verdict_p", "seeds")
"""What a model's record has since verdicts exist."""
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Subject:
    """What an assessment is of. fulls, oracles: (label, path), the compared one first; unlearned: label ->
    path; methods: label -> (method, whether a control); cell: as planned, None: of an earlier plan, whose
    sources are taken from the record itself."""

    stem: str
    bundle: str
    seed: int
    offer: str
    candidates: Any
    fulls: list[tuple[str, str]]
    oracles: list[tuple[str, str]]
    unlearned: dict[str, str]
    methods: dict[str, tuple[str, bool]]
    forgotten: tuple[str, ...]
    unit_kind: str
    draws: int
    before: bool
    cell: plan_audit.Cell | None = field(repr=False)

    @property
    def condition(self) -> str:
        """What every interval is conditional on."""
        return f"training seed {self.seed}"


@dataclass
class Recomputed:
    """One assessment recomputed. row, unit: by (label, metric, view); noise floors have the label ""."""

    views: dict[str, View]
    row: dict[Key, Resampled]
    unit: dict[Key, Resampled]


def _before_verdicts(stored: Any) -> bool:
    """Whether a record was made by the rule that knew no verdict: equivalence from the first oracle alone,
    and a displacement within noise in place of any other decision."""
    return not any(name in model for model in stored["models"] for name in NEW)


def subjects(folder: Folder) -> dict[str, Subject]:
    """Stem -> what each assessment in the folder is of."""
    return folder.once("subjects", lambda: {stem: _subject(folder, stem) for stem in folder.assessments})


def _subject(folder: Folder, stem: str) -> Subject:
    stored, cell = folder.assessments[stem], plan_audit.cells(folder).get(stem)
    before = _before_verdicts(stored)
    if cell is not None and folder.unfinished and not _of_this_plan(stored, cell):
        cell = None  # a run of another plan was interrupted: the record is of the one before
    if cell is not None:
        request = folder.requests[cell.bundle]
        kind = request["granularity"]
        return Subject(
            stem=stem,
            bundle=cell.bundle,
            seed=cell.seed,
            offer=cell.offer,
            candidates=cell.candidates,
            fulls=[(_seeded("full", item.seed, cell.seed), item.path) for item in cell.fulls],
            oracles=[(_seeded("oracle", item.seed, cell.seed), item.path) for item in cell.oracles],
            unlearned={label: item.path for label, item in cell.unlearned.items()},
            methods={item.label: (item.method, item.control) for item in cell.configured},
            forgotten=tuple(sorted(request["forgotten"])),
            unit_kind=kind if kind in ("class", "association") else request["column"] or "row",
            draws=folder.planned.draws,
            before=before,
            cell=cell,
        )
    given: dict[str, list[tuple[str, str]]] = {"full": [], "oracle": [], "unlearned": []}
    for item in stored["sources"]:
        given[item["role"]].append((item["label"], item["path"]))
    told = stored["provenance"]
    if not 1 <= stored["draws"] <= folder.planned.draws * 100:
        raise ValueError(f"{stem}: {stored['draws']} draws")
    return Subject(
        stem=stem,
        bundle=told["request"]["bundle"],
        seed=told["seed"],
        offer=stored.get("candidates", "S0"),
        candidates=told.get("candidates", "S0"),
        fulls=given["full"],
        oracles=given["oracle"],
        unlearned=dict(given["unlearned"]),
        methods={model["label"]: (model["method"], model["control"]) for model in stored["models"]},
        forgotten=tuple(stored["forgotten"]),
        unit_kind=stored["unit_kind"],
        draws=stored["draws"],
        before=before,
        cell=None,
    )


def _of_this_plan(stored: Any, cell: plan_audit.Cell) -> bool:
    mine = {entry["label"]: entry["key"] for entry in cell.registered if entry["label"] in cell.unlearned}
    return bool(stored["provenance"].get("evaluations") == mine)


def _seeded(role: str, seed: int, own: int) -> str:
    return role if seed == own else f"{role} (seed {seed})"


def recomputed(folder: Folder, subject: Subject) -> Recomputed:
    """An assessment, worked out once from its tables."""
    key = (
        "recomputed",
        tuple(subject.fulls),
        tuple(subject.oracles),
        tuple(subject.unlearned.items()),
        subject.forgotten,
        subject.draws,
        subject.before,
    )
    return folder.once(key, lambda: _recompute(folder, subject))


def _recompute(folder: Folder, subject: Subject) -> Recomputed:
    fulls, oracles = ([folder.table(path) for _, path in group] for group in (subject.fulls, subject.oracles))
    unlearned = {label: folder.table(path) for label, path in subject.unlearned.items()}
    labels = (subject.fulls[0][0], subject.oracles[0][0] if oracles else "")
    made = Recomputed({}, {}, {})
    draws = subject.draws
    for name, seed in SEEDS.items():
        view = made.views[name] = numbers.view_of(name, fulls, unlearned, oracles, labels, subject.forgotten)
        stats = {
            (label, metric, name): stat
            for label, role, p in view.models
            for metric, stat in numbers.statistics_of(view, role, p).items()
            if metric != "excess_distance" or subject.before
        }
        for role in ("full", "oracle"):
            floor = view.floor(role)
            if floor is not None:
                stats["", f"noise_{role}", name] = floor
        if view.oracle is not None and name != "R":
            tested = [(label, p) for label, role, p in view.models if role == "unlearned"]
            for (one, p), (other, q) in combinations(tested, 2):
                gap = numbers.js(p, view.oracle) - numbers.js(q, view.oracle)
                stats[one, f"against {other}", name] = numbers.mean(gap)
        made.row |= numbers.resample(stats, draws, seed)
        if name != "R":
            made.unit |= numbers.resample(stats, draws, seed + UNIT_OFFSET, view.units)
    _over_both(made, draws)
    return made


def _over_both(made: Recomputed, draws: int) -> None:
    """What is measured over F and G together; equal units are drawn alike for every model."""
    f, g = made.views["F"], made.views["G"]
    if f.oracle is None:
        return
    first: dict[Key, Stat] = {}
    second: dict[Key, Stat] = {}
    for (label, role, p_f), (_, _, p_g) in zip(f.models, g.models, strict=True):
        if role == "unlearned":
            first |= {(label, name, "FG"): stat for name, stat in numbers.over_both(f, p_f).items()}
            second |= {(label, name, "FG"): stat for name, stat in numbers.over_both(g, p_g).items()}
    row, unit = numbers.both_views(f, g, first, second, draws)
    made.row |= row
    made.unit |= unit


def intervention_of(subject: Subject, made: Recomputed) -> str:
    label = subject.fulls[0][0]
    states = []
    for view in ("F", "G"):
        start = made.row.get((label, "displacement", view))
        noise = made.row.get(("", "noise_full", view))
        if start is None or noise is None:
            return "gate not run"
        states.append(start.value > 2 * noise.value)
    return "passed" if all(states) else "displacement within noise"


def sources_of(folder: Folder, subject: Subject) -> list[dict[str, Any]]:
    groups = (
        ("full", subject.fulls),
        ("unlearned", list(subject.unlearned.items())),
        ("oracle", subject.oracles),
    )
    return [
        {
            "label": label,
            "role": role,
            "path": path,
            "sha256": folder.table(path).sha256,
            "max_sum_deviation": Near(folder.table(path).off, 1e-12),
        }
        for role, group in groups
        for label, path in group
    ]
