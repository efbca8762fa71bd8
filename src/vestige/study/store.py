"""A run folder: whole files or none, nodes keyed by what changes their numbers, and a manifest of hashes.

    DIR/plan.json, history.json, data.json, bundles.json, gates.json, frozen.json, evaluations.json
    DIR/requests/01.json           the deletion request
    DIR/views/01-evaluation.parquet   row ids of each view
    DIR/nodes/full-<16 hex>/       one trained model, prediction table or tuning point, with its record.json
    DIR/assessments/01-s17.json    what was measured
    DIR/manifest.json              the hash of every other file

A node is made in `DIR/nodes/.part-<name>` and renamed when its record is written, so that a kill at any
moment leaves either the whole node or a part that the next run goes on with.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from pydantic import Field, ValidationError, field_validator

from vestige.contracts import Record
from vestige.errors import InputError, shown
from vestige.files import drop_unfinished, writable_folder, write_bytes
from vestige.locks import alone_in, holding
from vestige.readers import read_json as read_json_file
from vestige.seeds import digest
from vestige.study.folder_kinds import refused

__all__ = [
    "ARMS",
    "MANIFEST",
    "RECORDS",
    "SWEEP",
    "Identity",
    "NodeRecord",
    "Store",
    "canonical",
    "file_sha256",
    "listed_arms",
    "node_key",
    "now",
    "program_sha256",
    "read_json",
    "read_manifest",
    "refresh_manifest",
    "refuse_strangers",
    "republishing",
    "run_folders",
]

MANIFEST = "manifest.json"
RECORD = "record.json"
SWEEP = "sweep.json"
NODE_FORMAT = "vestige-node-1"
MANIFEST_FORMAT = "vestige-manifest-1"

RECORDS = 1
"""What records say; raised when they say more. A folder's history names it, so that an audit knows which of
today's entries may be missing there."""

R = TypeVar("R", bound=Record)
Identity = dict[str, Any]


