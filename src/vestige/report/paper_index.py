"""The tables and figures of the decision benchmark: numbers, titles, captions, and which study makes each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vestige.errors import InputError, did_you_mean, shown

__all__ = ["EXPERIMENTS", "FIGURES", "TABLES", "Entry", "chosen", "studies_of"]

ROWS = "Row intervals are conditional on the trained checkpoints."
CLASSES = "Four deleted classes make intervals over classes coarse."
ACCEPTED = "Acceptance is not a threshold on progress and not equivalence to retraining."
SCREENING = (
    "Screening is uncorrected and the panel is purposive: the count of accepted models is not a success rate."
)
SMALL_D0 = "A small displacement D0 makes progress unstable: read D0 beside it."
MATCHING = "Matching of suppression is approximate."
RECOVERY = "Absolute, adjusted and headroom recovery answer different questions."
SWAP = "The label-swap control starts near zero probability and overrides a correct mapping."
FRESH = "Fresh heads do not show extraction of records."
REPEATED = (
    "Repeated evaluations of one checkpoint (candidate sets, adaptation settings) are not independent "
    "trainings."
)
PRIVACY = "Nothing here is a privacy guarantee, nor says anything about what pretraining knew."


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One table or figure. number: `2`, `S3`. studies: shipped studies whose runs hold its numbers."""

    number: str
    title: str
    shows: str
    caveats: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()

    @property
    def caption(self) -> str:
        """What it shows, then its caveats."""
        return " ".join([self.shows, *self.caveats])

    @property
    def made_by(self) -> str:
        """`vestige study run a or b`: how to make what is missing."""
        return f"vestige study run {' or '.join(self.studies)}" if self.studies else "vestige study run STUDY"


EXPERIMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "granularity": ("descriptive: full model against oracle, no method", ("granularity",)),
    "methods": (
        "selection on development rows, confirmation with frozen settings, replication; "
        "pilots confirm nothing",
        (
            "pilot",
            "method-selection",
            "method-confirmation",
            "method-replication",
            "association-selection",
            "association-methods",
        ),
    ),
    "model transfer": (
        "screening, uncorrected, and replication of frozen settings; stronger updates are exploratory",
        ("architecture-screen", "architecture-replication", "seed-42-strength"),
    ),
    "data-set transfer": (
        "frozen settings on another data set, then settings tuned there",
        ("clinc-transfer", "clinc-tuned"),
    ),
    "labels": ("exploratory: names against codes", ("labels", "labels-clinc")),
    "candidate sets": (
        "exploratory: finished models scored again, no training",
        ("candidates", "candidates-clinc"),
    ),
    "matched suppression": ("exploratory: methods at like strength", ("matched-suppression",)),
    "recovery": ("exploratory: what a few deleted rows bring back", ("recovery",)),
}
"""Name -> (role, the shipped studies that are it)."""

_METHODS = ("method-confirmation", "method-replication")
_SCREEN = ("architecture-screen", "architecture-replication")
_CLINC = ("clinc-transfer", "clinc-tuned")

