"""Studies with arms: one file, several plans, a run folder for each; and studies scaled down.

    DIR/study.yaml, sweep.json     the file as given; the arms in order
    DIR/arms/<arm>/                an ordinary run folder

Equal models are made once: an arm takes finished parts of the other arms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vestige.contracts import Assessment
from vestige.data.intents import DatasetSpec, IntentData, load_intents
from vestige.errors import InputError, did_you_mean, shown
from vestige.files import writable_folder, write_text
from vestige.readers import yaml_mapping
from vestige.study.bundle_names import differing_bundles
from vestige.study.deletion_plan import each_once
from vestige.study.deletions import DRAWING_GATE
from vestige.study.freeze import matched_name
from vestige.study.frozen import FROZEN, read_frozen
from vestige.study.plan import DEFAULT_SEED, LABELS, MethodEntry, Plan, anchored, build_plan, folder_name
from vestige.study.pool import Failure, Reporter, Silent
from vestige.study.runner import Execution, run_study
from vestige.study.source import source_text
from vestige.study.store import (
    ARMS,
    SWEEP,
    canonical,
    listed_arms,
    read_json,
    refuse_strangers,
    run_folders,
)

__all__ = ["SCALES", "Study", "StudyRun", "arm_folders", "load_study", "open_sweep", "placed", "run_all"]

FORMAT = "vestige-sweep-1"
SMALL = "small"
SCALES = (SMALL,)
TRAINING = {"epochs": 5, "batch_size": 64, "learning_rate": 2e-3}
"""What suits MiniLM with LoRA on some thousand rows."""
ROW_SHARE, MOST_BUNDLES, MOST_SEEDS = 0.3, 3, 2
LONGEST_PATH = 1000
"""Characters of a path that an error line shows."""


OWN = ""
"""Of the records given by hand: the one for entries with `frozen: true`."""
Source = tuple[str, float | None]
"""Study and target of a record of frozen settings, as an entry names them."""


@dataclass(frozen=True)
class Study:
    """A study file as read. arms: name -> plan; the name is "" for a file without arms. merged: arms that are
    equal to another one at this scale, and which. records: frozen settings given by hand, by study and
    target."""

    name: str
    text: str
    arms: dict[str, Plan]
    scale: str = ""
    merged: dict[str, str] | None = None
    records: dict[Source, Path] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        """The first arm's plan: the one that is tuned and frozen."""
        return next(iter(self.arms.values()))

    @property
    def sweeps(self) -> bool:
        """Whether the run folder holds arms."""
        return "" not in self.arms


@dataclass(frozen=True)
class StudyRun:
    """What running left. assessments: path below root -> record. notes: a sentence for each bundle label that
    stands for different rows in different arms."""

    root: Path
    assessments: dict[str, Assessment]
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()


def load_study(
    source: str | Path,
    *,
    data: Path | None = None,
    scale: str | None = None,
    frozen: Sequence[Path] = (),
) -> Study:
    """A study file, or a shipped study's name, with its arms: `arms`, or every combination of its `axes`.

    All arms draw their targets at one seed, and what one arm reserves, all that draw from the same data,
    granularity and salt reserve.

    data: where the data set lies. scale: "small" takes 30 % of the training rows, at most 3 bundles and 2
    seeds, and the MiniLM encoder in place of other backbones; the file's `scales: {small: ...}` comes on top.
    frozen: records of frozen settings: for entries with `frozen_by` the one of that study, another for those
    with `frozen: true`. Raises InputError.
    """
    text, subject, folder = source_text(source)
    raw = yaml_mapping(text, subject)
    scales, arms = _mapping(raw, "scales", subject), _arms(raw, subject)
    own = _scale(scales, scale, subject)
    own_arms = _mapping(own, "arms", f"{subject}: scales.{scale}") or {}
    for name, changes in own_arms.items():
        if changes is not None:
            _changes(changes, f"{subject}: scales.{scale}.arms.{name}")
        if name not in (arms or {}):
            raise InputError(
                f"{subject}: scales.{scale}.arms",
                shown(str(name)),
                "an arm of the file",
                did_you_mean(name, arms or {}),
            )
    found: dict[str, dict[str, Any]] = {}
    primary = _primary(raw, arms or {}, subject)
    for name, changes in (arms or {"": {}}).items():
        if name in own_arms and own_arms[name] is None:
            continue
        place = f"{subject}: arms.{name}" if name else subject
        if arms is not None and not (isinstance(name, str) and folder_name(name)):
            raise InputError(f"{subject}: arms", shown(str(name)), LABELS, "rename it")
        made = merge(raw, _changes(changes, place))
        if scale:
            made = merge(merge(_small(made, place), own), own_arms.get(name, {}))
        if primary is not None:
            made["primary_seed"] = primary
        found[str(name)] = made
    if not found:
        raise InputError(f"{subject}: arms", "none", "at least one arm", "add one, or remove the key")
    merged = _equal(found)
    plans = {}
    for name, made in found.items():
        if name in merged:
            continue
        place = f"{subject}: arms.{name}" if name else subject
        plan = build_plan(made, place)
        if folder is not None:
            plan = anchored(plan, folder, found)
        plans[name] = _settled(plan, name, data, scale)
    plans = _reserving(plans)
    first = next(iter(plans.values()))
    records = _records(frozen, plans)
    return Study(first.name, text, plans, scale or "", merged or None, records)


