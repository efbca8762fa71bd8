"""Tables of the Hugging Face hub, their files read by the readers of every other file. No code is run.

The client library guesses types from a CSV (`001` becomes 1, `true` becomes True) and dates from JSON, so it
is asked for the files alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from vestige.errors import InputError, MissingDependency, did_you_mean, first_five, shown
from vestige.readers import Cell, Table, file_bytes, json_value
from vestige.readers.bytes_and_text import decoded
from vestige.readers.csv_files import read_csv
from vestige.readers.json_files import read_jsonl
from vestige.readers.parquet_files import read_parquet
from vestige.readers.table import Column

__all__ = ["HubTables", "hub_tables"]

_CSV_SETTINGS = {"header": "infer", "names": None, "column_names": None, "skiprows": None, "quotechar": '"'}
"""Settings in a data set's card that would make another table of a CSV, with what they are by default."""


class HubTables:
    """The splits of a data set on the hub. files: split -> the files of it, downloaded when it is read."""

    def __init__(self, hub_id: str, builder: Any) -> None:
        self.hub_id = hub_id
        self._builder = builder
        self._features: dict[str, Any] = dict(builder.info.features or {})
        self._format = type(builder).__module__.rpartition(".")[2]
        if self._format not in ("csv", "json", "parquet"):
            raise InputError(
                f"hub data set '{hub_id}'",
                f"files that are read as {self._format}",
                "CSV, JSON or Parquet files",
                "download it, write it as one of these, and use the data set 'files'",
            )
        self._refuse_settings()

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of its splits, in its order."""
        return tuple(str(name) for name in self._builder.config.data_files or ())

    def table(self, split: str, *, places: Collection[str] = ()) -> Table:
        """One split. Labels that the hub stores as places in a list of names become the names.

        A place of -1, which stands for no label, becomes a missing one. places: columns whose places stay
        numbers, as the right option's of a question does: its name, a letter, could be an option's text too.
        Raises InputError: no such split, a file that cannot be read, a place outside the list.
        """
        subject = f"hub data set '{self.hub_id}', split '{split}'"
        if split not in self.splits:
            raise InputError(
                f"hub data set '{self.hub_id}'",
                f"no split {shown(split)}",
                f"one of {first_five(self.splits)}",
                did_you_mean(split, self.splits),
            )
        parts = [self._read(subject, path, source) for path, source in self._files(subject, split)]
        names = dict.fromkeys(name for part in parts for name in part.names)
        columns: dict[str, Column] = {}
        for name in names:
            cells: list[Cell] = []
            for part in parts:
                cells += part.cells(name) if name in part else [None] * part.rows
            columns[name] = Column(cells if name in places else self._named(subject, name, cells))
        return Table(subject, columns, sum(part.rows for part in parts), lambda row: f"row {row + 1}")

    def _files(self, subject: str, split: str) -> Iterator[tuple[Path, str]]:
        """(file on this machine, its name on the hub) of each file of a split."""
        import datasets

        sources = [str(source) for source in self._builder.config.data_files[split]]
        try:
            manager = datasets.DownloadManager(dataset_name=self.hub_id)
            found = manager.download_and_extract(sources)
        except Exception as error:  # the hub client raises many unrelated types; each means: it cannot be had
            raise cannot_be_had(subject, error) from None
        yield from zip(map(Path, found), sources, strict=True)

    def _read(self, subject: str, path: Path, source: str) -> Table:
        """One file, by the format that the data set's own builder has."""
        data = file_bytes(path, "a file of the hub")
        place = f"{subject}, file {source.rpartition('/')[2]}"
        if self._format == "parquet":
            self._note_features(data)
            return read_parquet(place, data)
        if self._format == "csv":
            config = self._builder.config
            return read_csv(place, data, encoding=config.encoding or "utf-8", delimiter=config.sep)
        field = getattr(self._builder.config, "field", None)
        if field is None and data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"[":
            return read_jsonl(place, data)
        value = json_value(decoded(place, data), place)
        records = value.get(field) if field is not None and isinstance(value, dict) else value
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise InputError(place, "another value", "a list of JSON objects", "use the data set 'files'")
        names = dict.fromkeys(name for record in records for name in record)
        columns = {name: Column([record.get(name) for record in records]) for name in names}
        return Table(place, columns, len(records), lambda row: f"row {row + 1}")

    def _named(self, subject: str, column: str, cells: list[Cell]) -> list[Cell]:
        """The cells with places in a list of names replaced by the names."""
        names: Sequence[str] | None = getattr(self._features.get(column), "names", None)
        if not names:
            return cells
        found: list[Cell] = []
        for row, cell in enumerate(cells):
            place = int(cell) if isinstance(cell, str) and cell.lstrip("-").isdecimal() else cell
            if isinstance(place, bool) or not isinstance(place, int):
                found.append(cell)
            elif place == -1:
                found.append(None)
            elif 0 <= place < len(names):
                found.append(names[place])
            else:
                raise InputError(
                    f"{subject}, row {row + 1}, {column}",
                    f"the label {place}",
                    f"a place among its {len(names)} names, from 0",
                    "correct the data set, or its list of names",
                )
        return found

    def _note_features(self, data: bytes) -> None:
        """Lists of names that a Parquet file written by the hub's client carries itself."""
        if self._features:
            return
        import datasets
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            schema = pq.read_schema(pa.BufferReader(data))
        except (pa.ArrowException, OSError):
            return  # read_parquet says what is wrong
        self._features = dict(datasets.Features.from_arrow_schema(schema))

    def _refuse_settings(self) -> None:
        config = self._builder.config
        for name, usual in _CSV_SETTINGS.items() if self._format == "csv" else ():
            value = getattr(config, name, usual)
            if value != usual:
                raise InputError(
                    f"hub data set '{self.hub_id}', its setting '{name}'",
                    shown(str(value)),
                    "a plain CSV with one header line",
                    "download it, write it as CSV with a header, and use the data set 'files'",
                )


def hub_tables(
    hub_id: str, config: str | None, revision: str | None, purpose: str, *, file: str | None = None
) -> HubTables:
    """The data set of a hub id, nothing of it downloaded yet but its description.

    purpose: what it is wanted for, for messages. file: one of its files by name, which is then the split
    `train`, whatever its card says. Raises InputError in one line when it cannot be had
    (offline, unknown, gated, code instead of files) and MissingDependency without `datasets`.
    """
    try:
        import datasets
    except ImportError:
        raise MissingDependency("datasets", "train", purpose) from None
    try:
        builder = datasets.load_dataset_builder(hub_id, config, revision=revision, data_files=file)
    except Exception as error:  # the hub client raises many unrelated types; each means: it cannot be had
        raise cannot_be_had(purpose, error) from None
    return HubTables(hub_id, builder)


def cannot_be_had(subject: str, error: Exception) -> InputError:
    """The refusal for what the hub's client raised."""
    reason = next(iter(str(error).splitlines()), "") or type(error).__name__
    return InputError(
        subject,
        f"{type(error).__name__}: {reason[:300]}",
        "a data set that can be reached and read without running its code",
        "check the id, the terms and the connection, or download it and name the files",
    )
