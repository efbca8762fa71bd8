"""Files appear whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from vestige.errors import InputError
from vestige.files import atomic_path, reading, writable_folder, write_bytes, write_text, writing


def test_a_file_is_replaced_whole_with_ordinary_permissions(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    write_text(path, "one\r\n")
    write_bytes(path, "zwei ü".encode())
    assert path.read_text("utf-8") == "zwei ü"
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert [item.name for item in path.parent.iterdir()] == ["file.txt"]


def test_an_error_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def half() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["file.txt"]


@pytest.mark.parametrize(
    ("code", "part"),
    [
        (errno.ENOSPC, "a full disk"),
        (errno.EROFS, "Read-only file system"),
        (errno.EACCES, "no permission to write"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_what_the_system_refuses_is_one_line(
    code: int, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(InputError, match=part) as caught:
        write_text(tmp_path / "file.txt", "x")
    assert str(tmp_path / "file.txt") in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="a file where a folder is needed"):
        writable_folder(tmp_path / "file")
    with pytest.raises(InputError, match="a file where a folder is needed"):
        write_text(tmp_path / "file" / "x.txt", "x")


def test_a_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    assert list(writable_folder(tmp_path / "a" / "b").iterdir()) == []


def test_reading_names_the_path(tmp_path: Path) -> None:
    for path, part in ((tmp_path / "none", "no such file"), (tmp_path, "a folder")):
        with pytest.raises(InputError, match=part), reading(path):
            path.read_bytes()


def test_a_refusal_inside_the_library_for_tensors_is_the_system_s(tmp_path: Path) -> None:
    """It has an error of its own for what the system refuses, and no file may be half there."""
    resource = pytest.importorskip("resource")
    torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    from vestige.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

    state = {"weight": torch.zeros(100_000)}
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
        with pytest.raises(InputError, match="File too large"), atomic_path(tmp_path / "a") as path:
            save_file(state, str(path))
        with pytest.raises(InputError, match="File too large"):
            save_checkpoint(tmp_path, Checkpoint(1, "", state, {}, []))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert load_checkpoint(tmp_path, "") is None
    save_checkpoint(tmp_path, Checkpoint(1, "", state, {}, []))
    assert load_checkpoint(tmp_path, "") is not None
    save_file({"weight": torch.ones(100_000)}, str(tmp_path / "checkpoint-00000001" / "weights.safetensors"))
    assert load_checkpoint(tmp_path, "") is None  # no longer what was written
    with pytest.raises(InputError, match="a full disk; needed room to write"), writing(tmp_path):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    with pytest.raises(SafetensorError), writing(tmp_path):
        raise SafetensorError("invalid JSON in header")
