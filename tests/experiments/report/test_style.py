"""The colours of the page: all text has the contrast that WCAG 2.1 level AA asks for, in light and in dark."""

import re
from importlib.resources import files

import pytest

from cwrnn.experiments.report.drawing import COLOURS, INK, MUTED
from cwrnn.experiments.words.figures import STRONGEST_WITH_NUMBER

LEAST = 4.5
"""The contrast ratio of level AA for text of normal size."""
TEXTS = ("ink", "muted", "target", *COLOURS, "link", "yes", "no")
BACKGROUNDS = ("paper", "panel")


def read_themes() -> dict[str, dict[str, str]]:
    """Returns the variables of the style sheet in light, in dark and in print."""
    style = (files("cwrnn.experiments") / "report/style.css").read_text()
    roots = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)
    return {
        name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", root))
        for name, root in zip(("light", "dark", "print"), roots, strict=True)
    }


def parse(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))


def luminance(colour: tuple[float, ...]) -> float:
    """Returns the relative luminance as WCAG defines it."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(text: tuple[float, ...], background: tuple[float, ...]) -> float:
    low, high = sorted([luminance(text), luminance(background)])
    return (high + 0.05) / (low + 0.05)


def test_the_contrast_is_that_of_wcag():
    assert contrast(parse("#000000"), parse("#ffffff")) == pytest.approx(21)
    assert contrast(parse("#767676"), parse("#ffffff")) == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
@pytest.mark.parametrize("background", BACKGROUNDS)
@pytest.mark.parametrize("text", TEXTS)
def test_texts_have_enough_contrast(theme, background, text):
    colours = read_themes()[theme]
    assert contrast(parse(colours[text]), parse(colours[background])) >= LEAST


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("method", COLOURS)
def test_numbers_on_squares_have_enough_contrast(theme, method):
    colours = {name: parse(colour) for name, colour in read_themes()[theme].items()}
    square = tuple(
        STRONGEST_WITH_NUMBER * strong + (1 - STRONGEST_WITH_NUMBER) * paper
        for strong, paper in zip(colours[method], colours["paper"], strict=True)
    )
    assert contrast(colours["ink"], square) >= LEAST


@pytest.mark.parametrize("theme", ["light", "print"])
@pytest.mark.parametrize("method", COLOURS)
def test_the_page_has_the_colours_of_the_methods(theme, method):
    assert read_themes()[theme][method] == COLOURS[method]


@pytest.mark.parametrize("colour", [INK, MUTED, *COLOURS.values()])
def test_texts_of_figure_files_have_enough_contrast(colour):
    assert contrast(parse(colour), parse("#ffffff")) >= LEAST


def test_figures_may_be_as_narrow_as_a_phone():
    style = (files("cwrnn.experiments") / "report/style.css").read_text()
    rules = dict(re.findall(r"^([^@{}\n]+?) \{([^{}]*)\}", style, flags=re.MULTILINE))
    assert "width: 100%" in rules["figure svg"]
    assert "overflow-x: auto" in rules[".wide"]
    # the only fixed width is that of cells inside of what scrolls by itself
    assert [name for name, rule in rules.items() if re.search(r"(?<![\w(-])(min-)?width: \d+(rem|px)", rule)] == [
        "td.long"
    ]