_TABLES = (
    Entry(
        number="1",
        title="Design",
        shows="The benchmark's experiments with what each covers and what it is for; studies of other names "
        "stand last. A row of a table is counted where it was measured.",
        caveats=(REPEATED,),
    ),
    Entry(
        number="2",
        title="Method comparison",
        shows="Phase 1: one request and seed, p-values corrected (Holm) over the candidate methods. "
        "Phase 2: seeds and bundles, hierarchical bootstrap; classes weigh equally, so a phase-2 "
        "gain is not the mean of the cells of Table S3.",
        caveats=(ROWS, CLASSES, ACCEPTED, PRIVACY),
        studies=_METHODS,
    ),
    Entry(
        number="3",
        title="CLINC150",
        shows="Gains of a frozen setting and of a setting tuned on the development bundle, by bundle, "
        "pooled over intents, and under opaque labels.",
        caveats=(ROWS, SMALL_D0, ACCEPTED, PRIVACY),
        studies=(*_CLINC, "labels-clinc"),
    ),
    Entry(
        number="S1",
        title="Registry",
        shows="Evaluations in the registry by data set, labels and stage, each key once.",
        caveats=(REPEATED,),
    ),
    Entry(
        number="S2",
        title="Definitions, gates and uncertainty units",
        shows="What is measured, what has to hold before a method is judged, what each interval resamples, "
        "and where a definition comes from.",
    ),
    Entry(
        number="S3",
        title="Every configuration",
        shows="All unlearning configurations scored under all options. Fidelity: displacement, gain "
        "with row and unit intervals, progress. Utility: retained accuracy, calibration, sizes "
        "and decision.",
        caveats=(ROWS, CLASSES, ACCEPTED, SCREENING, "A pilot is never a confirmation.", REPEATED),
        studies=(*_METHODS, "association-methods", "pilot", *_SCREEN),
    ),
    Entry(
        number="S4",
        title="Architectures",
        shows="Progress of one frozen method on every backbone; differences are to the backbone's first run.",
        caveats=(ROWS, CLASSES, SCREENING, ACCEPTED),
        studies=_SCREEN,
    ),
    Entry(
        number="S5",
        title="Semantic and opaque labels",
        shows="Pairs of one request, seed and model whose labels are read as names or as opaque codes, "
        "each with its own full model and oracle. The acquisition gate of opaque labels is the "
        "one at the same seed.",
        caveats=(ROWS, SMALL_D0),
        studies=("labels", "labels-clinc"),
    ),
    Entry(
        number="S6",
        title="Candidate sets",
        shows="Progress under all options (S0), semantic neighbours (S1) and random distractors (S2): "
        "new forward passes of the same checkpoints. Feasibility is judged on S0.",
        caveats=(SMALL_D0, REPEATED, ROWS),
        studies=("candidates", "candidates-clinc"),
    ),
    Entry(
        number="S7",
        title="CLINC150, bundle by bundle",
        shows="Every configuration on CLINC150 with row and intent intervals.",
        caveats=(ROWS, SMALL_D0, ACCEPTED),
        studies=_CLINC,
    ),
    Entry(
        number="S8",
        title="Matched suppression and geometry",
        shows="Suppression on development and held-out rows, aligned coefficient and relative residual.",
        caveats=(MATCHING, CLASSES, "Geometry makes no causal claim."),
        studies=("matched-suppression",),
    ),
    Entry(
        number="S9",
        title="Recovery by fine-tuning",
        shows="Unlearned minus oracle, by budget k and adaptation seed. A threshold that was not "
        "reached is censored at the horizon.",
        caveats=(RECOVERY, REPEATED, CLASSES, PRIVACY),
        studies=("recovery",),
    ),
    Entry(
        number="S10",
        title="Optimisation diagnostics",
        shows="Means over the first and the last ten steps of each unlearning run, beside what it reached; "
        "where backbones were run at two training seeds, those runs on their first bundle.",
        caveats=("Losses of one run say nothing about another training seed.",),
        studies=_SCREEN,
    ),
    Entry(
        number="S11",
        title="Device hours",
        shows="Logged hours of finished parts by experiment and stage, interrupted sittings included. "
        "Measured rows cover full models, oracles, unlearning, scoring, tuning and recovery; a "
        "part that several arms share is counted once. Imported hours cover what their source "
        "logged.",
    ),
    Entry(
        number="S12",
        title="Audit record",
        shows="Acquisition, missing and completed coverage, reserved bundles, excluded models, "
        "reconciliation, key collisions, reporting, reruns, selection notes and records, from the audit's "
        "own checks of this folder.",
        caveats=("An audit of a folder cannot check what was looked at outside it.",),
    ),
)

