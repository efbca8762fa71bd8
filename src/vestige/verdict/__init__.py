"""The verdict on an unlearned model: what was shown, what a model at the margin may keep, what is missing.

`quantities` turns probabilities into distances and inner products a row; `evidence` bounds them; `rule` says
the word; `sentence` says it in a sentence. Decision models and language models use the same functions.
"""

from __future__ import annotations

from vestige.contracts import Evidence, Margins, Verdict
from vestige.verdict.quantities import Models, ViewTable, view_table
from vestige.verdict.rule import judge_model

__all__ = ["Evidence", "Margins", "Models", "Verdict", "ViewTable", "judge_model", "view_table"]
