"""Plain sequence classifiers: a fixed head over a fixed label list, read without any option text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vestige.contracts import Floats
from vestige.errors import InputError, first_five
from vestige.files import writing
from vestige.models.backbones import Backbone, load_backbone, quiet_loading
from vestige.models.blocks import block_output
from vestige.models.finite import refuse_no_numbers
from vestige.models.positions import refuse_unreadable
from vestige.models.reading import length_groups, pad
from vestige.models.trainable import TrainableModule, evaluation

if TYPE_CHECKING:
    from vestige.decision.schema import Schema

__all__ = ["SequenceClassifier", "load_sequence_classifier"]


class SequenceClassifier(TrainableModule):
    """An `AutoModelForSequenceClassification` folder behind the same interface as our decision model.

    Its labels are the option ids. Candidate sets and opaque renderings are refused: the head is fixed and no
    option text is read.
    """

    def __init__(self, backbone: Backbone, max_tokens: int = 128) -> None:
        super().__init__()
        self.record = backbone.record
        self.tokenizer = backbone.tokenizer
        inner: Any = backbone.model
        self.model = inner
        self.max_tokens = max_tokens
        self.labels = _labels(inner.config, f"classifier '{backbone.record.name}'")
        # A network that classifies at a row's last token knows padding by its own configuration's id,
        # whatever the tokenizer's is; without one that has an embedding, rows are not padded.
        self._pads_with: int | None = inner.config.get_text_config().pad_token_id
        rows = inner.get_input_embeddings().weight.shape[0]
        self._pads = self._pads_with is not None and 0 <= self._pads_with < rows

    def tokenise(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids with special tokens, cut to `max_tokens`. Raises InputError where they are still longer
        than the model reads."""
        ids: list[list[int]] = self.tokenizer(list(texts), truncation=True, max_length=self.max_tokens)[
            "input_ids"
        ]
        refuse_unreadable(
            self.model, ids, subject=f"classifier '{self.record.name}', a text", remedy="lower max_tokens"
        )
        return ids

    def logits(self, utterance_ids: Sequence[Sequence[int]], schema: Schema) -> Tensor:
        """(n,) id lists -> (n, C) logits in the schema's order."""
        columns = self._columns(schema)
        lengths = [len(ids) for ids in utterance_ids]
        groups = length_groups(lengths) if self._pads else length_groups(lengths, waste=0.0)
        if self._pads_with is None:  # such a network takes one row at a time
            groups = [[i] for i in range(len(lengths))]
        parts = []
        for group in groups:
            tokens, mask = pad([utterance_ids[i] for i in group], (self._pads_with or 0) if self._pads else 0)
            parts.append(self.model(input_ids=tokens, attention_mask=mask).logits)
        order = torch.tensor([i for group in groups for i in group])
        return torch.cat(parts)[torch.argsort(order)][:, columns]

    def hidden(
        self, utterance_ids: Sequence[Sequence[int]], schema: Schema, block: int
    ) -> tuple[Tensor, Tensor]:
        """See `TrainableModule.hidden`."""
        tokens, mask = pad(utterance_ids, (self._pads_with or 0) if self._pads else 0)
        return block_output(self.model, block, input_ids=tokens, attention_mask=mask), mask.bool()

    def predict(self, texts: Sequence[str], schema: Schema, *, batch_rows: int = 256) -> Floats:
        """(N,) texts -> (N, C) float64 probabilities, columns in the schema's order."""
        ids = self.tokenise(texts) if len(texts) else []
        order = sorted(range(len(ids)), key=lambda i: (len(ids[i]), ids[i]))
        probs = torch.zeros(len(ids), len(self._columns(schema)), dtype=torch.float64)
        with evaluation(self):
            for start in range(0, len(order), batch_rows):
                rows = order[start : start + batch_rows]
                logits = self.logits([ids[i] for i in rows], schema).double()
                refuse_no_numbers(logits, f"classifier '{self.record.name}', logits")
                probs[rows] = torch.softmax(logits, dim=-1)
        values: Floats = probs.numpy()
        return values

    def save(self, folder: str | Path) -> None:
        """Write model and tokenizer in transformers' own format, safetensors only."""
        with writing(Path(folder)), quiet_loading():
            self.model.save_pretrained(str(folder), safe_serialization=True)
            self.tokenizer.save_pretrained(str(folder))

    def _columns(self, schema: Schema) -> list[int]:
        if schema.rendering != "semantic":
            raise InputError(
                f"classifier '{self.record.name}'",
                f"rendering '{schema.rendering}'",
                "the semantic rendering: its head reads no option text",
                "use a model that reads its schema",
            )
        if set(schema.ids) != set(self.labels):
            odd = sorted(set(schema.ids) ^ set(self.labels))
            raise InputError(
                f"classifier '{self.record.name}'",
                f"a schema that differs from its {len(self.labels)} labels in {first_five(odd)}",
                "exactly its own labels: its head is fixed, so candidate sets are not possible",
                "score it under the full schema, or use a model that reads its schema",
            )
        position = {label: i for i, label in enumerate(self.labels)}
        return [position[option] for option in schema.ids]


def _labels(config: Any, subject: str) -> tuple[str, ...]:
    """The classes in the head's order. Raises InputError for a head that does not choose one of several, and
    for a configuration that contradicts itself."""
    found, inverse = config.id2label, config.label2id
    labels = tuple(str(found[i]) for i in range(len(found)) if i in found)
    odd = ""
    if config.problem_type not in (None, "single_label_classification"):
        odd = f"a head for {config.problem_type.replace('_', ' ')}"
    elif len(labels) < len(found):
        odd = f"classes numbered {', '.join(map(str, sorted(found)))}"
    elif len(set(labels)) < len(labels) or len(labels) < 2:
        odd = f"the classes {first_five(labels)}"
    elif inverse and {str(name): int(i) for name, i in inverse.items()} != {
        n: i for i, n in enumerate(labels)
    }:
        odd = "a label2id that is not the inverse of id2label"
    if odd:
        raise InputError(
            subject,
            odd,
            "one of several classes a row, each with a number from 0 on and a name of its own",
            "correct its config.json, or write a file of probabilities for `vestige compare`",
        )
    return labels


def load_sequence_classifier(folder: str | Path, *, max_tokens: int = 128) -> SequenceClassifier:
    """Load a folder (or hub id) saved by transformers. Raises InputError when it is not one."""
    return SequenceClassifier(load_backbone(str(folder), task="sequence"), max_tokens)
