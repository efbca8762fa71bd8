"""The panel: the backbones of the published decision studies, as shipped data. Needs no torch."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import Field

from vestige.contracts import Record

__all__ = ["PanelModel", "panel"]


class PanelModel(Record):
    """One backbone. name: as published; hub_id: our reading of the name; revision: None where it is not known
    which was used; family: of the reload check; parameters: in billions, rounded; reader: the fitting one."""

    name: str
    hub_id: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str | None
    family: str
    parameters: float = Field(gt=0)
    reader: Literal["encoder", "in_context"]
    role: Literal["reference", "panel"] = "panel"


@cache
def panel() -> tuple[PanelModel, ...]:
    """The 20 backbones in the order of the list."""
    text = files("vestige.models").joinpath("panel.yaml").read_text(encoding="utf-8")
    return tuple(PanelModel.model_validate(entry) for entry in yaml.safe_load(text))
