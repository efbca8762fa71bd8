"""Study files: typed YAML, read safely, every key known or refused in one line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, Field, PrivateAttr, ValidationError

from vestige.contracts import Margins, Record
from vestige.data.intents import DatasetSpec
from vestige.errors import InputError, MissingDependency, did_you_mean, first_five, shown
from vestige.limits import MOST_DRAWS
from vestige.readers import yaml_mapping
from vestige.study.candidates import refuse_undefined
from vestige.study.deletion_plan import (
    CUSTOM_BUNDLE,
    DEVELOPMENT_BUNDLE,
    BundleLabels,
    DeletionPlan,
    check_deletion,
    each_once,
)
from vestige.study.recovery_plan import RecoveryPlan, check_recovery
from vestige.wording import needed, refuse_misread

__all__ = [
    "CUSTOM_BUNDLE",
    "DEFAULT_SEED",
    "DEVELOPMENT_BUNDLE",
    "STAGES",
    "DeletionPlan",
    "MethodEntry",
    "Plan",
    "PlannedCell",
    "PlannedCells",
    "Stage",
    "TuningPlan",
    "anchored",
    "build_plan",
    "checked",
    "folder_name",
    "parse_plan",
]

Stage = Literal[
    "pilot",
    "development",
    "development_reference",
    "reference",
    "confirmation",
    "confirmation_sensitivity",
    "screening",
    "replication",
    "transfer",
    "control",
    "exploratory",
    "excluded",
]
STAGES: tuple[str, ...] = get_args(Stage)

DEFAULT_SEED = 17
R = TypeVar("R", bound=BaseModel)
LABEL = re.compile(r"[^\s/\\\x00-\x1f][^/\\\x00-\x1f]{0,79}")
LABELS = "1 to 80 characters, none of them '/', '\\' or a control character, the first no space"


class MethodEntry(Record):
    """One unlearning configuration. label: short name in reports, unique in the study.

    settings: the method's own. frozen: take them from a frozen.json instead (true: the one in the run folder,
    else its path). frozen_by: as frozen, from what the study of this name froze: the record in its folder
    beside the run folder, or one that `--frozen` names; matched: its record of suppression matched to this
    target instead, every listing of the method in it unless a label picks one. In an exploratory study
    settings beside frozen ones replace those of the same name. lengths: evaluate runs of that many lengths,
    spread evenly up to the settings' epochs. bundles, seeds: a part of the study's; None: all.
    """

    method: str
    label: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    frozen: bool | str = False
    frozen_by: str | None = None
    matched: float | None = Field(None, gt=0)
    lengths: int | None = Field(None, ge=1)
    bundles: BundleLabels | None = None
    seeds: tuple[int, ...] | None = None

    @property
    def takes_frozen(self) -> bool:
        """Whether its settings come from a record of frozen settings."""
        return bool(self.frozen) or self.frozen_by is not None

    def at(self, bundle: str, seed: int) -> bool:
        """Whether it is evaluated on a bundle at a seed."""
        return (self.bundles is None or bundle in self.bundles) and (self.seeds is None or seed in self.seeds)


class PlannedCells(Record):
    """Some bundles of a study at some of its seeds; None: all. stage: of their evaluations; None: the
    study's."""

    bundles: BundleLabels | None = None
    seeds: tuple[int, ...] | None = None
    stage: Stage | None = None


@dataclass(frozen=True)
class PlannedCell:
    """One request at one training seed, and the stage of its evaluations."""

    bundle: str
    seed: int
    stage: Stage


class TuningPlan(Record):
    """How settings are chosen on bundle 00. grid: method -> field -> values, over the method's default grid.

    epochs: most epochs a point is trained for. prune: a point stops early after 2 epochs in a row that are
    infeasible, or 3 without a better objective (our rule); budgets then count as unequal, and suppression
    cannot be matched. development_rows: at most this many retained
    development rows, chosen by hash, are scored after each epoch.
    """

    grid: dict[str, dict[str, list[Any]]] = Field(default_factory=dict)
    epochs: int = Field(10, ge=1)
    prune: bool = False
    development_rows: int | None = Field(None, ge=50)


