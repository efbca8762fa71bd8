"""Rows of a ledger from assessments: configurations, displacements, label pairs, candidate sets. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vestige.contracts import Assessment, ModelAssessment
from vestige.study.ledger_rows import (
    ArchitectureRow,
    ClincRow,
    DisplacementRow,
    LabelRow,
    MethodRow,
    SchemaRow,
    SuppressionRow,
)
from vestige.study.ledger_run import Filled, Run, bundle_name, model_names, number_of
from vestige.study.store import canonical

__all__ = [
    "Evaluation",
    "Measured",
    "PanelRun",
    "architecture_rows",
    "clinc_rows",
    "displacement_rows",
    "evaluations",
    "label_rows",
    "measured",
    "method_rows",
    "panel_runs",
    "schema_rows",
    "suppression_rows",
]

SCHEMA_KINDS = {"S0": "original", "S1": "neighbors", "S2": "distractors"}


@dataclass(frozen=True)
class Measured:
    """One assessment with what its provenance says. key: model key; units: hash of the deleted units."""

    run: Run
    file: str
    record: Assessment

    def _part(self, name: str) -> dict[str, Any]:
        found = self.record.provenance.get(name)
        return dict(found) if isinstance(found, dict) else {}

    @property
    def key(self) -> str:
        return model_names(self._part("model"))[0]

    @property
    def title(self) -> str:
        return model_names(self._part("model"))[1]

    @property
    def dataset(self) -> str:
        return str(self._part("data").get("name") or "own predictions")

    @property
    def labels(self) -> str:
        return str(self.record.provenance.get("rendering") or "semantic")

    @property
    def seed(self) -> int:
        seed = self.record.provenance.get("seed")
        return int(seed) if isinstance(seed, int) else 0

    @property
    def primary(self) -> bool:
        return bool(self.record.provenance.get("primary_seed", self.seed) == self.seed)

    @property
    def bundle(self) -> str:
        return bundle_name(str(self._part("request").get("bundle") or self.record.name))

    @property
    def granularity(self) -> str:
        return str(self._part("request").get("granularity") or self.record.unit_kind)

    @property
    def units(self) -> str:
        return str(self._part("request").get("units_sha256") or "")

    @property
    def place(self) -> str:
        return f"{self.run.arm}/{self.file}" if self.run.arm else self.file

    @property
    def full(self) -> ModelAssessment | None:
        return next((model for model in self.record.models if model.role == "full"), None)

    @property
    def oracle(self) -> ModelAssessment | None:
        return next((model for model in self.record.models if model.role == "oracle"), None)

    @property
    def tested(self) -> list[ModelAssessment]:
        return [model for model in self.record.models if model.role == "unlearned"]

    def count(self, view: str, what: str) -> int | None:
        """Rows or units of a view."""
        return next((getattr(item, what) for item in self.record.views if item.view == view), None)

    @cached_property
    def _entries(self) -> dict[str, dict[str, Any]]:
        """Label -> registry entry."""
        by_key = {entry["key"]: entry for entry in self.run.entries}
        keys = dict(self.record.provenance.get("evaluations") or {})
        return {label: by_key[key] for label, key in keys.items() if key in by_key}

    def frozen(self, label: str) -> dict[str, Any]:
        """Where the frozen settings of a model come from; empty where they were not frozen."""
        return dict(dict(self.record.provenance.get("frozen") or {}).get(label) or {})

    @property
    def matched(self) -> bool:
        """Whether a model of it has settings that were matched on suppression."""
        return any("target_s" in self.frozen(model.label) for model in self.tested)


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of one unlearned model under all options, whatever studies hold it.

    key: of the registry. stage: of the study that made it, which need not be the one that `item` is of.
    """

    item: Measured
    model: ModelAssessment
    key: str
    stage: str
    configuration: str
    """Method and settings, which evaluations of other seeds, bundles and renderings share."""
    entry: Mapping[str, Any] | None = None
    """Of the registry; None for predictions that were compared."""


