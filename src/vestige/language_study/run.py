"""A study of a language model from its plan to its page: what is done is kept under what it was made of."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

import vestige
from vestige.attacks.relearn_records import RelearnRecord
from vestige.behaviour.partition import read_partition
from vestige.behaviour.records import BehaviourRecord
from vestige.behaviour.tofu import read_tofu
from vestige.contracts import Record
from vestige.data.corpora import Role
from vestige.data.files import file_sha256
from vestige.errors import Diverged, InputError
from vestige.files import writable_folder, write_text
from vestige.footprint.fictitious import Entity, questions
from vestige.footprint.judgements import SensitivityTable
from vestige.footprint.records import FootprintRecord
from vestige.footprint.run import Quiet, Watcher, footprint
from vestige.language_study.budget import QuestionFile, question_files, read_texts
from vestige.language_study.checks import (
    behaviour_settings,
    check_plan,
    footprint_settings,
    forget_names,
    relearn_settings,
    repeats,
    retain_of,
    sensitivity_settings,
)
from vestige.language_study.injected import (
    Injected,
    injected_model,
    injected_scores,
    injection_settings,
)
from vestige.language_study.outline import seed_name, stage_names
from vestige.language_study.plan import LanguagePlan, MethodPlan, Stage, base_label, method_plans
from vestige.language_study.records import InjectedScores, LanguageStudyRecord, StageRecord
from vestige.language_study.relearn import relearn
from vestige.language_study.table import study_rows
from vestige.language_study.texts import joined_text, text_file
from vestige.locks import alone_in_out
from vestige.methods import METHODS
from vestige.models.backbones import content_hash, resolve_backbone
from vestige.models.causal_lm import LanguageModel, load_language_model
from vestige.models.devices import chosen_device
from vestige.models.lm_record import MeasuringDtype
from vestige.seeds import digest
from vestige.unlearning.run import finetune, unlearn

__all__ = ["RECORD", "method_plans", "run_language_study"]

RECORD = "language-study.json"
Made = TypeVar("Made", bound=Record)


class _Share:
    """A watcher that counts into a share of another's total."""

    def __init__(self, watcher: Watcher, share: float) -> None:
        self._watcher, self._share = watcher, share
        self.total = 1.0
        self._done = 0.0

    def stage(self, text: str) -> None:
        self._watcher.stage(text)

    def say(self, text: str) -> None:
        self._watcher.say(text)

    def advance(self, amount: float = 1.0) -> None:
        step = min(amount / max(self.total, 1e-9), 1.0 - self._done)
        self._done += step
        self._watcher.advance(self._share * step)


@dataclass(kw_only=True)
class _Run:
    """What the stages share. keys: checkpoint -> key of what it was made of; folders: where it lies. further:
    (key, folder) of bases and oracles of other training seeds, which the verdict reads."""

    plan: LanguagePlan
    root: Path
    device: str
    watcher: Watcher
    files: dict[str, Path] = field(default_factory=dict)
    stages: list[StageRecord] = field(default_factory=list)
    folders: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    further: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: {"base": [], "oracle": []})
    injected: Injected | None = None

    @contextmanager
    def stage(self, name: str, key: str, folder: Path, *, taken: bool) -> Iterator[_Share]:
        """One stage with its time; one that diverged is written down and the study goes on."""
        self.watcher.stage(name)
        began, failed = time.monotonic(), ""
        share = _Share(self.watcher, 1.0)
        try:
            yield share
        except Diverged as error:
            failed = str(error)
            self.watcher.say(f"{name}: {failed}")
        share.advance(share.total)
        self.stages.append(
            StageRecord(
                name=name,
                key=key,
                folder=folder.relative_to(self.root).as_posix(),
                seconds=round(time.monotonic() - began, 3),
                taken=taken and not failed,
                failed=failed,
            )
        )

    def sha256(self, *names: str) -> list[str]:
        """Hashes of text files by name."""
        return [file_sha256(self.files[name]) for name in names]


