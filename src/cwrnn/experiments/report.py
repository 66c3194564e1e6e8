"""The report: one page that shows what a store holds. It reads the store only, and trains nothing.

    index.html      self-contained: figures and sounds are inside, nothing is fetched
    figures/        the figures as files, SVG and PNG
    summary.json    the numbers behind the tables, small

The same store makes the same bytes.
"""

import base64
import io
import json
import math
import re
import wave
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..extras import require
from . import compression, figures, findings, generation
from .models import METHODS
from .outcomes import best_rates, summarise
from .runs import DIVERGED, FAILED, FINISHED, STATUSES, Dataset, Record
from .store import Store
from .training import LEARNING_RATES, Settings

SECONDS = 1.0
"""What a sequence is repeated to, so that it can be heard."""
LOUDNESS = 0.5
"""What samples are multiplied with: room for outputs beyond [-1, 1], and mercy."""
LISTED = 200
"""How many diverged runs are listed one by one."""

# the colours of the figures, and the names that the page gives them, in light and in dark
VARIABLES = {
    figures.INK: "--ink",
    figures.MUTED: "--muted",
    figures.GRID: "--grid",
    figures.TARGET: "--target",
    **{colour: f"--{method}" for method, colour in figures.COLOURS.items()},
}


TITLES = {
    "errors": "Errors of all runs",
    "outputs": "Outputs of the best networks",
    "curves": "Learning curves",
    "modules": "What each module does",
    "compression": "The weights as a code",
    "search": "The search of the learning rate",
}
"""Every figure that there may be, by the name of its file."""


@dataclass(frozen=True)
class Sound:
    """Something to listen to."""

    method: str | None
    """Whose output it is; None for the original."""
    text: str
    uri: str


def write(store: Store, folder: Path) -> Path:
    """Writes the page of the store into the folder; the path of its index.html."""
    jinja2 = require("jinja2", extra="experiments", purpose="the report")
    every, search, datasets = store.records(), store.records(generation.SEARCH), store.datasets()
    records, others = _main(every)
    found, unfound = _main(search, rate=False)
    rows = summarise(every)
    main = summarise(records)
    points = compression.measure(records, datasets)
    baselines = compression.baselines(datasets[name] for name in datasets if any(r.run.data == name for r in records))
    shown = _shown(records)
    drawn = _figures(records, found, datasets, shown, points, baselines)

    place = folder / "figures"
    place.mkdir(parents=True, exist_ok=True)
    drawings = {}
    for name, figure in drawn.items():
        svg = figures.render(figure, "svg")
        (place / f"{name}.svg").write_bytes(svg)
        (place / f"{name}.png").write_bytes(figures.render(figure, "png"))
        drawings[name] = inline(svg.decode(), name, TITLES[name])
    # of a page that was written when the store held something else
    for stale in TITLES.keys() - drawn.keys():
        for suffix in ("svg", "png"):
            (place / f"{stale}.{suffix}").unlink(missing_ok=True)

    numbers = summary(store, every, search, datasets, points, baselines)
    (folder / "summary.json").write_text(json.dumps(numbers, indent=1, allow_nan=False, ensure_ascii=False) + "\n",
                                         encoding="utf-8")  # fmt: skip

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True,
                                     undefined=jinja2.StrictUndefined)  # fmt: skip
    environment.filters |= {"short": figures.short, "method": figures.NAMES.get, "count": "{:,}".format}
    template = environment.from_string((files(__package__) / "page.html.j2").read_text(encoding="utf-8"))
    page = template.render(
        summary=findings.summary(records, main, datasets) if every or not search else [findings.search_summary(search)],
        claims=findings.claims(main),
        reasons=findings.reasons(records, main, datasets),
        rows=rows,
        several_settings=len({(row.method, row.size) for row in rows}) < len(rows),
        others=len(others),
        by_dataset=by_dataset(records, datasets),
        methods=[method for method in METHODS if any(record.run.method == method for record in records)],
        titles=TITLES,
        drawings=drawings,
        shown=shown,
        sounds=_sounds(records, datasets),
        points=points,
        baselines=baselines,
        coding=findings.coding(points, baselines),
        search=_search(found),
        search_others=len(unfound),
        failures=_failures([*every, *search]),
        diverged=_diverged([*every, *search]),
        searching=generation.SEARCH,
        listed=LISTED,
        environments=environments([*every, *search]),
        settings=_settings([*every, *search]),
        datasets=list(datasets.values()),
        commands=store.commands,
        created=store.created,
        example=figures.best(r for r in records if r.status == FINISHED),
        seconds=SECONDS,
        loudness=LOUDNESS,
        version=__version__,
    )
    index = folder / "index.html"
    index.write_text(page, encoding="utf-8")
    return index