def evaluations(items: Sequence[Measured]) -> list[Evaluation]:
    """Every evaluation that was compared with an oracle under all options, each once.

    Where several studies hold one, it is shown as the study that made it did; else as the first that is read.
    """
    found: dict[str, tuple[bool, Evaluation]] = {}
    for item in _whole(items):
        if not item.record.has_oracle:
            continue
        for model in item.tested:
            entry = item._entries.get(model.label)
            key = entry["key"] if entry else f"{item.run.root}/{item.place}: {model.label}"
            made = _made_for(item.run, entry)
            own = (made.get("study"), made.get("arm")) == (item.run.name, item.run.arm)
            configuration = model.method or model.label
            if entry:
                configuration = canonical([configuration, entry["identity"]["settings"]])
            stage = made.get("stage") or item.record.stage
            one = Evaluation(item, model, key, stage, configuration, entry)
            if key not in found or (own and not found[key][0]):
                found[key] = own, one
    return [one for _, one in found.values()]


def _made_for(run: Run, entry: Mapping[str, Any] | None) -> dict[str, str]:
    """Study, arm and stage that made the unlearned model of a registry entry."""
    node = run.node("unlearned", entry["identity"]["unlearned"]) if entry else None
    return dict(node.get("made_for") or {}) if node else {}


def measured(runs: Sequence[Run]) -> list[Measured]:
    """Every assessment of every run."""
    return [Measured(run, file, record) for run in runs for file, record in run.assessments.items()]


def _whole(items: Sequence[Measured]) -> Iterator[Measured]:
    """Those under all options."""
    return (item for item in items if item.record.candidates == "S0")


def method_rows(items: Sequence[Measured]) -> list[MethodRow]:
    """Every unlearning configuration under all options, with an oracle, once however many studies hold it."""
    found: list[MethodRow] = []
    for one in evaluations(items):
        item, model = one.item, one.model
        filled = _gains(item, model, unit="_unit")
        filled.put("delta_acc_pp", model.metrics.get("delta_accuracy.R"), scale=100.0)
        filled.take(model, ece="ece.R", delta_ece="delta_ece.R")
        found.append(
            MethodRow(
                id=len(found) + 1,
                model=item.key,
                dataset=item.dataset,
                labels=item.labels,
                seed=item.seed,
                bundle=item.bundle,
                method=model.label,
                stage=one.stage,
                status=str(model.decision),
                rows_f=item.count("F", "rows"),
                rows_g=item.count("G", "rows"),
                units=item.count("F", "units"),
                gate=item.record.intervention_gate,
                granularity=item.granularity,
                experiment=item.run.name,
                control=model.control,
                method_name=model.method,
                units_hash=item.units[:16],
                origin=item.place,
                printed=filled.printed,
                **filled.values,
            )
        )
    return found


def _gains(item: Measured, model: ModelAssessment, *, unit: str) -> Filled:
    """Displacement, gain with row and unit bounds, and progress on both views."""
    filled = Filled()
    for view in ("F", "G"):
        low = view.lower()
        filled.put(f"d0_{low}", item.full.metrics.get(f"displacement.{view}") if item.full else None)
        filled.put(f"gain_{low}", model.metrics.get(f"gain.{view}"), row=True, unit=unit)
        filled.put(f"progress_{low}", model.metrics.get(f"progress.{view}"))
    return filled


def displacement_rows(items: Sequence[Measured]) -> list[DisplacementRow]:
    """Full model against oracle, a row a request and seed, once however many studies hold it."""
    found: dict[tuple[object, ...], DisplacementRow] = {}
    for item in _whole(items):
        full, oracle = item.full, item.oracle
        if full is None or oracle is None:
            continue
        filled = Filled()
        filled.put("d0_f", full.metrics.get("displacement.F"), row=True)
        filled.put("d0_g", full.metrics.get("displacement.G"), row=True)
        filled.take(full, acc_full="accuracy.R")
        filled.take(oracle, acc_oracle="accuracy.R")
        before, after = filled.values["acc_full"], filled.values["acc_oracle"]
        noise = {view: item.record.noise.get(f"noise_full.{view}") for view in ("F", "G")}
        key = (item.key, item.dataset, item.labels, item.granularity, item.bundle, item.units, item.seed)
        pairs = item.record.noise_pairs.get("noise_full")
        if key in found and (found[key].noise_pairs or 0) >= (pairs or 0):
            continue
        found[key] = DisplacementRow(
            model=item.key,
            dataset=item.dataset,
            labels=item.labels,
            granularity=item.granularity,
            bundle=item.bundle,
            seed=item.seed,
            delta_acc_pp=None if before is None or after is None else (after - before) * 100,
            noise_f=number_of(noise["F"]),
            noise_g=number_of(noise["G"]),
            noise_pairs=pairs,
            rows_f=item.count("F", "rows"),
            rows_g=item.count("G", "rows"),
            units=item.count("F", "units"),
            gate=item.record.intervention_gate,
            experiment=item.run.name,
            origin=item.place,
            printed=filled.printed,
            **filled.values,
        )
    return list(found.values())