class Plan(Record):
    """A study: one data set, one model, one deletion, some seeds and methods.

    cells: which bundles are evaluated at which seeds, where it is not every one at every one. noise_seeds:
    further full models, for the floor of full models. oracle_seeds: further oracles of each request, for the
    floor of oracles. family: labels that Holm's correction covers (default: of a confirmation the frozen
    family, else none); where settings are frozen, the candidates that a confirmation must list. primary_seed:
    of the full model that decides eligibility; default the first seed, in a file with arms the file's first.
    reuse: studies whose run folders beside this one's give the parts that they have finished. excluded: name
    -> why, of models that were meant to be here and are not, for the record alone. arm, scale: which arm of a
    sweep this is and what it was scaled to, filled in when a study is read. about: one line for listings.
    draws: bootstrap resamples. candidates: candidate sets that the finished models are scored under, S0 (all
    options) among them; own_sets: further ones, name -> option ids. probes: further ways of asking the
    finished models, under which the verdict has to hold: at other softmax temperatures, with options under
    codes, under their descriptions or `synonyms` (option id -> other text). margins: what verdicts count as
    small, set before results are seen; no model depends on it. seed_metrics: score a random
    model of each seed too, for ZRF. seen_start: run although the backbone is a classifier of these labels,
    whose weights saw the rows that are to be deleted; every page says so. recovery: adapt the checkpoints
    after they were assessed, on few rows of the deleted classes.
    """

    name: str
    about: str = ""
    arm: str = ""
    scale: str = ""
    stage: Stage = "pilot"
    dataset: DatasetSpec
    model: dict[str, Any] = Field(default_factory=dict)
    training: dict[str, Any] = Field(default_factory=dict)
    rendering: Literal["semantic", "opaque"] = "semantic"
    map_seed: int | None = None
    deletion: DeletionPlan = DeletionPlan()
    seeds: tuple[int, ...] = (DEFAULT_SEED,)
    cells: tuple[PlannedCells, ...] | None = None
    noise_seeds: tuple[int, ...] = ()
    oracle_seeds: tuple[int, ...] = ()
    methods: tuple[MethodEntry, ...] = ()
    tuning: TuningPlan = TuningPlan()
    family: tuple[str, ...] | None = None
    primary_seed: int | None = None
    reuse: tuple[str, ...] = ()
    excluded: dict[str, str] = Field(default_factory=dict)
    draws: int = Field(5000, ge=100, le=MOST_DRAWS)
    candidates: tuple[Literal["S0", "S1", "S2"], ...] = ("S0",)
    own_sets: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    probes: tuple[Literal["temperature", "renaming", "paraphrase"], ...] = ()
    synonyms: dict[str, str] = Field(default_factory=dict)
    margins: Margins = Margins()
    seed_metrics: bool = False
    seen_start: bool = False
    recovery: RecoveryPlan | None = None
    _source: str = PrivateAttr("")

    @property
    def source(self) -> str:
        """The file that said it, for messages; the study's name where there was none."""
        return self._source or self.name

    @contextmanager
    def naming_the_file(self) -> Iterator[None]:
        """Inside, a bad setting is named with the file that it stands in."""
        try:
            yield
        except MissingDependency:
            raise
        except InputError as error:
            subject = f"{self.source}: {error.subject}"
            raise InputError(subject, error.found, error.needed, error.remedy) from None

    @property
    def offered_sets(self) -> tuple[str, ...]:
        """Names of every candidate set that models are scored under."""
        return (*self.candidates, *self.own_sets)

    @property
    def primary(self) -> int:
        """The seed whose full model decides which units are eligible."""
        return self.seeds[0] if self.primary_seed is None else self.primary_seed

    @property
    def bundles(self) -> tuple[str, ...]:
        """Labels of the requests that are evaluated."""
        return self.deletion.bundles if self.deletion.bundled else (CUSTOM_BUNDLE,)

    @property
    def planned(self) -> tuple[PlannedCell, ...]:
        """What is evaluated: bundle by bundle, seeds in order."""
        stage_of = {
            (bundle, seed): part.stage or self.stage
            for part in self.cells or (PlannedCells(),)
            for bundle in (self.bundles if part.bundles is None else part.bundles)
            for seed in (self.seeds if part.seeds is None else part.seeds)
        }
        return tuple(
            PlannedCell(bundle, seed, stage_of[bundle, seed])
            for bundle in self.bundles
            for seed in self.seeds
            if (bundle, seed) in stage_of
        )

    @property
    def stages(self) -> frozenset[Stage]:
        """Stages of its evaluations."""
        return frozenset(cell.stage for cell in self.planned)

    def seeds_of(self, bundle: str) -> tuple[int, ...]:
        """Seeds at which a bundle is evaluated."""
        return tuple(cell.seed for cell in self.planned if cell.bundle == bundle)

    def full_seeds_of(self, bundle: str) -> tuple[int, ...]:
        """Seeds of the full models that are scored on a bundle: evaluated ones first, then noise seeds."""
        return tuple(dict.fromkeys((*self.seeds_of(bundle), *self.noise_seeds)))

    def oracle_seeds_of(self, bundle: str) -> tuple[int, ...]:
        """Seeds of the oracles of a bundle: evaluated ones first."""
        return tuple(dict.fromkeys((*self.seeds_of(bundle), *self.oracle_seeds)))

    @property
    def full_seeds(self) -> tuple[int, ...]:
        """Seeds of every full model that is scored on a bundle: evaluated seeds first, then noise seeds."""
        return tuple(dict.fromkeys((*self.seeds, *self.noise_seeds)))


