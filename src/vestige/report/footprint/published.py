"""The published tables' rows from records: the same columns, one file a kind, and which table each belongs
to.

Numbers are in full precision; what is undefined says why. Nothing is computed here that a record does not
hold, but for means, medians and extremes over its rows. No torch.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vestige.attacks.relearn_records import CheckpointRelearning
from vestige.behaviour.records import BehaviourRecord, CheckpointBehaviour, SubjectAccuracy
from vestige.contracts import Undefined
from vestige.data.corpora import Role
from vestige.errors import InputError
from vestige.footprint.records import CheckpointFootprint, FootprintRecord, Shift
from vestige.language_study.correlations import correlation_record
from vestige.language_study.plan import LanguagePlan, method_plans
from vestige.language_study.records import LanguageStudyRecord
from vestige.metrics.footprint import FootprintClass
from vestige.report.footprint.joined import Beside, correlation_rows
from vestige.report.footprint.rows import variant_of
from vestige.unlearning.settings import language_method, settings_of

__all__ = ["Measured", "PublishedTable", "published_tables", "subject_mean"]

NO_OP, DESTRUCTIVE = "no-op", "globally-destructive"
MODELS = {
    "Llama-3.1-8B": "Llama-3.1-8B",
    "Meta-Llama-3.1-8B": "Llama-3.1-8B",
    "Llama-3.2-3B": "Llama-3.2-3B",
    "Qwen3-32B": "Qwen3-32B",
    "zephyr-7b-beta": "Zephyr-7B-beta",
}
"""Last part of a hub id -> the name in the published tables."""
_BY_MODEL = {
    "cofi": {
        "wmdp": ("10", "11", "12", "13"),
        "tofu": ("18", "19", "", "20"),
        "muse-books": ("23", "24", "25", "26"),
        "muse-news": ("30", "31", "", "32"),
    },
    "aggregates": {"wmdp": ("1", "16", "16", "16")},
    "ppl": {
        "wmdp": ("14", "14", "15", "15"),
        "tofu": ("21", "21", "", "21"),
        "muse-books": ("27", "27", "28", "28"),
        "muse-news": ("33", "33", "", "34"),
    },
    "classes": {
        "wmdp": ("17",) * 4,
        "tofu": ("22", "22", "", "22"),
        "muse-books": ("29",) * 4,
        "muse-news": ("35", "35", "", "35"),
    },
    "behaviour": {"wmdp": ("36", "36", "37", "37")},
    "conventional": {"wmdp": ("38",) * 4},
    "partition_counts": {"wmdp": ("41", "", "", "")},
    "bgap": {"wmdp": ("2", "", "", "")},
    "relearn": {"wmdp": ("39, 40", "39", "39", "39")},
    "regimes": {"wmdp": ("3", "", "", "")},
    "sensitivity": {"wmdp": ("5, 6, 7", "", "", "")},
    "adjacency": dict.fromkeys(("wmdp", "tofu", "muse-books", "muse-news"), ("8, 9", "", "", "8, 9")),
}
"""Kind -> benchmark -> the published table of Llama-3.1-8B, Llama-3.2-3B, Qwen3-32B, Zephyr-7B-beta."""
_ORDER = ("Llama-3.1-8B", "Llama-3.2-3B", "Qwen3-32B", "Zephyr-7B-beta")
_MAKES = {
    "behaviour": "vestige behaviour",
    "conventional": "vestige behaviour",
    "partition_counts": "vestige behaviour",
    "bgap": "vestige behaviour",
    "relearn": "vestige attack relearn",
    "regimes": "vestige attack relearn",
    "correlations": "vestige attack relearn or vestige behaviour",
    "sensitivity": "vestige footprint sensitivity",
    "adjacency": "vestige footprint with adjacent text",
    "hyperparameters": "vestige study run of a language study",
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One base with everything that was measured of its checkpoints. study: the record of the study it is
    of."""

    shifts: FootprintRecord
    beside: Beside = field(default_factory=Beside)
    study: LanguageStudyRecord | None = None

    @property
    def benchmark(self) -> str:
        """The study's or footprint's name."""
        return self.study.name if self.study is not None else self.shifts.name

    @property
    def model(self) -> str:
        """The base's name, the published one where it is of a published model."""
        name = self.shifts.base.label.removesuffix(", fine-tuned")
        return MODELS.get(name, name)

    @property
    def unlearned(self) -> list[CheckpointFootprint]:
        """The checkpoints but the retrained one."""
        return [item for item in self.shifts.checkpoints if item.role == "unlearned"]


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """Rows of one kind. missing: why there are none."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...] = ()
    missing: str = ""


Lines = Iterator[Mapping[str, object]]


def published_tables(measured: Sequence[Measured]) -> list[PublishedTable]:
    """Every kind of published table, with the rows that these records hold."""
    kinds: tuple[tuple[str, str, Callable[[Measured], Lines]], ...] = (
        ("aggregates", "shifts of roles, base methods", _aggregates),
        ("bgap", "adjacency gap beside behaviour gap", _gaps),
        ("regimes", "regimes under relearning", _regimes),
        ("hyperparameters", "settings of the methods as run", _hyperparameters),
        ("sensitivity", "sample size, probes, part of the model", _sensitivity),
        ("adjacency", "whether the adjacent corpus is one", _adjacency),
        ("cofi", "shifts by corpus, all variants", _shifts),
        ("ppl", "perplexity ratios by corpus, all variants", _perplexities),
        ("classes", "classes, all variants", _classes),
        ("behaviour", "accuracies by role and topic", _behaviour),
        ("conventional", "forget sets and MMLU as one", _conventional),
        ("relearn", "before and after relearning", _relearned),
        ("partition_counts", "right answers of whole question sets", _counts),
        ("correlations", "what shifts go with", _correlations),
    )
    found = [_table(name, title, measured, lines) for name, title, lines in kinds]
    return [*found, _discrepancies(measured)]


def _table(
    name: str, title: str, measured: Sequence[Measured], lines: Callable[[Measured], Lines]
) -> PublishedTable:
    rows: list[dict[str, str]] = []
    for item in measured:
        number = _number(name, item)
        for line in lines(item):
            rows.append({key: _text(value) for key, value in line.items()} | {"source_table": number})
    header = tuple(dict.fromkeys(key for row in rows for key in row if key != "source_table"))
    header = (*header, "source_table") if rows else ()
    numbers = tuple(dict.fromkeys(row["source_table"] for row in rows if row["source_table"]))
    missing = "" if rows else f"nothing measured: {_MAKES.get(name, 'vestige footprint')}"
    body = tuple(tuple(row.get(key, "") for key in header) for row in rows)
    return PublishedTable(name=name, title=title, header=header, rows=body, numbers=numbers, missing=missing)


def _number(kind: str, item: Measured) -> str:
    known = _BY_MODEL.get(kind, {}).get(item.benchmark)
    return known[_ORDER.index(item.model)] if known is not None and item.model in _ORDER else ""


def _text(value: object) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _keys(item: Measured, checkpoint: CheckpointFootprint) -> dict[str, object]:
    method, noise = variant_of(checkpoint.label)
    return {"benchmark": item.benchmark, "model": item.model, "method": method, "noise": noise}


def _class_of(checkpoint: CheckpointFootprint | None) -> str:
    if checkpoint is None:
        return ""
    published = checkpoint.published
    return str(published.name if isinstance(published, FootprintClass) else published)


def _shifts(item: Measured) -> Lines:
    for checkpoint in item.unlearned:
        for corpus in checkpoint.corpora:
            yield _keys(item, checkpoint) | {
                "corpus": _corpus(item, corpus.corpus),
                "role": corpus.role,
                **_pair("cofi", corpus.fisher),
                **_pair("chess", corpus.hessian),
                "class_heading": _class_of(checkpoint),
            }


def _corpus(item: Measured, name: str) -> str:
    """The corpus's published name where its sample has one."""
    return item.shifts.settings.sample_names.get(name, name)