@cache
def program_sha256() -> str:
    """Hash of every source file of the package: equal programs write equal words of equal numbers."""
    package = files("vestige")
    state = hashlib.sha256()
    for path in sorted(Path(str(package)).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            state.update(path.relative_to(str(package)).as_posix().encode() + b"\0")
            state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


def now() -> str:
    """The time in UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def canonical(value: object) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text. Raises ValueError for NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def pretty(value: object) -> str:
    """JSON for people: sorted keys, indented, one final newline. Raises ValueError for NaN."""
    return json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def node_key(kind: str, identity: Mapping[str, Any]) -> str:
    """64 hex digits over the kind and everything that changes the node's numbers."""
    return digest(NODE_FORMAT, kind, canonical(identity))


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes."""
    state = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def read_json(path: Path) -> Any:
    """The value in a JSON file. Raises InputError."""
    return read_json_file(path, "a JSON file of a run folder", "restore it, or delete it and run again")


class NodeRecord(Record):
    """Written last into a node's folder. identity: everything that changes its numbers; key: its hash.

    files: sha256 of each other file in the folder. seconds: of work, over all sittings.
    rows: rows that were trained on, scored or processed. result: what the work reported. made_for: study, arm
    and stage that made it, which stay with it in every study that takes it.
    """

    format: str = NODE_FORMAT
    kind: str
    key: str
    label: str
    identity: dict[str, Any]
    needs: tuple[str, ...] = ()
    files: dict[str, str]
    started: str
    finished: str
    seconds: float = Field(ge=0)
    rows: int = Field(ge=0)
    environment: dict[str, Any]
    result: dict[str, Any]
    made_for: dict[str, str] = Field(default_factory=dict)

    @field_validator("files")
    @classmethod
    def _inside(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
                raise ValueError(f"file {shown(name)} outside the folder")
        return value


def read_manifest(root: Path) -> dict[str, str]:
    """Path -> sha256 of the files of a run folder. Raises InputError when the manifest was changed."""
    path = root / MANIFEST
    value = read_json(path)
    files = value.get("files") if isinstance(value, dict) else None
    if not isinstance(files, dict) or path.read_bytes() != _manifest_bytes(files):
        raise InputError(
            str(path),
            "a changed or damaged manifest",
            "the one that the run wrote",
            "restore it, or run again elsewhere",
        )
    return files


def _manifest_bytes(files: Mapping[str, str]) -> bytes:
    body = {"format": MANIFEST_FORMAT, "files": dict(files)}
    return pretty({**body, "seal": digest(canonical(body))}).encode()


@contextmanager
def republishing(root: Path) -> Iterator[list[Path]]:
    """Write pages, tables and figures of a run folder anew: their paths are put into the list that is given.

    The folder is held from before the first is written, and the manifest has their hashes at the end, also
    of those before a failure. A folder without a manifest is left to the caller. Raises InputError, with
    nothing written, while a run is at work in it.
    """
    written: list[Path] = []
    if not (root / MANIFEST).is_file():
        yield written
        return
    with alone_in(root):
        files = read_manifest(root)
        try:
            yield written
        finally:
            files |= {path.relative_to(root).as_posix(): file_sha256(path) for path in written}
            write_bytes(root / MANIFEST, _manifest_bytes(files))


def refresh_manifest(root: Path, *paths: str) -> None:
    """Enter the present hash of files that were written again on purpose. paths: relative to `root`."""
    with republishing(root) as written:
        written += [root / name for name in paths]


def refuse_strangers(root: Path, own: Sequence[str], what: str) -> None:
    """Raise InputError for a folder that holds files and none of `own`. what: which folder would do."""
    strangers = [item.name for item in root.iterdir() if not item.name.startswith(".")]
    if strangers and not any((root / name).is_file() for name in own):
        raise InputError(
            str(root),
            f"a folder with other files ({shown(sorted(strangers)[0])})",
            f"an empty folder or {what}",
            "name another --out",
        )


@dataclass
class Store:
    """A run folder. Use `Store.writing` to change it; reading needs no lock.

    sources: other run folders whose finished nodes are taken where the keys are equal.
    """

    root: Path
    _files: dict[str, str] = field(default_factory=dict)
    _writable: bool = False
    sources: tuple[Path, ...] = ()

    @classmethod
    def reading(cls, root: str | Path) -> Store:
        """A folder to read. Raises InputError when it is not a run folder."""
        path = Path(root)
        if not (path / "plan.json").is_file():
            needed = "a folder that `vestige study run` or `tune` wrote"
            raise refused(path, "no plan.json", needed, "name that folder")
        return cls(path)

    @classmethod
    @contextmanager
    def writing(cls, root: str | Path, sources: Sequence[Path] = ()) -> Iterator[Store]:
        """Hold the folder alone. Raises InputError when another run has it or it cannot be written."""
        path = writable_folder(Path(root))
        refuse_strangers(path, (MANIFEST, "plan.json"), "a run folder")
        with alone_in(path):
            drop_unfinished(path)
            files = read_manifest(path) if (path / MANIFEST).is_file() else {}
            yield cls(path, files, True, tuple(sources))

    def path(self, name: str) -> Path:
        """Where a file of this folder lies."""
        return self.root / name

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        return self.path(name).is_file()

    def intact(self, name: str) -> bool:
        """Whether a file is there and is the one in the manifest: a kill may leave a file that is not."""
        if not self.has(name):
            return False
        files = self._files or (read_manifest(self.root) if (self.root / MANIFEST).is_file() else {})
        return files.get(name) == file_sha256(self.path(name))

    def json(self, name: str) -> Any:
        """The value in a JSON file."""
        return read_json(self.path(name))

    def read(self, name: str, kind: type[R]) -> R:
        """The record in a JSON file. Raises InputError naming the field that does not fit."""
        path = self.path(name)
        value = read_json(path)
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InputError(
                f"{path}, {'.'.join(map(str, first['loc'])) or 'its top'}",
                first["msg"],
                f"what a run of this version writes ({kind.__name__})",
                "restore the file, or delete it and run again",
            ) from None

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file and enter its hash in the manifest."""
        value = hashlib.sha256(data).hexdigest()
        if self._files.get(name) == value and self.has(name) and file_sha256(self.path(name)) == value:
            return
        write_bytes(self.path(name), data)
        self.enter({name: value})

    def write_json(self, name: str, value: object) -> None:
        """Write JSON with sorted keys."""
        self.write(name, pretty(value).encode())

    def write_once(self, name: str, value: object, what: str) -> None:
        """Write JSON that must not change afterwards. Raises InputError when other content is there."""
        data = pretty(value).encode()
        if self.has(name) and self.path(name).read_bytes() != data:
            raise InputError(
                str(self.path(name)),
                f"another {what} than this study makes",
                f"the same {what}",
                "name another --out, or go back to the settings that made this folder",
            )
        self.write(name, data)

    def enter(self, files: Mapping[str, str]) -> None:
        """Put hashes of files already written into the manifest."""
        assert self._writable
        if all(self._files.get(name) == value for name, value in files.items()):
            return
        self._files.update(files)
        write_bytes(self.path(MANIFEST), _manifest_bytes(self._files))

    def drop(self, name: str) -> None:
        """Remove a file that no longer holds, and its hash."""
        assert self._writable
        self.path(name).unlink(missing_ok=True)
        if self._files.pop(name, None) is not None:
            write_bytes(self.path(MANIFEST), _manifest_bytes(self._files))

    def node(self, kind: str, key: str) -> NodeFolder:
        """The place of one node."""
        return NodeFolder(self.root, kind, key)

    def adopt(self, node: NodeFolder) -> NodeRecord:
        """Enter a finished node in the manifest. Raises InputError when it is damaged."""
        record = node.record()
        if record is None:
            raise _damaged(node.path, "removed after it was made")
        self.enter({f"nodes/{node.name}/{RECORD}": file_sha256(node.path / RECORD)})
        return record

    def available(self, node: NodeFolder) -> bool:
        """Whether a finished node is here or in one of the sources."""
        places = [node, *(NodeFolder(source, node.kind, node.key) for source in self.sources)]
        return any(place.record() is not None for place in places)

    def borrow(self, node: NodeFolder) -> bool:
        """Take a finished node of the same key from the sources, its files hashed first; whether one had it.

        Hard links where the file system allows, copies elsewhere: finished nodes do not change.
        """
        for source in self.sources:
            other = NodeFolder(source, node.kind, node.key)
            if other.path.resolve() == node.path.resolve() or other.record() is None:
                continue
            record = other.verified()
            with node.alone():
                shutil.rmtree(node.part, ignore_errors=True)
                for name in (*record.files, RECORD):
                    target = node.part / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    try:
                        os.link(other.path / name, target)
                    except OSError:
                        shutil.copy2(other.path / name, target)
                os.replace(node.part, node.path)
            return True
        return False

    def nodes(self) -> list[NodeRecord]:
        """Records of every finished node, by folder name."""
        found = []
        for path in sorted((self.root / "nodes").glob("*/" + RECORD)):
            if not path.parent.name.startswith("."):
                found.append(_read_record(path))
        return found


ARMS = "arms"
"""Folder of a sweep that holds a run folder for each arm."""


def listed_arms(root: Path) -> list[str]:
    """The arms that sweep.json names. Raises InputError."""
    value = read_json(root / SWEEP)
    arms = value.get("arms") if isinstance(value, dict) else None
    if not isinstance(arms, list) or any(
        not isinstance(name, str) or "/" in name or name in ("", ".", "..") for name in arms
    ):
        raise InputError(
            str(root / SWEEP), "no list of arms", "what `vestige study run` wrote", "restore it, or run again"
        )
    return arms


def run_folders(root: str | Path) -> dict[str, Path]:
    """Arm name -> run folder, in order of the file that lists them; {"": root} for a study without arms.

    Raises InputError when it is neither.
    """
    path = Path(root)
    if (path / SWEEP).is_file():
        found = {name: path / ARMS / name for name in listed_arms(path)}
        return {name: folder for name, folder in found.items() if (folder / "plan.json").is_file()}
    return {"": Store.reading(path).root}


@dataclass(frozen=True)
class NodeFolder:
    """Where a node lies, or is being made."""

    root: Path
    kind: str
    key: str

    @property
    def name(self) -> str:
        """Folder name: kind and the key's first 16 digits."""
        return f"{self.kind}-{self.key[:16]}"

    @property
    def path(self) -> Path:
        """The finished node."""
        return self.root / "nodes" / self.name

    @property
    def part(self) -> Path:
        """The node while it is being made."""
        return self.root / "nodes" / f".part-{self.name}"

    @cached_property
    def progress_file(self) -> Path:
        """Where a running node notes how far it is, beside the part so that no trainer meets it."""
        return self.root / "nodes" / f".progress-{self.name}.json"

    def record(self) -> NodeRecord | None:
        """The record of a finished node. Raises InputError when it belongs to another key or is damaged."""
        if not self.path.exists():
            return None
        record = _read_record(self.path / RECORD)
        if record.key != self.key or node_key(record.kind, record.identity) != self.key:
            raise _damaged(self.path / RECORD, "the record of other settings")
        return record

    def verified(self) -> NodeRecord:
        """The record after every file was hashed. Raises InputError naming the first that differs."""
        record = self.record()
        if record is None:
            raise _damaged(self.path, "no such node")
        if not record.files:
            raise _damaged(self.path / RECORD, "a record of no files")
        for name, value in record.files.items():
            path = self.path / name
            if not path.is_file():
                raise _damaged(path, "no such file")
            if file_sha256(path) != value:
                raise _damaged(path, "changed bytes")
        return record

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep a second process out of the working folder, such as one that a killed run left behind."""
        self.part.parent.mkdir(parents=True, exist_ok=True)
        with holding(self.part.parent / f".lock-{self.name}"):
            yield

    def begin(self) -> Path:
        """Make the working folder, or find the one that an interrupted run left.

        One that was being borrowed is dropped: its files are also another run's, not to be written to.
        """
        if any(path.is_file() and path.stat().st_nlink > 1 for path in self.part.rglob("*")):
            shutil.rmtree(self.part)
        self.part.mkdir(parents=True, exist_ok=True)
        drop_unfinished(self.part)
        return self.part

    def discard(self) -> None:
        """Remove the working folder."""
        shutil.rmtree(self.part, ignore_errors=True)
        self.progress_file.unlink(missing_ok=True)

    def finish(
        self,
        *,
        label: str,
        identity: Identity,
        needs: tuple[str, ...],
        started: str,
        seconds: float,
        rows: int,
        environment: dict[str, Any],
        result: dict[str, Any],
        made_for: dict[str, str],
    ) -> NodeRecord:
        """Hash every file, write the record last, and rename the working folder."""
        (self.part / RECORD).unlink(missing_ok=True)
        files = {}
        for path in sorted(self.part.rglob("*")):
            if path.is_file():
                files[path.relative_to(self.part).as_posix()] = file_sha256(path)
                _sync(path)
        record = NodeRecord(
            kind=self.kind,
            key=self.key,
            label=label,
            identity=identity,
            needs=needs,
            files=files,
            started=started,
            finished=now(),
            seconds=seconds,
            rows=rows,
            environment=environment,
            result=result,
            made_for=made_for,
        )
        write_bytes(self.part / RECORD, pretty(record.model_dump(mode="json")).encode())
        os.replace(self.part, self.path)
        self.progress_file.unlink(missing_ok=True)
        return record


def _read_record(path: Path) -> NodeRecord:
    try:
        return NodeRecord.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _damaged(path, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _damaged(path: Path, found: str) -> InputError:
    return InputError(
        str(path), found, "what the run wrote", "delete the folder that holds it and run the study again"
    )


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
