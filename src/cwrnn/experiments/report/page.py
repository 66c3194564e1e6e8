"""The report: one page about the runs of a store. It reads the store, and trains nothing.

    index.html      the page; figures and sounds are inside, and nothing is fetched from elsewhere
    figures/        the figures as SVG and PNG files, in a folder for each task
    summary.json    the numbers behind the tables

The page has a chapter for each task that the store has runs of. The same store makes the same bytes. All files are
written whole or not at all.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import __version__
from ...writing import write_files
from .. import paper
from ..clocks import chapter as clocks_chapter
from ..errors import ExperimentError
from ..file_names import check_path, format_page_path
from ..json_safe import make_json_safe
from ..progress import Progress, ProgressCallback
from ..sweep.run import Record
from ..sweep.store import Store
from ..task import all_tasks
from .chapter import Chapter
from .drawing import render_files
from .privacy import hide_command_folders
from .svg import inline_svg
from .templates import make_template_environment


@dataclass(frozen=True)
class Report:
    """A report that was written.

    `print` shows where the page is, and `to_dict` returns the numbers for JSON.
    """

    page: Path
    """The page, index.html."""
    summary: Path
    """The numbers as a file, summary.json."""
    figures: Mapping[str, Mapping[str, tuple[Path, Path]]]
    """The SVG and the PNG file of each figure, by task and by the figure's name."""
    numbers: Mapping[str, Any]
    """The contents of summary.json."""

    def __str__(self) -> str:
        return format_page_path(self.page)

    def to_dict(self) -> dict[str, Any]:
        """Returns the numbers, which JSON can hold."""
        return dict(self.numbers)


def write_report(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    progress: ProgressCallback | None = None,
) -> Report:
    """Writes the report about the runs of a store: a page, its figures and its numbers.

    Args:
        folder: the folder of the store, or its file runs.sqlite
        out: the folder that the report goes to; by default that of the store
        progress: called after every figure

    Raises:
        StoreError: there is no store, or it cannot be read.
        ExperimentError: the store has no runs.

    Example::

        report = cwrnn.experiments.write_report("out/demo")
        print(report.page, report.numbers["generation"]["rows"][0]["mean"])
    """
    target = None if out is None else check_path("out", out)
    with Store.read(check_path("folder", folder)) as store:
        if not store.keys():
            raise ExperimentError(f"{store.path}: there are no runs yet")
        return write_store_report(store, store.path.parent if target is None else target, progress=progress)


def write_store_report(store: Store, folder: Path, *, progress: ProgressCallback | None = None) -> Report:
    """Writes the report about an open store into the folder. A store without runs makes a page that says so."""
    environment = make_template_environment()
    made = [(task, chapter) for task in all_tasks() if (chapter := task.make_chapter(store)) is not None]
    experiments = [chapter for task, chapter in made if task.has_reproduction]
    evaluations = [chapter for task, chapter in made if not task.has_reproduction]
    clocks = [chapter for task in all_tasks() if (chapter := clocks_chapter.make_chapter(store, task)) is not None]
    chapters = [*experiments, *evaluations, *clocks]
    leading = next((chapter for chapter in chapters if chapter.opening is not None), None)
    environments = count_environments(record for chapter in chapters for record in chapter.records)
    damaged = list(store.damaged.values())
    commands = [hide_command_folders(command) for command in store.commands]

    contents: dict[Path, bytes] = {}
    figures: dict[str, dict[str, tuple[Path, Path]]] = {}
    total = sum(len(chapter.figures) for chapter in chapters)
    views = []
    for chapter in chapters:
        drawings = {}
        figures[chapter.task] = {}
        for name, figure in chapter.figures.items():
            files = render_files(figure, folder / "figures" / chapter.task, name)
            svg, png = files
            contents |= files
            figures[chapter.task][name] = (svg, png)
            drawings[name] = inline_svg(files[svg].decode(), f"{chapter.task}-{name}", chapter.titles[name])
            if progress is not None:
                done = sum(map(len, figures.values()))
                progress(Progress("drawing", done, total, done / total))
        views.append(_make_view(chapter, drawings, leads=chapter is leading))
    numbers = make_json_safe(
        {
            "commands": commands,
            "created": store.created,
            "environments": environments,
            "damaged": damaged,
            **{chapter.task: chapter.numbers for chapter in chapters},
        }
    )
    page = environment.get_template("report/page.html.j2").render(
        chapters=views,
        leading=next((view for view in views if view["leads"]), None),
        experiments=len(experiments),
        evaluations=[view for view in views if view["task"] in {chapter.task for chapter in evaluations}],
        environments=environments,
        damaged=damaged,
        commands=commands,
        created=store.created,
        paper_runs=paper.RUNS,
        version=__version__,
    )
    report = Report(folder / "index.html", folder / "summary.json", figures, numbers)
    contents[report.summary] = f"{json.dumps(numbers, indent=1, allow_nan=False, ensure_ascii=False)}\n".encode()
    contents[report.page] = page.encode()
    write_files(contents)
    _remove_stale_figures(folder / "figures", chapters)
    return report


def list_figure_titles() -> dict[str, Mapping[str, str]]:
    """Returns the titles of all figures that a page can have, by chapter and by the names of their files."""
    titles = {task.name: task.figure_titles for task in all_tasks()}
    return titles | {clocks_chapter.name_chapter(task): clocks_chapter.TITLES for task in all_tasks()}


def count_environments(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Returns each different environment that runs were made in, and how many runs it made."""
    counts = Counter(tuple(sorted(record.environment.items())) for record in records)
    return [{"runs": count, **dict(items)} for items, count in sorted(counts.items())]


def _make_view(chapter: Chapter, drawings: Mapping[str, Any], *, leads: bool) -> dict[str, Any]:
    """Returns the chapter as its template takes it; `leads` if the page opens with its picture."""
    return {
        "task": chapter.task,
        "title": chapter.title,
        "template": chapter.template,
        "opening": chapter.opening,
        "overview": chapter.overview,
        "sections": chapter.sections,
        "titles": chapter.titles,
        "contents": chapter.contents,
        "drawings": drawings,
        "leads": leads,
    }


def _remove_stale_figures(folder: Path, chapters: Sequence[Chapter]) -> None:
    """Removes figures that an earlier report wrote and this one does not have; files of other names stay."""
    drawn = {(chapter.task, name) for chapter in chapters for name in chapter.figures}
    for task, titles in list_figure_titles().items():
        for name in titles:
            if (task, name) not in drawn:
                for suffix in ("svg", "png"):
                    (folder / task / f"{name}.{suffix}").unlink(missing_ok=True)
