"""Token sequences scored by a language model and by its reference, as losses see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from vestige.language import Need, SequenceBatch
from vestige.models.blocks import block_output, blocks_of, hooked
from vestige.seeds import stable_seed

if TYPE_CHECKING:
    from vestige.contracts import Term
    from vestige.data.language_rows import LanguageRow

__all__ = ["SequenceScorer", "Side", "padded_rows", "still"]

Side = Literal["right", "left"]
Needs = frozenset[Need]


@contextmanager
def still(model: nn.Module) -> Iterator[None]:
    """Inside: evaluation mode and no gradients; the training flag of every module is restored."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in flags:
            module.training = training


def padded_rows(
    rows: Sequence[LanguageRow], *, device: torch.device | str = "cpu", pad_id: int = 0, side: Side = "right"
) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, mask and labels, each (n, L); mask and labels bool. The masks alone say what is padding."""
    width = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), width), pad_id, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.bool)
    labels = torch.zeros((len(rows), width), dtype=torch.bool)
    for i, row in enumerate(rows):
        length = len(row.ids)
        at = slice(0, length) if side == "right" else slice(width - length, width)
        ids[i, at] = torch.tensor(row.ids, dtype=torch.long)
        labels[i, at] = torch.tensor(row.labels, dtype=torch.bool)
        mask[i, at] = True
    return ids.to(device), mask.to(device), labels.to(device)


class SequenceScorer:
    """Makes `SequenceBatch`es of rows. reference: inside it the model computes as the reference does.

    block: the hooked one. noise_std: of the noise on its output in the reference, in retain terms. side: of
    padding. steer: topic -> the fixed vector (d,); refusals: row -> the row that is to take its place.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        reference: Callable[[], AbstractContextManager[Any]] = nullcontext,
        block: int = 0,
        noise_std: float = 0.0,
        reduction: Literal["mean", "sum"] = "mean",
        seed: int = 0,
        pad_id: int = 0,
        side: Side = "right",
    ) -> None:
        self.model = model
        self.reference = reference
        self.block = block
        self.noise_std = noise_std
        self.reduction: Literal["mean", "sum"] = reduction
        self.seed = seed
        self.pad_id = pad_id
        self.side: Side = side
        self.steer: dict[str, Tensor] = {}
        self.refusals: dict[LanguageRow, LanguageRow] = {}
        self._ref_targets: dict[LanguageRow, float] = {}

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def batch(
        self,
        rows: Sequence[LanguageRow],
        needs: Needs = frozenset({"scores"}),
        *,
        topic: str = "",
        term: Term = "forget",
        position: int = 0,
    ) -> SequenceBatch:
        """The rows with what is needed of them. position: of the step, from which the noise is drawn."""
        ids, mask, labels = padded_rows(rows, device=self.device, pad_id=self.pad_id, side=self.side)
        predicted = labels[:, 1:]
        ref: dict[str, Tensor] = {}
        if needs & {"ref_scores", "ref_logits", "ref_hidden"}:
            noise = self.noise_std if term == "retain" else 0.0
            with self.reference(), still(self.model), self._noisy(noise, mask, topic, position):
                ref = self._read(ids, mask, predicted, needs, of_reference=True)
        own = self._read(ids, mask, predicted, needs, of_reference=False)
        ref_target = None
        if "ref_target" in needs:
            ref_target = self.ref_targets(rows).to(self.device)
        return SequenceBatch(
            log_probs=own.get("log_probs", torch.zeros(int(predicted.sum()), 0, device=ids.device)),
            gold=ids[:, 1:][predicted],
            ref_log_probs=ref.get("log_probs"),
            lengths=predicted.sum(1),
            hidden=own.get("hidden"),
            ref_hidden=ref.get("hidden"),
            hidden_mask=mask if "hidden" in own or "hidden" in ref else None,
            steer=self.steer.get(topic),
            rows=predicted.nonzero()[:, 0],
            logits=own.get("logits"),
            ref_logits=ref.get("logits"),
            ref_target=ref_target,
            preferred=self._preferred(rows, needs, topic) if "refusal" in needs else None,
            topic=topic,
            reduction=self.reduction,
        )

    def ref_targets(self, rows: Sequence[LanguageRow]) -> Tensor:
        """The reference's log p of each row, (n,) float32, no gradient; each row is read once."""
        missing = [row for row in dict.fromkeys(rows) if row not in self._ref_targets]
        if missing:
            with self.reference(), still(self.model):
                found = self.batch(missing).target_log_probs.tolist()
            self._ref_targets.update(zip(missing, found, strict=True))
        return torch.tensor([self._ref_targets[row] for row in rows])

    def remember(self, rows: Sequence[LanguageRow], batch_size: int) -> None:
        """Read the reference's log p of all these rows, in batches that depend on the rows alone."""
        order = sorted(dict.fromkeys(rows), key=lambda row: (len(row.ids), row.topic, row.id, row.ids))
        for start in range(0, len(order), batch_size):
            self.ref_targets(order[start : start + batch_size])

    def mean_norm(self, rows: Sequence[LanguageRow]) -> tuple[float, int]:
        """Mean length of the reference's hidden state over the rows' real tokens, and its width."""
        with self.reference(), still(self.model):
            found = self.batch(rows, frozenset({"hidden"}))
        assert found.hidden is not None
        assert found.hidden_mask is not None
        states = found.hidden.double()[found.hidden_mask]
        return float(states.norm(dim=-1).mean()), int(states.shape[-1])

    def _preferred(self, rows: Sequence[LanguageRow], needs: Needs, topic: str) -> SequenceBatch:
        wanted: Needs = frozenset({"scores", "ref_target"} if "ref_target" in needs else {"scores"})
        return self.batch([self.refusals[row] for row in rows], wanted, topic=topic)

    def _read(
        self, ids: Tensor, mask: Tensor, predicted: Tensor, needs: Needs, *, of_reference: bool
    ) -> dict[str, Tensor]:
        prefix = "ref_" if of_reference else ""
        wanted = {name for name in ("scores", "logits", "hidden") if prefix + name in needs}
        if not wanted:
            return {}
        inputs: dict[str, Any] = {"input_ids": ids, "use_cache": False}
        if not bool(mask[:, 0].all()):
            inputs |= {"attention_mask": mask.long(), "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
        if wanted == {"hidden"}:
            return {"hidden": block_output(self.model, self.block, **inputs)}
        seen: list[Tensor] = []
        watch = (
            hooked(blocks_of(self.model)[self.block], seen.append) if "hidden" in wanted else nullcontext()
        )
        with watch:
            logits = self.model(**inputs).logits[:, :-1][predicted]
        logits = logits if logits.dtype == torch.float64 else logits.float()
        found = {"hidden": seen[0]} if seen else {}
        if "scores" in wanted:
            found["log_probs"] = torch.log_softmax(logits, dim=-1)
        if "logits" in wanted:
            found["logits"] = logits
        return found

    @contextmanager
    def _noisy(self, std: float, mask: Tensor, topic: str, position: int) -> Iterator[None]:
        """Gaussian noise on the hooked block's output at real tokens, drawn from the seed and the step."""
        if std <= 0:
            yield
            return
        source = torch.Generator().manual_seed(stable_seed(self.seed, "reference noise", topic, position))

        def add(output: Tensor) -> Tensor:
            drawn = torch.randn((*mask.shape, output.shape[-1]), generator=source).to(output)
            return output + std * drawn * mask[..., None]

        with hooked(blocks_of(self.model)[self.block], add):
            yield
