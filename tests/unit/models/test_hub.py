"""A hub that does not answer is asked once, not waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")

import huggingface_hub
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from tests.tiny_lm import save_tiny_llama

from vestige.errors import InputError
from vestige.models import hub
from vestige.models.adapters import is_adapter
from vestige.models.causal_lm import load_language_model


class Session:
    """Counts what it is asked. answer: raised, or returned."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, 0

    def head(self, url: str, **options: Any) -> Any:
        self.asked += 1
        assert options["timeout"] <= 10
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Session:
    found = Session(request.param)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: found)
    monkeypatch.setattr(hub, "_silent_since", None)
    return found


@pytest.mark.parametrize("session", [OSError("no route")], indirect=True, ids=["silent"])
def test_a_silent_hub_is_asked_once_and_counts_as_offline(session: Session) -> None:
    for _ in range(3):
        with hub.answering_hub():
            assert huggingface_hub.is_offline_mode()
        assert not huggingface_hub.is_offline_mode()
    assert session.asked == 1


@pytest.mark.parametrize("session", ["any answer"], indirect=True, ids=["answers"])
def test_a_hub_that_answers_is_used(session: Session) -> None:
    with hub.answering_hub():
        assert not huggingface_hub.is_offline_mode()
    assert session.asked == 1


@pytest.mark.parametrize("session", [OSError("no route")], indirect=True, ids=["silent"])
def test_a_hub_id_without_a_hub_is_refused_in_one_line(session: Session) -> None:
    assert not is_adapter("nobody/no-such-model")
    with pytest.raises(InputError, match="backbone 'nobody/no-such-model'") as error:
        load_language_model("nobody/no-such-model")
    assert "\n" not in str(error.value)
    assert session.asked == 1
    assert not constants.HF_HUB_OFFLINE


def test_a_hub_id_means_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `main` stands for is recorded, and the same for the tokenizer and the weights."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    place = tmp_path / "models--owner--tiny"
    save_tiny_llama(place / "snapshots" / commit)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    found = load_language_model("owner/tiny")
    assert (found.record.kind, found.record.revision) == ("hub", commit)
    weights = place / "snapshots" / commit / "model.safetensors"
    stored = load_file(weights)
    del stored["lm_head.weight"]
    save_file(stored, str(weights), metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"'owner/tiny': found no weights for 'lm_head\.weight'"):
        load_language_model("owner/tiny")


def test_who_is_offline_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: pytest.fail("the hub was asked"))
    with hub.answering_hub():
        assert huggingface_hub.is_offline_mode()
    assert huggingface_hub.is_offline_mode()
