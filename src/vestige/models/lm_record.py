"""What was loaded as a causal language model, as a record. No torch."""

from __future__ import annotations

from typing import Literal

from vestige.contracts import Record

__all__ = ["Adapter", "LanguageModelRecord", "MeasuringDtype"]

MeasuringDtype = Literal["float32", "bfloat16", "float16", "float64"]
Adapter = Literal["none", "lora", "prompt encoder"]


class LanguageModelRecord(Record):
    """A causal language model as it was measured.

    kind: where it came from. base: the model an adapter was put on. rank: of a LoRA adapter, the largest.
    virtual_tokens: positions of a prompt encoder, stripped before every loss. quantised: how the weights were
    stored before they were dequantised, "" for plain weights. sha256: over the names and bytes of all weights
    in the measuring dtype, in order of name. source_sha256: over the files that were read ("" for a hub id).
    """

    label: str
    location: str
    kind: Literal["wheel", "folder", "file", "hub", "memory"]
    revision: str | None = None
    source_sha256: str = ""
    sha256: str
    architecture: str
    parameters: int
    vocabulary: int
    dtype: MeasuringDtype
    adapter: Adapter = "none"
    base: str | None = None
    rank: int | None = None
    virtual_tokens: int = 0
    quantised: str = ""
    adds_bos: bool
    notes: tuple[str, ...] = ()
