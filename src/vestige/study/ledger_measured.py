"""Rows of a ledger from assessments: configurations, displacements, label pairs, candidate sets. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

__all__ = [
    "Measured",
    "architecture_rows",
    "clinc_rows",
    "displacement_rows",
    "label_rows",
    "measured",
    "method_rows",
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


def measured(runs: Sequence[Run]) -> list[Measured]:
    """Every assessment of every run."""
    return [Measured(run, file, record) for run in runs for file, record in run.assessments.items()]


def _whole(items: Sequence[Measured]) -> Iterator[Measured]:
    """Those under all options."""
    return (item for item in items if item.record.candidates == "S0")


def method_rows(items: Sequence[Measured]) -> list[MethodRow]:
    """Every unlearning configuration under all options, with an oracle."""
    found: list[MethodRow] = []
    for item in _whole(items):
        if not item.record.has_oracle:
            continue
        for model in item.tested:
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
                    stage=item.record.stage,
                    status=str(model.decision),
                    rows_f=item.count("F", "rows"),
                    rows_g=item.count("G", "rows"),
                    units=item.count("F", "units"),
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
        found.setdefault(
            key,
            DisplacementRow(
                model=item.key,
                dataset=item.dataset,
                labels=item.labels,
                granularity=item.granularity,
                bundle=item.bundle,
                seed=item.seed,
                delta_acc_pp=None if before is None or after is None else (after - before) * 100,
                noise_f=number_of(noise["F"]),
                noise_g=number_of(noise["G"]),
                noise_pairs=item.record.noise_pairs.get("noise_full"),
                rows_f=item.count("F", "rows"),
                rows_g=item.count("G", "rows"),
                units=item.count("F", "units"),
                gate=item.record.intervention_gate,
                experiment=item.run.name,
                origin=item.place,
                printed=filled.printed,
                **filled.values,
            ),
        )
    return list(found.values())


def clinc_rows(items: Sequence[Measured]) -> list[ClincRow]:
    """Configurations on CLINC150 under semantic labels."""
    found: list[ClincRow] = []
    for item in _whole(items):
        if item.dataset != "clinc150" or item.labels != "semantic" or not item.record.has_oracle:
            continue
        for model in item.tested:
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
                    stage=item.record.stage,
                    status=str(model.decision),
                    origin=item.place,
                    printed=filled.printed,
                    **filled.values,
                )
            )
    return found


_ROLES = ("screening", "confirmation", "replication")


def architecture_rows(items: Sequence[Measured]) -> list[ArchitectureRow]:
    """Class deletion by one method on several backbones: first runs, and runs that change seed or bundle.

    The method is the one on most backbones. A backbone's first run is at the primary seed on its first
    bundle; differences are to it. Empty with fewer than two backbones.
    """
    runs = [
        (item, model)
        for item in _whole(items)
        if item.granularity == "class"
        and item.labels == "semantic"
        and item.record.stage in _ROLES
        and item.record.has_oracle
        for model in item.tested
        if not model.control
    ]
    reach: dict[tuple[str, str], set[str]] = {}
    for item, model in runs:
        reach.setdefault((item.dataset, model.method or model.label), set()).add(item.key)
    if not reach:
        return []
    dataset, method = max(reach, key=lambda name: len(reach[name]))
    if len(reach[dataset, method]) < 2:
        return []
    chosen = [
        (item, model)
        for item, model in runs
        if item.dataset == dataset and (model.method or model.label) == method
    ]
    first_bundle = min(item.bundle for item, _ in chosen)
    first: dict[str, tuple[Measured, ModelAssessment]] = {}
    for item, model in chosen:
        if item.primary and item.bundle == first_bundle:
            first.setdefault(item.key, (item, model))
    found = []
    for item, model in sorted(
        chosen, key=lambda pair: (pair[0].title.lower(), pair[0].bundle, not pair[0].primary, pair[0].seed)
    ):
        base = first.get(item.key)
        if base is None or (item.seed != base[0].seed and item.bundle != base[0].bundle):
            continue
        filled = Filled()
        for view in ("f", "g"):
            estimate = model.metrics.get(f"progress.{view.upper()}")
            filled.put(f"progress_{view}", estimate, row=True, unit="_class" if view == "f" else "")
            value = number_of(estimate)
            start = number_of(base[1].metrics.get(f"progress.{view.upper()}"))
            known = value is not None and start is not None and base[0] is not item
            filled.values[f"diff_progress_{view}"] = value - start if known else None  # type: ignore[operator]
        filled.put("delta_acc_pp", model.metrics.get("delta_accuracy.R"), scale=100.0)
        found.append(
            ArchitectureRow(
                model=item.title,
                seed=item.seed,
                bundle=item.bundle,
                stage=item.record.stage,
                status=str(model.decision),
                model_key=item.key,
                origin=item.place,
                printed=filled.printed,
                **filled.values,
            )
        )
    return found


def label_rows(items: Sequence[Measured]) -> list[LabelRow]:
    """Pairs of one request, seed and model under semantic and opaque labels, semantic first."""
    groups: dict[tuple[str, ...], dict[str, list[Measured]]] = {}
    for item in _whole(items):
        if item.record.has_oracle and item.units:
            key = (item.dataset, item.bundle, str(item.seed), item.key, item.units)
            groups.setdefault(key, {}).setdefault(item.labels, []).append(item)
    found = []
    for _, group in sorted(groups.items()):
        if {"semantic", "opaque"} <= set(group):
            semantic = group["semantic"][0]
            found.append(_label_row(semantic, None))
            found += [_label_row(opaque, semantic) for opaque in group["opaque"]]
    return found


def _label_row(item: Measured, semantic: Measured | None) -> LabelRow:
    candidates = [model for model in item.tested if not model.control] or item.tested
    model = next((one for one in candidates if one.method == "simnpo"), candidates[0] if candidates else None)
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
        mine, theirs = _acquisition(item), _acquisition(semantic)
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
        method=model.label if model else None,
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
            key = (item.key, item.dataset, item.labels, item.bundle, str(item.seed), str(item.run.root))
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


def suppression_rows(
    items: Sequence[Measured], development: dict[tuple[str, str], tuple[float, bool]]
) -> list[SuppressionRow]:
    """Suppression and geometry of class deletions, three rows a configuration: both views, F, G.

    development: (place of the assessment, label) -> suppression on development rows, where it was recorded,
    and whether it missed the target that it was matched to.
    """
    found: list[SuppressionRow] = []
    for item in _whole(items):
        if item.granularity != "class" or not item.record.has_oracle:
            continue
        for model in item.tested:
            known = development.get((item.place, model.label))
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
                found.append(
                    SuppressionRow(
                        id=len(found) + 1,
                        dataset=item.dataset,
                        run=model.label,
                        view=view.lower(),
                        dev_s=known[0] if known else None,
                        unmatched=known[1] if known else None,
                        feasible=None
                        if str(model.decision).startswith("undefined")
                        else model.decision != "infeasible",
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