def summary(
    store: Store,
    records: Sequence[Record],
    search: Sequence[Record],
    datasets: Mapping[str, Dataset],
    points: Sequence[compression.Point],
    baselines: Sequence[compression.Baseline],
) -> dict[str, Any]:
    """The numbers of the page, for JSON: what is not finite is None."""
    main, _ = _main(records)
    found, _ = _main(search, rate=False)
    main_rows = summarise(main)
    numbers: dict[str, Any] = _plain(
        {
            "command": store.command,
            "commands": store.commands,
            "created": store.created,
            "counts": _counts(records),
            "search_counts": _counts(search),
            "seconds": round(math.fsum(record.seconds for record in (*records, *search)), 1),
            "rows": [asdict(row) for row in summarise(records)],
            "claims": [asdict(claim) for claim in findings.claims(main_rows)],
            "reasons": findings.reasons(main, main_rows, datasets),
            "by_dataset": by_dataset(main, datasets),
            "compression": [asdict(point) for point in points],
            "pcm": [asdict(baseline) for baseline in baselines],
            "search": _search(found),
            "datasets": [
                {"name": d.name, "source": d.source, "rate": d.rate, "samples": len(d.samples), "digest": d.digest}
                for d in datasets.values()
            ],
            "environments": environments([*records, *search]),
        }
    )
    return numbers


def by_dataset(records: Sequence[Record], datasets: Mapping[str, Dataset]) -> list[dict[str, Any]]:
    """The median and the best NMSE of every method on every data set, in the largest size that it was run in."""
    found = []
    for method in METHODS:
        mine = [record for record in records if record.run.method == method]
        size = max((record.run.size for record in mine), default=0)
        for name in datasets:
            here = [record for record in mine if (record.run.data, record.run.size) == (name, size)]
            if here:
                box = figures.box(here)
                found.append(
                    {"method": method, "size": size, "data": name, "runs": len(here), "diverged": box.diverged,
                     "median": box.median, "best": box.minimum}
                )  # fmt: skip
    return found


def environments(records: Iterable[Record]) -> list[dict[str, Any]]:
    """What the runs were made with: each different environment once, and how many runs it made."""
    counts = Counter(tuple(sorted(record.environment.items())) for record in records)
    return [{"runs": count, **dict(items)} for items, count in sorted(counts.items())]


