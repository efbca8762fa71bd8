"""Where the public data sets lie on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from vestige.errors import InputError

__all__ = ["dataset_folder"]


def dataset_folder(name: str, path: str | None, needed: str, hub_id: str) -> Path:
    """The folder of data set `name` that holds the file `needed`.

    Looked for in `path`, else where the environment says: VESTIGE_DATA, then VESTIGE_SHARED/data. Each
    may be the data set's own folder or its parent. Raises InputError that lists where it looked.
    """
    roots = [Path(path)] if path is not None else []
    if path is None:
        if data := os.environ.get("VESTIGE_DATA"):
            roots.append(Path(data))
        if shared := os.environ.get("VESTIGE_SHARED"):
            roots.append(Path(shared) / "data")
    for root in roots:
        for folder in (root, root / name):
            if (folder / needed).is_file():
                return folder
    looked = ", ".join(str(root) for root in roots)
    raise InputError(
        f"data set '{name}'",
        f"no {needed} in {looked} or its folder '{name}'" if roots else "no folder named",
        f"a folder with {needed}",
        f"set path or the environment variable VESTIGE_DATA, or use the data set 'hub' with hub_id {hub_id}",
    )
