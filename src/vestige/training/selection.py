"""Which epoch of an unlearning run is kept, judged on rows that the run does not retain on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vestige.files import atomic_path, write_text
from vestige.seeds import generator
from vestige.training.sequences import SequenceScorer, still
from vestige.training.steps import Hooks, load_state

if TYPE_CHECKING:
    from vestige.data.language_rows import LanguageRow

__all__ = ["Measured", "Selection", "best_epoch"]


LEAST_RISE = 0.05
"""Nats a token: a smaller rise of the loss on forget rows is no sign that anything was unlearned."""


@dataclass(frozen=True)
class Measured:
    """Development losses after an epoch, nats a token, means over topics."""

    epoch: int
    forget: float
    retain: float


def best_epoch(start: Measured, found: list[Measured], tolerance: float) -> Measured:
    """The epoch with the highest forget loss among those whose retain loss rose by at most `tolerance`; where
    there is none, the one whose retain loss rose least. The earlier of equals."""
    allowed = [item for item in found if item.retain - start.retain <= tolerance]
    if allowed:
        return max(allowed, key=lambda item: (item.forget, -item.epoch))
    return min(found, key=lambda item: (item.retain, item.epoch))


@dataclass
class Selection:
    """Measures after each epoch and keeps the best state so far, in `folder` where there is one."""

    forget: dict[str, list[LanguageRow]]
    retain: dict[str, list[LanguageRow]]
    scorer: SequenceScorer
    state: dict[str, Tensor]
    settings: Any
    folder: Path | None
    start: Measured = field(default_factory=lambda: Measured(0, 0.0, 0.0))
    found: dict[int, Measured] = field(default_factory=dict)
    kept: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        topics: Mapping[str, Any],
        scorer: SequenceScorer,
        state: dict[str, Tensor],
        settings: Any,
        *,
        seed: int,
        folder: Path | None,
    ) -> Selection:
        """Development rows of the topics, measured before the first step, or taken over from `folder`."""

        def drawn(rows: Any, role: str, name: str) -> list[LanguageRow]:
            order = generator(seed, "development", role, name).permutation(len(rows))
            return [rows[int(i)] for i in order[: settings.development_rows]]

        made = cls(
            forget={name: drawn(topic.forget, "forget", name) for name, topic in topics.items()},
            retain={
                name: drawn(topic.development, "retain", name)
                for name, topic in topics.items()
                if topic.development is not None and len(topic.development)
            },
            scorer=scorer,
            state=state,
            settings=settings,
            folder=folder,
        )
        made.start = made.measured(0)
        made._take_over()
        return made

    def measured(self, epoch: int) -> Measured:
        """Losses of the model as it is."""
        return Measured(epoch, self._loss(self.forget), self._loss(self.retain))

    def hooks(self, given: Hooks) -> Hooks:
        """The given hooks with the measurement before them at the end of each epoch."""

        def on_epoch(epoch: int) -> bool:
            self.after(epoch)
            return given.on_epoch(epoch)

        return Hooks(progress=given.progress, on_epoch=on_epoch, checkpoint_seconds=given.checkpoint_seconds)

    def after(self, epoch: int) -> None:
        """Measure, and keep this state if it is the best so far."""
        self.found = {number: item for number, item in self.found.items() if number < epoch}
        self.found[epoch] = self.measured(epoch)
        if best_epoch(self.start, list(self.found.values()), self.settings.tolerance).epoch == epoch:
            self.kept = {name: value.detach().clone().cpu() for name, value in self.state.items()}
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                with atomic_path(self.folder / "kept.safetensors") as path:
                    save_file({k: v.contiguous() for k, v in self.kept.items()}, str(path))
        if self.folder is not None:
            rows = [vars(item) for item in self.found.values()]
            write_text(self.folder / "development.json", json.dumps(rows))

    def restore(self) -> str:
        """Put the kept state in place; says which epoch it is of."""
        best = best_epoch(self.start, list(self.found.values()), self.settings.tolerance)
        load_state(self.state, {name: self.kept[name].to(value) for name, value in self.state.items()})
        rise = best.retain - self.start.retain
        text = (
            f"kept epoch {best.epoch} of {max(self.found)}: development loss on forget rows "
            f"{self.start.forget:.3f} before, {best.forget:.3f} after; on held-out retain rows "
            f"{self.start.retain:.3f} before, {best.retain:.3f} after (nats a token)"
        )
        if not self.retain:
            return text.replace("held-out retain rows 0.000 before, 0.000 after", "no retain rows")
        over = rise > self.settings.tolerance
        return text + (f"; no epoch stayed within {self.settings.tolerance:g}" if over else "")

    def warning(self) -> str | None:
        """One line where the kept state's loss on forget rows is not `LEAST_RISE` above that before."""
        before = self.start.forget
        after = best_epoch(self.start, list(self.found.values()), self.settings.tolerance).forget
        if after - before >= LEAST_RISE:
            return None
        moved = "fell" if before - after >= LEAST_RISE else "hardly moved"
        return f"the forget loss {moved} ({before:.3f} to {after:.3f}): raise the learning rate or epochs"

    def _take_over(self) -> None:
        if self.folder is None:
            return
        try:
            rows = json.loads((self.folder / "development.json").read_text(encoding="utf-8"))
            self.kept = load_file(str(self.folder / "kept.safetensors"))
        except (OSError, ValueError, SafetensorError):
            return
        self.found = {row["epoch"]: Measured(**row) for row in rows}

    def _loss(self, topics: dict[str, list[LanguageRow]]) -> float:
        means = []
        for rows in topics.values():
            order = sorted(rows, key=lambda row: -len(row.ids))
            total = torch.zeros((), dtype=torch.float64)
            with still(self.scorer.model):
                for at in range(0, len(order), self.settings.batch_size):
                    batch = self.scorer.batch(order[at : at + self.settings.batch_size])
                    assert batch.lengths is not None
                    total -= (batch.summed_log_probs.double() / batch.lengths).sum().cpu()
            means.append(float(total) / len(order))
        return sum(means) / len(means) if means else 0.0