def _pair(name: str, shift: Shift) -> dict[str, object]:
    return {name: shift.value, f"{name}_ci": shift.half_width}


def _perplexities(item: Measured) -> Lines:
    for checkpoint in item.unlearned:
        for corpus in checkpoint.corpora:
            ratio = corpus.perplexity
            yield _keys(item, checkpoint) | {
                "corpus": _corpus(item, corpus.corpus),
                "role": corpus.role,
                "log10_ppl_ratio": ratio if isinstance(ratio, Undefined) else ratio.log10_ratio.value,
            }


def _aggregates(item: Measured) -> Lines:
    for checkpoint in item.unlearned:
        if variant_of(checkpoint.label)[1]:
            continue
        line = _keys(item, checkpoint)
        del line["noise"]
        for role in checkpoint.roles:
            line |= _pair(f"cofi_{role.role[0]}", role.fisher)
            line |= _pair(f"chess_{role.role[0]}", role.hessian)
            line[f"log10_ppl_ratio_{role.role[0]}"] = role.log10_ppl_ratio.value
        yield line | {"class_heading": _class_of(checkpoint)}


def _classes(item: Measured) -> Lines:
    for checkpoint in item.unlearned:
        yield _keys(item, checkpoint) | {"class": _class_of(checkpoint)}