@alone_in_out("study", "root")
def run_language_study(
    plan: LanguagePlan, root: Path, *, device: str | None = None, watcher: Watcher | None = None
) -> LanguageStudyRecord:
    """Make what is missing: base, oracle, unlearned checkpoints, footprint, behaviour, relearning, table.

    Every checkpoint lies in nodes/<kind>-<key>; the same call again takes what is there. Raises InputError.
    """
    methods = method_plans(plan)
    check_plan(plan, methods, f"study '{plan.name}'")
    run = _Run(
        plan=plan,
        root=writable_folder(root),
        device=chosen_device(device),
        watcher=watcher or Quiet(),
    )
    run.watcher.total = float(len(stage_names(plan)))
    for line in (plan.licence, plan.hazard):
        if line:
            run.watcher.say(f"note: {line}")
    for name in plan.named_texts():
        run.files[name] = text_file(name, plan.texts[name], root / "texts")
    _read_first(run)
    _start(run)
    for method in methods:
        _method(run, method)
    unlearned = {item.name: run.folders[item.name] for item in methods if item.name in run.folders}
    if not unlearned:
        first = next(stage for stage in run.stages if stage.failed)
        raise InputError(
            f"study '{plan.name}'", f"no method finished; {first.failed}", "one", "change settings"
        )
    shifts = _footprint(run, _of(methods, unlearned, "footprint"))
    behaved = _behaviour(run, _of(methods, unlearned, "behaviour"))
    for also in plan.behaviour.also if plan.behaviour is not None else ():
        _behaviour(run, _of(methods, unlearned, "behaviour"), also)
    attacked = _relearn(run, _of(methods, unlearned, "relearn"))
    _sensitivity(run, unlearned)
    injected = _injected(run, unlearned)
    record = LanguageStudyRecord(
        name=plan.name,
        about=plan.about,
        licence=plan.licence,
        hazard=plan.hazard,
        plan=plan.model_dump(mode="json"),
        stages=tuple(run.stages),
        rows=tuple(study_rows(run.root, run.folders, methods, shifts, behaved, attacked, injected)),
        gates=run.injected.gates if run.injected is not None else None,
        caveats=tuple(_caveats(run)),
        provenance={"vestige": vestige.__version__, "torch": torch.__version__, "seed": plan.seed},
    )
    write_text(root / RECORD, record.to_json() + "\n")
    write_text(root / "table.csv", record.to_csv())
    return record


def _read_first(run: _Run) -> None:
    """Read the plan's texts and questions, so that a broken one is refused before hours of training."""
    plan, part = run.plan, run.plan.behaviour
    if plan.injection is None:
        read_texts(_roles(run))
    if part is not None:
        asked = {key: run.files[name] for key, name in part.questions.items()}
        read_partition(asked, asking=behaviour_settings(plan))
        for key, name in part.tofu.items():
            read_tofu(run.files[name], key)


def _start(run: _Run) -> None:
    """The base, and the oracle where there is one."""
    plan = run.plan
    if plan.injection is not None:
        key = digest(
            "injection", plan.model, injection_settings(plan.injection, plan.model).to_json(),
            plan.injection.generic, plan.seed,
            *([plan.injection.oracles] if plan.injection.oracles > 1 else []),
        )[:16]  # fmt: skip
        folder = run.root / "nodes" / f"injection-{key}"
        with run.stage("injection", key, folder, taken=(folder / "gates.json").is_file()):
            run.injected = injected_model(
                plan.injection,
                plan.model,
                folder,
                seed=plan.seed,
                progress=lambda text: run.watcher.stage(f"injection: {text}"),
            )
            run.files |= run.injected.texts
            run.folders |= {"base": str(run.injected.model), "oracle": str(run.injected.oracle)}
            run.keys |= {"base": key, "oracle": f"{key}-oracle"}
            run.further["oracle"] = [(f"{key}-{path.name}", str(path)) for path in run.injected.others]
        return
    kind, location = resolve_backbone(plan.model)
    content = content_hash(location) if kind != "hub" else ""
    run.folders["base"], run.keys["base"] = plan.model, digest("model", plan.model, content)[:16]
    for name, part in (("base", plan.finetune), ("oracle", plan.oracle)):
        if part is None:
            continue
        data = joined_text(part.data, run.files, run.root / "texts")
        for number in range(part.seeds):
            seed = plan.seed + number
            key = digest("finetune", plan.model, content, file_sha256(data), json.dumps(part.settings), seed)[
                :16
            ]
            folder = run.root / "nodes" / f"finetune-{key}"
            title = seed_name("fine-tuning" if name == "base" else "oracle", number)
            with run.stage(title, key, folder, taken=(folder / "finetune.json").is_file()) as share:
                finetune(
                    model=plan.model,
                    data=data,
                    out=folder,
                    settings=part.settings,
                    seed=seed,
                    whole=True,
                    device=run.device,
                    progress=_steps(share),
                )
                if number:
                    run.further[name].append((key, str(folder)))
                else:
                    run.folders[name], run.keys[name] = str(folder), key


