"""The bytes of a file and the text in them, with refusals that say what the bytes are instead."""

from __future__ import annotations

from pathlib import Path

from vestige.errors import InputError, did_you_mean, shown

__all__ = ["decoded", "file_bytes", "refuse_other_kind", "text_of_file"]

_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "a gzip-compressed file", "unpack it: gunzip -k {name}"),
    (b"BZh", "a bzip2-compressed file", "unpack it: bunzip2 -k {name}"),
    (b"\xfd7zXZ\x00", "an xz-compressed file", "unpack it: unxz -k {name}"),
    (b"\x28\xb5\x2f\xfd", "a zstd-compressed file", "unpack it: unzstd {name}"),
    (b"PK\x03\x04", "a zip archive (an Excel workbook is one too)", "unpack it, or export the sheet as CSV"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook", "export the sheet as CSV in UTF-8"),
    (b"PAR1", "a Parquet file", "give it the suffix .parquet"),
    (b"ARROW1", "an Arrow file", "write it as Parquet"),
    (b"%PDF", "a PDF", "export its text"),
    (b"SQLite format 3\x00", "an SQLite database", "export the table as CSV"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "export the table as CSV"),
    (b"\x93NUMPY", "a NumPy array", "save named arrays with numpy.savez, or write a table"),
)
"""First bytes, what such a file is, and what helps."""


def file_bytes(path: str | Path, needed: str = "a readable file") -> bytes:
    """The bytes of the file at `path`.

    needed: what the file should be, for the message.
    Raises InputError: no such file (with the sibling whose name is close), a folder, no permission.
    """
    path = Path(path)
    try:
        if not path.is_dir() and path.exists() and not path.is_file():
            # Reading a pipe or a terminal could wait for ever.
            raise InputError(str(path), "a pipe or a device", needed, "write it to a file first")
        return path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise InputError(str(path), "a link to nothing", needed, "check where it leads") from None
        hint = _close_sibling(path)
        raise InputError(str(path), "no such file", needed, hint) from None
    except IsADirectoryError:
        raise InputError(str(path), "a folder", needed, "name a file inside it") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(str(path), reason, needed, "check the path and its permissions") from None


def _close_sibling(path: Path) -> str:
    try:
        # Files only: a folder may be the --out that this very run has just made.
        siblings = [other.name for other in path.parent.iterdir() if other.is_file()]
    except OSError:
        siblings = []
    return did_you_mean(path.name, siblings) if 0 < len(siblings) <= 50 else "check the path"


def text_of_file(path: str | Path, needed: str = "a text file in UTF-8") -> str:
    """The text of a file in UTF-8, a byte order mark taken off. Raises InputError."""
    return decoded(str(path), file_bytes(path, needed))


def decoded(subject: str, data: bytes, encoding: str = "utf-8", *, setting: str = "") -> str:
    """The text in a file's bytes, a byte order mark of UTF-8 taken off.

    subject: the file's path, for the message. encoding: a codec of Python.
    setting: the name of the setting that would choose another encoding, "" where there is none.
    Raises InputError: an unknown codec, bytes of another encoding or of another kind of file.
    """
    name = subject.rpartition("/")[2]
    refuse_other_kind(subject, data, "plain text")
    plain = encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig")
    if plain and (wide := _wide(data)):
        raise InputError(
            subject,
            f"text in {wide.upper()}",
            "text in UTF-8",
            f"convert it: iconv -f {wide} -t utf-8 {name} > utf8-{name}",
        )
    try:
        text = data.decode("utf-8-sig" if plain else encoding)
        text.encode()
        return text
    except LookupError:
        raise InputError(
            "setting 'encoding'", shown(encoding), "a codec of Python", "for example utf-8 or cp1252"
        ) from None
    except UnicodeEncodeError:
        raise InputError(
            subject, f"half a surrogate pair in {shown(encoding)}", "valid Unicode", "save it as UTF-8"
        ) from None
    except UnicodeError as error:
        at = min(getattr(error, "start", 0), len(data) - 1)
        line = data.count(b"\n", 0, at) + 1
        found = f"byte 0x{data[at]:02x}, which is not {encoding.upper() if plain else encoding}"
        other = f", or set {setting} (for a CSV from Windows: cp1252)" if setting else ""
        raise InputError(
            f"{subject}, line {line}",
            f"{found} (cp1252 or Latin-1?)" if plain else found,
            f"text in {'UTF-8' if plain else encoding}",
            f"convert it: iconv -f cp1252 -t utf-8 {name} > utf8-{name}{other}"
            if plain
            else "name the encoding that it was saved in",
        ) from None


def refuse_other_kind(subject: str, data: bytes, needed: str) -> None:
    """Raise InputError where the first bytes are those of another kind of file. needed: what it should be."""
    if data and not data[:64].strip(b"\0"):
        raise InputError(subject, "zero bytes alone", needed, "write or copy the file again")
    for start, kind, remedy in _KINDS:
        if data.startswith(start):
            raise InputError(subject, kind, needed, remedy.format(name=subject.rpartition("/")[2]))


def _wide(data: bytes) -> str:
    """`utf-32` or `utf-16` where the bytes are of that encoding, "" otherwise."""
    head = data[:4]
    if head in (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff"):
        return "utf-32"
    if len(head) == 4 and (head[1:] == b"\0\0\0" or head[:3] == b"\0\0\0"):
        return "utf-32"
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if len(head) == 4 and (head[1::2] == b"\0\0" or head[::2] == b"\0\0"):
        return "utf-16"
    return ""