def checked(model: type[R], raw: object, subject: str) -> R:
    """`raw` as a record. Raises a one-line InputError that names the key, with a suggestion when unknown."""
    if not isinstance(raw, Mapping):
        raise InputError(
            subject, shown(str(raw)), "a mapping of keys", f"known keys: {', '.join(model.model_fields)}"
        )
    _know(raw, model, subject)
    try:
        found = model.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        where, given = where.removeprefix("."), first.get("input")
        if first["type"] == "missing":
            raise InputError(subject, f"no key '{where}'", f"'{where}'", "add it") from None
        if first["type"] == "extra_forbidden":
            raise InputError(subject, f"unknown key '{where}'", "a known key", "remove it") from None
        remedy = "correct the value"
        if first["type"] == "literal_error" and isinstance(first.get("input"), str):
            remedy = did_you_mean(first["input"], re.findall(r"'([^']*)'", first["ctx"]["expected"]))
        raise InputError(
            f"{subject}: {where}" if where else subject,
            shown(given if isinstance(given, str) else repr(given)),
            needed(first),
            remedy,
        ) from None
    refuse_misread(raw, found, subject)
    return found


def _know(raw: Mapping[Any, Any], model: type[BaseModel], subject: str) -> None:
    """Raise InputError for a key that is no field of `model`."""
    for key in raw:
        if key not in model.model_fields:
            raise InputError(
                subject,
                f"unknown key {shown(str(key))}",
                "a known key",
                did_you_mean(str(key), model.model_fields),
            )


def parse_plan(text: str, subject: str) -> Plan:
    """A plan from YAML text. subject: the file's name, for messages. Raises InputError, one line."""
    return build_plan(yaml_mapping(text, subject), subject)


