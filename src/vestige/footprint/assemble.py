"""From sums to records: shifts of a corpus, roles, the published class, caveats and what was not tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vestige.contracts import Undefined
from vestige.data.corpora import Corpus, Role, Sample
from vestige.footprint.judgements import CalibratedClass
from vestige.footprint.measure import Comparison
from vestige.footprint.perplexity import Perplexity
from vestige.footprint.records import (
    CheckpointFootprint,
    CheckpointRole,
    CorpusFootprint,
    CorpusRecord,
    FloorShare,
    FootprintSettings,
    PerplexityShift,
    RoleFootprint,
    Shift,
)
from vestige.footprint.shifts import (
    Sums,
    document_shifts,
    interval,
    log10_of_mean,
    module_shifts,
    role_interval,
)
from vestige.footprint.texts import no_interval
from vestige.metrics.footprint import CorpusShift, FootprintClass, footprint_class
from vestige.models.lm_record import LanguageModelRecord
from vestige.unlearning.folder import made_by

__all__ = ["checkpoint_footprint", "corpus_footprint", "standing_caveats", "untested"]

OF_A_MEAN = Undefined(undefined="an arithmetic mean of ratios")
UNCHANGED = "no weight changes: the adapter is a prompt encoder"
IN_CONTEXT = "no weight changes: measured at the base's weights with the prompt in context, as published"
_AGREE = {
    "no-op": "no-op",
    "globally-destructive": "undirected",
    "partially-localized": "localized",
    "collateral-dominant": "collateral",
}


def corpus_footprint(
    corpus: Corpus,
    sample: Sample,
    *,
    comparisons: Sequence[Comparison],
    hessians: Sequence[Sums],
    floors: Sequence[Sums],
    perplexities: tuple[Sequence[Perplexity], Sequence[Perplexity]],
    settings: FootprintSettings,
) -> CorpusFootprint:
    """One checkpoint on one corpus, from its subsets. No comparisons: its weights do not change."""
    why = no_interval(sample)
    absent = Undefined(undefined=UNCHANGED)
    no_probes = Undefined(undefined="no probes were asked for")
    log = [comparison.log for comparison in comparisons]
    linear = [comparison.linear for comparison in comparisons]
    chosen = log if settings.scale == "log" else linear
    modules = module_shifts(chosen) if chosen else {}
    return CorpusFootprint(
        corpus=corpus.name,
        role=corpus.role,
        fisher=_shift([_whole(sums) for sums in chosen], why, absent),
        fisher_linear=_shift([_whole(sums) for sums in linear], why, absent),
        floor_share=_floor(comparisons) if comparisons else absent,
        hessian=_shift(hessians, why, absent if not comparisons else no_probes),
        hessian_floor=_shift(floors, why, no_probes),
        perplexity=_perplexity(*perplexities, why, settings.ratio_mean),
        documents=_documents(sample, comparisons) if comparisons else (),
        **modules,
    )


def _whole(sums: Mapping[str, Sums]) -> Sums:
    return sum(sums.values(), Sums(0.0, 0.0, 0))


def _shift(sums: Sequence[Sums], why: str, absent: Undefined) -> Shift:
    """Over subsets; undefined for the reason given where there are none, or where a base is zero."""
    values = []
    for total in sums:
        if isinstance(total.shift, Undefined):
            return Shift(value=total.shift, half_width=total.shift)
        values.append(total.shift)
    return interval(values, why) if values else Shift(value=absent, half_width=absent)


def _floor(comparisons: Sequence[Comparison]) -> FloorShare:
    shares = [comparison.floor for comparison in comparisons]
    return FloorShare(
        base=sum(share[0] for share in shares) / len(shares),
        after=sum(share[1] for share in shares) / len(shares),
    )


def _documents(sample: Sample, comparisons: Sequence[Comparison]) -> tuple[object, ...]:
    names = [unit.document_id for subset in sample.subsets for unit in subset]

    def joined(kind: str, which: int) -> list[float]:
        return [value for comparison in comparisons for value in getattr(comparison, kind)[which]]

    return document_shifts(
        names,
        (joined("traces", 0), joined("losses", 0)),
        (joined("traces", 1), joined("losses", 1)),
    )


def _perplexity(
    base: Sequence[Perplexity], after: Sequence[Perplexity], why: str, mean: str
) -> PerplexityShift | Undefined:
    if not base:
        return Undefined(undefined="perplexity was not asked for")
    ratios = [now.log10 - was.log10 for was, now in zip(base, after, strict=True)]
    return PerplexityShift(
        log10_base=sum(part.log10 for part in base) / len(base),
        log10_after=sum(part.log10 for part in after) / len(after),
        log10_ratio=interval(ratios, why)
        if mean == "geometric"
        else Shift(value=log10_of_mean(ratios), half_width=OF_A_MEAN, per_subset=tuple(ratios)),
        tokens=tuple(part.tokens for part in base),
    )


def checkpoint_footprint(
    *,
    label: str,
    role: CheckpointRole,
    model: LanguageModelRecord,
    corpora: Sequence[CorpusFootprint],
    settings: FootprintSettings,
    calibrated: CalibratedClass | Undefined | None,
    probe_seeds: tuple[int, ...] = (),
    retained: tuple[str, ...] = (),
) -> CheckpointFootprint:
    """The record of one checkpoint. calibrated: None where its weights do not change."""
    published = _published(corpora, settings)
    in_context = calibrated is None and model.virtual_tokens and settings.prompts != "undefined"
    calibrated = Undefined(undefined=UNCHANGED) if calibrated is None else calibrated
    return CheckpointFootprint(
        label=label,
        role=role,
        method=made_by(model.location),
        model=model,
        corpora=tuple(corpora),
        roles=_roles(corpora),
        published=published,
        estimator_label=settings.estimator_label,
        calibrated=calibrated,
        disagreement=_disagreement(published, calibrated, corpora),
        probe_seeds=probe_seeds,
        retained=retained,
        notes=(*model.notes, *([IN_CONTEXT] if in_context else [])),
    )


def _roles(corpora: Sequence[CorpusFootprint]) -> tuple[RoleFootprint, ...]:
    found = []
    for role in ("forget", "adjacent", "generic"):
        own = [corpus for corpus in corpora if corpus.role == role]
        if own:
            found.append(_role(role, own))
    return tuple(found)


def _role(role: Role, own: Sequence[CorpusFootprint]) -> RoleFootprint:
    ratios = []
    for corpus in own:
        found = corpus.perplexity
        ratios.append(
            Shift(value=found, half_width=found) if isinstance(found, Undefined) else found.log10_ratio
        )
    return RoleFootprint(
        role=role,
        corpora=tuple(corpus.corpus for corpus in own),
        fisher=role_interval([corpus.fisher for corpus in own]),
        hessian=role_interval([corpus.hessian for corpus in own]),
        log10_ppl_ratio=role_interval(ratios),
    )


def _published(corpora: Sequence[CorpusFootprint], settings: FootprintSettings) -> FootprintClass | Undefined:
    if settings.scale == "linear":
        return Undefined(undefined="the published thresholds say nothing about the linear scale")
    roles: dict[str, dict[str, CorpusShift]] = {"forget": {}, "adjacent": {}, "generic": {}}
    for corpus in corpora:
        value = corpus.fisher.value
        if isinstance(value, Undefined):
            return value
        roles[corpus.role][corpus.corpus] = CorpusShift(value=value, half_width=corpus.fisher.half_width)
    ratios = {}
    for corpus in corpora:
        if not isinstance(corpus.perplexity, Undefined):
            ratio = corpus.perplexity.log10_ratio.value
            if not isinstance(ratio, Undefined):
                ratios[corpus.corpus] = ratio
    return footprint_class(
        roles["forget"],
        roles["adjacent"],
        roles["generic"],
        log10_perplexity_ratios=ratios or None,
        thresholds=settings.thresholds,
    )


def _disagreement(
    published: FootprintClass | Undefined,
    calibrated: CalibratedClass | Undefined,
    corpora: Sequence[CorpusFootprint],
) -> str:
    """One line where the two classes say different things, and why they can."""
    if isinstance(published, Undefined) or isinstance(calibrated, Undefined):
        return ""
    if isinstance(published.name, Undefined) or isinstance(calibrated.name, Undefined):
        return ""
    if _AGREE[published.name] == calibrated.name:
        return ""
    line = f"published thresholds: {published.name}; calibrated: {calibrated.name}. "
    shares = [corpus.floor_share.base for corpus in corpora if isinstance(corpus.floor_share, FloorShare)]
    if published.name == "no-op":
        share = f"{min(shares):.1%}" if shares else "most"
        return (
            line
            + f"At least {share} of the weights lie below the floor of the published scale, which hides them"
        )
    if calibrated.name == "no-op":
        return line + "The change is not larger than that of storing the model in 8 bits"
    if calibrated.name == "undetermined":
        return line + "The gap between forget and adjacent text is not larger than undirected changes make it"
    return line + "The published rule compares shifts as they are, the calibrated one with undirected changes"


def standing_caveats(
    settings: FootprintSettings, corpora: Sequence[CorpusRecord], measured: Sequence[CheckpointFootprint]
) -> tuple[str, ...]:
    """What always has to be read beside the classes."""
    lines = [
        "A class belongs to this run (model, checkpoint, corpora, settings), not to a method",
        "A no-op is ambiguous: shallow training that is easily undone, or nothing removed",
        "The shift depends on the probing text; nobody knows where knowledge sits, so no shift is evidence "
        "of removal",
        "Intervals hold sampling of text alone; a statement about a method needs three training seeds",
    ]
    if settings.quick:
        lines.append(
            f"A quick run: {settings.units} units of at most {settings.max_length} tokens, "
            f"{settings.subsets} subsets, {settings.probes} probes"
        )
    if settings.probes and settings.probe_seeds == "own":
        lines.append(
            "Each model has Hessian probes of its own, as published: CHess of an unchanged model is not 0 "
            "but the noise floor beside it"
        )
    if settings.stored_base == "float16":
        lines.append(
            "The base's logarithms are rounded to float16, as published: CoFi of an unchanged model is about "
            "0.02 %, not 0"
        )
    if settings.estimator_label != "published thresholds and estimator":
        lines.append(f"Published class: {settings.estimator_label}")
    for corpus in corpora:
        lines += [f"{corpus.name}: {note}" for note in corpus.notes]
    for checkpoint in measured:
        lines += [f"{checkpoint.label}: {note}" for note in checkpoint.notes]
    if settings.retained_text:
        lines.append(
            f"Text that the methods retained on while unlearning, as stated: {settings.retained_text}"
        )
    for checkpoint in measured if not settings.retained_text else ():
        if checkpoint.retained:
            lines.append(
                f"{checkpoint.label} retained on {', '.join(checkpoint.retained)}, by its own record"
            )
    if not settings.retained_text and not all(item.retained for item in measured if item.role == "unlearned"):
        lines.append("The text that a method retained on while unlearning was not named")
    return tuple(lines)


def untested(
    settings: FootprintSettings,
    corpora: Mapping[str, Corpus],
    measured: Sequence[CheckpointFootprint],
    *,
    has_oracle: bool,
) -> tuple[str, ...]:
    """What a reader could take for tested and is not."""
    lines = ["answers to questions about the removed content", "recovery by relearning"]
    if settings.verdict is None:
        lines.append("how far the models are from retraining: --no-verdict was given")
    if not has_oracle:
        lines.append("what retraining without the forget text would have moved: no oracle was given")
    if not settings.calibrate:
        lines.append("whether the change is larger than undirected changes of its size: give --calibrate")
    if not any(corpus.role == "adjacent" for corpus in corpora.values()):
        lines.append("collateral on adjacent text: no adjacent corpus")
    lines.append("variation over training seeds")
    if not settings.probes:
        lines.append("the Hessian diagonal")
    if not settings.perplexity_tokens:
        lines.append("perplexity")
    return tuple(lines)