def sound(samples: NDArray[Any], rate: int) -> bytes:
    """The samples as a WAV file of 16 bits, repeated to about a second; what is beyond full scale is cut off."""
    repeated = np.tile(samples, max(1, round(SECONDS * rate / len(samples))))
    levels = np.clip(np.round(LOUDNESS * 32767 * repeated), -32768, 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(levels.tobytes())
    return file.getvalue()


def inline(svg: str, name: str, title: str) -> Any:
    """The drawing as a part of a page: it takes the page's colours, and its ids are its own."""
    markup = require("markupsafe", extra="experiments", purpose="the report")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    head, body = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    return markup.Markup(
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg" {box.group()} role="img">'
        f"<title>{markup.escape(title)}</title>{body}"
    )


def _main(records: Sequence[Record], *, rate: bool = True) -> tuple[list[Record], list[Record]]:
    """The records that are drawn, and the rest: for each method, the hyper-parameters that most of its runs have.

    Without `rate` all learning rates are one, as in a search of them.
    """

    def settings_of(record: Record) -> Settings:
        return record.run.settings if rate else replace(record.run.settings, learning_rate=0.0)

    counts = Counter((record.run.method, settings_of(record)) for record in records)
    chosen = {
        method: max(
            (settings for each, settings in counts if each == method),
            key=lambda settings: (counts[method, settings], settings.epochs, repr(settings)),
        )
        for method in {method for method, _ in counts}
    }
    main = [record for record in records if settings_of(record) == chosen[record.run.method]]
    return main, [record for record in records if settings_of(record) != chosen[record.run.method]]


def _shown(records: Iterable[Record]) -> Record | None:
    """The Clockwork RNN whose modules are drawn: the best one of the largest size."""
    clockwork = [record for record in records if (record.run.method, record.status) == ("cw", FINISHED)]
    largest = max((record.run.size for record in clockwork), default=0)
    return figures.best(record for record in clockwork if record.run.size == largest)


def _figures(
    records: Sequence[Record],
    search: Sequence[Record],
    datasets: Mapping[str, Dataset],
    shown: Record | None,
    points: Sequence[compression.Point],
    baselines: Sequence[compression.Baseline],
) -> dict[str, Any]:
    """The figures that these records have something for."""
    found = {}
    if records:
        found["errors"] = figures.box_plot(records, findings.paper_figures())
        found["outputs"] = figures.outputs(records, datasets)
    if any(record.status == FINISHED for record in records):
        found["curves"] = figures.learning_curves(records)
    if shown is not None:
        found["modules"] = figures.activations(shown, datasets[shown.run.data])
    if points:
        found["compression"] = figures.rate_distortion(points, baselines)
    if search:
        found["search"] = figures.search_curve(search)
    return found


def _sounds(records: Sequence[Record], datasets: Mapping[str, Dataset]) -> list[tuple[str, list[Sound]]]:
    """By data set: the original, and the output of the best network of each method."""
    found = []
    for name, dataset in datasets.items():
        sounds = [Sound(None, "original", _uri(sound(dataset.samples, dataset.rate)))]
        for method in METHODS:
            mine = (r for r in records if (r.run.method, r.run.data, r.status) == (method, name, FINISHED))
            record = figures.best(mine)
            if record is not None and record.output is not None:
                text = f"{record.run.size} parameters, NMSE {figures.short(record.error)}, run {record.key[:12]}"
                sounds.append(Sound(method, text, _uri(sound(record.output, dataset.rate))))
        if len(sounds) > 1:
            found.append((name, sounds))
    return found


def _uri(wav: bytes) -> str:
    return f"data:audio/wav;base64,{base64.b64encode(wav).decode()}"


def _search(records: Sequence[Record]) -> list[dict[str, Any]]:
    """What came of every learning rate, by method and size, and which is best."""
    best = best_rates(records)
    found = []
    for method in METHODS:
        for size in sorted({record.run.size for record in records if record.run.method == method}):
            mine = [record for record in records if (record.run.method, record.run.size) == (method, size)]
            for each in figures.searched(mine):
                found.append({"method": method, "size": size, "best": each.rate == best.get((method, size)),
                              "paper": math.isclose(each.rate, LEARNING_RATES[method]), **asdict(each)})  # fmt: skip
    return found


def _failures(records: Iterable[Record]) -> list[tuple[str, list[Record]]]:
    """The failed runs by their traceback, the most frequent first."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.status == FAILED:
            groups.setdefault(record.traceback or "no traceback was recorded", []).append(record)
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))


def _counts(records: Iterable[Record]) -> dict[str, int]:
    counts = Counter(record.status for record in records)
    return {status: counts[status] for status in STATUSES}


def _diverged(records: Iterable[Record]) -> list[Record]:
    order = {method: place for place, method in enumerate(METHODS)}
    found = [record for record in records if record.status == DIVERGED]
    return sorted(
        found,
        key=lambda r: (r.run.task, order[r.run.method], r.run.size, r.run.data, r.run.settings.learning_rate,
                       r.run.seed, r.key),
    )  # fmt: skip


def _settings(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The hyper-parameters that occur, by method, without those that do not concern it."""
    foreign = {"srn": {"modules", "peepholes", "forget_bias"}, "lstm": {"modules"}, "cw": {"peepholes", "forget_bias"}}
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        method = record.run.method
        values = {name: v for name, v in asdict(record.run.settings).items() if name not in foreign[method]}
        found[f"{METHODS.index(method)}{json.dumps(values, sort_keys=True)}"] = {"method": method, "settings": values}
    return [found[key] for key in sorted(found)]


def _plain(value: Any) -> Any:
    """`value` for JSON, which has no NaN and no infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value