def _answered(
    item: Measured, record: BehaviourRecord
) -> Iterator[tuple[str, str, CheckpointBehaviour | None]]:
    """(method, class, answers) of the base and of every checkpoint that was asked and is not retrained."""
    yield "base", "", None
    shifts = {checkpoint.label: checkpoint for checkpoint in item.unlearned}
    for asked in record.checkpoints:
        if asked.role == "unlearned":
            yield asked.label, _class_of(shifts.get(asked.label)), asked


def _behaviour(item: Measured) -> Lines:
    record = item.beside.behaviour
    for method, name, asked in _answered(item, record) if record is not None else ():
        line: dict[str, object] = {"model": item.model, "method": method, "class_heading": name}
        assert record is not None
        roles = {role.role: role for role in (record.base_roles if asked is None else asked.roles)}
        topics = dict.fromkeys(
            topic for role in ("forget", "adjacent") if role in roles for topic in roles[role].topics
        )
        for topic in topics:
            for role, word in (("forget", "forget"), ("adjacent", "retain")):
                own = roles[role].topics if role in roles else {}
                if topic in own:
                    line[f"acc_{word}_{topic}"] = own[topic]
        if "generic" in roles:
            line["acc_general"] = roles["generic"].accuracy
        yield line


def _conventional(item: Measured) -> Lines:
    """Forget topics, and all other subjects as one plain mean."""
    record = item.beside.behaviour
    for method, name, asked in _answered(item, record) if record is not None else ():
        assert record is not None
        subjects = record.base_subjects if asked is None else asked.subjects
        line: dict[str, object] = {"model": item.model, "method": method, "class_heading": name}
        for topic in dict.fromkeys(entry.topic for entry in subjects if entry.role == "forget"):
            own = [entry for entry in subjects if (entry.role, entry.topic) == ("forget", topic)]
            line[f"acc_forget_{topic}"] = subject_mean(own)
        others = [entry for entry in subjects if entry.role != "forget"]
        if others:
            line |= {"acc_mmlu": subject_mean(others), "mmlu_subjects": len(others)}
        yield line


def subject_mean(subjects: Iterable[SubjectAccuracy]) -> float:
    """The plain mean of their accuracies: a subject counts as much as another, whatever its questions."""
    return statistics.fmean(entry.accuracy for entry in subjects)


