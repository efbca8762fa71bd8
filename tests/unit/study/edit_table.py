"""Every kind of edit of every kind of place of a run folder, with all hashes written anew.

`edits` enumerates them, `Desk` applies one, audits, and takes it back. An edit is *found* when a check fails
or names it, *named* when a printed limit covers its place.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from vestige.seeds import digest
from vestige.study.audit_folder import Folder
from vestige.study.store import canonical, file_sha256, pretty

Place = tuple[str | int, ...]
T = TypeVar("T")
HUGE = 10**400
DEEP = b"[" * 100_000


@dataclass(frozen=True)
class Edit:
    """One edit. place: in the file, numbers of list items as they are. make: gives the new file; None:
    removed."""

    file: str
    place: Place
    kind: str
    make: Callable[[], bytes | None] = field(repr=False, compare=False)
    change: Callable[[Any], None] | None = field(default=None, repr=False, compare=False)
    """Of a JSON file: the same edit of its value in place."""

    @property
    def where(self) -> str:
        """File and kind of place."""
        inside = ".".join(_kind_of(self.place))
        return f"{self.file}:{inside}" if inside else self.file


MAPS = {
    *("metrics", "noise", "noise_over_seeds", "minimum_detectable_gain", "noise_pairs"),
    *("acquisition", "exceptions", "bundles", "reserved", "unit_of", "files", "sets", "splits"),
    *("left_out", "by_bundle", "by_seed", "evaluations", "frozen", "probes", "evaluated", "memory"),
    *("curves", "contrasts"),
}
"""Objects whose names are data and not fields."""
SMALL = 1e-6
"""Numbers below this may be rounding of a 0: another sign of one is nothing to find."""


def _kind_of(place: Place) -> tuple[str, ...]:
    """A place without numbers of list items and without names that are data, but for each value."""
    return tuple(
        "#" if isinstance(part, int) else "*" if before in MAPS and place[-1] != "value" else part
        for before, part in zip(("", *place), place, strict=False)
    )


def edits(root: Path, file: str) -> Iterator[Edit]:
    """All edits of one file, one place of each kind."""
    raw = (root / file).read_bytes()
    for kind, data in _whole(raw):
        yield Edit(file, (), kind, lambda data=data: data)
    suffix = Path(file).suffix
    if suffix == ".json":
        yield from _json(file, json.loads(raw))
    elif suffix == ".parquet":
        yield from _parquet(file, raw)
    elif suffix in (".csv", ".yaml", ".html", ".tex", ".svg"):
        yield from _text(file, raw.decode())


def _whole(raw: bytes) -> Iterator[tuple[str, bytes | None]]:
    yield "removed", None
    yield "emptied", b""
    yield "cut in half", raw[: len(raw) // 2]
    yield "other bytes", bytes(byte ^ 0x55 for byte in raw[:4096]) + raw[4096:]
    yield "brackets", DEEP


def _json(file: str, value: Any) -> Iterator[Edit]:
    seen: set[tuple[str, ...]] = set()
    for place, _ in _places(value):
        kind_of = _kind_of(place)
        if kind_of in seen:
            continue
        seen.add(kind_of)
        for kind, change in _changes(value, place):

            def make(change: Callable[[Any], None] = change) -> bytes:
                made = copy.deepcopy(value)
                change(made)
                return (json.dumps(made, indent=1, ensure_ascii=False) + "\n").encode()

            yield Edit(file, place, kind, make, change)


def _places(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    if place:
        yield place, value
    items: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, item in items:
        yield from _places(item, (*place, key))


def _at(value: Any, place: Place) -> Any:
    for part in place:
        value = value[part]
    return value


def _changes(value: Any, place: Place) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """(kind, change in place) of one place."""
    old, last = _at(value, place), place[-1]
    parent = _at(value, place[:-1])

    def put(new: Any) -> Callable[[Any], None]:
        return lambda made: _at(made, place[:-1]).__setitem__(last, new)

    yield "removed", lambda made: _at(made, place[:-1]).__delitem__(last)
    if isinstance(old, dict | list):
        if old:
            yield "emptied", put(type(old)())
        yield "of another type", put("text" if old else 17)
        if isinstance(old, list) and old:
            yield "first item twice", put([old[0], *old])
            yield "last item left out", put(old[:-1])
            if old != old[::-1]:
                yield "turned round", put(old[::-1])
        return
    if isinstance(old, bool):
        yield "turned over", put(not old)
    elif isinstance(old, int | float):
        yield "another number", put(old + (1 if isinstance(old, int) else 0.125 * (abs(old) + 1)))
        if abs(old) > SMALL:
            yield "sign", put(-old)
        yield "huge", put(HUGE)
        yield "no number", put(float("nan"))
    elif isinstance(old, str):
        yield "another text", put(f"{old}x")
        yield "huge", put("x" * 100_000)
    else:
        yield "another text", put("text")
    if old is not None:
        yield "emptied", put("" if isinstance(old, str) and old else None)
    yield "of another type", put({"a": 1} if isinstance(old, str) else "text")
    keys = range(len(parent)) if isinstance(parent, list) else parent
    for other in keys:
        if other != last and type(parent[other]) is type(old) and parent[other] != old:

            def swap(made: Any, other: Any = other) -> None:
                where = _at(made, place[:-1])
                where[last], where[other] = where[other], where[last]

            yield "exchanged with its neighbour", swap
            break


def _parquet(file: str, raw: bytes) -> Iterator[Edit]:
    table = pq.read_table(io.BytesIO(raw))

    def written(made: pa.Table) -> bytes:
        out = io.BytesIO()
        pq.write_table(made, out)
        return out.getvalue()

    yield Edit(file, (), "first row left out", lambda: written(table.slice(1)))
    yield Edit(file, (), "first row twice", lambda: written(pa.concat_tables([table.slice(0, 1), table])))
    for number, name in enumerate(table.column_names):
        column = table[name]
        options = [
            ("column left out", None),
            ("column turned round", column.take(list(range(len(column) - 1, -1, -1)))),
        ]
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            options.append(("column of zeros", pa.array([0] * len(column)).cast(column.type)))
            values = column.to_pylist()
            first = values[0] or 0
            options.append(
                ("first value changed", pa.array([type(first)(first / 2 + 1), *values[1:]]).cast(column.type))
            )
        for kind, new in options:
            if new is None:
                yield Edit(file, (name,), kind, lambda name=name: written(table.drop_columns([name])))
            elif new.to_pylist() != column.to_pylist():
                yield Edit(
                    file,
                    (name,),
                    kind,
                    lambda number=number, name=name, new=new: written(table.set_column(number, name, new)),
                )


def _text(file: str, text: str) -> Iterator[Edit]:
    lines = text.splitlines(keepends=True)
    if len(lines) > 1:
        yield Edit(file, (), "last line left out", lambda: "".join(lines[:-1]).encode())
        yield Edit(
            file, (), "first lines exchanged", lambda: "".join([lines[1], lines[0], *lines[2:]]).encode()
        )
    for kind, places in (("another digit", "0123456789"), ("another letter", "abcdefghijklmnopqrstuvwxyz")):
        there = [place for place, letter in enumerate(text) if letter in places]
        for part in (1, 2, 3):
            if there:
                place = there[part * len(there) // 4]
                other = places[(places.index(text[place]) + 1) % len(places)]
                made = (text[:place] + other + text[place + 1 :]).encode()
                yield Edit(file, (f"part {part}",), kind, lambda made=made: made)


@dataclass
class Watched(Folder):
    """A folder that knows which files each thing in its memo was made of."""

    made_of: dict[Hashable, set[str]] = field(default_factory=dict)
    reading: list[set[str]] = field(default_factory=list)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self.memo:
            self.reading.append({key[1]} if isinstance(key, tuple) and key[0] in READ else set())
            try:
                self.memo[key] = make()
            finally:
                read = self.reading.pop()
            self.made_of[key] = read
        for outer in self.reading[-1:]:
            outer |= self.made_of[key]
        return self.memo[key]  # type: ignore[no-any-return]

    def but(self, files: set[str]) -> Watched:
        """The same folder, knowing nothing that was made of these files."""
        kept = {key: read for key, read in self.made_of.items() if not read & files}
        return Watched(self.root, {key: self.memo[key] for key in kept}, kept)


READ = ("bytes", "json", "table", "columns")


def together(edits_of: Sequence[Edit], files: Mapping[str, bytes]) -> Edit:
    """Edits of values of one JSON file as one edit."""
    file = edits_of[0].file

    def make() -> bytes:
        value = json.loads(files[file])
        for edit in edits_of:
            assert edit.change is not None
            edit.change(value)
        return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()

    return Edit(file, (), f"{len(edits_of)} edits together", make)


class Desk:
    """A copy of a run folder to edit. `applied` writes one edit with all hashes anew and takes it back."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = {
            path.relative_to(root).as_posix(): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file()
        }

    def kinds(self) -> dict[str, str]:
        """Kind of file -> the first file of it: `nodes/full/record.json`, `assessments/.json`."""
        found: dict[str, str] = {}
        for name in self.files:
            parts = name.split("/")
            if name in ("manifest.json", ".lock"):
                continue
            folders = [part.split("-")[0] for part in parts[:-1]]
            last = (
                parts[-1]
                if len(parts) != 2 or parts[0] in ("tables", "figures", "summaries")
                else Path(name).suffix
            )
            if parts[0] == "assessments" and len(Path(name).stem.split("-")) > 2:
                last = "-" + Path(name).stem.split("-")[-1] + last
            found.setdefault("/".join([*folders, last]), name)
        return found

    def write(self, edit: Edit) -> set[str]:
        """Apply an edit with all hashes anew; the files that are other ones now."""
        path, data = self.root / edit.file, edit.make()
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        self._seal(edit.file)
        return self._touched(edit)

    def undo(self, edit: Edit) -> None:
        for name in self._touched(edit):
            (self.root / name).write_bytes(self.files[name])

    def _touched(self, edit: Edit) -> set[str]:
        return {edit.file, self._record(edit.file), "manifest.json"} - {""}

    @staticmethod
    def _record(name: str) -> str:
        parts = name.split("/")
        return (
            f"{parts[0]}/{parts[1]}/record.json" if parts[0] == "nodes" and parts[-1] != "record.json" else ""
        )

    def _seal(self, name: str) -> None:
        listed = name
        if record := self._record(name):
            value = json.loads(self.files[record])
            inner = name.split("/", 2)[2]
            if (self.root / name).is_file():
                value["files"][inner] = file_sha256(self.root / name)
            else:
                del value["files"][inner]
            (self.root / record).write_text(pretty(value))
            listed = record
        files = dict(json.loads(self.files["manifest.json"])["files"])
        if (self.root / listed).is_file():
            files[listed] = file_sha256(self.root / listed)
        else:
            files.pop(listed, None)
        body = {"format": "vestige-manifest-1", "files": files}
        (self.root / "manifest.json").write_text(pretty({**body, "seal": digest(canonical(body))}))


def covered(edit: Edit, patterns: tuple[str, ...]) -> bool:
    """Whether a limit's patterns, `file` or `file:place`, name the place of an edit."""
    for pattern in patterns:
        file, _, inside = pattern.partition(":")
        if fnmatch(edit.file, file) and (not inside or fnmatch(edit.where.partition(":")[2], inside)):
            return True
    return False
