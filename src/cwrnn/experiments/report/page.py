"""The report: one page that shows what a store holds. It reads the store only, and trains nothing.

    index.html      self-contained: figures and sounds are inside, nothing is fetched
    figures/        the figures as files, SVG and PNG, a folder for each task
    summary.json    the numbers behind the tables, small

A task that the store has runs of has a chapter. The same store makes the same bytes.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ... import __version__
from ...extras import require
from .. import task as tasks
from ..clocks import chapter as clocks_chapter
from ..generation import chapter as generation_chapter
from ..json_safe import make_json_safe
from ..sweep.run import Record
from ..sweep.store import Store
from ..words import chapter as words_chapter
from . import drawing
from .chapter import Chapter

# the colours of the figures, and the names that the page gives them, in light and in dark
VARIABLES = {
    drawing.INK: "--ink",
    drawing.MUTED: "--muted",
    drawing.GRID: "--grid",
    drawing.TARGET: "--target",
    **{colour: f"--{method}" for method, colour in drawing.COLOURS.items()},
}

ZOOM = 1.68
"""Pixels for a point of a drawing, where the page is wide enough."""

TITLES = {
    tasks.GENERATION: generation_chapter.TITLES,
    tasks.WORDS: words_chapter.TITLES,
    **{clocks_chapter.anchor(task): clocks_chapter.TITLES for task in tasks.CLOCKS},
}
"""Every figure that there may be, by task and the name of its file."""


def write(store: Store, folder: Path) -> Path:
    """Writes the page of the store into the folder; the path of its index.html."""
    environment = templates()
    experiments = [each for each in (generation_chapter.make(store), words_chapter.make(store)) if each is not None]
    clocks = [each for task in tasks.CLOCKS if (each := clocks_chapter.make(store, task)) is not None]
    chapters = [*experiments, *clocks]
    found = environments(record for chapter in chapters for record in chapter.records)

    place = folder / "figures"
    _remove_stale(place, chapters)
    shown = [
        {"task": chapter.task, "title": chapter.title, "template": chapter.template, "sections": chapter.sections,
         "titles": chapter.titles, "contents": chapter.contents, "drawings": _draw(chapter, place / chapter.task)}
        for chapter in chapters
    ]  # fmt: skip
    numbers = make_json_safe(
        {
            "commands": store.commands,
            "created": store.created,
            "environments": found,
            **{chapter.task: chapter.numbers for chapter in chapters},
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(numbers, indent=1, allow_nan=False, ensure_ascii=False) + "\n",
                                         encoding="utf-8")  # fmt: skip
    page = environment.get_template("report/page.html.j2").render(
        chapters=shown,
        experiments=len(experiments),
        environments=found,
        commands=store.commands,
        created=store.created,
        version=__version__,
    )
    index = folder / "index.html"
    index.write_text(page, encoding="utf-8")
    return index


def environments(records: Iterable[Record]) -> list[dict[str, Any]]:
    """What the runs were made with: each different environment once, and how many runs it made."""
    counts = Counter(tuple(sorted(record.environment.items())) for record in records)
    return [{"runs": count, **dict(items)} for items, count in sorted(counts.items())]


def inline(svg: str, name: str, title: str) -> Any:
    """The drawing as a part of a page: it takes the page's colours, and its ids are its own."""
    markup = require("markupsafe", extra="experiments", purpose="the report")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    head, body = svg.split(">", 1)
    box = re.search(r'viewBox="0 0 (\S+) [^"]*"', head)
    assert box is not None
    # letters of one size in all of them
    width = round(ZOOM * float(box[1]))
    return markup.Markup(
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg" {box.group()} role="img" '
        f'style="max-width: {width}px">'
        f"<title>{markup.escape(title)}</title>{body}"
    )


def templates() -> Any:
    """What makes pages of the templates in this package."""
    jinja2 = require("jinja2", extra="experiments", purpose="the report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (files("cwrnn.experiments") / name).read_text(encoding="utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"method": drawing.NAMES.get, "count": "{:,}".format}
    return environment


def _draw(chapter: Chapter, place: Path) -> dict[str, Any]:
    """Writes the figures of a chapter, and returns them for the page."""
    place.mkdir(parents=True, exist_ok=True)
    drawings = {}
    for name, figure in chapter.figures.items():
        svg = drawing.write(figure, place, name)["svg"].read_bytes().decode()
        drawings[name] = inline(svg, f"{chapter.task}-{name}", chapter.titles[name])
    return drawings


def _remove_stale(place: Path, chapters: Sequence[Chapter]) -> None:
    """Removes the figures of a page that was written when the store held something else."""
    drawn = {(chapter.task, name) for chapter in chapters for name in chapter.figures}
    for task, titles in TITLES.items():
        for name in titles:
            if (task, name) not in drawn:
                for suffix in ("svg", "png"):
                    (place / task / f"{name}.{suffix}").unlink(missing_ok=True)