def _counts(item: Measured) -> Lines:
    """Counts of forget and adjacent subjects: of a record that asked them whole where there is one."""
    record = item.beside.whole or item.beside.behaviour
    if record is None:
        return
    asked_of = {(entry.role, entry.topic, entry.subject): entry for entry in record.question_sets}
    for method, _, asked in _answered(item, record):
        for entry in record.base_subjects if asked is None else asked.subjects:
            if entry.role == "generic":
                continue
            own = asked_of[entry.role, entry.topic, entry.subject]
            yield {
                "model": item.model,
                "method": method,
                "subset": entry.subject,
                "role": entry.role,
                "topic": entry.topic,
                "correct": entry.correct,
                "total": entry.questions,
                "acc": entry.accuracy,
                "whole": entry.questions == own.file_questions,
            }


def _gaps(item: Measured) -> Lines:
    for checkpoint in item.unlearned:
        lost = item.beside.lost(checkpoint)
        if lost is None or variant_of(checkpoint.label)[1]:
            continue
        roles = {role.role: role.fisher.value for role in checkpoint.roles}
        absent = Undefined(undefined="no corpus of this role")
        published = checkpoint.published
        yield {
            "model": item.model,
            "method": checkpoint.label,
            "class_heading": _class_of(checkpoint),
            "cofi_f": roles.get("forget", absent),
            "cofi_a": roles.get("adjacent", absent),
            "adj_gap": published if isinstance(published, Undefined) else published.adjacency_gap,
            "delta_f": lost.delta_f.value,
            "delta_a": lost.delta_a.value,
            "b_gap": lost.b_gap.value,
            "relation": lost.relation,
        }


def _attacked(item: Measured) -> Iterator[tuple[CheckpointFootprint, CheckpointRelearning]]:
    for checkpoint in item.unlearned:
        found = item.beside.attacked(checkpoint)
        if found is not None and found.failed is None:
            yield checkpoint, found


def _relearned(item: Measured) -> Lines:
    record = item.beside.relearning
    for checkpoint, found in _attacked(item) if record is not None else ():
        line: dict[str, object] = {
            "model": item.model,
            "method": checkpoint.label,
            "class": _class_of(checkpoint),
        }
        change = found.change("forget")
        line["delta_acc_f_rl"] = "" if change is None else change.change
        words: dict[Role, str] = {"forget": "forget", "adjacent": "retain", "generic": "general"}
        for role, word in words.items():
            topics = dict.fromkeys(score.topic or score.name for score in found.scores if score.role == role)
            for topic in topics:
                own = [s for s in found.scores if s.role == role and (s.topic or s.name) == topic]
                end = word if role == "generic" and len(topics) == 1 else f"{word}_{topic}"
                line[f"post_ul_{end}"] = statistics.fmean(score.before for score in own)
                line[f"post_rl_{end}"] = statistics.fmean(score.after for score in own)
        yield line


def _regimes(item: Measured) -> Lines:
    """The published three: no-op, active (localized or collateral), destructive, with extremes of each."""
    groups: dict[str, list[tuple[float, float, float]]] = {NO_OP: [], "active": [], DESTRUCTIVE: []}
    for checkpoint, found in _attacked(item):
        roles = {role.role: role.fisher.value for role in checkpoint.roles}
        change = found.change("forget")
        values = (roles.get("forget"), roles.get("generic"), None if change is None else change.change)
        name = _class_of(checkpoint)
        group = name if name in groups else "active"
        if all(isinstance(value, float) for value in values) and not name.startswith("undefined"):
            groups[group].append(values)  # type: ignore[arg-type]
    for name, rows in groups.items():
        if rows:
            line: dict[str, object] = {"model": item.model, "regime": name, "checkpoints": len(rows)}
            for place, column in enumerate(("cofi_f", "cofi_g", "recovery")):
                own = [row[place] for row in rows]
                line |= {f"{column}_min": min(own), f"{column}_max": max(own)}
            yield line


def _sensitivity(item: Measured) -> Lines:
    table = item.beside.sensitivity
    for row in table.rows if table is not None else ():
        yield {"model": item.model} | {
            name: "" if (value := getattr(row, name)) is None else value for name in type(row).model_fields
        }