CLINC_ORDER = ("transfer", "exploratory", "control", "confirmation", "replication")
"""Of the rows of one seed and bundle."""


def clinc_rows(items: Sequence[Measured]) -> list[ClincRow]:
    """Configurations on CLINC150 under semantic labels: frozen transfer first, then seed by seed and bundle
    by bundle, matched ones before controls and tuned ones."""
    chosen = [
        one for one in evaluations(items) if one.item.dataset == "clinc150" and one.item.labels == "semantic"
    ]
    chosen.sort(
        key=lambda one: (
            one.stage != "transfer",
            not one.item.primary,
            one.item.seed,
            one.item.bundle,
            one.item.key,
            one.item.granularity,
            CLINC_ORDER.index(one.stage) if one.stage in CLINC_ORDER else len(CLINC_ORDER),
            one.model.label.lower(),
        )
    )
    found: list[ClincRow] = []
    for one in chosen:
        item, model = one.item, one.model
        filled = _gains(item, model, unit="_intent")
        del filled.values["d0_g"]
        filled.printed.pop("d0_g", None)
        filled.put("delta_acc_pp", model.metrics.get("delta_accuracy.R"), scale=100.0)
        arm = f"{item.run.arm}__" if item.run.arm else ""
        found.append(
            ClincRow(
                id=len(found) + 1,
                model=item.key,
                seed=item.seed,
                bundle=item.bundle,
                run_label=f"{arm}{model.label}",
                stage=one.stage,
                status=str(model.decision),
                granularity=item.granularity,
                units=item.count("F", "units"),
                **_positive(item, model),
                origin=item.place,
                printed=filled.printed,
                **filled.values,
            )
        )
    return found


def _positive(item: Measured, model: ModelAssessment) -> dict[str, float]:
    """Share of the deleted units whose mean gain is above 0, on F and on G, from the run's summary."""
    summary = item.run.json("summaries/replication.json", {"methods": []})
    return {
        f"positive_{view['view'].lower()}": cell["positive"]
        for method in summary["methods"]
        if method["label"] == model.label
        for view in method["views"]
        for cell in view["cells"]
        if (cell["seed"], bundle_name(cell["bundle"])) == (item.seed, item.bundle)
        and cell.get("positive") is not None
    }


_ROLES = ("screening", "confirmation", "replication")


@dataclass(frozen=True)
class PanelRun:
    """One backbone under the panel's method. first: its run at the primary seed on the first bundle, to which
    others are compared; None: this is it."""

    run: Evaluation
    first: Evaluation | None


def panel_runs(items: Sequence[Measured]) -> list[PanelRun]:
    """Class deletion by one method on several backbones: first runs, then those that change seed or bundle.

    The method is the one on most backbones. A change of seed or bundle is shown where at least two backbones
    have it: what one backbone alone repeats is a replication of its own. Empty with fewer than two backbones.
    """
    runs = [
        one
        for one in evaluations(items)
        if one.item.granularity == "class"
        and one.item.labels == "semantic"
        and one.stage in _ROLES
        and not one.model.control
    ]
    reach: dict[tuple[str, str], set[str]] = {}
    for one in runs:
        reach.setdefault((one.item.dataset, _method(one)), set()).add(one.item.key)
    if not reach:
        return []
    dataset, method = max(reach, key=lambda name: len(reach[name]))
    if len(reach[dataset, method]) < 2:
        return []
    chosen = [one for one in runs if (one.item.dataset, _method(one)) == (dataset, method)]
    first_bundle = min(one.item.bundle for one in chosen)
    first: dict[str, Evaluation] = {}
    for one in chosen:
        if one.item.primary and one.item.bundle == first_bundle:
            first.setdefault(one.item.key, one)
    held: dict[tuple[int, str], set[str]] = {}
    for one in chosen:
        held.setdefault((one.item.seed, one.item.bundle), set()).add(one.item.key)
    found = []
    for one in sorted(chosen, key=_place):
        base = first.get(one.item.key)
        if base is None or len(held[one.item.seed, one.item.bundle]) < 2:
            continue
        if one.item.seed != base.item.seed and one.item.bundle != base.item.bundle:
            continue
        found.append(PanelRun(one, None if one is base else base))
    return found