def build_plan(raw: Mapping[str, Any], subject: str) -> Plan:
    """A plan from what a study file says. Raises InputError, one line."""
    parts = dict(raw)
    _know(parts, Plan, subject)
    sections: tuple[tuple[str, type[Record]], ...] = (
        ("dataset", DatasetSpec),
        ("deletion", DeletionPlan),
        ("tuning", TuningPlan),
        ("recovery", RecoveryPlan),
        ("margins", Margins),
    )
    for key, section in sections:
        if isinstance(parts.get(key), str) and key == "dataset":
            parts[key] = {"name": parts[key]}
        if parts.get(key) is not None or (key in parts and key != "recovery"):
            parts[key] = checked(section, parts[key], f"{subject}: {key}")
    entries = parts.get("methods", [])
    if not isinstance(entries, list):
        raise InputError(
            f"{subject}: methods", shown(str(entries)), "a list", "put each method on a line with '- '"
        )
    parts["methods"] = tuple(
        checked(
            MethodEntry,
            {"method": entry} if isinstance(entry, str) else entry,
            f"{subject}: methods[{index}]",
        )
        for index, entry in enumerate(entries)
    )
    if isinstance(parts.get("cells"), list):
        parts["cells"] = tuple(
            checked(PlannedCells, entry, f"{subject}: cells[{index}]")
            for index, entry in enumerate(parts["cells"])
        )
    plan = checked(Plan, parts, subject)
    _check(plan, subject)
    plan._source = subject
    return plan


def folder_name(text: str) -> bool:
    """Whether a folder can be called so: 1 to 80 characters, at most 200 bytes, no '/', not '.' or '..'."""
    return LABEL.fullmatch(text) is not None and text not in (".", "..") and len(text.encode()) <= 200


def _check(plan: Plan, subject: str) -> None:
    """What types cannot say. Raises InputError."""
    if not folder_name(plan.name):
        raise InputError(f"{subject}: name", shown(plan.name), LABELS, "choose another")
    if not plan.seeds:
        raise InputError(
            f"{subject}: seeds", "an empty list", "at least one seed", "add one, for example [17]"
        )
    for key in ("seeds", "noise_seeds", "oracle_seeds"):
        each_once(getattr(plan, key), f"{subject}: {key}")
        if any(not 0 <= seed < 2**63 for seed in getattr(plan, key)):
            raise InputError(
                f"{subject}: {key}", "a negative or huge seed", "seeds of 0 or more, below 2^63", "correct it"
            )
    if not 0 <= plan.primary < 2**63:
        raise InputError(
            f"{subject}: primary_seed", str(plan.primary), "a seed of 0 or more, below 2^63", "correct it"
        )
    if plan.rendering == "opaque" and plan.map_seed is None:
        raise InputError(
            f"{subject}: map_seed", "none", "a seed for the opaque codes", "add, for example, map_seed: 0"
        )
    if plan.rendering == "semantic" and plan.map_seed is not None:
        raise InputError(
            f"{subject}: map_seed", str(plan.map_seed), "none under the semantic rendering", "remove it"
        )
    check_deletion(plan.deletion, f"{subject}: deletion")
    each_once(plan.candidates, f"{subject}: candidates")
    refuse_undefined(plan.offered_sets, plan.deletion.granularity, f"{subject}: candidates")
    for name in plan.own_sets:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,39}", name) or name in ("S0", "S1", "S2"):
            raise InputError(
                f"{subject}: own_sets",
                shown(name),
                "a name of letters, digits and '_', other than S0, S1, S2",
                "rename it",
            )
    _check_cells(plan, subject)
    _check_methods(plan, subject)
    for name in plan.reuse:
        if not folder_name(name):
            raise InputError(f"{subject}: reuse", shown(name), "names of studies", "correct it")
    if plan.recovery is not None:
        given = (plan.deletion.granularity, plan.bundles, plan.seeds)
        check_recovery(plan.recovery, *given, f"{subject}: recovery")


def _check_cells(plan: Plan, subject: str) -> None:
    """Parts name bundles and seeds of the study, no cell twice, and leave none of either out."""
    if plan.cells is None:
        return
    if not plan.cells:
        raise InputError(
            f"{subject}: cells", "an empty list", "at least one part", "add one, or remove the key"
        )
    seen: list[str] = []
    for index, part in enumerate(plan.cells):
        place = f"{subject}: cells[{index}]"
        _check_part(plan, part.bundles, part.seeds, place)
        seen += [
            f"{bundle}-s{seed}"
            for bundle in (plan.bundles if part.bundles is None else part.bundles)
            for seed in (plan.seeds if part.seeds is None else part.seeds)
        ]
    each_once(seen, f"{subject}: cells")
    for key, all_of, used in (
        ("deletion: bundles", plan.bundles, {cell.bundle for cell in plan.planned}),
        ("seeds", plan.seeds, {cell.seed for cell in plan.planned}),
    ):
        if idle := [str(item) for item in all_of if item not in used]:
            raise InputError(
                f"{subject}: {key}",
                f"{first_five(idle)}, in no cell",
                "each in a cell",
                "add a cell or remove it",
            )


