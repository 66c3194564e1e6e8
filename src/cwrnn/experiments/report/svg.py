"""Figures inside a page: matplotlib's SVG with the colours of the page, so that it suits light and dark."""

import re
from typing import Any

from ...extras import require
from . import drawing

# the colours of the figures, and the names that the page's style sheet gives them
VARIABLES = {
    drawing.INK: "--ink",
    drawing.MUTED: "--muted",
    drawing.GRID: "--grid",
    drawing.TARGET: "--target",
    **{colour: f"--{method}" for method, colour in drawing.COLOURS.items()},
}

ZOOM = 1.68
"""Pixels per point of a drawing where the page is wide enough, so that letters have one size in all figures."""


def inline_svg(svg: str, name: str, title: str) -> Any:
    """Returns the drawing as safe HTML that takes the page's colours.

    Args:
        svg: the text of an SVG file that matplotlib wrote
        name: goes before every id, so that several drawings on one page do not share any
        title: what the figure shows, for screen readers
    """
    markup = require("markupsafe", extra="experiments", purpose="the report")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    head, body = svg.split(">", 1)
    box = re.search(r'viewBox="0 0 (\S+) [^"]*"', head)
    assert box is not None
    width = round(ZOOM * float(box[1]))
    return markup.Markup(
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg" {box.group()} role="img" '
        f'style="max-width: {width}px">'
        f"<title>{markup.escape(title)}</title>{body}"
    )


def inline_figure(figure: Any, name: str, title: str) -> Any:
    """Returns a matplotlib figure as safe HTML that takes the page's colours."""
    return inline_svg(drawing.render(figure, "svg").decode(), name, title)