def _steps(share: _Share) -> Callable[[int, int, float], None]:
    def tell(step: int, steps: int, loss: float) -> None:
        share.total = float(steps)
        share.advance(1.0)

    return tell


def _method(run: _Run, item: MethodPlan) -> None:
    """One unlearned checkpoint from the base."""
    plan = run.plan
    if "base" not in run.folders:
        return
    forget = forget_names(plan)
    retain = retain_of(plan)
    kept = [retain] if isinstance(retain, str) else list((retain or {}).values())
    key = digest(
        "unlearn", run.keys["base"], item.method, item.preset, json.dumps(item.settings), plan.seed,
        json.dumps(plan.concepts), json.dumps(plan.keywords), *forget, *run.sha256(*forget, *kept),
    )[:16]  # fmt: skip
    folder = run.root / "nodes" / f"unlearned-{key}"
    with run.stage(
        f"unlearning: {item.name}", key, folder, taken=(folder / "unlearn.json").is_file()
    ) as share:
        given = METHODS.get(item.method).language
        unlearn(
            model=run.folders["base"],
            method=item.method,
            forget={name: run.files[name] for name in forget},
            retain=str(run.files[retain])
            if isinstance(retain, str)
            else {topic: str(run.files[name]) for topic, name in retain.items()}
            if retain
            else None,
            out=folder,
            preset=item.preset,
            settings=item.settings,
            seed=plan.seed,
            concepts=plan.concepts if given is not None else None,
            keywords=plan.keywords if given is not None else None,
            device=run.device,
            progress=_steps(share),
        )
        run.folders[item.name], run.keys[item.name] = str(folder), key


def _roles(run: _Run) -> dict[Role, dict[str, Path]]:
    """Role -> name -> file."""
    plan = run.plan
    named: dict[Role, tuple[str, ...]] = {
        "forget": forget_names(plan),
        "adjacent": plan.adjacent,
        "generic": plan.generic,
    }
    if plan.injection is not None:
        named["adjacent"] = named["adjacent"] or ("injected-adjacent",)
        named["generic"] = named["generic"] or ("everyday",)
    return {role: {name: run.files[name] for name in names} for role, names in named.items()}


def _kept(path: Path, mark: Path, key: str, kind: type[Made]) -> Made | None:
    """A stage's record when it was made of the same."""
    if not path.is_file() or not mark.is_file() or mark.read_text(encoding="utf-8").strip() != key:
        return None
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except ValueError:
        return None


def _of(methods: Sequence[MethodPlan], unlearned: Mapping[str, str], stage: Stage) -> dict[str, str]:
    """The checkpoints that a stage measures."""
    own = {item.name for item in methods if stage in item.measured}
    return {label: folder for label, folder in unlearned.items() if label in own}