def _adjacency(item: Measured) -> Lines:
    found = item.shifts.adjacency
    if isinstance(found, Undefined):
        return
    line: dict[str, object] = {
        "benchmark": item.benchmark,
        "model": item.model,
        "sim_f_a": found.sim_f_a,
        "sim_f_g": found.sim_f_g,
        "sim_a_g": found.sim_a_g,
        "ratio": found.ratio,
        "passes": found.passes,
    }
    overlaps = () if isinstance(found.overlaps, Undefined) else found.overlaps
    margins = {overlap.k: overlap.margin for overlap in overlaps}
    for exponent in (3, 4, 5):
        line[f"margin_k1e{exponent}"] = margins.get(10**exponent, "")
    yield line


def _hyperparameters(item: Measured) -> Lines:
    """Every method's settings under its preset, as the study ran them."""
    if item.study is None:
        return
    plan = LanguagePlan.model_validate(item.study.plan)
    for method in method_plans(plan):
        made = settings_of(language_method(method.method), method.preset, method.settings)
        values = made.model_dump(mode="json")
        line: dict[str, object] = {"method": method.name, "lr": float(values["learning_rate"])}
        line["alpha_retain_weight"] = float(values["retain_weight"])
        names = {
            "retain_loss": "retain",
            "beta": "beta",
            "coeff": "coeff",
            "scale": "scale",
            "threshold": "threshold",
            "align_lr": "align_rate",
            "lambda_1": "lambda_1",
            "lambda_2": "lambda_2",
            "prompt_tokens": "virtual_tokens",
            "noise_std": "noise_std",
        }
        yield line | {column: values.get(name, "") for column, name in names.items()}


def _correlations(item: Measured) -> Lines:
    try:
        record = correlation_record(correlation_rows(item.shifts, item.beside))
    except InputError:
        return
    for found in record.correlations:
        line: dict[str, object] = {"model": item.model, "x": found.x, "y": found.y, "over": found.over}
        line |= {"n": found.pair.n, "checkpoints": len(found.checkpoints)}
        for kind in ("pearson", "spearman"):
            own = getattr(found.pair, kind)
            line |= {kind: own.value, f"{kind}_p": "" if own.p is None else own.p}
        yield line


def _discrepancies(measured: Sequence[Measured]) -> PublishedTable:
    """Medians over the checkpoints that moved (not no-op) of how far forget and adjacent shifts are apart,
    and over pairs of a method and its noise variant of how far theirs are."""
    header = ("benchmark", "quantity", "pairs", "median", "source_table")
    rows = []
    by_benchmark: dict[str, list[Measured]] = {}
    for item in measured:
        by_benchmark.setdefault(item.benchmark, []).append(item)
    for benchmark, items in by_benchmark.items():
        for quantity, values in _apart(items).items():
            if values:
                rows.append((benchmark, quantity, str(len(values)), repr(statistics.median(values)), ""))
    return PublishedTable(
        name="discrepancy",
        title="medians of how far shifts are apart, over active checkpoints",
        header=header if rows else (),
        rows=tuple(rows),
        missing="" if rows else "no checkpoint moved: vestige footprint",
    )


def _apart(items: Sequence[Measured]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {
        "|CoFi_F - CoFi_A|": [],
        "|CoFi_F - CoFi_A| / larger": [],
        "|CoFi_F - CoFi_F of the noise variant|": [],
    }
    gap, share, noise = found.values()
    for item in items:
        forget: dict[tuple[str, bool], float] = {}
        for checkpoint in item.unlearned:
            roles = {role.role: role.fisher.value for role in checkpoint.roles}
            f, a = roles.get("forget"), roles.get("adjacent")
            if isinstance(f, float):
                forget[variant_of(checkpoint.label)] = f
            active = _class_of(checkpoint) not in (NO_OP, "") and isinstance(
                checkpoint.published, FootprintClass
            )
            if active and isinstance(f, float) and isinstance(a, float):
                gap.append(abs(f - a))
                share.append(abs(f - a) / max(f, a))
        noise += [
            abs(value - forget[method, True])
            for (method, own), value in forget.items()
            if not own and (method, True) in forget
        ]
    return found