def _method(one: Evaluation) -> str:
    return one.model.method or one.model.label


def _place(one: Evaluation) -> tuple[Any, ...]:
    item = one.item
    return item.title.lower(), item.bundle, not item.primary, item.seed


def architecture_rows(items: Sequence[Measured]) -> list[ArchitectureRow]:
    """Progress of every run of the panel, and its difference to the backbone's first run."""
    found = []
    for panel in panel_runs(items):
        item, model = panel.run.item, panel.run.model
        filled = Filled()
        for view in ("f", "g"):
            estimate = model.metrics.get(f"progress.{view.upper()}")
            filled.put(f"progress_{view}", estimate, row=True, unit="_class" if view == "f" else "")
            value = number_of(estimate)
            start = (
                number_of(panel.first.model.metrics.get(f"progress.{view.upper()}")) if panel.first else None
            )
            known = value is not None and start is not None
            filled.values[f"diff_progress_{view}"] = value - start if known else None  # type: ignore[operator]
        filled.put("delta_acc_pp", model.metrics.get("delta_accuracy.R"), scale=100.0)
        found.append(
            ArchitectureRow(
                model=item.title,
                seed=item.seed,
                bundle=item.bundle,
                stage=panel.run.stage,
                status=str(model.decision),
                model_key=item.key,
                origin=item.place,
                printed=filled.printed,
                **filled.values,
            )
        )
    return found


def label_rows(items: Sequence[Measured]) -> list[LabelRow]:
    """Pairs of one request, seed, model and configuration under semantic and opaque labels, semantic first.

    Of several maps of codes the first is paired.
    """
    groups: dict[tuple[str, ...], dict[str, list[Evaluation]]] = {}
    for one in evaluations(items):
        item = one.item
        if item.units and not one.model.control:
            key = (item.dataset, item.bundle, str(item.seed), item.key, item.units, one.configuration)
            groups.setdefault(key, {}).setdefault(item.labels, []).append(one)
    found = []
    for _, group in sorted(groups.items()):
        if {"semantic", "opaque"} <= set(group):
            semantic = group["semantic"][0]
            opaque = min(group["opaque"], key=lambda one: one.item.record.provenance.get("map_seed") or 0)
            found += [_label_row(semantic, None), _label_row(opaque, semantic)]
    return found


def _label_row(one: Evaluation, semantic: Evaluation | None) -> LabelRow:
    item, model = one.item, one.model
    filled = Filled()
    for view in ("f", "g"):
        name = view.upper()
        filled.take(item.full, **{f"full_acc_{view}": f"forgotten_accuracy.{name}"})
        filled.take(item.oracle, **{f"oracle_acc_{view}": f"forgotten_accuracy.{name}"})
        filled.take(item.oracle, **{f"oracle_mass_{view}": f"forgotten_mass.{name}"})
        filled.take(item.full, **{f"d0_{view}": f"displacement.{name}"})
        filled.take(model, **{f"progress_{view}": f"progress.{name}"})
    more: dict[str, Any] = {}
    if semantic is not None:
        mine, theirs = _acquisition(item), _acquisition(semantic.item)
        more = {
            "opaque_acquisition": None if mine is None else "pass" if mine[2] else "fail",
            "min_class_acc_opaque": mine[0] if mine else None,
            "min_class_acc_semantic": theirs[0] if theirs else None,
            "min_gold_p_opaque": mine[1] if mine else None,
        }
    return LabelRow(
        dataset=item.dataset,
        bundle=item.bundle,
        seed=item.seed,
        labels=item.labels,
        model=item.key,
        method=model.label,
        map_seed=item.record.provenance.get("map_seed"),
        origin=item.place,
        printed=filled.printed,
        **more,
        **filled.values,
    )


def _acquisition(item: Measured) -> tuple[float | None, float | None, bool] | None:
    """Lowest accuracy and gold probability among the forgotten classes at this seed; whether all passed."""
    gates = item.run.json("gates.json", {}).get("acquisition", {}).get(str(item.seed))
    if not gates:
        return None
    forgotten = set(item.record.forgotten)
    classes = [one for one in gates.get("classes", []) if one["option"] in forgotten]
    if not classes:
        return None
    accuracies = [one["accuracy"] for one in classes if one["accuracy"] is not None]
    gold = [one["mean_gold_probability"] for one in classes if one["mean_gold_probability"] is not None]
    return min(accuracies, default=None), min(gold, default=None), all(one["passed"] for one in classes)


