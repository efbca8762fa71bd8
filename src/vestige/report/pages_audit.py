"""The audit's check of pages, tables and figures: made again from the records, and compared byte by byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from vestige.report.publish import (
    PAGES,
    Making,
    Pages,
    is_page,
    made_of,
    read_publication,
    write_files,
)
from vestige.study.audit import AuditReport, audit_study
from vestige.study.audit_folder import Finding, Folder, parsed
from vestige.study.audit_sweep import audit_sweep
from vestige.study.store import SWEEP, program_sha256, run_folders

__all__ = ["CHECK", "audited", "pages"]


def audited(root: str | Path) -> dict[str, AuditReport]:
    """The audit of a study's folder, pages with it: by arm, and "across arms"; "" of a study without arms.

    Nothing in the folder is written. Raises InputError when it is no run folder.
    """
    runs = run_folders(root)
    reports = {arm: audit_study(path, more=(CHECK,)) for arm, path in runs.items()}
    if "" not in runs:
        reports["across arms"] = audit_sweep(Path(root), more=(CHECK,))
    return reports


def pages(folder: Folder) -> Finding:
    """Every page, table and figure of a run folder or sweep against what its records give."""
    found = Finding(what="pages, tables and figures")
    there = set(_there(folder.root))
    if PAGES not in there:
        # Of no other run is there a page without a note of how it was made.
        for name in sorted(there):
            if folder.earlier:
                found.unchecked.append(f"{name}: an earlier version did not note how it was made")
            else:
                found.need(False, f"{name}: nothing notes how it was made")
        return found
    noted = Pages.model_validate(folder.json(PAGES))
    whole = noted.model_dump(mode="json") == folder.json(PAGES) and bool(noted.made)
    found.need(whole, f"{PAGES} is not as `vestige report` writes it")
    listed = [name for making in noted.made for name in making.files]
    found.need(len(set(listed)) == len(listed), f"{PAGES} lists a file twice")
    for name in sorted(there - {PAGES} - set(listed)):
        found.need(False, f"{name}: nothing notes how it was made")
    for name in sorted(set(listed) - there):
        found.need(False, f"{name} is missing")
    now = made_of(folder.root)
    for making in noted.made:
        _again(folder.root, making, set(listed), now, found)
    return found


def _again(root: Path, making: Making, listed: set[str], now: str, found: Finding) -> None:
    """Make some files again, each compared with the one that is there."""
    names = ", ".join(making.files[:3]) + (" and others" if len(making.files) > 3 else "")
    if making.made_of != now:
        found.unchecked.append(
            f"{names}: made before the records were what they are; make it anew: vestige report"
        )
        return
    if making.wanted.beside:
        found.unchecked.append(f"{names}: made with other folders ({', '.join(making.wanted.beside)})")
        return
    if making.wanted.html and making.wanted.title not in ("", _name(root)):
        found.noted.append(f"report.html has a heading of its own: {making.wanted.title}")
    with TemporaryDirectory() as place:
        target = Path(place)
        made = {
            path.relative_to(target).as_posix(): path.read_bytes()
            for path in write_files(target, making.wanted, read_publication(root, making.wanted))
        }
    for name in sorted(made.keys() - listed):
        found.need(False, f"{name} is missing")
    for name in making.files:
        if not found.need(name in made, f"{name} is nothing that is made so") or not (root / name).is_file():
            continue
        if (root / name).read_bytes() == made[name]:
            found.count += 1
        elif making.program == program_sha256():
            found.need(False, f"{name} is not what the records give")
        else:
            found.noted.append(f"{name} differs from what this version makes: another version made it")


def _name(root: Path) -> str:
    """The study's name, which heads the page that a run writes."""
    kept = root / (SWEEP if (root / SWEEP).is_file() else "plan.json")
    return str(parsed(kept.read_bytes())["name"])


def _there(root: Path) -> Iterator[str]:
    for path in sorted(root.glob("*")):
        if path.is_file() and is_page(path.name):
            yield path.name
        elif path.is_dir() and path.name in ("tables", "figures"):
            yield from (item.relative_to(root).as_posix() for item in path.rglob("*") if item.is_file())


CHECK = ("pages", "pages, tables and figures are what the records give", pages)
"""For `audit_study` and `audit_sweep`."""