def _primary(raw: Mapping[str, Any], arms: Mapping[str, Any], subject: str) -> Any:
    """The seed that decides what every arm deletes: the file's. None: a file without arms says it itself.

    Raises InputError for an arm that names another.
    """
    if not arms:
        return None
    seeds = raw.get("seeds")
    own = raw.get("primary_seed", seeds[0] if isinstance(seeds, list) and seeds else DEFAULT_SEED)
    for name, changes in arms.items():
        other = changes.get("primary_seed", own) if isinstance(changes, Mapping) else own
        if other != own:
            raise InputError(
                f"{subject}: arms.{name}: primary_seed",
                shown(str(other)),
                f"{own}, the file's: what is deleted is drawn once for all arms",
                "remove the key, or make a study of its own",
            )
    return own


def _reserving(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """The plans, each with every bundle that one of them reserves of the same data, granularity and salt."""
    held: dict[str, set[str]] = {}
    for plan in plans.values():
        held.setdefault(_reserve(plan), set()).update(plan.deletion.reserved)
    found = {}
    for name, plan in plans.items():
        reserved = tuple(sorted(held[_reserve(plan)]))
        if both := [label for label in plan.deletion.bundles if label in reserved]:
            raise InputError(
                f"{plan.source}: deletion: bundles",
                f"bundle {both[0]}, which another arm reserves",
                "bundles that no arm reserves: a reserve binds every arm",
                "remove it from one",
            )
        deletion = plan.deletion.model_copy(update={"reserved": reserved})
        found[name] = plan if reserved == plan.deletion.reserved else _with(plan, deletion=deletion)
    return found


def _reserve(plan: Plan) -> str:
    """What a list of reserved bundles belongs to."""
    return canonical([plan.dataset.model_dump(mode="json"), plan.deletion.granularity, plan.deletion.salt])


def _with(plan: Plan, **changes: Any) -> Plan:
    """The plan with other values of some keys; the file that said it stays known."""
    made = plan.model_copy(update=changes)
    made._source = plan._source
    return made


def _arms(raw: dict[str, Any], subject: str) -> dict[str, Any] | None:
    """The arms of a file: named ones, or the product of its axes, named `class+qwen3-4b`."""
    arms, axes = _mapping(raw, "arms", subject), _mapping(raw, "axes", subject)
    if axes is None:
        return arms
    if arms is not None:
        raise InputError(subject, "arms and axes", "one of them", "write the arms out, or give axes alone")
    made: dict[str, Any] = {"": {}}
    for axis, values in axes.items():
        if not isinstance(values, dict) or not values:
            raise InputError(
                f"{subject}: axes.{axis}", shown(str(values)), "a mapping of names", "give each value a name"
            )
        for name, changes in values.items():
            _changes(changes, f"{subject}: axes.{axis}.{name}")
        pairs = [
            (f"{before}+{name}" if before else str(name), merge(start, changes))
            for before, start in made.items()
            for name, changes in values.items()
        ]
        each_once([name for name, _ in pairs], f"{subject}: axes, arms by name")
        made = dict(pairs)
    return made


def _changes(value: object, place: str) -> Mapping[str, Any]:
    """What an arm changes. Raises InputError where it is no mapping."""
    if not isinstance(value, Mapping):
        raise InputError(place, shown(str(value)), "a mapping of what differs", "write {} for nothing")
    return value


def _mapping(raw: dict[str, Any], key: str, subject: str) -> dict[str, Any] | None:
    value = raw.pop(key, None)
    if value is None:
        return None
    if not isinstance(value, dict) or not value:
        raise InputError(f"{subject}: {key}", shown(str(value)), "a mapping of names", "give each a name")
    return value


def _scale(scales: dict[str, Any] | None, scale: str | None, subject: str) -> dict[str, Any]:
    for name in scales or {}:
        if name not in SCALES:
            raise InputError(f"{subject}: scales", shown(str(name)), SMALL, did_you_mean(str(name), SCALES))
    if scale is None:
        return {}
    if scale not in SCALES:
        raise InputError("scale", shown(scale), SMALL, did_you_mean(scale, SCALES))
    own = (scales or {}).get(scale, {})
    if not isinstance(own, dict):
        raise InputError(f"{subject}: scales.{scale}", shown(str(own)), "a mapping", "name what differs")
    return dict(own)


def merge(raw: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`raw` with `changes` on top: mappings in mappings are merged, other values replaced, null removes."""
    made = dict(raw)
    for key, value in changes.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(made.get(key), Mapping):
            made[key] = merge(made[key], value)
        else:
            made[key] = value
    return made


def _small(raw: Mapping[str, Any], place: str) -> dict[str, Any]:
    """What `--scale small` changes of any study [ours]: fewer rows, bundles and seeds, the MiniLM encoder."""
    made = dict(raw)
    dataset = made.get("dataset", {})
    for key, value in (
        ("dataset", {} if isinstance(dataset, str) else dataset),
        ("deletion", made.get("deletion") or {}),
    ):
        if not isinstance(value, Mapping):
            raise InputError(f"{place}: {key}", shown(str(value)), "a mapping of keys", "correct the value")
    made["dataset"] = {**({"name": dataset} if isinstance(dataset, str) else dataset), "row_share": ROW_SHARE}
    made["model"] = {"backbone": "minilm"}
    made["training"] = dict(TRAINING)
    deletion = dict(made.get("deletion") or {})
    if isinstance(deletion.get("bundles"), list):
        deletion["bundles"] = deletion["bundles"][:MOST_BUNDLES]
    made["deletion"] = deletion
    for key in ("seeds", "noise_seeds", "oracle_seeds"):
        if isinstance(made.get(key), list):
            seeds = made[key][: MOST_SEEDS if key == "seeds" else 1]
            made[key] = [seed for seed in seeds if key == "seeds" or seed not in made.get("seeds", [])]
    for key in ("cells", "methods"):
        if isinstance(made.get(key), list):
            parts = [_within(part, made) for part in made[key]]
            made[key] = [part for part in parts if part is not None]
    if isinstance(made.get("recovery"), Mapping):
        made["recovery"] = _within(made["recovery"], made) or made["recovery"]
    return made


def _within(part: Any, made: Mapping[str, Any]) -> Any:
    """A part of a study cut to the bundles and seeds that there are; None where nothing of it is left."""
    if not isinstance(part, Mapping):
        return part
    cut = dict(part)
    for key, known in (("bundles", made["deletion"].get("bundles")), ("seeds", made.get("seeds"))):
        if isinstance(cut.get(key), list) and isinstance(known, list):
            cut[key] = [item for item in cut[key] if item in known]
            if not cut[key]:
                return None
    return cut


def _equal(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Arms that say the same as an earlier one -> that one."""
    seen: dict[str, str] = {}
    found: dict[str, str] = {}
    for name, raw in arms.items():
        text = json.dumps(
            {key: value for key, value in raw.items() if key != "about"}, sort_keys=True, default=str
        )
        if text in seen:
            found[name] = seen[text]
        else:
            seen[text] = name
    return found


def _settled(plan: Plan, arm: str, data: Path | None, scale: str | None) -> Plan:
    update: dict[str, Any] = {"arm": arm, "scale": scale or ""}
    if data is not None:
        raw = {**plan.dataset.model_dump(exclude_unset=True), "path": str(data)}
        update["dataset"] = DatasetSpec.model_validate(raw)
    return _with(plan, **update)


def _records(given: Sequence[Path], plans: Mapping[str, Plan]) -> dict[Source, Path]:
    """The records given by hand, by what entries call them. Raises InputError: two for one, one for none."""
    entries = [entry for plan in plans.values() for entry in plan.methods]
    named = {(entry.frozen_by, entry.matched) for entry in entries if entry.frozen_by is not None}
    found: dict[Source, Path] = {}
    for path in given:
        record = read_frozen(path)
        source: Source = (record.study, record.match)
        if source not in named:
            if not any(entry.frozen is True for entry in entries):
                known = ", ".join(sorted(f"'{_said(item)}'" for item in named)) or "no frozen settings"
                raise InputError(
                    str(path), f"a record of '{_said(source)}'", f"one of {known}", "name that file"
                )
            source = (OWN, None)
        if source in found:
            raise InputError(
                str(path), f"a second record beside {found[source]}", "one of each study", "leave one out"
            )
        found[source] = path
    return found


def _said(source: tuple[str | None, float | None]) -> str:
    study, match = source
    return f"{study}, matched to {match:g}" if match is not None else f"{study}"


def arm_folders(study: Study, out: Path) -> dict[str, Path]:
    """Arm -> its run folder."""
    return {name: out / ARMS / name if study.sweeps else out for name in study.arms}


def placed(study: Study, root: Path, *, lenient: bool = False) -> dict[str, Plan]:
    """Every arm's plan with what depends on where it runs: the folders that draw and reserve its bundles, and
    the records that its settings come from.

    lenient: leave out what is not there yet, instead of raising InputError.
    """
    folders = arm_folders(study, root)
    first = next(iter(folders.values()))
    found: dict[str, Plan] = {}
    drawing: dict[str, Path] = {}
    for name, plan in study.arms.items():
        made = _drawn_by(plan, folders, study.merged or {})
        deletion = made.deletion
        if deletion.reserved and deletion.drawn_by is None and deletion.gated:
            before = drawing.setdefault(_reserve(plan), folders[name])
            if before != folders[name]:
                deletion = deletion.model_copy(update={"reserved_by": str(before)})
        methods = tuple(
            _sourced(entry, index, plan, study, root, folders[name], first, lenient)
            for index, entry in enumerate(plan.methods)
        )
        found[name] = _with(made, deletion=deletion, methods=methods)
    return found


def _sourced(
    entry: MethodEntry,
    index: int,
    plan: Plan,
    study: Study,
    root: Path,
    folder: Path,
    first: Path,
    lenient: bool,
) -> MethodEntry:
    """The entry with the file that its settings come from."""
    if entry.frozen is True:
        path = study.records.get((OWN, None))
        if path is None and not (folder / FROZEN).is_file() and (first / FROZEN).is_file():
            path = first / FROZEN
        return entry if path is None else entry.model_copy(update={"frozen": str(path)})
    if entry.frozen_by is None:
        return entry
    path = study.records.get((entry.frozen_by, entry.matched))
    if path is None:
        beside = beside_folder(root, entry.frozen_by, study.scale)
        name = FROZEN if entry.matched is None else matched_name(entry.matched)
        path = next((at / name for at in _holders(beside) if (at / name).is_file()), None)
        if path is None and not lenient:
            more = "" if entry.matched is None else f" --match-suppression {entry.matched:g}"
            raise InputError(
                f"{plan.source}: methods[{index}] ({entry.method})",
                f"no {name} in {beside}",
                f"the settings that the study '{entry.frozen_by}' froze",
                f"run `vestige study tune {entry.frozen_by}` and `vestige study freeze {beside}{more}`, or "
                "name the file with --frozen",
            )
    return entry if path is None else entry.model_copy(update={"frozen": str(path)})


def beside_folder(root: Path, study: str, scale: str) -> Path:
    """The run folder of another study, by its name, beside the run folder of this one."""
    return root.parent / (f"{study}-{scale}" if scale else study)


def _holders(folder: Path) -> list[Path]:
    """A run folder, or those of a sweep's arms."""
    if (folder / SWEEP).is_file():
        return list(run_folders(folder).values())
    return [folder]


def reused(plan: Plan, root: Path) -> list[Path]:
    """Run folders of the studies that a plan says to take finished parts from, those that are there."""
    beside = [beside_folder(root, name, plan.scale) for name in plan.reuse]
    return [path for folder in beside for path in _holders(folder) if (path / "plan.json").is_file()]


def run_all(
    study: Study,
    out: str | Path,
    *,
    execution: Execution | None = None,
    report: Reporter | None = None,
    between: Callable[[str], None] | None = None,
) -> StudyRun:
    """Run every arm, in order, each in its folder; one arm alone runs in `out` itself.

    Arms with `frozen: true` that were not frozen themselves take the first arm's frozen.json. between: called
    with the arm's name when it begins. Raises as `run_study`.
    """
    root = Path(out)
    execution = execution or Execution()
    report = report or Silent()
    folders = arm_folders(study, root)
    plans = placed(study, root)
    open_sweep(study, root)
    assessments: dict[str, Assessment] = {}
    failures: list[Failure] = []
    loaded: dict[str, IntentData] = {}
    done = 0.0
    for name, plan in plans.items():
        folder = folders[name]
        spec = plan.dataset.to_json()
        loaded[spec] = loaded.get(spec) or load_intents(plan.dataset)
        meter = _ArmReporter(report, done)
        if between is not None and name:
            between(name)
        others = [other for other in folders.values() if other != folder and other.is_dir()]
        result = run_study(
            plan,
            folder,
            text=study.text,
            execution=replace(execution, reuse=(*others, *reused(plan, root), *execution.reuse)),
            report=meter,
            data=loaded[spec],
        )
        done += meter.advanced
        place = folder.relative_to(root).as_posix()
        assessments |= {
            path if place == "." else f"{place}/{path}": made for path, made in result.assessments.items()
        }
        failures += result.failures
    return StudyRun(root, assessments, tuple(failures), differing_bundles(folders))


class _ArmReporter:
    """A reporter for one arm: its work comes on top of what earlier arms have done."""

    def __init__(self, report: Reporter, before: float) -> None:
        self._report, self._before = report, before
        self.advanced = 0.0
        self.total = 0.0

    @property
    def total(self) -> float:
        """Work of this arm, as far as it is known."""
        return self._report.total - self._before

    @total.setter
    def total(self, value: float) -> None:
        self._report.total = self._before + value

    def stage(self, text: str) -> None:
        self._report.stage(text)

    def advance(self, amount: float = 1.0) -> None:
        self.advanced += amount
        self._report.advance(amount)

    def say(self, text: str) -> None:
        self._report.say(text)


def _drawn_by(plan: Plan, folders: Mapping[str, Path], merged: Mapping[str, str]) -> Plan:
    """The plan with the run folder of the arm that draws its bundles. Raises InputError, before any work."""
    given = plan.deletion.drawn_by
    if given is None:
        return plan
    arm = merged.get(given, given)
    earlier = list(folders)[: list(folders).index(plan.arm)]
    there = arm in folders and arm != plan.arm and (folders[arm] / "gates.json").is_file()
    if arm in earlier or there:
        deletion = plan.deletion.model_copy(update={"drawn_by": str(folders[arm])})
        return _with(plan, deletion=deletion)
    if arm in folders:
        raise InputError(
            f"{plan.source}: deletion: drawn_by",
            f"{shown(arm)}, not run before it",
            "an earlier arm",
            "put it first",
        )
    if not Path(given).is_dir() and not (folders[plan.arm] / DRAWING_GATE).is_file():
        raise InputError(
            f"{plan.source}: deletion: drawn_by",
            f"no run folder {shown(given, LONGEST_PATH)}",
            "an earlier arm, or a run folder, its path meant from the study file's folder",
            did_you_mean(Path(given).name, earlier) if earlier else "correct the path",
        )
    return plan


def open_sweep(study: Study, root: Path) -> None:
    """Make or find a sweep's folder; nothing for a study without arms.

    Raises InputError for a folder with other things in it.
    """
    if not study.sweeps:
        return
    writable_folder(root)
    path = root / SWEEP
    refuse_strangers(root, (SWEEP,), "a sweep's folder")
    value = {
        "format": FORMAT,
        "name": study.name,
        "scale": study.scale,
        "arms": list(study.arms),
        "merged": study.merged or {},
    }
    if path.is_file():
        there, old = listed_arms(root), read_json(path)
        if old.get("name") != study.name or old.get("scale") != study.scale:
            raise InputError(
                str(path),
                f"study {shown(str(old.get('name')))}, scale {old.get('scale') or 'full'}",
                f"study {shown(study.name)}, scale {study.scale or 'full'}",
                "name another --out",
            )
        value["arms"] = list(dict.fromkeys([*there, *study.arms]))
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    write_text(root / "study.yaml", study.text)
