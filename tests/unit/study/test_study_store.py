"""The run folder: whole files, hashes, one run at a time."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from vestige.errors import InputError
from vestige.locks import held
from vestige.study import audit_files
from vestige.study.audit_folder import Folder
from vestige.study.plan import Plan
from vestige.study.store import (
    NodeFolder,
    Store,
    canonical,
    file_sha256,
    node_key,
    read_manifest,
    refresh_manifest,
    run_folders,
)


def finish(folder: NodeFolder, identity: dict[str, object]) -> None:
    folder.begin()
    (folder.part / "weights").write_bytes(b"12345")
    folder.finish(
        label="a model",
        identity=identity,
        needs=(),
        started="2026-01-01T00:00:00.000000+00:00",
        seconds=1.5,
        rows=3,
        environment={},
        result={},
        made_for={},
    )


def node(root: Path, identity: dict[str, object]) -> NodeFolder:
    return NodeFolder(root, "full", node_key("full", identity))


def test_every_part_of_an_identity_changes_the_key() -> None:
    base = {"seed": 17, "settings": {"a": 1, "b": [1, 2]}}
    keys = {
        node_key("full", base),
        node_key("oracle", base),
        node_key("full", {**base, "seed": 18}),
        node_key("full", {**base, "settings": {"a": 1, "b": [2, 1]}}),
        node_key("full", {**base, "more": None}),
    }
    assert len(keys) == 5
    assert node_key("full", dict(reversed(base.items()))) == node_key("full", base)
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical({"a": float("nan")})


def test_a_node_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    identity: dict[str, object] = {"seed": 1}
    place = node(tmp_path, identity)
    assert place.record() is None
    place.begin()
    (place.part / "weights").write_bytes(b"half")
    assert place.record() is None
    finish(place, identity)
    assert not place.part.exists()
    record = place.verified()
    assert set(record.files) == {"weights"}
    assert record.identity == identity


def test_a_changed_node_is_refused(tmp_path: Path) -> None:
    identity: dict[str, object] = {"seed": 1}
    place = node(tmp_path, identity)
    finish(place, identity)
    (place.path / "weights").write_bytes(b"12346")
    with pytest.raises(InputError, match="changed bytes"):
        place.verified()
    (place.path / "weights").unlink()
    with pytest.raises(InputError, match="no such file"):
        place.verified()
    record = json.loads((place.path / "record.json").read_text())
    (place.path / "record.json").write_text(json.dumps({**record, "files": {}}))
    with pytest.raises(InputError, match="a record of no files"):
        place.verified()
    record["identity"] = {"seed": 2}
    (place.path / "record.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="other settings"):
        place.record()
    (place.path / "record.json").write_text("{")
    with pytest.raises(InputError, match="needed one JSON value"):
        place.record()


def test_the_manifest_lists_what_is_written_and_notices_its_own_change(tmp_path: Path) -> None:
    with Store.writing(tmp_path) as store:
        store.write_json("plan.json", {"a": 1})
        store.write("report.html", b"one")
        store.write("gone.txt", b"x")
        store.drop("gone.txt")
    assert set(read_manifest(tmp_path)) == {"plan.json", "report.html"}
    (tmp_path / "report.html").write_bytes(b"two")
    before = read_manifest(tmp_path)
    refresh_manifest(tmp_path, "report.html")
    assert read_manifest(tmp_path)["report.html"] != before["report.html"]
    raw = (tmp_path / "manifest.json").read_bytes()
    (tmp_path / "manifest.json").write_bytes(raw.replace(b"\n ", b"\n\t", 1))
    with pytest.raises(InputError, match="changed or damaged manifest"):
        read_manifest(tmp_path)


def test_what_is_written_once_does_not_change(tmp_path: Path) -> None:
    with Store.writing(tmp_path) as store:
        store.write_once("bundles.json", {"a": 1}, "plan of bundles")
        store.write_once("bundles.json", {"a": 1}, "plan of bundles")
        with pytest.raises(InputError, match="another plan of bundles"):
            store.write_once("bundles.json", {"a": 2}, "plan of bundles")


def test_a_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.writing(tmp_path) as store:
        store.write("plan.json", b"old")

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", full)
        with pytest.raises(InputError, match="full disk"):
            store.write("plan.json", b"new")
    assert (tmp_path / "plan.json").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".vestige-")] == []


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    assert not held(tmp_path)
    with Store.writing(tmp_path) as store:
        store.write_json("plan.json", {})
        assert held(tmp_path)
        with pytest.raises(InputError, match="another run at work"), Store.writing(tmp_path):
            pass
    assert not held(tmp_path)


def test_the_lock_goes_with_a_killed_process(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from vestige.study.store import Store\n"
        f"with Store.writing({str(tmp_path)!r}) as store:\n"
        "    store.write_json('plan.json', {})\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -9
    with Store.writing(tmp_path) as store:
        assert store.json("plan.json") == {}


def test_folders_that_are_no_run_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="a folder with other files"), Store.writing(tmp_path):
        pass
    with pytest.raises(InputError, match=r"no plan\.json"):
        Store.reading(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        Store.reading(tmp_path / "gone")


def test_a_read_only_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(InputError, match="no permission to write"), Store.writing(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_reading_and_auditing_need_no_torch() -> None:
    code = (
        "import sys\n"
        "import vestige.study.audit, vestige.study.freeze, vestige.study.plan, vestige.study.runner\n"
        "import vestige.study.status, vestige.study.store, vestige.study.tune, vestige.cli.study\n"
        "assert 'torch' not in sys.modules, sorted(sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_record_that_names_files_outside_its_node_is_refused(tmp_path: Path) -> None:
    place = node(tmp_path / "theirs", {"seed": 1})
    finish(place, {"seed": 1})
    secret = tmp_path / "secret"
    secret.write_bytes(b"mine")
    record = json.loads((place.path / "record.json").read_text())
    for name in ("../../../secret", str(secret)):
        record["files"] = {name: file_sha256(secret)}
        (place.path / "record.json").write_text(json.dumps(record))
        with Store.writing(tmp_path / "mine", [tmp_path / "theirs"]) as store:
            store.write_json("plan.json", {})
            with pytest.raises(InputError, match="outside the folder"):
                store.borrow(store.node("full", place.key))
    assert sorted(path.name for path in tmp_path.rglob("secret")) == ["secret"]


def test_what_a_killed_run_was_borrowing_is_not_written_to(tmp_path: Path) -> None:
    place = node(tmp_path / "theirs", {"seed": 1})
    finish(place, {"seed": 1})
    mine = NodeFolder(tmp_path / "mine", "full", place.key)
    mine.part.mkdir(parents=True)
    os.link(place.path / "weights", mine.part / "weights")
    (mine.begin() / "weights").write_bytes(b"other")
    assert (place.path / "weights").read_bytes() == b"12345"


def test_a_record_that_does_not_fit_names_its_file_and_field(tmp_path: Path) -> None:
    with Store.writing(tmp_path) as store:
        store.write_json("plan.json", {"name": 3})
        with pytest.raises(InputError, match=r"plan\.json, name: found .*string"):
            store.read("plan.json", Plan)


@pytest.mark.parametrize("text", ["[]", "{}", '{"arms": 3}', '{"arms": [".."]}', '{"arms": ["a/b"]}', "{"])
def test_a_damaged_list_of_arms_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(InputError, match=r"sweep\.json"):
        run_folders(tmp_path)


def test_what_a_killed_writer_left_is_removed_and_is_no_stranger(tmp_path: Path) -> None:
    with Store.writing(tmp_path) as store:
        store.write_json("plan.json", {})
    left = [
        tmp_path / ".vestige-a.json",
        tmp_path / "nodes/.part-full-0/.vestige-b",
        tmp_path / "nodes/.vestige-c",
    ]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    found = audit_files.files(Folder(tmp_path))
    assert not found.failed
    assert len(found.noted) == 3  # two files and the part
    with Store.writing(tmp_path):
        assert not any(path.exists() for path in left)
    place = NodeFolder(tmp_path, "full", "0" * 64)
    (place.begin() / ".vestige-d").write_text("half")
    assert not list(place.begin().iterdir())
