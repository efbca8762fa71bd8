"""Drawing inline SVG with matplotlib without pyplot: settings, placeholder colours, text alternatives.

Colours are placeholders that become CSS variables, so one drawing serves light, dark and print. `standalone`
makes a file of its own out of an inline drawing.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from vestige.report.words import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "ACCENT",
    "BAND",
    "INK",
    "MUTED",
    "RULE",
    "SECOND",
    "SERIES",
    "WIDTH",
    "Panel",
    "drawing",
    "inline",
    "standalone",
    "svg_text",
]

WIDTH = 5.0
"""Inches; at 72 points an inch the drawing is 360 CSS pixels wide before it is scaled to its column."""

INK, MUTED, RULE, BAND, ACCENT, SECOND = (
    "#010101",
    "#020202",
    "#030303",
    "#040404",
    "#050505",
    "#060606",
)
SERIES = ("#070701", "#070702", "#070703", "#070704", "#070705", "#070706")
"""Six colours that differ for colour-blind readers too; marks differ in shape beside them."""
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    BAND: "var(--band)",
    ACCENT: "var(--accent)",
    SECOND: "var(--second)",
    **{color: f"var(--series-{number})" for number, color in enumerate(SERIES, start=1)},
}
_LIGHT = {
    "paper": "#fcfcfa",
    "ink": "#1c1e21",
    "muted": "#5b6169",
    "rule": "#d9dbd8",
    "band": "#dfe3dc",
    "accent": "#1f5a8c",
    "second": "#8d969f",
    "series-1": "#1f5a8c",
    "series-2": "#b0560f",
    "series-3": "#1b7a5a",
    "series-4": "#8a3d7c",
    "series-5": "#7a6a00",
    "series-6": "#5b6169",
}
_DARK = {
    "paper": "#15171a",
    "ink": "#e6e7e4",
    "muted": "#a2a8ae",
    "rule": "#363a3f",
    "band": "#2c3330",
    "accent": "#82b7e6",
    "second": "#7d868f",
    "series-1": "#82b7e6",
    "series-2": "#f0a263",
    "series-3": "#6fcfa8",
    "series-4": "#dc9ad0",
    "series-5": "#d8c65a",
    "series-6": "#a2a8ae",
}
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "vestige",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 11.0,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "text.color": INK,
    "xtick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.color": RULE,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 10.0,
    "ytick.labelsize": 10.0,
    "lines.solid_capstyle": "round",
    "path.simplify": False,
}


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One drawing. svg: a complete inline element. caption: the words above it. alternative: what it shows.

    marks: which of `unit` intervals and noise `band` it contains, for a key beside it. cells: numbers stand
    on coloured cells, so that letters get no halo.
    """

    svg: str
    caption: str
    alternative: str
    marks: frozenset[str] = frozenset()
    cells: bool = False


@contextmanager
def drawing() -> Iterator[Figure]:
    """An empty figure under this module's settings; matplotlib's own are put back."""
    import matplotlib
    from matplotlib.figure import Figure

    with warnings.catch_warnings(), matplotlib.rc_context(_SETTINGS):
        # Labels may hold letters that the measuring font lacks; the page's own fonts draw them.
        warnings.filterwarnings("ignore", message=".*Glyph .* missing from font.*")
        warnings.filterwarnings("ignore", message=".*does not support .* natively.*")
        yield Figure()


def svg_text(figure: Figure) -> str:
    """A figure as an SVG document."""
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    return buffer.getvalue()


def inline(svg: str, prefix: str, title: str, description: str) -> str:
    """A drawing as an inline element: named, coloured by variables, ids under `prefix`, no declarations."""
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        parent.tag = _local(parent.tag)
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
    root.attrib.clear()
    for element in root.iter():
        for name, value in list(element.attrib.items()):
            del element.attrib[name]
            local = _local(name)
            if local == "id":
                value = f"{prefix}-{value}"
            elif local == "href":
                value = value.replace("#", f"#{prefix}-", 1)
            value = value.replace("url(#", f"url(#{prefix}-")
            element.attrib[local] = _style(value) if local == "style" else value
    root.attrib.update(
        {
            "viewBox": f"0 0 {width:g} {height:g}",
            "width": f"{width:g}",
            "height": f"{height:g}",
            "role": "img",
            "aria-labelledby": f"{prefix}-t {prefix}-d",
            "style": "stroke-linejoin: round; stroke-linecap: butt",
        }
    )
    for position, (tag, text) in enumerate((("title", title), ("desc", description))):
        child = ElementTree.Element(tag, {"id": f"{prefix}-{tag[0]}"})
        child.text = plain(text)
        root.insert(position, child)
    return re.sub(r">\s+<", "><", ElementTree.tostring(root, encoding="unicode"))


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _style(value: str) -> str:
    """Placeholders become variables; the font's family is left to the page, its size stays."""
    for placeholder, variable in _VARIABLES.items():
        value = value.replace(placeholder, variable)
    return re.sub(r"font:\s*([0-9.]+px)[^;]*", r"font-size: \1", value)


def standalone(panel: Panel) -> str:
    """The drawing as a file of its own: light and dark colours inside, no reference to anything else."""

    def variables(colors: dict[str, str]) -> str:
        return "".join(f"--{name}: {color}; " for name, color in colors.items())

    halo = "text { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }"
    style = (
        f"<style>svg {{ color-scheme: light dark; {variables(_LIGHT)}background: var(--paper); "
        "font-family: system-ui, 'DejaVu Sans', sans-serif; } "
        f"@media (prefers-color-scheme: dark) {{ svg {{ {variables(_DARK)}}} }} "
        f"{'' if panel.cells else halo}</style>"
    )
    head, _, body = panel.svg.partition(">")
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{head}>{style}{body}\n"
