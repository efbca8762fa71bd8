"""The known-answer pool: models whose right verdict is known, and how often a rule says something else.

`build` trains the models, offline, in minutes; `families` derives others from them whose truth is known by
construction; `score` asks the product's own functions, and other metrics of the field, about all of them.
"""

from __future__ import annotations
