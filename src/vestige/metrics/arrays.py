"""Checked arrays: probability tables and gold columns as every metric takes them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vestige.contracts import Floats
from vestige.errors import InputError, first_five

__all__ = ["bad_rows", "forgotten_columns", "gold_columns", "paired", "probability_rows"]


def probability_rows(p: ArrayLike, name: str = "probabilities") -> Floats:
    """p as (N, C) float64, C >= 1. Raises InputError for another shape, NaN, infinite or negative entries."""
    rows = np.asarray(p, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] < 1:
        raise InputError(
            name,
            f"an array of shape {rows.shape}",
            "rows x options",
            "pass one row of probabilities an example",
        )
    bad = ~(np.isfinite(rows) & (rows >= 0)).all(axis=1)
    if bad.any():
        raise bad_rows(name, "NaN, infinite or negative entries", bad, "finite probabilities of at least 0")
    return rows


def paired(p: ArrayLike, q: ArrayLike, what: str) -> tuple[Floats, Floats]:
    """Two probability tables of the same rows and options. Raises InputError when the shapes differ."""
    first, second = probability_rows(p), probability_rows(q)
    if first.shape != second.shape:
        raise InputError(
            what,
            f"arrays of shape {first.shape} and {second.shape}",
            "the same rows and options in both",
            "align rows by id and options by name first",
        )
    return first, second


def gold_columns(gold: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.intp]:
    """gold as (N,) integer columns of a table of `shape` (N, C). Raises InputError for anything else."""
    columns = np.asarray(gold)
    if columns.shape != shape[:1] or not (np.issubdtype(columns.dtype, np.integer) or not columns.size):
        raise InputError(
            "gold",
            f"an array of shape {columns.shape} and type {columns.dtype}",
            f"{shape[0]} integer columns",
            "pass the column of each row's gold option",
        )
    outside = (columns < 0) | (columns >= shape[1])
    if outside.any():
        raise bad_rows("gold", f"columns outside 0 to {shape[1] - 1}", outside, "columns of the schema")
    return columns.astype(np.intp)


def forgotten_columns(forgotten: ArrayLike, options: int) -> NDArray[np.bool_]:
    """forgotten as a (C,) mask. Raises InputError for another shape or type."""
    mask = np.asarray(forgotten)
    if mask.shape != (options,) or mask.dtype != np.bool_:
        raise InputError(
            "forgotten",
            f"an array of shape {mask.shape} and type {mask.dtype}",
            f"{options} booleans",
            "pass True for each forgotten option",
        )
    return mask


def bad_rows(name: str, found: str, bad: ArrayLike, needed: str) -> InputError:
    """An InputError that names the first five rows where `bad` (N,) is true."""
    rows = first_five(np.flatnonzero(np.asarray(bad)))
    return InputError(name, f"{found} in rows {rows}", needed, "check how these rows were written")
