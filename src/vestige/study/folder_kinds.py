"""What a folder is, by the records in it, for the error line of a verb that needs another one. No torch."""

from __future__ import annotations

from pathlib import Path

from vestige.errors import InputError

__all__ = ["refused"]

_PAGE = "`vestige report {0}` writes its page"
_CORRELATE = "`vestige attack correlate {0}` says what recovery goes with"
_BESIDE = "put {1} beside the footprint.json of the same checkpoints: `vestige report` shows both"
_KINDS: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
    (
        ("sweep.json", "plan.json"),
        "a study that `vestige study run` or `tune` wrote",
        ("`vestige study status {0}` says what is done", _PAGE),
    ),
    (
        ("assessment.json", "assessments"),
        "a comparison that `vestige compare` wrote, of probabilities without models",
        (_PAGE, "`vestige study run` makes models to audit and to attack"),
    ),
    (("language-study.json",), "a language study that `vestige study run` wrote", (_PAGE, _CORRELATE)),
    (("footprint.json",), "a footprint that `vestige footprint` wrote", (_PAGE, _CORRELATE)),
    (("behaviour.json",), "answers that `vestige behaviour` wrote", (_BESIDE,)),
    (("relearn.json",), "an attack that `vestige attack relearn` wrote", (_BESIDE,)),
    (
        ("unlearn.json", "finetune.json"),
        "a model that `vestige unlearn` or `finetune` wrote",
        ("`vestige footprint --unlearned {0}` measures it", "`vestige behaviour --model {0}` asks it"),
    ),
    (("imported",), "a folder of imported tables", (_PAGE,)),
)
"""(files of which one is there, what the folder is, what fits it; {0}: the folder, {1}: the file)."""


def refused(path: Path, lacks: str, needed: str, remedy: str, *, verb: str = "") -> InputError:
    """The error for a path of which `lacks` holds ("no plan.json"): what it is instead, and what fits it.

    verb: the one that refuses it, which is not advised. remedy: where nothing else is known to fit.
    """
    if not path.exists():
        return InputError(str(path), "no such folder", needed, remedy)
    if path.is_file():
        return InputError(str(path), "a file", needed, f"name a folder, perhaps {path.parent}")
    for names, what, fits in _KINDS:
        there = [path / name for name in names if (path / name).exists()]
        if there:
            advice = [text.format(path, there[0]) for text in fits if not verb or f"{verb} {{0}}" not in text]
            return InputError(str(path), f"{what}, {lacks}", needed, ", ".join(advice) or remedy)
    empty = not any(path.iterdir())
    return InputError(str(path), f"an empty folder, {lacks}" if empty else lacks, needed, remedy)