def schema_rows(items: Sequence[Measured]) -> list[SchemaRow]:
    """Every configuration of a request that was scored under more than one candidate set."""
    cells: dict[tuple[str, ...], dict[str, Measured]] = {}
    for item in items:
        if item.record.has_oracle:
            key = (item.dataset, item.key, item.labels, item.bundle, str(item.seed), str(item.run.root))
            cells.setdefault(key, {})[item.record.candidates] = item
    found: list[SchemaRow] = []
    for _, sets in sorted(cells.items()):
        if len(sets) < 2:
            continue
        for name, item in sorted(sets.items()):
            for view in ("F", "G"):
                for model in item.tested:
                    filled = Filled()
                    filled.take(item.full, d0=f"displacement.{view}")
                    filled.put("progress", model.metrics.get(f"progress.{view}"), row=True, unit="_class")
                    filled.take(item.oracle, oracle_acc=f"forgotten_accuracy.{view}")
                    found.append(
                        SchemaRow(
                            id=len(found) + 1,
                            model=item.key,
                            dataset=item.dataset,
                            labels=item.labels,
                            bundle=item.bundle,
                            method=model.label,
                            schema=name,
                            schema_kind=SCHEMA_KINDS.get(name, name),
                            options=item.record.options,
                            view=view.lower(),
                            seed=item.seed,
                            rows_r=item.count("R", "rows"),
                            origin=item.place,
                            printed=filled.printed,
                            **filled.values,
                        )
                    )
    return found


def suppression_rows(items: Sequence[Measured]) -> list[SuppressionRow]:
    """Suppression and geometry of class deletions, three rows a configuration: both views, F, G.

    First everything that runs with matched settings evaluate, those beside the matched ones too (`matching`),
    then every evaluation once.
    """
    runs = {item.run.root for item in items if item.matched}
    beside = [
        (item, model)
        for item in _whole(items)
        if item.run.root in runs and item.record.has_oracle
        for model in item.tested
    ]
    found: list[SuppressionRow] = []
    for matching, item, model in (
        *((True, *pair) for pair in beside),
        *((False, one.item, one.model) for one in evaluations(items)),
    ):
        if item.granularity == "class":
            found += _suppression(item, model, matching, len(found))
    return found


def _suppression(item: Measured, model: ModelAssessment, matching: bool, before: int) -> list[SuppressionRow]:
    frozen = item.frozen(model.label)
    known = frozen.get("development_s")
    found: list[SuppressionRow] = []
    for view in ("FG", "F", "G"):
        filled = Filled()
        filled.put("s", model.metrics.get(f"suppression.{view}"), row=True, unit="_class")
        filled.put("aligned_a", model.metrics.get(f"aligned_coefficient.{view}"), row=True)
        filled.put("residual", model.metrics.get(f"relative_residual.{view}"), row=True)
        filled.take(
            model,
            residual_only=f"residual_only_distance.{view}",
            magnitude_only=f"magnitude_only_distance.{view}",
            squared_error=f"squared_error.{view}",
            progress_f="progress.F",
        )
        single = [view] if view != "FG" else ["F", "G"]
        errors = [number_of(model.metrics.get(f"identity_error.{one}")) for one in single]
        zeros = [number_of(model.metrics.get(f"zero_displacement_rows.{one}")) for one in single]
        worst = [value for value in errors if value is not None]
        undefined = str(model.decision).startswith("undefined")
        found.append(
            SuppressionRow(
                id=before + len(found) + 1,
                dataset=item.dataset,
                run=model.label,
                view=view.lower(),
                dev_s=float(known) if isinstance(known, int | float) else None,
                target_s=frozen.get("target_s"),
                unmatched=frozen.get("unmatched"),
                matching=matching,
                feasible=None if undefined else model.decision != "infeasible",
                identity_error=max(worst) if worst else None,
                labels=item.labels,
                zero_rows=None if None in zeros else int(sum(value or 0 for value in zeros)),
                model=item.key,
                bundle=item.bundle,
                seed=item.seed,
                origin=item.place,
                printed=filled.printed,
                **filled.values,
            )
        )
    return found
