"""Option schemas and probability tables. No torch."""

from vestige.decision.schema import CandidateSet, Option, Rendering, Schema, candidate_set

__all__ = ["CandidateSet", "Option", "Rendering", "Schema", "candidate_set"]
