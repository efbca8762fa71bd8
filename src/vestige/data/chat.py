"""Conversations through a tokenizer's chat template, and where in it the assistant speaks. No torch.

A template is a program that came with the tokenizer: it may fail in any way, or not end.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vestige.errors import InputError

if TYPE_CHECKING:
    from vestige.data.corpora import Document

__all__ = ["chat_text", "templated", "turn_spans", "turns_of"]

PATIENCE = 10.0
"""Seconds that a template has for one conversation; it takes milliseconds."""
MARK = "\ue000\uf8ff\ue000"
"""Stands for a turn's content; no text has these private characters in this order."""


def turns_of(document: Document) -> list[dict[str, str]]:
    """The document as a conversation: its own messages; question and answer; any other text as a user's."""
    if document.messages:
        return [{"role": role, "content": content} for role, content in document.messages]
    if document.question is not None and document.answer is not None:
        return [
            {"role": "user", "content": document.question},
            {"role": "assistant", "content": document.answer},
        ]
    return [{"role": "user", "content": document.text}]


def chat_text(tokenizer: Any, document: Document, *, subject: str) -> str:
    """The document through the tokenizer's chat template: question and answer as user and assistant turns,
    any other text as one user turn."""
    if not getattr(tokenizer, "chat_template", None):
        raise InputError(
            subject,
            "a tokenizer without a chat template",
            "a chat template for --chat-template",
            "leave --chat-template out",
        )
    return templated(tokenizer, turns_of(document), subject=f"{subject}, row {document.id}")


def templated(
    tokenizer: Any, turns: Sequence[Mapping[str, str]], *, subject: str, prompt: bool = False
) -> str:
    """The turns through the chat template; prompt: with what comes before an answer. Raises InputError where
    the template refuses them, fails, or does not end."""
    from jinja2 import TemplateError

    def render() -> Any:
        return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=prompt)

    try:
        text: str = _within(PATIENCE, render)
    except Exception as error:  # of any kind: the template computes what it likes
        said = str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"
        raise InputError(
            subject,
            f"turns that the chat template refuses ({said})",
            "turns in the order that it takes",
            "correct the row, or leave --chat-template out",
        ) from None
    return text


class _Stopped(BaseException):
    """Ends a thread whose result nobody waits for any more."""


def _within(seconds: float, work: Callable[[], Any]) -> Any:
    """What `work` returns or raises; TimeoutError when it takes longer, and it is stopped."""
    done: list[Any] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            done.append(work())
        except _Stopped:
            pass
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Stopped)
        )
        raise TimeoutError(f"not done after {seconds:g} seconds")
    if failed:
        raise failed[0]
    return done[0]


def turn_spans(tokenizer: Any, document: Document, text: str, subject: str) -> list[tuple[int, int]]:
    """The characters of the assistant's turns in the rendered text, with the mark that ends a turn.

    A turn begins behind the prompt for it and ends where the text of all turns up to it ends. Of a template
    that renders a turn otherwise when another follows, a mark in the content's place shows where it goes.
    Raises InputError for a template that leaves an assistant's turn out or rewrites it.
    """
    turns = turns_of(document)
    spans = []
    for i, turn in enumerate(turns):
        if turn["role"] != "assistant" or not turn["content"].strip():
            continue
        span = _between(tokenizer, turns, i, text, subject) or _marked(tokenizer, turns, i, text, subject)
        if span is None:
            raise InputError(
                subject,
                "a chat template that leaves an assistant's turn out or rewrites it",
                "one that renders what is to be predicted",
                "use another tokenizer, or leave --chat-template out",
            )
        spans.append(span)
    return spans


def _between(
    tokenizer: Any, turns: list[dict[str, str]], i: int, text: str, subject: str
) -> tuple[int, int] | None:
    """From the prompt for the turn to the end of the turns up to it, where the text begins with both."""
    if not i:
        return None
    before = templated(tokenizer, turns[:i], subject=subject, prompt=True)
    upto = templated(tokenizer, turns[: i + 1], subject=subject).rstrip()
    if not (before and text.startswith(before) and text.startswith(upto)):
        return None
    return (len(before), len(upto)) if turns[i]["content"].strip() in upto[len(before) :] else None


def _marked(
    tokenizer: Any, turns: list[dict[str, str]], i: int, text: str, subject: str
) -> tuple[int, int] | None:
    """Where the text is what the template writes around a mark in the place of the turn's content, and an end
    token behind it."""
    marked = [*turns[:i], {**turns[i], "content": MARK}, *turns[i + 1 :]]
    before, found, after = templated(tokenizer, marked, subject=subject).partition(MARK)
    for content in (turns[i]["content"], turns[i]["content"].strip()):
        if found and before + content + after == text:
            end = len(before) + len(content)
            mark = tokenizer.eos_token or ""
            return len(before), end + (len(mark) if text.startswith(mark, end) else 0)
    return None