def _measured(
    run: _Run,
    name: str,
    settings: Any,
    kind: type[Made],
    make: Callable[[Path, _Share], Made],
    labels: Iterable[str],
    *more: str,
    record: str = "",
    also: Sequence[str] = (),
) -> Made:
    """A stage over several checkpoints at once: its record, or the one that is there. labels: of the
    unlearned ones; more: other texts; also: keys of other models; record: the name of its file where that is
    not the stage's."""
    roles = _roles(run)
    names = [part for own in roles.values() for part in own]
    wanted = {*labels, "base", "oracle"}
    keys = {label: key for label, key in run.keys.items() if label in wanted}
    key = digest(
        name, settings.to_json(), *keys, *keys.values(), *roles, *names, *run.sha256(*names, *more), *also
    )
    folder = run.root / name
    path, mark = folder / f"{record or name}.json", folder / "key"
    found = _kept(path, mark, key, kind)
    with run.stage(name, key[:16], folder, taken=found is not None) as share:
        if found is None:
            # Of an older plan in the same folder: what it measured is in the stage's cache.
            path.unlink(missing_ok=True)
            found = make(folder, share)
            write_text(mark, key + "\n")
    assert found is not None
    return found


def _base(run: _Run, dtype: MeasuringDtype) -> LanguageModel:
    """The base under the name that a reader knows, not the one of its folder."""
    return load_language_model(
        run.folders["base"], dtype=dtype, label=base_label(run.plan), device=run.device
    )


def _footprint(run: _Run, unlearned: Mapping[str, str]) -> FootprintRecord | None:
    if run.plan.footprint is None:
        return None
    settings = footprint_settings(run.plan)

    plan = run.plan
    label = base_label(plan)
    oracle = run.folders.get("oracle")
    keys = [key for own in run.further.values() for key, _ in own]
    family = [item.name for item in method_plans(plan) if METHODS.get(item.method).role == "candidate"]

    def make(folder: Path, share: _Share) -> FootprintRecord:
        bases: dict[str, str | Path | LanguageModel] = {label: _base(run, settings.dtype)}
        for number, (_, path) in enumerate(run.further["base"], start=1):
            bases[seed_name(label, number)] = path
        return footprint(
            base=bases,
            unlearned=dict(unlearned),
            oracle=[oracle, *(path for _, path in run.further["oracle"])] if oracle is not None else None,
            unseen={name: run.files[name] for name in plan.unseen} or None,
            family=[name for name in family if name in unlearned],
            settings=settings,
            out=folder,
            name=run.plan.name,
            device=run.device,
            four_bit="footprint" in run.plan.four_bit,
            watcher=share,
            **_roles(run),  # type: ignore[arg-type]
        )

    return _measured(run, "footprint", settings, FootprintRecord, make, unlearned, *plan.unseen, also=keys)


def _behaviour(run: _Run, unlearned: Mapping[str, str], also: str = "") -> BehaviourRecord | None:
    """Every checkpoint's answers; `also`: under the settings of this name, in a folder of their own."""
    part = run.plan.behaviour
    if part is None:
        return None
    from vestige.behaviour.run import behaviour

    settings = behaviour_settings(run.plan, also)
    prints = run.root / "footprint" / "footprint.json"

    def make(folder: Path, share: _Share) -> BehaviourRecord:
        return behaviour(
            base=_base(run, settings.dtype),
            models=dict(unlearned),
            oracle=run.folders.get("oracle"),
            questions={key: str(run.files[name]) for key, name in part.questions.items()},
            tofu={key: str(run.files[name]) for key, name in part.tofu.items()},
            footprint=prints if prints.is_file() and run.plan.footprint is not None else None,
            settings=settings,
            out=folder,
            cache=run.root / "behaviour" / "cache",  # answers to the same questions are the same
            name=run.plan.name,
            device=run.device,
            watcher=share,
        )

    more = [*part.questions.values(), *part.tofu.values()]
    stage = f"behaviour-{also}" if also else "behaviour"
    return _measured(run, stage, settings, BehaviourRecord, make, unlearned, *more, record="behaviour")