def _check_part(
    plan: Plan, bundles: tuple[str, ...] | None, seeds: tuple[int, ...] | None, place: str
) -> None:
    """Raise InputError for bundles or seeds that the study does not have."""
    for key, given, known in (("bundles", bundles, plan.bundles), ("seeds", seeds, plan.seeds)):
        if given is None:
            continue
        each_once(given, f"{place}: {key}")
        if strange := [item for item in given if item not in known]:
            raise InputError(
                f"{place}: {key}",
                shown(str(strange[0])),
                f"{key} of the study ({', '.join(map(str, known))})",
                did_you_mean(str(strange[0]), map(str, known)),
            )
        if not given:
            raise InputError(f"{place}: {key}", "an empty list", "at least one", "add one, or remove the key")


def _check_methods(plan: Plan, subject: str) -> None:
    for index, entry in enumerate(plan.methods):
        place = f"{subject}: methods[{index}]"
        if entry.label is not None and not LABEL.fullmatch(entry.label):
            raise InputError(f"{place}: label", shown(entry.label), LABELS, "choose another")
        _check_part(plan, entry.bundles, entry.seeds, place)
        exploratory = plan.stages == {"exploratory"}
        if entry.takes_frozen and entry.settings and not exploratory:
            raise InputError(
                place,
                "settings beside frozen ones",
                "one of them, or stage: exploratory, where they replace frozen ones",
                "remove the settings",
            )
        if entry.frozen and entry.frozen_by is not None:
            raise InputError(place, "frozen and frozen_by", "one of them", "remove one")
        if entry.matched is not None and entry.frozen_by is None:
            raise InputError(
                f"{place}: matched",
                f"{entry.matched:g}",
                "frozen_by beside it",
                "name the study that matched",
            )
        if entry.lengths is not None and not exploratory:
            raise InputError(
                f"{place}: lengths",
                str(entry.lengths),
                "none but in an exploratory study: the best length is chosen after the fact",
                "remove it, or set stage: exploratory",
            )
        if "confirmation" in plan.stages and not entry.takes_frozen:
            raise InputError(
                place,
                f"settings of '{entry.method}' that are not frozen",
                "frozen: true in a confirmation",
                "run `vestige study tune` and `vestige study freeze` first, or set stage: pilot",
            )
    labels = [entry.label for entry in plan.methods if entry.label is not None]
    each_once(labels, f"{subject}: methods, labels")


def anchored(plan: Plan, folder: Path, arms: Collection[str] = ()) -> Plan:
    """The plan with paths that exist relative to `folder` made absolute, and the folder of `drawn_by` too.

    arms: names that `drawn_by` may be instead.
    """
    update = {
        key: str((folder / value).resolve())
        for key in ("path", "descriptions")
        if (value := getattr(plan.dataset, key)) is not None and (folder / value).exists()
    }
    methods = tuple(
        entry.model_copy(update={"frozen": str((folder / entry.frozen).resolve())})
        if isinstance(entry.frozen, str) and (folder / entry.frozen).is_file()
        else entry
        for entry in plan.methods
    )
    dataset = DatasetSpec.model_validate({**plan.dataset.model_dump(exclude_unset=True), **update})
    deletion, drawn_by = plan.deletion, plan.deletion.drawn_by
    if drawn_by is not None and drawn_by not in arms:
        deletion = deletion.model_copy(update={"drawn_by": str((folder / drawn_by).resolve())})
    return plan.model_copy(update={"dataset": dataset, "methods": methods, "deletion": deletion})
