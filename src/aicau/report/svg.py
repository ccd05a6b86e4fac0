"""A figure as SVG text that a strict page can hold: ids of its own, attributes for styles, names for points."""

import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.figure import Figure

SVG = "{http://www.w3.org/2000/svg}"
ElementTree.register_namespace("", SVG[1:-1])
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def text(made: Figure, name: str, style: dict[Any, Any], titles: Mapping[str, Sequence[str]]) -> str:
    """With ids that no other figure of the page has, and `titles` that show when a point of their group is hovered."""
    with mpl.rc_context({**style, "svg.hashsalt": name}), warnings.catch_warnings():
        # The browser has the letters that Matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        out = io.StringIO()
        made.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    drawing = ElementTree.fromstring(out.getvalue())
    for number, part in enumerate(drawing.iter()):
        _without_styles(part)
        if part.tag == f"{SVG}g" and "id" in part.attrib:  # nothing refers to a group
            part.set("id", f"{name}-{part.attrib['id']}-{number}")
    for group, words in titles.items():
        for points in (one for one in drawing.iter(f"{SVG}g") if one.get("id", "").startswith(f"{name}-{group}-")):
            for mark, title in zip(points.iter(f"{SVG}use"), words, strict=False):  # in their order
                ElementTree.SubElement(mark, f"{SVG}title").text = title
    return ElementTree.tostring(drawing, encoding="unicode")


def _without_styles(part: ElementTree.Element) -> None:
    """Attributes in the place of style sheets: a strict page allows none, and they say the same."""
    for sheet in part.findall(f"{SVG}style"):
        part.remove(sheet)
    said = [word.partition(":") for word in part.attrib.pop("style", "").split(";") if ":" in word]
    for name, value in ((name.strip(), value.strip()) for name, _, value in said):
        if name == "font":  # the page has its own
            name, value = "font-size", next((word for word in value.split() if word.endswith("px")), "9px")
        part.set(name, value)