_FIGURES = (
    Entry(
        number="1",
        title="Displacement by granularity",
        shows="A: what is compared. B, C: distance from full model to oracle on deleted (F) and unseen "
        "(G) rows, log axis; a thin line a backbone through example, association, class; marks: "
        "median and quartiles; grey: noise floor, the range of distances between full models of "
        "different seeds.",
        caveats=("Descriptive: no method is judged.",),
        studies=("granularity",),
    ),
    Entry(
        number="2",
        title="Labels and candidate sets",
        shows="A: share of deleted rows that the oracle still recognises, semantic against opaque, "
        "circles F, squares G; right: lowest full-model development accuracy among forgotten "
        "classes. B: displacement D0. C: oracle accuracy on F under S0, S1, S2 with option "
        "counts. D: progress on F under each, with intervals; open and dashed: opaque.",
        caveats=(SMALL_D0, REPEATED, ROWS),
        studies=("labels", "labels-clinc", "candidates", "candidates-clinc"),
    ),
    Entry(
        number="3",
        title="Backbones",
        shows="A: progress on F (circles) and G (squares) of every backbone with row intervals and "
        "status. B: replication; solid guides change the seed, dashed ones the bundle.",
        caveats=(SCREENING, ROWS, ACCEPTED),
        studies=_SCREEN,
    ),
    Entry(
        number="4",
        title="Suppression and direction",
        shows="A: held-out suppression against progress on F; open marks: development suppression, "
        "joined by dots. B: pooled aligned coefficient (1 is retraining's) and relative residual "
        "(0 is none).",
        caveats=(MATCHING, "Geometry makes no causal claim."),
        studies=("matched-suppression",),
    ),
    Entry(
        number="5",
        title="Recovery",
        shows="A: gold probability by update, budget, checkpoint and adaptation seed. B: absolute, "
        "adjusted and headroom contrasts: dots a configuration, diamonds a class, pooled row and "
        "class intervals. C: adjusted recovery on unseen, seen and label-swap rows and the direct"
        " contrasts. D: fresh heads, a mark an initialisation.",
        caveats=(RECOVERY, SWAP, FRESH, REPEATED, CLASSES, PRIVACY),
        studies=("recovery",),
    ),
    Entry(
        number="S1",
        title="Coverage",
        shows="Evaluations by model and experiment.",
        caveats=(REPEATED,),
    ),
    Entry(
        number="S2",
        title="Displacement and retained utility by backbone",
        shows="Displacement on F and G, and retained accuracy of full model and oracle.",
        caveats=("Descriptive: no method is judged.",),
        studies=("granularity",),
    ),
    Entry(
        number="S3",
        title="Progress against retained accuracy",
        shows="A panel a data set and view: progress against the change of retained accuracy; the line "
        "at -2 points is the feasibility limit.",
        caveats=(ACCEPTED, "Stages are mixed: their marks differ.", SMALL_D0),
        studies=(*_METHODS, *_CLINC),
    ),
    Entry(
        number="S4",
        title="Label pairs",
        shows="Acquisition, recognition, forgotten mass, displacement and progress, semantic against opaque.",
        caveats=(SMALL_D0,),
        studies=("labels", "labels-clinc"),
    ),
    Entry(
        number="S5",
        title="Every candidate-set condition",
        shows="Progress with row intervals under S0, S1, S2, with D0 under it.",
        caveats=(SMALL_D0, REPEATED, ROWS),
        studies=("candidates", "candidates-clinc"),
    ),
    Entry(
        number="S6",
        title="Seed and bundle differences",
        shows="Progress of a replication minus the backbone's first run, paired by backbone; every seed and "
        "bundle of the backbone that was run at several of both.",
        caveats=(SCREENING, "One replication of each kind a backbone: no interval over seeds."),
        studies=("architecture-replication", "method-replication"),
    ),
    Entry(
        number="S7",
        title="CLINC150 effects",
        shows="Gains of frozen transfer and of the tuned setting with row (thick) and intent (thin) "
        "intervals, and pooled, on both views; share of deleted intents with a positive mean gain.",
        caveats=(ROWS, ACCEPTED),
        studies=_CLINC,
    ),
    Entry(
        number="S8",
        title="Tuning",
        shows="Development objective OD_F + OD_G of every candidate: settings down, epochs across. "
        "Crossed: infeasible; ringed: chosen.",
        caveats=("Tuning used an oracle of the development bundle, and no evaluation row.",),
        studies=("method-selection", "association-selection", "clinc-tuned"),
    ),
    Entry(
        number="S9",
        title="Redistribution diagnostics",
        shows="Aligned coefficient, relative residual, distance of residual-only and magnitude-only "
        "parts, squared error and identity error of every class deletion, on F and G.",
        caveats=("Residual-only and magnitude-only distances are no additive decomposition.", MATCHING),
        studies=("matched-suppression",),
    ),
    Entry(
        number="S10",
        title="Development and held-out suppression",
        shows="Suppression on the development bundle against suppression on held-out rows, with row "
        "intervals.",
        caveats=(MATCHING,),
        studies=("matched-suppression",),
    ),
    Entry(
        number="S11",
        title="Relearning at every budget",
        shows="Accuracy and gold probability of unseen rows by update, a panel a budget.",
        caveats=(RECOVERY, REPEATED),
        studies=("recovery",),
    ),
    Entry(
        number="S12",
        title="Recovery controls",
        shows="Differences of adjusted advantages between populations, at each budget and pooled; rows "
        "exposed and rows scored as seen at each setting; cumulative shares of the probability at the start "
        "by population.",
        caveats=(SWAP, REPEATED, CLASSES),
        studies=("recovery",),
    ),
    Entry(
        number="S13",
        title="Fresh heads",
        shows="Forgotten accuracy, gold probability and retained accuracy of new heads on frozen "
        "backbones; a mark an initialisation.",
        caveats=(FRESH,),
        studies=("recovery",),
    ),
    Entry(
        number="S14",
        title="Optimisation diagnostics",
        shows="Losses and gradient norms at either end of each run, two training seeds side by side.",
        caveats=("Losses of one run say nothing about another training seed.",),
        studies=_SCREEN,
    ),
    Entry(
        number="S15",
        title="Stronger updates",
        shows="Progress of stronger updates at the seed that replicated least, beside the frozen "
        "setting, and their step traces.",
        caveats=("Exploratory: the best epoch was chosen after the fact.",),
        studies=("seed-42-strength",),
    ),
)

TABLES: dict[str, Entry] = {entry.number: entry for entry in _TABLES}
FIGURES: dict[str, Entry] = {entry.number: entry for entry in _FIGURES}


def studies_of(study: str) -> tuple[list[str], list[str]]:
    """Numbers of the tables and figures that a shipped study makes."""
    return (
        [entry.number for entry in _TABLES if study in entry.studies],
        [entry.number for entry in _FIGURES if study in entry.studies],
    )


def chosen(only: str | None, known: Sequence[str]) -> list[str]:
    """The numbers named by `--only S3,5`, in the order of `known`; all without it. Raises InputError."""
    if only is None:
        return list(known)
    wanted = [part.strip().upper() for part in only.split(",") if part.strip()]
    everything = {*TABLES, *FIGURES}
    for number in wanted:
        if number not in everything:
            raise InputError(
                "--only", shown(number), "numbers of tables and figures", did_you_mean(number, everything)
            )
    if not wanted:
        raise InputError("--only", "no number", "numbers of tables and figures", "for example --only S3,5")
    return [number for number in known if number in wanted]