def _relearn(run: _Run, unlearned: Mapping[str, str]) -> RelearnRecord | None:
    if run.plan.relearn is None:
        return None
    settings = relearn_settings(run.plan)
    part = run.plan.behaviour
    asked = dict(part.questions) if part is not None else {}

    def make(folder: Path, share: _Share) -> RelearnRecord:
        return relearn(
            base=run.folders["base"],
            models=dict(unlearned),
            oracle=run.folders.get("oracle"),
            questions=_asked(run)
            if run.injected is not None
            else question_files(
                {key: run.files[name] for key, name in asked.items()},
                {name: role for role, own in _roles(run).items() for name in own},
                asking=settings.asking,
            ),
            settings=settings,
            out=folder,
            name=run.plan.name,
            device=run.device,
            four_bit="relearn" in run.plan.four_bit,
            watcher=share,
            **_roles(run),
        )

    return _measured(run, "relearn", settings, RelearnRecord, make, unlearned, *asked.values())


def _sensitivity(run: _Run, unlearned: Mapping[str, str]) -> SensitivityTable | None:
    part = run.plan.sensitivity
    if part is None:
        return None
    chosen = {label: unlearned[label] for label in part.methods if label in unlearned}
    settings = sensitivity_settings(run.plan)

    def make(folder: Path, share: _Share) -> SensitivityTable:
        from vestige.footprint.sensitivity import samples_for, sensitivity
        from vestige.footprint.texts import corpora_of

        base = _base(run, settings.dtype)
        corpora = corpora_of(**_roles(run), needed=("forget",))
        texts = {name: corpora[name] for name in part.texts}
        table = sensitivity(
            base=base,
            checkpoints={
                label: load_language_model(
                    source, dtype=settings.dtype, base=base, label=label, device=run.device
                )
                for label, source in chosen.items()
            },
            samples=samples_for(texts, base, settings),
            settings=settings,
            name=run.plan.name,
            progress=share.stage,
        )
        write_text(folder / "sensitivity.csv", table.to_csv())
        write_text(folder / "sensitivity.json", table.to_json() + "\n")
        return table

    return _measured(run, "sensitivity", settings, SensitivityTable, make, chosen, *part.texts)


def _asked(run: _Run) -> list[QuestionFile]:
    """The injected facts as questions: those to forget and those to keep."""
    assert run.injected is not None
    facts, seed = run.injected.facts, run.injected.seed
    groups: tuple[tuple[str, Role, tuple[Entity, ...]], ...] = (
        ("injected-forget", "forget", facts.forget),
        ("injected-adjacent", "adjacent", facts.adjacent),
    )
    return [
        QuestionFile(
            name=name,
            topic=name,
            role=role,
            questions=tuple(questions(people, seed)),
            sha256=run.keys["base"],
        )
        for name, role, people in groups
    ]


def _injected(run: _Run, unlearned: Mapping[str, str]) -> dict[str, InjectedScores]:
    """Every checkpoint against the exact oracle."""
    if run.injected is None:
        return {}
    key = digest("injected", *run.keys.values())[:16]
    found: dict[str, InjectedScores] = {}
    with run.stage("distance to the oracle", key, run.root / "nodes", taken=False):
        start = load_language_model(run.folders["base"], label="base")
        oracle = load_language_model(run.folders["oracle"], label="oracle")
        models = {"base": start, "oracle": oracle}
        for label, folder in {"base": "", **unlearned, "oracle": ""}.items():
            checkpoint = models.get(label) or load_language_model(folder, base=start, label=label)
            found[label] = injected_scores(run.injected, checkpoint, start=start, oracle=oracle)
    return found


def _caveats(run: _Run) -> Iterator[str]:
    yield "one training run a method: a class or a recovery belongs to a run, not to a method"
    yield from (
        f"{', '.join(names)} are one objective under these settings: repeats, not methods that agree"
        for names in repeats(method_plans(run.plan))
    )
    if run.injected is not None and not run.injected.gates.took:
        yield f"undefined: the injection did not take ({'; '.join(run.injected.gates.failed)})"
    yield from (f"{stage.name}: {stage.failed}" for stage in run.stages if stage.failed)
